/* tests: configurations of a decoding cache, their data, and the definition in double. */
#include "support/support.h"

#include "support/cache_cases.h"

#include "base/dtype.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The cases ------------------------------------------------------------------------------- */

#define ALIBI(sigma)                                                                               \
    { .kind = PLSH_DECAY_ALIBI, .a = (sigma) }
#define SET(sch, des, dec, s, hd)                                                                  \
    { .scheme = (sch), .design = (des), .decay = dec, .samples = (s), .seed = 5, .head = (hd) }

static const double bumpy[] = {1, 0.2, 0.9, 0.5, 0, 0.3, 0.1};
static const double ending[] = {1, 0.2, 0, 0.9, 0.5, 0.3, 0, 0, 0};
static int32_t labels[3 * 333]; /* filled by test_config */

static const plsh_head exact_methods[] = {
    {.method = PLSH_METHOD_DENSE, .partition = {.decay = ALIBI(8)}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = ALIBI(8)}},
    {.method = PLSH_METHOD_WINDOW, .partition = {.decay = ALIBI(30)}, .window = 77},
    {.method = PLSH_METHOD_FIXED, .block = 50},
    {.method = PLSH_METHOD_NONE},
    {.method = PLSH_METHOD_AUTO, .partition = {.decay = ALIBI(64)}},
};

static const plsh_head sampled_methods[] = {
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_STRATIFIED, ALIBI(16), 20, 0)},
    {.method = PLSH_METHOD_MASKS,
     .partition = SET(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, ALIBI(5), 9, 1)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_CUTS, PLSH_DESIGN_STRATIFIED, ALIBI(12), 7, 2)},
    {.method = PLSH_METHOD_MEAN,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_IID, ALIBI(10), 6, 3)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_BINNING, PLSH_DESIGN_STRATIFIED, ALIBI(0.4), 64, 4)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_GOLDEN, ALIBI(40), 200, 5)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_GOLDEN_SHIFTED, ALIBI(14), 30, 6)},
    {.method = PLSH_METHOD_MASKS,
     .partition = SET(PLSH_SCHEME_BINNING, PLSH_DESIGN_TOEPLITZ, ALIBI(3), 25, 7)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_AUTO, ALIBI(2), 40, 8)},
};

#define LOG_DECAY                                                                                  \
    { .kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.7 }
#define POWER_DECAY                                                                                \
    { .kind = PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.5 }
#define TRIANGLE_DECAY                                                                             \
    { .kind = PLSH_DECAY_TRIANGLE, .a = 37.5 }
#define BUMPY_DECAY                                                                                \
    { .kind = PLSH_DECAY_TABLE, .table = bumpy, .table_size = 7 }
#define ENDING_DECAY                                                                               \
    { .kind = PLSH_DECAY_TABLE, .table = ending, .table_size = 9 }
#define LIMIT_DECAY                                                                                \
    { .kind = PLSH_DECAY_ALIBI, .a = 4, .limit = 0.05 }

static const plsh_head decays[] = {
    {.method = PLSH_METHOD_DENSE, .partition = {.decay = LOG_DECAY}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = LOG_DECAY}, .eps = 1e-7},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = POWER_DECAY}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = TRIANGLE_DECAY}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = BUMPY_DECAY}},
    {.method = PLSH_METHOD_AUTO, .partition = {.decay = LIMIT_DECAY}},
    {.method = PLSH_METHOD_AUTO, .partition = {.decay = TRIANGLE_DECAY}},
    {.method = PLSH_METHOD_AUTO, .partition = {.decay = ENDING_DECAY}},
    {.method = PLSH_METHOD_WINDOW, .partition = {.decay = POWER_DECAY}, .window = 90},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_STRATIFIED, LOG_DECAY, 12, 0)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_IID, LIMIT_DECAY, 15, 1)},
    {.method = PLSH_METHOD_PLSH,
     .partition = SET(PLSH_SCHEME_INTEGER, PLSH_DESIGN_STRATIFIED, TRIANGLE_DECAY, 5, 2)},
    {.method = PLSH_METHOD_PLSH,
     .partition =
         {.scheme = PLSH_SCHEME_LABELS, .samples = 3, .labels = labels, .label_count = 333}},
    {.method = PLSH_METHOD_MEAN,
     .partition =
         {.scheme = PLSH_SCHEME_LABELS, .samples = 3, .labels = labels, .label_count = 333}},
};

