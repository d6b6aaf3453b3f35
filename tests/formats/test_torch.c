/* weights: files of torch.save: those of the reference data, and hostile ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/weights.h"
#include "support/support.h"

/* ---- Archives made by hand ---- */

typedef struct bytes {
    _Alignas(8) unsigned char data[1 << 16];
    size_t size;
} bytes;

static void add(bytes *to, const void *from, size_t size) {
    assert_true(to->size + size <= sizeof to->data);
    memcpy(to->data + to->size, from, size);
    to->size += size;
}

static void add_number(bytes *to, uint64_t number, int width) {
    for (int i = 0; i < width; i++) {
        const unsigned char byte = i < 8 ? (unsigned char)(number >> 8 * i) : 0;
        add(to, &byte, 1);
    }
}

typedef struct entry {
    const char *name;
    const void *data;
    size_t size;
} entry;

/* A zip archive of stored entries, each aligned to 64 bytes as torch does it. */
static void make_zip(bytes *out, const entry *entries, size_t count, int method) {
    uint64_t offset[8];
    out->size = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t name = strlen(entries[i].name);
        const size_t pad = 64 - (out->size + 30 + name) % 64;
        offset[i] = out->size;
        add(out, "PK\3\4", 4);
        add_number(out, 0, 22);
        add_number(out, name, 2);
        add_number(out, pad, 2);
        add(out, entries[i].name, name);
        for (size_t p = 0; p < pad; p++) add(out, "Z", 1);
        add(out, entries[i].data, entries[i].size);
    }
    const size_t begin = out->size;
    for (size_t i = 0; i < count; i++) {
        add(out, "PK\1\2", 4);
        add_number(out, 0, 6);
        add_number(out, (uint64_t)method, 2);
        add_number(out, 0, 8);
        add_number(out, entries[i].size, 4);
        add_number(out, entries[i].size, 4);
        add_number(out, strlen(entries[i].name), 2);
        add_number(out, 0, 12);
        add_number(out, offset[i], 4);
        add(out, entries[i].name, strlen(entries[i].name));
    }
    const size_t size = out->size - begin;
    add(out, "PK\5\6", 4);
    add_number(out, 0, 4);
    add_number(out, count, 2);
    add_number(out, count, 2);
    add_number(out, size, 4);
    add_number(out, begin, 4);
    add_number(out, 0, 2);
}

/* {"w": a tensor of `sizes` with `strides` at `offset` of 6 floats}, as opcodes. */
static const float six[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};

#define STORAGE                                                                                    \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                             \
    "0X\3\0\0\0cpuK\6tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define HOOKS                                                                                      \
    "\x89"                                                                                         \
    "ccollections\nOrderedDict\n)R"
#define TENSOR(offset, sizes, strides) REBUILD "(" STORAGE "K" offset sizes strides HOOKS "tR"
#define WHOLE TENSOR("\0", "K\2K\3\x86", "K\3K\1\x86")
#define DICT(items) "\x80\2}(" items "u."

static bytes made;

/* Opens an archive of this pickle and the six floats. */
static plsh_status open_pickle(const char *pickle, size_t size, plsh_weights **out,
                               plsh_error *error) {
    const entry entries[] = {
        {"m/data.pkl", pickle, size}, {"m/byteorder", "little", 6}, {"m/data/0", six, sizeof six}};
    make_zip(&made, entries, 3, 0);
    return plsh_weights_parse(out, made.data, made.size, "m.bin", error);
}

#define OPEN(pickle) open_pickle(pickle, sizeof(pickle) - 1, &weights, &error)
#define assert_refused(pickle, status, text)                                                       \
    do {                                                                                           \
        assert_fails(OPEN(pickle), status, text);                                                  \
        assert_null(weights);                                                                      \
    } while (0)

