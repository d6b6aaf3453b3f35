/* bench: the cost of a layer of attention over ranks: the bytes that a rank sends, counted by PMPI,
 * beside ring attention and Ulysses by their formulas; time, and time waited.
 *
 *     mpirun -np 4 plsh-bench-ranks METHOD N HEADS DIM PASS REPS     prints one row; rank 0 prints
 *
 * Causal, normal numbers, the standard slopes; each rank makes only its own rows. Uses the public
 * headers only. */
#include "bench/bench.h"
#include "plsh/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting what MPI sends ------------------------------------------------------------------
 */

/* Bytes of rows and summaries, as the stats count them: once for each other rank. */
static int64_t counted;

static int64_t bytes_of(int64_t count, MPI_Datatype type) {
    int size;
    MPI_Type_size(type, &size);
    return count * size;
}

static int64_t others(MPI_Comm communicator) {
    int ranks;
    MPI_Comm_size(communicator, &ranks);
    return ranks - 1;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    counted += bytes_of(count, type);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    counted += bytes_of(count, type);
    return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    if (rank == root) counted += bytes_of(count, type) * others(comm);
    return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Allgather(const void *data, int count, MPI_Datatype type, void *all, int each,
                  MPI_Datatype all_type, MPI_Comm comm) {
    counted += bytes_of(count, type) * others(comm);
    return PMPI_Allgather(data, count, type, all, each, all_type, comm);
}

int MPI_Allgatherv(const void *data, int count, MPI_Datatype type, void *all, const int *counts,
                   const int *places, MPI_Datatype all_type, MPI_Comm comm) {
    counted += bytes_of(count, type) * others(comm);
    return PMPI_Allgatherv(data, count, type, all, counts, places, all_type, comm);
}

/* ---- The work -------------------------------------------------------------------------------- */

typedef struct settings {
    plsh_method method;
    int64_t n, heads, dim;
    bool backward;
    int reps;
} settings;

typedef struct rows {
    float *q, *k, *v, *o, *lse, *d_o, *d_q, *d_k, *d_v;
} rows;

static float *normals(size_t count, uint64_t seed) {
    float *x = malloc((count + 1) * sizeof *x);
    if (x == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    bench_fill_normal(x, count, seed);
    return x;
}

static rows make_rows(const settings *s, size_t own, int rank) {
    const size_t count = (size_t)s->heads * own * (size_t)s->dim;
    const uint64_t seed = 100 * (uint64_t)rank;
    rows r = {.q = normals(count, seed),
              .k = normals(count, seed + 1),
              .v = normals(count, seed + 2),
              .o = normals(count, seed + 3)};
    if (!s->backward) return r;
    r.lse = normals((size_t)s->heads * own, seed);
    r.d_o = normals(count, seed + 4);
    r.d_q = normals(count, seed);
    r.d_k = normals(count, seed);
    r.d_v = normals(count, seed);
    return r;
}

static void free_rows(rows *r) {
    float *all[] = {r->q, r->k, r->v, r->o, r->lse, r->d_o, r->d_q, r->d_k, r->d_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static plsh_status run_once(const settings *s, plsh_mpi_plan *plan, rows *r, plsh_mpi_stats *stats,
                            plsh_error *error) {
    const plsh_forward forward = {.q = r->q, .k = r->k, .v = r->v, .o = r->o, .lse = r->lse};
    if (!s->backward) return plsh_mpi_plan_forward(plan, &forward, stats, error);
    const plsh_backward backward = {.q = r->q,
                                    .k = r->k,
                                    .v = r->v,
                                    .o = r->o,
                                    .lse = r->lse,
                                    .d_o = r->d_o,
                                    .d_q = r->d_q,
                                    .d_k = r->d_k,
                                    .d_v = r->d_v};
    return plsh_mpi_plan_backward(plan, &backward, stats, error);
}

/* The median of the times of all repetitions, warm, and the last one's stats; counted: of one. */
static plsh_status measure(const settings *s, plsh_mpi_plan *plan, rows *r, plsh_mpi_stats *stats,
                           double *seconds, plsh_error *error) {
    double *times = calloc((size_t)s->reps, sizeof *times);
    plsh_status status = PLSH_STATUS_OK;
    const plsh_forward forward = {.q = r->q, .k = r->k, .v = r->v, .o = r->o, .lse = r->lse};
    if (times == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    if (s->backward) status = plsh_mpi_plan_forward(plan, &forward, NULL, error);
    for (int i = s->reps > 1 ? -1 : 0; !status && i < s->reps; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        counted = 0;
        const double begin = MPI_Wtime();
        status = run_once(s, plan, r, stats, error);
        if (i >= 0) times[i] = MPI_Wtime() - begin;
    }
    *seconds = bench_summarise(times, s->reps).median;
    free(times);
    return status;
}

static void print_row(const settings *s, int ranks, const plsh_mpi_stats *mine, double seconds) {
    int64_t most[3] = {counted, mine->bytes_sent, 0}, all[3];
    double waited;
    most[2] = counted == mine->bytes_sent ? 0 : 1;
    MPI_Allreduce(most, all, 3, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&mine->waited, &waited, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* Ring: k and v of n/ranks rows go to all others, and come back as gradients with them;
     * Ulysses: all but 1/ranks of q, k, v and o change places, and their gradients with q, k, v
     * again. */
    const double array = (double)(s->n * s->heads * s->dim) * sizeof(float), share = 1.0 / ranks;
    const double ring = 2 * array * share * (ranks - 1) * (s->backward ? 2 : 1);
    const double ulysses = (s->backward ? 8 : 4) * array * share * (1 - share);
    if (rank == 0)
        printf("%s\t%s\t%lld\t%lld\t%lld\t%d\t%lld\t%s\t%.0f\t%.0f\t%.4g\t%.3g\n",
               plsh_method_names()[s->method], s->backward ? "backward" : "forward",
               (long long)s->n, (long long)s->heads, (long long)s->dim, ranks, (long long)all[0],
               all[2] ? "no" : "yes", ring, ulysses, seconds, waited);
}

static int run_bench(const settings *s) {
    plsh_head *heads = calloc((size_t)s->heads, sizeof *heads);
    plsh_error error;
    plsh_mpi_plan *plan = NULL;
    plsh_mpi_stats stats;
    int rank, ranks;
    double seconds;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (heads == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    plsh_status status = plsh_heads_alibi(s->heads, s->method, heads, &error);
    const plsh_attention whole = {.heads = s->heads,
                                  .queries = s->n,
                                  .keys = s->n,
                                  .head_dim = s->dim,
                                  .causal = true,
                                  .head = heads,
                                  .head_count = s->heads};
    if (!status) status = plsh_mpi_plan_create(&whole, NULL, MPI_COMM_WORLD, &plan, &error);
    if (!status) {
        const plsh_range own = plsh_mpi_plan_rows(plan, -1);
        rows r = make_rows(s, (size_t)(own.end - own.begin), rank);
        status = measure(s, plan, &r, &stats, &seconds, &error);
        if (!status) print_row(s, ranks, &stats, seconds);
        free_rows(&r);
    }
    if (status && rank == 0) fprintf(stderr, "%s\n", error.message);
    plsh_mpi_plan_destroy(plan);
    free(heads);
    return status != PLSH_STATUS_OK;
}

int main(int argc, char **argv) {
    int provided, code = 2;
    plsh_error error;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    settings s = {0};
    if (argc == 7) {
        s = (settings){.n = atoll(argv[2]),
                       .heads = atoll(argv[3]),
                       .dim = atoll(argv[4]),
                       .backward = strcmp(argv[5], "backward") == 0,
                       .reps = atoi(argv[6])};
    }
    if (argc != 7 || plsh_method_find(argv[1], &s.method, &error) || s.reps < 1)
        fputs("METHOD N HEADS DIM forward|backward REPS\n", stderr);
    else
        code = run_bench(&s);
    MPI_Finalize();
    return code;
}
