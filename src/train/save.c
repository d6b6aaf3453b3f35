/* train: saves the trained parameters as a folder of safetensors or a PEFT adapter. */
#include "train/save.h"

#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/memory.h"
#include "base/status.h"
#include "convert/convert.h"
#include "formats/path.h"
#include "model/slopes.h"

/* How many parameters at the head of the list are not weights. */
static size_t first_weight(const plsh_parameters *p) { return p->list[0].not_a_weight ? 1 : 0; }

static plsh_tensor tensor_of(const plsh_parameter *p, const char *name, const float *values) {
    plsh_tensor tensor = {.name = name,
                          .type = PLSH_WEIGHT_F32,
                          .rank = p->rows ? 2 : 1,
                          .shape = {p->columns},
                          .data = values,
                          .size = p->count * sizeof(float)};
    if (p->rows) {
        tensor.shape[0] = p->transposed ? p->columns : p->rows;
        tensor.shape[1] = p->transposed ? p->rows : p->columns;
    }
    return tensor;
}

/* One parameter's part of `numbers` (values, gradients), as it is stored. */
static void store_parameter(const plsh_trainer *t, const plsh_parameter *p, const float *numbers,
                            float *out) {
    const plsh_model_config *config = &t->model->config;
    const int64_t rows = p->rows ? p->rows : 1, columns = p->columns;
    for (int64_t r = 0; p->transposed && r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            out[c * rows + r] = numbers[p->first + (size_t)(r * columns + c)];
    }
    for (int64_t r = 0; !p->transposed && r < rows; r++) {
        memcpy(out + r * columns,
               numbers + p->first + (size_t)(plsh_model_row_in_gguf(config, p->order, r) * columns),
               (size_t)columns * sizeof(float));
    }
}

/* ---- All weights ----------------------------------------------------------------------------- */

static plsh_status save_weights(const plsh_trainer *t, const char *folder, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    const bool transposed = t->model->config.family->transposed;
    plsh_tensor *tensors;
    float *stored = NULL;
    char *path = NULL;
    plsh_status status =
        plsh_allocate((void **)&tensors, p->count, sizeof(*tensors), "tensors", error);
    if (!status && transposed)
        status = plsh_allocate((void **)&stored, p->numbers, sizeof(float), "weights", error);
    const size_t count = p->count - first_weight(p);
    for (size_t i = 0; !status && i < count; i++) {
        const plsh_parameter *one = &p->list[i + first_weight(p)];
        if (transposed) store_parameter(t, one, p->value, stored + one->first);
        tensors[i] = tensor_of(one, one->name, (transposed ? stored : p->value) + one->first);
    }
    if (!status) status = plsh_path_join(&path, folder, "model.safetensors", error);
    if (!status) status = plsh_safetensors_save(path, tensors, count, error);
    plsh_release(path);
    plsh_release(stored);
    plsh_release(tensors);
    if (status) return status;
    const char *from = plsh_weights_folder(t->model->weights);
    return plsh_convert_copy_files(from, PLSH_WEIGHT_F32, folder, error);
}

/* ---- Adapters -------------------------------------------------------------------------------- */

enum { TARGETS = 16 }; /* kinds of linear layers there are at most */

typedef struct adapter_parts {
    plsh_adapter_layer *layers;
    plsh_tensor *tensors; /* A, B of each */
    char (*modules)[160];
    float *rows; /* all B in the order of Hugging Face */
    const char *targets[TARGETS];
    size_t target_count;
} adapter_parts;

static void release_parts(adapter_parts *a) {
    plsh_release(a->layers);
    plsh_release(a->tensors);
    plsh_release(a->modules);
    plsh_release(a->rows);
}

static void add_target(adapter_parts *a, const char *module) {
    const char *last = plsh_module_last_part(module);
    for (size_t i = 0; i < a->target_count; i++) {
        if (strcmp(a->targets[i], last) == 0) return;
    }
    if (a->target_count < TARGETS) a->targets[a->target_count++] = last;
}

/* "base_model.model.<module>.lora_A.weight" */
static void name_module(char out[160], const char *parameter) {
    const char *begin = parameter + strlen("base_model.model.");
    const char *end = strstr(begin, ".lora_");
    snprintf(out, 160, "%.*s", (int)(end - begin), begin);
}

static plsh_status make_parts(const plsh_trainer *t, adapter_parts *a, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    const plsh_parameter *list = p->list + first_weight(p);
    const size_t count = p->count - first_weight(p), layers = count / 2;
    plsh_status status =
        plsh_allocate((void **)&a->layers, layers, sizeof(*a->layers), "layers", error);
    if (!status)
        status = plsh_allocate((void **)&a->tensors, count, sizeof(plsh_tensor), "layers", error);
    if (!status) status = plsh_allocate((void **)&a->modules, layers, 160, "layers", error);
    if (!status)
        status = plsh_allocate((void **)&a->rows, p->numbers, sizeof(float), "adapters", error);
    if (status) return status;
    for (size_t i = 0; i < count; i++) {
        const plsh_parameter *one = &list[i];
        store_parameter(t, one, p->value, a->rows + one->first);
        a->tensors[i] = tensor_of(one, one->name, a->rows + one->first);
    }
    for (size_t l = 0; l < layers; l++) {
        name_module(a->modules[l], list[2 * l].name);
        add_target(a, a->modules[l]);
        a->layers[l] = (plsh_adapter_layer){.module = a->modules[l],
                                            .a = &a->tensors[2 * l],
                                            .b = &a->tensors[2 * l + 1],
                                            .rank = list[2 * l].rows};
    }
    return PLSH_STATUS_OK;
}

