/* plsh/theory.h - the error M~ - L* of the mean mask: measured, and bounded.
 *
 * L* is the n x n matrix k(|i - j|), M~ the mean of the s masks of a set (plsh/partition.h). There
 * are bounds of the spectral norm ||L* - M~||, the max norm ||L* - M~||_max and the largest block
 * b_max (the paper's Theorem 2.1), and of the error of an attention output (its Theorem 2.2). The
 * bounds here are sharper than the published ones, which stand beside them as plsh_paper_*.
 *
 *     plsh_partition set = plsh_partition_default(64.0, 20);
 *     plsh_norms norms;
 *     plsh_bounds bounds;
 *     plsh_error error;
 *     if (plsh_norms_measure(&set, 4096, NULL, &norms, &error)) puts(error.message);
 *     else if (plsh_bounds_find(&set, 4096, 0.01, &bounds, &error)) puts(error.message);
 *     else printf("%g, at most %g in 99 of 100 sets\n", norms.spectral, bounds.spectral);
 *
 * Only plsh_cells_norms stores an n x n matrix. Calls may run on several threads at once, but the
 * eigenvalue solver (ARPACK) is not reentrant: solves wait for each other. */
#ifndef PLSH_THEORY_H
#define PLSH_THEORY_H

#include "plsh/cells.h"

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
    PLSH_OPERATOR_FREE,   /* recomputes the blocks in every product; O(s + n) memory */
    PLSH_OPERATOR_BLOCKS, /* stores the edges of all blocks, 8 bytes per block */
    PLSH_OPERATOR_BANDED, /* stores the counts s M~, 4 bytes per entry of the upper band; s <= 2^24
                           */
    PLSH_OPERATOR_SPLIT   /* banded for the narrow draws, blocks for the wide ones, split where a
                             product is cheapest (cuts and labels: one of the two for all).
                             Design golden-shifted: blocks instead of banded and split */
} plsh_operator_kind;

