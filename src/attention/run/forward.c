/* attention: the forward pass. */
#include "attention/run/forward.h"

#include <math.h>

#include "attention/certificate/certificate.h"
#include "attention/forward/headroom.h"
#include "attention/forward/plane_walk.h"
#include "attention/forward/row.h"
#include "attention/forward/summary.h"
#include "attention/forward/tile.h"
#include "attention/plan/extent.h"
#include "attention/plan/plan.h"
#include "attention/sampled/sampled.h"
#include "base/thread.h"

/* The largest entry; NaN if there is one. */
static double largest(const float *certificate, int64_t count) {
    double most = 0.0;
    for (int64_t i = 0; certificate && i < count; i++) {
        if (!((double)certificate[i] <= most)) most = (double)certificate[i];
        if (isnan(most)) break;
    }
    return most;
}

/* The state of a slot, followed by its buffers. */
typedef struct worker {
    bool ready; /* laid out, in this call */
    plsh_tile tile;
    plsh_sampled_buffers sampled;
    plsh_certificate_sums certificate;
} worker;

static void lay_out(worker *w, const plsh_plan *plan, plsh_arena *arena) {
    *w = (worker){.tile = {.sampled = &w->sampled, .certificate = &w->certificate}};
    plsh_tile_layout(&w->tile, plan, arena);
    plsh_sampled_layout(&w->sampled, plan, arena);
    plsh_certificate_layout(&w->certificate, plan, arena);
}

static size_t worker_bytes(const plsh_plan *plan) {
    worker unused;
    plsh_arena arena = {0};
    plsh_arena_take(&arena, 1, sizeof(worker));
    lay_out(&unused, plan, &arena);
    return arena.used;
}

bool plsh_forward_size(const plsh_plan *plan, size_t *bytes) {
    plsh_arena arena = {.used = plsh_extent_bytes(plan)};
    plsh_arena_take(&arena, (size_t)plan->summaries, plsh_extent_most_bounds(plan));
    plsh_arena_take(&arena, (size_t)plan->threads, worker_bytes(plan));
    *bytes = arena.used;
    return !arena.overflow;
}

/* Which tile an item is: heads in the plan's order, the last tiles first, which are the longest
 * of a causal head. */
