/* tests: decoding with a cache against the definition in double precision. */
#include "support/support.h"

#include "support/cache_cases.h"

#include "attention/cache/prefill.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void step_range(plsh_cache *cache, const test_case *c, test_data *data, int64_t from,
                       int64_t to) {
    plsh_error error;
    plsh_tokens tokens = test_tokens(c, data, from, to - from);
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
}

/* ---- Every method, every chunking ------------------------------------------------------------ */

static void check_chunks(const test_case *c, test_data *data, const char *isa, int64_t chunk) {
    plsh_error error;
    plsh_cache_config config = test_config(c);
    config.isa = isa;
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    assert_string_equal(plsh_cache_isa(cache), isa);
    for (int64_t done = 0, piece = 0; done < c->length; piece++) {
        int64_t count =
            chunk > 0 ? chunk : 1 + (int64_t)(test_number(11, piece) * (piece % 3 == 2 ? 120 : 40));
        if (count > c->length - done) count = c->length - done;
        plsh_tokens tokens = test_tokens(c, data, done, count);
        if (piece % 2 == 0) {
            assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
        } else {
            assert_ok(plsh_cache_append(cache, &tokens, &error));
            assert_ok(plsh_cache_attend(cache, &tokens, NULL, &error));
        }
        done += count;
    }
    assert_int_equal(plsh_cache_length(cache), c->length);
    plsh_cache_destroy(cache);
}

static void test_equals_the_definition(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        test_config(c); /* makes the labels */
        test_data data = test_data_make(c, 7);
        test_answer answer = test_answer_make(c, &data);
        for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
            check_chunks(c, &data, *isa, 0);
            test_compare(c, &data, &answer, *isa);
        }
        check_chunks(c, &data, plsh_isa_available()[0], 1);
        test_compare(c, &data, &answer, "token by token");
        check_chunks(c, &data, plsh_isa_available()[0], c->length);
        test_compare(c, &data, &answer, "all at once");
        test_answer_free(&answer);
        test_data_free(&data);
    }
}

/* The forward pass of the same heads over the whole sequence gives the same numbers. */
static void check_forward(const test_case *c) {
    plsh_error error;
    test_data one = test_data_make(c, 9), all = test_data_make(c, 9);
    check_chunks(c, &one, plsh_isa_available()[0], 1);
    plsh_tokens tokens = test_tokens(c, &all, 0, c->length);
    bool narrow = c->dtype != PLSH_DTYPE_FLOAT32 && c->narrow;
    plsh_attention attention = {.heads = c->heads,
                                .kv_heads = c->kv_heads,
                                .queries = c->length,
                                .keys = c->length,
                                .head_dim = c->head_dim,
                                .value_dim = c->value_dim,
                                .causal = true,
                                .dtype = narrow ? c->dtype : PLSH_DTYPE_FLOAT32,
                                .q = tokens.q_layout,
                                .k = tokens.k_layout,
                                .v = tokens.v_layout,
                                .o = tokens.o_layout,
                                .head = c->head,
                                .head_count = c->head_count,
                                .threads = 2};
    assert_ok(plsh_attend(&attention, tokens.q, tokens.k, tokens.v, all.o, all.lse, &error));
    test_close(c, &one, &all);
    test_data_free(&one), test_data_free(&all);
}

static void test_equals_one_forward_pass(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) check_forward(c);
}

/* A chunk of a prompt goes through the tiles of the forward pass, on pages: the same bits, also
 * where pages have been dropped. The keys are those that the cache has rounded. */
