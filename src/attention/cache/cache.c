/* attention/cache: the life of a decoding cache. */
#include "attention/cache/cache.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

/* ---- Caches ---------------------------------------------------------------------------------- */

/* An empty cache of a setup; mask states are made by the caller. Takes over one reference of the
 * setup, also on failure. */
static plsh_status cache_make(plsh_cache **out, plsh_cache_setup *setup, plsh_error *error) {
    void *memory;
    *out = NULL;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_cache), "a cache", error);
    if (status) {
        plsh_cache_setup_release(setup);
        return status;
    }
    plsh_cache *cache = memory;
    cache->setup = setup;
    atomic_flag_clear(&cache->busy);
    status =
        plsh_allocate(&memory, (size_t)setup->kv_heads, sizeof *cache->store, "a cache", error);
    cache->store = memory;
    if (!status) {
        status =
            plsh_allocate(&memory, (size_t)setup->heads, sizeof *cache->mask_state, "heads", error);
        cache->mask_state = memory;
    }
    if (status)
        plsh_cache_destroy(cache);
    else
        *out = cache;
    return status;
}

plsh_status plsh_cache_create(const plsh_cache_config *config, plsh_cache **cache,
                              plsh_error *error) {
    *cache = NULL;
    plsh_cache_setup *setup;
    plsh_status status = plsh_cache_setup_make(&setup, config, error);
    if (!status) status = cache_make(cache, setup, error);
    for (int64_t h = 0; !status && h < setup->heads; h++)
        status = plsh_cache_mask_state_make(&(*cache)->mask_state[h], &setup->mask[h], error);
    if (status) {
        plsh_cache_destroy(*cache);
        *cache = NULL;
    }
    return status;
}

void plsh_cache_destroy(plsh_cache *cache) {
    if (cache == NULL) return;
    for (int64_t kv = 0; cache->store && kv < cache->setup->kv_heads; kv++)
        plsh_cache_store_clear(&cache->store[kv]);
    for (int64_t h = 0; cache->mask_state && h < cache->setup->heads; h++)
        plsh_cache_mask_state_clear(&cache->mask_state[h]);
    plsh_release(cache->store);
    plsh_release(cache->mask_state);
    plsh_release(cache->own);
    plsh_cache_setup_release(cache->setup);
    plsh_release(cache);
}

static plsh_status make_fork(const plsh_cache *cache, plsh_cache **fork, plsh_error *error) {
    plsh_cache_setup_share(cache->setup);
    plsh_status status = cache_make(fork, cache->setup, error);
    for (int64_t h = 0; !status && h < cache->setup->heads; h++)
        status = plsh_cache_mask_state_fork(&(*fork)->mask_state[h], &cache->mask_state[h],
                                            &cache->setup->mask[h], error);
    for (int64_t kv = 0; !status && kv < cache->setup->kv_heads; kv++)
        status = plsh_cache_store_fork(&cache->store[kv], &(*fork)->store[kv], error);
    if (status) {
        plsh_cache_destroy(*fork);
        *fork = NULL;
        return status;
    }
    (*fork)->length = cache->length;
    (*fork)->swept = cache->swept;
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_fork(const plsh_cache *cache, plsh_cache **fork, plsh_error *error) {
    *fork = NULL;
    plsh_status status = plsh_cache_enter(cache, error);
    if (status) return status;
    status = make_fork(cache, fork, error);
    plsh_cache_leave(cache);
    return status;
}

/* The flag of a cache that is const to the caller. The cast is valid: no cache object is const. */
static atomic_flag *flag_of(const plsh_cache *cache) {
    return (atomic_flag *)(uintptr_t)&cache->busy;
}

plsh_status plsh_cache_enter(const plsh_cache *cache, plsh_error *error) {
    if (!atomic_flag_test_and_set_explicit(flag_of(cache), memory_order_acquire))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the cache is in use: another thread has not come back from it, or it is in "
                     "the batch twice; fork it instead");
}

void plsh_cache_leave(const plsh_cache *cache) {
    atomic_flag_clear_explicit(flag_of(cache), memory_order_release);
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* The first position that a query from position `swept` on may see. */
static int64_t needed_from(plsh_cache *cache, int64_t kv) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t first = INT64_MAX, kept = cache->store[kv].first * PLSH_PAGE_KEYS;
    for (int64_t h = kv * setup->group; h < (kv + 1) * setup->group; h++) {
        int64_t reach =
            plsh_cache_mask_reach(&setup->mask[h], &cache->mask_state[h].oldest, cache->swept);
        if (reach < first) first = reach;
        if (first < kept + PLSH_PAGE_KEYS) break; /* no page can be released */
    }
    return first;
}

/* Checks only when the position reaches another page: pages become free no more often. */
void plsh_cache_forget(plsh_cache *cache) {
    int64_t position = cache->length - cache->setup->undo;
    if (position / PLSH_PAGE_KEYS <= cache->swept / PLSH_PAGE_KEYS) return;
    cache->swept = position;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++)
        plsh_cache_store_drop(&cache->store[kv], needed_from(cache, kv));
}

void plsh_cache_take_back(plsh_cache *cache, int64_t length) {
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++)
        plsh_cache_store_truncate(&cache->store[kv], length);
    cache->length = length;
}

plsh_status plsh_cache_reserve(plsh_cache *cache, int64_t length, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < setup->heads; h++)
        status =
            plsh_cache_mask_state_reserve(&cache->mask_state[h], &setup->mask[h], length, error);
    int64_t kv = 0;
    for (; !status && kv < setup->kv_heads; kv++)
        status = plsh_cache_store_reserve(&cache->store[kv], plsh_cache_setup_pages(setup, kv),
                                          cache->length, length, error);
    if (status)
        while (kv-- > 0) plsh_cache_store_truncate(&cache->store[kv], cache->length);
    return status;
}

