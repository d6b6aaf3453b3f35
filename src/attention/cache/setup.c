/* attention/cache: the constants of a cache: its checked configuration. */
#include "attention/cache/setup.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

static plsh_status check_positions(const plsh_cache_config *config, const plsh_shape *shape,
                                   plsh_error *error) {
    const plsh_positions positions = {.dim = config->position_dim, .sets = config->position_sets};
    plsh_status status = plsh_check_positioned(shape, &positions, error);
    for (int64_t h = 0; h < shape->head_count && !status; h++)
        if (plsh_method_is_sampled(shape->head[h].method))
            status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                               "head %lld: a cache with positions takes dense, exact, window, "
                               "none and auto, not %s",
                               (long long)h, plsh_method_names()[shape->head[h].method]);
    return status;
}

/* Checks the configuration and fills in the defaults. */
static plsh_status complete(plsh_cache_config *config, plsh_error *error) {
    plsh_shape shape = {config->heads,      config->kv_heads,
                        config->head_dim,   config->value_dim,
                        config->scale,      config->dtype,
                        config->threads,    config->head,
                        config->head_count, .points = config->position_dim != 0};
    if (config->position_sets == 0) config->position_sets = 1;
    plsh_status status = plsh_check_shape(&shape, error);
    if (!status && shape.points) status = check_positions(config, &shape, error);
    if (status) return status;
    config->kv_heads = shape.kv_heads;
    config->value_dim = shape.value_dim;
    config->scale = shape.scale;
    if (config->undo >= 0 && config->undo <= PLSH_POSITIONS) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "undo is %lld; 0 to 2^61",
                     (long long)config->undo);
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
    int64_t most = PLSH_POSITIONS;
    for (int64_t h = 0; h < setup->heads; h++) {
        const plsh_cache_mask *mask = &setup->mask[h];
        if (mask->kind == PLSH_MASK_LABELS && mask->head.partition.label_count < most)
            most = mask->head.partition.label_count;
    }
    return most;
}

static plsh_status make_masks(plsh_cache_setup *setup, const plsh_cache_config *config,
                              plsh_error *error) {
    const plsh_shape shape = {.head = config->head, .head_count = config->head_count};
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; h < setup->heads && !status; h++) {
        const plsh_head head = plsh_check_head(&shape, h);
        status = plsh_cache_mask_make(&setup->mask[h], &head, setup->page[0].dim > 0, error);
        if (!status && setup->mask[h].head.method == PLSH_METHOD_EXACT)
            setup->bounded[h / setup->group] = true;
    }
    return status;
}

static plsh_status make(plsh_cache_setup **out, const plsh_cache_config *config,
                        const plsh_kernels *kernels, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_cache_setup), "a cache", error);
    if (status) return status;
    plsh_cache_setup *setup = memory;
    *setup = (plsh_cache_setup){.heads = config->heads,
                                .kv_heads = config->kv_heads,
                                .group = config->heads / config->kv_heads,
                                .undo = config->undo,
                                .scale = config->scale,
                                .point_sets = config->position_sets,
                                .threads = plsh_thread_count(config->threads)};
    for (int bounded = 0; bounded < 2; bounded++) {
        setup->page[bounded] =
            (plsh_cache_page_layout){.dtype = config->dtype,
                                     .head_dim = config->head_dim,
                                     .value_dim = config->value_dim,
                                     .dim = config->position_dim,
                                     .sets = config->position_sets == 1 ? 1 : setup->group,
                                     .kernels = kernels};
        plsh_cache_page_layout_make(&setup->page[bounded], bounded);
    }
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
    const plsh_kernels *kernels;
    plsh_status status = complete(&whole, error);
    if (!status) status = plsh_kernels_choose(&kernels, config->isa, error);
    return status ? status : make(setup, &whole, kernels, error);
}
