/* theory: the spectral bound of a stratified set, for the widths that it drew.
 *
 * Stratum g has the integer width b, r masks of equispaced offsets and the share r/s. With
 * F_b(w) = sin^2(b w/2) / (b sin^2(w/2)), the symbol of T_b = (1 - |t|/b)+,
 *     D(w)   = sum_g (r/s) F_b(w) - L^(w): what the widths err, the same for every outcome,
 *     v_g(w) = (r/s)^2 F_b(w) H_g(w):      the variance over the rotation of the offsets,
 *     R_g    >= the norm of what one rotation errs.
 * Then ||L* - M~|| <= sup |D| + (l + ln mean_w exp(theta^2 sum_g phi(theta R_g) v_g(w))) / theta
 * with probability 1 - delta for every theta, l = ln(2n / delta). docs/mathematics.md, section 17,
 * has the proof, and shows why each number here is an upper bound. */
#include "base/numbers.h"
#include "theory/bounds.h"
#include "theory/fourier.h"

#include "base/memory.h"
#include "partition/draw.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979324;

/* More is not computed: 64 MB of v_g(w), and 2^20 samples whose strata have to be visited. */
static const int64_t MOST_NUMBERS = INT64_C(1) << 23, MOST_SAMPLES = INT64_C(1) << 20;
static const double MOST_SIGMA = 0x1p20;

/* The rounding of all sums here is far below this part of the bound. */
static const double ROUNDING = 1e-9;

typedef struct stratum_bound {
    int64_t width, count, divisor; /* b, r and their greatest common divisor */
    double share;                  /* r / s */
    double range;                  /* R_g */
    double *variance;              /* v_g on the grid */
    double between;                /* an upper bound of v_g minus its linear interpolation */
} stratum_bound;

typedef struct strata_bound {
    int64_t groups;
    stratum_bound *group; /* those with a variance come first: `varying` of them */
    int64_t varying;
    double mean_width;
    int64_t degree; /* D is a cosine sum up to this degree, apart from `tail` */
    double tail;
    plsh_fourier grid; /* w = 2 pi j / size, 0 <= j <= size / 2 */
    double *numbers;   /* the v_g, and room for sums and transforms */
    double *sum, *re, *im;
    double level; /* l */
} strata_bound;

/* ---- the groups ------------------------------------------------------------------------------ */

static void add_stratum(strata_bound *all, int64_t place, plsh_stratum stratum, double samples) {
    all->group[place] =
        (stratum_bound){.width = stratum.width,
                        .count = stratum.count,
                        .divisor = plsh_common_divisor(stratum.width, stratum.count),
                        .share = (double)stratum.count / samples};
}

/* Counts the groups, or fills them in: the varying ones from the front, the others behind. A
 * stratum that has all offsets equally often (b divides r) does not vary. */
static void visit_strata(const plsh_partition *set, strata_bound *all) {
    const double samples = (double)set->samples;
    int64_t varying = 0, exact = 0;
    all->mean_width = 0;
    for (int64_t first = 0; first < set->samples;) {
        const plsh_stratum stratum = plsh_draw_stratum(set, first);
        const bool varies = stratum.count % stratum.width != 0;
        if (all->group) add_stratum(all, varies ? varying : all->varying + exact, stratum, samples);
        varying += varies;
        exact += !varies;
        all->mean_width += (double)stratum.count / samples * (double)stratum.width;
        if (stratum.width > all->degree) all->degree = stratum.width;
        first += stratum.count;
    }
    all->varying = varying;
    all->groups = varying + exact;
}

/* ---- R_g ------------------------------------------------------------------------------------- */

/* At quasi-momentum w the error of a rotation is the matrix s_k s_l c_(k-l), k != l, with s_k^2 =
 * F_b(w + 2 pi k / b) and c the Fourier coefficients of the offsets, here by their absolute values.
 * For positive x its norm is at most the largest (|A| x)_k / x_k. */
typedef struct rotation {
    int64_t b;
    plsh_fourier fourier;
    double *numbers, *kernel_re, *kernel_im, *re, *im, *s[2], *x[2];
} rotation;

/* |c_l|^2 = sin^2(pi l / b) / (r'^2 sin^2(pi (l + j b) / (b r'))) for l a multiple of g = gcd(b,
 * r), 0 otherwise; r' = r / g and j is the residue modulo r' that makes l + j b a multiple of r. */
