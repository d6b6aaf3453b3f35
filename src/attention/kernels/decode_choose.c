/* attention: which decode kernels this machine runs. */
#include "attention/kernels/decode_tables.h"

#include <string.h>

plsh_status plsh_decode_kernels_choose(const plsh_decode_kernels **out, const char *isa,
                                       plsh_error *error) {
    static const plsh_decode_kernels *const tables[] = {
#if defined(__x86_64__)
        &plsh_decode_avx512,
        &plsh_decode_avx2,
        &plsh_decode_wide,
#elif defined(__aarch64__)
        &plsh_decode_neon,
#endif
        &plsh_decode_reference
    };
    plsh_kernels chosen;
    plsh_status status = plsh_kernels_choose(&chosen, isa, error);
    if (status) return status;
    size_t last = sizeof tables / sizeof tables[0] - 1, i = 0;
    while (i < last && strcmp(tables[i]->name, chosen.name) != 0) i++;
    *out = tables[i];
    return PLSH_STATUS_OK;
}
