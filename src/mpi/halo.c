/* mpi: units that fetch a halo. Near: queries that see only own rows; they run while halos are in
 * transit. Far: the other queries, on copies of the own rows next to those of other ranks.
 * Outliers: additional keys, whose results are merged with those of near and far. */
#include "mpi/merge.h"

/* The rows of `rank` that a far call has. */
static plsh_range rows_from(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                            const plsh_mpi_far *far, int rank) {
    if (rank == plan->rank) return (plsh_range){0, 0};
    const plsh_range rows = plsh_range_common(far->keys, plan->shard->rows[rank]);
    return far->outlier ? rows : plsh_range_common(rows, unit->shard->need[plan->rank]);
}

/* The own rows that `rank` needs: its range (which = 0), or those of outlier which - 1. */
static plsh_range rows_to(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int rank,
                          int which) {
    if (rank == plan->rank) return (plsh_range){0, 0};
    if (which == 0) return plsh_range_common(unit->shard->need[rank], plsh_mpi_own_rows(plan));
    const plsh_shard_outlier *tile = &unit->shard->outlier[which - 1];
    const bool goes = tile->part == plan->rank && (unit->shard->fetches[rank] >> (which - 1) & 1);
    return goes ? tile->rows : (plsh_range){0, 0};
}

static plsh_mpi_rows far_gradients(const plsh_mpi_call *call, const plsh_mpi_far *far) {
    return plsh_mpi_rows_gradients(call->plan, far->keys, call->backward->d_k ? far->d_k : NULL,
                                   call->backward->d_v ? far->d_v : NULL);
}

static plsh_mpi_rows own_gradients(const plsh_mpi_call *call, const plsh_mpi_unit *unit) {
    return plsh_mpi_rows_own_gradients(call->plan, unit, call->backward->d_k, call->backward->d_v);
}

/* The gradients of own rows that were sent back, at *at in their buffer; advances *at. */
static plsh_mpi_rows returned(const plsh_mpi_call *call, const plsh_mpi_unit *unit, plsh_range rows,
                              float **at) {
    const plsh_mpi_plan *plan = call->plan;
    const int64_t count = plsh_range_size(rows) * unit->shard->kv_heads;
    float *d_k = *at, *d_v = d_k + count * plan->whole.head_dim;
    *at = d_v + count * plan->whole.value_dim;
    return plsh_mpi_rows_gradients(plan, rows, call->backward->d_k ? d_k : NULL,
                                   call->backward->d_v ? d_v : NULL);
}

/* Have these queries keys in more than one part? */
static bool is_merged(const plsh_mpi_unit *unit, plsh_range queries) {
    for (int i = 0; i < unit->far_count; i++) {
        const plsh_mpi_far *far = &unit->far[i];
        const plsh_range common = plsh_range_common(far->queries, queries);
        if (far->outlier && plsh_range_size(common) > 0) return true;
    }
    return false;
}

plsh_status plsh_mpi_halo_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = plsh_mpi_unit_prepare(plan, unit, call->backward != NULL, error);
    if (!status) status = plsh_mpi_merge_prepare(call, unit, error);
    if (status || !call->backward) return status;
    int64_t rows = 0;
    for (int r = 0; r < plan->ranks; r++)
        for (int i = 0; i <= unit->shard->outliers; i++)
            rows += plsh_range_size(rows_to(plan, unit, r, i));
    const int64_t columns = plan->whole.head_dim + plan->whole.value_dim;
    return plsh_mpi_grow(&unit->returned, &unit->returned_size,
                         (size_t)(rows * unit->shard->kv_heads * columns) * sizeof(float),
                         "gradients from other ranks", error);
}

static plsh_status receive_rows(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = PLSH_STATUS_OK;
    unit->rows_begin = plan->request_count;
    for (int r = 0; !status && r < plan->ranks; r++) {
        for (int i = 0; !status && i < unit->far_count; i++) {
            const plsh_mpi_far *far = &unit->far[i];
            const plsh_mpi_rows held = plsh_mpi_rows_held(plan, far->keys, far->k, far->v);
            const plsh_range rows = rows_from(plan, unit, far, r);
            status = plsh_mpi_receive(plan, unit, &held, rows, r, error);
        }
    }
    unit->rows_end = plan->request_count;
    return status;
}

static plsh_status receive_gradients(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = PLSH_STATUS_OK;
    float *at = unit->returned;
    unit->returns_begin = plan->request_count;
    for (int r = 0; call->backward && r < plan->ranks; r++) {
        for (int i = 0; !status && i <= unit->shard->outliers; i++) {
            const plsh_range range = rows_to(plan, unit, r, i);
            const plsh_mpi_rows rows = returned(call, unit, range, &at);
            status = plsh_mpi_receive(plan, unit, &rows, range, r, error);
        }
    }
    unit->returns_end = plan->request_count;
    return status;
}

