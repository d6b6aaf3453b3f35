/* theory: M~ times a vector. */
#include "theory/operator.h"
#include "partition/shifted.h"

#include "base/clones.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(64), aligned(8)));
typedef float singles __attribute__((vector_size(32), aligned(4)));
enum { LANES = 8 };

/* Below so many entries or blocks a second thread costs more than it saves. */
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

/* The edges c, c + b, .. of a grid. n plus the width fits into 63 bits. */
static void free_grid(const plsh_operator *masks, int64_t m, double *d) {
    const uint64_t width = (uint64_t)masks->draws->width[m];
    const int shift = masks->draws->shift;
    const uint64_t round = (UINT64_C(1) << shift) - 1;
    uint64_t edge = (uint64_t)masks->draws->offset[m];
    if (edge == 0) edge = width;
    int64_t begin = 0;
    for (;; edge += width) {
        int64_t end = (int64_t)((edge + round) >> shift);
        if (end >= masks->n) break;
        free_block(masks->prefix, d, begin, end);
        begin = end;
    }
    free_block(masks->prefix, d, begin, masks->n);
}

static void free_draw(const plsh_operator *masks, int64_t m, double *d) {
    const plsh_draws *draws = masks->draws;
    if (draws->width && draws->width[m]) {
        free_grid(masks, m, d);
        return;
    }
    for (int64_t begin = 0; begin < masks->n;) {
        int64_t end = plsh_draws_block(draws, m, begin).end;
        if (end > masks->n) end = masks->n;
        free_block(masks->prefix, d, begin, end);
        begin = end;
    }
}

/* Design golden-shifted: the blocks that begin in a piece of the rows; those that hold row 0 belong
 * to the first. */
typedef struct free_rows {
    const plsh_operator *masks;
    int64_t begin;
    double *d;
} free_rows;

static void free_shifted(void *context, plsh_range block) {
    const free_rows *at = context;
    const int64_t n = at->masks->n;
    if (block.begin < at->begin && at->begin > 0) return;
    free_block(at->masks->prefix, at->d, block.begin > 0 ? block.begin : 0,
               block.end < n ? block.end : n);
}

static void free_piece_shifted(const plsh_operator *masks, int64_t piece, double *d) {
    const plsh_range rows = {masks->n * piece / PLSH_OPERATOR_PIECES,
                             masks->n * (piece + 1) / PLSH_OPERATOR_PIECES};
    free_rows at = {masks, rows.begin, d};
    if (rows.begin < rows.end) plsh_shifted_visit(&masks->draws->set, rows, free_shifted, &at);
}

static void free_piece(void *context, int64_t piece, int slot) {
    const plsh_operator *masks = context;
    const int64_t s = masks->draws->set.samples, last = s * (piece + 1) / PLSH_OPERATOR_PIECES;
    double *d = masks->partial + piece * masks->partial_size;
    (void)slot;
    if (plsh_partition_is_shifted(&masks->draws->set)) {
        free_piece_shifted(masks, piece, d);
        return;
    }
    for (int64_t m = s * piece / PLSH_OPERATOR_PIECES; m < last; m++) free_draw(masks, m, d);
}

static void free_apply(plsh_operator *masks, const double *x, double *y) {
    const int64_t n = masks->n, s = masks->draws->set.samples;
    prefix_sums(x, n, masks->prefix);
    memset(masks->partial, 0,
           (size_t)(PLSH_OPERATOR_PIECES * masks->partial_size) * sizeof(double));
    const bool many = masks->draws->density * (double)n > WORTH_A_TEAM;
    plsh_thread_run(many ? masks->threads : 1, PLSH_OPERATOR_PIECES, free_piece, masks);
    for (int64_t i = 0; i <= n; i++) {
        double sum = 0;
        for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++)
            sum += masks->partial[piece * masks->partial_size + i];
        masks->difference[i] = sum;
    }
    accumulate(masks->difference, n, s, y);
}

