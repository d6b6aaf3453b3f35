/* tests: status, memory and random numbers. */
#include "support/support.h"

#include "base/arena.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "plsh/version.h"

#include <string.h>

static void test_status_carries_a_message(void **state) {
    (void)state;
    plsh_error error = {0};
    assert_fails(plsh_fail(&error, PLSH_STATUS_INVALID, "n is %d", 7), PLSH_STATUS_INVALID,
                 "n is 7");
    assert_int_equal(error.status, PLSH_STATUS_INVALID);
    assert_int_equal(plsh_fail(NULL, PLSH_STATUS_IO, "no error asked for"), PLSH_STATUS_IO);
    char text[1000];
    memset(text, 'x', sizeof text);
    text[999] = '\0';
    plsh_fail(&error, PLSH_STATUS_IO, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    for (int status = 0; status <= PLSH_STATUS_CANCELLED; status++)
        assert_string_not_equal(plsh_status_name((plsh_status)status), "unknown status");
    assert_string_equal(plsh_status_name((plsh_status)99), "unknown status");
}

static void test_memory_is_aligned_and_zero(void **state) {
    (void)state;
    plsh_error error;
    const long before = plsh_memory_live();
    for (size_t count = 0; count < 200; count += 7) {
        void *memory;
        assert_ok(plsh_allocate(&memory, count, 3, "bytes", &error));
        assert_int_equal((uintptr_t)memory % PLSH_ALIGNMENT, 0);
        for (size_t i = 0; i < 3 * count; i++) assert_int_equal(((char *)memory)[i], 0);
        memset(memory, 0xff, 3 * count);
        assert_int_equal(plsh_memory_live(), before + 1);
        plsh_release(memory);
    }
    plsh_release(NULL);
    assert_int_equal(plsh_memory_live(), before);
}

static void test_memory_overflow_is_refused(void **state) {
    (void)state;
    plsh_error error;
    void *memory = &error;
    assert_fails(plsh_allocate(&memory, SIZE_MAX / 2, 3, "rows", &error), PLSH_STATUS_OVERFLOW,
                 "rows");
    assert_null(memory);
    assert_fails(plsh_allocate(&memory, SIZE_MAX, 1, "rows", &error), PLSH_STATUS_OVERFLOW, "rows");
    size_t sum;
    assert_false(plsh_add(SIZE_MAX, 1, &sum));
    assert_true(plsh_add(SIZE_MAX - 1, 1, &sum));
}

/* Measured and handed out by the same walk: aligned, apart, inside. */
static void test_arenas(void **state) {
    (void)state;
    plsh_error error;
    plsh_arena arena = {0};
    assert_null(plsh_arena_take(&arena, 3, 5));
    assert_null(plsh_arena_floats(&arena, 17));
    assert_null(plsh_arena_take(&arena, 0, 8));
    assert_int_equal(arena.used, 64 + 128);
    void *memory;
    assert_ok(plsh_allocate(&memory, 1, arena.used, "an arena", &error));
    arena = (plsh_arena){.memory = memory};
    assert_ptr_equal(plsh_arena_take(&arena, 3, 5), memory);
    assert_ptr_equal(plsh_arena_floats(&arena, 17), (char *)memory + 64);
    assert_non_null(plsh_arena_take(&arena, 0, 8));
    assert_int_equal(arena.used, 64 + 128);
    assert_false(arena.overflow);
    assert_null(plsh_arena_take(&arena, SIZE_MAX - 8, 1));
    assert_true(arena.overflow);
    arena = (plsh_arena){0};
    plsh_arena_take(&arena, SIZE_MAX / 2, 3);
    assert_true(arena.overflow);
    plsh_release(memory);
}

static plsh_status allocate_three(void *context, plsh_error *error) {
    (void)context;
    void *memory[3] = {0};
    plsh_status status = PLSH_STATUS_OK;
    for (int i = 0; i < 3 && status == PLSH_STATUS_OK; i++)
        status = plsh_allocate(&memory[i], 10, 8, "three", error);
    for (int i = 0; i < 3; i++) plsh_release(memory[i]);
    return status;
}

static void test_memory_fails_on_request(void **state) {
    (void)state;
    test_every_allocation(allocate_three, NULL, 3);
}

/* Known answers of Philox4x32-10 (Random123's kat_vectors): all ones, and the digits of pi. */
static void test_random_known_answers(void **state) {
    (void)state;
    const plsh_stream ones = {UINT64_MAX, UINT32_MAX, UINT32_MAX};
    plsh_random r = plsh_random_at(ones, UINT64_MAX);
    assert_true(r.word[0] == UINT64_C(0x41c83b0e408f276d));
    assert_true(r.word[1] == UINT64_C(0x6d5451fda20bc7c6));
    const plsh_stream pi = {UINT64_C(0x299f31d0a4093822), 0x13198a2e, 0x03707344};
    r = plsh_random_at(pi, UINT64_C(0x85a308d3243f6a88));
    assert_true(r.word[0] == UINT64_C(0x94fdccebd16cfe09));
    assert_true(r.word[1] == UINT64_C(0x24126ea15001e420));
}

static void test_random_unit_is_open(void **state) {
    (void)state;
    assert_true(plsh_random_unit(0) > 0.0);
    assert_true(plsh_random_unit(UINT64_MAX) < 1.0);
    assert_true(plsh_random_unit(UINT64_C(1) << 63) > 0.5);
}

static void test_version_is_the_header(void **state) {
    (void)state;
    assert_string_equal(plsh_version(), PLSH_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_carries_a_message),
        cmocka_unit_test(test_memory_is_aligned_and_zero),
        cmocka_unit_test(test_memory_overflow_is_refused),
        cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_memory_fails_on_request),
        cmocka_unit_test(test_random_known_answers),
        cmocka_unit_test(test_random_unit_is_open),
        cmocka_unit_test(test_version_is_the_header),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