static void fill_kernel(const stratum_bound *group, rotation *at) {
    const int64_t b = group->width, g = group->divisor, reduced = group->count / g;
    int64_t step = 0; /* -(b / g)^-1 modulo r' */
    while (reduced > 1 && (step * (b / g % reduced) + 1) % reduced != 0) step++;
    int64_t j = 0;
    for (int64_t l = g; l < b; l += g) {
        j = (j + step) % reduced;
        const double place = ((double)l + (double)j * (double)b) / ((double)b * (double)reduced);
        at->kernel_re[l] = sin(PI * (double)l / (double)b) / ((double)reduced * sin(PI * place));
    }
    plsh_fourier_transform(&at->fourier, at->kernel_re, at->kernel_im);
}

/* The largest s_k for low <= b w/2 <= high, within 0 .. pi/2: sin(x) rises there, sin(x) / sin(x/b)
 * falls, and |sin((x + pi k) / b)| is least at an end. */
static void fill_momentum(int64_t b, double low, double high, double *s) {
    const double width = (double)b, root = sqrt(width);
    s[0] = low > 0 ? fmin(root, sin(low) / sin(low / width) / root) : root;
    for (int64_t k = 1; k < b; k++) {
        const double turn = PI * (double)k;
        double least = fmin(fabs(sin((low + turn) / width)), fabs(sin((high + turn) / width)));
        s[k] = fmin(root, sin(high) / least / root);
    }
}

/* x of both cells becomes |A| x + shift x, and their bounds the largest (|A| x)_k / x_k where that
 * is less. The two are the real and the imaginary part of one cyclic convolution with the kernel.
 */
static void multiply_cells(rotation *at, double shift, double bound[2]) {
    const int64_t b = at->b, size = at->fourier.size;
    memset(at->re, 0, (size_t)size * sizeof *at->re);
    memset(at->im, 0, (size_t)size * sizeof *at->im);
    for (int64_t k = 0; k < b; k++) {
        at->re[k] = at->s[0][k] * at->x[0][k];
        at->im[k] = at->s[1][k] * at->x[1][k];
    }
    plsh_fourier_transform(&at->fourier, at->re, at->im);
    for (int64_t k = 0; k < size; k++) {
        double re = at->re[k], im = at->im[k];
        at->re[k] = re * at->kernel_re[k] - im * at->kernel_im[k];
        at->im[k] = re * at->kernel_im[k] + im * at->kernel_re[k];
    }
    plsh_fourier_transform(&at->fourier, at->im, at->re); /* the inverse, times size */
    for (int cell = 0; cell < 2; cell++) {
        const double *y = cell ? at->im : at->re;
        double most = 0;
        for (int64_t k = 0; k < b; k++) {
            double value = at->s[cell][k] * (y[k] + y[k + b]) / (double)size;
            most = fmax(most, value / at->x[cell][k]);
            at->x[cell][k] = value + shift * at->x[cell][k];
        }
        bound[cell] = fmin(bound[cell], most);
    }
}

enum { CELLS = 8, STEPS = 4 }; /* CELLS even; R_g is 10 to 40 % above the norm */

static double rotation_norm(const stratum_bound *group, rotation *at) {
    const double shift = 0.42 * (double)group->width / (double)group->count; /* about the norm */
    const double cell = 0.5 * PI / CELLS;
    double most = 0;
    fill_kernel(group, at);
    for (int c = 0; c < CELLS; c += 2) {
        double bound[2] = {INFINITY, INFINITY};
        for (int x = 0; x < 2; x++) {
            fill_momentum(at->b, cell * (c + x), cell * (c + x + 1), at->s[x]);
            memcpy(at->x[x], at->s[x], (size_t)at->b * sizeof *at->s[x]);
        }
        for (int step = 0; step < STEPS; step++) multiply_cells(at, shift, bound);
        most = fmax(most, fmax(bound[0], bound[1]));
    }
    return most;
}

/* The norm of the error of one rotation of the group, rounded up. Closed form: its Hilbert and
 * Schmidt norm at the worst quasi-momentum, sqrt(2/3 (b^2 - g^2)) / r; the other is about half of
 * it. */
