/* plsh/attention.h - attention with a positional decay, forward and backward.
 *
 *     o_i   = sum_j exp(s_ij - lse_i) v_j,     lse_i = log sum_j exp(s_ij)
 *     s_ij  = scale * q_i.k_j + log(weight_ij)
 *
 * where weight_ij is k(|p_i - j|) for the exact methods and M~ for the sampled
 * ones, p_i = i + keys - queries (the queries are the last positions), and a
 * causal head sees j <= p_i only.
 *
 * Simplest use, heads of ALiBi on [heads, n, dim] float arrays:
 *
 *     plsh_head head[8];
 *     plsh_heads_alibi(8, PLSH_METHOD_EXACT, head, NULL);
 *     plsh_attention attention = {.heads = 8, .queries = n, .keys = n, .head_dim = 64,
 *                                 .causal = true, .head = head, .head_count = 8};
 *     plsh_error error;
 *     if (plsh_attend(&attention, q, k, v, o, NULL, &error)) puts(error.message);
 *
 * For repeated calls: plsh_plan_create once, then plsh_plan_forward with a
 * workspace of plsh_plan_workspace bytes; it allocates nothing. A plan is
 * constant after creation: threads may share it, each with its own workspace. It
 * serves calls that are shorter, too (plsh_extent). The result is the same to the
 * bit for any number of threads. */
#ifndef PLSH_ATTENTION_H
#define PLSH_ATTENTION_H

#include "plsh/dtype.h"
#include "plsh/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_method {
    PLSH_METHOD_DENSE,  /* every pair, O(n^2): the baseline */
    PLSH_METHOD_EXACT,  /* walks outward and stops when the rest cannot matter: a
                         * relative weight of at most eps is left out */
    PLSH_METHOD_PLSH,   /* M~ of s partitions, every pair of their union scored once */
    PLSH_METHOD_MASKS,  /* the same numbers by the paper's algorithm, a pass per mask */
    PLSH_METHOD_MEAN,   /* mean of the s single-mask outputs: biased, for comparison */
    PLSH_METHOD_WINDOW, /* the decay cut off: |p_i - j| < window */
    PLSH_METHOD_FIXED,  /* no decay; floor(p_i / block) = floor(j / block) */
    PLSH_METHOD_NONE,   /* no decay */
    PLSH_METHOD_AUTO    /* the cheapest that meets eps; plsh_plan_head tells which */
} plsh_method;

/* What one head does. partition.decay is the decay of every method; the rest of
 * the partition matters to the sampled ones (plsh, masks, mean) alone. */
typedef struct plsh_head {
    plsh_method method;
    plsh_partition partition;
    double eps;     /* exact, auto: 0 means 2^-24, which is float-exact */
    int64_t window; /* window: > 0 */
    int64_t block;  /* fixed: > 0 */
} plsh_head;

/* Distances in elements between heads and between rows; a row's own elements are
 * adjacent. Both 0: [heads, rows, dim] without gaps. [rows, heads, dim] is
 * {dim, heads * dim}. */
typedef struct plsh_layout {
    int64_t head_stride, row_stride;
} plsh_layout;

/* Where a call's rows of a sequence lie in it, for calls that hold only a part of one: the
 * positions of the first query and of the first key. Positions count from the begin of the
 * sequence. */
typedef struct plsh_place {
    int64_t query, key;
} plsh_place;

typedef struct plsh_attention {
    int64_t heads;
    int64_t kv_heads;  /* divides heads, 0 = heads; head h reads h / (heads / kv_heads) */
    int64_t queries;   /* rows of q and o, summed over the sequences */
    int64_t keys;      /* rows of k and v; in each sequence at least as many as queries */
    int64_t head_dim;  /* 1..512 */
    int64_t value_dim; /* 1..512, 0 = head_dim */
    /* Packed sequences: sequence x has the rows offsets[x] .. offsets[x+1]-1. Both
     * arrays have sequences + 1 entries. sequences = 0: one sequence, no arrays. */
    int64_t sequences;
    const int64_t *query_offsets, *key_offsets;
    /* One per sequence (one in all where sequences = 0). NULL: keys begin at 0, queries are the
     * last positions. With places there may be more queries than keys, and they may lie beside them
     * (a row that sees no key has o = 0 and lse = -inf), but for fixed and sampled heads, whose
     * queries have to lie among their keys. Keys that are not there count as keys that do not
     * exist: hold those of plsh_attention_reach, and rows come out as in the whole sequence. */
    const plsh_place *places;
    bool causal;
    bool check_finite;  /* refuse NaN and Inf in q, k, v, d_o, naming the first one */
    double scale;       /* 0 = 1 / sqrt(head_dim) */
    plsh_dtype dtype;   /* of q, k, v: float32, float16 or bfloat16; the gradients are float32 */
    plsh_dtype o_dtype; /* of o in the forward pass: the same three; 0 is float32 */
    plsh_layout q, k, v, o;
    const plsh_head *head; /* head_count = 1 serves all heads, else heads entries */
    int64_t head_count;
    int threads;     /* 0 = all */
    const char *isa; /* NULL: the environment's PLSH_ISA, else the best there is */
} plsh_attention;

