/* base: the features of this processor, and the choice of an instruction set.
 *
 * An instruction set is a name ("amx", "avx512bf16", "avx512", "avx2", "neon", "wasm", "reference")
 * for the features that kernels compiled for it need. A room with kernels has a table of them for
 * each name. The first two are AVX-512 with more: "amx" has AMX tiles for the products of linear
 * layers in int8 and bfloat16, "avx512bf16" the scores of attention between bfloat16 arrays. */
#ifndef PLSH_BASE_CPU_H
#define PLSH_BASE_CPU_H

#include "plsh/status.h"

/* Features of a processor, as far as kernels here ask for them. Those of x86 count only where the
 * system saves the registers they work on. */
typedef enum plsh_cpu_feature {
    PLSH_CPU_F16C = 1 << 0,
    PLSH_CPU_FMA = 1 << 1,
    PLSH_CPU_AVX2 = 1 << 2,
    PLSH_CPU_AVX512F = 1 << 3,
    PLSH_CPU_AVX512BW = 1 << 4,
    PLSH_CPU_AVX512DQ = 1 << 5,
    PLSH_CPU_AVX512VL = 1 << 6,
    PLSH_CPU_NEON = 1 << 7,
    PLSH_CPU_AVX512VNNI = 1 << 8,
    PLSH_CPU_SIMD128 = 1 << 9,
    PLSH_CPU_AVX512BF16 = 1 << 10, /* of AMD only: Intel's takes as long as float32 */
    /* AMX for bfloat16 and int8, which the system lets this process use, and the instructions of
     * AVX-512 BF16 beside it, which all such processors have. */
    PLSH_CPU_AMX = 1 << 11
} plsh_cpu_feature;

/* Those of this machine. The tests' build leaves out those that PLSH_TEST_CPU_OFF names, as in
 * "avx512f,fma", so that one machine can test the choices of others. */
unsigned plsh_cpu_features(void);

/* The names of the instruction sets that this machine can run, the best first, NULL at the end;
 * "reference", plain C, is always the last. The tests' build also has "wide": 16 lanes in two AVX2
 * registers each, slow. */
const char *const *plsh_cpu_isas(void);

/* The instruction set of the vectors: "avx512" for "amx" and "avx512bf16", otherwise the name
 * itself. */
const char *plsh_cpu_vectors(const char *isa);

/* Returns `name`, or if it is NULL the value of PLSH_ISA, or else the best. Any other name is an
 * error that lists the valid ones. */
plsh_status plsh_cpu_choose(const char **isa, const char *name, plsh_error *error);

#endif
