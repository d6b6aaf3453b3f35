/* plsh/head.h - the methods of a head, the descriptor of a call, and which keys a query can see.
 *
 * A head has a method, a decay and the partitions that it draws, if it samples; plsh_attention
 * describes a call of one or more of them. plsh/attention.h computes it.
 *
 * plsh_head_reach returns the keys that a query can see. It needs only the description, no plan, so
 * that a process that holds a part of a text can fetch the missing rows. (For `exact` they depend
 * on the data; see plsh/shard.h.) */
#ifndef PLSH_HEAD_H
#define PLSH_HEAD_H

#include "plsh/dtype.h"
#include "plsh/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_method {
    PLSH_METHOD_DENSE, /* every pair, O(n^2): the baseline */
    PLSH_METHOD_EXACT, /* visits keys outward from the query and stops when the others cannot
                          matter: leaves out at most eps of a row's weight */
    PLSH_METHOD_PLSH,  /* weights M~ of s partitions; scores every pair in the union of their blocks
                          once */
    PLSH_METHOD_MASKS, /* the same result by the paper's algorithm, one mask at a time */
    PLSH_METHOD_MEAN,  /* mean of the s single-mask outputs: biased, for comparison */
    PLSH_METHOD_WINDOW, /* the decay cut off: |p_i - j| < window, or < radius under positions */
    PLSH_METHOD_FIXED,  /* no decay; floor(p_i / block) = floor(j / block) */
    PLSH_METHOD_NONE,   /* no decay */
    PLSH_METHOD_AUTO /* the cheapest method whose error is at most eps; plsh_plan_head returns it */
} plsh_method;

/* One head: its method and parameters. partition.decay is the decay of every method; only the
 * sampled methods (plsh, masks, mean) use the rest of the partition. */
typedef struct plsh_head {
    plsh_method method;
    plsh_partition partition;
    double eps;     /* exact, auto: 0 means 2^-24, which is float-exact */
    int64_t window; /* window: > 0 */
    double radius;  /* window under positions: keys at a distance < radius; 0: that of `window` */
    int64_t block;  /* fixed: > 0 */
} plsh_head;

/* Distances in elements between heads and between rows; a row's own elements are
 * adjacent. Both 0: [heads, rows, dim] without gaps. [rows, heads, dim] is
 * {dim, heads * dim}. */
typedef struct plsh_layout {
    int64_t head_stride, row_stride;
} plsh_layout;

/* Positions that are points in R^1, R^2 or R^3 instead of row numbers: tiles of an image, irregular
 * times, the cumulative forget gates of a head (sigma = 1, c_i = -sum of log f). The bias of a pair
 * is log k(|x_i - y_j|), the Euclidean distance of the query's and the key's point; a table of a
 * decay is interpolated between whole distances. Causality remains a matter of the row number.
 *
 * A point with a NaN coordinate is no position (a class token): its bias to and from everything is
 * 0. Coordinates are at most 1e18 in size, infinite ones are refused; squares of differences below
 * 1e-19 may vanish (dim 2 and 3).
 *
 * dense, exact, window (a radius), none and auto take positions, and so do plsh, masks and mean
 * with scheme hyperplanes (plsh/cells.h). fixed does not, nor do calls on a part of a sequence
 * (places, plsh_extent, MPI). `exact` and `window` order the rows along a Hilbert curve when the
 * plan is made, unless they are in a good order already. Rows: at most 2^31 - 1. */
typedef struct plsh_positions {
    int dim;            /* 1 to 3; 0: none, positions are row numbers */
    int64_t sets;       /* 1: shared by all heads; heads: one set per head */
    const float *key;   /* [sets, keys, dim] */
    const float *query; /* [sets, queries, dim]; NULL: the queries are the last keys of each
                         * sequence and lie where these do */
} plsh_positions;

/* Where a call's rows of a sequence lie in it, for calls that hold only a part of one: the
 * positions of the first query and of the first key. Positions count from the begin of the
 * sequence. */
typedef struct plsh_place {
    int64_t query, key;
} plsh_place;

/* The descriptor of a call of attention. */
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
     * last positions. With places there may be more queries than keys, and queries may lie outside
     * the range of the keys (a row that sees no key has o = 0 and lse = -inf). The queries of fixed
     * and sampled heads have to lie inside it. Missing keys are ignored. If the
     * call has all keys of plsh_attention_reach, its rows equal those of the whole sequence. */
    const plsh_place *places;
    plsh_positions positions; /* dim = 0: row numbers */
    bool causal;
    bool check_finite; /* refuse NaN and Inf in q, k, v, d_o, naming the first one */
    double scale;      /* 0 = 1 / sqrt(head_dim) */
    /* Of q, k, v: float32, float16 or bfloat16; the gradients are float32. Halves are widened, and
     * the result has the bits of the same numbers as float32. The instruction set "avx512bf16"
     * instead multiplies bfloat16 q and k in pairs if head_dim is even: about 1.3 times as fast,
     * the error not larger than float32's. There |q.k|, without the scale, must stay below 3.4e38,
     * and numbers below 2^-126 count as 0. */
    plsh_dtype dtype;
    plsh_dtype o_dtype; /* of o in the forward pass: the same three; 0 is float32 */
    plsh_layout q, k, v, o;
    const plsh_head *head; /* head_count = 1 serves all heads, else heads entries */
    int64_t head_count;
    int threads;     /* 0 = all */
    const char *isa; /* NULL: the environment's PLSH_ISA, else the best there is */
} plsh_attention;