static void check_prefill(const test_case *c, int64_t chunk) {
    plsh_error error;
    test_data paged = test_data_make(c, 10), plain = test_data_make(c, 10);
    plsh_cache_config config = test_config(c);
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    bool narrow = c->dtype != PLSH_DTYPE_FLOAT32 && c->narrow;
    plsh_head head[16];
    for (int64_t h = 0; h < c->heads; h++) head[h] = plsh_cache_head(cache, h, NULL);
    plsh_tokens all = test_tokens(c, &plain, 0, c->length);
    for (int64_t done = 0; done < c->length; done += chunk) {
        if (chunk > c->length - done) chunk = c->length - done;
        if (chunk < 32 || done + chunk >= 64 * chunk) break; /* then decode kernels do it */
        step_range(cache, c, &paged, done, done + chunk);
        plsh_tokens part = test_tokens(c, &plain, done, chunk);
        plsh_attention attention = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .queries = chunk,
                                    .keys = done + chunk,
                                    .head_dim = c->head_dim,
                                    .value_dim = c->value_dim,
                                    .causal = true,
                                    .dtype = narrow ? c->dtype : PLSH_DTYPE_FLOAT32,
                                    .q = part.q_layout,
                                    .k = all.k_layout,
                                    .v = all.v_layout,
                                    .o = part.o_layout,
                                    .head = head,
                                    .head_count = c->heads,
                                    .threads = 1};
        assert_ok(plsh_attend(&attention, part.q, all.k, all.v, part.o, part.lse, &error));
    }
    for (int64_t t = plsh_cache_length(cache); t < c->length; t++) /* too few for a chunk */
        paged.piece[t] = plain.piece[t] = t, paged.size[t] = plain.size[t] = 1;
    test_same(c, &paged, &plain, 0);
    plsh_cache_destroy(cache);
    test_data_free(&paged), test_data_free(&plain);
}

static void test_chunks_are_the_forward_pass(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        check_prefill(c, 37);
        check_prefill(c, 100);
    }
}

/* Chunks of 40 tokens after a long text, in a workspace of the size that plsh_cache_workspace
 * returns. Returns how many of them had a plan of the newest keys only. */
static int64_t run_long(const test_case *c, test_data *data, int threads) {
    plsh_error error;
    plsh_cache_config config = test_config(c);
    config.threads = threads;
    plsh_cache *cache;
    int64_t newest = 0;
    size_t bytes;
    void *workspace;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    assert_ok(plsh_cache_workspace(&cache, 1, 40, &bytes, &error));
    assert_ok(plsh_allocate(&workspace, 1, bytes, "a workspace", &error));
    for (int64_t done = 0; done < c->length; done += 40) {
        plsh_tokens tokens = test_tokens(c, data, done, 40);
        tokens.workspace = workspace;
        tokens.workspace_bytes = bytes;
        assert_ok(plsh_cache_reserve(cache, done + 40, &error));
        newest += plsh_cache_prefill_first_page(cache, &tokens, done + 40, true) > 0;
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    }
    plsh_release(workspace);
    plsh_cache_destroy(cache);
    return newest;
}

/* `exact` after a long text against the definition, in three cases: the newest keys are enough; an
 * old key outweighs the others by more than 80 bits of decay; a key far back has a norm that might;
 * the same bits for any number of threads. */
static void test_long_texts(void **state) {
    (void)state;
    static const plsh_head heads[] = {
        {.method = PLSH_METHOD_EXACT, .partition.decay = {PLSH_DECAY_ALIBI, .a = 3}},
        {.method = PLSH_METHOD_EXACT, .partition.decay = {PLSH_DECAY_ALIBI, .a = 30}},
        {.method = PLSH_METHOD_EXACT,
         .partition.decay = {PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.8}},
        {.method = PLSH_METHOD_EXACT, .partition.decay = {PLSH_DECAY_ALIBI, .a = 10}}};
    const plsh_dtype dtypes[] = {PLSH_DTYPE_FLOAT32, PLSH_DTYPE_FLOAT16, PLSH_DTYPE_BFLOAT16};
    for (int i = 0; i < 7; i++) {
        const bool near = i == 3 || i == 5, far = i == 4 || i == 5;
        const int64_t all = i == 6 ? 4 : 2; /* the last case: two heads for each of K and V */
        const test_case c = {"long texts",  all,    2,      16,    16, near || far ? 3000 : 5000,
                             dtypes[i % 3], i == 1, i == 2, heads, all};
        test_data one = test_data_make(&c, 21), more = test_data_make(&c, 21);
        for (int64_t x = 0; x < 16; x++) {
            const float sign = x % 2 ? -1.0f : 1.0f;
            float *k[] = {one.k + c.length * 16, more.k + c.length * 16}; /* of the flatter head */
            for (int r = 0; r < 2 && near; r++) k[r][2500 * 16 + x] = sign * 30;
            for (int r = 0; r < 2 && far; r++) k[r][100 * 16 + x] = sign * 20;
        }
        test_answer answer = test_answer_make(&c, &one);
        const int64_t newest = run_long(&c, &one, 1);
        print_message("%lld of %lld chunks saw the newest keys alone\n", (long long)newest,
                      (long long)c.length / 40);
        assert_true(far ? newest < 5 : newest >= (near ? 10 : 60));
        test_compare(&c, &one, &answer, plsh_dtype_name(c.dtype));
        run_long(&c, &more, 3);
        test_same(&c, &one, &more, 0);
        test_answer_free(&answer);
        test_data_free(&one), test_data_free(&more);
    }
}

