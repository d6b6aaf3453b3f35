/* shard: the summaries of keys that parts exchange, and the bound that a certificate adds for rows
 * that are not fetched. */
#include "shard/state.h"

#include <math.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/thread.h"
#include "head/check.h"
#include "head/rounding.h"

/* The least rows of a tile of keys. There are about 32768 tiles at most, because the norm of each
 * tile goes to every part. */
enum { TILE_ROWS = 128, TILES_MOST = 32768, CENTRE_ROWS = 64 };
/* If outliers are not fetched one by one, tiles are finer. */
enum { ONE_RANGE_TILE_ROWS = 64 };

static plsh_status allocate(void *out, int64_t count, size_t size, plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, "summaries of keys", error);
}

/* ---- Memory --------------------------------------------------------------------------------- */

static plsh_status make_tiles(const plsh_shard *shard, plsh_shard_state *f, plsh_error *error) {
    const int parts = shard->parts;
    f->tile_rows = shard->one_range ? ONE_RANGE_TILE_ROWS : TILE_ROWS;
    while (shard->whole.keys / f->tile_rows > TILES_MOST) f->tile_rows *= 2;
    plsh_status status = allocate(&f->first_tile, parts + 1, sizeof(int64_t), error);
    if (!status) status = allocate(&f->exchange.norm_counts, parts, sizeof(int), error);
    if (!status) status = allocate(&f->exchange.norm_places, parts, sizeof(int), error);
    if (status) return status;
    for (int r = 0; r < parts; r++) {
        const int64_t tiles = (plsh_range_size(shard->rows[r]) + f->tile_rows - 1) / f->tile_rows;
        f->first_tile[r + 1] = f->first_tile[r] + tiles;
        f->exchange.norm_counts[r] = (int)(tiles * shard->whole.kv_heads);
        f->exchange.norm_places[r] = (int)(f->first_tile[r] * shard->whole.kv_heads);
    }
    const int64_t all = f->first_tile[parts];
    status = allocate(&f->tile_begin, all + 1, sizeof(int64_t), error);
    for (int r = 0; !status && r < parts; r++)
        for (int64_t t = f->first_tile[r]; t < f->first_tile[r + 1]; t++)
            f->tile_begin[t] = shard->rows[r].begin + (t - f->first_tile[r]) * f->tile_rows;
    if (!status) f->tile_begin[all] = shard->whole.keys;
    return status;
}

/* The own queries in spans, none of which lies in two sequences. */
static plsh_status make_spans(const plsh_shard *shard, plsh_shard_state *f, plsh_error *error) {
    const plsh_attention *a = &shard->whole;
    const plsh_range queries = plsh_shard_own_queries(shard);
    const int64_t single[2] = {0, a->keys}, sequences = a->sequences ? a->sequences : 1;
    const int64_t *offset = a->sequences ? shard->whole.key_offsets : single;
    const int64_t most = plsh_range_size(queries) / PLSH_SHARD_SPAN_ROWS + sequences + 1;
    plsh_status status = allocate(&f->span, most, sizeof *f->span, error);
    for (int64_t x = 0; !status && x < sequences; x++) {
        const plsh_range sequence = {offset[x], offset[x + 1]};
        const plsh_range own = plsh_range_common(queries, sequence);
        for (int64_t i = own.begin; i < own.end; i += PLSH_SHARD_SPAN_ROWS) {
            const int64_t end = i + PLSH_SHARD_SPAN_ROWS;
            f->span[f->spans++] =
                (plsh_shard_span){.rows = {i, end < own.end ? end : own.end}, .sequence = sequence};
        }
    }
    if (!status) status = allocate(&f->most, a->heads * f->spans, sizeof *f->most, error);
    return status;
}

