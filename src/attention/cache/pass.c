/* attention/cache: the memory of a pass, in one allocation. */
#include "attention/cache/pass.h"

#include "base/arena.h"

#include <string.h>

static void lay_out_queries(plsh_cache_pass *pass, const plsh_cache_setup *setup, plsh_arena *at) {
    int64_t queries = setup->kv_heads * pass->rows;
    pass->query = plsh_arena_take(at, (size_t)queries, sizeof *pass->query);
    for (int64_t i = 0; i < queries; i++) {
        float *q = plsh_arena_take(at, (size_t)(setup->page[0].d), sizeof(float));
        float *o = plsh_arena_take(at, (size_t)(setup->page[0].dv), sizeof(float));
        if (at->memory) pass->query[i].q = q, pass->query[i].o = o;
    }
    pass->begins = plsh_arena_take(at, (size_t)setup->heads, sizeof *pass->begins);
    if (at->memory) memset(pass->begins, 0, (size_t)setup->heads * sizeof *pass->begins);
    for (int64_t h = 0; h < setup->heads; h++) {
        if (setup->mask[h].kind != PLSH_MASK_COUNTS) continue;
        const int64_t most = plsh_cache_blocks_most(&setup->mask[h].head.partition);
        int64_t *begins = plsh_arena_take(at, (size_t)(pass->tokens * most), sizeof *begins);
        if (at->memory) pass->begins[h] = begins;
    }
}

static void lay_out(plsh_cache_pass *pass, const plsh_cache_setup *setup, plsh_arena *at) {
    lay_out_queries(pass, setup, at);
    int64_t parts = setup->kv_heads * PASS_SPLITS * pass->rows;
    pass->task = plsh_arena_take(at, (size_t)(setup->kv_heads * PASS_SPLITS), sizeof *pass->task);
    pass->splits = plsh_arena_take(at, (size_t)setup->kv_heads, sizeof *pass->splits);
    pass->part_m = plsh_arena_take(at, (size_t)parts, sizeof *pass->part_m);
    pass->part_l = plsh_arena_take(at, (size_t)parts, sizeof *pass->part_l);
    pass->part_o = plsh_arena_take(at, (size_t)(parts * setup->page[0].dv), sizeof *pass->part_o);
    pass->scratch = plsh_arena_take(at, (size_t)pass->threads, sizeof *pass->scratch);
    for (int i = 0; i < pass->threads; i++) {
        plsh_cache_scratch scratch;
        scratch.row = plsh_arena_take(at, (size_t)pass->rows, sizeof *scratch.row);
        scratch.active = plsh_arena_take(at, (size_t)pass->rows, sizeof *scratch.active);
        scratch.range = plsh_arena_take(at, (size_t)pass->rows, sizeof *scratch.range);
        scratch.s = plsh_arena_take(at, (size_t)(pass->rows * PLSH_PAGE_KEYS), sizeof *scratch.s);
        scratch.o = plsh_arena_take(at, (size_t)(setup->page[0].dv), sizeof *scratch.o);
        if (at->memory) pass->scratch[i] = scratch;
    }
}

int64_t plsh_cache_pass_tokens(const plsh_cache_setup *setup, int64_t count) {
    int64_t most = PASS_ROWS / setup->group;
    most = most < 1 ? 1 : most > PASS_TOKENS ? PASS_TOKENS : most;
    return count < most ? count : most;
}

static plsh_cache_pass *place(const plsh_cache_setup *setup, int64_t count, plsh_arena *arena) {
    int64_t tokens = plsh_cache_pass_tokens(setup, count);
    plsh_cache_pass pass = {
        .threads = setup->threads, .tokens = tokens, .rows = tokens * setup->group};
    plsh_cache_pass *placed = plsh_arena_take(arena, 1, sizeof pass);
    lay_out(&pass, setup, arena);
    if (placed) *placed = pass;
    return placed;
}

size_t plsh_cache_pass_bytes(const plsh_cache_setup *setup, int64_t count) {
    plsh_arena arena = {0};
    place(setup, count, &arena);
    return arena.overflow ? SIZE_MAX : arena.used;
}

plsh_cache_pass *plsh_cache_pass_place(const plsh_cache_setup *setup, int64_t count, void *memory) {
    plsh_arena arena = {.memory = memory};
    return place(setup, count, &arena);
}
