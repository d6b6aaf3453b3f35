/* shard: finds which rows of other parts a part's queries need. */
#include "shard/state.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/dtype.h"
#include "base/thread.h"
#include "head/bound.h"
#include "head/check.h"

/* D is bounded by that many of a row's nearest keys on each side. */
enum { NEAREST = 8 };

typedef enum side { LEFT, RIGHT } side;

/* ---- Norms --------------------------------------------------------------------------------- */

/* Runs over all queries and keys of a rank. Sums in a fixed number of lanes, so that the bits are
 * the same on every machine. */
enum { LANES = 8 };

PLSH_CLONES static double square_of_floats(const float *x, const float *c, int64_t dim) {
    double sum[LANES] = {0}, all = 0;
    for (int64_t first = 0; first < dim; first += LANES) {
        const int count = dim - first < LANES ? (int)(dim - first) : LANES;
        for (int i = 0; i < count; i++) {
            const double y = (double)x[first + i] - (c ? (double)c[first + i] : 0);
            sum[i] += y * y;
        }
    }
    for (int i = 0; i < LANES; i++) all += sum[i];
    return all;
}

double plsh_shard_square(plsh_dtype dtype, const void *from, ptrdiff_t at, const float *c,
                         int64_t dim) {
    if (dtype == PLSH_DTYPE_FLOAT32) return square_of_floats((const float *)from + at, c, dim);
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) {
        const double y = (double)plsh_dtype_load(dtype, from, at + i) - (c ? (double)c[i] : 0);
        sum += y * y;
    }
    return sum;
}

static float norm_of(const plsh_shard *shard, int64_t kv, int64_t tile, int rank) {
    const plsh_shard_state *f = shard->state;
    const int64_t first = f->first_tile[rank], tiles = f->first_tile[rank + 1] - first;
    return f->exchange.norms[first * shard->whole.kv_heads + kv * tiles + tile - first];
}

/* The rows of other ranks before (after) the own ones, in this sequence. */
static plsh_range others(const plsh_shard *shard, plsh_range sequence, side where) {
    const plsh_range own = plsh_shard_own_rows(shard);
    const plsh_range all = {0, shard->whole.keys};
    if (plsh_range_size(own) == 0 || (where == RIGHT && shard->whole.causal))
        return (plsh_range){0, 0};
    const plsh_range beside =
        where == LEFT ? (plsh_range){all.begin, own.begin} : (plsh_range){own.end, all.end};
    return plsh_range_common(beside, sequence);
}

/* ---- Outliers ------------------------------------------------------------------------------- */

/* The tiles of largest norm of a unit that fades, the largest first, of equal ones the first. A
 * tile whose norm is not finite is not an outlier: it makes the unit fetch everything. */
static void find_outliers(const plsh_shard *shard, plsh_shard_unit *unit) {
    const plsh_shard_state *f = shard->state;
    unit->outliers = 0;
    for (int r = 0; unit->fades && r < shard->parts; r++) {
        for (int64_t t = f->first_tile[r]; t < f->first_tile[r + 1]; t++) {
            const float norm = norm_of(shard, unit->kv_head, t, r);
            int at = unit->outliers;
            while (at > 0 && norm > unit->outlier[at - 1].norm) at--;
            if (!isfinite(norm) || at == PLSH_SHARD_OUTLIERS) continue;
            if (unit->outliers < PLSH_SHARD_OUTLIERS) unit->outliers++;
            memmove(&unit->outlier[at + 1], &unit->outlier[at],
                    (size_t)(unit->outliers - 1 - at) * sizeof *unit->outlier);
            unit->outlier[at] =
                (plsh_shard_outlier){.rows = {f->tile_begin[t], f->tile_begin[t + 1]},
                                     .tile = t,
                                     .part = r,
                                     .norm = norm};
        }
    }
}

