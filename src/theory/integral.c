/* theory: the spectral bound with its integral over the frequencies, by quadrature.
 *
 * For independent draws and theta < 1/sigma (theta may be negative),
 *     E tr exp(theta s (M~ - L*)) <= n m(theta), m is the mean of exp(s g(omega)) over omega in [0,
 * pi], with a = sin^2(omega/2) / sinh^2(1/(2 sigma)), F = coth(1/(2 sigma)), K = E e^(theta b): g =
 * ln(1 + ln(1 + a (K - 1) / (1 + a)) / a) - theta F / (1 + a). docs/mathematics.md, section 11.
 * Every theta gives a bound, so the search need not be exact. */
#include "theory/bounds.h"

#include <math.h>

enum { PANELS = 24, POINTS = 8, NODES = PANELS * POINTS };

typedef struct spectral_integral {
    double sigma, s;
    double tail;          /* q / (1 - q) = 1 / (e^(1/sigma) - 1) */
    double norm;          /* F */
    double level;         /* is added to ln m: ln(2n / delta) or ln n */
    double sign;          /* sign of the eigenvalues that are bounded */
    double begin;         /* a theta near the optimum */
    double a[NODES];      /* of the nodes, */
    double weight[NODES]; /* and their weights, which add up to 1 */
} spectral_integral;

/* Gauss-Legendre quadrature with 8 points on panels of equal length in x, omega = S sinh(x). S is
 * the width of L*'s symbol: the integrand varies on that scale and decays beyond. */
static void place_nodes(spectral_integral *in) {
    static const double at[POINTS / 2] = {0.18343464249564981, 0.52553240991632899,
                                          0.79666647741362674, 0.96028985649753623};
    static const double share[POINTS / 2] = {0.36268378337836198, 0.31370664587788729,
                                             0.22238103445337447, 0.10122853629037626};
    const double pi = 3.14159265358979324;
    const double width = fmin(sinh(0.5 / in->sigma), 1e150), end = asinh(pi / width);
    for (int x = 0; x < NODES; x++) {
        int panel = x / POINTS, point = x % POINTS, half = point % (POINTS / 2);
        double side = point < POINTS / 2 ? 1 : -1;
        double middle = (panel + 0.5) / PANELS, step = 0.5 / PANELS;
        double place = end * (middle + side * step * at[half]);
        double sine = sin(0.5 * width * sinh(place)) / width;
        in->a[x] = sine * sine;
        in->weight[x] = share[half] * step * end * width * cosh(place) / pi;
    }
}

static bool prepare_integral(spectral_integral *in, int64_t n, double sigma, int64_t s) {
    if (n < 1 || s < 1 || !(sigma > 0 && sigma < INFINITY)) return false;
    in->sigma = sigma;
    in->s = (double)s;
    in->tail = 1 / expm1(1 / sigma);
    in->norm = 1 / tanh(0.5 / sigma);
    place_nodes(in);
    return true;
}

/* ln K - 1 and the like without cancellation: K = e^theta / (1 - (q / (1 - q)) (e^theta - 1))^2. */
static double log_moment(const spectral_integral *in, double theta) {
    double inside = in->tail * expm1(theta);
    return inside < 1 ? theta - 2 * log1p(-inside) : INFINITY;
}

/* ln m(theta), INFINITY where theta is too large. */
static double log_mean(const spectral_integral *in, double theta) {
    const double k = expm1(log_moment(in, theta));
    if (!(k < INFINITY)) return INFINITY;
    double exponent[NODES], top = -INFINITY, sum = 0;
    for (int x = 0; x < NODES; x++) {
        double a = in->a[x];
        double mean = a > 0 ? log1p(a * k / (1 + a)) / a : k;
        exponent[x] = in->s * (log1p(mean) - theta * in->norm / (1 + a));
        top = fmax(top, exponent[x]);
    }
    for (int x = 0; x < NODES; x++) sum += in->weight[x] * exp(exponent[x] - top);
    return top + log(sum);
}

/* theta from z, where z = 0 is the start of the search. A positive theta stays below 1/sigma. */
static double theta_at(const spectral_integral *in, double z) {
    double scaled = in->begin * exp(z);
    return in->sign > 0 ? scaled / (1 + in->sigma * (scaled - in->begin)) : -scaled;
}