static plsh_status save_adapter(const plsh_trainer *t, const char *folder, plsh_error *error) {
    adapter_parts a = {0};
    plsh_status status = make_parts(t, &a, error);
    if (!status) {
        const bool given = t->options.lora_targets != NULL && t->options.adapter == NULL;
        plsh_adapter_settings settings = {.base = plsh_weights_path(t->model->weights),
                                          .targets = given ? t->options.lora_targets : a.targets,
                                          .target_count =
                                              given ? t->options.lora_target_count : a.target_count,
                                          .rank = a.layers[0].rank,
                                          .alpha = t->parameters.alpha,
                                          .dropout = t->options.lora_dropout,
                                          .transposed = t->model->config.family->transposed};
        status = plsh_adapter_save(folder, &settings, a.layers,
                                   (t->parameters.count - first_weight(&t->parameters)) / 2, error);
    }
    release_parts(&a);
    return status;
}

void plsh_parameter_fetch(const plsh_trainer *t, const plsh_parameter *p, const float *in,
                          float *numbers) {
    const plsh_model_config *config = &t->model->config;
    const int64_t rows = p->rows ? p->rows : 1;
    for (int64_t r = 0; p->transposed && r < rows; r++) {
        for (int64_t c = 0; c < p->columns; c++)
            numbers[p->first + (size_t)(r * p->columns + c)] = in[c * rows + r];
    }
    for (int64_t r = 0; !p->transposed && r < rows; r++) {
        memcpy(numbers + p->first +
                   (size_t)(plsh_model_row_in_gguf(config, p->order, r) * p->columns),
               in + r * p->columns, (size_t)p->columns * sizeof(float));
    }
}

plsh_status plsh_trainer_write(const plsh_trainer *t, const char *folder, plsh_error *error) {
    if (t->lost) {
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                         "weights that are not finite, or half of a checkpoint, are not saved");
    }
    plsh_status status =
        t->options.lora_rank > 0 ? save_adapter(t, folder, error) : save_weights(t, folder, error);
    if (status || !t->model->slopes_learned) return status;
    return plsh_slopes_save(t->model, folder, error);
}

/* Writes into a new folder first: a rename replaces a symbolic link, where writing would follow
 * it. */
static plsh_status save_beside(const plsh_trainer *t, const char *folder, plsh_error *error) {
    char made[PLSH_CHECKPOINT_PATH], *name;
    plsh_status status = plsh_path_join(&name, folder, "model", error);
    if (status) return status;
    status = plsh_folder_make_beside(made, sizeof(made), name, error);
    plsh_release(name);
    if (status) return status;
    status = plsh_trainer_write(t, made, error);
    if (!status) status = plsh_folder_move_files(made, folder, error);
    if (status) plsh_folder_remove(made, NULL);
    return status;
}

plsh_status plsh_trainer_save(const plsh_trainer *t, const char *folder, plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status = plsh_ranks_first(ranks) ? save_beside(t, folder, error) : PLSH_STATUS_OK;
    return plsh_ranks_agree(ranks, status, error);
}

static plsh_status store_gradients(const plsh_trainer *t, const char *path, plsh_tensor *tensors,
                                   float *rows, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    for (size_t i = 0; i < p->count; i++) {
        const plsh_parameter *one = &p->list[i];
        store_parameter(t, one, p->gradient, rows + one->first);
        tensors[i] = tensor_of(one, one->name, rows + one->first);
    }
    return plsh_safetensors_save(path, tensors, p->count, error);
}

static plsh_status save_gradients(const plsh_trainer *t, const char *path, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    plsh_tensor *tensors = NULL;
    float *rows = NULL;
    plsh_status status =
        plsh_allocate((void **)&tensors, p->count, sizeof(*tensors), "tensors", error);
    if (!status)
        status = plsh_allocate((void **)&rows, p->numbers, sizeof(float), "gradients", error);
    if (!status) status = store_gradients(t, path, tensors, rows, error);
    plsh_release(tensors);
    plsh_release(rows);
    return status;
}

plsh_status plsh_trainer_save_gradients(const plsh_trainer *t, const char *path,
                                        plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status = plsh_ranks_first(ranks) ? save_gradients(t, path, error) : PLSH_STATUS_OK;
    return plsh_ranks_agree(ranks, status, error);
}