/* A key that float16 cannot hold says nothing of what its row weighs. */
static void test_long_texts_with_keys_too_large(void **state) {
    (void)state;
    static const plsh_head head = {.method = PLSH_METHOD_EXACT,
                                   .partition.decay = {PLSH_DECAY_ALIBI, .a = 3}};
    const test_case c = {"too large",        2,     2,     16,    16, 3000,
                         PLSH_DTYPE_FLOAT16, false, false, &head, 1};
    plsh_error error;
    test_data data = test_data_make(&c, 22);
    plsh_cache_config config = test_config(&c);
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    step_range(cache, &c, &data, 0, 2960);
    assert_ok(plsh_cache_reserve(cache, 3000, &error));
    const plsh_tokens tokens = test_tokens(&c, &data, 2960, 40);
    assert_true(plsh_cache_prefill_first_page(cache, &tokens, 3000, true) > 0);
    data.k[2970 * 16] = copysignf(1e5f, data.q[2970 * 16]); /* and its score is large */
    assert_int_equal(plsh_cache_prefill_first_page(cache, &tokens, 3000, true), -1);
    plsh_cache_destroy(cache);
    test_data_free(&data);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void run_all(const test_case *c, test_data *data, int threads, int64_t chunk) {
    plsh_error error;
    plsh_cache_config config = test_config(c);
    config.threads = threads;
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int64_t done = 0; done < c->length; done += chunk) {
        int64_t count = chunk < c->length - done ? chunk : c->length - done;
        plsh_tokens tokens = test_tokens(c, data, done, count);
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    }
    plsh_cache_destroy(cache);
}

static void test_threads_change_no_bit(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        test_data one = test_data_make(c, 3), more = test_data_make(c, 3);
        for (int64_t chunk = 29; chunk < 100; chunk += 60) { /* decode kernels; tiles */
            run_all(c, &one, 1, chunk);
            for (int threads = 2; threads <= 5; threads += 3) {
                run_all(c, &more, threads, chunk);
                test_same(c, &one, &more, 0);
            }
        }
        test_data_free(&one);
        test_data_free(&more);
    }
}

/* ---- Fork, truncate, replay ------------------------------------------------------------------ */

/* The tokens from `half` on, in a thread of its own, with forks that are made and destroyed. */
static plsh_status run_branch(plsh_cache *cache, const test_case *c, test_data *data, int64_t half,
                              plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t at = half; at < c->length && !status; at++) {
        plsh_cache *twig = NULL;
        plsh_tokens token = test_tokens(c, data, at, 1);
        if (at % 7 == 0) status = plsh_cache_fork(cache, &twig, error);
        if (!status && twig) status = plsh_cache_append(twig, &token, error);
        if (!status) status = plsh_cache_step(cache, &token, NULL, error);
        plsh_cache_destroy(twig);
    }
    return status;
}

/* Two forks of one prefix give the same bits as two separate caches: stepped in turn, and on two
 * threads at once. */
typedef struct branch_run {
    pthread_t thread;
    plsh_cache *cache;
    const test_case *c;
    test_data *data;
    int64_t half;
    plsh_error error;
} branch_run;

static void *start_branch(void *context) {
    branch_run *b = context;
    run_branch(b->cache, b->c, b->data, b->half, &b->error);
    return NULL;
}

