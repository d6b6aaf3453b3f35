/* theory: the bounds of Theorems 2.1 and 2.2, with the constants of their proofs. */
#include "plsh/theory.h"

#include <math.h>

double plsh_psi(double sigma) {
    if (!(sigma > 0 && sigma < INFINITY)) return NAN;
    /* (e^x + 1) / (e^x - 1) = coth(x / 2), without overflow and cancellation. */
    return 1 + sigma + 1 / tanh(0.5 / sigma);
}

static bool is_probability(double delta) { return delta > 0 && delta < 1; }

/* ---- spectral norm --------------------------------------------------------------------------- */

/* sides exp(ln n - s eps^2 / (16 Psi^2 + 4 Psi eps)), at most 1. */
static double spectral_tail(double sides, int64_t n, double sigma, int64_t s, double eps) {
    double psi = plsh_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi) || !(eps > 0)) return NAN;
    if (isinf(eps)) return 0;
    double rate = eps / (16 * psi + 4 * eps) * (eps / psi);
    return fmin(1, sides * exp(log((double)n) - (double)s * rate));
}

/* The eps at which s eps^2 = l (16 Psi^2 + 4 Psi eps). */
static double spectral_level(double l, double psi, int64_t s) {
    double samples = (double)s;
    return 2 * psi * (l + sqrt(l * l + 4 * samples * l)) / samples;
}

static double spectral_error(double sides, int64_t n, double sigma, int64_t s, double delta) {
    double psi = plsh_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi) || !is_probability(delta)) return NAN;
    return spectral_level(log(sides * (double)n / delta), psi, s);
}

static int64_t samples_from(double s) {
    if (s <= 1) return 1;
    return s < 0x1p62 ? (int64_t)ceil(s) : INT64_MAX;
}

/* The formula, put right where its rounding is off by one. */
static int64_t spectral_samples(double sides, int64_t n, double sigma, double eps, double delta) {
    double psi = plsh_psi(sigma);
    if (n < 1 || isnan(psi) || !(eps > 0) || !is_probability(delta)) return 0;
    double l = log(sides * (double)n / delta), ratio = psi / eps;
    int64_t s = samples_from(l * (16 * ratio * ratio + 4 * ratio));
    if (s == INT64_MAX || s > INT64_C(1) << 50) return s;
    while (spectral_tail(sides, n, sigma, s, eps) > delta) s++;
    while (s > 1 && spectral_tail(sides, n, sigma, s - 1, eps) <= delta) s--;
    return s;
}

double plsh_spectral_tail(int64_t n, double sigma, int64_t s, double eps) {
    return spectral_tail(1, n, sigma, s, eps);
}

double plsh_spectral_tail_two_sided(int64_t n, double sigma, int64_t s, double eps) {
    return spectral_tail(2, n, sigma, s, eps);
}

double plsh_spectral_error(int64_t n, double sigma, int64_t s, double delta) {
    return spectral_error(1, n, sigma, s, delta);
}

double plsh_spectral_error_two_sided(int64_t n, double sigma, int64_t s, double delta) {
    return spectral_error(2, n, sigma, s, delta);
}

int64_t plsh_spectral_samples(int64_t n, double sigma, double eps, double delta) {
    return spectral_samples(1, n, sigma, eps, delta);
}

int64_t plsh_spectral_samples_two_sided(int64_t n, double sigma, double eps, double delta) {
    return spectral_samples(2, n, sigma, eps, delta);
}

double plsh_spectral_expectation(int64_t n, double sigma, int64_t s) {
    double psi = plsh_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi)) return NAN;
    return spectral_level(1 + log(2 * (double)n), psi, s);
}

/* ---- max norm -------------------------------------------------------------------------------- */

double plsh_max_tail(int64_t n, int64_t s, double eps) {
    if (n < 1 || s < 1 || !(eps > 0)) return NAN;
    return fmin(1, 2 * exp(2 * log((double)n) - 2 * (double)s * eps * eps));
}

/* ln(2 n^2 / delta) */
static double max_level(int64_t n, double delta) {
    return log(2) + 2 * log((double)n) - log(delta);
}

double plsh_max_error(int64_t n, int64_t s, double delta) {
    if (n < 1 || s < 1 || !is_probability(delta)) return NAN;
    return sqrt(max_level(n, delta) / (2 * (double)s));
}

int64_t plsh_max_samples(int64_t n, double eps, double delta) {
    if (n < 1 || !(eps > 0) || !is_probability(delta)) return 0;
    int64_t s = samples_from(max_level(n, delta) / (2 * eps * eps));
    if (s == INT64_MAX || s > INT64_C(1) << 50) return s;
    while (plsh_max_tail(n, s, eps) > delta) s++;
    while (s > 1 && plsh_max_tail(n, s - 1, eps) <= delta) s--;
    return s;
}

/* ---- largest block --------------------------------------------------------------------------- */

double plsh_block_bound(double sigma, int64_t s, double delta) {
    if (!(sigma > 0 && sigma < INFINITY) || s < 1 || !(delta > 0 && delta < exp(-1))) return NAN;
    return 1 + sigma * (3 * log((double)s / delta) + 2);
}

double plsh_block_tail(double sigma, int64_t s, double size) {
    if (!(sigma > 0 && sigma < INFINITY) || s < 1 || isnan(size)) return NAN;
    double delta = (double)s * exp(-((size - 1) / sigma - 2) / 3);
    return delta < exp(-1) ? delta : 1;
}

/* ---- Theorem 2.2 ----------------------------------------------------------------------------- */

double plsh_delta_p(int64_t n, double sigma, int64_t s, double delta, double p_norm) {
    if (!(p_norm >= 0)) return NAN;
    double spectral = plsh_spectral_error_two_sided(n, sigma, s, delta / 2);
    double max = plsh_max_error(n, s, delta / 2);
    return isnan(spectral) || isnan(max) ? NAN : fmin(p_norm * spectral, max);
}

double plsh_output_bound(double delta_p, double beta, double v_max) {
    if (!(delta_p >= 0 && beta >= 0 && v_max >= 0)) return NAN;
    if (!(delta_p < beta)) return INFINITY;
    return 2 * delta_p / (beta - delta_p) * v_max;
}
