/* theory: bounds in closed form on the norms of L* - M~, the largest block and the output.
 *
 * docs/mathematics.md, sections 10 to 16, has the proofs. */
#include "theory/bounds.h"

#include "base/status.h"
#include "partition/convex.h"
#include "partition/draw.h"
#include "partition/shifted.h"

#include <math.h>

int64_t plsh_samples_round(double s) {
    if (s <= 1) return 1;
    return s < 0x1p62 ? (int64_t)ceil(s) : INT64_MAX;
}

double plsh_minimise(double (*f)(const void *context, double x), const void *context, double low,
                     double high) {
    const double golden = 0.6180339887498949;
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = f(context, a), at_b = f(context, b), least = fmin(at_a, at_b);
    for (int step = 0; step < 36; step++) {
        if (at_a < at_b) {
            high = b, b = a, at_b = at_a;
            a = high - golden * (high - low);
            at_a = f(context, a);
        } else {
            low = a, a = b, at_a = at_b;
            b = low + golden * (high - low);
            at_b = f(context, b);
        }
        least = fmin(least, fmin(at_a, at_b));
    }
    return least;
}

/* ---- spectral norm --------------------------------------------------------------------------- */

/* For both signs of M~ - L* the logarithm of the moment generating function at theta is at most s v
 * theta^2 / (2 (1 - kappa theta)). */
typedef struct spectral_rate {
    double v, kappa;
} spectral_rate;

/* False where sigma is not positive and finite. */
static bool rate_of(double sigma, spectral_rate *rate) {
    if (!(sigma > 0 && sigma < INFINITY)) return false;
    double half = sinh(0.5 / sigma);
    *rate = (spectral_rate){0.5 / half / half, fmax(sigma, 1 / (3 * tanh(0.5 / sigma)))};
    return true;
}

/* The Legendre transform of v x^2 / (2 (1 - kappa x)) at eps is (v / kappa^2) (1 + u - sqrt(1 + 2
 * u)), u = kappa eps / v. Written without cancellation: eps^2 / (2 v) (2 / (1 + sqrt(1 + 2
 * u)))^2. */
static double exponent_at(const spectral_rate *rate, double eps) {
    double root = sqrt(rate->v) + sqrt(rate->v + 2 * rate->kappa * eps);
    return 2 * (eps / root) * (eps / root);
}

static double error_at(const spectral_rate *rate, double l, int64_t s) {
    double each = l / (double)s;
    return sqrt(2 * rate->v * each) + rate->kappa * each;
}

double plsh_spectral_tail(int64_t n, double sigma, int64_t s, double eps) {
    spectral_rate rate;
    if (n < 1 || s < 1 || !rate_of(sigma, &rate) || !(eps > 0)) return NAN;
    if (isinf(eps)) return 0;
    return fmin(1, exp(log(2 * (double)n) - (double)s * exponent_at(&rate, eps)));
}

double plsh_spectral_error(int64_t n, double sigma, int64_t s, double delta) {
    spectral_rate rate;
    if (n < 1 || s < 1 || !rate_of(sigma, &rate) || !plsh_is_probability(delta)) return NAN;
    return error_at(&rate, log(2 * (double)n / delta), s);
}

int64_t plsh_spectral_samples(int64_t n, double sigma, double eps, double delta) {
    spectral_rate rate;
    if (n < 1 || !rate_of(sigma, &rate) || !(eps > 0) || !plsh_is_probability(delta)) return 0;
    return plsh_samples_round(log(2 * (double)n / delta) / exponent_at(&rate, eps));
}

double plsh_spectral_expectation(int64_t n, double sigma, int64_t s) {
    spectral_rate rate;
    if (n < 1 || s < 1 || !rate_of(sigma, &rate)) return NAN;
    return error_at(&rate, log(2 * (double)n), s);
}

/* ---- max norm -------------------------------------------------------------------------------- */

/* ln(n (n - 1)), -INFINITY for n = 1: there is no pair. */
static double log_pairs(int64_t n) { return log((double)n) + log((double)(n - 1)); }

double plsh_max_tail(int64_t n, int64_t s, double eps) {
    if (n < 1 || s < 1 || !(eps > 0)) return NAN;
    return fmin(1, exp(log_pairs(n) - 2 * (double)s * eps * eps));
}

double plsh_max_error(int64_t n, int64_t s, double delta) {
    if (n < 1 || s < 1 || !plsh_is_probability(delta)) return NAN;
    return n == 1 ? 0 : sqrt((log_pairs(n) - log(delta)) / (2 * (double)s));
}

