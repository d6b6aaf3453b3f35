/* theory: one scan of the entries of M~, for its max norm distance from L* and for a band. */
#include "base/clones.h"
#include "base/memory.h"
#include "base/thread.h"
#include "partition/diagonals.h"
#include "partition/rows.h"
#include "theory/operator.h"

#include <math.h>
#include <pthread.h>

typedef struct scan {
    const plsh_draws *draws;
    int64_t n;
    const double *k;      /* k(t), t < n */
    const double *beyond; /* the largest k(u), u >= t: M~ is 0 there */
    double scale;         /* 1 / s */
    const plsh_band *band;
} scan;

/* ---- grids: by diagonals ----------------------------------------------------------------------
 */

/* The least and the largest entry of a diagonal: k(t) is the same for all its entries. */
PLSH_CLONES static void extremes(const int32_t *narrow, const int32_t *wide, int64_t count,
                                 int32_t *least, int32_t *most) {
    int32_t low = INT32_MAX, high = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t entry = narrow[i] + wide[i];
        low = entry < low ? entry : low;
        high = entry > high ? entry : high;
    }
    *least = low;
    *most = high;
}

/* A grid wider than n is cut off at n: beyond, there are no entries, and the band has no room. */
static void band_diagonal(const plsh_band *band, const plsh_diagonals *narrow) {
    if (narrow->t >= band->width) return;
    float *out = band->entry + narrow->begin * band->width + narrow->t;
    for (int64_t i = 0; i < narrow->count; i++) out[i * band->width] = (float)narrow->entry[i];
}

static void scan_diagonals(const scan *self, plsh_diagonals *narrow, plsh_diagonals *wide,
                           double *most) {
    int64_t t = narrow->t > wide->t ? narrow->t : wide->t;
    *most = t < narrow->last ? self->beyond[t] : 0;
    while (--t > 0) {
        int32_t low, high;
        if (t < narrow->t) plsh_diagonals_next(narrow);
        if (t < wide->t) plsh_diagonals_next(wide);
        const int64_t count = t == narrow->t ? narrow->count : wide->count;
        if (count <= 0) continue;
        extremes(narrow->entry, wide->entry, count, &low, &high);
        *most = fmax(*most, self->k[t] - self->scale * low);
        *most = fmax(*most, self->scale * high - self->k[t]);
        if (self->band && t == narrow->t) band_diagonal(self->band, narrow);
    }
}

static plsh_status scan_grids(const scan *self, int64_t begin, int64_t end, double *most,
                              plsh_error *error) {
    const int64_t s = self->draws->set.samples, split = self->band ? self->band->narrow : s;
    const plsh_draws parts[] = {plsh_draws_part(self->draws, 0, split),
                                plsh_draws_part(self->draws, split, s - split)};
    plsh_diagonals narrow, wide = {0};
    plsh_status status = plsh_diagonals_open(&parts[0], self->n, begin, end, &narrow, error);
    if (!status) status = plsh_diagonals_open(&parts[1], self->n, begin, end, &wide, error);
    if (!status) scan_diagonals(self, &narrow, &wide, most);
    plsh_diagonals_close(&narrow);
    plsh_diagonals_close(&wide);
    return status;
}

/* ---- cuts and labels: by rows -----------------------------------------------------------------
 */

static void scan_row(const scan *self, const plsh_rows *row, double *most) {
    const plsh_band *band = self->band;
    for (int64_t t = 0; t < row->reach; t++) { /* the diagonal: see design golden-shifted */
        double gap = fabs(self->k[t] - self->scale * row->count[t]);
        *most = gap > *most ? gap : *most; /* gcc 12 for aarch64 fails on fmax's vector form */
    }
    if (row->reach < self->n - row->row) *most = fmax(*most, self->beyond[row->reach]);
    if (!band || band->narrow == 0) return;
    const int64_t reach = row->reach < band->width ? row->reach : band->width;
    for (int64_t t = 1; t < reach; t++)
        band->entry[row->row * band->width + t] = (float)row->count[t];
}

static plsh_status scan_rows(const scan *self, int64_t begin, int64_t end, double *most,
                             plsh_error *error) {
    plsh_rows rows;
    bool more;
    plsh_status status = plsh_rows_open(self->draws, begin, self->n, &rows, error);
    if (status) return status;
    while (!status && rows.row + 1 < end) {
        status = plsh_rows_next(&rows, &more, error);
        if (!status) scan_row(self, &rows, most);
    }
    plsh_rows_close(&rows);
    return status;
}

/* ---- all rows ---------------------------------------------------------------------------------
 */

/* k(t) and its running maximum from the far end, in one array. */
static plsh_status decay_table(const plsh_decay *decay, int64_t n, double **k, plsh_error *error) {
    plsh_status status =
        plsh_allocate((void **)k, 2 * (size_t)n + 1, sizeof **k, "a decay table", error);
    if (status) return status;
    double *beyond = *k + n;
    for (int64_t t = 0; t < n; t++) (*k)[t] = plsh_decay_value(decay, t);
    for (int64_t t = n - 1; t >= 0; t--) beyond[t] = fmax((*k)[t], beyond[t + 1]);
    return PLSH_STATUS_OK;
}

/* Rows per range: their diagonals stay in the second level cache. Fewer than 500 are not worth
 * another thread. */
enum { RANGE = 16384, LEAST_RANGE = 500 };

static int64_t count_ranges(int64_t n, int threads) {
    int64_t team = n > LEAST_RANGE ? plsh_thread_count(threads) : 1;
    int64_t ranges = (n + RANGE - 1) / RANGE;
    return ranges > team ? ranges : team;
}

typedef struct all_ranges {
    const scan *scan;
    int64_t ranges;
    pthread_mutex_t lock; /* guards the fields below */
    double most;
    int64_t failed; /* the first range that failed, otherwise `ranges`; and its error */
    plsh_status status;
    plsh_error error;
} all_ranges;

static void scan_range(void *context, int64_t range, int slot) {
    all_ranges *all = context;
    const scan *self = all->scan;
    const int64_t begin = self->n * range / all->ranges, end = self->n * (range + 1) / all->ranges;
    plsh_error error;
    double most = 0;
    const plsh_status status = self->draws->width ? scan_grids(self, begin, end, &most, &error)
                                                  : scan_rows(self, begin, end, &most, &error);
    (void)slot;
    pthread_mutex_lock(&all->lock);
    all->most = fmax(all->most, most);
    if (status && range < all->failed) {
        all->failed = range;
        all->status = status;
        all->error = error;
    }
    pthread_mutex_unlock(&all->lock);
}

static plsh_status scan_ranges(const scan *self, int64_t ranges, int threads, double *max,
                               plsh_error *error) {
    all_ranges all = {.scan = self, .ranges = ranges, .failed = ranges};
    pthread_mutex_init(&all.lock, NULL);
    plsh_thread_run(threads, ranges, scan_range, &all);
    pthread_mutex_destroy(&all.lock);
    *max = all.most;
    if (all.status && error) *error = all.error;
    return all.status;
}

plsh_status plsh_counts_scan(const plsh_draws *draws, int64_t n, int threads, const plsh_band *band,
                             double *max, plsh_error *error) {
    double *k;
    plsh_status status = decay_table(&draws->set.decay, n, &k, error);
    if (status) return status;
    const scan self = {draws, n, k, k + n, 1 / (double)draws->set.samples, band};
    status = scan_ranges(&self, count_ranges(n, threads), threads, max, error);
    plsh_release(k);
    return status;
}
