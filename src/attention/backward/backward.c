/* attention: the backward pass. */
#include "attention/backward/points.h"

#include <string.h>

#include "attention/forward/plane_walk.h"
#include "attention/forward/summary.h"
#include "attention/forward/tile.h"
#include "attention/plan/extent.h"
#include "attention/plan/plan.h"
#include "base/thread.h"

static int64_t count_chains(const plsh_plan *plan) {
    return plan->shape.kv_heads * plan->sequences;
}

/* The tile of a slot, followed by its buffers. */
typedef struct slot_tile {
    bool ready; /* laid out, in this call */
    plsh_backward_tile b;
} slot_tile;

/* The workspace: summaries of the keys as in the forward pass, the turns, d_decay of every tile,
 * and the tiles of the slots. */
typedef struct areas {
    char *summaries, *slots;
    double *decays; /* [tiles][2] */
    double *points; /* sums of the gradients by positions, see points.h */
    plsh_turns turns;
    size_t slot; /* bytes */
    int64_t tiles;
} areas;

static size_t lay_out(areas *at, const plsh_plan *plan, void *workspace) {
    plsh_backward_tile unused;
    plsh_arena slot = {0}, arena = {.memory = workspace};
    plsh_arena_take(&slot, 1, sizeof(slot_tile));
    plsh_backward_layout(&unused, plan, &slot);
    *at = (areas){.tiles = plan->first_item[plan->shape.heads], .slot = slot.used};
    at->summaries = plsh_arena_take(&arena, (size_t)plan->summaries, plsh_extent_most_bounds(plan));
    plsh_turns_layout(&at->turns, plan->shape.kv_heads * plan->most_sequences, plan->most_tiles,
                      &arena);
    at->decays = plsh_arena_take(&arena, (size_t)plan->most_tiles, 2 * sizeof(double));
    at->points = plsh_arena_take(&arena, plsh_backward_points_size(plan), sizeof(double));
    at->slots = plsh_arena_take(&arena, (size_t)plan->threads, at->slot);
    return arena.used;
}

size_t plsh_plan_backward_workspace(const plsh_plan *plan) {
    areas unused;
    return plsh_extent_bytes(plan) + lay_out(&unused, plan, NULL);
}

/* ---- Chains --------------------------------------------------------------------------------- */

static int64_t tiles_of(const plsh_plan *plan, int64_t head, int64_t sequence) {
    const int64_t *first = plan->head[head].first_tile;
    return first[sequence + 1] - first[sequence];
}

/* Chain c is sequence c % sequences of kv head c / sequences. */
static void make_chains(const plsh_plan *plan, plsh_turns *turns) {
    int64_t group = plan->shape.heads / plan->shape.kv_heads;
    for (int64_t c = 0; c < count_chains(plan); c++) {
        int64_t tiles = 0, first = c / plan->sequences * group;
        for (int64_t h = first; h < first + group; h++) {
            tiles += tiles_of(plan, h, c % plan->sequences);
        }
        plsh_turns_add(turns, tiles);
    }
}

/* The tile of a turn: the heads of the group one after the other, the last tiles first. */
static void select_tile(plsh_backward_tile *b, const plsh_backward *arrays, char *summaries) {
    plsh_tile *tile = &b->tile;
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t kv = b->turn.chain / plan->sequences, x = b->turn.chain % plan->sequences;
    int64_t h = kv * (shape->heads / shape->kv_heads), index = b->turn.tile;
    while (index >= tiles_of(plan, h, x)) index -= tiles_of(plan, h++, x);
    plsh_forward inputs = {
        .q = arrays->q, .k = arrays->k, .v = arrays->v, .dropout = arrays->dropout};
    plsh_tile_select(tile, &inputs, summaries, h, x, tiles_of(plan, h, x) - 1 - index);
    int64_t row = plan->query_offset[x] + plsh_tile_first_row(tile), first = plan->key_offset[x];
    ptrdiff_t q = h * shape->q.head_stride + row * shape->q.row_stride;
    ptrdiff_t o = h * shape->o.head_stride + row * shape->o.row_stride;
    ptrdiff_t k = kv * shape->k.head_stride + first * shape->k.row_stride;
    ptrdiff_t v = kv * shape->v.head_stride + first * shape->v.row_stride;
    b->arrays.o = arrays->o + o;
    b->arrays.d_o = arrays->d_o + o;
    b->arrays.lse = arrays->lse + h * shape->queries + row;
    b->arrays.d_q = arrays->d_q ? arrays->d_q + q : NULL;
    b->arrays.d_k = arrays->d_k ? arrays->d_k + k : NULL;
    b->arrays.d_v = arrays->d_v ? arrays->d_v + v : NULL;
    b->arrays.some_keys = arrays->some_keys;
    b->arrays.learns = arrays->d_decay && plsh_head_has_decay(&tile->at.head->head);
}

