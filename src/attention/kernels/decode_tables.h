/* attention: the decode tables that a build may have. */
#ifndef PLSH_ATTENTION_KERNELS_DECODE_TABLES_H
#define PLSH_ATTENTION_KERNELS_DECODE_TABLES_H

#include "attention/kernels/decode.h"

extern const plsh_decode_kernels plsh_decode_reference;
extern const plsh_decode_kernels plsh_decode_avx2, plsh_decode_avx512, plsh_decode_wide;
extern const plsh_decode_kernels plsh_decode_neon;

#endif