typedef struct writing {
    plsh_cache *cache;
    const plsh_tokens *tokens;
    plsh_layout k, v;
} writing;

static void write_head(void *context, int64_t kv, int slot) {
    const writing *w = context;
    const plsh_tokens *tokens = w->tokens;
    const int64_t element = (int64_t)plsh_dtype_size(tokens->dtype);
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(w->cache->setup, kv);
    const int64_t each = tokens->count * layout->dim; /* coordinates of a set */
    const int64_t first_set = w->cache->setup->point_sets == 1 ? 0 : kv * layout->sets;
    const plsh_cache_rows rows = {(const char *)tokens->k + kv * w->k.head_stride * element,
                                  (const char *)tokens->v + kv * w->v.head_stride * element,
                                  w->k.row_stride,
                                  w->v.row_stride,
                                  tokens->dtype,
                                  tokens->positions ? tokens->positions + first_set * each : NULL,
                                  each};
    (void)slot;
    plsh_cache_store_write(&w->cache->store[kv], layout, w->cache->length, tokens->count, &rows);
}

void plsh_cache_write(plsh_cache *cache, const plsh_tokens *tokens) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t count = tokens->count;
    writing w = {cache, tokens, plsh_layout_or(tokens->k_layout, count, setup->page[0].head_dim),
                 plsh_layout_or(tokens->v_layout, count, setup->page[0].value_dim)};
    const bool many = count >= 4 * PLSH_PAGE_KEYS / setup->kv_heads;
    plsh_thread_run(many ? setup->threads : 1, setup->kv_heads, write_head, &w);
    cache->length += count;
}

/* ---- Truncating ------------------------------------------------------------------------------ */

bool plsh_cache_reaches(const plsh_cache *cache, int64_t position) {
    const plsh_cache_setup *setup = cache->setup;
    for (int64_t h = 0; h < setup->heads; h++) {
        int64_t kept = cache->store[h / setup->group].first * PLSH_PAGE_KEYS;
        if (kept > 0 && plsh_cache_mask_reach(&setup->mask[h], NULL, position) < kept) return false;
    }
    return true;
}

int64_t plsh_cache_earliest(const plsh_cache *cache) {
    int64_t low = -1, high = cache->length; /* reach never decreases as the position grows */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (plsh_cache_reaches(cache, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static plsh_status check_truncation(const plsh_cache *cache, int64_t length, plsh_error *error) {
    if (length < 0 || length > cache->length)
        return plsh_fail(error, PLSH_STATUS_INVALID, "truncation to %lld tokens; 0 to %lld",
                         (long long)length, (long long)cache->length);
    if (length < cache->swept && !plsh_cache_reaches(cache, length))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "truncation to %lld tokens needs keys that were dropped; %lld is the "
                         "shortest possible (undo keeps more)",
                         (long long)length, (long long)plsh_cache_earliest(cache));
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_truncate(plsh_cache *cache, int64_t length, plsh_error *error) {
    plsh_status status = plsh_cache_enter(cache, error);
    if (status) return status;
    status = check_truncation(cache, length, error);
    if (!status) plsh_cache_take_back(cache, length);
    plsh_cache_leave(cache);
    return status;
}

/* ---- Accessors ------------------------------------------------------------------------------- */

int64_t plsh_cache_length(const plsh_cache *cache) { return cache->length; }

int64_t plsh_cache_first(const plsh_cache *cache, int64_t head) {
    int64_t first = cache->store[head / cache->setup->group].first * PLSH_PAGE_KEYS;
    return first < cache->length ? first : cache->length;
}

size_t plsh_cache_bytes(const plsh_cache *cache) {
    const plsh_cache_setup *setup = cache->setup;
    size_t bytes = sizeof *cache + sizeof *setup + cache->own_bytes;
    for (int64_t kv = 0; kv < setup->kv_heads; kv++)
        bytes += sizeof *cache->store +
                 plsh_cache_store_bytes(&cache->store[kv], plsh_cache_setup_pages(setup, kv));
    for (int64_t h = 0; h < setup->heads; h++)
        bytes += sizeof *setup->mask + sizeof *cache->mask_state +
                 plsh_cache_mask_state_bytes(&cache->mask_state[h], &setup->mask[h]);
    return bytes;
}

/* Tables double: twice what is needed, and the 8 entries that they begin with. */
size_t plsh_cache_bytes_at(const plsh_cache *cache, int64_t length) {
    const plsh_cache_setup *setup = cache->setup;
    const size_t pages = (size_t)(length + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS + 1;
    size_t bytes = plsh_cache_bytes(cache);
    for (int64_t kv = 0; kv < setup->kv_heads; kv++)
        bytes += pages * plsh_cache_setup_pages(setup, kv)->bytes +
                 (2 * pages + 8) * (sizeof(void *) + 2 * sizeof(float));
    for (int64_t h = 0; h < setup->heads; h++)
        if (setup->mask[h].kind == PLSH_MASK_TABLE)
            bytes += 2 * (pages + 1) * PLSH_PAGE_KEYS * (sizeof(float) + sizeof(double));
    return bytes;
}

plsh_head plsh_cache_head(const plsh_cache *cache, int64_t head, const char **reason) {
    const plsh_cache_mask *mask = &cache->setup->mask[head];
    if (reason) *reason = mask->reason;
    return mask->head;
}

const char *plsh_cache_isa(const plsh_cache *cache) { return cache->setup->page[0].kernels->name; }