plsh_status plsh_shard_prepare(plsh_shard *shard, plsh_error *error) {
    if (shard->exchange) return PLSH_STATUS_OK;
    const plsh_attention *a = &shard->whole;
    const int64_t kv = a->kv_heads;
    plsh_shard_state *f = shard->state;
    plsh_shard_exchange *x = &f->exchange;
    plsh_status status = make_tiles(shard, f, error);
    if (!status) status = make_spans(shard, f, error);
    const int64_t tiles = status ? 0 : f->first_tile[shard->parts];
    x->centre_count = kv * a->head_dim;
    x->range_count = 2 * kv * a->value_dim;
    if (!status) status = allocate(&x->centre, x->centre_count, sizeof(float), error);
    if (!status) status = allocate(&x->own_norms, kv * tiles, sizeof(float), error);
    if (!status) status = allocate(&x->norms, kv * tiles, sizeof(float), error);
    if (!status) status = allocate(&f->before, tiles, sizeof(float), error);
    if (!status) status = allocate(&f->after, tiles, sizeof(float), error);
    if (!status) status = allocate(&x->own_ranges, x->range_count, sizeof(float), error);
    if (!status) status = allocate(&x->ranges, x->range_count * shard->parts, sizeof(float), error);
    if (!status) status = allocate(&x->own_needs, shard->units, sizeof *x->own_needs, error);
    if (!status) status = allocate(&x->needs, shard->units * shard->parts, sizeof *x->needs, error);
    if (status) {
        plsh_shard_state_clear(f);
        return status;
    }
    while (x->root < shard->parts - 1 && plsh_range_size(shard->rows[x->root]) == 0) x->root++;
    shard->exchange = x;
    return PLSH_STATUS_OK;
}

void plsh_shard_state_clear(plsh_shard_state *f) {
    plsh_shard_exchange *x = &f->exchange;
    void **arrays[] = {(void **)&f->first_tile, (void **)&f->tile_begin,  (void **)&f->span,
                       (void **)&f->most,       (void **)&f->before,      (void **)&f->after,
                       (void **)&x->centre,     (void **)&x->norms,       (void **)&x->own_norms,
                       (void **)&x->own_ranges, (void **)&x->ranges,      (void **)&x->own_needs,
                       (void **)&x->needs,      (void **)&x->norm_counts, (void **)&x->norm_places};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        plsh_release(*arrays[i]);
        *arrays[i] = NULL;
    }
    f->spans = 0;
}

/* ---- Summaries of keys ----------------------------------------------------------------------- */

/* The centre c. The bound holds for any c, and it is tight if c is near the mean of all keys: the
 * part q.c of a score is the same for all keys of a row. c is the mean of some keys of the first
 * part that has rows. From 128 rows on the first key is left out: it often has a large norm and
 * would move the mean. */
static void fill_centre(plsh_shard *shard) {
    const plsh_attention *a = &shard->whole;
    const plsh_shard_arrays *arrays = &shard->state->arrays;
    const int64_t rows = plsh_range_size(plsh_shard_own_rows(shard));
    const int64_t count = rows < CENTRE_ROWS ? rows : CENTRE_ROWS, d = a->head_dim;
    for (int64_t i = 0; i < a->kv_heads * d; i++) {
        double sum = 0;
        for (int64_t j = 0; j < count; j++) {
            const int64_t row = (2 * j + 1) * rows / (2 * count);
            sum += (double)plsh_dtype_load(a->dtype, arrays->k,
                                           i / d * arrays->k_layout.head_stride +
                                               row * arrays->k_layout.row_stride + i % d);
        }
        const float mean = count ? (float)(sum / (double)count) : 0;
        shard->exchange->centre[i] = isfinite(mean) ? mean : 0;
    }
}

void plsh_shard_begin(plsh_shard *shard, const plsh_shard_arrays *given) {
    const plsh_attention *a = &shard->whole;
    plsh_shard_arrays *arrays = &shard->state->arrays;
    const int64_t rows = plsh_range_size(plsh_shard_own_rows(shard));
    *arrays = *given;
    arrays->q_layout = plsh_layout_or(given->q_layout,
                                      plsh_range_size(plsh_shard_own_queries(shard)), a->head_dim);
    arrays->k_layout = plsh_layout_or(given->k_layout, rows, a->head_dim);
    arrays->v_layout = plsh_layout_or(given->v_layout, rows, a->value_dim);
    if (shard->exchange->root == shard->part) fill_centre(shard);
}

/* The largest |k - c| of some own rows, rounded up. */
static float largest_norm(const plsh_shard *shard, int64_t kv, int64_t first, int64_t end) {
    const plsh_attention *a = &shard->whole;
    const plsh_shard_arrays *arrays = &shard->state->arrays;
    const float *centre = shard->exchange->centre + kv * a->head_dim;
    double most = 0;
    for (int64_t i = first; i < end; i++) {
        const ptrdiff_t at = kv * arrays->k_layout.head_stride + i * arrays->k_layout.row_stride;
        most = plsh_larger_double(most,
                                  plsh_shard_square(a->dtype, arrays->k, at, centre, a->head_dim));
    }
    return nextafterf((float)sqrt(most), INFINITY);
}