static const plsh_head far_exact[] = {
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = ALIBI(3)}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = ALIBI(50)}},
};

const test_case test_cases[] = {
    {"exact methods", 6, 6, 16, 16, 400, PLSH_DTYPE_FLOAT32, false, false, exact_methods, 6},
    {"groups", 6, 2, 24, 40, 333, PLSH_DTYPE_FLOAT32, true, false, exact_methods, 6},
    {"one kv head", 9, 1, 5, 3, 200, PLSH_DTYPE_FLOAT32, true, false, sampled_methods, 9},
    {"sampled", 9, 9, 64, 64, 500, PLSH_DTYPE_FLOAT32, false, false, sampled_methods, 9},
    {"half", 6, 3, 33, 80, 300, PLSH_DTYPE_FLOAT16, false, false, exact_methods, 6},
    {"half as such", 9, 3, 48, 128, 300, PLSH_DTYPE_FLOAT16, true, true, sampled_methods, 9},
    {"bfloat", 6, 2, 20, 17, 300, PLSH_DTYPE_BFLOAT16, false, false, sampled_methods, 6},
    {"bfloat as such", 6, 6, 16, 8, 300, PLSH_DTYPE_BFLOAT16, false, true, exact_methods, 6},
    {"decays", 14, 7, 16, 16, 333, PLSH_DTYPE_FLOAT32, false, false, decays, 14},
    {"long", 2, 1, 16, 16, 3000, PLSH_DTYPE_FLOAT32, false, false, far_exact, 2},
    {"one head for all", 5, 5, 1, 1, 150, PLSH_DTYPE_FLOAT32, false, false, sampled_methods, 1},
    {.name = NULL},
};

plsh_cache_config test_config(const test_case *c) {
    for (int i = 0; i < 3 * 333; i++) labels[i] = (int32_t)(test_number(99, i) * 6);
    return (plsh_cache_config){.heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .value_dim = c->value_dim,
                               .dtype = c->dtype,
                               .head = c->head,
                               .head_count = c->head_count,
                               .threads = 2};
}

/* ---- Data ------------------------------------------------------------------------------------ */

double test_number(uint64_t seed, int64_t index) {
    return plsh_random_unit(plsh_random_at((plsh_stream){seed, 0, 0}, (uint64_t)index).word[0]);
}

static float *numbers(uint64_t seed, int64_t count, double size) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)((2 * test_number(seed, i) - 1) * size);
    return x;
}

static uint16_t *rounded(const test_case *c, float *x, int64_t count) {
    uint16_t *bits = malloc((size_t)count * sizeof *bits);
    bool half = c->dtype == PLSH_DTYPE_FLOAT16;
    for (int64_t i = 0; i < count; i++) {
        bits[i] = half ? plsh_float_to_half(x[i]) : plsh_float_to_bfloat(x[i]);
        x[i] = half ? plsh_half_to_float(bits[i]) : plsh_bfloat_to_float(bits[i]);
    }
    return bits;
}

