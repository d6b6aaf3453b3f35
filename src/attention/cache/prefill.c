/* attention/cache: many queries at once, through the tiles of the forward pass.
 *
 * The decode kernels are made for a few rows. A prompt, or a chunk of one, goes through a plan that
 * reads its keys and values from the pages where they lie: a step of a walk at a time is put
 * together in the thread's workspace, so that memory is that of the chunk. The numbers are those of
 * plsh_plan_forward on arrays, to the bit. */
#include "attention/cache/prefill.h"

#include "attention/run/create.h"
#include "attention/run/forward.h"
#include "base/arena.h"

/* Below, a tile is mostly empty: the two ways cross between 16 and 64 tokens, d = 64. */
static const int64_t FEWEST_TOKENS = 32;
/* A plan summarises all keys of `exact` heads, which costs as much as scoring each of them about
 * six times; the decode kernels have the summaries of the pages. With more keys than this per
 * token, `exact` is faster with those, and other methods hardly slower. */
static const int64_t MOST_SUMMARISED = 64;
/* Plans take no more keys. */
static const int64_t MOST_KEYS = INT64_C(1) << 40;

bool plsh_cache_prefill_applies(const plsh_cache *cache, int64_t count, int64_t length) {
    if (count < FEWEST_TOKENS || length > MOST_KEYS) return false;
    if (length / MOST_SUMMARISED < count) return true;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++)
        if (cache->setup->bounded[kv]) return false;
    return true;
}

static plsh_status make_plan(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                             plsh_plan **plan, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t d = setup->page[0].head_dim, dv = setup->page[0].value_dim, count = tokens->count;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)setup->heads, sizeof(plsh_head), "heads", error);
    if (status) return status;
    plsh_head *head = memory;
    for (int64_t h = 0; h < setup->heads; h++) head[h] = setup->mask[h].head;
    plsh_attention attention = {.heads = setup->heads,
                                .kv_heads = setup->kv_heads,
                                .queries = count,
                                .keys = length,
                                .head_dim = d,
                                .value_dim = dv,
                                .causal = true,
                                .scale = setup->scale,
                                .dtype = tokens->dtype,
                                .o_dtype = tokens->o_dtype,
                                .q = plsh_cache_layout_or(tokens->q_layout, count, d),
                                .o = plsh_cache_layout_or(tokens->o_layout, count, dv),
                                .head = head,
                                .head_count = setup->heads,
                                .threads = setup->threads,
                                .isa = setup->page[0].kernels->name};
    status = plsh_plan_create_paged(&attention, plan, error);
    plsh_release(memory);
    return status;
}

plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, plsh_error *error) {
    *prefill = (plsh_cache_prefill){0};
    plsh_status status = make_plan(cache, tokens, length, &prefill->plan, error);
    if (status) return status;
    plsh_arena arena = {0};
    plsh_arena_take(&arena, 1, plsh_plan_workspace(prefill->plan));
    prefill->sources = arena.used;
    plsh_arena_take(&arena, 2 * (size_t)cache->setup->kv_heads, sizeof(plsh_row_source));
    prefill->bytes = arena.used;
    return PLSH_STATUS_OK;
}

void plsh_cache_prefill_clear(plsh_cache_prefill *prefill) {
    plsh_plan_destroy(prefill->plan);
    *prefill = (plsh_cache_prefill){0};
}

/* The summaries of keys grow with the length, up to the length at which the decode kernels take
 * over, but where their pieces become larger: there, fewer keys may need more. */
plsh_status plsh_cache_prefill_most_bytes(const plsh_cache *cache, int64_t count, size_t *bytes,
                                          plsh_error *error) {
    *bytes = 0;
    int64_t most = plsh_cache_setup_most_tokens(cache->setup);
    if (count > most) count = most;
    if (count > MOST_KEYS) count = MOST_KEYS;
    if (count < FEWEST_TOKENS) return PLSH_STATUS_OK;
    int64_t length = count < most / MOST_SUMMARISED ? count * MOST_SUMMARISED : most;
    if (length > MOST_KEYS) length = MOST_KEYS;
    bool bounded = false;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) bounded |= cache->setup->bounded[kv];
    plsh_tokens tokens = {.count = count};
    plsh_cache_prefill prefill;
    plsh_status status =
        plsh_cache_prefill_make(&prefill, cache, &tokens, bounded ? length : count, error);
    if (status) return status;
    *bytes = prefill.bytes;
    if (bounded && prefill.plan->bound_keys > PLSH_BOUND_KEYS)
        *bytes += (size_t)cache->setup->kv_heads * PLSH_BOX_BYTES;
    plsh_cache_prefill_clear(&prefill);
    return PLSH_STATUS_OK;
}

static plsh_row_source source_of(const plsh_cache *cache, int64_t kv, bool values) {
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, kv);
    return (plsh_row_source){.dtype = layout->dtype,
                             .dim = (int)(values ? layout->value_dim : layout->head_dim),
                             .stride = values ? layout->dv : layout->d,
                             .page = (const void *const *)cache->store[kv].page,
                             .first_page = cache->store[kv].first,
                             .page_rows = PLSH_PAGE_KEYS,
                             .offset = values ? layout->values : layout->keys};
}

void plsh_cache_prefill_run(plsh_cache *cache) {
    const plsh_cache_prefill *prefill = &cache->call.prefill;
    const plsh_tokens *tokens = cache->call.tokens;
    int64_t kv_heads = cache->setup->kv_heads;
    plsh_row_source *k = (void *)((char *)prefill->memory + prefill->sources), *v = k + kv_heads;
    for (int64_t kv = 0; kv < kv_heads; kv++) {
        k[kv] = source_of(cache, kv, false);
        v[kv] = source_of(cache, kv, true);
    }
    plsh_pages pages = {.k = k, .v = v};
    plsh_forward arrays = {.q = tokens->q, .o = tokens->o, .lse = tokens->lse};
    cache->call.pairs = plsh_plan_forward_pages(prefill->plan, &arrays, &pages, prefill->memory);
}
