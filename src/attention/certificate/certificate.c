/* attention: a proven bound on the error of every output row. */
#include "attention/certificate/certificate.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/forward/bounds.h"
#include "attention/forward/plane.h"
#include "attention/sampled/sampled.h"
#include "base/clones.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "head/rounding.h"

/* The walk over keys with M = 0 ends when the remaining keys weigh less than 2^-10 of E-, or 2^-24
 * of the row. */
static const float LOG_SMALL = -10, LOG_NOTHING = -24;

/* The rounding error of the log2 of a sum besides that of its scores: of log2_about and of the
 * addition, and relative to the logarithm itself. */
static const double SUM_SLACK = 0x1p-9, LOG_SLACK = 0x1p-22;

void plsh_certificate_layout(plsh_certificate_sums *sums, const plsh_plan *plan,
                             plsh_arena *arena) {
    const size_t group = (size_t)plan->kernel->group;
    sums->over_m = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->over_l = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->over_low = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->under_m = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->under_l = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->under_low = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->rest = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
    sums->s = plsh_arena_floats(arena, PLSH_TILE_KEYS * group);
}

/* One past the last key that group g sees. */
static int64_t keys_end(const plsh_tile *tile, int g) {
    const int64_t end = plsh_tile_group_end(tile, g);
    return tile->plan->shape.causal && end < tile->at.keys ? end : tile->at.keys;
}

/* log2 of 2^m l. */
static double log_sum(const float *m, const float *l, ptrdiff_t r) {
    return (double)m[r] + log2((double)l[r]);
}

/* ---- where M is not 0 ----------------------------------------------------------------------- */

/* M of (query r of group g, key j of the step). */
typedef struct support {
    const float *w; /* counted: w[row[j] * group + r] */
    const int32_t *row;
    const plsh_gathering *gathering; /* or counted pair by pair; or 1 */
} support;

/* M of a key and every query of the group whose first one is at `position`, in `to` or in place. */
static const float *weights_of(const plsh_tile *tile, const support *m, int64_t position, int rows,
                               int64_t key, float *to) {
    const int group = tile->kernel->group;
    if (m->w) return m->w + (ptrdiff_t)m->row[key - tile->step.first] * group;
    for (int r = 0; r < group; r++) to[r] = 1;
    if (!m->gathering) return to;
    const plsh_sampled_entries entry = plsh_sampled_entries_of(tile, position);
    for (int r = 0; r < rows; r++)
        to[r] = (float)plsh_gathering_count(m->gathering, entry.query + r, entry.key + key) /
                (float)m->gathering->draws;
    return to;
}

/* log2 x of a normal x > 0 to 2e-5, which SUM_SLACK covers: x = 2^e (1 + f), and a polynomial in f
 * that is right for f = 0 and 1. A loop over this form vectorises. */
static inline float log2_about(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const float e = (float)((int32_t)(bits >> 23) - 127);
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    memcpy(&x, &bits, sizeof bits);
    const float f = x - 1;
    const float curve = 0.441917f + f * (-0.267179f + f * (0.148427f + f * -0.045149f));
    return e + f + f * (1 - f) * curve;
}

/* Splits the pairs of one key. For every query from `from` on, score + log2 |L - M| goes to `over`
 * if M > L, and to `under` if M < L; the other one becomes -inf. If M is 0, |L - M| is L. Its
 * logarithm is used then, because L itself may underflow. */
typedef struct key_gap {
    const float *w, *decay, *log_decay; /* M, L */
    int from, group;
} key_gap;

PLSH_CLONES static void split_key(const key_gap *key, float *restrict over, float *restrict under,
                                  float *restrict top_over, float *restrict top_under) {
    for (int r = 0; r < key->group; r++) {
        const float w = key->w[r], gap = w - key->decay[r], score = over[r];
        const float both = score + (w == 0 ? key->log_decay[r] : log2_about(fabsf(gap)));
        const bool seen = r >= key->from;
        over[r] = seen && w != 0 && gap > 0 ? both : -INFINITY;
        under[r] = seen && (w == 0 || gap < 0) ? both : -INFINITY;
        top_over[r] = plsh_larger(top_over[r], over[r]);
        top_under[r] = plsh_larger(top_under[r], under[r]);
    }
}

