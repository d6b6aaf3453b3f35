/* cli: reading the arguments by the option tables. */
#include "cli/command.h"
#include "cli/message.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Levenshtein distance; the distance of words longer than the table is the largest possible. */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 40 };
    size_t la = strlen(a), lb = strlen(b);
    if (la > LONGEST || lb > LONGEST) return LONGEST;
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= lb; j++) row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb];
}

const char *cli_nearest(const char *word, const char *const *words, size_t count) {
    const char *nearest = NULL;
    size_t best = strlen(word) / 3 + 2; /* at most a third of its letters plus one may be wrong */
    for (size_t i = 0; i < count; i++) {
        size_t d = distance(word, words[i]);
        if (strlen(word) >= 2 && strncmp(word, words[i], strlen(word)) == 0) d = 1;
        if (d < best) {
            best = d;
            nearest = words[i];
        }
    }
    return nearest;
}

static int refuse(const cli_option *option, const char *text, const char *wanted) {
    return cli_usage("--%s: \"%s\" is not %s", option->name, text, wanted);
}

static int out_of_range(const cli_option *option, const char *text) {
    const cli_range *range = &option->range;
    char least[64] = "", most[64] = "";
    if (!isinf(range->least))
        snprintf(least, sizeof least, "%s %.15g", range->above ? "more than" : "at least",
                 range->least);
    if (!isinf(range->most))
        snprintf(most, sizeof most, "%s %.15g", range->below ? "less than" : "at most",
                 range->most);
    return cli_usage("--%s: %s is out of range; it has to be %s%s%s", option->name, text, least,
                     least[0] != '\0' && most[0] != '\0' ? " and " : "", most);
}

static bool in_range(const cli_range *range, double x) {
    if (range->least == 0 && range->most == 0 && !range->above) return true;
    if (range->above ? !(x > range->least) : !(x >= range->least)) return false;
    return range->below ? x < range->most : x <= range->most;
}

/* "1e18", "2.5e3": in whole numbers, because a double is not exact beyond 2^53. */
static bool parse_scientific(const char *text, long long *out) {
    const char *digit = text + (*text == '-' || *text == '+');
    long long value = 0, exponent = 0;
    int digits = 0, after = -1; /* digits, and those after the point */
    for (; (*digit >= '0' && *digit <= '9') || (*digit == '.' && after < 0); digit++) {
        after += *digit == '.' || after >= 0;
        if (*digit == '.') continue;
        digits++;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *digit - '0', &value))
            return false;
    }
    char *end = NULL;
    if (*digit == 'e' || *digit == 'E') exponent = strtoll(digit + 1, &end, 10);
    if (digits == 0 || end == NULL || end == digit + 1 || *end != '\0') return false;
    if (exponent < -18 || exponent > 18 + digits) return false;
    for (exponent -= after > 0 ? after : 0; exponent < 0; exponent++, value /= 10)
        if (value % 10 != 0) return false;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(value, 10, &value)) return false;
    *out = *text == '-' ? -value : value;
    return true;
}

/* Accepts 4096, 1e6 and 64k (k = 1024). */
static int parse_integer(const cli_option *option, const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool whole = end != text && *end == '\0' && errno == 0;
    if (!whole && strpbrk(text, "eE") != NULL) {
        whole = parse_scientific(text, &value);
    } else if (!whole && errno == 0 && end != text && (*end == 'k' || *end == 'M') &&
               end[1] == '\0') {
        whole = !__builtin_mul_overflow(value, *end == 'k' ? 1024LL : 1048576LL, &value);
    }
    if (!whole) return refuse(option, text, "a whole number of 64 bits (such as 4096, 1e6 or 64k)");
    if (!in_range(&option->range, (double)value)) return out_of_range(option, text);
    *out = value;
    return CLI_DONE;
}

static int parse_seed(const cli_option *option, const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (end == text || *end != '\0' || errno != 0 || strchr(text, '-') != NULL)
        return refuse(option, text, "a whole number from 0 to 2^64 - 1");
    *out = value;
    return CLI_DONE;
}

static int parse_real(const cli_option *option, const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return refuse(option, text, "a finite number");
    if (!in_range(&option->range, value)) return out_of_range(option, text);
    *out = value;
    return CLI_DONE;
}

