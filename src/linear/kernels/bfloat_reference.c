/* linear: products in bfloat16 in plain C: a vector is one number. */
#include <math.h>
#include <stdint.h>

#define LANES 1
#define V_HAS_EXP2
#define BLOCK_ROWS 4
#define BLOCK_VECTORS 4

typedef float vector;
typedef struct vpair {
    float first, second;
} vpair;

static inline vector v_set(float x) { return x; }
static inline vector v_load(const float *p) { return *p; }
static inline void v_store(float *p, vector x) { *p = x; }

#include "base/dtype.h"
#include "base/simd/vector_math.h"
#undef UNROLL /* loops of single numbers: unrolled, clang took minutes to compile them */
#define UNROLL
#include "linear/kernels/bfloat.h"

#define PAIRS_ONLY INLINE

INLINE float normal_or_zero(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

INLINE vpair p_load(const void *p) {
    uint16_t pair[2];
    memcpy(pair, p, sizeof pair);
    return (vpair){normal_or_zero(plsh_bfloat_to_float(pair[0])),
                   normal_or_zero(plsh_bfloat_to_float(pair[1]))};
}
INLINE vpair p_set(const void *p) { return p_load(p); }

/* w x + sum, rounded to 24 bits, and 0 where that is below 2^-126. A result of 2^-126 may have been
 * rounded up there, with the fewer bits of subnormal numbers. In double the sum is exact then: w x
 * has 16 bits. */
INLINE float add_product(float sum, float w, float x) {
    sum = normal_or_zero(sum);
    const float y = __builtin_fmaf(w, x, sum);
    const double least = 0x1p-126 - 0x1p-151;
    if (fabsf(y) > 0x1p-126f || !(fabs((double)w * (double)x + (double)sum) < least)) return y;
    return copysignf(0.0f, y);
}
INLINE vector v_pair(vector sum, vpair w, vpair x) {
    return add_product(add_product(sum, w.second, x.second), w.first, x.first);
}
INLINE float v_total(vector x) { return x; }
INLINE unsigned pairs_begin(void) { return 0; }
INLINE void pairs_end(unsigned state) { (void)state; }

#include "linear/kernels/bfloat_template.h"

const plsh_bfloat_kernels plsh_bfloat_reference = BFLOAT_TABLE("reference", &plsh_linear_reference);
