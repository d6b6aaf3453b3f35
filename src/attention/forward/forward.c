/* attention: the forward pass. */
#include <math.h>
#include <omp.h>

#include "attention/forward/certificate.h"
#include "attention/forward/tile.h"
#include "attention/plan/arrays.h"
#include "attention/sampled/sampled.h"
#include "base/memory.h"

/* The kv head of a head, and where its keys begin. */
static int64_t kv_head(const plsh_plan *plan, int64_t head) {
    return head / (plan->shape.heads / plan->shape.kv_heads);
}

static const char *head_of(const void *array, const plsh_layout *layout, int64_t head,
                           plsh_dtype dtype) {
    return (const char *)array + head * layout->head_stride * (int64_t)plsh_dtype_size(dtype);
}

/* K of a kv head, and V. */
static plsh_row_source keys_of(const plsh_plan *plan, const plsh_forward *arrays,
                               const plsh_pages *pages, int64_t kv) {
    if (pages) return pages->k[kv];
    const plsh_attention *shape = &plan->shape;
    return (plsh_row_source){.dtype = shape->dtype,
                             .dim = (int)shape->head_dim,
                             .stride = shape->k.row_stride,
                             .base = head_of(arrays->k, &shape->k, kv, shape->dtype)};
}

static plsh_row_source values_of(const plsh_plan *plan, const plsh_forward *arrays,
                                 const plsh_pages *pages, int64_t kv) {
    if (pages) return pages->v[kv];
    const plsh_attention *shape = &plan->shape;
    return (plsh_row_source){.dtype = shape->dtype,
                             .dim = (int)shape->value_dim,
                             .stride = shape->v.row_stride,
                             .base = head_of(arrays->v, &shape->v, kv, shape->dtype)};
}

