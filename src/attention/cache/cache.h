/* attention: the insides of a decoding cache.
 *
 * A store keeps the keys and values of one kv head in pages of PLSH_DECODE_KEYS tokens. Pages are
 * reference counted: forks share them, whoever writes to a shared one copies it first. Forgetting
 * is releasing pages at the front. The form is everything that never changes, shared by forks. */
#ifndef PLSH_ATTENTION_CACHE_H
#define PLSH_ATTENTION_CACHE_H

#include "attention/kernels/decode.h"
#include "plsh/cache.h"

#include <stdatomic.h>

enum { PLSH_PAGE = PLSH_DECODE_KEYS };

/* ---- Pages (page.c) -------------------------------------------------------------------- */

/* In memory: this, then for `bounded` forms the box (low[d], high[d], floats), then the keys
 * [PLSH_PAGE][d], then the values [PLSH_PAGE][dv], in the storage's type; d and dv padded. */
typedef struct plsh_page {
    atomic_int references;
    int filled; /* rows that norm and box cover */
    float norm; /* no key is longer */
} plsh_page;

typedef struct plsh_page_form {
    plsh_dtype dtype;
    int64_t head_dim, value_dim;     /* as the user has them */
    int64_t d, dv;                   /* padded */
    size_t element;                  /* bytes of one */
    size_t box, keys, values, bytes; /* offsets within a page, and its size */
    const plsh_decode_kernels *kernels;
} plsh_page_form;

/* bounded: with norms and boxes, for `exact`. */
plsh_page_form plsh_page_form_make(const plsh_cache_config *config, bool bounded,
                                   const plsh_decode_kernels *kernels);

static inline bool plsh_page_is_bounded(const plsh_page_form *form) {
    return form->keys != form->box;
}

static inline char *plsh_page_at(const plsh_page *page, size_t offset) {
    return (char *)page + offset;
}

/* Rows of keys and values as a user hands them over. */
typedef struct plsh_rows {
    const void *k, *v;
    int64_t k_stride, v_stride; /* elements between rows */
    plsh_dtype dtype;
} plsh_rows;

typedef struct plsh_store {
    int64_t first;    /* number of the first page: it holds position first * PLSH_PAGE */
    int64_t count;    /* pages */
    int64_t capacity; /* of `page` */
    plsh_page **page;
    /* bounded: a binary tree of norms, leaves [leaves, 2 leaves) for page 0, 1, ... */
    int64_t leaves;
    float *norm;
} plsh_store;

static inline plsh_page *plsh_store_page(const plsh_store *store, int64_t number) {
    return store->page[number - store->first];
}

/* Pages for the positions up to `length`, the last one now in use ready to be written from row
 * `used` on (its own copy where it was shared). On failure nothing has changed that a reader of
 * the store could see. */
plsh_status plsh_store_reserve(plsh_store *store, const plsh_page_form *form, int64_t used,
                               int64_t length, plsh_error *error);
/* Writes rows at position..position + count - 1, which are reserved. */
void plsh_store_write(plsh_store *store, const plsh_page_form *form, int64_t position,
                      int64_t count, const plsh_rows *rows);
/* Norms and boxes of all pages of a sequence of this length, afresh; nothing for a form without. */
void plsh_store_bound(plsh_store *store, const plsh_page_form *form, int64_t length);
/* Releases the pages that lie wholly before position `first`, or at and after `length`. */
void plsh_store_drop(plsh_store *store, int64_t first);
void plsh_store_truncate(plsh_store *store, int64_t length);
plsh_status plsh_store_fork(const plsh_store *store, plsh_store *fork, plsh_error *error);
void plsh_store_clear(plsh_store *store);
size_t plsh_store_bytes(const plsh_store *store, const plsh_page_form *form);

/* The longest key of the pages begin..end-1, where these are one node of the tree: end - begin is
 * a power of two that divides begin. */
float plsh_store_norm(const plsh_store *store, int64_t begin, int64_t end);

/* An upper bound of q . k over the keys of a page, by its box. */
float plsh_page_bound(const plsh_page *page, const plsh_page_form *form, const float *q);

/* ---- What a head sees (view.c) --------------------------------------------------------- */

/* How the log2 weights of a row of keys come about. */
typedef enum plsh_view_kind {
    PLSH_VIEW_FLAT,   /* 0 */
    PLSH_VIEW_SLOPE,  /* ALiBi: -t slope */
    PLSH_VIEW_TABLE,  /* log2 k(t) from a table by t */
    PLSH_VIEW_COUNTS, /* log2 (draws whose block of the query has begun) / s */
    PLSH_VIEW_LABELS  /* log2 (draws with equal labels) / s */
} plsh_view_kind;

/* A head as decoding needs it: constant, shared by forks. */
typedef struct plsh_view {
    plsh_head head; /* auto resolved */
    const char *reason;
    plsh_view_kind kind;
    double slope;      /* log2(e) / sigma */
    float *count_log2; /* [samples + 1]: log2 (c / s) */
} plsh_view;

typedef struct plsh_span {
    int64_t begin, end, sample;
} plsh_span;

/* The blocks of all draws of a head that hold `position`, by where they begin. Moving on costs
 * O(1) where no block ends, otherwise O(s) and a question to the partition per block that ended. */
