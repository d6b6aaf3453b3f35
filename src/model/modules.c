/* model: the modules after the layers of an encoder, from its files. */
#include "model/modules.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "model/family.h"

static const char *const pooling_names[] = {
    "mean", "cls", "none", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", NULL};

const char *const *plsh_pooling_names(void) { return pooling_names; }

static plsh_pooling find_pooling(const char *name) {
    for (int i = 0; i < PLSH_POOLING_COUNT; i++)
        if (i != PLSH_POOLING_NONE && strcmp(name, pooling_names[i]) == 0) return (plsh_pooling)i;
    return PLSH_POOLING_COUNT;
}

/* ---- GGUF ---- */

/* By the numbers of llama.cpp. */
static const plsh_pooling gguf_types[] = {PLSH_POOLING_NONE, PLSH_POOLING_MEAN, PLSH_POOLING_CLS,
                                          PLSH_POOLING_LASTTOKEN};
enum { GGUF_RANK = 4 }; /* a classifier's */

int64_t plsh_pooling_gguf_type(plsh_pooling pooling) {
    for (int64_t i = 0; i < GGUF_RANK; i++)
        if (gguf_types[i] == pooling) return i;
    return -1;
}

static plsh_status read_gguf(const plsh_weights *weights, const plsh_family *family,
                             plsh_pooling *out, plsh_error *error) {
    char key[128];
    int64_t type = -1;
    snprintf(key, sizeof key, "%s.pooling_type", family->architecture);
    plsh_status status = plsh_metadata_integer(weights, key, 0, GGUF_RANK, &type, error);
    if (status || type < 0) return status;
    if (type == GGUF_RANK) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: %s is 4 (rank); 0 (none), 1 (mean), 2 (cls) and 3 (last) are "
                         "supported",
                         plsh_weights_path(weights), key);
    }
    *out = gguf_types[type];
    return PLSH_STATUS_OK;
}

/* ---- JSON files of a folder ---- */

typedef struct reader {
    const char *folder;
    plsh_modules *out;
    int64_t width; /* of a row, so far; 0: not known, and not checked */
    plsh_error *error;
} reader;

/* Reads folder/name if it exists; *path is for messages and released by the caller. */
static plsh_status read_json(const reader *r, const char *folder, const char *name, char **path,
                             json_t **root) {
    *root = NULL;
    plsh_status status = plsh_path_join(path, folder, name, r->error);
    if (status || !plsh_path_exists(*path)) return status;
    return plsh_weights_json_read(*path, root, r->error);
}

static plsh_status refuse(const reader *r, const char *path, const char *key, const char *why) {
    return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s: \"%.60s\" %s", path, key, why);
}

static bool is_empty(const json_t *value) {
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* Checks a field that must be absent or have this text. */
static plsh_status expect_text(const reader *r, const char *path, const json_t *object,
                               const char *key, const char *only) {
    const char *text = only;
    plsh_status status = plsh_weights_json_string(object, key, path, &text, r->error);
    if (status || strcmp(text, only) == 0) return status;
    return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"%s\" is \"%.60s\"; \"%s\" is supported", path, key, text, only);
}

/* Checks that all fields but the `known` ones, which change nothing, are empty. */
static plsh_status check_fields(const reader *r, const char *path, json_t *object,
                                const char *const *known) {
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s: must be an object", path);
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (known[i] && strcmp(key, known[i]) != 0) i++;
        if (!known[i] && !is_empty(value)) return refuse(r, path, key, "is not supported");
    }
    return PLSH_STATUS_OK;
}

/* ---- the pooling ---- */

static plsh_status take_pooling(const reader *r, const char *path, const char *name) {
    const plsh_pooling found = find_pooling(name);
    if (found == PLSH_POOLING_COUNT)
        return refuse(r, path, name,
                      "is not a pooling; cls, max, mean, mean_sqrt_len_tokens, weightedmean and "
                      "lasttoken are supported");
    if (r->out->pooling != PLSH_POOLING_COUNT && r->out->pooling != PLSH_POOLING_NONE)
        return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the poolings %s and %s together are not supported; one of them is",
                         path, pooling_names[r->out->pooling], name);
    r->out->pooling = found;
    return PLSH_STATUS_OK;
}

/* Fails if a file gives another width than rows have at this point. */
static bool is_another(const reader *r, int64_t width) {
    return r->width != 0 && width != r->width;
}