int64_t plsh_max_samples(int64_t n, double eps, double delta) {
    if (n < 1 || !(eps > 0) || !plsh_is_probability(delta)) return 0;
    return plsh_samples_round((log_pairs(n) - log(delta)) / (2 * eps * eps));
}

double plsh_max_certain(const plsh_partition *set) {
    plsh_error error;
    if (plsh_partition_check(set, &error)) return NAN;
    if (plsh_partition_is_golden(set)) return plsh_golden_max_error(set->samples);
    if (plsh_partition_is_toeplitz(set)) return plsh_convex_error(set);
    /* 1e-9 covers the rounding of edges and the blocks that are cut off. The bound is below 1 from
     * 7 samples on. */
    if (plsh_partition_is_shifted(set))
        return fmin(1, plsh_shifted_delta(set->samples) / (double)set->samples + 1e-9);
    if (set->design != PLSH_DESIGN_STRATIFIED || !plsh_partition_is_grid(set)) return NAN;
    plsh_strata strata = plsh_draw_strata(set);
    return fmin(1, (double)(strata.count + strata.largest) / (double)set->samples);
}

/* ---- largest block --------------------------------------------------------------------------- */

/* Pr[Gamma(2, 1) > x] = (1 + x) e^-x for each of s widths. */
double plsh_block_tail(double sigma, int64_t s, double size) {
    if (!(sigma > 0 && sigma < INFINITY) || s < 1 || isnan(size)) return NAN;
    double x = fmax(0, (size - 1) / sigma);
    return isinf(x) ? 0 : fmin(1, (double)s * ((1 + x) * exp(-x)));
}

double plsh_block_bound(double sigma, int64_t s, double delta) {
    if (!(sigma > 0 && sigma < INFINITY) || s < 1 || !plsh_is_probability(delta)) return NAN;
    return 1 + sigma * plsh_draw_gamma2_quantile(fmax(delta / (double)s, 0x1p-1022));
}

/* A block of more than x + 1 positions in 0 .. n-1 begins at 0 or after a cut, and then x gaps are
 * not cut: Pr <= s (1 + (n - 1) (1 - q)) q^x. */
double plsh_block_bound_cuts(int64_t n, double sigma, int64_t s, double delta) {
    if (n < 1 || !(sigma > 0 && sigma < INFINITY) || s < 1 || !plsh_is_probability(delta))
        return NAN;
    double begins = 1 - (double)(n - 1) * expm1(-1 / sigma);
    return 1 + sigma * (log((double)s * begins) - log(delta));
}

/* ---- all bounds of one set
 * -------------------------------------------------------------------------- */

/* s (1 + g + n / sigma) e^-g blocks longer than g sigma are expected to meet n positions: s e^-g
 * begin in a unit of time, s (1 + g) e^-g hold the first. At most delta where g = l + ln(1 + g +
 * n / sigma): the iteration rises to it from below, with a factor of at most 1/l. */
static double shifted_block(const plsh_partition *set, int64_t n, double delta) {
    const double line = (double)n / set->decay.a, l = log((double)set->samples / delta);
    double g = 2 * l + 2 * log(2 + line); /* above */
    for (int step = 0; step < 40; step++) g = l + log(1 + g + line);
    return fmin((double)plsh_shifted_longest(set), 1 + set->decay.a * g * (1 + 1e-9));
}

static double block_of(const plsh_partition *set, int64_t n, double delta) {
    const double sigma = set->decay.a;
    if (plsh_partition_is_golden(set)) {
        const plsh_golden_line line = plsh_golden_line_of(set);
        return (double)plsh_golden_longest(&line);
    }
    if (plsh_partition_is_toeplitz(set)) return (double)plsh_draw_get(set, 0).width;
    if (plsh_partition_is_shifted(set)) return shifted_block(set, n, delta);
    if (set->scheme == PLSH_SCHEME_CUTS)
        return plsh_block_bound_cuts(n, sigma, set->samples, delta);
    return plsh_block_bound(sigma, set->samples, delta);
}

/* The norm of M~ is at most its largest block, and neither it nor L* has negative eigenvalues. */
static double semidefinite_bound(double sigma, double largest_block) {
    return fmax(1 / tanh(0.5 / sigma), largest_block);
}

/* No norm exceeds the largest sum of a row. Within the longest block an entry has an error of at
 * most `max`; beyond it M~ is 0, and the error is L* itself. The diagonal has the error `diagonal`.
 */
