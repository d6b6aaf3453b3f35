/* linear: products in bfloat16 in plain C: a vector is one number. */
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
#include "linear/kernels/bfloat_plain.h"

#define PAIRS_ONLY INLINE

INLINE vpair p_load(const void *p) {
    uint16_t pair[2];
    memcpy(pair, p, sizeof pair);
    return (vpair){normal_or_zero(plsh_bfloat_to_float(pair[0])),
                   normal_or_zero(plsh_bfloat_to_float(pair[1]))};
}
INLINE vpair p_set(const void *p) { return p_load(p); }

INLINE vector v_pair(vector sum, vpair w, vpair x) {
    return add_product(add_product(sum, w.second, x.second), w.first, x.first);
}
INLINE float v_total(vector x) { return x; }
INLINE unsigned pairs_begin(void) { return 0; }
INLINE void pairs_end(unsigned state) { (void)state; }

#include "linear/kernels/bfloat_template.h"

const plsh_bfloat_kernels plsh_bfloat_reference = BFLOAT_TABLE("reference", &plsh_linear_reference);
