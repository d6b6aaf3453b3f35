/* linear: one step of a product in bfloat16 in plain C, as processors compute it: numbers below
 * 2^-126 are 0 before and after. */
#ifndef PLSH_LINEAR_BFLOAT_PLAIN_H
#define PLSH_LINEAR_BFLOAT_PLAIN_H

#include <math.h>

static inline float normal_or_zero(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* w x + sum, rounded to 24 bits, and 0 if that is below 2^-126. A result of exactly 2^-126 may have
 * been rounded up from a subnormal number, which has fewer bits; then the sum in double decides. It
 * is exact: w x has 16 bits, or w is 1. */
static inline float add_product(float sum, float w, float x) {
    sum = normal_or_zero(sum);
    const float y = __builtin_fmaf(w, x, sum);
    const double least = 0x1p-126 - 0x1p-151;
    if (fabsf(y) > 0x1p-126f || !(fabs((double)w * (double)x + (double)sum) < least)) return y;
    return copysignf(0.0f, y);
}

#endif
