/* linear: the kernels of AMX with its instructions emulated, for testing them anywhere. */
#include "base/simd/vector_wide.h"

#include "base/simd/vector_math.h"

typedef int32_t vint __attribute__((vector_size(64)));

INLINE vector v_float(vint x) { return __builtin_convertvector(x, vector); }

#include "linear/kernels/amx_emulated.h"
#include "linear/kernels/amx_template.h"

const plsh_tile_kernels plsh_tiles_emulated = {begin, end, multiply_int8, multiply_bfloat};

int plsh_tiles_emulated_held(void) { return emulated_held; }
