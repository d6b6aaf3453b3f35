/* tests: attention and its gradients in double, by the definition, O(n^2) and plain. */
#ifndef PLSH_TESTS_GRADIENTS_H
#define PLSH_TESTS_GRADIENTS_H

#include "plsh/attention.h"

/* One sequence, arrays without gaps: q [heads][queries][d], k [kv_heads][keys][d],
 * v [kv_heads][keys][dv], d_o [heads][queries][dv]. */
typedef struct gradient_problem {
    int64_t heads, kv_heads, queries, keys, d, dv;
    bool causal;
    double scale;
    const double *q, *k, *v, *d_o;
    const plsh_head *head; /* one per head: method and decay; mean is not known here */
    int64_t sample;        /* sampled methods: this draw alone; -1 for all of them */
    plsh_attention_dropout dropout;
} gradient_problem;

/* Everything is [like its input]; lse [heads][queries], d_decay [heads][2]. Released by
 * gradients_free. */
typedef struct gradients {
    double *o, *lse, *d_q, *d_k, *d_v, *d_decay;
} gradients;

gradients gradients_attention(const gradient_problem *problem);
void gradients_free(gradients *result);

/* The same for PLSH_METHOD_MEAN: the mean over the draws of everything (no lse). */
gradients gradients_mean(const gradient_problem *problem);

/* sum(o * d_o), the function whose gradients the above are. */
double gradients_value(const gradient_problem *problem);

#endif
