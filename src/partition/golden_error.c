/* partition: how far an entry of the golden lattice's M~ can be from ALiBi. */
#include "partition/golden.h"

#include "base/clones.h"
#include "base/memory.h"
#include "partition/shifted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double PERIOD = 0.96242365011920694; /* ln phi^2, in units of sigma */

/* Above, the sum over s^2 pairs takes too long. */
enum { COMPUTED_SAMPLES = 1 << 13 };

/* docs/mathematics.md, section 21: the number of lattice points in a box of area below X = sqrt(5)
 * s differs from area / sqrt(5) by at most delta. Ending blocks early raises that to 2 delta + 2.
 */
static double proven_error(int64_t samples) {
    return fmin(1, (2 * plsh_shifted_delta(samples) + 2) / (double)samples);
}

/* Between two begins, at u <= i < v, the open blocks end at e_0 <= e_1 ..; `weight` holds
 * exp(-e_d). From e_{d-1} to e_d there are s - d of them, and L* falls from at most exp(v -
 * e_{d-1}) to at least exp(u - e_d). */
PLSH_CLONES static double piece_error(const double *weight, int64_t s, double from, double to) {
    const double each = 1 / (double)s;
    double most = fmax(1 - from * weight[0], to * weight[s - 1]);
    for (int64_t d = 1; d < s; d++) {
        const double share = 1 - (double)d * each;
        const double above = to * weight[d - 1] - share, below = share - from * weight[d];
        const double larger = above > below ? above : below;
        most = larger > most ? larger : most;
    }
    return most;
}

/* A begin of the period: when, and the end of its block, in periods. */
typedef struct begin_end {
    double begin, end;
} begin_end;

static int compare_begin_ends(const void *x, const void *y) {
    const begin_end *a = x, *b = y;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int compare_falling(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a < b) - (a > b);
}

/* weight[0..s-1] of the blocks that are open when the period begins; the begins in their order. */
static void fill_period(const plsh_golden *table, double *weight, begin_end *list) {
    for (int64_t m = 0; m < table->samples; m++) {
        const double close = table->close_in[m] + (double)table->close_turn[m] * 0x1p-64;
        double begin = NAN;
        for (int32_t b = table->first[m]; b < table->first[m + 1]; b++) {
            const double at = (double)table->turn[b] * 0x1p-64;
            if (isnan(begin)) weight[m] = exp(-PERIOD * at);
            if (!isnan(begin)) list[b - 1].end = at;
            list[b] = (begin_end){at, close};
            begin = at;
        }
        if (isnan(begin)) weight[m] = exp(-PERIOD * close);
    }
    qsort(weight, (size_t)table->samples, sizeof *weight, compare_falling);
    qsort(list, (size_t)table->blocks, sizeof *list, compare_begin_ends);
}

/* Each begin ends the open block that has the earliest end. */
static double period_error(const plsh_golden *table, double *weight, const begin_end *list) {
    const int64_t s = table->samples;
    double most = 0, from = 0;
    for (int64_t b = 0; b <= table->blocks; b++) {
        const double to = b < table->blocks ? list[b].begin : 1;
        most = fmax(most, piece_error(weight, s, exp(PERIOD * from), exp(PERIOD * to)));
        if (b == table->blocks) break;
        const double begun = exp(-PERIOD * list[b].end);
        int64_t low = 0, high = s - 1; /* weight[1 .. low] are at least `begun` */
        while (low < high) {
            const int64_t middle = low + (high - low + 1) / 2;
            if (weight[middle] >= begun)
                low = middle;
            else
                high = middle - 1;
        }
        memmove(weight, weight + 1, (size_t)low * sizeof *weight);
        weight[low] = begun;
        from = to;
    }
    return most;
}

/* INFINITY without memory. */
static double computed_error(const plsh_golden *table) {
    plsh_error unused;
    double *weight = NULL, most = INFINITY;
    begin_end *list = NULL;
    plsh_status status = plsh_allocate((void **)&weight, (size_t)table->samples, sizeof *weight,
                                       "ends of blocks", &unused);
    if (!status)
        status =
            plsh_allocate((void **)&list, (size_t)table->blocks, sizeof *list, "blocks", &unused);
    if (!status) {
        fill_period(table, weight, list);
        most = period_error(table, weight, list);
    }
    plsh_release(weight);
    plsh_release(list);
    return most;
}

/* 1e-9: the rounding of edges, below 2^-48 of a period, and of this computation. */
double plsh_golden_max_error(int64_t samples) {
    plsh_golden *table = plsh_golden_find(samples);
    if (samples > COMPUTED_SAMPLES) return proven_error(samples);
    double error = atomic_load_explicit(&table->max_error, memory_order_relaxed);
    if (error > 0) return error;
    error = computed_error(table) + 1e-9;
    if (isinf(error)) return proven_error(samples);
    atomic_store_explicit(&table->max_error, error, memory_order_relaxed);
    return error;
}
