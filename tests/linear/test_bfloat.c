/* weights: products in bfloat16 of every type and instruction set: against double, and to the bit
 * against each other. */
#include "linear/problem.h"

#include "base/cpu.h"
#include "base/dtype.h"
#include "linear/bfloat.h"
#include "linear/kernels/amx.h"

/* Which instruction sets, and features that are switched off. The last two: with many rows by tiles
 * of AMX, emulated, on panels of 16 columns and of 32, which AVX2 has where it has 16 lanes. */
static const struct {
    const char *isa, *off;
    bool tiles;
} paths[] = {{"avx512bf16", "", false}, {"avx512", "", false}, {"avx512", "avx512bf16", false},
             {"avx2", "", false},       {"neon", "", false},   {"reference", "", false},
             {"avx2", "", true},        {"wide", "", true}};

enum { PATHS = sizeof paths / sizeof *paths };

/* Is the order of sums that of tiles? Rows of more than 2^16 values are never few. */
static bool in_tiles(int path, int64_t rows, int64_t in) {
    return paths[path].tiles && (rows > PLSH_LINEAR_FEW || in > 65536);
}

/* No thread holds tiles after a product. */
static int tiles_are_released(void **unused) {
    (void)unused;
#if defined(__x86_64__)
    assert_int_equal(plsh_tiles_emulated_held(), 0);
#endif
    return 0;
}

/* An engine with products in bfloat16; false: the machine does not have this instruction set. */
static bool make_bfloat_engine(plsh_linear_engine *engine, int path, int threads) {
    const plsh_linear_kernels *kernels;
    plsh_error error;
    if (plsh_linear_kernels_choose(&kernels, paths[path].isa, NULL) != PLSH_STATUS_OK) return false;
    *engine = make_engine(paths[path].isa, threads);
    setenv("PLSH_TEST_CPU_OFF", paths[path].off, 1);
    assert_ok(plsh_bfloat_kernels_choose(&engine->bfloat, paths[path].isa, &error));
    unsetenv("PLSH_TEST_CPU_OFF");
#if defined(__x86_64__)
    static plsh_bfloat_kernels with_tiles[PATHS];
    if (paths[path].tiles) {
        with_tiles[path] = *engine->bfloat;
        with_tiles[path].plain = engine->kernels;
        with_tiles[path].tiles = &plsh_tiles_emulated;
        engine->bfloat = &with_tiles[path];
    }
#endif
    return true;
}

static double rounded(float x) { return (double)plsh_bfloat_to_float(plsh_float_to_bfloat(x)); }

/* ---- Rounding ---- */

static void check_narrow(const plsh_bfloat_kernels *kernels, const float *x, int count) {
    uint16_t *to = make((size_t)count + 1, 2);
    to[count] = 1;
    plsh_bfloat_narrow(kernels, x, to, count);
    for (int i = 0; i < count; i++) {
        const bool tiny = fabsf(x[i]) < 0x1p-126f;
        const uint16_t wanted = plsh_float_to_bfloat(tiny ? copysignf(0.0f, x[i]) : x[i]);
        if (to[i] != wanted)
            fail_msg("%s: %a is %04x, not %04x", kernels->name, (double)x[i], to[i], wanted);
    }
    assert_int_equal(to[count], 0);
    plsh_release(to);
}

static void test_narrow(void **unused) {
    (void)unused;
    enum { COUNT = 200001 };
    float *x = make(COUNT, 4);
    uint32_t bits = 0;
    for (int i = 0; i < COUNT; i++, bits += 21474) memcpy(x + i, &bits, 4);
    static const uint32_t edges[] = {0x00800000, 0x007fffff, 0x807fffff, 0x3f808000,
                                     0x3f818000, 0x7f7fffff, 0x7f800001, 0xff800000};
    memcpy(x, edges, sizeof edges);
    for (int i = 0; i < PATHS; i++) {
        plsh_linear_engine engine;
        if (!make_bfloat_engine(&engine, i, 1)) continue;
        check_narrow(engine.bfloat, x, COUNT);
        plsh_release(engine.workspace);
    }
    plsh_release(x);
}

/* ---- Forward ---- */

