/* tests: the kernels of linear layers for NEON against plain C, in a program that needs nothing but
 * the C library: it runs cross-compiled under an emulator. test_linear covers what it runs on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linear/kernels/kernels.h"
#include "linear/types.h"

#if defined(__aarch64__)
static const plsh_linear_kernels *const tested = &plsh_linear_neon;
#else
static const plsh_linear_kernels *const tested = &plsh_linear_reference;
#endif
static const plsh_linear_kernels *const plain = &plsh_linear_reference;

enum { IN = 512, OUTS = 5, ROWS = 7, WIDTH_MOST = 32 };

static int failures;
static uint64_t state = 1;

static uint32_t next_bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float next_value(void) { return (float)(int32_t)next_bits() * 0x1p-31f; }

static void compare(const char *what, int type, const float *got, const float *wanted, int count,
                    double allowed) {
    for (int i = 0; i < count; i++) {
        if (fabs((double)got[i] - (double)wanted[i]) <= allowed) continue;
        if (++failures <= 20)
            printf("%s, %s, %d: %.9g and %.9g\n", what, plsh_weight_kinds[type].name, i,
                   (double)got[i], (double)wanted[i]);
    }
}

/* Random bits with halves in a small range, floats in -1..1. */
static void fill_blocks(int type, uint8_t *bytes, size_t size) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)next_bits();
    for (size_t b = 0; b < size; b += (size_t)kind->bytes) {
        float value = next_value();
        if (type == PLSH_WEIGHT_F32) {
            memcpy(bytes + b, &value, 4);
        } else if (type <= PLSH_WEIGHT_BF16) {
            bytes[b + 1] = (uint8_t)((bytes[b + 1] & 0x83) | 0x38);
        } else if (type == PLSH_WEIGHT_Q6_K) {
            bytes[b + 209] = (uint8_t)((bytes[b + 209] & 0x83) | 0x18);
        } else {
            bytes[b + 1] = (uint8_t)((bytes[b + 1] & 0x83) | 0x18);
            bytes[b + 3] = (uint8_t)((bytes[b + 3] & 0x83) | 0x18);
        }
    }
}

static void check_type(int type) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    const size_t row_bytes = (size_t)(IN / kind->block) * (size_t)kind->bytes;
    static uint8_t bytes[OUTS * IN * 4];
    static float a[OUTS * IN], b[OUTS * IN], x[4 * IN], sums[4 * IN / 32], y[4 * OUTS], z[4 * OUTS];
    fill_blocks(type, bytes, OUTS * row_bytes);
    tested->widen[type](bytes, a, OUTS * IN);
    kind->widen(bytes, b, OUTS * IN);
    compare("widen", type, a, b, OUTS * IN, 0.0);
    for (int i = 0; i < 4 * IN; i++) x[i] = next_value();
    for (int i = 0; i < 4 * IN / 32; i++) {
        sums[i] = 0.0f;
        for (int j = 0; j < 32; j++) sums[i] += x[32 * i + j];
    }
    double size = 0.0;
    for (int i = 0; i < IN; i++) size = fmax(size, fabs((double)b[i]));
    for (int rows = 1; rows <= 4; rows++) {
        plsh_linear_dot dot = {.weight = bytes,
                               .row_bytes = row_bytes,
                               .outs = OUTS,
                               .in = kind->block == 1 ? IN - 3 : IN,
                               .x = x,
                               .x_stride = IN,
                               .rows = rows,
                               .sums = sums,
                               .sums_stride = IN / 32,
                               .y = y,
                               .y_stride = OUTS};
        tested->dot[type](&dot);
        dot.y = z;
        plain->dot[type](&dot);
        compare("dot", type, y, z, rows * OUTS, 1e-4 * (1.0 + size));
    }
}

static void check_multiply(bool turned, int columns) {
    static float a[ROWS * IN], panel[IN * WIDTH_MOST], other[IN * WIDTH_MOST];
    static float from[WIDTH_MOST * IN], y[ROWS * WIDTH_MOST], z[ROWS * WIDTH_MOST];
    for (int i = 0; i < ROWS * IN; i++) a[i] = next_value();
    for (int i = 0; i < WIDTH_MOST * IN; i++) from[i] = next_value();
    tested->transpose(panel, from, IN, columns, IN);
    plain->transpose(other, from, IN, columns, IN);
    plsh_linear_product p = {.a = a,
                             .a_row = turned ? 1 : IN,
                             .a_step = turned ? ROWS : 1,
                             .panel = panel,
                             .rows = ROWS,
                             .depth = IN,
                             .columns = columns,
                             .y = y,
                             .y_stride = columns};
    tested->multiply(&p);
    for (int first = 0; first < columns; first += plain->width) {
        const int some = columns - first < plain->width ? columns - first : plain->width;
        plain->transpose(other, from + first * IN, IN, some, IN);
        p.panel = other;
        p.columns = some;
        p.y = z + first;
        plain->multiply(&p);
    }
    compare(turned ? "multiply turned" : "multiply", 0, y, z, ROWS * columns, 1e-4);
}

int main(void) {
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) check_type(type);
    for (int columns = 1; columns <= tested->width; columns++) {
        check_multiply(false, columns);
        check_multiply(true, columns);
    }
    printf("%s: %d failures\n", tested->name, failures);
    return failures != 0;
}
