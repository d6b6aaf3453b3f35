/* attention/cache: many queries at once, through the tiles of the forward pass. */
#ifndef PLSH_ATTENTION_CACHE_PREFILL_H
#define PLSH_ATTENTION_CACHE_PREFILL_H

#include "attention/cache/cache.h"
#include "attention/forward/source.h"

typedef struct plsh_cache_prefill {
    plsh_plan *plan;
    void *workspace;
    plsh_row_source *source; /* [2][kv_heads]: keys, values */
} plsh_cache_prefill;

/* Is that the way for a step of `count` tokens? */
bool plsh_cache_prefill_applies(const plsh_cache *cache, int64_t count, int64_t length);

/* All that plsh_cache_prefill_run needs, for the sequence as it will be. */
plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, plsh_error *error);
void plsh_cache_prefill_clear(plsh_cache_prefill *prefill);

/* Attends for the last tokens; the number of pairs. */
int64_t plsh_cache_prefill_run(const plsh_cache_prefill *prefill, const plsh_cache *cache,
                               const plsh_tokens *tokens);

#endif
