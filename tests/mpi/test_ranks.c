/* tests: attention over ranks against one process, which every rank runs for itself.
 *
 * Does not use cmocka: if a rank left a test early, the others would wait for it. Ranks record
 * failures, and agree at the end. */
#include "base/memory.h"
#include "plsh/mpi.h"
#include "support/problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 420, DIM = 8, HEADS = 4, KV_HEADS = 2, METHODS = 9, SAMPLES = 9, LONG = 6000 };

static const int64_t packed[] = {0, 130, 130, 137, 320, ROWS};
static const int64_t packed_long[] = {0, 40, 40, 5300, 5307, LONG};
#define ROWS_BYTES(rows) ((rows)*KV_HEADS * 2 * DIM * (int)sizeof(float)) /* of k and v */
enum { SEQUENCES = sizeof packed / sizeof *packed - 1 };
enum { SINK = 43 }; /* a row that all queries look at; of a tile of two packed sequences */

static int rank, ranks, failures;
static char where[200]; /* the current case */
static int64_t sent;    /* bytes, by its forward pass */

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

/* ---- Counting what MPI sends ----------------------------------------------------------------- */

/* Bytes of the calls below, as the stats count them: once for each other rank. */
static int64_t counted;

static void count_bytes(int64_t count, MPI_Datatype type, int to) {
    int size;
    MPI_Type_size(type, &size);
    counted += count * size * to;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    count_bytes(count, type, 1);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    count_bytes(count, type, rank == root ? ranks - 1 : 0);
    return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Allgather(const void *data, int count, MPI_Datatype type, void *all, int each,
                  MPI_Datatype all_type, MPI_Comm comm) {
    count_bytes(count, type, ranks - 1);
    return PMPI_Allgather(data, count, type, all, each, all_type, comm);
}

int MPI_Allgatherv(const void *data, int count, MPI_Datatype type, void *all, const int *counts,
                   const int *places, MPI_Datatype all_type, MPI_Comm comm) {
    count_bytes(count, type, ranks - 1);
    return PMPI_Allgatherv(data, count, type, all, counts, places, all_type, comm);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    plsh_attention a;
    plsh_head head[HEADS];
    int splits;       /* 0: even; 1: uneven, with ranks that have none; 2: all on the last */
    bool interleaved; /* [rows, heads, dim] */
    bool gradients, certificate;
    bool sink, looks; /* keys of large norm; and queries look at them */
    double off;       /* d_q and d_decay may be; 0: 1e-5 */
    plsh_attention_dropout dropout;
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
        if (h == 3)
            head[h].partition.design =
                method == PLSH_METHOD_PLSH ? PLSH_DESIGN_GOLDEN_SHIFTED : PLSH_DESIGN_GOLDEN;
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

static setting make_sink_setting(bool causal, bool looks, bool cut, int splits) {
    const double sigma[HEADS] = {8, 16, 4, 16};
    setting s = make_setting(PLSH_METHOD_EXACT, causal, cut, splits);
    s.name = looks ? "a sink" : "a large norm";
    s.sink = true;
    s.looks = looks;
    s.off = looks ? 5e-4 : 0;
    s.a.queries = s.a.keys = LONG;
    if (cut) s.a.query_offsets = s.a.key_offsets = packed_long;
    for (int h = 0; h < HEADS; h++) s.head[h].partition.decay = plsh_decay_alibi(sigma[h]);
    return s;
}

/* Two keys are some 50 times as long as others, one near each end, and have another value. Scores
 * of queries that attend to them are about 200, so that they matter over 200 sigma; else they are
 * 0. */
static void add_sink(const setting *s, problem *p) {
    for (int64_t i = 0; s->sink && i < 2 * KV_HEADS; i++) {
        const int64_t row = i / 2 * p->a.keys + (i & 1 ? LONG - SINK : SINK);
        for (int x = 0; x < DIM; x++) p->k[row * DIM + x] = x ? 0 : 150;
        p->v[row * DIM] = 8;
    }
    for (int64_t i = 0; s->sink && i < HEADS * p->a.queries; i++)
        p->q[i * DIM] = s->looks ? 4 + p->q[i * DIM] / 8 : 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* An array of a rank's own rows. */
typedef struct own_rows {
    int64_t heads, all, dim;
    plsh_range rows;
    plsh_layout layout;
} own_rows;

static own_rows describe(const setting *s, int64_t heads, int64_t all, int64_t dim,
                         plsh_range rows) {
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
    plsh_range rows, queries;
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
                          .certificate = s->certificate ? own->bound : NULL,
                          .dropout = s->dropout};
}

static plsh_backward backward_arrays(const setting *s, shard *own) {
    return (plsh_backward){.q = own->own_q,
                           .k = own->own_k,
                           .v = own->own_v,
                           .o = own->own_o,
                           .lse = own->own_lse,
                           .d_o = own->own_d_o,
                           .d_q = own->d_q,
                           .d_k = own->d_k,
                           .d_v = own->d_v,
                           .d_decay = own->d_decay,
                           .dropout = s->dropout};
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
    const plsh_backward b = backward_arrays(s, own);
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

static void check_decays(const problem *p, const shard *own, double most) {
    for (int64_t i = 0; i < 2 * p->a.heads; i++)
        expect(fabs(own->d_decay[i] - p->d_decay[i]) <= most * (1 + fabs(p->d_decay[i])),
               "d_decay[%lld] is %g, not %g", (long long)i, own->d_decay[i], p->d_decay[i]);
}

/* Large scores have fewer digits, and d_q and d_decay are sums of long keys and of distances: next
 * to double precision, one process is up to 2e-4 off where scores are 200 (a sink), 3e-5 with a key
 * 60 times as long as it was; so are ranks, elsewhere. */
static void check_backward(const setting *s, const problem *p, plsh_mpi_plan *plan, shard *own) {
    plsh_error error;
    plsh_mpi_stats stats;
    const plsh_backward b = backward_arrays(s, own);
    const double most = s->off > 0 ? s->off : 1e-5;
    counted = 0;
    if (!expect(!plsh_mpi_plan_backward(plan, &b, &stats, &error), "backward: %s", error.message))
        return;
    expect(counted == stats.bytes_sent, "%lld bytes sent, not %lld", (long long)counted,
           (long long)stats.bytes_sent);
    compare(&own->q, "d_q", own->d_q, p->d_q, most);
    compare(&own->k, "d_k", own->d_k, p->d_k, 1e-5);
    compare(&own->v, "d_v", own->d_v, p->d_v, 1e-5);
    check_decays(p, own, most);
}

/* The bound holds against the decay itself, dense or (eps 2^-24) exact, up to the rounding of that.
 */
static void check_certificate(const problem *exact, const shard *own) {
    const int64_t count = own->queries.end - own->queries.begin, n = exact->a.queries;
    for (int64_t i = 0; i < exact->a.heads * count; i++) {
        const int64_t h = i / count, row = own->queries.begin + i % count;
        const float *o =
            own->own_o + h * own->o.layout.head_stride + i % count * own->o.layout.row_stride;
        double most = 0;
        for (int64_t x = 0; x < DIM; x++)
            most = fmax(most, fabs((double)o[x] - (double)exact->o[(h * n + row) * DIM + x]));
        if (!expect(most <= (double)own->bound[i] + 4e-6 && own->bound[i] > 0,
                    "certificate of head %lld, row %lld is %g, but the error %g", (long long)h,
                    (long long)row, (double)own->bound[i], most))
            return;
    }
}

static problem *solve(const setting *s, uint64_t seed) {
    plsh_error error;
    problem *p = problem_make(s->a, seed);
    memcpy(p->head, s->head, sizeof s->head);
    p->dropout = s->dropout;
    add_sink(s, p);
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
    plsh_mpi_stats stats;
    const int before = failures;
    snprintf(where, sizeof where, "%s, %s, %s, splits %d%s", s->name,
             s->a.causal ? "causal" : "both sides", s->a.sequences ? "packed" : "one text",
             s->splits, s->interleaved ? ", [rows, heads, dim]" : "");
    problem *p = solve(s, 7), *dense = s->certificate && !s->sink ? solve_exactly(s, 7) : NULL;
    if (s->sink) { /* a row of head 1, 200 sigma away */
        const double seen = (double)p->o[(LONG + 3200) * DIM];
        expect(s->looks == (seen > 7), "the value is %g", seen);
    }
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
        counted = 0;
        if (expect(!plsh_mpi_plan_forward(plan, &f, &stats, &error), "forward: %s",
                   error.message)) {
            compare(&own.o, "o", own.own_o, p->o, 4e-6);
            compare(&own.lse, "lse", own.own_lse, p->lse, 2e-6);
            sent = stats.bytes_sent;
            expect(counted == sent, "%lld bytes sent, not %lld", (long long)counted,
                   (long long)sent);
            if (s->certificate) check_certificate(dense ? dense : p, &own);
            if (s->gradients) check_backward(s, p, plan, &own);
            check_again(s, plan, &own);
        }
        free_shard(&own);
        plsh_mpi_plan_destroy(plan);
    }
    problem_free(p);
    if (dense) problem_free(dense);
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

/* The dropout mask does not depend on which rank has the rows. */
static void test_dropout(void) {
    for (int i = 0; i < 4 * METHODS; i++) {
        setting s = make_setting((plsh_method)(i / 4), i & 1, i & 2, i & 1);
        if (!(i & 2)) s.a.queries = ROWS - 31;
        s.dropout = (plsh_attention_dropout){.p = 0.3, .seed = 2, .head = 3, .query = 5, .key = 70};
        s.certificate = false;
        run_case(&s);
    }
    setting far = make_sink_setting(true, false, false, 0);
    far.dropout = (plsh_attention_dropout){.p = 0.1, .seed = 2};
    far.certificate = false;
    run_case(&far);
}

/* Heads of one kv head that are not in one unit: they share gradients of keys. */
static void test_mixed_heads(void) {
    const plsh_method mixed[3][HEADS] = {
        {PLSH_METHOD_DENSE, PLSH_METHOD_WINDOW, PLSH_METHOD_EXACT, PLSH_METHOD_NONE},
        {PLSH_METHOD_PLSH, PLSH_METHOD_EXACT, PLSH_METHOD_FIXED, PLSH_METHOD_WINDOW},
        {PLSH_METHOD_NONE, PLSH_METHOD_EXACT, PLSH_METHOD_MEAN, PLSH_METHOD_DENSE}};
    for (int i = 0; i < 12; i++) {
        setting s = make_setting(PLSH_METHOD_DENSE, i & 1, i & 2, i & 1);
        plsh_head all[HEADS];
        s.name = "mixed heads";
        for (int h = 0; h < HEADS; h++) {
            set_heads(all, mixed[i / 4][h]);
            s.head[h] = all[h];
        }
        s.interleaved = i & 1;
        run_case(&s);
    }
}

static void test_layouts_and_splits(void) {
    const plsh_method methods[] = {PLSH_METHOD_WINDOW, PLSH_METHOD_EXACT, PLSH_METHOD_NONE};
    for (int i = 0; i < 6; i++) {
        setting s = make_setting(methods[i / 2], i & 1, true, 2);
        s.interleaved = true;
        run_case(&s);
    }
}

/* The queries are the last rows, so some ranks have none; and decays that do not end. */
static void test_fewer_queries(void) {
    for (int i = 0; i < 2 * METHODS; i++) {
        setting s = make_setting((plsh_method)(i / 2), i & 1, false, i & 1);
        s.a.queries = ROWS / 2 - 31;
        for (int h = 0; h < HEADS; h++) s.head[h].partition.scheme = PLSH_SCHEME_INTEGER;
        s.head[3].partition.design = PLSH_DESIGN_STRATIFIED; /* golden is for ALiBi only */
        for (int h = 0; h < HEADS; h++)
            if (h & 1)
                s.head[h].partition.decay =
                    (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 2, .b = 0.3};
        run_case(&s);
    }
}

static void use_labels(setting *s, const int32_t *labels) {
    for (int h = 0; h < HEADS; h++) {
        s->head[h].partition.scheme = PLSH_SCHEME_LABELS;
        s->head[h].partition.labels = labels;
        s->head[h].partition.label_count = ROWS;
    }
}

static void test_labels(void) {
    static int32_t labels[SAMPLES * ROWS];
    for (int i = 0; i < 8; i++) {
        setting s = make_setting(PLSH_METHOD_PLSH, i & 1, i & 2, i & 1);
        s.name = i & 4 ? "labels anywhere" : "labels of blocks";
        for (int j = 0; j < SAMPLES * ROWS; j++)
            labels[j] = i & 4 ? j * 7 % 5 : j % ROWS / (7 + j / ROWS);
        use_labels(&s, labels);
        if (i & 1) s.dropout = (plsh_attention_dropout){.p = 0.2, .seed = 3};
        s.certificate = !(i & 1);
        run_case(&s);
    }
}

/* Halves in, halves out: the float32 result of the same numbers, rounded. */
static void test_halves(void) {
    const plsh_method methods[] = {PLSH_METHOD_WINDOW, PLSH_METHOD_EXACT, PLSH_METHOD_DENSE};
    for (int i = 0; i < 8; i++) {
        const setting s = i < 6 ? make_setting(methods[i / 2], true, true, i & 1)
                                : make_sink_setting(true, true, false, 0);
        const int64_t n = s.a.keys;
        const plsh_dtype type = i & 1 ? PLSH_DTYPE_BFLOAT16 : PLSH_DTYPE_FLOAT16;
        plsh_error error;
        plsh_mpi_plan *plan = NULL;
        snprintf(where, sizeof where, "%s of halves", s.name);
        problem *p = problem_make(s.a, 3);
        memcpy(p->head, s.head, sizeof s.head);
        add_sink(&s, p);
        uint16_t *halves[3];
        problem_halve(p, type, halves);
        expect(!problem_forward(p, &error), "one process: %s", error.message);
        plsh_attention whole = p->a;
        whole.dtype = whole.o_dtype = type;
        if (expect(!plsh_mpi_plan_create(&whole, NULL, MPI_COMM_WORLD, &plan, &error), "plan: %s",
                   error.message)) {
            const plsh_range rows = plsh_mpi_plan_rows(plan, -1);
            const int64_t count = rows.end - rows.begin;
            uint16_t *own[4];
            for (int j = 0; j < 4; j++) {
                const int64_t heads = j % 3 ? KV_HEADS : HEADS;
                own[j] = malloc((size_t)(heads * count * DIM + 1) * sizeof **own);
                for (int64_t h = 0; j < 3 && h < heads; h++)
                    memcpy(own[j] + h * count * DIM, halves[j] + (h * n + rows.begin) * DIM,
                           (size_t)(count * DIM) * sizeof **own);
            }
            const plsh_forward f = {.q = own[0], .k = own[1], .v = own[2], .o = own[3]};
            expect(!plsh_mpi_plan_forward(plan, &f, NULL, &error), "forward: %s", error.message);
            float *o = malloc((size_t)(HEADS * count * DIM + 1) * sizeof *o);
            plsh_dtype_to_float(type, own[3], o, (size_t)(HEADS * count * DIM), &error);
            const own_rows to = describe(&s, HEADS, n, DIM, rows);
            compare(&to, "o", o, p->o, i & 1 ? 0x1p-8 : 0x1p-11);
            for (int j = 0; j < 4; j++) free(own[j]);
            free(o);
        }
        plsh_mpi_plan_destroy(plan);
        for (int j = 0; j < 3; j++) free(halves[j]);
        problem_free(p);
    }
}

/* A long text: `exact` fetches little of it, and its certificate stays small. */
static void test_far_keys_stay(void) {
    for (int i = 0; i < 3; i++) {
        setting s = make_setting(PLSH_METHOD_EXACT, i != 1, false, 0);
        plsh_error error;
        plsh_mpi_plan *plan = NULL;
        plsh_mpi_stats stats;
        snprintf(where, sizeof where, "a long text %d", i);
        s.a.queries = s.a.keys = LONG;
        s.head[3].partition.decay = plsh_decay_alibi(20);
        problem *p = solve(&s, 11);
        if (i == 2) {     /* a key that matters from afar */
            s.off = 2e-5; /* one process is 1.2e-5 off itself */
            for (int x = 0; x < DIM; x++) p->k[5 * DIM + x] *= 60;
            expect(!problem_forward(p, &error), "one process: %s", error.message);
            expect(!problem_backward(p, &error), "one process: %s", error.message);
        }
        expect(!plsh_mpi_plan_create(&p->a, NULL, MPI_COMM_WORLD, &plan, &error), "plan: %s",
               error.message);
        shard own = make_shard(&s, p, plan);
        const plsh_forward f = forward_arrays(&s, &own);
        expect(!plsh_mpi_plan_forward(plan, &f, &stats, &error), "forward: %s", error.message);
        compare(&own.o, "o", own.own_o, p->o, 4e-6);
        check_backward(&s, p, plan, &own);
        const double all = (double)ROWS_BYTES(LONG) / ranks * (ranks - 1);
        if (i < 2)
            expect(stats.attention.error_bound < 2e-4, "the certificate is %g",
                   stats.attention.error_bound);
        if (i < 2)
            expect((double)stats.bytes_sent <= all / 4 * (i + 1), "%lld bytes sent, of %g",
                   (long long)stats.bytes_sent, all);
        expect(ranks == 1 ? stats.bytes_sent == 0 : true, "bytes sent by one rank");
        free_shard(&own);
        plsh_mpi_plan_destroy(plan);
        problem_free(p);
    }
}

/* What all ranks would send if each fetched all rows that it may see. */
static int64_t bytes_of_everything(const setting *s) {
    int64_t rows = 0;
    for (int r = 0; r < ranks; r++)
        rows += s->a.causal ? plsh_mpi_split(s->a.keys, ranks, r)
                            : s->a.keys - (plsh_mpi_split(s->a.keys, ranks, r + 1) -
                                           plsh_mpi_split(s->a.keys, ranks, r));
    return ROWS_BYTES(rows);
}

/* One key far away matters, or might: its tile is fetched, not all rows up to it. */
static void test_sinks(void) {
    for (int i = 0; i < 4; i++) {
        const bool cut = i == 2;
        setting s = make_sink_setting(i & 1, i != 3, cut, cut);
        s.interleaved = i == 1;
        run_case(&s);
        int64_t all = 0;
        MPI_Allreduce(&sent, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (!cut)
            expect(all <= bytes_of_everything(&s) / 3, "%lld bytes sent, of %lld", (long long)all,
                   (long long)bytes_of_everything(&s));
    }
}

/* With an eps well above rounding, to test the bounds of merged rows. */
static void test_coarse_sink(void) {
    plsh_error error;
    plsh_mpi_plan *plan;
    setting s = make_sink_setting(true, true, false, 0);
    s.gradients = false;
    for (int h = 0; h < HEADS; h++) s.head[h].eps = 0.01;
    problem *dense = solve_exactly(&s, 7);
    memcpy(dense->head, s.head, sizeof s.head);
    snprintf(where, sizeof where, "a sink, eps 0.01");
    if (expect(!plsh_mpi_plan_create(&dense->a, NULL, MPI_COMM_WORLD, &plan, &error), "plan: %s",
               error.message)) {
        shard own = make_shard(&s, dense, plan);
        const plsh_forward f = forward_arrays(&s, &own);
        if (expect(!plsh_mpi_plan_forward(plan, &f, NULL, &error), "forward: %s", error.message))
            check_certificate(dense, &own);
        free_shard(&own);
        plsh_mpi_plan_destroy(plan);
    }
    problem_free(dense);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void expect_error(plsh_status found, plsh_status status, const plsh_error *error,
                         const char *text) {
    expect(found == status && strstr(error->message, text), "status %d, \"%s\"; not %d, \"%s\"",
           (int)found, found ? error->message : "", (int)status, text);
}

/* An error of one rank is reported by all ranks. */
static void test_errors(void) {
    plsh_error error = {0};
    plsh_mpi_plan *plan;
    plsh_attention a;
    char text[100];
    const int bad = ranks - 1;
    setting s = make_setting(PLSH_METHOD_WINDOW, true, false, 0);
    snprintf(where, sizeof where, "errors");
    a = s.a;
    a.head = s.head;
    a.head_count = HEADS;
    a.check_finite = true;
    int64_t splits[64] = {0};
    make_splits(1, ROWS, splits);
    if (rank == bad) splits[ranks] = ROWS - 1;
    snprintf(text, sizeof text, "rank %d: splits[%d] is 419", bad, ranks);
    expect_error(plsh_mpi_plan_create(&a, splits, MPI_COMM_WORLD, &plan, &error),
                 PLSH_STATUS_INVALID, &error, text);
    expect(plan == NULL, "there is a plan");
    a.scale = rank == bad ? 1 : 2;
    if (ranks > 1) {
        snprintf(text, sizeof text, "is not that of rank 0");
        expect_error(plsh_mpi_plan_create(&a, NULL, MPI_COMM_WORLD, &plan, &error),
                     PLSH_STATUS_INVALID, &error, text);
    }
    a.scale = 0;
    a.places = &(plsh_place){0, 0};
    expect_error(plsh_mpi_plan_create(&a, NULL, MPI_COMM_WORLD, &plan, &error), PLSH_STATUS_INVALID,
                 &error, "rank 0: a text over ranks has no places");
    a.places = NULL;
    problem *p = problem_make(s.a, 7);
    expect(!plsh_mpi_plan_create(&a, NULL, MPI_COMM_WORLD, &plan, &error), "%s", error.message);
    shard own = make_shard(&s, p, plan);
    plsh_forward f = forward_arrays(&s, &own);
    plsh_backward b = backward_arrays(&s, &own);
    if (rank == bad) own.own_v[3 * DIM + 2] = NAN;
    snprintf(text, sizeof text, "rank %d: v is not finite at head 0, row %lld, column 2", bad,
             (long long)plsh_mpi_plan_rows(plan, bad).begin + 3);
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, &error), PLSH_STATUS_NOT_FINITE, &error,
                 text);
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, NULL), PLSH_STATUS_NOT_FINITE, &error, text);
    if (rank == bad) own.own_v[3 * DIM + 2] = 0;
    if (rank == bad) f.q = NULL;
    snprintf(text, sizeof text, "rank %d: q must not be NULL", bad);
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, &error), PLSH_STATUS_INVALID, &error, text);
    f.q = own.own_q;
    if (rank == bad) f.o = own.own_q; /* found late, when rows are on their way */
    snprintf(text, sizeof text, "rank %d: ", bad);
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, &error), PLSH_STATUS_INVALID, &error, text);
    f.o = own.own_o;
    expect(!plsh_mpi_plan_forward(plan, &f, NULL, &error), "%s", error.message);
    f.certificate = own.bound;
    f.dropout.p = 0.1;
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, &error), PLSH_STATUS_UNSUPPORTED, &error,
                 "certificates are of attention without dropout");
    f.certificate = NULL;
    f.dropout.p = rank == bad ? 1.0 : 0.1;
    expect_error(plsh_mpi_plan_forward(plan, &f, NULL, &error), PLSH_STATUS_INVALID, &error,
                 "dropout of 1; at least 0");
    if (rank == bad) b.d_k = NULL;
    if (ranks > 1)
        expect_error(plsh_mpi_plan_backward(plan, &b, NULL, &error), PLSH_STATUS_INVALID, &error,
                     "do not ask for the same outputs");
    b.d_k = own.d_k;
    expect(!plsh_mpi_plan_backward(plan, &b, NULL, &error), "%s", error.message);
    free_shard(&own);
    plsh_mpi_plan_destroy(plan);
    problem_free(p);
}

