/* attention/cache: chunks of a prompt, through the tiles of the forward pass.
 *
 * The decode kernels are made for a few rows. A prompt, or a chunk of one, runs through a plan that
 * reads keys and values from the pages. The rows of one step of a walk at a time are collected in
 * the thread's workspace, so memory does not grow with the number of keys. The results are those of
 * plsh_plan_forward on arrays, to the bit.
 *
 * A plan summarises all keys of `exact` heads. After a long text the plan is made for the newest
 * keys only: the older keys and the plan each have a share of eps (head/bound.h). The results are
 * then those of a plan over these keys. */
#include "attention/cache/prefill.h"

#include "attention/cache/exact.h"
#include "attention/run/forward.h"
#include "base/arena.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "head/bound.h"

#include <math.h>

/* With fewer tokens a tile is mostly empty. From some number of tokens on plans are faster than the
 * decode kernels: between 16 and 64 for d = 64. */
static const int64_t FEWEST_TOKENS = 32;
/* Summarising a key costs about as much as scoring it six times; the decode kernels use the stored
 * summaries of the pages. With more keys than this per token, `exact` is faster with those, and
 * other methods hardly slower. */
static const int64_t MOST_SUMMARISED = 64;
/* Plans take no more keys. */
static const int64_t MOST_KEYS = INT64_C(1) << 40;

static bool has_bounds(const plsh_cache_setup *setup) {
    bool has = false;
    for (int64_t kv = 0; kv < setup->kv_heads; kv++) has |= setup->bounded[kv];
    return has;
}

/* ---- The newest keys ------------------------------------------------------------------------ */

/* The first page before `end` that a new token has to read. The budget is relative to a lower bound
 * of the row's weight: that of its own key, 2^(q . k). `rounding` covers the rounding of the key to
 * the stored type, which has 8 bits of precision or more. */
static int64_t first_page_of(const plsh_cache *cache, const plsh_tokens *tokens, int64_t head,
                             int64_t token, int64_t position, int64_t end) {
    const plsh_cache_setup *setup = cache->setup;
    const int64_t d = setup->page[0].head_dim, kv = head / setup->group, n = tokens->count;
    const plsh_layout q = plsh_layout_or(tokens->q_layout, n, d),
                      k = plsh_layout_or(tokens->k_layout, n, d);
    const int64_t q_at = head * q.head_stride + token * q.row_stride,
                  k_at = kv * k.head_stride + token * k.row_stride;
    const double factor = setup->scale * PLSH_LOG2_E;
    double q_square = 0, k_square = 0, own = 0;
    for (int64_t x = 0; x < d; x++) {
        const double a = factor * (double)plsh_dtype_load(tokens->dtype, tokens->q, q_at + x);
        const double b = (double)plsh_dtype_load(tokens->dtype, tokens->k, k_at + x);
        q_square += a * a, k_square += b * b, own += a * b;
    }
    if (!(k_square < 65504.0 * 65504.0)) return 0; /* stored as float16 it may be infinite */
    plsh_cache_query query = {
        .mask_row = {&setup->mask[head], &cache->mask_state[head], NULL, position, -1},
        .norm = sqrt(q_square) * (1 + 1e-6)};
    const double rounding = query.norm * (sqrt(k_square) * 0x1p-8 + 1e-6);
    const double budget =
        own - rounding + log2(plsh_bound_of(setup->mask[head].head.eps, PLSH_BOUND_OLDER, 1));
    return plsh_cache_exact_first_page(&query, &cache->store[kv], end, budget);
}

/* Are the keys from this page on few enough for a plan? */
static bool is_worth_it(int64_t count, int64_t length, int64_t first_page) {
    return (length - first_page * PLSH_PAGE_KEYS) / MOST_SUMMARISED < count;
}

/* The first page that any of the new tokens has to read, where all heads are `exact`; otherwise 0.
 * The search ends as soon as the keys are too many for a plan; the page that it then returns is not
 * worth it. For most tokens the page found for the earlier tokens is confirmed by one check. */
