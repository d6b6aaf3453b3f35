/* attention/cache: queries at the last positions against the pages.
 *
 * A pass takes a few tokens of every sequence. Every (head, token) is a query: a range of keys
 * under weights. The queries of a kv head share one read of its keys and values, cut into at most
 * PASS_SPLITS tasks. The cut depends on the range only, and the partial sums are merged in order,
 * so the result depends neither on threads nor on other sequences. `exact` queries take several
 * rounds, the newest keys first; the weights so far determine how far the next round must go. */
#include "attention/cache/cache.h"

#include "attention/cache/exact.h"
#include "attention/cache/points.h"
#include "attention/forward/headroom.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "base/thread.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    SPLIT_PAGES = 8,     /* the fewest pages of a task, where there are more: 512 keys */
    SERIAL_PAGES = 8,    /* fewer (page, query) pairs do not repay waking a thread; ~1 us each */
    SERIAL_QUERIES = 128 /* likewise queries that are set up or finished; ~50 ns each */
};

/* ---- A pass ---------------------------------------------------------------------------------- */

/* The point of a query is that of its token's key. */
static void set_point(const plsh_cache *cache, plsh_cache_query *query, int64_t position) {
    const plsh_cache_setup *setup = cache->setup;
    const int64_t kv = query->head / setup->group;
    query->layout = plsh_cache_setup_pages(setup, kv);
    query->point = NULL;
    if (query->layout->dim == 0 || query->mask_row.mask->kind == PLSH_MASK_FLAT) return;
    query->set = query->layout->sets == 1 ? 0 : query->head % setup->group;
    query->point =
        plsh_cache_page_point(plsh_cache_store_page(&cache->store[kv], position / PLSH_PAGE_KEYS),
                              query->layout, position % PLSH_PAGE_KEYS) +
        query->set * query->layout->dim;
}

static void pack_query(const plsh_cache_setup *setup, const plsh_tokens *tokens, int64_t at,
                       float *q) {
    float factor = (float)(setup->scale * PLSH_LOG2_E);
    for (int64_t x = 0; x < setup->page[0].head_dim; x++)
        q[x] = factor * plsh_dtype_load(tokens->dtype, tokens->q, at + x);
    for (int64_t x = setup->page[0].head_dim; x < setup->page[0].d; x++) q[x] = 0;
}

static void set_query(plsh_cache *cache, int64_t head, int64_t slot) {
    const plsh_tokens *tokens = cache->call.tokens;
    plsh_cache_setup *setup = cache->setup;
    plsh_cache_pass *pass = cache->call.pass;
    int64_t token = cache->call.done + slot;
    int64_t kv = head / setup->group;
    int64_t row = slot * setup->group + head % setup->group;
    plsh_cache_query *query = &pass->query[kv * pass->rows + row];
    plsh_cache_mask_state *mask_state = &cache->mask_state[head];
    const plsh_cache_mask *mask = &setup->mask[head];
    plsh_layout layout = plsh_layout_or(tokens->q_layout, tokens->count, setup->page[0].head_dim);
    int64_t position = cache->length - tokens->count + token;

    query->head = head;
    query->token = token;
    query->mask_row = (plsh_cache_mask_row){mask, mask_state, NULL, position, -1};
    query->to = position + 1;
    query->from = plsh_cache_mask_reach(mask, &mask_state->query, position);
    if (mask->kind == PLSH_MASK_COUNTS) {
        const int64_t most = plsh_cache_blocks_most(&mask->head.partition);
        int64_t *begins = pass->begins[head] + slot * most;
        for (int64_t m = 0; m < most; m++) begins[m] = mask_state->query.block[m].begin;
        query->mask_row.begins = begins;
    }
    query->m = PLSH_SOFTMAX_START;
    query->l = 0;
    query->bounded = false;
    set_point(cache, query, position);
    memset(query->o, 0, (size_t)setup->page[0].dv * sizeof(float));
    pack_query(setup, tokens, head * layout.head_stride + token * layout.row_stride, query->q);
    if (mask->head.method == PLSH_METHOD_EXACT) plsh_cache_exact_begin(query, &setup->page[0]);
    /* an empty range: run_mean reads the keys after the rounds, draw by draw */
    if (mask->head.method == PLSH_METHOD_MEAN) query->from = query->to;
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* The pages that the queries of this round need of every kv head, in at most PASS_SPLITS tasks
 * each. */
static void plan_tasks(plsh_cache *cache) {
    plsh_cache_pass *pass = cache->call.pass;
    cache->call.tasks = 0;
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
        int64_t each = (pages + PASS_SPLITS - 1) / PASS_SPLITS;
        if (each < SPLIT_PAGES) each = SPLIT_PAGES;
        for (int64_t done = 0; done < pages; done += each) {
            int64_t last = done + each < pages ? done + each : pages;
            pass->task[cache->call.tasks++] =
                (plsh_cache_task){kv, pass->splits[kv]++, first + done, first + last, 0};
        }
    }
}

