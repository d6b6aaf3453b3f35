/* attention/cache: everything about a cache that never changes. */
#include "attention/cache/setup.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

#include <math.h>

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
    if (!status) status = check_range("undo", config->undo, 0, PLSH_CACHE_MOST_TOKENS, error);
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

void plsh_cache_setup_share(plsh_cache_setup *setup) {
    atomic_fetch_add_explicit(&setup->references, 1, memory_order_relaxed);
}

void plsh_cache_setup_release(plsh_cache_setup *setup) {
    if (setup == NULL) return;
    if (atomic_fetch_sub_explicit(&setup->references, 1, memory_order_acq_rel) != 1) return;
    for (int64_t h = 0; setup->mask && h < setup->heads; h++)
        plsh_cache_mask_clear(&setup->mask[h]);
    plsh_release(setup->mask);
    plsh_release(setup->bounded);
    plsh_release(setup);
}

int64_t plsh_cache_setup_most_tokens(const plsh_cache_setup *setup) {
    int64_t most = PLSH_CACHE_MOST_TOKENS;
    for (int64_t h = 0; h < setup->heads; h++) {
        const plsh_cache_mask *mask = &setup->mask[h];
        if (mask->kind == PLSH_MASK_LABELS && mask->head.partition.label_count < most)
            most = mask->head.partition.label_count;
    }
    return most;
}

static plsh_status make_masks(plsh_cache_setup *setup, const plsh_cache_config *config,
                              plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; h < setup->heads && !status; h++) {
        plsh_error inner = {0};
        status = plsh_cache_mask_make(&setup->mask[h],
                                      &config->head[config->head_count == 1 ? 0 : h], &inner);
        if (status)
            plsh_fail(error, status, "head %lld: %.200s", (long long)h, inner.message);
        else if (setup->mask[h].head.method == PLSH_METHOD_EXACT)
            setup->bounded[h / setup->group] = true;
    }
    return status;
}

static plsh_status make(plsh_cache_setup **out, const plsh_cache_config *config,
                        const plsh_decode_kernels *kernels, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_cache_setup), "a cache", error);
    if (status) return status;
    plsh_cache_setup *setup = memory;
    *setup = (plsh_cache_setup){.heads = config->heads,
                                .kv_heads = config->kv_heads,
                                .group = config->heads / config->kv_heads,
                                .undo = config->undo,
                                .scale = config->scale,
                                .threads = plsh_thread_count(config->threads)};
    for (int bounded = 0; bounded < 2; bounded++)
        setup->page[bounded] = plsh_cache_page_layout_make(config->dtype, config->head_dim,
                                                           config->value_dim, bounded, kernels);
    atomic_init(&setup->references, 1);
    status = plsh_allocate(&memory, (size_t)setup->heads, sizeof *setup->mask, "heads", error);
    setup->mask = memory;
    if (!status) {
        status = plsh_allocate(&memory, (size_t)setup->kv_heads, sizeof(bool), "heads", error);
        setup->bounded = memory;
    }
    if (!status) status = make_masks(setup, config, error);
    if (status) {
        plsh_cache_setup_release(setup);
        return status;
    }
    *out = setup;
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_setup_make(plsh_cache_setup **setup, const plsh_cache_config *config,
                                  plsh_error *error) {
    plsh_cache_config whole = *config;
    const plsh_decode_kernels *kernels;
    plsh_status status = complete(&whole, error);
    if (!status) status = plsh_decode_kernels_choose(&kernels, config->isa, error);
    return status ? status : make(setup, &whole, kernels, error);
}
