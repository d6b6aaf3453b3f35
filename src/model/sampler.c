/* model: chooses the next token, and scores a given one. */
#include <math.h>
#include <stdlib.h>

#include "base/clones.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "model/rowmath.h"
#include "plsh/model.h"

enum { PURPOSE_SAMPLING = 0x73616d70 }; /* the stream of the random numbers; unique in the tree */

static int64_t largest(const float *logits, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

/* By decreasing logit, then by token, so that the order is unique. */
static int compare(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

/* How many of the sorted candidates stay: the first top_k; of these, those at least min_p times as
 * likely as the first; of these, the fewest whose probabilities sum to top_p. weight: of each, the
 * largest being 1. */
static int64_t keep(const plsh_sampler *s, candidate *sorted, int64_t count, double *weight) {
    if (s->top_k > 0 && s->top_k < count) count = s->top_k;
    double total = 0.0, sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        weight[i] = exp(((double)sorted[i].logit - (double)sorted[0].logit) / s->temperature);
        if (weight[i] < s->min_p)
            count = i;
        else
            total += weight[i];
    }
    if (!(s->top_p > 0.0 && s->top_p < 1.0)) return count;
    for (int64_t i = 0; i < count; i++) {
        sum += weight[i];
        if (sum >= s->top_p * total) return i + 1;
    }
    return count;
}

static int32_t draw(const plsh_sampler *s, uint64_t index, const candidate *sorted,
                    const double *weight, int64_t count) {
    plsh_stream stream = {.seed = s->seed, .purpose = PURPOSE_SAMPLING};
    double total = 0.0, at = plsh_random_unit(plsh_random_at(stream, index).word[0]);
    for (int64_t i = 0; i < count; i++) total += weight[i];
    at *= total;
    for (int64_t i = 0; i < count - 1; i++) {
        at -= weight[i];
        if (at < 0.0) return sorted[i].token;
    }
    return sorted[count - 1].token;
}

static plsh_status check(const plsh_sampler *s, const float *logits, int64_t count,
                         plsh_error *error) {
    if (count < 1 || count > INT32_MAX || s->top_k < 0 || !(s->top_p >= 0.0 && s->top_p <= 1.0) ||
        !(s->temperature >= 0.0 && s->temperature < 1e9) || !(s->min_p >= 0.0 && s->min_p <= 1.0)) {
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "sampling from %lld logits: temperature %g, top_k %lld, top_p %g, min_p %g",
            (long long)count, s->temperature, (long long)s->top_k, s->top_p, s->min_p);
    }
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i])) {
            return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "the logit of token %lld is NaN",
                             (long long)i);
        }
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_sampler_choose(const plsh_sampler *sampler, float *logits, int64_t count,
                                uint64_t index, int32_t *token, plsh_error *error) {
    plsh_status status = check(sampler, logits, count, error);
    if (status) return status;
    if (sampler->temperature == 0.0 || sampler->top_k == 1) {
        *token = (int32_t)largest(logits, count);
        return PLSH_STATUS_OK;
    }
    candidate *sorted;
    double *weight = NULL;
    status = plsh_allocate((void **)&sorted, (size_t)count, sizeof(*sorted), "candidates", error);
    if (!status) {
        status = plsh_allocate((void **)&weight, (size_t)count, sizeof(*weight), "weights", error);
    }
    if (!status) {
        for (int64_t i = 0; i < count; i++) sorted[i] = (candidate){logits[i], (int32_t)i};
        qsort(sorted, (size_t)count, sizeof(*sorted), compare);
        *token = draw(sampler, index, sorted, weight, keep(sampler, sorted, count, weight));
    }
    plsh_release(sorted);
    plsh_release(weight);
    return status;
}

plsh_status plsh_sampler_penalise(const plsh_penalty *penalty, float *logits, int64_t count,
                                  plsh_error *error) {
    unsigned char *met;
    const double factor = penalty->factor;
    if (!(factor > 0.0 && factor < 1e9))
        return plsh_fail(error, PLSH_STATUS_INVALID, "a repetition penalty of %g; more than 0",
                         factor);
    if (factor == 1.0 || count < 1) return PLSH_STATUS_OK;
    plsh_status status = plsh_allocate((void **)&met, (size_t)count, 1, "tokens met", error);
    if (status) return status;
    for (int64_t i = 0; i < penalty->count; i++) {
        const int32_t id = penalty->ids[i];
        if (id < 0 || id >= count || met[id]) continue;
        met[id] = 1;
        logits[id] =
            (float)(logits[id] > 0.0f ? (double)logits[id] / factor : (double)logits[id] * factor);
    }
    plsh_release(met);
    return PLSH_STATUS_OK;
}

/* sum of e^(x - top), and of (x - top) e^(x - top), in chunks whose sums are added in double. */
PLSH_CLONES static void sum_block(const float *x, float top, int count, float *e, float *xe) {
    float sum[16] = {0}, weighted[16] = {0};
    for (int i = 0; i < count; i += 16) {
        for (int j = 0; j < 16; j++) {
            float y = x[i + j] - top, w = plsh_rowmath_exp(y);
            sum[j] += w;
            weighted[j] += w * y;
        }
    }
    *e = *xe = 0.0f;
    for (int j = 0; j < 16; j++) {
        *e += sum[j];
        *xe += weighted[j];
    }
}

plsh_score plsh_model_score(const float *logits, int64_t count, int32_t token) {
    enum { BLOCK = 1024 };
    const float top = logits[largest(logits, count)], own = logits[token];
    double sum = 0.0, weighted = 0.0;
    int64_t i = 0, rank = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        float e, xe;
        sum_block(logits + i, top, BLOCK, &e, &xe);
        sum += (double)e;
        weighted += (double)xe;
    }
    for (; i < count; i++) {
        double y = (double)logits[i] - (double)top, w = exp(y);
        sum += w;
        weighted += w * y;
    }
    /* NaN ranks first; among equal logits the first token wins, as in argmax */
    for (int64_t j = 0; j < token; j++) rank += !(logits[j] < own);
    for (int64_t j = token; j < count; j++) rank += !(logits[j] <= own);
    return (plsh_score){.nll = log(sum) - ((double)own - (double)top),
                        .entropy = log(sum) - weighted / sum,
                        .rank = rank};
}

int64_t plsh_model_likely(const float *logits, int64_t count, int64_t n, int32_t *ids,
                          double *logprobs) {
    if (n > count) n = count;
    if (n < 1) return 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        if (kept == n && !(logits[i] > logits[ids[n - 1]])) continue;
        int64_t at = kept < n ? kept++ : n - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
    const double top = (double)logits[ids[0]], first = -plsh_model_score(logits, count, ids[0]).nll;
    for (int64_t i = 0; i < n; i++) logprobs[i] = first + ((double)logits[ids[i]] - top);
    return n;
}
