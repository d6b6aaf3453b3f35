/* tests: a problem of attention with its arrays. */
#ifndef PLSH_TESTS_PROBLEM_H
#define PLSH_TESTS_PROBLEM_H

#include "plsh/attention.h"

enum { PROBLEM_HEADS = 8 };

typedef struct problem {
    plsh_attention a;
    plsh_head head[PROBLEM_HEADS];
    size_t q_count, k_count, v_count, o_count, rows; /* rows: of lse */
    float *q, *k, *v, *d_o;
    float *o, *lse, *d_q, *d_k, *d_v;
    double *d_decay; /* [heads][2] */
    plsh_attention_dropout dropout;
    plsh_stats forward, backward;
} problem;

/* Arrays in the default layout: normal numbers of the seeds seed .. seed + 3 in q, k, v and d_o,
 * zeros in the rest. The caller fills the heads in. */
problem *problem_make(plsh_attention a, uint64_t seed);
void problem_free(problem *p);

/* o and lse, in a workspace that is no larger than it must be and not zero; nothing is allocated.
 */
plsh_status problem_forward(problem *p, plsh_error *error);

/* All gradients of what problem_forward left; the arrays of that call, and such a call of any. */
plsh_status problem_backward(problem *p, plsh_error *error);
plsh_backward problem_arrays(const problem *p);
plsh_status problem_run_backward(const plsh_attention *a, const plsh_backward *arrays,
                                 plsh_stats *stats, plsh_error *error);

/* Rounds q, k and v to multiples of 1/8, which every type holds, and gives them in `type`; each to
 * be freed. */
void problem_halve(problem *p, plsh_dtype type, uint16_t *halves[3]);

/* [heads, rows, dim] as {head_stride, row_stride} among `count` floats of 77; to be freed. */
float *problem_scatter(const float *from, int64_t heads, int64_t rows, int64_t dim, plsh_layout to,
                       size_t count);

#endif