static bool is_outlier(const plsh_shard_unit *unit, int64_t tile) {
    for (int i = 0; i < unit->outliers; i++)
        if (unit->outlier[i].tile == tile) return true;
    return false;
}

/* Does a span fetch outlier i by itself? */
static bool fetches(const plsh_shard *shard, const plsh_shard_unit *unit, int i, plsh_range rows) {
    const plsh_range queries = unit->outlier[i].queries;
    return (unit->fetches[shard->part] >> i & 1) && queries.begin <= rows.begin &&
           rows.end <= queries.end;
}

bool plsh_shard_is_merged(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t b) {
    for (int i = 0; i < unit->outliers; i++)
        if (fetches(shard, unit, i, shard->state->span[b].rows)) return true;
    return false;
}

/* ---- Maxima of norms ------------------------------------------------------------------------- */

/* before[t]: the largest norm of the tiles up to t, without outliers, counted from the begin of the
 * sequence that reaches into the own rows. A tile that belongs to two sequences counts for both.
 * after[t] likewise. */
void plsh_shard_fill_maxima(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t kv) {
    plsh_shard_state *f = shard->state;
    if (f->spans == 0) return;
    const plsh_range left = others(shard, f->span[0].sequence, LEFT);
    const plsh_range right = others(shard, f->span[f->spans - 1].sequence, RIGHT);
    double most = 0;
    for (int r = 0; r < shard->part; r++) {
        for (int64_t t = f->first_tile[r]; t < f->first_tile[r + 1]; t++) {
            if (f->tile_begin[t + 1] <= left.begin) continue;
            if (!is_outlier(unit, t))
                most = plsh_larger_double(most, (double)norm_of(shard, kv, t, r));
            f->before[t] = (float)most;
        }
    }
    most = 0;
    for (int r = shard->parts - 1; r > shard->part; r--) {
        for (int64_t t = f->first_tile[r + 1] - 1; t >= f->first_tile[r]; t--) {
            if (f->tile_begin[t] >= right.end) continue;
            if (!is_outlier(unit, t))
                most = plsh_larger_double(most, (double)norm_of(shard, kv, t, r));
            f->after[t] = (float)most;
        }
    }
}

/* ---- The rest ------------------------------------------------------------------------------- */

/* One side of a span, for one head. */
typedef struct view {
    const plsh_shard *shard;
    const plsh_decay *decay;
    plsh_range rows, others; /* of the span; of other ranks on that side */
    side where;
} view;

static view look(const plsh_shard *shard, int64_t h, int64_t b, side where) {
    const plsh_shard_span *span = &shard->state->span[b];
    return (view){.shard = shard,
                  .decay = &shard->whole.head[h].partition.decay,
                  .rows = span->rows,
                  .others = others(shard, span->sequence, where),
                  .where = where};
}

/* The log of an upper bound of the sum of k over `count` rows, the nearest of them at distance t
 * from the span. A table need not decrease: then the sum is over all distances that any row of the
 * span has. */
static double log_decay(const view *v, int64_t t, int64_t count) {
    const bool falls = v->decay->kind != PLSH_DECAY_TABLE;
    return plsh_decay_log_tail(v->decay, t, falls ? count : count + plsh_range_size(v->rows) - 1);
}

/* The log of an upper bound of the weight of the rows before tile `tile` (on the right side: from
 * it on), relative to the rows of the span. tile: one past the last tile that is left out, on the
 * right the first. */
static double log_rest(const view *v, int64_t tile, plsh_shard_most most) {
    const plsh_shard_state *f = v->shard->state;
    int64_t edge = f->tile_begin[tile], t, count;
    double norm;
    if (v->where == LEFT) {
        edge = edge < v->others.end ? edge : v->others.end;
        count = edge - v->others.begin;
        if (count <= 0) return -INFINITY;
        t = v->rows.begin - (edge - 1);
        norm = (double)f->before[tile - 1];
    } else {
        edge = edge > v->others.begin ? edge : v->others.begin;
        count = v->others.end - edge;
        if (count <= 0) return -INFINITY;
        t = edge - (v->rows.end - 1);
        norm = (double)f->after[tile];
    }
    return most.own_weight_gap + most.norm * norm + log_decay(v, t, count) + 1e-6;
}

