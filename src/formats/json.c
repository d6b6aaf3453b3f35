/* formats: JSON from untrusted files, by jansson, with our errors. */
#include "formats/json.h"

#include <string.h>

#include "base/mapping.h"
#include "base/status.h"

/* A value costs jansson up to 250 bytes: with four million marks ([ { : ,) a text takes at most
 * half a gigabyte. The largest tokenizer.json in use (Gemma 3, 33 MB) has two million, the index of
 * a model of 700 billion parameters 200,000. */
enum { MARKS_MOST = 1 << 22 };

static plsh_status check_size(const char *bytes, size_t length, const char *what,
                              plsh_error *error) {
    size_t marks = 0;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        const char c = bytes[i];
        if (in_string && c == '\\') i++;
        if (c == '"') in_string = !in_string;
        marks += !in_string && (c == '[' || c == '{' || c == ':' || c == ',');
    }
    if (marks <= MARKS_MOST) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: JSON of %zu values; at most %d are read",
                     what, marks, (int)MARKS_MOST);
}

plsh_status plsh_weights_json_parse(const char *bytes, size_t length, const char *what,
                                    json_t **root, plsh_error *error) {
    return plsh_weights_json_parse_as(bytes, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, what,
                                      root, error);
}

plsh_status plsh_weights_json_parse_as(const char *bytes, size_t length, size_t flags,
                                       const char *what, json_t **root, plsh_error *error) {
    json_error_t problem;
    *root = NULL;
    plsh_status status = check_size(bytes, length, what, error);
    if (status != PLSH_STATUS_OK) return status;
    *root = json_loadb(bytes, length, flags, &problem);
    if (*root) return PLSH_STATUS_OK;
    if (json_error_code(&problem) == json_error_out_of_memory) {
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory for its JSON", what);
    }
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: not JSON at line %d, column %d: %s", what,
                     problem.line, problem.column, problem.text);
}

plsh_status plsh_weights_json_read(const char *path, json_t **root, plsh_error *error) {
    plsh_mapping mapping;
    *root = NULL;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_weights_json_parse((const char *)mapping.bytes, mapping.size, path, root, error);
    plsh_mapping_close(&mapping);
    return status;
}

/* The field, or NULL where it is absent or null. */
static const json_t *field(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

static plsh_status wrong_type(const char *what, const char *key, const char *right,
                              plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"%s\" must be %s", what, key, right);
}

plsh_status plsh_weights_json_integer(const json_t *object, const char *key, int64_t least,
                                      int64_t most, const char *what, int64_t *out,
                                      plsh_error *error) {
    const json_t *value = field(object, key);
    if (!value) return PLSH_STATUS_OK;
    if (!json_is_integer(value)) return wrong_type(what, key, "a whole number", error);
    int64_t number = json_integer_value(value);
    if (least == most && number != least) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: \"%s\" is %lld; %lld is supported",
                         what, key, (long long)number, (long long)least);
    }
    if (number < least || number > most) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"%s\" is %lld; %lld to %lld", what, key,
                         (long long)number, (long long)least, (long long)most);
    }
    *out = number;
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_json_number(const json_t *object, const char *key, const char *what,
                                     double *out, plsh_error *error) {
    const json_t *value = field(object, key);
    if (!value) return PLSH_STATUS_OK;
    if (!json_is_number(value)) return wrong_type(what, key, "a number", error);
    *out = json_number_value(value);
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_json_bool(const json_t *object, const char *key, const char *what,
                                   bool *out, plsh_error *error) {
    const json_t *value = field(object, key);
    if (!value) return PLSH_STATUS_OK;
    if (!json_is_boolean(value)) return wrong_type(what, key, "true or false", error);
    *out = json_is_true(value);
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_json_string(const json_t *object, const char *key, const char *what,
                                     const char **out, plsh_error *error) {
    const json_t *value = field(object, key);
    if (!value) return PLSH_STATUS_OK;
    if (!json_is_string(value)) return wrong_type(what, key, "a string", error);
    if (strlen(json_string_value(value)) != json_string_length(value)) {
        return wrong_type(what, key, "a string without zero bytes", error);
    }
    *out = json_string_value(value);
    return PLSH_STATUS_OK;
}
