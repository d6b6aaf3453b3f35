/* model: sessions: chunks, batches, forks, truncation, files, and what they refuse. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

enum { N = 100, VOCABULARY = 64, HIDDEN = 32 };

typedef struct fixture {
    const char *folder;
    plsh_model *model;
    int32_t ids[N];
} fixture;

static fixture f;

static int set_up(void **state) {
    plsh_error error;
    (void)state;
    f.folder = tiny_llama();
    assert_ok(plsh_model_open(&f.model, f.folder, NULL, &error));
    for (int i = 0; i < N; i++) f.ids[i] = (i * 37 + i * i * 11) % VOCABULARY;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    plsh_model_close(f.model);
    tiny_model_remove(f.folder);
    return 0;
}

static plsh_session *make(const plsh_session_options *options) {
    plsh_session *session;
    plsh_error error;
    assert_ok(plsh_session_create(&session, f.model, options, &error));
    return session;
}

static void feed(plsh_session *session, const int32_t *ids, int64_t count, float *hidden,
                 float *logits) {
    plsh_error error;
    plsh_step step = {.ids = ids, .count = count, .hidden = hidden, .logits = logits};
    assert_ok(plsh_session_step(session, &step, &error));
}

static double difference(const float *a, const float *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* However the tokens come, the hidden states agree to rounding. */
static void test_steps(void **state) {
    (void)state;
    static float whole[N * HIDDEN], parts[N * HIDDEN];
    plsh_head head;
    plsh_error error;
    static const plsh_method methods[] = {PLSH_METHOD_NONE, PLSH_METHOD_EXACT, PLSH_METHOD_WINDOW,
                                          PLSH_METHOD_PLSH};
    for (int m = 0; m < 4; m++) {
        plsh_head heads[4];
        assert_ok(plsh_model_heads(f.model, methods[m], 0, heads, &error));
        head = heads[1];
        head.window = 9;
        plsh_layer_attention attention = {.head = &head, .head_count = 1};
        plsh_session_options options = {.attention = &attention, .attention_count = 1};
        plsh_session *session = make(&options);
        feed(session, f.ids, N, whole, NULL);
        plsh_session_destroy(session);
        for (int64_t each = 1; each < N; each += 16) {
            options.chunk = each;
            session = make(&options);
            for (int64_t at = 0; at < N; at += 2 * each) {
                int64_t count = N - at < 2 * each ? N - at : 2 * each;
                feed(session, f.ids + at, count, parts + at * HIDDEN, NULL);
            }
            double most = difference(whole, parts, N * HIDDEN);
            if (!(most < 2e-5)) fail_msg("method %d, chunks of %d: %g", m, (int)each, most);
            plsh_session_destroy(session);
        }
    }
}

/* A batch gives what single sessions give. */
static void test_batch(void **state) {
    (void)state;
    enum { B = 5 };
    plsh_session *alone[B], *batch[B];
    float one[B][VOCABULARY], all[B][VOCABULARY];
    plsh_step steps[B];
    plsh_error error;
    for (int b = 0; b < B; b++) {
        alone[b] = make(NULL);
        batch[b] = make(NULL);
        feed(alone[b], f.ids + b, 3 + b, NULL, NULL);
        steps[b] = (plsh_step){.ids = f.ids + b, .count = 3 + b};
    }
    assert_ok(plsh_session_step_batch(batch, steps, B, &error));
    for (int i = 0; i < 4; i++) {
        for (int b = 0; b < B; b++) {
            feed(alone[b], f.ids + 40 + b + i, 1, NULL, one[b]);
            steps[b] = (plsh_step){.ids = f.ids + 40 + b + i, .count = 1, .logits = all[b]};
        }
        assert_ok(plsh_session_step_batch(batch, steps, B, &error));
        for (int b = 0; b < B; b++) {
            assert_true(difference(one[b], all[b], VOCABULARY) < 2e-5);
            assert_int_equal(plsh_session_length(batch[b]), 4 + b + i);
        }
    }
    for (int b = 0; b < B; b++) {
        plsh_session_destroy(alone[b]);
        plsh_session_destroy(batch[b]);
    }
}

