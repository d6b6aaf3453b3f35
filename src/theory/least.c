/* theory: a lower bound on the number of masks that any method needs for an error.
 *
 * Cut 0 .. n-1 into rows on the left and columns on the right. Weigh the rows by q^(distance to the
 * cut): on the columns L* becomes the sequence A q^j, j = 1, 2, .., and any real combination of s
 * contiguous partitions a step function of s steps that ends with 0, for each partition has one
 * block across the cut. So the spectral norm of L* - M~ is at least the least square distance
 * between the two (docs/mathematics.md, section 18). */
#include "theory/bounds.h"

#include <math.h>

enum { COLUMNS = 1024 };

typedef struct step_distance {
    int64_t columns;
    double sum[COLUMNS + 1], square[COLUMNS + 1]; /* of the first values of the sequence */
    double eps;                                   /* the squared error that is wanted */
} step_distance;

/* The least sum of squared distances plus `price` for every step, O(columns^2). */
static double priced_distance(const step_distance *at, double price) {
    double least[COLUMNS + 1] = {0}, best = INFINITY;
    for (int64_t end = 0; end <= at->columns; end++) {
        double value = end ? INFINITY : 0;
        for (int64_t begin = 0; begin < end; begin++) {
            const double sum = at->sum[end] - at->sum[begin];
            const double spread =
                at->square[end] - at->square[begin] - sum * sum / (double)(end - begin);
            value = fmin(value, least[begin] + fmax(0, spread));
        }
        least[end] = end ? value + price : 0;
        best = fmin(best, least[end] + at->square[at->columns] - at->square[end]); /* then 0 */
    }
    return best;
}

/* s steps are at a squared distance of at least priced - price s, so that eps needs at least
 * (priced - eps) / price of them: for every price. Negative, to be minimised. */
static double fewer_steps(const void *context, double z) {
    const step_distance *at = context;
    const double price = exp(z);
    return -(priced_distance(at, price) - at->eps) / price;
}

int64_t plsh_spectral_least(int64_t n, double sigma, double eps) {
    if (n < 1 || !(sigma > 0 && sigma < INFINITY) || !(eps > 0)) return 0;
    const double rows = floor(0.5 * (double)n);
    /* Columns number r, r + h, r + 2h, .. have the same sequence as those of the class before,
     * times 1/q; a step function on all is one on each class, so their squared distances add up. */
    const double h = ceil(fmax(1, 14 * sigma / COLUMNS)), ratio = exp(-h / sigma);
    const double classes = expm1(2 * h / sigma) / expm1(2 / sigma);
    const double most = floor(((double)n - rows) / h);
    step_distance at = {.columns = most < COLUMNS ? (int64_t)most : COLUMNS};
    if (!(classes < INFINITY) || at.columns < 1 || rows < 1) return 1;
    const double scale = -expm1(-2 * rows / sigma) / -expm1(-2 / sigma) * classes;
    double value = sqrt(scale);
    for (int64_t j = 0; j < at.columns; j++) {
        value *= ratio;
        at.sum[j + 1] = at.sum[j] + value;
        at.square[j + 1] = at.square[j] + value * value;
    }
    at.eps = eps * eps;
    if (!(at.eps > 0) || at.square[at.columns] <= at.eps) return 1;
    /* The price at which s steps are best is what one more step saves. For s far below sigma that
     * is 16/3 eps^3 / sigma; it is never more than the squared distance of no step at all. */
    const double low = log(at.eps) - log(1 + sigma / eps) - 4;
    const double steps = -plsh_minimise(fewer_steps, &at, low, log(at.square[at.columns]));
    return plsh_samples_round(steps * (1 - 1e-9));
}
