/* base: which instruction sets this machine has, and which one is to be used. */
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports also asks whether the system saves the registers (XGETBV). It has no
 * word for F16C in every compiler; whoever saves the AVX registers has all F16C needs. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const char *const *plsh_cpu_isas(void) {
#if defined(__x86_64__)
    static const char *const names[] = {"avx512", "avx2", "wide", "reference", NULL};
    return names + (has_avx512() ? 0 : has_avx2() ? 1 : 3);
#elif defined(__aarch64__)
    static const char *const names[] = {"neon", "reference", NULL};
    return names;
#else
    static const char *const names[] = {"reference", NULL};
    return names;
#endif
}

plsh_status plsh_cpu_choose(const char **isa, const char *name, plsh_error *error) {
    const char *source = name ? "isa" : "PLSH_ISA";
    if (!name) name = getenv("PLSH_ISA");
    const char *const *isas = plsh_cpu_isas();
    char list[80] = "";
    for (int i = 0; isas[i]; i++) {
        if (!name || !*name || strcmp(name, isas[i]) == 0) {
            *isa = isas[i];
            return PLSH_STATUS_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", isas[i]);
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s is '%.40s', which this machine does not have; it has %s", source, name,
                     list);
}
