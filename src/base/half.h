/* base: IEEE half precision as bits. */
#ifndef PLSH_BASE_HALF_H
#define PLSH_BASE_HALF_H

#include <stdint.h>
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

#endif