/* The eps at which one sign's bound is n m exp(-s theta eps) = delta / 2. */
static double one_sided(const void *context, double z) {
    const spectral_integral *in = context;
    double theta = theta_at(in, z);
    return (in->level + log_mean(in, theta)) / (in->s * fabs(theta));
}

/* The same for both signs with one theta: E||X|| <= ln(n (m(theta) + m(-theta))) / (s theta). */
static double both_sided(const void *context, double z) {
    const spectral_integral *in = context;
    double theta = theta_at(in, z);
    double up = log_mean(in, theta), down = log_mean(in, -theta);
    double top = fmax(up, down);
    if (!(top < INFINITY)) return INFINITY;
    return (in->level + top + log(exp(up - top) + exp(down - top))) / (in->s * theta);
}

/* ln(m(theta) exp(-s theta eps)); `level` holds eps. */
static double one_tail(const void *context, double z) {
    const spectral_integral *in = context;
    double theta = theta_at(in, z);
    return log_mean(in, theta) - in->s * fabs(theta) * in->level;
}

static const double REACH =
    4; /* the best theta is within a factor e^4 of that of the closed form */

/* The theta that is best in the closed form: 1 / (kappa + sqrt(v / (2 l / s))), kappa >= sigma. */
static double best_theta(double sigma, double l, double s) {
    double half = sinh(0.5 / sigma), kappa = fmax(sigma, 1 / (3 * tanh(0.5 / sigma)));
    return 1 / (1.0001 * kappa + 0.5 / half * sqrt(s / l));
}

static double error_of(spectral_integral *in, double level) {
    in->level = level;
    in->begin = best_theta(in->sigma, level, in->s);
    in->sign = 1;
    double up = plsh_minimise(one_sided, in, -REACH, REACH);
    in->sign = -1;
    return fmax(up, plsh_minimise(one_sided, in, -REACH, REACH));
}

double plsh_spectral_error_integral(int64_t n, double sigma, int64_t s, double delta) {
    spectral_integral in;
    if (!plsh_is_probability(delta) || !prepare_integral(&in, n, sigma, s)) return NAN;
    return fmin(plsh_spectral_error(n, sigma, s, delta), error_of(&in, log(2 * (double)n / delta)));
}

double plsh_spectral_expectation_integral(int64_t n, double sigma, int64_t s) {
    spectral_integral in;
    if (!prepare_integral(&in, n, sigma, s)) return NAN;
    in.level = log((double)n);
    in.begin = best_theta(sigma, log(2 * (double)n), in.s);
    in.sign = 1;
    return fmin(plsh_spectral_expectation(n, sigma, s),
                plsh_minimise(both_sided, &in, -REACH, REACH));
}

double plsh_spectral_tail_integral(int64_t n, double sigma, int64_t s, double eps) {
    spectral_integral in;
    if (!(eps > 0) || !prepare_integral(&in, n, sigma, s)) return NAN;
    double closed = plsh_spectral_tail(n, sigma, s, eps);
    if (isinf(eps)) return 0;
    /* The theta of the closed form at the l whose error is eps. */
    double l = log(2 * (double)n) - log(fmax(closed, 0x1p-1022));
    in.level = eps;
    in.begin = best_theta(sigma, l, in.s);
    in.sign = 1;
    double up = plsh_minimise(one_tail, &in, -REACH, REACH);
    in.sign = -1;
    double down = plsh_minimise(one_tail, &in, -REACH, REACH);
    return fmin(closed, (double)n * (exp(up) + exp(down)));
}

int64_t plsh_spectral_samples_integral(int64_t n, double sigma, double eps, double delta) {
    int64_t enough = plsh_spectral_samples(n, sigma, eps, delta), few = 0;
    spectral_integral in;
    if (enough == 0 || enough == INT64_MAX || !prepare_integral(&in, n, sigma, 1)) return enough;
    while (enough - few > 1) {
        int64_t middle = few + (enough - few) / 2;
        in.s = (double)middle;
        if (error_of(&in, log(2 * (double)n / delta)) <= eps)
            enough = middle;
        else
            few = middle;
    }
    return enough;
}
