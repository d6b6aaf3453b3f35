/* mpi: making a plan over ranks. */
#include "mpi/plan.h"

#include <math.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/agree.h"
#include "mpi/fades.h"
#include "mpi/transfer.h"

int64_t plsh_mpi_split(int64_t rows, int ranks, int rank) {
    const int64_t each = rows / ranks, left = rows % ranks;
    return each * rank + left * rank / ranks;
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

plsh_extent plsh_mpi_extent(plsh_mpi_plan *plan, plsh_block queries, plsh_block keys) {
    plsh_extent extent;
    plsh_extent_part(plan->whole.sequences, plan->offsets, queries, keys, plan->query_offsets,
                     plan->key_offsets, plan->places, &extent);
    return extent;
}

/* ---- The descriptor ------------------------------------------------------------------------- */

static plsh_status check_whole(const plsh_attention *whole, plsh_error *error) {
    if (whole->places)
        return plsh_fail(error, PLSH_STATUS_INVALID, "a text over ranks has no places");
    if (whole->sequences == 0) return PLSH_STATUS_OK;
    bool same = whole->queries == whole->keys && whole->query_offsets && whole->key_offsets;
    for (int64_t x = 0; same && x <= whole->sequences; x++)
        same = whole->query_offsets[x] == whole->key_offsets[x];
    if (same) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "packed sequences over ranks: their queries are all their keys, and both have "
                     "the same offsets");
}

/* A plan of the whole tells what `auto` is; one without rows checks the rest. */
static plsh_status resolve_heads(plsh_mpi_plan *plan, const plsh_attention *whole,
                                 plsh_error *error) {
    plsh_attention a = *whole;
    a.q = a.k = a.v = a.o = (plsh_layout){0, 0};
    plsh_block unused;
    plsh_attention all = a;
    all.queries = all.keys;
    plsh_status status =
        plsh_attention_reach(&all, -1, (plsh_block){0, 0}, &unused, error); /* checks it */
    bool is_auto = false;
    for (int64_t h = 0; !status && h < a.head_count; h++)
        is_auto |= a.head[h].method == PLSH_METHOD_AUTO;
    if (!is_auto) a.queries = a.keys = a.sequences = 0;
    if (!status) status = plsh_plan_create(&a, &plan->resolved, error);
    if (!status) status = allocate(&plan->head, a.heads, sizeof *plan->head, "heads", error);
    for (int64_t h = 0; !status && h < a.heads; h++)
        plan->head[h] = plsh_plan_head(plan->resolved, h, NULL);
    return status;
}

static void set_layout(plsh_layout *layout, int64_t rows, int64_t dim) {
    if (layout->head_stride == 0 && layout->row_stride == 0)
        *layout = (plsh_layout){rows * dim, dim};
}

static plsh_status copy_whole(plsh_mpi_plan *plan, const plsh_attention *given, plsh_error *error) {
    plsh_attention *a = &plan->whole;
    *a = *given;
    if (a->kv_heads == 0) a->kv_heads = a->heads;
    if (a->value_dim == 0) a->value_dim = a->head_dim;
    if (a->scale == 0.0) a->scale = 1.0 / sqrt((double)a->head_dim);
    a->isa = plsh_plan_isa(plan->resolved);
    const int64_t entries = a->sequences + 2;
    plsh_status status = allocate(&plan->offsets, entries, sizeof(int64_t), "offsets", error);
    if (!status)
        status = allocate(&plan->query_offsets, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->key_offsets, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->places, entries, sizeof(plsh_place), "offsets", error);
    if (status) return status;
    if (a->sequences)
        memcpy(plan->offsets, given->key_offsets, (size_t)(a->sequences + 1) * sizeof(int64_t));
    a->query_offsets = a->key_offsets = a->sequences ? plan->offsets : NULL;
    a->head = plan->head;
    a->head_count = a->heads;
    return PLSH_STATUS_OK;
}

