/* theory: M~ times a vector. */
#include "theory/operator.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "partition/rows.h"
#include "theory/clones.h"

#include <math.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(64), aligned(8)));
typedef float narrow __attribute__((vector_size(32), aligned(4)));
enum { LANES = 8 };

/* Entries or blocks below which a second thread costs more than it brings. */
enum { WORTH_A_TEAM = 500000 };

static void prefix_sums(const double *x, int64_t n, double *prefix) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        prefix[i] = sum;
        sum += x[i];
    }
    prefix[n] = sum;
}

/* y_i = (d_0 + .. + d_i) / s */
static void accumulate(const double *difference, int64_t n, int64_t s, double *y) {
    double sum = 0, scale = 1 / (double)s;
    for (int64_t i = 0; i < n; i++) {
        sum += difference[i];
        y[i] = sum * scale;
    }
}

/* ---- free ------------------------------------------------------------------------------------ */

/* One block: p_end - p_begin goes to y_begin .. y_{end-1}. */
static inline void free_block(const double *p, double *d, int64_t begin, int64_t end) {
    double sum = p[end] - p[begin];
    d[begin] += sum;
    d[end] -= sum;
}

/* The edges c, c + b, .. of a grid; n and the width leave a bit in 64. */
static void free_grid(const plsh_operator *operator, int64_t m, double *d) {
    const uint64_t width = (uint64_t) operator->draws->width[m];
    const int shift = operator->draws->shift;
    const uint64_t round = (UINT64_C(1) << shift) - 1;
    uint64_t edge = (uint64_t) operator->draws->offset[m];
    if (edge == 0) edge = width;
    int64_t begin = 0;
    for (;; edge += width) {
        int64_t end = (int64_t)((edge + round) >> shift);
        if (end >= operator->n) break;
        free_block(operator->prefix, d, begin, end);
        begin = end;
    }
    free_block(operator->prefix, d, begin, operator->n);
}

static void free_draw(const plsh_operator *operator, int64_t m, double *d) {
    const plsh_draws *draws = operator->draws;
    if (draws->width && draws->width[m]) {
        free_grid(operator, m, d);
        return;
    }
    for (int64_t begin = 0; begin < operator->n;) {
        int64_t end = plsh_draws_block(draws, m, begin).end;
        if (end > operator->n) end = operator->n;
        free_block(operator->prefix, d, begin, end);
        begin = end;
    }
}

static void free_apply(plsh_operator *operator, const double * x, double *y) {
    const int64_t n = operator->n, s = operator->draws->set.samples;
    prefix_sums(x, n, operator->prefix);
    memset(operator->partial, 0,
           (size_t)(PLSH_OPERATOR_PIECES * operator->partial_size) * sizeof(double));
#pragma omp parallel for num_threads(plsh_thread_count(operator->threads))                         \
    schedule(dynamic) if (operator->draws->density *(double) n > WORTH_A_TEAM)
    for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++) {
        double *d = operator->partial + piece * operator->partial_size;
        int64_t last = s * (piece + 1) / PLSH_OPERATOR_PIECES;
        for (int64_t m = s * piece / PLSH_OPERATOR_PIECES; m < last; m++) free_draw(operator, m, d);
    }
    for (int64_t i = 0; i <= n; i++) {
        double sum = 0;
        for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++)
            sum += operator->partial[piece * operator->partial_size + i];
        operator->difference[i] = sum;
    }
    accumulate(operator->difference, n, s, y);
}

