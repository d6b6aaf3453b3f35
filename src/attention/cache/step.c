/* attention/cache: appending and attending, for one sequence or several. */
#include "attention/cache/cache.h"
#include "attention/cache/prefill.h"
#include "base/memory.h"
#include "base/status.h"

/* ---- Checks ---------------------------------------------------------------------------------- */

static plsh_status check_tokens(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    if (tokens->count < 0 || tokens->count > PLSH_ROWS_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the number of tokens is %lld; 0 to 2^40",
                         (long long)tokens->count);
    if (tokens->dtype != PLSH_DTYPE_FLOAT32 && tokens->dtype != cache->setup->page[0].dtype)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "tokens have dtype %s; float32, or what the cache stores, %s",
                         plsh_dtype_name(tokens->dtype),
                         plsh_dtype_name(cache->setup->page[0].dtype));
    return plsh_check_o_dtype(tokens->o_dtype, error);
}

static plsh_status check_positions(const plsh_cache_setup *setup, const plsh_tokens *tokens,
                                   plsh_error *error) {
    const plsh_positions positions = {.dim = setup->page[0].dim, .sets = setup->point_sets};
    if (positions.dim == 0 && tokens->positions)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "tokens have positions; the cache counts rows (position_dim is 0)");
    if (positions.dim == 0) return PLSH_STATUS_OK;
    return plsh_check_points(&positions, "tokens", tokens->positions, tokens->count, error);
}

static plsh_status check_append(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    plsh_layout k = tokens->k_layout, v = tokens->v_layout;
    plsh_status status = check_tokens(cache, tokens, error);
    if (status || tokens->count == 0) return status;
    if (tokens->k == NULL || tokens->v == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "k or v is NULL; appending reads both");
    status = check_positions(setup, tokens, error);
    if (status) return status;
    int64_t most = plsh_cache_setup_most_tokens(setup);
    if (cache->length + tokens->count > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld tokens more than the %lld there are; the heads serve %lld (user "
                         "labels end, other positions are below 2^61)",
                         (long long)tokens->count, (long long)cache->length, (long long)most);
    status =
        plsh_check_layout(&k, "k", setup->kv_heads, tokens->count, setup->page[0].head_dim, error);
    return status ? status
                  : plsh_check_layout(&v, "v", setup->kv_heads, tokens->count,
                                      setup->page[0].value_dim, error);
}

/* o and lse may overlap neither each other nor what the call reads: q, and k and v where they are
 * given. */
static plsh_status check_output(const plsh_cache *cache, const plsh_tokens *tokens, const void *k,
                                const void *v, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    const int64_t n = tokens->count, d = setup->page[0].head_dim, dv = setup->page[0].value_dim;
    const size_t size = plsh_dtype_size(tokens->dtype);
    plsh_layout q_layout = tokens->q_layout, o_layout = tokens->o_layout;
    plsh_status status = plsh_check_layout(&q_layout, "q", setup->heads, n, d, error);
    if (!status) status = plsh_check_layout(&o_layout, "o", setup->heads, n, dv, error);
    if (status) return status;
    const plsh_check_array arrays[] = {
        {"q", tokens->q, size, q_layout, setup->heads, n, d, false},
        {"k", k, size, plsh_layout_or(tokens->k_layout, n, d), setup->kv_heads, n, d, false},
        {"v", v, size, plsh_layout_or(tokens->v_layout, n, dv), setup->kv_heads, n, dv, false},
        {"o", tokens->o, plsh_dtype_size(tokens->o_dtype), o_layout, setup->heads, n, dv, true},
        {"lse", tokens->lse, sizeof(float), {n, 1}, setup->heads, n, 1, true},
    };
    return plsh_check_overlap(arrays, 5, error);
}

static plsh_status check_attend(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                                bool appends, plsh_error *error) {
    plsh_status status = check_tokens(cache, tokens, error);
    if (status || tokens->count == 0) return status;
    if (tokens->q == NULL || tokens->o == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "q or o is NULL; attending needs both");
    if (tokens->count > length)
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld queries, but only %lld tokens",
                         (long long)tokens->count, (long long)length);
    return check_output(cache, tokens, appends ? tokens->k : NULL, appends ? tokens->v : NULL,
                        error);
}

static plsh_status check_reach(const plsh_cache *cache, int64_t position, plsh_error *error) {
    if (position >= cache->swept || plsh_cache_reaches(cache, position)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "position %lld needs keys that were dropped; position %lld is the first "
                     "that does not (undo keeps more)",
                     (long long)position, (long long)plsh_cache_earliest(cache));
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The caller's workspace, handed out from the front. */
typedef struct workspace {
    char *memory; /* NULL: the caches have their own */
    size_t bytes, used;
} workspace;

static plsh_status fail_small(const workspace *given, size_t needed, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the workspace has %zu bytes; this call needs %zu (plsh_cache_workspace)",
                     given->bytes, needed);
}