static void check_branches(const test_case *c, bool at_once) {
    plsh_error error;
    int64_t half = c->length / 2 + 5;
    test_data left = test_data_make(c, 21), right = test_data_make(c, 22);
    test_data left_alone = test_data_make(c, 21), right_alone = test_data_make(c, 22);
    test_data_copy_prefix(c, &right, &left, half);
    test_data_copy_prefix(c, &right_alone, &left, half);
    plsh_cache_config config = test_config(c);
    plsh_cache *a, *b, *alone;
    assert_ok(plsh_cache_create(&config, &a, &error));
    step_range(a, c, &left, 0, half);
    assert_ok(plsh_cache_fork(a, &b, &error));
    for (int64_t at = half; at < c->length && !at_once; at++) {
        step_range(a, c, &left, at, at + 1);
        step_range(b, c, &right, at, at + 1);
    }
    branch_run branches[2] = {{.cache = a, .c = c, .data = &left, .half = half},
                              {.cache = b, .c = c, .data = &right, .half = half}};
    for (int side = 0; side < 2 && at_once; side++)
        assert_int_equal(
            pthread_create(&branches[side].thread, NULL, start_branch, &branches[side]), 0);
    for (int side = 0; side < 2 && at_once; side++) {
        pthread_join(branches[side].thread, NULL);
        assert_string_equal(branches[side].error.message, "");
    }
    for (int side = 0; side < 2; side++) {
        test_data *data = side ? &right_alone : &left_alone;
        assert_ok(plsh_cache_create(&config, &alone, &error));
        step_range(alone, c, data, 0, half);
        for (int64_t at = half; at < c->length; at++) step_range(alone, c, data, at, at + 1);
        plsh_cache_destroy(alone);
        const test_data *branch = side ? &right : &left;
        test_same(c, data, branch, half);
    }
    plsh_cache_destroy(a);
    plsh_cache_destroy(b);
    test_data_free(&left), test_data_free(&right);
    test_data_free(&left_alone), test_data_free(&right_alone);
}

static void test_branches_are_independent(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) check_branches(c, false);
}

static void test_branches_run_at_once(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) check_branches(c, true);
}

/* Truncated tokens leave no trace: the same tokens again give the same bits. */
static void check_undo(const test_case *c) {
    plsh_error error;
    test_data data = test_data_make(c, 31), wrong = test_data_make(c, 32);
    test_data straight = test_data_make(c, 31);
    plsh_cache_config config = test_config(c);
    config.undo = 70; /* more than a page */
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int64_t at = 0; at < c->length; at++) step_range(cache, c, &straight, at, at + 1);
    plsh_cache_destroy(cache);

    assert_ok(plsh_cache_create(&config, &cache, &error));
    int64_t greatest = 0;
    for (int64_t at = 0, piece = 0; at < c->length; piece++) {
        int64_t ahead = at + (int64_t)(test_number(41, piece) * 60);
        if (ahead > c->length) ahead = c->length;
        if (ahead > at) step_range(cache, c, &wrong, at, ahead);
        if (ahead > greatest) greatest = ahead;
        int64_t least = greatest > 70 ? greatest - 70 : 0;
        assert_true(plsh_cache_earliest(cache) <= least);
        int64_t to = least + (int64_t)(test_number(42, piece) * (double)(at + 1 - least));
        assert_ok(plsh_cache_truncate(cache, to < least ? least : to, &error));
        int64_t until = at + 1 + (int64_t)(test_number(43, piece) * 90);
        for (at = plsh_cache_length(cache); at < until && at < c->length; at++)
            step_range(cache, c, &data, at, at + 1);
        if (at > greatest) greatest = at;
    }
    test_same(c, &data, &straight, 0);
    plsh_cache_destroy(cache);
    test_data_free(&data), test_data_free(&wrong), test_data_free(&straight);
}

