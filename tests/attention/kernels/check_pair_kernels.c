/* tests: the kernels of pairs of bfloat16 of one instruction set (PLSH_ISA, or the best): to the
 * bit against plain C, and against double. Exit 0, 1 for a failure, 77 where there are none. */
#include "attention/kernels/check.h"
#include "base/dtype.h"
#include "linear/kernels/bfloat_plain.h"

/* Which numbers a case has. */
typedef enum numbers {
    NORMAL, /* of the normal distribution */
    TINY,   /* from 2^-140 to 2^-46: many count as 0, and so do sums */
    SPOILT  /* normal, but for a NaN and an Inf */
} numbers;

typedef struct pair_case {
    int d, keys, rows; /* rows: of queries, 1 .. group */
    ptrdiff_t stride;  /* of keys; that of queries is one more */
    float factor;
    numbers numbers;
    bool with_bias, masked, from_start;
} pair_case;

static uint16_t draw_number(numbers of) {
    const float x = normal();
    return plsh_float_to_bfloat(of == TINY ? x * (float)ldexp(1, (int)(47 * uniform()) - 93) : x);
}

/* Rows of d numbers in an array that ends, or begins, at a page that may not be touched. */
static guarded make_rows(const pair_case *c, int rows, ptrdiff_t stride) {
    const size_t count = (size_t)((rows - 1) * stride + c->d);
    guarded g = guard(count * sizeof(uint16_t), c->from_start);
    uint16_t *at = g.at_end;
    for (size_t i = 0; i < count; i++) at[i] = draw_number(c->numbers);
    if (c->numbers == SPOILT) at[count / 2] = 0x7fc0, at[count - 1] = 0x7f80;
    return g;
}

static void check_packed(const pair_case *c, const float *packed, const uint16_t *q) {
    for (int i = 0; i < c->d * tested.group; i++) {
        const int x = i / 2 / tested.group * 2 + i % 2, r = i / 2 % tested.group;
        const uint16_t want = r < c->rows ? q[r * (c->stride + 1) + x] : 0;
        uint16_t got;
        memcpy(&got, (const char *)packed + (size_t)i * sizeof got, sizeof got);
        CHECK(got == want, "d %d row %d of %d, column %d: %x", c->d, r, c->rows, x, got);
    }
}

/* The score of a query and a key without bias as score_pairs defines it, and in double; *plain is
 * the score of a plain loop in float32. */
static float score_of(const pair_case *c, const uint16_t *q, const uint16_t *k, double *exact,
                      float *plain) {
    float sum = 0.0f;
    *exact = 0.0, *plain = 0.0f;
    for (int x = 0; x < c->d; x += 2) {
        for (int i = 1; i >= 0; i--) {
            const float a = plsh_bfloat_to_float(q[x + i]), b = plsh_bfloat_to_float(k[x + i]);
            sum = add_product(sum, normal_or_zero(a), normal_or_zero(b));
        }
    }
    for (int x = 0; x < c->d; x++) {
        const float a = plsh_bfloat_to_float(q[x]), b = plsh_bfloat_to_float(k[x]);
        *exact += (double)a * (double)b * (double)c->factor;
        *plain += c->factor * a * b;
    }
    return sum;
}

static bool same(float a, float b) { return a == b || (a != a && b != b); }

static void check_score(const pair_case *c, guarded q, guarded k, const float *bias, const float *s,
                        const float *top) {
    double error = 0.0, plain_error = 0.0, largest = 0.0;
    for (int r = 0; r < c->rows; r++) {
        float most = -INFINITY;
        for (int j = 0; j < c->keys; j++) {
            double exact;
            float plain, b = c->with_bias ? bias[r - j] : 0.0f, got = s[j * tested.group + r];
            const float sum = score_of(c, (const uint16_t *)q.at_end + r * (c->stride + 1),
                                       (const uint16_t *)k.at_end + j * c->stride, &exact, &plain);
            const float want = b == -INFINITY ? b
                               : c->with_bias ? __builtin_fmaf(c->factor, sum, b)
                                              : c->factor * sum;
            CHECK(same(got, want), "d %d keys %d rows %d, key %d row %d: %a, not %a", c->d, c->keys,
                  c->rows, j, r, (double)got, (double)want);
            if (got > most) most = got;
            if (!isfinite(want)) continue;
            largest = fmax(largest, fabs(exact + (double)b));
            error = fmax(error, fabs((double)got - (exact + (double)b)));
            plain_error = fmax(plain_error, fabs((double)(plain + b) - (exact + (double)b)));
        }
        CHECK(c->numbers == SPOILT || top[r] == most, "d %d keys %d row %d: top %g, not %g", c->d,
              c->keys, r, (double)top[r], (double)most);
    }
    CHECK(c->numbers == TINY || error <= allowed(plain_error, largest),
          "d %d keys %d: error %g, plain %g", c->d, c->keys, error, plain_error);
}

static void check_case(const pair_case *c) {
    const int group = tested.group;
    const size_t bias_count = (size_t)(group + c->keys - 1);
    guarded q = make_rows(c, c->rows, c->stride + 1), k = make_rows(c, c->keys, c->stride);
    guarded packed = guard(sizeof(float) * (size_t)(c->d / 2 * group), false);
    guarded bias = guard(sizeof(float) * bias_count, !c->from_start);
    guarded s = guard(sizeof(float) * (size_t)(c->keys * group), false);
    float top[PLSH_GROUP_MAX], *b = bias.at_end;
    for (size_t i = 0; i < bias_count; i++)
        b[i] = c->masked && i % 3 == 0 ? -INFINITY : -fabsf(normal());
    b += c->keys - 1;
    tested.pairs->pack(packed.at_end,
                       (plsh_stored_rows){q.at_end, PLSH_DTYPE_BFLOAT16, c->stride + 1}, c->rows,
                       c->d);
    check_packed(c, packed.at_end, q.at_end);
    tested.pairs->scores(s.at_end, top, (plsh_packed_rows){packed.at_end, c->rows},
                         (plsh_pair_rows){k.at_end, c->stride, c->keys, c->d}, c->factor,
                         (plsh_score_bias){c->with_bias ? b : NULL, c->masked});
    check_score(c, q, k, b, s.at_end, top);
    unguard(q);
    unguard(k);
    unguard(packed);
    unguard(bias);
    unguard(s);
}

static void check_all(void) {
    static const int keys[] = {1, 2, 3, 7, 8, 9, 15, 16, 33}, rows[] = {1, 16, 17, 33, 47, 48};
    if (!tested.pairs) {
        printf("skipped: no pairs\n");
        exit(77);
    }
    for (int i = 0; i < SIZES; i++) {
        for (int j = 0; j < 9; j++) {
            const int d = sizes[i] + sizes[i] % 2, n = i * 9 + j;
            check_case(&(pair_case){.d = d,
                                    .keys = keys[j],
                                    .rows = rows[n % 6],
                                    .stride = d + n % 4,
                                    .factor = n % 5 ? 0.18033688f : 1e-3f,
                                    .numbers = n % 7 == 3   ? TINY
                                               : n % 7 == 5 ? SPOILT
                                                            : NORMAL,
                                    .with_bias = n % 2 == 0,
                                    .masked = n % 4 == 0,
                                    .from_start = n % 3 == 0});
        }
    }
}

int main(void) { return check_main(check_all); }
