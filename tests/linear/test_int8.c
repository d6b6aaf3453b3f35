/* weights: products in int8 of every type and instruction set: against double, against float32, and
 * to the bit against each other. */
#include "linear/problem.h"

#include "base/cpu.h"
#include "linear/int8.h"
#include "linear/kernels/amx.h"

/* The last two: with many rows by tiles of AMX, emulated, on panels of 32 and of 16 columns. */
static const struct {
    const char *isa;
    bool tiles;
} paths[] = {{"avx512", false},    {"avx2", false},  {"neon", false},
             {"reference", false}, {"avx512", true}, {"avx2", true}};

enum { PATHS = sizeof paths / sizeof *paths };

/* No thread holds tiles after a product. */
static int tiles_are_released(void **unused) {
    (void)unused;
#if defined(__x86_64__)
    assert_int_equal(plsh_tiles_emulated_held(), 0);
#endif
    return 0;
}

/* An engine with products in int8 by the best kernels. */
static plsh_linear_engine best_int8_engine(int threads) {
    plsh_linear_engine engine = make_engine(NULL, threads);
    plsh_error error;
    assert_ok(plsh_int8_kernels_choose(&engine.int8, NULL, &error));
    return engine;
}

/* An engine with products in int8; false: the machine does not have this path. */
static bool make_int8_engine(plsh_linear_engine *engine, int path, int threads) {
    const plsh_linear_kernels *kernels;
    plsh_error error;
    if (plsh_linear_kernels_choose(&kernels, paths[path].isa, NULL) != PLSH_STATUS_OK) return false;
    *engine = make_engine(paths[path].isa, threads);
    assert_ok(plsh_int8_kernels_choose(&engine->int8, paths[path].isa, &error));
#if defined(__x86_64__)
    static plsh_int8_kernels with_tiles[PATHS];
    if (paths[path].tiles) {
        with_tiles[path] = *engine->int8;
        with_tiles[path].tiles = &plsh_tiles_emulated;
        engine->int8 = &with_tiles[path];
    }
#endif
    return true;
}

static plsh_int8_rows quantised(int64_t rows, int64_t in, plsh_const_matrix x) {
    plsh_arena arena = {0};
    plsh_int8_rows_take(&arena, rows, in);
    arena = (plsh_arena){.memory = make(arena.used, 1)};
    plsh_int8_rows to = plsh_int8_rows_take(&arena, rows, in);
    plsh_int8_quantise(&to, rows, x, 2);
    return to;
}

/* ---- Activations ---- */

static void test_quantise(void **unused) {
    (void)unused;
    enum { ROWS = 40, IN = 96, STRIDE = IN + 5 };
    float *x = randoms(ROWS * STRIDE);
    for (int i = 0; i < 32; i++) x[i] = 0.0f;
    for (int i = 32; i < 64; i++) x[i] = (float)(i - 48) * 0.5f;
    plsh_int8_rows q = quantised(ROWS, IN, (plsh_const_matrix){x, STRIDE});
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t g = 0; g < IN / 32; g++) {
            const int64_t at = r * (IN / 32) + g;
            int32_t half[2] = {0};
            for (int j = 0; j < 32; j++) {
                const int p = q.p[r * IN + g * 32 + j];
                const double value = (double)x[r * STRIDE + g * 32 + j];
                half[j / 16] += p;
                assert_in_range(p + 127, 0, 254);
                assert_true(fabs(value - (double)q.scale[at] * p) <=
                            0.5 * (double)q.scale[at] * (1.0 + 0x1p-15));
            }
            assert_int_equal(q.half[2 * at], -half[0]);
            assert_int_equal(q.half[2 * at + 1], -half[1]);
            assert_int_equal(q.whole[at], -half[0] - half[1]);
            assert_true(q.sum[at] == q.scale[at] * (float)(half[0] + half[1]));
        }
    }
    assert_true(q.scale[0] == 0.0f && q.p[0] == 0);
    assert_int_equal(q.p[32], -127);
    plsh_release(q.p);
    plsh_release(x);
}

