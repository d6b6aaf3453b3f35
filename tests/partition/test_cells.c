/* tests: cells of Poisson hyperplanes. */
#include "support/support.h"

#include "partition/rate.h"
#include "plsh/cells.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static plsh_partition cells_of(plsh_decay decay, int64_t samples) {
    plsh_partition set = plsh_partition_default(1, samples);
    set.scheme = PLSH_SCHEME_HYPERPLANES;
    set.decay = decay;
    return set;
}

/* A number in (0, 1) of a sequence that is the same everywhere. */
static float unit_at(uint64_t index) {
    uint64_t z = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((double)((z ^ z >> 31) >> 11) * 0x1p-53);
}

enum { N = 400, PLANES = 4096 };

/* Point sets: random, a grid, all equal, on a line, of hugely different scales. */
static const char *const shapes[] = {"random", "grid", "equal", "line", "scales"};

static void make_points(int shape, int dim, float *x) {
    for (int i = 0; i < N; i++)
        for (int a = 0; a < dim; a++) {
            const int grid[3] = {i % 20, i / 20, 3};
            const float unit = unit_at((uint64_t)(i * 3 + a)) * 20 - 10;
            float at = unit;
            if (shape == 1) at = (float)grid[a];
            if (shape == 2) at = (float)(a + 2);
            if (shape == 3) at = (float)(i - N / 2) / 16 * (float)(a + 1);
            if (shape == 4) at = unit * powf(10, (float)(-(i % 8)));
            x[i * dim + a] = at;
        }
}

/* Labels are equal iff no hyperplane of the draw lies between the points; they are numbered in the
 * order of first appearance; a point without a position has its own label. */
static void test_labels_are_cells(void **state) {
    (void)state;
    plsh_error error;
    static float x[N * 3];
    static int32_t labels[2][N];
    static plsh_hyperplane planes[PLANES];
    static bool side[N][PLANES];
    int64_t cells = 0;
    for (int test = 0; test < 5 * 3 * 2; test++) {
        const int shape = test % 5, dim = test / 5 % 3 + 1;
        plsh_partition set = cells_of(plsh_decay_alibi(2), 5);
        set.design = (plsh_design)(test / 15);
        make_points(shape, dim, x);
        x[7 * dim + dim - 1] = NAN;
        assert_ok(plsh_cells_label(&set, 2, 2, (plsh_point_set){dim, N, x}, labels[0], 2, &error));
        const int64_t count = plsh_cells_hyperplanes(&set, 3, dim, 60, planes, PLANES);
        assert_in_range(count, 20, PLANES);
        for (int i = 0; i < N; i++)
            for (int h = 0; h < count; h++) {
                double sum = planes[h].normal[0] * (double)x[i * dim];
                for (int a = 1; a < dim; a++) sum += planes[h].normal[a] * (double)x[i * dim + a];
                side[i][h] = sum > planes[h].offset;
            }
        int32_t next = 0;
        for (int i = 0; i < N; i++) {
            if (i == 7) {
                assert_int_equal(labels[1][i], PLSH_CELL_EVERY);
                continue;
            }
            assert_in_range(labels[1][i], 0, next);
            next += labels[1][i] == next;
            for (int j = 0; j < i; j++) {
                if (j == 7) continue;
                const bool same = memcmp(side[i], side[j], (size_t)count) == 0;
                if ((labels[1][i] == labels[1][j]) != same)
                    fail_msg("%s, %d-D: points %d and %d", shapes[shape], dim, i, j);
            }
        }
        cells += next;
    }
    assert_true(cells > 600);
}