test_data test_data_make(const test_case *c, uint64_t seed) {
    int64_t n = c->length;
    test_data data = {.q = numbers(seed * 8 + 1, c->heads * n * c->head_dim, 3),
                      .k = numbers(seed * 8 + 2, c->kv_heads * n * c->head_dim, 2),
                      .v = numbers(seed * 8 + 3, c->kv_heads * n * c->value_dim, 1)};
    data.o = calloc((size_t)(c->heads * n * c->value_dim), sizeof(float));
    data.lse = calloc((size_t)(c->heads * n), sizeof(float));
    data.piece = calloc((size_t)n, sizeof(int64_t));
    data.size = calloc((size_t)n, sizeof(int64_t));
    if (c->dtype != PLSH_DTYPE_FLOAT32) { /* k and v as the cache will have them */
        data.narrow[1] = rounded(c, data.k, c->kv_heads * n * c->head_dim);
        data.narrow[2] = rounded(c, data.v, c->kv_heads * n * c->value_dim);
        if (c->narrow) data.narrow[0] = rounded(c, data.q, c->heads * n * c->head_dim);
    }
    return data;
}

void test_data_free(test_data *data) {
    free(data->q), free(data->k), free(data->v), free(data->o), free(data->lse);
    free(data->piece), free(data->size);
    for (int i = 0; i < 3; i++) free(data->narrow[i]);
}

static plsh_layout layout_of(const test_case *c, int64_t heads, int64_t dim) {
    return c->interleaved ? (plsh_layout){dim, heads * dim} : (plsh_layout){c->length * dim, dim};
}

static void copy_rows(const test_case *c, float *to, const float *from, int64_t heads, int64_t dim,
                      int64_t count) {
    plsh_layout at = layout_of(c, heads, dim);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < count; t++)
            memcpy(to + h * at.head_stride + t * at.row_stride,
                   from + h * at.head_stride + t * at.row_stride, (size_t)dim * sizeof(float));
}

void test_data_copy_prefix(const test_case *c, test_data *to, const test_data *from,
                           int64_t count) {
    copy_rows(c, to->q, from->q, c->heads, c->head_dim, count);
    copy_rows(c, to->k, from->k, c->kv_heads, c->head_dim, count);
    copy_rows(c, to->v, from->v, c->kv_heads, c->value_dim, count);
    for (int i = 0; i < 3 && c->dtype != PLSH_DTYPE_FLOAT32; i++) {
        if (to->narrow[i] == NULL) continue;
        free(to->narrow[i]);
        float *x[] = {to->q, to->k, to->v};
        int64_t dims[] = {c->heads * c->head_dim, c->kv_heads * c->head_dim,
                          c->kv_heads * c->value_dim};
        to->narrow[i] = rounded(c, x[i], dims[i] * c->length);
    }
}

plsh_tokens test_tokens(const test_case *c, test_data *data, int64_t from, int64_t count) {
    for (int64_t t = from; t < from + count; t++) data->piece[t] = from, data->size[t] = count;
    plsh_tokens tokens = {.count = count,
                          .dtype = c->narrow ? c->dtype : PLSH_DTYPE_FLOAT32,
                          .q_layout = layout_of(c, c->heads, c->head_dim),
                          .k_layout = layout_of(c, c->kv_heads, c->head_dim),
                          .v_layout = layout_of(c, c->kv_heads, c->value_dim),
                          .o_layout = layout_of(c, c->heads, c->value_dim)};
    int64_t q = from * tokens.q_layout.row_stride, k = from * tokens.k_layout.row_stride,
            v = from * tokens.v_layout.row_stride;
    tokens.q = c->narrow ? (const void *)(data->narrow[0] + q) : data->q + q;
    tokens.k = c->narrow ? (const void *)(data->narrow[1] + k) : data->k + k;
    tokens.v = c->narrow ? (const void *)(data->narrow[2] + v) : data->v + v;
    tokens.o = data->o + from * tokens.o_layout.row_stride;
    tokens.lse = data->lse + from * c->heads;
    return tokens;
}

/* ---- The definition -------------------------------------------------------------------------- */

static float lse_of(const test_case *c, const test_data *data, int64_t h, int64_t t) {
    return data->lse[data->piece[t] * c->heads + h * data->size[t] + t - data->piece[t]];
}

static const plsh_head *head_of(const test_case *c, int64_t h) {
    return &c->head[c->head_count == 1 ? 0 : h];
}

