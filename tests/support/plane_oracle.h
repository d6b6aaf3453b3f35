/* tests: attention with positions that are points, by its definition, in double (the oracle) and in
 * float (a plain implementation, whose error is the measure of ours). */
#ifndef PLSH_TESTS_PLANE_ORACLE_H
#define PLSH_TESTS_PLANE_ORACLE_H

#include "plsh/attention.h"

typedef struct plane_case {
    const plsh_attention *a; /* arrays in the default layout, float32 */
    const plsh_head *head;   /* one per head; of `window`, radius is set */
    plsh_attention_dropout dropout;
    const double *weights; /* M~ of plsh and masks, [heads, queries, keys]; NULL: the decay's */
} plane_case;

/* All but d_decay as the arrays of the library; d_x and d_y are the gradients by the positions of
 * the queries and of the keys. */
typedef struct double_plane_result {
    double *o, *lse, *d_q, *d_k, *d_v, *d_x, *d_y, *d_decay;
} double_plane_result;

typedef struct float_plane_result {
    float *o, *lse, *d_q, *d_k, *d_v, *d_x, *d_y;
    double *d_decay;
} float_plane_result;

double_plane_result double_plane_attend(const plane_case *c, const float *q, const float *k,
                                        const float *v, const float *d_o);
float_plane_result float_plane_attend(const plane_case *c, const float *q, const float *k,
                                      const float *v, const float *d_o);
void double_plane_free(double_plane_result *r);
void float_plane_free(float_plane_result *r);

/* Compares an array of the library with the oracle in double. It may be off by twice the error of
 * the plain implementation, and by this share of the largest entry. */
void plane_compare(const char *what, const char *name, const float *ours, const float *plain,
                   const double *exact, size_t count, double share);

#endif
