/* attention: one tile of queries on its way back. */
#include "attention/backward/backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(PLSH_TILE_QUERIES <= 32 * 4, "a bit per group of at least four queries");

void plsh_backward_layout(plsh_backward_tile *tile, const plsh_plan *plan, plsh_arena *arena) {
    plsh_tile_layout(&tile->tile, plan, arena);
    plsh_sampled_layout(&tile->sampled, plan, arena);
    tile->tile.sampled = &tile->sampled;
    size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    size_t group = (size_t)plan->kernel->group, rows = PLSH_TILE_QUERIES;
    bool halves = plan->shape.dtype != PLSH_DTYPE_FLOAT32;
    tile->packed_o = plsh_arena_floats(arena, group * dv);
    tile->packed_do = plsh_arena_floats(arena, rows * dv);
    tile->sum_q = plsh_arena_floats(arena, rows * (size_t)plsh_kernels_columns((int)d));
    plsh_stretches_layout(&tile->q_stretches, plan, plsh_kernels_columns((int)d), arena);
    tile->p = plsh_arena_floats(arena, rows * PLSH_TILE_KEYS);
    tile->ds = plsh_arena_floats(arena, rows * PLSH_TILE_KEYS);
    tile->log2_lse = plsh_arena_floats(arena, rows);
    tile->lse_low = plsh_arena_floats(arena, rows);
    tile->residue = plsh_arena_floats(arena, rows);
    tile->delta = plsh_arena_floats(arena, rows);
    tile->one = plsh_arena_floats(arena, group);
    tile->rest = plsh_arena_floats(arena, group);
    tile->k_row = plsh_arena_floats(arena, d);
    tile->centre = plsh_arena_floats(arena, d);
    tile->q_wide = plsh_arena_floats(arena, halves ? rows * d : 0);
    for (int i = 0; i < 2; i++) {
        tile->slope[i] = plsh_arena_floats(arena, rows + PLSH_TILE_KEYS);
    }
    bool gathers = false;
    for (int64_t h = 0; h < plan->shape.heads; h++) gathers |= plan->head[h].gathering != NULL;
    tile->gathered = plsh_arena_floats(arena, gathers ? PLSH_TILE_KEYS * (d > dv ? d : dv) : 0);
}

/* Are dP and dS asked for, or P alone? */
static bool needs_ds(const plsh_backward_tile *b) { return b->d_q || b->d_k || b->learns; }

static void pack_gradient(plsh_backward_tile *b, int g) {
    const plsh_attention *shape = &b->tile.plan->shape;
    int group = b->tile.kernel->group, dv = (int)shape->value_dim;
    ptrdiff_t first = (ptrdiff_t)g * group, stride = shape->o.row_stride;
    const plsh_stored_rows from = {b->d_o + first * stride, PLSH_DTYPE_FLOAT32, stride};
    b->tile.kernel->pack(b->packed_do + first * dv, from, plsh_tile_group_rows(&b->tile, g), dv,
                         (float)shape->scale);
}

void plsh_backward_set_delta(plsh_backward_tile *b, int g, const float *o, ptrdiff_t stride) {
    const plsh_kernels *kernel = b->tile.kernel;
    int group = kernel->group, dv = (int)b->tile.plan->shape.value_dim;
    if (!needs_ds(b)) return;
    kernel->pack(b->packed_o, (plsh_stored_rows){o, PLSH_DTYPE_FLOAT32, stride},
                 plsh_tile_group_rows(&b->tile, g), dv, 1.0f);
    kernel->dots(b->delta + g * group, b->packed_do + (ptrdiff_t)g * group * dv, b->packed_o, dv);
}

void plsh_backward_set_lse(plsh_backward_tile *b, int r, double log2_lse) {
    bool seen = r < b->tile.rows && log2_lse != -INFINITY;
    b->log2_lse[r] = seen ? (float)log2_lse : INFINITY;
    b->lse_low[r] = seen ? (float)(log2_lse - (double)b->log2_lse[r]) : 0.0f;
}

static void load_queries(plsh_backward_tile *b) {
    const plsh_attention *shape = &b->tile.plan->shape;
    int d = (int)shape->head_dim;
    if (shape->dtype == PLSH_DTYPE_FLOAT32) {
        b->q = (plsh_const_matrix){(const float *)(const void *)b->tile.q, shape->q.row_stride};
        return;
    }
    const plsh_stored_rows from = {b->tile.q, shape->dtype, shape->q.row_stride};
    b->tile.kernel->widen((plsh_matrix){b->q_wide, d}, from, b->tile.rows, d);
    b->q = (plsh_const_matrix){b->q_wide, d};
}