/* Tile i % tiles of kv head i / tiles, of the own ones. */
static void find_norms(void *context, int64_t begin, int64_t end, int slot) {
    const plsh_shard *shard = context;
    const plsh_shard_state *f = shard->state;
    const int64_t rows = plsh_range_size(plsh_shard_own_rows(shard));
    const int64_t tiles = f->first_tile[shard->part + 1] - f->first_tile[shard->part];
    (void)slot;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % tiles * f->tile_rows, next = first + f->tile_rows;
        shard->exchange->own_norms[i] =
            largest_norm(shard, i / tiles, first, next < rows ? next : rows);
    }
}

/* Certificates: the range of every column of the own values. */
static void fill_ranges(plsh_shard *shard) {
    const plsh_attention *a = &shard->whole;
    const plsh_shard_arrays *arrays = &shard->state->arrays;
    const int64_t rows = plsh_range_size(plsh_shard_own_rows(shard)), dv = a->value_dim;
    for (int64_t i = 0; i < a->kv_heads * dv; i++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t j = 0; j < rows; j++) {
            const double v = (double)plsh_dtype_load(a->dtype, arrays->v,
                                                     i / dv * arrays->v_layout.head_stride +
                                                         j * arrays->v_layout.row_stride + i % dv);
            high = plsh_larger_double(high, v);
            low = -plsh_larger_double(-low, -v);
        }
        shard->exchange->own_ranges[2 * i] = (float)low;
        shard->exchange->own_ranges[2 * i + 1] = (float)high;
    }
}

void plsh_shard_measure(plsh_shard *shard) {
    plsh_shard_state *f = shard->state;
    const int64_t tiles = f->first_tile[shard->part + 1] - f->first_tile[shard->part];
    plsh_thread_rows(shard->whole.threads, shard->whole.kv_heads * tiles, 1, find_norms, shard);
    if (f->arrays.v) fill_ranges(shard);
}

/* ---- Needs ---------------------------------------------------------------------------------- */

void plsh_shard_find(plsh_shard *shard, bool certificate) {
    plsh_shard_exchange *x = shard->exchange;
    x->need_count = 0;
    for (int64_t i = 0; i < shard->units; i++) {
        plsh_shard_unit *unit = &shard->unit[i];
        unit->asks = !unit->rotates && (unit->fades || certificate);
        if (!unit->asks) continue;
        plsh_shard_find_unit(shard, unit);
        x->own_needs[x->need_count++] =
            (plsh_shard_need){unit->need[shard->part], unit->fetches[shard->part]};
    }
}

void plsh_shard_learn(plsh_shard *shard) {
    const plsh_shard_exchange *x = shard->exchange;
    int64_t at = 0;
    for (int64_t i = 0; i < shard->units; i++) {
        plsh_shard_unit *unit = &shard->unit[i];
        for (int p = 0; unit->asks && p < shard->parts; p++) {
            unit->need[p] = x->needs[p * x->need_count + at].rows;
            unit->fetches[p] = x->needs[p * x->need_count + at].outliers;
        }
        at += unit->asks;
    }
}

/* ---- Certificates --------------------------------------------------------------------------- */

/* The sizes of the values that a row of this part may see. */
typedef struct value_size {
    double range, most; /* the largest max - min of a column, and the largest |v| */
} value_size;

static value_size value_size_of(const plsh_shard *shard, int64_t kv) {
    const int64_t dv = shard->whole.value_dim, columns = shard->whole.kv_heads * dv;
    const int last = shard->whole.causal ? shard->part : shard->parts - 1;
    value_size size = {0, 0};
    for (int64_t c = kv * dv; c < (kv + 1) * dv; c++) {
        double low = INFINITY, high = -INFINITY;
        for (int r = 0; r <= last; r++) {
            low =
                -plsh_larger_double(-low, -(double)shard->exchange->ranges[2 * (r * columns + c)]);
            high = plsh_larger_double(high,
                                      (double)shard->exchange->ranges[2 * (r * columns + c) + 1]);
        }
        size.range = plsh_larger_double(size.range, high - low);
        size.most = plsh_larger_double(size.most, plsh_larger_double(fabs(low), fabs(high)));
    }
    return size;
}

/* At least the norm of every key of the kv head. */
static double largest_key(const plsh_shard *shard, int64_t kv) {
    const plsh_shard_state *f = shard->state;
    const int64_t norms = shard->whole.kv_heads * f->first_tile[shard->parts];
    const float *centre = shard->exchange->centre + kv * shard->whole.head_dim;
    double square = 0, most = 0;
    for (int64_t x = 0; x < shard->whole.head_dim; x++)
        square += (double)centre[x] * (double)centre[x];
    for (int64_t i = 0; i < norms; i++)
        most = plsh_larger_double(most, (double)shard->exchange->norms[i]);
    return (sqrt(square) + most) * (1 + 0x1p-20);
}

