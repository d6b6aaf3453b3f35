/* tests: steps of a decoding cache in a workspace of the caller, of several sequences at once, and
 * from two threads. */
#include "support/support.h"

#include "support/cache_cases.h"

#include "attention/cache/cache.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_STEP = 70 };

/* Steps of 1 to LONGEST_STEP tokens: the decode kernels, and tiles. */
static int64_t step_size(int64_t piece, int64_t left) {
    int64_t count = 1 + (int64_t)(test_number(61, piece) * (piece % 3 == 2 ? LONGEST_STEP : 5));
    return count < left ? count : left;
}

static void run_single(const test_case *c, test_data *data) {
    plsh_error error;
    plsh_cache_config config = test_config(c);
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int64_t done = 0, piece = 0, count; done < c->length; done += count, piece++) {
        count = step_size(piece, c->length - done);
        plsh_tokens tokens = test_tokens(c, data, done, count);
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    }
    plsh_cache_destroy(cache);
}

/* ---- Workspaces ------------------------------------------------------------------------------ */

/* Memory that has been used for something else, with a guard behind it. */
typedef struct dirty {
    unsigned char *memory;
    size_t bytes;
} dirty;

enum { GUARD = 256 };

static dirty dirty_make(plsh_cache *const *caches, int64_t sequences, int64_t count) {
    plsh_error error;
    dirty made;
    assert_ok(plsh_cache_workspace(caches, sequences, count, &made.bytes, &error));
    assert_int_equal(made.bytes % PLSH_ALIGNMENT, 0);
    made.memory = aligned_alloc(PLSH_ALIGNMENT, made.bytes + GUARD);
    assert_non_null(made.memory);
    memset(made.memory, 0xff, made.bytes + GUARD); /* NaN in every float */
    return made;
}

static void dirty_free(dirty *made) {
    for (int i = 0; i < GUARD; i++) assert_int_equal(made->memory[made->bytes + (size_t)i], 0xff);
    free(made->memory);
}

static void check_workspace(const test_case *c) {
    plsh_error error;
    test_data own = test_data_make(c, 71), given = test_data_make(c, 71);
    run_single(c, &own);
    plsh_cache_config config = test_config(c);
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    dirty workspace = dirty_make(&cache, 1, LONGEST_STEP);
    for (int64_t done = 0, piece = 0, count; done < c->length; done += count, piece++) {
        count = step_size(piece, c->length - done);
        plsh_tokens tokens = test_tokens(c, &given, done, count);
        tokens.workspace = workspace.memory;
        tokens.workspace_bytes = workspace.bytes;
        memset(workspace.memory, 0xff, workspace.bytes);
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    }
    test_same(c, &own, &given, 0);
    plsh_cache_destroy(cache);
    dirty_free(&workspace);
    test_data_free(&own), test_data_free(&given);
}

static void test_workspace_changes_no_bit(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) check_workspace(c);
}

/* Asking for a size needs no memory that grows with the tokens: a plan of 2^30 keys would have
 * decay tables of 8 GB. (2^20 tokens here, 0.5 GB, so that a failure fails and does no more.) */
static void test_size_needs_no_memory(void **state) {
    (void)state;
    static const plsh_method methods[] = {PLSH_METHOD_EXACT, PLSH_METHOD_DENSE, PLSH_METHOD_WINDOW};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        plsh_error error;
        plsh_decay decay = {.kind = PLSH_DECAY_KERPLE_LOG, .a = 2, .b = 1};
        plsh_head head = plsh_head_default(methods[i], &decay);
        plsh_cache_config config = {.heads = 2, .head_dim = 8, .head = &head, .head_count = 1};
        plsh_cache *cache;
        size_t bytes;
        assert_ok(plsh_cache_create(&config, &cache, &error));
        (void)plsh_memory_largest();
        assert_ok(plsh_cache_workspace(&cache, 1, INT64_C(1) << 20, &bytes, &error));
        assert_in_range(plsh_memory_largest(), 1, 1 << 20);
        plsh_cache_destroy(cache);
    }
}

