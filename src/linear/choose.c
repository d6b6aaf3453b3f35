/* linear: which kernels this machine runs. */
#include <string.h>

#include "base/cpu.h"
#include "linear/kernels/bfloat.h"
#include "linear/kernels/int8.h"
#include "linear/linear.h"

plsh_status plsh_linear_kernels_choose(const plsh_linear_kernels **out, const char *isa,
                                       plsh_error *error) {
    static const plsh_linear_kernels *const tables[] = {
#if defined(__x86_64__)
        &plsh_linear_avx512,
        &plsh_linear_avx2,
#ifdef PLSH_TESTING
        &plsh_linear_wide,
#endif
#elif defined(__aarch64__)
        &plsh_linear_neon,
#elif defined(__wasm_simd128__)
        &plsh_linear_wasm,
#endif
        &plsh_linear_reference
    };
    const char *name;
    plsh_status status = plsh_cpu_choose(&name, isa, error);
    if (status != PLSH_STATUS_OK) return status;
    name = plsh_cpu_vectors(name);
    size_t last = sizeof tables / sizeof *tables - 1, i = 0;
    while (i < last && strcmp(tables[i]->name, name) != 0) i++;
    *out = tables[i];
    return PLSH_STATUS_OK;
}

plsh_status plsh_int8_kernels_choose(const plsh_int8_kernels **out, const char *isa,
                                     plsh_error *error) {
    const char *name;
    plsh_status status = plsh_cpu_choose(&name, isa, error);
    if (status != PLSH_STATUS_OK) return status;
    *out = &plsh_int8_reference;
#if defined(__x86_64__)
    const bool vnni = (plsh_cpu_features() & PLSH_CPU_AVX512VNNI) != 0;
    if (strcmp(name, "reference") != 0) *out = &plsh_int8_avx2;
    if (strcmp(plsh_cpu_vectors(name), "avx512") == 0 && vnni) *out = &plsh_int8_vnni;
#if PLSH_WITH_AMX
    if (strcmp(name, "amx") == 0) *out = &plsh_int8_amx;
#endif
#elif defined(__aarch64__)
    if (strcmp(name, "neon") == 0) *out = &plsh_int8_neon;
#endif
    return PLSH_STATUS_OK;
}

plsh_status plsh_bfloat_kernels_choose(const plsh_bfloat_kernels **out, const char *isa,
                                       plsh_error *error) {
    const char *name;
    plsh_status status = plsh_cpu_choose(&name, isa, error);
    if (status != PLSH_STATUS_OK) return status;
    *out = &plsh_bfloat_reference;
#if defined(__x86_64__)
    const bool pairs = (plsh_cpu_features() & PLSH_CPU_AVX512BF16) != 0;
    if (strcmp(name, "reference") != 0) *out = &plsh_bfloat_avx2;
    if (strcmp(plsh_cpu_vectors(name), "avx512") == 0 && pairs) *out = &plsh_bfloat_avx512;
#if PLSH_WITH_AMX
    if (strcmp(name, "amx") == 0) *out = &plsh_bfloat_amx;
#endif
#endif
    return PLSH_STATUS_OK;
}