/* The same of an outlier. */
static double log_outlier(const view *v, const plsh_shard_outlier *tile, plsh_shard_most most) {
    const plsh_range rows = plsh_range_common(tile->rows, v->others);
    const int64_t count = plsh_range_size(rows);
    if (count == 0) return -INFINITY;
    const int64_t t =
        v->where == LEFT ? v->rows.begin - (rows.end - 1) : rows.begin - (v->rows.end - 1);
    return most.own_weight_gap + most.norm * (double)tile->norm + log_decay(v, t, count) + 1e-6;
}

/* The share of a row that a side may leave out. 1/16 of it is for outliers. The remaining 15/16
 * lengthen the ranges only a little. */
typedef struct limits {
    double log_rest, log_outlier;
} limits;

static limits limits_of(const plsh_shard *shard, int64_t h) {
    const plsh_head *head = &shard->whole.head[h];
    const double eps = head->method == PLSH_METHOD_EXACT ? head->eps : PLSH_BOUND_EPS;
    const double share = plsh_bound_of(eps, PLSH_BOUND_ABSENT, shard->whole.causal ? 1 : 2);
    return (limits){log(share * 15 / 16), log(share / (16 * PLSH_SHARD_OUTLIERS))};
}

/* The outliers that a span may not leave out, a bit for each. */
static int64_t needed_outliers(const plsh_shard_unit *unit, const view *left, const view *right,
                               plsh_shard_most most, double limit) {
    int64_t needed = 0;
    for (int i = 0; i < unit->outliers; i++)
        if (!(log_outlier(left, &unit->outlier[i], most) <= limit &&
              log_outlier(right, &unit->outlier[i], most) <= limit))
            needed |= INT64_C(1) << i;
    return needed;
}

/* The value of `tile` for which no foreign row is fetched. */
static int64_t own_edge(const plsh_shard *shard, side where) {
    const plsh_shard_state *f = shard->state;
    return where == LEFT ? f->first_tile[shard->part] : f->first_tile[shard->part + 1];
}

/* ---- Spans of queries ------------------------------------------------------------------------
 */

static ptrdiff_t query_at(const plsh_shard *shard, int64_t h, int64_t row) {
    const plsh_layout layout = shard->state->arrays.q_layout;
    return h * layout.head_stride + (row - plsh_shard_own_queries(shard).begin) * layout.row_stride;
}

static double dot(const plsh_shard *shard, int64_t h, int64_t query, int64_t key) {
    const plsh_attention *a = &shard->whole;
    const plsh_shard_arrays *arrays = &shard->state->arrays;
    const int64_t kv = h / (a->heads / a->kv_heads);
    const ptrdiff_t q = query_at(shard, h, query);
    const ptrdiff_t k = kv * arrays->k_layout.head_stride +
                        (key - plsh_shard_own_rows(shard).begin) * arrays->k_layout.row_stride;
    double sum = 0;
    for (int64_t x = 0; x < a->head_dim; x++)
        sum += (double)plsh_dtype_load(a->dtype, arrays->q, q + x) *
               (double)plsh_dtype_load(a->dtype, arrays->k, k + x);
    return sum;
}