static int parse_choice(const cli_option *option, const char *text, int *out) {
    const char *const *choices = option->choices();
    char wanted[512] = "one of";
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *out = i;
            return CLI_DONE;
        }
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s %s", i > 0 ? "," : "", choices[i]);
    }
    return refuse(option, text, wanted);
}

/* One item of a list into element `index` of its values. */
static int parse_item(const cli_option *option, const char *text, void *values, size_t index) {
    int choice;
    switch (option->kind) {
    case CLI_INTEGERS: return parse_integer(option, text, (int64_t *)values + index);
    case CLI_REALS: return parse_real(option, text, (double *)values + index);
    default:
        if (text[0] == '\0') return refuse(option, text, "a word (\\, is a comma within one)");
        if (option->choices != NULL && parse_choice(option, text, &choice) != CLI_DONE)
            return CLI_USAGE;
        ((char **)values)[index] = strdup(text);
        return ((char **)values)[index] == NULL ? cli_fail("out of memory") : CLI_DONE;
    }
}

/* The three list types share their layout: a count, then a pointer to values of 8 bytes. */
static void list_free(const cli_option *option, cli_words *list) {
    if (option->kind == CLI_WORDS)
        for (size_t i = 0; i < list->count; i++) free(list->values[i]);
    free(list->values);
    *list = (cli_words){0};
}

/* Takes the next item from *rest, which becomes NULL after the last one. In lists of words \, and
 * \\ stand for a comma and a backslash within one. */
static char *take_item(const cli_option *option, char **rest) {
    if (option->kind != CLI_WORDS) return strsep(rest, ",");
    char *item = *rest, *to = item, *from = item;
    for (; *from != '\0' && *from != ','; *to++ = *from++)
        if (*from == '\\' && (from[1] == ',' || from[1] == '\\')) from++;
    *rest = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return item;
}

static int parse_list(const cli_option *option, const char *text, cli_words *out) {
    size_t items = 1;
    for (const char *c = text; *c != '\0'; c++) items += *c == ',';
    list_free(option, out);
    char *copy = strdup(text);
    out->values = calloc(items, 8);
    if (copy == NULL || out->values == NULL) {
        free(copy);
        return cli_fail("--%s: out of memory", option->name);
    }
    int code = CLI_DONE;
    char *rest = copy;
    for (size_t i = 0; rest != NULL && code == CLI_DONE; i++) {
        code = parse_item(option, take_item(option, &rest), out->values, i);
        if (code == CLI_DONE) out->count = i + 1;
    }
    free(copy);
    return code;
}

int cli_parse_value(const cli_option *option, const char *text, void *member) {
    switch (option->kind) {
    case CLI_FLAG: *(bool *)member = true; return CLI_DONE;
    case CLI_INTEGER: return parse_integer(option, text, member);
    case CLI_SEED: return parse_seed(option, text, member);
    case CLI_REAL: return parse_real(option, text, member);
    case CLI_CHOICE: return parse_choice(option, text, member);
    case CLI_TEXT:
    case CLI_FILE:
        if (text[0] == '\0') return cli_usage("--%s: its value is empty", option->name);
        if (option->resolve != NULL) text = option->resolve(text);
        *(const char **)member = text;
        return text != NULL ? CLI_DONE : CLI_FAILED;
    case CLI_INTEGERS:
    case CLI_REALS:
    case CLI_WORDS: return parse_list(option, text, member);
    }
    return CLI_USAGE;
}

/* Names of the options that were given: pointers into the tables. */
static struct {
    const char *names[256];
    size_t count;
} given;

bool cli_option_given(const char *name) {
    for (size_t i = 0; i < given.count; i++)
        if (strcmp(given.names[i], name) == 0) return true;
    return false;
}

static int parse_given(const cli_option *option, const char *text, void *member) {
    if (!cli_option_given(option->name) && given.count < CLI_COUNT(given.names))
        given.names[given.count++] = option->name;
    return cli_parse_value(option, text, member);
}

static void *member_of(const cli_group *group, const cli_option *option, void *settings) {
    return (char *)settings + group->offset + option->offset;
}