static void test_what_is_undone_leaves_no_trace(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) check_undo(c);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* 100,000 tokens: the streaming methods stop growing. */
static void test_memory_stays_bounded(void **state) {
    (void)state;
    plsh_error error;
    static const plsh_scheme schemes[] = {PLSH_SCHEME_INTEGER, PLSH_SCHEME_BINNING,
                                          PLSH_SCHEME_CUTS};
    plsh_head head[7];
    for (int h = 0; h < 3; h++) {
        head[h] =
            (plsh_head){.method = PLSH_METHOD_PLSH, .partition = plsh_partition_default(16, 20)};
        head[h].partition.scheme = schemes[h];
    }
    head[3] = (plsh_head){
        .method = PLSH_METHOD_WINDOW, .partition = plsh_partition_default(16, 1), .window = 200};
    head[4] = (plsh_head){.method = PLSH_METHOD_FIXED, .block = 150};
    head[5] = head[0];
    head[5].method = PLSH_METHOD_MEAN;
    head[6] = (plsh_head){.method = PLSH_METHOD_AUTO,
                          .partition.decay = {.kind = PLSH_DECAY_TRIANGLE, .a = 199.5}};
    plsh_cache_config config = {
        .heads = 7, .head_dim = 4, .head = head, .head_count = 7, .undo = 10, .threads = 1};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    float row[28] = {1}, o[28];
    size_t early = 0, late = 0;
    int64_t longest[7] = {0};
    for (int64_t at = 0; at < 30000; at++) {
        plsh_tokens tokens = {.count = 1, .q = row, .k = row, .v = row, .o = o};
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
        size_t *most = at < 6000 ? &early : &late;
        if (plsh_cache_bytes(cache) > *most) *most = plsh_cache_bytes(cache);
        for (int h = 0; h < 7; h++) {
            int64_t kept = plsh_cache_length(cache) - plsh_cache_first(cache, h);
            if (kept > longest[h]) longest[h] = kept;
        }
    }
    assert_true(late <= early + early / 4);
    /* Kept: the reach, at most two pages more, and undo. The widest of 20 draws of sigma 16 is at
     * most about sigma ln(20 * 100) * 2; the blocks of cuts end independently of each other, so
     * their reach is longer. */
    assert_in_range(longest[0], 64, 16 * 16 + 138);
    assert_in_range(longest[1], 64, 16 * 16 + 138);
    assert_in_range(longest[2], 64, 16 * 24 + 138);
    assert_in_range(longest[3], 200, 200 + 138);
    assert_in_range(longest[4], 150, 150 + 138);
    assert_in_range(longest[6], 200, 200 + 138);
    const char *reason;
    plsh_head ran = plsh_cache_head(cache, 6, &reason);
    assert_int_equal(ran.method, PLSH_METHOD_WINDOW);
    assert_int_equal(ran.window, 200);
    test_message_holds(reason, "the decay is 0");
    plsh_cache_destroy(cache);
}

/* Positions are 64-bit. Dropped keys cannot be restored; the message names the first position that
 * is possible. */
static void test_truncation_names_the_shortest(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head = {
        .method = PLSH_METHOD_WINDOW, .partition = plsh_partition_default(16, 1), .window = 100};
    plsh_cache_config config = {.heads = 1, .head_dim = 4, .head = &head, .head_count = 1};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    float row[4] = {0}, o[4];
    plsh_tokens tokens = {.count = 1, .q = row, .k = row, .v = row, .o = o};
    for (int at = 0; at < 1000; at++) assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    int64_t first = plsh_cache_first(cache, 0), earliest = plsh_cache_earliest(cache);
    assert_int_equal(first, 832); /* swept at 960: 861 is the first in reach */
    assert_int_equal(earliest, first + 99);
    assert_fails(plsh_cache_truncate(cache, earliest - 1, &error), PLSH_STATUS_INVALID, "931");
    assert_int_equal(plsh_cache_length(cache), 1000);
    assert_ok(plsh_cache_truncate(cache, earliest, &error));
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    assert_int_equal(plsh_cache_length(cache), earliest + 1);
    plsh_cache_destroy(cache);
}

typedef struct broken_step {
    const test_case *c;
    test_data *data;
    plsh_cache *cache;
    int64_t from, to;
} broken_step;

static plsh_status fork_and_step(void *context, plsh_error *error) {
    broken_step *step = context;
    plsh_cache *fork;
    plsh_status status = plsh_cache_fork(step->cache, &fork, error);
    plsh_tokens tokens = test_tokens(step->c, step->data, step->from, step->to - step->from);
    if (!status) status = plsh_cache_step(fork, &tokens, NULL, error);
    plsh_cache_destroy(fork);
    return status;
}

static plsh_status create(void *context, plsh_error *error) {
    plsh_cache_config config = test_config(context);
    plsh_cache *cache;
    plsh_status status = plsh_cache_create(&config, &cache, error);
    plsh_cache_destroy(cache);
    return status;
}

/* A step that fails for want of memory, at any of its allocations, changes nothing: done again it
 * gives the same bits. */
