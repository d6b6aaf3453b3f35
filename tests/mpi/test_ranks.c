/* tests: attention over ranks against one process, which every rank runs for itself.
 *
 * Not by cmocka: a rank that left a test early would leave the others waiting. Ranks note what is
 * wrong, and agree at the end. */
#include "plsh/mpi.h"
#include "support/problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 420, DIM = 8, HEADS = 4, KV_HEADS = 2, METHODS = 9, SAMPLES = 5 };

static const int64_t packed[] = {0, 130, 130, 137, 320, ROWS};
enum { SEQUENCES = sizeof packed / sizeof *packed - 1 };

static int rank, ranks, failures;
static char where[200]; /* the case at hand */

__attribute__((format(printf, 2, 3))) static bool expect(bool ok, const char *format, ...) {
    if (ok || ++failures > 10) return ok;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "rank %d of %d, %s: ", rank, ranks, where);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return ok;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    plsh_attention a;
    plsh_head head[HEADS];
    int splits;       /* 0: even; 1: uneven, with ranks that have none; 2: all on the last */
    bool interleaved; /* [rows, heads, dim] */
    bool gradients, certificate;
} setting;

static const int64_t *make_splits(int kind, int64_t rows, int64_t *splits) {
    if (kind == 0) return NULL;
    for (int r = 1; r <= ranks; r++) splits[r] = kind == 2 ? 0 : splits[r - 1];
    splits[0] = 0;
    for (int r = 1; kind == 1 && r < ranks; r++) /* 1, 3, 5, .. have none but the second */
        splits[r] = r % 3 == 2 ? splits[r - 1] : splits[r - 1] + (rows - splits[r - 1]) / (r + 2);
    splits[ranks] = rows;
    return splits;
}

static void set_heads(plsh_head *head, plsh_method method) {
    for (int h = 0; h < HEADS; h++) {
        const plsh_decay decay = plsh_decay_alibi(h == 3 ? 40 : 4 + 3 * h);
        head[h] = plsh_head_default(method, &decay);
        head[h].partition.scheme = (plsh_scheme)(h % 3);
        head[h].partition.design = h < 2 ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
        head[h].partition.samples = SAMPLES;
        head[h].partition.head = (uint32_t)h;
        head[h].window = h == 2 ? 1 : 30 + 40 * h;
        head[h].block = h == 2 ? 1000 : 50 + h;
    }
}

static setting make_setting(plsh_method method, bool causal, bool cut, int splits) {
    setting s = {.name = plsh_method_names()[method],
                 .splits = splits,
                 .gradients = true,
                 .certificate = true,
                 .a = {.heads = HEADS,
                       .kv_heads = KV_HEADS,
                       .queries = ROWS,
                       .keys = ROWS,
                       .head_dim = DIM,
                       .sequences = cut ? SEQUENCES : 0,
                       .query_offsets = cut ? packed : NULL,
                       .key_offsets = cut ? packed : NULL,
                       .causal = causal,
                       .threads = 1}};
    set_heads(s.head, method);
    return s;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* An array of a rank's own rows. */
typedef struct own_rows {
    int64_t heads, all, dim;
    plsh_block rows;
    plsh_layout layout;
} own_rows;

static own_rows describe(const setting *s, int64_t heads, int64_t all, int64_t dim,
                         plsh_block rows) {
    const int64_t count = rows.end - rows.begin;
    return (own_rows){heads, all, dim, rows,
                      s->interleaved ? (plsh_layout){dim, heads * dim}
                                     : (plsh_layout){count * dim, dim}};
}

static size_t own_count(const own_rows *r) {
    return (size_t)(r->heads * (r->rows.end - r->rows.begin) * r->dim);
}

static float *take(const own_rows *r, const float *from) {
    float *to = malloc((own_count(r) + 1) * sizeof *to);
    for (int64_t h = 0; h < r->heads; h++)
        for (int64_t i = r->rows.begin; i < r->rows.end; i++)
            memcpy(to + h * r->layout.head_stride + (i - r->rows.begin) * r->layout.row_stride,
                   from + (h * r->all + i) * r->dim, (size_t)r->dim * sizeof *to);
    return to;
}

static void compare(const own_rows *r, const char *what, const float *found, const float *expected,
                    double most) {
    for (int64_t h = 0; h < r->heads; h++) {
        for (int64_t i = r->rows.begin; i < r->rows.end; i++) {
            for (int64_t x = 0; x < r->dim; x++) {
                const float a = found[h * r->layout.head_stride +
                                      (i - r->rows.begin) * r->layout.row_stride + x];
                const float b = expected[(h * r->all + i) * r->dim + x];
                const bool ok = fabs((double)a - (double)b) <= most * (1 + fabs((double)b));
                if (!expect(ok, "%s of head %lld, row %lld, column %lld is %g, not %g", what,
                            (long long)h, (long long)i, (long long)x, (double)a, (double)b))
                    return;
            }
        }
    }
}

/* ---- One case -------------------------------------------------------------------------------- */

typedef struct shard {
    plsh_block rows, queries;
    own_rows q, k, v, o, lse;
    float *own_q, *own_k, *own_v, *own_d_o, *own_o, *own_lse, *bound, *d_q, *d_k, *d_v;
    double d_decay[2 * HEADS];
} shard;

static shard make_shard(const setting *s, const problem *p, const plsh_mpi_plan *plan) {
    const plsh_attention *a = &p->a;
    shard own = {.rows = plsh_mpi_plan_rows(plan, -1), .queries = plsh_mpi_plan_queries(plan, -1)};
    const int64_t kv = a->kv_heads ? a->kv_heads : a->heads;
    own.q = describe(s, a->heads, a->queries, a->head_dim, own.queries);
    own.k = describe(s, kv, a->keys, a->head_dim, own.rows);
    own.v = describe(s, kv, a->keys, a->head_dim, own.rows);
    own.o = own.q;
    own.lse =
        (own_rows){a->heads, a->queries, 1, own.queries, {own.queries.end - own.queries.begin, 1}};
    own.own_q = take(&own.q, p->q);
    own.own_k = take(&own.k, p->k);
    own.own_v = take(&own.v, p->v);
    own.own_d_o = take(&own.o, p->d_o);
    float **made[] = {&own.own_o, &own.own_lse, &own.bound, &own.d_q, &own.d_k, &own.d_v};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const size_t count = own_count(i < 4 ? &own.q : &own.k);
        *made[i] = malloc((count + 1) * sizeof(float));
        memset(*made[i], 0x7f, (count + 1) * sizeof(float)); /* 3e38 */
    }
    return own;
}

