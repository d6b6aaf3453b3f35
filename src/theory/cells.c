/* theory: norms and bounds for points and their cells.
 *
 * The bounds (docs/mathematics.md, "Cells"): cells of `size` or more points are cut off. The rest
 * of a mask has a norm below `size`, and its variance is at most that of the whole mask, so the
 * matrix Bennett inequality bounds its mean. The part that is cut off is bounded by the tail of the
 * largest cell. */
#include "base/clones.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "theory/bounds.h"
#include "theory/operator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points -----------------------------------------------------------------------------------
 */

/* Those that have a position. */
typedef struct placed {
    plsh_point_set points;
    float *x;
    int32_t *number; /* of the point among all */
} placed;

static void placed_free(placed *self) {
    plsh_release(self->x);
    plsh_release(self->number);
}

static plsh_status placed_make(plsh_point_set all, placed *self, plsh_error *error) {
    *self = (placed){0};
    const size_t n = all.n > 0 ? (size_t)all.n : 0, dim = (size_t)all.dim;
    plsh_status status =
        plsh_allocate((void **)&self->x, n * dim, sizeof *self->x, "points", error);
    if (!status)
        status = plsh_allocate((void **)&self->number, n, sizeof *self->number, "points", error);
    if (status) {
        placed_free(self);
        return status;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < all.n; i++) {
        bool has = true;
        for (int a = 0; a < all.dim; a++) has &= !isnan(all.x[i * all.dim + a]);
        if (!has) continue;
        memcpy(self->x + count * all.dim, all.x + i * all.dim, dim * sizeof *self->x);
        self->number[count++] = (int32_t)i;
    }
    self->points = (plsh_point_set){all.dim, count, self->x};
    return PLSH_STATUS_OK;
}

static double distance(const plsh_point_set *points, int64_t i, int64_t j) {
    const float *x = points->x + i * points->dim, *y = points->x + j * points->dim;
    double square = 0;
    for (int a = 0; a < points->dim; a++) {
        const double apart = (double)x[a] - (double)y[a];
        square += apart * apart;
    }
    return sqrt(square);
}

static plsh_status check_points(const plsh_partition *set, plsh_point_set points,
                                plsh_error *error) {
    plsh_status status = plsh_cells_check(set, error);
    if (status) return status;
    if (points.dim < 1 || points.dim > 3 || points.n < 1 || points.n > INT32_MAX / 2)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld points of dimension %d; at least 1, of dimension 1 to 3",
                         (long long)points.n, points.dim);
    return PLSH_STATUS_OK;
}

/* ---- norms ------------------------------------------------------------------------------------
 */

/* M~ - L*, and the arrays from which it is computed. */
typedef struct error_matrix {
    const plsh_partition *set;
    const plsh_point_set *points;
    double *entry;          /* [n][n] */
    int32_t *labels;        /* of one draw */
    int32_t *order, *first; /* points by label; label l has order[first[l] .. first[l + 1]) */
    double *row_max;
    int threads;
} error_matrix;

/* Adds 1 to the entries of a row's cell. */
static void count_rows(void *context, int64_t begin, int64_t end, int slot) {
    const error_matrix *self = context;
    const int64_t n = self->points->n;
    (void)slot;
    for (int64_t i = begin; i < end; i++) {
        double *row = self->entry + i * n;
        const int32_t label = self->labels[i];
        for (int32_t x = self->first[label]; x < self->first[label + 1]; x++)
            row[self->order[x]] += 1;
    }
}

static void subtract_rows(void *context, int64_t begin, int64_t end, int slot) {
    const error_matrix *self = context;
    const int64_t n = self->points->n;
    (void)slot;
    for (int64_t i = begin; i < end; i++) {
        double *row = self->entry + i * n, most = 0;
        for (int64_t j = 0; j < n; j++) {
            row[j] = row[j] / (double)self->set->samples -
                     plsh_decay_value_at(&self->set->decay, distance(self->points, i, j));
            most = fmax(most, fabs(row[j]));
        }
        self->row_max[i] = most;
    }
}

