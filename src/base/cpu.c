/* base: the features of this processor, and the choice of an instruction set. */
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if PLSH_WITH_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- Features ------------------------------------------------------------------------------- */

#if PLSH_WITH_AMX
static bool has_tiles(void) {
    enum { BF16 = 1u << 22, TILE = 1u << 24, INT8 = 1u << 25, ALL = BF16 | TILE | INT8 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & ALL) == ALL;
}

/* Linux saves the tiles of a process that has asked for it, of all its threads: otherwise the first
 * instruction on them is SIGILL. Linux kernels without AMX, and virtual machines that hide it,
 * refuse. Asked once; two threads that ask at the same time get the same answer. */
static bool tiles_granted(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    enum { UNKNOWN, REFUSED, GRANTED };
    static _Atomic int answer = UNKNOWN;
    if (answer == UNKNOWN) {
        const bool has = has_tiles() && __builtin_cpu_supports("avx512bf16") &&
                         syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
        answer = has ? GRANTED : REFUSED;
    }
    return answer == GRANTED;
}
#elif defined(__x86_64__)
static bool tiles_granted(void) { return false; } /* the compiler or the system does not know AMX */
#endif

static unsigned machine_features(void) {
    unsigned has = 0;
#if defined(__x86_64__)
    /* __builtin_cpu_supports also asks whether the system saves the registers (XGETBV). Not every
     * compiler knows F16C there; a system that saves the AVX registers supports F16C. */
    unsigned a, b, c, d;
    if (__builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C))
        has |= PLSH_CPU_F16C;
    if (__builtin_cpu_supports("fma")) has |= PLSH_CPU_FMA;
    if (__builtin_cpu_supports("avx2")) has |= PLSH_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f")) has |= PLSH_CPU_AVX512F;
    if (__builtin_cpu_supports("avx512bw")) has |= PLSH_CPU_AVX512BW;
    if (__builtin_cpu_supports("avx512dq")) has |= PLSH_CPU_AVX512DQ;
    if (__builtin_cpu_supports("avx512vl")) has |= PLSH_CPU_AVX512VL;
    if (__builtin_cpu_supports("avx512vnni")) has |= PLSH_CPU_AVX512VNNI;
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd")) has |= PLSH_CPU_AVX512BF16;
    if (tiles_granted()) has |= PLSH_CPU_AMX;
#elif defined(__aarch64__)
    has = PLSH_CPU_NEON;                          /* part of the architecture */
#elif defined(__wasm_simd128__)
    has = PLSH_CPU_SIMD128; /* an engine without it refuses the whole module */
#endif
    return has;
}

#ifdef PLSH_TESTING
/* The features that PLSH_TEST_CPU_OFF names. */
static unsigned features_off(void) {
    static const char *const names[] = {"f16c",       "fma",      "avx2",       "avx512f",
                                        "avx512bw",   "avx512dq", "avx512vl",   "neon",
                                        "avx512vnni", "simd128",  "avx512bf16", "amx"};
    const char *at = getenv("PLSH_TEST_CPU_OFF");
    unsigned off = 0;
    while (at && *at) {
        size_t length = strcspn(at, ","), i = 0, count = sizeof names / sizeof *names;
        while (i < count && (strlen(names[i]) != length || memcmp(names[i], at, length) != 0)) i++;
        if (i == count) {
            fprintf(stderr, "PLSH_TEST_CPU_OFF: no feature is called '%.*s'\n", (int)length, at);
            abort();
        }
        off |= 1u << i;
        at += length + (at[length] == ',');
    }
    return off;
}
#endif

unsigned plsh_cpu_features(void) {
#ifdef PLSH_TESTING
    return machine_features() & ~features_off();
#else
    return machine_features();
#endif
}

/* ---- Instruction sets ----------------------------------------------------------------------- */

enum {
    NEEDS_AVX2 = PLSH_CPU_AVX2 | PLSH_CPU_FMA | PLSH_CPU_F16C,
    NEEDS_AVX512 =
        NEEDS_AVX2 | PLSH_CPU_AVX512F | PLSH_CPU_AVX512BW | PLSH_CPU_AVX512DQ | PLSH_CPU_AVX512VL,
    NEEDS_AVX512BF16 = NEEDS_AVX512 | PLSH_CPU_AVX512BF16,
    NEEDS_AMX = NEEDS_AVX512 | PLSH_CPU_AVX512VNNI | PLSH_CPU_AMX
};

/* The best first. A machine that has one can run all after it. */
static const char *const names[] = {
#if defined(__x86_64__)
    "amx",       "avx512bf16", "avx512", "avx2",
#ifdef PLSH_TESTING
    "wide",
#endif
#elif defined(__aarch64__)
    "neon",
#elif defined(__wasm_simd128__)
    "wasm",
#endif
    "reference", NULL};

static const unsigned needs[] = {
#if defined(__x86_64__)
    NEEDS_AMX,  NEEDS_AVX512BF16, NEEDS_AVX512, NEEDS_AVX2,
#ifdef PLSH_TESTING
    NEEDS_AVX2,
#endif
#elif defined(__aarch64__)
    PLSH_CPU_NEON,
#elif defined(__wasm_simd128__)
    PLSH_CPU_SIMD128,
#endif
    0};

const char *const *plsh_cpu_isas(void) {
    const unsigned has = plsh_cpu_features();
    int i = 0;
    while (needs[i] & ~has) i++;
    return names + i;
}

const char *plsh_cpu_vectors(const char *isa) {
    return strcmp(isa, "amx") == 0 || strcmp(isa, "avx512bf16") == 0 ? "avx512" : isa;
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
