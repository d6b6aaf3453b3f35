/* attention: what a plan holds. Constant after creation; threads share it.
 *
 * Work is cut into tiles: up to `groups` groups of queries of one head and one sequence. The result
 * of a tile does not depend on the thread that computes it, so any thread may take any tile. */
#ifndef PLSH_ATTENTION_PLAN_H
#define PLSH_ATTENTION_PLAN_H

#include "attention/counting/counting.h"
#include "attention/counting/gathering.h"
#include "attention/kernels/kernels.h"
#include "attention/plan/points.h"
#include "base/memory.h"
#include "decay/tail.h"
#include "head/check.h"
#include "plsh/attention.h"

enum {
    /* Queries per tile at most. Larger shares K and V better between the groups, smaller is finer
     * for the threads: 96 to 192 are within 2 % of each other on dense, n = 4096. */
    PLSH_TILE_QUERIES = 96,
    /* Keys per step of a walk, and the finest pieces of it that `exact` decides about. */
    PLSH_TILE_KEYS = 128,
    PLSH_BOUND_KEYS = 32,
    /* `exact` visits all keys of a sequence that has at most so many keys, or queries: bounds would
     * cost more than they save. */
    PLSH_SHORT_KEYS = 256,
    PLSH_SHORT_QUERIES = 16,
    /* The most that the boxes of one kv head may take; longer sequences get larger pieces. */
    PLSH_BOX_BYTES = 8 << 20
};

/* One head, as it runs. */
typedef struct plsh_head_plan {
    plsh_head head; /* method resolved, eps set */
    const char *reason;
    char reason_text[240]; /* of `auto` */
    int groups;            /* of queries per tile */
    bool decay_known;      /* `sums` is filled in; false for heads without a decay and for `none` */
    plsh_decay_sums sums;
    float log_eps;             /* log2 of head.eps */
    plsh_counting *counting;   /* plsh, masks, mean: their draws */
    plsh_gathering *gathering; /* instead, where blocks are not contiguous */
    size_t counts_bytes;
    double cost;               /* about how many keys a query scores; the largest cost runs first */
    const int64_t *first_tile; /* of each sequence, sequences + 1 entries */
} plsh_head_plan;

struct plsh_plan {
    plsh_attention shape; /* with the defaults filled in; its pointers are to copies */
    plsh_layout asked[4]; /* the layouts of q, k, v, o with their zeros */
    const plsh_kernels *kernel;
    const plsh_pair_kernels
        *pairs; /* the kernel's, if q and k are bfloat16 of even dim; else NULL */
    int threads;
    int64_t sequences;
    int64_t *query_offset, *key_offset; /* sequences + 1 */
    plsh_place *place;                  /* of each sequence */
    plsh_plan_points points;            /* dim = 0: positions are row numbers */
    int64_t longest;                    /* positions that the longest sequence spans */
    plsh_head_plan *head;               /* one per head */
    int64_t *order;                     /* heads, expensive tiles first */
    int64_t *first_item;                /* of order[i], heads + 1 entries */
    int64_t *tiles;                     /* the first_tile arrays */
    float **table;                      /* decay tables, owned; table_count of them */
    int64_t table_count;
    bool placed;   /* the caller said where the sequences' rows lie: they are parts of a text */
    bool paged;    /* K and V lie in pages (plsh_plan_forward_pages) */
    bool measured; /* made to ask for sizes, never run: has no decay tables */
    bool boxes;    /* a head is `exact` */
    int bound_keys;
    int64_t *first_piece; /* of each sequence, sequences + 1 entries */
    size_t summary_bytes; /* of one kv head */
    int64_t summaries;    /* kv_heads; or heads, where each has its own order of keys */
    size_t workspace_bytes;
    int64_t most_tiles, most_sequences; /* of any call: for the workspace of the backward pass */
};