/* The lengths of one call, for a plan made for at least as many: one plan serves a prompt in chunks
 * of any size over keys that grow, or packed sequences of other lengths. queries and keys (with
 * offsets as in plsh_attention, or sequences = 0 for a single one) are at most the plan's, no
 * sequence is longer than the plan's longest, and there are no more of them. The result has the
 * bits of a plan made for just these lengths (`auto` chooses once, by the plan's). If the
 * plan's layout is zero, the arrays are contiguous for this call's lengths; lse and certificate are
 * [heads, queries] of this call. */
typedef struct plsh_extent {
    int64_t queries, keys;
    int64_t sequences;
    const int64_t *query_offsets, *key_offsets;
    const plsh_place *places; /* as in plsh_attention; no sequence's rows span more positions than
                               * the plan's longest */
} plsh_extent;

/* "dense", "exact", ...: the names of the methods in the order of the enum, NULL at the end; and
 * the method of a name. */
PLSH_API const char *const *plsh_method_names(void);
PLSH_API plsh_status plsh_method_find(const char *name, plsh_method *method, plsh_error *error);

/* Does it draw partitions: plsh, masks or mean? */
PLSH_API bool plsh_method_is_sampled(plsh_method method);

/* A head with a decay that passed plsh_decay_check, and defaults for the rest: integer stratified
 * partitions of 20 samples, seed 1, eps 2^-24, a window of 27 w (where ALiBi is 2e-12) and blocks
 * of 2 w, both rounded up. w is sigma for ALiBi, otherwise the first distance at which the decay
 * has fallen to 1/e. */
PLSH_API plsh_head plsh_head_default(plsh_method method, const plsh_decay *decay);

/* heads[0..count): these defaults under the standard ALiBi slopes, partitions of head 0, 1, ... */
PLSH_API plsh_status plsh_heads_alibi(int64_t count, plsh_method method, plsh_head *heads,
                                      plsh_error *error);

/* ---- Parts of a sequence ---------------------------------------------------- */

/* The keys that queries at the positions queries.begin .. queries.end - 1 of a sequence of `length`
 * keys can see. They are known without the data: those of the window, of the block of `fixed`, of
 * the union of all blocks for the sampled methods (a partition is a function of its seed);
 * otherwise all that causality allows (also for auto, which is not resolved here, and for user
 * labels whose blocks are not contiguous). 0 <= begin <= end <= length; for begin == end the result
 * is empty. */
PLSH_API plsh_status plsh_head_reach(const plsh_head *head, bool causal, int64_t length,
                                     plsh_range queries, plsh_range *keys, plsh_error *error);

/* The same in rows, of one head of a descriptor (head = -1: of all) whose queries are all its keys:
 * the smallest range of rows that holds every key that the rows rows.begin .. rows.end - 1 can see,
 * in all packed sequences that they belong to. A process that holds these rows of a longer text
 * fetches the other rows of this range. A call on its queries and these keys gives its part of the
 * whole result (plsh_extent_part, below). */
PLSH_API plsh_status plsh_attention_reach(const plsh_attention *attention, int64_t head,
                                          plsh_range rows, plsh_range *keys, plsh_error *error);

/* The extent of a part of longer rows: the rows queries.begin .. queries.end - 1 of q and o, the
 * rows keys.begin .. keys.end - 1 of k and v, of `sequences` packed sequences that begin and end at
 * offsets[0 .. sequences] (0 sequences: a single one, offsets NULL). The arrays, of the caller,
 * have room for sequences + 1 entries (at least 2), and the extent points to them.
 *
 *     plsh_attention_reach(&whole, -1, rows, &keys, &error);
 *     plsh_extent_part(0, NULL, rows, keys, query_offsets, key_offsets, places, &extent);
 *     plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o, .extent = &extent};
 *
 * where q, k, v and o are the rows of the part. */
PLSH_API void plsh_extent_part(int64_t sequences, const int64_t *offsets, plsh_range queries,
                               plsh_range keys, int64_t *query_offsets, int64_t *key_offsets,
                               plsh_place *places, plsh_extent *extent);

#ifdef __cplusplus
}
#endif

#endif