/* "pooling_mode": "mean", or a list of them. */
static plsh_status read_mode(const reader *r, const char *path, const json_t *mode) {
    if (json_is_string(mode)) return take_pooling(r, path, json_string_value(mode));
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < json_array_size(mode); i++) {
        const char *name = json_string_value(json_array_get(mode, i));
        status = take_pooling(r, path, name ? name : "pooling_mode");
    }
    if (!status && json_array_size(mode) == 0)
        status = refuse(r, path, "pooling_mode", "must be the name of a pooling");
    return status;
}

/* Older files: "pooling_mode_<name>": true for each that is asked for. sentence-transformers takes
 * the mean if all are false. In a folder without modules.json all are false if it was converted
 * from a GGUF with pooling "none". */
static plsh_status read_flags(const reader *r, const char *path, json_t *root) {
    static const char begin[] = "pooling_mode_";
    static const char *const flags[] = {"cls_token",           "mean_tokens",
                                        "max_tokens",          "mean_sqrt_len_tokens",
                                        "weightedmean_tokens", "lasttoken"};
    static const char *const names[] = {"cls",          "mean",     "max", "mean_sqrt_len_tokens",
                                        "weightedmean", "lasttoken"};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        if (strncmp(key, begin, sizeof begin - 1) != 0) continue;
        size_t i = 0;
        while (i < 6 && strcmp(key + sizeof begin - 1, flags[i]) != 0) i++;
        if (i == 6 && !is_empty(value)) return refuse(r, path, key, "is not supported");
        if (r->out->pooling == PLSH_POOLING_COUNT && !r->out->listed)
            r->out->pooling = PLSH_POOLING_NONE;
        const plsh_status status =
            json_is_true(value) ? take_pooling(r, path, names[i]) : PLSH_STATUS_OK;
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

static plsh_status read_pooling_fields(const reader *r, const char *path, json_t *root) {
    static const char *const known[] = {"word_embedding_dimension",
                                        "embedding_dimension",
                                        "pooling_mode",
                                        "include_prompt",
                                        "pooling_mode_cls_token",
                                        "pooling_mode_mean_tokens",
                                        "pooling_mode_max_tokens",
                                        "pooling_mode_lasttoken",
                                        "pooling_mode_mean_sqrt_len_tokens",
                                        "pooling_mode_weightedmean_tokens",
                                        NULL};
    int64_t width = r->width;
    bool include = true;
    const json_t *mode = json_object_get(root, "pooling_mode");
    plsh_status status = check_fields(r, path, root, known);
    if (!status)
        status = plsh_weights_json_integer(root, "word_embedding_dimension", 1, INT64_MAX, path,
                                           &width, r->error);
    if (!status)
        status = plsh_weights_json_integer(root, "embedding_dimension", 1, INT64_MAX, path, &width,
                                           r->error);
    if (!status && is_another(r, width))
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                           "%s: rows of %lld columns; the encoder's have %lld", path,
                           (long long)width, (long long)r->width);
    if (!status) status = plsh_weights_json_bool(root, "include_prompt", path, &include, r->error);
    if (status) return status;
    r->out->without_prompt = !include;
    return mode && !json_is_null(mode) ? read_mode(r, path, mode) : read_flags(r, path, root);
}

static plsh_status read_pooling(const reader *r, const char *folder) {
    char *path;
    json_t *root;
    plsh_status status = read_json(r, folder, "config.json", &path, &root);
    if (!status && root) status = read_pooling_fields(r, path, root);
    if (!status && r->out->listed && !root)
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s is missing", path);
    if (!status && r->out->listed && r->out->pooling == PLSH_POOLING_COUNT)
        r->out->pooling = PLSH_POOLING_MEAN;
    json_decref(root);
    plsh_release(path);
    return status;
}

/* ---- the modules after it ---- */

static plsh_status read_activation(const reader *r, const char *path, const json_t *root,
                                   plsh_module_activation *out) {
    static const char *const names[] = {
        "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity",
        "torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.GELU",
        "torch.nn.modules.activation.SiLU", "torch.nn.modules.activation.Sigmoid"};
    const char *name = names[PLSH_MODULE_TANH];
    plsh_status status =
        plsh_weights_json_string(root, "activation_function", path, &name, r->error);
    for (int i = 0; !status && i < 6; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (plsh_module_activation)i;
        return PLSH_STATUS_OK;
    }
    return status ? status
                  : plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                              "%s: \"activation_function\" is \"%.80s\"; Tanh, Identity, ReLU, "
                              "GELU, SiLU and Sigmoid of torch.nn.modules are supported",
                              path, name);
}