/* The log2 weights of the keys from .. to - 1, which lie in page `number`; false where none of them
 * has a weight. */
static bool fill_weights(const plsh_cache *cache, const plsh_cache_query *query, int64_t number,
                         plsh_range keys, float *s) {
    const int count = (int)(keys.end - keys.begin);
    if (query->point == NULL) {
        plsh_cache_mask_row_weights(&query->mask_row, keys.begin, count, s);
        return true;
    }
    const int64_t kv = query->head / cache->setup->group;
    return plsh_cache_points_weights(query, plsh_cache_store_page(&cache->store[kv], number),
                                     query->layout, (int)(keys.begin % PLSH_PAGE_KEYS), count, s);
}

/* Lists the queries that need the page, with their weights; returns their number. */
static int active_queries(plsh_cache *cache, const plsh_cache_task *task, int64_t number,
                          plsh_cache_scratch *scratch) {
    plsh_cache_pass *pass = cache->call.pass;
    plsh_cache_query *query = pass->query + task->kv * pass->rows;
    int64_t begin = number * PLSH_PAGE_KEYS, end = begin + PLSH_PAGE_KEYS;
    int count = 0;
    for (int64_t r = 0; r < pass->used; r++) {
        int64_t from = query[r].from > begin ? query[r].from : begin;
        int64_t to = query[r].to < end ? query[r].to : end;
        if (from >= to) continue;
        float *s = scratch->s + (size_t)count * PLSH_PAGE_KEYS;
        if (!fill_weights(cache, &query[r], number, (plsh_range){from, to}, s)) continue;
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

/* Adds one page to the sums of its queries. Queries that see the same keys of it share a kernel
 * call. */
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
        const plsh_decode_page part = {
            .k = plsh_cache_page_at(page, layout->keys) + at * (size_t)layout->d,
            .v = plsh_cache_page_at(page, layout->values) + at * (size_t)layout->dv,
            .keys = keys,
            .d = (int)layout->d,
            .dv = (int)layout->dv};
        layout->kernels->attend[layout->dtype](scratch->active + a, b - a, part);
        pairs += (int64_t)keys * (b - a);
    }
    return pairs;
}

static void run_task(plsh_cache *cache, plsh_cache_task *task, plsh_cache_scratch *scratch) {
    plsh_cache_pass *pass = cache->call.pass;
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, task->kv);
    const plsh_cache_query *query = pass->query + task->kv * pass->rows;
    int64_t slot = (task->kv * PASS_SPLITS + task->split) * pass->rows;
    for (int64_t r = 0; r < pass->used; r++) {
        scratch->row[r] = (plsh_decode_row){.q = query[r].q,
                                            .o = pass->part_o + (slot + r) * layout->dv,
                                            .m = PLSH_SOFTMAX_START,
                                            .headroom = cache->call.headroom};
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
    plsh_cache_pass *pass = cache->call.pass;
    int64_t dv = cache->setup->page[0].dv;
    for (int64_t split = 0; split < pass->splits[kv]; split++) {
        int64_t slot = (kv * PASS_SPLITS + split) * pass->rows;
        for (int64_t r = 0; r < pass->used; r++) {
            if (pass->part_l[slot + r] == 0) continue; /* it saw no key, or only keys of weight 0 */
            merge(&pass->query[kv * pass->rows + r], pass->part_m[slot + r], pass->part_l[slot + r],
                  pass->part_o + (slot + r) * dv, dv);
        }
    }
}

/* The sums of the round are complete: sets the ranges of the next round. Returns whether any query
 * needs one. */
static bool end_round(plsh_cache *cache, int64_t kv, int round) {
    plsh_cache_pass *pass = cache->call.pass;
    bool more = false;
    merge_queries(cache, kv);
    for (int64_t r = 0; r < pass->used; r++) {
        plsh_cache_query *query = &pass->query[kv * pass->rows + r];
        if (query->mask_row.mask->head.method == PLSH_METHOD_EXACT)
            plsh_cache_exact_continue(query, &cache->store[kv], round);
        else
            query->from = query->to;
        more = more || query->from < query->to;
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
    *row = (plsh_decode_row){.q = query->q,
                             .s = scratch->s,
                             .o = scratch->o,
                             .m = PLSH_SOFTMAX_START,
                             .headroom = cache->call.headroom};
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
        float share = row->l == 0 ? 0 : 1 / (row->l * (float)set->samples); /* saw nothing */
        if (cache->call.headroom > 0)
            share *= 0.5f; /* the sum of two such values may round to infinity */
        for (int64_t c = 0; c < dv; c++) query->o[c] += share * row->o[c];
    }
    return pairs;
}

