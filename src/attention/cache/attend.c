/* attention/cache: queries at the last positions against the pages.
 *
 * A pass takes a few tokens. Every (head, token) is a query: a range of keys under weights. The
 * queries of a kv head share one read of its keys and values, cut into at most SPLITS tasks by the
 * range alone, whose partial sums are merged in order: threads change nothing. `exact` queries take
 * several rounds: the newest keys first; what these weigh tells how far the next round must go. */
#include "attention/cache/attend.h"

#include "attention/cache/exact.h"
#include "base/dtype.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

/* ---- A pass ---------------------------------------------------------------------------------- */

static void pack_query(const plsh_cache_setup *setup, const plsh_tokens *tokens, int64_t at,
                       float *q) {
    float factor = (float)(setup->scale * LOG2_E);
    for (int64_t x = 0; x < setup->page[0].head_dim; x++)
        q[x] = factor * plsh_dtype_load(tokens->dtype, tokens->q, at + x);
}

static void set_query(plsh_cache *cache, const plsh_tokens *tokens, int64_t head, int64_t token,
                      int64_t slot) {
    plsh_cache_setup *setup = cache->setup;
    plsh_cache_pass *pass = cache->pass;
    int64_t kv = head / setup->group;
    int64_t row = slot * setup->group + head % setup->group;
    plsh_cache_query *query = &pass->query[kv * pass->rows + row];
    plsh_cache_mask_state *mask_state = &cache->mask_state[head];
    const plsh_cache_mask *mask = &setup->mask[head];
    plsh_layout layout =
        plsh_cache_layout_or(tokens->q_layout, tokens->count, setup->page[0].head_dim);
    int64_t position = cache->length - tokens->count + token;

    query->head = head;
    query->token = token;
    query->mask_row = (plsh_cache_mask_row){mask, mask_state, NULL, position, -1};
    query->to = position + 1;
    query->from = plsh_cache_mask_reach(mask, &mask_state->query, position);
    if (mask->kind == PLSH_MASK_COUNTS) {
        int64_t *begins = pass->begins[head] + slot * mask->head.partition.samples;
        for (int64_t m = 0; m < mask->head.partition.samples; m++)
            begins[m] = mask_state->query.block[m].begin;
        query->mask_row.begins = begins;
    }
    query->m = PLSH_SOFTMAX_START;
    query->l = 0;
    query->bounded = false;
    memset(query->o, 0, (size_t)setup->page[0].dv * sizeof(float));
    pack_query(setup, tokens, head * layout.head_stride + token * layout.row_stride, query->q);
    if (mask->head.method == PLSH_METHOD_EXACT) plsh_cache_exact_begin(query, &setup->page[0]);
    if (mask->head.method == PLSH_METHOD_MEAN) query->from = query->to; /* not in the rounds */
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* The pages that the queries of this round need of every kv head, in at most SPLITS tasks each. */
static int plan_tasks(plsh_cache *cache) {
    plsh_cache_pass *pass = cache->pass;
    int count = 0;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) {
        const plsh_cache_query *query = pass->query + kv * pass->rows;
        int64_t from = INT64_MAX, to = 0;
        for (int64_t r = 0; r < pass->used; r++) {
            if (query[r].from >= query[r].to) continue;
            if (query[r].from < from) from = query[r].from;
            if (query[r].to > to) to = query[r].to;
        }
        pass->splits[kv] = 0;
        if (from >= to) continue;
        int64_t first = from / PLSH_PAGE_KEYS,
                pages = (to + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS - first;
        int64_t each = (pages + SPLITS - 1) / SPLITS;
        if (each < SPLIT_PAGES) each = SPLIT_PAGES;
        for (int64_t done = 0; done < pages; done += each) {
            int64_t last = done + each < pages ? done + each : pages;
            pass->task[count++] =
                (plsh_cache_task){kv, pass->splits[kv]++, first + done, first + last, 0};
        }
    }
    return count;
}

/* Lines that need the page, their weights filled in; how many. */
static int active_queries(plsh_cache *cache, const plsh_cache_task *task, int64_t number,
                          plsh_cache_scratch *scratch) {
    plsh_cache_pass *pass = cache->pass;
    plsh_cache_query *query = pass->query + task->kv * pass->rows;
    int64_t begin = number * PLSH_PAGE_KEYS, end = begin + PLSH_PAGE_KEYS;
    int count = 0;
    for (int64_t r = 0; r < pass->used; r++) {
        int64_t from = query[r].from > begin ? query[r].from : begin;
        int64_t to = query[r].to < end ? query[r].to : end;
        if (from >= to) continue;
        float *s = scratch->s + (size_t)count * PLSH_PAGE_KEYS;
        plsh_cache_mask_row_weights(&query[r].mask_row, from, (int)(to - from), s);
        if (query[r].bounded &&
            plsh_cache_exact_may_skip(
                &query[r], plsh_cache_store_page(&cache->store[task->kv], number),
                plsh_cache_setup_pages(cache->setup, task->kv), s, (int)(to - from)))
            continue;
        scratch->row[r].s = s;
        scratch->active[count] = &scratch->row[r];
        scratch->range[count++] = (plsh_cache_key_range){(int)(from - begin), (int)(to - begin)};
    }
    return count;
}

/* One page for its queries; those that see the same keys of it go together. */
static int64_t attend_page(const plsh_cache_page_layout *layout, const plsh_cache_page *page,
                           plsh_cache_scratch *scratch, int count) {
    const plsh_cache_key_range *ranges = scratch->range;
    int64_t pairs = 0;
    for (int a = 0, b; a < count; a = b) {
        for (b = a + 1;
             b < count && ranges[b].from == ranges[a].from && ranges[b].to == ranges[a].to;)
            b++;
        size_t at = (size_t)ranges[a].from * layout->element;
        int keys = ranges[a].to - ranges[a].from;
        layout->kernels->attend[layout->dtype](
            scratch->active + a, b - a,
            plsh_cache_page_at(page, layout->keys) + at * (size_t)layout->d,
            plsh_cache_page_at(page, layout->values) + at * (size_t)layout->dv, keys,
            (int)layout->d, (int)layout->dv);
        pairs += (int64_t)keys * (b - a);
    }
    return pairs;
}

static void run_task(plsh_cache *cache, plsh_cache_task *task, plsh_cache_scratch *scratch) {
    plsh_cache_pass *pass = cache->pass;
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, task->kv);
    const plsh_cache_query *query = pass->query + task->kv * pass->rows;
    int64_t slot = (task->kv * SPLITS + task->split) * pass->rows;
    for (int64_t r = 0; r < pass->used; r++) {
        scratch->row[r] = (plsh_decode_row){
            .q = query[r].q, .o = pass->part_o + (slot + r) * layout->dv, .m = PLSH_SOFTMAX_START};
        memset(scratch->row[r].o, 0, (size_t)layout->dv * sizeof(float));
    }
    for (int64_t number = task->first; number < task->last; number++) {
        int count = active_queries(cache, task, number, scratch);
        task->pairs += attend_page(layout, plsh_cache_store_page(&cache->store[task->kv], number),
                                   scratch, count);
    }
    for (int64_t r = 0; r < pass->used; r++) {
        pass->part_m[slot + r] = scratch->row[r].m;
        pass->part_l[slot + r] = scratch->row[r].l;
    }
}

