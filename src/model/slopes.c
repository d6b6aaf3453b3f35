/* model: the slopes of ALiBi, one per layer and head. */
#include "model/slopes.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "plsh/io.h"

/* The standard series in every layer, 2^(-8 (h + 1) / heads), .., with another number for 8 (MPT)
 * and a factor (Jais); Falcon's bias is inside the scale of the scores. */
static plsh_status fill_series(plsh_model *model, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    const bool scaled = c->family->position == PLSH_POSITION_ALIBI_SCALED;
    plsh_status status = plsh_alibi_slopes((size_t)c->heads, model->slopes, error);
    for (int64_t h = 0; !status && h < c->heads; h++) {
        if (c->alibi_max != 8.0) model->slopes[h] = pow(model->slopes[h], c->alibi_max / 8.0);
        if (scaled) model->slopes[h] /= sqrt((double)c->head_dim);
        model->slopes[h] /= c->alibi_factor;
    }
    for (int64_t l = 1; !status && l < c->layers; l++) {
        memcpy(model->slopes + l * c->heads, model->slopes, (size_t)c->heads * sizeof(double));
    }
    return status;
}

static plsh_status take_array(plsh_model *model, const char *path, plsh_npy *array,
                              plsh_error *error) {
    const plsh_model_config *c = &model->config;
    if (array->rank != 2 || array->shape[0] != c->layers || array->shape[1] != c->heads) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: slopes have the shape [%lld, %lld]: layers, heads", path,
                         (long long)c->layers, (long long)c->heads);
    }
    plsh_status status = plsh_npy_to_float32(array, error);
    const float *values = array->data;
    for (size_t i = 0; !status && i < array->count; i++) {
        if (!(values[i] > 0.0f && isfinite(values[i]))) {
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: slope %zu is %g; above 0, and finite",
                             path, i, (double)values[i]);
        }
        model->slopes[i] = (double)values[i];
    }
    return status;
}

/* Those of a folder, where it has some. */
static plsh_status read_folder(plsh_model *model, const char *folder, plsh_error *error) {
    plsh_npy array;
    char *path;
    plsh_status status = plsh_path_join(&path, folder, PLSH_SLOPES_FILE, error);
    if (status) return status;
    if (plsh_path_exists(path)) {
        status = plsh_npy_read(path, &array, error);
        if (!status) {
            status = take_array(model, path, &array, error);
            plsh_npy_free(&array);
        }
        model->slopes_learned = !status;
    }
    plsh_release(path);
    return status;
}

plsh_status plsh_slopes_make(plsh_model *model, const char *adapter, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    plsh_status status = plsh_allocate((void **)&model->slopes, (size_t)(c->layers * c->heads),
                                       sizeof(double), "slopes", error);
    if (!status) status = fill_series(model, error);
    if (!status && adapter) status = read_folder(model, adapter, error);
    if (!status && !model->slopes_learned && !c->gguf) {
        status = read_folder(model, plsh_weights_folder(model->weights), error);
    }
    return status;
}

plsh_status plsh_slopes_save(const plsh_model *model, const char *folder, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    const int64_t shape[2] = {c->layers, c->heads};
    const size_t count = (size_t)(c->layers * c->heads);
    float *values;
    char *path = NULL;
    plsh_status status =
        plsh_allocate((void **)&values, count, sizeof(float), PLSH_SLOPES_FILE, error);
    if (!status) status = plsh_path_join(&path, folder, PLSH_SLOPES_FILE, error);
    for (size_t i = 0; !status && i < count; i++) values[i] = (float)model->slopes[i];
    if (!status) status = plsh_npy_write(path, PLSH_DTYPE_FLOAT32, 2, shape, values, error);
    plsh_release(path);
    plsh_release(values);
    return status;
}
