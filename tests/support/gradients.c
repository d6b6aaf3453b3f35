/* tests: attention and its gradients in double, by the definition. */
#include "support/gradients.h"

#include <math.h>
#include <stdlib.h>

#include "support/oracle.h"

/* log of the mean of the masks in the row of p; one draw per row, where asking for each pair would
 * draw as often as there are keys (equal labels may be anywhere, and cost nothing). */
static void log_counts(const gradient_problem *problem, const plsh_partition *set, int64_t p,
                       double *w) {
    int64_t first = problem->sample < 0 ? 0 : problem->sample;
    int64_t count = problem->sample < 0 ? set->samples : 1;
    const bool shifted = set->design == PLSH_DESIGN_GOLDEN_SHIFTED;
    for (int64_t j = 0; j < problem->keys; j++)
        w[j] = shifted ? (double)plsh_partition_count(set, p, j) : 0;
    for (int64_t m = shifted ? first + count : first; m < first + count; m++) {
        plsh_range block;
        plsh_partition_block(set, m, p, &block);
        for (int64_t j = 0; j < problem->keys; j++)
            w[j] += set->scheme == PLSH_SCHEME_LABELS ? plsh_partition_same(set, m, p, j)
                                                      : j >= block.begin && j < block.end;
    }
    for (int64_t j = 0; j < problem->keys; j++) w[j] = log(w[j] / (double)count);
}

/* w[j]: log of the weight of key j for the query at position p, -inf where it is masked. */
static void log_weights(const gradient_problem *problem, int64_t head, int64_t p, double *w) {
    const plsh_head *h = &problem->head[head];
    bool sampled = h->method == PLSH_METHOD_PLSH || h->method == PLSH_METHOD_MASKS ||
                   h->method == PLSH_METHOD_MEAN;
    if (sampled) log_counts(problem, &h->partition, p, w);
    for (int64_t j = 0; j < problem->keys; j++) {
        int64_t t = llabs(p - j);
        if (h->method == PLSH_METHOD_NONE)
            w[j] = 0;
        else if (h->method == PLSH_METHOD_FIXED)
            w[j] = p / h->block == j / h->block ? 0 : -INFINITY;
        else if (!sampled)
            w[j] = plsh_decay_log(&h->partition.decay, t);
        if (h->method == PLSH_METHOD_WINDOW && t >= h->window) w[j] = -INFINITY;
        if (problem->causal && j > p) w[j] = -INFINITY;
    }
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add(double *to, double factor, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
}

static double *zeros(int64_t count) { return calloc((size_t)count + 1, sizeof(double)); }

static gradients make_result(const gradient_problem *p) {
    return (gradients){
        .o = zeros(p->heads * p->queries * p->dv),
        .lse = zeros(p->heads * p->queries),
        .d_q = zeros(p->heads * p->queries * p->d),
        .d_k = zeros(p->kv_heads * p->keys * p->d),
        .d_v = zeros(p->kv_heads * p->keys * p->dv),
        .d_decay = zeros(p->heads * 2),
    };
}

void gradients_free(gradients *result) {
    free(result->o);
    free(result->lse);
    free(result->d_q);
    free(result->d_k);
    free(result->d_v);
    free(result->d_decay);
}

/* w[j] = softmax of the row; returns its log-sum-exp. */
static double weigh_row(const gradient_problem *p, int64_t h, int64_t i, const double *q,
                        const double *k, double *w) {
    double top = -INFINITY, sum = 0;
    log_weights(p, h, i + p->keys - p->queries, w);
    for (int64_t j = 0; j < p->keys; j++) {
        if (w[j] > -INFINITY) w[j] += p->scale * dot(q, k + j * p->d, p->d);
        top = fmax(top, w[j]);
    }
    for (int64_t j = 0; j < p->keys; j++) sum += w[j] = exp(w[j] - top);
    for (int64_t j = 0; j < p->keys; j++) w[j] /= sum;
    return top + log(sum);
}

/* Z of the row; ones without dropout. */
static void drop_row(const gradient_problem *p, int64_t h, int64_t i, double *z) {
    for (int64_t j = 0; j < p->keys; j++)
        z[j] = p->dropout.p > 0 ? oracle_drop(&p->dropout, h, i, j) : 1;
}

static void attend_row(const gradient_problem *p, int64_t h, int64_t i, double *w, double *z,
                       const gradients *r) {
    int64_t kv = h / (p->heads / p->kv_heads), row = h * p->queries + i;
    const double *q = p->q + row * p->d, *k = p->k + kv * p->keys * p->d;
    const double *v = p->v + kv * p->keys * p->dv, *d_o = p->d_o + row * p->dv;
    double *o = r->o + row * p->dv;
    r->lse[row] = weigh_row(p, h, i, q, k, w);
    drop_row(p, h, i, z);
    for (int64_t j = 0; j < p->keys; j++) add(o, w[j] * z[j], v + j * p->dv, p->dv);
    double delta = dot(d_o, o, p->dv);
    for (int64_t j = 0; j < p->keys; j++) {
        if (w[j] == 0) continue;
        double d_s = w[j] * (z[j] * dot(d_o, v + j * p->dv, p->dv) - delta), slope[2];
        int64_t t = llabs(i + p->keys - p->queries - j);
        add(r->d_q + row * p->d, d_s * p->scale, k + j * p->d, p->d);
        add(r->d_k + (kv * p->keys + j) * p->d, d_s * p->scale, q, p->d);
        add(r->d_v + (kv * p->keys + j) * p->dv, w[j] * z[j], d_o, p->dv);
        if (p->head[h].method == PLSH_METHOD_NONE || p->head[h].method == PLSH_METHOD_FIXED)
            continue;
        plsh_decay_log_gradient(&p->head[h].partition.decay, t, slope);
        add(r->d_decay + 2 * h, d_s, slope, 2);
    }
}

gradients gradients_attention(const gradient_problem *p) {
    gradients result = make_result(p);
    double *w = zeros(p->keys), *z = zeros(p->keys);
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < p->queries; i++) attend_row(p, h, i, w, z, &result);
    free(w);
    free(z);
    return result;
}

gradients gradients_mean(const gradient_problem *p) {
    gradients sum = make_result(p);
    int64_t samples = p->head[0].partition.samples;
    for (int64_t m = 0; m < samples; m++) {
        gradient_problem single = *p;
        single.sample = m;
        gradients one = gradients_attention(&single);
        double share = 1 / (double)samples;
        add(sum.o, share, one.o, p->heads * p->queries * p->dv);
        add(sum.d_q, share, one.d_q, p->heads * p->queries * p->d);
        add(sum.d_k, share, one.d_k, p->kv_heads * p->keys * p->d);
        add(sum.d_v, share, one.d_v, p->kv_heads * p->keys * p->dv);
        add(sum.d_decay, share, one.d_decay, p->heads * 2);
        gradients_free(&one);
    }
    return sum;
}

double gradients_value(const gradient_problem *p) {
    bool mean = p->head[0].method == PLSH_METHOD_MEAN;
    gradients r = mean ? gradients_mean(p) : gradients_attention(p);
    double value = dot(r.o, p->d_o, p->heads * p->queries * p->dv);
    gradients_free(&r);
    return value;
}
