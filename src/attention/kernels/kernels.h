/* attention: the kernels, one table of them per instruction set.
 *
 * Queries sit in the lanes. A group is `group` queries of one head; its scores are computed
 * transposed, S[key][query], so that everything a softmax does is lane-wise:
 *
 *     pack        Q rows                      -> packed [d][group], times a factor
 *     scores      packed, K rows, bias        -> S [keys][group], its maximum per query
 *     softmax     S, running (m, l)           -> P = w 2^(S - m) in place, new m, l, and alpha
 *     accumulate  O = alpha O + P^T V         O [group][columns]
 *     finish      O, l                        -> output rows
 *
 * and backward, where S and dP = V dO^T are scores, dQ += dS K is accumulate:
 *
 *     dots        dO, O, both packed          -> delta
 *     gradient    S, dP, lse, delta           -> P, dS in place
 *     spread      dV += P dO,  dK += dS Q     rows of keys
 *     correlate   sum of dS times d log k(t)  for the gradient of a decay
 *
 * S and the bias are in units of log2: 2^S is the weight. Pointers into the user's arrays (from,
 * k, v, out) need only the alignment of their elements, and nothing beyond the last element is
 * touched. packed, s, p, o, m, l, alpha, top are the engine's own: 64-byte aligned, rows of
 * `group` floats, those of O of plsh_kernels_columns(dv).
 *
 * Every tile function takes the group of its table first; the reference works for any, so that
 * the tests can hold the others against it. */
#ifndef PLSH_ATTENTION_KERNELS_H
#define PLSH_ATTENTION_KERNELS_H

#include "attention/kernels/decode.h"
#include "base/dtype.h"
#include "plsh/attention.h"

enum { PLSH_GROUP_MAX = 48 }; /* the largest group of any table */

/* The m of a row that has seen no key: below every finite score, and not -inf, so that
 * s - m is -inf and not NaN for a masked key. */
#define PLSH_SOFTMAX_START (-3.40282347e+38f)

/* What `gradient` makes P of. */
typedef enum plsh_weigh {
    PLSH_WEIGH_PLAIN,  /* 2^(s - lse - low), low being what lse lacks to be exact */
    PLSH_WEIGH_MASKED, /* w 2^(s - lse - low), 0 where w is 0; rows of w as softmax_weighted's */
    PLSH_WEIGH_READY   /* s lse: s has been through the softmax, and lse is the rest */
} plsh_weigh;

/* Rows of the user's arrays that will be wanted soon. All at once they would only fill the queue to
 * memory; accumulate asks for a few with each of its blocks. Row i of them is row i / arrays of
 * array i % arrays. */
enum { PLSH_AHEAD_ARRAYS = 4 }; /* q, k, v, o */
typedef struct plsh_ahead {
    struct {
        const char *first;
        ptrdiff_t stride, bytes;
    } array[PLSH_AHEAD_ARRAYS];
    int next, end;
} plsh_ahead;

/* Keys that accumulate sums from zero, and adds at once: a key must not be rounded to the digits of
 * all keys before. Of n like terms, one by one, n / 2 ulps may be lost. 64 cost nothing, 32 cost
 * 2 %. */
enum { PLSH_SUM_KEYS = 64 };

