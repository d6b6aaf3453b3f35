/* tests: rows of M~, products with M~ and L*, and the norms, against dense definitions. */
#include "support/support.h"

#include "partition/diagonals.h"
#include "partition/rows.h"
#include "plsh/io.h"
#include "plsh/theory.h"
#include "theory/operator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static plsh_partition make(plsh_scheme scheme, plsh_design design, double sigma, int64_t samples) {
    plsh_partition set = plsh_partition_default(sigma, samples);
    set.scheme = scheme;
    set.design = design;
    return set;
}

/* A few sets of every kind. */
enum { SETS = 15 };
static int32_t user_labels[3][90];

static plsh_partition example(int which) {
    if (which == 0) return make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 5, 7);
    if (which == 1) return make(PLSH_SCHEME_BINNING, PLSH_DESIGN_STRATIFIED, 0.3, 9);
    if (which == 2) return make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_STRATIFIED, 12, 33);
    if (which == 3) return make(PLSH_SCHEME_CUTS, PLSH_DESIGN_IID, 4, 5);
    if (which == 4) return make(PLSH_SCHEME_CUTS, PLSH_DESIGN_STRATIFIED, 30, 8);
    if (which == 5) return make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 1e6, 3);
    if (which == 6) return make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 1e-3, 4);
    if (which == 7) return make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_IID, 3, 1);
    if (which == 13) return make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_GOLDEN_SHIFTED, 7, 21);
    if (which == 14) return make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_TOEPLITZ, 3, 21);
    if (which == 12) return make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_GOLDEN, 7, 21);
    plsh_partition set = make(PLSH_SCHEME_INTEGER, PLSH_DESIGN_IID, 6, 40);
    if (which == 8) set.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 0.5};
    if (which == 9) set.decay.limit = 0.3; /* some draws are one block */
    if (which == 10) set.decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 9};
    if (which != 11) return set;
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < 90; i++) user_labels[m][i] = 100 - (i + 3 * m) / (5 + 7 * m);
    return (plsh_partition){.scheme = PLSH_SCHEME_LABELS,
                            .decay = plsh_decay_alibi(8),
                            .samples = 3,
                            .labels = user_labels[0],
                            .label_count = 90};
}

/* s M~ and L* - M~ by their definitions. */
static int64_t entry(const plsh_partition *set, int64_t i, int64_t j) {
    return plsh_partition_count(set, i, j);
}

static double *dense_difference(const plsh_partition *set, int64_t n) {
    double *matrix = calloc((size_t)(n * n), sizeof *matrix);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            matrix[i * n + j] = plsh_decay_value(&set->decay, i < j ? j - i : i - j) -
                                (double)entry(set, i, j) / (double)set->samples;
    return matrix;
}

static void test_rows(void **state) {
    (void)state;
    plsh_error error;
    for (int which = 0; which < SETS; which++)
        for (int64_t begin = 0; begin < 90; begin += 37) {
            plsh_partition set = example(which);
            plsh_draws draws;
            plsh_rows rows;
            bool more;
            assert_ok(plsh_draws_create(&set, 90, 1, &draws, &error));
            assert_ok(plsh_rows_open(&draws, begin, 90, &rows, &error));
            for (int64_t i = begin; i < 90; i++) {
                assert_ok(plsh_rows_next(&rows, &more, &error));
                assert_true(more && rows.row == i && rows.reach >= 1 && i + rows.reach <= 90);
                for (int64_t t = 0; i + t < 90; t++)
                    assert_int_equal(t < rows.reach ? rows.count[t] : 0, entry(&set, i, i + t));
            }
            assert_ok(plsh_rows_next(&rows, &more, &error));
            assert_false(more);
            plsh_rows_close(&rows);
            plsh_draws_destroy(&draws);
        }
}

