/* mpi: making a plan over ranks. */
#include "mpi/plan.h"

#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "mpi/agree.h"
#include "mpi/transfer.h"

int64_t plsh_mpi_split(int64_t rows, int ranks, int rank) {
    return plsh_shard_split(rows, ranks, rank);
}

static plsh_status allocate(void *out, int64_t count, size_t size, const char *what,
                            plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, what, error);
}

plsh_status plsh_mpi_grow(void *buffer, size_t *size, size_t bytes, const char *what,
                          plsh_error *error) {
    void **memory = buffer;
    if (bytes <= *size) return PLSH_STATUS_OK;
    plsh_release(*memory);
    *size = 0;
    plsh_status status = plsh_allocate(memory, bytes, 1, what, error);
    if (!status) *size = bytes;
    return status;
}

plsh_extent plsh_mpi_extent(plsh_mpi_plan *plan, plsh_range queries, plsh_range keys) {
    plsh_extent extent;
    plsh_extent_part(plan->whole.sequences, plan->whole.key_offsets, queries, keys,
                     plan->query_offsets, plan->key_offsets, plan->places, &extent);
    return extent;
}

/* ---- The descriptor ------------------------------------------------------------------------- */

/* A plan without rows checks heads and shape; a plan of the whole text resolves `auto`. */
static plsh_status resolve_heads(plsh_mpi_plan *plan, const plsh_attention *whole,
                                 plsh_error *error) {
    plsh_attention a = *whole;
    a.q = a.k = a.v = a.o = (plsh_layout){0, 0};
    a.queries = a.keys = a.sequences = 0;
    a.places = NULL;
    plsh_status status = plsh_plan_create(&a, &plan->resolved, error);
    bool is_auto = false;
    for (int64_t h = 0; !status && h < a.head_count; h++)
        is_auto |= a.head[h].method == PLSH_METHOD_AUTO;
    if (!is_auto) return status;
    plsh_plan_destroy(plan->resolved);
    a.queries = whole->queries;
    a.keys = whole->keys;
    a.sequences = whole->sequences;
    return plsh_plan_create(&a, &plan->resolved, error);
}

static void set_layout(plsh_layout *layout, int64_t rows, int64_t dim) {
    if (layout->head_stride == 0 && layout->row_stride == 0)
        *layout = (plsh_layout){rows * dim, dim};
}

/* The shard's descriptor, with the layouts of the own rows. */
static void take_whole(plsh_mpi_plan *plan, const plsh_attention *given) {
    plsh_attention *a = &plan->whole;
    *a = plan->shard->whole;
    a->isa = plsh_plan_isa(plan->resolved);
    a->q = given->q;
    a->k = given->k;
    a->v = given->v;
    a->o = given->o;
    const int64_t rows = plsh_range_size(plsh_mpi_own_rows(plan));
    const int64_t queries = plsh_range_size(plsh_mpi_own_queries(plan));
    set_layout(&a->q, queries, a->head_dim);
    set_layout(&a->o, queries, a->value_dim);
    set_layout(&a->k, rows, a->head_dim);
    set_layout(&a->v, rows, a->value_dim);
}

static plsh_status make_shard(plsh_mpi_plan *plan, const plsh_attention *given,
                              const int64_t *splits, plsh_error *error) {
    plsh_attention whole = *given;
    plsh_head *head;
    plsh_status status = allocate(&head, whole.heads, sizeof *head, "heads", error);
    if (status) return status;
    for (int64_t h = 0; h < whole.heads; h++) head[h] = plsh_plan_head(plan->resolved, h, NULL);
    whole.head = head;
    whole.head_count = whole.heads;
    const plsh_shard_options options = {
        .whole = &whole, .splits = splits, .parts = plan->ranks, .part = plan->rank};
    status = plsh_shard_create(&options, &plan->shard, error);
    plsh_release(head);
    if (!status) take_whole(plan, given);
    return status;
}

/* Sets which unit of each kv head runs first. */
static void find_first(plsh_mpi_plan *plan) {
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < plan->units; i++) {
            plsh_mpi_unit *unit = &plan->unit[i];
            bool first = unit->shard->rotates == (round == 1);
            for (int64_t j = 0; first && j < plan->units; j++) {
                const plsh_shard_unit *other = plan->unit[j].shard;
                const int64_t kv = unit->shard->kv_head;
                first = !(plan->unit[j].first && other->kv_head <= kv &&
                          kv < other->kv_head + other->kv_heads);
            }
            unit->first |= first;
        }
    }
}