static plsh_status find_range(stratum_bound *group, plsh_error *error) {
    const int64_t b = group->width;
    const double width = (double)b, g = (double)group->divisor;
    rotation at = {.b = b};
    plsh_status status = plsh_fourier_create(2 * b, &at.fourier, error);
    const size_t size = (size_t)at.fourier.size;
    if (!status)
        status = plsh_allocate((void **)&at.numbers, 4 * size + 4 * (size_t)b, sizeof *at.numbers,
                               "a stratum's Fourier coefficients", error);
    if (!status) {
        at.kernel_re = at.numbers, at.kernel_im = at.numbers + size;
        at.re = at.numbers + 2 * size, at.im = at.numbers + 3 * size;
        for (int c = 0; c < 2; c++) {
            at.s[c] = at.numbers + 4 * size + (size_t)(2 * c) * (size_t)b;
            at.x[c] = at.s[c] + b;
        }
        double closed = sqrt(2.0 / 3 * (width * width - g * g)) / (double)group->count;
        group->range = group->share * (1 + ROUNDING) * fmin(closed, rotation_norm(group, &at));
    }
    plsh_release(at.numbers);
    plsh_fourier_destroy(&at.fourier);
    return status;
}

/* ---- the grid of frequencies ----------------------------------------------------------------- */

static double fejer(double b, double w) {
    double sine = sin(0.5 * w), high = sin(0.5 * b * w);
    return sine == 0 ? b : high * high / (b * sine * sine);
}

/* The coefficients of H: (1 - t/b) (b rho_t - 1), rho the autocorrelation of the offsets. For every
 * d the offsets number m and m + d are floor(b d / r) apart or one more, a part frac(b d / r) of
 * them the latter. h has b zeros beyond those of `t` and -t, which are at the end. */
static void fill_coefficients(const stratum_bound *group, int64_t size, double *h) {
    const int64_t b = group->width, r = group->count;
    memset(h, 0, (size_t)size * sizeof *h);
    for (int64_t d = 0; d < r; d++) {
        const int64_t t = b * d / r;
        const double part = (double)(b * d % r) / (double)r;
        h[t % b] += (1 - part) / (double)r;
        h[(t + 1) % b] += part / (double)r;
    }
    for (int64_t t = 0; t < b; t++) h[t] = (1 - (double)t / (double)b) * ((double)b * h[t] - 1);
    for (int64_t t = 1; t < b; t++) h[size - t] = h[t];
}

/* v_g is a sum of cosines up to 2 (b - 1), not negative: its second derivative is at most (2b)^2 /
 * 2 times its largest value (Bernstein's inequality). */
static void finish_variance(const strata_bound *all, stratum_bound *group, const double *h) {
    const double step = 2 * PI / (double)all->grid.size, b = (double)group->width;
    const double bend = 0.25 * step * step * b * b; /* (step 2b)^2 / 16 */
    double most = 0;
    for (int64_t j = 0; j <= all->grid.size / 2; j++) {
        double v = group->share * group->share * fejer(b, step * (double)j) * fmax(0, h[j]);
        group->variance[j] = v;
        most = fmax(most, v);
    }
    group->between = bend * most / (1 - bend);
}

static void fill_variances(strata_bound *all) {
    for (int64_t g = 0; g < all->varying; g += 2) {
        const bool two = g + 1 < all->varying; /* even sequences: their transforms are real */
        fill_coefficients(&all->group[g], all->grid.size, all->re);
        if (two)
            fill_coefficients(&all->group[g + 1], all->grid.size, all->im);
        else
            memset(all->im, 0, (size_t)all->grid.size * sizeof *all->im);
        plsh_fourier_transform(&all->grid, all->re, all->im);
        finish_variance(all, &all->group[g], all->re);
        if (two) finish_variance(all, &all->group[g + 1], all->im);
    }
}

/* sup |D|. D is a sum of cosines up to `degree` plus at most `tail`; its largest value is within
 * half a step of the grid, and its second derivative is at most degree^2 times it. */