/* The last rank has a different number in the table of a decay, or in the labels. */
static void test_contents(void) {
    static int32_t labels[SAMPLES * ROWS];
    double table[] = {1, 0.5, 0.25, 0.125};
    snprintf(where, sizeof where, "tables and labels");
    for (int i = 0; ranks > 1 && i < 4; i++) {
        const bool differs = i & 1, labelled = i & 2;
        plsh_error error = {0};
        plsh_mpi_plan *plan;
        setting s = make_setting(labelled ? PLSH_METHOD_PLSH : PLSH_METHOD_EXACT, true, false, 0);
        if (labelled) use_labels(&s, labels);
        for (int h = 0; !labelled && h < HEADS; h++)
            s.head[h].partition.decay =
                (plsh_decay){.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 4};
        s.a.head = s.head;
        s.a.head_count = HEADS;
        table[2] = differs && rank == ranks - 1 ? 0.26 : 0.25;
        labels[ROWS / 2] = differs && rank == ranks - 1;
        plsh_status status = plsh_mpi_plan_create(&s.a, NULL, MPI_COMM_WORLD, &plan, &error);
        if (differs)
            expect_error(status, PLSH_STATUS_INVALID, &error, "is not that of rank 0");
        else
            expect(!status, "%s", error.message);
        plsh_mpi_plan_destroy(plan);
    }
}

