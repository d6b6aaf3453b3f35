/* shard: cuts a text into parts and its heads into units, and finds the rows that they need by the
 * descriptor alone. */
#include "shard/state.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "head/bound.h"
#include "head/check.h"

int64_t plsh_shard_split(int64_t rows, int parts, int part) {
    const int64_t each = rows / parts, left = rows % parts;
    return each * part + left * part / parts;
}

double plsh_shard_eps(double eps, int parts) {
    if (eps == 0.0) eps = PLSH_BOUND_EPS;
    return parts > 1 ? eps - plsh_bound_of(eps, PLSH_BOUND_ABSENT, 1) : eps;
}

static plsh_status allocate(void *out, int64_t count, size_t size, const char *what,
                            plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, what, error);
}

/* ---- The descriptor ------------------------------------------------------------------------- */

static plsh_status check_options(const plsh_shard_options *options, plsh_error *error) {
    const plsh_attention *whole = options->whole;
    if (options->parts < 1 || options->part < 0 || options->part >= options->parts)
        return plsh_fail(error, PLSH_STATUS_INVALID, "part %d of %d; 0 to parts - 1", options->part,
                         options->parts);
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

static plsh_status copy_heads(plsh_shard *shard, plsh_error *error) {
    plsh_attention *a = &shard->whole;
    plsh_head *head;
    plsh_status status = allocate(&head, a->heads, sizeof *head, "heads", error);
    if (status) return status;
    const plsh_shape shape = plsh_attention_shape(a);
    shard->state->head = head;
    for (int64_t h = 0; h < a->heads; h++) {
        head[h] = plsh_check_head(&shape, h);
        if (head[h].method == PLSH_METHOD_AUTO)
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "head %lld: auto has to be resolved first, by plsh_plan_head",
                             (long long)h);
    }
    a->head = head;
    a->head_count = a->heads;
    return PLSH_STATUS_OK;
}

static plsh_status copy_whole(plsh_shard *shard, const plsh_attention *given, plsh_error *error) {
    plsh_attention *a = &shard->whole, bare = *given;
    bare.q = bare.k = bare.v = bare.o = (plsh_layout){0, 0};
    plsh_status status = plsh_check_no_positions(&bare, error);
    if (!status) status = plsh_attention_check(&bare, a, error);
    if (status) return status;
    a->q = a->k = a->v = a->o = (plsh_layout){0, 0};
    a->isa = NULL;
    status = copy_heads(shard, error);
    if (status || a->sequences == 0) return status;
    const size_t entries = (size_t)a->sequences + 1;
    status = allocate(&shard->state->offsets, (int64_t)entries, sizeof(int64_t), "offsets", error);
    if (status) return status;
    memcpy(shard->state->offsets, given->key_offsets, entries * sizeof(int64_t));
    a->query_offsets = a->key_offsets = shard->state->offsets;
    return PLSH_STATUS_OK;
}

static plsh_status split_rows(plsh_shard *shard, const int64_t *splits, plsh_error *error) {
    plsh_attention *a = &shard->whole;
    plsh_status status = allocate(&shard->rows, shard->parts, sizeof(plsh_range), "splits", error);
    if (!status)
        status = allocate(&shard->queries, shard->parts, sizeof(plsh_range), "splits", error);
    if (status) return status;
    const int64_t n = a->keys, before = a->keys - a->queries;
    for (int r = 0; r <= shard->parts; r++) {
        const int64_t at = splits ? splits[r] : plsh_shard_split(n, shard->parts, r);
        const int64_t least = r == 0 ? 0 : shard->rows[r - 1].begin, most = r == 0 ? 0 : n;
        if (at < (r == shard->parts ? n : least) || at > most)
            return plsh_fail(
                error, PLSH_STATUS_INVALID,
                "splits[%d] is %lld; they begin with 0, never decrease and end with %lld", r,
                (long long)at, (long long)n);
        if (r < shard->parts) shard->rows[r].begin = at;
        if (r > 0) shard->rows[r - 1].end = at;
    }
    for (int r = 0; r < shard->parts; r++)
        shard->queries[r] = (plsh_range){
            shard->rows[r].begin > before ? shard->rows[r].begin : before,
            shard->rows[r].end > before ? shard->rows[r].end : before,
        };
    return PLSH_STATUS_OK;
}

