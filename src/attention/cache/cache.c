/* attention: the life of a decoding cache. */
#include "attention/cache/cache.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

#include <math.h>

static const int64_t MOST_TOKENS = INT64_C(1) << 61;

/* ---- Forms ----------------------------------------------------------------------------------- */

static plsh_status check_range(const char *name, int64_t value, int64_t low, int64_t high,
                               plsh_error *error) {
    if (value >= low && value <= high) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s is %lld; %lld to %lld", name, (long long)value,
                     (long long)low, (long long)high);
}

/* Checks everything but the heads, and puts the defaults in. */
static plsh_status complete(plsh_cache_config *config, plsh_error *error) {
    if (config->kv_heads == 0) config->kv_heads = config->heads;
    if (config->value_dim == 0) config->value_dim = config->head_dim;
    plsh_status status = check_range("heads", config->heads, 1, 1 << 20, error);
    if (!status) status = check_range("kv_heads", config->kv_heads, 1, config->heads, error);
    if (!status) status = check_range("head_dim", config->head_dim, 1, 512, error);
    if (!status) status = check_range("value_dim", config->value_dim, 1, 512, error);
    if (!status) status = check_range("undo", config->undo, 0, MOST_TOKENS, error);
    if (!status) status = check_range("threads", config->threads, 0, 1 << 16, error);
    if (status) return status;
    if (config->heads % config->kv_heads != 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "heads is %lld, no multiple of kv_heads, %lld",
                         (long long)config->heads, (long long)config->kv_heads);
    if (!plsh_dtype_is_attended(config->dtype))
        return plsh_fail(error, PLSH_STATUS_INVALID, "dtype is %s; float32, float16 or bfloat16",
                         plsh_dtype_name(config->dtype));
    if (config->head == NULL || (config->head_count != 1 && config->head_count != config->heads))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "head_count is %lld; 1, or as many as heads, %lld",
                         (long long)config->head_count, (long long)config->heads);
    if (config->scale == 0) config->scale = 1 / sqrt((double)config->head_dim);
    if (!isfinite(config->scale))
        return plsh_fail(error, PLSH_STATUS_INVALID, "scale is %g; a finite number", config->scale);
    return PLSH_STATUS_OK;
}

static void form_release(plsh_form *form) {
    if (form == NULL) return;
    if (atomic_fetch_sub_explicit(&form->references, 1, memory_order_acq_rel) != 1) return;
    for (int64_t h = 0; form->view && h < form->heads; h++) plsh_view_clear(&form->view[h]);
    plsh_release(form->view);
    plsh_release(form->bounded);
    plsh_release(form);
}

int64_t plsh_form_most_tokens(const plsh_form *form) {
    int64_t most = MOST_TOKENS;
    for (int64_t h = 0; h < form->heads; h++) {
        const plsh_view *view = &form->view[h];
        if (view->kind == PLSH_VIEW_LABELS && view->head.partition.label_count < most)
            most = view->head.partition.label_count;
    }
    return most;
}

static plsh_status form_views(plsh_form *form, const plsh_cache_config *config, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; h < form->heads && !status; h++) {
        plsh_error inner = {0};
        status =
            plsh_view_make(&form->view[h], &config->head[config->head_count == 1 ? 0 : h], &inner);
        if (status)
            plsh_fail(error, status, "head %lld: %.200s", (long long)h, inner.message);
        else if (form->view[h].head.method == PLSH_METHOD_EXACT)
            form->bounded[h / form->group] = true;
    }
    return status;
}

static plsh_status form_make(plsh_form **out, const plsh_cache_config *config,
                             const plsh_decode_kernels *kernels, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_form), "a cache", error);
    if (status) return status;
    plsh_form *form = memory;
    *form = (plsh_form){.heads = config->heads,
                        .kv_heads = config->kv_heads,
                        .group = config->heads / config->kv_heads,
                        .undo = config->undo,
                        .scale = config->scale,
                        .threads = plsh_thread_count(config->threads),
                        .page = {plsh_page_form_make(config, false, kernels),
                                 plsh_page_form_make(config, true, kernels)}};
    atomic_init(&form->references, 1);
    status = plsh_allocate(&memory, (size_t)form->heads, sizeof *form->view, "heads", error);
    form->view = memory;
    if (!status) {
        status = plsh_allocate(&memory, (size_t)form->kv_heads, sizeof(bool), "heads", error);
        form->bounded = memory;
    }
    if (!status) status = form_views(form, config, error);
    if (status) {
        form_release(form);
        return status;
    }
    *out = form;
    return PLSH_STATUS_OK;
}