/* Many chunks: rows far on, against a stream that begins there. */
static void test_rows_chunks(void **state) {
    (void)state;
    plsh_error error;
    const int64_t n = 3000;
    for (int scheme = 0; scheme < 3; scheme++) {
        plsh_partition set = make((plsh_scheme)scheme, PLSH_DESIGN_STRATIFIED, 6, 50);
        plsh_draws draws;
        plsh_rows rows, late;
        bool more;
        assert_ok(plsh_draws_create(&set, n, 2, &draws, &error));
        assert_ok(plsh_rows_open(&draws, 0, n, &rows, &error));
        assert_ok(plsh_rows_open(&draws, 2500, n, &late, &error));
        assert_true(rows.blocks.chunk < 500);
        for (int64_t i = 0; i < n; i++) {
            assert_ok(plsh_rows_next(&rows, &more, &error));
            if (i < 2500) continue;
            assert_ok(plsh_rows_next(&late, &more, &error));
            assert_int_equal(rows.reach, late.reach);
            assert_memory_equal(rows.count, late.count, (size_t)rows.reach * sizeof rows.count[0]);
            if (i % 100 == 0)
                for (int64_t t = 0; t < rows.reach; t++)
                    assert_int_equal(rows.count[t], entry(&set, i, i + t));
        }
        plsh_rows_close(&rows);
        plsh_rows_close(&late);
        plsh_draws_destroy(&draws);
    }
}

/* The diagonals of every grid, over ranges of rows in the middle and up to the end. */
static void test_diagonals(void **state) {
    (void)state;
    enum { N = 90 };
    plsh_error error;
    const int64_t ranges[][2] = {{0, N}, {0, 31}, {31, 60}, {60, N}, {N - 1, N}};
    for (int which = 0; which < SETS; which++)
        for (int x = 0; x < 5; x++) {
            plsh_partition set = example(which);
            plsh_draws draws;
            plsh_diagonals at;
            assert_ok(plsh_draws_create(&set, N, 1, &draws, &error));
            if (draws.width) {
                const int64_t begin = ranges[x][0], end = ranges[x][1];
                assert_ok(plsh_diagonals_open(&draws, N, begin, end, &at, &error));
                for (int64_t i = begin; i < end && at.t <= draws.longest; i++)
                    for (int64_t t = at.t; i + t < N; t++)
                        assert_int_equal(entry(&set, i, i + t), 0);
                while (at.t > 0) {
                    plsh_diagonals_next(&at);
                    for (int64_t i = begin; i < end && i + at.t < N; i++) {
                        assert_true(i - begin < at.count);
                        assert_int_equal(at.entry[i - begin], entry(&set, i, i + at.t));
                    }
                }
                plsh_diagonals_close(&at);
            }
            plsh_draws_destroy(&draws);
        }
}

static void random_vector(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (double)rand() / RAND_MAX - 0.5;
}

/* L* x, M~ x of every operator, against sums over the definitions. */
static void test_products(void **state) {
    (void)state;
    enum { N = 90 };
    plsh_error error;
    double x[N], l[N], m[N], y[N];
    srand(3);
    for (int which = 0; which < SETS; which++) {
        plsh_partition set = example(which);
        random_vector(x, N);
        for (int i = 0; i < N; i++) {
            l[i] = m[i] = 0;
            for (int j = 0; j < N; j++) {
                l[i] += plsh_decay_value(&set.decay, abs(i - j)) * x[j];
                m[i] += (double)entry(&set, i, j) / (double)set.samples * x[j];
            }
        }
        assert_ok(plsh_decay_multiply(&set.decay, N, x, y, 2, &error));
        for (int i = 0; i < N; i++) assert_true(fabs(y[i] - l[i]) < 1e-12);
        assert_ok(plsh_partition_multiply(&set, N, x, y, 2, &error));
        for (int i = 0; i < N; i++) assert_true(fabs(y[i] - m[i]) < 1e-12);
        plsh_draws draws;
        assert_ok(plsh_draws_create(&set, N, 1, &draws, &error));
        int64_t largest = plsh_draws_largest_block(&draws, N);
        for (int kind = PLSH_OPERATOR_FREE; kind <= PLSH_OPERATOR_SPLIT; kind++) {
            plsh_operator masks;
            plsh_operator_choice choice =
                plsh_operator_choose(&draws, (plsh_operator_kind)kind, N, largest, (size_t)1 << 30);
            /* Everywhere, not only where it is cheapest. */
            if (kind == PLSH_OPERATOR_SPLIT && draws.width) choice.narrow = set.samples / 2 + 1;
            if (kind == PLSH_OPERATOR_SPLIT) choice.reach = largest;
            assert_ok(plsh_operator_create(&draws, &choice, N, 2, &masks, NULL, &error));
            plsh_operator_apply(&masks, x, y);
            for (int i = 0; i < N; i++) assert_true(fabs(y[i] - m[i]) < 1e-12);
            plsh_operator_destroy(&masks);
        }
        plsh_draws_destroy(&draws);
    }
}

