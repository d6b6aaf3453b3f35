/* attention: many queries at once, through the tiles of the forward pass.
 *
 * The decode kernels are made for a few rows. A prompt goes through a plan per kv head instead: on
 * the user's own arrays where they are the whole sequence, otherwise on a copy of the head's pages,
 * one head at a time. Plans count positions from the first key, so everything has to be there. */
#include "attention/cache/prefill.h"

#include "base/dtype.h"
#include "base/memory.h"

#include <string.h>

/* Below, a tile is mostly empty: the two ways cross between 16 and 64 tokens for dense, d = 64. A
 * copy has to be worth it for heads that read little: no more than so many rows per token. */
static const int64_t FEWEST_TOKENS = 64, MOST_COPIED = 4;
/* Plans take no more keys. */
static const int64_t MOST_KEYS = INT64_C(1) << 40;

bool plsh_cache_prefill_applies(const plsh_cache *cache, int64_t count, int64_t length) {
    if (count < FEWEST_TOKENS || length > MOST_KEYS || length > MOST_COPIED * count) return false;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++)
        if (cache->store[kv].first > 0) return false;
    return true;
}

/* Are the tokens all there are, in numbers that the storage does not round? */
static bool is_direct(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length) {
    return tokens->k && tokens->v && tokens->count == length &&
           tokens->dtype == cache->setup->page[0].dtype;
}

static plsh_status make_plan(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                             int64_t kv, bool direct, plsh_plan **plan, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t d = setup->page[0].head_dim, dv = setup->page[0].value_dim, count = tokens->count;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)setup->group, sizeof(plsh_head), "heads", error);
    if (status) return status;
    plsh_head *head = memory;
    for (int64_t h = 0; h < setup->group; h++) head[h] = setup->mask[kv * setup->group + h].head;
    plsh_attention attention = {.heads = setup->group,
                                .kv_heads = 1,
                                .queries = count,
                                .keys = length,
                                .head_dim = d,
                                .value_dim = dv,
                                .causal = true,
                                .scale = setup->scale,
                                .dtype = tokens->dtype,
                                .q = plsh_cache_layout_or(tokens->q_layout, count, d),
                                .o = plsh_cache_layout_or(tokens->o_layout, count, dv),
                                .head = head,
                                .head_count = setup->group,
                                .threads = setup->threads,
                                .isa = setup->page[0].kernels->name};
    if (direct) {
        attention.k = plsh_cache_layout_or(tokens->k_layout, count, d);
        attention.v = plsh_cache_layout_or(tokens->v_layout, count, dv);
    }
    status = plsh_plan_create(&attention, plan, error);
    plsh_release(memory);
    return status;
}

static plsh_status make_memory(plsh_cache_prefill *prefill, const plsh_cache *cache, int64_t length,
                               size_t element, plsh_error *error) {
    const plsh_cache_page_layout *page = &cache->setup->page[0];
    size_t most = 0;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) {
        size_t bytes = plsh_plan_workspace(prefill->plan[kv]);
        if (bytes > most) most = bytes;
    }
    plsh_status status = plsh_allocate(&prefill->workspace, 1, most, "a workspace", error);
    if (status || prefill->direct) return status;
    status = plsh_allocate(&prefill->k, (size_t)length, (size_t)page->head_dim * element,
                           "a copy of keys", error);
    return status ? status
                  : plsh_allocate(&prefill->v, (size_t)length, (size_t)page->value_dim * element,
                                  "a copy of values", error);
}

plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    void *memory;
    *prefill = (plsh_cache_prefill){.direct = is_direct(cache, tokens, length)};
    plsh_status status =
        plsh_allocate(&memory, (size_t)setup->kv_heads, sizeof(plsh_plan *), "plans", error);
    prefill->plan = memory;
    for (int64_t kv = 0; kv < setup->kv_heads && !status; kv++)
        status = make_plan(cache, tokens, length, kv, prefill->direct, &prefill->plan[kv], error);
    size_t element = plsh_dtype_size(tokens->dtype);
    if (!status) status = make_memory(prefill, cache, length, element, error);
    if (status) plsh_cache_prefill_clear(prefill, setup->kv_heads);
    return status;
}