/* ---- Caches ---------------------------------------------------------------------------------- */

/* An empty cache of a form; tracks are made by the caller. Takes over one reference of the form,
 * also on failure. */
static plsh_status cache_make(plsh_cache **out, plsh_form *form, plsh_error *error) {
    void *memory;
    *out = NULL;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_cache), "a cache", error);
    if (status) {
        form_release(form);
        return status;
    }
    plsh_cache *cache = memory;
    cache->form = form;
    status = plsh_allocate(&memory, (size_t)form->kv_heads, sizeof *cache->store, "a cache", error);
    cache->store = memory;
    if (!status) {
        status = plsh_allocate(&memory, (size_t)form->heads, sizeof *cache->track, "heads", error);
        cache->track = memory;
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
    plsh_cache_config whole = *config;
    plsh_form *form;
    const plsh_decode_kernels *kernels;
    plsh_status status = complete(&whole, error);
    if (!status) status = plsh_decode_kernels_choose(&kernels, config->isa, error);
    if (!status) status = form_make(&form, &whole, kernels, error);
    if (!status) status = cache_make(cache, form, error);
    for (int64_t h = 0; !status && h < whole.heads; h++)
        status = plsh_track_make(&(*cache)->track[h], &(*cache)->form->view[h], error);
    if (status) {
        plsh_cache_destroy(*cache);
        *cache = NULL;
    }
    return status;
}

void plsh_cache_destroy(plsh_cache *cache) {
    if (cache == NULL) return;
    for (int64_t kv = 0; cache->store && kv < cache->form->kv_heads; kv++)
        plsh_store_clear(&cache->store[kv]);
    for (int64_t h = 0; cache->track && h < cache->form->heads; h++)
        plsh_track_clear(&cache->track[h]);
    plsh_release(cache->store);
    plsh_release(cache->track);
    plsh_work_destroy(cache->work);
    form_release(cache->form);
    plsh_release(cache);
}

plsh_status plsh_cache_fork(const plsh_cache *cache, plsh_cache **fork, plsh_error *error) {
    atomic_fetch_add_explicit(&cache->form->references, 1, memory_order_relaxed);
    plsh_status status = cache_make(fork, cache->form, error);
    for (int64_t h = 0; !status && h < cache->form->heads; h++)
        status =
            plsh_track_fork(&(*fork)->track[h], &cache->track[h], &cache->form->view[h], error);
    for (int64_t kv = 0; !status && kv < cache->form->kv_heads; kv++)
        status = plsh_store_fork(&cache->store[kv], &(*fork)->store[kv], error);
    if (status) {
        plsh_cache_destroy(*fork);
        *fork = NULL;
        return status;
    }
    (*fork)->length = cache->length;
    (*fork)->swept = cache->swept;
    return PLSH_STATUS_OK;
}

/* ---- Appending ------------------------------------------------------------------------------- */

/* What no query from position `swept` on looks at ends here. */
static int64_t needed_from(plsh_cache *cache, int64_t kv) {
    const plsh_form *form = cache->form;
    int64_t first = INT64_MAX, kept = cache->store[kv].first * PLSH_PAGE;
    for (int64_t h = kv * form->group; h < (kv + 1) * form->group; h++) {
        int64_t reach = plsh_view_reach(&form->view[h], &cache->track[h].tail, cache->swept);
        if (reach < first) first = reach;
        if (first < kept + PLSH_PAGE) break; /* no page is free */
    }
    return first;
}

/* Drops what no query from length - undo on can reach. Asks only where that position has come to
 * another page: pages become free no more often. */
static void forget(plsh_cache *cache) {
    int64_t position = cache->length - cache->form->undo;
    if (position / PLSH_PAGE <= cache->swept / PLSH_PAGE) return;
    cache->swept = position;
    for (int64_t kv = 0; kv < cache->form->kv_heads; kv++)
        plsh_store_drop(&cache->store[kv], needed_from(cache, kv));
}

static void take_back(plsh_cache *cache, int64_t length) {
    for (int64_t kv = 0; kv < cache->form->kv_heads; kv++)
        plsh_store_truncate(&cache->store[kv], length);
    cache->length = length;
}

