/* attention: the kernels, one table of them per instruction set.
 *
 * Queries sit in the lanes. A group is `group` queries of one head, a constant of the table. Its
 * scores are computed transposed, S[key][query], so that everything a softmax does is lane-wise:
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
 *     key_gradient dV += P dO,  dK += dS Q     rows of keys
 *     correlate   sum of dS times d log k(t)  for the gradient of a decay
 *
 * S and the bias are in units of log2: 2^S is the weight. Views of the user's arrays
 * (plsh_stored_rows, plsh_key_rows, matrices) need only the alignment of their elements, and
 * nothing beyond the last element is touched. All other arrays are the engine's own: 64-byte
 * aligned, [group] per query, [keys][group] per pair (s, p, dp, ds), rows of
 * plsh_kernels_columns(dv) floats for O. Small structs go by value: the compiler then keeps their
 * fields in registers.
 *
 * Rows of 16 bits are widened once for a step of a tile. That costs next to nothing: dense in
 * bfloat16 takes 1.01 of float32's time at d = 64 and 0.96 at d = 128 (AVX-512; n = 2048, causal,
 * one thread), exact 1.04 and 0.97; on AVX2 dense takes 0.95 and 0.82.
 *
 * Where AMD's AVX-512 BF16 is, the scores of bfloat16 q and k are sums of products of pairs
 * (plsh_pair_kernels), in 0.47 to 0.53 of float32's time for 48 queries and 128 keys (Zen 5, one
 * thread, d = 64 and 128), dense in 0.78 and 0.77. All other products stay in float32. P V has to
 * split P into two parts of bfloat16 to be as exact as float32, which leaves as many
 * multiplications: 0.99 of float32's time. Decoding has q as float32, and three parts would be
 * needed. On Intel these products are no faster than float32's. */
#ifndef PLSH_ATTENTION_KERNELS_H
#define PLSH_ATTENTION_KERNELS_H

#include "attention/kernels/decode.h"
#include "base/dtype.h"
#include "base/matrix.h"
#include "plsh/attention.h"

enum { PLSH_GROUP_MAX = 48 }; /* the largest group of any table */

/* The m of a row that has seen no key: below every finite score, and not -inf, so that
 * s - m is -inf and not NaN for a masked key. */
#define PLSH_SOFTMAX_START (-3.40282347e+38f)

/* ---- Operands ------------------------------------------------------------------------------- */

/* Rows of the user's element type: element x of row r is number r * stride + x of `data`. */
typedef struct plsh_stored_rows {
    const void *data;
    plsh_dtype dtype;
    ptrdiff_t stride;
} plsh_stored_rows;

/* The K rows or V rows of some keys: key j is row[j * stride .. + dim), j < count. */
typedef struct plsh_key_rows {
    const float *row;
    ptrdiff_t stride;
    int count, dim;
} plsh_key_rows;

/* A packed group, [d][group]. The first `rows` rows are in use, all if that is 0. Of the others a
 * kernel may compute nothing: their scores are 0 then. */
typedef struct plsh_packed_rows {
    const float *at;
    int rows;
} plsh_packed_rows;

/* The bfloat16 K rows of some keys, each an even number of elements: key j is row[j * stride .. +
 * dim). */
typedef struct plsh_pair_rows {
    const uint16_t *row;
    ptrdiff_t stride;
    int count, dim;
} plsh_pair_rows;

/* What is added to the score of query r and key j: at[r - j], log2 of the decay of their distance.
 * at = NULL adds nothing; otherwise at[1 - keys .. group - 1] is read. */
typedef struct plsh_score_bias {
    const float *at;
    bool masks; /* some entries are -inf: their scores are -inf whatever q and k hold, NaN included
                 */
} plsh_score_bias;

/* Points of a group of queries and of some keys. Where a coordinate is NaN there is no position. */
typedef struct plsh_points {
    const float *x; /* [dim][group] */
    const float *y; /* key j is y[j * dim .. + dim) */
    int dim;        /* 1 to 3 */
} plsh_points;

/* Weights of pairs: w[row[j] * group + r] >= 0 for query r and key j. Keys may share a row. */
typedef struct plsh_pair_weights {
    const float *w;
    const int32_t *row;
} plsh_pair_weights;

/* The running softmax of a group, [group] each. Start with m = PLSH_SOFTMAX_START, l = l_low = 0.
 */
typedef struct plsh_softmax_state {
    float *m;     /* the largest score so far */
    float *l;     /* the sum of w 2^(score - m) */
    float *l_low; /* what l lacks after rounding */
    float *alpha; /* output of a step: 2^(old m - new m), the factor of sums under the old m */
    int rows;     /* in use, all if 0; a kernel may leave the others as they are */
} plsh_softmax_state;

