/* plsh/dtype.h - the data types of arrays.
 *
 * One list for attention, caches and files. Attention takes float32, float16 and bfloat16; the
 * others are those a .npy file may hold.
 *
 *     uint16_t half[64];
 *     plsh_dtype_from_float(PLSH_DTYPE_FLOAT16, half, row, 64, NULL); */
#ifndef PLSH_DTYPE_H
#define PLSH_DTYPE_H

#include "plsh/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_dtype {
    PLSH_DTYPE_FLOAT32,
    PLSH_DTYPE_FLOAT16,  /* IEEE half, its bits in a uint16_t */
    PLSH_DTYPE_BFLOAT16, /* the upper 16 bits of a float32, in a uint16_t */
    PLSH_DTYPE_FLOAT64,
    PLSH_DTYPE_INT8,
    PLSH_DTYPE_INT16,
    PLSH_DTYPE_INT32,
    PLSH_DTYPE_INT64,
    PLSH_DTYPE_UINT8,
    PLSH_DTYPE_UINT16,
    PLSH_DTYPE_UINT32,
    PLSH_DTYPE_UINT64,
    PLSH_DTYPE_BOOL /* bytes 0 and 1 */
} plsh_dtype;

/* "float32", as NumPy and torch call it; a static string, "unknown type" for any other value. */
PLSH_API const char *plsh_dtype_name(plsh_dtype dtype);

/* Bytes of one number; 0 for an unknown type. */
PLSH_API size_t plsh_dtype_size(plsh_dtype dtype);

/* The type of that name; an error lists the names. */
PLSH_API plsh_status plsh_dtype_find(const char *name, plsh_dtype *dtype, plsh_error *error);

/* to[i] = from[i], i < count, for the four kinds of floats: exact, or rounded to nearest even; a
 * NaN stays one. The arrays need the alignment of their elements and do not overlap. */
PLSH_API plsh_status plsh_dtype_to_float(plsh_dtype dtype, const void *from, float *to,
                                         size_t count, plsh_error *error);
PLSH_API plsh_status plsh_dtype_from_float(plsh_dtype dtype, void *to, const float *from,
                                           size_t count, plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
