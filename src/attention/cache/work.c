/* attention: the memory of attending, laid out in one piece. */
#include "attention/cache/work.h"

#include "base/memory.h"
#include "base/status.h"

/* Where the next array goes. The first walk, over no memory, measures; the second hands out. */
typedef struct layout {
    char *memory;
    size_t used;
    bool overflow;
} layout;

static void *take(layout *at, int64_t count, size_t size) {
    size_t bytes, begin = at->used;
    if (!plsh_multiply((size_t)count, size, &bytes) ||
        !plsh_add(bytes, PLSH_ALIGNMENT - 1, &bytes) ||
        !plsh_add(begin, bytes & ~(size_t)(PLSH_ALIGNMENT - 1), &at->used))
        at->overflow = true;
    return at->memory ? at->memory + begin : NULL;
}

static void lay_out_lines(plsh_work *work, const plsh_form *form, layout *at) {
    int64_t lines = form->kv_heads * work->rows;
    work->line = take(at, lines, sizeof *work->line);
    for (int64_t i = 0; i < lines; i++) {
        float *q = take(at, form->page[0].d, sizeof(float));
        float *o = take(at, form->page[0].dv, sizeof(float));
        if (at->memory) work->line[i].q = q, work->line[i].o = o;
    }
    work->begins = take(at, form->heads, sizeof *work->begins);
    for (int64_t h = 0; h < form->heads; h++) {
        if (form->view[h].kind != PLSH_VIEW_COUNTS) continue;
        int64_t samples = form->view[h].head.partition.samples;
        int64_t *begins = take(at, work->tokens * samples, sizeof *begins);
        if (at->memory) work->begins[h] = begins;
    }
}

static void lay_out(plsh_work *work, const plsh_form *form, layout *at) {
    lay_out_lines(work, form, at);
    int64_t parts = form->kv_heads * SPLITS * work->rows;
    work->task = take(at, form->kv_heads * SPLITS, sizeof *work->task);
    work->splits = take(at, form->kv_heads, sizeof *work->splits);
    work->part_m = take(at, parts, sizeof *work->part_m);
    work->part_l = take(at, parts, sizeof *work->part_l);
    work->part_o = take(at, parts * form->page[0].dv, sizeof *work->part_o);
    work->scratch = take(at, work->threads, sizeof *work->scratch);
    for (int i = 0; i < work->threads; i++) {
        plsh_scratch scratch;
        scratch.row = take(at, work->rows, sizeof *scratch.row);
        scratch.active = take(at, work->rows, sizeof *scratch.active);
        scratch.piece = take(at, work->rows, sizeof *scratch.piece);
        scratch.s = take(at, work->rows * PLSH_PAGE, sizeof *scratch.s);
        scratch.o = take(at, form->page[0].dv, sizeof *scratch.o);
        if (at->memory) work->scratch[i] = scratch;
    }
}

plsh_status plsh_work_reserve(plsh_cache *cache, int64_t count, plsh_error *error) {
    const plsh_form *form = cache->form;
    int64_t most = PASS_ROWS / form->group;
    most = most < 1 ? 1 : most > PASS_TOKENS ? PASS_TOKENS : most;
    int64_t tokens = count < most ? count : most;
    if (cache->work && cache->work->tokens >= tokens) return PLSH_STATUS_OK;

    plsh_work work = {.threads = form->threads, .tokens = tokens, .rows = tokens * form->group};
    layout at = {0};
    take(&at, 1, sizeof work);
    lay_out(&work, form, &at);
    if (at.overflow)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of a step overflows");
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, at.used, "the workspace of a step", error);
    if (status) return status;
    work.bytes = at.used;
    at = (layout){.memory = memory};
    plsh_work *made = take(&at, 1, sizeof work);
    lay_out(&work, form, &at);
    *made = work;
    plsh_work_destroy(cache->work);
    cache->work = made;
    return PLSH_STATUS_OK;
}

void plsh_work_destroy(plsh_work *work) { plsh_release(work); }

size_t plsh_work_bytes(const plsh_work *work) { return work ? work->bytes : 0; }