/* Prompts, chunks longer than a pass and single tokens in one call, of sessions with different
 * attention, chunks and taps: the hidden states and logits of single steps. Up to 4 tokens in all
 * have the same bits. */
enum { MIXED = 6 };

static void count_rows(void *context, const plsh_model_qkv *qkv) {
    *(int64_t *)context += qkv->layer == 0 ? qkv->count : 0;
}

static void make_mixed(plsh_session **sessions, int64_t *seen) {
    static plsh_head heads[4];
    plsh_error error;
    assert_ok(plsh_model_heads(f.model, PLSH_METHOD_EXACT, 0, heads, &error));
    plsh_layer_attention exact = {.head = &heads[1], .head_count = 1},
                         unrotated = {.head = &heads[1], .head_count = 1, .drop_rope = true};
    plsh_session_options options[MIXED] = {{.chunk = 48},
                                           {.attention = &exact, .attention_count = 1},
                                           {.attention = &unrotated, .attention_count = 1},
                                           {.kv = PLSH_DTYPE_FLOAT16},
                                           {.tap = {count_rows, seen, true}},
                                           {.chunk = 3}};
    for (int i = 0; i < MIXED; i++) sessions[i] = make(&options[i]);
}

static void test_mixed_batch(void **state) {
    (void)state;
    static const int64_t counts[][MIXED] = {{1, 1, 1, 1, 0, 0},   {2, 1, 1, 0, 0, 0},
                                            {70, 1, 40, 3, 2, 7}, {1, 33, 1, 60, 1, 1},
                                            {1, 1, 1, 1, 1, 1},   {5, 5, 1, 1, 5, 1}};
    static float one[MIXED][N * HIDDEN], all[MIXED][N * HIDDEN];
    static float one_logits[MIXED][VOCABULARY], all_logits[MIXED][VOCABULARY];
    int64_t at[MIXED] = {0}, seen = 0, seen_alone = 0;
    plsh_session *alone[MIXED], *batch[MIXED];
    plsh_error error;
    make_mixed(alone, &seen_alone);
    make_mixed(batch, &seen);
    bool few = true; /* so far */
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        plsh_step steps[MIXED];
        int64_t some = 0, tokens = 0;
        for (int i = 0; i < MIXED && counts[c][i] > 0; i++, some++) {
            const int32_t *ids = f.ids + (at[i] + 11 * i) % 40;
            feed(alone[i], ids, counts[c][i], one[i], one_logits[i]);
            steps[i] = (plsh_step){.ids = ids,
                                   .count = counts[c][i],
                                   .hidden = all[i],
                                   .logits = i == 1 ? NULL : all_logits[i]};
            at[i] += counts[c][i];
            tokens += counts[c][i];
        }
        assert_ok(plsh_session_step_batch(batch, steps, some, &error));
        few = few && tokens <= 4;
        for (int i = 0; i < some; i++) {
            const size_t values = (size_t)counts[c][i] * HIDDEN;
            if (!(difference(one[i], all[i], values) < 2e-5) ||
                (i != 1 && !(difference(one_logits[i], all_logits[i], VOCABULARY) < 2e-5)))
                fail_msg("call %d, session %d", (int)c, i);
            if (few) assert_memory_equal(one[i], all[i], values * sizeof(float));
            assert_int_equal(plsh_session_length(batch[i]), at[i]);
        }
    }
    assert_int_equal(seen, at[4]);
    plsh_session *twice[] = {batch[0], batch[1], batch[0]};
    plsh_step step = {.ids = f.ids, .count = 1}, three[] = {step, step, step};
    assert_fails(plsh_session_step_batch(twice, three, 3, &error), PLSH_STATUS_INVALID,
                 "step 2 is of a session that has one");
    assert_ok(plsh_session_step_batch(twice, three, 2, &error));
    for (int i = 0; i < MIXED; i++) {
        plsh_session_destroy(alone[i]);
        plsh_session_destroy(batch[i]);
    }
}