/* The input and the output of a module must be the row of the text. */
static plsh_status check_names(const reader *r, const char *path, const json_t *root) {
    plsh_status status = expect_text(r, path, root, "module_input_name", "sentence_embedding");
    return status ? status : expect_text(r, path, root, "module_output_name", "sentence_embedding");
}

static plsh_status read_dense(reader *r, const char *path, json_t *root, plsh_module *module) {
    static const char *const known[] = {
        "in_features",       "out_features",       "bias", "activation_function",
        "module_input_name", "module_output_name", NULL};
    enum { WIDEST = 1 << 20 };
    module->in = module->out = 0;
    module->bias = true;
    plsh_status status = check_fields(r, path, root, known);
    if (!status) status = check_names(r, path, root);
    if (!status)
        status =
            plsh_weights_json_integer(root, "in_features", 1, WIDEST, path, &module->in, r->error);
    if (!status)
        status = plsh_weights_json_integer(root, "out_features", 1, WIDEST, path, &module->out,
                                           r->error);
    if (!status) status = plsh_weights_json_bool(root, "bias", path, &module->bias, r->error);
    if (!status) status = read_activation(r, path, root, &module->activation);
    if (!status && (is_another(r, module->in) || module->out == 0))
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                           "%s: from %lld to %lld columns; a row has %lld before it", path,
                           (long long)module->in, (long long)module->out, (long long)r->width);
    if (!status) r->width = module->out;
    return status;
}

static plsh_status read_layer_norm(reader *r, const char *path, json_t *root, plsh_module *module) {
    static const char *const known[] = {"dimension", NULL};
    module->out = 0;
    plsh_status status = check_fields(r, path, root, known);
    if (!status)
        status = plsh_weights_json_integer(root, "dimension", 1, INT64_MAX, path, &module->out,
                                           r->error);
    if (!status && is_another(r, module->out))
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                           "%s: a norm of %lld columns; a row has %lld before it", path,
                           (long long)module->out, (long long)r->width);
    module->in = module->out;
    return status;
}

static plsh_status read_normalize(const reader *r, const char *path, json_t *root) {
    static const char *const known[] = {"module_input_name", "module_output_name", NULL};
    if (!root) return PLSH_STATUS_OK; /* older folders have no file */
    const plsh_status status = check_fields(r, path, root, known);
    return status ? status : check_names(r, path, root);
}

/* The module takes over the folder's name. */
static plsh_status add_module(reader *r, plsh_module_kind kind, char *folder) {
    if (r->out->count == PLSH_MODULES_MOST) {
        plsh_release(folder);
        return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s/%s: more than %d modules",
                         r->folder, PLSH_MODULES_FILE, PLSH_MODULES_MOST);
    }
    plsh_module *module = &r->out->module[r->out->count++];
    *module = (plsh_module){.kind = kind, .folder = folder};
    char *path;
    json_t *root;
    plsh_status status = read_json(r, folder, "config.json", &path, &root);
    if (!status && !root && kind != PLSH_MODULE_NORMALIZE)
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s is missing", path);
    if (!status && kind == PLSH_MODULE_DENSE) status = read_dense(r, path, root, module);
    if (!status && kind == PLSH_MODULE_LAYER_NORM) status = read_layer_norm(r, path, root, module);
    if (!status && kind == PLSH_MODULE_NORMALIZE) status = read_normalize(r, path, root);
    json_decref(root);
    plsh_release(path);
    return status;
}

/* The kind of a module, by the last word of its type. */
static plsh_status find_kind(const reader *r, const char *path, const char *type,
                             plsh_module_kind *out) {
    static const char *const kinds[] = {"Transformer", "Pooling",   "Dense",
                                        "LayerNorm",   "Normalize", "Dropout"};
    const char *word = strrchr(type, '.');
    for (int i = 0; word && strncmp(type, "sentence_transformers.", 22) == 0 && i < 6; i++) {
        if (strcmp(word + 1, kinds[i]) != 0) continue;
        *out = (plsh_module_kind)i;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                     "%s: the module \"%.100s\" is not supported; Transformer, Pooling, Dense, "
                     "LayerNorm, Normalize and Dropout of sentence_transformers are",
                     path, type);
}

