/* theory: how many samples for a wanted error, and which method is cheapest. */
#include "theory/bounds.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>

/* The measured law: in 99 of 100 sets ||L* - M~|| / coth(1/(2 sigma)) was at most c s^-alpha, for
 * every sigma from 0.5 to 256. Measured for n = 1024 and 4096 (cuts 1024) and s from 4 to 4096
 * (cuts: to 256); extrapolated beyond. experiments/bounds measures and fits it. */
typedef struct measured_law {
    double c, alpha;
} measured_law;

/* Both schemes give the same sets. Golden is not random: its law lies above every measured error.
 */
#define GOLDEN_LAWS [PLSH_DESIGN_GOLDEN] = {1.3, 0.81}, [PLSH_DESIGN_GOLDEN_SHIFTED] = {4.6, 0.87}

static const measured_law laws[PLSH_SCHEME_CUTS + 1][PLSH_DESIGN_AUTO] = {
    [PLSH_SCHEME_BINNING] = {[PLSH_DESIGN_IID] = {2.34, 0.5}, GOLDEN_LAWS},
    [PLSH_SCHEME_INTEGER] = {[PLSH_DESIGN_IID] = {2.36, 0.5}, GOLDEN_LAWS},
    [PLSH_SCHEME_CUTS] = {[PLSH_DESIGN_IID] = {2.89, 0.5}, [PLSH_DESIGN_STRATIFIED] = {2.51, 0.5}},
};

/* The same of stratified sets, for s = 4, 16, 64, .., 4096 (integer also measured for n = 16384):
 * they follow no power law, one that lies above all of these asks for up to twice the samples. */
enum { MEASURED_SIZES = 6 };
static const double stratified_errors[2][MEASURED_SIZES] = {
    [PLSH_SCHEME_BINNING] = {0.881, 0.4572, 0.0787, 0.0354, 0.02, 0.0088},
    [PLSH_SCHEME_INTEGER] = {0.942, 0.4439, 0.0948, 0.0356, 0.0192, 0.0092},
};

/* The samples of a stratified set with the error eps: on the line between two of these in the
 * logarithms, and by s^-1/2, the slope of independent draws, outside of them. */
static double stratified_samples(plsh_scheme scheme, double eps) {
    const double *error = stratified_errors[scheme];
    int i = 0;
    while (i < MEASURED_SIZES && error[i] > eps) i++;
    if (i == 0) return 4 * (error[0] / eps) * (error[0] / eps);
    const double before = ldexp(1, 2 * i), ratio = error[i - 1] / eps; /* 4^i samples */
    if (i == MEASURED_SIZES) return before * ratio * ratio;
    return before * pow(4, log(ratio) / log(error[i - 1] / error[i]));
}

/* Is the design made for ALiBi's decay, instead of drawn partition by partition? Its blocks then
 * have the bounds of theory/bounds.h, and hold few pairs twice. */
static bool is_alibi_design(plsh_design design) {
    switch (design) {
    case PLSH_DESIGN_GOLDEN:
    case PLSH_DESIGN_GOLDEN_SHIFTED:
    case PLSH_DESIGN_TOEPLITZ: return true;
    case PLSH_DESIGN_IID:
    case PLSH_DESIGN_STRATIFIED:
    case PLSH_DESIGN_AUTO: return false;
    }
    return false;
}

static bool has_strata_bound(plsh_scheme scheme, plsh_design design) {
    return scheme == PLSH_SCHEME_INTEGER && design == PLSH_DESIGN_STRATIFIED;
}

/* More samples of design golden have only the theorem's bound, which is ten times larger. */
enum { GOLDEN_BOUND_SAMPLES = 1 << 13, TOEPLITZ_SAMPLES = 1 << 20 };

/* `most` is the number that the theorem proves to be enough. Where the theorem holds for these
 * sets, the result is at most that. */
static int64_t measured_samples(plsh_scheme scheme, plsh_design design, double eps, int64_t most) {
    if (design == PLSH_DESIGN_TOEPLITZ)
        return most; /* its bound is equal to its error on a long line */
    const measured_law *law = &laws[scheme][design];
    const bool in_table = design == PLSH_DESIGN_STRATIFIED && scheme != PLSH_SCHEME_CUTS;
    const int64_t s = plsh_samples_round(in_table ? stratified_samples(scheme, eps)
                                                  : pow(law->c / eps, 1 / law->alpha));
    bool proven = design != PLSH_DESIGN_STRATIFIED || has_strata_bound(scheme, design);
    return proven && s > most ? most : s;
}

