/* attention: the backward pass of one tile of queries. */
#include "attention/backward/backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/backward/points.h"
#include "attention/forward/bounds.h"
#include "attention/forward/plane.h"
#include "base/numbers.h"

_Static_assert(PLSH_TILE_QUERIES <= 32 * 4, "a bit per group of at least four queries");

void plsh_backward_layout(plsh_backward_tile *b, const plsh_plan *plan, plsh_arena *arena) {
    plsh_tile_layout(&b->tile, plan, arena);
    plsh_sampled_layout(&b->sampled, plan, arena);
    b->tile.sampled = &b->sampled;
    size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    size_t group = (size_t)plan->kernel->group, rows = PLSH_TILE_QUERIES;
    bool halves = plan->shape.dtype != PLSH_DTYPE_FLOAT32;
    b->scratch.packed_o = plsh_arena_floats(arena, group * dv);
    b->rows.packed_do = plsh_arena_floats(arena, rows * dv);
    b->sums.q = plsh_arena_floats(arena, rows * (size_t)plsh_kernels_columns((int)d));
    plsh_stretches_layout(&b->sums.stretches, plan, plsh_kernels_columns((int)d), arena);
    b->step.p = plsh_arena_floats(arena, rows * PLSH_TILE_KEYS);
    b->step.ds = plsh_arena_floats(arena, rows * PLSH_TILE_KEYS);
    b->rows.log2_lse = plsh_arena_floats(arena, rows);
    b->rows.lse_low = plsh_arena_floats(arena, rows);
    b->sums.residue = plsh_arena_floats(arena, rows);
    b->rows.delta = plsh_arena_floats(arena, rows);
    b->scratch.one = plsh_arena_floats(arena, group);
    b->scratch.rest = plsh_arena_floats(arena, group);
    b->scratch.k_row = plsh_arena_floats(arena, d);
    b->scratch.centre = plsh_arena_floats(arena, d);
    bool placed = plan->points.key_order != NULL;
    b->scratch.q_wide = plsh_arena_floats(arena, halves ? rows * d : 0);
    b->scratch.o_rows = plsh_arena_floats(arena, placed ? rows * dv : 0);
    b->scratch.do_rows = plsh_arena_floats(arena, placed ? rows * dv : 0);
    for (int i = 0; i < 2; i++) {
        b->step.slope[i] = plsh_arena_floats(arena, rows + PLSH_TILE_KEYS);
    }
    size_t dim = (size_t)plan->points.dim;
    b->points.d_x = plsh_arena_take(arena, rows * dim, sizeof(double));
    b->points.d_y = plsh_arena_take(arena, PLSH_TILE_KEYS * dim, sizeof(double));
    bool gathers = placed;
    for (int64_t h = 0; h < plan->shape.heads; h++) gathers |= plan->head[h].gathering != NULL;
    b->scratch.gathered =
        plsh_arena_floats(arena, gathers ? PLSH_TILE_KEYS * (d > dv ? d : dv) : 0);
}

/* Are dP and dS asked for, or P alone? */
static bool needs_ds(const plsh_backward_tile *b) {
    return b->arrays.d_q || b->arrays.d_k || b->arrays.learns || b->points.key;
}

static void pack_gradient(plsh_backward_tile *b, int g) {
    const plsh_attention *shape = &b->tile.plan->shape;
    int group = b->tile.kernel->group, dv = (int)shape->value_dim;
    const plsh_const_matrix d_o = b->rows.d_o;
    ptrdiff_t first = (ptrdiff_t)g * group;
    const plsh_stored_rows from = {d_o.data + first * d_o.stride, PLSH_DTYPE_FLOAT32, d_o.stride};
    b->tile.kernel->pack(b->rows.packed_do + first * dv, from, plsh_tile_group_rows(&b->tile, g),
                         dv, (float)shape->scale);
}

