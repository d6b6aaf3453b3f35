/* head: a bound on the rounding error of a row. The names are those of the proof in
 * docs/rounding.md. */
#include "head/rounding.h"

#include <math.h>

static const double U = 0x1p-24, LN2 = 0.6931471805599453;

/* For terms of second order, and for rounding in here. */
static const double MARGIN = 1 + 0x1p-10;

/* Roundings of a weight, relative to it: s - m, at most 126 in size, and 2^(s - m) and its product
 * with a count (126 ln 2 + 4 + 2); of two weights that a sum compares. */
enum { OF_WEIGHT = 96, OF_GAP = 4 };

/* Of the sum of p v and of the sum of p, together: see the table in the proof. Each rise of the
 * maximum multiplies both by a rounded power of two. */
enum { OF_SUMS = 176, OF_RISE = 8 };

/* Of a bias: of the number, and of its addition to a score, and one to spare. */
enum { OF_BIAS = 3 };

/* The mean of |bias| over the weights of a row, at most. */
static double mean_bias(const plsh_rounding_row *row, double alpha) {
    const double log_keys = log2((double)row->keys);
    return fmax(0, (row->score + 2 * alpha + 2 * log_keys - row->log_sum) * MARGIN + 1);
}

plsh_rounding plsh_rounding_of(const plsh_rounding_row *row) {
    const double alpha = isnan(row->weighted) ? INFINITY : U * row->weighted * MARGIN;
    const double bias = row->biased ? OF_BIAS * U * mean_bias(row, alpha) : 0;
    const double same = LN2 * alpha + OF_WEIGHT * U; /* a weight is off by a factor e^+-same */
    const double underflow = (double)row->keys * 0x1p-60;
    return (plsh_rounding){.weights = same / 2 + LN2 * bias * MARGIN + OF_GAP * U + underflow,
                           .values = U * (OF_SUMS + OF_RISE * (double)row->rises) * MARGIN,
                           .log = (2 * same + OF_WEIGHT * U) / LN2 + bias};
}
