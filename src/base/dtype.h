/* base: IEEE half precision and bfloat16 as bits, one number at a time; arrays of them are
 * plsh/dtype.h. */
#ifndef PLSH_BASE_DTYPE_H
#define PLSH_BASE_DTYPE_H

#include "plsh/dtype.h"

#include <string.h>

/* Exact; NaNs keep their payload. Normal numbers move their exponent from bias 15 to 127;
 * subnormals are a whole multiple of 2^-24. */
static inline float plsh_half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff, bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded to nearest even; a NaN stays one. Below the normal range a half is a whole multiple of
 * 2^-24: adding 1/2 leaves that multiple, rounded, in the low bits of the sum. */
static inline uint16_t plsh_float_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more */
    if (bits < 0x38800000) {                      /* 2^-14 */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}

static inline float plsh_bfloat_to_float(uint16_t bfloat) {
    uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded to nearest even; a NaN stays one. */
static inline uint16_t plsh_float_to_bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The types of q, k, v and o: the first three of the list. */
static inline bool plsh_dtype_is_attended(plsh_dtype dtype) {
    return (unsigned)dtype <= PLSH_DTYPE_BFLOAT16;
}

/* Element `at` of an array of one of these, and the same into it. */
static inline float plsh_dtype_load(plsh_dtype dtype, const void *from, ptrdiff_t at) {
    if (dtype == PLSH_DTYPE_FLOAT32) return ((const float *)from)[at];
    uint16_t bits = ((const uint16_t *)from)[at];
    return dtype == PLSH_DTYPE_FLOAT16 ? plsh_half_to_float(bits) : plsh_bfloat_to_float(bits);
}

static inline void plsh_dtype_store(plsh_dtype dtype, void *to, ptrdiff_t at, float value) {
    if (dtype == PLSH_DTYPE_FLOAT32)
        ((float *)to)[at] = value;
    else if (dtype == PLSH_DTYPE_FLOAT16)
        ((uint16_t *)to)[at] = plsh_float_to_half(value);
    else
        ((uint16_t *)to)[at] = plsh_float_to_bfloat(value);
}

#endif
