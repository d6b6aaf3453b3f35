/* base: the types of numbers in arrays, and conversions. */
#include "base/dtype.h"

#include "base/status.h"

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [PLSH_DTYPE_FLOAT32] = {"float32", 4},   [PLSH_DTYPE_FLOAT16] = {"float16", 2},
    [PLSH_DTYPE_BFLOAT16] = {"bfloat16", 2}, [PLSH_DTYPE_FLOAT64] = {"float64", 8},
    [PLSH_DTYPE_INT8] = {"int8", 1},         [PLSH_DTYPE_INT16] = {"int16", 2},
    [PLSH_DTYPE_INT32] = {"int32", 4},       [PLSH_DTYPE_INT64] = {"int64", 8},
    [PLSH_DTYPE_UINT8] = {"uint8", 1},       [PLSH_DTYPE_UINT16] = {"uint16", 2},
    [PLSH_DTYPE_UINT32] = {"uint32", 4},     [PLSH_DTYPE_UINT64] = {"uint64", 8},
    [PLSH_DTYPE_BOOL] = {"bool", 1},
};
enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const char *plsh_dtype_name(plsh_dtype dtype) {
    return (unsigned)dtype < TYPE_COUNT ? types[dtype].name : "unknown type";
}

size_t plsh_dtype_size(plsh_dtype dtype) {
    return (unsigned)dtype < TYPE_COUNT ? types[dtype].size : 0;
}

plsh_status plsh_dtype_find(const char *name, plsh_dtype *dtype, plsh_error *error) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        *dtype = (plsh_dtype)i;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "type '%.40s' is unknown; float32, float16, bfloat16, float64, bool, int8 to "
                     "int64 or uint8 to uint64",
                     name);
}

static plsh_status refuse(plsh_dtype dtype, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "numbers of %s; float32, float16, bfloat16 and float64 are converted",
                     plsh_dtype_name(dtype));
}

plsh_status plsh_dtype_to_float(plsh_dtype dtype, const void *from, float *to, size_t count,
                                plsh_error *error) {
    const uint16_t *bits = from;
    switch (dtype) {
    case PLSH_DTYPE_FLOAT32:
        if (count > 0) memcpy(to, from, count * sizeof *to);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_FLOAT16:
        for (size_t i = 0; i < count; i++) to[i] = plsh_half_to_float(bits[i]);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_BFLOAT16:
        for (size_t i = 0; i < count; i++) to[i] = plsh_bfloat_to_float(bits[i]);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_FLOAT64:
        for (size_t i = 0; i < count; i++) to[i] = (float)((const double *)from)[i];
        return PLSH_STATUS_OK;
    default: return refuse(dtype, error);
    }
}

plsh_status plsh_dtype_from_float(plsh_dtype dtype, void *to, const float *from, size_t count,
                                  plsh_error *error) {
    uint16_t *bits = to;
    switch (dtype) {
    case PLSH_DTYPE_FLOAT32:
        if (count > 0) memcpy(to, from, count * sizeof *from);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_FLOAT16:
        for (size_t i = 0; i < count; i++) bits[i] = plsh_float_to_half(from[i]);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_BFLOAT16:
        for (size_t i = 0; i < count; i++) bits[i] = plsh_float_to_bfloat(from[i]);
        return PLSH_STATUS_OK;
    case PLSH_DTYPE_FLOAT64:
        for (size_t i = 0; i < count; i++) ((double *)to)[i] = (double)from[i];
        return PLSH_STATUS_OK;
    default: return refuse(dtype, error);
    }
}