/* The cell of a point is a function of the set: other points and threads change nothing. */
static void test_independent_of_others(void **state) {
    (void)state;
    plsh_error error;
    static float x[N * 2];
    static int32_t all[20][N], some[20][N / 2], alone[20][N];
    make_points(0, 2, x);
    plsh_partition set = cells_of(plsh_decay_alibi(2), 20);
    assert_ok(plsh_cells_label(&set, 0, 20, (plsh_point_set){2, N, x}, all[0], 4, &error));
    assert_ok(plsh_cells_label(&set, 0, 20, (plsh_point_set){2, N / 2, x}, some[0], 1, &error));
    for (int m = 0; m < 20; m++) {
        assert_ok(plsh_cells_label(&set, m, 1, (plsh_point_set){2, N, x}, alone[m], 1, &error));
        assert_memory_equal(some[m], all[m], sizeof some[m]);
    }
    assert_memory_equal(all, alone, sizeof all);
    assert_memory_not_equal(all[0], all[1], sizeof all[0]);
    set.head = 1;
    assert_ok(plsh_cells_label(&set, 0, 1, (plsh_point_set){2, N, x}, alone[0], 1, &error));
    assert_memory_not_equal(all[0], alone[0], sizeof all[0]);
}

static double distance(const float *x, const float *y, int dim) {
    double square = 0;
    for (int a = 0; a < dim; a++)
        square += ((double)x[a] - (double)y[a]) * ((double)x[a] - (double)y[a]);
    return sqrt(square);
}

typedef struct sums {
    double sum, squares;
} sums;

static void add(sums *to, double x) {
    to->sum += x;
    to->squares += x * x;
}

static void check_mean(const sums *of, double count, double expected, const char *what, int test) {
    const double limit = gsl_cdf_ugaussian_Qinv(0.5e-9);
    const double mean = of->sum / count;
    const double se = sqrt((of->squares / count - mean * mean) / count);
    if (fabs(mean - expected) > limit * se)
        fail_msg("%s, case %d: %.5f +- %.5f, expected %.5f", what, test, mean, se, expected);
    assert_true(0.03 > limit * se); /* the power to see an error of 0.03 */
}

/* Two points share a cell with probability k(|x - y|), three with k(half the perimeter), and the
 * mean of M^2 is that of docs/mathematics.md, Cells: for both designs, 1 to 3 dimensions, ALiBi and
 * the mixtures. 2 z-tests at 1e-9 for each of 24 cases: false alarms below 1e-7. The points lie off
 * the origin, so that several shells count. */
static void test_laws(void **state) {
    (void)state;
    enum { SEEDS = 8000, SAMPLES = 8 };
    plsh_decay decays[4] = {plsh_decay_alibi(3),
                            {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.4},
                            {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.5, .b = 0.6},
                            {.kind = PLSH_DECAY_ALIBI, .a = 1, .limit = 0.2}};
    static const float triangle[9] = {2.0f, 0.5f, -0.5f, 3.2f, 1.5f, 0.4f, 2.4f, -0.6f, 1.1f};
    for (int test = 0; test < 24; test++) {
        const int dim = test % 3 + 1, design = test / 3 % 2;
        const plsh_decay *decay = &decays[test / 6];
        float x[9];
        for (int i = 0; i < 3; i++)
            for (int a = 0; a < dim; a++) x[i * dim + a] = triangle[3 * i + a];
        sums pair = {0}, triple = {0};
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            plsh_error error;
            int32_t labels[SAMPLES][3];
            plsh_partition set = cells_of(*decay, SAMPLES);
            set.seed = seed;
            set.design = (plsh_design)design;
            assert_ok(plsh_cells_label(&set, 0, SAMPLES, (plsh_point_set){dim, 3, x}, labels[0], 1,
                                       &error));
            double pairs = 0, triples = 0;
            for (int m = 0; m < SAMPLES; m++) {
                pairs += labels[m][0] == labels[m][1];
                triples += labels[m][0] == labels[m][1] && labels[m][0] == labels[m][2];
            }
            add(&pair, pairs / SAMPLES);
            add(&triple, triples / SAMPLES);
        }
        const double ab = distance(x, x + dim, dim), bc = distance(x + dim, x + 2 * dim, dim),
                     ca = distance(x + 2 * dim, x, dim);
        const double half = (ab + bc + ca) / 2;
        double k[2] = {ab, half};
        for (int y = 0; y < 2; y++) {
            const double t = k[y];
            double value = exp(-t / decay->a);
            if (decay->kind == PLSH_DECAY_KERPLE_LOG) value = pow(1 + decay->b * t, -decay->a);
            if (decay->kind == PLSH_DECAY_KERPLE_POWER) value = exp(-decay->a * pow(t, decay->b));
            k[y] = decay->limit + (1 - decay->limit) * value;
        }
        check_mean(&pair, SEEDS, k[0], "a pair", test);
        check_mean(&triple, SEEDS, k[1], "a triple", test);
    }
}