static plsh_status open_workspace(workspace *given, const plsh_tokens *tokens, plsh_error *error) {
    *given = (workspace){.memory = tokens->workspace, .bytes = tokens->workspace_bytes};
    if ((uintptr_t)given->memory % PLSH_ALIGNMENT == 0) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "the workspace must lie on a multiple of %d",
                     PLSH_ALIGNMENT);
}

/* Memory that a cache keeps from step to step. */
static plsh_status reserve_own(plsh_cache *cache, int64_t tokens, size_t bytes, plsh_error *error) {
    if (cache->own && cache->own_tokens >= tokens) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, bytes, "the workspace of a step", error);
    if (status) return status;
    plsh_release(cache->own);
    cache->own = memory;
    cache->own_bytes = bytes;
    cache->own_tokens = tokens;
    return PLSH_STATUS_OK;
}

static plsh_status place_pass(plsh_cache *cache, workspace *given, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t tokens = plsh_cache_pass_tokens(setup, cache->call.tokens->count);
    size_t bytes = plsh_cache_pass_bytes(setup, tokens), needed;
    if (!plsh_add(given->used, bytes, &needed))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of a step overflows");
    if (given->memory) {
        if (needed > given->bytes) return fail_small(given, needed, error);
        cache->call.pass = plsh_cache_pass_place(setup, tokens, given->memory + given->used);
        given->used = needed;
        return PLSH_STATUS_OK;
    }
    plsh_status status = reserve_own(cache, tokens, bytes, error);
    if (!status) cache->call.pass = plsh_cache_pass_place(setup, tokens, cache->own);
    return status;
}

/* Prompts run one after the other, so they share the part of the workspace that the passes do not
 * use. */
