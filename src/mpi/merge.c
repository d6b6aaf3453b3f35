/* mpi: merges the results of a unit's attention on parts of its keys. */
#include "mpi/merge.h"

#include <math.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/thread.h"

/* The offset of row (h, i) of the unit in an array with the layout of q or o. */
static ptrdiff_t row_at(plsh_layout layout, int64_t h, int64_t i) {
    return h * layout.head_stride + i * layout.row_stride;
}

/* Elements that rows of `heads` heads span, of the own queries. */
static size_t span(const plsh_mpi_plan *plan, plsh_layout layout, int64_t heads, int64_t columns) {
    const int64_t rows = plsh_range_size(plsh_mpi_own_queries(plan));
    if (rows == 0) return 0;
    return (size_t)(row_at(layout, heads - 1, rows - 1) + columns);
}

/* An array's rows of a unit; NULL where there is none. */
static float *rows_of(float *array, ptrdiff_t at) { return array ? array + at : NULL; }

/* `sums` has all heads, first o and then lse. In layouts where the rows of all heads are
 * interleaved, an array for one unit would be as large as one for all. */
static plsh_mpi_merge lay_out(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                              plsh_arena *parts, plsh_arena *sums) {
    const plsh_mpi_plan *plan = call->plan;
    const plsh_attention *a = &plan->whole;
    const int64_t queries = plsh_range_size(plsh_mpi_own_queries(plan));
    const bool several = unit->shard->rotates || unit->shard->fetches[plan->rank];
    plsh_mpi_merge merge = {0};
    if (!several && !plsh_mpi_unit_merges(plan, unit)) return merge;
    if (call->backward) {
        merge.d_q = rows_of(call->backward->d_q, row_at(a->q, unit->shard->head, 0));
        if (several)
            merge.part =
                plsh_arena_floats(parts, span(plan, a->q, unit->shard->heads, a->head_dim));
        return merge;
    }
    float *o = call->forward->o, *lse = call->forward->lse;
    if (a->o_dtype != PLSH_DTYPE_FLOAT32)
        o = plsh_arena_floats(sums, span(plan, a->o, a->heads, a->value_dim));
    merge.o = rows_of(o, row_at(a->o, unit->shard->head, 0));
    if (!several) return merge;
    if (!lse) lse = plsh_arena_floats(sums, (size_t)(a->heads * queries));
    merge.lse = rows_of(lse, unit->shard->head * queries);
    merge.part = plsh_arena_floats(parts, span(plan, a->o, unit->shard->heads, a->value_dim));
    merge.part_lse = plsh_arena_floats(parts, (size_t)(unit->shard->heads * queries));
    return merge;
}

plsh_status plsh_mpi_merge_prepare(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                                   plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_arena parts = {.memory = NULL}, sums = {.memory = NULL};
    lay_out(call, unit, &parts, &sums);
    plsh_status status =
        plsh_mpi_grow(&plan->parts, &plan->parts_size, parts.used, "parts of attention", error);
    if (!status)
        status = plsh_mpi_grow(&plan->sums, &plan->sums_size, sums.used, "sums of parts", error);
    return status;
}

/* Frees the parts between calls: they are as large as the user's q, and a model has a plan for each
 * layer. */
void plsh_mpi_merge_release(plsh_mpi_plan *plan) {
    plsh_release(plan->parts);
    plan->parts = NULL;
    plan->parts_size = 0;
}

plsh_mpi_merge plsh_mpi_merge_of(const plsh_mpi_call *call, const plsh_mpi_unit *unit) {
    plsh_arena parts = {.memory = call->plan->parts}, sums = {.memory = call->plan->sums};
    return lay_out(call, unit, &parts, &sums);
}

static void merge_row(float *o, float *lse, const float *part, float part_lse, int64_t columns) {
    const double a = (double)*lse, b = (double)part_lse;
    if (b == -INFINITY) return;
    const double most = a > b ? a : b;
    const double all = most == INFINITY ? NAN : most + log(exp(a - most) + exp(b - most));
    const double old = exp(a - all), now = exp(b - all);
    for (int64_t x = 0; x < columns; x++)
        o[x] = (float)(old * (double)o[x] + now * (double)part[x]);
    *lse = (float)all;
}

static void add_row(float *d_q, const float *part, int64_t columns) {
    for (int64_t x = 0; x < columns; x++) d_q[x] += part[x];
}

typedef struct merging {
    const plsh_mpi_call *call;
    const plsh_mpi_merge *merge;
    plsh_range queries;
} merging;

/* Query i % count of head i / count. */
static void merge_rows(void *context, int64_t first, int64_t end, int slot) {
    const merging *m = context;
    const plsh_mpi_merge *merge = m->merge;
    const plsh_attention *a = &m->call->plan->whole;
    const plsh_range own = plsh_mpi_own_queries(m->call->plan);
    const int64_t all = plsh_range_size(own), count = plsh_range_size(m->queries);
    (void)slot;
    for (int64_t i = first; count > 0 && i < end; i++) {
        const int64_t h = i / count, row = m->queries.begin - own.begin + i % count;
        const int64_t number = h * all + row;
        const ptrdiff_t o = row_at(a->o, h, row), q = row_at(a->q, h, row);
        if (m->call->forward)
            merge_row(merge->o + o, merge->lse + number, merge->part + o, merge->part_lse[number],
                      a->value_dim);
        else
            add_row(merge->d_q + q, merge->part + q, a->head_dim);
    }
}

void plsh_mpi_merge_part(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                         const plsh_mpi_merge *merge, plsh_range queries) {
    enum { LEAST = 64 }; /* rows of a chunk */
    merging m = {call, merge, queries};
    if (call->backward && !merge->d_q) return;
    plsh_thread_rows(call->plan->whole.threads, unit->shard->heads * plsh_range_size(queries),
                     LEAST, merge_rows, &m);
}

void plsh_mpi_merge_finish(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                           const plsh_mpi_merge *merge) {
    const plsh_attention *a = &call->plan->whole;
    const int64_t queries = plsh_range_size(plsh_mpi_own_queries(call->plan));
    if (a->o_dtype == PLSH_DTYPE_FLOAT32 || !merge->o) return;
    for (int64_t i = 0; i < unit->shard->heads * queries; i++) {
        const ptrdiff_t from = row_at(a->o, i / queries, i % queries);
        const ptrdiff_t to = row_at(a->o, unit->shard->head + i / queries, i % queries);
        for (int64_t x = 0; x < a->value_dim; x++)
            plsh_dtype_store(a->o_dtype, call->forward->o, to + x, merge->o[from + x]);
    }
}