/* What is not finite stays so; what is tiny is 0. */
static void test_odd_values(void **unused) {
    (void)unused;
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p-140f};
    plsh_linear_engine engine;
    problem p = make_problem(PLSH_WEIGHT_Q8_0, 3, 64);
    for (int i = 0; i < PATHS; i++) {
        if (!make_int8_engine(&engine, i, 1)) continue;
        for (size_t j = 0; j < sizeof odd / sizeof *odd; j++) {
            float x[9 * 64] = {0}, y[9 * 3];
            for (int64_t rows = 1; rows <= 9; rows += 8) {
                x[40] = odd[j];
                plsh_linear_forward(&engine, &p.layer, rows, (plsh_const_matrix){x, 64},
                                    (plsh_matrix){y, 3}, false);
                for (int o = 0; o < 3; o++) {
                    assert_int_equal(isfinite(y[o]) != 0, j == 4);
                    if (j == 4) assert_true(y[o] == p.bias[o]);
                    if (rows > 1) assert_true(y[24 + o] == p.bias[o]);
                }
            }
        }
        plsh_release(engine.workspace);
    }
    free_problem(&p);
}

/* ---- Products ---- */

/* start + sum of w s p, and the sum of their sizes. */
static double exact_product(const problem *p, const plsh_int8_rows *x, int64_t r, int64_t o,
                            double start, double *size) {
    const int64_t in = p->layer.in;
    double sum = start;
    *size = fabs(start);
    for (int64_t k = 0; k < in; k++) {
        const double s = (double)x->scale[r * (in / 32) + k / 32];
        const double term = (double)p->w[o * in + k] * s * x->p[r * in + k];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* Within a few roundings of the product of the quantised numbers, and so far from that of x as its
 * quantisation allows: half a step each. */
static void check_product(const problem *p, int64_t rows, plsh_const_matrix x,
                          const plsh_int8_rows *q, const float *y, const float *before) {
    const int64_t in = p->layer.in, out = p->layer.out;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            const double start = before ? (double)before[r * out + o] : (double)p->bias[o];
            double size, wanted = exact_product(p, q, r, o, start, &size), plain = start, step = 0;
            for (int64_t k = 0; k < in; k++) {
                const double w = (double)p->w[o * in + k];
                plain += w * (double)x.data[r * x.stride + k];
                step += fabs(w) * 0.5 * (double)q->scale[r * (in / 32) + k / 32];
            }
            /* scale * sum(u p) and offset * sum(p) may cancel */
            const double rounding = 0x1p-24 * (4.0 + sqrt((double)in)) * size * 16.0;
            const double got = (double)y[r * out + o];
            if (!(fabs(got - wanted) <= rounding) ||
                !(fabs(got - plain) <= step * 1.001 + rounding))
                fail_msg("type %s, row %d, output %d: %.9g; quantised %.9g +- %.3g, plain %.9g +- "
                         "%.3g",
                         plsh_weight_type_name(p->layer.type), (int)r, (int)o, got, wanted,
                         rounding, plain, step);
        }
    }
}

/* The product of each instruction set is right, and all have the same bits. */
static void check_case(const problem *p, int64_t rows, plsh_const_matrix x) {
    const int64_t in = p->layer.in, out = p->layer.out;
    plsh_int8_rows q = quantised(rows, in, x);
    float *y = make((size_t)(rows * out), 4), *first = make((size_t)(rows * out), 4);
    float *once = make((size_t)(rows * out), 4);
    bool any = false;
    for (int i = 0; i < PATHS; i++) {
        plsh_linear_engine engine;
        if (!make_int8_engine(&engine, i, 2)) continue;
        plsh_matrix to = {y, out};
        plsh_linear_forward(&engine, &p->layer, rows, x, to, false);
        check_product(p, rows, x, &q, y, NULL);
        memcpy(once, y, (size_t)(rows * out) * sizeof *y);
        plsh_linear_forward(&engine, &p->layer, rows, x, to, true);
        check_product(p, rows, x, &q, y, once);
        if (any) assert_memory_equal(y, first, (size_t)(rows * out) * sizeof *y);
        memcpy(first, y, (size_t)(rows * out) * sizeof *y);
        any = true;
        plsh_release(engine.workspace);
    }
    plsh_release(q.p);
    plsh_release(y);
    plsh_release(first);
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

static void test_products(void **unused) {
    (void)unused;
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 9, 20}, outs[] = {1, 33, 70};
    for (int type = PLSH_WEIGHT_Q8_0; type < PLSH_WEIGHT_COMPUTED; type++) {
        const int64_t block = plsh_weight_kinds[type].block;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (size_t j = 0; j < 3; j++)
                random_case((plsh_weight_type)type, rows[i], outs[j],
                            block * (int64_t)(1 + (i + j) % 3));
        }
        random_case((plsh_weight_type)type, 103, 90, block == 32 ? 800 : 768);
    }
}