/* The units of the shard, and what their calls need. */
static plsh_status make_units(plsh_mpi_plan *plan, plsh_error *error) {
    const int64_t entries = plan->whole.sequences + 2;
    plan->units = plan->shard->units;
    plsh_status status = allocate(&plan->unit, plan->units, sizeof *plan->unit, "heads", error);
    if (!status)
        status = allocate(&plan->query_offsets, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->key_offsets, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->places, entries, sizeof(plsh_place), "offsets", error);
    for (int64_t i = 0; !status && i < plan->units; i++)
        plan->unit[i].shard = &plan->shard->unit[i];
    if (!status) find_first(plan);
    return status;
}

/* ---- Plans of calls ------------------------------------------------------------------------- */

/* The own rows where the user has them; own and fetched rows without gaps; an outlier. */
typedef enum call_keys { OWN_KEYS, HELD_KEYS, OUTLIER_KEYS } call_keys;

static plsh_status make_plan(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, plsh_range keys,
                             call_keys kind, plsh_plan **made, plsh_error *error) {
    const bool near = kind == OWN_KEYS && !unit->shard->fades && !unit->shard->rotates;
    const plsh_range queries = near ? unit->shard->reach_near : plsh_mpi_own_queries(plan);
    const plsh_extent e = plsh_mpi_extent(plan, queries, keys);
    plsh_attention a = plan->whole;
    plsh_head *heads;
    plsh_status status = allocate(&heads, unit->shard->heads, sizeof *heads, "heads", error);
    if (status) return status;
    for (int64_t h = 0; h < unit->shard->heads; h++) {
        heads[h] = plan->whole.head[unit->shard->head + h];
        heads[h].eps = plsh_shard_eps(heads[h].eps, plan->ranks);
        if (kind == OUTLIER_KEYS) heads[h].method = PLSH_METHOD_DENSE;
    }
    a.heads = a.head_count = unit->shard->heads;
    a.kv_heads = unit->shard->kv_heads;
    a.head = heads;
    a.queries = e.queries;
    a.keys = e.keys;
    a.sequences = e.sequences;
    a.query_offsets = e.query_offsets;
    a.key_offsets = e.key_offsets;
    a.places = e.places;
    a.check_finite = false; /* looked at before */
    if (plsh_mpi_unit_merges(plan, unit)) a.o_dtype = PLSH_DTYPE_FLOAT32;
    if (kind != OWN_KEYS) a.k = a.v = (plsh_layout){0, 0};
    plsh_plan_destroy(*made);
    status = plsh_plan_create(&a, made, error);
    plsh_release(heads);
    return status;
}

static plsh_status fit_workspace(plsh_mpi_plan *plan, const plsh_plan *call, bool backward,
                                 plsh_error *error) {
    if (!call) return PLSH_STATUS_OK;
    const size_t bytes = backward ? plsh_plan_backward_workspace(call) : plsh_plan_workspace(call);
    return plsh_mpi_grow(&plan->workspace, &plan->workspace_size, bytes, "attention workspace",
                         error);
}

/* The calls of a halo unit that use rows of other ranks. Units with `asks` use all own rows, others
 * those that they reach. */
static plsh_status find_far(const plsh_mpi_plan *plan, plsh_mpi_unit *unit, plsh_error *error) {
    const plsh_range queries = plsh_mpi_own_queries(plan), rows = plsh_mpi_own_rows(plan);
    const plsh_range need = unit->shard->need[plan->rank];
    plsh_status status = PLSH_STATUS_OK;
    unit->far_count = 0;
    if (!unit->first || plsh_range_size(unit->shard->near) == 0) {
        unit->shard->near = (plsh_range){queries.end, queries.end};
        unit->far[unit->far_count++] = (plsh_mpi_far){.queries = queries, .keys = need};
        return status;
    }
    const plsh_range edges[2] = {{queries.begin, unit->shard->near.begin},
                                 {unit->shard->near.end, queries.end}};
    for (int i = 0; !status && i < 2; i++) {
        plsh_mpi_far far = {.queries = edges[i], .keys = need};
        if (plsh_range_size(edges[i]) == 0) continue;
        if (!unit->shard->asks)
            status = plsh_shard_reach(plan->shard, unit->shard, edges[i], &far.keys, error);
        if (unit->shard->asks && i == 0)
            far.keys.end = plan->whole.causal ? unit->shard->near.begin : rows.end;
        if (unit->shard->asks && i == 1) far.keys.begin = rows.begin;
        unit->far[unit->far_count++] = far;
    }
    return status;
}

