/* formats: models in the local cache of the Hugging Face hub, by their names. Nothing is fetched.
 *
 *     <cache>/models--<owner>--<name>/refs/main          a revision
 *     <cache>/models--<owner>--<name>/snapshots/<revision>/config.json, .. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "formats/path.h"
#include "plsh/weights.h"

enum { REVISION_SIZE = 128 };

/* Letters, digits, '.', '_' and '-', not beginning with a dot: it cannot lead to another folder. */
static bool is_plain(const char *text, size_t length) {
    if (length == 0 || length >= REVISION_SIZE || text[0] == '.') return false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

bool plsh_hub_is_name(const char *name) {
    const char *slash = strchr(name, '/');
    return slash && is_plain(name, (size_t)(slash - name)) &&
           is_plain(slash + 1, strlen(slash + 1));
}

static bool print_path(char *out, size_t size, const char *base, const char *rest) {
    const int length = snprintf(out, size, "%s%s", base, rest);
    return length > 0 && (size_t)length < size;
}

/* As huggingface_hub has it: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 * ~/.cache/huggingface/hub. */
static bool find_cache(char *out, size_t size) {
    static const struct {
        const char *variable, *rest;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && value[0]) return print_path(out, size, value, places[i].rest);
    }
    return false;
}

/* The revision that refs/main names. */
static bool read_revision(const char *repository, char out[REVISION_SIZE]) {
    char path[PLSH_HUB_PATH];
    if (!print_path(path, sizeof path, repository, "/refs/main")) return false;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t length = fread(out, 1, REVISION_SIZE - 1, file);
    fclose(file);
    while (length > 0 && (out[length - 1] == '\n' || out[length - 1] == ' ')) length--;
    out[length] = '\0';
    return is_plain(out, length);
}

plsh_status plsh_hub_find(const char *name, char out[PLSH_HUB_PATH], plsh_error *error) {
    char cache[PLSH_HUB_PATH] = "", repository[PLSH_HUB_PATH], revision[REVISION_SIZE];
    if (!plsh_hub_is_name(name))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%.100s is not the name of a model (owner/name)", name);
    const char *slash = strchr(name, '/');
    if (find_cache(cache, sizeof cache)) {
        const int length = snprintf(repository, sizeof repository, "%s/models--%.*s--%s", cache,
                                    (int)(slash - name), name, slash + 1);
        if (length > 0 && (size_t)length < sizeof repository &&
            read_revision(repository, revision)) {
            const int all = snprintf(out, PLSH_HUB_PATH, "%s/snapshots/%s", repository, revision);
            if (all > 0 && all < PLSH_HUB_PATH && plsh_path_is_folder(out)) return PLSH_STATUS_OK;
        }
    }
    return plsh_fail(error, PLSH_STATUS_IO,
                     "%.100s: no such file or folder, nor a model of that name in the Hugging Face "
                     "cache (%.100s); to fetch it: hf download %.100s",
                     name, cache[0] ? cache : "HF_HUB_CACHE", name);
}