/* "dense", "exact", ...: the names of the methods in the order of the enum, NULL at the end; and
 * the method of a name. */
PLSH_API const char *const *plsh_method_names(void);
PLSH_API plsh_status plsh_method_find(const char *name, plsh_method *method, plsh_error *error);

/* A head under a decay that passed plsh_decay_check, with all that can be left open: integer
 * stratified partitions of 20 samples, seed 1, eps 2^-24, a window of 27 w (where ALiBi has faded
 * to 2e-12) and blocks of 2 w, both rounded up. w is sigma for ALiBi, otherwise the first distance
 * at which the decay has fallen to 1/e. */
PLSH_API plsh_head plsh_head_default(plsh_method method, const plsh_decay *decay);

/* heads[0..count): these defaults under the standard ALiBi slopes, partitions of head 0, 1, ... */
PLSH_API plsh_status plsh_heads_alibi(int64_t count, plsh_method method, plsh_head *heads,
                                      plsh_error *error);

/* ---- Parts of a sequence ---------------------------------------------------- */

/* Which keys can the queries at the positions queries.begin .. queries.end - 1 of a sequence of
 * `length` keys see? Known without looking at any data: the window's, the block's of `fixed`, the
 * union of all blocks of the sampled methods (a partition is a function of its seed), otherwise all
 * that causality leaves (also for auto, which is not resolved here, and for labels whose equal ones
 * are not adjacent). Queries 0 <= begin <= end <= length; none of them: an empty range. */
PLSH_API plsh_status plsh_head_reach(const plsh_head *head, bool causal, int64_t length,
                                     plsh_block queries, plsh_block *keys, plsh_error *error);

/* The same in rows, of one head of a descriptor (head = -1: of all) whose queries are all its keys:
 * the least range of rows that holds every key that the rows rows.begin .. rows.end - 1 can see, in
 * however many packed sequences they lie. So a machine that holds these rows of a longer text knows
 * which rows of others it needs, and gets its own part of the whole result from a call for its own
 * queries and these keys (plsh_extent_part, below). */
PLSH_API plsh_status plsh_attention_reach(const plsh_attention *attention, int64_t head,
                                          plsh_block rows, plsh_block *keys, plsh_error *error);

/* ---- One call -------------------------------------------------------------- */

/* Plan, execute, release in one call. lse may be NULL, else [heads, queries]. */
PLSH_API plsh_status plsh_attend(const plsh_attention *attention, const void *q, const void *k,
                                 const void *v, void *o, float *lse, plsh_error *error);

/* ---- Plans ---------------------------------------------------------------- */

typedef struct plsh_plan plsh_plan;

/* Everything the descriptor points to is copied, but for decay tables and user
 * labels, which must outlive the plan. */
PLSH_API plsh_status plsh_plan_create(const plsh_attention *attention, plsh_plan **plan,
                                      plsh_error *error);
PLSH_API void plsh_plan_destroy(plsh_plan *plan); /* NULL is fine */

/* Bytes that plsh_plan_forward and plsh_plan_backward need, a multiple of 64 for memory on a
 * 64-byte boundary (aligned_alloc(64, bytes)); and the head as the plan runs it (auto resolved),
 * with the reason in words for auto. */
PLSH_API size_t plsh_plan_workspace(const plsh_plan *plan);
PLSH_API size_t plsh_plan_backward_workspace(const plsh_plan *plan);
PLSH_API plsh_head plsh_plan_head(const plsh_plan *plan, int64_t head, const char **reason);
PLSH_API const char *plsh_plan_isa(const plsh_plan *plan);

/* About how many pairs the forward pass will score, by the model that `auto` chooses by. */
PLSH_API double plsh_plan_predicted_pairs(const plsh_plan *plan);

/* What a run did. */
typedef struct plsh_report {
    int64_t pairs;      /* (query, key) pairs scored, summed over heads */
    double error_bound; /* largest certificate entry, where one was asked for */
} plsh_report;

/* The lengths of one call, for a plan made for at least as many: one plan serves a prompt in chunks
 * of any size over keys that grow, or packed sequences of other lengths. queries and keys (with
 * offsets as in plsh_attention, or sequences = 0 for a single one) are at most the plan's, no
 * sequence is longer than the plan's longest, and there are no more of them. The result has the
 * bits of a plan made for just these lengths (`auto` chooses once, by the plan's). A layout of
 * zeros in the plan is that of the call's own rows; lse and certificate are [heads, queries] of the
 * call's. */
typedef struct plsh_extent {
    int64_t queries, keys;
    int64_t sequences;
    const int64_t *query_offsets, *key_offsets;
    const plsh_place *places; /* as in plsh_attention; no sequence's rows span more positions than
                               * the plan's longest */
} plsh_extent;

