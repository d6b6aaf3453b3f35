/* partition: decays as mixtures of exponentials.
 *
 * R is computed with libm: its last bits may differ between machines. That moves hyperplanes by as
 * much, and changes a label with a probability of about 2^-50 per point and hyperplane. */
#include "partition/rate.h"

#include "base/status.h"
#include "partition/draw.h"
#include "partition/permute.h"

#include <math.h>

static const double MAX_RATE = 1e300, LOG_LEAST = -740;

plsh_status plsh_rate_check(const plsh_decay *decay, plsh_error *error) {
    plsh_status status = plsh_decay_check(decay, error);
    if (status) return status;
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI:
    case PLSH_DECAY_KERPLE_LOG: return PLSH_STATUS_OK;
    case PLSH_DECAY_KERPLE_POWER:
        if (decay->b <= 1) return PLSH_STATUS_OK;
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "kerple-power has the exponent %g; scheme hyperplanes takes at most 1",
                         decay->b);
    case PLSH_DECAY_TRIANGLE:
    case PLSH_DECAY_TABLE: break;
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "decay %s is not a mixture of exponentials; scheme hyperplanes takes alibi, "
                     "kerple-log and kerple-power",
                     plsh_decay_names()[decay->kind]);
}

/* Pr[Gamma(a) <= x] for ln x = y: below a + 1 the series x^a e^-x / Gamma(a + 1) sum x^n / ((a + 1)
 * .. (a + n)), above it one minus Legendre's continued fraction by Lentz's method. */
static double gamma_below(double a, double y) {
    int sign; /* lgamma writes the sign to a variable that all threads share */
    const double x = exp(y), front = exp(a * y - x - lgamma_r(a + 1, &sign));
    if (x < a + 1) {
        double term = 1, sum = 1;
        for (int n = 1; term > 0x1p-54 * sum; n++) sum += term *= x / (a + n);
        return front * sum;
    }
    double b = x + 1 - a, c = 0x1p1000, d = 1 / b, h = d;
    for (int n = 1; n < 100000; n++) {
        const double by = -n * (n - a);
        b += 2;
        d = 1 / (by * d + b);
        c = b + by / c;
        h *= d * c;
        if (fabs(d * c - 1) < 0x1p-52) break;
    }
    return 1 - front * a * h;
}

double plsh_rate_gamma_quantile(double a, double u) {
    double low = LOG_LEAST, high = log(a + 60 * sqrt(a) + 800);
    if (gamma_below(a, low) >= u) return 0;
    for (int step = 0; step < 64; step++) {
        const double middle = (low + high) / 2;
        if (gamma_below(a, middle) < u)
            low = middle;
        else
            high = middle;
    }
    return exp(high);
}

/* S with E[exp(-S r)] = exp(-r^b), from two uniform numbers (Kanter 1975):
 *     ln S = (1 - b)/b (ln A(pi u) - ln E),  E = -ln v,
 *     (1 - b) ln A(x) = b ln sin(b x) + (1 - b) ln sin((1 - b) x) - ln sin x. */
static double stable_log(double b, double u, double v) {
    const double x = 3.14159265358979324 * u;
    if (b == 1) return 0;
    const double log_a = (b * log(sin(b * x)) - log(sin(x))) / (1 - b) + log(sin((1 - b) * x));
    return (1 - b) / b * (log_a - log(-log(v)));
}

/* Two uniform numbers of the sample. Stratified: each is spread evenly over the samples. */
static void units(const plsh_partition *set, int64_t sample, double unit[2]) {
    if (set->design == PLSH_DESIGN_IID) {
        const plsh_random own = plsh_partition_random(set, PLSH_PURPOSE_RATE, (uint64_t)sample);
        for (int x = 0; x < 2; x++) unit[x] = plsh_random_unit(own.word[x]);
        return;
    }
    const uint64_t s = (uint64_t)set->samples;
    const plsh_random shift = plsh_partition_random(set, PLSH_PURPOSE_RATE, 0);
    const plsh_random key = plsh_partition_random(set, PLSH_PURPOSE_RATE, 1);
    for (int x = 0; x < 2; x++) {
        const uint64_t place = plsh_permuted((uint64_t)sample, s, key.word[x]);
        unit[x] = ((double)place + plsh_random_unit(shift.word[x])) / (double)s;
    }
}

double plsh_rate_of(const plsh_partition *set, int64_t sample) {
    const plsh_decay *decay = &set->decay;
    double unit[2];
    units(set, sample, unit);
    if (unit[0] < decay->limit) return 0;
    /* Keeps the number inside (0, 1), also after the division has rounded. */
    const double u =
        fmin(fmax((unit[0] - decay->limit) / (1 - decay->limit), 0x1p-60), 1 - 0x1p-53);
    const double v = fmin(fmax(unit[1], 0x1p-60), 1 - 0x1p-53);
    double rate = 1 / decay->a;
    if (decay->kind == PLSH_DECAY_KERPLE_LOG)
        rate = decay->b * plsh_rate_gamma_quantile(decay->a, u);
    if (decay->kind == PLSH_DECAY_KERPLE_POWER)
        rate = exp(log(decay->a) / decay->b + stable_log(decay->b, u, v));
    return fmin(rate, MAX_RATE);
}