/* Sorts the points by label; returns the size of the largest cell. Labels are below n. */
static int64_t sort_labels(error_matrix *self) {
    const int64_t n = self->points->n;
    int64_t most = 0;
    memset(self->first, 0, sizeof *self->first * (size_t)(n + 2));
    for (int64_t i = 0; i < n; i++) self->first[self->labels[i] + 2]++;
    for (int64_t l = 0; l < n; l++) {
        if (self->first[l + 2] > most) most = self->first[l + 2];
        self->first[l + 2] += self->first[l + 1];
    }
    for (int64_t i = 0; i < n; i++) self->order[self->first[self->labels[i] + 1]++] = (int32_t)i;
    return most;
}

/* y = (M~ - L*) x, four sums at a time so that the compiler may use vectors. */
PLSH_CLONES static double dot(const double *restrict a, const double *restrict b, int64_t n) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int x = 0; x < 4; x++) sum[x] += a[i + x] * b[i + x];
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

typedef struct product {
    const error_matrix *matrix;
    const double *x;
    double *y;
} product;

static void multiply_rows(void *context, int64_t begin, int64_t end, int slot) {
    const product *self = context;
    const int64_t n = self->matrix->points->n;
    (void)slot;
    for (int64_t i = begin; i < end; i++) self->y[i] = dot(self->matrix->entry + i * n, self->x, n);
}

static void apply_error(void *context, const double *x, double *y) {
    product self = {context, x, y};
    plsh_thread_rows(self.matrix->threads, self.matrix->points->n, 16, multiply_rows, &self);
}

static plsh_status fill_error(error_matrix *self, plsh_norms *norms, plsh_error *error) {
    const int64_t n = self->points->n;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t m = 0; !status && m < self->set->samples; m++) {
        status = plsh_cells_label(self->set, m, 1, *self->points, self->labels, 1, error);
        if (status) return status;
        const int64_t largest = sort_labels(self);
        if (largest > norms->largest_block) norms->largest_block = largest;
        plsh_thread_rows(self->threads, n, 16, count_rows, self);
    }
    plsh_thread_rows(self->threads, n, 16, subtract_rows, self);
    norms->max = 0;
    for (int64_t i = 0; i < n; i++) norms->max = fmax(norms->max, self->row_max[i]);
    return status;
}

static plsh_status measure(error_matrix *self, const plsh_norms_options *options, plsh_norms *norms,
                           plsh_error *error) {
    const size_t n = (size_t)self->points->n;
    const struct {
        void **array;
        size_t count, size;
    } parts[] = {{(void **)&self->entry, n * n, sizeof(double)},
                 {(void **)&self->labels, n, sizeof(int32_t)},
                 {(void **)&self->order, n, sizeof(int32_t)},
                 {(void **)&self->first, n + 2, sizeof(int32_t)},
                 {(void **)&self->row_max, n, sizeof(double)}};
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < sizeof parts / sizeof *parts; i++)
        status = plsh_allocate(parts[i].array, parts[i].count, parts[i].size,
                               "the matrix of points", error);
    if (!status) status = fill_error(self, norms, error);
    const plsh_symmetric matrix = {self->points->n, apply_error, self, (double)n * (double)n};
    if (!status && !options->skip_spectral)
        status = plsh_spectral_solve(&matrix, options, &norms->spectral, &norms->products, error);
    if (options->skip_max) norms->max = NAN;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) plsh_release(*parts[i].array);
    return status;
}