void plsh_backward_set_delta(plsh_backward_tile *b, int g, const float *o, ptrdiff_t stride) {
    const plsh_kernels *kernel = b->tile.kernel;
    int group = kernel->group, dv = (int)b->tile.plan->shape.value_dim;
    if (!needs_ds(b)) return;
    kernel->pack(b->scratch.packed_o, (plsh_stored_rows){o, PLSH_DTYPE_FLOAT32, stride},
                 plsh_tile_group_rows(&b->tile, g), dv, 1.0f);
    kernel->dots(b->rows.delta + g * group, b->rows.packed_do + (ptrdiff_t)g * group * dv,
                 b->scratch.packed_o, dv);
}

void plsh_backward_set_lse(plsh_backward_tile *b, int r, double log2_lse) {
    bool seen = r < b->tile.at.rows && log2_lse != -INFINITY;
    b->rows.log2_lse[r] = seen ? (float)log2_lse : INFINITY;
    b->rows.lse_low[r] = seen ? (float)(log2_lse - (double)b->rows.log2_lse[r]) : 0.0f;
}

static void load_queries(plsh_backward_tile *b) {
    const plsh_attention *shape = &b->tile.plan->shape;
    int d = (int)shape->head_dim;
    const plsh_stored_rows from = plsh_tile_queries(&b->tile);
    if (shape->dtype == PLSH_DTYPE_FLOAT32) {
        b->rows.q = (plsh_const_matrix){from.data, from.stride};
        return;
    }
    b->tile.kernel->widen((plsh_matrix){b->scratch.q_wide, d}, from, b->tile.at.rows, d);
    b->rows.q = (plsh_const_matrix){b->scratch.q_wide, d};
}

/* Rows of o or d_o: as they lie, or gathered to `rows`. */
static plsh_const_matrix load_outputs(const plsh_backward_tile *b, const float *from, float *rows) {
    const ptrdiff_t stride = b->tile.plan->shape.o.row_stride, dv = b->tile.plan->shape.value_dim;
    const int32_t *order = b->tile.at.query_order;
    if (!order) return (plsh_const_matrix){from, stride};
    for (int r = 0; r < b->tile.at.rows; r++)
        memcpy(rows + r * dv, from + order[r] * stride, sizeof(float) * (size_t)dv);
    return (plsh_const_matrix){rows, dv};
}

static void begin(plsh_tile *tile) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, columns = plsh_kernels_columns((int)shape->head_dim);
    plsh_tile_pack(tile);
    load_queries(b);
    b->rows.o = load_outputs(b, b->arrays.o, b->scratch.o_rows);
    b->rows.d_o = load_outputs(b, b->arrays.d_o, b->scratch.do_rows);
    for (int r = 0; r < tile->at.groups * group; r++) {
        const double lse =
            r < tile->at.rows ? (double)b->arrays.lse[plsh_tile_array_row(tile, r)] : 0.0;
        plsh_backward_set_lse(b, r, lse * PLSH_LOG2_E);
    }
    for (int g = 0; g < tile->at.groups; g++) {
        pack_gradient(b, g);
        plsh_backward_set_delta(b, g, b->rows.o.data + g * group * b->rows.o.stride,
                                b->rows.o.stride);
    }
    for (int r = 0; r < group; r++) b->scratch.one[r] = 1.0f;
    memset(b->sums.q, 0, sizeof(float) * (size_t)(tile->at.groups * group * columns));
    plsh_stretches_begin(&b->sums.stretches);
    memset(b->step.visited, 0, sizeof(b->step.visited));
    b->step.sloped = false;
    b->scattered = b->revisits = tile->at.key_order != NULL;
    for (int r = 0; r < tile->at.groups * group; r++) {
        tile->sums.m[r] = PLSH_SOFTMAX_START;
        tile->sums.l[r] = tile->sums.l_low[r] = 0.0f;
        b->sums.residue[r] = 0.0f;
    }
    b->sums.d_decay[0] = b->sums.d_decay[1] = 0.0;
}