/* A lower bound of log D of a row. */
static double log_least(const plsh_shard *shard, int64_t h, int64_t row, plsh_range sequence) {
    const plsh_attention *a = &shard->whole;
    const plsh_range nearest = {row - NEAREST + 1, a->causal ? row + 1 : row + NEAREST};
    const plsh_range keys =
        plsh_range_common(nearest, plsh_range_common(sequence, plsh_shard_own_rows(shard)));
    double score[2 * NEAREST], most = -INFINITY, sum = 0;
    for (int64_t j = keys.begin; j < keys.end; j++) {
        const int64_t t = j < row ? row - j : j - row;
        score[j - keys.begin] = a->scale * dot(shard, h, row, j) +
                                plsh_decay_log(&shard->whole.head[h].partition.decay, t);
        most = plsh_larger_double(most, score[j - keys.begin]);
    }
    for (int64_t j = keys.begin; j < keys.end; j++) sum += exp(score[j - keys.begin] - most);
    return most + log(sum);
}

/* scale q.c of a row. */
static double along_centre(const plsh_shard *shard, int64_t h, int64_t row) {
    const plsh_attention *a = &shard->whole;
    const int64_t kv = h / (a->heads / a->kv_heads);
    const float *centre = shard->state->exchange.centre + kv * a->head_dim;
    const ptrdiff_t at = query_at(shard, h, row);
    double sum = 0;
    for (int64_t x = 0; x < a->head_dim; x++)
        sum +=
            (double)plsh_dtype_load(a->dtype, shard->state->arrays.q, at + x) * (double)centre[x];
    return a->scale * sum;
}

/* The largest norm of an own key. */
static double own_norm(const plsh_shard *shard, int64_t kv) {
    const plsh_shard_state *f = shard->state;
    double most = 0;
    for (int64_t t = f->first_tile[shard->part]; t < f->first_tile[shard->part + 1]; t++)
        most = plsh_larger_double(most, (double)norm_of(shard, kv, t, shard->part));
    return most;
}

/* D >= exp(scale q_i.k_i), so scale q.c - log D <= |scale q| max |k - c|. If this bound is enough,
 * single keys are not read. */
static plsh_shard_most measure(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t h,
                               int64_t b, double norm_of_keys) {
    const plsh_shard_span *span = &shard->state->span[b];
    const view left = look(shard, h, b, LEFT), right = look(shard, h, b, RIGHT);
    const limits limit = limits_of(shard, h);
    plsh_shard_most most = {0, 0};
    double square = 0;
    if (plsh_range_size(left.others) == 0 && plsh_range_size(right.others) == 0) return most;
    for (int64_t i = span->rows.begin; i < span->rows.end; i++)
        square = plsh_larger_double(
            square, plsh_shard_square(shard->whole.dtype, shard->state->arrays.q,
                                      query_at(shard, h, i), NULL, shard->whole.head_dim));
    most.norm = fabs(shard->whole.scale) * sqrt(square);
    most.own_weight_gap = most.norm * norm_of_keys;
    if (log_rest(&left, own_edge(shard, LEFT), most) <= limit.log_rest &&
        log_rest(&right, own_edge(shard, RIGHT), most) <= limit.log_rest &&
        needed_outliers(unit, &left, &right, most, limit.log_outlier) == 0)
        return most;
    most.own_weight_gap = -INFINITY;
    for (int64_t i = span->rows.begin; i < span->rows.end; i++)
        most.own_weight_gap =
            plsh_larger_double(most.own_weight_gap,
                               along_centre(shard, h, i) - log_least(shard, h, i, span->sequence));
    return most;
}

/* ---- Units ---------------------------------------------------------------------------------- */

/* What a unit needs: tiles from `left` to the own ones, and from those to `right`; outliers. */
typedef struct wants {
    int64_t left, right, outliers;
} wants;

