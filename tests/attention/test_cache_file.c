/* tests: decoding caches in files, and files that are not what they claim. */
#include "support/support.h"

#include "support/cache_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state) {
    (void)state;
    snprintf(path, sizeof path, "cache-%ld.bin", (long)getpid());
    return 0;
}

static int remove_path(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

static void spill(const char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void step_range(plsh_cache *cache, const test_case *c, test_data *data, int64_t from,
                       int64_t to) {
    plsh_error error;
    plsh_tokens tokens = test_tokens(c, data, from, to - from);
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
}

/* A cache that was saved and loaded in the middle continues with the same bits. */
static void test_round_trip(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        plsh_error error;
        int64_t half = c->length / 2 + 3;
        test_data straight = test_data_make(c, 5), data = test_data_make(c, 5);
        plsh_cache_config config = test_config(c);
        plsh_cache *cache, *loaded;
        assert_ok(plsh_cache_create(&config, &cache, &error));
        step_range(cache, c, &straight, 0, half);
        step_range(cache, c, &data, half, half + 9); /* and taken back where that is possible */
        if (plsh_cache_truncate(cache, half, &error)) half += 9;
        assert_ok(plsh_cache_save(cache, path, &error));
        for (int64_t at = half; at < c->length; at++) step_range(cache, c, &straight, at, at + 1);
        plsh_cache_destroy(cache);

        config.threads = 1;
        assert_ok(plsh_cache_load(&config, path, &loaded, &error));
        assert_int_equal(plsh_cache_length(loaded), half);
        for (int64_t at = half; at < c->length; at++) step_range(loaded, c, &data, at, at + 1);
        test_same(c, &straight, &data, half);
        plsh_cache_destroy(loaded);
        test_data_free(&straight), test_data_free(&data);
    }
}

static plsh_head heads[2];

static plsh_cache_config small_config(void) {
    heads[0] = (plsh_head){.method = PLSH_METHOD_PLSH, .partition = plsh_partition_default(4, 8)};
    heads[1] = (plsh_head){
        .method = PLSH_METHOD_WINDOW, .partition = plsh_partition_default(4, 8), .window = 30};
    return (plsh_cache_config){
        .heads = 2, .head_dim = 3, .value_dim = 2, .head = heads, .head_count = 2, .threads = 1};
}

static void save_small(void) {
    plsh_error error;
    plsh_cache_config config = small_config();
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    float row[6] = {1, 2, 3, 4, 5, 6}, o[4];
    plsh_tokens tokens = {.count = 1, .q = row, .k = row, .v = row, .o = o};
    for (int at = 0; at < 300; at++) assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    assert_true(plsh_cache_first(cache, 0) > 0);
    assert_ok(plsh_cache_save(cache, path, &error));
    plsh_cache_destroy(cache);
}

static void refuse(const plsh_cache_config *config, plsh_status status, const char *text) {
    plsh_error error;
    plsh_cache *cache;
    assert_fails(plsh_cache_load(config, path, &cache, &error), status, text);
    assert_null(cache);
}

static void test_config_is_compared(void **state) {
    (void)state;
    save_small();
    plsh_cache_config config = small_config();
    config.head_dim = 4;
    refuse(&config, PLSH_STATUS_INVALID, "head_dim");
    config = small_config(), config.dtype = PLSH_DTYPE_FLOAT16;
    refuse(&config, PLSH_STATUS_INVALID, "its dtype is float32, the config's is float16");
    config = small_config(), config.undo = 1;
    refuse(&config, PLSH_STATUS_INVALID, "undo");
    config = small_config(), heads[0].partition.seed = 2;
    refuse(&config, PLSH_STATUS_INVALID, "its seed of head 0 is 1, the config's is 2");
    config = small_config(), heads[1].window = 31;
    refuse(&config, PLSH_STATUS_INVALID, "window of head 1");
    config = small_config(), heads[1].partition.decay.a = 5;
    refuse(&config, PLSH_STATUS_INVALID, "its decay a of head 1 is 4, the config's is 5");
    config = small_config(), heads[0].method = PLSH_METHOD_EXACT;
    refuse(&config, PLSH_STATUS_INVALID, "its method of head 0 is plsh, the config's is exact");
    config = small_config(), heads[1].block = 9; /* a window head does not look at it */
    plsh_error error;
    plsh_cache *cache;
    assert_ok(plsh_cache_load(&config, path, &cache, &error));
    plsh_cache_destroy(cache);
}

/* Flipped bytes anywhere in the file and truncated files are always refused. */
static void test_damage_is_refused(void **state) {
    (void)state;
    save_small();
    plsh_cache_config config = small_config();
    plsh_error error;
    plsh_cache *cache;
    size_t size;
    char *bytes = test_read(path, &size);
    assert_in_range(size, 1000, 20000);
    for (size_t at = 0; at < size; at += at < 16 || at > size - 16 ? 1 : 5) {
        bytes[at] ^= (char)(1 << at % 8);
        spill(bytes, size);
        bytes[at] ^= (char)(1 << at % 8);
        plsh_status status = plsh_cache_load(&config, path, &cache, &error);
        if (status != PLSH_STATUS_FORMAT && status != PLSH_STATUS_INVALID)
            fail_msg("status %d after damage at byte %zu of %zu", (int)status, at, size);
        assert_null(cache);
    }
    for (size_t cut = 0; cut < size; cut += cut < 2000 ? 7 : 101) {
        spill(bytes, cut);
        refuse(&config, PLSH_STATUS_FORMAT, path);
    }
    bytes[size] = 0;
    spill(bytes, size + 1);
    refuse(&config, PLSH_STATUS_FORMAT, "size");
    free(bytes);
}

/* Writes the digest of the format over the last eight bytes. */
static void test_seal(char *bytes, size_t size) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t at = 0; at < size - 8; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - 8 - at < 8 ? size - 8 - at : 8);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
    }
    memcpy(bytes + size - 8, &sum, sizeof sum);
}