/* The largest |eigenvalue| of a symmetric matrix by Jacobi's rotations. */
static double dense_spectral(double *a, int64_t n) {
    for (int sweep = 0; sweep < 30; sweep++) {
        double off = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double apq = a[p * n + q];
                off += apq * apq;
                if (apq == 0) continue;
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (int64_t k = 0; k < n; k++) {
                    double kp = a[k * n + p], kq = a[k * n + q];
                    a[k * n + p] = c * kp - s * kq;
                    a[k * n + q] = s * kp + c * kq;
                }
                for (int64_t k = 0; k < n; k++) {
                    double pk = a[p * n + k], qk = a[q * n + k];
                    a[p * n + k] = c * pk - s * qk;
                    a[q * n + k] = s * pk + c * qk;
                }
            }
        if (off < 1e-28) break;
    }
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i * n + i]));
    return most;
}

static void test_norms_dense(void **state) {
    (void)state;
    plsh_error error;
    const int64_t sizes[] = {2, 5, 90};
    for (int which = 0; which < SETS; which++)
        for (int size = 0; size < 3; size++) {
            const int64_t n = sizes[size];
            plsh_partition set = example(which);
            double *matrix = dense_difference(&set, n), most = 0;
            for (int64_t x = 0; x < n * n; x++) most = fmax(most, fabs(matrix[x]));
            double spectral = dense_spectral(matrix, n);
            free(matrix);
            for (int kind = PLSH_OPERATOR_AUTO; kind <= PLSH_OPERATOR_SPLIT; kind++) {
                plsh_norms norms;
                plsh_norms_options options = {.tolerance = 1e-10, .kind = (plsh_operator_kind)kind};
                assert_ok(plsh_norms_measure(&set, n, &options, &norms, &error));
                assert_true(fabs(norms.spectral - spectral) <= 1e-9 * spectral + 1e-13);
                assert_true(fabs(norms.max - most) < 1e-15);
            }
        }
}

typedef struct dense_matrix {
    int64_t n;
    const double *entry;
} dense_matrix;

static void multiply_dense(void *context, const double *x, double *y) {
    const dense_matrix *matrix = context;
    for (int64_t i = 0; i < matrix->n; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < matrix->n; j++) y[i] += matrix->entry[i * matrix->n + j] * x[j];
    }
}

/* The solver of builds without ARPACK, where it restarts (300) and where it need not. */
static void test_lanczos(void **state) {
    (void)state;
    plsh_error error;
    const int64_t sizes[] = {2, 5, 90, 300};
    const plsh_norms_options options = {.tolerance = 1e-10};
    for (int which = 0; which < SETS; which++)
        for (int size = 0; size < 4 && !(which == 11 && sizes[size] > 90); size++) {
            plsh_partition set = example(which);
            dense_matrix dense = {sizes[size], dense_difference(&set, sizes[size])};
            plsh_symmetric matrix = {sizes[size], multiply_dense, &dense, 0};
            double norm;
            int64_t products;
            plsh_norms norms;
            assert_ok(plsh_lanczos_solve(&matrix, &options, &norm, &products, &error));
            assert_ok(plsh_norms_measure(&set, sizes[size], &options, &norms, &error));
            assert_true(fabs(norm - norms.spectral) <= 2e-9 * norms.spectral + 1e-13);
            assert_true(products <= 2 * norms.products + 32);
            plsh_norms_options few = {.max_products = 7};
            if (sizes[size] == 300 && norm > 1e-9)
                assert_fails(plsh_lanczos_solve(&matrix, &few, &norm, &products, &error),
                             PLSH_STATUS_NO_CONVERGENCE, "7 products");
            free((void *)(uintptr_t)dense.entry);
        }
}

