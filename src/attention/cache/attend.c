/* attention: queries at the last positions against the pages of a decoding cache.
 *
 * A pass takes a few tokens. Every (head, token) is a line: a range of keys under weights. The
 * lines of a kv head share one read of its keys and values, cut into at most SPLITS tasks by the
 * range alone, whose partial sums are merged in order: threads change nothing. `exact` lines take
 * several rounds: the newest keys first; what these weigh tells how far the next round must go. */
#include "attention/cache/work.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

/* ---- A pass ---------------------------------------------------------------------------------- */

static void pack_query(const plsh_form *form, const plsh_tokens *tokens, int64_t at, float *q) {
    float factor = (float)(form->scale * LOG2_E);
    for (int64_t x = 0; x < form->page[0].head_dim; x++)
        q[x] = factor * plsh_dtype_load(tokens->dtype, tokens->q, at + x);
}

static void set_line(plsh_cache *cache, const plsh_tokens *tokens, int64_t head, int64_t token,
                     int64_t slot) {
    plsh_form *form = cache->form;
    plsh_work *work = cache->work;
    int64_t kv = head / form->group;
    int64_t row = slot * form->group + head % form->group;
    plsh_line *line = &work->line[kv * work->rows + row];
    plsh_track *track = &cache->track[head];
    const plsh_view *view = &form->view[head];
    plsh_layout layout = plsh_layout_or(tokens->q_layout, tokens->count, form->page[0].head_dim);
    int64_t position = cache->length - tokens->count + token;

    line->head = head;
    line->token = token;
    line->sight = (plsh_sight){view, track, NULL, position, -1};
    line->to = position + 1;
    line->from = plsh_view_reach(view, &track->query, position);
    if (view->kind == PLSH_VIEW_COUNTS) {
        int64_t *begins = work->begins[head] + slot * view->head.partition.samples;
        for (int64_t m = 0; m < view->head.partition.samples; m++)
            begins[m] = track->query.span[m].begin;
        line->sight.begins = begins;
    }
    line->m = PLSH_SOFTMAX_START;
    line->l = 0;
    line->bounded = false;
    memset(line->o, 0, (size_t)form->page[0].dv * sizeof(float));
    pack_query(form, tokens, head * layout.head_stride + token * layout.row_stride, line->q);
    if (view->head.method == PLSH_METHOD_EXACT) plsh_line_begin_exact(line, &form->page[0]);
    if (view->head.method == PLSH_METHOD_MEAN) line->from = line->to; /* not in the rounds */
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* The pages that the lines of this round need of every kv head, in at most SPLITS tasks each. */
static int plan_tasks(plsh_cache *cache) {
    plsh_work *work = cache->work;
    int count = 0;
    for (int64_t kv = 0; kv < cache->form->kv_heads; kv++) {
        const plsh_line *line = work->line + kv * work->rows;
        int64_t from = INT64_MAX, to = 0;
        for (int64_t r = 0; r < work->used; r++) {
            if (line[r].from >= line[r].to) continue;
            if (line[r].from < from) from = line[r].from;
            if (line[r].to > to) to = line[r].to;
        }
        work->splits[kv] = 0;
        if (from >= to) continue;
        int64_t first = from / PLSH_PAGE, pages = (to + PLSH_PAGE - 1) / PLSH_PAGE - first;
        int64_t each = (pages + SPLITS - 1) / SPLITS;
        if (each < SPLIT_PAGES) each = SPLIT_PAGES;
        for (int64_t done = 0; done < pages; done += each) {
            int64_t last = done + each < pages ? done + each : pages;
            work->task[count++] =
                (plsh_task){kv, work->splits[kv]++, first + done, first + last, 0};
        }
    }
    return count;
}

/* Lines that need the page, their weights filled in; how many. */
static int active_lines(plsh_cache *cache, const plsh_task *task, int64_t number,
                        plsh_scratch *scratch) {
    plsh_work *work = cache->work;
    plsh_line *line = work->line + task->kv * work->rows;
    int64_t begin = number * PLSH_PAGE, end = begin + PLSH_PAGE;
    int count = 0;
    for (int64_t r = 0; r < work->used; r++) {
        int64_t from = line[r].from > begin ? line[r].from : begin;
        int64_t to = line[r].to < end ? line[r].to : end;
        if (from >= to) continue;
        float *s = scratch->s + (size_t)count * PLSH_PAGE;
        plsh_sight_weights(&line[r].sight, from, (int)(to - from), s);
        if (line[r].bounded &&
            plsh_line_may_skip(&line[r], plsh_store_page(&cache->store[task->kv], number),
                               plsh_form_page(cache->form, task->kv), s, (int)(to - from)))
            continue;
        scratch->row[r].s = s;
        scratch->active[count] = &scratch->row[r];
        scratch->piece[count++] = (plsh_piece){(int)(from - begin), (int)(to - begin)};
    }
    return count;
}

/* One page for its lines; those that see the same keys of it go together. */
static int64_t attend_page(const plsh_page_form *form, const plsh_page *page, plsh_scratch *scratch,
                           int count) {
    const plsh_piece *pieces = scratch->piece;
    int64_t pairs = 0;
    for (int a = 0, b; a < count; a = b) {
        for (b = a + 1;
             b < count && pieces[b].from == pieces[a].from && pieces[b].to == pieces[a].to;)
            b++;
        size_t at = (size_t)pieces[a].from * form->element;
        int keys = pieces[a].to - pieces[a].from;
        form->kernels->attend[form->dtype](scratch->active + a, b - a,
                                           plsh_page_at(page, form->keys) + at * (size_t)form->d,
                                           plsh_page_at(page, form->values) + at * (size_t)form->dv,
                                           keys, (int)form->d, (int)form->dv);
        pairs += (int64_t)keys * (b - a);
    }
    return pairs;
}

static void run_task(plsh_cache *cache, plsh_task *task, plsh_scratch *scratch) {
    plsh_work *work = cache->work;
    const plsh_page_form *form = plsh_form_page(cache->form, task->kv);
    const plsh_line *line = work->line + task->kv * work->rows;
    int64_t slot = (task->kv * SPLITS + task->split) * work->rows;
    for (int64_t r = 0; r < work->used; r++) {
        scratch->row[r] = (plsh_decode_row){
            .q = line[r].q, .o = work->part_o + (slot + r) * form->dv, .m = PLSH_SOFTMAX_START};
        memset(scratch->row[r].o, 0, (size_t)form->dv * sizeof(float));
    }
    for (int64_t number = task->first; number < task->last; number++) {
        int count = active_lines(cache, task, number, scratch);
        task->pairs +=
            attend_page(form, plsh_store_page(&cache->store[task->kv], number), scratch, count);
    }
    for (int64_t r = 0; r < work->used; r++) {
        work->part_m[slot + r] = scratch->row[r].m;
        work->part_l[slot + r] = scratch->row[r].l;
    }
}

/* (m, l, o) += (pm, pl, po), both as sums of 2^(score - m). */
static void merge(plsh_line *line, float pm, float pl, const float *po, int64_t dv) {
    float m = pm > line->m ? pm : line->m;
    float a = exp2f(line->m - m), b = exp2f(pm - m);
    line->m = m;
    line->l = a * line->l + b * pl;
    for (int64_t c = 0; c < dv; c++) line->o[c] = a * line->o[c] + b * po[c];
}

static void merge_lines(plsh_cache *cache, int64_t kv) {
    plsh_work *work = cache->work;
    int64_t dv = cache->form->page[0].dv;
    for (int64_t split = 0; split < work->splits[kv]; split++) {
        int64_t slot = (kv * SPLITS + split) * work->rows;
        for (int64_t r = 0; r < work->used; r++) {
            if (work->part_l[slot + r] == 0) continue; /* saw nothing, or nothing that weighs */
            merge(&work->line[kv * work->rows + r], work->part_m[slot + r], work->part_l[slot + r],
                  work->part_o + (slot + r) * dv, dv);
        }
    }
}

static int64_t run_round(plsh_cache *cache) {
    plsh_work *work = cache->work;
    int count = plan_tasks(cache);
    int64_t pages = 0;
    for (int i = 0; i < count; i++) pages += work->task[i].last - work->task[i].first;
    int threads = count < work->threads ? count : work->threads;
    if (pages * work->used < SERIAL_PAGES) threads = 1;
    if (threads <= 1) {
        for (int i = 0; i < count; i++) run_task(cache, &work->task[i], &work->scratch[0]);
    } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int i = 0; i < count; i++)
            run_task(cache, &work->task[i], &work->scratch[omp_get_thread_num()]);
    }
    int64_t pairs = 0;
    for (int i = 0; i < count; i++) pairs += work->task[i].pairs;
    for (int64_t kv = 0; kv < cache->form->kv_heads; kv++) merge_lines(cache, kv);
    return pairs;
}

