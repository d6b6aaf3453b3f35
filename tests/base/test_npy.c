/* tests: .npy arrays, valid and hostile. */
#include "support/support.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/random.h"
#include "plsh/io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "plsh-test-npy-XXXXXX";

static int make_file(void **state) {
    (void)state;
    int descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

/* A file in memory: version `major`, this header, `data` zero bytes. */
static size_t build(unsigned char *out, int major, const char *header, size_t data) {
    size_t length = strlen(header), start = major == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)major;
    out[7] = 0;
    for (size_t i = 8; i < start; i++) out[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(out + start, header, length);
    memset(out + start + length, 0, data);
    return start + length + data;
}

static plsh_status parse(int major, const char *header, size_t data, plsh_npy *array,
                         plsh_error *error) {
    unsigned char bytes[1024];
    return plsh_npy_parse(bytes, build(bytes, major, header, data), "mem", array, error);
}

static void test_round_trip(void **state) {
    (void)state;
    plsh_error error;
    const int64_t shapes[][3] = {{2, 3, 4}, {0, 5, 7}, {1, 1, 1}, {24, 1, 1}};
    for (int type = PLSH_DTYPE_FLOAT32; type <= PLSH_DTYPE_BOOL; type++)
        for (int rank = 0; rank <= (type == PLSH_DTYPE_BFLOAT16 ? -1 : 3); rank++)
            for (int k = 0; k < 4; k++) {
                size_t count = 1;
                for (int d = 0; d < rank; d++) count *= (size_t)shapes[k][d];
                unsigned char data[24 * 8];
                for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 11);
                assert_ok(plsh_npy_write(path, (plsh_dtype)type, rank, shapes[k], data, &error));
                plsh_npy array;
                assert_ok(plsh_npy_read(path, &array, &error));
                assert_int_equal(array.type, type);
                assert_int_equal(array.rank, rank);
                assert_int_equal(array.count, count);
                for (int d = 0; d < rank; d++) assert_int_equal(array.shape[d], shapes[k][d]);
                size_t bytes = count * plsh_dtype_size((plsh_dtype)type);
                assert_memory_equal(array.data, data, bytes);
                assert_int_equal((uintptr_t)array.data % PLSH_ALIGNMENT, 0);
                plsh_npy_free(&array);
                assert_null(array.data);
            }
}

/* Byte for byte what numpy.save writes for numpy.arange(3, dtype='<f4'). */
static void test_written_as_numpy_does(void **state) {
    (void)state;
    plsh_error error;
    const float values[3] = {0, 1, 2};
    const int64_t shape[1] = {3};
    assert_ok(plsh_npy_write(path, PLSH_DTYPE_FLOAT32, 1, shape, values, &error));
    char expected[140] = "\x93NUMPY\x01\x00\x76\x00"
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
    size_t used = 10 + strlen(expected + 10);
    memset(expected + used, ' ', 127 - used);
    expected[127] = '\n';
    memcpy(expected + 128, values, sizeof values);
    char found[200];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(found, 1, sizeof found, file);
    fclose(file);
    assert_int_equal(size, 140);
    assert_memory_equal(found, expected, 140);
}

static void test_versions_and_spellings(void **state) {
    (void)state;
    plsh_error error;
    plsh_npy array;
    const char *headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
        "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}",
        "  {'fortran_order' : False , 'descr' : '=f4', 'shape' : ( 2 , 3 ) }  \n",
    };
    for (int major = 1; major <= 3; major++)
        for (int k = 0; k < 3; k++) {
            assert_ok(parse(major, headers[k], 24, &array, &error));
            assert_int_equal(array.count, 6);
            plsh_npy_free(&array);
        }
    assert_ok(parse(1, "{'descr': '|u1', 'fortran_order': False, 'shape': ()}", 1, &array, &error));
    assert_int_equal(array.rank, 0);
    assert_int_equal(array.count, 1);
    plsh_npy_free(&array);
}

