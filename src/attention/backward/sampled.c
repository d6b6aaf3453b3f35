/* attention: the backward pass of the sampled methods.
 *
 * plsh and masks have one gradient: P_ij = (count / s) 2^(S_ij - lse). mean is a mean of softmaxes,
 * one per draw, each with an lse and a delta of its own, which a forward pass over the draw
 * recomputes. Blocks that are not contiguous are gathered, draw by draw; for these, P is 2^(S -
 * lse) / s. */
#include <math.h>

#include "attention/backward/backward.h"
#include "attention/forward/tile.h"
#include "attention/sampled/sampled.h"
#include "base/numbers.h"

/* Moves lse so that P is divided by s. */
static void divide_by_samples(plsh_backward_tile *b) {
    double by = log2((double)b->tile.at.head->head.partition.samples);
    for (int r = 0; r < b->tile.at.rows; r++) {
        plsh_backward_set_lse(b, r, (double)b->arrays.lse[r] * PLSH_LOG2_E + by);
    }
}

static void visit_draw(plsh_tile *tile, int64_t draw) {
    if (tile->at.head->gathering) {
        plsh_sampled_visit_gathered(tile, draw);
    } else {
        plsh_sampled_visit_draws(tile, draw, 1, 1.0f);
    }
}

/* The softmax of one draw: lse (and the division by s), o in the tile, delta. */
static void run_forward(plsh_backward_tile *b, int64_t draw) {
    plsh_tile *tile = &b->tile;
    int group = tile->kernel->group,
        columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    double samples = (double)tile->at.head->head.partition.samples;
    int64_t pairs = tile->pairs;
    tile->pass = &plsh_forward_pass;
    tile->guarded = true;
    plsh_tile_reset(tile);
    visit_draw(tile, draw);
    plsh_tile_join(tile);
    tile->pass = &plsh_backward_pass;
    tile->pairs = pairs;
    for (int r = 0; r < tile->at.rows; r++) {
        plsh_backward_set_lse(b, r,
                              (double)tile->sums.m[r] + log2((double)tile->sums.l[r] * samples));
    }
    for (int g = 0; g < tile->at.groups; g++) {
        ptrdiff_t lane = (ptrdiff_t)g * group;
        plsh_backward_set_delta(b, g, tile->sums.o + lane * columns, columns);
        for (int r = 0; r < group; r++) b->rows.delta[lane + r] /= tile->sums.l[lane + r];
    }
}

void plsh_backward_sample(plsh_backward_tile *b) {
    plsh_tile *tile = &b->tile;
    const plsh_head_plan *head = tile->at.head;
    int64_t samples = head->head.partition.samples;
    bool mean = head->head.method == PLSH_METHOD_MEAN;
    tile->pass->begin(tile);
    b->scattered = head->gathering != NULL;
    if (!mean && !head->gathering) {
        plsh_sampled_visit_draws(tile, 0, head->counting->draws, 1.0f / (float)samples);
        tile->pass->finish(tile);
        return;
    }
    if (!mean) divide_by_samples(b);
    b->revisits = true;
    for (int64_t m = 0; m < samples; m++) {
        if (mean) run_forward(b, m);
        visit_draw(tile, m);
    }
    tile->pass->finish(tile);
}