/* The ranges of the next round; false when no line has one. */
static bool next_round(plsh_cache *cache, int round) {
    plsh_work *work = cache->work;
    bool more = false;
    for (int64_t kv = 0; kv < cache->form->kv_heads; kv++) {
        for (int64_t r = 0; r < work->used; r++) {
            plsh_line *line = &work->line[kv * work->rows + r];
            if (line->sight.view->head.method == PLSH_METHOD_EXACT)
                plsh_line_continue_exact(line, &cache->store[kv], round);
            else
                line->from = line->to;
            more = more || line->from < line->to;
        }
    }
    return more;
}

/* ---- mean ------------------------------------------------------------------------------------ */

/* One draw of a line on its own: (m, l, o) of the scratch's first row. */
static int64_t run_draw(plsh_cache *cache, const plsh_line *line, plsh_sight sight, int64_t from,
                        plsh_scratch *scratch) {
    int64_t kv = line->head / cache->form->group, pairs = 0;
    const plsh_page_form *form = plsh_form_page(cache->form, kv);
    plsh_decode_row *row = &scratch->row[0];
    *row =
        (plsh_decode_row){.q = line->q, .s = scratch->s, .o = scratch->o, .m = PLSH_SOFTMAX_START};
    memset(row->o, 0, (size_t)form->dv * sizeof(float));
    scratch->active[0] = row;
    for (int64_t at = from; at < line->to;) {
        int64_t begin = at / PLSH_PAGE * PLSH_PAGE;
        int64_t to = begin + PLSH_PAGE < line->to ? begin + PLSH_PAGE : line->to;
        plsh_sight_weights(&sight, at, (int)(to - at), row->s);
        scratch->piece[0] = (plsh_piece){(int)(at - begin), (int)(to - begin)};
        pairs += attend_page(form, plsh_store_page(&cache->store[kv], at / PLSH_PAGE), scratch, 1);
        at = to;
    }
    return pairs;
}