/* start + the sum of products of rounded numbers, within the roundings of so many sums. */
static void check_forward(const problem *p, int64_t rows, plsh_const_matrix x, const float *y,
                          const float *before) {
    const int64_t in = p->layer.in, out = p->layer.out;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = before ? (double)before[r * out + o] : (double)p->bias[o];
            double size = fabs(sum);
            for (int64_t k = 0; k < in; k++) {
                const double term = rounded(p->w[o * in + k]) * rounded(x.data[r * x.stride + k]);
                sum += term;
                size += fabs(term);
            }
            const double rounding = 0x1p-24 * (4.0 + sqrt((double)in)) * size;
            if (!(fabs((double)y[r * out + o] - sum) <= rounding))
                fail_msg("type %s, row %d, output %d: %.9g; %.9g +- %.3g",
                         plsh_weight_type_name(p->layer.type), (int)r, (int)o,
                         (double)y[r * out + o], sum, rounding);
        }
    }
}

/* The product of each path is right, and all have the same bits, except AMX tiles, which have the
 * same bits as each other. */
static void check_case(const problem *p, int64_t rows, plsh_const_matrix x) {
    const size_t count = (size_t)(rows * p->layer.out);
    float *y = make(count, 4), *once = make(count, 4);
    float *first[2] = {make(count, 4), make(count, 4)};
    bool any[2] = {false, false};
    for (int i = 0; i < PATHS; i++) {
        plsh_linear_engine engine;
        if (!make_bfloat_engine(&engine, i, 2)) continue;
        plsh_matrix to = {y, p->layer.out};
        plsh_linear_forward(&engine, &p->layer, rows, x, to, false);
        check_forward(p, rows, x, y, NULL);
        memcpy(once, y, count * sizeof *y);
        plsh_linear_forward(&engine, &p->layer, rows, x, to, true);
        check_forward(p, rows, x, y, once);
        const int order = in_tiles(i, rows, p->layer.in);
        if (any[order]) assert_memory_equal(y, first[order], count * sizeof *y);
        memcpy(first[order], y, count * sizeof *y);
        any[order] = true;
        plsh_release(engine.workspace);
    }
    plsh_release(y);
    plsh_release(first[0]);
    plsh_release(first[1]);
    plsh_release(once);
}

static void random_case(plsh_weight_type type, int64_t rows, int64_t out, int64_t in) {
    problem p = make_problem(type, out, in);
    const ptrdiff_t stride = in + 3;
    float *x = randoms((size_t)(rows * stride));
    check_case(&p, rows, (plsh_const_matrix){x, stride});
    plsh_release(x);
    free_problem(&p);
}

static void test_forward(void **unused) {
    (void)unused;
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 9, 21}, outs[] = {1, 33, 70};
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) {
        const int64_t block = plsh_weight_kinds[type].block;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const int64_t in = block == 1 ? 1 + (int64_t)i * 47 : block * (1 + (int64_t)i % 3);
            random_case((plsh_weight_type)type, rows[i], outs[i % 3], in);
        }
        random_case((plsh_weight_type)type, 103, 90, block == 256 ? 512 : 544 + block % 2);
    }
}

/* Very long rows of W. */
static void test_long_rows(void **unused) {
    (void)unused;
    random_case(PLSH_WEIGHT_F16, 2, 2, 65537);
    random_case(PLSH_WEIGHT_F16, 2, 2, 65536);
}

/* ---- Backward ---- */

static void check_gradient(double got, double wanted, double size, int64_t depth, const char *what,
                           int64_t i, int64_t j) {
    const double rounding = 0x1p-24 * (4.0 + sqrt((double)depth)) * size;
    if (!(fabs(got - wanted) <= rounding))
        fail_msg("%s[%d][%d]: %.9g; %.9g +- %.3g", what, (int)i, (int)j, got, wanted, rounding);
}

static void check_gradients(const problem *p, int64_t rows, const float *dy, const float *x,
                            const float *dw, const float *dx) {
    const int64_t in = p->layer.in, out = p->layer.out;
    for (int64_t k = 0; k < in; k++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = 1.0, size = 1.0;
            for (int64_t r = 0; r < rows; r++) {
                const double term = rounded(dy[r * out + o]) * rounded(x[r * in + k]);
                sum += term;
                size += fabs(term);
            }
            check_gradient((double)dw[o * in + k], sum, size, rows, "dW", o, k);
        }
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0.0, size = 0.0;
            for (int64_t o = 0; o < out; o++) {
                const double term = rounded(dy[r * out + o]) * rounded(p->w[o * in + k]);
                sum += term;
                size += fabs(term);
            }
            check_gradient((double)dx[r * in + k], sum, size, out, "dx", r, k);
        }
    }
}

