/* cli: attention over the ranks of plsh-mpi. */
#include "cli/attention.h"

#include "cli/message.h"
#include "cli/ranks.h"

#include "base/clock.h"
#include "plsh/mpi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cli_attention {
    plsh_attention whole;
    plsh_plan *plan;
    plsh_mpi_plan *ranks;
    float *rows; /* lse and certificate of the own queries */
};

const plsh_plan *cli_attention_plan(const cli_attention *attention) { return attention->plan; }

static int64_t size_of(plsh_range rows) { return rows.end - rows.begin; }

static int create(cli_attention *a) {
    plsh_error error;
    if (plsh_plan_create(&a->whole, &a->plan, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    plsh_attention own = a->whole; /* rows of the rank, where they are in the whole arrays */
    own.q = (plsh_layout){own.queries * own.head_dim, own.head_dim};
    own.o = (plsh_layout){own.queries * own.value_dim, own.value_dim};
    own.k = (plsh_layout){own.keys * own.head_dim, own.head_dim};
    own.v = (plsh_layout){own.keys * own.value_dim, own.value_dim};
    if (plsh_mpi_plan_create(&own, NULL, MPI_COMM_WORLD, &a->ranks, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    const size_t rows = (size_t)(own.heads * size_of(plsh_mpi_plan_queries(a->ranks, -1)));
    a->rows = calloc(2 * rows + 1, sizeof *a->rows);
    return a->rows != NULL ? CLI_DONE : cli_fail("out of memory for %zu rows", rows);
}

int cli_attention_create(const plsh_attention *whole, cli_attention **out) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return cli_ranks_agree(cli_fail("out of memory"));
    (*out)->whole = *whole;
    plsh_attention *a = &(*out)->whole;
    if (a->kv_heads == 0) a->kv_heads = a->heads;
    if (a->value_dim == 0) a->value_dim = a->head_dim;
    return cli_ranks_agree(create(*out));
}

void cli_attention_destroy(cli_attention *attention) {
    if (attention == NULL) return;
    plsh_plan_destroy(attention->plan);
    plsh_mpi_plan_destroy(attention->ranks);
    free(attention->rows);
    free(attention);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

enum { ROWS_TAG = 1, MESSAGE_MOST = 1 << 28 };

/* `count` floats from a rank to the first one. */
static void move(float *data, int64_t count, int from) {
    for (int64_t at = 0; at < count; at += MESSAGE_MOST) {
        const int part = count - at < MESSAGE_MOST ? (int)(count - at) : MESSAGE_MOST;
        if (cli_rank() == 0)
            MPI_Recv(data + at, part, MPI_FLOAT, from, ROWS_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(data + at, part, MPI_FLOAT, 0, ROWS_TAG, MPI_COMM_WORLD);
    }
}

/* The rows of all ranks of [heads, n, dim], which is NULL on all ranks or on none. */
static void gather(const cli_attention *a, float *whole, int64_t heads, int64_t n, int64_t dim,
                   plsh_range (*rows_of)(const plsh_mpi_plan *plan, int rank)) {
    for (int r = 1; whole != NULL && r < cli_rank_count(); r++) {
        const plsh_range rows = rows_of(a->ranks, r);
        if (cli_rank() != 0 && cli_rank() != r) continue;
        for (int64_t h = 0; h < heads; h++)
            move(whole + (h * n + rows.begin) * dim, size_of(rows) * dim, r);
    }
}

/* [heads, own queries] into [heads, queries], or the other way round. */
static void place_rows(const cli_attention *a, float *whole, float *own, bool back) {
    const plsh_range rows = plsh_mpi_plan_queries(a->ranks, -1);
    const int64_t count = size_of(rows);
    for (int64_t h = 0; whole != NULL && h < a->whole.heads; h++) {
        float *at = whole + h * a->whole.queries + rows.begin;
        if (back)
            memcpy(own + h * count, at, (size_t)count * sizeof *at);
        else
            memcpy(at, own + h * count, (size_t)count * sizeof *at);
    }
}

static const void *rows_at(const cli_attention *a, const void *data, plsh_range rows, int64_t dim) {
    const int64_t size = (int64_t)plsh_dtype_size(a->whole.dtype);
    return (const char *)data + rows.begin * dim * size;
}

static float *floats_at(const float *data, plsh_range rows, int64_t dim) {
    return data != NULL ? (float *)data + rows.begin * dim : NULL;
}

/* ---- Passes ---------------------------------------------------------------------------------- */

/* Ranks begin together: otherwise earlier work of one rank (such as measuring the error, on the
 * first) would count as waiting time of the others. */
static double begin_pass(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    return plsh_clock_seconds();
}

/* Pairs of all ranks; of time, bytes and waiting, the most. */
static int finish(cli_run *run, double begin, plsh_status status, plsh_mpi_stats *stats,
                  const plsh_error *error) {
    const double seconds = plsh_clock_seconds() - begin;
    if (status != PLSH_STATUS_OK) return cli_fail_error(error);
    MPI_Allreduce(&seconds, &run->seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&stats->attention.pairs, &run->stats.pairs, 1, MPI_INT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    MPI_Allreduce(&stats->bytes_sent, &run->bytes_sent, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&stats->waited, &run->waited, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return CLI_DONE;
}

static double largest(const float *certificate, int64_t count) {
    double most = 0;
    for (int64_t i = 0; certificate != NULL && i < count && !isnan(most); i++)
        if (!((double)certificate[i] <= most)) most = (double)certificate[i];
    return most;
}

int cli_attention_forward(cli_attention *attention, const plsh_forward *arrays, cli_run *run) {
    const plsh_attention *a = &attention->whole;
    const plsh_range rows = plsh_mpi_plan_rows(attention->ranks, -1);
    const plsh_range queries = plsh_mpi_plan_queries(attention->ranks, -1);
    float *lse = attention->rows, *certificate = lse + a->heads * size_of(queries);
    const plsh_forward own = {.q = rows_at(attention, arrays->q, queries, a->head_dim),
                              .k = rows_at(attention, arrays->k, rows, a->head_dim),
                              .v = rows_at(attention, arrays->v, rows, a->value_dim),
                              .o = floats_at(arrays->o, queries, a->value_dim),
                              .lse = arrays->lse != NULL ? lse : NULL,
                              .certificate = arrays->certificate != NULL ? certificate : NULL};
    plsh_mpi_stats stats;
    plsh_error error;
    const double begin = begin_pass();
    plsh_status status = plsh_mpi_plan_forward(attention->ranks, &own, &stats, &error);
    int code = finish(run, begin, status, &stats, &error);
    if (code != CLI_DONE) return code;
    place_rows(attention, arrays->lse, lse, false);
    place_rows(attention, arrays->certificate, certificate, false);
    gather(attention, arrays->o, a->heads, a->queries, a->value_dim, plsh_mpi_plan_queries);
    gather(attention, arrays->lse, a->heads, a->queries, 1, plsh_mpi_plan_queries);
    gather(attention, arrays->certificate, a->heads, a->queries, 1, plsh_mpi_plan_queries);
    run->stats.error_bound = largest(arrays->certificate, a->heads * a->queries);
    return CLI_DONE;
}

int cli_attention_backward(cli_attention *attention, const plsh_backward *arrays, cli_run *run) {
    const plsh_attention *a = &attention->whole;
    const plsh_range rows = plsh_mpi_plan_rows(attention->ranks, -1);
    const plsh_range queries = plsh_mpi_plan_queries(attention->ranks, -1);
    place_rows(attention, (float *)arrays->lse, attention->rows, true);
    const plsh_backward own = {.q = rows_at(attention, arrays->q, queries, a->head_dim),
                               .k = rows_at(attention, arrays->k, rows, a->head_dim),
                               .v = rows_at(attention, arrays->v, rows, a->value_dim),
                               .o = floats_at(arrays->o, queries, a->value_dim),
                               .lse = attention->rows,
                               .d_o = floats_at(arrays->d_o, queries, a->value_dim),
                               .d_q = floats_at(arrays->d_q, queries, a->head_dim),
                               .d_k = floats_at(arrays->d_k, rows, a->head_dim),
                               .d_v = floats_at(arrays->d_v, rows, a->value_dim),
                               .d_decay = arrays->d_decay};
    plsh_mpi_stats stats;
    plsh_error error;
    const double begin = begin_pass();
    plsh_status status = plsh_mpi_plan_backward(attention->ranks, &own, &stats, &error);
    int code = finish(run, begin, status, &stats, &error);
    if (code != CLI_DONE) return code;
    gather(attention, arrays->d_q, a->heads, a->queries, a->head_dim, plsh_mpi_plan_queries);
    gather(attention, arrays->d_k, a->kv_heads, a->keys, a->head_dim, plsh_mpi_plan_rows);
    gather(attention, arrays->d_v, a->kv_heads, a->keys, a->value_dim, plsh_mpi_plan_rows);
    return CLI_DONE;
}
