/* formats: PEFT adapters (LoRA): y = W x + scale B (A x). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/adapter.h"
#include "formats/json.h"
#include "formats/path.h"

#include "plsh/weights.h"

struct plsh_adapter {
    plsh_weights *weights;
    plsh_adapter_layer *layers; /* sorted by module */
    size_t count;
    char *modules; /* the names, one after the other */
    plsh_adapter_config config;
};

static const char prefix[] = "base_model.model.";
static const char end_a[] = ".lora_A.weight", end_b[] = ".lora_B.weight";

/* ---- adapter_config.json ---- */

/* Has a field its default value: null, false, empty or "none"? */
static bool asks_nothing(const json_t *value) {
    if (!value || json_is_null(value) || json_is_false(value)) return true;
    if (json_is_object(value)) return json_object_size(value) == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    return json_is_string(value) && strcmp(json_string_value(value), "none") == 0;
}

/* All fields that are not read here must have their defaults (DoRA, biases, ranks by pattern,
 * modules saved whole, and unknown fields), except those that only record how the adapter was
 * trained. */
static plsh_status refuse_what_is_missing(json_t *config, const char *what, plsh_error *error) {
    static const char *const known[] = {
        "peft_type",      "r",
        "lora_alpha",     "use_rslora",
        "lora_dropout",   "base_model_name_or_path",
        "auto_mapping",   "inference_mode",
        "task_type",      "init_lora_weights",
        "megatron_core",  "peft_version",
        "revision",       "qalora_group_size",
        "target_modules", "exclude_modules",
        "layers_pattern", "layers_to_transform",
        "runtime_config", "ensure_weight_tying",
        "fan_in_fan_out", /* how the weights below are stored; A and B have the same shapes */
    };
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value) {
        size_t i = 0, count = sizeof known / sizeof *known;
        while (i < count && strcmp(key, known[i]) != 0) i++;
        if (i == count && !asks_nothing(value))
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "%s: \"%.40s\" asks for something that is not supported", what, key);
    }
    return PLSH_STATUS_OK;
}

/* PiSSA, OLoRA, LoftQ and the like change the base weights when the adapter is initialised: with
 * the original weights the adapter would be wrong. */
static plsh_status check_initialisation(const json_t *config, const char *what, plsh_error *error) {
    const json_t *value = json_object_get(config, "init_lora_weights");
    const char *name = json_string_value(value);
    if (!value || json_is_null(value) || json_is_boolean(value)) return PLSH_STATUS_OK;
    if (name && strcmp(name, "gaussian") == 0) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"init_lora_weights\" is \"%.40s\"; true, false and \"gaussian\" are "
                     "supported, which leave the weights below as they are",
                     what, name ? name : "no text");
}

static plsh_status read_config(plsh_adapter_config *adapter, json_t *config, const char *what,
                               plsh_error *error) {
    const char *kind = "";
    double alpha = 0.0;
    bool rslora = false;
    adapter->rank = 0;
    plsh_status status = plsh_weights_json_string(config, "peft_type", what, &kind, error);
    if (status == PLSH_STATUS_OK && strcmp(kind, "LORA") != 0)
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                           "%s: \"peft_type\" is \"%.20s\"; LORA is supported", what, kind);
    if (status == PLSH_STATUS_OK)
        status = plsh_weights_json_integer(config, "r", 1, 1 << 20, what, &adapter->rank, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_weights_json_number(config, "lora_alpha", what, &alpha, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_weights_json_bool(config, "use_rslora", what, &rslora, error);
    if (status == PLSH_STATUS_OK && !json_is_object(config))
        status = plsh_fail(error, PLSH_STATUS_FORMAT, "%s: not an object", what);
    if (status == PLSH_STATUS_OK) status = refuse_what_is_missing(config, what, error);
    if (status == PLSH_STATUS_OK) status = check_initialisation(config, what, error);
    if (status != PLSH_STATUS_OK) return status;
    if (adapter->rank == 0 || !(fabs(alpha) > 0.0))
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"r\" and \"lora_alpha\" are needed",
                         what);
    double rank = (double)adapter->rank;
    adapter->scale = alpha / (rslora ? sqrt(rank) : rank);
    return PLSH_STATUS_OK;
}

plsh_status plsh_adapter_config_parse(const char *text, size_t length, const char *what,
                                      plsh_adapter_config *config, plsh_error *error) {
    json_t *root;
    plsh_status status = plsh_weights_json_parse(text, length, what, &root, error);
    if (status != PLSH_STATUS_OK) return status;
    status = read_config(config, root, what, error);
    json_decref(root);
    return status;
}

static plsh_status open_config(plsh_adapter *adapter, const char *path, plsh_error *error) {
    plsh_mapping mapping;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_adapter_config_parse((const char *)mapping.bytes, mapping.size, path,
                                       &adapter->config, error);
    plsh_mapping_close(&mapping);
    return status;
}

/* ---- adapter_model.safetensors ---- */

/* The length of the module's name in a tensor's name with this ending; 0: the name has another
 * ending. */
static size_t module_length(const char *name, const char *ending) {
    size_t begin = sizeof prefix - 1;
    if (strncmp(name, prefix, begin) != 0 || !plsh_path_ends(name, ending)) return 0;
    size_t length = strlen(name) - strlen(ending);
    return length > begin ? length - begin : 0;
}