/* The derivatives of the step's log k, an entry per difference of positions as the bias has. */
static void fill_slopes(plsh_backward_tile *b) {
    const plsh_tile *tile = &b->tile;
    const plsh_decay *decay = &tile->at.head->head.partition.decay;
    int count = tile->at.groups * tile->kernel->group + tile->step.count - 1;
    int64_t t0 = tile->at.position - (tile->step.first + tile->step.count - 1);
    for (int i = 0; i < count; i++) {
        int64_t t = t0 + i;
        double slope[2];
        plsh_decay_log_gradient(decay, t < 0 ? -t : t, slope);
        b->step.slope[0][i] = (float)slope[0];
        b->step.slope[1][i] = (float)slope[1];
    }
    b->step.sloped = true;
}

/* The same for gathered keys, which lie anywhere, pair by pair. */
static void add_scattered_slopes(plsh_backward_tile *b, int g, int count, const float *ds) {
    const plsh_tile *tile = &b->tile;
    const int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    for (int j = 0; j < count; j++) {
        const int64_t key = tile->sampled->key_gathered[j];
        for (int64_t r = 0; r < end - begin; r++) {
            const float x = ds[j * tile->kernel->group + r];
            double slope[2];
            if (x == 0.0f) continue;
            const double t = tile->at.dim > 0
                                 ? plsh_plane_distance(tile, g * tile->kernel->group + r, key)
                                 : (double)llabs(begin + r - key);
            plsh_decay_log_gradient_at(&tile->at.head->head.partition.decay, t, slope);
            b->sums.d_decay[0] += (double)x * slope[0];
            b->sums.d_decay[1] += (double)x * slope[1];
        }
    }
}

/* The same for points. */
static void add_plane_slopes(plsh_backward_tile *b, int g, int64_t first, int count,
                             const float *ds) {
    plsh_tile *tile = &b->tile;
    const int group = tile->kernel->group, rows = plsh_tile_group_rows(tile, g);
    tile->kernel->distances(tile->scratch.t, plsh_plane_points(tile, g, first), count);
    for (int j = 0; j < count; j++) {
        for (int r = 0; r < rows; r++) {
            const double x = (double)ds[j * group + r];
            double slope[2];
            if (x == 0.0) continue;
            plsh_decay_log_gradient_at(&tile->at.head->head.partition.decay,
                                       (double)tile->scratch.t[j * group + r], slope);
            b->sums.d_decay[0] += x * slope[0];
            b->sums.d_decay[1] += x * slope[1];
        }
    }
}

static void add_slopes(plsh_backward_tile *b, int g, int64_t first, int count, const float *ds) {
    const plsh_tile *tile = &b->tile;
    if (b->scattered && !tile->at.key_order) {
        add_scattered_slopes(b, g, count, ds);
        return;
    }
    if (tile->at.dim > 0) {
        add_plane_slopes(b, g, first, count, ds);
        return;
    }
    if (!b->step.sloped) fill_slopes(b);
    ptrdiff_t at =
        tile->step.count - 1 - (first - tile->step.first) + (ptrdiff_t)g * tile->kernel->group;
    for (int i = 0; i < 2; i++) {
        b->sums.d_decay[i] += tile->kernel->correlate(ds, b->step.slope[i] + at, count);
    }
}

/* `exact` makes the decisions of the forward pass, which depend on its running sums. So the running
 * softmax is repeated, and the scores become 2^(score - m). P is 2^(score - lse): the factor
 * 2^(m - lse) that is missing is computed here. */
static void find_missing_factor(plsh_backward_tile *b, int g) {
    int group = b->tile.kernel->group;
    ptrdiff_t at = (ptrdiff_t)g * group;
    for (int r = 0; r < group; r++) {
        b->scratch.rest[r] =
            exp2f((b->tile.sums.m[at + r] - b->rows.log2_lse[at + r]) - b->rows.lse_low[at + r]);
    }
}

/* The dropout mask Z for group g and some keys, in the buffer of the forward pass's scores; NULL
 * without dropout. */
static const float *find_drop(plsh_tile *tile, int g, int64_t first, int count) {
    if (tile->at.drop.below == 0) return NULL;
    for (int i = 0; i < count * tile->kernel->group; i++) tile->scratch.s[i] = 1.0f;
    plsh_tile_drop(tile, g, first, count, tile->scratch.s);
    return tile->scratch.s;
}

