/* tests: the types of arrays, their names, sizes and conversions. */
#include "support/support.h"

#include "base/dtype.h"

#include <math.h>

static void test_names_and_sizes(void **state) {
    (void)state;
    plsh_error error;
    size_t bytes = 0;
    for (int type = PLSH_DTYPE_FLOAT32; type <= PLSH_DTYPE_BOOL; type++) {
        plsh_dtype found = (plsh_dtype)99;
        assert_ok(plsh_dtype_find(plsh_dtype_name((plsh_dtype)type), &found, &error));
        assert_int_equal(found, type);
        bytes += plsh_dtype_size((plsh_dtype)type);
    }
    assert_int_equal(bytes, 4 + 2 + 2 + 8 + 2 * (1 + 2 + 4 + 8) + 1);
    assert_string_equal(plsh_dtype_name(PLSH_DTYPE_BFLOAT16), "bfloat16");
    assert_string_equal(plsh_dtype_name((plsh_dtype)13), "unknown type");
    assert_string_equal(plsh_dtype_name((plsh_dtype)-1), "unknown type");
    assert_int_equal(plsh_dtype_size((plsh_dtype)13), 0);
    plsh_dtype kept = PLSH_DTYPE_INT8;
    assert_fails(plsh_dtype_find("float", &kept, &error), PLSH_STATUS_INVALID, "'float'");
    assert_int_equal(kept, PLSH_DTYPE_INT8);
}

/* Every value of 16 bits survives the way to float32 and back; arrays and single numbers agree. */
static void test_round_trip(void **state) {
    (void)state;
    plsh_error error;
    for (int type = PLSH_DTYPE_FLOAT16; type <= PLSH_DTYPE_BFLOAT16; type++) {
        const plsh_dtype dtype = (plsh_dtype)type;
        for (unsigned i = 0; i < 65536; i++) {
            uint16_t bits = (uint16_t)i, back = 1, stored[2] = {0, 0};
            float value;
            assert_ok(plsh_dtype_to_float(dtype, &bits, &value, 1, &error));
            assert_ok(plsh_dtype_from_float(dtype, &back, &value, 1, &error));
            plsh_dtype_store(dtype, stored, 1, value);
            assert_int_equal(stored[1], back);
            const float loaded = plsh_dtype_load(dtype, &bits, 0);
            if (isnan(value)) {
                assert_true(isnan(loaded));
                assert_true(isnan(plsh_dtype_load(dtype, &back, 0)));
            } else {
                assert_true(loaded == value);
                assert_int_equal(back, bits);
            }
        }
    }
}

/* Ties round to even; slightly above or below a tie rounds to the nearer value. */
static void test_rounds_to_nearest_even(void **state) {
    (void)state;
    plsh_error error;
    const float units[] = {[PLSH_DTYPE_FLOAT16] = 0x1p-10f, [PLSH_DTYPE_BFLOAT16] = 0x1p-7f};
    for (int type = PLSH_DTYPE_FLOAT16; type <= PLSH_DTYPE_BFLOAT16; type++) {
        const float unit = units[type];
        const float in[4] = {1 + unit / 2, 1 + unit * 3 / 2, nextafterf(1 + unit / 2, 2),
                             -INFINITY};
        const float expected[4] = {1, 1 + 2 * unit, 1 + unit, -INFINITY};
        uint16_t bits[4];
        float out[4];
        assert_ok(plsh_dtype_from_float((plsh_dtype)type, bits, in, 4, &error));
        assert_ok(plsh_dtype_to_float((plsh_dtype)type, bits, out, 4, &error));
        for (int i = 0; i < 4; i++) assert_true(out[i] == expected[i]);
    }
}

static void test_other_types(void **state) {
    (void)state;
    plsh_error error;
    const float in[2] = {0.1f, -2};
    double wide[2];
    float out[2];
    assert_ok(plsh_dtype_from_float(PLSH_DTYPE_FLOAT64, wide, in, 2, &error));
    assert_ok(plsh_dtype_to_float(PLSH_DTYPE_FLOAT64, wide, out, 2, &error));
    assert_memory_equal(in, out, sizeof in);
    assert_ok(plsh_dtype_from_float(PLSH_DTYPE_FLOAT32, out, in, 2, &error));
    assert_memory_equal(in, out, sizeof in);
    assert_ok(plsh_dtype_to_float(PLSH_DTYPE_FLOAT32, NULL, NULL, 0, &error));
    assert_fails(plsh_dtype_to_float(PLSH_DTYPE_INT16, wide, out, 1, &error), PLSH_STATUS_INVALID,
                 "int16");
    assert_fails(plsh_dtype_from_float((plsh_dtype)77, wide, in, 1, &error), PLSH_STATUS_INVALID,
                 "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_rounds_to_nearest_even),
        cmocka_unit_test(test_other_types),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
