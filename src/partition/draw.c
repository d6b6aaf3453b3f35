/* partition: the distribution of one draw, and the designs that place s of them.
 *
 * Compiled without contraction of a * b + c, so that widths are the same bits everywhere. */
#include "partition/draw.h"

#include "base/clones.h"
#include "base/numbers.h"
#include "partition/convex.h"
#include "partition/portable.h"

#include <math.h>

/* The x with Pr[Gamma(2, 1) > x] = (1 + x) exp(-x) = v, i.e. x - ln(1 + x) = w = -ln v: the branch
 * -1 - W_{-1}(-v/e) of Lambert's function. The first approximation is that of Barry et al. (2000),
 * within 3e-4 relative for all w; its exponential is a series, because the argument is above -0.13.
 * Each step of Halley's method cubes the error, so two steps reach the rounding error of the left
 * side. */
static inline double gamma2_quantile(double v) {
    double w = -plsh_portable_log(v), root = sqrt(w);
    double damping = 1 + root * (-0.0201 + root * 0.000202);
    double bend = 0.3361 * 0.70710678118654752 * root / (1 - 0.0042 * w * damping);
    double x = w + 2 / 0.3361 * (1 - 1 / (1 + bend));
    for (int step = 0; step < 2; step++) {
        double newton = (x - plsh_portable_log(1 + x) - w) * (1 + x) / x;
        x -= newton / (1 - newton / (2 * x * (1 + x)));
    }
    return x > 0 ? x : 0;
}

double plsh_draw_gamma2_quantile(double v) { return gamma2_quantile(v); }

PLSH_CLONES static void gamma2_quantiles(double *v, int64_t count) {
    for (int64_t m = 0; m < count; m++) v[m] = gamma2_quantile(v[m]);
}

/* Binning: 32, or fewer where b = sigma x, x < 64, would not fit into 62 bits. */
int plsh_draw_shift(const plsh_partition *set) {
    if (set->scheme != PLSH_SCHEME_BINNING || plsh_partition_is_toeplitz(set)) return 0;
    int exponent;
    frexp(set->decay.a, &exponent);
    int shift = 56 - exponent;
    return shift > 32 ? 32 : shift < 0 ? 0 : shift;
}

/* Pr[width > b] of the integer scheme, by summation by parts: sum_{x > b} x (k(x+1) - 2 k(x) +
 * k(x-1)) + k(inf) = k(b) + b (k(b) - k(b+1)). */
static double integer_survival(const plsh_decay *decay, int64_t b) {
    return plsh_decay_value(decay, b) + (double)b * plsh_decay_drop(decay, b);
}

/* The smallest b >= 1 with Pr[width > b] <= v; 0 (a single block) where b would exceed 2^61, beyond
 * all positions. */
static int64_t integer_width(const plsh_decay *decay, double v) {
    if (v < plsh_decay_infinity(decay)) return 0;
    int64_t low = 0, step = 1; /* survival(low) > v */
    if (decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0) {
        /* The search begins at the ceiling of the continuous width, which is off by about one at
         * most. */
        int64_t guess = (int64_t)(decay->a * gamma2_quantile(v)) - 1;
        if (guess > 0 && integer_survival(decay, guess) > v) low = guess;
    }
    while (integer_survival(decay, low + step) > v) {
        low += step;
        step *= 2;
        if (step > INT64_C(1) << 60) return 0;
    }
    int64_t high = low + step;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (integer_survival(decay, middle) > v)
            low = middle;
        else
            high = middle;
    }
    return high;
}

plsh_random plsh_partition_random(const plsh_partition *set, uint32_t purpose, uint64_t index) {
    uint64_t seed = set->seed + set->axis * UINT64_C(0x9e3779b97f4a7c15);
    return plsh_random_at((plsh_stream){seed, set->head, purpose}, index);
}

/* sample -> step * sample + start modulo s, start uniform, so every member of the design is equally
 * likely for every sample. step is near s / golden ratio and coprime to s, so that consecutive
 * samples are far apart in the design. */
int64_t plsh_partition_place(const plsh_partition *set, int64_t sample) {
    int64_t s = set->samples;
    if (set->axis == 0 || set->design == PLSH_DESIGN_IID) return sample;
    int64_t step = (int64_t)((double)s * 0.6180339887498949) + set->axis;
    while (plsh_common_divisor(step, s) != 1) step++;
    uint64_t start = plsh_partition_random(set, PLSH_PURPOSE_PLACE, 0).word[0];
    return (int64_t)(((uint64_t)sample * (uint64_t)(step % s) + start % (uint64_t)s) % (uint64_t)s);
}

/* ---- the stratified design -------------------------------------------------------------------
 *
 * Samples are sorted by width, the widest first: sample m has the survival quantiles m/s ..
 * (m+1)/s. A stratum of r samples has one width, drawn from all of its quantiles, and r equispaced
 * offsets. Strata come in antithetic pairs: the first draws its width with u, the second with 1 -
 * u, so that the deviations of the two widths nearly cancel. */