typedef struct plsh_cursor {
    int64_t position;
    int64_t next_end; /* the first position at which some block has ended */
    plsh_span *span;  /* [samples]; NULL for heads that do not sample */
} plsh_cursor;

/* The part of a head that follows the stream. */
typedef struct plsh_track {
    plsh_cursor query, tail; /* for attending; for what can be dropped */
    float *log2_decay;       /* VIEW_TABLE: [decay_size], log2 k(t) */
    double *tail_sum;        /* exact with such a table: sum of k(t) from t = 64 x to the end */
    int64_t decay_size;      /* multiple of PLSH_PAGE */
} plsh_track;

plsh_status plsh_view_make(plsh_view *view, const plsh_head *head, plsh_error *error);
void plsh_view_clear(plsh_view *view);

plsh_status plsh_track_make(plsh_track *track, const plsh_view *view, plsh_error *error);
plsh_status plsh_track_fork(plsh_track *fork, const plsh_track *track, const plsh_view *view,
                            plsh_error *error);
void plsh_track_clear(plsh_track *track);
size_t plsh_track_bytes(const plsh_track *track, const plsh_view *view);
/* Room in the tables for a sequence of this length. */
plsh_status plsh_track_reserve(plsh_track *track, const plsh_view *view, int64_t length,
                               plsh_error *error);

/* Moves a cursor of this head to a position, forwards or back. */
void plsh_cursor_move(plsh_cursor *cursor, const plsh_view *view, int64_t position);

/* The first position that a query at `position` may look at; the cursor is moved there for the
 * sampled methods, and may be NULL: then the partition is asked afresh. */
int64_t plsh_view_reach(const plsh_view *view, plsh_cursor *cursor, int64_t position);

static inline bool plsh_view_is_sampled(const plsh_view *view) {
    return view->head.method == PLSH_METHOD_PLSH || view->head.method == PLSH_METHOD_MASKS ||
           view->head.method == PLSH_METHOD_MEAN;
}

/* One query row: which keys, under what weights. */
typedef struct plsh_sight {
    const plsh_view *view;
    const plsh_track *track;
    const int64_t *begins; /* VIEW_COUNTS: [samples], ascending */
    int64_t position;
    int64_t sample; /* mean: the one draw that counts; otherwise -1 */
} plsh_sight;

/* s[0..count) = log2 of the weights of the keys at from..from + count - 1. */
void plsh_sight_weights(const plsh_sight *sight, int64_t from, int count, float *s);

/* sum of k(t) for t0 <= t < t0 + count, or more. */
double plsh_sight_tail(const plsh_sight *sight, int64_t t0, int64_t count);

/* ---- The cache (cache.c) --------------------------------------------------------------------- */

typedef struct plsh_form {
    atomic_int references;
    int64_t heads, kv_heads, group, undo;
    double scale;
    int threads;
    plsh_page_form page[2]; /* plain, bounded */
    plsh_view *view;        /* [heads] */
    bool *bounded;          /* [kv_heads]: has a head that is `exact` */
} plsh_form;

typedef struct plsh_work plsh_work;

struct plsh_cache {
    plsh_form *form;
    int64_t length;
    int64_t swept;     /* what no query from this position on reaches has been dropped */
    plsh_store *store; /* [kv_heads] */
    plsh_track *track; /* [heads] */
    plsh_work *work;
};

static inline const plsh_page_form *plsh_form_page(const plsh_form *form, int64_t kv) {
    return &form->page[form->bounded[kv]];
}

/* How long a sequence may become: user labels end. */
int64_t plsh_form_most_tokens(const plsh_form *form);

/* Strides with the defaults put in. */
static inline plsh_layout plsh_layout_or(plsh_layout layout, int64_t rows, int64_t dim) {
    if (layout.head_stride == 0 && layout.row_stride == 0) return (plsh_layout){rows * dim, dim};
    return layout;
}

/* ---- Attending (attend.c) -------------------------------------------------------------- */

/* Room for steps of `count` tokens over the keys there are. */
plsh_status plsh_work_reserve(plsh_cache *cache, int64_t count, plsh_error *error);
void plsh_work_destroy(plsh_work *work);
size_t plsh_work_bytes(const plsh_work *work);

/* All arguments are checked, all memory is there. */
void plsh_cache_run(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report);

/* ---- Many queries at once (prefill.c) -------------------------------------------------- */

typedef struct plsh_prefill {
    plsh_plan **plan; /* [kv_heads] */
    bool direct;      /* on the tokens' own k and v */
    void *workspace;
    void *k, *v; /* a copy of one head's pages where it is not direct */
} plsh_prefill;

/* Is that the way for the last `count` of `length` tokens? */
bool plsh_prefill_applies(const plsh_cache *cache, int64_t count, int64_t length);

/* All that plsh_prefill_run needs, for the sequence as it will be. */
plsh_status plsh_prefill_make(plsh_prefill *prefill, const plsh_cache *cache,
                              const plsh_tokens *tokens, int64_t length, plsh_error *error);
void plsh_prefill_clear(plsh_prefill *prefill, int64_t kv_heads);
plsh_status plsh_prefill_run(const plsh_prefill *prefill, const plsh_cache *cache,
                             const plsh_tokens *tokens, plsh_report *report, plsh_error *error);

#endif