typedef struct plsh_kernels {
    const char *name;
    int group; /* queries per group, a multiple of the lanes */

    /* to[x * group + r] = factor * from[r * stride + x], r < rows; zero for rows <= r < group. */
    void (*pack)(int group, float *to, const void *from, plsh_dtype dtype, ptrdiff_t stride,
                 int rows, int d, float factor);

    /* to[r * to_stride + x] = from[r * stride + x] as float32. */
    void (*widen)(int group, float *to, ptrdiff_t to_stride, const void *from, plsh_dtype dtype,
                  ptrdiff_t stride, int rows, int d);

    /* s[j * group + r] = sum_x packed[x][r] k[j * stride + x] + bias[r - j], j < keys;
     * top[r] = max over j (-inf for no keys). bias may be NULL for zeros; otherwise
     * bias[1 - keys .. group - 1] is read. masked: where the bias is -inf, s is -inf whatever
     * q and k hold, NaN included. */
    void (*scores)(int group, float *s, float *top, const float *packed, const float *k,
                   ptrdiff_t stride, int keys, int d, const float *bias, bool masked);

    /* m' = max(m, top), alpha = 2^(m - m'), s = 2^(s - m'), l' = alpha l + sum of s; l_low is what
     * l lacks after rounding. Start with m = PLSH_SOFTMAX_START, l = l_low = 0. A key with s = -inf
     * has weight 0 exactly, and no weight is a denormal. */
    void (*softmax)(int group, float *s, const float *top, float *m, float *l, float *l_low,
                    float *alpha, int keys);

    /* The same with weights: s = w 2^(s - m'). The weights of key j are w[row[j] * group + r] >= 0;
     * one of weight 0 is still in top, so its score may hide the others', and its NaN is one. */
    void (*softmax_weighted)(int group, float *s, const float *top, const float *w,
                             const int32_t *row, float *m, float *l, float *l_low, float *alpha,
                             int keys);

    /* Keys of weight 0 count for nothing: their s becomes -inf, and top the maximum of the rest. */
    void (*mask)(int group, float *s, float *top, const float *w, const int32_t *row, int keys);

    /* o[r * columns + c] = alpha[r] o + sum_j p[j * group + r] v[j * stride + c], c < dv, for
     * r < rows at least and all of the group at most, PLSH_SUM_KEYS at a time. ragged: p is likely
     * to be 0 for some rows and the first or last keys, which is then looked for. ahead may be
     * NULL. */
    void (*accumulate)(int group, float *o, const float *alpha, const float *p, const float *v,
                       ptrdiff_t stride, int keys, int dv, int rows, bool ragged,
                       plsh_ahead *ahead);

    /* The same where p = 0 takes nothing from v, not even NaN: for tiles that are partly masked
     * and whose v is not finite. */
    void (*accumulate_masked)(int group, float *o, const float *alpha, const float *p,
                              const float *v, ptrdiff_t stride, int keys, int dv, int rows,
                              bool ragged, plsh_ahead *ahead);

    /* out[r * stride + c] = o[r * columns + c] / l[r], or 0 for a row that saw nothing (l = 0). */
    void (*finish)(int group, float *out, ptrdiff_t stride, const float *o, const float *l,
                   int rows, int dv);

    /* Is from[r * stride + x] finite for all r < rows, x < d? */
    bool (*all_finite)(int group, const void *from, plsh_dtype dtype, ptrdiff_t stride, int rows,
                       int d);

    /* The box of some rows of K - mean: box[x] its centre, box[d + x] its half width, in which
     * every fl(k[r * stride + x] - mean[x]) lies; square[0] the largest |k_r - mean|^2, square[1]
     * the largest squared distance from the centre. NaN anywhere makes both NaN. */
    void (*box)(int group, float *box, float square[2], const float *k, ptrdiff_t stride,
                const float *mean, int rows, int d);

    /* The softmax again, and its gradient: P of `weigh` in place of s, and dp = P (dp - delta) =
     * dS, 0 where P is 0, as it is below 2^-100; sum[r] += the dS of row r. dp may be NULL for
     * none. */
    void (*gradient)(int group, float *s, float *dp, const float *w, const int32_t *row,
                     plsh_weigh weigh, const float *lse, const float *low, const float *delta,
                     float *sum, int keys);

    /* to[r] = sum_x a[x * group + r] b[x * group + r], x < d: delta, from packed dO and O. */
    void (*dots)(int group, float *to, const float *a, const float *b, int d);

    /* out[j * out_stride + c] += sum_q A[j][q] b[q * b_stride + c], j < keys, q < queries, c < d,
     * where A[j][q] = a[(q / group) * a_stride + j * group + q % group]: the groups one after the
     * other. out and b are the user's. */
    void (*spread)(int group, float *out, ptrdiff_t out_stride, const float *a, ptrdiff_t a_stride,
                   const float *b, ptrdiff_t b_stride, int keys, int queries, int d);

    /* sum over j < keys and the group's r of ds[j * group + r] table[r - j]. */
    double (*correlate)(int group, const float *ds, const float *table, int keys);

    /* What the keys of some boxes weigh at most, box after box from `boxes`, [tiles][2 d]:
     *     e[t * group + r] = 2^(u + bias[t] - shift[r]), cut off at 2^100,
     *     u = min(q_r.centre + min(|q_r|.width, q_norm[r] radius[t]), q_norm[r] k_norm[t])
     * u is rounded up. NaN anywhere gives NaN. */
    void (*bounds)(int group, float *e, const float *packed, const float *boxes,
                   const float *k_norm, const float *radius, const float *bias, const float *q_norm,
                   const float *shift, int tiles, int d);

    /* Decoding: adds keys (1..PLSH_DECODE_KEYS) keys to every row's (m, l, o). A key whose weight
     * in s is -inf counts for nothing, whatever q and k hold. By storage: index it with the
     * plsh_dtype. */
    void (*attend[3])(plsh_decode_row *const *rows, int count, const void *k, const void *v,
                      int keys, int d, int dv);

    /* to[0..count) = from, rounded to nearest even; see plsh_kernels_narrow. */
    void (*narrow_half)(uint16_t *to, const float *from, int64_t count);

    /* first[j], second[j] = the words number `index` of the stream {seed, key[j] % 2^32, key[j] /
     * 2^32} (base/random.h), j < keys. The arrays have room for a multiple of 8. */
    void (*draw)(uint64_t *first, uint64_t *second, uint64_t seed, uint64_t index,
                 const uint64_t *key, int keys);
} plsh_kernels;

/* Floats from one row of O to the next: dv rounded up to the widest vector. */
static inline int plsh_kernels_columns(int dv) { return (dv + 15) & ~15; }

/* to[0..count) = from as float32, float16 or bfloat16, rounded to nearest even. */
static inline void plsh_kernels_narrow(const plsh_kernels *kernels, plsh_dtype dtype, void *to,
                                       const float *from, int64_t count) {
    if (dtype == PLSH_DTYPE_FLOAT16)
        kernels->narrow_half(to, from, count);
    else
        for (int64_t x = 0; x < count; x++) plsh_dtype_store(dtype, to, x, from[x]);
}

/* *out = the table of the instruction set that plsh_cpu_choose takes for this name. */
plsh_status plsh_kernels_choose(const plsh_kernels **out, const char *name, plsh_error *error);

#endif
