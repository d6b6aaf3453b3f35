/* cli: options of a command from a JSON file, and as names and values. */
#include "cli/lm/config.h"

#include "cli/message.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading --------------------------------------------------------------------------------- */

/* A single value written as on the command line; false: no option takes such a value. */
static bool print_json(const json_t *value, char *out, size_t size) {
    if (json_is_string(value))
        return (size_t)snprintf(out, size, "%s", json_string_value(value)) < size;
    if (json_is_integer(value))
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, size, "%.17g", json_real_value(value));
    else
        return false;
    return true;
}

static bool print_list(const json_t *list, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (used + 2 >= size) return false;
        if (i > 0) out[used++] = ',';
        if (!print_json(json_array_get(list, i), out + used, size - used)) return false;
        used += strlen(out + used);
    }
    return used > 0;
}

/* The values read, kept until the program ends: settings point into them. */
static json_t *kept;

static bool keep(json_t *value) {
    if (kept == NULL) kept = json_array();
    return kept != NULL && json_array_append_new(kept, value) == 0;
}

static const cli_option *find_option(const cli_command *command, const char *name) {
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++)
            if (strcmp(command->groups[g].options[i].name, name) == 0)
                return &command->groups[g].options[i];
    return NULL;
}

static int take(const cli_command *command, const char *key, const json_t *value, void *settings) {
    const cli_option *option = find_option(command, key);
    char text[4096];
    if (option == NULL) return cli_parse_option(command, key, "", settings); /* which says so */
    if (strcmp(key, "config") == 0) return cli_usage("it cannot name a \"config\"");
    if (json_is_null(value)) return CLI_DONE;
    if (option->kind == CLI_FLAG) {
        if (!json_is_boolean(value)) return cli_usage("\"%s\" is true or false", key);
        return json_is_true(value) ? cli_parse_option(command, key, "", settings) : CLI_DONE;
    }
    bool fine = json_is_array(value) ? print_list(value, text, sizeof text)
                                     : print_json(value, text, sizeof text);
    if (!fine)
        return cli_usage("the value of \"%s\" is not a text, a number or a list of these", key);
    json_t *copy = json_string(text);
    if (!keep(copy)) return cli_fail("out of memory");
    return cli_parse_option(command, key, json_string_value(copy), settings);
}

int cli_config_read(const cli_command *command, const char *path, void *settings) {
    json_error_t error;
    const char *key;
    json_t *value, *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && error.line > 0)
        return cli_fail("%s: line %d: %s", path, error.line, error.text);
    if (root == NULL) return cli_fail("%s", error.text); /* which names the file */
    int code = CLI_DONE;
    cli_message_about(path);
    if (!json_is_object(root)) code = cli_usage("no object of options");
    json_object_foreach(root, key, value) {
        if (code == CLI_DONE) code = take(command, key, value, settings);
    }
    cli_message_about(NULL);
    json_decref(root);
    return code;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_values(const cli_option *option, const void *member, char *out, size_t size) {
    const cli_words *list = member;
    size_t used = 0;
    for (size_t i = 0; i < list->count && used + 1 < size; i++) {
        const char *comma = i > 0 ? "," : "";
        const void *values = list->values;
        if (option->kind == CLI_INTEGERS)
            snprintf(out + used, size - used, "%s%lld", comma,
                     (long long)((const int64_t *)values)[i]);
        else if (option->kind == CLI_REALS)
            snprintf(out + used, size - used, "%s%.15g", comma, ((const double *)values)[i]);
        else
            snprintf(out + used, size - used, "%s%s", comma, list->values[i]);
        used += strlen(out + used);
    }
}

static void print_option(const cli_option *option, const void *member, char *out, size_t size) {
    const char *text;
    out[0] = '\0';
    switch (option->kind) {
    case CLI_FLAG: snprintf(out, size, "%d", (int)*(const bool *)member); break;
    case CLI_INTEGER: snprintf(out, size, "%lld", (long long)*(const int64_t *)member); break;
    case CLI_SEED:
        snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)member);
        break;
    case CLI_REAL: snprintf(out, size, "%.15g", *(const double *)member); break;
    case CLI_CHOICE: snprintf(out, size, "%s", option->choices()[*(const int *)member]); break;
    case CLI_TEXT:
    case CLI_FILE:
        text = *(const char *const *)member;
        snprintf(out, size, "%s", text != NULL ? text : "");
        break;
    default: print_values(option, member, out, size);
    }
}

int cli_config_settings(const cli_command *command, const void *given, cli_varies most,
                        cli_settings *out) {
    for (size_t g = 0; g < command->group_count; g++) {
        const cli_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count; i++) {
            const cli_option *option = &group->options[i];
            char *value = out->text + out->used;
            const size_t room = sizeof out->text - out->used;
            if (option->varies > most) continue;
            if (out->count == CLI_COUNT(out->list) || room < 2)
                return cli_fail("the options are too long to be written down");
            print_option(option, (const char *)given + group->offset + option->offset, value, room);
            if (strlen(value) + 1 == room) /* it may have been cut */
                return cli_fail("--%s is too long to be written down", option->name);
            out->used += strlen(value) + 1;
            out->list[out->count++] = (plsh_train_setting){.name = option->name, .value = value};
        }
    }
    return CLI_DONE;
}