/* The variance of a sum over the samples: iid sets have that of independent masks, stratified ones
 * less. Points of a 6 x 6 grid, the mean square of all entries of L - M~. With 400 sets the ratio
 * of the two is known to about 3 %. */
static double mean_square_error(plsh_design design, double *expected) {
    enum { SIDE = 6, POINTS = SIDE * SIDE, SETS = 400, SAMPLES = 32 };
    float x[POINTS * 2];
    for (int i = 0; i < POINTS; i++) {
        const int row = i / SIDE;
        x[2 * i] = (float)(i % SIDE);
        x[2 * i + 1] = (float)row;
    }
    double sum = 0;
    *expected = 0;
    for (int set_number = 0; set_number < SETS; set_number++) {
        plsh_error error;
        static int32_t labels[SAMPLES][POINTS];
        plsh_partition set = cells_of(plsh_decay_alibi(3), SAMPLES);
        set.design = design;
        set.seed = (uint64_t)set_number;
        assert_ok(plsh_cells_label(&set, 0, SAMPLES, (plsh_point_set){2, POINTS, x}, labels[0], 1,
                                   &error));
        for (int i = 0; i < POINTS; i++)
            for (int j = 0; j < i; j++) {
                double count = 0;
                for (int m = 0; m < SAMPLES; m++) count += labels[m][i] == labels[m][j];
                const double k = exp(-distance(x + 2 * i, x + 2 * j, 2) / 3);
                sum += (count / SAMPLES - k) * (count / SAMPLES - k);
                *expected += k * (1 - k) / SAMPLES;
            }
    }
    *expected /= SETS;
    return sum / SETS;
}

static void test_variance_of_designs(void **state) {
    (void)state;
    double expected;
    const double iid = mean_square_error(PLSH_DESIGN_IID, &expected) / expected;
    const double stratified = mean_square_error(PLSH_DESIGN_STRATIFIED, &expected) / expected;
    if (fabs(iid - 1) > 0.15 || stratified > 0.8)
        fail_msg("mean square error over that of iid: iid %.3f, stratified %.3f", iid, stratified);
}

/* Pr[Gamma(a) <= quantile(u)] = u, by GSL. */
static void test_gamma_quantile(void **state) {
    (void)state;
    const double shapes_of[] = {0.05, 0.5, 1, 1.5, 7, 300, 1e5};
    for (int x = 0; x < 7; x++)
        for (int y = 1; y < 100; y += 7) {
            const double u = y / 100.0, q = plsh_rate_gamma_quantile(shapes_of[x], u);
            const double back = gsl_cdf_gamma_P(q, shapes_of[x], 1);
            if (fabs(back - u) > 1e-8) fail_msg("shape %g: %g -> %g", shapes_of[x], u, back);
        }
    assert_true(plsh_rate_gamma_quantile(0.001, 0.1) == 0);
}