static void begin(plsh_tile *tile) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, columns = plsh_kernels_columns((int)shape->head_dim);
    plsh_tile_pack(tile);
    load_queries(b);
    for (int r = 0; r < tile->groups * group; r++) {
        plsh_backward_set_lse(b, r, r < tile->rows ? (double)b->lse[r] * 1.4426950408889634 : 0.0);
    }
    for (int g = 0; g < tile->groups; g++) {
        pack_gradient(b, g);
        plsh_backward_set_delta(b, g, b->o + g * group * shape->o.row_stride, shape->o.row_stride);
    }
    for (int r = 0; r < group; r++) b->one[r] = 1.0f;
    memset(b->sum_q, 0, sizeof(float) * (size_t)(tile->groups * group * columns));
    plsh_stretches_begin(&b->q_stretches);
    memset(b->visited, 0, sizeof(b->visited));
    b->sloped = b->scattered = b->returns = false;
    for (int r = 0; r < tile->groups * group; r++) {
        tile->m[r] = PLSH_SOFTMAX_START;
        tile->l[r] = tile->l_low[r] = 0.0f;
        b->residue[r] = 0.0f;
    }
    b->d_decay[0] = b->d_decay[1] = 0.0;
}

/* The derivatives of the step's log k, an entry per difference of positions as the bias has. */
static void fill_slopes(plsh_backward_tile *b) {
    const plsh_tile *tile = &b->tile;
    const plsh_decay *decay = &tile->head->head.partition.decay;
    int count = tile->groups * tile->kernel->group + tile->count - 1;
    int64_t t0 = tile->position - (tile->first + tile->count - 1);
    for (int i = 0; i < count; i++) {
        int64_t t = t0 + i;
        double slope[2];
        plsh_decay_log_gradient(decay, t < 0 ? -t : t, slope);
        b->slope[0][i] = (float)slope[0];
        b->slope[1][i] = (float)slope[1];
    }
    b->sloped = true;
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
            plsh_decay_log_gradient(&tile->head->head.partition.decay, llabs(begin + r - key),
                                    slope);
            b->d_decay[0] += (double)x * slope[0];
            b->d_decay[1] += (double)x * slope[1];
        }
    }
}

static void add_slopes(plsh_backward_tile *b, int g, int64_t first, int count, const float *ds) {
    const plsh_tile *tile = &b->tile;
    if (b->scattered) {
        add_scattered_slopes(b, g, count, ds);
        return;
    }
    if (!b->sloped) fill_slopes(b);
    ptrdiff_t at = tile->count - 1 - (first - tile->first) + (ptrdiff_t)g * tile->kernel->group;
    for (int i = 0; i < 2; i++) {
        b->d_decay[i] += tile->kernel->correlate(ds, b->slope[i] + at, count);
    }
}

/* `exact` decides by the sums of the forward pass, so it runs the softmax as that did; what is left
 * of P is 2^(m - lse). */
static void find_rest(plsh_backward_tile *b, int g) {
    int group = b->tile.kernel->group;
    ptrdiff_t at = (ptrdiff_t)g * group;
    for (int r = 0; r < group; r++) {
        b->rest[r] = exp2f((b->tile.m[at + r] - b->log2_lse[at + r]) - b->lse_low[at + r]);
    }
}

/* Z of dropout for group g and some keys, in the place of a forward pass' scores; NULL without. */
static const float *find_drop(plsh_tile *tile, int g, int64_t first, int count) {
    if (tile->drop.below == 0) return NULL;
    for (int i = 0; i < count * tile->kernel->group; i++) tile->s[i] = 1.0f;
    plsh_tile_drop(tile, g, first, count, tile->s);
    return tile->s;
}

static void multiply(float *to, const float *by, int count) {
    for (int i = 0; by && i < count; i++) to[i] *= by[i];
}

static float *scores_of(const plsh_backward_tile *b, int g, int64_t first) {
    int group = b->tile.kernel->group;
    return b->p + ((ptrdiff_t)g * PLSH_TILE_KEYS + (first - b->tile.first)) * group;
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
    const plsh_stored_rows keys = {run->k.row, PLSH_DTYPE_FLOAT32, run->k.stride};
    bool plain = !run->masked || kernel->all_finite(keys, run->k.count, run->k.dim);
    float *sum = b->sum_q + (ptrdiff_t)run->g * kernel->group * plsh_kernels_columns(run->k.dim);
    (plain ? kernel->accumulate : kernel->accumulate_masked)(
        (plsh_accumulator){sum, b->one, run->rows}, ds, run->k, run->masked, NULL);
    plsh_stretches_step(&b->q_stretches, run->g, sum, NULL);
}

