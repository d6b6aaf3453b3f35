/* mpi: the two passes over all units. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "mpi/agree.h"
#include "mpi/call.h"
#include "mpi/merge.h"

/* ---- Arguments ------------------------------------------------------------------------------ */

typedef struct array {
    const char *name;
    const void *data;
    plsh_dtype dtype;
    plsh_layout layout;
    int64_t heads, dim;
    plsh_range rows; /* in numbers of the whole text */
} array;

static bool is_finite_row(const array *a, ptrdiff_t at, int64_t *column) {
    for (int64_t x = 0; x < a->dim; x++) {
        *column = x;
        if (!isfinite(plsh_dtype_load(a->dtype, a->data, at + x))) return false;
    }
    return true;
}

typedef struct search {
    const array *a;
    _Atomic int64_t bad; /* the first row that is known to be */
} search;

static ptrdiff_t row_at(const array *a, int64_t i) {
    const int64_t rows = plsh_range_size(a->rows);
    if (rows <= 0) return 0; /* there is no row i */
    return i / rows * a->layout.head_stride + i % rows * a->layout.row_stride;
}

static void look_at_rows(void *context, int64_t first, int64_t end, int slot) {
    search *s = context;
    int64_t bad = atomic_load(&s->bad), i = first, column;
    (void)slot;
    while (i < end && i < bad && is_finite_row(s->a, row_at(s->a, i), &column)) i++;
    while (i < end && i < bad && !atomic_compare_exchange_weak(&s->bad, &bad, i)) continue;
}

static plsh_status check_finite(const array *a, int threads, plsh_error *error) {
    enum { LEAST = 64 }; /* rows of a chunk */
    const int64_t rows = plsh_range_size(a->rows);
    search s = {.a = a};
    if (rows <= 0) return PLSH_STATUS_OK;
    atomic_init(&s.bad, a->heads * rows);
    plsh_thread_rows(threads, a->heads * rows, LEAST, look_at_rows, &s);
    const int64_t bad = atomic_load(&s.bad);
    int64_t column = 0;
    if (bad == a->heads * rows) return PLSH_STATUS_OK;
    is_finite_row(a, row_at(a, bad), &column);
    return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                     "%s is not finite at head %lld, row %lld, column %lld", a->name,
                     (long long)(bad / rows), (long long)(a->rows.begin + bad % rows),
                     (long long)column);
}

static plsh_status check_arrays(const plsh_mpi_plan *plan, const array *arrays, int count,
                                plsh_error *error) {
    for (int i = 0; i < count; i++) {
        const array *a = &arrays[i];
        if (plsh_range_size(a->rows) > 0 && !a->data)
            return plsh_fail(error, PLSH_STATUS_INVALID, "%s must not be NULL", a->name);
    }
    plsh_status status = PLSH_STATUS_OK;
    for (int i = 0; !status && plan->whole.check_finite && i < count; i++)
        if (plsh_range_size(arrays[i].rows) > 0)
            status = check_finite(&arrays[i], plan->whole.threads, error);
    return status;
}

/* Checks that the head and row numbers of all parts, which are counted from these, are in range. */
static plsh_status check_dropout(const plsh_attention_dropout *dropout, plsh_error *error) {
    const int64_t most = INT64_C(1) << 40;
    if (dropout->head >= 0 && dropout->head <= most && dropout->query >= 0 &&
        dropout->query <= most && dropout->key >= 0 && dropout->key <= most) {
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "dropout from head %lld, rows %lld and %lld on; 0 to 2^40",
                     (long long)dropout->head, (long long)dropout->query, (long long)dropout->key);
}

static plsh_status check_forward(const plsh_mpi_plan *plan, const plsh_forward *f,
                                 plsh_error *error) {
    const plsh_attention *a = &plan->whole;
    const plsh_range rows = plsh_mpi_plan_rows(plan, -1), queries = plsh_mpi_plan_queries(plan, -1);
    const array arrays[] = {{"q", f->q, a->dtype, a->q, a->heads, a->head_dim, queries},
                            {"k", f->k, a->dtype, a->k, a->kv_heads, a->head_dim, rows},
                            {"v", f->v, a->dtype, a->v, a->kv_heads, a->value_dim, rows}};
    if (f->extent) return plsh_fail(error, PLSH_STATUS_INVALID, "a call over ranks has no extent");
    if (f->certificate && f->dropout.p != 0.0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "certificates are of attention without dropout");
    if (plsh_range_size(queries) > 0 && !f->o)
        return plsh_fail(error, PLSH_STATUS_INVALID, "o must not be NULL");
    plsh_status status = check_dropout(&f->dropout, error);
    return status ? status : check_arrays(plan, arrays, 3, error);
}