static void test_largest_block(void **state) {
    (void)state;
    plsh_error error;
    for (int which = 0; which < SETS; which++) {
        const int64_t n = 90;
        plsh_partition set = example(which);
        int64_t largest = 0;
        for (int64_t m = 0; m < set.samples; m++)
            for (int64_t i = 0, run = 0; i < n; i++) {
                run = i > 0 && plsh_partition_same(&set, m, i - 1, i) ? run + 1 : 1;
                if (run > largest) largest = run;
            }
        for (int64_t i = 0; i < n && set.design == PLSH_DESIGN_GOLDEN_SHIFTED; i++)
            while (i + largest < n && plsh_partition_count(&set, i, i + largest) > 0) largest++;
        plsh_norms norms;
        plsh_norms_options options = {.skip_spectral = true, .skip_max = true};
        assert_ok(plsh_norms_measure(&set, n, &options, &norms, &error));
        assert_int_equal(norms.largest_block, largest);
        assert_true(isnan(norms.spectral) && isnan(norms.max));
    }
}

static double read_number(const char *path, const char *key) {
    char text[2048], quoted[64];
    FILE *file = fopen(path, "r");
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    assert_non_null(at);
    return atof(at + strlen(quoted));
}

/* Reference norms of dense matrices, for the labels that come with them. */
static void test_golden(void **state) {
    (void)state;
    static const char *const cases[] = {"a_n256_sigma2_s1",   "b_n256_sigma16_s20",
                                        "c_n256_sigma64_s1",  "d_n1024_sigma2_s20",
                                        "e_n1024_sigma16_s1", "f_n1024_sigma64_s20"};
    plsh_error error;
    for (int x = 0; x < 6; x++) {
        char name[96];
        snprintf(name, sizeof name, "golden/norms/%s/norms.json", cases[x]);
        const char *json = test_shared(name);
        snprintf(name, sizeof name, "golden/norms/%s/labels.npy", cases[x]);
        plsh_npy labels;
        assert_ok(plsh_npy_read(test_shared(name), &labels, &error));
        int64_t s = labels.shape[0], n = labels.shape[1];
        plsh_partition set = {.scheme = PLSH_SCHEME_LABELS,
                              .decay = plsh_decay_alibi(read_number(json, "sigma")),
                              .samples = s,
                              .labels = labels.data,
                              .label_count = n};
        for (int kind = PLSH_OPERATOR_AUTO; kind <= PLSH_OPERATOR_SPLIT; kind++) {
            plsh_norms_options options = {.kind = (plsh_operator_kind)kind};
            plsh_norms norms;
            assert_ok(plsh_norms_measure(&set, n, &options, &norms, &error));
            double spectral = read_number(json, "spectral"), max = read_number(json, "max");
            assert_true(fabs(norms.spectral - spectral) <= 1e-6 * spectral);
            assert_true(fabs(norms.max - max) <= 1e-12);
        }
        plsh_npy_free(&labels);
    }
}

/* One draw that is wider than n, and cut within: its blocks are much shorter than its width. */
static plsh_partition cut_within(double n) {
    plsh_partition set = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, n / 2, 1);
    for (double b = 0, c = 0; b < n || c < 0.4 * n || c > 0.6 * n; set.seed++)
        plsh_partition_draw(&set, 0, &b, &c);
    set.seed--;
    return set;
}