/* w[0..i]: the weights of the keys for the query at i; sample >= 0: of that draw alone. */
static void weights(const plsh_head *head, int64_t i, int64_t sample, double *w) {
    plsh_partition chosen = head->partition; /* of design auto */
    chosen.design = plsh_design_choose(&chosen);
    const plsh_partition *set = &chosen;
    bool mean = head->method == PLSH_METHOD_MEAN;
    for (int64_t j = 0; j <= i; j++) {
        switch (head->method) {
        case PLSH_METHOD_PLSH:
        case PLSH_METHOD_MASKS:
        case PLSH_METHOD_MEAN: w[j] = 0; break;
        case PLSH_METHOD_NONE: w[j] = 1; break;
        case PLSH_METHOD_FIXED: w[j] = i / head->block == j / head->block; break;
        case PLSH_METHOD_WINDOW:
            w[j] = i - j < head->window ? plsh_decay_value(&set->decay, i - j) : 0;
            break;
        default: w[j] = plsh_decay_value(&set->decay, i - j);
        }
    }
    if (head->method != PLSH_METHOD_PLSH && head->method != PLSH_METHOD_MASKS && !mean) return;
    if (set->design == PLSH_DESIGN_GOLDEN_SHIFTED) {
        for (int64_t j = 0; j <= i; j++)
            w[j] = (double)plsh_partition_count(set, i, j) / (double)set->samples;
        return;
    }
    for (int64_t m = mean ? sample : 0; m < (mean ? sample + 1 : set->samples); m++) {
        plsh_range block = {0, i + 1};
        if (set->scheme != PLSH_SCHEME_LABELS) plsh_partition_block(set, m, i, &block);
        for (int64_t j = block.begin > 0 ? block.begin : 0; j <= i; j++)
            if (set->scheme != PLSH_SCHEME_LABELS || plsh_partition_same(set, m, i, j))
                w[j] += mean ? 1 : 1 / (double)set->samples;
    }
}

/* expected[0..value_dim) += share * softmax, and the return is the sum of the weights. */
static double attend_row(const test_case *c, const test_data *data, int64_t h, int64_t i,
                         int64_t sample, double share, double *expected) {
    int64_t kv = h / (c->heads / c->kv_heads);
    plsh_layout ql = layout_of(c, c->heads, c->head_dim),
                kl = layout_of(c, c->kv_heads, c->head_dim),
                vl = layout_of(c, c->kv_heads, c->value_dim);
    const float *q = data->q + h * ql.head_stride + i * ql.row_stride;
    double total = 0, *sum = calloc((size_t)c->value_dim, sizeof(double));
    double *row = malloc((size_t)(i + 1) * sizeof(double));
    weights(head_of(c, h), i, sample, row);
    for (int64_t j = 0; j <= i; j++) {
        double w = row[j], dot = 0;
        if (w == 0) continue;
        const float *k = data->k + kv * kl.head_stride + j * kl.row_stride;
        const float *v = data->v + kv * vl.head_stride + j * vl.row_stride;
        for (int64_t x = 0; x < c->head_dim; x++) dot += (double)q[x] * (double)k[x];
        double p = w * exp(dot / sqrt((double)c->head_dim));
        total += p;
        for (int64_t x = 0; x < c->value_dim; x++) sum[x] += p * (double)v[x];
    }
    for (int64_t x = 0; x < c->value_dim; x++) expected[x] += share * sum[x] / total;
    free(sum), free(row);
    return total;
}

/* Scores reach 3 * 2 * sqrt(d): a float score errs by 2^-24 of the sum of its terms' sizes. */
static double tolerance(const test_case *c) {
    return 4 * 0x1p-24 * (3 * 2 * sqrt((double)c->head_dim) + 8);
}

/* Rows near both ends, and every 37th between. */
static int64_t next_row(const test_case *c, int64_t i) {
    return i + (i < 200 || i > c->length - 100 ? 1 : 37);
}

