/* mpi: which rows of others a rank's queries need. */
#include "mpi/needs.h"

#include <math.h>

#include "base/dtype.h"

/* D is bounded by that many of a row's nearest keys on each side. */
enum { NEAREST = 8 };

typedef enum side { LEFT, RIGHT } side;

static double larger(double a, double b) { return a >= b || a != a ? a : b; }

/* ---- Maxima of norms ------------------------------------------------------------------------- */

static float norm_of(const plsh_mpi_plan *plan, int64_t kv, int64_t tile, int rank) {
    const plsh_mpi_fades *f = plan->fades_state;
    const int64_t first = f->first_tile[rank], tiles = f->first_tile[rank + 1] - first;
    return f->norms[first * plan->whole.kv_heads + kv * tiles + tile - first];
}

/* The rows of other ranks before (after) the own ones, of the sequence that goes on here. */
static plsh_block others(const plsh_mpi_plan *plan, plsh_block sequence, side where) {
    const plsh_block own = plsh_mpi_own_rows(plan);
    const plsh_block all = {0, plan->whole.keys};
    if (plsh_block_size(own) == 0 || (where == RIGHT && plan->whole.causal))
        return (plsh_block){0, 0};
    const plsh_block beside =
        where == LEFT ? (plsh_block){all.begin, own.begin} : (plsh_block){own.end, all.end};
    return plsh_block_common(beside, sequence);
}

/* before[t]: the largest norm of a tile from the begin of the sequence that reaches into the own
 * rows to t. Where a tile belongs to two sequences it counts for both. after[t] likewise. */
void plsh_mpi_needs_maxima(const plsh_mpi_plan *plan, int64_t kv) {
    plsh_mpi_fades *f = plan->fades_state;
    if (f->blocks == 0) return;
    const plsh_block left = others(plan, f->block[0].sequence, LEFT);
    const plsh_block right = others(plan, f->block[f->blocks - 1].sequence, RIGHT);
    double most = 0;
    for (int r = 0; r < plan->rank; r++) {
        for (int64_t t = f->first_tile[r]; t < f->first_tile[r + 1]; t++) {
            if (f->tile_begin[t + 1] <= left.begin) continue;
            most = larger(most, (double)norm_of(plan, kv, t, r));
            f->before[t] = (float)most;
        }
    }
    most = 0;
    for (int r = plan->ranks - 1; r > plan->rank; r--) {
        for (int64_t t = f->first_tile[r + 1] - 1; t >= f->first_tile[r]; t--) {
            if (f->tile_begin[t] >= right.end) continue;
            most = larger(most, (double)norm_of(plan, kv, t, r));
            f->after[t] = (float)most;
        }
    }
}

/* ---- The rest ------------------------------------------------------------------------------- */

/* The logarithm of k(t) + k(t+1) + ... + k(t+count-1), at most; in logarithms where k
 * underflows. */
static double log_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    double least = log(plsh_decay_tail(decay, t, count));
    if (decay->kind == PLSH_DECAY_TABLE) return least + 1e-9;
    const double each = plsh_decay_log(decay, t) + log((double)count);
    if (!(least > -600)) least = each;
    if (decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0) {
        const double all = (double)-t / decay->a - log(-expm1(-1 / decay->a));
        least = all < each ? all : each;
    }
    return (each < least ? each : least) + 1e-9;
}

/* A block and one side of it, for one head. */
typedef struct view {
    const plsh_mpi_plan *plan;
    const plsh_decay *decay;
    plsh_block rows, others; /* of the block; of other ranks on that side */
    side where;
} view;

static view look(const plsh_mpi_plan *plan, int64_t h, int64_t b, side where) {
    const plsh_mpi_block *block = &plan->fades_state->block[b];
    return (view){.plan = plan,
                  .decay = &plan->head[h].partition.decay,
                  .rows = block->rows,
                  .others = others(plan, block->sequence, where),
                  .where = where};
}

/* The log of what the rows before tile `tile` (on the right: from it on) weigh relative to the
 * block's rows, at most. tile: one past the last that is left out, or the first. */
static double log_rest(const view *v, int64_t tile, plsh_mpi_most most) {
    const plsh_mpi_fades *f = v->plan->fades_state;
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
    return most.gap + most.norm * norm + log_tail(v->decay, t, count) + 1e-6;
}

/* The tile at which nothing of others is fetched. */
static int64_t own_edge(const plsh_mpi_plan *plan, side where) {
    const plsh_mpi_fades *f = plan->fades_state;
    return where == LEFT ? f->first_tile[plan->rank] : f->first_tile[plan->rank + 1];
}

/* ---- Blocks of queries ------------------------------------------------------------------------
 */

