/* theory: the three quantities of Theorem 2.1, measured. */
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "partition/rows.h"
#include "theory/clones.h"
#include "theory/operator.h"

#include <math.h>

plsh_status plsh_set_check(const plsh_partition *set, int64_t n, plsh_error *error) {
    plsh_status status = plsh_decay_check(&set->decay, error);
    if (!status) status = plsh_partition_check(set, error);
    if (status) return status;
    if (n < 0 || n > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; 0 to 2^31 - 1", (long long)n);
    if (set->samples > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "samples is %lld; at most 2^31 - 1 here",
                         (long long)set->samples);
    if (set->scheme == PLSH_SCHEME_LABELS && n > set->label_count)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld, but only %lld labels are given",
                         (long long)n, (long long)set->label_count);
    return PLSH_STATUS_OK;
}

/* ---- max norm -------------------------------------------------------------------------------- */

/* The largest |k(t) - count_t / s|; a maximum does not depend on the order. */
#define ROW_MAX(name, type)                                                                        \
    PLSH_CLONES static double name(const double *k, const type *count, int64_t reach,              \
                                   double scale) {                                                 \
        enum { LANES = 8 };                                                                        \
        double most[LANES] = {0}, all = 0;                                                         \
        int64_t t = 0;                                                                             \
        for (; t + LANES <= reach; t += LANES)                                                     \
            for (int x = 0; x < LANES; x++) {                                                      \
                double gap = fabs(k[t + x] - scale * (double)count[t + x]);                        \
                most[x] = gap > most[x] ? gap : most[x];                                           \
            }                                                                                      \
        for (; t < reach; t++) { /* no fmax: gcc 12 for aarch64 trips over its vector form */      \
            double gap = fabs(k[t] - scale * (double)count[t]);                                    \
            all = gap > all ? gap : all;                                                           \
        }                                                                                          \
        for (int x = 0; x < LANES; x++) all = fmax(all, most[x]);                                  \
        return all;                                                                                \
    }
ROW_MAX(row_max, int32_t)
ROW_MAX(band_row_max, float)

typedef struct maximum {
    int64_t n;
    const double *k;      /* k(t), t < n */
    const double *beyond; /* the largest k(u), u >= t: M~ is 0 there */
    double scale;         /* 1 / s */
    double *part;         /* per thread */
} maximum;

static void visit_max(void *context, int part, const plsh_rows *row) {
    const maximum *problem = context;
    double most = row_max(problem->k, row->count, row->reach, problem->scale);
    if (row->reach < problem->n - row->row) most = fmax(most, problem->beyond[row->reach]);
    problem->part[part] = fmax(problem->part[part], most);
}

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

static plsh_status measure_max(const plsh_draws *draws, int64_t n, int threads, double *norm,
                               plsh_error *error) {
    /* Rows below which a second thread costs more than it brings. */
    const int parts = n > 500 ? plsh_thread_count(threads) : 1;
    double *k, *part;
    plsh_status status = decay_table(&draws->set.decay, n, &k, error);
    if (!status)
        status = plsh_allocate((void **)&part, (size_t)parts, sizeof *part, "maxima", error);
    if (status) {
        plsh_release(k);
        return status;
    }
    maximum problem = {n, k, k + n, 1 / (double)draws->set.samples, part};
    status = plsh_rows_each(draws, n, parts, visit_max, &problem, error);
    *norm = 0;
    for (int x = 0; x < parts; x++) *norm = fmax(*norm, part[x]);
    plsh_release(part);
    plsh_release(k);
    return status;
}

/* The same from the counts that a banded operator holds already. */
static plsh_status band_max(const plsh_operator *masks, double *norm, plsh_error *error) {
    const int64_t n = masks->n, width = masks->width;
    const double scale = 1 / (double)masks->draws->set.samples;
    double *k, most = 0;
    plsh_status status = decay_table(&masks->draws->set.decay, n, &k, error);
    if (status) return status;
#pragma omp parallel for num_threads(plsh_thread_count(masks->threads)) if (n > 500)               \
    schedule(static) reduction(max                                                                 \
                               : most)
    for (int64_t i = 0; i < n; i++) {
        int64_t reach = width < n - i ? width : n - i;
        double gap = band_row_max(k + 1, masks->band + i * width + 1, reach - 1, scale);
        if (reach < n - i) gap = fmax(gap, k[n + reach]);
        most = fmax(most, gap);
    }
    plsh_release(k);
    *norm = most;
    return PLSH_STATUS_OK;
}