/* A number of samples whose set (seed 1, head 0) has a bound of at most eps, by steps along the
 * power law that the bound follows, about s^-0.8; `most` where there is none below. */
static plsh_status bounded_samples(const plsh_advice_case *of, double eps, int64_t most,
                                   int64_t *samples, plsh_error *error) {
    int64_t s = plsh_samples_round(4 * pow(of->eps, -1.25)), enough = most, few = 0;
    for (int step = 0; step < 8 && s > few && s < enough; step++) {
        plsh_partition set = plsh_partition_default(of->sigma, s);
        plsh_bounds bounds;
        set.design = of->design;
        plsh_status status = plsh_bounds_find(&set, of->n, of->delta, &bounds, error);
        if (status) return status;
        const double ratio = bounds.spectral / eps;
        if (ratio <= 1)
            enough = s;
        else
            few = s;
        if (ratio <= 1 && ratio > 0.98) break;
        s = plsh_samples_round((double)s * pow(ratio * 1.005, 1.25));
        if (s <= few || s >= enough) s = few + (enough - few) / 2;
    }
    *samples = enough;
    return PLSH_STATUS_OK;
}

/* The samples that a theorem proves enough for the sets of the case. Where there is no such theorem
 * for design golden, the result is `all`, the number for independent draws. */
static plsh_status proven_samples(const plsh_advice_case *of, double eps, int64_t *all,
                                  plsh_error *error) {
    if (has_strata_bound(of->scheme, of->design)) return bounded_samples(of, eps, *all, all, error);
    if (!is_alibi_design(of->design)) return PLSH_STATUS_OK;
    const int64_t most =
        of->design == PLSH_DESIGN_TOEPLITZ ? TOEPLITZ_SAMPLES : GOLDEN_BOUND_SAMPLES;
    int64_t found;
    plsh_status status = bounded_samples(of, eps, most + 1, &found, error);
    if (!status && found <= most) *all = found;
    return status;
}

/* A query has on average 1 - t/n keys at distance t on each side. The union of s blocks holds such
 * a pair with probability 1 - (1 - k(t))^s; the blocks of the golden lattice, of which about s k(t)
 * hold it, do so with probability about min(1, s k(t)). Summed in steps of sigma / 256. */
static double union_pairs(int64_t n, double sigma, int64_t s, bool golden) {
    const double step = fmax(1, floor(sigma / 256)), count = (double)n;
    double sum = 0, t = 1;
    while (t < count) {
        double middle = t + 0.5 * (step - 1);
        double k = exp(-middle / sigma);
        double part = golden ? fmin(1, (double)s * k) : -expm1((double)s * log1p(-k));
        if (part < 1e-9) break;
        sum += part * fmin(step, count - t) * fmax(0, 1 - middle / count);
        t += step;
    }
    return sum;
}

static double window_pairs(int64_t n, int64_t window) {
    double w = (double)window;
    return w - w * (w + 1) / (2 * (double)n);
}

/* The keys beyond w on each side have at most 2 q^(w+1) / (1 - q) of a row; coth is (1 + q) / (1 -
 * q). */
static int64_t window_for(int64_t n, double sigma, double eps) {
    double w = ceil(sigma * (log(2 / eps) - log1p(exp(-1 / sigma)))) - 1;
    return w < 0 ? 0 : w < (double)(n - 1) ? (int64_t)w : n - 1;
}