static plsh_status free_create(plsh_operator *operator, plsh_error * error) {
    operator->partial_size = operator->n + 1;
    return plsh_allocate((void **)&operator->partial,
                         (size_t)(PLSH_OPERATOR_PIECES * operator->partial_size), sizeof(double),
                         "a matrix-free operator", error);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Both ends of every block: counted in first[i + 2], then placed; when all are, every slot has
 * moved to the next one's first. */
static plsh_status blocks_place(plsh_operator *operator, const plsh_blocks * blocks,
                                plsh_error *error) {
    const int64_t n = operator->n;
    const uint32_t *from = blocks->first, *ends = blocks->ends;
    int64_t *slot = operator->first + 2;
    for (int64_t i = 0; i < n; i++) slot[i] += from[i + 1] - from[i];
    for (uint32_t b = 0; b < from[n]; b++) slot[ends[b]]++;
    for (int64_t i = 1; i <= n; i++) slot[i] += slot[i - 1];
    plsh_status status = plsh_allocate((void **)&operator->neighbour, (size_t)slot[n],
                                       sizeof *operator->neighbour, "the edges of blocks", error);
    if (status) return status;
    slot--;
    for (int64_t i = 0; i < n; i++)
        for (uint32_t b = from[i]; b < from[i + 1]; b++) {
            operator->neighbour[slot[i]++] = ends[b];
            operator->neighbour[slot[ends[b]]++] =(uint32_t) i;
        }
    return PLSH_STATUS_OK;
}

static plsh_status blocks_create(plsh_operator *operator, plsh_error * error) {
    plsh_blocks blocks;
    plsh_status status = plsh_allocate((void **)&operator->first, (size_t) operator->n + 3,
                                       sizeof *operator->first, "the edges of blocks", error);
    if (!status)
        status = plsh_blocks_open(operator->draws, 0, operator->n, operator->n, &blocks, error);
    if (status) return status;
    status = plsh_blocks_next(&blocks, error);
    if (!status) status = blocks_place(operator, & blocks, error);
    plsh_blocks_close(&blocks);
    return status;
}

/* sum of p_j over the neighbours; four sums, or each addition would wait for the last. */
static double neighbour_sum(const double *p, const uint32_t *j, int64_t count) {
    double sum[4] = {0, 0, 0, 0};
    int64_t k = 0;
    for (; k + 4 <= count; k += 4)
        for (int x = 0; x < 4; x++) sum[x] += p[j[k + x]];
    for (; k < count; k++) sum[0] += p[j[k]];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void blocks_apply(plsh_operator *operator, const double * x, double *y) {
    const int64_t n = operator->n, *first = operator->first;
    const double *p = operator->prefix;
    prefix_sums(x, n, operator->prefix);
#pragma omp parallel for num_threads(plsh_thread_count(operator->threads))                         \
    schedule(static) if (first[n + 1] > WORTH_A_TEAM)
    for (int64_t i = 0; i < n; i++) {
        int64_t degree = first[i + 1] - first[i];
        double sum = neighbour_sum(p, operator->neighbour + first[i], degree);
        operator->difference[i] = sum -(double) degree * p[i];
    }
    accumulate(operator->difference, n, operator->draws->set.samples, y);
}

/* ---- banded ---------------------------------------------------------------------------------- */

static void band_visit(void *context, int part, const plsh_rows *row) {
    (void)part;
    plsh_operator *operator= context;
    float *out = operator->band + row->row * operator->width;
    int64_t reach = row->reach < operator->width ? row->reach : operator->width;
    for (int64_t t = 1; t < reach; t++) out[t] = (float)row->count[t];
}

static int64_t piece_begin(int64_t n, int piece) { return n * piece / PLSH_OPERATOR_PIECES; }

static plsh_status band_create(plsh_operator *operator, int64_t largest, plsh_error *error) {
    const int64_t n = operator->n;
    operator->width =(largest + LANES - 1) / LANES * LANES;
    operator->partial_size = n / PLSH_OPERATOR_PIECES + 1 + operator->width;
    size_t entries;
    if (!plsh_multiply((size_t)n, (size_t) operator->width, &entries))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a band of %lld x %lld is too large",
                         (long long)n, (long long)operator->width);
    plsh_status status =
        plsh_allocate((void **)&operator->band, entries, sizeof(float), "a banded operator", error);
    if (!status)
        status = plsh_allocate((void **)&operator->padded, (size_t)(n + operator->width),
                               sizeof(double), "a padded vector", error);
    if (!status)
        status = plsh_allocate((void **)&operator->partial,
                               (size_t)(PLSH_OPERATOR_PIECES * operator->partial_size),
                               sizeof(double), "a banded operator", error);
    if (status) return status;
    int parts = entries > WORTH_A_TEAM ? plsh_thread_count(operator->threads) : 1;
    return plsh_rows_each(operator->draws, n, parts, band_visit, operator, error);
}

/* Row i of the upper band serves both triangles: y_i += row . x_{i..}, y_{i..} += x_i row. */
PLSH_CLONES static double band_row(const float *row, int64_t width, const double *x, double *y) {
    lanes sum = {0}, first = {0};
    first += x[0];
    for (int64_t t = 0; t < width; t += LANES) {
        lanes entry = __builtin_convertvector(*(const narrow *)(row + t), lanes);
        sum += entry * *(const lanes *)(x + t);
        *(lanes *)(y + t) += entry * first;
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void band_apply(plsh_operator *operator, const double * x, double *y) {
    const int64_t n = operator->n, width = operator->width, size = operator->partial_size;
    const double scale = 1 / (double)operator->draws->set.samples;
    memcpy(operator->padded, x, (size_t)n * sizeof *x);
#pragma omp parallel for num_threads(plsh_thread_count(operator->threads))                         \
    schedule(static) if (n * width > WORTH_A_TEAM)
    for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++) {
        const int64_t begin = piece_begin(n, piece), end = piece_begin(n, piece + 1);
        double *out = operator->partial + piece * size;
        memset(out, 0, (size_t)(end - begin + width) * sizeof *out);
        for (int64_t i = begin; i < end; i++)
            out[i - begin] += band_row(operator->band + i * width, width, operator->padded + i,
                                       out + (i - begin));
    }
    memset(y, 0, (size_t)n * sizeof *y);
    for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++) {
        const int64_t begin = piece_begin(n, piece);
        int64_t count = piece_begin(n, piece + 1) - begin + width;
        if (begin + count > n) count = n - begin;
        const double *out = operator->partial + piece * size;
        for (int64_t i = 0; i < count; i++) y[begin + i] += out[i];
    }
    for (int64_t i = 0; i < n; i++) y[i] = x[i] + scale * y[i];
}

/* ---- the three ------------------------------------------------------------------------------- */

plsh_status plsh_operator_create(const plsh_draws *draws, plsh_operator_kind kind, int64_t n,
                                 int64_t largest, int threads, plsh_operator *operator,
                                 plsh_error * error) {
    *operator=(plsh_operator){.draws = draws, .kind = kind, .n = n, .threads = threads};
    plsh_status status = plsh_allocate((void **)&operator->prefix, (size_t)n + 1, sizeof(double),
                                       "prefix sums", error);
    if (!status)
        status = plsh_allocate((void **)&operator->difference, (size_t)n + 1, sizeof(double),
                               "differences", error);
    if (!status)
        status = kind == PLSH_OPERATOR_FREE     ? free_create(operator, error)
                 : kind == PLSH_OPERATOR_BLOCKS ? blocks_create(operator, error)
                                                : band_create(operator, largest, error);
    if (status) plsh_operator_destroy(operator);
    return status;
}

void plsh_operator_destroy(plsh_operator *operator) {
    plsh_release(operator->prefix);
    plsh_release(operator->difference);
    plsh_release(operator->first);
    plsh_release(operator->neighbour);
    plsh_release(operator->band);
    plsh_release(operator->padded);
    plsh_release(operator->partial);
    *operator=(plsh_operator){0};
}

void plsh_operator_apply(plsh_operator *operator, const double * x, double *y) {
    if (operator->kind == PLSH_OPERATOR_FREE)
        free_apply(operator, x, y);
    else if (operator->kind == PLSH_OPERATOR_BLOCKS)
        blocks_apply(operator, x, y);
    else
        band_apply(operator, x, y);
}

/* The largest s whose counts a float holds exactly. */
static const int64_t MAX_BANDED_SAMPLES = INT64_C(1) << 24;

static double block_count(const plsh_draws *draws, int64_t n) {
    return draws->density * (double)n + (double)draws->set.samples;
}

/* Measured on n = 4250, sigma 2 to 256, s = 1 to 100,000. */
double plsh_operator_cost(const plsh_draws *draws, plsh_operator_kind kind, int64_t n,
                          int64_t largest) {
    if (kind == PLSH_OPERATOR_BANDED) return (double)n * (double)(largest + LANES);
    return (kind == PLSH_OPERATOR_FREE ? 12 : 3) * block_count(draws, n);
}

plsh_operator_kind plsh_operator_choose(const plsh_draws *draws, int64_t n, int64_t largest,
                                        size_t max_bytes) {
    const double limit = (double)max_bytes;
    const bool fits[] = {
        [PLSH_OPERATOR_FREE] = true,
        [PLSH_OPERATOR_BLOCKS] = 12 * block_count(draws, n) <= limit,
        [PLSH_OPERATOR_BANDED] = 4.0 * (double)n * (double)(largest + LANES) <= limit &&
                                 draws->set.samples <= MAX_BANDED_SAMPLES,
    };
    plsh_operator_kind best = PLSH_OPERATOR_FREE;
    for (plsh_operator_kind kind = PLSH_OPERATOR_BLOCKS; kind <= PLSH_OPERATOR_BANDED; kind++)
        if (fits[kind] && plsh_operator_cost(draws, kind, n, largest) <
                              plsh_operator_cost(draws, best, n, largest))
            best = kind;
    return best;
}

plsh_status plsh_partition_multiply(const plsh_partition *set, int64_t n, const double *x,
                                    double *y, int threads, plsh_error *error) {
    plsh_status status = plsh_set_check(set, n, error);
    if (status || n == 0) return status;
    plsh_draws draws;
    status = plsh_draws_create(set, threads, &draws, error);
    if (status) return status;
    plsh_operator operator;
    status = plsh_operator_create(&draws, PLSH_OPERATOR_FREE, n, 0, threads, &operator, error);
    if (!status) {
        plsh_operator_apply(&operator, x, y);
        plsh_operator_destroy(&operator);
    }
    plsh_draws_destroy(&draws);
    return status;
}
