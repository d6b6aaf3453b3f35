/* attention/cache: queries at the last positions against the pages, by the decode kernels. */
#ifndef PLSH_ATTENTION_CACHE_ATTEND_H
#define PLSH_ATTENTION_CACHE_ATTEND_H

#include "attention/cache/cache.h"

/* All arguments are checked, all memory is there. The number of pairs. */
int64_t plsh_cache_attend_pages(plsh_cache *cache, const plsh_tokens *tokens);

#endif
