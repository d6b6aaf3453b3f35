/* attention/cache: the struct behind plsh_cache, and how it changes. */
#ifndef PLSH_ATTENTION_CACHE_CACHE_H
#define PLSH_ATTENTION_CACHE_CACHE_H

#include "attention/cache/pass.h"
#include "attention/cache/setup.h"
#include "attention/cache/store.h"

/* Many queries at once, through the tiles of the forward pass (prefill.h). */
typedef struct plsh_cache_prefill {
    plsh_plan *plan;    /* NULL: the call does not use a plan */
    int64_t first_page; /* its keys begin there */
    size_t bytes;       /* of its memory */
    bool own;           /* the memory was allocated for the call */
    void *memory;       /* the plan's workspace, and behind it: */
    size_t sources;     /* offset of plsh_row_source [2][kv_heads] */
} plsh_cache_prefill;

/* The call that a cache takes part in. */
typedef struct plsh_cache_call {
    const plsh_tokens *tokens;
    plsh_cache_prefill prefill;
    plsh_cache_pass *pass; /* otherwise */
    int64_t done, taken;   /* tokens of the passes before, and of this one */
    int64_t tasks;         /* of this round */
    int64_t first_task;    /* its number among those of all sequences */
    _Atomic int64_t pairs;
    float headroom;  /* 0, or PLSH_HEADROOM in a second run that replaces overflowed outputs */
    int64_t counted; /* pairs before the second run, which does not add to them */
    atomic_bool overflowed; /* the second run is needed */
} plsh_cache_call;

struct plsh_cache {
    plsh_cache_setup *setup;
    atomic_flag busy;
    int64_t length;
    int64_t swept;           /* keys that no query from this position on reaches are dropped */
    plsh_cache_store *store; /* [kv_heads] */
    plsh_cache_mask_state *mask_state; /* [heads] */
    void *own;                         /* workspace for steps of up to own_tokens tokens */
    size_t own_bytes;
    int64_t own_tokens;
    plsh_cache_call call;
};

/* Every call that changes a cache, or reads its contents, begins with enter and ends with leave.
 * Entering fails while another thread is inside a call. */
plsh_status plsh_cache_enter(const plsh_cache *cache, plsh_error *error);
void plsh_cache_leave(const plsh_cache *cache);

/* Reserves all memory that `length` tokens need. The visible state does not change, also on
 * failure. */
plsh_status plsh_cache_reserve(plsh_cache *cache, int64_t length, plsh_error *error);

/* Appends the keys and values, for which there is room. */
void plsh_cache_write(plsh_cache *cache, const plsh_tokens *tokens);

/* Drops the keys that no query from position length - undo on can reach. */
void plsh_cache_forget(plsh_cache *cache);

/* Truncates to `length` tokens, without a check of dropped keys. */
void plsh_cache_take_back(plsh_cache *cache, int64_t length);

/* Are the keys of all positions from `position` on still there? */
bool plsh_cache_reaches(const plsh_cache *cache, int64_t position);

/* Attends for the tokens of the caches whose calls do not use a plan, in parallel over sequences,
 * heads and spans of keys, and counts the pairs of each call. Arguments are checked before, and
 * memory is reserved. The numbers of a sequence do not depend on the others. */
void plsh_cache_attend_pages(plsh_cache *const *caches, int64_t count);

#endif
