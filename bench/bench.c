/* bench: time, the roof of the machine, and the error that goes with the time. */
#include "bench/bench.h"

#include "base/clock.h"
#include "plsh/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* SplitMix64's output function: enough for test data, and needs no state. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

enum { FILL = 4096 }; /* numbers of a chunk, even */

typedef struct normal_numbers {
    float *x;
    size_t count;
    uint64_t start;
} normal_numbers;

static void fill_chunk(void *context, int64_t chunk, int slot) {
    const normal_numbers *f = context;
    const size_t end = ((size_t)chunk + 1) * FILL;
    (void)slot;
    for (size_t i = (size_t)chunk * FILL; i < end && i < f->count; i += 2) {
        uint64_t word = mix(f->start + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        double radius = sqrt(-2 * log(((double)(word >> 32) + 0.5) * 0x1p-32));
        double angle = (double)(uint32_t)word * 0x1p-32 * 6.283185307179586;
        f->x[i] = (float)(radius * cos(angle));
        if (i + 1 < f->count) f->x[i + 1] = (float)(radius * sin(angle));
    }
}

void bench_fill_normal(float *x, size_t count, uint64_t seed) {
    normal_numbers f = {x, count, mix(~seed)};
    plsh_thread_run(0, (int64_t)((count + FILL - 1) / FILL), fill_chunk, &f);
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

bench_times bench_summarise(double *seconds, int reps) {
    qsort(seconds, (size_t)reps, sizeof *seconds, compare);
    double median = (seconds[reps / 2] + seconds[(reps - 1) / 2]) / 2;
    return (bench_times){median, (seconds[3 * (reps - 1) / 4] - seconds[(reps - 1) / 4]) / median};
}

/* Eight sums at a time, in registers: one dependent chain would measure the adder. Prefetches 2 KiB
 * ahead, as the fastest readers do: 1.3 times as fast as with the processor's own prefetching. */
static float sum_floats(const float *x, size_t count) {
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    four sums[8] = {{0}};
    for (size_t i = 0; i + 32 <= count; i += 32) {
        __builtin_prefetch(x + i + 512);
        __builtin_prefetch(x + i + 528);
        for (int j = 0; j < 8; j++) sums[j] += *(const four *)(x + i + 4 * j);
    }
    float sum = 0;
    for (int j = 0; j < 8; j++) sum += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
    return sum;
}

typedef struct reading {
    const float *x;
    size_t part;
} reading;

static void read_part(void *context, int64_t chunk, int slot) {
    const reading *r = context;
    volatile float keep = sum_floats(r->x + (size_t)chunk * r->part, r->part);
    (void)keep;
    (void)slot;
}

double bench_read_seconds(const float *x, size_t count, int threads) {
    reading r = {x, count / (size_t)threads};
    double begin = plsh_clock_seconds();
    plsh_thread_run(threads, threads, read_part, &r);
    return plsh_clock_seconds() - begin;
}

/* ---- the exact row, in double ---------------------------------------------------------------- */

typedef struct exact_row {
    const float *q, *k, *v; /* one row; all rows of the key's head */
    const plsh_decay *decay;
    int64_t position, keys, head_dim, value_dim;
    double scale;
} exact_row;

static void exact_compute(const exact_row *row, double *out) {
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < row->value_dim; c++) out[c] = 0;
    for (int64_t j = 0; j < row->keys; j++) {
        const float *key = row->k + j * row->head_dim, *value = row->v + j * row->value_dim;
        double score = plsh_decay_log(row->decay, llabs(row->position - j));
        for (int64_t x = 0; x < row->head_dim; x++)
            score += row->scale * (double)row->q[x] * (double)key[x];
        if (score == -INFINITY) continue;
        if (score > top) {
            double shrink = exp(top - score);
            sum *= shrink;
            for (int64_t c = 0; c < row->value_dim; c++) out[c] *= shrink;
            top = score;
        }
        double weight = exp(score - top);
        sum += weight;
        for (int64_t c = 0; c < row->value_dim; c++) out[c] += weight * (double)value[c];
    }
    for (int64_t c = 0; c < row->value_dim; c++) out[c] /= sum;
}

/* dq = scale (E[g k] - E[g] E[k]), g_j = d_o.v_j, E under the weights of the row. */
static void exact_gradient(const exact_row *row, const float *d_o, double *out) {
    double top = -INFINITY, sum = 0, g_sum = 0, k_sum[512] = {0};
    for (int64_t x = 0; x < row->head_dim; x++) out[x] = 0;
    for (int64_t j = 0; j < row->keys; j++) {
        const float *key = row->k + j * row->head_dim, *value = row->v + j * row->value_dim;
        double score = plsh_decay_log(row->decay, llabs(row->position - j)), g = 0;
        for (int64_t x = 0; x < row->head_dim; x++)
            score += row->scale * (double)row->q[x] * (double)key[x];
        for (int64_t c = 0; c < row->value_dim; c++) g += (double)d_o[c] * (double)value[c];
        if (score == -INFINITY) continue;
        double shrink = score > top ? exp(top - score) : 1;
        top = score > top ? score : top;
        double weight = exp(score - top);
        sum = sum * shrink + weight;
        g_sum = g_sum * shrink + weight * g;
        for (int64_t x = 0; x < row->head_dim; x++) {
            k_sum[x] = k_sum[x] * shrink + weight * (double)key[x];
            out[x] = out[x] * shrink + weight * g * (double)key[x];
        }
    }
    for (int64_t x = 0; x < row->head_dim; x++)
        out[x] = row->scale * (out[x] / sum - g_sum / sum * (k_sum[x] / sum));
}

static exact_row find_row(const plsh_attention *a, const float *q, const float *k, const float *v,
                          int64_t head, int64_t i) {
    int64_t value_dim = a->value_dim ? a->value_dim : a->head_dim;
    int64_t kv = head / (a->heads / (a->kv_heads ? a->kv_heads : a->heads));
    int64_t position = i + a->keys - a->queries;
    return (exact_row){
        .q = q + (head * a->queries + i) * a->head_dim,
        .k = k + kv * a->keys * a->head_dim,
        .v = v + kv * a->keys * value_dim,
        .decay = &a->head[a->head_count == 1 ? 0 : head].partition.decay,
        .position = position,
        .keys = a->causal ? position + 1 : a->keys,
        .head_dim = a->head_dim,
        .value_dim = value_dim,
        .scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim),
    };
}