static plsh_status split_rows(plsh_mpi_plan *plan, const int64_t *splits, plsh_error *error) {
    plsh_attention *a = &plan->whole;
    plsh_status status = allocate(&plan->rows, plan->ranks, sizeof(plsh_block), "splits", error);
    if (!status)
        status = allocate(&plan->queries, plan->ranks, sizeof(plsh_block), "splits", error);
    if (status) return status;
    const int64_t n = a->keys, before = a->keys - a->queries;
    for (int r = 0; r <= plan->ranks; r++) {
        const int64_t at = splits ? splits[r] : plsh_mpi_split(n, plan->ranks, r);
        const int64_t least = r == 0 ? 0 : plan->rows[r - 1].begin, most = r == 0 ? 0 : n;
        if (at < (r == plan->ranks ? n : least) || at > most)
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "splits[%d] is %lld; they begin with 0, never fall and end with %lld",
                             r, (long long)at, (long long)n);
        if (r < plan->ranks) plan->rows[r].begin = at;
        if (r > 0) plan->rows[r - 1].end = at;
    }
    for (int r = 0; r < plan->ranks; r++)
        plan->queries[r] = (plsh_block){
            plan->rows[r].begin > before ? plan->rows[r].begin : before,
            plan->rows[r].end > before ? plan->rows[r].end : before,
        };
    const int64_t rows = plsh_block_size(plsh_mpi_own_rows(plan));
    const int64_t queries = plsh_block_size(plsh_mpi_own_queries(plan));
    set_layout(&a->q, queries, a->head_dim);
    set_layout(&a->o, queries, a->value_dim);
    set_layout(&a->k, rows, a->head_dim);
    set_layout(&a->v, rows, a->value_dim);
    return PLSH_STATUS_OK;
}

/* ---- Units ---------------------------------------------------------------------------------- */

/* With one rank there is nobody to take turns with: its rows are all near. */
static bool rotates(const plsh_mpi_plan *plan, int64_t head) {
    const plsh_method method = plan->head[head].method;
    return plan->ranks > 1 && (method == PLSH_METHOD_DENSE || method == PLSH_METHOD_NONE);
}

plsh_status plsh_mpi_unit_reach(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                                plsh_block queries, plsh_block *keys, plsh_error *error) {
    plsh_attention a = plan->whole;
    a.q = a.k = a.v = a.o = (plsh_layout){0, 0};
    a.queries = a.keys;
    *keys = (plsh_block){queries.begin, queries.begin};
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < unit->heads; h++) {
        plsh_block seen;
        status = plsh_attention_reach(&a, unit->head + h, queries, &seen, error);
        if (!status) *keys = plsh_block_hull(*keys, seen);
    }
    return status;
}

static bool is_whole(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit) {
    return unit->heads == unit->kv_heads * (plan->whole.heads / plan->whole.kv_heads);
}

/* Does the next unit go with the one before? Rows are then fetched for all of it at once. */
static bool joins(const plsh_mpi_plan *plan, const plsh_mpi_unit *before,
                  const plsh_mpi_unit *next) {
    if (before->rotates != next->rotates || before->fades || next->fades ||
        !is_whole(plan, before) || !is_whole(plan, next))
        return false;
    return memcmp(before->reach, next->reach, (size_t)plan->ranks * sizeof *next->reach) == 0;
}

/* The heads from `head` on that are one unit: of one kv head and one kind. */
static plsh_status begin_unit(plsh_mpi_plan *plan, int64_t head, plsh_error *error) {
    const plsh_attention *a = &plan->whole;
    const int64_t group = a->heads / a->kv_heads, kv_head = head / group;
    plsh_mpi_unit *unit = &plan->unit[plan->units];
    plsh_block *blocks = plan->blocks + plan->units * 2 * plan->ranks;
    *unit = (plsh_mpi_unit){.rotates = rotates(plan, head),
                            .fades = plan->head[head].method == PLSH_METHOD_EXACT,
                            .head = head,
                            .kv_head = kv_head,
                            .kv_heads = 1,
                            .reach = blocks,
                            .need = blocks + plan->ranks,
                            .fetches = plan->fetches + plan->units * plan->ranks};
    for (int64_t h = head; h / group == kv_head; h++) {
        const bool fades = plan->head[h].method == PLSH_METHOD_EXACT;
        if (rotates(plan, h) != unit->rotates || fades != unit->fades) break;
        unit->heads++;
    }
    plsh_status status = PLSH_STATUS_OK;
    for (int r = 0; !status && r < plan->ranks; r++)
        status = plsh_mpi_unit_reach(plan, unit, plan->queries[r], &unit->reach[r], error);
    return status;
}

