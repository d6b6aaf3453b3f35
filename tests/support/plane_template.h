/* tests: attention with positions that are points, pair by pair, in the arithmetic of REAL. The
 * including file defines REAL, NAME(x), and what plane_oracle.h declares. */

static REAL NAME(distance)(const float *x, const float *y, int dim) {
    REAL sum = 0;
    for (int i = 0; i < dim; i++) {
        if (isnan(x[i]) || isnan(y[i])) return 0;
        const REAL d = (REAL)x[i] - (REAL)y[i];
        sum += d * d;
    }
    return (REAL)sqrt((double)sum);
}

/* What one row needs of its sequence: the points and the rows of its keys. */
typedef struct NAME(row) {
    const plane_case *c;
    const float *q, *k, *v, *x, *y;
    int64_t h, query, key, seen; /* query, key: numbers of the rows, for dropout */
} NAME(row);

/* Does the pair count, and how much is added to its score? */
static bool NAME(bias)(const NAME(row) * w, int64_t j, REAL *bias) {
    const plsh_head *head = &w->c->head[w->h];
    const int dim = w->c->a->positions.dim;
    const REAL r = NAME(distance)(w->x, w->y + j * dim, dim);
    *bias = 0;
    if (head->method == PLSH_METHOD_NONE) return true;
    if (w->c->weights) {
        const plsh_attention *a = w->c->a;
        const int64_t row = w->h * a->queries + w->query;
        *bias = (REAL)log(w->c->weights[row * a->keys + w->key + j]);
        return *bias != (REAL)-INFINITY;
    }
    if (head->method == PLSH_METHOD_WINDOW && !((double)r < head->radius)) return false;
    *bias = (REAL)plsh_decay_log_at(&head->partition.decay, (double)r);
    return *bias != (REAL)-INFINITY;
}

static REAL NAME(scale)(const plsh_attention *a) {
    return (REAL)(a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim));
}

/* p[j] = the weights of the row, 0 where masked; returns its lse. */
static REAL NAME(weights)(const NAME(row) * w, REAL *p) {
    const int64_t d = w->c->a->head_dim;
    REAL top = (REAL)-INFINITY, sum = 0, bias;
    for (int64_t j = 0; j < w->seen; j++) {
        REAL dot = 0;
        for (int64_t x = 0; x < d; x++) dot += (REAL)w->q[x] * (REAL)w->k[j * d + x];
        p[j] = NAME(bias)(w, j, &bias) ? dot * NAME(scale)(w->c->a) + bias : (REAL)-INFINITY;
        if (p[j] > top) top = p[j];
    }
    for (int64_t j = 0; j < w->seen; j++) {
        p[j] = top > (REAL)-INFINITY ? (REAL)exp((double)(p[j] - top)) : 0;
        sum += p[j];
    }
    for (int64_t j = 0; j < w->seen; j++) p[j] = sum > 0 ? p[j] / sum : 0;
    return top + (REAL)log((double)sum);
}

/* The gradient by the two points of a pair whose dS is ds, and by the decay. */
static void NAME(add_position)(const NAME(row) * w, int64_t j, REAL ds, REAL *d_x, REAL *d_y,
                               double *d_decay) {
    const plsh_head *head = &w->c->head[w->h];
    const int dim = w->c->a->positions.dim;
    const float *y = w->y + j * dim;
    const REAL r = NAME(distance)(w->x, y, dim);
    double slope[2];
    if (head->method == PLSH_METHOD_NONE) return;
    plsh_decay_log_gradient_at(&head->partition.decay, (double)r, slope);
    for (int i = 0; i < 2; i++) d_decay[i] += (double)ds * slope[i];
    for (int i = 0; i < dim; i++)
        if (isnan(w->x[i]) || isnan(y[i])) return;
    const REAL by = ds * (REAL)plsh_decay_log_slope_at(&head->partition.decay, (double)r);
    for (int i = 0; i < dim; i++) {
        REAL to = r > 0 ? ((REAL)w->x[i] - (REAL)y[i]) / r : 0;
        if (r == 0 && dim == 1 && w->c->a->causal) to = 1;
        d_x[i] += by * to;
        d_y[j * dim + i] -= by * to;
    }
}