/* ---- Units ---------------------------------------------------------------------------------- */

/* Does this head take one part's rows at a time? A single part has all rows. */
static bool rotates(const plsh_shard *shard, int64_t head) {
    const plsh_method method = shard->whole.head[head].method;
    return shard->parts > 1 && (method == PLSH_METHOD_DENSE || method == PLSH_METHOD_NONE);
}

plsh_status plsh_shard_reach(const plsh_shard *shard, const plsh_shard_unit *unit,
                             plsh_range queries, plsh_range *keys, plsh_error *error) {
    plsh_attention a = shard->whole;
    a.queries = a.keys;
    *keys = (plsh_range){queries.begin, queries.begin};
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < unit->heads; h++) {
        plsh_range seen;
        status = plsh_attention_reach(&a, unit->head + h, queries, &seen, error);
        if (!status) *keys = plsh_range_hull(*keys, seen);
    }
    return status;
}

static bool is_whole(const plsh_shard *shard, const plsh_shard_unit *unit) {
    return unit->heads == unit->kv_heads * (shard->whole.heads / shard->whole.kv_heads);
}

/* Can the next unit be merged with the one before? Rows are then fetched for both at once. */
static bool joins(const plsh_shard *shard, const plsh_shard_unit *before,
                  const plsh_shard_unit *next) {
    if (shard->one_range || before->rotates != next->rotates || before->fades || next->fades ||
        !is_whole(shard, before) || !is_whole(shard, next))
        return false;
    return memcmp(before->reach, next->reach, (size_t)shard->parts * sizeof *next->reach) == 0;
}

/* The number of heads from `head` on that form a unit: of one kv head and one kind. */
static plsh_status begin_unit(plsh_shard *shard, int64_t head, plsh_error *error) {
    const plsh_attention *a = &shard->whole;
    const int64_t group = a->heads / a->kv_heads, kv_head = head / group;
    plsh_shard_unit *unit = &shard->unit[shard->units];
    plsh_range *ranges = shard->state->ranges_of_units + shard->units * 2 * shard->parts;
    *unit =
        (plsh_shard_unit){.rotates = rotates(shard, head),
                          .fades = shard->whole.head[head].method == PLSH_METHOD_EXACT,
                          .head = head,
                          .kv_head = kv_head,
                          .kv_heads = 1,
                          .reach = ranges,
                          .need = ranges + shard->parts,
                          .fetches = shard->state->fetches_of_units + shard->units * shard->parts};
    for (int64_t h = head; h / group == kv_head; h++) {
        const bool fades = shard->whole.head[h].method == PLSH_METHOD_EXACT;
        if (rotates(shard, h) != unit->rotates || fades != unit->fades) break;
        unit->heads++;
    }
    plsh_status status = PLSH_STATUS_OK;
    for (int r = 0; !status && r < shard->parts; r++)
        status = plsh_shard_reach(shard, unit, shard->queries[r], &unit->reach[r], error);
    return status;
}

static plsh_status make_units(plsh_shard *shard, plsh_error *error) {
    const int64_t heads = shard->whole.heads;
    plsh_status status = allocate(&shard->unit, heads, sizeof *shard->unit, "heads", error);
    if (!status)
        status = allocate(&shard->state->ranges_of_units, heads * shard->parts,
                          2 * sizeof(plsh_range), "the reach of heads", error);
    if (!status)
        status = allocate(&shard->state->fetches_of_units, heads * shard->parts, sizeof(int64_t),
                          "the reach of heads", error);
    for (int64_t h = 0; !status && h < heads;) {
        status = begin_unit(shard, h, error);
        if (status) break;
        plsh_shard_unit *unit = &shard->unit[shard->units];
        h += unit->heads;
        if (shard->units > 0 && joins(shard, unit - 1, unit)) {
            unit[-1].heads += unit->heads;
            unit[-1].kv_heads++;
        } else {
            shard->units++;
        }
    }
    return status;
}

