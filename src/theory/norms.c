/* theory: the three quantities of Theorem 2.1, measured. */
#include "base/memory.h"
#include "base/status.h"
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

/* L* - M~. */
typedef struct difference {
    plsh_toeplitz toeplitz;
    plsh_operator *masks;
    double *scratch; /* n */
} difference;

static void apply_difference(void *context, const double *x, double *y) {
    const difference *self = context;
    plsh_toeplitz_apply(&self->toeplitz, x, y);
    plsh_operator_apply(self->masks, x, self->scratch);
    for (int64_t i = 0; i < self->masks->n; i++) y[i] -= self->scratch[i];
}

static plsh_status solve(const plsh_norms_options *options, plsh_operator *masks, double cost,
                         plsh_norms *norms, plsh_error *error) {
    difference self = {.masks = masks};
    plsh_status status = plsh_toeplitz_create(&masks->draws->set.decay, masks->n, options->threads,
                                              &self.toeplitz, error);
    if (status) return status;
    status = plsh_allocate((void **)&self.scratch, (size_t)masks->n, sizeof(double),
                           "a product with M~", error);
    const plsh_symmetric matrix = {masks->n, apply_difference, &self, cost};
    if (!status)
        status = plsh_spectral_solve(&matrix, options, &norms->spectral, &norms->products, error);
    plsh_release(self.scratch);
    plsh_toeplitz_destroy(&self.toeplitz);
    return status;
}

/* Measures the spectral norm; also the max norm, if the operator counts all entries. */
static plsh_status measure_spectral(const plsh_draws *draws, int64_t n,
                                    const plsh_norms_options *options, plsh_norms *norms,
                                    plsh_error *error) {
    plsh_operator masks;
    const size_t max_bytes = options->max_bytes ? options->max_bytes : (size_t)1 << 30;
    const plsh_operator_choice choice =
        plsh_operator_choose(draws, options->kind, n, norms->largest_block, max_bytes);
    norms->kind = choice.kind;
    plsh_status status =
        plsh_operator_create(draws, &choice, n, options->threads, &masks, &norms->max, error);
    if (status) return status;
    status = solve(options, &masks, choice.cost, norms, error);
    plsh_operator_destroy(&masks);
    return status;
}

plsh_status plsh_norms_check_options(const plsh_norms_options *options, plsh_error *error) {
    if (options->tolerance != 0 && !(options->tolerance >= 1e-14 && options->tolerance <= 0.5))
        return plsh_fail(error, PLSH_STATUS_INVALID, "tolerance is %g; 1e-14 to 0.5, or 0 for 1e-6",
                         options->tolerance);
    if (options->max_products < 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "max_products is %lld; at least 0",
                         (long long)options->max_products);
    if ((int)options->kind < PLSH_OPERATOR_AUTO || options->kind > PLSH_OPERATOR_SPLIT)
        return plsh_fail(error, PLSH_STATUS_INVALID, "operator kind %d is unknown",
                         (int)options->kind);
    return PLSH_STATUS_OK;
}

static plsh_status check_options(const plsh_partition *set, int64_t n,
                                 const plsh_norms_options *options, plsh_error *error) {
    if (n < 1)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; 1 to 2^31 - 1", (long long)n);
    plsh_status status = plsh_norms_check_options(options, error);
    if (status) return status;
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
    if (!status) status = plsh_draws_create(set, n, options->threads, &draws, error);
    if (status) return status;
    *norms = (plsh_norms){.spectral = NAN, .max = NAN};
    norms->largest_block = plsh_draws_largest_block(&draws, n);
    if (!options->skip_spectral) status = measure_spectral(&draws, n, options, norms, error);
    if (!status && !options->skip_max && isnan(norms->max))
        status = plsh_counts_scan(&draws, n, options->threads, NULL, &norms->max, error);
    if (options->skip_max) norms->max = NAN;
    plsh_draws_destroy(&draws);
    return status;
}