static void test_fork_and_truncate(void **state) {
    (void)state;
    float first[VOCABULARY], again[VOCABULARY], other[VOCABULARY];
    plsh_error error;
    plsh_session *session = make(NULL), *fork;
    feed(session, f.ids, 60, NULL, NULL);
    assert_ok(plsh_session_fork(session, &fork, &error));
    feed(session, f.ids + 60, 5, NULL, first);
    feed(fork, f.ids + 10, 5, NULL, other);
    assert_true(difference(first, other, VOCABULARY) > 1e-4);
    assert_ok(plsh_session_truncate(session, 60, &error));
    feed(session, f.ids + 60, 5, NULL, again);
    assert_memory_equal(first, again, sizeof(first));
    assert_fails(plsh_session_truncate(session, 70, &error), PLSH_STATUS_INVALID, "0 to 65");
    plsh_session_destroy(session);
    plsh_session_destroy(fork);
}

/* After a fork the child continues the sessions with the same bits; it does not wait for the
 * parent's threads. */
static void test_process_fork(void **state) {
    (void)state;
    static float ours[VOCABULARY], theirs[VOCABULARY];
    plsh_error error;
    plsh_model *model;
    plsh_session *session;
    assert_ok(plsh_model_open(&model, f.folder, &(plsh_model_options){.threads = 2}, &error));
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    feed(session, f.ids, 50, NULL, NULL);
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    const plsh_step step = {.ids = f.ids + 50, .count = 40, .logits = ours};
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a child that hangs is ended by this */
        bool good = plsh_session_step(session, &step, &error) == PLSH_STATUS_OK &&
                    write(ends[1], ours, sizeof ours) == (ssize_t)sizeof ours;
        _exit(good ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(read(ends[0], theirs, sizeof theirs), sizeof theirs);
    assert_ok(plsh_session_step(session, &step, &error));
    assert_memory_equal(ours, theirs, sizeof ours);
    close(ends[0]), close(ends[1]);
    plsh_session_destroy(session);
    plsh_model_close(model);
}

static const char *session_path(void) {
    static char path[128];
    snprintf(path, sizeof(path), "%s/session", f.folder);
    return path;
}

static void test_save_and_load(void **state) {
    (void)state;
    const char *path = session_path();
    float before[VOCABULARY], after[VOCABULARY];
    plsh_error error;
    plsh_session *session = make(NULL), *loaded;
    feed(session, f.ids, 33, NULL, NULL);
    assert_ok(plsh_session_save(session, path, &error));
    assert_ok(plsh_session_save(session, path, &error)); /* over the first */
    feed(session, f.ids + 33, 3, NULL, before);
    assert_ok(plsh_session_load(&loaded, f.model, NULL, path, &error));
    assert_int_equal(plsh_session_length(loaded), 33);
    feed(loaded, f.ids + 33, 3, NULL, after);
    assert_memory_equal(before, after, sizeof(before));
    plsh_session_destroy(session);
    plsh_session_destroy(loaded);
    unlink(path);
    assert_fails(plsh_session_load(&loaded, f.model, NULL, path, &error), PLSH_STATUS_IO,
                 "No such file");
    assert_null(loaded);
}

/* A model of the same shapes with another number in its last weights, and the same one without its
 * rotation: both would continue with wrong keys. */
static void test_session_is_bound_to_its_model(void **state) {
    (void)state;
    const char *path = session_path(), *folder = tiny_llama();
    char weights[256];
    plsh_error error;
    plsh_model *other, *same;
    plsh_session *session = make(NULL), *loaded;
    plsh_head head = {.method = PLSH_METHOD_NONE};
    plsh_layer_attention attention = {.head = &head, .head_count = 1};
    plsh_session_options options = {.attention = &attention, .attention_count = 1};
    feed(session, f.ids, 5, NULL, NULL);
    assert_ok(plsh_session_save(session, path, &error));
    assert_ok(plsh_model_open(&same, folder, NULL, &error));
    assert_ok(plsh_session_load(&loaded, same, NULL, path, &error));
    plsh_session_destroy(loaded);
    plsh_model_close(same);
    snprintf(weights, sizeof(weights), "%s/model.safetensors", folder);
    FILE *file = fopen(weights, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -4, SEEK_END), 0);
    fputc('x', file);
    fclose(file);
    assert_ok(plsh_model_open(&other, folder, NULL, &error));
    assert_fails(plsh_session_load(&loaded, other, NULL, path, &error), PLSH_STATUS_INVALID,
                 "saved by another model");
    assert_null(loaded);
    plsh_model_close(other);
    tiny_model_remove(folder);
    plsh_session_destroy(session);
    assert_ok(plsh_session_create(&session, f.model, &options, &error));
    feed(session, f.ids, 5, NULL, NULL);
    assert_ok(plsh_session_save(session, path, &error));
    attention.drop_rope = true;
    assert_fails(plsh_session_load(&loaded, f.model, &options, path, &error), PLSH_STATUS_INVALID,
                 "RoPE in other layers");
    plsh_session_destroy(session);
    unlink(path);
}