/* The first row of [begin, end) whose reach begins at or after `edge` (left), or ends after it
 * (right): both ends of a reach never decrease from row to row. */
static plsh_status find_edge(const plsh_shard *shard, const plsh_shard_unit *unit,
                             plsh_range queries, int64_t edge, bool left, int64_t *found,
                             plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    while (!status && queries.begin < queries.end) {
        const int64_t middle = queries.begin + (queries.end - queries.begin) / 2;
        plsh_range seen;
        status = plsh_shard_reach(shard, unit, (plsh_range){middle, middle + 1}, &seen, error);
        const bool beyond = left ? seen.begin >= edge : seen.end > edge;
        if (beyond)
            queries.end = middle;
        else
            queries.begin = middle + 1;
    }
    *found = queries.begin;
    return status;
}

static plsh_status find_near(plsh_shard *shard, plsh_shard_unit *unit, plsh_error *error) {
    const plsh_range rows = plsh_shard_own_rows(shard), queries = plsh_shard_own_queries(shard);
    plsh_range near = queries;
    plsh_status status = find_edge(shard, unit, queries, rows.begin, true, &near.begin, error);
    if (!status) status = find_edge(shard, unit, queries, rows.end, false, &near.end, error);
    if (near.end < near.begin) near.end = near.begin;
    unit->reach_near = near;
    return status;
}

/* ---- Create and destroy ---------------------------------------------------------------------- */

void plsh_shard_reset(plsh_shard *shard) {
    for (int64_t i = 0; i < shard->units; i++) {
        plsh_shard_unit *unit = &shard->unit[i];
        memcpy(unit->need, unit->reach, (size_t)shard->parts * sizeof *unit->need);
        memset(unit->fetches, 0, (size_t)shard->parts * sizeof *unit->fetches);
        unit->near = unit->reach_near;
        unit->asks = false;
        unit->outliers = 0;
    }
}

static plsh_status build(plsh_shard *shard, const plsh_shard_options *options, plsh_error *error) {
    plsh_status status = allocate(&shard->state, 1, sizeof *shard->state, "a shard", error);
    if (!status) status = check_options(options, error);
    if (!status) status = copy_whole(shard, options->whole, error);
    shard->parts = options->parts;
    shard->part = options->part;
    shard->one_range = options->one_range;
    if (!status) status = split_rows(shard, options->splits, error);
    if (!status) status = make_units(shard, error);
    for (int64_t i = 0; !status && i < shard->units; i++)
        if (!shard->unit[i].rotates) status = find_near(shard, &shard->unit[i], error);
    if (!status) plsh_shard_reset(shard);
    return status;
}

plsh_status plsh_shard_create(const plsh_shard_options *options, plsh_shard **out,
                              plsh_error *error) {
    *out = NULL;
    plsh_shard *shard;
    plsh_status status = allocate(&shard, 1, sizeof *shard, "a shard", error);
    if (status) return status;
    status = build(shard, options, error);
    if (status)
        plsh_shard_destroy(shard);
    else
        *out = shard;
    return status;
}

void plsh_shard_destroy(plsh_shard *shard) {
    if (!shard) return;
    plsh_shard_state *state = shard->state;
    if (state) {
        plsh_shard_state_clear(state);
        plsh_release(state->ranges_of_units);
        plsh_release(state->fetches_of_units);
        plsh_release(state->offsets);
        plsh_release(state->head);
        plsh_release(state);
    }
    plsh_release(shard->rows);
    plsh_release(shard->queries);
    plsh_release(shard->unit);
    plsh_release(shard);
}