static void test_hostile_headers_are_refused(void **state) {
    (void)state;
#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"
    const struct {
        const char *header;
        size_t data;
        plsh_status status;
        const char *message;
    } cases[] = {
        {DICT("'<f4'", "True", "(2, 3)"), 24, PLSH_STATUS_UNSUPPORTED, "Fortran order"},
        {DICT("'>f4'", "False", "(2, 3)"), 24, PLSH_STATUS_UNSUPPORTED, "'>f4' is big endian"},
        {DICT("'|O'", "False", "(2, 3)"), 24, PLSH_STATUS_UNSUPPORTED, "'|O' is not supported"},
        {DICT("'<c8'", "False", "(3,)"), 24, PLSH_STATUS_UNSUPPORTED, "'<c8'"},
        {DICT("'<f16'", "False", "(3,)"), 48, PLSH_STATUS_UNSUPPORTED, "'<f16'"},
        {DICT("'f4'", "False", "(3,)"), 12, PLSH_STATUS_UNSUPPORTED, "'f4'"},
        {DICT("'<'", "False", "(3,)"), 12, PLSH_STATUS_UNSUPPORTED, "'<'"},
        {DICT("''", "False", "(3,)"), 12, PLSH_STATUS_UNSUPPORTED, "''"},
        {DICT("[('x', '<f4')]", "False", "(3,)"), 12, PLSH_STATUS_FORMAT, "records"},
        {DICT("'<f4'", "Maybe", "(3,)"), 12, PLSH_STATUS_FORMAT, "fortran_order"},
        {DICT("'<f4'", "False", "3"), 12, PLSH_STATUS_FORMAT, "tuple"},
        {DICT("'<f4'", "False", "(3)"), 12, PLSH_STATUS_FORMAT, "tuple"},
        {DICT("'<f4'", "False", "(3 3)"), 36, PLSH_STATUS_FORMAT, "comma"},
        {DICT("'<f4'", "False", "(-3,)"), 12, PLSH_STATUS_FORMAT, "not a length"},
        {DICT("'<f4'", "False", "(,)"), 4, PLSH_STATUS_FORMAT, "not a length"},
        {DICT("'<f4'", "False", "(1.5,)"), 4, PLSH_STATUS_FORMAT, ""},
        {DICT("'<f4'", "False", "(3,"), 12, PLSH_STATUS_FORMAT, "not a length"},
        {DICT("'<f4'", "False", "(4,)"), 12, PLSH_STATUS_FORMAT, "needs 16 bytes"},
        {DICT("'<f4'", "False", "(2,)"), 12, PLSH_STATUS_FORMAT, "the file has 12"},
        {DICT("'<f4'", "False", "(0,)"), 12, PLSH_STATUS_FORMAT, "needs 0 bytes"},
        {DICT("'<f4'", "False", "(99999999999999999999,)"), 12, PLSH_STATUS_OVERFLOW, "overflow"},
        {DICT("'<f4'", "False", "(4294967296, 4294967297)"), 16, PLSH_STATUS_OVERFLOW, "overflow"},
        {DICT("'<f8'", "False", "(2305843009213693952,)"), 0, PLSH_STATUS_OVERFLOW, "overflow"},
        {DICT("'<f4'", "False", "(0, 4294967296, 4294967297)"), 0, PLSH_STATUS_OVERFLOW, "overfl"},
        {DICT("'<f4'", "False", "(4611686018427387903,)"), 12, PLSH_STATUS_FORMAT, "needs"},
        {DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, PLSH_STATUS_UNSUPPORTED, "dimensions"},
        {"{'descr': '<f4', 'fortran_order': False}", 4, PLSH_STATUS_FORMAT, "lacks"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': ()}", 4, PLSH_STATUS_FORMAT, "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", 4, PLSH_STATUS_FORMAT,
         "too many"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': ()}", 4, PLSH_STATUS_FORMAT, "dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()", 4, PLSH_STATUS_FORMAT, "dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, PLSH_STATUS_FORMAT,
         "follows"},
        {"['descr']", 0, PLSH_STATUS_FORMAT, "dict"},
        {"{'a\\'b': 1}", 0, PLSH_STATUS_FORMAT, "dict"},
        {"", 0, PLSH_STATUS_FORMAT, "dict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plsh_error error = {0};
        plsh_npy array;
        memset(&array, 0xff, sizeof array);
        plsh_status status = parse(1, cases[i].header, cases[i].data, &array, &error);
        if (status != cases[i].status)
            fail_msg("%s: status %s: %s", cases[i].header, plsh_status_name(status), error.message);
        test_message_holds(error.message, cases[i].message);
        test_message_holds(error.message, "mem: ");
        assert_null(array.data);
        assert_int_equal(array.count, 0);
    }
}

static void test_bad_prefixes_are_refused(void **state) {
    (void)state;
    plsh_error error;
    plsh_npy array;
    unsigned char bytes[256];
    const char *header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
    size_t size = build(bytes, 1, header, 8);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(plsh_npy_parse(bytes, cut, "mem", &array, &error), PLSH_STATUS_FORMAT);
    assert_ok(plsh_npy_parse(bytes, size, "mem", &array, &error));
    plsh_npy_free(&array);
    bytes[6] = 4;
    assert_fails(plsh_npy_parse(bytes, size, "mem", &array, &error), PLSH_STATUS_UNSUPPORTED,
                 "version 4");
    bytes[6] = 0;
    assert_fails(plsh_npy_parse(bytes, size, "mem", &array, &error), PLSH_STATUS_UNSUPPORTED,
                 "version 0");
    size = build(bytes, 2, header, 8);
    bytes[11] = 0xff; /* a header of 4 GB */
    assert_fails(plsh_npy_parse(bytes, size, "mem", &array, &error), PLSH_STATUS_FORMAT,
                 "longer than 65536");
    bytes[11] = 0;
    bytes[9] = 0x10;
    assert_fails(plsh_npy_parse(bytes, size, "mem", &array, &error), PLSH_STATUS_FORMAT,
                 "inside its header");
}

/* Every mutation is either refused with a message or gives an array that is as large as it says;
 * the sanitizers see to the rest. Also that the answer depends on the bytes alone. */
static void test_mutations(void **state) {
    (void)state;
    static const char alphabet[] = "0123456789(){}',:<>|=-fiubOTF \n\\\"\xff";
    unsigned char valid[512], bytes[512];
    size_t size =
        build(valid, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }\n", 24);
    const plsh_stream stream = {.seed = 20240, .head = 0, .purpose = 7};
    int accepted = 0;
    for (uint64_t round = 0; round < 100000; round++) {
        plsh_random r = plsh_random_at(stream, round);
        memcpy(bytes, valid, size);
        int changes = 1 + (int)(r.word[0] % 3);
        for (int c = 0; c < changes; c++) {
            plsh_random which = plsh_random_at(stream, (round + 1) * 1000003 + (uint64_t)c);
            size_t at = 4 + which.word[0] % (size - 4);
            bytes[at] = which.word[1] % 4 == 0
                            ? (unsigned char)(which.word[1] >> 8)
                            : (unsigned char)alphabet[(which.word[1] >> 8) % (sizeof alphabet - 1)];
        }
        size_t length = r.word[1] % 8 == 0 ? r.word[1] / 8 % (size + 1) : size;
        unsigned char *exact = malloc(length + 1); /* so that reading past the end is seen */
        assert_non_null(exact);
        memcpy(exact, bytes, length);
        plsh_npy array;
        plsh_error error = {0};
        plsh_status status = plsh_npy_parse(exact, length, "mutated", &array, &error);
        free(exact);
        if (status != PLSH_STATUS_OK) {
            assert_int_equal(error.status, status);
            assert_true(strstr(error.message, "mutated") != NULL);
            continue;
        }
        accepted++;
        size_t product = 1;
        for (int d = 0; d < array.rank; d++) product *= (size_t)array.shape[d];
        assert_int_equal(product, array.count);
        assert_true(array.count * plsh_dtype_size(array.type) <= 24 + size);
        plsh_npy_free(&array);
    }
    assert_true(accepted > 1000); /* mutations of the data alone */
}

static void test_files_are_checked(void **state) {
    (void)state;
    plsh_error error;
    plsh_npy array;
    assert_fails(plsh_npy_read("/no/such/file.npy", &array, &error), PLSH_STATUS_IO,
                 "/no/such/file.npy: cannot open");
    assert_fails(plsh_npy_read("/dev/null", &array, &error), PLSH_STATUS_IO, "regular");
    assert_fails(plsh_npy_read(".", &array, &error), PLSH_STATUS_IO, "regular");
    unsigned char bytes[256];
    size_t size = build(bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 8);
    for (size_t cut = 0; cut < size; cut += 5) {
        assert_ok(plsh_file_save(path, bytes, cut, &error));
        assert_fails(plsh_npy_read(path, &array, &error), PLSH_STATUS_FORMAT, path);
        assert_null(array.data);
    }
    assert_ok(plsh_file_save(path, bytes, size, &error));
    assert_ok(plsh_npy_read(path, &array, &error));
    plsh_npy_free(&array);
    const int64_t shape[1] = {2}, negative[1] = {-1}, huge[2] = {INT64_MAX, 3};
    assert_fails(plsh_npy_write(path, PLSH_DTYPE_INT8, 1, negative, bytes, &error),
                 PLSH_STATUS_INVALID, "dimension 0 is -1");
    assert_fails(plsh_npy_write(path, PLSH_DTYPE_INT8, 2, huge, bytes, &error),
                 PLSH_STATUS_OVERFLOW, "overflows");
    assert_fails(plsh_npy_write(path, PLSH_DTYPE_INT8, 9, huge, bytes, &error), PLSH_STATUS_INVALID,
                 "9 dimensions");
    assert_fails(plsh_npy_write(path, (plsh_dtype)99, 1, huge, bytes, &error), PLSH_STATUS_INVALID,
                 "unknown type");
    assert_fails(plsh_npy_write(path, PLSH_DTYPE_BFLOAT16, 1, shape, bytes, &error),
                 PLSH_STATUS_INVALID, "bfloat16");
}

/* All 65536 halves against the definition: (-1)^s 2^(e-15) (1 + f/1024), and so on. */
static void test_half_precision(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        float value = plsh_half_to_float((uint16_t)bits);
        assert_int_equal(signbit(value) != 0, bits >> 15);
        if (exponent == 31 && fraction != 0) {
            assert_true(isnan(value));
            continue;
        }
        double expected = exponent == 31  ? INFINITY
                          : exponent == 0 ? ldexp(fraction, -24)
                                          : ldexp(1024 + fraction, exponent - 25);
        assert_true(fabs((double)value) == expected);
    }
}

