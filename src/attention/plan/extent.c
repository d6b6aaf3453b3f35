/* attention: the lengths of a call, and all of a plan that depends on them. */
#include "attention/plan/extent.h"

#include <string.h>

#include "base/arena.h"
#include "base/status.h"

/* ---- Cutting -------------------------------------------------------------------------------- */

/* Tiles of one sequence. `fixed` begins a tile at every block. */
static int64_t count_tiles(const plsh_plan *plan, const plsh_head_plan *head, int64_t sequence) {
    int64_t queries = plan->query_offset[sequence + 1] - plan->query_offset[sequence];
    int64_t keys = plan->key_offset[sequence + 1] - plan->key_offset[sequence];
    int64_t rows = plsh_head_tile_rows(plan, head);
    if (queries == 0) return 0;
    if (head->head.method != PLSH_METHOD_FIXED) return (queries + rows - 1) / rows;
    int64_t block = head->head.block, first = plan->place[sequence].query;
    int64_t blocks = (first + queries - 1) / block - first / block + 1;
    return blocks * plsh_head_block_tiles(plan, head, keys);
}

static void cut_tiles(plsh_plan *plan) {
    int64_t heads = plan->shape.heads;
    for (int64_t h = 0; h < heads; h++) {
        int64_t *first = plan->tiles + h * (plan->sequences + 1);
        first[0] = 0;
        for (int64_t x = 0; x < plan->sequences; x++) {
            first[x + 1] = first[x] + count_tiles(plan, &plan->head[h], x);
        }
        plan->head[h].first_tile = first;
    }
    plan->first_item[0] = 0;
    for (int64_t i = 0; i < heads; i++) {
        const int64_t *first = plan->head[plan->order[i]].first_tile;
        plan->first_item[i + 1] = plan->first_item[i] + first[plan->sequences];
    }
}

/* Bytes of a piece's summary, and of a kv head's bounds. */
static int64_t piece_bytes(const plsh_plan *plan) {
    return ((plan->boxes ? 2 * plan->shape.head_dim : 0) + 6) * (int64_t)sizeof(float);
}

static size_t bounds_bytes(const plsh_plan *plan, int64_t pieces, int64_t sequences) {
    int64_t means = sequences * plan->shape.head_dim * (int64_t)sizeof(float);
    int64_t bytes = pieces * piece_bytes(plan) + means + PLSH_ALIGNMENT - 1;
    return (size_t)bytes / PLSH_ALIGNMENT * PLSH_ALIGNMENT + plsh_plan_placed_bytes(plan);
}

static int64_t count_pieces(plsh_plan *plan) {
    plan->first_piece[0] = 0;
    for (int64_t x = 0; x < plan->sequences; x++) {
        int64_t keys = plan->key_offset[x + 1] - plan->key_offset[x];
        plan->first_piece[x + 1] =
            plan->first_piece[x] + (keys + plan->bound_keys - 1) / plan->bound_keys;
    }
    return plan->first_piece[plan->sequences];
}

static void cut_pieces(plsh_plan *plan) {
    plan->bound_keys = PLSH_BOUND_KEYS;
    int64_t pieces = count_pieces(plan);
    while (pieces * piece_bytes(plan) > PLSH_BOX_BYTES && plan->bound_keys < PLSH_TILE_KEYS) {
        plan->bound_keys *= 2;
        pieces = count_pieces(plan);
    }
    plan->summary_bytes = bounds_bytes(plan, pieces, plan->sequences);
}

static int64_t queries_of(const plsh_plan *plan, int64_t x) {
    return plan->query_offset[x + 1] - plan->query_offset[x];
}

static int64_t keys_of(const plsh_plan *plan, int64_t x) {
    return plan->key_offset[x + 1] - plan->key_offset[x];
}

void plsh_extent_place(plsh_plan *plan, const plsh_place *places) {
    plan->longest = 0;
    plan->placed = places != NULL;
    for (int64_t x = 0; x < plan->sequences; x++) {
        int64_t queries = queries_of(plan, x), keys = keys_of(plan, x);
        plan->place[x] = places ? places[x] : (plsh_place){keys - queries, 0};
        int64_t span = plsh_place_span(plan->place[x], queries, keys);
        if (span > plan->longest) plan->longest = span;
    }
}