static double dot(const plsh_mpi_call *call, int64_t h, int64_t query, int64_t key) {
    const plsh_attention *a = &call->plan->whole;
    const int64_t kv = h / (a->heads / a->kv_heads);
    const ptrdiff_t q =
        h * a->q.head_stride + (query - plsh_mpi_own_queries(call->plan).begin) * a->q.row_stride;
    const ptrdiff_t k =
        kv * a->k.head_stride + (key - plsh_mpi_own_rows(call->plan).begin) * a->k.row_stride;
    double sum = 0;
    for (int64_t x = 0; x < a->head_dim; x++)
        sum += (double)plsh_dtype_load(a->dtype, call->q, q + x) *
               (double)plsh_dtype_load(a->dtype, call->k, k + x);
    return sum;
}

/* log D of a row, at least. */
static double log_least(const plsh_mpi_call *call, int64_t h, int64_t row, plsh_block sequence) {
    const plsh_attention *a = &call->plan->whole;
    const plsh_block nearest = {row - NEAREST + 1, a->causal ? row + 1 : row + NEAREST};
    const plsh_block keys =
        plsh_block_common(nearest, plsh_block_common(sequence, plsh_mpi_own_rows(call->plan)));
    double score[2 * NEAREST], most = -INFINITY, sum = 0;
    for (int64_t j = keys.begin; j < keys.end; j++) {
        const int64_t t = j < row ? row - j : j - row;
        score[j - keys.begin] = a->scale * dot(call, h, row, j) +
                                plsh_decay_log(&call->plan->head[h].partition.decay, t);
        most = larger(most, score[j - keys.begin]);
    }
    for (int64_t j = keys.begin; j < keys.end; j++) sum += exp(score[j - keys.begin] - most);
    return most + log(sum);
}

/* |scale q| and scale q.c of a row. */
static void measure_query(const plsh_mpi_call *call, int64_t h, int64_t row, double *norm,
                          double *along) {
    const plsh_attention *a = &call->plan->whole;
    const int64_t kv = h / (a->heads / a->kv_heads);
    const float *centre = call->plan->fades_state->centre + kv * a->head_dim;
    const ptrdiff_t at =
        h * a->q.head_stride + (row - plsh_mpi_own_queries(call->plan).begin) * a->q.row_stride;
    double square = 0, sum = 0;
    for (int64_t x = 0; x < a->head_dim; x++) {
        const double q = (double)plsh_dtype_load(a->dtype, call->q, at + x);
        square += q * q;
        sum += q * (double)centre[x];
    }
    *norm = fabs(a->scale) * sqrt(square);
    *along = a->scale * sum;
}

/* The largest norm of an own key. */
static double own_norm(const plsh_mpi_plan *plan, int64_t kv) {
    const plsh_mpi_fades *f = plan->fades_state;
    double most = 0;
    for (int64_t t = f->first_tile[plan->rank]; t < f->first_tile[plan->rank + 1]; t++)
        most = larger(most, (double)norm_of(plan, kv, t, plan->rank));
    return most;
}

/* D >= exp(scale q_i.k_i), so scale q.c - log D <= |scale q| max |k - c|: where that does, nobody
 * looks at single keys. */
static plsh_mpi_most measure(const plsh_mpi_call *call, int64_t h, int64_t b, double limit,
                             double norm_of_keys) {
    const plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_block *block = &plan->fades_state->block[b];
    const view left = look(plan, h, b, LEFT), right = look(plan, h, b, RIGHT);
    plsh_mpi_most most = {0, 0};
    double along[PLSH_MPI_BLOCK_ROWS], norm;
    if (plsh_block_size(left.others) == 0 && plsh_block_size(right.others) == 0) return most;
    for (int64_t i = block->rows.begin; i < block->rows.end; i++) {
        measure_query(call, h, i, &norm, &along[i - block->rows.begin]);
        most.norm = larger(most.norm, norm);
    }
    most.gap = most.norm * norm_of_keys;
    if (log_rest(&left, own_edge(plan, LEFT), most) <= limit &&
        log_rest(&right, own_edge(plan, RIGHT), most) <= limit)
        return most;
    most.gap = -INFINITY;
    for (int64_t i = block->rows.begin; i < block->rows.end; i++)
        most.gap =
            larger(most.gap, along[i - block->rows.begin] - log_least(call, h, i, block->sequence));
    return most;
}

/* ---- Units ---------------------------------------------------------------------------------- */

/* Does the head look at its decay, or its certificate? */
static bool has_decay(const plsh_head *head) {
    const plsh_decay *decay = &head->partition.decay;
    plsh_error unused;
    const bool unset = decay->kind == PLSH_DECAY_ALIBI && decay->a == 0.0;
    return !unset && plsh_decay_check(decay, &unused) == PLSH_STATUS_OK;
}