static void backward_case(plsh_weight_type type, int64_t rows, int64_t out, int64_t in) {
    problem p = make_problem(type, out, in);
    float *x = randoms((size_t)(rows * in)), *dy = randoms((size_t)(rows * out));
    const size_t size = (size_t)(out * in + rows * in);
    float *found = make(size, 4), *first[2] = {make(size, 4), make(size, 4)};
    bool any[2] = {false, false};
    for (int i = 0; i < PATHS; i++) {
        plsh_linear_engine engine;
        if (!make_bfloat_engine(&engine, i, 3)) continue;
        float *dw = found, *dx = found + out * in;
        for (int64_t j = 0; j < out * in; j++) dw[j] = 1.0f;
        plsh_linear_backward(&engine, &p.layer, rows, (plsh_const_matrix){dy, out},
                             (plsh_const_matrix){x, in}, dw, (plsh_matrix){dx, in}, false);
        check_gradients(&p, rows, dy, x, dw, dx);
        const int order = paths[i].tiles;
        if (any[order]) assert_memory_equal(found, first[order], size * sizeof *found);
        memcpy(first[order], found, size * sizeof *found);
        any[order] = true;
        plsh_release(engine.workspace);
    }
    plsh_release(x);
    plsh_release(dy);
    plsh_release(found);
    plsh_release(first[0]);
    plsh_release(first[1]);
    free_problem(&p);
}

static void test_backward(void **unused) {
    (void)unused;
    backward_case(PLSH_WEIGHT_F32, 1, 1, 1);
    backward_case(PLSH_WEIGHT_F32, 7, 45, 33);
    backward_case(PLSH_WEIGHT_F32, 263, 101, 37);
    backward_case(PLSH_WEIGHT_BF16, 101, 259, 35);
    backward_case(PLSH_WEIGHT_Q8_0, 5, 40, 96);
    backward_case(PLSH_WEIGHT_Q4_K, 4, 9, 512);
}

/* ---- Bits ---- */

/* The same for 1, 2, 3 and 7 threads; of a row, the same among other rows of the same kind. */
static void check_bits(int path) {
    enum { OUT = 300, MOST = 150, IN = 577 };
    static const int64_t rows[] = {1, PLSH_LINEAR_FEW, PLSH_LINEAR_FEW + 1, MOST};
    problem p = make_problem(PLSH_WEIGHT_F16, OUT, IN);
    float *x = randoms((size_t)MOST * IN);
    float *first = make(MOST * OUT, 4), *y = make(MOST * OUT, 4), *few = make(OUT, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
            plsh_linear_engine engine;
            if (!make_bfloat_engine(&engine, path, threads)) break;
            plsh_linear_forward(&engine, &p.layer, rows[i], (plsh_const_matrix){x, IN},
                                (plsh_matrix){threads == 1 ? first : y, OUT}, false);
            plsh_release(engine.workspace);
            if (threads > 1) assert_memory_equal(first, y, (size_t)rows[i] * OUT * sizeof *y);
        }
        if (i % 2 == 0)
            memcpy(few, first, OUT * sizeof *few);
        else
            assert_memory_equal(few, first, OUT * sizeof *few);
    }
    free_problem(&p);
    plsh_release(x);
    plsh_release(first);
    plsh_release(y);
    plsh_release(few);
}

static void test_bits(void **unused) {
    (void)unused;
    for (int path = 0; path < PATHS; path++) check_bits(path);
}

/* Tiles add in the order that amx.h says: of every 32 values the even products, the odd ones, and
 * their sum to what was there. */
static void test_order_of_tiles(void **unused) {
    (void)unused;
    enum { OUT = 37, ROWS = 21, IN = 301 };
    problem p = make_problem(PLSH_WEIGHT_BF16, OUT, IN);
    float *x = randoms((size_t)ROWS * IN), *y = make(ROWS * OUT, 4);
    for (int path = 0; path < PATHS; path++) {
        plsh_linear_engine engine;
        if (!paths[path].tiles || !make_bfloat_engine(&engine, path, 2)) continue;
        plsh_linear_forward(&engine, &p.layer, ROWS, (plsh_const_matrix){x, IN},
                            (plsh_matrix){y, OUT}, false);
        plsh_release(engine.workspace);
        for (int r = 0; r < ROWS; r++) {
            for (int o = 0; o < OUT; o++) {
                float sum = p.bias[o];
                for (int k = 0; k < IN; k += 32) {
                    float part[2] = {0.0f, 0.0f};
                    for (int j = k; j < IN && j < k + 32; j++)
                        part[j % 2] =
                            fmaf((float)rounded(x[r * IN + j]), p.w[o * IN + j], part[j % 2]);
                    sum += part[0] + part[1];
                }
                assert_true(y[r * OUT + o] == sum);
            }
        }
    }
    free_problem(&p);
    plsh_release(x);
    plsh_release(y);
}