static void multiply(float *to, const float *by, int count) {
    for (int i = 0; by && i < count; i++) to[i] *= by[i];
}

static float *scores_of(const plsh_backward_tile *b, int g, int64_t first) {
    int group = b->tile.kernel->group;
    return b->step.p + ((ptrdiff_t)g * PLSH_TILE_KEYS + (first - b->tile.step.first)) * group;
}

/* How the scores of a run become P, see plsh_weigh. */
typedef struct weighing {
    plsh_weigh how;
    plsh_pair_weights weights; /* PLSH_WEIGH_MASKED only */
    const float *lse;          /* of the group's rows */
} weighing;

/* dQ += dS K. */
static void add_query_gradient(plsh_backward_tile *b, const plsh_tile_run *run, const float *ds) {
    const plsh_kernels *kernel = b->tile.kernel;
    const plsh_key_rows k = plsh_tile_keys(&b->tile, run->first, run->count);
    const plsh_stored_rows keys = {k.row, PLSH_DTYPE_FLOAT32, k.stride};
    bool plain = !run->masked || kernel->all_finite(keys, k.count, k.dim);
    float *sum = b->sums.q + (ptrdiff_t)run->g * kernel->group * plsh_kernels_columns(k.dim);
    (plain ? kernel->accumulate : kernel->accumulate_masked)(
        (plsh_accumulator){sum, b->scratch.one, run->rows}, ds, k, run->masked, NULL);
    plsh_stretches_step(&b->sums.stretches, run->g, sum, NULL);
}

/* The backward pass of one run, whose scores are in b->step.p: P and dS, and everything but dK and
 * dV.
 */
static void differentiate(plsh_backward_tile *b, const plsh_tile_run *run, weighing w) {
    plsh_tile *tile = &b->tile;
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, g = run->g, count = run->count;
    const ptrdiff_t lane = (ptrdiff_t)g * group, key = run->first - tile->step.first;
    float *p = scores_of(b, g, run->first);
    float *ds = needs_ds(b) ? b->step.ds + (p - b->step.p) : NULL;
    const float *z = find_drop(tile, g, run->first, count);
    const int used = w.how == PLSH_WEIGH_MASKED ? 0 : plsh_tile_used_rows(tile, g);
    if (ds) {
        kernel->scores(ds, tile->scratch.top,
                       (plsh_packed_rows){b->rows.packed_do + lane * run->v.dim, used}, run->v,
                       (plsh_score_bias){0});
        multiply(ds, z, count * group);
    }
    kernel->gradient(p, ds, count, w.how, w.weights,
                     (plsh_gradient_rows){w.lse, b->rows.lse_low + lane, b->rows.delta + lane,
                                          b->sums.residue + lane, used});
    multiply(p, z, count * group); /* for dV */
    if (b->arrays.d_q) add_query_gradient(b, run, ds);
    if (b->arrays.learns) add_slopes(b, g, run->first, count, ds);
    if (b->points.key) plsh_backward_points_add(b, g, run->first, count, ds);
    for (int j = 0; j < count; j++) b->step.visited[key + j] |= UINT32_C(1) << g;
}

static void visit(plsh_tile *tile, int g, int64_t first, int count) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    float *p = scores_of(b, g, first);
    plsh_tile_run run = plsh_tile_score(tile, g, first, count, p);
    if (!tile->at.bounded) {
        const float *lse = b->rows.log2_lse + (ptrdiff_t)g * tile->kernel->group;
        differentiate(b, &run, (weighing){.how = PLSH_WEIGH_PLAIN, .lse = lse});
        return;
    }
    if (!plsh_bounds_weigh(tile, g, first, count, p)) return;
    find_missing_factor(b, g);
    differentiate(b, &run, (weighing){.how = PLSH_WEIGH_READY, .lse = b->scratch.rest});
}

static void visit_weighted(plsh_tile *tile, int g, int64_t first, int count,
                           plsh_pair_weights weights) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    plsh_tile_run run = {.g = g,
                         .first = first,
                         .count = count,
                         .v = plsh_tile_values(tile, first, count),
                         .masked = true,
                         .rows = plsh_tile_group_rows(tile, g)};
    plsh_tile_score_plain(tile, g, first, count, scores_of(b, g, first));
    tile->pairs += (int64_t)run.rows * count;
    differentiate(b, &run, (weighing){PLSH_WEIGH_MASKED, weights, b->rows.log2_lse + lane});
}