static bool is_inside(const plsh_plan *plan, int64_t x) {
    const plsh_place at = plan->place[x];
    const int64_t queries = queries_of(plan, x);
    return queries == 0 || (at.query >= at.key && at.query + queries <= at.key + keys_of(plan, x));
}

plsh_status plsh_extent_check_inside(const plsh_plan *plan, plsh_error *error) {
    for (int64_t x = 0; x < plan->sequences; x++) {
        if (is_inside(plan, x)) continue;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "sequence %lld: a certificate needs queries that lie among the keys",
                         (long long)x);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_place(const plsh_plan *plan, int64_t h, int64_t x, plsh_error *error) {
    const plsh_head_plan *head = &plan->head[h];
    const plsh_place at = plan->place[x];
    const int64_t queries = queries_of(plan, x), end = at.key + keys_of(plan, x);
    const bool sampled = plsh_method_is_sampled(head->head.method);
    if ((!sampled && head->head.method != PLSH_METHOD_FIXED) || queries == 0) return PLSH_STATUS_OK;
    if (!is_inside(plan, x)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "head %lld, sequence %lld: queries from position %lld to %lld, keys to "
                         "%lld; a fixed or sampled head's queries lie among its keys",
                         (long long)h, (long long)x, (long long)at.query,
                         (long long)(at.query + queries), (long long)end);
    }
    if (sampled && head->head.partition.scheme == PLSH_SCHEME_LABELS &&
        (head->head.partition.label_count < end || (head->gathering && at.key > 0))) {
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "head %lld, sequence %lld: keys from position %lld to %lld; labels are for "
            "%lld, and where equal ones are not adjacent keys begin at 0",
            (long long)h, (long long)x, (long long)at.key, (long long)end,
            (long long)head->head.partition.label_count);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_extent_check_places(const plsh_plan *plan, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < plan->shape.heads; h++) {
        for (int64_t x = 0; !status && x < plan->sequences; x++) {
            status = check_place(plan, h, x, error);
        }
    }
    return status;
}

void plsh_extent_cut(plsh_plan *plan) {
    cut_tiles(plan);
    cut_pieces(plan);
    for (int64_t h = 0; h < plan->shape.heads; h++)
        plsh_decay_sums_cut(&plan->head[h].sums, plan->longest);
}

/* ---- The most of any call ------------------------------------------------------------------- */

/* Every sequence may have a tile that is not full; of a `fixed` head, two blocks that are not. */
int64_t plsh_extent_most_tiles(const plsh_plan *plan) {
    int64_t most = 0;
    for (int64_t h = 0; h < plan->shape.heads; h++) {
        const plsh_head_plan *head = &plan->head[h];
        int64_t queries = plan->shape.queries, rows = plsh_head_tile_rows(plan, head);
        if (head->head.method == PLSH_METHOD_FIXED) {
            most += (queries / head->head.block + 2 * plan->sequences) *
                    plsh_head_block_tiles(plan, head, plan->longest);
        } else {
            most += queries / rows + plan->sequences;
        }
    }
    return most;
}

/* Shorter calls may have finer pieces: of b keys each, as long as their boxes do not take more than
 * PLSH_BOX_BYTES; the coarsest have no limit. */
size_t plsh_extent_most_bounds(const plsh_plan *plan) {
    int64_t most = 0;
    for (int64_t b = PLSH_BOUND_KEYS; b <= PLSH_TILE_KEYS; b *= 2) {
        int64_t pieces = plan->shape.keys / b + plan->sequences;
        int64_t limit = PLSH_BOX_BYTES / piece_bytes(plan);
        if (b < PLSH_TILE_KEYS && pieces > limit) pieces = limit;
        if (pieces > most) most = pieces;
    }
    return bounds_bytes(plan, most, plan->sequences);
}

/* ---- A call --------------------------------------------------------------------------------- */