/* The sums E+ and E- of the group whose first row is `lane`. */
static plsh_softmax_state over_state(const plsh_tile *tile, ptrdiff_t lane) {
    const plsh_certificate_sums *sums = tile->certificate;
    return (plsh_softmax_state){sums->over_m + lane, sums->over_l + lane, sums->over_low + lane,
                                tile->scratch.alpha, 0};
}

static plsh_softmax_state under_state(const plsh_tile *tile, ptrdiff_t lane) {
    const plsh_certificate_sums *sums = tile->certificate;
    return (plsh_softmax_state){sums->under_m + lane, sums->under_l + lane, sums->under_low + lane,
                                tile->scratch.alpha, 0};
}

/* L of the rows of a group and one key, whose positions are points. */
typedef struct point_decay {
    float value[PLSH_GROUP_MAX], log2_value[PLSH_GROUP_MAX];
} point_decay;

static void find_point_decay(const plsh_tile *tile, const float *distance, int rows,
                             point_decay *out) {
    const plsh_decay *decay = &tile->at.head->head.partition.decay;
    for (int r = 0; r < rows; r++) {
        const double log_value = plsh_decay_log_at(decay, (double)distance[r]);
        out->value[r] = (float)exp(log_value);
        out->log2_value[r] = (float)(log_value * PLSH_LOG2_E);
    }
}

/* Adds A |L - M| of group g and the keys first .. first + count - 1 of the step, whose bias is that
 * of the decay alone. */
static void add_pairs(plsh_tile *tile, int g, int64_t first, int count, const support *m) {
    const plsh_kernels *kernel = tile->kernel;
    const plsh_certificate_sums *sums = tile->certificate;
    const int group = kernel->group, d = (int)tile->plan->shape.head_dim;
    const int rows = plsh_tile_group_rows(tile, g);
    const ptrdiff_t at = first - tile->step.first, lane = (ptrdiff_t)g * group;
    const float *bias = tile->step.bias + tile->step.count - 1 - at + lane;
    const int64_t position = plsh_tile_group_begin(tile, g);
    _Alignas(PLSH_ALIGNMENT) float top_over[PLSH_GROUP_MAX], top_under[PLSH_GROUP_MAX];
    float ones[PLSH_GROUP_MAX], table[PLSH_GROUP_MAX + PLSH_TILE_KEYS] = {0};
    float *decay = table + count - 1; /* decay[r - j], as the bias */
    const bool points = tile->at.dim > 0;
    point_decay apart = {{0}, {0}};
    if (points) kernel->distances(tile->scratch.t, plsh_plane_points(tile, g, first), count);
    for (int i = 1 - count; i < rows && !points; i++)
        decay[i] = (float)plsh_decay_value(&tile->at.head->head.partition.decay,
                                           llabs(position + i - first));
    kernel->scores(tile->scratch.s, tile->scratch.top,
                   (plsh_packed_rows){tile->packed + lane * d, 0},
                   plsh_tile_keys(tile, first, count), (plsh_score_bias){0});
    for (int r = 0; r < group; r++) top_over[r] = top_under[r] = -INFINITY;
    for (int j = 0; j < count; j++) {
        const int64_t hidden = tile->plan->shape.causal ? first + j - position : 0;
        if (points) find_point_decay(tile, tile->scratch.t + j * group, rows, &apart);
        key_gap key = {.w = weights_of(tile, m, position, rows, first + j, ones),
                       .decay = points ? apart.value : decay - j,
                       .log_decay = points ? apart.log2_value : bias - j,
                       .from = hidden < group ? (int)hidden : group,
                       .group = group};
        split_key(&key, tile->scratch.s + j * group, sums->s + j * group, top_over, top_under);
    }
    kernel->softmax(tile->scratch.s, count, top_over, over_state(tile, lane));
    kernel->softmax(sums->s, count, top_under, under_state(tile, lane));
}

