/* base: how many processors this process may use. */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#endif

int plsh_processors_of_affinity(void) {
#ifdef __linux__
    /* The kernel refuses a set that is smaller than its own. */
    for (int size = 1024; size <= 1 << 20; size *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)size);
        if (set == NULL) break;
        const int failed = sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)size), set) ? errno : 0;
        const int count = failed ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)size), set);
        CPU_FREE(set);
        if (!failed) return count > 0 ? count : 1;
        if (failed != EINVAL) break;
    }
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > INT_MAX ? INT_MAX : (int)online;
}

/* ---- Quotas of cgroups ----------------------------------------------------------------------- */

enum { LINE = 4096 };

/* Reads one number; false if the file is missing or holds something else, such as "max". */
static bool read_number(const char *folder, const char *name, long long *number) {
    char path[2 * LINE];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    const int read = fscanf(file, "%lld", number);
    fclose(file);
    return read == 1;
}

/* cpu.max of version 2: "50000 100000", or "max 100000". */
static bool read_max(const char *folder, long long *quota, long long *period) {
    char path[2 * LINE];
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    const int read = fscanf(file, "%lld %lld", quota, period);
    fclose(file);
    return read == 2;
}

/* The number of processors that the quota of the cgroup in this folder allows; 0 without a
 * quota. */
static int quota_of(const char *folder, bool first_version) {
    long long quota, period;
    if (first_version ? !read_number(folder, "cpu.cfs_quota_us", &quota) ||
                            !read_number(folder, "cpu.cfs_period_us", &period)
                      : !read_max(folder, &quota, &period))
        return 0;
    if (quota <= 0 || period <= 0) return 0; /* -1 is no quota */
    const long long whole = (quota - 1) / period + 1;
    return whole > INT_MAX ? INT_MAX : (int)whole;
}

/* Where a hierarchy is mounted, and which of its groups that place shows. */
typedef struct mount {
    char root[LINE], place[LINE];
} mount;

/* Is `word` one of the words of a list with commas? */
static bool has_word(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* "36 35 98:0 /root /place options - type source options" */
static bool is_mount(char *line, bool first_version, mount *out) {
    char type[64], options[LINE];
    char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(rest, " - %63s %*s %4095s", type, options) != 2) return false;
    if (strcmp(type, first_version ? "cgroup" : "cgroup2") != 0) return false;
    if (first_version && !has_word(options, "cpu")) return false;
    return sscanf(line, "%*s %*s %*s %4095s %4095s", out->root, out->place) == 2;
}

static bool find_mount(const char *root, bool first_version, mount *out) {
    char line[2 * LINE];
    bool found = false;
    if (snprintf(line, sizeof line, "%s/proc/self/mountinfo", root) >= (int)sizeof line)
        return false;
    FILE *file = fopen(line, "r");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        found = is_mount(line, first_version, out);
    }
    if (file != NULL) fclose(file);
    return found;
}

/* The smallest quota of a cgroup and of those above it that are mounted; 0 without a quota. */
static int least_quota(const char *root, const char *group, bool first_version) {
    mount at;
    char folder[3 * LINE];
    if (!find_mount(root, first_version, &at)) return 0;
    const size_t shown = strcmp(at.root, "/") == 0 ? 0 : strlen(at.root);
    const bool below = strncmp(group, at.root, shown) == 0 &&
                       (group[shown] == '/' || group[shown] == '\0'); /* else it is not shown */
    snprintf(folder, sizeof folder, "%s%s%s", root, at.place, below ? group + shown : "");
    const size_t top = strlen(root) + strlen(at.place);
    int least = 0;
    for (;;) {
        const int quota = quota_of(folder, first_version);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
        char *last = strrchr(folder, '/');
        if (last == NULL || (size_t)(last - folder) < top) return least;
        *last = '\0';
    }
}

int plsh_processors_of_quota(const char *root) {
    char line[LINE];
    int least = 0;
    if (snprintf(line, sizeof line, "%s/proc/self/cgroup", root) >= (int)sizeof line) return 0;
    FILE *file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0'; /* "0::/group", or "4:cpu,cpuacct:/group" */
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        const bool first_version = *++controllers != '\0';
        if (first_version && !has_word(controllers, "cpu")) continue;
        const int quota = least_quota(root, group, first_version);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
    }
    if (file != NULL) fclose(file);
    return least;
}