/* (m, l, o) += (pm, pl, po), both as sums of 2^(score - m). */
static void merge(plsh_cache_query *query, float pm, float pl, const float *po, int64_t dv) {
    float m = pm > query->m ? pm : query->m;
    float a = exp2f(query->m - m), b = exp2f(pm - m);
    query->m = m;
    query->l = a * query->l + b * pl;
    for (int64_t c = 0; c < dv; c++) query->o[c] = a * query->o[c] + b * po[c];
}

static void merge_queries(plsh_cache *cache, int64_t kv) {
    plsh_cache_pass *pass = cache->pass;
    int64_t dv = cache->setup->page[0].dv;
    for (int64_t split = 0; split < pass->splits[kv]; split++) {
        int64_t slot = (kv * SPLITS + split) * pass->rows;
        for (int64_t r = 0; r < pass->used; r++) {
            if (pass->part_l[slot + r] == 0) continue; /* saw nothing, or nothing that weighs */
            merge(&pass->query[kv * pass->rows + r], pass->part_m[slot + r], pass->part_l[slot + r],
                  pass->part_o + (slot + r) * dv, dv);
        }
    }
}

static int64_t run_round(plsh_cache *cache) {
    plsh_cache_pass *pass = cache->pass;
    int count = plan_tasks(cache);
    int64_t pages = 0;
    for (int i = 0; i < count; i++) pages += pass->task[i].last - pass->task[i].first;
    int threads = count < pass->threads ? count : pass->threads;
    if (pages * pass->used < SERIAL_PAGES) threads = 1;
    if (threads <= 1) {
        for (int i = 0; i < count; i++) run_task(cache, &pass->task[i], &pass->scratch[0]);
    } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int i = 0; i < count; i++)
            run_task(cache, &pass->task[i], &pass->scratch[omp_get_thread_num()]);
    }
    int64_t pairs = 0;
    for (int i = 0; i < count; i++) pairs += pass->task[i].pairs;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) merge_queries(cache, kv);
    return pairs;
}

/* The ranges of the next round; false when no query has one. */
static bool next_round(plsh_cache *cache, int round) {
    plsh_cache_pass *pass = cache->pass;
    bool more = false;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) {
        for (int64_t r = 0; r < pass->used; r++) {
            plsh_cache_query *query = &pass->query[kv * pass->rows + r];
            if (query->mask_row.mask->head.method == PLSH_METHOD_EXACT)
                plsh_cache_exact_continue(query, &cache->store[kv], round);
            else
                query->from = query->to;
            more = more || query->from < query->to;
        }
    }
    return more;
}

/* ---- mean ------------------------------------------------------------------------------------ */