static plsh_status check_backward(const plsh_mpi_plan *plan, const plsh_backward *b,
                                  plsh_error *error) {
    const plsh_attention *a = &plan->whole;
    const plsh_range rows = plsh_mpi_plan_rows(plan, -1), queries = plsh_mpi_plan_queries(plan, -1);
    const array arrays[] = {
        {"q", b->q, a->dtype, a->q, a->heads, a->head_dim, queries},
        {"k", b->k, a->dtype, a->k, a->kv_heads, a->head_dim, rows},
        {"v", b->v, a->dtype, a->v, a->kv_heads, a->value_dim, rows},
        {"d_o", b->d_o, PLSH_DTYPE_FLOAT32, a->o, a->heads, a->value_dim, queries}};
    if (b->extent || b->some_keys)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "a call over ranks has no extent, and all keys");
    if (plsh_range_size(queries) > 0 && (!b->o || !b->lse))
        return plsh_fail(error, PLSH_STATUS_INVALID, "o and lse must not be NULL");
    plsh_status status = check_dropout(&b->dropout, error);
    return status ? status : check_arrays(plan, arrays, 4, error);
}

/* ---- Passes --------------------------------------------------------------------------------- */

enum { ASKED_CERTIFICATE = 1, ASKED_LSE = 2, ASKED_KEYS = 1, ASKED_VALUES = 2 };

/* Prepares the calls of the units that ask, or of the others. */
static plsh_status prepare_units(plsh_mpi_call *call, bool asks, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t i = 0; !status && i < plan->units; i++) {
        plsh_mpi_unit *unit = &plan->unit[i];
        if ((unit->shard->asks || unit->shard->fades) != asks) continue;
        status = unit->shard->rotates ? plsh_mpi_rotation_prepare(call, unit, error)
                                      : plsh_mpi_halo_prepare(call, unit, error);
    }
    return status;
}

/* The messages of a call, at most. An outlier: its rows there, its gradients back. */
static int64_t count_messages(const plsh_mpi_plan *plan) {
    int64_t messages = 0;
    for (int64_t i = 0; i < plan->units; i++) {
        const plsh_mpi_unit *unit = &plan->unit[i];
        int64_t transfers = unit->shard->rotates ? 8 : 4 * (int64_t)plan->ranks + 4;
        for (int64_t j = 0; j < (int64_t)plan->ranks * unit->shard->outliers; j++) {
            const int64_t r = j / unit->shard->outliers, tile = j % unit->shard->outliers;
            const bool mine = r == plan->rank || unit->shard->outlier[tile].part == plan->rank;
            if (mine && (unit->shard->fetches[r] >> tile & 1)) transfers += 2;
        }
        messages += 2 * unit->shard->kv_heads * transfers;
    }
    return messages;
}

/* Allocates everything that a call needs, before any rank waits for this one. */
static plsh_status prepare_call(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    int64_t heads = 0;
    plsh_shard_reset(plan->shard);
    for (int64_t i = 0; i < plan->units; i++) {
        const plsh_mpi_unit *unit = &plan->unit[i];
        heads = unit->shard->heads > heads ? unit->shard->heads : heads;
    }
    plsh_status status = prepare_units(call, false, error);
    if (!status) status = plsh_mpi_requests_reserve(plan, count_messages(plan), error);
    const size_t queries = (size_t)plsh_range_size(plsh_mpi_own_queries(plan));
    const size_t floats = (size_t)heads * (2 * queries + 4);
    if (!status)
        status = plsh_mpi_grow(&plan->scratch, &plan->scratch_size, floats * sizeof(float),
                               "rows of a call", error);
    return status;
}

static plsh_status agree(plsh_mpi_plan *plan, plsh_status mine, plsh_error *error) {
    const double begin = MPI_Wtime();
    const plsh_status status = plsh_mpi_agree(plan->communicator, mine, error);
    plsh_mpi_book_wait(plan, begin);
    return status;
}

/* Finds the needs of the units that depend on the data. */
static plsh_status ask(plsh_mpi_call *call, bool certificate, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    bool asks = certificate;
    for (int64_t i = 0; i < plan->units; i++) asks |= plan->unit[i].shard->fades;
    if (!asks) return PLSH_STATUS_OK;
    if (plan->ranks == 1) return agree(plan, prepare_units(call, true, error), error);
    plsh_status status = PLSH_STATUS_OK;
    if (certificate) status = agree(plan, plsh_shard_prepare(plan->shard, error), error);
    if (!status) status = plsh_mpi_fades_find(call, certificate, error);
    if (status) return status;
    plsh_status mine = prepare_units(call, true, error);
    if (!mine) mine = plsh_mpi_requests_reserve(plan, count_messages(plan), error);
    return agree(plan, mine, error);
}

static plsh_status run_units(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = PLSH_STATUS_OK;
    plan->request_count = 0;
    for (int64_t i = 0; !status && i < plan->units; i++)
        if (!plan->unit[i].shard->rotates)
            status = plsh_mpi_halo_begin(call, &plan->unit[i], error);
    for (int64_t i = 0; !status && i < plan->units; i++)
        if (!plan->unit[i].shard->rotates) plsh_mpi_halo_near(call, &plan->unit[i]);
    for (int64_t i = 0; !status && i < plan->units; i++)
        if (!plan->unit[i].shard->rotates) status = plsh_mpi_halo_far(call, &plan->unit[i], error);
    for (int64_t i = 0; !status && i < plan->units; i++)
        if (plan->unit[i].shard->rotates)
            status = plsh_mpi_rotation_run(call, &plan->unit[i], error);
    for (int64_t i = 0; !status && i < plan->units; i++)
        if (!plan->unit[i].shard->rotates) status = plsh_mpi_halo_end(call, &plan->unit[i], error);
    if (!status) status = plsh_mpi_wait(plan, 0, plan->request_count, error);
    return status;
}