typedef struct plsh_norms_options {
    bool skip_spectral, skip_max; /* a skipped norm is NAN */
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

/* Measures all three. The decay of L* is that of the set, also for partitions given by labels.
 * options = NULL: the defaults. 1 <= n < 2^31.
 *
 * The spectral norm is the eigenvalue of largest magnitude by ARPACK (dsaupd), from a start vector
 * that is a function of n alone; where ARPACK is not installed (it is loaded when first needed) by
 * the library's own Lanczos method. A tolerance of t means that a true eigenvalue lies within t
 * times the result.
 *
 * The operator is chosen by the time of one product, in units of one entry of the band: free 12 B,
 * blocks 3 B, banded n w, with B blocks in all and w the largest, split the sum of its two parts;
 * stored operators only where max_bytes allows. */
PLSH_API plsh_status plsh_norms_measure(const plsh_partition *set, int64_t n,
                                        const plsh_norms_options *options, plsh_norms *norms,
                                        plsh_error *error);

/* ---- Bounds ----------------------------------------------------------------
 *
 * Proofs: docs/mathematics.md, sections 10 to 18. n >= 1, sigma > 0, s >= 1, eps > 0 and 0 < delta
 * < 1; the functions return NAN otherwise, those that count samples 0 (and INT64_MAX where it would
 * be more). A tail is a bound on the probability that the norm exceeds eps, at most 1. An error is
 * a value that the norm exceeds with probability at most delta. Samples are the fewest whose error
 * is at most eps. */

/* The bounds for one set on the positions 0 .. n-1: the least of those that hold for its scheme,
 * design and decay. NAN: none is known. For ALiBi the spectral norm is at most the larger of
 * coth(1/(2 sigma)) and the largest block, because neither L* nor M~ has negative eigenvalues; no
 * entry errs by more than 1.
 *
 * Of a stratified integer set of ALiBi the spectral bounds are for the widths that the set (its
 * seed and head) has drawn, and the probability is that of the rotations of its offsets: another
 * head has other bounds. They take some 10 ms; above 2^20 samples, or where they would need more
 * than 64 MB, only the bound by the largest block is given, and no expectation. */
typedef struct plsh_bounds {
    double spectral;             /* exceeded by ||L* - M~|| with probability at most delta */
    double spectral_expectation; /* at least E||L* - M~|| */
    double max;                  /* exceeded by ||L* - M~||_max with probability at most delta, */
    bool max_certain;     /* or never: for stratified sets of binning and integer, for the designs
                           * golden and toeplitz, whose bounds are all certain, for golden-shifted, and
                           * where max is 1 */
    double largest_block; /* exceeded by b_max with probability at most delta */
} plsh_bounds;

PLSH_API plsh_status plsh_bounds_find(const plsh_partition *set, int64_t n, double delta,
                                      plsh_bounds *bounds, plsh_error *error);

/* Spectral norm, s independent draws (PLSH_DESIGN_IID) of ALiBi by any scheme. With
 * v = 1 / (2 sinh^2(1/(2 sigma))) <= 2 sigma^2, kappa = max(sigma, coth(1/(2 sigma)) / 3):
 *     Pr[||L* - M~|| >= eps] <= delta  at  eps = sqrt(2 v l / s) + kappa l / s, l = ln(2n / delta);
 *     E||L* - M~|| <= the same at l = ln(2n);   s = l (1 + sqrt(1 + 2 kappa eps / v))^2 v / (2
 * eps^2).
 */
PLSH_API double plsh_spectral_tail(int64_t n, double sigma, int64_t s, double eps);
PLSH_API double plsh_spectral_error(int64_t n, double sigma, int64_t s, double delta);
PLSH_API int64_t plsh_spectral_samples(int64_t n, double sigma, double eps, double delta);
PLSH_API double plsh_spectral_expectation(int64_t n, double sigma, int64_t s);

/* The same bounds, tighter: the trace of the moment generating function is an integral over the
 * frequencies, computed by quadrature and minimised over theta. The result is 0.5 to 0.9 of the
 * closed form, and never above it. A call takes about a millisecond, one that returns samples
 * about 30. */
PLSH_API double plsh_spectral_tail_integral(int64_t n, double sigma, int64_t s, double eps);
PLSH_API double plsh_spectral_error_integral(int64_t n, double sigma, int64_t s, double delta);
PLSH_API int64_t plsh_spectral_samples_integral(int64_t n, double sigma, double eps, double delta);
PLSH_API double plsh_spectral_expectation_integral(int64_t n, double sigma, int64_t s);

/* A lower bound on the number of samples: with fewer contiguous partitions of 0 .. n-1, whatever
 * they are and however they are weighted, ||L* - M~|| > eps for ALiBi. It is about 3 sigma / (8
 * eps) where that is far below sigma. At least 1; 40 ms. */
PLSH_API int64_t plsh_spectral_least(int64_t n, double sigma, double eps);

/* The largest Euclidean norm of a row of L* - M~, s independent draws of ALiBi by any scheme: about
 * sqrt(2 sigma ln(2n / delta) / s). It is at most the spectral norm, and it is enough to bound the
 * error of an output. */
PLSH_API double plsh_row_error(int64_t n, double sigma, int64_t s, double delta);

/* Max norm, s independent draws by any scheme, for any decay: n (n-1) exp(-2 s eps^2) (Hoeffding's
 * inequality for each of the n (n-1) / 2 pairs). */
PLSH_API double plsh_max_tail(int64_t n, int64_t s, double eps);
PLSH_API double plsh_max_error(int64_t n, int64_t s, double delta);
PLSH_API int64_t plsh_max_samples(int64_t n, double eps, double delta);

/* Max norm, never exceeded, for any n. Of a stratified set by binning or integer: (strata + samples
 * of the largest) / s, for any decay. Of design golden: the greatest difference over all real
 * positions, computed, up to 2^13 samples, (6.02 ln(sqrt(sqrt(5) s) + 3.62) + 3.12) / s beyond. Of
 * golden-shifted: (3.01 ln(sqrt(sqrt(5) s) + 3.62) + 0.56) / s. Of toeplitz: the max norm on a long
 * line. NAN for other sets. */
PLSH_API double plsh_max_certain(const plsh_partition *set);

/* Largest block, binning and integer, any design (it needs no independence):
 *     Pr[b_max > 1 + sigma g] <= delta, g the quantile of Gamma(2, 1) at 1 - delta / s.
 * For cuts it depends on n: 1 + sigma ln(s (1 + (n-1) (1 - e^(-1/sigma))) / delta). */
PLSH_API double plsh_block_tail(double sigma, int64_t s, double size);
PLSH_API double plsh_block_bound(double sigma, int64_t s, double delta);
PLSH_API double plsh_block_bound_cuts(int64_t n, double sigma, int64_t s, double delta);

/* ---- Points ----------------------------------------------------------------
 *
 * The same for points and their cells (plsh/cells.h): L*_ij = k(|x_i - x_j|), M~ the mean of s
 * masks by scheme hyperplanes. Points without a position have no error and do not count.
 * Proofs: docs/mathematics.md, "Cells". */

/* Measures the norms; largest_block is the most points of a cell. The matrix is stored: 8 n^2
 * bytes, at most options->max_bytes. */
PLSH_API plsh_status plsh_cells_norms(const plsh_partition *set, plsh_point_set points,
                                      const plsh_norms_options *options, plsh_norms *norms,
                                      plsh_error *error);

/* The bounds. spectral and spectral_expectation: independent draws of ALiBi without a limit, by
 * matrix Bennett with the exact variance of a mask and a bound on the largest cell; max:
 * independent draws; largest_block: any design. They depend on the points: O(n^3) time, for at most
 * PLSH_CELLS_BOUND_POINTS of them (above that NAN for all but max). threads = 0: all. */
enum { PLSH_CELLS_BOUND_POINTS = 4096 };

PLSH_API plsh_status plsh_cells_bounds(const plsh_partition *set, plsh_point_set points,
                                       double delta, int threads, plsh_bounds *bounds,
                                       plsh_error *error);

/* ---- The output ----------------------------------------------------------- */

/* The quantities of an attention instance that its error depends on. P is the attention without
 * bias, P* the attention with it; their rows sum to 1. */
typedef struct plsh_instance {
    double p_norm;    /* ||P||_{2,inf}, the largest Euclidean norm of a row */
    double beta;      /* beta*_P = min_i sum_j P_ij L*_ij */
    double variation; /* max_i sum_j P*_ij sqrt(1 / L*_ij - 1): the coefficient of variation of a
                         mask entry, which is 1 with probability L*_ij, weighed by P* */
} plsh_instance;

/* The head for which they are measured. */
typedef struct plsh_instance_head {
    const plsh_decay *decay;
    int64_t n, dim;
    const float *q, *k; /* [n, dim] without gaps */
    double scale;       /* 0: 1 / sqrt(dim) */
    bool causal;
} plsh_instance_head;

/* O(n^2 dim) in double. */
PLSH_API plsh_status plsh_instance_measure(const plsh_instance_head *head, int threads,
                                           plsh_instance *instance, plsh_error *error);

/* Delta_P: with probability 1 - delta sum_j P_ij |L*_ij - M~_ij| is at most that in every row, for
 * every instance at once. Independent draws (PLSH_DESIGN_IID) of ALiBi: min(||P||_{2,inf}
 * row_error(delta / 2), max_error(delta / 2), 1), of other decays without the first. Stratified
 * sets: min(||P||_{2,inf} spectral, max) of plsh_bounds_find. NAN where that call would fail. */
PLSH_API double plsh_delta_p(const plsh_partition *set, int64_t n, double delta, double p_norm);

/* ||T* - T~*||_max <= min(Delta_P / beta, 1) range, range the largest max - min of a column of V
 * (at most 2 ||V||_max). This needs no condition, where Theorem 2.2 needs Delta_P < beta. */
PLSH_API double plsh_output_bound(double delta_p, double beta, double range);

/* The expected error over s independent draws: E|T~*_i - T*_i| <= variation range / sqrt(s) for
 * every row and column. It does not depend on n and beta. For equal scores the variation is at most
 * pi / 2. */
PLSH_API double plsh_output_expectation(double variation, int64_t s, double range);

/* ---- The paper's bounds, as published --------------------------------------
 *
 * Theorem 2.1 with the constants of its proof, to compare with. Spectral norm: n E,
 * E = exp(-s eps^2 / (16 Psi^2 + 4 Psi eps)), Psi = 1 + sigma + coth(1/(2 sigma)). That is what its
 * proof gives for one sign of the eigenvalues; for the norm it gives 2 n E: pass 2 n for n. */
PLSH_API double plsh_paper_psi(double sigma);
PLSH_API double plsh_paper_spectral_tail(int64_t n, double sigma, int64_t s, double eps);
PLSH_API double plsh_paper_spectral_error(int64_t n, double sigma, int64_t s, double delta);
PLSH_API int64_t plsh_paper_spectral_samples(int64_t n, double sigma, double eps, double delta);

/* A bound on E||L* - M~||: the eps of 2 n E at l = 1 + ln(2n) in the place of ln(2n / delta). It is
 * at most 4 Psi (sqrt(l / s) + l / s): the C of the paper's inequality is 4. */
PLSH_API double plsh_paper_spectral_expectation(int64_t n, double sigma, int64_t s);

/* Max norm: 2 n^2 exp(-2 s eps^2). Largest block: 1 + sigma (3 ln(s / delta) + 2) for
 * delta < 1/e (NAN above). */
PLSH_API double plsh_paper_max_error(int64_t n, int64_t s, double delta);
PLSH_API double plsh_paper_block_bound(double sigma, int64_t s, double delta);

/* Theorem 2.2: Delta_P = min(||P||_{2,inf} eps, max error), each at delta / 2 (at most
 * 8 min(Psi ||P||_{2,inf}, 1) sqrt(ln(4 n / delta) / s) where s >= ln(4 n / delta): its C is 8),
 * and
 * ||T* - T~*||_max <= 2 Delta_P / (beta - Delta_P) ||V||_max; INFINITY where Delta_P >= beta. */
PLSH_API double plsh_paper_delta_p(int64_t n, double sigma, int64_t s, double delta, double p_norm);
PLSH_API double plsh_paper_output_bound(double delta_p, double beta, double v_max);

/* ---- How many samples, and which method ------------------------------------
 *
 * The error asked for is ||L* - M~|| / coth(1/(2 sigma)), the spectral norm relative to that of the
 * bias matrix of a long context. */
typedef struct plsh_advice {
    int64_t samples_theorem;  /* enough with probability 1 - delta, proven: for stratified sets by
                               * integer of the set with seed 1 and head 0 (others need a few per
                               * cent more or less), for design golden certain where at most 2^13
                               * are enough, for toeplitz certain, in all other cases of
                               * independent draws */
    int64_t samples_least;    /* no set of fewer masks has this error: plsh_spectral_least */
    int64_t samples_paper;    /* by the paper's constants (the tail 2 n E above) */
    int64_t samples_measured; /* enough in 99 of 100 sets, by measurements of sets of this scheme
                                 and design (experiments/bounds), extrapolated beyond 4096 */
    int64_t window;           /* keys on each side with which truncation has at most this error */
    double pairs_plsh;        /* per query: by plsh with samples_measured, */
    double pairs_window;      /* by window, */
    double pairs_dense;       /* by dense */
    const char *method;       /* the one with the fewest */
    char reason[256];
    plsh_design design; /* that of the case; what auto stands for at samples_measured */
} plsh_advice;

/* The case that advice is wanted for. */
typedef struct plsh_advice_case {
    plsh_scheme scheme; /* of the set that would be drawn: binning, integer or cuts */
    plsh_design design;
    int64_t n;    /* 1 <= n < 2^31 */
    double sigma; /* > 0 */
    double eps;   /* the error asked for, 0 < eps < 1 */
    double delta; /* 0 < delta < 1 */
    bool causal;  /* pairs on one side of the query only */
} plsh_advice_case;

PLSH_API plsh_status plsh_advice_make(const plsh_advice_case *of, plsh_advice *advice,
                                      plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