static double width_error(strata_bound *all, double sigma) {
    const double step = 2 * PI / (double)all->grid.size, sinh_half = sinh(0.5 / sigma);
    const double norm = 1 / tanh(0.5 / sigma), turn = step * (double)all->degree;
    double most = 0;
    for (int64_t j = 0; j <= all->grid.size / 2; j++) {
        const double w = step * (double)j, a = sin(0.5 * w) / sinh_half;
        double d = -norm / (1 + a * a);
        for (int64_t g = 0; g < all->groups; g++)
            d += all->group[g].share * fejer((double)all->group[g].width, w);
        most = fmax(most, fabs(d));
    }
    return (most + all->tail) / (1 - turn * turn / 8) + all->tail;
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* (e^x - 1 - x) / x^2 */
static double phi(double x) {
    return x < 1e-4 ? 0.5 + x * (1.0 / 6 + x / 24) : (expm1(x) - x) / x / x;
}

/* The error of the rotations at theta = e^z. On the grid the mean of exp is at least that of the
 * exponent's linear interpolation. */
static double rotation_error(const void *context, double z) {
    const strata_bound *all = context;
    const double theta = exp(z);
    const int64_t last = all->grid.size / 2;
    double between = 0, top = 0, mean = 0;
    memset(all->sum, 0, (size_t)(last + 1) * sizeof *all->sum);
    for (int64_t g = 0; g < all->varying; g++) {
        const stratum_bound *group = &all->group[g];
        const double factor = theta * theta * phi(theta * group->range);
        if (!(factor < 1e300)) return INFINITY;
        between += factor * group->between;
        for (int64_t j = 0; j <= last; j++) all->sum[j] += factor * group->variance[j];
    }
    for (int64_t j = 0; j <= last; j++) top = fmax(top, all->sum[j]);
    for (int64_t j = 0; j <= last; j++)
        mean += exp(all->sum[j] - top) * (j == 0 || j == last ? 0.5 : 1);
    return (all->level + between + top + log(mean / (double)last)) / theta;
}

/* The best theta is near sqrt(2 l / v), v the largest variance. */
static double least_error(strata_bound *all, double level) {
    if (all->varying == 0) return 0;
    double variance = 0;
    for (int64_t j = 0; j <= all->grid.size / 2; j++) {
        double sum = 0;
        for (int64_t g = 0; g < all->varying; g++) sum += all->group[g].variance[j];
        variance = fmax(variance, sum);
    }
    if (!(variance > 0)) return 0;
    all->level = level;
    const double begin = 0.5 * log(2 * level / variance);
    return plsh_minimise(rotation_error, all, begin - 3, begin + 1.5);
}

static plsh_status allocate(strata_bound *all, plsh_error *error) {
    const size_t half = (size_t)all->grid.size / 2 + 1, size = (size_t)all->grid.size;
    plsh_status status = plsh_allocate((void **)&all->group, (size_t)all->groups,
                                       sizeof *all->group, "strata", error);
    if (!status)
        status = plsh_allocate((void **)&all->numbers, ((size_t)all->varying + 1) * half + 2 * size,
                               sizeof *all->numbers, "variances of strata", error);
    if (status) return status;
    all->sum = all->numbers + (size_t)all->varying * half;
    all->re = all->sum + half, all->im = all->re + size;
    return status;
}

static plsh_status compute(const plsh_partition *set, int64_t n, double delta, strata_bound *all,
                           plsh_strata_error *found, plsh_error *error) {
    plsh_status status = allocate(all, error);
    if (status) return status;
    visit_strata(set, all);
    const int64_t half = all->grid.size / 2 + 1;
    for (int64_t g = 0; !status && g < all->varying; g++) {
        all->group[g].variance = all->numbers + g * half;
        status = find_range(&all->group[g], error);
    }
    if (status) return status;
    fill_variances(all);
    const double widths = width_error(all, set->decay.a);
    found->error = (1 + ROUNDING) * (widths + least_error(all, log(2 * (double)n / delta)));
    found->expectation = (1 + ROUNDING) * (widths + least_error(all, log(2 * (double)n)));
    return status;
}

plsh_status plsh_strata_bound(const plsh_partition *set, int64_t n, double delta,
                              plsh_strata_error *found, plsh_error *error) {
    *found = (plsh_strata_error){INFINITY, INFINITY, INFINITY};
    strata_bound all = {0};
    if (set->samples > MOST_SAMPLES || set->decay.a > MOST_SIGMA) return PLSH_STATUS_OK;
    visit_strata(set, &all);
    /* M~ is a mean of s masks of norm b each, and neither it nor L* has negative eigenvalues. */
    found->certain = fmax(1 / tanh(0.5 / set->decay.a), all.mean_width);
    const double reach = fmax((double)all.degree, ceil(12 * set->decay.a));
    if (!(reach * (double)(all.varying + 4) * 8 < (double)MOST_NUMBERS)) return PLSH_STATUS_OK;
    all.degree = (int64_t)reach;
    all.tail = 2 * exp(-reach / set->decay.a) / -expm1(-1 / set->decay.a);
    plsh_status status = plsh_fourier_create(16 * all.degree, &all.grid, error);
    if (!status) status = compute(set, n, delta, &all, found, error);
    plsh_release(all.group);
    plsh_release(all.numbers);
    plsh_fourier_destroy(&all.grid);
    return status;
}
