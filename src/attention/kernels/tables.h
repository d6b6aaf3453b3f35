/* attention: the kernel tables that a build may have, for choose.c alone. */
#ifndef PLSH_ATTENTION_KERNEL_TABLES_H
#define PLSH_ATTENTION_KERNEL_TABLES_H

#include "attention/kernels/kernels.h"

extern const plsh_kernels plsh_kernels_reference;
extern const plsh_kernels plsh_kernels_avx2, plsh_kernels_avx512;
extern const plsh_kernels plsh_kernels_wide; /* in the tests' build only */
extern const plsh_kernels plsh_kernels_neon;

#endif