static plsh_status read_module(reader *r, const char *path, size_t index, const json_t *entry) {
    const char *type = NULL, *place = "";
    plsh_module_kind kind = PLSH_MODULE_TRANSFORMER;
    plsh_status status = plsh_weights_json_string(entry, "type", path, &type, r->error);
    if (!status) status = plsh_weights_json_string(entry, "path", path, &place, r->error);
    if (!status && (!type || place[0] == '/' || strstr(place, "..")))
        status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                           "%s: module %zu needs a \"type\" and a \"path\" within the folder", path,
                           index);
    if (!status) status = find_kind(r, path, type, &kind);
    if (status) return status;
    if ((index == 0) != (kind == PLSH_MODULE_TRANSFORMER) ||
        (index == 1) != (kind == PLSH_MODULE_POOLING) || (index == 0 && place[0]))
        return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: module %zu is %.100s in \"%.60s\"; a Transformer in \"\" is "
                         "supported as the first, a Pooling as the second, others after them",
                         path, index, type, place);
    if (kind == PLSH_MODULE_TRANSFORMER || kind == PLSH_MODULE_DROPOUT) return PLSH_STATUS_OK;
    char *folder;
    status = plsh_path_join(&folder, r->folder, place, r->error);
    if (status) return status;
    if (kind != PLSH_MODULE_POOLING) return add_module(r, kind, folder);
    r->out->moved = strcmp(place, PLSH_POOLING_FOLDER) != 0;
    status = read_pooling(r, folder);
    plsh_release(folder);
    return status;
}

static plsh_status read_list(reader *r, const char *path, const json_t *root) {
    plsh_status status = PLSH_STATUS_OK;
    if (!json_is_array(root) || json_array_size(root) < 2)
        return plsh_fail(r->error, PLSH_STATUS_FORMAT,
                         "%s: must be a list of modules: a Transformer, a Pooling, ..", path);
    for (size_t i = 0; !status && i < json_array_size(root); i++)
        status = read_module(r, path, i, json_array_get(root, i));
    return status;
}

/* ---- texts ---- */

static plsh_status read_modality(const reader *r, const char *path, const json_t *root) {
    const json_t *modality = json_object_get(root, "modality_config");
    const json_t *text = json_object_get(modality, "text");
    if (!modality || json_is_null(modality)) return PLSH_STATUS_OK;
    if (!text) return refuse(r, path, "modality_config", "has no \"text\"");
    plsh_status status = expect_text(r, path, text, "method", "forward");
    return status ? status : expect_text(r, path, text, "method_output_name", "last_hidden_state");
}

/* sentence_bert_config.json: how long a text may be. */
static plsh_status read_sentence(const reader *r) {
    static const char *const known[] = {"max_seq_length",
                                        "do_lower_case",
                                        "transformer_task",
                                        "module_output_name",
                                        "modality_config",
                                        "unpad_inputs",
                                        NULL};
    char *path;
    json_t *root;
    plsh_status status = read_json(r, r->folder, PLSH_SENTENCE_FILE, &path, &root);
    if (!status && root) {
        status = check_fields(r, path, root, known);
        if (!status)
            status = plsh_weights_json_integer(root, "max_seq_length", 1, INT64_MAX, path,
                                               &r->out->longest, r->error);
        if (!status)
            status =
                plsh_weights_json_bool(root, "do_lower_case", path, &r->out->lower_case, r->error);
        if (!status) status = expect_text(r, path, root, "transformer_task", "feature-extraction");
        if (!status) status = expect_text(r, path, root, "module_output_name", "token_embeddings");
        if (!status) status = read_modality(r, path, root);
    }
    json_decref(root);
    plsh_release(path);
    return status;
}

/* tokenizer_config.json: "model_max_length" is what newer folders have instead; it may be 1e30. */
static plsh_status read_tokenizer(const reader *r) {
    char *path;
    json_t *root;
    double most = 0;
    plsh_status status = read_json(r, r->folder, "tokenizer_config.json", &path, &root);
    if (!status && root && r->out->longest == 0)
        status = plsh_weights_json_number(root, "model_max_length", path, &most, r->error);
    if (!status && most >= 1 && most < 1e9) r->out->longest = (int64_t)most;
    json_decref(root);
    plsh_release(path);
    return status;
}

