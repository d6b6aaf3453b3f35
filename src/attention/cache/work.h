/* attention: the memory of attending, and the rounds of `exact`. */
#ifndef PLSH_ATTENTION_CACHE_WORK_H
#define PLSH_ATTENTION_CACHE_WORK_H

#include "attention/cache/cache.h"

enum {
    SPLITS = 16,     /* the most tasks of one kv head: enough for 2 threads and 8 heads each */
    SPLIT_PAGES = 8, /* the fewest pages of a task, where there are more: 512 keys */
    SERIAL_PAGES =
        8, /* page times line visits that are not worth waking a thread for: ~1 us each */
    PASS_TOKENS = 16, /* the most tokens of a pass */
    PASS_ROWS = 64    /* the most lines of a kv head in a pass, where the group is smaller */
};

/* One (head, token) of a pass. */
typedef struct plsh_line {
    plsh_sight sight;
    int64_t head, token;
    int64_t from, to; /* the keys of this round */
    float *q, *o;     /* padded; o and (m, l) are the sums so far */
    float m, l;
    /* exact: */
    bool bounded;    /* may pages of this round be skipped? */
    double norm;     /* of q, not less */
    float skip_log2; /* a page of at most this weight may be */
} plsh_line;

typedef struct plsh_task {
    int64_t kv, split, first, last; /* pages first..last-1 */
    int64_t pairs;
} plsh_task;

/* The rows of a page that a line sees. */
typedef struct plsh_piece {
    int from, to;
} plsh_piece;

/* What a thread needs. */
typedef struct plsh_scratch {
    plsh_decode_row *row, **active; /* [rows] */
    plsh_piece *piece;              /* [rows] */
    float *s, *o;                   /* [rows][PLSH_PAGE], [dv] */
} plsh_scratch;

struct plsh_work {
    int threads;
    int64_t tokens;         /* of a pass, at most */
    int64_t rows;           /* lines of a kv head, at most: tokens * group */
    int64_t used;           /* now */
    size_t bytes;           /* of all of this, in one piece of memory */
    plsh_line *line;        /* [kv_heads][rows] */
    int64_t **begins;       /* [heads]: [tokens][samples] for heads that count, otherwise NULL */
    plsh_task *task;        /* [kv_heads * SPLITS] */
    int64_t *splits;        /* [kv_heads] */
    float *part_m, *part_l; /* [kv_heads][SPLITS][rows] */
    float *part_o;          /* [kv_heads][SPLITS][rows][dv] */
    plsh_scratch *scratch;  /* [threads] */
};

/* The first round of an exact line: its newest keys. */
void plsh_line_begin_exact(plsh_line *line, const plsh_page_form *form);

/* The range of round 1, 2, ... : what the weights so far cannot rule out, newest first. */
void plsh_line_continue_exact(plsh_line *line, const plsh_store *store, int round);

/* Can this page, whose keys have the log2 weights s, be left out? */
bool plsh_line_may_skip(const plsh_line *line, const plsh_page *page, const plsh_page_form *form,
                        const float *s, int count);

#endif