static uint16_t near_least(int exponent, int fraction, bool negative) {
    return (uint16_t)((unsigned)(exponent + 127) << 7 | (unsigned)fraction | negative << 15);
}

/* Sums around 2^-126, the least normal number: below it they are 0, in all paths after the same
 * rounding, and what is not finite stays so. Kernels are called directly: rows of two pairs. */
static void test_tiny(void **unused) {
    (void)unused;
    enum { WIDTH = 32, ROWS = 2000 };
    static uint16_t a[ROWS][4], panel[2 * WIDTH * 2];
    static float start[WIDTH], y[PATHS][ROWS * WIDTH];
    const uint32_t least = 0x00800000;
    for (int n = 0; n < WIDTH; n++) {
        const uint32_t bits = (least + (uint32_t)(n % 8)) | (uint32_t)(n / 8 % 2) << 31;
        memcpy(start + n, &bits, 4);
        if (n % 8 > 5) start[n] = n % 8 == 6 ? 0.0f : 0x1p-130f;
    }
    for (int i = 0; i < ROWS * 4; i++)
        a[i / 4][i % 4] =
            near_least(-60 - (int)(fabs(uniform()) * 28), (int)(fabs(uniform()) * 128), i % 3 == 0);
    a[0][0] = 0x7f80;
    a[1][3] = 0x7fc0;
    a[2][1] = 1; /* subnormal */
    for (int path = 0, first = -1; path < PATHS; path++) {
        plsh_linear_engine engine;
        if (paths[path].tiles || !make_bfloat_engine(&engine, path, 1)) continue;
        const int width = engine.bfloat->plain->width;

        for (int c = 0; c < WIDTH; c += width) {
            for (int n = 0; n < width; n++)
                for (int k = 0; k < 4; k++)
                    panel[(k / 2 * width + n) * 2 + k % 2] =
                        near_least(-66, (c + n) * 31 % 128 ^ k, k % 2);
            engine.bfloat->multiply(&(plsh_bfloat_product){.a = a[0],
                                                           .a_row = 2,
                                                           .a_step = 1,
                                                           .panel = panel,
                                                           .rows = ROWS,
                                                           .pairs = 2,
                                                           .columns = width,
                                                           .start = start + c,
                                                           .y = y[path] + c,
                                                           .y_stride = WIDTH});
        }
        int zeros = 0;
        for (int i = 2 * WIDTH; i < ROWS * WIDTH; i++) {
            zeros += y[path][i] == 0.0f;
            assert_false(fabsf(y[path][i]) < 0x1p-126f && y[path][i] != 0.0f);
            if (first >= 0) assert_memory_equal(&y[path][i], &y[first][i], 4);
        }
        assert_in_range(zeros, ROWS, ROWS * WIDTH - ROWS);
        for (int n = 0; n < 2 * WIDTH; n++) assert_false(isfinite(y[path][n]));
        first = path;
        plsh_release(engine.workspace);
    }
}

/* AVX-512 without BF16 runs the kernels of AVX2. */
static void test_choose(void **unused) {
    (void)unused;
    const plsh_bfloat_kernels *kernels;
    plsh_error error;
    assert_ok(plsh_bfloat_kernels_choose(&kernels, "reference", &error));
    assert_string_equal(kernels->name, "reference");
    assert_false(kernels->native);
    assert_fails(plsh_bfloat_kernels_choose(&kernels, "abacus", &error), PLSH_STATUS_UNSUPPORTED,
                 "abacus");
    if (plsh_bfloat_kernels_choose(&kernels, "avx512", &error) != PLSH_STATUS_OK) return;
    const bool pairs = (plsh_cpu_features() & PLSH_CPU_AVX512BF16) != 0;
    if (plsh_bfloat_kernels_choose(&kernels, "amx", &error) == PLSH_STATUS_OK)
        assert_string_equal(kernels->name, "avx512 amx");
    assert_ok(plsh_bfloat_kernels_choose(&kernels, "avx512", &error));
    assert_string_equal(kernels->name, pairs ? "avx512 bf16" : "avx2");
    assert_int_equal(kernels->native, pairs);
    setenv("PLSH_TEST_CPU_OFF", "avx512bf16", 1);
    assert_ok(plsh_bfloat_kernels_choose(&kernels, "avx512", &error));
    unsetenv("PLSH_TEST_CPU_OFF");
    assert_string_equal(kernels->name, "avx2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_narrow),
        cmocka_unit_test_teardown(test_forward, tiles_are_released),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test_teardown(test_backward, tiles_are_released),
        cmocka_unit_test_teardown(test_bits, tiles_are_released),
        cmocka_unit_test(test_order_of_tiles),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