/* ---- Output rows ----------------------------------------------------------------------------- */

static void put_query(plsh_cache *cache, const plsh_cache_query *query) {
    const plsh_tokens *tokens = cache->call.tokens;
    int64_t dim = cache->setup->page[0].value_dim;
    plsh_layout layout = plsh_layout_or(tokens->o_layout, tokens->count, dim);
    int64_t at = query->head * layout.head_stride + query->token * layout.row_stride;
    bool mean = query->mask_row.mask->head.method == PLSH_METHOD_MEAN;
    float factor = mean ? 1 : query->l == 0 ? 0 : 1 / query->l; /* a row that saw nothing is 0 */
    char *o = (char *)tokens->o + at * (int64_t)plsh_dtype_size(tokens->o_dtype);
    if (cache->call.headroom > 0) {
        plsh_headroom_mend(tokens->o_dtype, o, query->o, mean ? 2 : (double)factor, true, dim);
        return;
    }
    for (int64_t c = 0; c < dim; c++) query->o[c] *= factor;
    if (plsh_headroom_is_needed(query->o, dim, query->m, query->l))
        atomic_store_explicit(&cache->call.overflowed, true, memory_order_relaxed);
    plsh_kernels_narrow(cache->setup->page[0].kernels, tokens->o_dtype, o, query->o, dim);
    if (tokens->lse)
        tokens->lse[query->head * tokens->count + query->token] =
            (float)(((double)query->m + log2((double)query->l)) / PLSH_LOG2_E);
}

/* ---- All sequences of a call ----------------------------------------------------------------- */

typedef struct attend_batch {
    plsh_cache *const *cache;
    int64_t count;
    int64_t heads, kv_heads; /* the most of any */
    int64_t queries;         /* of all sequences in this pass */
    int threads;
    int round;
    atomic_bool more; /* rounds */
} attend_batch;

/* Does the cache take part in this pass? */
static bool takes_part(const plsh_cache *cache) {
    return cache->call.pass && cache->call.taken > 0;
}

/* Begins the next pass; false where there is none. */
static bool begin_pass(attend_batch *all) {
    all->queries = 0;
    for (int64_t i = 0; i < all->count; i++) {
        plsh_cache_call *call = &all->cache[i]->call;
        if (call->pass == NULL) continue;
        int64_t left = call->tokens->count - call->done;
        call->taken = left < call->pass->tokens ? left : call->pass->tokens;
        call->pass->used = call->taken * all->cache[i]->setup->group;
        all->queries += call->taken * all->cache[i]->setup->heads;
    }
    return all->queries > 0;
}

/* How many threads the queries of a pass are worth. */
static int threads_of_queries(const attend_batch *all) {
    return all->queries >= SERIAL_QUERIES ? all->threads : 1;
}

/* All tokens of head i % heads of sequence i / heads. */
static void set_heads(void *context, int64_t first, int64_t end, int slot) {
    const attend_batch *all = context;
    (void)slot;
    for (int64_t i = first; i < end; i++) {
        plsh_cache *cache = all->cache[i / all->heads];
        if (!takes_part(cache) || i % all->heads >= cache->setup->heads) continue;
        for (int64_t t = 0; t < cache->call.taken; t++) set_query(cache, i % all->heads, t);
    }
}

/* Numbers the tasks of this round through all sequences; returns how many threads they are
 * worth. */
static int number_tasks(const attend_batch *all, int64_t *tasks) {
    int64_t visits = 0;
    *tasks = 0;
    for (int64_t i = 0; i < all->count; i++) {
        plsh_cache_call *call = &all->cache[i]->call;
        call->tasks = 0;
        if (takes_part(all->cache[i])) plan_tasks(all->cache[i]);
        call->first_task = *tasks;
        *tasks += call->tasks;
        for (int64_t t = 0; t < call->tasks; t++)
            visits += (call->pass->task[t].last - call->pass->task[t].first) * call->pass->used;
    }
    if (visits < SERIAL_PAGES) return 1;
    return *tasks < all->threads ? (int)*tasks : all->threads;
}

/* The cache that task number `task` is of: the last one whose tasks begin no later. */
static plsh_cache *cache_of_task(const attend_batch *all, int64_t task) {
    int64_t low = 0, high = all->count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (all->cache[middle]->call.first_task <= task)
            low = middle;
        else
            high = middle;
    }
    return all->cache[low];
}

