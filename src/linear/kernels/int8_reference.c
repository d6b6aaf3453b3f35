/* linear: products in int8 in plain C: a vector is one number. */
#include <stdint.h>

#define LANES 1
#define V_HAS_EXP2
#define BLOCK_ROWS 4
#define BLOCK_VECTORS 4
enum { WIDTH = BLOCK_VECTORS * LANES };

typedef float vector;
typedef int32_t vint;

static inline vector v_set(float x) { return x; }
static inline vector v_load(const float *p) { return *p; }
static inline void v_store(float *p, vector x) { *p = x; }
static inline vector v_fma(vector a, vector b, vector c) { return __builtin_fmaf(a, b, c); }
static inline vint i_set(int32_t x) { return x; }
static inline vector v_float(vint x) { return (float)x; }

#include "linear/kernels/int8_plain.h"

INLINE void add_words(const plsh_weight_type type, const int R, const int words,
                      vint sum[][BLOCK_VECTORS], const uint8_t *panel, const int8_t *p,
                      int64_t stride) {
    const int8_t *w = (const int8_t *)panel;
    (void)type;
    for (int i = 0; i < words * 4; i++) {
        for (int r = 0; r < R; r++) {
            for (int c = 0; c < WIDTH; c++)
                sum[r][c] += w[(i / 4 * WIDTH + c) * 4 + i % 4] * p[r * stride + i];
        }
    }
}

#include "linear/kernels/int8_template.h"

const plsh_int8_kernels plsh_int8_reference =
    INT8_TABLE("reference", &plsh_linear_reference, true, PLSH_LINEAR_FEW, NULL);