static plsh_npy array_of(plsh_dtype type, const void *data, size_t count) {
    plsh_error error;
    plsh_npy array;
    const int64_t shape[1] = {(int64_t)count};
    assert_ok(plsh_npy_write(path, type, 1, shape, data, &error));
    assert_ok(plsh_npy_read(path, &array, &error));
    return array;
}

static void test_to_float32(void **state) {
    (void)state;
    plsh_error error;
    const double doubles[3] = {0.1, -1e300, 1.0};
    plsh_npy array = array_of(PLSH_DTYPE_FLOAT64, doubles, 3);
    assert_ok(plsh_npy_to_float32(&array, &error));
    assert_int_equal(array.type, PLSH_DTYPE_FLOAT32);
    assert_true(((float *)array.data)[0] == 0.1f);
    assert_true(((float *)array.data)[1] == -INFINITY);
    assert_ok(plsh_npy_to_float32(&array, &error));
    plsh_npy_free(&array);
    const uint16_t halves[2] = {0x3c00, 0xc500};
    array = array_of(PLSH_DTYPE_FLOAT16, halves, 2);
    assert_ok(plsh_npy_to_float32(&array, &error));
    assert_true(((float *)array.data)[0] == 1.0f && ((float *)array.data)[1] == -5.0f);
    plsh_npy_free(&array);
    const int32_t integers[2] = {1, 2};
    array = array_of(PLSH_DTYPE_INT32, integers, 2);
    assert_fails(plsh_npy_to_float32(&array, &error), PLSH_STATUS_INVALID, "int32");
    assert_int_equal(array.type, PLSH_DTYPE_INT32);
    plsh_npy_free(&array);
}