static plsh_status free_create(plsh_operator *masks, plsh_error *error) {
    masks->partial_size = masks->n + 1;
    return plsh_allocate((void **)&masks->partial,
                         (size_t)(PLSH_OPERATOR_PIECES * masks->partial_size), sizeof(double),
                         "a matrix-free operator", error);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Both ends of every block are counted in first[i + 2], then placed at first[i + 1]. Once all are
 * placed, first[i] is the first neighbour of i. */
static plsh_status blocks_place(plsh_operator *masks, const plsh_blocks *blocks,
                                plsh_error *error) {
    const int64_t n = masks->n;
    const uint32_t *from = blocks->first, *ends = blocks->ends;
    int64_t *slot = masks->first + 2;
    for (int64_t i = 0; i < n; i++) slot[i] += from[i + 1] - from[i];
    for (uint32_t b = 0; b < from[n]; b++) slot[ends[b]]++;
    for (int64_t i = 1; i <= n; i++) slot[i] += slot[i - 1];
    plsh_status status = plsh_allocate((void **)&masks->neighbour, (size_t)slot[n],
                                       sizeof *masks->neighbour, "the edges of blocks", error);
    if (status) return status;
    slot--;
    for (int64_t i = 0; i < n; i++)
        for (uint32_t b = from[i]; b < from[i + 1]; b++) {
            masks->neighbour[slot[i]++] = ends[b];
            masks->neighbour[slot[ends[b]]++] = (uint32_t)i;
        }
    return PLSH_STATUS_OK;
}

static plsh_status blocks_create(plsh_operator *masks, plsh_error *error) {
    plsh_blocks blocks;
    plsh_draws wide = *masks->draws;
    if (masks->narrow > 0)
        wide = plsh_draws_part(&wide, masks->narrow, wide.set.samples - masks->narrow);
    plsh_status status = plsh_allocate((void **)&masks->first, (size_t)masks->n + 3,
                                       sizeof *masks->first, "the edges of blocks", error);
    if (!status) status = plsh_blocks_open(&wide, 0, masks->n, masks->n, &blocks, error);
    if (status) return status;
    status = plsh_blocks_next(&blocks, error);
    if (!status && blocks.rows < masks->n)
        status = plsh_fail(error, PLSH_STATUS_OVERFLOW,
                           "n is %lld; the blocks of at most %lld positions can be stored",
                           (long long)masks->n, (long long)blocks.rows);
    if (!status) status = blocks_place(masks, &blocks, error);
    plsh_blocks_close(&blocks);
    return status;
}

/* sum of p_j over the neighbours, in four sums: each addition has to wait for the one before it. */
static double neighbour_sum(const double *p, const uint32_t *j, int64_t count) {
    double sum[4] = {0, 0, 0, 0};
    int64_t k = 0;
    for (; k + 4 <= count; k += 4)
        for (int x = 0; x < 4; x++) sum[x] += p[j[k + x]];
    for (; k < count; k++) sum[0] += p[j[k]];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void blocks_rows(void *context, int64_t begin, int64_t end, int slot) {
    const plsh_operator *masks = context;
    const int64_t *first = masks->first;
    (void)slot;
    for (int64_t i = begin; i < end; i++) {
        int64_t degree = first[i + 1] - first[i];
        double sum = neighbour_sum(masks->prefix, masks->neighbour + first[i], degree);
        masks->difference[i] = sum - (double)degree * masks->prefix[i];
    }
}

static void blocks_apply(plsh_operator *masks, const double *x, double *y) {
    const int64_t n = masks->n;
    prefix_sums(x, n, masks->prefix);
    const bool many = masks->first[n + 1] > WORTH_A_TEAM;
    plsh_thread_rows(many ? masks->threads : 1, n, 1, blocks_rows, masks);
    accumulate(masks->difference, n, masks->draws->set.samples, y);
}

/* ---- banded ---------------------------------------------------------------------------------- */

static int64_t piece_begin(int64_t n, int piece) { return n * piece / PLSH_OPERATOR_PIECES; }

static plsh_status band_create(plsh_operator *masks, int64_t reach, double *max,
                               plsh_error *error) {
    const int64_t n = masks->n;
    masks->width = (reach + 2 * LANES - 1) / LANES * LANES;
    masks->partial_size = n / PLSH_OPERATOR_PIECES + 1 + masks->width;
    size_t entries;
    if (!plsh_multiply((size_t)n, (size_t)masks->width, &entries))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a band of %lld x %lld is too large",
                         (long long)n, (long long)masks->width);
    plsh_status status =
        plsh_allocate((void **)&masks->band, entries, sizeof(float), "a banded operator", error);
    if (!status)
        status = plsh_allocate((void **)&masks->padded, (size_t)(n + masks->width), sizeof(double),
                               "a padded vector", error);
    if (!status)
        status = plsh_allocate((void **)&masks->partial,
                               (size_t)(PLSH_OPERATOR_PIECES * masks->partial_size), sizeof(double),
                               "a banded operator", error);
    if (status) return status;
    const plsh_band band = {masks->narrow, masks->width, masks->band};
    return plsh_counts_scan(masks->draws, n, masks->threads, &band, max, error);
}

/* Takes an address, because there is no calling convention for vectors wider than the machine's. */
static double lane_sum(const lanes *sum) {
    const lanes s = *sum;
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

/* Row i of the upper band serves both triangles: y_i += row . x_{i..}, y_{i..} += x_i row. */
static void band_row(const float *row, int64_t width, const double *x, double *y) {
    double sum = 0;
    for (int64_t t = 1; t < width; t++) {
        sum += (double)row[t] * x[t];
        y[t] += (double)row[t] * x[0];
    }
    y[0] += sum;
}

/* Four rows at once, so that x and y are loaded and stored once for four entries. Row r's entry for
 * column 3 + t is row[r * stride + 3 - r + t]; the columns 1 and 2 come first. */
PLSH_CLONES static void band_rows(const float *row, int64_t stride, const double *x, double *y) {
    const float *r0 = row + 3, *r1 = row + stride + 2, *r2 = row + 2 * stride + 1,
                *r3 = row + 3 * stride;
    lanes sum[4] = {{0}, {0}, {0}, {0}}, first[4] = {{0}, {0}, {0}, {0}};
    for (int r = 0; r < 4; r++) first[r] += x[r];
    for (int64_t t = 0; t < stride - LANES; t += LANES) {
        lanes column = *(const lanes *)(x + 3 + t), out = *(const lanes *)(y + 3 + t);
        lanes e0 = __builtin_convertvector(*(const singles *)(r0 + t), lanes);
        lanes e1 = __builtin_convertvector(*(const singles *)(r1 + t), lanes);
        lanes e2 = __builtin_convertvector(*(const singles *)(r2 + t), lanes);
        lanes e3 = __builtin_convertvector(*(const singles *)(r3 + t), lanes);
        sum[0] += e0 * column, sum[1] += e1 * column;
        sum[2] += e2 * column, sum[3] += e3 * column;
        out += (e0 * first[0] + e1 * first[1]) + (e2 * first[2] + e3 * first[3]);
        *(lanes *)(y + 3 + t) = out;
    }
    const double a = row[1], b = row[2], c = row[stride + 1];
    y[0] += lane_sum(&sum[0]) + (a * x[1] + b * x[2]);
    y[1] += lane_sum(&sum[1]) + (a * x[0] + c * x[2]);
    y[2] += lane_sum(&sum[2]) + (b * x[0] + c * x[1]);
    y[3] += lane_sum(&sum[3]);
}

static void band_piece(void *context, int64_t piece, int slot) {
    const plsh_operator *masks = context;
    const int64_t n = masks->n, width = masks->width;
    const int64_t begin = piece_begin(n, (int)piece), end = piece_begin(n, (int)piece + 1);
    double *out = masks->partial + piece * masks->partial_size;
    (void)slot;
    memset(out, 0, (size_t)(end - begin + width) * sizeof *out);
    int64_t i = begin;
    for (; i + 4 <= end; i += 4)
        band_rows(masks->band + i * width, width, masks->padded + i, out + (i - begin));
    for (; i < end; i++)
        band_row(masks->band + i * width, width, masks->padded + i, out + (i - begin));
}

/* Adds to y. */
static void band_apply(plsh_operator *masks, const double *x, double *y) {
    const int64_t n = masks->n, width = masks->width, size = masks->partial_size;
    const double scale = 1 / (double)masks->draws->set.samples;
    memcpy(masks->padded, x, (size_t)n * sizeof *x);
    plsh_thread_run(n * width > WORTH_A_TEAM ? masks->threads : 1, PLSH_OPERATOR_PIECES, band_piece,
                    masks);
    for (int64_t i = 0; i < n; i++) y[i] += scale * (double)masks->narrow * x[i];
    for (int piece = 0; piece < PLSH_OPERATOR_PIECES; piece++) {
        const int64_t begin = piece_begin(n, piece);
        int64_t count = piece_begin(n, piece + 1) - begin + width;
        if (begin + count > n) count = n - begin;
        const double *out = masks->partial + piece * size;
        for (int64_t i = 0; i < count; i++) y[begin + i] += scale * out[i];
    }
}

/* ---- all kinds ------------------------------------------------------------------------------- */

plsh_status plsh_operator_create(const plsh_draws *draws, const plsh_operator_choice *choice,
                                 int64_t n, int threads, plsh_operator *masks, double *max,
                                 plsh_error *error) {
    double unasked;
    *masks = (plsh_operator){.draws = draws, .kind = choice->kind, .n = n, .threads = threads};
    masks->narrow = choice->narrow;
    plsh_status status =
        plsh_allocate((void **)&masks->prefix, (size_t)n + 1, sizeof(double), "prefix sums", error);
    if (!status)
        status = plsh_allocate((void **)&masks->difference, (size_t)n + 1, sizeof(double),
                               "differences", error);
    if (!status && choice->kind == PLSH_OPERATOR_FREE) {
        status = free_create(masks, error);
    } else {
        if (!status && choice->narrow < draws->set.samples) status = blocks_create(masks, error);
        if (!status && choice->narrow > 0)
            status = band_create(masks, choice->reach, max ? max : &unasked, error);
    }
    if (status) plsh_operator_destroy(masks);
    return status;
}

void plsh_operator_destroy(plsh_operator *masks) {
    plsh_release(masks->prefix);
    plsh_release(masks->difference);
    plsh_release(masks->first);
    plsh_release(masks->neighbour);
    plsh_release(masks->band);
    plsh_release(masks->padded);
    plsh_release(masks->partial);
    *masks = (plsh_operator){0};
}

void plsh_operator_apply(plsh_operator *masks, const double *x, double *y) {
    if (masks->kind == PLSH_OPERATOR_FREE) {
        free_apply(masks, x, y);
        return;
    }
    if (masks->first)
        blocks_apply(masks, x, y);
    else
        memset(y, 0, (size_t)masks->n * sizeof *y);
    if (masks->band) band_apply(masks, x, y);
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The largest s whose counts a float holds exactly. */
static const int64_t MAX_BANDED_SAMPLES = INT64_C(1) << 24;

/* The time of a block, in entries of the band: measured on n = 4250, sigma 2 to 256, s = 1 to
 * 100,000. */
enum { FREE_BLOCK = 12, STORED_BLOCK = 3, STORED_BYTES = 12, BAND_BYTES = 4 };

static plsh_operator_choice choice_of(plsh_operator_kind kind, int64_t n, int64_t narrow,
                                      int64_t reach, double blocks) {
    double cost = (kind == PLSH_OPERATOR_FREE ? FREE_BLOCK : STORED_BLOCK) * blocks;
    if (narrow > 0) cost += (double)n * (double)(reach + LANES);
    return (plsh_operator_choice){kind, narrow, reach, cost};
}

static bool choice_fits(const plsh_operator_choice *choice, int64_t n, double blocks,
                        double limit) {
    double bytes = STORED_BYTES * blocks;
    if (choice->narrow > 0) bytes += BAND_BYTES * (double)n * (double)(choice->reach + LANES);
    return choice->kind == PLSH_OPERATOR_FREE ||
           (bytes <= limit && choice->narrow <= MAX_BANDED_SAMPLES);
}

/* The cheapest place to split a grid. Draws are taken out of the band one after the other, the
 * widest first. A split between draws of the same floor(b) saves nothing. */
static plsh_operator_choice choose_split(const plsh_draws *draws, int64_t n, int64_t largest,
                                         double limit) {
    const double rows = ldexp((double)n, draws->shift);
    plsh_operator_choice best = {.cost = INFINITY};
    double blocks = 0;
    for (int64_t narrow = draws->set.samples; narrow > 0; narrow--) {
        int64_t width = draws->width[narrow - 1], reach = (width >> draws->shift) + 1;
        if (width == 0 || reach > largest) reach = largest;
        plsh_operator_choice choice = choice_of(PLSH_OPERATOR_SPLIT, n, narrow, reach, blocks);
        if (choice.cost < best.cost && choice_fits(&choice, n, blocks, limit)) best = choice;
        blocks += 1 + (width > 0 ? rows / (double)width : 0);
    }
    return best;
}

plsh_operator_choice plsh_operator_choose(const plsh_draws *draws, plsh_operator_kind kind,
                                          int64_t n, int64_t largest, size_t max_bytes) {
    const int64_t s = draws->set.samples;
    const double all = draws->density * (double)n + (double)s, limit = (double)max_bytes;
    const plsh_operator_choice choices[] = {choice_of(PLSH_OPERATOR_FREE, n, 0, 0, all),
                                            choice_of(PLSH_OPERATOR_BLOCKS, n, 0, 0, all),
                                            choice_of(PLSH_OPERATOR_BANDED, n, s, largest, 0)};
    /* A band does not store the diagonal of M~, which is not 1 for these sets. */
    const bool shifted = plsh_partition_is_shifted(&draws->set);
    if (shifted && kind >= PLSH_OPERATOR_BANDED) kind = PLSH_OPERATOR_BLOCKS;
    if (kind != PLSH_OPERATOR_AUTO && kind != PLSH_OPERATOR_SPLIT)
        return choices[kind - PLSH_OPERATOR_FREE];
    plsh_operator_choice best = choices[0];
    for (int x = 1; x < (shifted ? 2 : 3); x++)
        if (choices[x].cost < best.cost && choice_fits(&choices[x], n, x == 1 ? all : 0, limit))
            best = choices[x];
    if (!draws->width) return best;
    if (kind == PLSH_OPERATOR_SPLIT) return choose_split(draws, n, largest, INFINITY);
    plsh_operator_choice split = choose_split(draws, n, largest, limit);
    return split.cost < best.cost ? split : best;
}

plsh_status plsh_partition_multiply(const plsh_partition *set, int64_t n, const double *x,
                                    double *y, int threads, plsh_error *error) {
    plsh_status status = plsh_set_check(set, n, error);
    if (status || n == 0) return status;
    plsh_draws draws;
    status = plsh_draws_create(set, n, threads, &draws, error);
    if (status) return status;
    plsh_operator masks;
    const plsh_operator_choice choice = plsh_operator_choose(&draws, PLSH_OPERATOR_FREE, n, 0, 0);
    status = plsh_operator_create(&draws, &choice, n, threads, &masks, NULL, error);
    if (!status) {
        plsh_operator_apply(&masks, x, y);
        plsh_operator_destroy(&masks);
    }
    plsh_draws_destroy(&draws);
    return status;
}