static void test_threads(void **state) {
    (void)state;
    plsh_error error;
    for (int which = 0; which < 4; which++)
        for (int kind = PLSH_OPERATOR_FREE; kind <= PLSH_OPERATOR_SPLIT; kind++) {
            plsh_partition set =
                which < 3 ? make((plsh_scheme)which, PLSH_DESIGN_IID, 9, 60) : cut_within(1500);
            const int threads[] = {1, 2, 7};
            plsh_norms norms[3];
            for (int x = 0; x < 3; x++) {
                plsh_norms_options options = {.threads = threads[x],
                                              .kind = (plsh_operator_kind)kind};
                assert_ok(plsh_norms_measure(&set, 1500, &options, &norms[x], &error));
                assert_true(norms[x].spectral == norms[0].spectral);
                assert_true(norms[x].max == norms[0].max);
                assert_int_equal(norms[x].largest_block, norms[0].largest_block);
                assert_int_equal(norms[x].products, norms[0].products);
            }
        }
}

static plsh_operator_kind choice(plsh_operator_kind kind, double sigma, int64_t samples, int64_t n,
                                 size_t max_bytes, int64_t *narrow) {
    plsh_error error;
    plsh_draws draws;
    plsh_partition set = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, sigma, samples);
    assert_ok(plsh_draws_create(&set, n, 1, &draws, &error));
    int64_t largest = plsh_draws_largest_block(&draws, n);
    plsh_operator_choice choice = plsh_operator_choose(&draws, kind, n, largest, max_bytes);
    assert_true(isfinite(choice.cost));
    for (int64_t m = 0; m < choice.narrow; m++)
        assert_true(draws.width[m] >> draws.shift < choice.reach);
    plsh_draws_destroy(&draws);
    *narrow = choice.narrow;
    return choice.kind;
}

/* The band takes the draws up to sigma ln(3 s / sigma^2). */
static void test_choice(void **state) {
    (void)state;
    const size_t much = (size_t)1 << 30;
    const plsh_operator_kind any = PLSH_OPERATOR_AUTO, split = PLSH_OPERATOR_SPLIT;
    int64_t narrow;
    assert_int_equal(choice(any, 2, 10000, 4000, much, &narrow), PLSH_OPERATOR_SPLIT);
    assert_true(narrow > 9900 && narrow < 10000);
    assert_int_equal(choice(any, 64, 100000, 4000, much, &narrow), PLSH_OPERATOR_SPLIT);
    assert_true(narrow > 85000 && narrow < 97000);
    assert_int_equal(choice(any, 2, 10000, 4000, 1000, &narrow), PLSH_OPERATOR_FREE);
    assert_int_equal(choice(any, 64, 20, 1000000, much, &narrow), PLSH_OPERATOR_BLOCKS);
    /* max_bytes is for AUTO: what is asked for by name is made. */
    assert_int_equal(choice(split, 2, 10000, 4000, 1000, &narrow), split);
    assert_true(narrow > 9900 && narrow < 10000);
}