/* An existing file stays if the new one cannot be written; folders of earlier versions are
 * refused. */
static void test_session_is_kept(void **state) {
    (void)state;
    const char *path = session_path();
    plsh_error error;
    plsh_session *session = make(NULL), *loaded;
    struct rlimit before, small;
    feed(session, f.ids, 7, NULL, NULL);
    assert_ok(plsh_session_save(session, path, &error));
    feed(session, f.ids + 7, 7, NULL, NULL);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 2048;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    plsh_status status = plsh_session_save(session, path, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, PLSH_STATUS_IO);
    assert_ok(plsh_session_load(&loaded, f.model, NULL, path, &error));
    assert_int_equal(plsh_session_length(loaded), 7);
    plsh_session_destroy(loaded);
    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_fails(plsh_session_save(session, path, &error), PLSH_STATUS_INVALID,
                 "is a folder, as earlier versions");
    assert_fails(plsh_session_load(&loaded, f.model, NULL, path, &error), PLSH_STATUS_FORMAT,
                 "an earlier version saved it");
    assert_int_equal(rmdir(path), 0);
    plsh_session_destroy(session);
}

/* Every byte counts, and every length but its own. */
static void test_damaged_session(void **state) {
    (void)state;
    const char *path = session_path();
    plsh_error error;
    plsh_session *session = make(NULL), *loaded;
    feed(session, f.ids, 3, NULL, NULL);
    assert_ok(plsh_session_save(session, path, &error));
    plsh_session_destroy(session);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    for (long at = 0; at < size; at += at < 64 ? 1 : 7) {
        fseek(file, at, SEEK_SET);
        const int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 4, file);
        fflush(file);
        assert_int_not_equal(plsh_session_load(&loaded, f.model, NULL, path, &error), 0);
        assert_null(loaded);
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fflush(file);
    }
    fclose(file);
    assert_ok(plsh_session_load(&loaded, f.model, NULL, path, &error));
    plsh_session_destroy(loaded);
    for (long length = size - 1; length >= 0; length -= length < 80 ? 1 : 61) {
        assert_int_equal(truncate(path, length), 0);
        assert_int_not_equal(plsh_session_load(&loaded, f.model, NULL, path, &error), 0);
    }
    unlink(path);
}

static void test_bad_steps(void **state) {
    (void)state;
    plsh_error error;
    plsh_session *session = make(NULL);
    int32_t bad[] = {1, VOCABULARY, -1};
    plsh_step step = {.ids = bad, .count = 2};
    assert_fails(plsh_session_step(session, &step, &error), PLSH_STATUS_INVALID,
                 "token 1 is 64; this model has 0 to 63");
    step = (plsh_step){.ids = bad, .count = 0};
    assert_fails(plsh_session_step(session, &step, &error), PLSH_STATUS_INVALID, "0 tokens");
    assert_int_equal(plsh_session_length(session), 0);
    plsh_session_destroy(session);
    plsh_head head = {.method = PLSH_METHOD_NONE};
    plsh_layer_attention attention[3] = {{.head = &head, .head_count = 3}};
    plsh_session_options options = {.attention = attention, .attention_count = 1};
    assert_fails(plsh_session_create(&session, f.model, &options, &error), PLSH_STATUS_INVALID,
                 "head_count is 3; 1 or 4");
    options.attention_count = 3;
    assert_fails(plsh_session_create(&session, f.model, &options, &error), PLSH_STATUS_INVALID,
                 "attention for 3 layers; 0, 1, or one for each of 2");
    options = (plsh_session_options){.chunk = -1};
    assert_fails(plsh_session_create(&session, f.model, &options, &error), PLSH_STATUS_INVALID,
                 "chunk is -1");
}

