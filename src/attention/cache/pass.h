/* attention/cache: the memory of a pass: up to PASS_TOKENS tokens attending at once. */
#ifndef PLSH_ATTENTION_CACHE_PASS_H
#define PLSH_ATTENTION_CACHE_PASS_H

#include "attention/cache/setup.h"

enum {
    SPLITS = 16,     /* the most tasks of one kv head: enough for 2 threads and 8 heads each */
    SPLIT_PAGES = 8, /* the fewest pages of a task, where there are more: 512 keys */
    SERIAL_PAGES =
        8, /* page times query visits that are not worth waking a thread for: ~1 us each */
    PASS_TOKENS = 16, /* the most tokens of a pass */
    PASS_ROWS = 64    /* the most queries of a kv head in a pass, where the group is smaller */
};

/* One (head, token) of a pass. */
typedef struct plsh_cache_query {
    plsh_cache_mask_row mask_row;
    int64_t head, token;
    int64_t from, to; /* the keys of this round */
    float *q, *o;     /* padded; o and (m, l) are the sums so far */
    float m, l;
    /* exact: */
    bool bounded;    /* may pages of this round be skipped? */
    double norm;     /* of q, not less */
    float skip_log2; /* a page of at most this weight may be */
} plsh_cache_query;

typedef struct plsh_cache_task {
    int64_t kv, split, first, last; /* pages first..last-1 */
    int64_t pairs;
} plsh_cache_task;

/* The rows of a page that a query sees. */
typedef struct plsh_cache_key_range {
    int from, to;
} plsh_cache_key_range;

/* What a thread needs. */
typedef struct plsh_cache_scratch {
    plsh_decode_row *row, **active; /* [rows] */
    plsh_cache_key_range *range;    /* [rows] */
    float *s, *o;                   /* [rows][PLSH_PAGE_KEYS], [dv] */
} plsh_cache_scratch;

typedef struct plsh_cache_pass {
    int threads;
    int64_t tokens;          /* of a pass, at most */
    int64_t rows;            /* queries of a kv head, at most: tokens * group */
    int64_t used;            /* now */
    size_t bytes;            /* of all of this, in one piece of memory */
    plsh_cache_query *query; /* [kv_heads][rows] */
    int64_t **begins;        /* [heads]: [tokens][samples] for heads that count, otherwise NULL */
    plsh_cache_task *task;   /* [kv_heads * SPLITS] */
    int64_t *splits;         /* [kv_heads] */
    float *part_m, *part_l;  /* [kv_heads][SPLITS][rows] */
    float *part_o;           /* [kv_heads][SPLITS][rows][dv] */
    plsh_cache_scratch *scratch; /* [threads] */
} plsh_cache_pass;

/* Room for passes over steps of `count` tokens; *pass is replaced where it has too little. */
plsh_status plsh_cache_pass_reserve(plsh_cache_pass **pass, const plsh_cache_setup *setup,
                                    int64_t count, plsh_error *error);
void plsh_cache_pass_destroy(plsh_cache_pass *pass);
size_t plsh_cache_pass_bytes(const plsh_cache_pass *pass);

#endif
