/* plsh/attention.h - attention with a positional decay, forward and backward.
 *
 *     o_i   = sum_j exp(s_ij - lse_i) v_j,     lse_i = log sum_j exp(s_ij)
 *     s_ij  = scale * q_i.k_j + log(weight_ij)
 *
 * where weight_ij is k(|p_i - j|) for the exact methods and M~ for the sampled
 * ones, p_i = i + keys - queries (the queries are the last positions), and a
 * causal head sees j <= p_i only.
 *
 * Simplest use, heads of ALiBi on [heads, n, dim] float arrays:
 *
 *     plsh_head head[8];
 *     plsh_heads_alibi(8, PLSH_METHOD_EXACT, head, NULL);
 *     plsh_attention attention = {.heads = 8, .queries = n, .keys = n, .head_dim = 64,
 *                                 .causal = true, .head = head, .head_count = 8};
 *     plsh_error error;
 *     if (plsh_attend(&attention, q, k, v, o, NULL, &error)) puts(error.message);
 *
 * For repeated calls: plsh_plan_create once, then plsh_plan_forward with a
 * workspace of plsh_plan_workspace bytes; it allocates nothing. A plan is constant after creation:
 * threads may share it, each with its own workspace. A plan also serves shorter calls
 * (plsh_extent). The result is the same to the bit for any number of threads. */
#ifndef PLSH_ATTENTION_H
#define PLSH_ATTENTION_H

#include "plsh/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One call -------------------------------------------------------------- */

/* Plan, execute, release in one call. lse may be NULL, else [heads, queries]. */
PLSH_API plsh_status plsh_attend(const plsh_attention *attention, const void *q, const void *k,
                                 const void *v, void *o, float *lse, plsh_error *error);

/* ---- Plans ---------------------------------------------------------------- */

typedef struct plsh_plan plsh_plan;

/* Copies everything that the descriptor points to, except decay tables and user labels: these must
 * outlive the plan. */
PLSH_API plsh_status plsh_plan_create(const plsh_attention *attention, plsh_plan **plan,
                                      plsh_error *error);
PLSH_API void plsh_plan_destroy(plsh_plan *plan); /* NULL is fine */

/* Return the bytes that plsh_plan_forward and plsh_plan_backward need: a multiple of 64, for memory
 * on a 64-byte boundary (aligned_alloc(64, bytes)). */
PLSH_API size_t plsh_plan_workspace(const plsh_plan *plan);
PLSH_API size_t plsh_plan_backward_workspace(const plsh_plan *plan);

/* Returns the head as the plan runs it. For `auto`, *reason says why its method was chosen. */
PLSH_API plsh_head plsh_plan_head(const plsh_plan *plan, int64_t head, const char **reason);
PLSH_API const char *plsh_plan_isa(const plsh_plan *plan);

/* The predicted number of pairs that the forward pass scores. `auto` chooses by the same model. */
PLSH_API double plsh_plan_predicted_pairs(const plsh_plan *plan);

/* Counts of one call. */
typedef struct plsh_stats {
    int64_t pairs;      /* (query, key) pairs scored, summed over heads */
    double error_bound; /* largest certificate entry, where one was asked for */
} plsh_stats;

/* Dropout of attention weights, as in training:
 *
 *     o_i = sum_j Z_ij P_ij v_j,     P_ij = exp(s_ij - lse_i),
 *
 * Z_ij = 0 with probability p, otherwise 1 / (1 - p). lse is that of all keys. For `mean`, P is the
 * mean of the draws' softmaxes. `exact` leaves out the same keys as without dropout, so the error
 * of a row may be 1 / (1 - p) times as large. The mask Z is a function of the seed, the number of
 * the head, the row of q and the row of k (each counted over all sequences). It does not depend on
 * method, threads or instruction set. p is rounded to a multiple of 2^-16, but never to 0 or 1. */
typedef struct plsh_attention_dropout {
    double p; /* 0 <= p < 1; 0: none */
    uint64_t seed;
    /* For a call on a part of a larger one: the numbers of its first head (all heads are below
     * 2^32), first row of q and first row of k. Otherwise 0. */
    int64_t head, query, key;
} plsh_attention_dropout;