/* One of the two products of add_keys: out[key][x] += sum over queries of a[key][query]
 * b[query][x], x < d. */
typedef struct key_product {
    plsh_matrix out; /* the user's, from the first key of the sequence on */
    const float *a;  /* P or dS of the first key and query */
    plsh_const_matrix b;
    int queries, d;
} key_product;

/* Gathered keys are not contiguous in `out`: their sums are computed apart and added one by one. */
static void add_product(plsh_backward_tile *b, const key_product *p, int key, int count) {
    const plsh_tile *tile = &b->tile;
    const plsh_kernels *kernel = tile->kernel;
    const plsh_const_matrix a = {p->a, (ptrdiff_t)PLSH_TILE_KEYS * kernel->group};
    if (!b->scattered) {
        float *to = p->out.data + (tile->step.first + key) * p->out.stride;
        kernel->key_gradient((plsh_matrix){to, p->out.stride}, a, p->b, count, p->queries, p->d);
        return;
    }
    memset(b->scratch.gathered, 0, sizeof(float) * (size_t)(count * p->d));
    kernel->key_gradient((plsh_matrix){b->scratch.gathered, p->d}, a, p->b, count, p->queries,
                         p->d);
    for (int j = 0; j < count; j++) {
        float *to = p->out.data + tile->step.gathered[key + j] * p->out.stride;
        for (int x = 0; x < p->d; x++) to[x] += b->scratch.gathered[(ptrdiff_t)j * p->d + x];
    }
}

/* dK and dV of `count` keys from key `key` of the step, from the groups g .. end - 1. */
static void add_keys(plsh_backward_tile *b, int g, int end, int key, int count) {
    const plsh_tile *tile = &b->tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, first = g * group;
    int queries = end * group < tile->at.rows ? end * group - first : tile->at.rows - first;
    ptrdiff_t from = (ptrdiff_t)first * PLSH_TILE_KEYS + (ptrdiff_t)key * group;
    if (b->arrays.d_v) {
        const plsh_const_matrix d_o = b->rows.d_o;
        const key_product product = {.out = {b->arrays.d_v, shape->v.row_stride},
                                     .a = b->step.p + from,
                                     .b = {d_o.data + first * d_o.stride, d_o.stride},
                                     .queries = queries,
                                     .d = (int)shape->value_dim};
        add_product(b, &product, key, count);
    }
    if (b->arrays.d_k) {
        const key_product product = {
            .out = {b->arrays.d_k, shape->k.row_stride},
            .a = b->step.ds + from,
            .b = {b->rows.q.data + first * b->rows.q.stride, b->rows.q.stride},
            .queries = queries,
            .d = (int)shape->head_dim};
        add_product(b, &product, key, count);
    }
}

/* The keys of the step that were visited by the same groups go together. */
static void add_step(plsh_backward_tile *b) {
    const uint32_t *visited = b->step.visited;
    for (int key = 0, count; key < b->tile.step.count; key += count) {
        count = 1;
        while (key + count < b->tile.step.count && visited[key + count] == visited[key]) count++;
        for (int g = 0, end; g < b->tile.at.groups; g = end) {
            end = g + 1;
            if (!(visited[key] >> g & 1)) continue;
            while (end < b->tile.at.groups && (visited[key] >> end & 1)) end++;
            add_keys(b, g, end, key, count);
        }
    }
}

static void step(plsh_tile *tile, int64_t left, int64_t right) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    int begin = 0, end = tile->step.count;
    while (begin < end && !b->step.visited[begin]) begin++;
    while (end > begin && !b->step.visited[end - 1]) end--;
    if (begin < end && (b->arrays.d_k || b->arrays.d_v || b->points.key)) {
        plsh_turns_wait(b->turns, &b->turn, b->scattered ? 0 : tile->step.first + begin,
                        b->scattered ? tile->at.keys : tile->step.first + end);
        add_step(b);
        if (b->points.key) plsh_backward_points_end_step(b);
    }
    if (!b->revisits) plsh_turns_pass(b->turns, &b->turn, left, right);
    memset(b->step.visited, 0, sizeof(b->step.visited));
    b->step.sloped = false;
}