static plsh_status check_tokens(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    if (tokens->count < 0 || tokens->count > MOST_TOKENS)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the number of tokens is %lld; 0 to 2^61",
                         (long long)tokens->count);
    if (tokens->dtype != PLSH_DTYPE_FLOAT32 && tokens->dtype != cache->form->page[0].dtype)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "tokens have dtype %d; float32, or what the cache stores, %d",
                         (int)tokens->dtype, (int)cache->form->page[0].dtype);
    return PLSH_STATUS_OK;
}

static plsh_status check_append(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    plsh_status status = check_tokens(cache, tokens, error);
    if (status || tokens->count == 0) return status;
    if (tokens->k == NULL || tokens->v == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "k or v is NULL; appending reads both");
    int64_t most = plsh_form_most_tokens(cache->form);
    if (cache->length + tokens->count > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld tokens more than the %lld there are; the heads serve %lld (user "
                         "labels end, other positions are below 2^61)",
                         (long long)tokens->count, (long long)cache->length, (long long)most);
    return PLSH_STATUS_OK;
}

/* All memory that `length` tokens need; nothing a user can see changes. */
static plsh_status reserve(plsh_cache *cache, int64_t length, plsh_error *error) {
    const plsh_form *form = cache->form;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < form->heads; h++)
        status = plsh_track_reserve(&cache->track[h], &form->view[h], length, error);
    int64_t kv = 0;
    for (; !status && kv < form->kv_heads; kv++)
        status = plsh_store_reserve(&cache->store[kv], plsh_form_page(form, kv), cache->length,
                                    length, error);
    if (status)
        while (kv-- > 0) plsh_store_truncate(&cache->store[kv], cache->length);
    return status;
}

static void write(plsh_cache *cache, const plsh_tokens *tokens) {
    const plsh_form *form = cache->form;
    int64_t count = tokens->count;
    plsh_layout k = plsh_layout_or(tokens->k_layout, count, form->page[0].head_dim);
    plsh_layout v = plsh_layout_or(tokens->v_layout, count, form->page[0].value_dim);
    int64_t element = (int64_t)plsh_dtype_size(tokens->dtype);
    for (int64_t kv = 0; kv < form->kv_heads; kv++) {
        plsh_rows rows = {(const char *)tokens->k + kv * k.head_stride * element,
                          (const char *)tokens->v + kv * v.head_stride * element, k.row_stride,
                          v.row_stride, tokens->dtype};
        plsh_store_write(&cache->store[kv], plsh_form_page(form, kv), cache->length, count, &rows);
    }
    cache->length += count;
}

plsh_status plsh_cache_append(plsh_cache *cache, const plsh_tokens *tokens, plsh_error *error) {
    plsh_status status = check_append(cache, tokens, error);
    if (!status) status = reserve(cache, cache->length + tokens->count, error);
    if (status) return status;
    forget(cache); /* what the new tokens cannot reach; they themselves may yet attend */
    write(cache, tokens);
    return PLSH_STATUS_OK;
}

/* ---- Attending ------------------------------------------------------------------------------- */

/* Are the keys of all positions from `position` on still there? */
static bool reaches(const plsh_cache *cache, int64_t position) {
    const plsh_form *form = cache->form;
    for (int64_t h = 0; h < form->heads; h++) {
        int64_t kept = cache->store[h / form->group].first * PLSH_PAGE;
        if (kept > 0 && plsh_view_reach(&form->view[h], NULL, position) < kept) return false;
    }
    return true;
}

static plsh_status check_attend(const plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                                plsh_error *error) {
    plsh_status status = check_tokens(cache, tokens, error);
    if (status || tokens->count == 0) return status;
    if (tokens->q == NULL || tokens->o == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "q or o is NULL; attending needs both");
    if (tokens->count > length)
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld queries, but only %lld tokens",
                         (long long)tokens->count, (long long)length);
    return PLSH_STATUS_OK;
}

/* The memory of attending for the last tokens of a sequence of `length`, by either way. */
static plsh_status prepare(plsh_cache *cache, const plsh_tokens *tokens, int64_t length,
                           plsh_prefill *prefill, plsh_error *error) {
    *prefill = (plsh_prefill){0};
    if (!plsh_prefill_applies(cache, tokens->count, length))
        return plsh_work_reserve(cache, tokens->count, error);
    plsh_tokens queries = *tokens;
    if (length == cache->length) queries.k = queries.v = NULL; /* not looked at */
    return plsh_prefill_make(prefill, cache, &queries, length, error);
}

