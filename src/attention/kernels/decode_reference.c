/* attention: the decode kernels in plain C: a vector is one float. */
#include "attention/kernels/decode_tables.h"
#include "base/dtype.h"

#include <math.h>

#define LANES 1
#define V_HAS_EXP2
#define DECODE_ROWS 1
#define DECODE_COLUMNS 1

typedef float vector;

static inline vector v_set(float x) { return x; }
static inline vector v_load(const float *p) { return *p; }
static inline void v_store(float *p, vector x) { *p = x; }
static inline vector v_fma(vector a, vector b, vector c) { return a * b + c; }
static inline vector v_max(vector a, vector b) { return a > b ? a : b; }
static inline vector v_if_equal(vector x, vector y, vector a, vector b) { return x == y ? a : b; }
static inline vector v_load_half(const uint16_t *p) { return plsh_half_to_float(*p); }
static inline vector v_load_bfloat(const uint16_t *p) { return plsh_bfloat_to_float(*p); }
static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

/* Cut to zero below the normal range, as in the other tables. */
static inline vector v_exp2(vector x) { return x < -126.0f ? 0.0f : exp2f(x); }

#include "attention/kernels/decode_template.h"

static void narrow_half(uint16_t *to, const float *from, int64_t count) {
    for (int64_t x = 0; x < count; x++) to[x] = plsh_float_to_half(from[x]);
}

const plsh_decode_kernels plsh_decode_reference = DECODE_TABLE("reference", narrow_half);
