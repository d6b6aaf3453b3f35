/* theory: a bound on the rows of L* - M~, for independent draws of ALiBi.
 *
 * The block around position i is i - A .. i + C with A and C independent, Pr[A >= t] = q^t, for all
 * schemes. So row i of M - L* has the norm y = sqrt(f(A) + f(C)),
 *     f(a) = sum_{t=1..a} (1 - q^t)^2 + sum_{t>a} q^(2t)
 *          = a - 2 (1 - q^a) q / (1 - q) + q^2 / (1 - q^2),
 * and the mean of s independent such rows is longer than eps with a probability of at most
 * 2 exp(-s theta eps + s E[e^(theta y) - 1 - theta y]) for every theta > 0.
 * docs/mathematics.md, section 12. */
#include "theory/bounds.h"

#include <math.h>

/* A is grouped into cells, each with its largest f. f falls, then rises, so the largest is at one
 * end of the cell. Cells of sigma / 8 up to 2 sigma, then of a / 16; the probability beyond the
 * last is below 1e-30. */
enum { CELLS = 128 };

typedef struct row_law {
    int count;
    double f[CELLS], share[CELLS];
    double s, level, begin;
} row_law;

static double f_at(double sigma, double a) {
    return a + 2 * expm1(-a / sigma) / expm1(1 / sigma) + 1 / expm1(2 / sigma);
}

static void make_law(row_law *law, double sigma) {
    double a = 0;
    law->count = 0;
    while (law->count < CELLS && a <= 70 * sigma) {
        double end = a + fmax(1, floor(fmax(sigma / 8, a / 16)));
        law->f[law->count] = fmax(f_at(sigma, a), f_at(sigma, end - 1));
        law->share[law->count++] = -exp(-a / sigma) * expm1((a - end) / sigma);
        a = end;
    }
}

/* E[e^(theta y) - 1 - theta y] */
static double excess(const row_law *law, double theta) {
    double sum = 0;
    for (int i = 0; i < law->count; i++)
        for (int j = 0; j <= i; j++) {
            double x = theta * sqrt(law->f[i] + law->f[j]);
            sum += (i == j ? 1 : 2) * law->share[i] * law->share[j] * (expm1(x) - x);
        }
    return sum;
}

static double error_at(const void *context, double z) {
    const row_law *law = context;
    double theta = law->begin * exp(z);
    return (law->level / law->s + excess(law, theta)) / theta;
}

double plsh_row_error(int64_t n, double sigma, int64_t s, double delta) {
    if (n < 1 || s < 1 || !(sigma > 0 && sigma < INFINITY) || !plsh_is_probability(delta))
        return NAN;
    row_law law = {.s = (double)s, .level = log(2 * (double)n / delta)};
    make_law(&law, sigma);
    /* A theta near the optimum: the mean of a row's squared norm is 1 / sinh(1/sigma). */
    double v = 1 / sinh(1 / sigma), least = fmax(1.0 / 3, 0.5 * sqrt(sigma));
    law.begin = 1 / (sqrt(law.s * v / (2 * law.level)) + least);
    double longest = plsh_minimise(error_at, &law, -3, 3);
    return fmin(longest, plsh_spectral_error_integral(n, sigma, s, delta));
}
