/* attention: a tile of one query, by the kernels for decoding. In a group a single query would
 * leave all lanes but one empty. */
#include "attention/forward/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/numbers.h"
#include "head/reach.h"

/* The kernels for decoding read rows of whole vectors and no pages, and know neither dropout nor
 * positions that are points. Certificates, also of rows that are merged from parts of a text, have
 * bounds of the rounding of the other kernels (docs/rounding.md). */
static bool is_served(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    return tile->at.rows == 1 && !tile->at.bounded && !tile->plan->placed && !tile->pages &&
           !tile->arrays.certificate && tile->at.dim == 0 && tile->pass == &plsh_forward_pass &&
           tile->headroom == 0.0f && tile->at.drop.below == 0 &&
           shape->head_dim == plsh_decode_columns(shape->head_dim) &&
           shape->value_dim == plsh_decode_columns(shape->value_dim);
}

/* s[j] = log2 of the decay of key first + j. */
static void fill_weights(const plsh_tile *tile, int64_t first, int count, float *s) {
    const plsh_decay_sums *sums = &tile->at.head->sums;
    const int64_t t = tile->at.position - first;
    if (!plsh_head_has_decay(&tile->at.head->head)) {
        for (int j = 0; j < count; j++) s[j] = 0.0f;
    } else if (sums->log_k) {
        for (int j = 0; j < count; j++) s[j] = sums->log_k[llabs(t - j)];
    } else {
        const double base = (double)t;
        for (int j = 0; j < count; j++) s[j] = (float)(-sums->slope * fabs(base - (double)j));
    }
}

static void load_query(const plsh_tile *tile, float *q) {
    const plsh_attention *shape = &tile->plan->shape;
    const float factor = (float)(shape->scale * PLSH_LOG2_E); /* as the packed ones */
    const int d = (int)shape->head_dim;
    tile->kernel->widen((plsh_matrix){q, d}, plsh_tile_queries(tile), 1, d);
    for (int x = 0; x < d; x++) q[x] *= factor;
}

static void attend(plsh_tile *tile, plsh_decode_row *row) {
    const plsh_attention *shape = &tile->plan->shape;
    const plsh_row_source *k = &tile->arrays.k, *v = &tile->arrays.v;
    const int64_t at = tile->at.origin + tile->at.position;
    const plsh_range seen =
        plsh_reach_visible(&tile->at.head->head, shape->causal, tile->at.origin + tile->at.keys,
                           (plsh_range){at, at + 1});
    int64_t first = seen.begin - tile->at.origin;
    const int64_t end = seen.end - tile->at.origin;
    for (first = first < 0 ? 0 : first; first < end; first += PLSH_DECODE_KEYS) {
        const int64_t left = end - first;
        const int count = left < PLSH_DECODE_KEYS ? (int)left : PLSH_DECODE_KEYS;
        fill_weights(tile, first, count, row->s);
        tile->kernel->attend[shape->dtype](&row, 1,
                                           (plsh_decode_page){.k = plsh_row_source_at(k, first),
                                                              .v = plsh_row_source_at(v, first),
                                                              .keys = count,
                                                              .d = k->dim,
                                                              .dv = v->dim,
                                                              .k_stride = k->stride,
                                                              .v_stride = v->stride});
        tile->pairs += count;
    }
}

bool plsh_row_tile(plsh_tile *tile) {
    if (!is_served(tile)) return false;
    plsh_decode_row row = {
        .q = tile->packed, .s = tile->scratch.s, .o = tile->sums.o, .m = PLSH_SOFTMAX_START};
    load_query(tile, tile->packed);
    memset(row.o, 0, sizeof(float) * (size_t)tile->plan->shape.value_dim);
    attend(tile, &row);
    tile->at.groups = 1;
    tile->sums.m[0] = row.m;
    tile->sums.l[0] = row.l;
    tile->sums.l_low[0] = 0.0f;
    plsh_stretches_begin(&tile->sums.stretches);
    plsh_tile_finish(tile);
    return true;
}