typedef struct place {
    uint64_t stratum, pair; /* index in the random stream, unique to the pair */
    bool second;            /* of the pair */
    int64_t first, count;   /* the stratum's samples */
} place;

/* The best number of strata as measured is 1.2 s^0.46 (more offsets per width mean fewer widths).
 * Stratum k of q begins at s (1 - (1 - (k/q)^1.5)^1.5), so strata are small at both ends: there
 * widths differ most within a stratum. The widest blocks determine the spectral norm, the narrowest
 * the entries next to the diagonal, 1 - t/b. experiments/stratified has the measurements. Powers
 * are computed by square roots, which have the same bits on every machine. */
static int64_t stratum_begin(int64_t s, int64_t q, int64_t k) {
    double t = (double)k / (double)q, rest = 1 - t * sqrt(t);
    return llround((double)s * (1 - rest * sqrt(rest)));
}

static int64_t strata_count(int64_t s) {
    int64_t pairs = llround(0.6 * pow((double)s, 0.46));
    return pairs < 1 ? 2 : 2 * pairs;
}

static place place_by_quantile(int64_t s, int64_t end, int64_t sample) {
    const int64_t q = strata_count(s);
    double rest = cbrt(1 - (double)sample / (double)s), t = cbrt(1 - rest * rest);
    int64_t k =
        (int64_t)((double)q * (t * t)); /* off by a rounding error, which the loops below correct */
    while (k > 0 && stratum_begin(s, q, k) > sample) k--;
    while (stratum_begin(s, q, k + 1) <= sample) k++;
    int64_t first = stratum_begin(s, q, k), next = stratum_begin(s, q, k + 1);
    return (place){.stratum = (uint64_t)k,
                   .pair = (uint64_t)(k & ~INT64_C(1)),
                   .second = k & 1,
                   .first = first,
                   .count = (next < end ? next : end) - first};
}

/* Integer widths: the mean mask over all b offsets of a width b is exact. The samples of width b
 * form strata of b members where s draws have b or more of them, s (k(b+1) - 2 k(b) + k(b-1)) >= 1
 * (for ALiBi b <= sigma ln(s / sigma^2)), and b <= s^0.46. Returns the largest such b, 0 if there
 * is none. */
static int64_t exact_width(const plsh_partition *set) {
    const plsh_decay *decay = &set->decay;
    if (set->scheme != PLSH_SCHEME_INTEGER || decay->kind != PLSH_DECAY_ALIBI || decay->limit != 0)
        return 0;
    double s = (double)set->samples, sigma = decay->a;
    if (!(s > sigma * sigma)) return 0;
    return (int64_t)fmin(pow(s, 0.46), sigma * plsh_portable_log(s / (sigma * sigma)));
}

/* The first sample all of whose quantiles have width b or less. */
static int64_t width_begin(const plsh_partition *set, int64_t b) {
    return (int64_t)ceil((double)set->samples * integer_survival(&set->decay, b));
}

/* The samples begin .. end - 1 get strata of their own for width b. */
typedef struct width_span {
    int64_t b, begin, end;
} width_span;

static width_span width_span_of(const plsh_partition *set, int64_t sample) {
    int64_t b = integer_width(&set->decay, (double)sample / (double)set->samples);
    while (width_begin(set, b) > sample) b++;
    while (b > 1 && width_begin(set, b - 1) <= sample) b--;
    /* b >= 1: width_begin(0) is the number of samples. */
    return (width_span){b > 0 ? b : 1, width_begin(set, b),
                        b > 1 ? width_begin(set, b - 1) : set->samples};
}

static place place_by_width(const plsh_partition *set, int64_t sample) {
    const width_span span = width_span_of(set, sample);
    int64_t k = (sample - span.begin) / span.b, first = span.begin + k * span.b;
    /* Beyond the indices of all other strata, so that no two share a random number. */
    uint64_t stratum = UINT64_C(1) << 40 | (uint64_t)first;
    return (place){.stratum = stratum,
                   .pair = k & 1 ? stratum - (uint64_t)span.b : stratum,
                   .second = k & 1,
                   .first = first,
                   .count = span.end - first < span.b ? span.end - first : span.b};
}

static place place_of(const plsh_partition *set, int64_t sample) {
    const int64_t widest = exact_width(set);
    const int64_t end = widest > 0 ? width_begin(set, widest) : set->samples;
    if (sample >= end) return place_by_width(set, sample);
    return place_by_quantile(set->samples, end, sample);
}

static void strata_add(plsh_strata *strata, int64_t members) {
    if (members <= 0) return;
    strata->count++;
    if (members > strata->largest) strata->largest = members;
}

/* Of the strata of width b, all but the last have exactly b members of width b. The last may hold
 * quantiles of width b - 1, or be smaller. For b = 1 the mask is the identity in any case. */