/* The largest i with first[i] <= item, i < count. */
static inline int64_t plsh_plan_find(const int64_t *first, int64_t count, int64_t item) {
    int64_t low = 0, high = count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (first[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The positions that the rows of a sequence span, at most: no distance is larger. */
static inline int64_t plsh_place_span(plsh_place place, int64_t queries, int64_t keys) {
    int64_t begin = queries > 0 && place.query < place.key ? place.query : place.key;
    int64_t end = place.key + keys, last = place.query + queries;
    return (queries > 0 && last > end ? last : end) - begin;
}

/* Rows of queries a tile of this head takes. */
static inline int64_t plsh_head_tile_rows(const plsh_plan *plan, const plsh_head_plan *head) {
    return (int64_t)head->groups * plan->kernel->group;
}

/* Tiles per block of a `fixed` head; the last ones of a block may be empty. */
static inline int64_t plsh_head_block_tiles(const plsh_plan *plan, const plsh_head_plan *head,
                                            int64_t keys) {
    int64_t rows = plsh_head_tile_rows(plan, head);
    int64_t block = head->head.block < keys ? head->head.block : keys;
    return (block + rows - 1) / rows;
}

/* Does `exact` visit all keys of this sequence? A decision by the lengths of the sequence alone, so
 * that its numbers do not depend on what else a call holds. */
static inline bool plsh_plan_is_short(const plsh_plan *plan, int64_t sequence) {
    const int64_t queries = plan->query_offset[sequence + 1] - plan->query_offset[sequence];
    const int64_t keys = plan->key_offset[sequence + 1] - plan->key_offset[sequence];
    return plan->points.dim == 0 && (keys <= PLSH_SHORT_KEYS || queries <= PLSH_SHORT_QUERIES);
}

/* Does the head take queries and keys in the order of their points? */
static inline bool plsh_head_is_arranged(const plsh_plan *plan, const plsh_head_plan *head) {
    return plan->points.dim > 0 &&
           (head->head.method == PLSH_METHOD_EXACT || head->head.method == PLSH_METHOD_WINDOW);
}

/* Bytes of a copy of K and V of one kv head by place, a multiple of PLSH_ALIGNMENT; 0 where rows
 * and places are the same. */
static inline size_t plsh_plan_placed_bytes(const plsh_plan *plan) {
    if (!plan->points.key_order) return 0;
    const int64_t columns = plan->shape.head_dim + plan->shape.value_dim;
    const size_t bytes = (size_t)(plan->shape.keys * columns) * sizeof(float);
    return (bytes + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
}

/* Where K and V lie when the plan runs. */
typedef enum plsh_plan_use {
    PLSH_PLAN_ARRAYS,  /* K and V in the user's arrays */
    PLSH_PLAN_PAGES,   /* K and V in pages */
    PLSH_PLAN_MEASURED /* likewise; only its size is asked for */
} plsh_plan_use;

/* A plan without workspace_bytes. */
plsh_status plsh_plan_make(const plsh_attention *attention, plsh_plan_use use, plsh_plan **plan,
                           plsh_error *error);

/* Fills in counting and counts_bytes, or gathering. The head's method and groups, the plan's shape,
 * kernel and longest sequence are set. */
plsh_status plsh_draws_prepare(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error);
void plsh_draws_release(plsh_head_plan *head);

/* PLSH_STATUS_NOT_FINITE with the array, head, row and column of the first NaN or Inf in q, k, v
 * and d_o (NULL: none), in that order. */
plsh_status plsh_check_finite(const plsh_plan *plan, const plsh_forward *arrays, const float *d_o,
                              plsh_error *error);

/* Checks that the arrays that a call reads and the workspace are given, that the workspace is
 * aligned, that outputs overlap no other array, that dropout is valid, and, if the plan asks for
 * it, that the inputs are finite. For calls with at least one query. */
plsh_status plsh_forward_check(const plsh_plan *plan, const plsh_forward *arrays,
                               const void *workspace, plsh_error *error);
plsh_status plsh_backward_check(const plsh_plan *plan, const plsh_backward *arrays,
                                const void *workspace, plsh_error *error);

#endif
