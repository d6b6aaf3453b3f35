/* linear: which kernels this machine runs. */
#include <string.h>

#include "base/cpu.h"
#include "linear/kernels/kernels.h"
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
#endif
        &plsh_linear_reference
    };
    const char *name;
    plsh_status status = plsh_cpu_choose(&name, isa, error);
    if (status != PLSH_STATUS_OK) return status;
    size_t last = sizeof tables / sizeof *tables - 1, i = 0;
    while (i < last && strcmp(tables[i]->name, name) != 0) i++;
    *out = tables[i];
    return PLSH_STATUS_OK;
}