/* Sums over keys: o[r * plsh_kernels_columns(dv) + c] = alpha[r] o + ..., for r < rows. A kernel
 * may compute the rows up to the end of the group, too. */
typedef struct plsh_accumulator {
    float *o;
    const float *alpha;
    int rows;
} plsh_accumulator;

/* How `gradient` computes P from s. */
typedef enum plsh_weigh {
    PLSH_WEIGH_PLAIN,  /* P = 2^(s - lse - low) */
    PLSH_WEIGH_MASKED, /* P = w 2^(s - lse - low), 0 where w is 0 */
    PLSH_WEIGH_READY   /* P = s lse: s is 2^(score - m) already, and lse holds 2^(m - lse) */
} plsh_weigh;

/* The constants of a group's rows in `gradient`, [group] each, and the sums of its dS. */
typedef struct plsh_gradient_rows {
    const float *lse, *low; /* low: what lse lacks after rounding */
    const float *delta;     /* dO . O */
    float *sum;             /* sum[r] += the dS of row r */
    int rows;               /* in use, all if 0; s and dp of the others are 0, and may stay so */
} plsh_gradient_rows;

/* Boxes around pieces of K - mean, see `box`. */
typedef struct plsh_piece_boxes {
    const float *box;           /* [count][2 d]: centre, then half width */
    const float *norm, *radius; /* [count]: the largest |k - mean|, and |k - mean - centre| */
    const float *bias;          /* [count]: log2 of the sum of the decay over the piece */
    int count, d;
} plsh_piece_boxes;

/* Queries whose scores are bounded. */
typedef struct plsh_bounded_queries {
    const float *packed; /* [d][group] */
    const float *norm;   /* [group]: |q| */
    const float *shift;  /* [group]: what the bounds are relative to, in log2 */
} plsh_bounded_queries;

/* Rows of the user's arrays that the next tile reads. Prefetching all of them at once would fill
 * the queue to memory, so accumulate prefetches a few with each of its blocks. Row i of them is row
 * i / arrays of array i % arrays. */
enum { PLSH_PREFETCH_ARRAYS = 4 }; /* q, k, v, o */
typedef struct plsh_prefetch {
    struct {
        const char *first;
        ptrdiff_t stride, bytes;
    } array[PLSH_PREFETCH_ARRAYS];
    int next, end;
} plsh_prefetch;

/* accumulate sums this many keys from zero, then adds the sum to O: adding key by key to a long sum
 * may lose n / 2 ulps over n like terms. 64 costs nothing, 32 costs 2 %. */
enum { PLSH_SUM_KEYS = 64 };

/* ---- The table ------------------------------------------------------------------------------ */

/* Scores of bfloat16 queries and keys. Rows have an even number of elements; two of them, a pair,
 * are a word of 32 bits. */
typedef struct plsh_pair_kernels {
    /* to[x * group + r] = pair x of row r, r < rows; zero for rows <= r < group. */
    void (*pack)(float *to, plsh_stored_rows from, int rows, int d);

    /* As `scores` below, with factor q.k in place of q.k. The products of pair i are exact; they
     * are added by fl(q_2i k_2i + fl(q_2i+1 k_2i+1 + sum)), in order, in which numbers below 2^-126
     * are 0 before and after each step. */
    void (*scores)(float *s, float *top, plsh_packed_rows q, plsh_pair_rows k, float factor,
                   plsh_score_bias bias);
} plsh_pair_kernels;

