/* model: norms and activations of rows against double, at widths that are no whole vectors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/activation.h"
#include "model/norm.h"
#include "support/support.h"

enum { ROWS = 67, PARTS = 3, MOST = 48 }; /* more rows than a block of sums has */

static const int64_t widths[] = {1, 7, 16, 33, MOST};

/* Numbers in (-2, 2) that are the same everywhere. */
static void fill(float *to, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) * 0x1p-22f - 2.0f;
    }
}

static void assert_near(double got, double wanted, const char *what, int64_t width) {
    if (!(fabs(got - wanted) <= 2e-5 * (1.0 + fabs(wanted)))) {
        fail_msg("%s, width %lld: %.9g instead of %.9g", what, (long long)width, got, wanted);
    }
}

/* ---- Norms ----------------------------------------------------------------------------------- */

typedef struct norm_case {
    plsh_norm norm;
    plsh_norm_rows shape;
    float weight[MOST], bias[MOST];
    float x[ROWS * PARTS * MOST], dy[ROWS * PARTS * MOST];
    float y[ROWS * PARTS * MOST], dx[ROWS * PARTS * MOST], dw[MOST], db[MOST];
    float partial[(ROWS / PLSH_NORM_CHUNK + 1) * 2 * MOST];
} norm_case;

static void run_norm(norm_case *c, int threads) {
    memset(c->dx, 0, sizeof(c->dx));
    memset(c->dw, 0, sizeof(c->dw));
    memset(c->db, 0, sizeof(c->db));
    plsh_norm_forward(&c->norm, c->shape, c->x, c->y, threads);
    plsh_norm_backward(&c->norm, c->shape, c->x, c->dy, c->dx, &(plsh_norm_gradient){c->dw, c->db},
                       c->partial, threads);
}

static norm_case *make_norm(plsh_norm_kind kind, int64_t width) {
    norm_case *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    const bool layer = kind == PLSH_NORM_LAYER;
    c->norm = (plsh_norm){kind, width, 1e-5, c->weight, layer ? c->bias : NULL};
    c->shape = (plsh_norm_rows){.rows = ROWS, .parts = PARTS, .stride = PARTS * width};
    fill(c->weight, MOST, 1);
    fill(c->bias, MOST, 2);
    fill(c->x, ROWS * PARTS * MOST, 3);
    fill(c->dy, ROWS * PARTS * MOST, 4);
    return c;
}

/* One part by the definition: checks y and dx, adds to dw and db. */
static void check_part(const norm_case *c, int64_t at, double *dw, double *db) {
    const int64_t width = c->norm.width;
    const bool layer = c->norm.kind == PLSH_NORM_LAYER;
    const float *x = c->x + at, *dy = c->dy + at;
    double mean = 0.0, square = 0.0, flat = 0.0, along = 0.0;
    for (int64_t i = 0; layer && i < width; i++) mean += (double)x[i] / (double)width;
    for (int64_t i = 0; i < width; i++) square += pow((double)x[i] - mean, 2.0) / (double)width;
    const double inverse = 1.0 / sqrt(square + c->norm.eps);
    for (int64_t i = 0; i < width; i++) {
        double n = ((double)x[i] - mean) * inverse, g = (double)(c->weight[i]) * (double)dy[i];
        flat += layer ? g / (double)width : 0.0;
        along += g * n / (double)width;
        dw[i] += (double)dy[i] * n;
        db[i] += (double)dy[i];
    }
    for (int64_t i = 0; i < width; i++) {
        double n = ((double)x[i] - mean) * inverse, g = (double)(c->weight[i]) * (double)dy[i];
        double y = n * (double)c->weight[i] + (layer ? (double)c->bias[i] : 0.0);
        assert_near((double)c->y[at + i], y, "y", width);
        if (width > 1)
            assert_near((double)c->dx[at + i], inverse * (g - flat - n * along), "dx", width);
    }
}

