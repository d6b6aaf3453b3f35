/* attention: checks that the inputs are finite. */
#include "attention/plan/plan.h"

#include <stdatomic.h>

#include "base/status.h"
#include "base/thread.h"

typedef struct array {
    const char *name, *data;
    plsh_dtype dtype;
    plsh_layout layout;
    int64_t heads, rows;
    int dim;
} array;

static plsh_stored_rows row_at(const array *a, int64_t index) {
    int64_t at = index / a->rows * a->layout.head_stride + index % a->rows * a->layout.row_stride;
    return (plsh_stored_rows){a->data + at * (int64_t)plsh_dtype_size(a->dtype), a->dtype, a->dim};
}

typedef struct search {
    const plsh_plan *plan;
    const array *a;
    _Atomic int64_t bad; /* the first row that is known to be */
} search;

static void look_at_rows(void *context, int64_t first, int64_t end, int slot) {
    search *s = context;
    const plsh_kernels *kernel = s->plan->kernel;
    const array *a = s->a;
    int64_t bad = atomic_load_explicit(&s->bad, memory_order_relaxed), i = first;
    (void)slot;
    while (i < end && i < bad && kernel->all_finite(row_at(a, i), 1, a->dim)) i++;
    while (i < end && i < bad && !atomic_compare_exchange_weak(&s->bad, &bad, i)) continue;
}

/* The first row that is not finite, heads one after the other; heads * rows if there is none. */
static int64_t first_bad(const plsh_plan *plan, const array *a) {
    search s = {.plan = plan, .a = a};
    atomic_init(&s.bad, a->heads * a->rows);
    plsh_thread_rows(plan->threads, a->heads * a->rows, 256, look_at_rows, &s);
    return atomic_load(&s.bad);
}

plsh_status plsh_check_finite(const plsh_plan *plan, const plsh_forward *arrays, const float *d_o,
                              plsh_error *error) {
    const plsh_attention *s = &plan->shape;
    int d = (int)s->head_dim, dv = (int)s->value_dim;
    const array all[] = {
        {"q", arrays->q, s->dtype, s->q, s->heads, s->queries, d},
        {"k", arrays->k, s->dtype, s->k, s->kv_heads, s->keys, d},
        {"v", arrays->v, s->dtype, s->v, s->kv_heads, s->keys, dv},
        {"d_o", (const char *)d_o, PLSH_DTYPE_FLOAT32, s->o, s->heads, s->queries, dv},
    };
    for (int i = 0; i < (d_o != NULL ? 4 : 3); i++) {
        const array *a = &all[i];
        int64_t bad = first_bad(plan, a);
        if (bad == a->heads * a->rows) continue;
        int column = 0;
        while (plan->kernel->all_finite(row_at(a, bad), 1, column + 1)) column++;
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                         "%s is not finite at head %lld, row %lld, column %d", a->name,
                         (long long)(bad / a->rows), (long long)(bad % a->rows), column);
    }
    return PLSH_STATUS_OK;
}
