/* theory: how many samples for a wanted error, and which method is cheapest. */
#include "theory/bounds.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>

/* The measured law: in 99 of 100 sets ||L* - M~|| / coth(1/(2 sigma)) was at most c s^-alpha, for
 * every sigma from 0.5 to 256. Measured for n = 1024 and 4096 (integer and stratified also 16384;
 * cuts 1024) and s from 4 to 4096 (cuts: to 256); extrapolated beyond. experiments/bounds measures
 * and fits it. */
typedef struct measured_law {
    double c, alpha;
} measured_law;

/* The same set for both schemes, and no chance: the law is above all that was measured. */
#define GOLDEN_LAW [PLSH_DESIGN_GOLDEN] = {1.3, 0.81}

static const measured_law laws[3][3] = {
    [PLSH_SCHEME_BINNING] =
        {[PLSH_DESIGN_IID] = {2.34, 0.5}, [PLSH_DESIGN_STRATIFIED] = {3.06, 0.686}, GOLDEN_LAW},
    [PLSH_SCHEME_INTEGER] =
        {[PLSH_DESIGN_IID] = {2.36, 0.5}, [PLSH_DESIGN_STRATIFIED] = {3.03, 0.693}, GOLDEN_LAW},
    [PLSH_SCHEME_CUTS] = {[PLSH_DESIGN_IID] = {2.89, 0.5}, [PLSH_DESIGN_STRATIFIED] = {2.51, 0.5}},
};

static bool has_strata_bound(plsh_scheme scheme, plsh_design design) {
    return scheme == PLSH_SCHEME_INTEGER && design == PLSH_DESIGN_STRATIFIED;
}

/* More samples of design golden have only the theorem's bound, which is ten times larger. */
enum { GOLDEN_BOUND_SAMPLES = 1 << 13 };

/* `most` is the number of the theorem, which is enough where it is about these sets. */
static int64_t measured_samples(plsh_scheme scheme, plsh_design design, double eps, int64_t most) {
    const measured_law *law = &laws[scheme][design];
    int64_t s = plsh_samples_round(pow(law->c / eps, 1 / law->alpha));
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

/* The samples that a theorem proves enough for the sets of the case. Where it has none for design
 * golden, `all` stays, the number for independent draws. */
static plsh_status proven_samples(const plsh_advice_case *of, double eps, int64_t *all,
                                  plsh_error *error) {
    if (has_strata_bound(of->scheme, of->design)) return bounded_samples(of, eps, *all, all, error);
    if (of->design != PLSH_DESIGN_GOLDEN) return PLSH_STATUS_OK;
    int64_t found;
    plsh_status status = bounded_samples(of, eps, GOLDEN_BOUND_SAMPLES + 1, &found, error);
    if (!status && found <= GOLDEN_BOUND_SAMPLES) *all = found;
    return status;
}

/* A query has on average 1 - t/n keys at distance t on each side. The union of s blocks holds such
 * a pair with probability 1 - (1 - k(t))^s; those of the golden lattice, of which s k(t) hold it up
 * to a few, with min(1, s k(t)) about. Summed in steps of sigma / 256. */
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
    if ((unsigned)of->design > PLSH_DESIGN_GOLDEN)
        return plsh_fail(error, PLSH_STATUS_INVALID, "design %d is unknown", (int)of->design);
    if (of->design == PLSH_DESIGN_GOLDEN && of->scheme == PLSH_SCHEME_CUTS)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "design golden goes with the schemes binning and integer, not with cuts");
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

static void choose(const plsh_advice_case *of, plsh_advice *advice) {
    const long long s = (long long)advice->samples_measured;
    if (advice->window >= of->n - 1) {
        advice->method = "dense";
        snprintf(advice->reason, sizeof advice->reason,
                 "no window below all %lld keys has this error, and plsh scores %.4g pairs",
                 (long long)of->n, advice->pairs_plsh);
    } else if (advice->pairs_plsh < advice->pairs_window) {
        advice->method = "plsh";
        snprintf(advice->reason, sizeof advice->reason,
                 "%lld samples score %.4g pairs, a window of %lld %.4g", s, advice->pairs_plsh,
                 (long long)advice->window, advice->pairs_window);
    } else {
        advice->method = "window";
        snprintf(advice->reason, sizeof advice->reason,
                 "%lld keys %s leave out at most %.2g of the norm; the union of %lld blocks has "
                 "%.4g pairs",
                 (long long)advice->window, of->causal ? "back" : "on each side", of->eps, s,
                 advice->pairs_plsh);
    }
}

plsh_status plsh_advice_make(const plsh_advice_case *of, plsh_advice *advice, plsh_error *error) {
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
    };
    status = proven_samples(of, absolute, &advice->samples_theorem, error);
    if (status) return status;
    advice->samples_measured =
        measured_samples(of->scheme, of->design, of->eps, advice->samples_theorem);
    advice->pairs_plsh = 1 + sides * union_pairs(n, sigma, advice->samples_measured,
                                                 of->design == PLSH_DESIGN_GOLDEN);
    advice->pairs_window = 1 + sides * window_pairs(n, advice->window);
    advice->pairs_dense = 1 + sides * window_pairs(n, n - 1);
    choose(of, advice);
    return PLSH_STATUS_OK;
}