typedef struct plsh_kernels {
    const char *name;
    int group;                      /* queries per group, a multiple of the lanes */
    const plsh_pair_kernels *pairs; /* NULL: the processor has no instructions for pairs, or they
                                     * are not faster */

    /* to[x * group + r] = factor * element x of row r, r < rows; zero for rows <= r < group. */
    void (*pack)(float *to, plsh_stored_rows from, int rows, int d, float factor);

    /* Row r of `to` = row r of `from` as float32, r < rows, d elements each. */
    void (*widen)(plsh_matrix to, plsh_stored_rows from, int rows, int d);

    /* s[j * group + r] = sum_x q[x][r] k_j[x] + the bias; top[r] = max over j (-inf for no
     * keys). */
    void (*scores)(float *s, float *top, plsh_packed_rows q, plsh_key_rows k, plsh_score_bias bias);

    /* t[j * group + r] = |x_r - y_j|, j < keys; 0 where one of the two has no position. */
    void (*distances)(float *t, plsh_points points, int keys);

    /* s[j * group + r] -= slope |x_r - y_j|, by the same distances; top[r] = max over j. */
    void (*recede)(float *s, float *top, plsh_points points, int keys, float slope);

    /* m' = max(m, top), alpha = 2^(m - m'), s = 2^(s - m'), l' = alpha l + sum of s. A key with
     * s = -inf has weight 0 exactly, and no weight is a denormal. */
    void (*softmax)(float *s, int keys, const float *top, plsh_softmax_state state);

    /* The same with weights: s = w 2^(s - m'). The score of a key of weight 0 is still in top: it
     * may make the others underflow, and a NaN in it spreads. */
    void (*softmax_weighted)(float *s, int keys, const float *top, plsh_pair_weights weights,
                             plsh_softmax_state state);

    /* Excludes the keys of weight 0: their s becomes -inf, and top the maximum of the rest. */
    void (*mask)(float *s, int keys, float *top, plsh_pair_weights weights);

    /* o = alpha o + sum_j p[j * group + r] v_j, PLSH_SUM_KEYS at a time. ragged: p is likely to be
     * 0 for some rows and the first or last keys, so it is worth searching for such keys.
     * prefetch may be NULL. */
    void (*accumulate)(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                       plsh_prefetch *prefetch);

    /* The same, but a key with p = 0 adds nothing even if its v is NaN or Inf: for partly masked
     * tiles whose v is not finite. */
    void (*accumulate_masked)(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                              plsh_prefetch *prefetch);

    /* out[r][c] = o[r * columns + c] / l[r], or 0 for a row that saw no key (l = 0). */
    void (*finish)(plsh_matrix out, const float *o, const float *l, int rows, int dv);

    /* Are the first d elements of the rows r < rows finite? */
    bool (*all_finite)(plsh_stored_rows from, int rows, int d);

    /* The box of the rows of K - mean: box[x] its centre, box[d + x] its half width, in which
     * every fl(k_r[x] - mean[x]) lies; square[0] the largest |k_r - mean|^2, square[1] the largest
     * squared distance from the centre. NaN anywhere makes both NaN. */
    void (*box)(float *box, float square[2], plsh_key_rows k, const float *mean);

    /* Upper bounds of the weights of the keys in boxes:
     *     e[t * group + r] = 2^(u + bias[t] - shift[r]), cut off at 2^100,
     *     u = min(q_r.centre + min(|q_r|.width, |q_r| radius[t]), |q_r| norm[t])
     * u is rounded up. NaN anywhere gives NaN. */
    void (*bounds)(float *e, plsh_piece_boxes boxes, plsh_bounded_queries queries);

    /* Repeats the softmax and takes its gradient: P in place of s, and dp = P (dp - delta) = dS, 0
     * where P is 0, as it is below 2^-100. dp may be NULL: then only P is computed. */
    void (*gradient)(float *s, float *dp, int keys, plsh_weigh how, plsh_pair_weights weights,
                     plsh_gradient_rows rows);

    /* to[r] = sum_x a[x * group + r] b[x * group + r], x < d: delta, from packed dO and O. */
    void (*dots)(float *to, const float *a, const float *b, int d);

    /* out[j][c] += sum_q A[j][q] b[q][c], j < keys, q < queries, c < d. Row i of `a` has group i:
     * A[j][q] = a.data[(q / group) * a.stride + j * group + q % group]. */
    void (*key_gradient)(plsh_matrix out, plsh_const_matrix a, plsh_const_matrix b, int keys,
                         int queries, int d);

    /* sum over j < keys and the group's r of ds[j * group + r] table[r - j]. */
    double (*correlate)(const float *ds, const float *table, int keys);

    /* Decoding: adds the keys of a page to (m, l, o) of `count` rows. A key whose weight in s is
     * -inf counts for nothing, whatever q and k hold. By storage: index it with the plsh_dtype. */
    void (*attend[3])(plsh_decode_row *const *rows, int count, plsh_decode_page page);

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

extern const plsh_pair_kernels plsh_pairs_bf16;
extern const plsh_pair_kernels plsh_pairs_wide; /* emulated, in the tests' build only */
extern const plsh_kernels plsh_kernels_reference;
extern const plsh_kernels plsh_kernels_avx2, plsh_kernels_avx512, plsh_kernels_bf16;
extern const plsh_kernels plsh_kernels_wide; /* in the tests' build only */
extern const plsh_kernels plsh_kernels_neon;
extern const plsh_kernels plsh_kernels_wasm;

#endif