plsh_status plsh_cells_norms(const plsh_partition *set, plsh_point_set points,
                             const plsh_norms_options *options, plsh_norms *norms,
                             plsh_error *error) {
    const plsh_norms_options defaults = {0};
    if (!options) options = &defaults;
    plsh_status status = check_points(set, points, error);
    if (!status) status = plsh_norms_check_options(options, error);
    if (status) return status;
    const double most = (double)(options->max_bytes ? options->max_bytes : (size_t)1 << 30);
    if (8 * (double)points.n * (double)points.n > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld points; their matrix takes more than %.3g bytes (max_bytes)",
                         (long long)points.n, most);
    placed some;
    status = placed_make(points, &some, error);
    if (status) return status;
    *norms = (plsh_norms){.spectral = NAN};
    error_matrix self = {.set = set, .points = &some.points, .threads = options->threads};
    status = measure(&self, options, norms, error);
    placed_free(&some);
    return status;
}

/* ---- moments of a mask ------------------------------------------------------------------------
 */

/* Sizes at which cells may be cut off: from 2 to n + 1, in equal steps of their logarithms. */
enum { SIZES = 64 };

/* Of L and of one mask M: the largest row sums of L and of V = E[M^2] - L^2 (at least their norms,
 * as all entries are positive), the trace of V, and for every size x bounds on p_i(x) = Pr[the cell
 * of i has x or more points]: the largest, and the sum. */
typedef struct mask_law {
    int64_t n;
    double norm, variance, trace;
    double size[SIZES], most[SIZES], sum[SIZES];
} mask_law;

/* E[N_i^2] = sum_jk H_ij H_jk H_ik, and the other sums of row i. */
typedef struct row_law {
    double sum, square_sum, second_moment, product_sum; /* L 1, diag L L, E[N^2], L L 1 */
    double tail[SIZES];                                 /* p_i */
} row_law;

typedef struct law_job {
    const plsh_point_set *points;
    double sigma;
    const double *size;
    double *half; /* H, [n][n] */
    double *work; /* [threads][2][n] */
    row_law *rows;
} law_job;

static void half_rows(void *context, int64_t begin, int64_t end, int slot) {
    const law_job *job = context;
    const int64_t n = job->points->n;
    (void)slot;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < n; j++)
            job->half[i * n + j] = exp(-distance(job->points, i, j) / (2 * job->sigma));
}

PLSH_CLONES static void add_scaled(double *restrict to, const double *restrict from, double by,
                                   int64_t n) {
    for (int64_t j = 0; j < n; j++) to[j] += by * from[j];
}

static int compare_rising(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The cell of i has x or more points only if at least x - b of it are not among the b nearest, b <
 * x. Their expected number is T(b), the sum of all but the b largest entries of the row of L. By
 * Markov's inequality p_i(x) <= T(b) / (x - b). `tail` holds the row of L, sorted. */
static void find_tails(const double *size, double *tail, int64_t n, double *out) {
    for (int64_t j = 1; j < n; j++) tail[j] += tail[j - 1]; /* tail[j]: the j + 1 smallest */
    for (int x = 0; x < SIZES; x++) {
        double least = size[x] > (double)n ? 0 : 1;
        for (int64_t b = 0; b < n && (double)b < size[x]; b++)
            least = fmin(least, tail[n - 1 - b] / (size[x] - (double)b));
        out[x] = least;
    }
}

static void law_rows(void *context, int64_t begin, int64_t end, int slot) {
    const law_job *job = context;
    const int64_t n = job->points->n;
    double *pairs = job->work + 2 * (int64_t)slot * n, *row = pairs + n;
    for (int64_t i = begin; i < end; i++) {
        const double *half = job->half + i * n;
        row_law *out = &job->rows[i];
        memset(pairs, 0, sizeof *pairs * (size_t)n);
        for (int64_t k = 0; k < n; k++) add_scaled(pairs, job->half + k * n, half[k], n);
        *out = (row_law){0};
        for (int64_t j = 0; j < n; j++) {
            row[j] = half[j] * half[j];
            out->second_moment += half[j] * pairs[j];
            out->sum += row[j];
            out->square_sum += row[j] * row[j];
        }
        qsort(row, (size_t)n, sizeof *row, compare_rising);
        find_tails(job->size, row, n, out->tail);
    }
}

/* L L 1, from the row sums of L. */
static void product_rows(void *context, int64_t begin, int64_t end, int slot) {
    const law_job *job = context;
    const int64_t n = job->points->n;
    (void)slot;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < n; j++) {
            const double half = job->half[i * n + j];
            job->rows[i].product_sum += half * half * job->rows[j].sum;
        }
}