/* Memory that runs out anywhere leaves the session as it was. */
static plsh_status step_once(void *context, plsh_error *error) {
    float logits[VOCABULARY];
    plsh_session *session;
    (void)context;
    plsh_status status = plsh_session_create(&session, f.model, NULL, error);
    if (status) return status;
    plsh_step step = {.ids = f.ids, .count = 20, .logits = logits};
    status = plsh_session_step(session, &step, error);
    if (status) assert_int_equal(plsh_session_length(session), 0);
    plsh_session_destroy(session);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    test_every_allocation(step_once, NULL, 10);
}

static void test_sampler(void **state) {
    (void)state;
    plsh_error error;
    int counts[4] = {0};
    plsh_sampler sampler = {.temperature = 1.0, .seed = 3};
    for (uint64_t i = 0; i < 20000; i++) {
        float logits[] = {logf(0.1f), logf(0.4f), logf(0.3f), logf(0.2f)};
        int32_t token;
        assert_ok(plsh_sampler_choose(&sampler, logits, 4, i, &token, &error));
        counts[token]++;
    }
    static const double p[] = {0.1, 0.4, 0.3, 0.2};
    double chi = 0;
    for (int t = 0; t < 4; t++) chi += pow(counts[t] - 20000 * p[t], 2) / (20000 * p[t]);
    assert_true(chi < 21.1); /* 3 degrees of freedom: false alarm 1e-4; the seed is fixed */
    sampler.top_k = 2;
    for (uint64_t i = 0; i < 100; i++) {
        float logits[] = {logf(0.1f), logf(0.4f), logf(0.3f), logf(0.2f)};
        int32_t token;
        assert_ok(plsh_sampler_choose(&sampler, logits, 4, i, &token, &error));
        assert_true(token == 1 || token == 2);
    }
    sampler = (plsh_sampler){.temperature = 1.0, .top_p = 0.35, .seed = 3};
    float logits[] = {logf(0.1f), logf(0.4f), logf(0.3f), logf(0.2f)};
    int32_t token;
    assert_ok(plsh_sampler_choose(&sampler, logits, 4, 1, &token, &error));
    assert_int_equal(token, 1);
    float bad[] = {0.0f, NAN};
    assert_fails(plsh_sampler_choose(&sampler, bad, 2, 1, &token, &error), PLSH_STATUS_NOT_FINITE,
                 "token 1");
}

static void test_score(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static float logits[COUNT];
    double sum = 0, entropy = 0;
    for (int i = 0; i < COUNT; i++) logits[i] = (float)(10.0 * sin(i * 0.7));
    for (int i = 0; i < COUNT; i++) sum += exp((double)logits[i]);
    int64_t rank = 0;
    for (int i = 0; i < COUNT; i++) {
        double p = exp((double)logits[i]) / sum;
        entropy -= p * log(p);
        rank += logits[i] > logits[5];
    }
    plsh_score score = plsh_model_score(logits, COUNT, 5);
    assert_true(fabs(score.nll - (log(sum) - (double)logits[5])) < 1e-6);
    assert_true(fabs(score.entropy - entropy) < 1e-5);
    assert_int_equal(score.rank, rank);
    for (int i = 0; i < COUNT; i++) logits[i] = 1.0f; /* of equal ones the first is the best */
    assert_int_equal(plsh_model_score(logits, COUNT, 0).rank, 0);
    assert_int_equal(plsh_model_score(logits, COUNT, 7).rank, 7);
    logits[5] = NAN; /* no number is no success */
    score = plsh_model_score(logits, COUNT, 5);
    assert_true(isnan(score.nll));
    assert_int_equal(score.rank, COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_batch),
                                       cmocka_unit_test(test_mixed_batch),
                                       cmocka_unit_test(test_fork_and_truncate),
                                       cmocka_unit_test(test_process_fork),
                                       cmocka_unit_test(test_save_and_load),
                                       cmocka_unit_test(test_session_is_bound_to_its_model),
                                       cmocka_unit_test(test_session_is_kept),
                                       cmocka_unit_test(test_damaged_session),
                                       cmocka_unit_test(test_bad_steps),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_sampler),
                                       cmocka_unit_test(test_score)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
