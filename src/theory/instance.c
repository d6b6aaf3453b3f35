/* theory: the quantities of an attention instance in Theorem 2.2. */
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "plsh/theory.h"

#include <math.h>
#include <pthread.h>

typedef struct instance {
    const plsh_instance_head *head;
    const double *weight;    /* k(t) of the decay, */
    const double *variation; /* and sqrt(k(t) (1 - k(t))) */
    double scale;            /* the head's, or its default */
} instance;

/* Row i: its scores, then sum_j P_ij^2, sum_j P_ij L*_ij and sum_j P*_ij sqrt(1 / L*_ij - 1). */
static plsh_instance measure_row(const instance *in, int64_t i, double *score) {
    const plsh_instance_head *head = in->head;
    const int64_t count = head->causal ? i + 1 : head->n;
    double top = -INFINITY, sum = 0, squares = 0, kept = 0, variation = 0;
    for (int64_t j = 0; j < count; j++) {
        double dot = 0;
        for (int64_t x = 0; x < head->dim; x++)
            dot += (double)head->q[i * head->dim + x] * (double)head->k[j * head->dim + x];
        score[j] = dot * in->scale;
        top = fmax(top, score[j]);
    }
    for (int64_t j = 0; j < count; j++) {
        double a = exp(score[j] - top);
        sum += a;
        squares += a * a;
        kept += a * in->weight[j < i ? i - j : j - i];
        variation += a * in->variation[j < i ? i - j : j - i];
    }
    /* If all weights of a row underflow to 0, its P* is 0 / 0 and undefined. */
    return (plsh_instance){squares / (sum * sum), kept / sum,
                           kept > 0 ? variation / kept : INFINITY};
}

enum { ROWS = 16 }; /* of a chunk */

typedef struct extremes {
    const instance *in;
    double *score; /* [slots][n] */
    pthread_mutex_t lock;
    plsh_instance most; /* of all rows so far */
} extremes;

static void measure_rows(void *context, int64_t chunk, int slot) {
    extremes *all = context;
    const int64_t n = all->in->head->n, end = (chunk + 1) * ROWS < n ? (chunk + 1) * ROWS : n;
    plsh_instance most = {0, INFINITY, 0};
    for (int64_t i = chunk * ROWS; i < end; i++) {
        const plsh_instance row = measure_row(all->in, i, all->score + n * slot);
        most = (plsh_instance){fmax(most.p_norm, row.p_norm), fmin(most.beta, row.beta),
                               fmax(most.variation, row.variation)};
    }
    pthread_mutex_lock(&all->lock);
    all->most =
        (plsh_instance){fmax(all->most.p_norm, most.p_norm), fmin(all->most.beta, most.beta),
                        fmax(all->most.variation, most.variation)};
    pthread_mutex_unlock(&all->lock);
}

static plsh_status check(const plsh_instance_head *head, plsh_error *error) {
    const int64_t n = head->n, dim = head->dim;
    const float *q = head->q, *k = head->k;
    plsh_status status = plsh_decay_check(head->decay, error);
    if (status) return status;
    if (n < 1 || n > INT32_MAX || dim < 1 || dim > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "q and k are %lld x %lld; at least 1 x 1",
                         (long long)n, (long long)dim);
    if (!isfinite(head->scale))
        return plsh_fail(error, PLSH_STATUS_INVALID, "scale is %g; a finite number", head->scale);
    for (int64_t x = 0; x < n * dim; x++)
        if (!isfinite(q[x]) || !isfinite(k[x]))
            return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "%s[%lld][%lld] is not finite",
                             isfinite(q[x]) ? "k" : "q", (long long)(x / dim),
                             (long long)(x % dim));
    return PLSH_STATUS_OK;
}

plsh_status plsh_instance_measure(const plsh_instance_head *head, int threads,
                                  plsh_instance *result, plsh_error *error) {
    plsh_status status = check(head, error);
    if (status) return status;
    const int64_t n = head->n;
    const int team = plsh_thread_count(threads);
    double *memory;
    status = plsh_allocate((void **)&memory, (size_t)n * ((size_t)team + 2), sizeof *memory,
                           "rows of P", error);
    if (status) return status;
    instance in = {.head = head,
                   .weight = memory,
                   .variation = memory + n,
                   .scale = head->scale != 0 ? head->scale : 1 / sqrt((double)head->dim)};
    for (int64_t t = 0; t < n; t++) {
        double weight = plsh_decay_value(head->decay, t);
        memory[t] = weight;
        memory[n + t] = sqrt(weight * (1 - weight));
    }
    extremes all = {.in = &in, .score = memory + 2 * n, .most = {0, INFINITY, 0}};
    pthread_mutex_init(&all.lock, NULL);
    plsh_thread_run(team, (n + ROWS - 1) / ROWS, measure_rows, &all);
    pthread_mutex_destroy(&all.lock);
    plsh_release(memory);
    *result = all.most;
    result->p_norm = sqrt(result->p_norm);
    return PLSH_STATUS_OK;
}