static void combine(const row_law *rows, mask_law *law) {
    for (int64_t i = 0; i < law->n; i++) {
        law->norm = fmax(law->norm, rows[i].sum);
        law->variance = fmax(law->variance, rows[i].second_moment - rows[i].product_sum);
        law->trace += rows[i].sum - rows[i].square_sum;
        for (int x = 0; x < SIZES; x++) {
            law->most[x] = fmax(law->most[x], rows[i].tail[x]);
            law->sum[x] += rows[i].tail[x];
        }
    }
}

static plsh_status find_law(const plsh_point_set *points, double sigma, int threads, mask_law *law,
                            plsh_error *error) {
    const int64_t n = points->n;
    *law = (mask_law){.n = n};
    for (int x = 0; x < SIZES; x++)
        law->size[x] = ceil(2 * pow((double)(n + 1) / 2, (double)x / (SIZES - 1)) - 1e-9);
    law->size[SIZES - 1] = (double)(n + 1);
    threads = plsh_thread_count(threads);
    law_job job = {.points = points, .sigma = sigma, .size = law->size};
    plsh_status status = plsh_allocate((void **)&job.half, (size_t)(n * n), sizeof(double),
                                       "the matrix of points", error);
    if (!status)
        status = plsh_allocate((void **)&job.work, 2 * (size_t)n * (size_t)threads, sizeof(double),
                               "rows of points", error);
    if (!status)
        status =
            plsh_allocate((void **)&job.rows, (size_t)n, sizeof *job.rows, "rows of points", error);
    if (!status) {
        plsh_thread_rows(threads, n, 8, half_rows, &job);
        plsh_thread_rows(threads, n, 8, law_rows, &job);
        plsh_thread_rows(threads, n, 8, product_rows, &job);
        combine(job.rows, law);
    }
    plsh_release(job.half);
    plsh_release(job.work);
    plsh_release(job.rows);
    return status;
}

/* ---- matrix Bennett ---------------------------------------------------------------------------
 */

/* s independent symmetric X with mean 0, ||E[X^2]|| <= variance, tr E[X^2] <= trace. */
typedef struct bennett {
    double s, variance, trace;
    double above; /* X <= above */
    double error; /* of their mean */
} bennett;

/* log of trace / variance (e^(s g v) - 1) / (e^y - y - 1), y = s theta eps, g = (e^(theta r) -
 * theta r - 1) / r^2, for theta = e^x / r: a bound on log Pr[mean > error]. */
static double bennett_log(const void *context, double x) {
    const bennett *self = context;
    const double theta = exp(x), r = self->above;
    const double exponent = self->s * self->variance * (expm1(theta) - theta) / (r * r);
    const double y = self->s * theta / r * self->error;
    if (!(exponent > 0 && y > 0)) return INFINITY;
    const double top = exponent > 30 ? exponent : log(expm1(exponent));
    /* e^y - y - 1 loses digits for small y. */
    const double bottom = y > 30 ? y : y < 1e-3 ? log(y * y / 2) : log(expm1(y) - y);
    return log(self->trace / self->variance) + top - bottom;
}

static double bennett_tail(const bennett *self) {
    return fmin(1, exp(plsh_minimise(bennett_log, self, -20, 3)));
}

/* The masks without their cells of size number x or more. */
static bennett cut_masks(const mask_law *law, int64_t s, int x) {
    /* beta bounds the norm of the mean of what is cut off, and so how much L L loses. */
    const double beta = law->size[x] * law->most[x];
    const double lost = 2 * law->norm * beta + beta * beta;
    return (bennett){.s = (double)s,
                     .variance = law->variance + lost,
                     .trace = law->trace + (double)law->n * lost,
                     .above = law->size[x]};
}

