/* attention/cache: the struct behind plsh_cache, and how it changes. */
#ifndef PLSH_ATTENTION_CACHE_CACHE_H
#define PLSH_ATTENTION_CACHE_CACHE_H

#include "attention/cache/pass.h"
#include "attention/cache/setup.h"
#include "attention/cache/store.h"

struct plsh_cache {
    plsh_cache_setup *setup;
    int64_t length;
    int64_t swept;                     /* what no query from this position on reaches is dropped */
    plsh_cache_store *store;           /* [kv_heads] */
    plsh_cache_mask_state *mask_state; /* [heads] */
    plsh_cache_pass *pass;
};

/* All memory that `length` tokens need; nothing a user can see changes, also on failure. */
plsh_status plsh_cache_reserve(plsh_cache *cache, int64_t length, plsh_error *error);

/* Appends the keys and values, for which there is room. */
void plsh_cache_write(plsh_cache *cache, const plsh_tokens *tokens);

/* Drops what no query from length - undo on can reach. */
void plsh_cache_forget(plsh_cache *cache);

/* Back to `length` tokens, whatever has been dropped. */
void plsh_cache_take_back(plsh_cache *cache, int64_t length);

/* Are the keys of all positions from `position` on still there? */
bool plsh_cache_reaches(const plsh_cache *cache, int64_t position);

#endif