static void want(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t h, int64_t b,
                 wants *w) {
    const limits limit = limits_of(shard, h);
    const plsh_shard_state *f = shard->state;
    plsh_shard_span *span = &f->span[b];
    const plsh_shard_most most = f->most[h * f->spans + b];
    const view left = look(shard, h, b, LEFT), right = look(shard, h, b, RIGHT);
    if (!(log_rest(&left, own_edge(shard, LEFT), most) <= limit.log_rest)) {
        while (!(log_rest(&left, w->left, most) <= limit.log_rest)) w->left--;
        span->looks_left = true;
    }
    if (!(log_rest(&right, own_edge(shard, RIGHT), most) <= limit.log_rest)) {
        while (!(log_rest(&right, w->right, most) <= limit.log_rest)) w->right++;
        span->looks_right = true;
    }
    span->outliers |= needed_outliers(unit, &left, &right, most, limit.log_outlier);
    w->outliers |= span->outliers;
}

typedef struct measuring {
    const plsh_shard *shard;
    const plsh_shard_unit *unit;
    int64_t head;
    double norm;
} measuring;

static void measure_span(void *context, int64_t b, int slot) {
    const measuring *m = context;
    const plsh_shard_state *f = m->shard->state;
    (void)slot;
    f->most[m->head * f->spans + b] = measure(m->shard, m->unit, m->head, b, m->norm);
}

static void want_head(plsh_shard *shard, const plsh_shard_unit *unit, int64_t h, wants *w) {
    plsh_shard_state *f = shard->state;
    const int64_t kv = h / (shard->whole.heads / shard->whole.kv_heads);
    measuring m = {shard, unit, h, own_norm(shard, kv)};
    plsh_shard_fill_maxima(shard, unit, kv);
    plsh_thread_run(shard->whole.threads, f->spans, measure_span, &m);
    for (int64_t b = 0; b < f->spans; b++) want(shard, unit, h, b, w);
}

/* Extends the range by an outlier that is next to it, or near it compared with its length: a few
 * more rows are cheaper than a separate fetch. */
static void join_outliers(const plsh_shard *shard, const plsh_shard_unit *unit, wants *w) {
    const plsh_shard_state *f = shard->state;
    const plsh_range own = plsh_shard_own_rows(shard);
    for (bool again = true; again;) {
        again = false;
        const int64_t begin = f->tile_begin[w->left], end = f->tile_begin[w->right];
        for (int i = 0; i < unit->outliers && !again; i++) {
            const plsh_shard_outlier *tile = &unit->outlier[i];
            const bool before = tile->tile < w->left, after = tile->tile >= w->right;
            const int64_t between = before ? begin - tile->rows.end : tile->rows.begin - end;
            const int64_t stretch = before ? own.begin - begin : end - own.end;
            again = (w->outliers >> i & 1) && (before || after) &&
                    (shard->one_range || between <= f->tile_rows + stretch / 4);
            if (again && before) w->left = tile->tile;
            if (again && after) w->right = tile->tile + 1;
        }
    }
}

/* Sets `near`, the queries that see only own rows apart from outliers, and the queries that see
 * each outlier. */
static void find_queries(const plsh_shard *shard, plsh_shard_unit *unit, const wants *w) {
    const plsh_shard_state *f = shard->state;
    int64_t before = 0, after = 0; /* the outliers inside the range */
    for (int i = 0; i < unit->outliers; i++) {
        const int64_t tile = unit->outlier[i].tile;
        before |= (int64_t)(w->left <= tile && tile < own_edge(shard, LEFT)) << i;
        after |= (int64_t)(own_edge(shard, RIGHT) <= tile && tile < w->right) << i;
    }
    unit->fetches[shard->part] = w->outliers & ~(before | after);
    unit->near = plsh_shard_own_queries(shard);
    for (int64_t b = 0; b < f->spans; b++) {
        const plsh_shard_span *span = &f->span[b];
        if ((span->looks_left || (span->outliers & before)) && span->rows.end > unit->near.begin)
            unit->near.begin = span->rows.end;
        if ((span->looks_right || (span->outliers & after)) && span->rows.begin < unit->near.end)
            unit->near.end = span->rows.begin;
        for (int i = 0; i < unit->outliers; i++)
            if ((unit->fetches[shard->part] & span->outliers) >> i & 1)
                unit->outlier[i].queries = plsh_range_hull(unit->outlier[i].queries, span->rows);
    }
}

