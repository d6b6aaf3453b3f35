/* base: the vector vocabulary in plain C, one lane. */
#ifndef PLSH_BASE_SIMD_VECTOR_PLAIN_H
#define PLSH_BASE_SIMD_VECTOR_PLAIN_H

#include <math.h>
#include <stdint.h>

#include "base/dtype.h"

#define LANES 1
typedef float vector;

static inline vector v_set(float x) { return x; }
static inline vector v_load(const float *p) { return *p; }
static inline void v_store(float *p, vector x) { *p = x; }
static inline vector v_fma(vector a, vector b, vector c) { return a * b + c; }
static inline vector v_max(vector a, vector b) { return a > b ? a : b; }
static inline vector v_if_equal(vector x, vector y, vector a, vector b) { return x == y ? a : b; }
static inline vector v_load_half(const uint16_t *p) { return plsh_half_to_float(*p); }
static inline vector v_load_bfloat(const uint16_t *p) { return plsh_bfloat_to_float(*p); }

/* Cut to zero below the normal range, as in the other vocabularies. */
#define V_HAS_EXP2
static inline vector v_exp2(vector x) { return x < -126.0f ? 0.0f : exp2f(x); }

#endif