static void select_item(worker *w, const plsh_forward *arrays, char *summaries, int64_t item) {
    plsh_tile *tile = &w->tile;
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t i = plsh_plan_find(plan->first_item, shape->heads, item), h = plan->order[i];
    int64_t index = plan->first_item[i + 1] - 1 - item;
    int64_t x = plsh_plan_find(plan->head[h].first_tile, plan->sequences, index);
    plsh_tile_select(tile, arrays, summaries, h, x, index - plan->head[h].first_tile[x]);
    int64_t row = plan->query_offset[x] + plsh_tile_first_row(tile);
    tile->arrays.o = (char *)arrays->o + (h * shape->o.head_stride + row * shape->o.row_stride) *
                                             (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    tile->arrays.lse = arrays->lse ? arrays->lse + h * shape->queries + row : NULL;
    tile->arrays.certificate =
        arrays->certificate ? arrays->certificate + h * shape->queries + row : NULL;
}

static void run_method(plsh_tile *tile) {
    if (plsh_method_is_sampled(tile->at.head->head.method)) {
        plsh_sampled_tile(tile);
    } else if (plsh_head_is_arranged(tile->plan, tile->at.head)) {
        plsh_plane_walk(tile);
    } else if (!plsh_row_tile(tile)) {
        plsh_walk_tile(tile);
    }
}

static void run_tile(worker *w) {
    plsh_tile *tile = &w->tile;
    if (tile->at.rows == 0) return;
    run_method(tile);
    if (plsh_tile_overflowed(tile)) {
        const int64_t pairs = tile->pairs;
        tile->headroom = PLSH_HEADROOM;
        run_method(tile);
        tile->headroom = 0.0f;
        tile->pairs = pairs;
    }
    if (tile->arrays.certificate) plsh_certificate_fill(tile);
}

/* A pass of one plan. */
typedef struct forward_call {
    const plsh_plan *plan;
    const plsh_forward *arrays;
    const plsh_pages *pages;
    char *summaries, *workers;
    size_t bytes;        /* of a worker */
    int64_t items, each; /* tiles, and those of a chunk */
} forward_call;

static worker *worker_at(const forward_call *call, int slot) {
    return (worker *)(void *)(call->workers + (size_t)slot * call->bytes);
}

static worker *worker_of(const forward_call *call, int slot) {
    worker *w = worker_at(call, slot);
    if (w->ready) return w;
    plsh_arena arena = {.memory = (char *)w};
    plsh_arena_take(&arena, 1, sizeof(worker));
    lay_out(w, call->plan, &arena);
    w->tile.pass = &plsh_forward_pass;
    w->tile.pages = call->pages;
    w->ready = true;
    return w;
}

static plsh_summary_buffers buffers_of(void *context, int slot) {
    const worker *w = worker_of(context, slot);
    return (plsh_summary_buffers){w->tile.scratch.k_wide, w->tile.scratch.v_wide};
}

static void run_items(void *context, int64_t chunk, int slot) {
    const forward_call *call = context;
    worker *w = worker_of(call, slot);
    const int64_t first = chunk * call->each, left = call->items - first;
    const int64_t end = first + (left < call->each ? left : call->each);
    for (int64_t item = first; item < end; item++) {
        select_item(w, call->arrays, call->summaries, item);
        run_tile(w);
    }
}

static int64_t run_forward(const plsh_plan *plan, const plsh_forward *arrays,
                           const plsh_pages *pages, char *workspace) {
    forward_call call = {.plan = plan,
                         .arrays = arrays,
                         .pages = pages,
                         .summaries = workspace,
                         .workers = workspace + plan->summary_bytes * (size_t)plan->summaries,
                         .bytes = worker_bytes(plan),
                         .items = plan->first_item[plan->shape.heads]};
    /* Consecutive tiles share keys and prefetch for each other; 64 chunks a thread balance. */
    call.each = 1 + call.items / (64 * (int64_t)plan->threads);
    for (int slot = 0; slot < plan->threads; slot++) worker_at(&call, slot)->ready = false;
    plsh_summary_make(plan, arrays, pages, workspace, buffers_of, &call);
    plsh_thread_run(plan->threads, (call.items + call.each - 1) / call.each, run_items, &call);
    int64_t pairs = 0;
    for (int slot = 0; slot < plan->threads; slot++)
        if (worker_at(&call, slot)->ready) pairs += worker_at(&call, slot)->tile.pairs;
    return pairs;
}

plsh_status plsh_plan_forward(const plsh_plan *plan, const plsh_forward *arrays, void *workspace,
                              plsh_stats *stats, plsh_error *error) {
    plsh_plan call;
    if (stats) *stats = (plsh_stats){0};
    plsh_status status = plsh_extent_take(plan, arrays->extent, &call, error);
    if (status || call.shape.queries == 0) return status;
    status = plsh_forward_check(&call, arrays, workspace, error);
    char *rest;
    if (!status) status = plsh_extent_fit(&call, arrays->extent, workspace, &rest, error);
    if (!status && arrays->certificate) status = plsh_extent_check_inside(&call, error);
    if (status) return status;
    int64_t pairs = run_forward(&call, arrays, NULL, rest);
    if (stats) {
        *stats = (plsh_stats){
            .pairs = pairs,
            .error_bound = largest(arrays->certificate, call.shape.heads * call.shape.queries)};
    }
    return PLSH_STATUS_OK;
}

int64_t plsh_plan_forward_pages(const plsh_plan *plan, const plsh_forward *arrays,
                                const plsh_pages *pages, void *workspace) {
    return plan->shape.queries == 0 ? 0 : run_forward(plan, arrays, pages, workspace);
}