/* Extents beyond 2^24 hyperplanes: refused, unless all points are far apart. */
static void test_huge_extents(void **state) {
    (void)state;
    plsh_error error;
    static float x[N * 2];
    static int32_t labels[N];
    make_points(1, 2, x);
    plsh_partition set = cells_of(plsh_decay_alibi(1e-8), 3);
    x[2 * 30] = x[2 * 3];
    x[2 * 30 + 1] = x[2 * 3 + 1];
    assert_ok(plsh_cells_label(&set, 0, 1, (plsh_point_set){2, N, x}, labels, 1, &error));
    for (int i = 0; i < N; i++) assert_int_equal(labels[i], i < 30 ? i : i == 30 ? 3 : i - 1);
    x[1] = 0x1p-25f; /* 3e-8 from another point */
    x[2] = 0;
    assert_fails(plsh_cells_label(&set, 0, 1, (plsh_point_set){2, N, x}, labels, 1, &error),
                 PLSH_STATUS_INVALID, "more than 2^24 hyperplanes");
    assert_true(plsh_cells_hyperplanes(&set, 0, 2, 20, NULL, 0) == INT64_MAX);
    set.decay = plsh_decay_alibi(1e12); /* hardly any hyperplane: one cell */
    assert_ok(plsh_cells_label(&set, 0, 1, (plsh_point_set){2, N, x}, labels, 1, &error));
    for (int i = 0; i < N; i++) assert_int_equal(labels[i], 0);
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    float x[4] = {0, 1, 2, INFINITY};
    int32_t labels[4];
    plsh_partition set = cells_of(plsh_decay_alibi(2), 3);
    const plsh_point_set points = {1, 3, x};
    assert_ok(plsh_cells_label(&set, 0, 1, points, labels, 1, &error));
    assert_ok(plsh_cells_label(&set, 0, 1, (plsh_point_set){1, 0, x}, labels, 1, &error));
    assert_ok(plsh_cells_label(&set, 0, 0, points, labels, 1, &error));
    assert_fails(plsh_cells_label(&set, 0, 4, points, labels, 1, &error), PLSH_STATUS_INVALID,
                 "draws 0 to 3 of a set that has 3");
    assert_fails(plsh_cells_label(&set, 0, 1, (plsh_point_set){1, 4, x}, labels, 1, &error),
                 PLSH_STATUS_INVALID, "coordinate 0 of point 3 is infinite");
    assert_fails(plsh_cells_label(&set, 0, 1, (plsh_point_set){4, 1, x}, labels, 1, &error),
                 PLSH_STATUS_INVALID, "dimension 4; 1 to 3");
    assert_fails(plsh_cells_label(&set, 0, 1, (plsh_point_set){1, -1, x}, labels, 1, &error),
                 PLSH_STATUS_INVALID, "-1 points");
    set.decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 3};
    assert_fails(plsh_cells_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "decay triangle");
    set.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_POWER, .a = 3, .b = 1.5};
    assert_fails(plsh_cells_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "exponent 1.5");
    set.decay = plsh_decay_alibi(-1);
    assert_fails(plsh_cells_check(&set, &error), PLSH_STATUS_INVALID, "sigma");
    set = cells_of(plsh_decay_alibi(2), 0);
    assert_fails(plsh_cells_check(&set, &error), PLSH_STATUS_INVALID, "samples is 0");
    set = plsh_partition_default(2, 3);
    assert_fails(plsh_cells_check(&set, &error), PLSH_STATUS_INVALID, "need scheme hyperplanes");
    set.scheme = PLSH_SCHEME_HYPERPLANES;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "positions");
}

static plsh_status label_once(void *context, plsh_error *error) {
    (void)context;
    static float x[N * 2];
    static int32_t labels[N];
    make_points(0, 2, x);
    plsh_partition set = cells_of(plsh_decay_alibi(2), 3);
    return plsh_cells_label(&set, 0, 1, (plsh_point_set){2, N, x}, labels, 1, error);
}

static void test_no_memory(void **state) {
    (void)state;
    test_every_allocation(label_once, NULL, 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_cells),
        cmocka_unit_test(test_independent_of_others),
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_variance_of_designs),
        cmocka_unit_test(test_gamma_quantile),
        cmocka_unit_test(test_huge_extents),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