/* With a workspace, a token that needs no page allocates nothing. */
static void test_steps_allocate_nothing(void **state) {
    (void)state;
    plsh_error error;
    const test_case *c = &test_cases[0];
    test_data data = test_data_make(c, 72);
    plsh_cache_config config = test_config(c);
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    dirty workspace = dirty_make(&cache, 1, 1);
    for (int64_t at = 0; at < 130; at++) {
        plsh_tokens token = test_tokens(c, &data, at, 1);
        token.workspace = workspace.memory;
        token.workspace_bytes = workspace.bytes;
        if (at % 64 != 0) plsh_memory_fail_after(0);
        plsh_status status = plsh_cache_step(cache, &token, NULL, &error);
        plsh_memory_fail_after(-1);
        assert_int_equal(status, PLSH_STATUS_OK);
    }
    plsh_tokens token = test_tokens(c, &data, 130, 1);
    token.workspace = workspace.memory;
    token.workspace_bytes = 64;
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_INVALID,
                 "the workspace has 64 bytes; this call needs");
    token.workspace = workspace.memory + 4;
    token.workspace_bytes = workspace.bytes;
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_INVALID, "multiple");
    plsh_tokens chunk = test_tokens(c, &data, 130, LONGEST_STEP);
    chunk.workspace = workspace.memory;
    chunk.workspace_bytes = 64;
    assert_fails(plsh_cache_step(cache, &chunk, NULL, &error), PLSH_STATUS_INVALID, "needs");
    assert_int_equal(plsh_cache_length(cache), 130);
    size_t bytes;
    assert_fails(plsh_cache_workspace(&cache, 1, -1, &bytes, &error), PLSH_STATUS_INVALID, "-1");
    plsh_cache_destroy(cache);
    dirty_free(&workspace);
    test_data_free(&data);
}

/* ---- Several sequences ----------------------------------------------------------------------- */

enum { SEQUENCES = 6 };

/* Sequences of several configs; `data` are their tokens, `done` how many of them have come. */
typedef struct crowd {
    const test_case *c[SEQUENCES];
    test_data data[SEQUENCES];
    plsh_cache *cache[SEQUENCES];
    int64_t done[SEQUENCES];
} crowd;

static crowd crowd_make(int threads) {
    static const int cases[SEQUENCES] = {0, 1, 3, 1, 5, 8};
    plsh_error error;
    crowd made = {0};
    for (int i = 0; i < SEQUENCES; i++) {
        made.c[i] = &test_cases[cases[i]];
        made.data[i] = test_data_make(made.c[i], 80 + (uint64_t)i);
        plsh_cache_config config = test_config(made.c[i]);
        config.threads = threads;
        assert_ok(plsh_cache_create(&config, &made.cache[i], &error));
    }
    return made;
}

static void crowd_free(crowd *all) {
    for (int i = 0; i < SEQUENCES; i++) {
        plsh_cache_destroy(all->cache[i]);
        test_data_free(&all->data[i]);
    }
}

/* The tokens of the next step; every now and then none. How many in all. */
static int64_t crowd_tokens(crowd *all, int64_t piece, plsh_tokens tokens[SEQUENCES]) {
    int64_t sum = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t count = step_size(piece + i, all->c[i]->length - all->done[i]);
        if (piece % 7 == i) count = 0;
        tokens[i] = test_tokens(all->c[i], &all->data[i], all->done[i], count);
        sum += count;
    }
    return sum;
}

static void crowd_advance(crowd *all, const plsh_tokens tokens[SEQUENCES]) {
    for (int i = 0; i < SEQUENCES; i++) all->done[i] += tokens[i].count;
}

static bool crowd_is_over(const crowd *all) {
    for (int i = 0; i < SEQUENCES; i++)
        if (all->done[i] < all->c[i]->length) return false;
    return true;
}