/* ---- all three ------------------------------------------------------------------------------- */

static plsh_status solve(const plsh_norms_options *options, plsh_operator *masks, plsh_norms *norms,
                         plsh_error *error) {
    plsh_toeplitz toeplitz;
    const plsh_draws *draws = masks->draws;
    const int64_t n = masks->n;
    plsh_status status =
        plsh_toeplitz_create(&draws->set.decay, n, options->threads, &toeplitz, error);
    if (status) return status;
    status = plsh_spectral_solve(&toeplitz, masks,
                                 plsh_operator_cost(draws, masks->kind, n, norms->largest_block),
                                 options->tolerance == 0 ? 1e-6 : options->tolerance,
                                 options->max_products ? options->max_products : 100000,
                                 &norms->spectral, &norms->products, error);
    plsh_toeplitz_destroy(&toeplitz);
    return status;
}

/* The spectral norm, and the max norm too where the operator has all counts. */
static plsh_status measure_spectral(const plsh_draws *draws, int64_t n,
                                    const plsh_norms_options *options, plsh_norms *norms,
                                    plsh_error *error) {
    plsh_operator masks;
    const size_t max_bytes = options->max_bytes ? options->max_bytes : (size_t)1 << 30;
    norms->kind = options->kind;
    if (norms->kind == PLSH_OPERATOR_AUTO)
        norms->kind = plsh_operator_choose(draws, n, norms->largest_block, max_bytes);
    plsh_status status = plsh_operator_create(draws, norms->kind, n, norms->largest_block,
                                              options->threads, &masks, error);
    if (status) return status;
    status = solve(options, &masks, norms, error);
    if (!status && !options->skip_max && norms->kind == PLSH_OPERATOR_BANDED)
        status = band_max(&masks, &norms->max, error);
    plsh_operator_destroy(&masks);
    return status;
}

static plsh_status check_options(const plsh_partition *set, int64_t n,
                                 const plsh_norms_options *options, plsh_error *error) {
    if (n < 1)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; 1 to 2^31 - 1", (long long)n);
    if (options->tolerance != 0 && !(options->tolerance >= 1e-14 && options->tolerance <= 0.5))
        return plsh_fail(error, PLSH_STATUS_INVALID, "tolerance is %g; 1e-14 to 0.5, or 0 for 1e-6",
                         options->tolerance);
    if (options->max_products < 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "max_products is %lld; at least 0",
                         (long long)options->max_products);
    if ((int)options->kind < PLSH_OPERATOR_AUTO || options->kind > PLSH_OPERATOR_BANDED)
        return plsh_fail(error, PLSH_STATUS_INVALID, "operator kind %d is unknown",
                         (int)options->kind);
    if (options->kind == PLSH_OPERATOR_BANDED && set->samples > INT64_C(1) << 24)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "samples is %lld; a banded operator holds counts up to 2^24",
                         (long long)set->samples);
    return PLSH_STATUS_OK;
}

plsh_status plsh_norms_measure(const plsh_partition *set, int64_t n,
                               const plsh_norms_options *options, plsh_norms *norms,
                               plsh_error *error) {
    const plsh_norms_options defaults = {0};
    if (!options) options = &defaults;
    plsh_status status = plsh_set_check(set, n, error);
    if (!status) status = check_options(set, n, options, error);
    plsh_draws draws;
    if (!status) status = plsh_draws_create(set, options->threads, &draws, error);
    if (status) return status;
    *norms = (plsh_norms){.spectral = NAN, .max = NAN};
    norms->largest_block = plsh_draws_largest_block(&draws, n);
    if (!options->skip_max) status = measure_max(&draws, n, options->threads, &norms->max, error);
    if (!status && !options->skip_spectral)
        status = measure_spectral(&draws, n, options, norms, error);
    plsh_draws_destroy(&draws);
    return status;
}
