/* tests: the decode kernels of one instruction set (PLSH_ISA, or the best) against double. */
#include "attention/kernels/check.h"

#include "base/dtype.h"

enum { MOST_ROWS = 18, MOST_DIM = 512 };

static size_t element(plsh_dtype dtype) { return dtype == PLSH_DTYPE_FLOAT32 ? 4 : 2; }

/* Rows of normal numbers of a type, the first `dim` of each `padded`; their exact values go to
 * `exact`. */
static void fill_rows(void *to, plsh_dtype dtype, int rows, int dim, int padded, double *exact) {
    for (int i = 0; i < rows * padded; i++) {
        float x = i % padded < dim ? normal() : 0.0f;
        uint16_t half =
            dtype == PLSH_DTYPE_FLOAT16 ? plsh_float_to_half(x) : plsh_float_to_bfloat(x);
        if (dtype == PLSH_DTYPE_FLOAT32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = half;
        exact[i] = dtype == PLSH_DTYPE_FLOAT32   ? (double)x
                   : dtype == PLSH_DTYPE_FLOAT16 ? (double)plsh_half_to_float(half)
                                                 : (double)plsh_bfloat_to_float(half);
    }
}

/* sum and o of one row in double, with the weights `bias`, for scores of size `magnitude`. */
static void expect(const float *q, const double *k, const double *v, const float *bias, int keys,
                   int d, int dv, double *l, double *o) {
    for (int j = 0; j < keys; j++) {
        double score = (double)bias[j];
        if (bias[j] == -INFINITY) continue;
        for (int x = 0; x < d; x++) score += (double)q[x] * k[j * d + x];
        double p = exp2(score);
        *l += p;
        for (int c = 0; c < dv; c++) o[c] += p * v[j * dv + c];
    }
}

/* Two calls one after the other, so that the second has sums to rescale. */
static void check_attend_of(plsh_dtype dtype, int rows, int keys, int dim, int value_dim) {
    int d = (int)plsh_decode_columns(dim), dv = (int)plsh_decode_columns(value_dim);
    guarded kg = guard((size_t)(keys * d) * element(dtype), false);
    guarded vg = guard((size_t)(keys * dv) * element(dtype), false);
    double *k = malloc((size_t)(keys * d) * sizeof *k),
           *v = malloc((size_t)(keys * dv) * sizeof *v);
    float *q = calloc((size_t)(rows * d), 4), *o = calloc((size_t)(rows * dv), 4);
    double *want = calloc((size_t)(rows * dv), sizeof *want), l[MOST_ROWS] = {0};
    static float s[MOST_ROWS][PLSH_DECODE_KEYS], bias[PLSH_DECODE_KEYS];
    plsh_decode_row row[MOST_ROWS], *list[MOST_ROWS];
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < dim; x++) q[r * d + x] = normal() * 0.5f;
        row[r] =
            (plsh_decode_row){.q = q + r * d, .s = s[r], .o = o + r * dv, .m = PLSH_SOFTMAX_START};
        list[rows - 1 - r] = &row[r]; /* in any order */
    }
    for (int call = 0; call < 2; call++) {
        fill_rows(kg.at_end, dtype, keys, dim, d, k);
        fill_rows(vg.at_end, dtype, keys, value_dim, dv, v);
        for (int r = 0; r < rows; r++) {
            for (int j = 0; j < keys; j++)
                bias[j] = j % 5 == 3 ? -INFINITY : -fabsf(normal()) + (float)(20 * call);
            memcpy(s[r], bias, sizeof bias);
            expect(q + r * d, k, v, bias, keys, d, dv, &l[r], want + r * dv);
        }
        tested.attend[dtype](list, rows,
                             (plsh_decode_page){kg.at_end, vg.at_end, keys, d, dv, d, dv});
    }
    /* A score of d terms of size 1/2 and a bias up to 24: its rounding is a factor of the weight.
     */
    double slack = FLT_EPSILON * (24 + 0.5 * sqrt(dim) * 8) * 2;
    for (int r = 0; r < rows; r++) {
        double scale = exp2((double)row[r].m);
        CHECK(fabs((double)row[r].l * scale / l[r] - 1) <= slack,
              "dtype %d rows %d keys %d d %d: sum %g, not %g", (int)dtype, rows, keys, dim,
              (double)row[r].l * scale, l[r]);
        for (int c = 0; c < value_dim; c++) {
            double got = (double)o[r * dv + c] / (double)row[r].l, right = want[r * dv + c] / l[r];
            CHECK(fabs(got - right) <= slack * 4,
                  "dtype %d rows %d keys %d d %d dv %d: row %d column %d: %g, not %g", (int)dtype,
                  rows, keys, dim, value_dim, r, c, got, right);
        }
    }
    free(k), free(v), free(q), free(o), free(want);
    unguard(kg);
    unguard(vg);
}

