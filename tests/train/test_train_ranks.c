/* train: gradients, steps, hidden states and checkpoints over ranks are those of one process. The
 * ranks are threads (tests/support/thread_ranks.h); tests/mpi does the same with MPI. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/thread_ranks.h"
#include "support/tiny_model.h"

enum { CONTEXT = 24, BATCH = 3, STEPS = 20, VOCABULARY = 64, MOST = 16, PATH = 256 };

static const char *model_path;

/* Groups x ranks. */
static const int meshes[][2] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 7}, {2, 2}, {3, 1}};
enum { MESHES = sizeof(meshes) / sizeof(*meshes) };

static void fill_ids(int32_t *ids, int64_t count, int64_t step) {
    for (int64_t i = 0; i < count; i++) {
        int64_t x = i + step * 7;
        ids[i] = (int32_t)((x * x + 3 * x + i / 5) % VOCABULARY);
    }
}

/* What a run is, and what it gave. */
typedef struct run {
    plsh_train_options options;
    int64_t steps;
    double loss[STEPS], norm[STEPS];
    float *value, *gradient; /* of the first rank; gradients those of the first step */
    size_t numbers;
    plsh_status status[MOST];
    plsh_error error[MOST];
    bool apart; /* the ranks' losses or weights were not the same bits */
    double losses[MOST][STEPS];
    float first_value[MOST];
} run;

static size_t count_numbers(const plsh_trainer *t) {
    size_t count = 0;
    for (size_t i = 0; i < plsh_trainer_count(t); i++) {
        plsh_trained p = plsh_trainer_at(t, i);
        count += (size_t)((p.rows ? p.rows : 1) * p.columns);
    }
    return count;
}

static void copy_numbers(const plsh_trainer *t, bool gradients, float *to) {
    for (size_t i = 0; i < plsh_trainer_count(t); i++) {
        plsh_trained p = plsh_trainer_at(t, i);
        size_t count = (size_t)((p.rows ? p.rows : 1) * p.columns);
        memcpy(to, gradients ? p.gradient : p.value, count * sizeof(float));
        to += count;
    }
}

static plsh_status take_step(plsh_trainer *t, run *r, int64_t step, bool first, double *loss,
                             plsh_error *error) {
    const int64_t micro_batches = r->options.micro_batches > 0 ? r->options.micro_batches : 1;
    int32_t ids[CONTEXT * BATCH];
    double norm = 0;
    plsh_status status = PLSH_STATUS_OK;
    *loss = 0;
    for (int64_t a = 0; !status && a < micro_batches; a++) {
        double one = 0;
        fill_ids(ids, r->options.context * r->options.batch, step * micro_batches + a);
        status = plsh_trainer_accumulate(t, ids, r->options.context, r->options.batch, &one, error);
        *loss += one / (double)micro_batches;
    }
    if (!status && first && step == 0) copy_numbers(t, true, r->gradient);
    plsh_update update = {
        .learning_rate = 1e-3, .weight_decay = 0.01, .clip = 1.0, .accumulated = micro_batches};
    if (!status) status = plsh_trainer_update(t, &update, &norm, error);
    if (first) r->norm[step] = norm;
    return status;
}

static void train(const plsh_ranks *ranks, void *context) {
    run *r = context;
    const bool first = plsh_ranks_first(ranks);
    const int number = ranks ? (int)(ranks->group * ranks->ranks + ranks->rank) : 0;
    plsh_train_options options = r->options;
    plsh_trainer *t;
    options.ranks = ranks;
    options.threads = 1;
    plsh_error *error = &r->error[number];
    plsh_status status = plsh_trainer_create(&t, model_path, &options, error);
    if (!status && first) {
        r->numbers = count_numbers(t);
        r->value = malloc(r->numbers * sizeof(float));
        r->gradient = malloc(r->numbers * sizeof(float));
    }
    for (int64_t s = 0; !status && s < r->steps; s++) {
        status = take_step(t, r, s, first, &r->losses[number][s], error);
        if (first) r->loss[s] = r->losses[number][s];
    }
    if (!status && first) copy_numbers(t, false, r->value);
    if (!status) r->first_value[number] = plsh_trainer_at(t, 0).value[5];
    plsh_trainer_destroy(t);
    r->status[number] = status;
}

static run run_alone(plsh_train_options options, int64_t steps) {
    run r = {.options = options, .steps = steps};
    train(NULL, &r);
    if (r.status[0]) fail_msg("%s", r.error[0].message);
    return r;
}