/* The same for all keys of [begin, end), step by step. */
static void add_all_pairs(plsh_tile *tile, int g, plsh_range keys, const support *m) {
    for (int64_t first = keys.begin; first < keys.end; first += PLSH_TILE_KEYS) {
        int64_t left = keys.end - first;
        plsh_tile_load(tile, first, left < PLSH_TILE_KEYS ? (int)left : PLSH_TILE_KEYS, true);
        add_pairs(tile, g, first, tile->step.count, m);
    }
}

/* ---- where M is 0 --------------------------------------------------------------------------- */

/* Adds A L for group g and the keys of the step, all but those within `window`. */
static void add_missing(plsh_tile *tile, int g, int64_t window) {
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, d = (int)tile->plan->shape.head_dim;
    const ptrdiff_t lane = (ptrdiff_t)g * group;
    float *bias = tile->step.bias + tile->step.count - 1 + lane; /* bias[r - j] */
    const int64_t t = plsh_tile_group_begin(tile, g) - tile->step.first;
    for (int64_t i = 1 - tile->step.count; window > 0 && i < group; i++)
        if (llabs(t + i) < window) bias[i] = -INFINITY;
    kernel->scores(
        tile->scratch.s, tile->scratch.top, (plsh_packed_rows){tile->packed + lane * d, 0},
        plsh_tile_keys(tile, tile->step.first, tile->step.count), (plsh_score_bias){bias, true});
    kernel->softmax(tile->scratch.s, tile->step.count, tile->scratch.top, under_state(tile, lane));
}

/* log2 of the most that all keys on one side of a row can weigh; t: distance of the nearest. */
static float log_rest(const plsh_tile *tile, int64_t t, float norm, ptrdiff_t r) {
    return tile->exact.q_mean[r] + tile->exact.q_norm[r] * norm +
           plsh_decay_sums_rest(&tile->at.head->sums, t);
}

/* Is the weight of the keys of group g beyond this point small: keys up to `end` - 1 (left), or
 * from `end` on (right)? If so, charges it. */
static bool leave_rest(plsh_tile *tile, int g, int64_t end, bool left) {
    const plsh_certificate_sums *sums = tile->certificate;
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    const int64_t position = plsh_tile_group_begin(tile, g), edge = left ? end - 1 : end;
    const int64_t piece =
        tile->plan->first_piece[tile->at.sequence] + edge / tile->plan->bound_keys;
    const float norm = (left ? tile->at.summary.norm_before : tile->at.summary.norm_after)[piece];
    float rest[PLSH_GROUP_MAX];
    for (int r = 0; r < plsh_tile_group_rows(tile, g); r++) {
        rest[r] = log_rest(tile, llabs(position + r - edge), norm, lane + r);
        double under = log_sum(sums->under_m, sums->under_l, lane + r) + (double)LOG_SMALL;
        double row = log_sum(tile->sums.m, tile->sums.l, lane + r) + (double)LOG_NOTHING;
        if (!((double)rest[r] <= under || (double)rest[r] <= row)) return false;
    }
    for (int r = 0; r < plsh_tile_group_rows(tile, g);
         r++) /* there are at most two sides: twice the larger is enough */
        sums->rest[lane + r] = plsh_larger(sums->rest[lane + r], rest[r] + 1);
    return true;
}

/* Adds A L for the keys of one side of group g, outward from `edge`. */
static void add_beyond(plsh_tile *tile, int g, int64_t edge, bool left) {
    while (left ? edge > 0 : edge < tile->at.keys) {
        if (leave_rest(tile, g, edge, left)) return;
        int64_t first = left ? edge - PLSH_TILE_KEYS : edge;
        int64_t end = left ? edge : edge + PLSH_TILE_KEYS;
        first = first < 0 ? 0 : first;
        end = end > tile->at.keys ? tile->at.keys : end;
        plsh_tile_load(tile, first, (int)(end - first), true);
        add_missing(tile, g, 0);
        edge = left ? first : end;
    }
}

/* Adds A L for all keys outside [begin, end). */
static void add_outside(plsh_tile *tile, int g, plsh_range keys) {
    add_beyond(tile, g, keys.begin, true);
    if (!tile->plan->shape.causal) add_beyond(tile, g, keys.end, false);
}