/* d_decay summed over the ranks, in their order. */
static plsh_status sum_decays(plsh_mpi_call *call, double *all, double *d_decay,
                              plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    const int count = (int)(2 * plan->whole.heads);
    const double begin = MPI_Wtime();
    plsh_status status = plsh_mpi_try(
        MPI_Allgather(call->d_decay, count, MPI_DOUBLE, all, count, MPI_DOUBLE, plan->communicator),
        "summing the gradients of decays", error);
    plsh_mpi_book_wait(plan, begin);
    plsh_mpi_book_bytes(plan, (int64_t)(plan->ranks - 1) * count * (int64_t)sizeof(double));
    memset(d_decay, 0, (size_t)count * sizeof *d_decay);
    for (int r = 0; !status && r < plan->ranks; r++)
        for (int i = 0; i < count; i++) d_decay[i] += all[(size_t)r * (size_t)count + (size_t)i];
    return status;
}

/* Runs a call after its arguments were checked; `found` is the result of the checks. */
static plsh_status run_call(plsh_mpi_call *call, plsh_status found, plsh_mpi_asked *asked,
                            plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    if (!found) found = prepare_call(call, error);
    const double begin = MPI_Wtime();
    plsh_status status = plsh_mpi_agree_asked(plan->communicator, found, asked, error);
    plsh_mpi_book_wait(plan, begin);
    const bool certificate = call->forward && (asked->of_rows & ASKED_CERTIFICATE);
    if (!status) status = ask(call, certificate, error);
    if (!status) status = run_units(call, error);
    plsh_mpi_merge_release(plan);
    if (status) return status;
    if (call->status) *error = call->error;
    if (!call->status && certificate && plan->ranks > 1)
        plsh_shard_certify(plan->shard, call->forward->certificate);
    return agree(plan, call->status, error);
}

static double largest(const float *certificate, int64_t count) {
    double most = 0.0;
    for (int64_t i = 0; certificate && i < count && !isnan(most); i++)
        if (!((double)certificate[i] <= most)) most = (double)certificate[i];
    return most;
}

plsh_status plsh_mpi_plan_forward(plsh_mpi_plan *plan, const plsh_forward *arrays,
                                  plsh_mpi_stats *stats, plsh_error *error) {
    plsh_mpi_stats unused;
    plsh_error kept; /* the caller may pass NULL, but ranks exchange the message */
    if (!error) error = &kept;
    plan->stats = stats ? stats : &unused;
    *plan->stats = (plsh_mpi_stats){0};
    const int64_t queries = plsh_range_size(plsh_mpi_own_queries(plan));
    plsh_mpi_call call = {
        .plan = plan, .forward = arrays, .q = arrays->q, .k = arrays->k, .v = arrays->v};
    plsh_mpi_asked asked = {.has_rows = queries > 0};
    if (arrays->certificate) asked.of_rows |= ASKED_CERTIFICATE;
    if (arrays->lse) asked.of_rows |= ASKED_LSE;
    plsh_status status = run_call(&call, check_forward(plan, arrays, error), &asked, error);
    if (!status)
        plan->stats->attention.error_bound =
            largest(arrays->certificate, plan->whole.heads * queries);
    return status;
}

plsh_status plsh_mpi_plan_backward(plsh_mpi_plan *plan, const plsh_backward *arrays,
                                   plsh_mpi_stats *stats, plsh_error *error) {
    plsh_mpi_stats unused;
    plsh_error kept;
    if (!error) error = &kept;
    plan->stats = stats ? stats : &unused;
    *plan->stats = (plsh_mpi_stats){0};
    plsh_mpi_call call = {
        .plan = plan, .backward = arrays, .q = arrays->q, .k = arrays->k, .v = arrays->v};
    plsh_mpi_asked asked = {.has_rows = plsh_range_size(plsh_mpi_own_rows(plan)) > 0,
                            .of_all = arrays->d_decay != NULL};
    if (arrays->d_k) asked.of_rows |= ASKED_KEYS;
    if (arrays->d_v) asked.of_rows |= ASKED_VALUES;
    plsh_status status = check_backward(plan, arrays, error);
    const size_t count = 2 * (size_t)plan->whole.heads;
    double *decays = NULL; /* own sums, then those of all ranks */
    if (!status && arrays->d_decay)
        status = plsh_allocate((void **)&decays, count * (size_t)(plan->ranks + 1), sizeof *decays,
                               "gradients of decays", error);
    call.d_decay = decays;
    status = run_call(&call, status, &asked, error);
    if (!status && decays) status = sum_decays(&call, decays + count, arrays->d_decay, error);
    plsh_release(decays);
    return status;
}