static plsh_status read_prompt_fields(const reader *r, const char *path, json_t *root) {
    static const char *const known[] = {
        "__version__",  "model_type",         "prompts", "default_prompt_name",
        "truncate_dim", "similarity_fn_name", NULL};
    const char *name = NULL;
    json_t *prompts = json_object_get(root, "prompts"), *text;
    plsh_status status = check_fields(r, path, root, known);
    if (!status) status = expect_text(r, path, root, "model_type", "SentenceTransformer");
    if (!status)
        status = plsh_weights_json_integer(root, "truncate_dim", 1, INT64_MAX, path, &r->out->kept,
                                           r->error);
    if (!status)
        status = plsh_weights_json_string(root, "default_prompt_name", path, &name, r->error);
    if (status) return status;
    const char *key;
    json_object_foreach(prompts, key, text) {
        if (!json_is_string(text)) return refuse(r, path, key, "must be a text");
    }
    if (name && !json_is_string(json_object_get(prompts, name)))
        return refuse(r, path, name, "is the default_prompt_name; \"prompts\" has no such one");
    if (json_is_object(prompts)) r->out->prompts = json_incref(prompts);
    return name ? plsh_path_copy(&r->out->default_prompt, name, strlen(name), r->error)
                : PLSH_STATUS_OK;
}

/* config_sentence_transformers.json: prompts, and how many columns are kept. */
static plsh_status read_prompts(const reader *r) {
    char *path;
    json_t *root;
    plsh_status status = read_json(r, r->folder, PLSH_PROMPTS_FILE, &path, &root);
    if (!status && root) status = read_prompt_fields(r, path, root);
    json_decref(root);
    plsh_release(path);
    return status;
}

/* ---- all of it ---- */

static plsh_status read_folder(reader *r) {
    char *path, *pooling = NULL;
    json_t *root;
    plsh_status status = read_json(r, r->folder, PLSH_MODULES_FILE, &path, &root);
    r->out->listed = root != NULL;
    if (!status && root) status = read_list(r, path, root);
    if (!status && !root) {
        status = plsh_path_join(&pooling, r->folder, PLSH_POOLING_FOLDER, r->error);
        if (!status) status = read_pooling(r, pooling);
    }
    if (!status) status = read_sentence(r);
    if (!status && r->out->listed) status = read_tokenizer(r);
    if (!status) status = read_prompts(r);
    json_decref(root);
    plsh_release(path);
    plsh_release(pooling);
    return status;
}

plsh_status plsh_modules_read(const plsh_weights *weights, const plsh_model_config *config,
                              plsh_modules *out, plsh_error *error) {
    *out = (plsh_modules){.pooling = PLSH_POOLING_COUNT};
    reader r = {plsh_weights_folder(weights), out, config->hidden, error};
    const plsh_status status = plsh_weights_form_of(weights) == PLSH_WEIGHTS_GGUF
                                   ? read_gguf(weights, config->family, &out->pooling, error)
                                   : read_folder(&r);
    out->columns = r.width;
    if (status) plsh_modules_free(out);
    return status;
}

void plsh_modules_free(plsh_modules *modules) {
    for (size_t i = 0; i < modules->count; i++) plsh_release(modules->module[i].folder);
    json_decref(modules->prompts);
    plsh_release(modules->default_prompt);
    *modules = (plsh_modules){0};
}

plsh_status plsh_modules_check_convert(const plsh_modules *modules, const char *folder,
                                       bool to_gguf, plsh_error *error) {
    const char *lost = NULL;
    for (size_t i = 0; i < modules->count && !lost; i++)
        if (modules->module[i].kind != PLSH_MODULE_NORMALIZE) lost = modules->module[i].folder;
    if (lost)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: a module with weights after the pooling is not converted", lost);
    if (!to_gguf && modules->moved)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s/%s: the pooling's folder has to be %s to be converted", folder,
                         PLSH_MODULES_FILE, PLSH_POOLING_FOLDER);
    if (!to_gguf) return PLSH_STATUS_OK;
    if (modules->pooling != PLSH_POOLING_COUNT && plsh_pooling_gguf_type(modules->pooling) < 0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the pooling \"%s\" has no number in a GGUF; mean, cls and lasttoken "
                         "have",
                         folder, pooling_names[modules->pooling]);
    if (modules->lower_case) lost = "do_lower_case";
    if (modules->kept > 0) lost = "truncate_dim";
    if (modules->default_prompt) lost = "default_prompt_name";
    return lost ? plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                            "%s: \"%s\" cannot be kept in a GGUF; a folder keeps it", folder, lost)
                : PLSH_STATUS_OK;
}