static plsh_status check(const plsh_advice_case *of, plsh_error *error) {
    if ((int)of->scheme < 0 || of->scheme > PLSH_SCHEME_CUTS)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "scheme %d: binning, integer and cuts can be used here", (int)of->scheme);
    if ((unsigned)of->design >= PLSH_DESIGN_AUTO)
        return plsh_fail(error, PLSH_STATUS_INVALID, "design %d is unknown here", (int)of->design);
    if (is_alibi_design(of->design) && of->scheme == PLSH_SCHEME_CUTS)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "design %s goes with the schemes binning and integer, not with cuts",
                         plsh_design_names()[of->design]);
    if (of->n < 1 || of->n > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; 1 to 2^31 - 1", (long long)of->n);
    if (!(of->sigma > 0 && of->sigma < INFINITY))
        return plsh_fail(error, PLSH_STATUS_INVALID, "sigma is %g; above 0", of->sigma);
    if (!plsh_is_probability(of->eps))
        return plsh_fail(error, PLSH_STATUS_INVALID, "the error is %g; between 0 and 1", of->eps);
    if (!plsh_is_probability(of->delta))
        return plsh_fail(error, PLSH_STATUS_INVALID, "delta is %g; between 0 and 1", of->delta);
    return PLSH_STATUS_OK;
}

/* The length of the text. */
static int choose(const plsh_advice_case *of, plsh_advice *advice) {
    const long long s = (long long)advice->samples_measured;
    if (advice->window >= of->n - 1) {
        advice->method = "dense";
        return snprintf(advice->reason, sizeof advice->reason,
                        "no window below all %lld keys has this error, and plsh scores %.4g pairs",
                        (long long)of->n, advice->pairs_plsh);
    }
    if (advice->pairs_plsh < advice->pairs_window) {
        advice->method = "plsh";
        return snprintf(advice->reason, sizeof advice->reason,
                        "%lld samples score %.4g pairs, a window of %lld %.4g", s,
                        advice->pairs_plsh, (long long)advice->window, advice->pairs_window);
    }
    advice->method = "window";
    return snprintf(advice->reason, sizeof advice->reason,
                    "%lld keys %s leave out at most %.2g of the norm; the union of %lld blocks has "
                    "%.4g pairs",
                    (long long)advice->window, of->causal ? "back" : "on each side", of->eps, s,
                    advice->pairs_plsh);
}

static void add_least(plsh_advice *advice, int length) {
    if (advice->samples_least > 1)
        snprintf(advice->reason + length, sizeof advice->reason - (size_t)length,
                 "; no set of fewer than %lld masks can reach this error",
                 (long long)advice->samples_least);
}

static plsh_status advise(const plsh_advice_case *of, plsh_advice *advice, plsh_error *error) {
    plsh_status status = check(of, error);
    if (status) return status;
    const int64_t n = of->n;
    const double sigma = of->sigma, absolute = of->eps / tanh(0.5 / sigma);
    const double sides = of->causal ? 1 : 2;
    *advice = (plsh_advice){
        .samples_theorem = plsh_spectral_samples_integral(n, sigma, absolute, of->delta),
        .samples_least = plsh_spectral_least(n, sigma, absolute),
        .samples_paper = plsh_paper_spectral_samples(2 * n, sigma, absolute, of->delta),
        .window = window_for(n, sigma, of->eps),
        .design = of->design,
    };
    status = proven_samples(of, absolute, &advice->samples_theorem, error);
    if (status) return status;
    advice->samples_measured =
        measured_samples(of->scheme, of->design, of->eps, advice->samples_theorem);
    advice->pairs_plsh =
        1 + sides * union_pairs(n, sigma, advice->samples_measured, is_alibi_design(of->design));
    advice->pairs_window = 1 + sides * window_pairs(n, advice->window);
    advice->pairs_dense = 1 + sides * window_pairs(n, n - 1);
    add_least(advice, choose(of, advice));
    return PLSH_STATUS_OK;
}

/* For auto: the design that plsh_design_choose takes for the samples that golden needs. */
plsh_status plsh_advice_make(const plsh_advice_case *of, plsh_advice *advice, plsh_error *error) {
    if (of->design != PLSH_DESIGN_AUTO) return advise(of, advice, error);
    plsh_advice_case chosen = *of;
    plsh_partition set = plsh_partition_default(of->sigma, INT64_C(1) << 31);
    set.scheme = of->scheme;
    set.design = PLSH_DESIGN_AUTO;
    chosen.design = of->scheme == PLSH_SCHEME_CUTS ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_GOLDEN;
    plsh_status status = advise(&chosen, advice, error);
    if (status) return status;
    set.samples = advice->samples_measured;
    const plsh_design design = plsh_design_choose(&set);
    if (design == chosen.design) return PLSH_STATUS_OK;
    chosen.design = design;
    return advise(&chosen, advice, error);
}