static run run_ranks(const int mesh[2], plsh_train_options options, int64_t steps) {
    run r = {.options = options, .steps = steps};
    test_ranks_run(mesh[0], mesh[1], train, &r);
    for (int i = 0; i < mesh[0] * mesh[1]; i++) {
        if (r.status[i]) fail_msg("%s", r.error[i].message);
        assert_memory_equal(r.losses[i], r.losses[0], sizeof(r.losses[0]));
        assert_true(r.first_value[i] == r.first_value[0]);
    }
    return r;
}

static void free_run(run *r) {
    free(r->value);
    free(r->gradient);
}

/* The largest difference, of the largest number. */
static double difference(const float *a, const float *b, size_t count) {
    double most = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

static void compare(const char *what, const int mesh[2], const run *many, const run *one) {
    double loss = 0, norm = 0;
    assert_int_equal(many->numbers, one->numbers);
    for (int64_t s = 0; s < one->steps; s++) {
        loss = fmax(loss, fabs(many->loss[s] - one->loss[s]) / one->loss[s]);
        norm = fmax(norm, fabs(many->norm[s] - one->norm[s]) / one->norm[s]);
    }
    double gradient = difference(many->gradient, one->gradient, one->numbers);
    print_message("%-10s %dx%d: losses %.2g, norms %.2g, first gradients %.2g\n", what, mesh[0],
                  mesh[1], loss, norm, gradient);
    assert_true(loss <= 1e-6);
    assert_true(norm <= 1e-4);
    assert_true(gradient <= 1e-5);
}

static void check_case(const char *what, plsh_train_options options) {
    run one = run_alone(options, STEPS);
    for (int i = 0; i < MESHES; i++) {
        run many = run_ranks(meshes[i], options, STEPS), again;
        compare(what, meshes[i], &many, &one);
        if (i == 4) {
            again = run_ranks(meshes[i], options, STEPS);
            assert_memory_equal(again.value, many.value, many.numbers * sizeof(float));
            free_run(&again);
        }
        free_run(&many);
    }
    free_run(&one);
}

/* ---- Training -------------------------------------------------------------------------------- */

static void test_own_attention(void **state) {
    (void)state;
    check_case("own", (plsh_train_options){.context = CONTEXT, .batch = BATCH, .seed = 3});
}

static void test_sampled(void **state) {
    (void)state;
    plsh_head head[4];
    plsh_error error;
    assert_ok(plsh_heads_alibi(4, PLSH_METHOD_PLSH, head, &error));
    for (int h = 0; h < 4; h++) head[h].partition.samples = 5;
    plsh_layer_attention attention = {.head = head, .head_count = 4};
    check_case("sampled", (plsh_train_options){.context = CONTEXT,
                                               .batch = BATCH,
                                               .attention = &attention,
                                               .attention_count = 1,
                                               .dropout = 0.1,
                                               .recompute = true,
                                               .micro_batches = 2,
                                               .seed = 4});
}

static void test_adapters(void **state) {
    (void)state;
    check_case(
        "adapters",
        (plsh_train_options){
            .context = CONTEXT, .batch = BATCH, .lora_rank = 4, .lora_dropout = 0.2, .seed = 5});
}

static void test_slopes(void **state) {
    (void)state;
    plsh_head head[4];
    plsh_error error;
    assert_ok(plsh_heads_alibi(4, PLSH_METHOD_EXACT, head, &error));
    plsh_layer_attention attention = {.head = head, .head_count = 4};
    check_case("slopes", (plsh_train_options){.context = CONTEXT,
                                              .batch = BATCH,
                                              .attention = &attention,
                                              .attention_count = 1,
                                              .learn_slopes = true,
                                              .micro_batches = 2,
                                              .seed = 4});
}

/* The dropout mask is the same, whichever rank has the rows and windows. */
static void test_dropped_weights(void **state) {
    (void)state;
    const char *kept = model_path;
    model_path = tiny_llama_dropping(0.2);
    check_case("dropped", (plsh_train_options){.context = CONTEXT,
                                               .batch = BATCH,
                                               .dropout = -1,
                                               .recompute = true,
                                               .micro_batches = 2,
                                               .seed = 7});
    tiny_model_remove(model_path);
    model_path = kept;
}

/* More ranks than rows. */
static void test_no_rows(void **state) {
    (void)state;
    const int mesh[2] = {1, 7};
    plsh_train_options options = {.context = 5, .batch = 1, .dropout = 0.1, .seed = 6};
    run one = run_alone(options, 3), many = run_ranks(mesh, options, 3);
    compare("no rows", mesh, &many, &one);
    free_run(&one);
    free_run(&many);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void open_wrong(const plsh_ranks *ranks, void *context) {
    run *r = context;
    plsh_trainer *t;
    plsh_train_options options = {.context = 8, .batch = 1, .threads = 1, .ranks = ranks};
    const char *path = ranks->rank == 1 ? "no-such-folder" : model_path;
    r->status[ranks->rank] = plsh_trainer_create(&t, path, &options, &r->error[ranks->rank]);
    plsh_trainer_destroy(t);
}

/* Too few windows for the groups, an update before all micro-batches, one micro-batch too many. */
static void order_wrong(const plsh_ranks *ranks, void *context) {
    run *r = context;
    plsh_trainer *t;
    plsh_error error, *first = &r->error[ranks->group];
    plsh_train_options options = {
        .context = 8, .batch = 2, .threads = 1, .ranks = ranks, .micro_batches = 2};
    plsh_update update = {.learning_rate = 1e-3};
    int32_t ids[16];
    double loss, norm;
    fill_ids(ids, 16, 0);
    plsh_status status = plsh_trainer_create(&t, model_path, &options, &error);
    if (!status) r->status[3 * ranks->group] = plsh_trainer_accumulate(t, ids, 8, 1, &loss, first);
    for (int pass = 0; !status && pass < 2; pass++) {
        r->status[3 * ranks->group + 1] = plsh_trainer_update(t, &update, &norm, &error);
        status = plsh_trainer_accumulate(t, ids, 8, 2, &loss, &error);
    }
    if (!status) {
        r->status[3 * ranks->group + 2] = plsh_trainer_accumulate(t, ids, 8, 2, &loss, &error);
    }
    plsh_trainer_destroy(t);
}

/* Rank 1 has two numbers instead of three, then another one. */
static void compare_wrong(const plsh_ranks *ranks, void *context) {
    run *r = context;
    const int32_t numbers[] = {1, 2, 3}, others[] = {1, 2, 4};
    const int64_t n = ranks->rank;
    r->status[n] = plsh_ranks_same(ranks, "words", numbers, n == 1 ? 2 : 3, 4, &r->error[n]);
    r->status[3 + n] = plsh_ranks_same(ranks, "words", n == 1 ? others : numbers, 3, 4, NULL);
    r->status[6 + n] = plsh_ranks_same(ranks, "words", numbers, 3, 4, NULL);
}

static void test_same(void **state) {
    (void)state;
    run r = {0};
    test_ranks_run(1, 3, compare_wrong, &r);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(r.error[i].message,
                            "rank 1: other words than rank 0 has: 2 instead of 3");
        assert_int_equal(r.status[3 + i], PLSH_STATUS_INVALID);
        assert_int_equal(r.status[6 + i], PLSH_STATUS_OK);
    }
    assert_int_equal(plsh_ranks_same(NULL, "words", NULL, 0, 4, NULL), PLSH_STATUS_OK);
}

static void test_errors(void **state) {
    (void)state;
    run r = {0};
    test_ranks_run(1, 3, open_wrong, &r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.status[i], PLSH_STATUS_IO);
        test_message_holds(r.error[i].message, "rank 1: no-such-folder");
    }
    memset(&r, 0, sizeof(r));
    test_ranks_run(2, 1, order_wrong, &r);
    for (int i = 0; i < 6; i++) assert_int_equal(r.status[i], PLSH_STATUS_INVALID);
    for (int i = 0; i < 2; i++) test_message_holds(r.error[i].message, "2 groups of ranks");
}

