/* attention: sets up a tile of queries. */
#include "attention/forward/tile.h"

#include "attention/forward/summary.h"

/* Rows of tile number `index` of its sequence. A `fixed` head's tiles begin with the blocks. */
static void select_rows(plsh_tile *tile, int64_t index, int64_t queries) {
    const plsh_head_plan *head = tile->at.head;
    const plsh_place place = tile->plan->place[tile->at.sequence];
    int64_t rows = plsh_head_tile_rows(tile->plan, head), start = place.query - place.key;
    int64_t begin = start + index * rows, end = begin + rows;
    if (head->head.method == PLSH_METHOD_FIXED) {
        int64_t each = plsh_head_block_tiles(tile->plan, head, tile->at.keys);
        int64_t block = place.query / head->head.block + index / each;
        int64_t block_begin = block * head->head.block - place.key;
        int64_t block_end = block_begin + head->head.block;
        begin = (block_begin > 0 ? block_begin : 0) + index % each * rows;
        end = begin + rows < block_end ? begin + rows : block_end;
        begin = begin < start ? start : begin;
    }
    end = end < start + queries ? end : start + queries;
    tile->at.position = begin;
    tile->at.origin = place.key;
    tile->at.row = begin - start;
    tile->at.rows = end > begin ? (int)(end - begin) : 0;
}

/* Sets the points of its queries and keys. */
static void select_points(plsh_tile *tile, int64_t h) {
    const plsh_plan *plan = tile->plan;
    const plsh_plan_points *p = &plan->points;
    const bool placed = plsh_head_is_arranged(plan, tile->at.head) && p->key_order;
    const int64_t x = tile->at.sequence, set = p->dim > 0 ? plsh_points_set(p, h) : 0;
    const int64_t query = set * p->queries + plan->query_offset[x] + tile->at.row;
    const int64_t key = set * p->keys + plan->key_offset[x];
    const int64_t piece = set * p->pieces + plan->first_piece[x];
    tile->at.dim = plsh_head_has_decay(&tile->at.head->head) ? p->dim : 0;
    tile->at.query_order = tile->at.key_order = NULL;
    if (tile->at.dim == 0) return;
    tile->at.x = (placed ? p->query_placed : p->query) + query * p->dim;
    tile->at.y = (placed ? p->key_placed : p->key) + key * p->dim;
    if (placed) {
        tile->at.query_order = p->query_order + query;
        tile->at.key_order = p->key_order + key;
    }
    if (!plsh_head_is_arranged(plan, tile->at.head)) return;
    tile->at.box = p->box + piece * 2 * p->dim;
    tile->at.least_row = p->least_row + piece;
}

void plsh_tile_select(plsh_tile *tile, const plsh_forward *arrays, char *summaries, int64_t h,
                      int64_t x, int64_t index) {
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t kv = h / (shape->heads / shape->kv_heads);
    int64_t summary = plan->summaries == shape->heads ? h : kv;
    tile->at.head = &plan->head[h];
    tile->at.sequence = x;
    tile->at.keys = plan->key_offset[x + 1] - plan->key_offset[x];
    tile->at.bounded =
        plan->head[h].head.method == PLSH_METHOD_EXACT && !plsh_plan_is_short(plan, x);
    select_rows(tile, index, plan->query_offset[x + 1] - plan->query_offset[x]);
    select_points(tile, h);
    int64_t row = plan->query_offset[x] + plsh_tile_first_row(tile), first = plan->key_offset[x];
    int64_t size = (int64_t)plsh_dtype_size(shape->dtype);
    tile->arrays.q =
        (const char *)arrays->q + (h * shape->q.head_stride + row * shape->q.row_stride) * size;
    tile->arrays.k = plsh_row_source_keys(plan, arrays, tile->pages, kv);
    tile->arrays.v = plsh_row_source_values(plan, arrays, tile->pages, kv);
    if (first > 0) { /* rows count from the sequence's first */
        tile->arrays.k.base += first * shape->k.row_stride * size;
        tile->arrays.v.base += first * shape->v.row_stride * size;
    }
    tile->at.drop = plsh_drop_make(&arrays->dropout, h, row, first);
    tile->at.summary = plsh_summary_at(plan, summaries + (size_t)summary * plan->summary_bytes);
}
