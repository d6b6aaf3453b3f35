/* formats: PEFT adapters written. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/path.h"
#include "plsh/io.h"
#include "plsh/weights.h"

static json_t *make_config(const plsh_adapter_settings *settings) {
    json_t *targets = json_array();
    for (size_t i = 0; i < settings->target_count; i++)
        json_array_append_new(targets, json_string(settings->targets[i]));
    return json_pack("{s:s, s:s, s:s?, s:I, s:f, s:f, s:b, s:s, s:b, s:b, s:o}", "peft_type",
                     "LORA", "task_type", settings->task ? settings->task : "CAUSAL_LM",
                     "base_model_name_or_path", settings->base, "r", (json_int_t)settings->rank,
                     "lora_alpha", settings->alpha, "lora_dropout", settings->dropout, "use_rslora",
                     (int)settings->rslora, "bias", "none", "fan_in_fan_out",
                     (int)settings->transposed, "inference_mode", 1, "target_modules", targets);
}

static plsh_status save_config(const char *folder, const plsh_adapter_settings *settings,
                               plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, folder, "adapter_config.json", error);
    if (status != PLSH_STATUS_OK) return status;
    json_t *config = make_config(settings);
    char *dump = config ? json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    const size_t length = dump ? strlen(dump) : 0;
    json_decref(config);
    if (dump) {
        dump[length] = '\n'; /* replaces the zero byte, so that the last line ends with a newline */
        status = plsh_file_save(path, dump, length + 1, error);
    } else
        status =
            plsh_fail(error, PLSH_STATUS_INVALID, "%s: a name is not UTF-8, or no memory", path);
    free(dump);
    plsh_release(path);
    return status;
}

/* The names of A and B of a layer, one after the other in `names`. */
static void print_names(plsh_text *names, const char *module) {
    plsh_text_print(names, "base_model.model.%s.lora_A.weight", module);
    plsh_text_append(names, "", 1);
    plsh_text_print(names, "base_model.model.%s.lora_B.weight", module);
    plsh_text_append(names, "", 1);
}

static plsh_status save_layers(const char *path, const plsh_adapter_layer *layers, size_t count,
                               plsh_error *error) {
    plsh_text names = {0};
    void *memory = NULL;
    for (size_t i = 0; i < count; i++) print_names(&names, layers[i].module);
    plsh_status status = plsh_text_status(&names, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&memory, 2 * count, sizeof(plsh_tensor), "an adapter", error);
    if (status == PLSH_STATUS_OK) {
        plsh_tensor *tensors = memory;
        const char *name = names.bytes;
        for (size_t i = 0; i < 2 * count; i++) {
            tensors[i] = i % 2 == 0 ? *layers[i / 2].a : *layers[i / 2].b;
            tensors[i].name = name;
            name += strlen(name) + 1;
        }
        status = plsh_safetensors_save(path, tensors, 2 * count, error);
    }
    plsh_release(memory);
    plsh_text_free(&names);
    return status;
}

plsh_status plsh_adapter_save(const char *folder, const plsh_adapter_settings *settings,
                              const plsh_adapter_layer *layers, size_t count, plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, folder, "adapter_model.safetensors", error);
    if (status != PLSH_STATUS_OK) return status;
    status = save_layers(path, layers, count, error);
    if (status == PLSH_STATUS_OK) status = save_config(folder, settings, error);
    plsh_release(path);
    return status;
}
