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
PLSH_CLONES static double row_max(const double *k, const int32_t *count, int64_t reach,
                                  double scale) {
    enum { LANES = 8 };
    double most[LANES] = {0};
    int64_t t = 0;
    for (; t + LANES <= reach; t += LANES)
        for (int x = 0; x < LANES; x++) {
            double gap = fabs(k[t + x] - scale * count[t + x]);
            most[x] = gap > most[x] ? gap : most[x];
        }
    double all = 0;
    for (; t < reach; t++) { /* no fmax: gcc 12 for aarch64 trips over its vector form */
        double gap = fabs(k[t] - scale * count[t]);
        all = gap > all ? gap : all;
    }
    for (int x = 0; x < LANES; x++) all = fmax(all, most[x]);
    return all;
}

typedef struct maximum {
    const plsh_draws *draws;
    int64_t n;
    const double *k;      /* k(t), t < n */
    const double *beyond; /* the largest k(u), u >= t: M~ is 0 there */
} maximum;

static plsh_status range_max(const maximum *problem, int64_t begin, int64_t end, double *result,
                             plsh_error *error) {
    plsh_rows rows;
    bool more = true;
    const double scale = 1 / (double)problem->draws->set.samples;
    *result = 0;
    plsh_status status = plsh_rows_open(problem->draws, begin, problem->n, &rows, error);
    if (status) return status;
    while (!status && rows.row + 1 < end) {
        status = plsh_rows_next(&rows, &more, error);
        if (status) break;
        double gap = row_max(problem->k, rows.count, rows.reach, scale);
        if (rows.reach < problem->n - rows.row) gap = fmax(gap, problem->beyond[rows.reach]);
        *result = fmax(*result, gap);
    }
    plsh_rows_close(&rows);
    return status;
}

static plsh_status max_norm(const maximum *problem, int threads, double *norm, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    const int team = plsh_thread_count(threads);
    double all = 0;
#pragma omp parallel for num_threads(team) schedule(static) reduction(max : all)
    for (int part = 0; part < team; part++) {
        plsh_error own;
        double result = 0;
        int64_t begin = problem->n * part / team, end = problem->n * (part + 1) / team;
        plsh_status failed = range_max(problem, begin, end, &result, &own);
        if (failed) {
#pragma omp critical(plsh_max_norm)
            {
                status = failed;
                if (error) *error = own;
            }
        }
        all = fmax(all, result);
    }
    *norm = all;
    return status;
}

static plsh_status measure_max(const plsh_draws *draws, int64_t n, int threads, double *norm,
                               plsh_error *error) {
    double *k;
    plsh_status status =
        plsh_allocate((void **)&k, 2 * (size_t)n + 1, sizeof *k, "a decay table", error);
    if (status) return status;
    double *beyond = k + n;
    for (int64_t t = 0; t < n; t++) k[t] = plsh_decay_value(&draws->set.decay, t);
    for (int64_t t = n - 1; t >= 0; t--) beyond[t] = fmax(k[t], beyond[t + 1]);
    maximum problem = {draws, n, k, beyond};
    status = max_norm(&problem, threads, norm, error);
    plsh_release(k);
    return status;
}

/* ---- all three ------------------------------------------------------------------------------- */

static plsh_status measure_spectral(const plsh_draws *draws, int64_t n,
                                    const plsh_norms_options *options, plsh_norms *norms,
                                    plsh_error *error) {
    plsh_toeplitz toeplitz;
    plsh_operator operator;
    const size_t max_bytes = options->max_bytes ? options->max_bytes : (size_t)1 << 30;
    norms->kind = options->kind;
    if (norms->kind == PLSH_OPERATOR_AUTO)
        norms->kind = plsh_operator_choose(draws, n, norms->largest_block, max_bytes);
    plsh_status status =
        plsh_toeplitz_create(&draws->set.decay, n, options->threads, &toeplitz, error);
    if (status) return status;
    status = plsh_operator_create(draws, norms->kind, n, norms->largest_block, options->threads,
                                  &operator, error);
    if (!status) {
        status = plsh_spectral_solve(&toeplitz, &operator,
                                     options->tolerance == 0 ? 1e-6 : options->tolerance,
                                     options->max_products ? options->max_products : 100000,
                                     &norms->spectral, &norms->products, error);
        plsh_operator_destroy(&operator);
    }
    plsh_toeplitz_destroy(&toeplitz);
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