/* Written by NumPy; float16 on the disk. */
static void test_reads_the_reference_arrays(void **state) {
    (void)state;
    plsh_error error;
    plsh_npy array = test_shared_npy("data/qkv/smollm2-layer00/q.npy");
    assert_int_equal(array.rank, 3);
    assert_int_equal(array.shape[0], 9);
    assert_ok(plsh_npy_to_float32(&array, &error));
    size_t finite = 0;
    for (size_t i = 0; i < array.count; i++) finite += isfinite(((float *)array.data)[i]) != 0;
    assert_int_equal(finite, array.count);
    plsh_npy_free(&array);
}

static plsh_status write_read_convert(void *context, plsh_error *error) {
    (void)context;
    const double values[2] = {1, 2};
    const int64_t shape[1] = {2};
    plsh_npy array = {0};
    plsh_status status = plsh_npy_write(path, PLSH_DTYPE_FLOAT64, 1, shape, values, error);
    if (status == PLSH_STATUS_OK) status = plsh_npy_read(path, &array, error);
    if (status == PLSH_STATUS_OK) status = plsh_npy_to_float32(&array, error);
    plsh_npy_free(&array);
    return status;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    test_every_allocation(write_read_convert, NULL, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_written_as_numpy_does),
        cmocka_unit_test(test_versions_and_spellings),
        cmocka_unit_test(test_hostile_headers_are_refused),
        cmocka_unit_test(test_bad_prefixes_are_refused),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_files_are_checked),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_to_float32),
        cmocka_unit_test(test_reads_the_reference_arrays),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("npy", tests, make_file, remove_file);
}
