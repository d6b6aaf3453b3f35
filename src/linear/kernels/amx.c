/* linear: many rows by AMX. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"

typedef int32_t vint __attribute__((vector_size(64)));

INLINE vector v_float(vint x) { return _mm512_cvtepi32_ps((__m512i)x); }

#include "linear/kernels/amx_template.h"

const plsh_tile_kernels plsh_tiles_amx = {begin, end, multiply_int8, multiply_bfloat};