static void test_small(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    assert_ok(OPEN(DICT("X\1\0\0\0w" WHOLE "X\1\0\0\0v" TENSOR("\4", "K\2\x85", "K\1\x85"))));
    assert_int_equal(plsh_weights_form_of(weights), PLSH_WEIGHTS_TORCH);
    assert_int_equal(plsh_weights_count(weights), 2);
    const plsh_tensor *w = plsh_weights_find(weights, "w"), *v = plsh_weights_find(weights, "v");
    assert_true(w && w->rank == 2 && w->shape[0] == 2 && w->shape[1] == 3);
    assert_true(w->type == PLSH_WEIGHT_F32 && memcmp(w->data, six, sizeof six) == 0);
    assert_true(v && v->rank == 1 && memcmp(v->data, six + 4, 8) == 0); /* shares the storage */
    plsh_weights_close(weights);
    /* The state of an OrderedDict follows in a BUILD; the memo is used. */
    assert_ok(OPEN("\x80\2"
                   "ccollections\nOrderedDict\n)Rq\0X\1\0\0\0w" WHOLE "s"
                   "}X\11\0\0\0_metadata}sb."));
    assert_int_equal(plsh_weights_count(weights), 1);
    plsh_weights_close(weights);
    assert_ok(OPEN("\x80\2}."));
    assert_int_equal(plsh_weights_count(weights), 0);
    plsh_weights_close(weights);
}

/* No opcode and no global but those of tensors; the message has the name. */
static void test_refused(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    assert_refused("\x80\2"
                   "cos\nsystem\nX\4\0\0\0true\x85R.",
                   PLSH_STATUS_UNSUPPORTED, "the global os.system is refused");
    assert_refused("\x80\2"
                   "cposix\nsystem\n.",
                   PLSH_STATUS_UNSUPPORTED, "posix.system");
    assert_refused("\x80\2"
                   "cbuiltins\neval\n.",
                   PLSH_STATUS_UNSUPPORTED, "builtins.eval");
    assert_refused("\x80\2"
                   "ctorch\nload\n.",
                   PLSH_STATUS_UNSUPPORTED, "torch.load");
    assert_refused("\x80\4\x95.", PLSH_STATUS_UNSUPPORTED, "protocol 4");
    assert_refused("\x80\2(ios\nsystem\n.", PLSH_STATUS_UNSUPPORTED, "INST (0x69)");
    assert_refused("\x80\2(cos\nsystem\no.", PLSH_STATUS_UNSUPPORTED, "os.system");
    assert_refused("\x80\2)\x81.", PLSH_STATUS_UNSUPPORTED, "NEWOBJ (0x81)");
    assert_refused("\x80\2\x8c\2os\x8c\6system\x93.", PLSH_STATUS_UNSUPPORTED, "SHORT_BINUNICODE");
    assert_refused("\x80\2]", PLSH_STATUS_UNSUPPORTED, "EMPTY_LIST");
    assert_refused("\x80\2\xff", PLSH_STATUS_UNSUPPORTED, "unknown (0xff)");
    assert_refused("\x80\2"
                   "cos\x1b[31m\nsystem\n.",
                   PLSH_STATUS_FORMAT, "plain characters");
    assert_refused("\x80\2" REBUILD "}\x85R.", PLSH_STATUS_FORMAT, "needs a storage");
    assert_refused("\x80\2"
                   "ctorch\nFloatStorage\n)R.",
                   PLSH_STATUS_UNSUPPORTED, "a call of torch.FloatStorage");
}

