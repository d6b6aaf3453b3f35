/* weights: linear layers of every type against double, few rows and many, and their gradients. */
#include "linear/problem.h"

/* |got - sum of terms| within a few roundings of the sum of their sizes. */
static void close_to(float got, double exact, double size, int64_t terms, const char *what,
                     int type) {
    double allowed = 0x1p-24 * (4.0 + sqrt((double)terms)) * size * 2.0;
    if (!(fabs((double)got - exact) <= allowed))
        fail_msg("%s, type %s: %.9g, exactly %.9g, allowed %.3g", what,
                 plsh_weight_type_name((plsh_weight_type)type), (double)got, exact, allowed);
}

static void check_forward(const problem *p, int64_t rows, plsh_const_matrix x, plsh_matrix y,
                          const float *before) {
    const int64_t in = p->layer.in, out = p->layer.out;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            double start = before ? (double)before[r * out + o] : (double)p->bias[o];
            double exact = start, size = fabs(start);
            for (int64_t k = 0; k < in; k++) {
                double term = (double)p->w[o * in + k] * (double)x.data[r * x.stride + k];
                exact += term;
                size += fabs(term);
            }
            /* q types add scale * sum(q x) and offset * sum(x), which may cancel. */
            if (p->layer.type > PLSH_WEIGHT_BF16) size *= 8.0;
            close_to(y.data[r * y.stride + o], exact, size, in, "forward", (int)p->layer.type);
        }
    }
}

static void forward_case(const plsh_linear_engine *engine, plsh_weight_type type, int64_t rows,
                         int64_t out, int64_t in) {
    problem p = make_problem(type, out, in);
    const ptrdiff_t x_stride = in + 3, y_stride = out + 5;
    float *x = randoms((size_t)(rows * x_stride)), *y = randoms((size_t)(rows * y_stride));
    float *before = make((size_t)(rows * out), sizeof(float));
    plsh_const_matrix from = {x, x_stride};
    plsh_matrix to = {y, y_stride};
    plsh_linear_forward(engine, &p.layer, rows, from, to, false);
    check_forward(&p, rows, from, to, NULL);
    for (int64_t r = 0; r < rows; r++)
        memcpy(before + r * out, y + r * y_stride, (size_t)out * sizeof *y);
    plsh_linear_forward(engine, &p.layer, rows, from, to, true);
    check_forward(&p, rows, from, to, before);
    free_problem(&p);
    plsh_release(x);
    plsh_release(y);
    plsh_release(before);
}

static const char *const isas[] = {"avx512", "avx2", "wide", "neon", "reference"};

/* Calls `check` with an engine of every instruction set of this machine. */
static void with_engines(void (*check)(const plsh_linear_engine *)) {
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        const plsh_linear_kernels *kernels;
        if (plsh_linear_kernels_choose(&kernels, isas[i], NULL) != PLSH_STATUS_OK) continue;
        plsh_linear_engine engine = make_engine(isas[i], 2);
        check(&engine);
        plsh_release(engine.workspace);
    }
}

static void check_types(const plsh_linear_engine *engine) {
    static const int64_t rows[] = {1, 2, 3, 4, 5, 13, 19}, outs[] = {1, 33, 70};
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) {
        int64_t block = plsh_weight_kinds[type].block;
        for (size_t i = 0; i < 7; i++) {
            for (size_t j = 0; j < 3; j++) {
                int64_t in = block == 1 ? 1 + (int64_t)(i * 37) : block * (int64_t)(1 + i % 3);
                forward_case(engine, (plsh_weight_type)type, rows[i], outs[j], in);
            }
        }
        forward_case(engine, (plsh_weight_type)type, 100, 90, block == 1 ? 531 : 512);
    }
}

static void test_forward(void **unused) {
    (void)unused;
    with_engines(check_types);
}

static void check_widen(const plsh_linear_engine *engine) {
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) {
        problem p = make_problem((plsh_weight_type)type, 3, 512);
        float *wide = make(3 * 512, sizeof(float));
        engine->kernels->widen[type](p.tensor.data, wide, 3 * 512);
        assert_memory_equal(wide, p.w, 3 * 512 * sizeof(float));
        plsh_release(wide);
        free_problem(&p);
    }
}

static void test_widen(void **unused) {
    (void)unused;
    with_engines(check_widen);
}

