/* base: small functions of numbers. */
#ifndef PLSH_BASE_NUMBERS_H
#define PLSH_BASE_NUMBERS_H

#include <stdint.h>

/* log2(e): scores in units of log2 are exp2's exponents. */
#define PLSH_LOG2_E 1.4426950408889634

static inline int64_t plsh_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t plsh_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The larger; NaN if either is NaN. */
static inline float plsh_larger(float a, float b) { return a >= b || a != a ? a : b; }
static inline double plsh_larger_double(double a, double b) { return a >= b || a != a ? a : b; }

/* The greatest common divisor. */
static inline int64_t plsh_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