/* A quarter of eps, half of that where there are two sides. */
static double log_limit(const plsh_mpi_plan *plan, int64_t h) {
    const plsh_head *head = &plan->head[h];
    const double eps = head->method == PLSH_METHOD_EXACT ? head->eps : 0x1p-24;
    return log(eps / (plan->whole.causal ? 4 : 8));
}

/* What a head needs: tiles from `left` to the own ones, and from those to `right`; and which
 * queries need none. */
typedef struct wants {
    int64_t left, right;
    plsh_block near;
} wants;

static void want(const plsh_mpi_plan *plan, int64_t h, int64_t b, wants *w) {
    const double limit = log_limit(plan, h);
    const plsh_mpi_fades *f = plan->fades_state;
    const plsh_mpi_most most = f->most[h * f->blocks + b];
    const view left = look(plan, h, b, LEFT), right = look(plan, h, b, RIGHT);
    if (!(log_rest(&left, own_edge(plan, LEFT), most) <= limit)) {
        while (!(log_rest(&left, w->left, most) <= limit)) w->left--;
        if (f->block[b].rows.end > w->near.begin) w->near.begin = f->block[b].rows.end;
    }
    if (!(log_rest(&right, own_edge(plan, RIGHT), most) <= limit)) {
        while (!(log_rest(&right, w->right, most) <= limit)) w->right++;
        if (f->block[b].rows.begin < w->near.end) w->near.end = f->block[b].rows.begin;
    }
}

static void want_head(plsh_mpi_call *call, int64_t h, wants *w) {
    plsh_mpi_plan *plan = call->plan;
    plsh_mpi_fades *f = plan->fades_state;
    const int64_t kv = h / (plan->whole.heads / plan->whole.kv_heads);
    const double limit = log_limit(plan, h), norm = own_norm(plan, kv);
    plsh_mpi_needs_maxima(plan, kv);
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t b = 0; b < f->blocks; b++)
        f->most[h * f->blocks + b] = measure(call, h, b, limit, norm);
    for (int64_t b = 0; b < f->blocks; b++) want(plan, h, b, w);
}

void plsh_mpi_needs_find(plsh_mpi_call *call, plsh_mpi_unit *unit) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_fades *f = plan->fades_state;
    const plsh_block queries = plsh_mpi_own_queries(plan), rows = plsh_mpi_own_rows(plan);
    plsh_block *need = &unit->need[plan->rank];
    *need = (plsh_block){rows.begin, rows.begin};
    unit->near = (plsh_block){queries.begin, queries.begin};
    if (f->blocks == 0) return;
    wants w = {own_edge(plan, LEFT), own_edge(plan, RIGHT), queries};
    for (int64_t h = unit->head; h < unit->head + unit->heads; h++)
        if (has_decay(&plan->head[h])) want_head(call, h, &w);
    const plsh_block left = others(plan, f->block[0].sequence, LEFT);
    const plsh_block right = others(plan, f->block[f->blocks - 1].sequence, RIGHT);
    *need = rows;
    if (w.left < own_edge(plan, LEFT))
        need->begin = f->tile_begin[w.left] > left.begin ? f->tile_begin[w.left] : left.begin;
    if (w.right > own_edge(plan, RIGHT))
        need->end = f->tile_begin[w.right] < right.end ? f->tile_begin[w.right] : right.end;
    if (plan->whole.causal) need->end = queries.end;
    unit->near = w.near;
    if (unit->fades) return;
    *need = plsh_block_hull(*need, unit->reach[plan->rank]);
    unit->near = plsh_block_common(unit->near, unit->reach_near);
}

double plsh_mpi_needs_rest(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int64_t h,
                           int64_t b) {
    const plsh_mpi_fades *f = plan->fades_state;
    const plsh_mpi_most most = f->most[h * f->blocks + b];
    const plsh_block rows = f->block[b].rows, need = unit->need[plan->rank];
    double share = 0;
    if (!has_decay(&plan->head[h])) return 0; /* its certificate is NaN, or 0 */
    const bool far = plsh_block_size(unit->near) == 0;
    const view left = look(plan, h, b, LEFT), right = look(plan, h, b, RIGHT);
    int64_t first = own_edge(plan, LEFT), end = own_edge(plan, RIGHT);
    bool all_left = false, all_right = false; /* has it seen everything there? */
    if (far || rows.begin < unit->near.begin) {
        while (first > 0 && f->tile_begin[first - 1] >= need.begin) first--;
        all_left = need.begin <= left.others.begin;
    }
    if (far || rows.begin >= unit->near.end) {
        while (end < f->first_tile[plan->ranks] && f->tile_begin[end + 1] <= need.end) end++;
        all_right = need.end >= right.others.end;
    }
    if (!all_left) share += exp(log_rest(&left, first, most));
    if (!all_right) share += exp(log_rest(&right, end, most));
    return share;
}