/* The largest i with first[i] <= item, i < count. */
static int64_t find(const int64_t *first, int64_t count, int64_t item) {
    int64_t low = 0, high = count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (first[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Rows of tile number `index` of its sequence. A `fixed` head's tiles begin with the blocks. */
static void place_rows(plsh_tile *tile, int64_t index) {
    const plsh_head_plan *head = tile->head;
    int64_t rows = plsh_head_tile_rows(tile->plan, head), start = tile->keys - tile->queries;
    int64_t begin = start + index * rows, end = begin + rows;
    if (head->head.method == PLSH_METHOD_FIXED) {
        int64_t each = plsh_head_block_tiles(tile->plan, head, tile->keys);
        int64_t block = start / head->head.block + index / each;
        int64_t block_end =
            head->head.block < tile->keys ? (block + 1) * head->head.block : tile->keys;
        begin = block * head->head.block + index % each * rows;
        end = begin + rows < block_end ? begin + rows : block_end;
        begin = begin < start ? start : begin;
    }
    end = end < tile->keys ? end : tile->keys;
    tile->position = begin;
    tile->row = begin - start;
    tile->rows = end > begin ? (int)(end - begin) : 0;
}

void plsh_tile_place(plsh_tile *tile, const plsh_forward *arrays, char *bounds_memory,
                     plsh_bounds *bounds, int64_t h, int64_t x, int64_t index) {
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t kv = kv_head(plan, h);
    tile->head = &plan->head[h];
    tile->head_index = h;
    tile->sequence = x;
    tile->queries = plan->query_offset[x + 1] - plan->query_offset[x];
    tile->keys = plan->key_offset[x + 1] - plan->key_offset[x];
    place_rows(tile, index);
    int64_t row = plan->query_offset[x] + tile->row, first = plan->key_offset[x];
    int64_t size = (int64_t)plsh_dtype_size(shape->dtype);
    tile->q = head_of(arrays->q, &shape->q, h, shape->dtype) + row * shape->q.row_stride * size;
    tile->k = keys_of(plan, arrays, tile->pages, kv);
    tile->v = values_of(plan, arrays, tile->pages, kv);
    if (first > 0) { /* rows count from the sequence's first */
        tile->k.base += first * shape->k.row_stride * size;
        tile->v.base += first * shape->v.row_stride * size;
    }
    *bounds = plsh_bounds_at(plan, bounds_memory + (size_t)kv * plan->bounds_bytes);
    tile->bounds = bounds;
}

/* Which tile an item is: heads in the plan's order, the last tiles first, which are the longest
 * of a causal head. */
static void place(plsh_tile *tile, const plsh_forward *arrays, char *bounds_memory,
                  plsh_bounds *bounds, int64_t item) {
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t i = find(plan->first_item, shape->heads, item), h = plan->order[i];
    int64_t index = plan->first_item[i + 1] - 1 - item;
    int64_t x = find(plan->head[h].first_tile, plan->sequences, index);
    plsh_tile_place(tile, arrays, bounds_memory, bounds, h, x, index - plan->head[h].first_tile[x]);
    int64_t row = plan->query_offset[x] + tile->row;
    tile->o_out = arrays->o + h * shape->o.head_stride + row * shape->o.row_stride;
    tile->lse_out = arrays->lse ? arrays->lse + h * shape->queries + row : NULL;
    tile->certificate_out =
        arrays->certificate ? arrays->certificate + h * shape->queries + row : NULL;
}

/* The largest entry; NaN where there is one. */
static double largest(const float *certificate, int64_t count) {
    double most = 0.0;
    for (int64_t i = 0; certificate && i < count; i++) {
        if (!((double)certificate[i] <= most)) most = (double)certificate[i];
        if (isnan(most)) break;
    }
    return most;
}

/* Pages have been dropped of heads that no head with bounds reads: nothing to summarise there. */
static bool is_whole(const plsh_row_source *k) { return k->base || k->first_page == 0; }

void plsh_bounds_summarise(const plsh_plan *plan, const plsh_forward *arrays,
                           const plsh_pages *pages, char *memory, float *wide, float *v_wide) {
    if (!plan->boxes && !arrays->certificate) return;
    int64_t pieces = plan->first_piece[plan->sequences], kv_heads = plan->shape.kv_heads;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < kv_heads * plan->sequences; i++) {
        int64_t kv = i / plan->sequences;
        plsh_bounds bounds = plsh_bounds_at(plan, memory + (size_t)kv * plan->bounds_bytes);
        plsh_row_source k = keys_of(plan, arrays, pages, kv),
                        v = values_of(plan, arrays, pages, kv);
        if (is_whole(&k)) plsh_bounds_mean(plan, &bounds, &k, i % plan->sequences, wide);
        if (arrays->certificate) plsh_bounds_values(plan, &bounds, &v, i % plan->sequences, v_wide);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < kv_heads * pieces; i++) {
        int64_t kv = i / pieces, piece = i % pieces;
        plsh_bounds bounds = plsh_bounds_at(plan, memory + (size_t)kv * plan->bounds_bytes);
        int64_t sequence = find(plan->first_piece, plan->sequences, piece);
        plsh_row_source k = keys_of(plan, arrays, pages, kv);
        if (is_whole(&k)) plsh_bounds_piece(plan, &bounds, &k, sequence, piece, wide);
    }
#pragma omp for schedule(static)
    for (int64_t kv = 0; kv < kv_heads; kv++) {
        plsh_bounds bounds = plsh_bounds_at(plan, memory + (size_t)kv * plan->bounds_bytes);
        plsh_bounds_maxima(plan, &bounds);
    }
}

static int64_t run(const plsh_plan *plan, const plsh_forward *arrays, const plsh_pages *pages,
                   char *workspace) {
    char *threads = workspace + plan->bounds_bytes * (size_t)plan->shape.kv_heads;
    int64_t items = plan->first_item[plan->shape.heads], pairs = 0;
#pragma omp parallel num_threads(plan->threads) reduction(+ : pairs)
    {
        plsh_tile tile;
        plsh_bounds bounds;
        plsh_tile_layout(plan, &tile, threads + (size_t)omp_get_thread_num() * plan->thread_bytes);
        tile.pass = &plsh_pass_forward;
        tile.pages = pages;
        plsh_bounds_summarise(plan, arrays, pages, workspace, tile.k_wide, tile.v_wide);
/* Tiles in a row share keys, and look ahead to one another; 64 chunks a thread balance. */
#pragma omp for schedule(dynamic, 1 + items / (64 * (int64_t)plan->threads))
        for (int64_t item = 0; item < items; item++) {
            place(&tile, arrays, workspace, &bounds, item);
            if (tile.rows == 0) continue;
            if (plsh_method_is_sampled(tile.head->head.method)) {
                plsh_tile_sample(&tile);
            } else {
                plsh_tile_walk(&tile);
            }
            if (tile.certificate_out) plsh_tile_certify(&tile);
        }
        pairs += tile.pairs;
    }
    return pairs;
}

plsh_status plsh_plan_forward(const plsh_plan *plan, const plsh_forward *arrays, void *workspace,
                              plsh_report *report, plsh_error *error) {
    if (report) *report = (plsh_report){0};
    if (plan->shape.queries == 0) return PLSH_STATUS_OK;
    plsh_status status = plsh_forward_check(plan, arrays, workspace, error);
    if (status) return status;
    int64_t pairs = run(plan, arrays, NULL, workspace);
    if (report) {
        *report = (plsh_report){
            .pairs = pairs,
            .error_bound = largest(arrays->certificate, plan->shape.heads * plan->shape.queries)};
    }
    return PLSH_STATUS_OK;
}

int64_t plsh_plan_forward_pages(const plsh_plan *plan, const plsh_forward *arrays,
                                const plsh_pages *pages, void *workspace) {
    return plan->shape.queries == 0 ? 0 : run(plan, arrays, pages, workspace);
}

plsh_status plsh_attend(const plsh_attention *attention, const void *q, const void *k,
                        const void *v, float *o, float *lse, plsh_error *error) {
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