/* Lengths, numbers and order that are not right. */
static void test_hostile(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    assert_refused("\x80\2X\xff\xff\xff\x7f"
                   "abc",
                   PLSH_STATUS_FORMAT, "only 3 bytes follow");
    assert_refused("\x80\2u.", PLSH_STATUS_FORMAT, "no mark");
    assert_refused("\x80\2R.", PLSH_STATUS_FORMAT, "too few values");
    assert_refused("\x80\2}(K\1u.", PLSH_STATUS_FORMAT, "items without a dictionary");
    assert_refused("\x80\2h\0.", PLSH_STATUS_FORMAT, "memo has 0 values; 0");
    assert_refused("\x80\2}r\xff\xff\xff\xff.", PLSH_STATUS_FORMAT,
                   "memo has 0 values; 4294967295");
    assert_refused("\x80\2K\1K\2.", PLSH_STATUS_FORMAT, "ends with 2 values");
    assert_refused("\x80\2K\1", PLSH_STATUS_FORMAT, "ends too early");
    assert_refused("\x80\2K\1.", PLSH_STATUS_UNSUPPORTED, "not a dictionary");
    assert_refused(DICT("X\1\0\0\0wK\1"), PLSH_STATUS_UNSUPPORTED, "'w' is not a tensor");
    assert_refused(DICT("K\1" WHOLE), PLSH_STATUS_FORMAT, "no string");
    assert_refused(DICT("\x8a\10\0\0\0\0\0\0\0\xff" WHOLE), PLSH_STATUS_FORMAT, "no string");
    assert_refused(DICT("X\1\0\0\0w" WHOLE "X\1\0\0\0w" WHOLE), PLSH_STATUS_FORMAT, "twice");
    assert_refused(DICT("X\1\0\0\0w" TENSOR("\1", "K\2K\3\x86", "K\3K\1\x86")), PLSH_STATUS_FORMAT,
                   "beyond its storage");
    assert_refused(DICT("X\1\0\0\0w" TENSOR("\0", "K\3K\2\x86", "K\1K\3\x86")), PLSH_STATUS_FORMAT,
                   "not contiguous");
    assert_refused(DICT("X\1\0\0\0w" TENSOR("\0", "K\7\x85", "K\0\x85")), PLSH_STATUS_FORMAT,
                   "not contiguous");
    assert_refused(DICT("X\1\0\0\0w" TENSOR("\0", "J\xff\xff\xff\xff\x85", "K\1\x85")),
                   PLSH_STATUS_FORMAT, "has a size");
    assert_refused(
        DICT("X\1\0\0\0w" TENSOR("\0", "\x8a\10\0\0\0\0\0\0\0\x40\x8a\10\0\0\0\0\0\0\0\x40\x86",
                                 "K\1K\1\x86")),
        PLSH_STATUS_FORMAT, "larger than any memory");
    assert_refused("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                   "0X\3\0\0\0cpuK\7tQ.",
                   PLSH_STATUS_FORMAT, "data/0 of 7 numbers");
    assert_refused("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\4\0\0\0../0X\3\0\0\0cpuK\6tQ.",
                   PLSH_STATUS_FORMAT, "data/../0");
}

/* A dictionary that holds itself, and one that doubles at every level: neither is walked into. */
static void test_bombs(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    assert_refused("\x80\2}q\0X\4\0\0\0selfh\0s.", PLSH_STATUS_UNSUPPORTED,
                   "'self' is not a tensor");
    assert_ok(OPEN("\x80\2}q\0h\0b."));
    plsh_weights_close(weights);
    static bytes bomb;
    bomb.size = 0;
    add(&bomb, "\x80\2)q\0", 5);
    for (unsigned char i = 0; i < 200; i++) { /* t = (t, t): 2^200 leaves */
        const unsigned char level[] = {'h', i, 'h', i, 0x86, 'q', (unsigned char)(i + 1)};
        add(&bomb, level, sizeof level);
    }
    add(&bomb, ".", 1);
    assert_fails(open_pickle((const char *)bomb.data, bomb.size, &weights, &error),
                 PLSH_STATUS_FORMAT, "ends with");
    bomb.size = 0; /* deep rather than wide */
    add(&bomb, "\x80\2)", 3);
    for (int i = 0; i < 60000; i++) add(&bomb, "\x85", 1);
    add(&bomb, ".", 1);
    assert_fails(open_pickle((const char *)bomb.data, bomb.size, &weights, &error),
                 PLSH_STATUS_UNSUPPORTED, "not a dictionary");
}