/* Where in a block the q are. */
static void quantised_bytes(plsh_weight_type type, int *head, int *count) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    const bool first = type == PLSH_WEIGHT_Q6_K || type == PLSH_WEIGHT_Q3_K;
    *head = first                        ? 0
            : type == PLSH_WEIGHT_IQ4_XS ? 8
            : kind->block == 256         ? 16
            : plsh_int8_has_offset(type) ? 4
                                         : 2;
    const int after = type == PLSH_WEIGHT_Q6_K   ? 18
                      : type == PLSH_WEIGHT_Q3_K ? 14
                      : type == PLSH_WEIGHT_Q2_K ? 4
                                                 : 0;
    *count = kind->bytes - *head - after;
}

/* All q and all activations as large as they may be, with every combination of signs: a sum in
 * int16 would overflow first. */
static void test_extremes(void **unused) {
    (void)unused;
    enum { OUT = 40, IN = 512, ROWS = 7 };
    float *x = make(ROWS * IN, 4);
    for (int type = PLSH_WEIGHT_Q8_0; type < PLSH_WEIGHT_COMPUTED; type++) {
        const plsh_weight_kind *kind = &plsh_weight_kinds[type];
        for (int fill = 0; fill < 3; fill++) {
            static const uint8_t fills[] = {0xff, 0x80, 0x7f};
            problem p = make_problem((plsh_weight_type)type, OUT, IN);
            uint8_t *bytes = (uint8_t *)(uintptr_t)p.tensor.data;
            int head, count;
            quantised_bytes((plsh_weight_type)type, &head, &count);
            for (size_t b = 0; b < p.tensor.size; b += (size_t)kind->bytes)
                memset(bytes + b + head, fills[fill], (size_t)count);
            plsh_tensor_to_float(&p.tensor, 0, OUT, p.w);
            for (int i = 0; i < ROWS * IN; i++) x[i] = i / IN % 2 ? 1.0f : -1.0f;
            for (int i = 0; i < IN; i++) x[2 * IN + i] = i % 2 ? 1.0f : -1.0f;
            check_case(&p, ROWS, (plsh_const_matrix){x, IN});
            check_case(&p, 3, (plsh_const_matrix){x, IN});
            free_problem(&p);
        }
    }
    plsh_release(x);
}

/* ---- Bits ---- */

/* Of a row the same among 1 to 70 rows, and for 1, 2, 3 and 7 threads. */
static void test_bits(void **unused) {
    (void)unused;
    enum { OUT = 300, MOST = 70 };
    for (int type = PLSH_WEIGHT_Q8_0; type < PLSH_WEIGHT_COMPUTED; type++) {
        const int64_t in = plsh_weight_kinds[type].block == 256 ? 512 : 576;
        problem p = make_problem((plsh_weight_type)type, OUT, in);
        float *x = randoms((size_t)(MOST * in));
        float *alone = make(MOST * OUT, 4), *y = make(MOST * OUT, 4);
        const plsh_matrix to = {y, OUT};
        for (int i = 0; i < PATHS; i++) {
            plsh_linear_engine engine;
            if (!make_int8_engine(&engine, i, 7)) continue;
            for (int64_t r = 0; r < MOST; r++)
                plsh_linear_forward(&engine, &p.layer, 1, (plsh_const_matrix){x + r * in, in},
                                    (plsh_matrix){alone + r * OUT, OUT}, false);
            for (int64_t rows = 2; rows <= MOST; rows++) {
                static const int threads[] = {1, 2, 3, 7};
                engine.threads = threads[rows % 4];
                plsh_linear_forward(&engine, &p.layer, rows, (plsh_const_matrix){x, in}, to, false);
                assert_memory_equal(alone, y, (size_t)(rows * OUT) * sizeof *y);
            }
            plsh_release(engine.workspace);
        }
        free_problem(&p);
        plsh_release(x);
        plsh_release(alone);
        plsh_release(y);
    }
}

/* More rows than fit at a time are computed in parts: 40 of 65,536 values. */
static void test_parts(void **unused) {
    (void)unused;
    enum { IN = 65536, ROWS = 55, OUT = 3 }; /* 55 = 5 x 11: more than few rows */
    plsh_linear_engine engine = best_int8_engine(2);
    assert_in_range(plsh_int8_rows_fit(1 << 22, IN), 10, ROWS - 6);
    problem p = make_problem(PLSH_WEIGHT_Q4_1, OUT, IN);
    float *x = randoms((size_t)ROWS * IN), y[2][ROWS * OUT];
    plsh_linear_forward(&engine, &p.layer, ROWS, (plsh_const_matrix){x, IN},
                        (plsh_matrix){y[0], OUT}, false);
    for (int64_t r = 0; r < ROWS; r += 11)
        plsh_linear_forward(&engine, &p.layer, 11, (plsh_const_matrix){x + r * IN, IN},
                            (plsh_matrix){y[1] + r * OUT, OUT}, false);
    assert_memory_equal(y[0], y[1], sizeof *y);
    free_problem(&p);
    plsh_release(x);
    plsh_release(engine.workspace);
}