static void free_shard(shard *own) {
    float *all[] = {own->own_q,   own->own_k, own->own_v, own->own_d_o, own->own_o,
                    own->own_lse, own->bound, own->d_q,   own->d_k,     own->d_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static plsh_forward forward_arrays(const setting *s, shard *own) {
    return (plsh_forward){.q = own->own_q,
                          .k = own->own_k,
                          .v = own->own_v,
                          .o = own->own_o,
                          .lse = own->own_lse,
                          .certificate = s->certificate ? own->bound : NULL};
}

static plsh_backward backward_arrays(shard *own) {
    return (plsh_backward){.q = own->own_q,
                           .k = own->own_k,
                           .v = own->own_v,
                           .o = own->own_o,
                           .lse = own->own_lse,
                           .d_o = own->own_d_o,
                           .d_q = own->d_q,
                           .d_k = own->d_k,
                           .d_v = own->d_v,
                           .d_decay = own->d_decay};
}

/* The same again has the same bits. */
static void check_again(const setting *s, plsh_mpi_plan *plan, shard *own) {
    plsh_error error;
    float *all[] = {own->own_o, own->own_lse, own->d_q, own->d_k, own->d_v};
    const own_rows *rows[] = {&own->o, &own->lse, &own->q, &own->k, &own->v};
    float *kept[5];
    for (int i = 0; i < 5; i++) {
        kept[i] = malloc((own_count(rows[i]) + 1) * sizeof(float));
        memcpy(kept[i], all[i], own_count(rows[i]) * sizeof(float));
    }
    const plsh_forward f = forward_arrays(s, own);
    const plsh_backward b = backward_arrays(own);
    expect(!plsh_mpi_plan_forward(plan, &f, NULL, &error), "forward again: %s", error.message);
    if (s->gradients)
        expect(!plsh_mpi_plan_backward(plan, &b, NULL, &error), "backward again: %s",
               error.message);
    for (int i = 0; i < 5; i++) {
        expect(memcmp(kept[i], all[i], own_count(rows[i]) * sizeof(float)) == 0,
               "array %d has other bits the second time", i);
        free(kept[i]);
    }
}

static void check_decays(const problem *p, const shard *own) {
    for (int64_t i = 0; i < 2 * p->a.heads; i++)
        expect(fabs(own->d_decay[i] - p->d_decay[i]) <= 1e-5 * (1 + fabs(p->d_decay[i])),
               "d_decay[%lld] is %g, not %g", (long long)i, own->d_decay[i], p->d_decay[i]);
}

static void check_backward(const problem *p, plsh_mpi_plan *plan, shard *own) {
    plsh_error error;
    plsh_mpi_report report;
    const plsh_backward b = backward_arrays(own);
    if (!expect(!plsh_mpi_plan_backward(plan, &b, &report, &error), "backward: %s", error.message))
        return;
    compare(&own->q, "d_q", own->d_q, p->d_q, 1e-5);
    compare(&own->k, "d_k", own->d_k, p->d_k, 1e-5);
    compare(&own->v, "d_v", own->d_v, p->d_v, 1e-5);
    check_decays(p, own);
}

/* The bound holds against the decay itself, dense, up to rounding. */
static void check_certificate(const setting *s, const problem *exact, const shard *own) {
    const int64_t count = own->queries.end - own->queries.begin, n = exact->a.queries;
    for (int64_t i = 0; i < exact->a.heads * count; i++) {
        const int64_t h = i / count, row = own->queries.begin + i % count;
        const float *o =
            own->own_o + h * own->o.layout.head_stride + i % count * own->o.layout.row_stride;
        double most = 0;
        for (int64_t x = 0; x < DIM; x++)
            most = fmax(most, fabs((double)o[x] - (double)exact->o[(h * n + row) * DIM + x]));
        if (!expect(most <= (double)own->bound[i] + 4e-6,
                    "certificate of head %lld, row %lld is %g, but the error %g", (long long)h,
                    (long long)row, (double)own->bound[i], most))
            return;
    }
    (void)s;
}

static problem *solve(const setting *s, uint64_t seed) {
    plsh_error error;
    problem *p = problem_make(s->a, seed);
    memcpy(p->head, s->head, sizeof s->head);
    expect(!problem_forward(p, &error), "one process: %s", error.message);
    if (s->gradients)
        expect(!problem_backward(p, &error), "one process, backward: %s", error.message);
    return p;
}

static problem *solve_exactly(const setting *s, uint64_t seed) {
    setting dense = *s;
    dense.gradients = false;
    for (int h = 0; h < HEADS; h++)
        if (dense.head[h].method != PLSH_METHOD_NONE) dense.head[h].method = PLSH_METHOD_DENSE;
    return solve(&dense, seed);
}

static void run_case(const setting *s) {
    int64_t splits[64] = {0};
    plsh_error error;
    plsh_mpi_plan *plan;
    plsh_mpi_report report;
    const int before = failures;
    snprintf(where, sizeof where, "%s, %s, %s, splits %d%s", s->name,
             s->a.causal ? "causal" : "both sides", s->a.sequences ? "packed" : "one text",
             s->splits, s->interleaved ? ", [rows, heads, dim]" : "");
    problem *p = solve(s, 7), *exact = s->certificate ? solve_exactly(s, 7) : NULL;
    plsh_attention whole = p->a;
    if (s->interleaved) {
        whole.q = whole.o = (plsh_layout){DIM, HEADS * DIM};
        whole.k = whole.v = (plsh_layout){DIM, KV_HEADS * DIM};
    }
    const int64_t *given = make_splits(s->splits, s->a.keys, splits);
    if (expect(!plsh_mpi_plan_create(&whole, given, MPI_COMM_WORLD, &plan, &error), "plan: %s",
               error.message)) {
        shard own = make_shard(s, p, plan);
        const plsh_forward f = forward_arrays(s, &own);
        if (expect(!plsh_mpi_plan_forward(plan, &f, &report, &error), "forward: %s",
                   error.message)) {
            compare(&own.o, "o", own.own_o, p->o, 4e-6);
            compare(&own.lse, "lse", own.own_lse, p->lse, 2e-6);
            if (exact) check_certificate(s, exact, &own);
            if (s->gradients) check_backward(p, plan, &own);
            check_again(s, plan, &own);
        }
        free_shard(&own);
        plsh_mpi_plan_destroy(plan);
    }
    problem_free(p);
    if (exact) problem_free(exact);
    if (failures > before && rank == 0) fprintf(stderr, "failed: %s\n", where);
}

static void test_methods(void) {
    for (int method = 0; method < METHODS; method++) {
        for (int way = 0; way < 8; way++) {
            const setting s = make_setting((plsh_method)method, way & 1, way & 2, way >> 2);
            run_case(&s);
        }
    }
}

int main(int argc, char **argv) {
    int provided, all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    test_methods();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks: %s\n", ranks, all ? "failed" : "ok");
    MPI_Finalize();
    return all > 0;
}