/* ---- the methods ---------------------------------------------------------------------------- */

static void add_counted(plsh_tile *tile) {
    const int group = tile->kernel->group, stride = PLSH_TILE_KEYS * group;
    const float factor = 1.0f / (float)tile->at.head->head.partition.samples;
    plsh_counts *counts = plsh_sampled_count(tile, 0, tile->at.head->counting->draws);
    const plsh_range keys = plsh_counts_range(counts, -1);
    const plsh_counts_weights weights = {tile->sampled->w, stride, tile->sampled->w_row,
                                         PLSH_TILE_KEYS};
    for (int64_t first = keys.begin; first < keys.end; first += PLSH_TILE_KEYS) {
        int64_t end = first + PLSH_TILE_KEYS < keys.end ? first + PLSH_TILE_KEYS : keys.end;
        plsh_tile_load(tile, first, (int)(end - first), true);
        plsh_counts_fill(counts, first, tile->step.count, factor, weights);
        for (int g = 0; g < tile->at.groups; g++) {
            plsh_range seen = plsh_counts_range(counts, g);
            int64_t from = seen.begin > first ? seen.begin : first;
            int64_t to = seen.end < end ? seen.end : end;
            support m = {.w = tile->sampled->w + g * stride,
                         .row = tile->sampled->w_row + g * PLSH_TILE_KEYS};
            if (from < to) add_pairs(tile, g, from, (int)(to - from), &m);
        }
    }
    for (int g = 0; g < tile->at.groups; g++) add_outside(tile, g, plsh_counts_range(counts, g));
}

static void add_labels(plsh_tile *tile, int g) {
    const plsh_range keys = {0, keys_end(tile, g)};
    add_all_pairs(tile, g, keys, &(support){.gathering = tile->at.head->gathering});
}

static void add_fixed(plsh_tile *tile, int g) {
    const int64_t size = tile->at.head->head.block, last = keys_end(tile, g);
    const int64_t at =
        (tile->at.origin + tile->at.position) / size * size; /* a tile lies in one block */
    const int64_t begin = at > tile->at.origin ? at - tile->at.origin : 0,
                  end = at + size - tile->at.origin;
    const plsh_range block = {begin, end < last ? end : last};
    add_all_pairs(tile, g, block, &(support){0});
    add_outside(tile, g, block);
}

static void add_steps_missing(plsh_tile *tile, int g, int64_t begin, int64_t end, int64_t window) {
    for (int64_t first = begin; first < end; first += PLSH_TILE_KEYS) {
        int64_t left = end - first;
        plsh_tile_load(tile, first, left < PLSH_TILE_KEYS ? (int)left : PLSH_TILE_KEYS, true);
        add_missing(tile, g, window);
    }
}

/* Keys in the window of every row of the group are skipped; keys in the window of some rows are
 * checked pair by pair. */
static void add_window(plsh_tile *tile, int g) {
    const int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    const int64_t last = keys_end(tile, g);
    const int64_t window = tile->at.head->head.window < tile->plan->longest
                               ? tile->at.head->head.window
                               : tile->plan->longest;
    const plsh_range some = {begin > window ? begin - window : 0,
                             window < last - end ? end + window : last};
    plsh_range every = {end > window ? end - window : 0,
                        window < last - begin ? begin + window : last};
    if (every.begin >= every.end) every = (plsh_range){some.end, some.end};
    add_steps_missing(tile, g, some.begin, every.begin, window);
    add_steps_missing(tile, g, every.end, some.end, window);
    add_outside(tile, g, some);
}

/* The same over points: all keys beyond the radius. */
static void add_far(plsh_tile *tile, int g) {
    const int group = tile->kernel->group, d = (int)tile->plan->shape.head_dim;
    const ptrdiff_t lane = (ptrdiff_t)g * group;
    for (int64_t first = 0; first < tile->at.keys; first += PLSH_TILE_KEYS) {
        const int64_t left = tile->at.keys - first;
        const int count = left < PLSH_TILE_KEYS ? (int)left : PLSH_TILE_KEYS;
        plsh_tile_load(tile, first, count, false);
        tile->kernel->scores(tile->scratch.s, tile->scratch.top,
                             (plsh_packed_rows){tile->packed + lane * d, 0},
                             plsh_tile_keys(tile, first, count), (plsh_score_bias){0});
        plsh_plane_mask_near(tile, g, first, count, tile->scratch.s);
        plsh_plane_bias(tile, g, first, count, tile->scratch.s);
        tile->kernel->softmax(tile->scratch.s, count, tile->scratch.top, under_state(tile, lane));
    }
}