static void check_allocations(const test_case *c, int64_t half) {
    plsh_error error = {0};
    test_data data = test_data_make(c, 51), straight = test_data_make(c, 51);
    plsh_cache_config config = test_config(c);
    plsh_cache *cache, *other;
    assert_ok(plsh_cache_create(&config, &other, &error));
    step_range(other, c, &straight, 0, half);
    step_range(other, c, &straight, half, c->length);
    plsh_cache_destroy(other);

    test_every_allocation(create, (void *)c, 5);
    assert_ok(plsh_cache_create(&config, &cache, &error));
    step_range(cache, c, &data, 0, half);
    broken_step step = {c, &data, cache, half, c->length};
    test_every_allocation(fork_and_step, &step, 4);
    assert_ok(plsh_cache_fork(cache, &other, &error)); /* so that the last page is to be copied */
    plsh_tokens tokens = test_tokens(c, &data, half, c->length - half);
    plsh_status status = PLSH_STATUS_NO_MEMORY;
    for (long fails = 0; status != PLSH_STATUS_OK; fails++) {
        plsh_memory_fail_after(fails);
        status = plsh_cache_step(cache, &tokens, NULL, &error);
        plsh_memory_fail_after(-1);
        if (status) assert_int_equal(plsh_cache_length(cache), half);
    }
    test_same(c, &data, &straight, half);
    plsh_cache_destroy(cache);
    plsh_cache_destroy(other);
    test_data_free(&data), test_data_free(&straight);
}

static void test_failed_allocations_change_nothing(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        check_allocations(c, c->length / 2 + 1);
        if (c->length > 2560) check_allocations(c, c->length - 40); /* see test_long_texts */
    }
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* Keys of huge norm far back do not make `exact` read all keys, and the result is exact. */
static void test_exact_reads_little(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[2] = {{.method = PLSH_METHOD_EXACT, .partition = plsh_partition_default(16, 1)},
                         {.method = PLSH_METHOD_DENSE, .partition = plsh_partition_default(16, 1)}};
    plsh_cache_config config = {
        .heads = 2, .kv_heads = 1, .head_dim = 16, .head = head, .head_count = 2};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    enum { N = 20000 };
    float q[32], k[16], v[16], o[32];
    plsh_stats stats = {0};
    double worst = 0;
    for (int64_t at = 0; at < N; at++) {
        for (int x = 0; x < 16; x++) {
            q[x] = q[16 + x] = (float)(4 * test_number(61, at * 16 + x) - 2);
            k[x] =
                (float)(4 * test_number(62, at * 16 + x) - 2) * (at == 3 || at == 9000 ? 300 : 1);
            v[x] = (float)(2 * test_number(63, at * 16 + x) - 1);
        }
        plsh_tokens tokens = {.count = 1, .q = q, .k = k, .v = v, .o = o};
        if (at >= N - 50) {
            assert_ok(plsh_cache_step(cache, &tokens, &stats, &error));
            for (int x = 0; x < 16; x++)
                worst = fmax(worst, fabs((double)o[x] - (double)o[16 + x]));
            assert_in_range(stats.pairs - at - 1, 300, 900); /* (17 + ~12) sigma, and a page */
        } else {
            assert_ok(plsh_cache_append(cache, &tokens, &error));
        }
    }
    assert_true(worst < 2e-6);
    plsh_cache_destroy(cache);
}

/* A larger eps reads less and errs at most 2 max|v| eps / (1 - eps). */
/* Where the decay has long underflowed, one far key with a huge score still takes all the weight.
 */
static void test_exact_sees_far_giants(void **state) {
    (void)state;
    enum { TOKENS = 3000 };
    plsh_error error;
    static const plsh_decay faded[] = {{.kind = PLSH_DECAY_ALIBI, .a = 2},
                                       {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.5, .b = 1},
                                       {.kind = PLSH_DECAY_KERPLE_POWER, .a = 20, .b = 0.5}};
    for (size_t i = 0; i < sizeof faded / sizeof *faded; i++) {
        assert_true(plsh_decay_value(&faded[i], TOKENS - 1) < 1e-300);
        plsh_head head = {.method = PLSH_METHOD_EXACT, .partition.decay = faded[i]};
        plsh_cache_config config = {
            .heads = 1, .head_dim = 2, .scale = 1, .head = &head, .head_count = 1, .threads = 1};
        plsh_cache *cache;
        assert_ok(plsh_cache_create(&config, &cache, &error));
        for (int64_t at = 0; at < TOKENS; at++) {
            float q[2] = {50, 0}, k[2] = {at == 0 ? 50 : 0, 0}, v[2] = {at == 0, 1}, o[2];
            plsh_tokens token = {.count = 1, .q = q, .k = k, .v = v, .o = o};
            assert_ok(plsh_cache_step(cache, &token, NULL, &error));
            if (o[0] != 1 || o[1] != 1)
                fail_msg("decay %zu, token %lld: o = %g, %g", i, (long long)at, (double)o[0],
                         (double)o[1]);
        }
        plsh_cache_destroy(cache);
    }
}