static double distance(const float *given, const double *exact, int64_t count) {
    double worst = 0;
    for (int64_t c = 0; c < count; c++) {
        double error = fabs((double)given[c] - exact[c]);
        if (!(error <= worst)) worst = error; /* a NaN stays */
    }
    return worst;
}

/* Rows of all heads: o against the exact one, or where d_o is given d_q. */
typedef struct comparison {
    const plsh_attention *a;
    const float *q, *k, *v, *d_o, *given;
    int64_t rows; /* of a head */
    pthread_mutex_t lock;
    double worst;
} comparison;

static void compare_row(void *context, int64_t chunk, int slot) {
    comparison *all = context;
    const int64_t n = all->a->queries, head = chunk / all->rows;
    const int64_t i = (2 * (chunk % all->rows) + 1) * n / (2 * all->rows);
    const exact_row row = find_row(all->a, all->q, all->k, all->v, head, i);
    const int64_t columns = all->d_o ? row.head_dim : row.value_dim;
    double exact[512];
    (void)slot;
    if (all->d_o)
        exact_gradient(&row, all->d_o + (head * n + i) * row.value_dim, exact);
    else
        exact_compute(&row, exact);
    const double error = distance(all->given + (head * n + i) * columns, exact, columns);
    pthread_mutex_lock(&all->lock);
    if (!(error <= all->worst)) all->worst = error;
    pthread_mutex_unlock(&all->lock);
}

static double compare_rows(comparison *all, int64_t rows) {
    all->rows = rows < all->a->queries ? rows : all->a->queries;
    pthread_mutex_init(&all->lock, NULL);
    plsh_thread_run(0, all->a->heads * all->rows, compare_row, all);
    pthread_mutex_destroy(&all->lock);
    return all->worst;
}

double bench_max_error(const plsh_attention *a, const float *q, const float *k, const float *v,
                       const float *o, int64_t rows) {
    return compare_rows(&(comparison){.a = a, .q = q, .k = k, .v = v, .given = o}, rows);
}

double bench_max_gradient_error(const plsh_attention *a, const float *q, const float *k,
                                const float *v, const float *d_o, const float *d_q, int64_t rows) {
    comparison all = {.a = a, .q = q, .k = k, .v = v, .d_o = d_o, .given = d_q};
    return compare_rows(&all, rows);
}