/* Sums up A |L - M|. */
static void measure(plsh_tile *tile) {
    const plsh_head_plan *head = tile->at.head;
    const plsh_certificate_sums *sums = tile->certificate;
    plsh_head_plan plain = *head; /* the same decay, for all keys */
    plain.head.method = PLSH_METHOD_DENSE;
    plsh_bounds_begin(tile);
    for (int r = 0; r < tile->at.groups * tile->kernel->group; r++) {
        sums->over_m[r] = sums->under_m[r] = PLSH_SOFTMAX_START;
        sums->over_l[r] = sums->under_l[r] = 0;
        sums->over_low[r] = sums->under_low[r] = 0;
        sums->rest[r] = -INFINITY;
    }
    tile->at.head = &plain;
    if (head->counting) add_counted(tile);
    for (int g = 0; g < tile->at.groups && !head->counting; g++) {
        if (head->gathering)
            add_labels(tile, g);
        else if (head->head.method == PLSH_METHOD_FIXED)
            add_fixed(tile, g);
        else if (tile->at.dim > 0)
            add_far(tile, g);
        else
            add_window(tile, g);
    }
    tile->at.head = head;
}

/* 2^log relative to the row's D~, rounded up. slack: of both, by their scores. */
static double relative(double log, double log_row, double slack) {
    if (log == -INFINITY) return 0;
    return exp2(log - log_row + SUM_SLACK + slack + LOG_SLACK * (fabs(log) + fabs(log_row)));
}

/* An upper bound of the share of the weight that is wrong or missing, from the sums of
 * `measure`. */
static double measured_share(const plsh_tile *tile, int r, double slack) {
    const plsh_certificate_sums *sums = tile->certificate;
    const double row = log_sum(tile->sums.m, tile->sums.l, r);
    const double over = relative(log_sum(sums->over_m, sums->over_l, r), row, slack);
    const double under = relative(log_sum(sums->under_m, sums->under_l, r), row, slack) +
                         relative((double)sums->rest[r], row, slack);
    const double right = fmax(0, 1 - over); /* sum A min(M, L) / D~; sums may overflow */
    const double missing = under > 0 ? 1 / (1 + right / under) : under;
    const double share = over >= missing || isnan(over) ? over : missing;
    return tile->at.head->head.method == PLSH_METHOD_MEAN
               ? share + tile->sampled->l_deviation[r] / 2 + slack
               : share;
}

/* Are the row's sums and output finite, in the type of the output too? */
static bool is_row_finite(const plsh_tile *tile, int r) {
    const float most =
        tile->plan->shape.o_dtype == PLSH_DTYPE_FLOAT16 ? 65519.0f : FLT_MAX; /* rounds to 65504 */
    const plsh_matrix output = plsh_tile_output_of(tile);
    bool finite = isfinite(tile->sums.m[r]) && isfinite(tile->sums.l[r]);
    for (int64_t c = 0; finite && c < tile->plan->shape.value_dim; c++)
        finite = fabsf(output.data[r * output.stride + c]) <= most;
    return finite;
}

/* An upper bound of the share of row r's weight that is wrong or missing, for any method. NaN:
 * there is no bound. */
static double share_of(const plsh_tile *tile, int r, double slack) {
    const plsh_head *head = &tile->at.head->head;
    if (!is_row_finite(tile, r)) return NAN;
    if (head->method == PLSH_METHOD_DENSE || head->method == PLSH_METHOD_NONE) return 0;
    if (head->method == PLSH_METHOD_EXACT && !tile->at.bounded) return 0;
    if (!tile->at.head->decay_known) return NAN;
    if (head->method != PLSH_METHOD_EXACT) return measured_share(tile, r, slack);
    /* What `exact` charged for the keys that it left out, relative to the weight that it kept
     * (E- / D~). */
    const double by_norm = (double)tile->exact.left_out_by_norm[r / tile->kernel->group];
    const double charged = (double)tile->exact.left_out[r] + by_norm;
    const double under = charged > 0 ? charged * (1 + 0x1p-10) * exp2(slack) : 0;
    return isinf(under) ? 1 : under / (1 + under);
}

