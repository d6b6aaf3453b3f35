/* theory: products with L*, with M~, and with their difference. */
#ifndef PLSH_THEORY_OPERATOR_H
#define PLSH_THEORY_OPERATOR_H

#include "partition/blocks.h"
#include "plsh/theory.h"

/* A set that passes plsh_partition_check, with a checked decay, for n positions: 0 <= n < 2^31 and
 * as many labels where it is made of labels. */
plsh_status plsh_set_check(const plsh_partition *set, int64_t n, plsh_error *error);

/* ---- L*, a Toeplitz matrix ------------------------------------------------------------------- */

typedef struct plsh_toeplitz {
    int64_t n;
    bool recursive; /* ALiBi: (limit + (1 - limit) ratio^t) */
    double ratio;
    double constant; /* lim k(t), its product is a sum */
    double *table;   /* k(t) - constant, t < reach; NULL if recursive */
    double *padded;  /* x between two runs of reach zeros */
    int64_t reach;
    int threads;
} plsh_toeplitz;

plsh_status plsh_toeplitz_create(const plsh_decay *decay, int64_t n, int threads,
                                 plsh_toeplitz *toeplitz, plsh_error *error);
void plsh_toeplitz_destroy(plsh_toeplitz *toeplitz);
void plsh_toeplitz_apply(const plsh_toeplitz *toeplitz, const double *x, double *y);

/* ---- M~ --------------------------------------------------------------------------------------
 *
 * The mask of one draw is sum over its blocks [e, f) of 1_[e,f) 1_[e,f)^T. With prefix sums p_i =
 * x_0 + .. + x_{i-1} a block adds p_f - p_e to y_e .. y_{f-1}: to the difference d = y' it adds p_f
 * - p_e at e and the opposite at f. So every block is an edge {e, f} of a graph on 0..n, and s y =
 * cumulative sum of d,  d_i = sum over the neighbours j of i of (p_j - p_i). `free` recomputes the
 * edges in every product. `blocks` stores the neighbours. `banded` stores s M~ itself, diagonal and
 * above. `split` does that for the narrow draws, which have many short blocks, and stores the
 * neighbours of the others. The number of partial sums is fixed, so that the result does not depend
 * on the threads. */

enum { PLSH_OPERATOR_PIECES = 8 };

typedef struct plsh_operator {
    const plsh_draws *draws;
    plsh_operator_kind kind;
    int64_t n;
    int threads;
    int64_t narrow;              /* the draws 0 .. narrow - 1 are in the band */
    double *prefix, *difference; /* n + 1 */
    /* the blocks of the draws from `narrow` on */
    int64_t *first; /* neighbours of i: neighbour[first[i] .. first[i + 1]) */
    uint32_t *neighbour;
    /* the band */
    int64_t width; /* a multiple of 8, at least the largest block and 8 zeros */
    float *band;   /* [n][width], entry t of row i is s M~(i, i + t); 0 at t = 0 */
    double *padded;
    /* free, banded: the partial sums */
    double *partial;
    int64_t partial_size;
} plsh_operator;

/* The kind and size of an operator, before it is created. */
typedef struct plsh_operator_choice {
    plsh_operator_kind kind; /* not AUTO */
    int64_t narrow;
    int64_t reach; /* the largest block in the band */
    double cost;   /* the time of one product, in units of one entry of the band */
} plsh_operator_choice;

/* Of this kind, or with AUTO the kind whose product is the cheapest among those that max_bytes
 * allows. largest is plsh_draws_largest_block. */
plsh_operator_choice plsh_operator_choose(const plsh_draws *draws, plsh_operator_kind kind,
                                          int64_t n, int64_t largest, size_t max_bytes);

/* `draws` is borrowed. max, if not NULL, is set to the max norm of L* - M~ if there is a band: the
 * same counts give both. */
plsh_status plsh_operator_create(const plsh_draws *draws, const plsh_operator_choice *choice,
                                 int64_t n, int threads, plsh_operator *masks, double *max,
                                 plsh_error *error);
void plsh_operator_destroy(plsh_operator *masks);

/* y = M~ x. The operator's own buffers are used: one call at a time. */
void plsh_operator_apply(plsh_operator *masks, const double *x, double *y);

/* ---- the counts ------------------------------------------------------------------------------ */

/* A band that is to be filled: the first `narrow` draws' counts, as in plsh_operator. */
typedef struct plsh_band {
    int64_t narrow, width;
    float *entry;
} plsh_band;

/* One scan of the entries of M~: the max norm of L* - M~, and a band unless it is NULL. */
plsh_status plsh_counts_scan(const plsh_draws *draws, int64_t n, int threads, const plsh_band *band,
                             double *max, plsh_error *error);

/* ---- the spectral norm ----------------------------------------------------------------------- */

/* A symmetric n x n matrix, as its product y = A x. */
typedef struct plsh_symmetric {
    int64_t n;
    void (*apply)(void *context, const double *x, double *y);
    void *context;
    double cost; /* the time of one product, in units of one entry of a stored band */
} plsh_symmetric;

/* Its spectral norm, by ARPACK where that is installed, otherwise by plsh_lanczos_solve; products
 * is set also on failure. tolerance and max_products are those of the options, which may be 0. */
plsh_status plsh_spectral_solve(const plsh_symmetric *matrix, const plsh_norms_options *options,
                                double *norm, int64_t *products, plsh_error *error);
plsh_status plsh_lanczos_solve(const plsh_symmetric *matrix, const plsh_norms_options *options,
                               double *norm, int64_t *products, plsh_error *error);

/* x = the start vector of both, which depends on n alone; y = A x. Returns false if y consists of
 * rounding errors: then the matrix is 0 (for small sigma both L* and M~ are the identity). */
bool plsh_spectral_start(const plsh_symmetric *matrix, double *x, double *y);

/* Checks tolerance, max_products and kind. */
plsh_status plsh_norms_check_options(const plsh_norms_options *options, plsh_error *error);

#endif