static void test_exact_keeps_its_eps(void **state) {
    (void)state;
    plsh_error error;
    double eps[] = {0, 1e-4, 1e-2, 0.3};
    plsh_head head[5];
    for (int h = 0; h < 4; h++)
        head[h] = (plsh_head){
            .method = PLSH_METHOD_EXACT, .partition = plsh_partition_default(40, 1), .eps = eps[h]};
    head[4] = (plsh_head){.method = PLSH_METHOD_DENSE, .partition = plsh_partition_default(40, 1)};
    int64_t pairs[4] = {0};
    for (int h = 0; h < 4; h++) {
        plsh_head both[2] = {head[h], head[4]};
        plsh_cache_config config = {
            .heads = 2, .kv_heads = 1, .head_dim = 8, .head = both, .head_count = 2};
        plsh_cache *cache;
        assert_ok(plsh_cache_create(&config, &cache, &error));
        for (int64_t at = 0; at < 4000; at++) {
            float q[16], k[8], v[8], o[16];
            for (int x = 0; x < 8; x++) {
                q[x] = q[8 + x] = (float)(2 * test_number(71, at * 8 + x) - 1);
                k[x] = (float)(2 * test_number(72, at * 8 + x) - 1) * (at % 64 == 0 ? 8 : 1);
                v[x] = test_number(73, at * 8 + x) < 0.5 ? -1 : 1;
            }
            plsh_tokens tokens = {.count = 1, .q = q, .k = k, .v = v, .o = o};
            plsh_stats stats;
            assert_ok(plsh_cache_step(cache, &tokens, &stats, &error));
            pairs[h] += stats.pairs - at - 1;
            double bound = 2 * (eps[h] > 0 ? eps[h] : 0x1p-24) / (1 - eps[h]) + 3e-6;
            for (int x = 0; x < 8; x++) assert_true(fabs((double)o[x] - (double)o[8 + x]) <= bound);
        }
        plsh_cache_destroy(cache);
    }
    assert_true(pairs[0] > pairs[1] && pairs[1] > pairs[2] && pairs[2] > pairs[3]);
}