static void crowd_run(crowd *all, bool batch, bool given) {
    plsh_error error;
    plsh_tokens tokens[SEQUENCES];
    dirty workspace = dirty_make(all->cache, SEQUENCES, LONGEST_STEP);
    for (int64_t piece = 0; !crowd_is_over(all); piece++) {
        crowd_tokens(all, piece, tokens);
        if (given) {
            tokens[0].workspace = workspace.memory;
            tokens[0].workspace_bytes = workspace.bytes;
        }
        plsh_stats stats = {0}, part;
        int64_t pairs = 0;
        if (batch) assert_ok(plsh_cache_step_batch(all->cache, tokens, SEQUENCES, &stats, &error));
        for (int i = 0; i < SEQUENCES && !batch; i++) {
            assert_ok(plsh_cache_step(all->cache[i], &tokens[i], &part, &error));
            pairs += part.pairs;
        }
        if (batch) assert_true(stats.pairs > 0);
        if (!batch) assert_true(pairs > 0);
        crowd_advance(all, tokens);
    }
    dirty_free(&workspace);
}

static void test_a_batch_is_its_steps(void **state) {
    (void)state;
    crowd single = crowd_make(1);
    crowd_run(&single, false, false);
    for (int threads = 1; threads <= 5; threads += 2) {
        crowd batch = crowd_make(threads);
        crowd_run(&batch, true, threads != 3);
        for (int i = 0; i < SEQUENCES; i++)
            test_same(single.c[i], &single.data[i], &batch.data[i], 0);
        crowd_free(&batch);
    }
    crowd_free(&single);
}

/* The length is what it was, and no page is kept that it does not need. */
static void check_unchanged(const plsh_cache *cache, int64_t length) {
    assert_int_equal(plsh_cache_length(cache), length);
    int64_t pages = (length + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++)
        assert_int_equal(cache->store[kv].first + cache->store[kv].count, pages);
}

/* A batch that fails for any reason has changed nothing: repeated, it gives the same bits. */
static void test_a_batch_fails_whole(void **state) {
    (void)state;
    plsh_error error = {0};
    crowd single = crowd_make(2), batch = crowd_make(2);
    crowd_run(&single, false, false);
    plsh_tokens tokens[SEQUENCES];
    int64_t failures = 0;
    for (int64_t piece = 0; !crowd_is_over(&batch); piece++) {
        crowd_tokens(&batch, piece, tokens);
        plsh_status status = PLSH_STATUS_NO_MEMORY;
        for (long fails = 0; status != PLSH_STATUS_OK; fails += piece < 3 ? 1 : 7) {
            plsh_memory_fail_after(fails);
            status = plsh_cache_step_batch(batch.cache, tokens, SEQUENCES, NULL, &error);
            plsh_memory_fail_after(-1);
            failures += status != PLSH_STATUS_OK;
            for (int i = 0; i < SEQUENCES && status; i++)
                check_unchanged(batch.cache[i], batch.done[i]);
        }
        crowd_advance(&batch, tokens);
    }
    assert_true(failures > 50);
    for (int i = 0; i < SEQUENCES; i++) test_same(single.c[i], &single.data[i], &batch.data[i], 0);
    crowd_free(&single), crowd_free(&batch);
}