static plsh_status check_layer(const plsh_adapter *adapter, const plsh_adapter_layer *layer,
                               plsh_error *error) {
    const plsh_tensor *a = layer->a, *b = layer->b;
    if (a->rank != 2 || b->rank != 2 || a->shape[0] != adapter->config.rank ||
        b->shape[1] != adapter->config.rank || a->type > PLSH_WEIGHT_BF16 ||
        b->type > PLSH_WEIGHT_BF16)
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%.100s: '%.60s' needs float matrices A [%lld, in] and B [out, %lld]",
                         plsh_weights_path(adapter->weights), layer->module,
                         (long long)adapter->config.rank, (long long)adapter->config.rank);
    return PLSH_STATUS_OK;
}

static plsh_status add_layer(plsh_adapter *adapter, const plsh_tensor *a, size_t length,
                             char **names, plsh_error *error) {
    plsh_adapter_layer *layer = &adapter->layers[adapter->count++];
    char *module = *names;
    /* The name of B, built where the module's name will stay: both have the same length. */
    strcpy(module, a->name);
    strcpy(module + strlen(a->name) - (sizeof end_a - 1), end_b);
    *layer = (plsh_adapter_layer){.module = module,
                                  .a = a,
                                  .b = plsh_weights_find(adapter->weights, module),
                                  .rank = adapter->config.rank,
                                  .scale = (float)adapter->config.scale};
    memmove(module, module + sizeof prefix - 1, length);
    module[length] = '\0';
    *names += strlen(a->name) + 1;
    if (!layer->b)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: '%.80s' has a lora_A and no lora_B",
                         plsh_weights_path(adapter->weights), module);
    return check_layer(adapter, layer, error);
}

static int compare_modules(const void *x, const void *y) {
    return strcmp(((const plsh_adapter_layer *)x)->module, ((const plsh_adapter_layer *)y)->module);
}

static plsh_status allocate_layers(plsh_adapter *adapter, plsh_error *error) {
    size_t count = plsh_weights_count(adapter->weights), bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(plsh_weights_at(adapter->weights, i)->name) + 1;
    void *layers = NULL, *modules = NULL;
    plsh_status status = plsh_allocate(&layers, count, sizeof(plsh_adapter_layer),
                                       "the layers of an adapter", error);
    adapter->layers = layers;
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&modules, bytes, 1, "the names of an adapter", error);
    adapter->modules = modules;
    return status;
}

static plsh_status read_layers(plsh_adapter *adapter, plsh_error *error) {
    plsh_status status = allocate_layers(adapter, error);
    char *names = adapter->modules;
    size_t count = plsh_weights_count(adapter->weights);
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++) {
        const plsh_tensor *tensor = plsh_weights_at(adapter->weights, i);
        size_t length = module_length(tensor->name, end_a);
        if (length > 0)
            status = add_layer(adapter, tensor, length, &names, error);
        else if (module_length(tensor->name, end_b) == 0)
            status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                               "%.100s: '%.80s' is neither a lora_A.weight nor a lora_B.weight",
                               plsh_weights_path(adapter->weights), tensor->name);
    }
    if (status == PLSH_STATUS_OK && 2 * adapter->count != count)
        status = plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: a lora_B has no lora_A",
                           plsh_weights_path(adapter->weights));
    if (status == PLSH_STATUS_OK)
        qsort(adapter->layers, adapter->count, sizeof *adapter->layers, compare_modules);
    return status;
}

static plsh_status open_adapter(plsh_adapter *adapter, const char *folder, plsh_error *error) {
    char *config = NULL, *model = NULL;
    plsh_status status = plsh_path_join(&config, folder, "adapter_config.json", error);
    if (status == PLSH_STATUS_OK)
        status = plsh_path_join(&model, folder, "adapter_model.safetensors", error);
    if (status == PLSH_STATUS_OK) status = open_config(adapter, config, error);
    if (status == PLSH_STATUS_OK) status = plsh_weights_open(&adapter->weights, model, error);
    if (status == PLSH_STATUS_OK) status = read_layers(adapter, error);
    plsh_release(config);
    plsh_release(model);
    return status;
}

plsh_status plsh_adapter_open(plsh_adapter **out, const char *folder, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_adapter), "an adapter", error);
    *out = memory;
    if (status != PLSH_STATUS_OK) return status;
    status = open_adapter(*out, folder, error);
    if (status != PLSH_STATUS_OK) {
        plsh_adapter_close(*out);
        *out = NULL;
    }
    return status;
}

void plsh_adapter_close(plsh_adapter *adapter) {
    if (!adapter) return;
    plsh_weights_close(adapter->weights);
    plsh_release(adapter->layers);
    plsh_release(adapter->modules);
    plsh_release(adapter);
}

const char *plsh_adapter_path(const plsh_adapter *adapter) {
    return plsh_weights_path(adapter->weights);
}

size_t plsh_adapter_count(const plsh_adapter *adapter) { return adapter->count; }

const plsh_adapter_layer *plsh_adapter_at(const plsh_adapter *adapter, size_t index) {
    return &adapter->layers[index];
}

const plsh_adapter_layer *plsh_adapter_find(const plsh_adapter *adapter, const char *module) {
    const plsh_adapter_layer wanted = {.module = module};
    return bsearch(&wanted, adapter->layers, adapter->count, sizeof wanted, compare_modules);
}