/* o = mean over the draws of o_m / l_m; the weights (m, l) are those of the mean mask. */
static int64_t run_mean(plsh_cache *cache, plsh_line *line, plsh_scratch *scratch) {
    const plsh_partition *set = &line->sight.view->head.partition;
    int64_t dv = cache->form->page[0].dv, pairs = 0;
    for (int64_t m = 0; m < set->samples; m++) {
        plsh_sight sight = line->sight;
        sight.sample = m;
        int64_t from = sight.begins ? sight.begins[m] : 0;
        pairs += run_draw(cache, line, sight, from, scratch);
        const plsh_decode_row *row = &scratch->row[0];
        float top = row->m > line->m ? row->m : line->m;
        line->l =
            line->l * exp2f(line->m - top) + row->l * exp2f(row->m - top) / (float)set->samples;
        line->m = top;
        float share = 1 / (row->l * (float)set->samples);
        for (int64_t c = 0; c < dv; c++) line->o[c] += share * row->o[c];
    }
    return pairs;
}

static int64_t run_means(plsh_cache *cache) {
    plsh_work *work = cache->work;
    int64_t pairs = 0, lines = cache->form->kv_heads * work->rows;
#pragma omp parallel for schedule(dynamic, 1) num_threads(work->threads) reduction(+ : pairs)      \
    if (work->threads > 1)
    for (int64_t i = 0; i < lines; i++) {
        plsh_line *line = &work->line[i];
        if (i % work->rows >= work->used) continue;
        if (line->sight.view->head.method != PLSH_METHOD_MEAN) continue;
        pairs += run_mean(cache, line, &work->scratch[omp_get_thread_num()]);
    }
    return pairs;
}

/* ---- Out ------------------------------------------------------------------------------------- */

static void put_line(const plsh_cache *cache, const plsh_tokens *tokens, const plsh_line *line) {
    int64_t dim = cache->form->page[0].value_dim;
    plsh_layout layout = plsh_layout_or(tokens->o_layout, tokens->count, dim);
    float *o = tokens->o + line->head * layout.head_stride + line->token * layout.row_stride;
    bool mean = line->sight.view->head.method == PLSH_METHOD_MEAN;
    float factor = mean ? 1 : 1 / line->l;
    for (int64_t c = 0; c < dim; c++) o[c] = factor * line->o[c];
    if (tokens->lse)
        tokens->lse[line->head * tokens->count + line->token] =
            (float)(((double)line->m + log2((double)line->l)) / LOG2_E);
}

static int64_t run_pass(plsh_cache *cache, const plsh_tokens *tokens, int64_t token,
                        int64_t count) {
    plsh_form *form = cache->form;
    plsh_work *work = cache->work;
    work->used = count * form->group;
    bool mean = false;
    for (int64_t h = 0; h < form->heads; h++) {
        for (int64_t t = 0; t < count; t++) set_line(cache, tokens, h, token + t, t);
        mean = mean || form->view[h].head.method == PLSH_METHOD_MEAN;
    }
    int64_t pairs = 0;
    int round = 0;
    do pairs += run_round(cache);
    while (next_round(cache, ++round));
    if (mean) pairs += run_means(cache);
    for (int64_t kv = 0; kv < form->kv_heads; kv++)
        for (int64_t r = 0; r < work->used; r++)
            put_line(cache, tokens, &work->line[kv * work->rows + r]);
    return pairs;
}

void plsh_cache_run(plsh_cache *cache, const plsh_tokens *tokens, plsh_report *report) {
    int64_t pairs = 0;
    for (int64_t token = 0; token < tokens->count; token += cache->work->tokens) {
        int64_t left = tokens->count - token;
        pairs +=
            run_pass(cache, tokens, token, left < cache->work->tokens ? left : cache->work->tokens);
    }
    if (report) *report = (plsh_report){.pairs = pairs};
}