static int64_t first_page_of_all(const plsh_cache *cache, const plsh_tokens *tokens,
                                 int64_t length) {
    const plsh_cache_setup *setup = cache->setup;
    const int64_t before = length - tokens->count;
    int64_t first = before / PLSH_PAGE_KEYS;
    for (int64_t h = 0; h < setup->heads; h++)
        if (setup->mask[h].head.method != PLSH_METHOD_EXACT) return 0;
    for (int64_t h = 0; h < setup->heads; h++)
        for (int64_t t = 0; t < tokens->count && is_worth_it(tokens->count, length, first); t++)
            first = first_page_of(cache, tokens, h, t, before + t, first);
    return first;
}

int64_t plsh_cache_prefill_first_page(const plsh_cache *cache, const plsh_tokens *tokens,
                                      int64_t length, bool appends) {
    const int64_t count = tokens->count;
    const bool points = cache->setup->page[0].dim > 0;
    if (count < FEWEST_TOKENS || length > (points ? INT32_MAX : MOST_KEYS)) return -1;
    if (is_worth_it(count, length, 0) || !has_bounds(cache->setup)) return 0;
    const int64_t first = appends && !points ? first_page_of_all(cache, tokens, length) : 0;
    return is_worth_it(count, length, first) ? first : -1;
}

/* ---- Plans ---------------------------------------------------------------------------------- */

/* How a plan is made: plsh_plan_create_paged, plsh_plan_create_measured. */
typedef plsh_status (*create_plan)(const plsh_attention *attention, plsh_plan **plan,
                                   plsh_error *error);

/* The positions of a sequence that will be `length` long, [sets][length][dim], which the caller
 * releases: those of the pages, and behind them those of new tokens. NULL: they are row numbers. */
static plsh_status gather_positions(const plsh_cache *cache, const plsh_tokens *tokens,
                                    int64_t length, plsh_positions *out, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    const int dim = setup->page[0].dim;
    const int64_t sets = setup->point_sets, held = cache->length;
    void *memory = NULL;
    *out = (plsh_positions){.dim = dim, .sets = sets};
    if (dim == 0) return PLSH_STATUS_OK;
    plsh_status status = plsh_allocate(&memory, (size_t)(sets * length),
                                       (size_t)dim * sizeof(float), "positions", error);
    if (status) return status;
    float *to = memory;
    out->key = to;
    for (int64_t set = 0; set < sets; set++) {
        const int64_t kv = sets == 1 ? 0 : set / setup->group,
                      within = sets == 1 ? 0 : set % setup->group;
        const plsh_cache_page_layout *layout = plsh_cache_setup_pages(setup, kv);
        for (int64_t row = 0; row < length; row++) {
            const plsh_cache_page *page =
                plsh_cache_store_page(&cache->store[kv], row / PLSH_PAGE_KEYS);
            const float *from =
                row < held
                    ? plsh_cache_page_point(page, layout, row % PLSH_PAGE_KEYS) + within * dim
                    : tokens->positions + (set * tokens->count + row - held) * dim;
            for (int i = 0; i < dim; i++) *to++ = from[i];
        }
    }
    return PLSH_STATUS_OK;
}

static plsh_status make_plan(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                             int64_t first_page, create_plan create, plsh_plan **plan,
                             plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t d = setup->page[0].head_dim, dv = setup->page[0].value_dim, count = tokens->count;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)setup->heads, sizeof(plsh_head), "heads", error);
    if (status) return status;
    plsh_head *head = memory;
    for (int64_t h = 0; h < setup->heads; h++) {
        head[h] = setup->mask[h].head;
        if (first_page > 0) head[h].eps = plsh_bound_of(head[h].eps, PLSH_BOUND_CHUNK, 1);
    }
    plsh_attention attention = {.heads = setup->heads,
                                .kv_heads = setup->kv_heads,
                                .queries = count,
                                .keys = length - first_page * PLSH_PAGE_KEYS,
                                .head_dim = d,
                                .value_dim = dv,
                                .causal = true,
                                .scale = setup->scale,
                                .dtype = tokens->dtype,
                                .o_dtype = tokens->o_dtype,
                                .q = plsh_layout_or(tokens->q_layout, count, d),
                                .o = plsh_layout_or(tokens->o_layout, count, dv),
                                .head = head,
                                .head_count = setup->heads,
                                .threads = setup->threads,
                                .isa = setup->page[0].kernels->name};
    status = gather_positions(cache, tokens, length, &attention.positions, error);
    if (!status) status = create(&attention, plan, error);
    plsh_release((void *)(uintptr_t)attention.positions.key);
    plsh_release(memory);
    return status;
}

