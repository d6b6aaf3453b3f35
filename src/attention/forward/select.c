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

void plsh_tile_select(plsh_tile *tile, const plsh_forward *arrays, char *summaries, int64_t h,
                      int64_t x, int64_t index) {
    const plsh_plan *plan = tile->plan;
    const plsh_attention *shape = &plan->shape;
    int64_t kv = h / (shape->heads / shape->kv_heads);
    tile->at.head = &plan->head[h];
    tile->at.sequence = x;
    tile->at.keys = plan->key_offset[x + 1] - plan->key_offset[x];
    select_rows(tile, index, plan->query_offset[x + 1] - plan->query_offset[x]);
    int64_t row = plan->query_offset[x] + tile->at.row, first = plan->key_offset[x];
    int64_t size = (int64_t)plsh_dtype_size(shape->dtype);
    tile->arrays.q =
        (const char *)arrays->q + (h * shape->q.head_stride + row * shape->q.row_stride) * size;
    tile->arrays.k = plsh_row_source_keys(plan, arrays, tile->pages, kv);
    tile->arrays.v = plsh_row_source_values(plan, arrays, tile->pages, kv);
    if (first > 0) { /* rows count from the sequence's first */
        tile->arrays.k.base += first * shape->k.row_stride * size;
        tile->arrays.v.base += first * shape->v.row_stride * size;
    }
    tile->at.dim = plsh_head_has_decay(&tile->at.head->head) ? plan->points.dim : 0;
    if (tile->at.dim > 0) {
        tile->at.x = plsh_points_of_queries(&plan->points, h) + row * plan->points.dim;
        tile->at.y = plsh_points_of_keys(&plan->points, h) + first * plan->points.dim;
    }
    tile->at.drop = plsh_drop_make(&arrays->dropout, h, row, first);
    tile->at.summary = plsh_summary_at(plan, summaries + (size_t)kv * plan->summary_bytes);
}
