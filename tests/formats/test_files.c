/* weights: what is written is read back; what is broken is refused, and nothing is trusted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "linear/types.h"
#include "plsh/weights.h"
#include "support/support.h"

static char folder[] = "weights-XXXXXX";

static const char *in_folder(const char *name) {
    static char paths[4][200];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- Written and read back ---- */

enum { ROWS = 5, COLUMNS = 96 };

static void fill(float *x) {
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = sinf((float)(i * i % 977)) * (float)(1 + i / 32 % 3);
}

static plsh_status write_tensors(const char *path, plsh_weights_form form, plsh_weight_type type,
                                 const float *x, plsh_error *error) {
    plsh_weights_writer *writer;
    plsh_status status = plsh_weights_writer_create(&writer, path, form, error);
    if (status != PLSH_STATUS_OK) return status;
    plsh_tensor matrix = {.name = "a.weight", .type = type, .rank = 2, .shape = {ROWS, COLUMNS}};
    plsh_tensor vector = {.name = "b.bias", .type = PLSH_WEIGHT_F32, .rank = 1, .shape = {3}};
    if (form == PLSH_WEIGHTS_GGUF) {
        const plsh_string words[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
        status = plsh_weights_writer_string(writer, "general.architecture", "llama", 5, error);
        if (status == PLSH_STATUS_OK)
            status = plsh_weights_writer_strings(writer, "words", words, 3, error);
        if (status == PLSH_STATUS_OK)
            status =
                plsh_weights_writer_value(writer, "n", PLSH_METADATA_I16, &(int16_t){-7}, error);
        if (status == PLSH_STATUS_OK)
            status = plsh_weights_writer_values(writer, "xs", PLSH_METADATA_F32,
                                                (float[]){0.5f, -2.0f}, 2, error);
    }
    if (status == PLSH_STATUS_OK) status = plsh_weights_writer_declare(writer, &matrix, error);
    if (status == PLSH_STATUS_OK) status = plsh_weights_writer_declare(writer, &vector, error);
    if (status == PLSH_STATUS_OK) status = plsh_weights_writer_rows(writer, x, 2, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_weights_writer_rows(writer, x + 2 * COLUMNS, ROWS - 2, error);
    if (status == PLSH_STATUS_OK) status = plsh_weights_writer_rows(writer, x, 1, error);
    if (status == PLSH_STATUS_OK) return plsh_weights_writer_commit(writer, error);
    plsh_weights_writer_abandon(writer);
    return status;
}

/* Half a step of the type at this value of the block. */
static double allowed(plsh_weight_type type, const float *block, double value) {
    double top = 0.0, least = INFINITY, most = -INFINITY;
    for (int i = 0; i < 32; i++) {
        top = fmax(top, fabs((double)block[i]));
        least = fmin(least, (double)block[i]);
        most = fmax(most, (double)block[i]);
    }
    switch (type) {
    case PLSH_WEIGHT_F32: return 0.0;
    case PLSH_WEIGHT_F16: return 0x1p-11 * fabs(value) + 0x1p-25;
    case PLSH_WEIGHT_BF16: return 0x1p-8 * fabs(value);
    case PLSH_WEIGHT_Q8_0: return top / 127.0 * 0.501 + top * 0x1p-11;
    default: return (most - least) / 15.0 * 0.51 + top * 0x1p-9;
    }
}

static void round_trip(plsh_weights_form form, plsh_weight_type type) {
    float x[ROWS * COLUMNS], y[ROWS * COLUMNS], three[3];
    plsh_error error;
    const char *path = in_folder(form == PLSH_WEIGHTS_GGUF ? "a.gguf" : "a.safetensors");
    fill(x);
    assert_ok(write_tensors(path, form, type, x, &error));
    plsh_weights *weights;
    assert_ok(plsh_weights_open(&weights, path, &error));
    assert_int_equal(plsh_weights_form_of(weights), form);
    assert_string_equal(plsh_weights_folder(weights), folder);
    assert_int_equal(plsh_weights_count(weights), 2);
    const plsh_tensor *matrix = plsh_weights_find(weights, "a.weight");
    assert_ptr_equal(matrix, plsh_weights_at(weights, 0));
    assert_int_equal(matrix->type, type);
    assert_int_equal(matrix->shape[0], ROWS);
    assert_int_equal(plsh_weights_bytes(weights), matrix->size + 12);
    plsh_tensor_to_float(matrix, 0, ROWS, y);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(fabs((double)x[i] - (double)y[i]) <=
                    allowed(type, x + i / 32 * 32, (double)x[i]));
    plsh_tensor_to_float(plsh_weights_find(weights, "b.bias"), 0, 1, three);
    assert_memory_equal(three, x, sizeof three);
    if (form == PLSH_WEIGHTS_GGUF) {
        plsh_string words[3];
        double xs[2];
        int64_t n = 0;
        assert_ok(plsh_metadata_strings(weights, "words", words, &error));
        assert_ok(plsh_metadata_numbers(weights, "xs", xs, &error));
        assert_ok(plsh_metadata_integer(weights, "n", -10, 10, &n, &error));
        assert_true(words[1].length == 0 && words[2].length == 3 && words[2].bytes[1] == 0);
        assert_true(xs[0] == 0.5 && xs[1] == -2.0 && n == -7);
    }
    plsh_weights_close(weights);
}

static void test_round_trips(void **unused) {
    (void)unused;
    static const plsh_weight_type types[] = {PLSH_WEIGHT_F32, PLSH_WEIGHT_F16, PLSH_WEIGHT_BF16,
                                             PLSH_WEIGHT_Q8_0, PLSH_WEIGHT_Q4_1};
    for (int i = 0; i < 5; i++) round_trip(PLSH_WEIGHTS_GGUF, types[i]);
    for (int i = 0; i < 3; i++) round_trip(PLSH_WEIGHTS_SAFETENSORS, types[i]);
}

static void test_writer_refuses(void **unused) {
    (void)unused;
    plsh_error error;
    float x[ROWS * COLUMNS];
    fill(x);
    assert_fails(write_tensors(in_folder("b.safetensors"), PLSH_WEIGHTS_SAFETENSORS,
                               PLSH_WEIGHT_Q8_0, x, &error),
                 PLSH_STATUS_UNSUPPORTED, "q8_0");
    assert_fails(write_tensors(in_folder("b.gguf"), PLSH_WEIGHTS_GGUF, PLSH_WEIGHT_Q4_K, x, &error),
                 PLSH_STATUS_INVALID, "not a whole number of blocks of q4_k");
    x[7] = NAN;
    assert_fails(write_tensors(in_folder("b.gguf"), PLSH_WEIGHTS_GGUF, PLSH_WEIGHT_Q4_1, x, &error),
                 PLSH_STATUS_NOT_FINITE, "a.weight");
    x[7] = 1e6f;
    assert_fails(write_tensors(in_folder("b.gguf"), PLSH_WEIGHTS_GGUF, PLSH_WEIGHT_F16, x, &error),
                 PLSH_STATUS_NOT_FINITE, "1e+06");
    plsh_weights_writer *writer;
    plsh_tensor tensor = {.name = "t", .type = PLSH_WEIGHT_F32, .rank = 1, .shape = {4}};
    assert_ok(plsh_weights_writer_create(&writer, in_folder("c.gguf"), PLSH_WEIGHTS_GGUF, &error));
    assert_ok(plsh_weights_writer_declare(writer, &tensor, &error));
    assert_fails(plsh_weights_writer_declare(writer, &tensor, &error), PLSH_STATUS_INVALID,
                 "twice");
    assert_ok(plsh_weights_writer_bytes(writer, x, 12, &error));
    assert_fails(plsh_weights_writer_bytes(writer, x, 8, &error), PLSH_STATUS_INVALID,
                 "more bytes");
    assert_fails(plsh_weights_writer_commit(writer, &error), PLSH_STATUS_INVALID, "misses 4 bytes");
    assert_int_not_equal(access(in_folder("c.gguf"), F_OK), 0);
    assert_int_not_equal(access(in_folder("b.gguf"), F_OK), 0);
}

static void test_adapter(void **unused) {
    (void)unused;
    plsh_error error;
    float a[2 * 3] = {1, 2, 3, 4, 5, 6}, b[4 * 2] = {0.5f};
    plsh_tensor ta = {.name = "a", .rank = 2, .shape = {2, 3}, .data = a, .size = sizeof a};
    plsh_tensor tb = {.name = "b", .rank = 2, .shape = {4, 2}, .data = b, .size = sizeof b};
    const plsh_adapter_layer layers[] = {{.module = "model.y", .a = &ta, .b = &tb},
                                         {.module = "model.x", .a = &ta, .b = &tb}};
    const char *const targets[] = {"x", "y"};
    plsh_adapter_settings settings = {
        .targets = targets, .target_count = 2, .rank = 2, .alpha = 3.0, .dropout = 0.1};
    plsh_adapter *adapter;
    for (int rslora = 0; rslora < 2; rslora++) {
        settings.rslora = rslora;
        assert_ok(plsh_adapter_save(folder, &settings, layers, 2, &error));
        assert_ok(plsh_adapter_open(&adapter, folder, &error));
        assert_int_equal(plsh_adapter_count(adapter), 2);
        const plsh_adapter_layer *y = plsh_adapter_find(adapter, "model.y");
        assert_non_null(y);
        assert_true(y->scale == (rslora ? (float)(3.0 / sqrt(2.0)) : 1.5f));
        assert_int_equal(y->b->shape[0], 4);
        plsh_adapter_close(adapter);
    }
    static const char *const wrong[][2] = {
        {"{\"peft_type\": \"LOHA\", \"r\": 2, \"lora_alpha\": 1}", "\"LOHA\""},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, \"use_dora\": true}", "use_dora"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, \"init_lora_weights\": "
         "\"pissa_niter_4\"}",
         "\"init_lora_weights\" is \"pissa_niter_4\""},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, \"rank_pattern\": {\"x\": 4}}",
         "rank_pattern"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, \"bias\": \"all\"}", "bias"},
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 1}", "A [3, in]"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1}", "\"r\""},
        {"{\"peft_type\": \"LORA\"}", "are needed"},
        {"[]", "LORA is supported"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_ok(plsh_file_save(in_folder("adapter_config.json"), wrong[i][0], strlen(wrong[i][0]),
                                 &error));
        error.message[0] = '\0';
        assert_int_not_equal(plsh_adapter_open(&adapter, folder, &error), PLSH_STATUS_OK);
        test_message_holds(error.message, wrong[i][1]);
        assert_null(adapter);
    }
}

