/* theory: the bounds of Theorems 2.1 and 2.2 as published, with the constants of their proofs. */
#include "plsh/theory.h"
#include "theory/bounds.h"

#include <math.h>

double plsh_paper_psi(double sigma) {
    if (!(sigma > 0 && sigma < INFINITY)) return NAN;
    /* (e^x + 1) / (e^x - 1) = coth(x / 2), without overflow and cancellation. */
    return 1 + sigma + 1 / tanh(0.5 / sigma);
}

/* exp(ln n - s eps^2 / (16 Psi^2 + 4 Psi eps)), at most 1. */
double plsh_paper_spectral_tail(int64_t n, double sigma, int64_t s, double eps) {
    double psi = plsh_paper_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi) || !(eps > 0)) return NAN;
    if (isinf(eps)) return 0;
    double rate = eps / (16 * psi + 4 * eps) * (eps / psi);
    return fmin(1, exp(log((double)n) - (double)s * rate));
}

/* The eps at which s eps^2 = l (16 Psi^2 + 4 Psi eps). */
static double spectral_level(double l, double psi, int64_t s) {
    double samples = (double)s;
    return 2 * psi * (l + sqrt(l * l + 4 * samples * l)) / samples;
}

double plsh_paper_spectral_error(int64_t n, double sigma, int64_t s, double delta) {
    double psi = plsh_paper_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi) || !plsh_is_probability(delta)) return NAN;
    return spectral_level(log((double)n / delta), psi, s);
}

int64_t plsh_paper_spectral_samples(int64_t n, double sigma, double eps, double delta) {
    double psi = plsh_paper_psi(sigma);
    if (n < 1 || isnan(psi) || !(eps > 0) || !plsh_is_probability(delta)) return 0;
    double l = log((double)n / delta), ratio = psi / eps;
    return plsh_samples_round(l * (16 * ratio * ratio + 4 * ratio));
}

/* Theorem 2.1 leaves the constant of the mean open. Its tail for both signs is Pr[||X|| > level(l)]
 * <= 2n e^-l, so ||X|| is at most level(ln 2n + U) in distribution, U exponential with mean 1; and
 * level is concave in l, so E||X|| <= level(ln 2n + 1) by Jensen's inequality. */
double plsh_paper_spectral_expectation(int64_t n, double sigma, int64_t s) {
    double psi = plsh_paper_psi(sigma);
    if (n < 1 || s < 1 || isnan(psi)) return NAN;
    return spectral_level(1 + log(2 * (double)n), psi, s);
}

double plsh_paper_max_error(int64_t n, int64_t s, double delta) {
    if (n < 1 || s < 1 || !plsh_is_probability(delta)) return NAN;
    return sqrt((log(2) + 2 * log((double)n) - log(delta)) / (2 * (double)s));
}

double plsh_paper_block_bound(double sigma, int64_t s, double delta) {
    if (!(sigma > 0 && sigma < INFINITY) || s < 1 || !(delta > 0 && delta < exp(-1))) return NAN;
    return 1 + sigma * (3 * log((double)s / delta) + 2);
}

double plsh_paper_delta_p(int64_t n, double sigma, int64_t s, double delta, double p_norm) {
    if (!(p_norm >= 0)) return NAN;
    double spectral = plsh_paper_spectral_error(n, sigma, s, delta / 4); /* both signs */
    double max = plsh_paper_max_error(n, s, delta / 2);
    return isnan(spectral) || isnan(max) ? NAN : fmin(p_norm * spectral, max);
}

double plsh_paper_output_bound(double delta_p, double beta, double v_max) {
    if (!(delta_p >= 0 && beta >= 0 && v_max >= 0)) return NAN;
    if (!(delta_p < beta)) return INFINITY;
    return 2 * delta_p / (beta - delta_p) * v_max;
}
