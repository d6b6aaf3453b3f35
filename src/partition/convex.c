/* partition: integer convex sequences. */
#include "partition/convex.h"

#include "base/numbers.h"
#include "partition/portable.h"

#include <math.h>

static int64_t steepest(const plsh_partition *set) {
    return plsh_most(1, llround((double)set->samples * -expm1(-1 / set->decay.a)));
}

/* c_k. The tangent of slope -k touches s e^(-t/sigma) at the height k sigma. Two
 * neighbouring tangents meet sigma / (8 k) below the curve, so each is raised by that. Of sigma /
 * (4 k), (8 k), (16 k) and 0 it had the smallest spectral error in most cases
 * (experiments/designs). */
static int64_t intercept(const plsh_partition *set, int64_t k, int64_t most) {
    const double sigma = set->decay.a, height = (double)k * sigma, s = (double)set->samples;
    if (k >= most || height >= s) return set->samples;
    const double raised = height * (1 + plsh_portable_log(s / height)) + sigma / (8 * (double)k);
    return plsh_least(set->samples, llround(raised));
}

/* The tangent at t has the slope `steep`. A tangent whose slope differs by d is lower at t by sigma
 * d^2 / (2 max(k, steep)). Rounding and the raise change its height by at most one, so the loop
 * ends on each side where a tangent is lower by more than that. */
int64_t plsh_convex_count(const plsh_partition *set, int64_t t) {
    const double sigma = set->decay.a, s = (double)set->samples;
    const double height = s * exp(-(double)t / sigma), steep = height / sigma;
    if (t == 0) return set->samples;
    if (s * exp(-1 / sigma) < 0.25) return 0; /* the identity */
    const int64_t most = steepest(set);
    const double reach = ceil(2 + 2 / sigma + 2 * sqrt(steep / sigma));
    const int64_t low = steep - reach > 1 ? (int64_t)(steep - reach) : 1;
    const int64_t high = steep + reach < (double)most ? (int64_t)(steep + reach) : most;
    int64_t count = plsh_most(0, set->samples - most * t);
    for (int64_t k = low; k <= high; k++) count = plsh_most(count, intercept(set, k, most) - k * t);
    return count;
}

/* How many samples are wider than b: sum over x > b of x (N(x-1) - 2 N(x) + N(x+1)), by parts. */
static int64_t wider(const plsh_partition *set, int64_t b) {
    const int64_t count = plsh_convex_count(set, b);
    return count + b * (count - plsh_convex_count(set, b + 1));
}

plsh_convex_place plsh_convex_place_of(const plsh_partition *set, int64_t sample) {
    int64_t low = 0, high = 1; /* wider(low) > sample >= wider(high) */
    while (wider(set, high) > sample) low = high, high *= 2;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (wider(set, middle) > sample)
            low = middle;
        else
            high = middle;
    }
    return (plsh_convex_place){high, wider(set, high), wider(set, high - 1)};
}

double plsh_convex_error(const plsh_partition *set) {
    double most = 0;
    for (int64_t t = 1;; t++) {
        const int64_t count = plsh_convex_count(set, t);
        const double k = plsh_decay_value(&set->decay, t);
        most = fmax(most, fabs((double)count / (double)set->samples - k));
        if (count == 0) return most;
    }
}