static void backward_case(const plsh_linear_engine *engine, plsh_weight_type type, int64_t rows,
                          int64_t out, int64_t in) {
    problem p = make_problem(type, out, in);
    float *x = randoms((size_t)(rows * in)), *dy = randoms((size_t)(rows * out));
    float *dx = make((size_t)(rows * in), 4), *dw = make((size_t)(out * in), 4);
    float *db = make((size_t)out, 4);
    for (int64_t i = 0; i < out * in; i++) dw[i] = 0.25f;
    plsh_linear_backward(engine, &p.layer, rows, (plsh_const_matrix){dy, out},
                         (plsh_const_matrix){x, in}, dw, (plsh_matrix){dx, in}, false);
    plsh_linear_backward_bias(engine, rows, out, (plsh_const_matrix){dy, out}, db);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < in; k++) {
            double exact = 0.0, size = 0.0;
            for (int64_t o = 0; o < out; o++) {
                double term = (double)dy[r * out + o] * (double)p.w[o * in + k];
                exact += term;
                size += fabs(term);
            }
            close_to(dx[r * in + k], exact, size, out, "dx", (int)type);
        }
    }
    for (int64_t o = 0; o < out; o++) {
        double bias = 0.0, bias_size = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            bias += (double)dy[r * out + o];
            bias_size += fabs((double)dy[r * out + o]);
        }
        close_to(db[o], bias, bias_size, rows, "db", (int)type);
        for (int64_t k = 0; k < in; k++) {
            double exact = 0.25, size = 0.25;
            for (int64_t r = 0; r < rows; r++) {
                double term = (double)dy[r * out + o] * (double)x[r * in + k];
                exact += term;
                size += fabs(term);
            }
            close_to(dw[o * in + k], exact, size, rows, "dw", (int)type);
        }
    }
    free_problem(&p);
    plsh_release(x);
    plsh_release(dy);
    plsh_release(dx);
    plsh_release(dw);
    plsh_release(db);
}

static void check_backward(const plsh_linear_engine *engine) {
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) {
        int64_t block = plsh_weight_kinds[type].block;
        backward_case(engine, (plsh_weight_type)type, 1, 5, block == 1 ? 7 : block);
        backward_case(engine, (plsh_weight_type)type, 21, 70, block == 1 ? 131 : 2 * block);
    }
    backward_case(engine, PLSH_WEIGHT_F32, 300, 130, 70);
    backward_case(engine, PLSH_WEIGHT_Q4_1, 9, 330, 320);
}

static void test_backward(void **unused) {
    (void)unused;
    with_engines(check_backward);
}

/* The same bits for 1, 2, 3 and 7 threads; with few rows, a row does not depend on the others. */
static void test_bits(void **unused) {
    (void)unused;
    enum { OUT = 300, IN = 576, MOST = 200 };
    static const int64_t rows[] = {1, 3, 4, 7, PLSH_LINEAR_FEW, 17, MOST};
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) {
        int64_t in = plsh_weight_kinds[type].block == 256 ? 512 : IN;
        problem p = make_problem((plsh_weight_type)type, OUT, in);
        float *x = randoms((size_t)(MOST * in));
        float *first = make(MOST * OUT, 4), *y = make(MOST * OUT, 4);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (int threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
                plsh_linear_engine engine = make_engine(NULL, threads);
                plsh_linear_forward(&engine, &p.layer, rows[i], (plsh_const_matrix){x, in},
                                    (plsh_matrix){threads == 1 ? first : y, OUT}, false);
                plsh_release(engine.workspace);
                if (threads > 1) assert_memory_equal(first, y, (size_t)rows[i] * OUT * sizeof *y);
            }
            if (rows[i] == 1) memcpy(y, first, OUT * sizeof *y);
            if (rows[i] > 1 && rows[i] <= PLSH_LINEAR_FEW) {
                plsh_linear_engine engine = make_engine(NULL, 1);
                for (int64_t r = 0; r < rows[i]; r++)
                    plsh_linear_forward(&engine, &p.layer, 1, (plsh_const_matrix){x + r * in, in},
                                        (plsh_matrix){y + r * OUT, OUT}, false);
                plsh_release(engine.workspace);
                assert_memory_equal(first, y, (size_t)rows[i] * OUT * sizeof *y);
            }
        }
        free_problem(&p);
        plsh_release(x);
        plsh_release(first);
        plsh_release(y);
    }
}

/* Likewise where the sums of groups do not fit into the memory of one thread. */
static void test_bits_of_long_rows(void **unused) {
    (void)unused;
    enum { OUT = 2, IN = 600064 };
    problem p = make_problem(PLSH_WEIGHT_F32, OUT, IN);
    float *x = randoms((size_t)PLSH_LINEAR_FEW * IN);
    for (int64_t rows = 1; rows <= PLSH_LINEAR_FEW; rows += PLSH_LINEAR_FEW - 1) {
        float y[2][PLSH_LINEAR_FEW * OUT];
        for (int i = 0; i < 2; i++) {
            plsh_linear_engine engine = make_engine(NULL, 1 + 2 * i);
            plsh_linear_forward(&engine, &p.layer, rows, (plsh_const_matrix){x, IN},
                                (plsh_matrix){y[i], OUT}, false);
            plsh_release(engine.workspace);
        }
        assert_memory_equal(y[0], y[1], (size_t)rows * OUT * sizeof **y);
    }
    free_problem(&p);
    plsh_release(x);
}