static plsh_status place_prefill(plsh_cache *cache, const workspace *given, plsh_error *error) {
    plsh_cache_prefill *prefill = &cache->call.prefill;
    prefill->own = given->memory == NULL || cache->setup->page[0].dim > 0;
    if (prefill->own)
        return plsh_allocate(&prefill->memory, 1, prefill->bytes, "the workspace of a step", error);
    if (prefill->bytes > given->bytes - given->used)
        return fail_small(given, given->used + prefill->bytes, error);
    prefill->memory = given->memory + given->used;
    return PLSH_STATUS_OK;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* One call: entries 0 .. count - 1 of both arrays belong together. */
typedef struct batch {
    plsh_cache *const *cache;
    const plsh_tokens *tokens;
    int64_t count;
    bool append; /* the tokens' keys and values, before attending */
    bool attend; /* for them */
    workspace given;
} batch;

/* "sequence 3: ..." where there are several. */
static plsh_status name_sequence(const batch *all, int64_t i, plsh_status status,
                                 plsh_error *error) {
    if (status == PLSH_STATUS_OK || all->count == 1 || error == NULL) return status;
    plsh_error inner = *error;
    return plsh_fail(error, status, "sequence %lld: %.220s", (long long)i, inner.message);
}

static plsh_status check(const batch *all, int64_t i, plsh_error *error) {
    const plsh_cache *cache = all->cache[i];
    const plsh_tokens *tokens = &all->tokens[i];
    plsh_status status = PLSH_STATUS_OK;
    if (all->append) status = check_append(cache, tokens, error);
    if (!status && all->attend)
        status = check_attend(cache, tokens, all->append ? INT64_MAX : cache->length, all->append,
                              error);
    if (!status && !all->append && tokens->count > 0)
        status = check_reach(cache, cache->length - tokens->count, error);
    return status;
}

/* The length after the call. */
static int64_t length_after(const batch *all, int64_t i) {
    return all->cache[i]->length + (all->append ? all->tokens[i].count : 0);
}

/* Reserves all memory that sequence i needs, except the workspaces of prompts. */
static plsh_status reserve_sequence(batch *all, int64_t i, plsh_error *error) {
    plsh_cache *cache = all->cache[i];
    const plsh_tokens *tokens = cache->call.tokens = &all->tokens[i];
    plsh_status status = PLSH_STATUS_OK;
    if (tokens->count == 0) return status;
    const int64_t length = length_after(all, i);
    if (all->append) status = plsh_cache_reserve(cache, length, error);
    if (status || !all->attend) return status;
    const int64_t first = plsh_cache_prefill_first_page(cache, tokens, length, all->append);
    if (first < 0) return place_pass(cache, &all->given, error);
    return plsh_cache_prefill_make(&cache->call.prefill, cache, tokens, length, first, error);
}

static plsh_status reserve_all(batch *all, plsh_error *error) {
    plsh_status status = open_workspace(&all->given, &all->tokens[0], error);
    if (status) return status;
    for (int64_t i = 0; i < all->count && !status; i++)
        status = name_sequence(all, i, reserve_sequence(all, i, error), error);
    for (int64_t i = 0; i < all->count && !status; i++)
        if (all->cache[i]->call.prefill.plan)
            status = name_sequence(all, i, place_prefill(all->cache[i], &all->given, error), error);
    return status;
}

/* Ends a call and clears its state. After a failure the caches are unchanged: pages that were
 * reserved have not been written. */
static void end_call(const batch *all, int64_t i) {
    plsh_cache *cache = all->cache[i];
    if (cache->call.prefill.own) plsh_release(cache->call.prefill.memory);
    plsh_cache_prefill_clear(&cache->call.prefill);
    cache->call = (plsh_cache_call){0};
    plsh_cache_take_back(cache, cache->length);
}

/* Runs the call, after everything that can fail has succeeded. */
static void append_and_attend(const batch *all, plsh_stats *stats) {
    for (int64_t i = 0; i < all->count && all->append; i++) {
        if (!all->attend)
            plsh_cache_forget(
                all->cache[i]); /* not yet: the appended tokens may attend in a later call */
        plsh_cache_write(all->cache[i], &all->tokens[i]);
    }
    if (!all->attend) return;
    for (int64_t i = 0; i < all->count; i++)
        if (all->cache[i]->call.prefill.plan) plsh_cache_prefill_run(all->cache[i]);
    plsh_cache_attend_pages(all->cache, all->count);
    for (int64_t i = 0; i < all->count && stats; i++) stats->pairs += all->cache[i]->call.pairs;
    for (int64_t i = 0; i < all->count && all->append; i++) plsh_cache_forget(all->cache[i]);
}

static plsh_status call(batch *all, plsh_stats *stats, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    int64_t entered = 0;
    if (stats) *stats = (plsh_stats){0};
    for (; entered < all->count && !status; entered += !status)
        status = name_sequence(all, entered, plsh_cache_enter(all->cache[entered], error), error);
    for (int64_t i = 0; i < all->count && !status; i++)
        status = name_sequence(all, i, check(all, i, error), error);
    bool begun = !status;
    if (!status) status = reserve_all(all, error);
    if (!status) append_and_attend(all, stats);
    for (int64_t i = 0; i < all->count && begun; i++) end_call(all, i);
    while (entered-- > 0) plsh_cache_leave(all->cache[entered]);
    return status;
}

plsh_status plsh_cache_append(plsh_cache *cache, const plsh_tokens *tokens, plsh_error *error) {
    batch one = {&cache, tokens, 1, .append = true};
    return call(&one, NULL, error);
}

plsh_status plsh_cache_attend(plsh_cache *cache, const plsh_tokens *tokens, plsh_stats *stats,
                              plsh_error *error) {
    batch one = {&cache, tokens, 1, .attend = true};
    return call(&one, stats, error);
}

plsh_status plsh_cache_step(plsh_cache *cache, const plsh_tokens *tokens, plsh_stats *stats,
                            plsh_error *error) {
    batch one = {&cache, tokens, 1, .append = true, .attend = true};
    return call(&one, stats, error);
}

plsh_status plsh_cache_step_batch(plsh_cache *const *caches, const plsh_tokens *tokens,
                                  int64_t count, plsh_stats *stats, plsh_error *error) {
    if (stats) *stats = (plsh_stats){0};
    if (count < 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld sequences; 0 or more", (long long)count);
    if (count == 0) return PLSH_STATUS_OK;
    batch all = {caches, tokens, count, .append = true, .attend = true};
    return call(&all, stats, error);
}

plsh_status plsh_cache_workspace(plsh_cache *const *caches, int64_t sequences, int64_t count,
                                 size_t *bytes, plsh_error *error) {
    size_t passes = 0, prompt = 0;
    *bytes = 0;
    if (count < 0 || count > PLSH_ROWS_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the number of tokens is %lld; 0 to 2^40",
                         (long long)count);
    for (int64_t i = 0; i < sequences; i++) {
        size_t each;
        plsh_status status = plsh_cache_prefill_most_bytes(caches[i], count, &each, error);
        if (status) return status;
        if (each > prompt) prompt = each;
        int64_t tokens = plsh_cache_pass_tokens(caches[i]->setup, count);
        if (!plsh_add(passes, plsh_cache_pass_bytes(caches[i]->setup, tokens), &passes))
            return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of a step overflows");
    }
    if (plsh_add(passes, prompt, bytes)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of a step overflows");
}