plsh_status plsh_mpi_halo_begin(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_rows own = plsh_mpi_rows_own(plan, unit, call->k, call->v);
    plsh_status status = receive_rows(call, unit, error);
    if (!status) status = receive_gradients(call, unit, error);
    for (int r = 0; r < plan->ranks; r++)
        for (int i = 0; !status && i <= unit->shard->outliers; i++)
            status = plsh_mpi_send(plan, unit, &own, rows_to(plan, unit, r, i), r, error);
    return status;
}

void plsh_mpi_halo_near(plsh_mpi_call *call, plsh_mpi_unit *unit) {
    const plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_rows own = plsh_mpi_rows_own(plan, unit, call->k, call->v);
    const plsh_mpi_merge merge = plsh_mpi_merge_of(call, unit);
    plsh_mpi_part part = {.queries = unit->shard->near,
                          .keys = plsh_mpi_own_rows(plan),
                          .plan = unit->own,
                          .some_keys = is_merged(unit, unit->shard->near),
                          .certifies = true,
                          .k = own.k,
                          .v = own.v,
                          .o = merge.o,
                          .lse = merge.lse};
    if (call->backward) {
        const plsh_mpi_rows gradients = own_gradients(call, unit);
        part.d_k = (float *)(void *)gradients.k;
        part.d_v = (float *)(void *)gradients.v;
        if (unit->first && plsh_range_size(unit->shard->near) == 0)
            plsh_mpi_rows_clear(plan, unit, &gradients, part.keys);
    }
    plsh_mpi_call_attend(call, unit, &part);
    for (int i = 0; i < unit->far_count; i++) { /* the own rows of the far calls */
        const plsh_mpi_far *far = &unit->far[i];
        const plsh_mpi_rows held = plsh_mpi_rows_held(plan, far->keys, far->k, far->v);
        plsh_mpi_rows_copy(plan, unit, &held, &own, plsh_range_common(far->keys, part.keys));
    }
}

/* Sends the gradients of other ranks' rows back, and adds those of own rows. */
static plsh_status return_gradients(plsh_mpi_call *call, plsh_mpi_unit *unit,
                                    const plsh_mpi_far *far, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_rows made = far_gradients(call, far), own = own_gradients(call, unit);
    plsh_status status = PLSH_STATUS_OK;
    plsh_mpi_rows_add(plan, unit, &own, &made,
                      plsh_range_common(far->keys, plsh_mpi_own_rows(plan)));
    for (int r = 0; !status && r < plan->ranks; r++)
        status = plsh_mpi_send(plan, unit, &made, rows_from(plan, unit, far, r), r, error);
    return status;
}

static void attend_far(plsh_mpi_call *call, plsh_mpi_unit *unit, const plsh_mpi_far *far,
                       const plsh_mpi_merge *merge) {
    plsh_mpi_part part = {.queries = far->queries,
                          .keys = far->keys,
                          .plan = far->outlier ? unit->dense : unit->other,
                          .some_keys = is_merged(unit, far->queries),
                          .certifies = !far->outlier,
                          .k = far->k,
                          .v = far->v,
                          .o = far->outlier ? merge->part : merge->o,
                          .lse = far->outlier ? merge->part_lse : merge->lse,
                          .d_q = far->outlier ? merge->part : NULL};
    if (call->backward) {
        part.d_k = call->backward->d_k ? far->d_k : NULL;
        part.d_v = call->backward->d_v ? far->d_v : NULL;
    }
    plsh_mpi_call_attend(call, unit, &part);
    if (far->outlier && !call->status) plsh_mpi_merge_part(call, unit, merge, far->queries);
}

plsh_status plsh_mpi_halo_far(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    const plsh_mpi_merge merge = plsh_mpi_merge_of(call, unit);
    plsh_status status = plsh_mpi_wait(call->plan, unit->rows_begin, unit->rows_end, error);
    for (int i = 0; !status && i < unit->far_count; i++) {
        attend_far(call, unit, &unit->far[i], &merge);
        if (call->backward) status = return_gradients(call, unit, &unit->far[i], error);
    }
    if (call->forward && !call->status && merge.o) plsh_mpi_merge_finish(call, unit, &merge);
    return status;
}

plsh_status plsh_mpi_halo_end(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    if (!call->backward) return PLSH_STATUS_OK;
    plsh_status status = plsh_mpi_wait(plan, unit->returns_begin, unit->returns_end, error);
    const plsh_mpi_rows own = own_gradients(call, unit);
    float *at = unit->returned;
    for (int r = 0; !status && r < plan->ranks; r++) {
        for (int i = 0; i <= unit->shard->outliers; i++) {
            const plsh_range range = rows_to(plan, unit, r, i);
            const plsh_mpi_rows rows = returned(call, unit, range, &at);
            plsh_mpi_rows_add(plan, unit, &own, &rows, range);
        }
    }
    return status;
}