/* Which unit of each kv head runs first? */
static void find_first(plsh_mpi_plan *plan) {
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < plan->units; i++) {
            plsh_mpi_unit *unit = &plan->unit[i];
            bool first = unit->rotates == (pass == 1);
            for (int64_t j = 0; first && j < plan->units; j++) {
                const plsh_mpi_unit *other = &plan->unit[j];
                first = !(other->first && other->kv_head <= unit->kv_head &&
                          unit->kv_head < other->kv_head + other->kv_heads);
            }
            unit->first |= first;
        }
    }
}

static plsh_status make_units(plsh_mpi_plan *plan, plsh_error *error) {
    const int64_t heads = plan->whole.heads;
    plsh_status status = allocate(&plan->unit, heads, sizeof *plan->unit, "heads", error);
    if (!status)
        status = allocate(&plan->blocks, heads * plan->ranks, 2 * sizeof(plsh_block),
                          "the reach of heads", error);
    if (!status)
        status = allocate(&plan->fetches, heads * plan->ranks, sizeof(int64_t),
                          "the reach of heads", error);
    for (int64_t h = 0; !status && h < heads;) {
        status = begin_unit(plan, h, error);
        if (status) break;
        plsh_mpi_unit *unit = &plan->unit[plan->units];
        h += unit->heads;
        if (plan->units > 0 && joins(plan, unit - 1, unit)) {
            unit[-1].heads += unit->heads;
            unit[-1].kv_heads++;
        } else {
            plan->units++;
        }
    }
    if (!status) find_first(plan);
    return status;
}

/* The first row of [begin, end) whose reach begins at or after `edge` (left), or ends after it
 * (right): both ends of a reach never fall from row to row. */
static plsh_status find_edge(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                             plsh_block queries, int64_t edge, bool left, int64_t *found,
                             plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    while (!status && queries.begin < queries.end) {
        const int64_t middle = queries.begin + (queries.end - queries.begin) / 2;
        plsh_block seen;
        status = plsh_mpi_unit_reach(plan, unit, (plsh_block){middle, middle + 1}, &seen, error);
        const bool beyond = left ? seen.begin >= edge : seen.end > edge;
        if (beyond)
            queries.end = middle;
        else
            queries.begin = middle + 1;
    }
    *found = queries.begin;
    return status;
}

static plsh_status find_near(plsh_mpi_plan *plan, plsh_mpi_unit *unit, plsh_error *error) {
    const plsh_block rows = plsh_mpi_own_rows(plan), queries = plsh_mpi_own_queries(plan);
    plsh_block near = queries;
    plsh_status status = find_edge(plan, unit, queries, rows.begin, true, &near.begin, error);
    if (!status) status = find_edge(plan, unit, queries, rows.end, false, &near.end, error);
    if (near.end < near.begin) near.end = near.begin;
    unit->reach_near = near;
    return status;
}

/* ---- Plans of calls ------------------------------------------------------------------------- */

/* What is left out of what a rank holds: the rest of eps goes to what it does not fetch. */
static const double EXACT_SHARE = 0.75;

/* The own rows where the user has them; own and fetched rows without gaps; an outlier. */
typedef enum call_keys { OWN_KEYS, HELD_KEYS, OUTLIER_KEYS } call_keys;