/* The option called `name` (the first `length` bytes); *member is where its value goes. */
static const cli_option *find_option(const cli_command *command, const char *name, size_t length,
                                     void *settings, void **member) {
    for (size_t g = 0; g < command->group_count; g++) {
        const cli_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count; i++) {
            const cli_option *option = &group->options[i];
            if (strlen(option->name) != length || strncmp(option->name, name, length) != 0)
                continue;
            *member = member_of(group, option, settings);
            return option;
        }
    }
    return NULL;
}

static int unknown_option(const cli_command *command, const char *argument, size_t length) {
    const char *names[128];
    size_t count = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, argument);
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count && count < CLI_COUNT(names); i++)
            names[count++] = command->groups[g].options[i].name;
    const char *nearest = cli_nearest(name, names, count);
    if (nearest != NULL)
        return cli_usage("there is no option --%s; did you mean --%s?", name, nearest);
    return cli_usage("there is no option --%s; see plsh %s --help", name, command->name);
}

static int parse_fallbacks(const cli_command *command, void *settings) {
    int code = CLI_DONE;
    for (size_t g = 0; g < command->group_count; g++) {
        const cli_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count && code == CLI_DONE; i++) {
            const cli_option *option = &group->options[i];
            void *member = member_of(group, option, settings);
            if (option->fallback != NULL)
                code = cli_parse_value(option, option->fallback, member);
            else if (option->kind == CLI_CHOICE)
                *(int *)member = -1;
        }
    }
    return code;
}

/* All but flags of one kind: a required option has no fallback, so its text or list is empty. */
static int check_required(const cli_command *command, void *settings) {
    for (size_t g = 0; g < command->group_count; g++) {
        const cli_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count; i++) {
            const cli_option *option = &group->options[i];
            const char zero[sizeof(cli_words)] = {0};
            size_t size = option->kind >= CLI_INTEGERS ? sizeof(cli_words) : 8;
            if (option->required && memcmp(member_of(group, option, settings), zero, size) == 0)
                return cli_usage("--%s %s is missing: %s", option->name, option->value,
                                 option->help);
        }
    }
    return CLI_DONE;
}

int cli_parse_option(const cli_command *command, const char *name, const char *value,
                     void *settings) {
    void *member;
    const cli_option *option = find_option(command, name, strlen(name), settings, &member);
    if (option == NULL) return unknown_option(command, name, strlen(name));
    return parse_given(option, value, member);
}

/* --config FILE, --config=FILE */
static int parse_configs(const cli_command *command, int argc, char **argv, void *settings) {
    static const char name[] = "--config";
    int code = CLI_DONE;
    for (int i = 0; command->configure != NULL && code == CLI_DONE && i < argc; i++) {
        if (strcmp(argv[i], name) == 0 && i + 1 < argc)
            code = command->configure(command, argv[i + 1], settings);
        else if (strncmp(argv[i], name, sizeof name - 1) == 0 && argv[i][sizeof name - 1] == '=')
            code = command->configure(command, argv[i] + sizeof name, settings);
    }
    return code;
}

int cli_parse(const cli_command *command, int argc, char **argv, void *settings) {
    given.count = 0;
    int code = parse_fallbacks(command, settings);
    if (code == CLI_DONE) code = parse_configs(command, argc, argv, settings);
    for (int i = 0; i < argc && code == CLI_DONE; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
            return cli_usage("\"%s\" is not an option; see plsh %s --help", argument,
                             command->name);
        argument += 2;
        size_t length = strcspn(argument, "=");
        void *member;
        const cli_option *option = find_option(command, argument, length, settings, &member);
        if (option == NULL) return unknown_option(command, argument, length);
        const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
        if (option->kind == CLI_FLAG && value != NULL)
            return cli_usage("--%s takes no value", option->name);
        if (option->kind != CLI_FLAG && value == NULL) {
            if (++i == argc)
                return cli_usage("--%s needs a value: %s", option->name, option->value);
            value = argv[i];
        }
        code = parse_given(option, value, member);
    }
    return code == CLI_DONE ? check_required(command, settings) : code;
}

void cli_settings_free(const cli_command *command, void *settings) {
    for (size_t g = 0; g < command->group_count; g++) {
        const cli_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count; i++)
            if (group->options[i].kind >= CLI_INTEGERS)
                list_free(&group->options[i], member_of(group, &group->options[i], settings));
    }
}