static void test_bad_batches(void **state) {
    (void)state;
    plsh_error error;
    crowd all = crowd_make(1);
    plsh_tokens tokens[SEQUENCES];
    crowd_tokens(&all, 1, tokens);
    assert_fails(plsh_cache_step_batch(all.cache, tokens, -1, NULL, &error), PLSH_STATUS_INVALID,
                 "-1 sequences");
    assert_ok(plsh_cache_step_batch(NULL, NULL, 0, NULL, &error));
    plsh_cache *twice[2] = {all.cache[0], all.cache[0]};
    assert_fails(plsh_cache_step_batch(twice, tokens, 2, NULL, &error), PLSH_STATUS_INVALID,
                 "sequence 1: the cache is in use");
    tokens[2].k = NULL;
    assert_fails(plsh_cache_step_batch(all.cache, tokens, 4, NULL, &error), PLSH_STATUS_INVALID,
                 "sequence 2: k or v is NULL");
    for (int i = 0; i < SEQUENCES; i++) assert_int_equal(plsh_cache_length(all.cache[i]), 0);
    assert_ok(
        plsh_cache_step_batch(all.cache, tokens, 2, NULL, &error)); /* no other call is running */
    crowd_free(&all);
}

/* ---- Two threads ----------------------------------------------------------------------------- */

static void test_a_cache_in_use_is_refused(void **state) {
    (void)state;
    plsh_error error;
    const test_case *c = &test_cases[0];
    test_data data = test_data_make(c, 90);
    plsh_cache_config config = test_config(c);
    plsh_cache *cache, *fork;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    plsh_tokens token = test_tokens(c, &data, 0, 1);
    assert_ok(plsh_cache_step(cache, &token, NULL, &error));
    assert_ok(plsh_cache_enter(cache, &error)); /* as another thread would */
    const char *text = "the cache is in use";
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_INVALID, text);
    assert_fails(plsh_cache_append(cache, &token, &error), PLSH_STATUS_INVALID, text);
    assert_fails(plsh_cache_attend(cache, &token, NULL, &error), PLSH_STATUS_INVALID, text);
    assert_fails(plsh_cache_truncate(cache, 0, &error), PLSH_STATUS_INVALID, text);
    assert_fails(plsh_cache_fork(cache, &fork, &error), PLSH_STATUS_INVALID, text);
    assert_null(fork);
    assert_fails(plsh_cache_save(cache, "plsh-test-busy", &error), PLSH_STATUS_INVALID, text);
    plsh_cache_leave(cache);
    assert_ok(plsh_cache_truncate(cache, 0, &error));
    assert_ok(plsh_cache_step(cache, &token, NULL, &error));
    assert_int_equal(plsh_cache_length(cache), 1);
    plsh_cache_destroy(cache);
    test_data_free(&data);
}

enum { CALLS = 400, DIM = 16 };

typedef struct steps {
    pthread_t thread;
    plsh_cache *cache;
    int64_t done, refused;
} steps;

static void *make_steps(void *context) {
    steps *s = context;
    float row[DIM] = {1}, o[DIM];
    plsh_tokens token = {.count = 1, .q = row, .k = row, .v = row, .o = o};
    plsh_error mine;
    for (int i = 0; i < CALLS; i++) {
        plsh_status status = plsh_cache_step(s->cache, &token, NULL, &mine);
        s->done += status == PLSH_STATUS_OK;
        s->refused += status == PLSH_STATUS_INVALID;
    }
    return NULL;
}

/* Every call of two threads on one cache either succeeds or returns an error. */
static void test_two_threads_at_once(void **state) {
    (void)state;
    plsh_head head = {.method = PLSH_METHOD_NONE};
    plsh_cache_config config = {
        .heads = 1, .head_dim = DIM, .head = &head, .head_count = 1, .threads = 1};
    plsh_cache *cache;
    plsh_error error;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    steps s[2] = {{.cache = cache}, {.cache = cache}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&s[i].thread, NULL, make_steps, &s[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(s[i].thread, NULL);
    assert_int_equal(s[0].done + s[0].refused + s[1].done + s[1].refused, 2 * CALLS);
    assert_int_equal(plsh_cache_length(cache), s[0].done + s[1].done);
    plsh_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workspace_changes_no_bit),
        cmocka_unit_test(test_size_needs_no_memory),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_a_batch_is_its_steps),
        cmocka_unit_test(test_a_batch_fails_whole),
        cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_a_cache_in_use_is_refused),
        cmocka_unit_test(test_two_threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