static void run_numbered(void *context, int64_t task, int slot) {
    plsh_cache *cache = cache_of_task(context, task);
    plsh_cache_pass *pass = cache->call.pass;
    run_task(cache, &pass->task[task - cache->call.first_task], &pass->scratch[slot]);
}

/* kv head i % kv_heads of sequence i / kv_heads. */
static void end_heads(void *context, int64_t first, int64_t end, int slot) {
    attend_batch *all = context;
    (void)slot;
    for (int64_t i = first; i < end; i++) {
        plsh_cache *cache = all->cache[i / all->kv_heads];
        if (!takes_part(cache) || i % all->kv_heads >= cache->setup->kv_heads) continue;
        if (end_round(cache, i % all->kv_heads, all->round)) atomic_store(&all->more, true);
    }
}

static bool run_round(attend_batch *all) {
    int64_t tasks;
    int threads = number_tasks(all, &tasks);
    plsh_thread_run(threads, tasks, run_numbered, all);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t t = 0; t < all->cache[i]->call.tasks; t++)
            all->cache[i]->call.pairs += all->cache[i]->call.pass->task[t].pairs;
    atomic_store(&all->more, false);
    plsh_thread_rows(threads > 1 ? threads_of_queries(all) : 1, all->count * all->kv_heads, 1,
                     end_heads, all);
    return atomic_load(&all->more);
}

/* The queries of head i % heads of sequence i / heads. `mean` is computed here, draw by draw; for
 * the other methods the sums of the rounds are finished. */
static void put_heads(void *context, int64_t first, int64_t end, int slot) {
    const attend_batch *all = context;
    for (int64_t i = first; i < end; i++) {
        plsh_cache *cache = all->cache[i / all->heads];
        const int64_t head = i % all->heads, group = cache->setup->group;
        if (!takes_part(cache) || head >= cache->setup->heads) continue;
        plsh_cache_pass *pass = cache->call.pass;
        int64_t pairs = 0;
        for (int64_t t = 0; t < cache->call.taken; t++) {
            int64_t row = head / group * pass->rows + t * group + head % group;
            plsh_cache_query *query = &pass->query[row];
            if (query->mask_row.mask->head.method == PLSH_METHOD_MEAN)
                pairs += run_mean(cache, query, &pass->scratch[slot]);
            put_query(cache, query);
        }
        if (pairs > 0) atomic_fetch_add(&cache->call.pairs, pairs);
    }
}

static void end_queries(attend_batch *all) {
    bool mean = false;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t h = 0; h < all->cache[i]->setup->heads; h++)
            mean = mean || all->cache[i]->setup->mask[h].head.method == PLSH_METHOD_MEAN;
    plsh_thread_rows(mean ? all->threads : threads_of_queries(all), all->count * all->heads, 1,
                     put_heads, all);
}

static void run_pass(attend_batch *all) {
    plsh_thread_rows(threads_of_queries(all), all->count * all->heads, 1, set_heads, all);
    for (all->round = 1; run_round(all); all->round++) continue;
    end_queries(all);
}

/* Runs the pass, and again with headroom if sums have overflowed. */
static void mend_pass(attend_batch *all) {
    bool overflowed = false;
    for (int64_t i = 0; i < all->count; i++) overflowed |= all->cache[i]->call.overflowed;
    if (!overflowed) return;
    for (int64_t i = 0; i < all->count; i++) {
        plsh_cache_call *call = &all->cache[i]->call;
        call->headroom = PLSH_HEADROOM;
        call->counted = call->pairs;
    }
    run_pass(all);
    for (int64_t i = 0; i < all->count; i++) {
        plsh_cache_call *call = &all->cache[i]->call;
        call->headroom = 0;
        call->pairs = call->counted;
        call->overflowed = false;
    }
}

void plsh_cache_attend_pages(plsh_cache *const *caches, int64_t count) {
    attend_batch all = {.cache = caches, .count = count, .threads = INT_MAX};
    for (int64_t i = 0; i < count; i++) {
        const plsh_cache_setup *setup = caches[i]->setup;
        if (setup->heads > all.heads) all.heads = setup->heads;
        if (setup->kv_heads > all.kv_heads) all.kv_heads = setup->kv_heads;
        if (setup->threads < all.threads) all.threads = setup->threads;
    }
    while (begin_pass(&all)) {
        run_pass(&all);
        mend_pass(&all);
        for (int64_t i = 0; i < count; i++) caches[i]->call.done += caches[i]->call.taken;
    }
}
