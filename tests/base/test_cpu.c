/* tests: the choice of an instruction set follows the features of the processor. */
#include "support/support.h"

#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned feature;
} features[] = {{"f16c", PLSH_CPU_F16C},
                {"fma", PLSH_CPU_FMA},
                {"avx2", PLSH_CPU_AVX2},
                {"avx512f", PLSH_CPU_AVX512F},
                {"avx512bw", PLSH_CPU_AVX512BW},
                {"avx512dq", PLSH_CPU_AVX512DQ},
                {"avx512vl", PLSH_CPU_AVX512VL},
                {"neon", PLSH_CPU_NEON},
                {"avx512vnni", PLSH_CPU_AVX512VNNI},
                {"avx512bf16", PLSH_CPU_AVX512BF16},
                {"amx", PLSH_CPU_AMX}};
enum { FEATURES = sizeof features / sizeof *features };

static bool lists(const char *isa) {
    for (const char *const *at = plsh_cpu_isas(); *at; at++)
        if (strcmp(*at, isa) == 0) return true;
    return false;
}

/* Without one feature, what needs it is gone, and the rest is as before. */
static void test_off(void **state) {
    (void)state;
    unsetenv("PLSH_TEST_CPU_OFF");
    const unsigned all = plsh_cpu_features();
    const bool avx512 = lists("avx512"), avx2 = lists("avx2"), neon = lists("neon");
    const unsigned below = PLSH_CPU_F16C | PLSH_CPU_FMA | PLSH_CPU_AVX2;
    const unsigned beside = /* what avx512 does not need */
        PLSH_CPU_NEON | PLSH_CPU_AVX512VNNI | PLSH_CPU_AVX512BF16 | PLSH_CPU_AMX;
    const bool amx = lists("amx"), pairs = lists("avx512bf16");
    for (int i = 0; i < FEATURES; i++) {
        const unsigned off = features[i].feature;
        setenv("PLSH_TEST_CPU_OFF", features[i].name, 1);
        assert_int_equal(plsh_cpu_features(), all & ~off);
        assert_int_equal(lists("amx"), amx && (off & (PLSH_CPU_NEON | PLSH_CPU_AVX512BF16)));
        assert_int_equal(lists("avx512bf16"), pairs && (off & beside & ~PLSH_CPU_AVX512BF16));
        assert_int_equal(lists("avx512"), avx512 && (off & beside));
        assert_int_equal(lists("avx2"), avx2 && !(off & below));
        assert_int_equal(lists("wide"), avx2 && !(off & below));
        assert_int_equal(lists("neon"), neon && off != PLSH_CPU_NEON);
        assert_true(lists("reference"));
    }
    setenv("PLSH_TEST_CPU_OFF",
           "f16c,fma,avx2,avx512f,avx512bw,avx512dq,avx512vl,neon,avx512vnni,avx512bf16,amx", 1);
    assert_int_equal(plsh_cpu_features(), 0);
    assert_string_equal(plsh_cpu_isas()[0], "reference");
}

/* With AMX it is the best, and AVX-512 can be asked for beside it. */
static void test_vectors(void **state) {
    (void)state;
    unsetenv("PLSH_TEST_CPU_OFF");
    assert_string_equal(plsh_cpu_vectors("amx"), "avx512");
    assert_string_equal(plsh_cpu_vectors("avx512bf16"), "avx512");
    for (const char *const *at = plsh_cpu_isas(); *at; at++)
        if (strcmp(*at, "amx") != 0 && strcmp(*at, "avx512bf16") != 0)
            assert_string_equal(plsh_cpu_vectors(*at), *at);
    if (!lists("amx")) return;
    assert_string_equal(plsh_cpu_isas()[0], "amx");
    assert_true(lists("avx512"));
}

static void test_choose(void **state) {
    (void)state;
    plsh_error error;
    const char *isa;
    setenv("PLSH_TEST_CPU_OFF", "avx2,neon", 1);
    unsetenv("PLSH_ISA");
    assert_ok(plsh_cpu_choose(&isa, NULL, &error));
    assert_string_equal(isa, "reference");
    assert_ok(plsh_cpu_choose(&isa, "reference", &error));
    assert_fails(plsh_cpu_choose(&isa, "avx512", &error), PLSH_STATUS_UNSUPPORTED,
                 "isa is 'avx512', which this machine does not have; it has reference");
    setenv("PLSH_ISA", "abacus", 1);
    assert_fails(plsh_cpu_choose(&isa, NULL, &error), PLSH_STATUS_UNSUPPORTED,
                 "PLSH_ISA is 'abacus'");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_off), cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_choose)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