static void test_hostile(void **state) {
    (void)state;
    plsh_error error;
    plsh_norms norms;
    plsh_partition set = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 4, 3);
    assert_fails(plsh_norms_measure(&set, 0, NULL, &norms, &error), PLSH_STATUS_INVALID, "n is 0");
    assert_fails(plsh_norms_measure(&set, -5, NULL, &norms, &error), PLSH_STATUS_INVALID, "-5");
    assert_fails(plsh_norms_measure(&set, INT64_C(1) << 31, NULL, &norms, &error),
                 PLSH_STATUS_INVALID, "2147483648");
    assert_ok(plsh_norms_measure(&set, 1, NULL, &norms, &error));
    assert_true(norms.spectral == 0 && norms.max == 0 && norms.largest_block == 1);
    const double tolerances[] = {-1, NAN, INFINITY, 0.6, 1e-15};
    for (int x = 0; x < 5; x++) {
        plsh_norms_options options = {.tolerance = tolerances[x]};
        assert_fails(plsh_norms_measure(&set, 9, &options, &norms, &error), PLSH_STATUS_INVALID,
                     "tolerance");
    }
    plsh_norms_options few = {.max_products = 3};
    assert_fails(plsh_norms_measure(&set, 500, &few, &norms, &error), PLSH_STATUS_NO_CONVERGENCE,
                 "3 products");
    plsh_norms_options strange = {.kind = (plsh_operator_kind)9};
    assert_fails(plsh_norms_measure(&set, 9, &strange, &norms, &error), PLSH_STATUS_INVALID,
                 "kind 9");
    const double sigmas[] = {0, -1, NAN, INFINITY};
    for (int x = 0; x < 4; x++) {
        plsh_partition bad = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, sigmas[x], 3);
        assert_fails(plsh_norms_measure(&bad, 9, NULL, &norms, &error), PLSH_STATUS_INVALID,
                     "sigma");
    }
    set.samples = 0;
    assert_fails(plsh_norms_measure(&set, 9, NULL, &norms, &error), PLSH_STATUS_INVALID,
                 "samples is 0");
    /* Runs that repeat a label are no blocks; fewer labels than positions. */
    int32_t labels[] = {1, 2, 1, 3};
    set = (plsh_partition){.scheme = PLSH_SCHEME_LABELS,
                           .decay = plsh_decay_alibi(2),
                           .samples = 1,
                           .labels = labels,
                           .label_count = 4};
    assert_fails(plsh_norms_measure(&set, 4, NULL, &norms, &error), PLSH_STATUS_UNSUPPORTED,
                 "label 1 of draw 0");
    assert_fails(plsh_norms_measure(&set, 5, NULL, &norms, &error), PLSH_STATUS_INVALID,
                 "only 4 labels");
    double x = 1, y = 0;
    set = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 4, 3);
    assert_ok(plsh_partition_multiply(&set, 0, &x, &y, 1, &error));
    assert_ok(plsh_decay_multiply(&set.decay, 0, &x, &y, 1, &error));
    assert_true(y == 0);
    assert_fails(plsh_decay_multiply(&set.decay, -1, &x, &y, 1, &error), PLSH_STATUS_INVALID,
                 "n is -1");
}

static plsh_status measure(void *context, plsh_error *error) {
    plsh_norms norms;
    plsh_norms_options options = {.kind = *(plsh_operator_kind *)context, .threads = 1};
    plsh_partition set = make(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, 4, 3);
    plsh_status status = plsh_norms_measure(&set, 60, &options, &norms, error);
    if (status) return status;
    set.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 0.5};
    set.scheme = PLSH_SCHEME_INTEGER;
    return plsh_norms_measure(&set, 60, &options, &norms, error);
}

static plsh_status multiply(void *context, plsh_error *error) {
    (void)context;
    double x[20] = {1}, y[20];
    plsh_partition set = example(11);
    plsh_status status = plsh_partition_multiply(&set, 20, x, y, 1, error);
    plsh_decay decay = {.kind = PLSH_DECAY_TRIANGLE, .a = 9};
    if (!status) status = plsh_decay_multiply(&decay, 20, x, y, 1, error);
    float q[20] = {0};
    plsh_instance instance;
    plsh_instance_head head = {.decay = &decay, .n = 20, .dim = 1, .q = q, .k = q, .causal = true};
    if (!status) status = plsh_instance_measure(&head, 1, &instance, error);
    return status;
}

static void test_allocations(void **state) {
    (void)state;
    for (int kind = PLSH_OPERATOR_FREE; kind <= PLSH_OPERATOR_SPLIT; kind++)
        test_every_allocation(measure, &kind, 20);
    test_every_allocation(multiply, NULL, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_rows_chunks),
        cmocka_unit_test(test_diagonals),     cmocka_unit_test(test_products),
        cmocka_unit_test(test_norms_dense),   cmocka_unit_test(test_lanczos),
        cmocka_unit_test(test_largest_block), cmocka_unit_test(test_golden),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_choice),
        cmocka_unit_test(test_hostile),       cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
