/* train: products in bfloat16: near float32, the same bits for any number of threads. */
#include <math.h>
#include <stdlib.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"
#include "support/train_cases.h"

enum { CONTEXT = 33, STEPS = 12 };

static plsh_trainer *create(const char *folder, plsh_compute compute, int threads) {
    plsh_trainer *trainer;
    plsh_error error;
    const plsh_train_options options = {
        .context = CONTEXT, .batch = 2, .threads = threads, .compute = compute};
    assert_ok(plsh_trainer_create(&trainer, folder, &options, &error));
    return trainer;
}

/* Some steps on the same tokens; losses[STEPS]. */
static plsh_trainer *train(const char *folder, plsh_compute compute, int threads, double *losses) {
    plsh_trainer *trainer = create(folder, compute, threads);
    plsh_error error;
    int32_t ids[2 * CONTEXT];
    double norm;
    train_case_ids(ids, 2, CONTEXT, 0);
    for (int step = 0; step < STEPS; step++) {
        const plsh_update update = {.learning_rate = 3e-3, .clip = 1.0};
        assert_ok(plsh_trainer_accumulate(trainer, ids, CONTEXT, 2, &losses[step], &error));
        assert_ok(plsh_trainer_update(trainer, &update, &norm, &error));
    }
    return trainer;
}

static void test_bfloat(void **unused) {
    (void)unused;
    const char *folder = tiny_llama();
    double plain[STEPS], narrow[STEPS], other[STEPS];
    plsh_trainer_destroy(train(folder, PLSH_COMPUTE_AUTO, 1, plain));
    plsh_trainer *one = train(folder, PLSH_COMPUTE_BFLOAT16, 1, narrow);
    plsh_trainer *three = train(folder, PLSH_COMPUTE_BFLOAT16, 3, other);
    train_case_check_same(one, three);
    assert_true(plsh_model_describe(plsh_trainer_model(one)).bfloat16);
    for (int step = 0; step < STEPS; step++) {
        const double off = fabs(narrow[step] - plain[step]) / plain[step];
        if (!(off > 0.0 && off < 0.02))
            fail_msg("step %d: loss %.6f in bfloat16, %.6f in float32", step, narrow[step],
                     plain[step]);
    }
    assert_true(narrow[STEPS - 1] < 0.9 * narrow[0]);
    plsh_trainer_destroy(one);
    plsh_trainer_destroy(three);
    tiny_model_remove(folder);
}

static void test_refused(void **unused) {
    (void)unused;
    const char *folder = tiny_llama();
    plsh_trainer *trainer;
    plsh_error error;
    const plsh_train_options options = {
        .context = CONTEXT, .batch = 1, .compute = PLSH_COMPUTE_INT8};
    assert_fails(plsh_trainer_create(&trainer, folder, &options, &error), PLSH_STATUS_UNSUPPORTED,
                 "int8, which has no gradients");
    tiny_model_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bfloat),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