/* One long name, by the memo many times: refused before there is memory for all of them. */
static void test_names(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    static bytes long_name;
    long_name.size = 0;
    add(&long_name, "\x80\2}(X", 5);
    add_number(&long_name, 20000, 4);
    for (int i = 0; i < 20000; i++) add(&long_name, "n", 1);
    add(&long_name, "q\0", 2);
    add(&long_name, WHOLE "q\1", sizeof(WHOLE "q\1") - 1);
    for (int i = 0; i < 5000; i++) add(&long_name, "h\0h\1", 4);
    add(&long_name, "u.", 2);
    assert_fails(open_pickle((const char *)long_name.data, long_name.size, &weights, &error),
                 PLSH_STATUS_FORMAT, "appears twice");
}

static void test_archives(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    const entry good[] = {{"m/data.pkl", "\x80\2}.", 4}};
    make_zip(&made, good, 1, 8);
    assert_fails(plsh_weights_parse(&weights, made.data, made.size, "m.bin", &error),
                 PLSH_STATUS_UNSUPPORTED, "m/data.pkl is compressed");
    const entry none[] = {{"m/version", "3\n", 2}};
    make_zip(&made, none, 1, 0);
    assert_fails(plsh_weights_parse(&weights, made.data, made.size, "m.bin", &error),
                 PLSH_STATUS_FORMAT, "without data.pkl");
    const entry twice[] = {{"m/data.pkl", "\x80\2}.", 4}, {"m/data.pkl", "\x80\2}.", 4}};
    make_zip(&made, twice, 2, 0);
    assert_fails(plsh_weights_parse(&weights, made.data, made.size, "m.bin", &error),
                 PLSH_STATUS_FORMAT, "twice");
    const entry big[] = {{"m/data.pkl", "\x80\2}.", 4}, {"m/byteorder", "big", 3}};
    make_zip(&made, big, 2, 0);
    assert_fails(plsh_weights_parse(&weights, made.data, made.size, "m.bin", &error),
                 PLSH_STATUS_UNSUPPORTED, "not little endian");
    make_zip(&made, good, 1, 0);
    for (size_t size = 0; size < made.size; size++) /* whatever is missing at the end */
        assert_int_not_equal(plsh_weights_parse(&weights, made.data, size, "m.bin", &error),
                             PLSH_STATUS_OK);
    memcpy(made.data,
           "\x80\2\x8a\nl\xfc\x9c"
           "F\xf9",
           9);
    assert_fails(plsh_weights_parse(&weights, made.data, made.size, "m.bin", &error),
                 PLSH_STATUS_UNSUPPORTED, "Save it again in Python");
}

/* Both forms of the same model hold the same bits. */
static void compare_forms(const char *folder) {
    char path[200];
    plsh_weights *torch, *safe;
    plsh_error error;
    snprintf(path, sizeof path, "%s/pytorch_model.bin", folder);
    assert_ok(plsh_weights_open(&torch, test_shared(path), &error));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(plsh_weights_open(&safe, test_shared(path), &error));
    assert_true(plsh_weights_count(torch) >= plsh_weights_count(safe));
    for (size_t i = 0; i < plsh_weights_count(safe); i++) {
        const plsh_tensor *want = plsh_weights_at(safe, i);
        const plsh_tensor *have = plsh_weights_find(torch, want->name);
        assert_non_null(have);
        assert_true(have->type == want->type && have->rank == want->rank);
        assert_memory_equal(have->shape, want->shape, sizeof(int64_t) * (size_t)want->rank);
        assert_int_equal(have->size, want->size);
        assert_memory_equal(have->data, want->data, want->size);
    }
    plsh_weights_close(torch);
    plsh_weights_close(safe);
}

static void test_reference(void **unused) {
    (void)unused;
    compare_forms("golden/families/dnabert2_mlm");
    compare_forms("golden/families/dnabert2_cls");
}

static plsh_status open_once(void *unused, plsh_error *error) {
    (void)unused;
    plsh_weights *weights;
    plsh_status status = plsh_weights_parse(&weights, made.data, made.size, "m.bin", error);
    plsh_weights_close(weights);
    return status;
}

static void test_memory(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    assert_ok(OPEN(DICT("X\1\0\0\0w" WHOLE)));
    plsh_weights_close(weights);
    test_every_allocation(open_once, NULL, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),   cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_archives),
        cmocka_unit_test(test_reference), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