/* Each allocation of one rank fails once: an error everywhere, and nothing is left behind. */
static void test_memory(void) {
    setting s = make_setting(PLSH_METHOD_EXACT, false, true, 0);
    s.head[0].method = s.head[1].method = PLSH_METHOD_DENSE;
    s.head[2].method = PLSH_METHOD_WINDOW;
    problem *p = problem_make(s.a, 7);
    memcpy(p->head, s.head, sizeof s.head);
    const int bad = ranks / 2;
    char text[40];
    snprintf(text, sizeof text, "rank %d: ", bad);
    const long before = plsh_memory_live();
    for (int i = 0, done = 0; !done && i < 400; i++) {
        plsh_error error = {0};
        plsh_mpi_plan *plan = NULL;
        snprintf(where, sizeof where, "allocation %d", i);
        if (rank == bad) plsh_memory_fail_after(i);
        plsh_status status = plsh_mpi_plan_create(&p->a, NULL, MPI_COMM_WORLD, &plan, &error);
        if (!status) {
            shard own = make_shard(&s, p, plan);
            const plsh_forward f = forward_arrays(&s, &own);
            const plsh_backward b = backward_arrays(&s, &own);
            status = plsh_mpi_plan_forward(plan, &f, NULL, &error);
            if (!status) status = plsh_mpi_plan_backward(plan, &b, NULL, &error);
            free_shard(&own);
        }
        plsh_mpi_plan_destroy(plan);
        plsh_memory_fail_after(-1);
        done = status == PLSH_STATUS_OK;
        if (status) expect_error(status, PLSH_STATUS_NO_MEMORY, &error, text);
        if (done) expect(i > 20, "no more than %d allocations", i);
    }
    expect(plsh_memory_live() == before, "memory is left");
    problem_free(p);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"methods", test_methods},       {"dropout", test_dropout},
             {"mixed", test_mixed_heads},     {"layouts", test_layouts_and_splits},
             {"queries", test_fewer_queries}, {"labels", test_labels},
             {"halves", test_halves},         {"far", test_far_keys_stay},
             {"sinks", test_sinks},           {"coarse", test_coarse_sink},
             {"errors", test_errors},         {"contents", test_contents},
             {"memory", test_memory}};

/* All tests, or those that are named. */
int main(int argc, char **argv) {
    int provided, all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool wanted = argc == 1;
        for (int j = 1; j < argc; j++) wanted |= strcmp(argv[j], tests[i].name) == 0;
        if (wanted) tests[i].run();
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks: %s\n", ranks, all ? "failed" : "ok");
    MPI_Finalize();
    return all > 0;
}
