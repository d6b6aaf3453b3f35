/* attention: the draws of a sampled head, compiled. */
#include "attention/plan/plan.h"

#include "base/status.h"
#include "partition/blocks.h"

static plsh_status prepare_labels(const plsh_plan *plan, plsh_head_plan *head, bool *contiguous,
                                  plsh_error *error) {
    const plsh_partition *set = &head->head.partition;
    if (set->label_count < plan->longest)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld labels per draw, but a sequence has %lld keys",
                         (long long)set->label_count, (long long)plan->longest);
    /* Checks all positions, so that the choice does not depend on the length of a call. */
    *contiguous = plsh_partition_contiguous(set, set->label_count);
    if (*contiguous) return PLSH_STATUS_OK;
    return plsh_gathering_create(set, plan->longest, &head->gathering, error);
}

static plsh_status prepare_cells(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error) {
    const int64_t h = head - plan->head;
    const plsh_gathering_rows rows = {.dim = plan->points.dim,
                                      .query = plsh_points_of_queries(&plan->points, h),
                                      .key = plsh_points_of_keys(&plan->points, h),
                                      .sequences = plan->sequences,
                                      .query_offset = plan->query_offset,
                                      .key_offset = plan->key_offset,
                                      .threads = plan->threads};
    plsh_error inner = {0};
    plsh_status status =
        plsh_gathering_create_cells(&head->head.partition, &rows, &head->gathering, &inner);
    if (!status) return status;
    return plsh_fail(error, status, "head %lld: %.200s", (long long)h, inner.message);
}

plsh_status plsh_draws_prepare(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error) {
    const plsh_partition *set = &head->head.partition;
    plsh_status status = PLSH_STATUS_OK;
    if (plan->longest > PLSH_COUNTING_REACH)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "a sequence of %lld keys; the sampled methods take 2^30",
                         (long long)plan->longest);
    if (plan->points.dim > 0) return prepare_cells(plan, head, error);
    bool fused = head->head.method == PLSH_METHOD_PLSH, contiguous = true;
    if (set->scheme == PLSH_SCHEME_LABELS) status = prepare_labels(plan, head, &contiguous, error);
    if (status || !contiguous) return status;
    status = plsh_counting_create(set, fused, &head->counting, error);
    if (status) return status;
    head->counts_bytes = plsh_counts_size(head->counting, (int)plsh_head_tile_rows(plan, head),
                                          plan->kernel->group, plan->shape.causal);
    return PLSH_STATUS_OK;
}

void plsh_draws_release(plsh_head_plan *head) {
    plsh_counting_destroy(head->counting);
    plsh_gathering_destroy(head->gathering);
}