/* ---- Several files ---- */

static void save(const char *name, const char *text) {
    plsh_error error;
    assert_ok(plsh_file_save(in_folder(name), text, strlen(text), &error));
}

static void test_shards(void **unused) {
    (void)unused;
    plsh_error error;
    float x[6] = {1, 2, 3, 4, 5, 6};
    plsh_tensor one = {.name = "one", .rank = 1, .shape = {2}, .data = x, .size = 8};
    plsh_tensor two = {.name = "two", .rank = 1, .shape = {4}, .data = x + 2, .size = 16};
    assert_ok(plsh_safetensors_save(in_folder("m-1.safetensors"), &one, 1, &error));
    assert_ok(plsh_safetensors_save(in_folder("m-2.safetensors"), &two, 1, &error));
    static const char index[] = "model.safetensors.index.json";
    plsh_weights *weights;
    save(index,
         "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {\"one\": \"m-1.safetensors\","
         "\"two\": \"m-2.safetensors\"}}");
    unlink(in_folder("a.safetensors"));
    assert_ok(plsh_weights_open(&weights, folder, &error));
    assert_int_equal(plsh_weights_count(weights), 2);
    float last[4];
    plsh_tensor_to_float(plsh_weights_find(weights, "two"), 0, 1, last);
    assert_memory_equal(last, x + 2, sizeof last);
    plsh_weights_close(weights);
    static const char *const wrong[][2] = {
        {"{\"weight_map\": {\"one\": \"m-1.safetensors\", \"three\": \"m-2.safetensors\"}}",
         "'three' is not in"},
        {"{\"weight_map\": {\"one\": \"../m-1.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"one\": 7}}", "beside the index"},
        {"{\"weight_map\": {}}", "weight_map"},
        {"{\"weight_map\": {\"one\": \"missing.safetensors\"}}", "missing.safetensors"},
        {"{\"weight_map\": ", "not JSON"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        save(index, wrong[i][0]);
        error.message[0] = '\0';
        assert_int_not_equal(plsh_weights_open(&weights, folder, &error), PLSH_STATUS_OK);
        test_message_holds(error.message, wrong[i][1]);
    }
    /* The same tensor in two files. */
    assert_ok(plsh_safetensors_save(in_folder("m-2.safetensors"), &one, 1, &error));
    save(index, "{\"weight_map\": {\"one\": \"m-1.safetensors\", \"x\": \"m-2.safetensors\"}}");
    assert_fails(plsh_weights_open(&weights, folder, &error), PLSH_STATUS_FORMAT, "twice");
    unlink(in_folder(index));
    assert_fails(plsh_weights_open(&weights, folder, &error), PLSH_STATUS_IO, "several");
    unlink(in_folder("m-2.safetensors"));
    unlink(in_folder("m-1.safetensors"));
}

/* ---- Broken ---- */

/* The bytes of a header and 64 of data, on a boundary of 8. */
static size_t make_safetensors(char *out, const char *json) {
    uint64_t length = strlen(json);
    memcpy(out, &length, 8);
    memcpy(out + 8, json, length);
    memset(out + 8 + length, 1, 64);
    return 8 + length + 64;
}

static void test_broken_safetensors(void **unused) {
    (void)unused;
    static const char *const wrong[][2] = {
        {"[]", "neither GGUF nor a file of torch.save nor safetensors"},
        {"{\"a\": 7}", "\"dtype\""},
        {"{\"a\": {\"dtype\": \"F9\", \"shape\": [], \"data_offsets\": [0, 4]}}", "\"F9\""},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [17], \"data_offsets\": [0, 68]}}",
         "inside the 64 bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [16], \"data_offsets\": [64, 0]}}", "inside"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [15], \"data_offsets\": [0, 64]}}",
         "do not make the 64 bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [-16], \"data_offsets\": [0, 64]}}", "0 or more"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": "
         "[0, 64]}}",
         "do not make"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,16], \"data_offsets\": "
         "[0, 64]}}",
         "at most 8"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}, \"b\": "
         "{\"dtype\":"
         "\"F32\", \"shape\": [9], \"data_offsets\": [28, 64]}}",
         "overlaps"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
         "32 bytes after the last tensor"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [32, 64]}}",
         "32 bytes before tensor 'a'"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [16], \"data_offsets\": [0, 64]}, \"a\": "
         "{\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}",
         "twice"},
    };
    static _Alignas(8) char bytes[1000];
    plsh_error error;
    plsh_weights *weights;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t size = make_safetensors(bytes, wrong[i][0]);
        error.message[0] = '\0';
        assert_int_not_equal(plsh_weights_parse(&weights, bytes, size, "x", &error),
                             PLSH_STATUS_OK);
        test_message_holds(error.message, wrong[i][1]);
        assert_null(weights);
    }
    size_t size = make_safetensors(
        bytes, "{\"__metadata__\": {\"a\": \"b\"}, \"w\": {\"dtype\": \"F32\", \"shape\": [2, 8], "
               "\"data_offsets\": [0, 64]}}");
    assert_ok(plsh_weights_parse(&weights, bytes, size, "x", &error));
    plsh_weights_close(weights);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_not_equal(plsh_weights_parse(&weights, bytes, cut, "x", &error), PLSH_STATUS_OK);
    static const _Alignas(8) char zeros[8];
    assert_fails(plsh_weights_parse(&weights, zeros, 8, "x", &error), PLSH_STATUS_FORMAT,
                 "a header of 0 bytes");
    bytes[7] = 1; /* a header of 2^56 bytes */
    assert_fails(plsh_weights_parse(&weights, bytes, size, "x", &error), PLSH_STATUS_FORMAT,
                 "byte 0: the length of the header");
    assert_fails(plsh_weights_parse(&weights, bytes + 1, 9, "x", &error), PLSH_STATUS_INVALID,
                 "multiple of 8");
}

