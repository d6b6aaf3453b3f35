/* attention: which kernels this machine runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/kernels/tables.h"
#include "base/status.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { MOST_TABLES = 4 };

#if defined(__x86_64__)
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

/* tables[0..result): what this machine can run, best first. */
static int available(const plsh_kernels *tables[MOST_TABLES]) {
    int count = 0;
#if defined(__x86_64__)
    if (has_avx512()) tables[count++] = &plsh_kernels_avx512;
    if (has_avx2()) {
        tables[count++] = &plsh_kernels_avx2;
        tables[count++] = &plsh_kernels_wide;
    }
#elif defined(__aarch64__)
    tables[count++] = &plsh_kernels_neon;
#endif
    tables[count++] = &plsh_kernels_reference;
    return count;
}

const char *const *plsh_isa_available(void) {
    static const char *const names[] = {
#if defined(__x86_64__)
        "avx512",
        "avx2",
        "wide",
#elif defined(__aarch64__)
        "neon",
#endif
        "reference",
        NULL
    };
    const plsh_kernels *tables[MOST_TABLES];
    int all = (int)(sizeof(names) / sizeof(*names)) - 1;
    return names + (all - available(tables)); /* what is missing is always the best */
}

static void fill_from_reference(plsh_kernels *table) {
    const plsh_kernels *reference = &plsh_kernels_reference;
#define FILL(function)                                                                             \
    if (!table->function) table->function = reference->function
    FILL(pack);
    FILL(widen);
    FILL(scores);
    FILL(softmax);
    FILL(softmax_weighted);
    FILL(mask);
    FILL(accumulate);
    FILL(accumulate_masked);
    FILL(finish);
    FILL(all_finite);
    FILL(box);
    FILL(gradient);
    FILL(dots);
    FILL(spread);
    FILL(correlate);
    FILL(bounds);
#undef FILL
}

plsh_status plsh_kernels_choose(plsh_kernels *out, const char *name, plsh_error *error) {
    const char *source = "isa";
    if (!name) {
        name = getenv("PLSH_ISA");
        source = "PLSH_ISA";
    }
    const plsh_kernels *tables[MOST_TABLES];
    int count = available(tables);
    char list[80] = "";
    for (int i = 0; i < count; i++) {
        if (!name || !*name || strcmp(name, tables[i]->name) == 0) {
            *out = *tables[i];
            fill_from_reference(out);
            return PLSH_STATUS_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", tables[i]->name);
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s is '%.40s', which this machine does not have; it has %s", source, name,
                     list);
}