static void check_norm(plsh_norm_kind kind, int64_t width) {
    norm_case *c = make_norm(kind, width), *other = make_norm(kind, width);
    double dw[MOST] = {0}, db[MOST] = {0};
    run_norm(c, 1);
    for (int64_t part = 0; part < ROWS * PARTS; part++) check_part(c, part * width, dw, db);
    for (int64_t i = 0; i < width; i++) {
        assert_near((double)c->dw[i], dw[i], "dw", width);
        assert_near((double)c->db[i], db[i], "db", width);
    }
    run_norm(other, 3);
    assert_memory_equal(c->y, other->y, sizeof(c->y));
    assert_memory_equal(c->dx, other->dx, sizeof(c->dx));
    assert_memory_equal(c->dw, other->dw, sizeof(c->dw));
    free(c);
    free(other);
}

static void test_norms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        check_norm(PLSH_NORM_RMS, widths[i]);
        check_norm(PLSH_NORM_LAYER, widths[i]);
    }
}

/* ---- Activations ----------------------------------------------------------------------------- */

static double activation(plsh_activation kind, double x) {
    switch (kind) {
    case PLSH_ACTIVATION_SILU: return x / (1.0 + exp(-x));
    case PLSH_ACTIVATION_GELU: return 0.5 * x * erfc(-x / sqrt(2.0));
    case PLSH_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case PLSH_ACTIVATION_RELU: return x > 0.0 ? x : 0.0;
    }
    return NAN;
}

static double activation_slope(plsh_activation kind, double x) {
    const double h = 1e-5;
    return (activation(kind, x + h) - activation(kind, x - h)) / (2.0 * h);
}

static void check_activation(plsh_activation kind, bool gated, int64_t width) {
    enum { PAIR = 2 };
    float x[ROWS * MOST * PAIR], dy[ROWS * MOST], y[ROWS * MOST], dx[ROWS * MOST * PAIR];
    const int64_t stride = gated ? PAIR * width : width;
    fill(x, ROWS * MOST * PAIR, 5);
    fill(dy, ROWS * MOST, 6);
    for (int i = 0; i < ROWS * MOST * PAIR; i++) x[i] *= 4.0f;
    plsh_activation_forward(kind, gated, x, y, ROWS, width, 1);
    plsh_activation_backward(kind, gated, x, dy, dx, ROWS, width, 1);
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t i = 0; i < width; i++) {
            const double from = (double)x[r * stride + i], d = (double)dy[r * width + i];
            const double up = gated ? (double)x[r * stride + width + i] : 1.0;
            assert_near((double)y[r * width + i], up * activation(kind, from), "y", width);
            assert_near((double)dx[r * stride + i], d * up * activation_slope(kind, from), "dx",
                        width);
            if (!gated) continue;
            assert_near((double)dx[r * stride + width + i], d * activation(kind, from), "d up",
                        width);
        }
    }
}

static void test_activations(void **state) {
    (void)state;
    const plsh_activation kinds[] = {PLSH_ACTIVATION_SILU, PLSH_ACTIVATION_GELU,
                                     PLSH_ACTIVATION_GELU_TANH, PLSH_ACTIVATION_RELU};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
            check_activation(kinds[k], false, widths[i]);
            check_activation(kinds[k], true, widths[i]);
        }
    }
}

/* Far out SiLU is x or nearly 0, never NaN for a number; and a NaN stays one. */
static void test_far(void **state) {
    (void)state;
    const float x[] = {-1e30f, -200.0f, -88.5f, 88.5f, 200.0f, 1e30f, NAN, -0.0f};
    float y[8];
    plsh_activation_forward(PLSH_ACTIVATION_SILU, false, x, y, 1, 8, 1);
    for (int i = 0; i < 3; i++) assert_true(fabsf(y[i]) < 1e-6f);
    for (int i = 3; i < 6; i++) assert_true(y[i] == x[i]);
    assert_true(isnan(y[6]) && y[7] == 0.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