enum { CENTRE_KEYS = 16 };

/* The mean of some keys that group g may see, or that precede it: the last ones up to its first
 * query. Keys that are not finite do not count. */
static void find_centre(plsh_backward_tile *b, int g) {
    const plsh_tile *tile = &b->tile;
    const plsh_attention *shape = &tile->plan->shape;
    int d = (int)shape->head_dim, count = 0;
    int64_t last = plsh_tile_group_begin(tile, g), first;
    if (last >= tile->at.keys) last = tile->at.keys - 1;
    first = last - CENTRE_KEYS + 1;
    memset(b->scratch.centre, 0, sizeof(float) * (size_t)d);
    for (int64_t i = first < 0 ? 0 : first; i <= last; i++) {
        const plsh_stored_rows k = {plsh_row_source_at(&tile->arrays.k, i), shape->dtype, d};
        if (!tile->kernel->all_finite(k, 1, d)) continue;
        tile->kernel->widen((plsh_matrix){b->scratch.k_row, d}, k, 1, d);
        for (int x = 0; x < d; x++) b->scratch.centre[x] += b->scratch.k_row[x];
        count++;
    }
    for (int x = 0; x < d && count > 0; x++) b->scratch.centre[x] /= (float)count;
}

/* The dS of a row sum to 0, so dQ = sum of dS (K - c) for any c. Rounding makes the sum of dS not
 * exactly 0. Without this correction its error times the common part c of the keys would be added
 * to dQ, and c may be large where dQ is small. */
static void correct_rounding(plsh_backward_tile *b, int g, int rows) {
    int group = b->tile.kernel->group, d = (int)b->tile.plan->shape.head_dim;
    find_centre(b, g);
    for (int r = g * group; r < g * group + rows; r++) {
        float *row = b->sums.q + (ptrdiff_t)r * plsh_kernels_columns(d),
              residue = b->sums.residue[r];
        for (int x = 0; x < d; x++) row[x] -= residue * b->scratch.centre[x];
    }
}

/* dQ of `rows` rows of the tile from `first` on. */
static void write_query_gradients(plsh_backward_tile *b, ptrdiff_t first, int rows) {
    const plsh_attention *shape = &b->tile.plan->shape;
    const int d = (int)shape->head_dim, columns = plsh_kernels_columns(d);
    const float *sum = b->sums.q + first * columns;
    if (!b->tile.at.query_order) {
        const plsh_matrix out = {b->arrays.d_q + first * shape->q.row_stride, shape->q.row_stride};
        b->tile.kernel->finish(out, sum, b->scratch.one, rows, d);
        return;
    }
    for (int r = 0; r < rows; r++)
        memcpy(b->arrays.d_q + b->tile.at.query_order[first + r] * shape->q.row_stride,
               sum + (ptrdiff_t)r * columns, sizeof(float) * (size_t)d);
}

static void finish(plsh_tile *tile) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, d = (int)shape->head_dim;
    for (int g = 0; b->arrays.d_q && g < tile->at.groups; g++) {
        int rows = plsh_tile_group_rows(tile, g);
        ptrdiff_t first = (ptrdiff_t)g * group;
        plsh_stretches_end(&b->sums.stretches, g, b->sums.q + first * plsh_kernels_columns(d),
                           NULL);
        if (!b->arrays.some_keys) correct_rounding(b, g, rows);
        write_query_gradients(b, first, rows);
    }
    if (b->points.key) plsh_backward_points_finish(b);
    for (int i = 0; i < 2; i++) b->sums.d_decay[i] /= shape->scale;
}

const plsh_tile_pass plsh_backward_pass = {.begin = begin,
                                           .visit = visit,
                                           .visit_weighted = visit_weighted,
                                           .step = step,
                                           .finish = finish};
