/* serve: prompts that begin alike share the cache of their beginning. */
#include "cli/serve/generate.h"

#include <stdlib.h>
#include <string.h>

/* Tokens that two lists begin with; the last token of a prompt is always computed, for its logits.
 */
static int64_t common(const serve_sequence *s, const int32_t *ids, int64_t count) {
    int64_t same = 0;
    while (same < count && same + 1 < s->text.prompt && s->text.ids[same] == ids[same]) same++;
    return same;
}

typedef struct source {
    plsh_session *session;
    serve_prefix *prefix; /* where it is a kept one */
    int64_t count;
    int64_t expected; /* tokens of the longest beginning that is shared with a live sequence,
                         computed or not yet */
} source;

static source find_source(serve_generator *g, const serve_sequence *s) {
    source best = {0};
    for (int64_t i = 0; i < g->prefix_count; i++) {
        const int64_t count = common(s, g->prefix[i].ids, g->prefix[i].count);
        if (count > best.count) best = (source){g->prefix[i].session, &g->prefix[i], count, 0};
    }
    for (int64_t i = 0; i < g->live_count; i++) {
        const serve_sequence *other = g->live[i];
        const int64_t have = plsh_session_length(other->session);
        const int64_t whole = common(s, other->text.ids, other->text.prompt + other->text.made);
        const int64_t count = whole < have ? whole : have;
        if (whole > best.expected) best.expected = whole;
        if (count > best.count) best = (source){other->session, NULL, count, best.expected};
    }
    return best;
}

/* A fork that was cut to the common beginning; NULL: its attention has dropped what it needs. */
static plsh_session *fork_source(const source *from) {
    plsh_session *session;
    if (plsh_session_fork(from->session, &session, NULL) != PLSH_STATUS_OK) return NULL;
    if (plsh_session_truncate(session, from->count, NULL) == PLSH_STATUS_OK) return session;
    plsh_session_destroy(session);
    return NULL;
}

bool serve_prefix_begin(serve_generator *g, serve_sequence *s, plsh_status *status) {
    const source from = find_source(g, s);
    *status = PLSH_STATUS_OK;
    if (from.expected > from.count + SERVE_PREFIX_LEAST) return false;
    if (from.count >= SERVE_PREFIX_LEAST) s->session = fork_source(&from);
    if (s->session != NULL) {
        if (from.prefix != NULL) from.prefix->used = ++g->clock;
        pthread_mutex_lock(&g->server->lock);
        g->server->metrics.tokens_shared += (uint64_t)from.count;
        pthread_mutex_unlock(&g->server->lock);
        return true;
    }
    *status = plsh_session_create(&s->session, g->server->model.model, &g->options, NULL);
    return true;
}

static void drop_prefix(serve_generator *g, int64_t i) {
    g->kept -= g->prefix[i].bytes;
    plsh_session_destroy(g->prefix[i].session);
    free(g->prefix[i].ids);
    g->prefix[i] = g->prefix[--g->prefix_count];
}

static void drop_oldest(serve_generator *g) {
    int64_t oldest = 0;
    for (int64_t i = 1; i < g->prefix_count; i++)
        if (g->prefix[i].used < g->prefix[oldest].used) oldest = i;
    drop_prefix(g, oldest);
}

void serve_prefix_drop(serve_generator *g, size_t wanted) {
    const size_t limit = g->server->limits.caches;
    while (g->prefix_count > 0 &&
           (g->reserved + g->kept > limit || wanted > limit - g->reserved - g->kept))
        drop_oldest(g);
}

/* Drops kept texts that are a beginning of this one. */
static void drop_contained(serve_generator *g, const int32_t *ids, int64_t count) {
    for (int64_t i = g->prefix_count - 1; i >= 0; i--)
        if (g->prefix[i].count <= count &&
            memcmp(g->prefix[i].ids, ids, (size_t)g->prefix[i].count * sizeof *ids) == 0)
            drop_prefix(g, i);
}

void serve_prefix_keep(serve_generator *g, serve_sequence *s) {
    const int64_t count = plsh_session_length(s->session);
    const size_t bytes = plsh_session_cache_bytes(s->session);
    int32_t *ids = malloc((size_t)(count + 1) * sizeof *ids);
    if (count < SERVE_PREFIX_LEAST || ids == NULL) {
        free(ids);
        return;
    }
    memcpy(ids, s->text.ids, (size_t)count * sizeof *ids);
    drop_contained(g, ids, count);
    if (g->prefix_count == SERVE_PREFIXES) drop_oldest(g);
    serve_prefix_drop(g, bytes);
    if (bytes > g->server->limits.caches - g->reserved - g->kept) {
        free(ids);
        return;
    }
    g->prefix[g->prefix_count++] = (serve_prefix){s->session, ids, count, bytes, ++g->clock};
    g->kept += bytes;
    s->session = NULL;
}