typedef struct plsh_forward {
    const void *q, *k, *v;
    void *o;    /* of o_dtype: the float32 result, rounded to nearest even */
    float *lse; /* [heads, queries] or NULL */
    /* [heads, queries] or NULL: a proven bound on |o - o_exact|, largest over the columns of the
     * row, against the head's untruncated decay, computed from these arrays. It includes the
     * rounding of this call, which is all of it for dense and none: with |V| the largest value and
     * R the largest max - min of a column of the values that the row sees, about
     *     2^-24 (200 |V| + R (50 + 0.3 head_dim scale |q| max |k|)),
     * plus the rounding to o_dtype (docs/rounding.md). Among points, the decay is that of the
     * distances as they were computed, in float32. NaN where no bound is defined: labels or fixed
     * without a decay, a row whose keys or values are not finite, a row of the output that is not
     * finite (scores beyond float's range, or values beyond that of o_dtype). */
    float *certificate;
    const plsh_extent *extent;      /* NULL: the plan's own lengths */
    plsh_attention_dropout dropout; /* not together with a certificate */
} plsh_forward;

/* Finite inputs whose scores are in float's range give a finite output, for values up to the
 * largest float. Gradients are sums of products of v and d_o, which may overflow. */
PLSH_API plsh_status plsh_plan_forward(const plsh_plan *plan, const plsh_forward *arrays,
                                       void *workspace, plsh_stats *stats, plsh_error *error);

/* Gradients of sum(o * d_o). o and lse are those of the forward call; o is float32 here whatever
 * o_dtype is (an o that was rounded to o_dtype and widened again adds its rounding error to the
 * gradients). Any of the outputs may be NULL. Layouts: d_q as q, d_k as k, d_v as v, d_o as o.
 * Every pair that the forward pass scored is scored again, once. `masks` scores each pair once, not
 * s times, and has the gradient of `plsh`. Memory is O(threads + n / 96). The same bits for any
 * number of threads.
 *
 * d_decay: [heads, 2], the gradients by the decay's a and b, so that sigma can be learned. A
 * sampled mask is not differentiable in them: for plsh, masks and mean this is the straight-through
 * estimate, which replaces the derivative of log M~ by that of log k(|p_i - j|). 0 for tables, and
 * for methods without a decay.
 *
 * d_key_positions, d_query_positions: the gradients by positions that are points, in the shapes of
 * plsh_positions. If that has no positions of the queries, they are the last keys: d_key_positions
 * has both parts, and there is no d_query_positions. Two points at distance 0 have no direction and
 * add nothing, except on the line if causal, where the query counts as the later one. 0 for points
 * without a position. Sampled heads have no such gradients, and are refused. */
typedef struct plsh_backward {
    const void *q, *k, *v;
    const float *o, *lse, *d_o;
    float *d_q, *d_k, *d_v;
    double *d_decay;
    float *d_key_positions, *d_query_positions;
    const plsh_extent *extent; /* NULL: the plan's own lengths */
    /* Set this if o and lse belong to more keys than this call has: other calls compute the
     * gradients of the others. It disables a rounding correction that assumes that each row of dS
     * sums to 0. */
    bool some_keys;
    plsh_attention_dropout dropout; /* that of the forward call */
} plsh_backward;

PLSH_API plsh_status plsh_plan_backward(const plsh_plan *plan, const plsh_backward *arrays,
                                        void *workspace, plsh_stats *stats, plsh_error *error);

/* The instruction sets this machine can run ("avx2", "avx512", ...), best first,
 * NULL at the end; "reference" is always among them. "avx512bf16" is "avx512" with products of
 * pairs for bfloat16 arrays (plsh_attention.dtype), on AMD processors that have them. "amx" is
 * "avx512" with AMX for the linear layers of models in int8 and bfloat16; it has not been tested on
 * such a processor. */
PLSH_API const char *const *plsh_isa_available(void);

#ifdef __cplusplus
}
#endif

#endif