/* Rows of which too few fit, and plain numbers: the bits of float32. */
static void test_left_in_float(void **unused) {
    (void)unused;
    static const int64_t in[] = {600064, 64};
    plsh_linear_engine engine = best_int8_engine(2);
    for (int i = 0; i < 2; i++) {
        problem p = make_problem(i == 0 ? PLSH_WEIGHT_Q8_0 : PLSH_WEIGHT_F16, 2, in[i]);
        float *x = randoms((size_t)(6 * in[i])), y[2][12];
        for (int64_t rows = 1; rows <= 6; rows += 5) {
            for (int j = 0; j < 2; j++) {
                plsh_linear_engine used = engine;
                if (j == 1) used.int8 = NULL;
                plsh_linear_forward(&used, &p.layer, rows, (plsh_const_matrix){x, in[i]},
                                    (plsh_matrix){y[j], 2}, false);
            }
            assert_memory_equal(y[0], y[1], (size_t)rows * 2 * sizeof **y);
        }
        plsh_release(x);
        free_problem(&p);
    }
    plsh_release(engine.workspace);
}

/* Layers of different types on one input: each as alone. */
static void test_many(void **unused) {
    (void)unused;
    enum { OUT = 50, IN = 256, ROWS = 9 };
    static const plsh_weight_type types[] = {PLSH_WEIGHT_Q8_0, PLSH_WEIGHT_F32, PLSH_WEIGHT_Q6_K};
    plsh_linear_engine engine = best_int8_engine(2);
    problem p[3];
    plsh_linear layers[3];
    float *x = randoms(ROWS * IN), *alone = make(ROWS * OUT, 4), *y = make(3 * ROWS * OUT, 4);
    plsh_matrix to[3];
    for (int i = 0; i < 3; i++) {
        p[i] = make_problem(types[i], OUT, IN);
        layers[i] = p[i].layer;
        to[i] = (plsh_matrix){y + i * OUT, 3 * OUT};
    }
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
        plsh_linear_forward_many(&engine, layers, to, 3, rows, (plsh_const_matrix){x, IN});
        for (int i = 0; i < 3; i++) {
            plsh_linear_forward(&engine, &layers[i], rows, (plsh_const_matrix){x, IN},
                                (plsh_matrix){alone, OUT}, false);
            for (int64_t r = 0; r < rows; r++)
                assert_memory_equal(alone + r * OUT, to[i].data + r * 3 * OUT, OUT * sizeof *y);
        }
    }
    for (int i = 0; i < 3; i++) free_problem(&p[i]);
    plsh_release(x);
    plsh_release(alone);
    plsh_release(y);
    plsh_release(engine.workspace);
}

/* AVX-512 without VNNI runs the kernels of AVX2. */
static void test_choose(void **unused) {
    (void)unused;
    const plsh_int8_kernels *kernels;
    plsh_error error;
    assert_ok(plsh_int8_kernels_choose(&kernels, "reference", &error));
    assert_string_equal(kernels->name, "reference");
    assert_fails(plsh_int8_kernels_choose(&kernels, "abacus", &error), PLSH_STATUS_UNSUPPORTED,
                 "abacus");
    if (plsh_int8_kernels_choose(&kernels, "avx512", &error) != PLSH_STATUS_OK) return;
    const bool vnni = (plsh_cpu_features() & PLSH_CPU_AVX512VNNI) != 0;
    if (plsh_int8_kernels_choose(&kernels, "amx", &error) == PLSH_STATUS_OK)
        assert_string_equal(kernels->name, "avx512 amx");
    assert_ok(plsh_int8_kernels_choose(&kernels, "avx512", &error));
    assert_string_equal(kernels->name, vnni ? "avx512 vnni" : "avx2");
    setenv("PLSH_TEST_CPU_OFF", "avx512vnni", 1);
    assert_ok(plsh_int8_kernels_choose(&kernels, "avx512", &error));
    unsetenv("PLSH_TEST_CPU_OFF");
    assert_string_equal(kernels->name, "avx2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test_teardown(test_products, tiles_are_released),
        cmocka_unit_test_teardown(test_extremes, tiles_are_released),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_left_in_float),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
