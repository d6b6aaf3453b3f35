/* plsh/theory.h - how far M~ is from the bias matrix: measured, and bounded.
 *
 * L* is the n x n matrix k(|i - j|), M~ the mean of the s masks of a set
 * (plsh/partition.h). Theorem 2.1 of the paper bounds three things: the spectral
 * norm ||L* - M~||, the max norm ||L* - M~||_max and the largest block b_max.
 * Theorem 2.2 turns the first two into a bound on the attention output.
 *
 *     plsh_partition set = plsh_partition_default(64.0, 20);
 *     plsh_norms norms;
 *     plsh_error error;
 *     if (plsh_norms_measure(&set, 4096, NULL, &norms, &error)) puts(error.message);
 *     else printf("%g, at most %g in 99 of 100 draws\n", norms.spectral,
 *                 plsh_spectral_error(4096, 64.0, 20, 0.01));
 *
 * Nothing here builds an n x n matrix. Calls may run on several threads at once,
 * but the eigenvalue solver (ARPACK) is not reentrant: solves wait for each other. */
#ifndef PLSH_THEORY_H
#define PLSH_THEORY_H

#include "plsh/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Products ------------------------------------------------------------- */

/* y = L* x, x and y of n doubles, not the same array. ALiBi: two first-order
 * recursions, O(n). Other decays: O(n reach), where reach is the distance at
 * which k has fallen below 2^-60 of its limit, at most n. threads = 0: all;
 * the result does not depend on it. n = 0 does nothing. */
PLSH_API plsh_status plsh_decay_multiply(const plsh_decay *decay, int64_t n, const double *x,
                                         double *y, int threads, plsh_error *error);

/* y = M~ x, matrix free: prefix sums of x, then a few operations per block,
 * O(n + n s / sigma). Labels must be contiguous (each label of a draw one run)
 * and at least n. n < 2^31. */
PLSH_API plsh_status plsh_partition_multiply(const plsh_partition *set, int64_t n, const double *x,
                                             double *y, int threads, plsh_error *error);

/* ---- Norms ---------------------------------------------------------------- */

typedef enum plsh_operator_kind {
    PLSH_OPERATOR_AUTO,   /* the cheapest by the model below */
    PLSH_OPERATOR_FREE,   /* every draw walked anew in every product; O(s + n) memory */
    PLSH_OPERATOR_BLOCKS, /* the edges of all blocks stored, 8 bytes per block */
    PLSH_OPERATOR_BANDED, /* the counts s M~ stored, 4 bytes per entry of the upper band;
                           * s <= 2^24 */
    PLSH_OPERATOR_SPLIT   /* the narrow draws banded, the wide ones' blocks stored, split where a
                           * product is cheapest (cuts and labels: one or the other) */
} plsh_operator_kind;

typedef struct plsh_norms_options {
    bool skip_spectral, skip_max; /* what is skipped is NAN */
    double tolerance;             /* of the spectral norm, relative: 1e-14 .. 0.5; 0 means 1e-6 */
    int64_t max_products;         /* products with L* - M~ before giving up; 0 means 100000 */
    int threads;                  /* 0 = all; the results do not depend on it */
    plsh_operator_kind kind;
    size_t max_bytes; /* of a stored operator that AUTO may take; 0 means 2^30 */
} plsh_norms_options;

typedef struct plsh_norms {
    double spectral;       /* ||L* - M~||, the largest singular value */
    double max;            /* the largest |L*_ij - M~_ij| */
    int64_t largest_block; /* b_max, within 0..n-1 */
    int64_t products;      /* with L* - M~, that the solver took */
    plsh_operator_kind kind;
} plsh_norms;

/* Measures all three. The decay of L* is the set's own, also where the partition
 * is given by labels. options = NULL: the defaults. 1 <= n < 2^31.
 *
 * The spectral norm is the eigenvalue of largest magnitude by ARPACK (dsaupd),
 * from a start vector that is a function of n alone; a build without ARPACK
 * says PLSH_STATUS_UNSUPPORTED unless skip_spectral. A tolerance of t means
 * that a true eigenvalue lies within t times the result.
 *
 * The operator is chosen by the time of one product, in units of one entry of the
 * band: free 12 B, blocks 3 B, banded n w, with B blocks in all and w the
 * largest, split the sum of its two parts; stored operators only where max_bytes allows. */
PLSH_API plsh_status plsh_norms_measure(const plsh_partition *set, int64_t n,
                                        const plsh_norms_options *options, plsh_norms *norms,
                                        plsh_error *error);