/* Wrong numbers are refused even if the digest is right. */
static void test_lies_are_refused(void **state) {
    (void)state;
    save_small();
    plsh_cache_config config = small_config();
    size_t size;
    char *bytes = test_read(path, &size);
    size_t numbers = 8 + (9 + 2 * 18) * 32; /* magic, records */
    int64_t honest[4];
    memcpy(honest, bytes + numbers, sizeof honest); /* length, swept, two firsts */
    assert_int_equal(honest[0], 300);
    const int64_t lies[][4] = {{INT64_MAX, 0, 0, 0}, {-1, 0, 0, 0},        {300, 301, 256, 256},
                               {300, 300, 320, 256}, {300, -5, 256, 256},  {300, 0, 64, 64},
                               {300, 256, 1, 0},     {300, 256, -64, 192}, {1 << 30, 0, 0, 0},
                               {300, 256, 0, 256}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(bytes + numbers, lies[i], sizeof lies[i]);
        test_seal(bytes, size);
        spill(bytes, size);
        refuse(&config, PLSH_STATUS_FORMAT, path);
    }
    memcpy(bytes + numbers, honest, sizeof honest);
    test_seal(bytes, size);
    spill(bytes, size);
    plsh_error error;
    plsh_cache *cache;
    assert_ok(plsh_cache_load(&config, path, &cache, &error)); /* so the seal is right */
    plsh_cache_destroy(cache);
    free(bytes);
}

static void test_paths(void **state) {
    (void)state;
    plsh_cache_config config = small_config();
    plsh_error error;
    plsh_cache *cache;
    assert_fails(plsh_cache_load(&config, "no-such-file", &cache, &error), PLSH_STATUS_IO,
                 "no-such-file");
    assert_fails(plsh_cache_load(&config, ".", &cache, &error), PLSH_STATUS_IO, "regular");
    assert_ok(plsh_cache_create(&config, &cache, &error));
    assert_fails(plsh_cache_save(cache, "no-such-folder/file", &error), PLSH_STATUS_IO,
                 "no-such-folder");
    plsh_cache_destroy(cache);
}

static plsh_status save_and_load(void *context, plsh_error *error) {
    plsh_cache *cache = context, *loaded;
    plsh_cache_config config = small_config();
    plsh_status status = plsh_cache_save(cache, path, error);
    if (!status) status = plsh_cache_load(&config, path, &loaded, error);
    if (!status) plsh_cache_destroy(loaded);
    return status;
}

static void test_allocations(void **state) {
    (void)state;
    plsh_error error;
    save_small();
    plsh_cache_config config = small_config();
    plsh_cache *cache;
    assert_ok(plsh_cache_load(&config, path, &cache, &error));
    test_every_allocation(save_and_load, cache, 12);
    plsh_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_config_is_compared),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_lies_are_refused),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
