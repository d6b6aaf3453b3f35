/* mpi: attention on some rows of a call. */
#include "mpi/call.h"

#include <string.h>

/* Where the rows of a unit begin in an array of the user's, or (base 0) in one of the unit's. */
static ptrdiff_t place(const plsh_mpi_plan *plan, plsh_layout layout, int64_t head, int64_t row) {
    return head * layout.head_stride + (row - plsh_mpi_own_queries(plan).begin) * layout.row_stride;
}

/* Rows `queries` of [heads][own queries] to or from [heads][queries]. */
static void move_rows(const plsh_mpi_plan *plan, float *whole, float *part, int64_t heads,
                      plsh_range queries, bool back) {
    const plsh_range own = plsh_mpi_own_queries(plan);
    const int64_t all = plsh_range_size(own), count = plsh_range_size(queries);
    for (int64_t h = 0; h < heads; h++) {
        float *at = whole + h * all + queries.begin - own.begin;
        if (back)
            memcpy(at, part + h * count, (size_t)count * sizeof *at);
        else
            memcpy(part + h * count, at, (size_t)count * sizeof *at);
    }
}

/* A part's dropout is that of the whole: rows of q count from the first query, those of k from the
 * first key. */
static plsh_attention_dropout dropout_of(const plsh_mpi_plan *plan, plsh_attention_dropout dropout,
                                         const plsh_mpi_unit *unit, const plsh_mpi_part *part) {
    dropout.head += unit->shard->head;
    dropout.query += part->queries.begin - (plan->whole.keys - plan->whole.queries);
    dropout.key += part->keys.begin;
    return dropout;
}

static void note(plsh_mpi_call *call, plsh_status status, const plsh_error *error,
                 const plsh_stats *stats) {
    plsh_stats *sum = &call->plan->stats->attention;
    if (status && !call->status) {
        call->status = status;
        call->error = *error;
    }
    sum->pairs += stats->pairs;
}

static void forward(plsh_mpi_call *call, const plsh_mpi_unit *unit, const plsh_mpi_part *part,
                    const plsh_extent *extent) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_attention *a = &plan->whole;
    const int64_t all = plsh_range_size(plsh_mpi_own_queries(plan));
    const size_t rows = (size_t)(unit->shard->heads * plsh_range_size(part->queries));
    const ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(a->dtype);
    const ptrdiff_t o_size = (ptrdiff_t)plsh_dtype_size(a->o_dtype);
    float *lse = part->lse, *bound = call->forward->certificate;
    if (!lse && call->forward->lse) lse = call->forward->lse + unit->shard->head * all;
    if (!part->certifies) bound = NULL;
    if (bound) bound += unit->shard->head * all;
    const bool is_part = plsh_range_size(part->queries) != all;
    plsh_forward arrays = {.q = (const char *)call->q +
                                place(plan, a->q, unit->shard->head, part->queries.begin) * size,
                           .k = part->k,
                           .v = part->v,
                           .lse = lse && is_part ? plan->scratch : lse,
                           .certificate = bound && is_part ? plan->scratch + rows : bound,
                           .extent = extent,
                           .dropout = dropout_of(plan, call->forward->dropout, unit, part)};
    if (part->o)
        arrays.o = part->o + place(plan, a->o, 0, part->queries.begin);
    else
        arrays.o = (char *)call->forward->o +
                   place(plan, a->o, unit->shard->head, part->queries.begin) * o_size;
    plsh_stats stats = {0};
    plsh_error error;
    const plsh_status status =
        plsh_plan_forward(part->plan, &arrays, plan->workspace, &stats, &error);
    note(call, status, &error, &stats);
    if (lse && is_part)
        move_rows(plan, lse, plan->scratch, unit->shard->heads, part->queries, true);
    if (bound && is_part)
        move_rows(plan, bound, plan->scratch + rows, unit->shard->heads, part->queries, true);
}

static void backward(plsh_mpi_call *call, const plsh_mpi_unit *unit, const plsh_mpi_part *part,
                     const plsh_extent *extent) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_backward *b = call->backward;
    const plsh_attention *a = &plan->whole;
    const int64_t all = plsh_range_size(plsh_mpi_own_queries(plan));
    const ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(a->dtype);
    const ptrdiff_t q = place(plan, a->q, unit->shard->head, part->queries.begin);
    const ptrdiff_t o = place(plan, a->o, unit->shard->head, part->queries.begin);
    const bool is_part = plsh_range_size(part->queries) != all;
    float *lse = (float *)b->lse + unit->shard->head * all;
    double *d_decay = (double *)(void *)(plan->scratch + 2 * unit->shard->heads * all);
    if (is_part) move_rows(plan, lse, plan->scratch, unit->shard->heads, part->queries, false);
    plsh_backward arrays = {.q = (const char *)call->q + q * size,
                            .k = part->k,
                            .v = part->v,
                            .o = b->o + o,
                            .lse = is_part ? plan->scratch : lse,
                            .d_o = b->d_o + o,
                            .d_k = part->d_k,
                            .d_v = part->d_v,
                            .d_decay = call->d_decay ? d_decay : NULL,
                            .extent = extent,
                            .some_keys = part->some_keys,
                            .dropout = dropout_of(plan, b->dropout, unit, part)};
    if (b->d_q)
        arrays.d_q = part->d_q ? part->d_q + place(plan, a->q, 0, part->queries.begin) : b->d_q + q;
    plsh_stats stats = {0};
    plsh_error error;
    const plsh_status status =
        plsh_plan_backward(part->plan, &arrays, plan->workspace, &stats, &error);
    note(call, status, &error, &stats);
    for (int64_t i = 0; call->d_decay && i < 2 * unit->shard->heads; i++)
        call->d_decay[2 * unit->shard->head + i] += d_decay[i];
}

void plsh_mpi_call_attend(plsh_mpi_call *call, const plsh_mpi_unit *unit,
                          const plsh_mpi_part *part) {
    if (plsh_range_size(part->queries) == 0 || call->status) return;
    const plsh_extent extent = plsh_mpi_extent(call->plan, part->queries, part->keys);
    if (call->forward)
        forward(call, unit, part, &extent);
    else
        backward(call, unit, part, &extent);
    plsh_mpi_poke(call->plan);
}