/* The buffer of the far calls, or its size where there is none. */
static size_t lay_out(const plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward, char *memory) {
    const plsh_attention *a = &plan->whole;
    const size_t kv = (size_t)unit->shard->kv_heads, d = (size_t)a->head_dim,
                 dv = (size_t)a->value_dim;
    const size_t size = plsh_dtype_size(a->dtype);
    size_t used = 0;
    for (int i = 0; i < unit->far_count; i++) {
        plsh_mpi_far *far = &unit->far[i];
        const size_t rows = kv * (size_t)plsh_range_size(far->keys);
        const size_t sizes[4] = {rows * d * size, rows * dv * size,
                                 backward ? rows * d * sizeof(float) : 0,
                                 backward ? rows * dv * sizeof(float) : 0};
        char *at[4];
        for (int j = 0; j < 4; j++) {
            at[j] = memory ? memory + used : NULL;
            used += (sizes[j] + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
        }
        far->k = at[0];
        far->v = at[1];
        far->d_k = (float *)(void *)at[2];
        far->d_v = (float *)(void *)at[3];
    }
    return used;
}

static bool holds(plsh_range outer, plsh_range inner) {
    return plsh_range_size(inner) == 0 || (outer.begin <= inner.begin && inner.end <= outer.end);
}

/* Outliers are parts of their own. */
static void add_outliers(const plsh_mpi_plan *plan, plsh_mpi_unit *unit) {
    for (int i = 0; i < unit->shard->outliers; i++) {
        const plsh_shard_outlier *tile = &unit->shard->outlier[i];
        if (unit->shard->fetches[plan->rank] >> i & 1)
            unit->far[unit->far_count++] =
                (plsh_mpi_far){.queries = tile->queries, .keys = tile->rows, .outlier = true};
    }
}

/* Extends a plan to these keys and those that it was made for. */
static plsh_status extend_plan(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, plsh_range keys,
                               call_keys kind, plsh_plan **made, plsh_range *planned,
                               plsh_error *error) {
    if (*made && holds(*planned, keys)) return PLSH_STATUS_OK;
    const plsh_range all = plsh_range_hull(*planned, keys);
    plsh_status status = make_plan(plan, unit, all, kind, made, error);
    if (!status) *planned = all;
    return status;
}

static plsh_status make_plans(plsh_mpi_plan *plan, plsh_mpi_unit *unit, plsh_error *error) {
    const bool uses_own =
        unit->first && (unit->shard->rotates || plsh_range_size(unit->shard->near) > 0);
    bool uses_other = unit->shard->rotates;
    plsh_range outliers = {0, 0};
    for (int i = 0; i < unit->far_count; i++) {
        if (unit->far[i].outlier)
            outliers = plsh_range_hull(outliers, unit->far[i].keys);
        else
            uses_other = true;
    }
    plsh_status status = PLSH_STATUS_OK;
    if (uses_own && !unit->own)
        status = make_plan(plan, unit, plsh_mpi_own_rows(plan), OWN_KEYS, &unit->own, error);
    if (!status && uses_other)
        status = extend_plan(plan, unit, unit->shard->need[plan->rank], HELD_KEYS, &unit->other,
                             &unit->planned, error);
    if (!status && plsh_range_size(outliers) > 0)
        status = extend_plan(plan, unit, outliers, OUTLIER_KEYS, &unit->dense, &unit->dense_planned,
                             error);
    return status;
}

plsh_status plsh_mpi_unit_prepare(plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward,
                                  plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    unit->far_count = 0;
    if (plsh_range_size(plsh_mpi_own_queries(plan)) == 0) return status;
    if (!unit->shard->rotates) {
        status = find_far(plan, unit, error);
        if (!status) add_outliers(plan, unit);
        if (!status)
            status =
                plsh_mpi_grow(&unit->buffer, &unit->buffer_size,
                              lay_out(plan, unit, backward, NULL), "rows of other ranks", error);
        if (!status) lay_out(plan, unit, backward, unit->buffer);
    }
    if (!status) status = make_plans(plan, unit, error);
    if (!status) status = fit_workspace(plan, unit->own, backward, error);
    if (!status) status = fit_workspace(plan, unit->other, backward, error);
    if (!status) status = fit_workspace(plan, unit->dense, backward, error);
    return status;
}

/* ---- Create and destroy ---------------------------------------------------------------------- */

/* The tables of decays and the labels that a head points to. */
static uint64_t summarise_arrays(const plsh_partition *set) {
    const size_t labels = set->labels ? (size_t)(set->samples * set->label_count) : 0;
    const size_t entries = set->decay.table ? set->decay.table_size : 0;
    return plsh_checksum_step(plsh_checksum(set->decay.table, entries * sizeof(double)),
                              plsh_checksum(set->labels, labels * sizeof(int32_t)));
}

static uint64_t add_integers(uint64_t h, const int64_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) h = plsh_checksum_step(h, (uint64_t)numbers[i]);
    return h;
}

static uint64_t add_doubles(uint64_t h, const double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        h = plsh_checksum_step(h, bits);
    }
    return h;
}

