/* attention/cache: appending and attending. */
#include "attention/cache/attend.h"
#include "attention/cache/cache.h"
#include "attention/cache/prefill.h"
#include "base/status.h"

static plsh_status check_tokens(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    if (tokens->count < 0 || tokens->count > PLSH_CACHE_MOST_TOKENS)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the number of tokens is %lld; 0 to 2^61",
                         (long long)tokens->count);
    if (tokens->dtype != PLSH_DTYPE_FLOAT32 && tokens->dtype != cache->setup->page[0].dtype)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "tokens have dtype %d; float32, or what the cache stores, %d",
                         (int)tokens->dtype, (int)cache->setup->page[0].dtype);
    return PLSH_STATUS_OK;
}

static plsh_status check_append(const plsh_cache *cache, const plsh_tokens *tokens,
                                plsh_error *error) {
    plsh_status status = check_tokens(cache, tokens, error);
    if (status || tokens->count == 0) return status;
    if (tokens->k == NULL || tokens->v == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "k or v is NULL; appending reads both");
    int64_t most = plsh_cache_setup_most_tokens(cache->setup);
    if (cache->length + tokens->count > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld tokens more than the %lld there are; the heads serve %lld (user "
                         "labels end, other positions are below 2^61)",
                         (long long)tokens->count, (long long)cache->length, (long long)most);
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_append(plsh_cache *cache, const plsh_tokens *tokens, plsh_error *error) {
    plsh_status status = check_append(cache, tokens, error);
    if (!status) status = plsh_cache_reserve(cache, cache->length + tokens->count, error);
    if (status) return status;
    plsh_cache_forget(cache); /* what the new tokens cannot reach; they themselves may yet attend */
    plsh_cache_write(cache, tokens);
    return PLSH_STATUS_OK;
}

/* ---- Attending ------------------------------------------------------------------------------- */

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
                           plsh_cache_prefill *prefill, plsh_error *error) {
    *prefill = (plsh_cache_prefill){0};
    if (plsh_cache_prefill_applies(cache, tokens->count, length))
        return plsh_cache_prefill_make(prefill, cache, tokens, length, error);
    return plsh_cache_pass_reserve(&cache->pass, cache->setup, tokens->count, error);
}

static void run(plsh_cache *cache, const plsh_tokens *tokens, plsh_cache_prefill *prefill,
                plsh_report *report) {
    int64_t pairs = prefill->plan ? plsh_cache_prefill_run(prefill, cache, tokens)
                                  : plsh_cache_attend_pages(cache, tokens);
    if (report) *report = (plsh_report){.pairs = pairs};
    plsh_cache_prefill_clear(prefill);
}

plsh_status plsh_cache_attend(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report,
                              plsh_error *error) {
    plsh_status status = check_attend(cache, tokens, cache->length, error);
    if (status) return status;
    if (report) *report = (plsh_report){0};
    if (tokens->count == 0) return PLSH_STATUS_OK;
    int64_t position = cache->length - tokens->count;
    if (position < cache->swept && !plsh_cache_reaches(cache, position))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "position %lld needs keys that were dropped; position %lld is the first "
                         "that does not (undo keeps more)",
                         (long long)position, (long long)plsh_cache_earliest(cache));
    plsh_cache_prefill prefill;
    status = prepare(cache, tokens, cache->length, &prefill, error);
    if (!status) run(cache, tokens, &prefill, report);
    return status;
}

plsh_status plsh_cache_step(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report,
                            plsh_error *error) {
    plsh_status status = check_append(cache, tokens, error);
    if (!status) status = check_attend(cache, tokens, INT64_MAX, error);
    if (status) return status;
    if (report) *report = (plsh_report){0};
    if (tokens->count == 0) return PLSH_STATUS_OK;
    int64_t before = cache->length;
    plsh_cache_prefill prefill;
    status = prepare(cache, tokens, before + tokens->count, &prefill, error);
    if (status) return status;
    status = plsh_cache_reserve(cache, before + tokens->count, error);
    if (status) {
        plsh_cache_prefill_clear(&prefill);
        return status;
    }
    plsh_cache_write(cache, tokens);
    run(cache, tokens, &prefill, report);
    plsh_cache_forget(cache);
    return PLSH_STATUS_OK;
}