void plsh_cache_prefill_clear(plsh_cache_prefill *prefill, int64_t kv_heads) {
    for (int64_t kv = 0; prefill->plan && kv < kv_heads; kv++) plsh_plan_destroy(prefill->plan[kv]);
    plsh_release(prefill->plan);
    plsh_release(prefill->workspace);
    plsh_release(prefill->k);
    plsh_release(prefill->v);
    *prefill = (plsh_cache_prefill){0};
}

static void copy_row(const plsh_cache_page_layout *page, const char *from, void *to, int64_t at,
                     int64_t dim, plsh_dtype dtype) {
    if (dtype == page->dtype) {
        memcpy((char *)to + (size_t)at * page->element, from, (size_t)dim * page->element);
        return;
    }
    float *row = (float *)to + at;
    for (int64_t x = 0; x < dim; x++) row[x] = plsh_dtype_load(page->dtype, from, x);
}

/* The head's keys and values, one row after the other, in the type of the queries. */
static void copy_pages(const plsh_cache_prefill *prefill, const plsh_cache *cache, int64_t kv,
                       plsh_dtype dtype) {
    const plsh_cache_page_layout *page = plsh_cache_setup_pages(cache->setup, kv);
    size_t k_row = (size_t)page->d * page->element, v_row = (size_t)page->dv * page->element;
#pragma omp parallel for schedule(static) num_threads(cache->setup->threads)
    for (int64_t at = 0; at < cache->length; at++) {
        const plsh_cache_page *from = plsh_cache_store_page(&cache->store[kv], at / PLSH_PAGE_KEYS);
        size_t row = (size_t)(at % PLSH_PAGE_KEYS);
        copy_row(page, plsh_cache_page_at(from, page->keys) + row * k_row, prefill->k,
                 at * page->head_dim, page->head_dim, dtype);
        copy_row(page, plsh_cache_page_at(from, page->values) + row * v_row, prefill->v,
                 at * page->value_dim, page->value_dim, dtype);
    }
}

plsh_status plsh_cache_prefill_run(const plsh_cache_prefill *prefill, const plsh_cache *cache,
                                   const plsh_tokens *tokens, plsh_report *report,
                                   plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t count = tokens->count, d = setup->page[0].head_dim, dv = setup->page[0].value_dim;
    int64_t element = (int64_t)plsh_dtype_size(tokens->dtype);
    plsh_layout q = plsh_cache_layout_or(tokens->q_layout, count, d);
    plsh_layout k = plsh_cache_layout_or(tokens->k_layout, count, d);
    plsh_layout v = plsh_cache_layout_or(tokens->v_layout, count, dv);
    plsh_layout o = plsh_cache_layout_or(tokens->o_layout, count, dv);
    int64_t pairs = 0;
    for (int64_t kv = 0; kv < setup->kv_heads; kv++) {
        int64_t first = kv * setup->group;
        if (!prefill->direct) copy_pages(prefill, cache, kv, tokens->dtype);
        plsh_forward arrays = {
            .q = (const char *)tokens->q + first * q.head_stride * element,
            .k = prefill->direct ? (const char *)tokens->k + kv * k.head_stride * element
                                 : prefill->k,
            .v = prefill->direct ? (const char *)tokens->v + kv * v.head_stride * element
                                 : prefill->v,
            .o = tokens->o + first * o.head_stride,
            .lse = tokens->lse ? tokens->lse + first * count : NULL};
        plsh_report part;
        plsh_status status =
            plsh_plan_forward(prefill->plan[kv], &arrays, prefill->workspace, &part, error);
        if (status) return status;
        pairs += part.pairs;
    }
    if (report) *report = (plsh_report){.pairs = pairs};
    return PLSH_STATUS_OK;
}
