/* attention: the backward pass. */
#include "attention/backward/backward.h"

#include <omp.h>
#include <string.h>

#include "attention/forward/select.h"
#include "attention/forward/summary.h"
#include "attention/forward/walk.h"
#include "attention/plan/arrays.h"
#include "attention/plan/extent.h"
#include "base/memory.h"
#include "base/thread.h"

static int64_t count_chains(const plsh_plan *plan) {
    return plan->shape.kv_heads * plan->sequences;
}

/* The workspace: summaries of the keys as in the forward pass, whose turn it is, d_decay of every
 * tile, and the threads' tiles. */
typedef struct areas {
    char *summaries, *threads;
    double *decays; /* [tiles][2] */
    plsh_turns turns;
    size_t thread; /* bytes */
    int64_t tiles;
} areas;

static size_t lay_out(areas *at, const plsh_plan *plan, void *workspace) {
    plsh_backward_tile unused;
    plsh_arena tile = {0}, arena = {.memory = workspace};
    plsh_backward_layout(&unused, plan, &tile);
    *at = (areas){.tiles = plan->first_item[plan->shape.heads], .thread = tile.used};
    at->summaries =
        plsh_arena_take(&arena, (size_t)plan->shape.kv_heads, plsh_extent_most_bounds(plan));
    plsh_turns_layout(&at->turns, plan->shape.kv_heads * plan->most_sequences, plan->most_tiles,
                      &arena);
    at->decays = plsh_arena_take(&arena, (size_t)plan->most_tiles, 2 * sizeof(double));
    at->threads = plsh_arena_take(&arena, (size_t)plan->threads, at->thread);
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
static void select_tile(plsh_backward_tile *b, const plsh_backward *arrays, char *summaries,
                        plsh_summary *summary) {
    plsh_tile *tile = &b->tile;
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t kv = b->turn.chain / plan->sequences, x = b->turn.chain % plan->sequences;
    int64_t h = kv * (shape->heads / shape->kv_heads), index = b->turn.tile;
    while (index >= tiles_of(plan, h, x)) index -= tiles_of(plan, h++, x);
    plsh_forward inputs = {
        .q = arrays->q, .k = arrays->k, .v = arrays->v, .dropout = arrays->dropout};
    plsh_tile_select(tile, &inputs, summaries, summary, h, x, tiles_of(plan, h, x) - 1 - index);
    int64_t row = plan->query_offset[x] + tile->row, first = plan->key_offset[x];
    ptrdiff_t q = h * shape->q.head_stride + row * shape->q.row_stride;
    ptrdiff_t o = h * shape->o.head_stride + row * shape->o.row_stride;
    ptrdiff_t k = kv * shape->k.head_stride + first * shape->k.row_stride;
    ptrdiff_t v = kv * shape->v.head_stride + first * shape->v.row_stride;
    b->o = arrays->o + o;
    b->d_o = arrays->d_o + o;
    b->lse = arrays->lse + h * shape->queries + row;
    b->d_q = arrays->d_q ? arrays->d_q + q : NULL;
    b->d_k = arrays->d_k ? arrays->d_k + k : NULL;
    b->d_v = arrays->d_v ? arrays->d_v + v : NULL;
    b->some_keys = arrays->some_keys;
    b->learns = arrays->d_decay && plsh_head_has_decay(&tile->head->head);
}

/* ---- The pass ------------------------------------------------------------------------------- */

/* Rows of zeros, by all threads of a parallel region. */
static void clear(float *array, const plsh_layout *layout, int64_t heads, int64_t rows,
                  int64_t dim) {
    if (!array) return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < heads * rows; i++) {
        memset(array + i / rows * layout->head_stride + i % rows * layout->row_stride, 0,
               sizeof(float) * (size_t)dim);
    }
}

/* A tile's d_decay has the place of its chain's turn, so their sum has one order. */
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

static void run_tile(plsh_backward_tile *b, const plsh_backward *arrays, char *summaries,
                     double *part) {
    plsh_summary summary;
    select_tile(b, arrays, summaries, &summary);
    b->d_decay[0] = b->d_decay[1] = 0.0;
    if (b->tile.rows > 0 && plsh_method_is_sampled(b->tile.head->head.method)) {
        plsh_backward_sample(b);
    } else if (b->tile.rows > 0) {
        plsh_walk_run(&b->tile);
    }
    part[0] = b->d_decay[0];
    part[1] = b->d_decay[1];
}

static int64_t run(const plsh_plan *plan, const plsh_backward *arrays, char *workspace) {
    const plsh_attention *shape = &plan->shape;
    const plsh_forward inputs = {.q = arrays->q, .k = arrays->k, .v = arrays->v};
    int64_t pairs = 0;
    areas at;
    lay_out(&at, plan, workspace);
    plsh_turns_begin(&at.turns);
    make_chains(plan, &at.turns);
#pragma omp parallel num_threads(plsh_thread_team(plan->threads)) reduction(+ : pairs)
    {
        plsh_backward_tile b = {.turns = &at.turns, .turn = {.chain = -1}};
        plsh_arena arena = {.memory = at.threads + (size_t)omp_get_thread_num() * at.thread};
        plsh_backward_layout(&b, plan, &arena);
        b.tile.pass = &plsh_backward_pass;
        clear(arrays->d_k, &shape->k, shape->kv_heads, shape->keys, shape->head_dim);
        clear(arrays->d_v, &shape->v, shape->kv_heads, shape->keys, shape->value_dim);
        plsh_summary_make(plan, &inputs, NULL, at.summaries, b.tile.k_wide, NULL);
        while (plsh_turns_take(&at.turns, &b.turn)) {
            int64_t number = at.turns.chain[b.turn.chain].first + b.turn.tile;
            run_tile(&b, arrays, at.summaries, at.decays + 2 * number);
            plsh_turns_end(&at.turns, &b.turn);
        }
        pairs += b.tile.pairs;
    }
    if (arrays->d_decay) sum_decays(plan, &at.turns, at.decays, arrays->d_decay);
    return pairs;
}

/* No queries: nothing depends on the keys and values, nor on a decay. */
static void run_empty(const plsh_plan *plan, const plsh_backward *arrays) {
    const plsh_attention *shape = &plan->shape;
    clear(arrays->d_k, &shape->k, shape->kv_heads, shape->keys, shape->head_dim);
    clear(arrays->d_v, &shape->v, shape->kv_heads, shape->keys, shape->value_dim);
    if (arrays->d_decay) memset(arrays->d_decay, 0, sizeof(double) * 2 * (size_t)shape->heads);
}

plsh_status plsh_plan_backward(const plsh_plan *plan, const plsh_backward *arrays, void *workspace,
                               plsh_report *report, plsh_error *error) {
    plsh_plan call;
    if (report) *report = (plsh_report){0};
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
    int64_t pairs = run(&call, arrays, rest);
    if (report) *report = (plsh_report){.pairs = pairs};
    return PLSH_STATUS_OK;
}