/* The extent of a part of longer rows: the rows queries.begin .. queries.end - 1 of q and o, the
 * rows keys.begin .. keys.end - 1 of k and v, of `sequences` packed sequences that begin and end at
 * offsets[0 .. sequences] (0 sequences: a single one, offsets NULL). The arrays, of the caller,
 * have room for sequences + 1 entries (at least 2), and the extent points to them.
 *
 *     plsh_attention_reach(&whole, -1, rows, &keys, &error);
 *     plsh_extent_part(0, NULL, rows, keys, query_offsets, key_offsets, places, &extent);
 *     plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o, .extent = &extent};  // rows of the
 * part
 */
PLSH_API void plsh_extent_part(int64_t sequences, const int64_t *offsets, plsh_block queries,
                               plsh_block keys, int64_t *query_offsets, int64_t *key_offsets,
                               plsh_place *places, plsh_extent *extent);

/* Dropout of attention weights, as in training:
 *
 *     o_i = sum_j Z_ij P_ij v_j,     P_ij = exp(s_ij - lse_i),
 *
 * Z_ij = 0 with probability p, otherwise 1 / (1 - p). lse is that of all keys. For `mean`, P is the
 * mean of the draws' softmaxes; `exact` leaves out what it would leave out without, so a row's
 * error may be 1 / (1 - p) times as large. Z depends on the seed, the number of the head, the row
 * of q and the row of k (each counted over all sequences), and on nothing else: neither on method,
 * threads nor instruction set. p is rounded to a multiple of 2^-16, though not to 0 or 1. */
typedef struct plsh_attention_dropout {
    double p; /* 0 <= p < 1; 0: none */
    uint64_t seed;
    /* The numbers of the call's first head (all of them below 2^32), first row of q and first row
     * of k, for calls that hold a part of a whole; otherwise 0. */
    int64_t head, query, key;
} plsh_attention_dropout;

typedef struct plsh_forward {
    const void *q, *k, *v;
    void *o;    /* of o_dtype: the float32 result, rounded to nearest even */
    float *lse; /* [heads, queries] or NULL */
    /* [heads, queries] or NULL: a proven bound on |o - o_exact|, largest over the columns of the
     * row, against the head's untruncated decay, from these very arrays. dense and none give 0;
     * NaN where there is nothing to compare with: labels or fixed without a decay, a row whose
     * keys or values are not finite, a row of the output that is not (scores beyond float's range).
     *
     * Rounding comes on top. The score of key j is off by at most
     *     delta_j = 2^-23 ((head_dim + 4) scale sum_x |q_x k_jx| + 2 |log k(t)| + 8),
     * which moves a row by at most R sum_j p_j (e^delta_j - 1) + 2^-23 n max |v|, where p are its
     * exact weights, n the keys it sees and R the largest max - min of a column of their values. */
    float *certificate;
    const plsh_extent *extent;      /* NULL: the plan's own lengths */
    plsh_attention_dropout dropout; /* not together with a certificate */
} plsh_forward;

/* Finite inputs whose scores are in float's range give a finite output, however large the values
 * are. Gradients are sums of products of v and d_o: these may be beyond the range. */
PLSH_API plsh_status plsh_plan_forward(const plsh_plan *plan, const plsh_forward *arrays,
                                       void *workspace, plsh_report *report, plsh_error *error);

/* Gradients of sum(o * d_o). o and lse are those of the forward call; o is float32 here whatever
 * o_dtype is (one that was rounded and widened again gives gradients that are off by as much). Any
 * of the outputs may be NULL. Layouts: d_q as q, d_k as k, d_v as v, d_o as o. All pairs that the
 * forward pass scored are scored again, once (masks: once for all its passes; its gradient is that
 * of plsh), and memory is O(threads + n / 96). The same bits for any number of threads.
 *
 * d_decay: [heads, 2], the gradients by the decay's a and b, so that sigma can be learned. A
 * sampled mask is no smooth function of them: for plsh, masks and mean this is the
 * straight-through estimate, the derivative of log k(|p_i - j|) in the place of the one of log M~.
 * 0 for tables, and for methods without a decay. */
typedef struct plsh_backward {
    const void *q, *k, *v;
    const float *o, *lse, *d_o;
    float *d_q, *d_k, *d_v;
    double *d_decay;
    const plsh_extent *extent; /* NULL: the plan's own lengths */
    /* The keys are some of those that o and lse are sums of (other calls have the rest), so a row's
     * dS do not sum to 0 here, which is otherwise used against rounding. */
    bool some_keys;
    plsh_attention_dropout dropout; /* that of the forward call */
} plsh_backward;

PLSH_API plsh_status plsh_plan_backward(const plsh_plan *plan, const plsh_backward *arrays,
                                        void *workspace, plsh_report *report, plsh_error *error);

/* The instruction sets this machine can run ("avx2", "avx512", ...), best first,
 * NULL at the end; "reference" is always among them. */
PLSH_API const char *const *plsh_isa_available(void);

#ifdef __cplusplus
}
#endif

#endif