static plsh_status make_prefill(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                const plsh_tokens *tokens, int64_t length, int64_t first_page,
                                create_plan create, plsh_error *error) {
    *prefill = (plsh_cache_prefill){.first_page = first_page};
    plsh_status status =
        make_plan(cache, tokens, length, first_page, create, &prefill->plan, error);
    if (status) return status;
    plsh_arena arena = {0};
    plsh_arena_take(&arena, 1, plsh_plan_workspace(prefill->plan));
    prefill->sources = arena.used;
    plsh_arena_take(&arena, 2 * (size_t)cache->setup->kv_heads, sizeof(plsh_row_source));
    prefill->bytes = arena.used;
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_prefill_make(plsh_cache_prefill *prefill, const plsh_cache *cache,
                                    const plsh_tokens *tokens, int64_t length, int64_t first_page,
                                    plsh_error *error) {
    return make_prefill(prefill, cache, tokens, length, first_page, plsh_plan_create_paged, error);
}

void plsh_cache_prefill_clear(plsh_cache_prefill *prefill) {
    plsh_plan_destroy(prefill->plan);
    *prefill = (plsh_cache_prefill){0};
}

/* Summaries grow with the number of keys, at most MOST_SUMMARISED per token. With larger pieces,
 * fewer keys may need more memory, but no more than PLSH_BOX_BYTES per kv head, which is added. */
plsh_status plsh_cache_prefill_most_bytes(const plsh_cache *cache, int64_t count, size_t *bytes,
                                          plsh_error *error) {
    *bytes = 0;
    int64_t most = plsh_cache_setup_most_tokens(cache->setup);
    if (count > most) count = most;
    if (count > MOST_KEYS) count = MOST_KEYS;
    if (count < FEWEST_TOKENS) return PLSH_STATUS_OK;
    if (cache->setup->page[0].dim > 0) return PLSH_STATUS_OK; /* allocated with the plan */
    int64_t length = count < most / MOST_SUMMARISED ? count * MOST_SUMMARISED : most;
    if (length > MOST_KEYS) length = MOST_KEYS;
    const bool bounded = has_bounds(cache->setup);
    plsh_tokens tokens = {.count = count};
    plsh_cache_prefill prefill;
    plsh_status status = make_prefill(&prefill, cache, &tokens, bounded ? length : count, 0,
                                      plsh_plan_create_measured, error);
    if (status) return status;
    *bytes = prefill.bytes;
    if (bounded && prefill.plan->bound_keys > PLSH_BOUND_KEYS)
        *bytes += (size_t)cache->setup->kv_heads * PLSH_BOX_BYTES;
    plsh_cache_prefill_clear(&prefill);
    return PLSH_STATUS_OK;
}

/* Where a plan begins with a later page, none has been dropped: all heads are `exact`. */
static plsh_row_source source_of(const plsh_cache *cache, int64_t kv, bool values) {
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, kv);
    const int64_t first_page = cache->call.prefill.first_page;
    return (plsh_row_source){.dtype = layout->dtype,
                             .dim = (int)(values ? layout->value_dim : layout->head_dim),
                             .stride = values ? layout->dv : layout->d,
                             .page = (const void *const *)cache->store[kv].page + first_page,
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