/* A bound on the rounding error of own query i, whose result is merged from several calls. Every
 * call may raise the maximum at every piece of its keys. */
static double merged_rounding(const plsh_shard *shard, int64_t h, int64_t i, double key,
                              value_size v) {
    enum { PIECE = 32 };
    const plsh_attention *a = &shard->whole;
    const plsh_shard_arrays *arrays = &shard->state->arrays;
    const plsh_layout layout = arrays->q_layout;
    const double factor = fabs(a->scale) * PLSH_LOG2_E;
    double square = 0, weighted = 0;
    for (int64_t x = 0; x < a->head_dim; x++) {
        const double q =
            factor * (double)plsh_dtype_load(a->dtype, arrays->q,
                                             h * layout.head_stride + i * layout.row_stride + x);
        const double z = q * plsh_roundings_of((int)a->head_dim, (int)x);
        square += q * q;
        weighted += z * z;
    }
    const double score = sqrt(square) * key;
    const plsh_rounding_row row = {.score = score,
                                   .weighted = plsh_rounding_weighted(sqrt(weighted), key, factor),
                                   .log_sum = -score, /* that of the own key */
                                   .keys = a->keys,
                                   .rises = (int32_t)(a->keys / PIECE) + shard->parts,
                                   .biased = true};
    const plsh_rounding rounding = plsh_rounding_of(&row);
    return v.range * (rounding.weights < 1 ? rounding.weights : 1) +
           v.most * (rounding.values + plsh_rounding_of_type(a->o_dtype));
}

static void add_bound(float *to, double bound) {
    *to = nextafterf((float)((double)*to + bound), INFINITY);
}

/* A row whose result is merged from several calls: the bound of a call is for its own keys, and
 * merging changes their weights. But call p leaves out at most r_p <= eps D_p, D_p the weight that
 * it keeps, so all calls together leave out at most eps of the row. Leaving out a share of a mean
 * of values moves the mean by at most that share of their range:
 *     |o - o*| <= R sum r_p / (sum D_p + r_p) <= R eps,
 * and rounding. */
static void certify_head(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t h,
                         float *certificate) {
    const plsh_shard_state *f = shard->state;
    const plsh_range own = plsh_shard_own_queries(shard);
    const int64_t kv = h / (shard->whole.heads / shard->whole.kv_heads);
    const value_size v = value_size_of(shard, kv);
    const double key = largest_key(shard, kv);
    float *bound = certificate + h * plsh_range_size(own);
    plsh_shard_fill_maxima(shard, unit, kv);
    for (int64_t b = 0; b < f->spans; b++) {
        const double share = plsh_shard_rest(shard, unit, h, b);
        const bool merged = plsh_shard_is_merged(shard, unit, b);
        if (share == 0 && !merged) continue; /* no key is left out */
        for (int64_t i = f->span[b].rows.begin; i < f->span[b].rows.end; i++) {
            float *at = &bound[i - own.begin];
            if (merged) {
                *at = (float)plsh_larger_double((double)*at, v.range * shard->whole.head[h].eps);
                add_bound(at, merged_rounding(shard, h, i - own.begin, key, v));
            }
            add_bound(at, v.range * (share > 1 ? 1 : share));
        }
    }
}

/* dense and none over all keys: rounding alone. */
static void certify_rotated(const plsh_shard *shard, int64_t h, float *certificate) {
    const int64_t own = plsh_range_size(plsh_shard_own_queries(shard));
    const int64_t kv = h / (shard->whole.heads / shard->whole.kv_heads);
    const value_size v = value_size_of(shard, kv);
    const double key = largest_key(shard, kv);
    for (int64_t i = 0; i < own; i++)
        add_bound(&certificate[h * own + i], merged_rounding(shard, h, i, key, v));
}

void plsh_shard_certify(const plsh_shard *shard, float *certificate) {
    for (int64_t i = 0; i < shard->units; i++) {
        const plsh_shard_unit *unit = &shard->unit[i];
        for (int64_t h = 0; unit->asks && h < unit->heads; h++)
            certify_head(shard, unit, unit->head + h, certificate);
        for (int64_t h = 0; unit->rotates && h < unit->heads; h++)
            certify_rotated(shard, unit->head + h, certificate);
    }
}