static void NAME(attend_row)(const NAME(row) * w, const float *d_o, REAL *p,
                             NAME(plane_result) at) {
    const plsh_attention *a = w->c->a;
    const int64_t d = a->head_dim, dv = a->value_dim ? a->value_dim : d;
    const REAL scale = NAME(scale)(a);
    REAL delta = 0;
    *at.lse = NAME(weights)(w, p);
    for (int64_t c = 0; c < dv; c++) at.o[c] = 0;
    for (int64_t j = 0; j < w->seen; j++) {
        const REAL z =
            w->c->dropout.p > 0 ? (REAL)oracle_drop(&w->c->dropout, w->h, w->query, w->key + j) : 1;
        for (int64_t c = 0; c < dv; c++) at.o[c] += z * p[j] * (REAL)w->v[j * dv + c];
    }
    for (int64_t c = 0; c < dv; c++) delta += at.o[c] * (REAL)d_o[c];
    for (int64_t j = 0; j < w->seen; j++) {
        const REAL z =
            w->c->dropout.p > 0 ? (REAL)oracle_drop(&w->c->dropout, w->h, w->query, w->key + j) : 1;
        REAL dp = 0;
        if (p[j] == 0) continue;
        for (int64_t c = 0; c < dv; c++) {
            dp += (REAL)d_o[c] * (REAL)w->v[j * dv + c];
            at.d_v[j * dv + c] += z * p[j] * (REAL)d_o[c];
        }
        const REAL ds = p[j] * (z * dp - delta);
        for (int64_t x = 0; x < d; x++) {
            at.d_q[x] += ds * scale * (REAL)w->k[j * d + x];
            at.d_k[j * d + x] += ds * scale * (REAL)w->q[x];
        }
        NAME(add_position)(w, j, ds, at.d_x, at.d_y, at.d_decay);
    }
}

static NAME(plane_result) NAME(allocate)(const plsh_attention *a) {
    const int64_t kv = a->kv_heads ? a->kv_heads : a->heads, d = a->head_dim;
    const int64_t dv = a->value_dim ? a->value_dim : d, dim = a->positions.dim;
    const size_t rows = (size_t)(a->heads * a->queries), keys = (size_t)(kv * a->keys);
    const size_t size = sizeof(REAL);
    NAME(plane_result)
    r = {.o = calloc(rows * (size_t)dv + 1, size),
         .lse = calloc(rows + 1, size),
         .d_q = calloc(rows * (size_t)d + 1, size),
         .d_k = calloc(keys * (size_t)d + 1, size),
         .d_v = calloc(keys * (size_t)dv + 1, size)};
    r.d_x = calloc((size_t)(a->positions.sets * a->queries * dim) + 1, size);
    r.d_y = calloc((size_t)(a->positions.sets * a->keys * dim) + 1, size);
    r.d_decay = calloc((size_t)a->heads, 2 * sizeof(double));
    return r;
}

NAME(plane_result)
NAME(plane_attend)
(const plane_case *c, const float *q, const float *k, const float *v, const float *d_o) {
    const plsh_attention *a = c->a;
    const int64_t whole_q[] = {0, a->queries}, whole_k[] = {0, a->keys};
    const int64_t *q_at = a->sequences ? a->query_offsets : whole_q;
    const int64_t *k_at = a->sequences ? a->key_offsets : whole_k;
    const int64_t d = a->head_dim, dv = a->value_dim ? a->value_dim : d, dim = a->positions.dim;
    NAME(plane_result) r = NAME(allocate)(a);
    REAL *p = malloc(((size_t)a->keys + 1) * sizeof *p);
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t kv = h / (a->heads / (a->kv_heads ? a->kv_heads : a->heads));
        const int64_t set = a->positions.sets == 1 ? 0 : h;
        for (int64_t x = 0; x < (a->sequences ? a->sequences : 1); x++) {
            const int64_t keys = k_at[x + 1] - k_at[x], queries = q_at[x + 1] - q_at[x];
            const int64_t key = kv * a->keys + k_at[x], point = set * a->keys + k_at[x];
            for (int64_t i = 0; i < queries; i++) {
                const int64_t at = q_at[x] + i, row = h * a->queries + at;
                const float *here = a->positions.query
                                        ? a->positions.query + (set * a->queries + at) * dim
                                        : a->positions.key + (point + keys - queries + i) * dim;
                const NAME(row) w = {.c = c,
                                     .q = q + row * d,
                                     .k = k + key * d,
                                     .v = v + key * dv,
                                     .x = here,
                                     .y = a->positions.key + point * dim,
                                     .h = h,
                                     .query = at,
                                     .key = k_at[x],
                                     .seen = a->causal ? keys - queries + i + 1 : keys};
                NAME(attend_row)
                (&w, d_o + row * dv, p,
                 (NAME(plane_result)){.o = r.o + row * dv,
                                      .lse = r.lse + row,
                                      .d_q = r.d_q + row * d,
                                      .d_k = r.d_k + key * d,
                                      .d_v = r.d_v + key * dv,
                                      .d_x = r.d_x + (set * a->queries + at) * dim,
                                      .d_y = r.d_y + point * dim,
                                      .d_decay = r.d_decay + 2 * h});
            }
        }
    }
    free(p);
    return r;
}

void NAME(plane_free)(NAME(plane_result) * r) {
    REAL *arrays[] = {r->o, r->lse, r->d_q, r->d_k, r->d_v, r->d_x, r->d_y};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(r->d_decay);
}