/* The backward pass of one run, whose scores are in b->p: P and dS, and everything but dK and dV.
 */
static void differentiate(plsh_backward_tile *b, const plsh_tile_run *run, weighing w) {
    plsh_tile *tile = &b->tile;
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, g = run->g, count = run->k.count;
    const ptrdiff_t lane = (ptrdiff_t)g * group, key = run->first - tile->first;
    float *p = scores_of(b, g, run->first);
    float *ds = needs_ds(b) ? b->ds + (p - b->p) : NULL;
    const float *z = find_drop(tile, g, run->first, count);
    if (ds) {
        kernel->scores(ds, tile->top, b->packed_do + lane * run->v.dim, run->v,
                       (plsh_score_bias){0});
        multiply(ds, z, count * group);
    }
    kernel->gradient(
        p, ds, count, w.how, w.weights,
        (plsh_gradient_rows){w.lse, b->lse_low + lane, b->delta + lane, b->residue + lane});
    multiply(p, z, count * group); /* for dV */
    if (b->d_q) add_query_gradient(b, run, ds);
    if (b->learns) add_slopes(b, g, run->first, count, ds);
    for (int j = 0; j < count; j++) b->visited[key + j] |= UINT32_C(1) << g;
}

static void visit(plsh_tile *tile, int g, int64_t first, int count) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    float *p = scores_of(b, g, first);
    plsh_tile_run run = plsh_tile_score(tile, g, first, count, p);
    if (tile->head->head.method != PLSH_METHOD_EXACT) {
        const float *lse = b->log2_lse + (ptrdiff_t)g * tile->kernel->group;
        differentiate(b, &run, (weighing){.how = PLSH_WEIGH_PLAIN, .lse = lse});
        return;
    }
    if (!plsh_tile_weigh(tile, g, first, count, p)) return;
    find_rest(b, g);
    differentiate(b, &run, (weighing){.how = PLSH_WEIGH_READY, .lse = b->rest});
}

static void visit_weighted(plsh_tile *tile, int g, int64_t first, int count,
                           plsh_pair_weights weights) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    plsh_tile_run run = {.g = g,
                         .first = first,
                         .k = plsh_tile_keys(tile, first, count),
                         .v = plsh_tile_values(tile, first, count),
                         .masked = true,
                         .rows = plsh_tile_group_rows(tile, g)};
    tile->kernel->scores(scores_of(b, g, first), tile->top, tile->packed + lane * run.k.dim, run.k,
                         (plsh_score_bias){0});
    tile->pairs += (int64_t)run.rows * count;
    differentiate(b, &run, (weighing){PLSH_WEIGH_MASKED, weights, b->log2_lse + lane});
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
        float *to = p->out.data + (tile->first + key) * p->out.stride;
        kernel->spread((plsh_matrix){to, p->out.stride}, a, p->b, count, p->queries, p->d);
        return;
    }
    memset(b->gathered, 0, sizeof(float) * (size_t)(count * p->d));
    kernel->spread((plsh_matrix){b->gathered, p->d}, a, p->b, count, p->queries, p->d);
    for (int j = 0; j < count; j++) {
        float *to = p->out.data + tile->sampled->key_gathered[key + j] * p->out.stride;
        for (int x = 0; x < p->d; x++) to[x] += b->gathered[(ptrdiff_t)j * p->d + x];
    }
}

/* dK and dV of `count` keys from key `key` of the step, from the groups g .. end - 1. */
static void add_keys(plsh_backward_tile *b, int g, int end, int key, int count) {
    const plsh_tile *tile = &b->tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, first = g * group;
    int queries = end * group < tile->rows ? end * group - first : tile->rows - first;
    ptrdiff_t from = (ptrdiff_t)first * PLSH_TILE_KEYS + (ptrdiff_t)key * group;
    if (b->d_v) {
        const ptrdiff_t stride = shape->o.row_stride;
        const key_product product = {.out = {b->d_v, shape->v.row_stride},
                                     .a = b->p + from,
                                     .b = {b->d_o + first * stride, stride},
                                     .queries = queries,
                                     .d = (int)shape->value_dim};
        add_product(b, &product, key, count);
    }
    if (b->d_k) {
        const key_product product = {.out = {b->d_k, shape->k.row_stride},
                                     .a = b->ds + from,
                                     .b = {b->q.data + first * b->q.stride, b->q.stride},
                                     .queries = queries,
                                     .d = (int)shape->head_dim};
        add_product(b, &product, key, count);
    }
}

