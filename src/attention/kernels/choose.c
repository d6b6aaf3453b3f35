/* attention: which kernels this machine runs. */
#include <string.h>

#include "attention/kernels/kernels.h"
#include "base/cpu.h"

const char *const *plsh_isa_available(void) { return plsh_cpu_isas(); }

plsh_status plsh_kernels_choose(const plsh_kernels **out, const char *name, plsh_error *error) {
    static const plsh_kernels *const tables[] = {
#if defined(__x86_64__)
        &plsh_kernels_bf16,
        &plsh_kernels_avx512,
        &plsh_kernels_avx2,
#ifdef PLSH_TESTING
        &plsh_kernels_wide,
#endif
#elif defined(__aarch64__)
        &plsh_kernels_neon,
#elif defined(__wasm_simd128__)
        &plsh_kernels_wasm,
#endif
        &plsh_kernels_reference
    };
    const char *isa;
    plsh_status status = plsh_cpu_choose(&isa, name, error);
    if (status) return status;
    const char *vectors = plsh_cpu_vectors(isa); /* of "amx", which has no table here */
    size_t i = 0, last = sizeof tables / sizeof *tables - 1;
    while (i < last && strcmp(tables[i]->name, isa) != 0 && strcmp(tables[i]->name, vectors) != 0)
        i++; /* cpu.c has the same names */
    *out = tables[i];
    return PLSH_STATUS_OK;
}
