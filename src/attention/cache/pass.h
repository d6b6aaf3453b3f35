/* attention/cache: the memory of a pass: up to PASS_TOKENS tokens attending at once. */
#ifndef PLSH_ATTENTION_CACHE_PASS_H
#define PLSH_ATTENTION_CACHE_PASS_H

#include "attention/cache/setup.h"

enum {
    PASS_SPLITS = 16, /* the most tasks of one kv head: enough for 2 threads and 8 heads each */
    PASS_TOKENS = 16, /* the most tokens of a pass */
    PASS_ROWS = 64 /* the most queries of a kv head in a pass; if a group has more heads than this,
                      a pass takes one token */
};

/* One (head, token) of a pass. */
typedef struct plsh_cache_query {
    plsh_cache_mask_row mask_row;
    int64_t head, token;
    int64_t from, to; /* the keys of this round */
    float *q, *o;     /* padded; o and (m, l) are the sums so far */
    float m, l;
    const float *point; /* where positions are points and weigh: its own; otherwise NULL */
    int64_t set;        /* of its positions, within its kv head */
    const plsh_cache_page_layout *layout; /* of its pages */
    /* exact: */
    bool bounded;    /* may pages of this round be skipped? */
    double norm;     /* of q, not less */
    float skip_log2; /* a page of at most this weight may be */
} plsh_cache_query;

typedef struct plsh_cache_task {
    int64_t kv, split, first, last; /* pages first..last-1 */
    int64_t pairs;
} plsh_cache_task;

/* A query, and the rows of a page that it sees. */
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
    plsh_cache_query *query; /* [kv_heads][rows] */
    int64_t **begins;        /* [heads]: [tokens][blocks] for heads that count, otherwise NULL */
    plsh_cache_task *task;   /* [kv_heads * PASS_SPLITS] */
    int64_t *splits;         /* [kv_heads] */
    float *part_m, *part_l;  /* [kv_heads][PASS_SPLITS][rows] */
    float *part_o;           /* [kv_heads][PASS_SPLITS][rows][dv] */
    plsh_cache_scratch *scratch; /* [threads] */
} plsh_cache_pass;

/* Bytes for the passes of steps of `count` tokens, SIZE_MAX where they overflow; and a pass in
 * memory of that size, on a PLSH_ALIGNMENT boundary. */
size_t plsh_cache_pass_bytes(const plsh_cache_setup *setup, int64_t count);
plsh_cache_pass *plsh_cache_pass_place(const plsh_cache_setup *setup, int64_t count, void *memory);

/* Tokens that a pass takes of a step of `count`. */
int64_t plsh_cache_pass_tokens(const plsh_cache_setup *setup, int64_t count);

#endif
