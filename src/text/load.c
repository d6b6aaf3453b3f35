/* text: reading a tokenizer.json. */
#include "text/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/json.h"
#include "formats/path.h"

enum { DEEPEST_SEQUENCE = 16 };

plsh_status plsh_load_fail(const plsh_load *load, const char *part, const char *format, ...) {
    char message[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return plsh_fail(load->error, PLSH_STATUS_UNSUPPORTED, "%s: %s: %s", load->name, part, message);
}

/* ---- parts and fields ---- */

plsh_status plsh_load_part(plsh_load *load, const char *part, const plsh_load_row *rows,
                           const json_t *object) {
    if (object == NULL || json_is_null(object)) return PLSH_STATUS_OK;
    const char *type = json_string_value(json_object_get(object, "type"));
    if (type == NULL) return plsh_load_fail(load, part, "has no \"type\"");
    for (; rows->type != NULL; rows++)
        if (strcmp(rows->type, type) == 0) return rows->read(load, object, rows->kind);
    return plsh_load_fail(load, part, "\"%.60s\" is not supported", type);
}

plsh_status plsh_load_list(plsh_load *load, const char *part,
                           plsh_status (*read)(plsh_load *load, const json_t *object),
                           const json_t *object, const char *key) {
    const json_t *list = json_object_get(object, key);
    if (!json_is_array(list)) return plsh_load_fail(load, part, "\"%s\" must be a list", key);
    if (load->depth == DEEPEST_SEQUENCE)
        return plsh_load_fail(load, part, "sequences more than %d deep", DEEPEST_SEQUENCE);
    load->depth++;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < json_array_size(list) && status == PLSH_STATUS_OK; i++)
        status = read(load, json_array_get(list, i));
    load->depth--;
    return status;
}

plsh_status plsh_load_bool(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, bool *out) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value)) return PLSH_STATUS_OK;
    if (!json_is_boolean(value))
        return plsh_load_fail(load, part, "\"%s\" must be true or false", key);
    *out = json_is_true(value);
    return PLSH_STATUS_OK;
}

plsh_status plsh_load_size(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, size_t *out) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value)) return PLSH_STATUS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return plsh_load_fail(load, part, "\"%s\" must be a whole number", key);
    *out = (size_t)json_integer_value(value);
    return PLSH_STATUS_OK;
}

plsh_status plsh_load_text(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, bool single, plsh_text *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return plsh_load_fail(load, part, "\"%s\" must be a string", key);
    const char *bytes = json_string_value(value);
    const size_t length = json_string_length(value);
    if (single && (length == 0 || plsh_utf8_size(bytes[0]) != length))
        return plsh_load_fail(load, part, "\"%s\" must be one character", key);
    plsh_text_append(out, bytes, length);
    return plsh_text_status(out, load->error);
}

plsh_status plsh_load_pattern(const plsh_load *load, const char *part, const json_t *object,
                              plsh_pattern **out) {
    const json_t *pattern = json_object_get(object, "pattern");
    const json_t *text = json_object_get(pattern, "String");
    const bool literal = json_is_string(text);
    if (!literal) text = json_object_get(pattern, "Regex");
    if (!json_is_string(text))
        return plsh_load_fail(load, part, "\"pattern\" must hold a \"String\" or a \"Regex\"");
    char what[96];
    snprintf(what, sizeof what, "%.60s: %s", load->name, part);
    return plsh_pattern_create(out, json_string_value(text), json_string_length(text), literal,
                               what, load->error);
}

/* ---- the file ---- */

static plsh_status load_added(plsh_load *load, const json_t *list) {
    static const char part[] = "added_tokens";
    plsh_status status = PLSH_STATUS_OK;
    if (list == NULL || json_is_null(list)) return PLSH_STATUS_OK;
    if (!json_is_array(list)) return plsh_load_fail(load, part, "must be a list");
    for (size_t i = 0; i < json_array_size(list) && status == PLSH_STATUS_OK; i++) {
        const json_t *object = json_array_get(list, i);
        const json_t *content = json_object_get(object, "content");
        plsh_added_token token = {.normalized = true};
        if (!json_is_string(content))
            return plsh_load_fail(load, part, "number %zu has no \"content\"", i);
        status = plsh_load_bool(load, part, object, "single_word", &token.single_word);
        if (status == PLSH_STATUS_OK)
            status = plsh_load_bool(load, part, object, "lstrip", &token.lstrip);
        if (status == PLSH_STATUS_OK)
            status = plsh_load_bool(load, part, object, "rstrip", &token.rstrip);
        if (status == PLSH_STATUS_OK)
            status = plsh_load_bool(load, part, object, "normalized", &token.normalized);
        if (status == PLSH_STATUS_OK)
            status = plsh_load_bool(load, part, object, "special", &token.special);
        if (status == PLSH_STATUS_OK)
            status = plsh_tokenizer_add(load->tokenizer, token, json_string_value(content),
                                        json_string_length(content), load->error);
    }
    return status;
}