/* ---- Hidden states --------------------------------------------------------------------------- */

enum { LENGTH = 101, HIDDEN = 32 };

typedef struct encoded {
    const plsh_model *model;
    int32_t ids[LENGTH];
    float hidden[LENGTH * HIDDEN];
    plsh_status status[MOST];
} encoded;

static void encode(const plsh_ranks *ranks, void *context) {
    encoded *e = context;
    plsh_error error;
    plsh_range own = plsh_ranks_rows(ranks, LENGTH);
    plsh_encoding encoding = {
        .ids = e->ids, .count = LENGTH, .hidden = e->hidden + own.begin * HIDDEN, .ranks = ranks};
    e->status[ranks->rank] = plsh_model_encode(e->model, &encoding, &error);
}

static void test_hidden(void **state) {
    (void)state;
    static encoded e;
    static float expected[LENGTH * HIDDEN];
    plsh_error error;
    plsh_model *model;
    plsh_session *session;
    assert_ok(plsh_model_open(&model, model_path, &(plsh_model_options){.threads = 1}, &error));
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    fill_ids(e.ids, LENGTH, 0);
    plsh_step step = {.ids = e.ids, .count = LENGTH, .hidden = expected};
    assert_ok(plsh_session_step(session, &step, &error));
    e.model = model;
    for (int ranks = 1; ranks <= 7; ranks++) {
        memset(e.hidden, 0, sizeof(e.hidden));
        test_ranks_run(1, ranks, encode, &e);
        for (int i = 0; i < ranks; i++) assert_int_equal(e.status[i], PLSH_STATUS_OK);
        double off = difference(e.hidden, expected, LENGTH * HIDDEN);
        print_message("hidden states of %d ranks: %.2g\n", ranks, off);
        assert_true(off <= 1e-5);
    }
    plsh_encoding alone = {.ids = e.ids, .count = LENGTH, .hidden = e.hidden};
    memset(e.hidden, 0, sizeof(e.hidden));
    assert_ok(plsh_model_encode(model, &alone, &error));
    assert_true(difference(e.hidden, expected, LENGTH * HIDDEN) <= 1e-5);
    plsh_session_destroy(session);
    plsh_model_close(model);
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

typedef struct resumed {
    char folder[PATH];
    bool saves;
    run end; /* losses of steps 3 and 4 */
} resumed;

static void checkpointed(const plsh_ranks *ranks, void *context) {
    resumed *c = context;
    plsh_trainer *t;
    plsh_error error;
    plsh_checkpoint state = {.step = 3, .window = 9};
    char folder[PATH + 64];
    double loss;
    run *r = &c->end;
    plsh_train_options options = r->options;
    options.ranks = ranks;
    plsh_status status = plsh_trainer_create(&t, model_path, &options, &error);
    for (int64_t s = 0; !status && c->saves && s < 3; s++) {
        status = take_step(t, r, s, false, &loss, &error);
    }
    if (!status && c->saves) status = plsh_checkpoint_save(t, &state, c->folder, &error);
    plsh_checkpoint_folder(c->folder, 3, folder, sizeof(folder), &error);
    if (!status && !c->saves) status = plsh_checkpoint_load(t, folder, &state, &error);
    for (int64_t s = 3; !status && s < 5; s++) {
        status = take_step(t, r, s, false, &loss, &error);
        if (plsh_ranks_first(ranks)) r->loss[s] = loss;
    }
    if (plsh_ranks_first(ranks)) r->status[0] = status ? status : plsh_trainer_steps(t) != 5;
    plsh_trainer_destroy(t);
}

static void test_checkpoints(void **state) {
    (void)state;
    resumed four = {.folder = "ranks-test-XXXXXX",
                    .saves = true,
                    .end.options = {.context = CONTEXT, .batch = BATCH, .threads = 1}};
    assert_non_null(mkdtemp(four.folder));
    test_ranks_run(1, 4, checkpointed, &four);
    assert_int_equal(four.end.status[0], PLSH_STATUS_OK);
    for (int ranks = 0; ranks <= 4; ranks += 2) {
        resumed other = four;
        other.saves = false;
        if (ranks == 0) checkpointed(NULL, &other);
        if (ranks > 0) test_ranks_run(1, ranks, checkpointed, &other);
        assert_int_equal(other.end.status[0], PLSH_STATUS_OK);
        for (int s = 3; s < 5; s++) {
            double off = fabs(other.end.loss[s] - four.end.loss[s]) / four.end.loss[s];
            assert_true(ranks == 4 ? off == 0 : off <= 1e-6);
        }
    }
    char command[PATH + 32];
    snprintf(command, sizeof(command), "rm -r '%s'", four.folder);
    assert_int_equal(system(command), 0);
}

static int make_model(void **state) {
    (void)state;
    model_path = tiny_llama();
    return 0;
}

static int remove_model(void **state) {
    (void)state;
    tiny_model_remove(model_path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_attention),   cmocka_unit_test(test_sampled),
        cmocka_unit_test(test_adapters),        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_dropped_weights), cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_errors),          cmocka_unit_test(test_same),
        cmocka_unit_test(test_hidden),          cmocka_unit_test(test_checkpoints)};
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