test_answer test_answer_make(const test_case *c, const test_data *data) {
    test_answer answer = {.o =
                              calloc((size_t)(c->heads * c->length * c->value_dim), sizeof(double)),
                          .lse = calloc((size_t)(c->heads * c->length), sizeof(double))};
    for (int64_t h = 0; h < c->heads; h++) {
        const plsh_head *head = head_of(c, h);
        int64_t draws = head->method == PLSH_METHOD_MEAN ? head->partition.samples : 1;
        for (int64_t i = 0; i < c->length; i = next_row(c, i)) {
            int64_t row = h * c->length + i;
            double total = 0;
            for (int64_t m = 0; m < draws; m++)
                total +=
                    attend_row(c, data, h, i, m, 1 / (double)draws, answer.o + row * c->value_dim) /
                    (double)draws;
            answer.lse[row] = log(total);
        }
    }
    return answer;
}

void test_answer_free(test_answer *answer) { free(answer->o), free(answer->lse); }

static void compare_row(const test_case *c, const test_data *data, const test_answer *answer,
                        int64_t h, int64_t i, const char *what) {
    plsh_layout at = layout_of(c, c->heads, c->value_dim);
    const float *o = data->o + h * at.head_stride + i * at.row_stride;
    int64_t row = h * c->length + i;
    double worst = 0, lse = fabs((double)lse_of(c, data, h, i) - answer->lse[row]);
    for (int64_t x = 0; x < c->value_dim; x++) {
        double off = fabs((double)o[x] - answer->o[row * c->value_dim + x]);
        if (!(off <= worst)) worst = off;
    }
    if (!(worst < tolerance(c)) || !(lse < tolerance(c) + 0x1p-23 * fabs(answer->lse[row])))
        fail_msg("%s, %s: head %lld (method %d), token %lld: o errs by %g, lse by %g; %g is "
                 "allowed",
                 c->name, what, (long long)h, (int)head_of(c, h)->method, (long long)i, worst, lse,
                 tolerance(c));
}

void test_compare(const test_case *c, const test_data *data, const test_answer *answer,
                  const char *what) {
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t i = 0; i < c->length; i = next_row(c, i))
            compare_row(c, data, answer, h, i, what);
}

void test_close(const test_case *c, const test_data *a, const test_data *b) {
    plsh_layout at = layout_of(c, c->heads, c->value_dim);
    for (int64_t h = 0; h < c->heads; h++) {
        for (int64_t t = 0; t < c->length; t++) {
            int64_t row = h * at.head_stride + t * at.row_stride;
            double lse = fabs((double)lse_of(c, a, h, t) - (double)lse_of(c, b, h, t)), worst = 0;
            for (int64_t x = 0; x < c->value_dim; x++) {
                double off = fabs((double)a->o[row + x] - (double)b->o[row + x]);
                if (!(off <= worst)) worst = off;
            }
            if (!(worst < 2 * tolerance(c)) || !(lse < 2 * tolerance(c) + 1e-5))
                fail_msg("%s: head %lld, token %lld: o differs by %g, lse by %g", c->name,
                         (long long)h, (long long)t, worst, lse);
        }
    }
}

void test_same(const test_case *c, const test_data *a, const test_data *b, int64_t from) {
    plsh_layout at = layout_of(c, c->heads, c->value_dim);
    for (int64_t h = 0; h < c->heads; h++) {
        for (int64_t t = from; t < c->length; t++) {
            int64_t row = h * at.head_stride + t * at.row_stride;
            float x = lse_of(c, a, h, t), y = lse_of(c, b, h, t);
            if (memcmp(a->o + row, b->o + row, (size_t)c->value_dim * sizeof(float)) != 0 ||
                memcmp(&x, &y, sizeof x) != 0)
                fail_msg("%s: head %lld, token %lld: not the same bits", c->name, (long long)h,
                         (long long)t);
        }
    }
}