/* Threads that have no tile of their own take rows from the tiles of others, at any step. With more
 * threads than processors they are interrupted at any place too. */
static void test_bits_of_parts(void **unused) {
    (void)unused;
    enum { OUT = 240, IN = 600, ROWS = 1100, TIMES = 40 };
    problem p = make_problem(PLSH_WEIGHT_F32, OUT, IN);
    float *x = randoms((size_t)ROWS * IN), *dy = randoms((size_t)ROWS * OUT);
    float *results[2];
    const size_t numbers = (size_t)ROWS * OUT + (size_t)ROWS * IN + (size_t)OUT * IN;
    for (int i = 0; i < 2; i++) results[i] = make(numbers, sizeof(float));
    for (int time = 0; time < TIMES; time++) {
        plsh_linear_engine engine = make_engine(NULL, time == 0 ? 1 : 2 + time % 6);
        float *y = results[time > 0], *dx = y + (size_t)ROWS * OUT, *dw = dx + (size_t)ROWS * IN;
        memset(dw, 0, (size_t)OUT * IN * sizeof *dw);
        plsh_linear_forward(&engine, &p.layer, ROWS, (plsh_const_matrix){x, IN},
                            (plsh_matrix){y, OUT}, false);
        plsh_linear_backward(&engine, &p.layer, ROWS, (plsh_const_matrix){dy, OUT},
                             (plsh_const_matrix){x, IN}, dw, (plsh_matrix){dx, IN}, false);
        plsh_release(engine.workspace);
        if (time > 0) assert_memory_equal(results[0], results[1], numbers * sizeof(float));
    }
    free_problem(&p);
    plsh_release(x);
    plsh_release(dy);
    for (int i = 0; i < 2; i++) plsh_release(results[i]);
}

/* Several layers at once, one of them a slice: the same bits as one by one. */
static void test_many(void **unused) {
    (void)unused;
    enum { OUT = 96, IN = 64, ROWS = 9 };
    plsh_linear_engine engine = make_engine(NULL, 2);
    problem p = make_problem(PLSH_WEIGHT_Q8_0, OUT, IN);
    float *x = randoms(ROWS * IN), *whole = make(ROWS * OUT, 4), *parts = make(ROWS * OUT, 4);
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
        plsh_linear slices[10];
        plsh_matrix y[10];
        for (int i = 0; i < 10; i++) {
            int64_t first = i * 10, count = i < 9 ? 10 : OUT - 90;
            slices[i] = plsh_linear_slice(&p.layer, first, count);
            y[i] = (plsh_matrix){parts + first, OUT};
        }
        plsh_const_matrix from = {x, IN};
        plsh_linear_forward(&engine, &p.layer, rows, from, (plsh_matrix){whole, OUT}, false);
        plsh_linear_forward_many(&engine, slices, y, 10, rows, from);
        assert_memory_equal(whole, parts, (size_t)rows * OUT * sizeof *whole);
    }
    free_problem(&p);
    plsh_release(x);
    plsh_release(whole);
    plsh_release(parts);
    plsh_release(engine.workspace);
}

static void test_refused(void **unused) {
    (void)unused;
    plsh_error error;
    plsh_linear layer;
    plsh_tensor ids = {.name = "ids", .type = PLSH_WEIGHT_I64, .rank = 2, .shape = {2, 2}};
    plsh_tensor w = {.name = "w", .type = PLSH_WEIGHT_F32, .rank = 2, .shape = {2, 3}};
    assert_fails(plsh_linear_make(&layer, &ids, NULL, 2, 2, &error), PLSH_STATUS_UNSUPPORTED,
                 "i64");
    assert_fails(plsh_linear_make(&layer, &w, NULL, 3, 2, &error), PLSH_STATUS_FORMAT,
                 "2 x 3 of rank 2; it must be 3 x 2");
    const plsh_linear_kernels *kernels;
    assert_fails(plsh_linear_kernels_choose(&kernels, "abacus", &error), PLSH_STATUS_UNSUPPORTED,
                 "abacus");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_widen),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bits_of_long_rows),
        cmocka_unit_test(test_bits_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