/* ---- The pass ------------------------------------------------------------------------------- */

typedef struct zeros {
    float *array;
    const plsh_layout *layout;
    int64_t rows, dim;
} zeros;

static void clear_rows(void *context, int64_t first, int64_t end, int slot) {
    const zeros *z = context;
    (void)slot;
    for (int64_t i = first; i < end; i++)
        memset(z->array + i / z->rows * z->layout->head_stride +
                   i % z->rows * z->layout->row_stride,
               0, sizeof(float) * (size_t)z->dim);
}

static void clear(int threads, float *array, const plsh_layout *layout, int64_t heads, int64_t rows,
                  int64_t dim) {
    enum { LEAST = 256 }; /* rows of a chunk */
    zeros z = {array, layout, rows, dim};
    if (array) plsh_thread_rows(threads, heads * rows, LEAST, clear_rows, &z);
}

static void clear_keys(const plsh_plan *plan, const plsh_backward *arrays) {
    const plsh_attention *shape = &plan->shape;
    clear(plan->threads, arrays->d_k, &shape->k, shape->kv_heads, shape->keys, shape->head_dim);
    clear(plan->threads, arrays->d_v, &shape->v, shape->kv_heads, shape->keys, shape->value_dim);
}

/* A tile's d_decay is stored at the index of its turn, so that their sum has a fixed order. */
static void sum_decays(const plsh_plan *plan, const plsh_turns *turns, const double *part,
                       double *d_decay) {
    int64_t group = plan->shape.heads / plan->shape.kv_heads;
    memset(d_decay, 0, sizeof(double) * 2 * (size_t)plan->shape.heads);
    for (int64_t c = 0; c < turns->chains; c++) {
        int64_t at = turns->chain[c].first, h = c / plan->sequences * group;
        for (int64_t end = h + group; h < end; h++) {
            for (int64_t left = tiles_of(plan, h, c % plan->sequences); left > 0; left--, at++) {
                d_decay[2 * h] += part[2 * at];
                d_decay[2 * h + 1] += part[2 * at + 1];
            }
        }
    }
}

static void run_tile(plsh_backward_tile *b, const plsh_backward *arrays, const areas *at,
                     double *part) {
    const bool moves = arrays->d_key_positions || arrays->d_query_positions;
    select_tile(b, arrays, at->summaries);
    plsh_backward_points_select(b, moves ? at->points : NULL, b->tile.at.head - b->tile.plan->head);
    b->sums.d_decay[0] = b->sums.d_decay[1] = 0.0;
    if (b->tile.at.rows > 0 && plsh_method_is_sampled(b->tile.at.head->head.method)) {
        plsh_backward_sample(b);
    } else if (b->tile.at.rows > 0 && plsh_head_is_arranged(b->tile.plan, b->tile.at.head)) {
        plsh_plane_walk(&b->tile);
    } else if (b->tile.at.rows > 0) {
        plsh_walk_tile(&b->tile);
    }
    part[0] = b->sums.d_decay[0];
    part[1] = b->sums.d_decay[1];
}

/* The state of one backward pass of a plan. */
typedef struct backward_call {
    const plsh_plan *plan;
    const plsh_backward *arrays;
    areas at;
} backward_call;

static slot_tile *slot_at(const backward_call *call, int slot) {
    return (slot_tile *)(void *)(call->at.slots + (size_t)slot * call->at.slot);
}