/* One draw of a query on its own: (m, l, o) of the scratch's first row. */
static int64_t run_draw(plsh_cache *cache, const plsh_cache_query *query,
                        plsh_cache_mask_row mask_row, int64_t from, plsh_cache_scratch *scratch) {
    int64_t kv = query->head / cache->setup->group, pairs = 0;
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, kv);
    plsh_decode_row *row = &scratch->row[0];
    *row =
        (plsh_decode_row){.q = query->q, .s = scratch->s, .o = scratch->o, .m = PLSH_SOFTMAX_START};
    memset(row->o, 0, (size_t)layout->dv * sizeof(float));
    scratch->active[0] = row;
    for (int64_t at = from; at < query->to;) {
        int64_t begin = at / PLSH_PAGE_KEYS * PLSH_PAGE_KEYS;
        int64_t to = begin + PLSH_PAGE_KEYS < query->to ? begin + PLSH_PAGE_KEYS : query->to;
        plsh_cache_mask_row_weights(&mask_row, at, (int)(to - at), row->s);
        scratch->range[0] = (plsh_cache_key_range){(int)(at - begin), (int)(to - begin)};
        pairs += attend_page(layout, plsh_cache_store_page(&cache->store[kv], at / PLSH_PAGE_KEYS),
                             scratch, 1);
        at = to;
    }
    return pairs;
}

/* o = mean over the draws of o_m / l_m; the weights (m, l) are those of the mean mask. */
static int64_t run_mean(plsh_cache *cache, plsh_cache_query *query, plsh_cache_scratch *scratch) {
    const plsh_partition *set = &query->mask_row.mask->head.partition;
    int64_t dv = cache->setup->page[0].dv, pairs = 0;
    for (int64_t m = 0; m < set->samples; m++) {
        plsh_cache_mask_row mask_row = query->mask_row;
        mask_row.sample = m;
        int64_t from = mask_row.begins ? mask_row.begins[m] : 0;
        pairs += run_draw(cache, query, mask_row, from, scratch);
        const plsh_decode_row *row = &scratch->row[0];
        float top = row->m > query->m ? row->m : query->m;
        query->l =
            query->l * exp2f(query->m - top) + row->l * exp2f(row->m - top) / (float)set->samples;
        query->m = top;
        float share = 1 / (row->l * (float)set->samples);
        for (int64_t c = 0; c < dv; c++) query->o[c] += share * row->o[c];
    }
    return pairs;
}

static int64_t run_means(plsh_cache *cache) {
    plsh_cache_pass *pass = cache->pass;
    int64_t pairs = 0, queries = cache->setup->kv_heads * pass->rows;
#pragma omp parallel for schedule(dynamic, 1) num_threads(pass->threads) reduction(+ : pairs)      \
    if (pass->threads > 1)
    for (int64_t i = 0; i < queries; i++) {
        plsh_cache_query *query = &pass->query[i];
        if (i % pass->rows >= pass->used) continue;
        if (query->mask_row.mask->head.method != PLSH_METHOD_MEAN) continue;
        pairs += run_mean(cache, query, &pass->scratch[omp_get_thread_num()]);
    }
    return pairs;
}

/* ---- Out ------------------------------------------------------------------------------------- */

static void put_query(const plsh_cache *cache, const plsh_tokens *tokens,
                      const plsh_cache_query *query) {
    int64_t dim = cache->setup->page[0].value_dim;
    plsh_layout layout = plsh_cache_layout_or(tokens->o_layout, tokens->count, dim);
    float *o = tokens->o + query->head * layout.head_stride + query->token * layout.row_stride;
    bool mean = query->mask_row.mask->head.method == PLSH_METHOD_MEAN;
    float factor = mean ? 1 : 1 / query->l;
    for (int64_t c = 0; c < dim; c++) o[c] = factor * query->o[c];
    if (tokens->lse)
        tokens->lse[query->head * tokens->count + query->token] =
            (float)(((double)query->m + log2((double)query->l)) / LOG2_E);
}

static int64_t run_pass(plsh_cache *cache, const plsh_tokens *tokens, int64_t token,
                        int64_t count) {
    plsh_cache_setup *setup = cache->setup;
    plsh_cache_pass *pass = cache->pass;
    pass->used = count * setup->group;
    bool mean = false;
    for (int64_t h = 0; h < setup->heads; h++) {
        for (int64_t t = 0; t < count; t++) set_query(cache, tokens, h, token + t, t);
        mean = mean || setup->mask[h].head.method == PLSH_METHOD_MEAN;
    }
    int64_t pairs = 0;
    int round = 0;
    do pairs += run_round(cache);
    while (next_round(cache, ++round));
    if (mean) pairs += run_means(cache);
    for (int64_t kv = 0; kv < setup->kv_heads; kv++)
        for (int64_t r = 0; r < pass->used; r++)
            put_query(cache, tokens, &pass->query[kv * pass->rows + r]);
    return pairs;
}

int64_t plsh_cache_attend_pages(plsh_cache *cache, const plsh_tokens *tokens) {
    int64_t pairs = 0, most = cache->pass->tokens;
    for (int64_t token = 0; token < tokens->count; token += most) {
        int64_t left = tokens->count - token;
        pairs += run_pass(cache, tokens, token, left < most ? left : most);
    }
    return pairs;
}