static plsh_status load_parts(plsh_load *load, const json_t *root) {
    const char *version = json_string_value(json_object_get(root, "version"));
    if (!json_is_object(root)) return plsh_load_fail(load, "tokenizer", "must be an object");
    if (version != NULL && strcmp(version, "1.0") != 0)
        return plsh_load_fail(load, "version", "\"%.20s\" is not known; 1.0 is", version);
    plsh_status status = plsh_load_model(load, json_object_get(root, "model"));
    if (status == PLSH_STATUS_OK)
        status = plsh_load_normalizer(load, json_object_get(root, "normalizer"));
    if (status == PLSH_STATUS_OK)
        status = plsh_load_pre_tokenizer(load, json_object_get(root, "pre_tokenizer"));
    if (status == PLSH_STATUS_OK)
        status = plsh_load_post_processor(load, json_object_get(root, "post_processor"));
    if (status == PLSH_STATUS_OK)
        status = plsh_load_decoder(load, json_object_get(root, "decoder"));
    if (status == PLSH_STATUS_OK) status = load_added(load, json_object_get(root, "added_tokens"));
    return status;
}

plsh_status plsh_tokenizer_parse(plsh_tokenizer **out, const void *json, size_t size,
                                 const char *name, plsh_error *error) {
    json_t *root;
    plsh_load load = {.name = name, .error = error};
    *out = NULL;
    plsh_status status = plsh_weights_json_parse(json, size, name, &root, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_tokenizer_create(&load.tokenizer, error);
    if (status == PLSH_STATUS_OK) status = load_parts(&load, root);
    json_decref(root);
    if (status != PLSH_STATUS_OK) {
        plsh_tokenizer_free(load.tokenizer);
        return status;
    }
    *out = load.tokenizer;
    return PLSH_STATUS_OK;
}

/* ---- the folder ---- */

/* A token by name: a string, or an object with its "content". */
static int32_t role_of(const plsh_tokenizer *t, const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return -1;
    return plsh_tokenizer_find(t, json_string_value(value), json_string_length(value));
}

/* Reads the config beside the tokenizer, if it exists. */
static plsh_status load_config(plsh_tokenizer *t, const char *path, plsh_error *error) {
    plsh_mapping mapping;
    struct stat about;
    json_t *config;
    if (stat(path, &about) != 0) return PLSH_STATUS_OK;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    /* Its "model_max_length" may have 31 digits: numbers as floating point. */
    status =
        plsh_weights_json_parse_as((const char *)mapping.bytes, mapping.size,
                                   JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, path, &config, error);
    plsh_mapping_close(&mapping);
    if (status != PLSH_STATUS_OK) return status;
    t->roles.begin = role_of(t, config, "bos_token");
    t->roles.end = role_of(t, config, "eos_token");
    t->roles.pad = role_of(t, config, "pad_token");
    const int32_t unknown = role_of(t, config, "unk_token");
    if (unknown >= 0) t->roles.unknown = unknown;
    json_decref(config);
    return PLSH_STATUS_OK;
}

/* folder/name, in memory that the caller releases. */
static plsh_status join_path(char **out, const char *folder, size_t folder_length, const char *name,
                             plsh_error *error) {
    const size_t size = folder_length + strlen(name) + 2;
    plsh_status status = plsh_allocate((void **)out, size, 1, "a path", error);
    if (status == PLSH_STATUS_OK)
        snprintf(*out, size, "%.*s%s%s", (int)folder_length, folder, folder_length > 0 ? "/" : "",
                 name);
    return status;
}

static plsh_status open_json(plsh_tokenizer **out, const char *path, plsh_error *error) {
    plsh_mapping mapping;
    char *config = NULL;
    const char *slash = strrchr(path, '/');
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_tokenizer_parse(out, mapping.bytes, mapping.size, path, error);
    plsh_mapping_close(&mapping);
    if (status == PLSH_STATUS_OK) {
        if (slash == path)
            status = join_path(&config, "/.", 2, "tokenizer_config.json", error);
        else
            status = join_path(&config, path, slash != NULL ? (size_t)(slash - path) : 0,
                               "tokenizer_config.json", error);
    }
    if (status == PLSH_STATUS_OK) status = load_config(*out, config, error);
    plsh_release(config);
    if (status != PLSH_STATUS_OK) {
        plsh_tokenizer_free(*out);
        *out = NULL;
    }
    return status;
}

static bool is_gguf(const char *path) {
    plsh_mapping mapping;
    if (plsh_mapping_open(&mapping, path, NULL) != PLSH_STATUS_OK) return false;
    const bool found = mapping.size >= 4 && memcmp(mapping.bytes, "GGUF", 4) == 0;
    plsh_mapping_close(&mapping);
    return found;
}

plsh_status plsh_tokenizer_open(plsh_tokenizer **out, const char *path, plsh_error *error) {
    struct stat about;
    *out = NULL;
    if (stat(path, &about) != 0)
        return plsh_fail(error, PLSH_STATUS_IO, "%s: there is no such file or folder", path);
    if (S_ISDIR(about.st_mode)) {
        char *file;
        plsh_status status = join_path(&file, path, strlen(path), "tokenizer.json", error);
        if (status == PLSH_STATUS_OK) status = open_json(out, file, error);
        plsh_release(file);
        return status;
    }
    if (plsh_path_ends(path, ".safetensors") || plsh_path_ends(path, ".safetensors.index.json")) {
        char *folder = NULL;
        plsh_status status = plsh_path_folder(&folder, path, error);
        if (status == PLSH_STATUS_OK) status = plsh_tokenizer_open(out, folder, error);
        plsh_release(folder);
        return status;
    }
    return is_gguf(path) ? plsh_tokenizer_open_gguf(out, path, error) : open_json(out, path, error);
}