static plsh_status make_plan(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, plsh_block keys,
                             call_keys kind, plsh_plan **made, plsh_error *error) {
    const bool near = kind == OWN_KEYS && !unit->fades && !unit->rotates;
    const plsh_block queries = near ? unit->reach_near : plsh_mpi_own_queries(plan);
    const plsh_extent e = plsh_mpi_extent(plan, queries, keys);
    plsh_attention a = plan->whole;
    plsh_head *heads;
    plsh_status status = allocate(&heads, unit->heads, sizeof *heads, "heads", error);
    if (status) return status;
    for (int64_t h = 0; h < unit->heads; h++) {
        heads[h] = plan->head[unit->head + h];
        if (plan->ranks > 1) heads[h].eps *= EXACT_SHARE;
        if (kind == OUTLIER_KEYS) heads[h].method = PLSH_METHOD_DENSE;
    }
    a.heads = a.head_count = unit->heads;
    a.kv_heads = unit->kv_heads;
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

/* The calls of a halo unit that are not on the own rows alone. Units that ask have all own rows in
 * sight, others what they reach. */
static plsh_status find_far(const plsh_mpi_plan *plan, plsh_mpi_unit *unit, plsh_error *error) {
    const plsh_block queries = plsh_mpi_own_queries(plan), rows = plsh_mpi_own_rows(plan);
    const plsh_block need = unit->need[plan->rank];
    plsh_status status = PLSH_STATUS_OK;
    unit->far_count = 0;
    if (!unit->first || plsh_block_size(unit->near) == 0) {
        unit->near = (plsh_block){queries.end, queries.end};
        unit->far[unit->far_count++] = (plsh_mpi_far){.queries = queries, .keys = need};
        return status;
    }
    const plsh_block edges[2] = {{queries.begin, unit->near.begin}, {unit->near.end, queries.end}};
    for (int i = 0; !status && i < 2; i++) {
        plsh_mpi_far far = {.queries = edges[i], .keys = need};
        if (plsh_block_size(edges[i]) == 0) continue;
        if (!unit->asks) status = plsh_mpi_unit_reach(plan, unit, edges[i], &far.keys, error);
        if (unit->asks && i == 0) far.keys.end = plan->whole.causal ? unit->near.begin : rows.end;
        if (unit->asks && i == 1) far.keys.begin = rows.begin;
        unit->far[unit->far_count++] = far;
    }
    return status;
}

/* The buffer of the far calls, or its size where there is none. */
static size_t lay_out(const plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward, char *memory) {
    const plsh_attention *a = &plan->whole;
    const size_t kv = (size_t)unit->kv_heads, d = (size_t)a->head_dim, dv = (size_t)a->value_dim;
    const size_t size = plsh_dtype_size(a->dtype);
    size_t used = 0;
    for (int i = 0; i < unit->far_count; i++) {
        plsh_mpi_far *far = &unit->far[i];
        const size_t rows = kv * (size_t)plsh_block_size(far->keys);
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

static bool holds(plsh_block outer, plsh_block inner) {
    return plsh_block_size(inner) == 0 || (outer.begin <= inner.begin && inner.end <= outer.end);
}

void plsh_mpi_unit_reset(const plsh_mpi_plan *plan, plsh_mpi_unit *unit) {
    memcpy(unit->need, unit->reach, (size_t)plan->ranks * sizeof *unit->need);
    unit->near = unit->reach_near;
    unit->asks = false;
    unit->outliers = 0;
    memset(unit->fetches, 0, (size_t)plan->ranks * sizeof *unit->fetches);
}

/* Outliers are parts of their own. */
static void add_outliers(const plsh_mpi_plan *plan, plsh_mpi_unit *unit) {
    for (int i = 0; i < unit->outliers; i++) {
        const plsh_mpi_outlier *tile = &unit->outlier[i];
        if (unit->fetches[plan->rank] >> i & 1)
            unit->far[unit->far_count++] =
                (plsh_mpi_far){.queries = tile->queries, .keys = tile->rows, .outlier = true};
    }
}

/* A plan for these keys, and those that it was for before. */
static plsh_status extend_plan(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, plsh_block keys,
                               call_keys kind, plsh_plan **made, plsh_block *planned,
                               plsh_error *error) {
    if (*made && holds(*planned, keys)) return PLSH_STATUS_OK;
    const plsh_block all = plsh_block_hull(*planned, keys);
    plsh_status status = make_plan(plan, unit, all, kind, made, error);
    if (!status) *planned = all;
    return status;
}

static plsh_status make_plans(plsh_mpi_plan *plan, plsh_mpi_unit *unit, plsh_error *error) {
    const bool uses_own = unit->first && (unit->rotates || plsh_block_size(unit->near) > 0);
    bool uses_other = unit->rotates;
    plsh_block outliers = {0, 0};
    for (int i = 0; i < unit->far_count; i++) {
        if (unit->far[i].outlier)
            outliers = plsh_block_hull(outliers, unit->far[i].keys);
        else
            uses_other = true;
    }
    plsh_status status = PLSH_STATUS_OK;
    if (uses_own && !unit->own)
        status = make_plan(plan, unit, plsh_mpi_own_rows(plan), OWN_KEYS, &unit->own, error);
    if (!status && uses_other)
        status = extend_plan(plan, unit, unit->need[plan->rank], HELD_KEYS, &unit->other,
                             &unit->planned, error);
    if (!status && plsh_block_size(outliers) > 0)
        status = extend_plan(plan, unit, outliers, OUTLIER_KEYS, &unit->dense, &unit->dense_planned,
                             error);
    return status;
}

plsh_status plsh_mpi_unit_prepare(plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward,
                                  plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    unit->far_count = 0;
    if (plsh_block_size(plsh_mpi_own_queries(plan)) == 0) return status;
    if (!unit->rotates) {
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

/* A number that differs where descriptors do, but for layouts and threads. */
static uint64_t summarise(const plsh_mpi_plan *plan) {
    const plsh_attention *a = &plan->whole;
    const int64_t sizes[] = {a->heads,    a->kv_heads,  a->queries,     a->keys,
                             a->head_dim, a->value_dim, a->sequences,   a->causal,
                             a->dtype,    a->o_dtype,   a->check_finite};
    uint64_t h = add_integers(0, sizes, sizeof sizes / sizeof *sizes);
    h = add_doubles(h, &a->scale, 1);
    h = plsh_checksum_step(h, plsh_checksum(plan->offsets, (size_t)(a->sequences + 1) * 8));
    h = plsh_checksum_step(h, plsh_checksum(plan->rows, (size_t)plan->ranks * sizeof(plsh_block)));
    for (int64_t i = 0; i < a->heads; i++) {
        const plsh_head *head = &plan->head[i];
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
    plsh_status status = check_whole(whole, error);
    if (!status) status = resolve_heads(plan, whole, error);
    if (!status) status = copy_whole(plan, whole, error);
    if (!status) status = split_rows(plan, splits, error);
    return status;
}

static plsh_status build(plsh_mpi_plan *plan, plsh_error *error) {
    plsh_status status = make_units(plan, error);
    bool fades = false;
    for (int64_t i = 0; !status && i < plan->units; i++) {
        plsh_mpi_unit *unit = &plan->unit[i];
        fades |= unit->fades;
        plsh_mpi_unit_reset(plan, unit);
        if (!unit->rotates) status = find_near(plan, unit, error);
    }
    if (!status && fades) status = plsh_mpi_fades_make(plan, error);
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
    for (int64_t i = 0; plan->unit && i < plan->whole.heads; i++) {
        plsh_plan_destroy(plan->unit[i].own);
        plsh_plan_destroy(plan->unit[i].other);
        plsh_plan_destroy(plan->unit[i].dense);
        plsh_release(plan->unit[i].buffer);
        plsh_release(plan->unit[i].returned);
    }
    plsh_mpi_types_free(&plan->types);
    plsh_mpi_fades_free(plan->fades_state);
    plsh_plan_destroy(plan->resolved);
    void *arrays[] = {plan->offsets,     plan->head,   plan->rows,     plan->queries,
                      plan->unit,        plan->blocks, plan->fetches,  plan->query_offsets,
                      plan->key_offsets, plan->places, plan->requests, plan->workspace,
                      plan->scratch,     plan->parts,  plan->sums};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) plsh_release(arrays[i]);
    if (plan->communicator != MPI_COMM_NULL) MPI_Comm_free(&plan->communicator);
    plsh_release(plan);
}

plsh_block plsh_mpi_plan_rows(const plsh_mpi_plan *plan, int rank) {
    return plan->rows[rank < 0 ? plan->rank : rank];
}

plsh_block plsh_mpi_plan_queries(const plsh_mpi_plan *plan, int rank) {
    const plsh_block rows = plan->queries[rank < 0 ? plan->rank : rank];
    const int64_t before = plan->whole.keys - plan->whole.queries;
    return (plsh_block){rows.begin - before, rows.end - before};
}

plsh_head plsh_mpi_plan_head(const plsh_mpi_plan *plan, int64_t head, const char **reason) {
    return plsh_plan_head(plan->resolved, head, reason);
}

const char *plsh_mpi_plan_isa(const plsh_mpi_plan *plan) { return plsh_plan_isa(plan->resolved); }
