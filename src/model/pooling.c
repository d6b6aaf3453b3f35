/* model: how an encoder's files ask for the rows of a text to be made into one. */
#include "model/pooling.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/model.h"

/* By the numbers of llama.cpp. */
static const struct {
    const char *name;
    plsh_pooling pooling;
} gguf_types[] = {{"none", PLSH_POOLING_NONE},
                  {"mean", PLSH_POOLING_MEAN},
                  {"cls", PLSH_POOLING_CLS},
                  {"last", PLSH_POOLING_COUNT},
                  {"rank", PLSH_POOLING_COUNT}};

int64_t plsh_pooling_gguf_type(plsh_pooling pooling) {
    int64_t type = 0;
    while (gguf_types[type].pooling != pooling) type++;
    return type;
}

static plsh_status read_gguf(const plsh_weights *weights, const plsh_family *family,
                             plsh_pooling *out, plsh_error *error) {
    char key[128];
    const int64_t count = sizeof gguf_types / sizeof *gguf_types;
    int64_t type = -1;
    snprintf(key, sizeof key, "%s.pooling_type", family->architecture);
    plsh_status status = plsh_metadata_integer(weights, key, 0, count - 1, &type, error);
    if (status || type < 0) return status;
    if (gguf_types[type].pooling == PLSH_POOLING_COUNT) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: %s is %lld (%s); 0 (none), 1 (mean) and 2 (cls) are supported",
                         plsh_weights_path(weights), key, (long long)type, gguf_types[type].name);
    }
    *out = gguf_types[type].pooling;
    return PLSH_STATUS_OK;
}

/* "pooling_mode_<name>": true for each that is asked for; none at all: every token's own row. */
static plsh_status read_modes(json_t *root, const char *path, plsh_pooling *out,
                              plsh_error *error) {
    static const char begin[] = "pooling_mode_";
    const char *key, *asked = NULL;
    json_t *value;
    plsh_pooling found = PLSH_POOLING_NONE;
    json_object_foreach(root, key, value) {
        if (strncmp(key, begin, sizeof begin - 1) != 0 || !json_is_true(value)) continue;
        const bool cls = strcmp(key + sizeof begin - 1, "cls_token") == 0;
        if (!cls && strcmp(key + sizeof begin - 1, "mean_tokens") != 0) {
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "%s: \"%.60s\" is not supported; pooling_mode_cls_token and "
                             "pooling_mode_mean_tokens are",
                             path, key);
        }
        if (asked) {
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "%s: \"%s\" and \"%s\" together are not supported; one of them is",
                             path, asked, key);
        }
        asked = key;
        found = cls ? PLSH_POOLING_CLS : PLSH_POOLING_MEAN;
    }
    *out = found;
    return PLSH_STATUS_OK;
}

static plsh_status read_folder(const char *folder, plsh_pooling *out, plsh_error *error) {
    char *path;
    json_t *root;
    plsh_status status = plsh_path_join(&path, folder, PLSH_POOLING_FILE, error);
    if (!status && plsh_path_exists(path)) {
        status = plsh_weights_json_read(path, &root, error);
        if (!status) status = read_modes(root, path, out, error);
        json_decref(root);
    }
    plsh_release(path);
    return status;
}

plsh_status plsh_pooling_read(const plsh_weights *weights, const plsh_family *family,
                              plsh_pooling *out, plsh_error *error) {
    return plsh_weights_form_of(weights) == PLSH_WEIGHTS_GGUF
               ? read_gguf(weights, family, out, error)
               : read_folder(plsh_weights_folder(weights), out, error);
}

plsh_status plsh_model_pooling(const plsh_model *model, plsh_pooling *out, plsh_error *error) {
    *out = PLSH_POOLING_MEAN;
    return plsh_pooling_read(model->weights, model->config.family, out, error);
}