static double row_sum_bound(double sigma, double max, double longest, double diagonal) {
    const double q = exp(-1 / sigma);
    return diagonal + 2 * (max * (longest - 1) + pow(q, longest) / -expm1(-1 / sigma));
}

static plsh_status find_spectral(const plsh_partition *set, int64_t n, double delta,
                                 plsh_bounds *bounds, plsh_error *error) {
    const double sigma = set->decay.a;
    const double most = semidefinite_bound(sigma, bounds->largest_block);
    bounds->spectral = most;
    if (set->design == PLSH_DESIGN_IID) {
        bounds->spectral = fmin(most, plsh_spectral_error_integral(n, sigma, set->samples, delta));
        bounds->spectral_expectation = plsh_spectral_expectation_integral(n, sigma, set->samples);
    } else if (plsh_partition_is_golden(set)) {
        const double longest = block_of(set, n, delta);
        bounds->spectral = fmin(most, row_sum_bound(sigma, bounds->max, longest, 0));
        bounds->spectral_expectation =
            bounds->spectral;                    /* a certain bound is one of the mean too */
    } else if (plsh_partition_is_shifted(set)) { /* the norm of M~: blocks per row times longest */
        const double longest = block_of(set, n, delta), max = bounds->max;
        bounds->spectral = fmin((1 + max) * semidefinite_bound(sigma, bounds->largest_block),
                                row_sum_bound(sigma, max, longest, max));
    } else if (set->scheme == PLSH_SCHEME_INTEGER || plsh_partition_is_toeplitz(set)) {
        plsh_strata_error found;
        plsh_status status = plsh_strata_bound(set, n, delta, &found, error);
        if (status) return status;
        bounds->spectral = fmin(most, fmin(found.error, found.certain));
        double mean = fmin(found.expectation, found.certain);
        bounds->spectral_expectation = isinf(mean) ? NAN : mean;
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_bounds_find(const plsh_partition *set, int64_t n, double delta,
                             plsh_bounds *bounds, plsh_error *error) {
    plsh_status status = plsh_partition_check(set, error);
    if (status) return status;
    if (n < 1 || !plsh_is_probability(delta))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "n is %lld and delta %g; at least 1, and between 0 and 1", (long long)n,
                         delta);
    const bool drawn = set->scheme != PLSH_SCHEME_LABELS;
    const bool alibi = drawn && set->decay.kind == PLSH_DECAY_ALIBI && set->decay.limit == 0;
    *bounds = (plsh_bounds){NAN, NAN, plsh_max_certain(set), false, NAN};
    bounds->max_certain = !isnan(bounds->max);
    if (drawn && set->design == PLSH_DESIGN_IID) {
        bounds->max = fmin(1, plsh_max_error(n, set->samples, delta));
        bounds->max_certain = bounds->max >= 1 || n == 1;
    } else if (isnan(bounds->max)) { /* no entry of L* or M~ is outside of 0 .. 1 */
        bounds->max = 1;
        bounds->max_certain = true;
    }
    if (!alibi) return PLSH_STATUS_OK;
    bounds->largest_block = fmin((double)n, block_of(set, n, delta));
    return find_spectral(set, n, delta, bounds, error);
}

/* ---- the output ------------------------------------------------------------------------------ */

/* For independent draws the bounds on rows and on entries hold with probability 1 - delta / 2 each;
 * which one is smaller depends on the instance. The bound on the entries of a stratified set is
 * certain. */
double plsh_delta_p(const plsh_partition *set, int64_t n, double delta, double p_norm) {
    plsh_bounds bounds;
    plsh_error error;
    if (!(p_norm >= 0) || plsh_bounds_find(set, n, delta, &bounds, &error)) return NAN;
    double row = bounds.spectral, max = bounds.max;
    if (set->scheme != PLSH_SCHEME_LABELS && set->design == PLSH_DESIGN_IID) {
        max = plsh_max_error(n, set->samples, delta / 2);
        row = isnan(row) ? row : plsh_row_error(n, set->decay.a, set->samples, delta / 2);
    }
    return fmin(1, fmin(p_norm * row, max)); /* fmin ignores a NaN, a bound that is not known */
}

double plsh_output_bound(double delta_p, double beta, double range) {
    if (!(delta_p >= 0 && beta > 0 && range >= 0)) return NAN;
    return fmin(delta_p / beta, 1) * range;
}

double plsh_output_expectation(double variation, int64_t s, double range) {
    if (!(variation >= 0 && range >= 0) || s < 1) return NAN;
    return fmin(variation / sqrt((double)s), 1) * range;
}
