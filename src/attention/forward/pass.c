/* attention: the forward pass of a tile. */
#include "attention/forward/tile.h"

#include "attention/forward/bounds.h"

static void begin(plsh_tile *tile) {
    plsh_tile_pack(tile);
    plsh_tile_reset(tile);
}

/* Are the values finite of those keys, among the given ones, that are masked for some query? */
static bool masked_finite(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t begin = first, end = first + count;
    if (tile->at.head->head.method != PLSH_METHOD_WINDOW && !tile->at.key_order) {
        /* causality alone masks */
        begin =
            plsh_tile_group_begin(tile, g) + 1 > begin ? plsh_tile_group_begin(tile, g) + 1 : begin;
    }
    const plsh_key_rows v = plsh_tile_values(tile, begin, (int)(end - begin));
    return tile->kernel->all_finite((plsh_stored_rows){v.row, PLSH_DTYPE_FLOAT32, v.stride},
                                    v.count, v.dim);
}

/* Counts the rows of group g whose maximum rose in this step. */
static void note_rises(plsh_tile *tile, int g) {
    int32_t *rises = tile->sums.rises + (ptrdiff_t)g * tile->kernel->group;
    for (int r = 0; tile->arrays.certificate && r < plsh_tile_group_rows(tile, g); r++) {
        rises[r] += tile->scratch.alpha[r] != 1.0f;
        if (rises[r] > tile->sums.most_rises) tile->sums.most_rises = rises[r];
    }
}

static void visit(plsh_tile *tile, int g, int64_t first, int count) {
    const plsh_kernels *kernel = tile->kernel;
    const ptrdiff_t lane = (ptrdiff_t)g * kernel->group;
    plsh_tile_run run = plsh_tile_score(tile, g, first, count, tile->scratch.s);
    if (!tile->at.bounded) {
        plsh_tile_weigh(tile, g, count, tile->scratch.s);
    } else if (!plsh_bounds_weigh(tile, g, first, count, tile->scratch.s)) {
        return;
    }
    note_rises(tile, g);
    if (tile->at.drop.below > 0) plsh_tile_drop(tile, g, first, count, tile->scratch.s);
    bool plain = !run.masked || masked_finite(tile, g, first, count);
    float *o = tile->sums.o + lane * plsh_kernels_columns(run.v.dim);
    (plain ? kernel->accumulate
           : kernel->accumulate_masked)((plsh_accumulator){o, tile->scratch.alpha, run.rows},
                                        tile->scratch.s, run.v, run.masked, &tile->prefetch);
    plsh_stretches_step(&tile->sums.stretches, g, o, tile->sums.m + lane);
}

static void visit_weighted(plsh_tile *tile, int g, int64_t first, int count,
                           plsh_pair_weights weights) {
    const plsh_kernels *kernel = tile->kernel;
    const int rows = plsh_tile_group_rows(tile, g);
    const ptrdiff_t lane = (ptrdiff_t)g * kernel->group;
    const plsh_key_rows v = plsh_tile_values(tile, first, count);
    float *o = tile->sums.o + lane * plsh_kernels_columns(v.dim);
    plsh_tile_score_plain(tile, g, first, count, tile->scratch.s);
    if (tile->guarded) kernel->mask(tile->scratch.s, count, tile->scratch.top, weights);
    plsh_tile_raise_top(tile);
    kernel->softmax_weighted(tile->scratch.s, count, tile->scratch.top, weights,
                             plsh_tile_softmax(tile, g, false));
    note_rises(tile, g);
    if (tile->at.drop.below > 0) plsh_tile_drop(tile, g, first, count, tile->scratch.s);
    (tile->guarded ? kernel->accumulate_masked
                   : kernel->accumulate)((plsh_accumulator){o, tile->scratch.alpha, rows},
                                         tile->scratch.s, v, true, &tile->prefetch);
    plsh_stretches_step(&tile->sums.stretches, g, o, tile->sums.m + lane);
    tile->pairs += (int64_t)rows * count;
}

const plsh_tile_pass plsh_forward_pass = {
    .begin = begin, .visit = visit, .visit_weighted = visit_weighted, .finish = plsh_tile_finish};