/* The error that is exceeded with probability `delta` at most, in either direction: a cut mask is
 * below its size and its mean below the norm of L. */
static double cut_quantile(bennett masks, double norm, double delta) {
    double low = 0, high = masks.above;
    for (int step = 0; step < 50; step++) {
        bennett up = masks, down = masks;
        up.error = down.error = (low + high) / 2;
        down.above = norm;
        if (bennett_tail(&up) + bennett_tail(&down) <= delta)
            high = up.error;
        else
            low = up.error;
    }
    return high;
}

/* An error that is exceeded with probability at most delta: that of the cut masks, plus the mean of
 * the part that is cut off. The probability that anything is cut off is at most s sum p_i / size,
 * the expected number of such cells. */
static double spectral_error(const mask_law *law, int64_t s, double delta) {
    double least = (double)law->n; /* no matrix of entries below 1 has a larger norm */
    for (int x = 0; x < SIZES; x++) {
        const double left = delta - (double)s * law->sum[x] / law->size[x];
        const double beta = law->size[x] * law->most[x];
        if (left <= 0 || beta >= least) continue;
        least = fmin(least, cut_quantile(cut_masks(law, s, x), law->norm, left) + beta);
    }
    return least;
}

/* The mean is at most sum_k 2^-k-1 times the quantile at 2^-k-1, and n 2^-K; the cells that are cut
 * off add at most sum p_i, the expected number of their points. */
static double spectral_mean(const mask_law *law, int64_t s) {
    enum { LEVELS = 30 };
    double least = (double)law->n;
    for (int x = 0; x < SIZES; x++) {
        double sum = law->size[x] * law->most[x] + law->sum[x] + ldexp((double)law->n, -LEVELS);
        const bennett masks = cut_masks(law, s, x);
        for (int k = 1; k <= LEVELS && sum < least; k++)
            sum += ldexp(cut_quantile(masks, law->norm, ldexp(1, -k)), -k);
        least = fmin(least, sum);
    }
    return least;
}

static double largest_cell(const mask_law *law, int64_t s, double delta) {
    for (int x = 0; x < SIZES; x++)
        if ((double)s * law->sum[x] / law->size[x] <= delta) return law->size[x] - 1;
    return (double)law->n;
}

plsh_status plsh_cells_bounds(const plsh_partition *set, plsh_point_set points, double delta,
                              int threads, plsh_bounds *bounds, plsh_error *error) {
    plsh_status status = check_points(set, points, error);
    if (status) return status;
    if (!plsh_is_probability(delta))
        return plsh_fail(error, PLSH_STATUS_INVALID, "delta is %g; between 0 and 1", delta);
    placed some;
    status = placed_make(points, &some, error);
    if (status) return status;
    const int64_t n = some.points.n, s = set->samples;
    const bool iid = set->design == PLSH_DESIGN_IID;
    *bounds = (plsh_bounds){NAN, NAN, NAN, false, NAN};
    if (iid && n > 0) {
        bounds->max = fmin(1, plsh_max_error(n, s, delta));
        bounds->max_certain = bounds->max >= 1 || n == 1;
    }
    if (n > 0 && n <= PLSH_CELLS_BOUND_POINTS && set->decay.kind == PLSH_DECAY_ALIBI &&
        set->decay.limit == 0) {
        mask_law law;
        status = find_law(&some.points, set->decay.a, threads, &law, error);
        if (!status) bounds->largest_block = largest_cell(&law, s, delta);
        if (!status && iid) bounds->spectral = spectral_error(&law, s, delta);
        if (!status && iid) bounds->spectral_expectation = spectral_mean(&law, s);
    }
    placed_free(&some);
    return status;
}
