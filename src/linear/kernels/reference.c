/* linear: the kernels in plain C: a vector is one float. */
#include "base/dtype.h"

#define LANES 1
#define V_HAS_EXP2

typedef float vector;
typedef int32_t vint;

static inline vector v_set(float x) { return x; }
static inline vector v_load(const float *p) {
    vector x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void v_store(float *p, vector x) { *p = x; }
static inline vector v_fma(vector a, vector b, vector c) { return a * b + c; }
static inline uint16_t v_load_bits(const uint16_t *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}
static inline vector v_load_half(const uint16_t *p) { return plsh_half_to_float(v_load_bits(p)); }
static inline vector v_load_bfloat(const uint16_t *p) {
    return plsh_bfloat_to_float(v_load_bits(p));
}
static inline vint v_bytes(const uint8_t *p) { return *p; }
static inline vint v_signed(const uint8_t *p) { return (int8_t)*p; }
static inline vector v_float(vint x) { return (float)x; }
static inline float v_half_scalar(uint16_t half) { return plsh_half_to_float(half); }
static inline float v_total(vector x) { return x; }

#define BLOCK_ROWS 4
#define BLOCK_VECTORS 4

#include "base/simd/vector_math.h"

/* The 32 parts of a group, written out for every type, would take a minute to compile. */
#undef UNROLL
#define UNROLL

#include "linear/kernels/template.h"

const plsh_linear_kernels plsh_linear_reference = LINEAR_TABLE("reference");