/* ---- rounding ------------------------------------------------------------------------------- */

/* |k| of the keys of the tile's sequence up to `piece`, rounded up. */
static double largest_key(const plsh_tile *tile, int64_t piece) {
    const int64_t d = tile->plan->shape.head_dim;
    const float *mean = tile->at.summary.mean + tile->at.sequence * d;
    double square = 0;
    for (int64_t x = 0; x < d; x++) square += (double)mean[x] * (double)mean[x];
    return (sqrt(square) + (double)tile->at.summary.norm_before[piece]) * (1 + 0x1p-20);
}

/* A bound on the rounding error of row r, whose keys end with key `last`. */
static plsh_rounding rounding_of(const plsh_tile *tile, int r, int64_t last) {
    const int group = tile->kernel->group, d = (int)tile->plan->shape.head_dim;
    const plsh_method method = tile->at.head->head.method;
    const int64_t *first_piece = &tile->plan->first_piece[tile->at.sequence];
    const bool in_order = tile->at.key_order == NULL; /* pieces are of places */
    const double key = largest_key(tile, in_order ? *first_piece + last / tile->plan->bound_keys
                                                  : first_piece[1] - 1);
    const float *q = tile->packed + (ptrdiff_t)(r / group) * group * d + r % group;
    double square = 0, weighted = 0;
    for (int x = 0; x < d; x++) {
        const double y = (double)q[(ptrdiff_t)x * group], z = y * plsh_roundings_of(d, x);
        square += y * y;
        weighted += z * z;
    }
    const double factor = fabs(tile->plan->shape.scale) * PLSH_LOG2_E;
    return plsh_rounding_of(
        &(plsh_rounding_row){.score = sqrt(square) * key,
                             .weighted = plsh_rounding_weighted(sqrt(weighted), key, factor),
                             .log_sum = log_sum(tile->sums.m, tile->sums.l, r),
                             .keys = last + 1,
                             .rises = tile->sums.most_rises,
                             .biased = method == PLSH_METHOD_DENSE || method == PLSH_METHOD_EXACT ||
                                       method == PLSH_METHOD_WINDOW});
}

/* ---- the certificate ------------------------------------------------------------------------ */

/* An upper bound of the error of row r. */
static float bound_of(const plsh_tile *tile, int r) {
    const int64_t last = tile->plan->shape.causal
                             ? tile->at.position - tile->at.row + plsh_tile_row(tile, r)
                             : tile->at.keys - 1;
    const int64_t piece =
        tile->plan->first_piece[tile->at.sequence] + last / tile->plan->bound_keys;
    const double half = (double)tile->at.summary.v_half_range[piece];
    const double most = (double)tile->at.summary.v_most[piece];
    const plsh_rounding rounding = rounding_of(tile, r, last);
    const double wrong = share_of(tile, r, 2 * rounding.log), share = wrong + rounding.weights;
    const double relative_to_most =
        rounding.values + plsh_rounding_of_type(tile->plan->shape.o_dtype);
    if (isnan(wrong)) return NAN;
    if (tile->sums.l[r] == 0) return nextafterf((float)most, INFINITY); /* the output is 0 */
    return nextafterf((float)(2 * half * (share < 1 ? share : 1) + most * relative_to_most),
                      INFINITY);
}

void plsh_certificate_fill(plsh_tile *tile) {
    const plsh_method method = tile->at.head->head.method;
    if (tile->at.head->decay_known && method != PLSH_METHOD_DENSE && method != PLSH_METHOD_EXACT)
        measure(tile);
    for (int r = 0; r < tile->at.rows; r++)
        tile->arrays.certificate[plsh_tile_array_row(tile, r)] = bound_of(tile, r);
}