static void check_attend(void) {
    static const int keys[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64};
    static const int dims[] = {1, 15, 16, 17, 32, 48, 64, 80, 96, 128, 144, 512};
    for (int dtype = 0; dtype < 3; dtype++) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            for (int rows = 1; rows <= MOST_ROWS; rows++)
                check_attend_of((plsh_dtype)dtype, rows, keys[i], 40, 24);
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
            for (int rows = 1; rows <= 7; rows++) {
                check_attend_of((plsh_dtype)dtype, rows, 64, dims[i], 16);
                check_attend_of((plsh_dtype)dtype, rows, 13, 16, dims[i]);
            }
    }
}

/* Keys of weight -inf do not change the result, also if they are not finite; a sum over no keys
 * stays 0. */
static void check_masked(void) {
    float k[16 * 3] = {NAN, INFINITY}, v[16 * 3], q[16] = {1, 1}, s[PLSH_DECODE_KEYS] = {0},
                 o[16] = {0};
    for (int i = 0; i < 48; i++) v[i] = (float)i;
    plsh_decode_row row = {.q = q, .s = s, .o = o, .m = PLSH_SOFTMAX_START}, *list = &row;
    s[0] = s[1] = s[2] = -INFINITY;
    tested.attend[0](&list, 1, (plsh_decode_page){k, v, 3, 16, 16, 16, 16});
    CHECK(row.l == 0 && row.m == PLSH_SOFTMAX_START && o[0] == 0, "%g %g", (double)row.l,
          (double)o[0]);
    s[0] = -INFINITY, s[1] = -INFINITY, s[2] = -2;
    tested.attend[0](&list, 1, (plsh_decode_page){k, v, 3, 16, 16, 16, 16});
    CHECK(row.l == 1 && row.m == -2 && o[1] == v[33], "%g %g", (double)row.l, (double)o[1]);
}

/* Halves are rounded to nearest even, everywhere alike. */
static void check_narrow(void) {
    static const float values[] = {
        0,      -0.0f,    1,        65504,      65519.9f,   65520,      1e10f,   INFINITY,
        -1e-8f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1.004p0f, 0x1.00cp0f, 6.1e-5f, 0x1.ffep-15f};
    uint16_t out[37];
    float in[37];
    for (int count = 1; count <= 37; count++) {
        for (int i = 0; i < count; i++) in[i] = i < 16 ? values[i] : normal();
        tested.narrow_half(out, in, count);
        for (int i = 0; i < count; i++)
            CHECK(out[i] == plsh_float_to_half(in[i]), "%g becomes %x", (double)in[i], out[i]);
    }
    in[0] = NAN;
    tested.narrow_half(out, in, 9);
    CHECK(isnan(plsh_half_to_float(out[0])), "NaN becomes %x", out[0]);
}

static void check_all(void) {
    check_attend();
    check_masked();
    check_narrow();
}

int main(void) { return check_main(check_all); }