void plsh_shard_find_unit(plsh_shard *shard, plsh_shard_unit *unit) {
    const plsh_shard_state *f = shard->state;
    const plsh_range queries = plsh_shard_own_queries(shard), rows = plsh_shard_own_rows(shard);
    plsh_range *need = &unit->need[shard->part];
    *need = (plsh_range){rows.begin, rows.begin};
    unit->near = (plsh_range){queries.begin, queries.begin};
    unit->fetches[shard->part] = 0;
    find_outliers(shard, unit);
    if (f->spans == 0) return;
    wants w = {own_edge(shard, LEFT), own_edge(shard, RIGHT), 0};
    for (int64_t b = 0; b < f->spans; b++) {
        f->span[b].looks_left = f->span[b].looks_right = false;
        f->span[b].outliers = 0;
    }
    for (int64_t h = unit->head; h < unit->head + unit->heads; h++)
        if (plsh_head_knows_decay(&shard->whole.head[h])) want_head(shard, unit, h, &w);
    join_outliers(shard, unit, &w);
    find_queries(shard, unit, &w);
    const plsh_range left = others(shard, f->span[0].sequence, LEFT);
    const plsh_range right = others(shard, f->span[f->spans - 1].sequence, RIGHT);
    *need = rows;
    if (w.left < own_edge(shard, LEFT))
        need->begin = f->tile_begin[w.left] > left.begin ? f->tile_begin[w.left] : left.begin;
    if (w.right > own_edge(shard, RIGHT))
        need->end = f->tile_begin[w.right] < right.end ? f->tile_begin[w.right] : right.end;
    if (shard->whole.causal) need->end = queries.end;
    if (unit->fades) return;
    *need = plsh_range_hull(*need, unit->reach[shard->part]);
    unit->near = plsh_range_common(unit->near, unit->reach_near);
}

/* The outliers of one side that a span does not have; it has the tiles first .. end - 1. */
static double rest_of_outliers(const view *v, const plsh_shard_unit *unit, int64_t first,
                               int64_t end, plsh_shard_most most) {
    double share = 0;
    for (int i = 0; i < unit->outliers; i++) {
        const plsh_shard_outlier *tile = &unit->outlier[i];
        if (first <= tile->tile && tile->tile < end) continue;
        if (!fetches(v->shard, unit, i, v->rows)) share += exp(log_outlier(v, tile, most));
    }
    return share;
}

double plsh_shard_rest(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t h, int64_t b) {
    const plsh_shard_state *f = shard->state;
    const plsh_shard_most most = f->most[h * f->spans + b];
    const plsh_range rows = f->span[b].rows, need = unit->need[shard->part];
    double share = 0;
    if (!plsh_head_knows_decay(&shard->whole.head[h])) return 0; /* its certificate is NaN, or 0 */
    const bool far = plsh_range_size(unit->near) == 0;
    const view left = look(shard, h, b, LEFT), right = look(shard, h, b, RIGHT);
    int64_t first = own_edge(shard, LEFT), end = own_edge(shard, RIGHT);
    bool all_left = false, all_right = false; /* does it have all rows of that side? */
    if (far || rows.begin < unit->near.begin) {
        while (first > 0 && f->tile_begin[first - 1] >= need.begin) first--;
        all_left = need.begin <= left.others.begin;
    }
    if (far || rows.begin >= unit->near.end) {
        while (end < f->first_tile[shard->parts] && f->tile_begin[end + 1] <= need.end) end++;
        all_right = need.end >= right.others.end;
    }
    if (!all_left)
        share +=
            exp(log_rest(&left, first, most)) + rest_of_outliers(&left, unit, first, end, most);
    if (!all_right)
        share +=
            exp(log_rest(&right, end, most)) + rest_of_outliers(&right, unit, first, end, most);
    return share;
}
