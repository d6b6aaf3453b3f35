/* tests: attention in double precision by its definition. */
#include "support/oracle.h"

#include "attention/forward/drop.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const plsh_head *head_of(const void *heads, int64_t h) {
    return (const plsh_head *)heads + h;
}

double oracle_decay(const void *heads, int64_t h, int64_t p, int64_t j) {
    return plsh_decay_value(&head_of(heads, h)->partition.decay, p < j ? j - p : p - j);
}

oracle_labels oracle_labels_make(const plsh_head *heads, int64_t count, int64_t n) {
    oracle_labels all = {.n = n};
    int64_t draws = 0;
    for (int64_t h = 0; h < count; h++) {
        all.first[h] = draws;
        draws += all.samples[h] = heads[h].partition.samples;
    }
    all.labels = malloc((size_t)(draws * n) * sizeof *all.labels + 1);
    for (int64_t h = 0; h < count; h++) {
        for (int64_t m = 0; m < all.samples[h]; m++) {
            plsh_error error;
            if (plsh_partition_labels(&heads[h].partition, m, n,
                                      all.labels + (all.first[h] + m) * n, &error))
                abort();
        }
    }
    return all;
}

double oracle_counts(const void *labels, int64_t h, int64_t p, int64_t j) {
    const oracle_labels *all = labels;
    int64_t count = 0;
    for (int64_t m = all->first[h]; m < all->first[h] + all->samples[h]; m++)
        count += all->labels[m * all->n + p] == all->labels[m * all->n + j];
    return (double)count / (double)all->samples[h];
}

/* One row: scores first, then the sums relative to the largest. */
static void attend_row(const float *q, const float *k, const float *v, const double *weight,
                       int64_t keys, int64_t d, int64_t dv, double scale, double *o, double *lse) {
    double *s = malloc((size_t)keys * sizeof *s), top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        double dot = 0;
        for (int64_t x = 0; x < d; x++) dot += (double)q[x] * (double)k[j * d + x];
        s[j] = dot * scale;
        if (weight[j] > 0 && s[j] > top) top = s[j];
    }
    if (o) memset(o, 0, (size_t)dv * sizeof *o);
    for (int64_t j = 0; j < keys; j++) {
        if (weight[j] <= 0) continue;
        double p = weight[j] * exp(s[j] - top);
        sum += p;
        for (int64_t c = 0; o && c < dv; c++) o[c] += p * (double)v[j * dv + c];
    }
    for (int64_t c = 0; o && c < dv; c++) o[c] /= sum;
    if (lse) *lse = top + log(sum);
    free(s);
}

/* The query row i of head h, in a sequence of `keys` keys that begin at row first. */
typedef struct place {
    int64_t h, i, position, first, keys;
} place;

static void attend_at(const plsh_attention *a, const float *q, const float *k, const float *v,
                      oracle_weight weight, const void *context, place at, double *o, double *lse) {
    int64_t d = a->head_dim, dv = a->value_dim ? a->value_dim : d;
    int64_t kv = at.h / (a->heads / (a->kv_heads ? a->kv_heads : a->heads));
    int64_t row = at.h * a->queries + at.i, key = kv * a->keys + at.first;
    int64_t seen = a->causal ? at.position + 1 : at.keys;
    double *w = malloc((size_t)seen * sizeof *w);
    int64_t which = a->head_count == 1 ? 0 : at.h;
    for (int64_t j = 0; j < seen; j++) w[j] = weight(context, which, at.position, j);
    attend_row(q + row * d, k + key * d, v + key * dv, w, seen, d, dv,
               a->scale != 0 ? a->scale : 1 / sqrt((double)d), o ? o + row * dv : NULL,
               lse ? lse + row : NULL);
    free(w);
}

void oracle_attend(const plsh_attention *attention, const float *q, const float *k, const float *v,
                   oracle_weight weight, const void *context, double *o, double *lse) {
    const int64_t whole_q[] = {0, attention->queries}, whole_k[] = {0, attention->keys};
    bool packed = attention->sequences > 0;
    const int64_t *q_at = packed ? attention->query_offsets : whole_q;
    const int64_t *k_at = packed ? attention->key_offsets : whole_k;
    for (int64_t h = 0; h < attention->heads; h++) {
        for (int64_t x = 0; x < (packed ? attention->sequences : 1); x++) {
            int64_t keys = k_at[x + 1] - k_at[x], queries = q_at[x + 1] - q_at[x];
            for (int64_t i = 0; i < queries; i++)
                attend_at(attention, q, k, v, weight, context,
                          (place){h, q_at[x] + i, keys - queries + i, k_at[x], keys}, o, lse);
        }
    }
}

double oracle_drop(const plsh_attention_dropout *dropout, int64_t h, int64_t query, int64_t key) {
    const plsh_stream of_head = {dropout->seed, (uint32_t)(dropout->head + h), PLSH_PURPOSE_DROP};
    const uint64_t row = (uint64_t)(dropout->query + query), j = (uint64_t)(dropout->key + key);
    const plsh_stream of_key = {plsh_random_at(of_head, 0).word[0], (uint32_t)j,
                                (uint32_t)(j >> 32)};
    const plsh_random draw = plsh_random_at(of_key, row / 8);
    const uint64_t word = draw.word[row % 4 / 2] >> (row % 2 * 32) >> (row % 8 / 4 * 16);
    const double p = round(dropout->p * 65536) / 65536;
    return (double)(word & 0xffff) < 65536 * p ? 0 : 1 / (1 - p);
}

void oracle_normal(uint64_t seed, double scale, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        plsh_random random = plsh_random_at((plsh_stream){seed, 0, 1000}, i);
        double radius = sqrt(-2 * log(plsh_random_unit(random.word[0])));
        to[i] = (float)(scale * radius * cos(6.283185307179586 * plsh_random_unit(random.word[1])));
    }
}

double oracle_distance(const float *a, const double *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double distance = fabs((double)a[i] - b[i]);
        if (!(distance <= most)) most = isnan(distance) ? INFINITY : distance;
    }
    return most;
}