plsh_strata plsh_draw_strata(const plsh_partition *set) {
    const int64_t s = set->samples, q = strata_count(s), widest = exact_width(set);
    int64_t end = widest > 0 ? width_begin(set, widest) : s;
    plsh_strata strata = {0};
    for (int64_t k = 0; k < q && stratum_begin(s, q, k) < end; k++) {
        int64_t next = stratum_begin(s, q, k + 1);
        strata_add(&strata, (next < end ? next : end) - stratum_begin(s, q, k));
    }
    for (int64_t b = widest; b > 1; b--) {
        int64_t begin = end;
        end = width_begin(set, b - 1);
        strata_add(&strata, end > begin ? (end - begin - 1) % b + 1 : 0);
    }
    return strata;
}

/* The survival quantile that a stratum drew for all of its samples. */
static double stratum_quantile(const plsh_partition *set, const place *at) {
    plsh_random shared = plsh_partition_random(set, PLSH_PURPOSE_GRID, at->pair);
    double u = plsh_random_unit(shared.word[0]);
    if (at->second) u = 1 - u;
    return ((double)at->first + u * (double)at->count) / (double)set->samples;
}

plsh_stratum plsh_draw_stratum(const plsh_partition *set, int64_t first) {
    if (plsh_partition_is_toeplitz(set)) {
        const plsh_convex_place at = plsh_convex_place_of(set, first);
        return (plsh_stratum){at.width, at.end - first};
    }
    const int64_t widest = exact_width(set);
    if (widest > 0 && first >= width_begin(set, widest)) {
        const width_span span = width_span_of(set, first);
        const int64_t whole = (span.end - first - 1) / span.b;
        if (whole > 0) return (plsh_stratum){span.b, whole * span.b};
    }
    const place at = place_of(set, first);
    return (plsh_stratum){integer_width(&set->decay, stratum_quantile(set, &at)), at.count};
}

/* The survival quantile and the offset (in turns of 2^-64) of a sample. */
static double draw_place(const plsh_partition *set, int64_t sample, uint64_t *turn) {
    if (set->design == PLSH_DESIGN_IID) {
        plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_GRID, (uint64_t)sample);
        *turn = random.word[1];
        return plsh_random_unit(random.word[0]);
    }
    place at = place_of(set, sample);
    plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_GRID, at.stratum);
    /* c = frac(rho + m / r) b, m the place within the stratum. */
    uint64_t step = at.count > 1 ? UINT64_MAX / (uint64_t)at.count : 0;
    *turn = random.word[1] + (uint64_t)(sample - at.first) * step;
    return stratum_quantile(set, &at);
}

enum { TILE = 64 };

/* Sample m of width b, the first of them number `begin`: all offsets in turn. */
static void fill_toeplitz(const plsh_partition *set, int64_t first, int64_t count, int64_t *width,
                          int64_t *offset) {
    plsh_convex_place at = plsh_convex_place_of(set, first); /* its width is at least 1 */
    for (int64_t m = 0; m < count; m++) {
        if (first + m >= at.end) at = plsh_convex_place_of(set, first + m);
        width[m] = at.width;
        offset[m] = (first + m - at.begin) % at.width;
    }
}

/* At most TILE draws. */
static void fill_tile(const plsh_partition *set, int64_t first, int64_t count, int64_t *width,
                      int64_t *offset) {
    if (plsh_partition_is_toeplitz(set)) {
        fill_toeplitz(set, first, count, width, offset);
        return;
    }
    uint64_t turn[TILE];
    double v[TILE];
    for (int64_t m = 0; m < count; m++)
        v[m] = draw_place(set, plsh_partition_place(set, first + m), &turn[m]);
    if (set->scheme == PLSH_SCHEME_BINNING) {
        const double scale = (double)(INT64_C(1) << plsh_draw_shift(set));
        gamma2_quantiles(v, count);
        for (int64_t m = 0; m < count; m++) {
            width[m] = (int64_t)(set->decay.a * v[m] * scale);
            if (width[m] < 1) width[m] = 1;
        }
    } else {
        for (int64_t m = 0; m < count; m++) width[m] = integer_width(&set->decay, v[m]);
    }
    for (int64_t m = 0; m < count; m++)
        offset[m] = (int64_t)((plsh_int128)width[m] * (plsh_int128)turn[m] >> 64);
}

void plsh_draw_fill(const plsh_partition *set, int64_t first, int64_t count, int64_t *width,
                    int64_t *offset) {
    for (int64_t m = 0; m < count; m += TILE)
        fill_tile(set, first + m, count - m < TILE ? count - m : TILE, width + m, offset + m);
}

plsh_draw plsh_draw_get(const plsh_partition *set, int64_t sample) {
    plsh_draw draw = {.shift = plsh_draw_shift(set)};
    fill_tile(set, sample, 1, &draw.width, &draw.offset);
    return draw;
}