/* A hash of the descriptor without layouts and threads. */
static uint64_t summarise(const plsh_mpi_plan *plan) {
    const plsh_attention *a = &plan->whole;
    const int64_t sizes[] = {a->heads,    a->kv_heads,  a->queries,     a->keys,
                             a->head_dim, a->value_dim, a->sequences,   a->causal,
                             a->dtype,    a->o_dtype,   a->check_finite};
    uint64_t h = add_integers(0, sizes, sizeof sizes / sizeof *sizes);
    h = add_doubles(h, &a->scale, 1);
    h = plsh_checksum_step(
        h, plsh_checksum(a->key_offsets, a->sequences ? (size_t)(a->sequences + 1) * 8 : 0));
    h = plsh_checksum_step(
        h, plsh_checksum(plan->shard->rows, (size_t)plan->ranks * sizeof(plsh_range)));
    for (int64_t i = 0; i < a->heads; i++) {
        const plsh_head *head = &a->head[i];
        const plsh_partition *set = &head->partition;
        const double numbers[] = {set->decay.a, set->decay.b, set->decay.limit, head->eps};
        const int64_t integers[] = {head->method,     head->window,   head->block,
                                    set->scheme,      set->design,    set->samples,
                                    set->head,        set->axis,      (int64_t)set->seed,
                                    set->label_count, set->decay.kind};
        h = add_doubles(h, numbers, sizeof numbers / sizeof *numbers);
        h = add_integers(h, integers, sizeof integers / sizeof *integers);
        h = plsh_checksum_step(h, summarise_arrays(set));
    }
    return h;
}

static plsh_status describe(plsh_mpi_plan *plan, const plsh_attention *whole, const int64_t *splits,
                            plsh_error *error) {
    plsh_status status = resolve_heads(plan, whole, error);
    return status ? status : make_shard(plan, whole, splits, error);
}

static plsh_status build(plsh_mpi_plan *plan, plsh_error *error) {
    plsh_status status = make_units(plan, error);
    bool fades = false;
    for (int64_t i = 0; !status && i < plan->units; i++) fades |= plan->unit[i].shard->fades;
    if (!status && fades) status = plsh_shard_prepare(plan->shard, error);
    return status;
}

plsh_status plsh_mpi_plan_create(const plsh_attention *whole, const int64_t *splits,
                                 MPI_Comm communicator, plsh_mpi_plan **out, plsh_error *error) {
    *out = NULL;
    plsh_mpi_plan *plan;
    plsh_status status = allocate(&plan, 1, sizeof *plan, "plan over ranks", error);
    status = plsh_mpi_agree(communicator, status, error);
    if (status) {
        plsh_release(plan);
        return status;
    }
    plan->communicator = MPI_COMM_NULL;
    plsh_mpi_types_clear(&plan->types);
    status = plsh_mpi_try(MPI_Comm_dup(communicator, &plan->communicator),
                          "duplicating the communicator", error);
    if (!status) {
        MPI_Comm_rank(plan->communicator, &plan->rank);
        MPI_Comm_size(plan->communicator, &plan->ranks);
        status = plsh_mpi_agree(plan->communicator, describe(plan, whole, splits, error), error);
    }
    if (!status)
        status = plsh_mpi_agree_same(plan->communicator, summarise(plan),
                                     "the descriptor of the whole, or splits,", error);
    if (!status) {
        plsh_status mine = plsh_mpi_types_make(plan, error);
        if (!mine) mine = build(plan, error);
        status = plsh_mpi_agree(plan->communicator, mine, error);
    }
    if (status)
        plsh_mpi_plan_destroy(plan);
    else
        *out = plan;
    return status;
}

void plsh_mpi_plan_destroy(plsh_mpi_plan *plan) {
    if (!plan) return;
    for (int64_t i = 0; plan->unit && i < plan->units; i++) {
        plsh_plan_destroy(plan->unit[i].own);
        plsh_plan_destroy(plan->unit[i].other);
        plsh_plan_destroy(plan->unit[i].dense);
        plsh_release(plan->unit[i].buffer);
        plsh_release(plan->unit[i].returned);
    }
    plsh_mpi_types_free(&plan->types);
    plsh_shard_destroy(plan->shard);
    plsh_plan_destroy(plan->resolved);
    void *arrays[] = {plan->unit,    plan->query_offsets, plan->key_offsets,
                      plan->places,  plan->requests,      plan->workspace,
                      plan->scratch, plan->parts,         plan->sums};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) plsh_release(arrays[i]);
    if (plan->communicator != MPI_COMM_NULL) MPI_Comm_free(&plan->communicator);
    plsh_release(plan);
}

plsh_range plsh_mpi_plan_rows(const plsh_mpi_plan *plan, int rank) {
    return plan->shard->rows[rank < 0 ? plan->rank : rank];
}

plsh_range plsh_mpi_plan_queries(const plsh_mpi_plan *plan, int rank) {
    const plsh_range rows = plan->shard->queries[rank < 0 ? plan->rank : rank];
    const int64_t before = plan->whole.keys - plan->whole.queries;
    return (plsh_range){rows.begin - before, rows.end - before};
}