static plsh_status run(plsh_cache *cache, const plsh_tokens *tokens, plsh_prefill *prefill,
                       plsh_report *report, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (prefill->plan)
        status = plsh_prefill_run(prefill, cache, tokens, report, error);
    else
        plsh_cache_run(cache, tokens, report);
    plsh_prefill_clear(prefill, cache->form->kv_heads);
    return status;
}

plsh_status plsh_cache_attend(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report,
                              plsh_error *error) {
    plsh_status status = check_attend(cache, tokens, cache->length, error);
    if (status) return status;
    if (report) *report = (plsh_report){0};
    if (tokens->count == 0) return PLSH_STATUS_OK;
    int64_t position = cache->length - tokens->count;
    if (position < cache->swept && !reaches(cache, position))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "position %lld needs keys that were dropped; position %lld is the first "
                         "that does not (undo keeps more)",
                         (long long)position, (long long)plsh_cache_earliest(cache));
    plsh_prefill prefill;
    status = prepare(cache, tokens, cache->length, &prefill, error);
    return status ? status : run(cache, tokens, &prefill, report, error);
}

plsh_status plsh_cache_step(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report,
                            plsh_error *error) {
    plsh_status status = check_append(cache, tokens, error);
    if (!status) status = check_attend(cache, tokens, INT64_MAX, error);
    if (status) return status;
    if (report) *report = (plsh_report){0};
    if (tokens->count == 0) return PLSH_STATUS_OK;
    int64_t before = cache->length;
    plsh_prefill prefill;
    status = prepare(cache, tokens, before + tokens->count, &prefill, error);
    if (status) return status;
    status = reserve(cache, before + tokens->count, error);
    if (status) {
        plsh_prefill_clear(&prefill, cache->form->kv_heads);
        return status;
    }
    write(cache, tokens);
    status = run(cache, tokens, &prefill, report, error);
    if (status) {
        take_back(cache, before);
        return status;
    }
    forget(cache);
    return PLSH_STATUS_OK;
}

/* ---- Taking back ----------------------------------------------------------------------------- */

int64_t plsh_cache_earliest(const plsh_cache *cache) {
    int64_t low = -1, high = cache->length; /* reach never falls as the position rises */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (reaches(cache, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

plsh_status plsh_cache_truncate(plsh_cache *cache, int64_t length, plsh_error *error) {
    if (length < 0 || length > cache->length)
        return plsh_fail(error, PLSH_STATUS_INVALID, "truncation to %lld tokens; 0 to %lld",
                         (long long)length, (long long)cache->length);
    if (length < cache->swept && !reaches(cache, length))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "truncation to %lld tokens needs keys that were dropped; %lld is the "
                         "shortest possible (undo keeps more)",
                         (long long)length, (long long)plsh_cache_earliest(cache));
    take_back(cache, length);
    return PLSH_STATUS_OK;
}

/* ---- Questions ------------------------------------------------------------------------------- */

int64_t plsh_cache_length(const plsh_cache *cache) { return cache->length; }

int64_t plsh_cache_first(const plsh_cache *cache, int64_t head) {
    int64_t first = cache->store[head / cache->form->group].first * PLSH_PAGE;
    return first < cache->length ? first : cache->length;
}

size_t plsh_cache_bytes(const plsh_cache *cache) {
    const plsh_form *form = cache->form;
    size_t bytes = sizeof *cache + sizeof *form + plsh_work_bytes(cache->work);
    for (int64_t kv = 0; kv < form->kv_heads; kv++)
        bytes +=
            sizeof *cache->store + plsh_store_bytes(&cache->store[kv], plsh_form_page(form, kv));
    for (int64_t h = 0; h < form->heads; h++)
        bytes += sizeof *form->view + sizeof *cache->track +
                 plsh_track_bytes(&cache->track[h], &form->view[h]);
    return bytes;
}

plsh_head plsh_cache_head(const plsh_cache *cache, int64_t head, const char **reason) {
    const plsh_view *view = &cache->form->view[head];
    if (reason) *reason = view->reason;
    return view->head;
}

const char *plsh_cache_isa(const plsh_cache *cache) { return cache->form->page[0].kernels->name; }
