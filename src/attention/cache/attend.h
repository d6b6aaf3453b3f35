/* attention/cache: queries at the last positions against the pages, by the decode kernels. */
#ifndef PLSH_ATTENTION_CACHE_ATTEND_H
#define PLSH_ATTENTION_CACHE_ATTEND_H

#include "attention/cache/cache.h"

/* Arguments are checked and memory is reserved. Attends for the tokens of the calls of those caches
 * that have a pass, in parallel over sequences, heads and spans of keys, and sets the pairs of
 * their calls. A sequence's numbers do not depend on the others. */
void plsh_cache_attend_pages(plsh_cache *const *caches, int64_t count);

#endif
