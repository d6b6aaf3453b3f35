/* attention/cache: many queries at once, through the tiles of the forward pass. */
#ifndef PLSH_ATTENTION_CACHE_PREFILL_H
#define PLSH_ATTENTION_CACHE_PREFILL_H

#include "attention/cache/cache.h"

typedef struct plsh_cache_prefill {
    plsh_plan **plan; /* [kv_heads] */
    bool direct;      /* on the tokens' own k and v */
    void *workspace;
    void *k, *v; /* a copy of one head's pages where it is not direct */
} plsh_cache_prefill;

/* Is that the way for the last `count` of `length` tokens? */
bool plsh_cache_prefill_applies(const plsh_cache *cache, int64_t count, int64_t length);

/* All that plsh_cache_prefill_run needs, for the sequence as it will be. */
plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, plsh_error *error);
void plsh_cache_prefill_clear(plsh_cache_prefill *prefill, int64_t kv_heads);
plsh_status plsh_cache_prefill_run(const plsh_cache_prefill *prefill, const plsh_cache *cache,
                                   const plsh_tokens *tokens, plsh_report *report,
                                   plsh_error *error);

#endif
