/* tests: what libplsh_lm asks of the ranks of MPI: sums, agreement, rows to the first; and training
 * steps against one process, which every rank runs for itself.
 * Usage: test_lm MODEL
 *
 * Does not use cmocka: if a rank left a test early, the others would wait for it. */
#include "plsh/lm.h"
#include "plsh/mpi.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 40, BATCH = 4, STEPS = 20 };

static int rank, ranks, failures;

__attribute__((format(printf, 2, 3))) static bool expect(bool ok, const char *format, ...) {
    if (ok || ++failures > 10) return ok;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "rank %d of %d: ", rank, ranks);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return ok;
}

/* ---- Sums, agreement, rows ------------------------------------------------------------------- */

static float number_of(int r, size_t i) {
    return (float)(1.0 / (1.0 + (double)((i * 7 + (size_t)r * 13) % 1000)));
}

static bool is_sum(const float *numbers, size_t count, float scale) {
    for (size_t i = 0; i < count; i++) {
        float expected = scale * number_of(0, i);
        for (int r = 1; r < ranks; r++) expected += scale * number_of(r, i);
        if (numbers[i] != expected) return false;
    }
    return true;
}

/* Several at once, of none, of fewer numbers than ranks, and of more than one piece. */
static void test_sums(const plsh_ranks *over) {
    static const size_t counts[] = {0, 3, 1000, ((size_t)1 << 22) + 11, 77};
    enum { SUMS = sizeof counts / sizeof *counts };
    float *numbers[SUMS];
    plsh_error error = {0};
    const plsh_traffic before = over->traffic(over->context);
    for (int s = 0; s < SUMS; s++) {
        numbers[s] = malloc((counts[s] + 1) * sizeof(float));
        for (size_t i = 0; i < counts[s]; i++) numbers[s][i] = (float)(s + 1) * number_of(rank, i);
        expect(!over->sum_begin(over->context, numbers[s], counts[s], &error), "%s", error.message);
    }
    expect(!over->sum_end(over->context, &error), "%s", error.message);
    for (int s = 0; s < SUMS; s++) {
        expect(is_sum(numbers[s], counts[s], (float)(s + 1)), "sum %d is not in the order of ranks",
               s);
        free(numbers[s]);
    }
    /* Each part goes to its rank, and the sum of the own part to all: of n numbers, about 2 n
     * (ranks - 1) / ranks. */
    const plsh_traffic after = over->traffic(over->context);
    const double sent = (double)(after.bytes_sent - before.bytes_sent);
    const double expected = 8.0 * (double)((1 << 22) + 1091) * (ranks - 1) / ranks;
    expect(fabs(sent - expected) <= 4.0 * SUMS * 2 * ranks, "%g bytes sent, not %g", sent,
           expected);
    expect(after.waited >= before.waited, "waited less than nothing");
    double two[] = {1.0 + rank, 0.5};
    expect(!over->sum(over->context, two, 2, &error), "%s", error.message);
    expect(two[0] == ranks * (ranks + 1) / 2.0 && two[1] == 0.5 * ranks, "%g %g", two[0], two[1]);
}

static void test_agreement(const plsh_ranks *over) {
    const bool fails = rank == ranks - 1;
    plsh_error error = {.message = "the disk is full"};
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d: the disk is full", ranks - 1);
    plsh_status status = plsh_ranks_agree(over, fails ? PLSH_STATUS_IO : PLSH_STATUS_OK, &error);
    expect(status == PLSH_STATUS_IO && strcmp(error.message, expected) == 0, "%s", error.message);
    expect(!plsh_ranks_agree_group(over, PLSH_STATUS_OK, &error), "%s", error.message);
}

