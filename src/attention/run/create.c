/* attention: creates plans; plsh_attend runs one once. */

#include "attention/run/forward.h"
#include "base/memory.h"
#include "base/status.h"

static plsh_status create(const plsh_attention *attention, plsh_plan_use use, plsh_plan **out,
                          plsh_error *error) {
    plsh_plan *plan;
    *out = NULL;
    plsh_status status = plsh_plan_make(attention, use, &plan, error);
    if (status) return status;
    if (!plsh_forward_size(plan, &plan->workspace_bytes)) {
        status = plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of %lld keys is too large",
                           (long long)plan->shape.keys);
        plsh_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return PLSH_STATUS_OK;
}

plsh_status plsh_plan_create(const plsh_attention *attention, plsh_plan **plan, plsh_error *error) {
    return create(attention, PLSH_PLAN_ARRAYS, plan, error);
}

plsh_status plsh_plan_create_paged(const plsh_attention *attention, plsh_plan **plan,
                                   plsh_error *error) {
    return create(attention, PLSH_PLAN_PAGES, plan, error);
}

plsh_status plsh_plan_create_measured(const plsh_attention *attention, plsh_plan **plan,
                                      plsh_error *error) {
    return create(attention, PLSH_PLAN_MEASURED, plan, error);
}

size_t plsh_plan_workspace(const plsh_plan *plan) { return plan->workspace_bytes; }

plsh_status plsh_attend(const plsh_attention *attention, const void *q, const void *k,
                        const void *v, void *o, float *lse, plsh_error *error) {
    plsh_plan *plan;
    void *workspace = NULL;
    plsh_status status = plsh_plan_create(attention, &plan, error);
    if (status) return status;
    status = plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "attention workspace", error);
    plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o, .lse = lse};
    if (!status) status = plsh_plan_forward(plan, &arrays, workspace, NULL, error);
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    return status;
}