/* A NaN in a key makes the queries that see it NaN, and no others. */
static void test_not_finite(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[3] = {
        {.method = PLSH_METHOD_EXACT, .partition = plsh_partition_default(4, 1)},
        {.method = PLSH_METHOD_WINDOW, .partition = plsh_partition_default(4, 1), .window = 10},
        {.method = PLSH_METHOD_DENSE, .partition = plsh_partition_default(4, 1)}};
    plsh_cache_config config = {
        .heads = 3, .kv_heads = 1, .head_dim = 2, .head = head, .head_count = 3};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    float q[3 * 200 * 2], k[200 * 2], v[200 * 2], o[3 * 200 * 2];
    for (int i = 0; i < 400; i++) k[i] = v[i] = 0.5f;
    for (int i = 0; i < 1200; i++) q[i] = 1;
    k[2 * 50] = NAN;
    plsh_tokens tokens = {.count = 200, .q = q, .k = k, .v = v, .o = o};
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    for (int i = 0; i < 200; i++) {
        assert_int_equal(isnan(o[2 * i]) != 0, i >= 50);
        assert_int_equal(isnan(o[400 + 2 * i]) != 0, i >= 50 && i < 60);
        assert_int_equal(isnan(o[800 + 2 * i]) != 0, i >= 50);
    }
    plsh_cache_destroy(cache);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void test_bad_arguments(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head = {.method = PLSH_METHOD_AUTO, .partition = plsh_partition_default(16, 1)};
    const plsh_cache_config good = {
        .heads = 4, .kv_heads = 2, .head_dim = 4, .head = &head, .head_count = 1};
    plsh_cache *cache;
    plsh_cache_config bad = good;
    bad.kv_heads = 3;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID, "kv_heads is 3");
    assert_null(cache);
    bad = good, bad.head_dim = 513;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID, "head_dim is 513");
    bad = good, bad.undo = -1;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID, "undo");
    bad = good, bad.head_count = 3;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID, "head_count is 3");
    bad = good, bad.isa = "mmx";
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_UNSUPPORTED, "mmx");
    bad = good, bad.scale = INFINITY;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID, "scale");
    plsh_head wrong = {.method = PLSH_METHOD_WINDOW, .partition = plsh_partition_default(16, 1)};
    bad = good, bad.head = &wrong;
    assert_fails(plsh_cache_create(&bad, &cache, &error), PLSH_STATUS_INVALID,
                 "head 0: window is 0");

    assert_ok(plsh_cache_create(&good, &cache, &error));
    const char *reason;
    assert_int_equal(plsh_cache_head(cache, 0, &reason).method, PLSH_METHOD_EXACT);
    test_message_holds(reason, "exact");
    float rows[64] = {0}, o[64];
    plsh_tokens tokens = {.count = 2, .q = rows, .k = rows, .v = rows, .o = o};
    assert_fails(plsh_cache_attend(cache, &tokens, NULL, &error), PLSH_STATUS_INVALID,
                 "only 0 tokens");
    tokens.dtype = PLSH_DTYPE_FLOAT16;
    assert_fails(plsh_cache_append(cache, &tokens, &error), PLSH_STATUS_INVALID, "dtype");
    tokens.dtype = PLSH_DTYPE_FLOAT32, tokens.v = NULL;
    assert_fails(plsh_cache_step(cache, &tokens, NULL, &error), PLSH_STATUS_INVALID, "k or v");
    tokens.v = rows, tokens.o = NULL;
    assert_fails(plsh_cache_step(cache, &tokens, NULL, &error), PLSH_STATUS_INVALID, "q or o");
    assert_int_equal(plsh_cache_length(cache), 0);
    assert_fails(plsh_cache_truncate(cache, 1, &error), PLSH_STATUS_INVALID, "0 to 0");
    tokens.count = 0;
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    plsh_cache_destroy(cache);
    plsh_cache_destroy(NULL);
}

static void test_labels_end(void **state) {
    (void)state;
    plsh_error error;
    int32_t labels[5] = {0, 1, 0, 1, 0};
    plsh_head head = {
        .method = PLSH_METHOD_PLSH,
        .partition = {
            .scheme = PLSH_SCHEME_LABELS, .samples = 1, .labels = labels, .label_count = 5}};
    plsh_cache_config config = {.heads = 1, .head_dim = 1, .head = &head, .head_count = 1};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    float q[6] = {0}, v[6] = {1, 2, 3, 4, 5, 6}, o[6];
    plsh_tokens tokens = {.count = 6, .q = q, .k = q, .v = v, .o = o};
    assert_fails(plsh_cache_step(cache, &tokens, NULL, &error), PLSH_STATUS_INVALID,
                 "the heads serve 5");
    tokens.count = 5;
    assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    const float expected[5] = {1, 2, 2, 3, 3};
    for (int i = 0; i < 5; i++) assert_float_equal(o[i], expected[i], 1e-6);
    plsh_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_definition),
        cmocka_unit_test(test_equals_one_forward_pass),
        cmocka_unit_test(test_chunks_are_the_forward_pass),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_long_texts_with_keys_too_large),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_branches_are_independent),
        cmocka_unit_test(test_branches_run_at_once),
        cmocka_unit_test(test_what_is_undone_leaves_no_trace),
        cmocka_unit_test(test_memory_stays_bounded),
        cmocka_unit_test(test_truncation_names_the_shortest),
        cmocka_unit_test(test_failed_allocations_change_nothing),
        cmocka_unit_test(test_exact_reads_little),
        cmocka_unit_test(test_exact_sees_far_giants),
        cmocka_unit_test(test_exact_keeps_its_eps),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_labels_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
