/* attention/cache: chunks of a prompt, through the tiles of the forward pass. */
#ifndef PLSH_ATTENTION_CACHE_PREFILL_H
#define PLSH_ATTENTION_CACHE_PREFILL_H

#include "attention/cache/cache.h"

/* Should a step that makes the sequence `length` long run through a plan? If so, returns the first
 * page that the plan has to read, otherwise -1. `appends`: the keys of the tokens are new, and
 * there is room for them. */
int64_t plsh_cache_prefill_first_page(const plsh_cache *cache, const plsh_tokens *tokens,
                                      int64_t length, bool appends);

/* The plan of a step, for the sequence as it will be from that page on, and the size of its memory,
 * which the caller then sets: on a PLSH_ALIGNMENT boundary. */
plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, int64_t first_page,
                                    plsh_error *error);

/* The plan, not the memory. */
void plsh_cache_prefill_clear(plsh_cache_prefill *prefill);

/* Bytes that are enough for any step of up to `count` tokens; 0 if no such step uses a plan. */
plsh_status plsh_cache_prefill_most_bytes(const plsh_cache *cache, int64_t count, size_t *bytes,
                                          plsh_error *error);

/* Attends for the tokens of the cache's call, and sets its pairs. */
void plsh_cache_prefill_run(plsh_cache *cache);

#endif
