/* attention/cache: the constants of a cache: its checked configuration. Forks share them. */
#ifndef PLSH_ATTENTION_CACHE_SETUP_H
#define PLSH_ATTENTION_CACHE_SETUP_H

#include "attention/cache/mask.h"
#include "attention/cache/page.h"
#include "head/check.h"
#include "plsh/cache.h"

typedef struct plsh_cache_setup {
    atomic_int references;
    int64_t heads, kv_heads, group, undo;
    double scale;
    int threads;
    plsh_cache_page_layout page[2]; /* plain, bounded */
    int64_t point_sets;             /* of positions that are points: 1 or heads */
    plsh_cache_mask *mask;          /* [heads] */
    bool *bounded;                  /* [kv_heads]: has a head that is `exact` */
} plsh_cache_setup;

/* Checks the configuration and fills in the defaults. The result has one reference. */
plsh_status plsh_cache_setup_make(plsh_cache_setup **setup, const plsh_cache_config *config,
                                  plsh_error *error);
void plsh_cache_setup_share(plsh_cache_setup *setup);
void plsh_cache_setup_release(plsh_cache_setup *setup); /* NULL is fine */

static inline const plsh_cache_page_layout *plsh_cache_setup_pages(const plsh_cache_setup *setup,
                                                                   int64_t kv) {
    return &setup->page[setup->bounded[kv]];
}

/* The longest possible sequence: user labels limit it. */
int64_t plsh_cache_setup_most_tokens(const plsh_cache_setup *setup);

#endif