/* Bytes of memory that the process has used at most so far. */
static size_t peak_bytes(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss * 1024;
}

/* A header of 16 MB: its tensors take a few times its size, where a tree of JSON took 46 times. */
static void test_long_header(void **unused) {
    (void)unused;
    enum { COUNT = 250000, MOST = COUNT * 72 };
    plsh_error error;
    plsh_weights *weights;
    char *bytes = aligned_alloc(8, MOST);
    assert_non_null(bytes);
    size_t length = 8;
    for (int i = 0; i < COUNT; i++)
        length += (size_t)snprintf(
            bytes + length, 80, "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
            i ? "," : "{", i);
    bytes[length++] = '}';
    const uint64_t header = length - 8;
    memcpy(bytes, &header, 8);
    const size_t before = peak_bytes();
    assert_ok(plsh_weights_parse(&weights, bytes, length, "x", &error));
    const size_t used = peak_bytes() - before;
    assert_int_equal(plsh_weights_count(weights), COUNT);
    print_message("%zu bytes of header, %zu of memory\n", (size_t)header, used);
#ifndef TEST_SANITIZED
    assert_true(used < 8 * header);
#endif
    plsh_weights_close(weights);
    free(bytes);
}

/* Names with escapes, metadata, blanks; and what no header has. */
static void test_header_grammar(void **unused) {
    (void)unused;
#define ENTRY "{\"dtype\": \"F32\", \"shape\": [16], \"data_offsets\": [0, 64]}"
    static _Alignas(8) char bytes[6000];
    char long_entry[5000];
    plsh_error error;
    plsh_weights *weights;
    size_t size =
        make_safetensors(bytes, "{ \"__metadata__\" : {\"a\": \"}\\\"{\", \"b\": \"c\"} ,\n "
                                "\"\\u00e9\\\"\\\\\" : " ENTRY " } ");
    assert_ok(plsh_weights_parse(&weights, bytes, size, "x", &error));
    assert_int_equal(plsh_weights_count(weights), 1);
    assert_non_null(plsh_weights_find(weights, "\xc3\xa9\"\\"));
    plsh_weights_close(weights);
    snprintf(long_entry, sizeof long_entry, "{\"a\": {\"dtype\": \"F32\", \"x\": \"%*s\", %s}",
             4500, "", "\"shape\": [16], \"data_offsets\": [0, 64]}");
    const char *const wrong[][2] = {
        {"{\"a\": " ENTRY "} x", "something follows"},
        {"{\"a\": " ENTRY " \"b\": " ENTRY "}", ", or } is needed"},
        {"{\"a\" " ENTRY "}", ": is needed"},
        {"{a: " ENTRY "}", "a name in quotes"},
        {"{\"a\": " ENTRY, ", or } is needed"},
        {"{\"a", "without an end"},
        {"{\"a\": {\"dtype\": {", "without an end"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [16], \"data_offsets\": [0, 64],}}", "not JSON"},
        {"{\"\xff\": " ENTRY "}", "not JSON"},
        {"{\"a\\u0000\": " ENTRY "}", "not JSON"},
        {"{\"a\": {}}", "an entry of 2 bytes"},
        {long_entry, "an entry of 4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size = make_safetensors(bytes, wrong[i][0]);
        assert_fails(plsh_weights_parse(&weights, bytes, size, "x", &error), PLSH_STATUS_FORMAT,
                     wrong[i][1]);
        assert_null(weights);
    }
}

/* A GGUF file piece by piece. */
typedef struct pieces {
    _Alignas(8) unsigned char bytes[2000];
    size_t size;
} pieces;

static void put(pieces *p, const void *bytes, size_t size) {
    memcpy(p->bytes + p->size, bytes, size);
    p->size += size;
}
static void put32(pieces *p, uint32_t x) { put(p, &x, 4); }
static void put64(pieces *p, uint64_t x) { put(p, &x, 8); }
static void put_name(pieces *p, const char *name) {
    put64(p, strlen(name));
    put(p, name, strlen(name));
}
static void put_tensor(pieces *p, const char *name, uint64_t columns, uint64_t rows, uint32_t type,
                       uint64_t offset) {
    put_name(p, name);
    put32(p, 2);
    put64(p, columns);
    put64(p, rows);
    put32(p, type);
    put64(p, offset);
}
static pieces begin_gguf(uint32_t version, uint64_t tensors, uint64_t metadata) {
    pieces p = {.size = 0};
    put(&p, "GGUF", 4);
    put32(&p, version);
    put64(&p, tensors);
    put64(&p, metadata);
    return p;
}
static void end_gguf(pieces *p, size_t data) { p->size = (p->size + 31) / 32 * 32 + data; }

static void refuses(const pieces *p, const char *text) {
    plsh_weights *weights;
    plsh_error error = {0};
    assert_int_not_equal(plsh_weights_parse(&weights, p->bytes, p->size, "x", &error),
                         PLSH_STATUS_OK);
    assert_null(weights);
    test_message_holds(error.message, text);
}

static void test_broken_gguf(void **unused) {
    (void)unused;
    pieces p = begin_gguf(1, 0, 0);
    refuses(&p, "version 1");
    p = begin_gguf(3u << 24, 0, 0);
    refuses(&p, "big endian");
    p = begin_gguf(3, UINT64_MAX / 8, 0);
    refuses(&p, "byte 8: tensors");
    p = begin_gguf(3, 0, 1u << 30);
    refuses(&p, "byte 16: metadata");
    p = begin_gguf(3, 0, 1);
    put64(&p, UINT64_MAX);
    put64(&p, 0);
    refuses(&p, "byte 24: a key");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "");
    put64(&p, 0);
    refuses(&p, "empty");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "k");
    put32(&p, 13);
    refuses(&p, "13 is not a type");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "k");
    put32(&p, 9);
    put32(&p, 9);
    put64(&p, 1);
    refuses(&p, "array of arrays");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "k");
    put32(&p, 9);
    put32(&p, 8);
    put64(&p, UINT64_MAX / 2);
    refuses(&p, "an array: 9223372036854775807 of at least 8");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "k");
    put32(&p, 7);
    put(&p, "\2", 1);
    refuses(&p, "a bool is 2");
    p = begin_gguf(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_name(&p, "k");
        put32(&p, 4);
        put32(&p, 5);
    }
    refuses(&p, "'k' appears twice");
    p = begin_gguf(3, 0, 1);
    put_name(&p, "general.alignment");
    put32(&p, 4);
    put32(&p, 48);
    refuses(&p, "power of two");
}

