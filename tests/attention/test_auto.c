/* tests: the choice of auto, and that its predictions have the right order. */
#include "support/support.h"

#include "base/memory.h"
#include "support/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pairs scored by a method on normal q, k, v, and the head as the plan runs it. */
static int64_t run(plsh_attention *a, plsh_head head, plsh_head *ran, char *why) {
    plsh_error error;
    plsh_plan *plan;
    void *workspace;
    plsh_stats stats;
    size_t count = (size_t)(a->keys * a->head_dim);
    float *all = malloc(4 * count * sizeof *all);
    oracle_normal(3, 1, all, 3 * count);
    a->head = &head;
    assert_ok(plsh_plan_create(a, &plan, &error));
    assert_ok(plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "test", &error));
    plsh_forward arrays = {.q = all, .k = all + count, .v = all + 2 * count, .o = all + 3 * count};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, &stats, &error));
    double predicted = plsh_plan_predicted_pairs(plan) / (double)stats.pairs;
    if (!(predicted > 0.5 && predicted < 2)) fail_msg("predicted %g of the pairs", predicted);
    const char *reason;
    *ran = plsh_plan_head(plan, 0, &reason);
    snprintf(why, 256, "%s", reason);
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    free(all);
    return stats.pairs;
}

/* Over sizes from clear cases of dense to clear cases of exact: auto is never 1.5 times the work
 * of the better one, and both occur. */
static void test_order(void **state) {
    (void)state;
    int taken[16] = {0};
    for (int variant = 0; variant < 24; variant++) {
        plsh_attention a = {
            .heads = 1, .head_dim = variant % 3 ? 64 : 16, .head_count = 1, .causal = variant % 2};
        a.queries = a.keys = variant / 2 % 2 ? 3000 : 700;
        double sigma = (double[]){2, 10, 40, 160, 640, 10000}[variant / 4];
        plsh_head head = {.partition.decay = plsh_decay_alibi(sigma),
                          .eps = variant % 5 ? 0 : 1e-2};
        plsh_head ran;
        char why[256];
        head.method = PLSH_METHOD_DENSE;
        int64_t dense = run(&a, head, &ran, why);
        head.method = PLSH_METHOD_EXACT;
        int64_t exact = run(&a, head, &ran, why);
        head.method = PLSH_METHOD_AUTO;
        int64_t chosen = run(&a, head, &ran, why);
        print_message("n %d, sigma %g, d %d: %.0f dense, %.0f exact, took %s; %s\n", (int)a.keys,
                      sigma, (int)a.head_dim, (double)dense / (double)a.keys,
                      (double)exact / (double)a.keys,
                      ran.method == PLSH_METHOD_DENSE ? "dense" : "exact", why);
        assert_true(ran.method == PLSH_METHOD_DENSE || ran.method == PLSH_METHOD_EXACT);
        assert_true((double)chosen <= 1.5 * (double)(dense < exact ? dense : exact));
        test_message_holds(why, "keys per query");
        taken[ran.method]++;
    }
    assert_true(taken[PLSH_METHOD_DENSE] >= 3 && taken[PLSH_METHOD_EXACT] >= 3);
}

/* A decay that ends is a window; one that never fades is dense. */
static void test_shapes_of_decay(void **state) {
    (void)state;
    plsh_attention a = {
        .heads = 1, .queries = 600, .keys = 600, .head_dim = 16, .head_count = 1, .causal = true};
    plsh_head head = {.method = PLSH_METHOD_AUTO,
                      .partition.decay = {.kind = PLSH_DECAY_TRIANGLE, .a = 50}};
    plsh_head ran;
    char why[256];
    run(&a, head, &ran, why);
    assert_int_equal(ran.method, PLSH_METHOD_WINDOW);
    assert_int_equal(ran.window, 50);
    test_message_holds(why, "0 from distance 50");
    head.partition.decay = plsh_decay_alibi(5);
    head.partition.decay.limit = 0.25;
    run(&a, head, &ran, why);
    assert_int_equal(ran.method, PLSH_METHOD_DENSE);
    head.method = PLSH_METHOD_EXACT;
    run(&a, head, &ran, why);
    assert_string_equal(why, "as asked");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_shapes_of_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