/* The keys of the step that were visited by the same groups go together. */
static void add_step(plsh_backward_tile *b) {
    const uint32_t *visited = b->visited;
    for (int key = 0, count; key < b->tile.count; key += count) {
        count = 1;
        while (key + count < b->tile.count && visited[key + count] == visited[key]) count++;
        for (int g = 0, end; g < b->tile.groups; g = end) {
            end = g + 1;
            if (!(visited[key] >> g & 1)) continue;
            while (end < b->tile.groups && (visited[key] >> end & 1)) end++;
            add_keys(b, g, end, key, count);
        }
    }
}

static void step(plsh_tile *tile, int64_t left, int64_t right) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    int begin = 0, end = tile->count;
    while (begin < end && !b->visited[begin]) begin++;
    while (end > begin && !b->visited[end - 1]) end--;
    if (begin < end && (b->d_k || b->d_v)) {
        plsh_turns_wait(b->turns, &b->turn, b->scattered ? 0 : tile->first + begin,
                        b->scattered ? tile->keys : tile->first + end);
        add_step(b);
    }
    if (!b->returns) plsh_turns_pass(b->turns, &b->turn, left, right);
    memset(b->visited, 0, sizeof(b->visited));
    b->sloped = false;
}

enum { CENTRE_KEYS = 16 };

/* The mean of some keys that group g may see, or at least precede it: the last ones up to its first
 * query's own. Keys that are not finite do not count. */
static void find_centre(plsh_backward_tile *b, int g) {
    const plsh_tile *tile = &b->tile;
    const plsh_attention *shape = &tile->plan->shape;
    int d = (int)shape->head_dim, count = 0;
    int64_t last = plsh_tile_group_begin(tile, g), first;
    if (last >= tile->keys) last = tile->keys - 1;
    first = last - CENTRE_KEYS + 1;
    memset(b->centre, 0, sizeof(float) * (size_t)d);
    for (int64_t i = first < 0 ? 0 : first; i <= last; i++) {
        const plsh_stored_rows k = {plsh_row_source_at(&tile->k, i), shape->dtype, d};
        if (!tile->kernel->all_finite(k, 1, d)) continue;
        tile->kernel->widen((plsh_matrix){b->k_row, d}, k, 1, d);
        for (int x = 0; x < d; x++) b->centre[x] += b->k_row[x];
        count++;
    }
    for (int x = 0; x < d && count > 0; x++) b->centre[x] /= (float)count;
}

/* The dS of a row sum to 0, so dQ = sum of dS (K - c) for any c. With what rounding leaves of that
 * sum, the keys' common part c would otherwise enter, which need not be small where dQ is. */
static void settle(plsh_backward_tile *b, int g, int rows) {
    int group = b->tile.kernel->group, d = (int)b->tile.plan->shape.head_dim;
    find_centre(b, g);
    for (int r = g * group; r < g * group + rows; r++) {
        float *row = b->sum_q + (ptrdiff_t)r * plsh_kernels_columns(d), residue = b->residue[r];
        for (int x = 0; x < d; x++) row[x] -= residue * b->centre[x];
    }
}

static void finish(plsh_tile *tile) {
    plsh_backward_tile *b = (plsh_backward_tile *)tile;
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, d = (int)shape->head_dim;
    for (int g = 0; b->d_q && g < tile->groups; g++) {
        int rows = plsh_tile_group_rows(tile, g);
        ptrdiff_t first = (ptrdiff_t)g * group;
        plsh_stretches_end(&b->q_stretches, g, b->sum_q + first * plsh_kernels_columns(d), NULL);
        if (!b->some_keys) settle(b, g, rows);
        const plsh_matrix out = {b->d_q + first * shape->q.row_stride, shape->q.row_stride};
        tile->kernel->finish(out, b->sum_q + first * plsh_kernels_columns(d), b->one, rows, d);
    }
    for (int i = 0; i < 2; i++) b->d_decay[i] /= shape->scale;
}

const plsh_tile_pass plsh_backward_pass = {.begin = begin,
                                           .visit = visit,
                                           .visit_weighted = visit_weighted,
                                           .step = step,
                                           .finish = finish};