static plsh_backward_tile *tile_of(backward_call *call, int slot) {
    slot_tile *s = slot_at(call, slot);
    if (s->ready) return &s->b;
    plsh_arena arena = {.memory = (char *)s};
    plsh_arena_take(&arena, 1, sizeof(slot_tile));
    s->b = (plsh_backward_tile){.turns = &call->at.turns, .turn = {.chain = -1}};
    plsh_backward_layout(&s->b, call->plan, &arena);
    s->b.tile.pass = &plsh_backward_pass;
    s->ready = true;
    return &s->b;
}

static plsh_summary_buffers buffers_of(void *context, int slot) {
    return (plsh_summary_buffers){.k = tile_of(context, slot)->tile.scratch.k_wide};
}

/* There are as many chunks as tiles: each takes one. */
static void run_turn(void *context, int64_t chunk, int slot) {
    backward_call *call = context;
    plsh_backward_tile *b = tile_of(call, slot);
    (void)chunk;
    if (!plsh_turns_take(&call->at.turns, &b->turn)) return;
    int64_t number = call->at.turns.chain[b->turn.chain].first + b->turn.tile;
    run_tile(b, call->arrays, &call->at, call->at.decays + 2 * number);
    plsh_turns_end(&call->at.turns, &b->turn);
}

static int64_t run_backward(const plsh_plan *plan, const plsh_backward *arrays, char *workspace) {
    const plsh_forward inputs = {.q = arrays->q, .k = arrays->k, .v = arrays->v};
    backward_call call = {.plan = plan, .arrays = arrays};
    lay_out(&call.at, plan, workspace);
    plsh_turns_begin(&call.at.turns);
    make_chains(plan, &call.at.turns);
    for (int slot = 0; slot < plan->threads; slot++) slot_at(&call, slot)->ready = false;
    clear_keys(plan, arrays);
    if (arrays->d_key_positions || arrays->d_query_positions)
        memset(call.at.points, 0, sizeof(double) * plsh_backward_points_size(plan));
    plsh_summary_make(plan, &inputs, NULL, call.at.summaries, buffers_of, &call);
    plsh_thread_run(plan->threads, call.at.tiles, run_turn, &call);
    int64_t pairs = 0;
    for (int slot = 0; slot < plan->threads; slot++)
        if (slot_at(&call, slot)->ready) pairs += slot_at(&call, slot)->b.tile.pairs;
    if (arrays->d_key_positions || arrays->d_query_positions)
        plsh_backward_points_write(plan, call.at.points, arrays);
    if (arrays->d_decay) sum_decays(plan, &call.at.turns, call.at.decays, arrays->d_decay);
    return pairs;
}

/* Without queries, all gradients of keys, values and decays are 0. */
static void run_empty(const plsh_plan *plan, const plsh_backward *arrays) {
    clear_keys(plan, arrays);
    const plsh_plan_points *p = &plan->points;
    if (arrays->d_key_positions)
        memset(arrays->d_key_positions, 0, sizeof(float) * (size_t)(p->sets * p->keys * p->dim));
    if (arrays->d_decay) memset(arrays->d_decay, 0, sizeof(double) * 2 * (size_t)plan->shape.heads);
}

plsh_status plsh_plan_backward(const plsh_plan *plan, const plsh_backward *arrays, void *workspace,
                               plsh_stats *stats, plsh_error *error) {
    plsh_plan call;
    if (stats) *stats = (plsh_stats){0};
    plsh_status status = plsh_extent_take(plan, arrays->extent, &call, error);
    if (status) return status;
    if (call.shape.queries == 0) {
        run_empty(&call, arrays);
        return PLSH_STATUS_OK;
    }
    status = plsh_backward_check(&call, arrays, workspace, error);
    char *rest;
    if (!status) status = plsh_extent_fit(&call, arrays->extent, workspace, &rest, error);
    if (status) return status;
    int64_t pairs = run_backward(&call, arrays, rest);
    if (stats) *stats = (plsh_stats){.pairs = pairs};
    return PLSH_STATUS_OK;
}
