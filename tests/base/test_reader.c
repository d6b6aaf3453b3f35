/* tests: the bounded reader, and files mapped into memory. */
#include "support/support.h"

#include "base/mapping.h"
#include "base/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_numbers_are_little_endian(void **state) {
    (void)state;
    plsh_error error;
    const unsigned char bytes[] = {1, 2, 1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 0xf1};
    plsh_reader reader = plsh_reader_make(bytes, sizeof bytes, "numbers");
    assert_int_equal(plsh_reader_number(&reader, 1, "a byte"), 1);
    assert_int_equal(plsh_reader_number(&reader, 2, "two"), 0x0102);
    assert_int_equal(plsh_reader_u32(&reader, "four"), 0x01020304);
    assert_true(plsh_reader_u64(&reader, "eight") == UINT64_C(0xf102030405060708));
    assert_int_equal(plsh_reader_left(&reader), 0);
    assert_ok(plsh_reader_status(&reader, &error));
}

/* The offset and what was wanted are named; the first failure stays, and nothing moves after it. */
static void test_a_failure_stays(void **state) {
    (void)state;
    plsh_error error;
    plsh_reader reader = plsh_reader_make("abcdef", 6, "short.bin");
    assert_non_null(plsh_reader_take(&reader, 4, "the head"));
    assert_int_equal(plsh_reader_u32(&reader, "the size"), 0);
    assert_fails(plsh_reader_status(&reader, &error), PLSH_STATUS_FORMAT,
                 "short.bin: byte 4: the file ends too early: the size needs 4 bytes, 2 are left");
    assert_null(plsh_reader_take(&reader, 1, "a byte"));
    assert_null(plsh_reader_take(&reader, 0, "nothing"));
    assert_false(plsh_reader_seek(&reader, 0, "the start"));
    assert_false(plsh_reader_align(&reader, 1, "a byte"));
    assert_false(plsh_reader_accept(&reader, "e"));
    assert_int_equal(plsh_reader_peek(&reader), -1);
    assert_int_equal(plsh_reader_fail(&reader, PLSH_STATUS_UNSUPPORTED, "later"),
                     PLSH_STATUS_FORMAT);
    assert_int_equal(reader.at, 4);
    assert_fails(plsh_reader_status(&reader, &error), PLSH_STATUS_FORMAT, "the size");
    assert_int_equal(plsh_reader_status(&reader, NULL), PLSH_STATUS_FORMAT);
}

/* Counts and lengths up to 2^64 - 1 over few bytes: refused where they are read. */
static void test_no_count_is_trusted(void **state) {
    (void)state;
    static const uint64_t counts[] = {0, 1, 2, 3, 5, 1u << 31, UINT64_MAX / 4, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        unsigned char bytes[8 + 10] = {0};
        memcpy(bytes, &counts[i], 8);
        plsh_reader reader = plsh_reader_make(bytes, sizeof bytes, "counts");
        size_t count = plsh_reader_count(&reader, 8, 4, "entries");
        assert_int_equal(count, counts[i] <= 2 ? counts[i] : 0);
        assert_int_equal(plsh_reader_is_ok(&reader), counts[i] <= 2);
        assert_int_equal(reader.at, counts[i] <= 2 ? 8 : 0); /* where the number is */

        size_t length;
        reader = plsh_reader_make(bytes, sizeof bytes, "counts");
        const char *text = plsh_reader_string(&reader, 8, &length, "a name");
        assert_int_equal(text != NULL, counts[i] <= 10);
        assert_int_equal(length, counts[i] <= 10 ? counts[i] : 0);
    }
}

static void test_moving_stays_inside(void **state) {
    (void)state;
    plsh_error error;
    char bytes[100] = {0};
    plsh_reader reader = plsh_reader_make(bytes, sizeof bytes, "moves");
    assert_true(plsh_reader_seek(&reader, 100, "the end"));
    assert_true(plsh_reader_seek(&reader, 33, "the middle"));
    assert_true(plsh_reader_align(&reader, 32, "data"));
    assert_int_equal(reader.at, 64);
    assert_true(plsh_reader_align(&reader, 32, "data"));
    assert_int_equal(reader.at, 64);
    plsh_reader copy = reader;
    copy.at = 97;
    assert_false(plsh_reader_align(&copy, 32, "data"));
    copy = reader;
    copy.at = 97;
    assert_false(plsh_reader_align(&copy, UINT64_MAX, "data"));
    assert_false(plsh_reader_seek(&reader, UINT64_MAX, "the tensor"));
    assert_fails(plsh_reader_status(&reader, &error), PLSH_STATUS_FORMAT,
                 "the tensor is at byte 18446744073709551615 of 100");
}

static void test_text(void **state) {
    (void)state;
    plsh_reader reader = plsh_reader_make(" \t\r\n{'a'", 8, "text");
    assert_false(plsh_reader_accept(&reader, "{"));
    plsh_reader_skip_blanks(&reader);
    assert_int_equal(plsh_reader_peek(&reader), '{');
    assert_true(plsh_reader_accept(&reader, "{'"));
    assert_false(plsh_reader_accept(&reader, "a'}"));
    assert_true(plsh_reader_accept(&reader, "a'"));
    plsh_reader_skip_blanks(&reader);
    assert_int_equal(plsh_reader_peek(&reader), -1);
    assert_true(plsh_reader_is_ok(&reader));
}

static void test_mappings(void **state) {
    (void)state;
    plsh_error error;
    char path[] = "plsh-test-mapping-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    plsh_mapping mapping;
    assert_ok(plsh_mapping_open(&mapping, path, &error));
    assert_non_null(mapping.bytes);
    assert_int_equal(mapping.size, 0);
    plsh_mapping_close(&mapping);
    assert_int_equal(write(descriptor, "0123456789", 10), 10);
    close(descriptor);
    assert_ok(plsh_mapping_open(&mapping, path, &error));
    assert_int_equal(mapping.size, 10);
    assert_memory_equal(mapping.bytes, "0123456789", 10);
    unlink(path); /* the bytes stay */
    assert_int_equal(mapping.bytes[9], '9');
    plsh_mapping_close(&mapping);
    assert_null(mapping.bytes);
    plsh_mapping_close(&mapping);

    assert_fails(plsh_mapping_open(&mapping, path, &error), PLSH_STATUS_IO, path);
    assert_fails(plsh_mapping_open(&mapping, ".", &error), PLSH_STATUS_IO, "not a regular file");
    assert_fails(plsh_mapping_open(&mapping, "", &error), PLSH_STATUS_INVALID, "empty");
    assert_null(mapping.bytes);

    /* A FIFO without a writer is not waited for: SIGALRM would end this test. */
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60);
    assert_fails(plsh_mapping_open(&mapping, path, &error), PLSH_STATUS_IO, "not a regular file");
    plsh_npy array;
    assert_fails(plsh_npy_read(path, &array, &error), PLSH_STATUS_IO, "not a regular file");
    alarm(0);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_little_endian),
        cmocka_unit_test(test_a_failure_stays),
        cmocka_unit_test(test_no_count_is_trusted),
        cmocka_unit_test(test_moving_stays_inside),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_mappings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