/* The arrays of a plan that is cut to a call, with room for `sequences`. */
static void place(plsh_plan *call, int64_t sequences, plsh_arena *arena) {
    size_t heads = (size_t)call->shape.heads, entries = (size_t)sequences + 1;
    call->query_offset = plsh_arena_take(arena, entries, sizeof(int64_t));
    call->key_offset = plsh_arena_take(arena, entries, sizeof(int64_t));
    call->place = plsh_arena_take(arena, entries, sizeof(plsh_place));
    call->first_piece = plsh_arena_take(arena, entries, sizeof(int64_t));
    call->first_item = plsh_arena_take(arena, heads + 1, sizeof(int64_t));
    call->tiles = plsh_arena_take(arena, heads * entries, sizeof(int64_t));
    call->head = plsh_arena_take(arena, heads, sizeof(plsh_head_plan));
}

size_t plsh_extent_bytes(const plsh_plan *plan) {
    plsh_plan unused = *plan;
    plsh_arena measure = {0};
    place(&unused, plan->sequences, &measure);
    return measure.used;
}

static plsh_status check_fits(const plsh_plan *plan, const plsh_extent *e, plsh_error *error) {
    if (e->queries > plan->shape.queries || e->keys > plan->shape.keys ||
        e->sequences > plan->sequences) {
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "%lld queries, %lld keys, %lld sequences; the plan is for up to %lld, %lld "
            "and %lld",
            (long long)e->queries, (long long)e->keys, (long long)e->sequences,
            (long long)plan->shape.queries, (long long)plan->shape.keys,
            (long long)plan->sequences);
    }
    for (int64_t x = 0; x < (e->sequences ? e->sequences : 1); x++) {
        int64_t queries = e->sequences ? e->query_offsets[x + 1] - e->query_offsets[x] : e->queries;
        int64_t keys = e->sequences ? e->key_offsets[x + 1] - e->key_offsets[x] : e->keys;
        int64_t span = e->places ? plsh_place_span(e->places[x], queries, keys) : keys;
        if (span <= plan->longest) continue;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "a sequence of %lld keys; the plan's longest has %lld", (long long)span,
                         (long long)plan->longest);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_extent_take(const plsh_plan *plan, const plsh_extent *extent, plsh_plan *call,
                             plsh_error *error) {
    *call = *plan;
    if (!extent) return PLSH_STATUS_OK;
    if (plan->points.dim > 0)
        return plsh_fail(
            error, PLSH_STATUS_UNSUPPORTED,
            "a plan with positions serves calls of its own lengths, without an extent");
    plsh_status status = plsh_check_rows(extent, error);
    if (!status) status = check_fits(plan, extent, error);
    if (status) return status;
    call->shape.queries = extent->queries;
    call->shape.keys = extent->keys;
    call->shape.q = plan->asked[0];
    call->shape.k = plan->asked[1];
    call->shape.v = plan->asked[2];
    call->shape.o = plan->asked[3];
    return plsh_check_layouts(&call->shape, error);
}

plsh_status plsh_extent_fit(plsh_plan *call, const plsh_extent *extent, char *workspace,
                            char **rest, plsh_error *error) {
    *rest = workspace + plsh_extent_bytes(call);
    if (!extent) return PLSH_STATUS_OK;
    const plsh_head_plan *heads = call->head;
    plsh_arena arena = {.memory = workspace};
    place(call, call->sequences, &arena);
    call->sequences = extent->sequences ? extent->sequences : 1;
    call->query_offset[0] = call->key_offset[0] = 0;
    call->query_offset[1] = extent->queries;
    call->key_offset[1] = extent->keys;
    for (int64_t x = 1; x <= extent->sequences; x++) {
        call->query_offset[x] = extent->query_offsets[x];
        call->key_offset[x] = extent->key_offsets[x];
    }
    memcpy(call->head, heads, (size_t)call->shape.heads * sizeof *heads);
    plsh_extent_place(call, extent->places);
    plsh_extent_cut(call);
    *rest = workspace + arena.used;
    return extent->places ? plsh_extent_check_places(call, error) : PLSH_STATUS_OK;
}
