/* tests: the kernels of linear layers for NEON against plain C, in a program that needs nothing but
 * the C library: it runs cross-compiled under an emulator. test_linear covers what it runs on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linear/kernels/int8.h"
#include "linear/types.h"

#if defined(__aarch64__)
static const plsh_linear_kernels *const tested = &plsh_linear_neon;
static const plsh_int8_kernels *const tested_int8 = &plsh_int8_neon;
#else
static const plsh_linear_kernels *const tested = &plsh_linear_reference;
static const plsh_int8_kernels *const tested_int8 = &plsh_int8_reference;
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
        } else if (type == PLSH_WEIGHT_Q6_K || type == PLSH_WEIGHT_Q3_K) { /* d is last */
            uint8_t *d = bytes + b + kind->bytes - 1;
            *d = (uint8_t)((*d & 0x83) | 0x18);
        } else if (type == PLSH_WEIGHT_Q2_K) {
            bytes[b + 81] = (uint8_t)((bytes[b + 81] & 0x83) | 0x18);
            bytes[b + 83] = (uint8_t)((bytes[b + 83] & 0x83) | 0x18);
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

static void check_multiply(bool transposed, int columns) {
    static float a[ROWS * IN], panel[IN * WIDTH_MOST], other[IN * WIDTH_MOST];
    static float from[WIDTH_MOST * IN], y[ROWS * WIDTH_MOST], z[ROWS * WIDTH_MOST];
    for (int i = 0; i < ROWS * IN; i++) a[i] = next_value();
    for (int i = 0; i < WIDTH_MOST * IN; i++) from[i] = next_value();
    tested->transpose(panel, from, IN, columns, IN);
    plain->transpose(other, from, IN, columns, IN);
    plsh_linear_product p = {.a = a,
                             .a_row = transposed ? 1 : IN,
                             .a_step = transposed ? ROWS : 1,
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
    compare(transposed ? "multiply transposed" : "multiply", 0, y, z, ROWS * columns, 1e-4);
}

/* ---- Products in int8: the same bits ---- */

static int8_t int8_p[ROWS * IN];
static float int8_scale[ROWS * IN / 32], int8_sum[ROWS * IN / 32];
static int32_t int8_whole[ROWS * IN / 32], int8_half[ROWS * IN / 16];

static plsh_int8_rows int8_rows(void) {
    for (int i = 0; i < ROWS * IN; i++) int8_p[i] = (int8_t)((int)(next_bits() % 255) - 127);
    for (int i = 0; i < ROWS * IN / 32; i++) {
        int sum = 0;
        for (int j = 0; j < 32; j++) {
            sum += int8_p[32 * i + j];
            if (j % 16 == 0) int8_half[2 * i + j / 16] = 0;
            int8_half[2 * i + j / 16] -= int8_p[32 * i + j];
        }
        int8_whole[i] = -sum;
        int8_scale[i] = next_value();
        int8_sum[i] = int8_scale[i] * (float)sum;
    }
    return (plsh_int8_rows){IN, int8_p, int8_scale, int8_sum, int8_whole, int8_half};
}

/* One panel of `columns` outputs, in the kernels' own layout. */
static void int8_product(const plsh_int8_kernels *kernels, int type, const uint8_t *rows,
                         size_t row_bytes, const plsh_int8_rows *x, int columns, float *y) {
    static float panel[WIDTH_MOST * IN / 4], scale[WIDTH_MOST * IN / 16];
    static float bytes[WIDTH_MOST * IN / 4], scales[WIDTH_MOST * IN / 16];
    static float offset[WIDTH_MOST * IN / 16], offsets[WIDTH_MOST * IN / 16];
    const int width = kernels->plain->width, groups = IN / 32;
    for (int first = 0; first < columns; first += width) {
        const int some = columns - first < width ? columns - first : width;
        for (int r = 0; r < some; r++)
            kernels->unpack[type](rows + (size_t)(first + r) * row_bytes,
                                  (uint8_t *)(bytes + r * IN / 4), scales + r * 2 * groups,
                                  offsets + r * 2 * groups, IN);
        kernels->plain->transpose(panel, bytes, IN / 4, some, IN / 4);
        kernels->plain->transpose(scale, scales, 2 * groups, some, 2 * groups);
        kernels->plain->transpose(offset, offsets, 2 * groups, some, 2 * groups);
        const plsh_int8_product p = {.x = *x,
                                     .rows = ROWS,
                                     .depth = IN,
                                     .panel = (const uint8_t *)panel,
                                     .scale = scale,
                                     .offset = offset,
                                     .columns = some,
                                     .y = y + first,
                                     .y_stride = columns};
        kernels->multiply[type](&p);
    }
}

static void check_int8(int type) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    const size_t row_bytes = (size_t)(IN / kind->block) * (size_t)kind->bytes;
    static uint8_t bytes[WIDTH_MOST * IN * 2];
    static float y[ROWS * WIDTH_MOST], z[ROWS * WIDTH_MOST];
    fill_blocks(type, bytes, WIDTH_MOST * row_bytes);
    const plsh_int8_rows x = int8_rows();
    for (int columns = 1; columns <= tested_int8->plain->width; columns += 5) {
        int8_product(tested_int8, type, bytes, row_bytes, &x, columns, y);
        int8_product(&plsh_int8_reference, type, bytes, row_bytes, &x, columns, z);
        compare("int8 multiply", type, y, z, ROWS * columns, 0.0);
    }
    plsh_int8_dot dot = {.weight = bytes,
                         .row_bytes = row_bytes,
                         .outs = OUTS,
                         .x = x,
                         .rows = 3,
                         .y = y,
                         .y_stride = OUTS};
    tested_int8->dot[type](&dot);
    dot.y = z;
    plsh_int8_reference.dot[type](&dot);
    compare("int8 dot", type, y, z, 3 * OUTS, 0.0);
}

int main(void) {
    for (int type = 0; type < PLSH_WEIGHT_COMPUTED; type++) check_type(type);
    for (int type = PLSH_WEIGHT_Q8_0; type < PLSH_WEIGHT_COMPUTED; type++) check_int8(type);
    for (int columns = 1; columns <= tested->width; columns++) {
        check_multiply(false, columns);
        check_multiply(true, columns);
    }
    printf("%s: %d failures\n", tested->name, failures);
    return failures != 0;
}