/* ---- Theorem 2.1: the bounds, with the constants of its proof --------------
 *
 * For s independent draws (PLSH_DESIGN_IID) of ALiBi by binning or integer;
 * the max norm's holds for every scheme. n >= 1, sigma > 0, s >= 1, eps > 0 and
 * 0 < delta < 1; the functions return NAN otherwise, those that count samples 0.
 *
 * Spectral norm. Theorem 6.2 of Tropp (2012) with the proof's r = 2 Psi and
 * alpha^2 = 8 Psi^2 gives Pr[lambda_max(L* - M~) >= eps] <= n E, where
 *     E = exp(-s eps^2 / (16 Psi^2 + 4 Psi eps)).
 * The paper states n E for the norm. The norm is the larger of lambda_max and
 * -lambda_min, and Tropp's theorem bounds each of the two events by n E: what it proves
 * for the norm is 2 n E. The plain names give n E as published, those that end in
 * _two_sided 2 n E; everything derived further on (expectation, Theorem 2.2) uses the latter. */

/* Psi = 1 + sigma + (e^(1/sigma) + 1) / (e^(1/sigma) - 1). */
PLSH_API double plsh_psi(double sigma);

/* A bound on Pr[||L* - M~|| >= eps], at most 1. */
PLSH_API double plsh_spectral_tail(int64_t n, double sigma, int64_t s, double eps);
PLSH_API double plsh_spectral_tail_two_sided(int64_t n, double sigma, int64_t s, double eps);

/* The eps that is exceeded with probability at most delta:
 *     eps = 2 Psi (l + sqrt(l^2 + 4 s l)) / s, l = ln(n / delta). */
PLSH_API double plsh_spectral_error(int64_t n, double sigma, int64_t s, double delta);
PLSH_API double plsh_spectral_error_two_sided(int64_t n, double sigma, int64_t s, double delta);

/* The fewest samples whose bound on Pr[||L* - M~|| >= eps] is at most delta:
 * s = l (16 Psi^2 + 4 Psi eps) / eps^2, rounded up. INT64_MAX where that is more. */
PLSH_API int64_t plsh_spectral_samples(int64_t n, double sigma, double eps, double delta);
PLSH_API int64_t plsh_spectral_samples_two_sided(int64_t n, double sigma, double eps, double delta);

/* A bound on E||L* - M~||: the eps above at l = 1 + ln(2 n). Proof: E||X|| is the
 * integral of the tail, which is at most the mean of eps(ln(2n) + U) over U ~ Exp(1);
 * eps(l) is concave, so Jensen's inequality gives eps(ln(2n) + 1). It is at most
 * 4 Psi (sqrt(l / s) + l / s): the C of the paper's inequality is 4, with
 * 1 + ln(2n) for its log n. */
PLSH_API double plsh_spectral_expectation(int64_t n, double sigma, int64_t s);

/* Max norm: 2 n^2 exp(-2 s eps^2), at most 1; its eps = sqrt(ln(2 n^2 / delta) / (2 s)), and
 * the samples ln(2 n^2 / delta) / (2 eps^2), rounded up. */
PLSH_API double plsh_max_tail(int64_t n, int64_t s, double eps);
PLSH_API double plsh_max_error(int64_t n, int64_t s, double delta);
PLSH_API int64_t plsh_max_samples(int64_t n, double eps, double delta);

/* Largest block: Pr[b_max > 1 + sigma (3 ln(s / delta) + 2)] < delta for
 * delta < 1/e (NAN above). Also for stratified sets: it needs no independence. The
 * tail is the delta that gives this size, at most 1 (also where it is above 1/e). */
PLSH_API double plsh_block_bound(double sigma, int64_t s, double delta);
PLSH_API double plsh_block_tail(double sigma, int64_t s, double size);

/* ---- Theorem 2.2: the output ---------------------------------------------- */

/* What the theorem needs of an attention instance: P is the attention without
 * bias, rows summing to 1. */
typedef struct plsh_instance {
    double p_norm; /* ||P||_{2,inf}, the largest Euclidean norm of a row */
    double beta;   /* beta*_P = min_i sum_j P_ij L*_ij */
} plsh_instance;

/* Both from q and k, [n, dim] floats without gaps, O(n^2 dim) in double.
 * scale = 0 means 1 / sqrt(dim). */
PLSH_API plsh_status plsh_instance_measure(const plsh_decay *decay, int64_t n, int64_t dim,
                                           const float *q, const float *k, double scale,
                                           bool causal, int threads, plsh_instance *instance,
                                           plsh_error *error);

/* Delta_P = min(||P||_{2,inf} spectral_error_two_sided(delta / 2), max_error(delta / 2)): with
 * probability 1 - delta both norms keep within, so for every instance at once. With s >= ln(4 n /
 * delta) it is at most 8 min(Psi ||P||_{2,inf}, 1) sqrt(ln(4 n / delta) / s): the theorem's C is 8.
 */
PLSH_API double plsh_delta_p(int64_t n, double sigma, int64_t s, double delta, double p_norm);

/* The theorem's second item, ||T* - T~*||_max <= 2 Delta_P / (beta - Delta_P) ||V||_max; INFINITY
 * where Delta_P >= beta, for which it says nothing. */
PLSH_API double plsh_output_bound(double delta_p, double beta, double v_max);

#ifdef __cplusplus
}
#endif

#endif
