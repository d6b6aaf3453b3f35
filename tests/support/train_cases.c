/* tests: trainers on a few tokens: their gradients, and whether two of them are the same. */
#include "support/train_cases.h"

#include <math.h>
#include <stdlib.h>

#include "support/support.h"

void train_case_ids(int32_t *ids, int64_t windows, int64_t context, int64_t step) {
    for (int64_t i = 0; i < windows * context; i++) {
        const int64_t t = i % context;
        ids[i] = (int32_t)((t * t + 5 * t * (step + 1) + t / 7) % TRAIN_CASE_VOCABULARY);
    }
}

static size_t numbers_of(plsh_trained p) { return (size_t)((p.rows ? p.rows : 1) * p.columns); }

static plsh_trainer *open_trainer(const char *model, const plsh_train_options *options) {
    plsh_trainer *t;
    plsh_error error;
    assert_ok(plsh_trainer_create(&t, model, options, &error));
    return t;
}

static double accumulate(plsh_trainer *t, const plsh_train_options *options) {
    plsh_error error;
    double loss;
    int32_t *ids = malloc((size_t)(options->batch * options->context) * sizeof(*ids));
    train_case_ids(ids, options->batch, options->context, 0);
    assert_ok(plsh_trainer_accumulate(t, ids, options->context, options->batch, &loss, &error));
    free(ids);
    return loss;
}

/* The loss where tensor `which` has moved by `step` along `direction`. */
static double moved_loss(const char *model, const plsh_train_options *options, size_t which,
                         const float *direction, double step) {
    plsh_trainer *t = open_trainer(model, options);
    const plsh_trained p = plsh_trainer_at(t, which);
    for (size_t i = 0; i < numbers_of(p); i++) p.value[i] += (float)(step * (double)direction[i]);
    double loss = accumulate(t, options);
    plsh_trainer_destroy(t);
    return loss;
}

/* Along the gradient of each tensor, moved by 5e-4 a number or so: differences are good for 1 %. */
void train_case_check_gradients(const char *model, const plsh_train_options *options) {
    plsh_trainer *t = open_trainer(model, options);
    double worst = 0;
    accumulate(t, options);
    for (size_t i = 0; i < plsh_trainer_count(t); i++) {
        const plsh_trained p = plsh_trainer_at(t, i);
        double square = 0;
        for (size_t x = 0; x < numbers_of(p); x++)
            square += (double)p.gradient[x] * (double)p.gradient[x];
        const double step = 5e-4 * sqrt((double)numbers_of(p) / square);
        const double slope = (moved_loss(model, options, i, p.gradient, step) -
                              moved_loss(model, options, i, p.gradient, -step)) /
                             (2 * step);
        const double off = fabs(slope / square - 1);
        worst = fmax(worst, off);
        if (!(off < 0.01)) fail_msg("%s: slope %g, not %g", p.name, slope, square);
    }
    print_message("slopes off by %.2g at most\n", worst);
    plsh_trainer_destroy(t);
}

void train_case_check_same(const plsh_trainer *a, const plsh_trainer *b) {
    assert_int_equal(plsh_trainer_count(a), plsh_trainer_count(b));
    for (size_t i = 0; i < plsh_trainer_count(a); i++) {
        const plsh_trained x = plsh_trainer_at(a, i), y = plsh_trainer_at(b, i);
        const size_t bytes = numbers_of(x) * sizeof(float);
        assert_memory_equal(x.value, y.value, bytes);
        assert_memory_equal(x.m, y.m, bytes);
        assert_memory_equal(x.v, y.v, bytes);
    }
}