static void test_broken_tensors(void **unused) {
    (void)unused;
    pieces p = begin_gguf(3, 1, 0);
    put_name(&p, "t");
    put32(&p, 5);
    put64(&p, 0);
    put64(&p, 0);
    refuses(&p, "5 dimensions");
    static const struct {
        uint64_t columns, rows, offset;
        uint32_t type;
        const char *text;
    } cases[] = {
        {0, 1, 0, 0, "a dimension of 0"},
        {1ull << 62, 1ull << 62, 0, 0, "overflows"},
        {1ull << 63, 1, 0, 0, "a dimension of 9223372036854775808"},
        {33, 1, 0, 3, "not a whole number of blocks of q4_1"},
        {32, 1, 0, 16, "type iq2_xxs (16), not supported; f32, f16"},
        {32, 1, 16, 0, "not a multiple of 32"},
        {32, 1, 0, 0, NULL},
        {33, 1, 0, 0, "132 bytes at offset 0, but the data has 128"},
        {32, 1, 32, 0, "128 bytes at offset 32"},
        {32, 1, UINT64_MAX - 31, 0, "at offset 18446744073709551584"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p = begin_gguf(2, 1, 0);
        put_tensor(&p, "t", cases[i].columns, cases[i].rows, cases[i].type, cases[i].offset);
        end_gguf(&p, 128);
        if (cases[i].text) refuses(&p, cases[i].text);
    }
    p = begin_gguf(3, 2, 0);
    put_tensor(&p, "t", 16, 1, 0, 0);
    put_tensor(&p, "u", 8, 1, 0, 32);
    end_gguf(&p, 128);
    refuses(&p, "overlaps");
    p = begin_gguf(3, 2, 0);
    put_tensor(&p, "t", 8, 1, 0, 0);
    put_tensor(&p, "t", 8, 1, 0, 32);
    end_gguf(&p, 128);
    refuses(&p, "'t' appears twice");
}

/* A good file, cut at every byte and with every byte of its header changed: no crash, and cut short
 * it is refused. */
static void test_mutations(void **unused) {
    (void)unused;
    plsh_error error;
    float x[ROWS * COLUMNS];
    fill(x);
    assert_ok(write_tensors(in_folder("m.gguf"), PLSH_WEIGHTS_GGUF, PLSH_WEIGHT_Q4_1, x, &error));
    plsh_mapping mapping;
    assert_ok(plsh_mapping_open(&mapping, in_folder("m.gguf"), &error));
    void *memory;
    assert_ok(plsh_allocate(&memory, mapping.size, 1, "a copy", &error));
    plsh_weights *weights;
    memcpy(memory, mapping.bytes, mapping.size);
    const size_t padding = 32 - 3 * 4; /* after the last tensor, optional */
    for (size_t cut = 0; cut < mapping.size - padding; cut++)
        assert_int_not_equal(plsh_weights_parse(&weights, memory, cut, "x", &error),
                             PLSH_STATUS_OK);
    static const unsigned char changes[] = {1, 0x80, 0xff};
    for (size_t at = 0; at < mapping.size; at++) {
        for (int i = 0; i < 3; i++) {
            ((unsigned char *)memory)[at] ^= changes[i];
            if (plsh_weights_parse(&weights, memory, mapping.size, "x", &error) == PLSH_STATUS_OK)
                plsh_weights_close(weights);
            ((unsigned char *)memory)[at] ^= changes[i];
        }
    }
    plsh_release(memory);
    plsh_mapping_close(&mapping);
}

static plsh_status write_and_read(void *context, plsh_error *error) {
    const char *path = in_folder(context ? "o.gguf" : "o.safetensors");
    float x[ROWS * COLUMNS];
    fill(x);
    plsh_status status = write_tensors(path, context ? PLSH_WEIGHTS_GGUF : PLSH_WEIGHTS_SAFETENSORS,
                                       PLSH_WEIGHT_F16, x, error);
    plsh_weights *weights;
    if (status == PLSH_STATUS_OK) status = plsh_weights_open(&weights, path, error);
    if (status == PLSH_STATUS_OK) plsh_weights_close(weights);
    return status;
}

static void test_allocations(void **unused) {
    (void)unused;
    test_every_allocation(write_and_read, NULL, 10);
    test_every_allocation(write_and_read, folder, 10);
}

static int make_folder(void **unused) {
    (void)unused;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **unused) {
    (void)unused;
    static const char *const files[] = {"a.gguf",
                                        "m.gguf",
                                        "o.gguf",
                                        "o.safetensors",
                                        "a.safetensors",
                                        "adapter_config.json",
                                        "adapter_model.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(in_folder(files[i]));
    return rmdir(folder); /* nothing else was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapter),     cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_broken_safetensors),
        cmocka_unit_test(test_long_header), cmocka_unit_test(test_header_grammar),
        cmocka_unit_test(test_broken_gguf), cmocka_unit_test(test_broken_tensors),
        cmocka_unit_test(test_mutations),   cmocka_unit_test(test_allocations),
    };
    const struct CMUnitTest shards[] = {cmocka_unit_test(test_shards)};
    int failed = cmocka_run_group_tests(shards, make_folder, remove_folder);
    strcpy(folder, "weights-XXXXXX");
    return failed + cmocka_run_group_tests(tests, make_folder, remove_folder);
}