static void test_rows(const plsh_ranks *over) {
    plsh_error error = {0};
    int64_t numbers[3] = {over->rank, 5, 7};
    if (over->group > 0) return;
    if (over->rank > 0)
        expect(!over->send(over->context, numbers, sizeof numbers, &error), "%s", error.message);
    for (int64_t r = 1; over->rank == 0 && r < over->ranks; r++) {
        expect(!over->receive(over->context, r, numbers, sizeof numbers, &error), "%s",
               error.message);
        expect(numbers[0] == r && numbers[2] == 7, "rows of rank %lld", (long long)r);
    }
}

/* ---- Training -------------------------------------------------------------------------------- */

static void fill_ids(int32_t *ids, int64_t step) {
    for (int64_t i = 0; i < CONTEXT * BATCH; i++) {
        int64_t x = i + step * 11;
        ids[i] = (int32_t)((x * x + 5 * x + i / 3) % 48);
    }
}

static void train(const char *model, const plsh_ranks *over, plsh_train_options options,
                  double losses[STEPS]) {
    int32_t ids[CONTEXT * BATCH];
    plsh_trainer *trainer;
    plsh_error error = {0};
    double norm;
    const plsh_update update = {.learning_rate = 1e-3, .clip = 1.0};
    options.context = CONTEXT;
    options.batch = BATCH;
    options.threads = 1;
    options.ranks = over;
    plsh_status status = plsh_trainer_create(&trainer, model, &options, &error);
    for (int64_t s = 0; !status && s < STEPS; s++) {
        fill_ids(ids, s);
        status = plsh_trainer_accumulate(trainer, ids, CONTEXT, BATCH, &losses[s], &error);
        if (!status) status = plsh_trainer_update(trainer, &update, &norm, &error);
    }
    expect(!status, "training: %s", error.message);
    plsh_trainer_destroy(trainer);
}

static void compare(const char *model, const plsh_ranks *over, plsh_method method, const char *name,
                    double dropout) {
    const plsh_decay decay = plsh_decay_alibi(6);
    plsh_head head = plsh_head_default(method, &decay);
    plsh_layer_attention attention = {.head = &head, .head_count = 1};
    plsh_train_options options = {
        .attention = &attention, .attention_count = 1, .dropout = dropout, .seed = 7};
    double one[STEPS] = {0}, many[STEPS] = {0}, again[STEPS] = {0}, worst = 0;
    train(model, NULL, options, one);
    train(model, over, options, many);
    if (dropout > 0.0) train(model, over, options, again);
    for (int s = 0; s < STEPS; s++) worst = fmax(worst, fabs(many[s] / one[s] - 1.0));
    if (rank == 0)
        printf("%s, %d ranks in %lld groups: losses %.2g of those of one process\n", name, ranks,
               (long long)over->groups, worst);
    expect(worst <= 1e-6 && one[STEPS - 1] < one[0], "%s: losses are off by %g", name, worst);
    expect(dropout == 0.0 || memcmp(many, again, sizeof many) == 0,
           "%s: another run has other bits", name);
}

static void test_all(const char *model, int groups) {
    const plsh_ranks *over;
    plsh_error error;
    if (!expect(!plsh_mpi_ranks_create(MPI_COMM_WORLD, groups, &over, &error), "%s", error.message))
        return;
    test_sums(over);
    test_agreement(over);
    test_rows(over);
    for (int m = 0; groups == 1 && plsh_method_names()[m]; m++)
        compare(model, over, (plsh_method)m, plsh_method_names()[m], 0.0);
    compare(model, over, PLSH_METHOD_PLSH, "plsh", 0.1);
    plsh_mpi_ranks_destroy(over);
}

int main(int argc, char **argv) {
    int provided, all = 0;
    plsh_error error;
    const plsh_ranks *none;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!expect(argc == 2, "usage: test_lm MODEL")) MPI_Abort(MPI_COMM_WORLD, 2);
    test_all(argv[1], 1);
    if (ranks % 2 == 0) test_all(argv[1], 2);
    expect(plsh_mpi_ranks_create(MPI_COMM_WORLD, ranks + 1, &none, &error) == PLSH_STATUS_INVALID &&
               !none,
           "more groups than ranks");
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all ? 1 : 0;
}
