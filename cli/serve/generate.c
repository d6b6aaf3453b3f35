/* serve: the scheduler of causal models.
 *
 * A pass takes one token of every live sequence that is past its prompt, and parts of prompts, up
 * to limits.batch tokens; a quarter of that while others generate, so that their texts do not
 * stall. Short prompts go first, and the oldest one gets its share in any case. A sequence becomes
 * live when the cache for its longest text fits beside those of the others. */
#include "cli/serve/generate.h"

#include "base/clock.h"
#include "cli/message.h"

#include <stdlib.h>
#include <string.h>

/* ---- Beginning and ending ---- */

/* A sequence is over: its cache is kept for others, its job may be done. */
static void end_sequence(serve_generator *g, serve_sequence *s) {
    serve_job *job = s->job;
    g->reserved -= s->reserved;
    s->reserved = 0;
    if (s->session != NULL && s->text.finish != NULL) serve_prefix_keep(g, s);
    serve_sequence_end(s);
    if (--job->sequences_left > 0) return;
    if (job->request.stream && !serve_answer_stream_end(job))
        serve_refuse(&job->fault, 503, NULL, "out of memory");
    serve_job_finish(job);
}

static void fail(serve_sequence *s, plsh_status status, const char *message) {
    serve_refuse(&s->job->fault, status == PLSH_STATUS_NO_MEMORY ? 503 : 500, NULL, "%s", message);
}

/* Is the sequence finished, its job failed, or its client gone? */
static bool is_over(serve_sequence *s) {
    return s->text.finish != NULL || s->job->fault.status != 0 || serve_job_left(s->job);
}

static void end_live(serve_generator *g) {
    int64_t kept = 0;
    for (int64_t i = 0; i < g->live_count; i++) {
        if (is_over(g->live[i]))
            end_sequence(g, g->live[i]);
        else
            g->live[kept++] = g->live[i];
    }
    g->live_count = kept;
}

static void end_waiting(serve_generator *g) {
    for (serve_sequence **at = &g->waiting; *at != NULL;) {
        serve_sequence *s = *at;
        if (!is_over(s)) {
            at = &s->after;
            continue;
        }
        *at = s->after;
        end_sequence(g, s);
    }
}

static void collect(serve_generator *g, bool wait) {
    for (serve_job *job = serve_queue_take(g->server, wait); job != NULL;
         job = serve_queue_take(g->server, false)) {
        if (serve_sequences_create(g, job)) continue;
        serve_refuse(&job->fault, 503, NULL, "out of memory");
        if (job->request.stream) serve_answer_stream_end(job);
        serve_job_finish(job);
    }
}

static size_t longest_bytes(const serve_generator *g, const serve_sequence *s) {
    return plsh_session_cache_bytes_at(g->host, s->text.prompt + s->job->request.max_tokens);
}

/* Gives a sequence its session. false: it has to wait, because a live sequence is computing a
 * beginning that both share. */
static bool begin_sequence(serve_generator *g, serve_sequence *s) {
    plsh_status status;
    const size_t bytes = longest_bytes(g, s);
    serve_prefix_drop(g, bytes);
    if (!serve_prefix_begin(g, s, &status)) return false;
    if (status != PLSH_STATUS_OK) fail(s, status, "no session could be made");
    if (status == PLSH_STATUS_OK && !serve_sequence_begin(s))
        fail(s, PLSH_STATUS_NO_MEMORY, "out of memory");
    s->reserved = bytes;
    g->reserved += bytes;
    return true;
}

static void note_begin(serve_generator *g, serve_job *job) {
    if (job->started > 0) return;
    job->started = plsh_clock_seconds();
    pthread_mutex_lock(&g->server->lock);
    serve_histogram_add(&g->server->metrics.queued, job->started - job->arrived);
    pthread_mutex_unlock(&g->server->lock);
}

/* Starts waiting sequences in their order. If the cache of one does not fit, later ones wait too;
 * otherwise a large one might never begin. */
static void begin_waiting(serve_generator *g) {
    serve_sequence **at = &g->waiting;
    while (*at != NULL && g->live_count < g->server->limits.sequences) {
        serve_sequence *s = *at;
        if (longest_bytes(g, s) > g->server->limits.caches - g->reserved) return;
        if (!begin_sequence(g, s)) {
            at = &s->after;
            continue;
        }
        *at = s->after;
        s->after = NULL;
        note_begin(g, s->job);
        if (s->session == NULL || s->text.logits == NULL)
            end_sequence(g, s);
        else
            g->live[g->live_count++] = s;
    }
}

/* ---- A pass ---- */

/* Tokens that the sequence has and its session does not. */
static int64_t pending(const serve_sequence *s) {
    return s->text.prompt + s->text.made - plsh_session_length(s->session);
}

static int64_t add_tokens_to_pass(serve_sequence *s, int64_t room) {
    const int64_t wants = pending(s) - s->tokens_in_pass, given = wants < room ? wants : room;
    s->tokens_in_pass += given;
    return given;
}

/* The prompt with the fewest tokens left that has no share yet. */
static serve_sequence *shortest(const serve_generator *g) {
    serve_sequence *best = NULL;
    for (int64_t i = 0; i < g->live_count; i++) {
        serve_sequence *s = g->live[i];
        if (s->tokens_in_pass == pending(s)) continue;
        if (best == NULL || pending(s) - s->tokens_in_pass < pending(best) - best->tokens_in_pass)
            best = s;
    }
    return best;
}

/* Gives every sequence its share of the pass. */
static void divide_pass(serve_generator *g) {
    int64_t generating = 0, room = g->server->limits.batch;
    serve_sequence *oldest = NULL;
    for (int64_t i = 0; i < g->live_count; i++) {
        serve_sequence *s = g->live[i];
        s->tokens_in_pass = pending(s) == 1;
        generating += s->tokens_in_pass;
        if (s->tokens_in_pass == 0 && oldest == NULL) oldest = s;
    }
    if (generating > 0) room /= 4;
    if (room < 1) room = 1;
    if (oldest != NULL) room -= add_tokens_to_pass(oldest, (room + 3) / 4);
    for (serve_sequence *s = shortest(g); room > 0 && s != NULL; s = shortest(g))
        room -= add_tokens_to_pass(s, room);
}

static void choose_one(void *context, int64_t i, int slot) {
    const serve_generator *g = context;
    serve_sequence *s = g->live[i];
    (void)slot;
    g->ids[i] = -1;
    if (s->tokens_in_pass > 0 && pending(s) == 0 && !serve_sequence_choose(s, &g->ids[i]))
        g->ids[i] = -2;
}

static void note_token(serve_server *server, serve_sequence *s, double now) {
    if (s->text.made == 1)
        serve_histogram_add(&server->metrics.first_token, now - s->job->arrived);
    else
        serve_histogram_add(&server->metrics.next_token, now - s->last);
    server->metrics.tokens_out++;
    s->last = now;
}

/* The next token of every sequence whose tokens are all in its session. */
static void add_tokens(serve_generator *g) {
    serve_server *server = g->server;
    plsh_thread_run(0, g->live_count, choose_one, g);
    const double now = plsh_clock_seconds();
    for (int64_t i = 0; i < g->live_count; i++) {
        serve_sequence *s = g->live[i];
        const int32_t id = g->ids[i];
        if (id == -1) continue;
        const int64_t before = s->text.made;
        if (id < 0)
            fail(s, PLSH_STATUS_NOT_FINITE, "the model's logits are not finite");
        else if (!serve_sequence_add(s, id))
            fail(s, PLSH_STATUS_NO_MEMORY, "out of memory");
        pthread_mutex_lock(&server->lock);
        if (s->text.made > before) note_token(server, s, now);
        pthread_mutex_unlock(&server->lock);
    }
}

/* The steps of a pass: first an empty step of the host, in whose buffers the pass works, then a
 * step of every sequence that has a share. */
static int64_t make_steps(serve_generator *g, int64_t *tokens) {
    int64_t count = 1;
    *tokens = 0;
    g->sessions[0] = g->host;
    g->steps[0] = (plsh_step){0};
    for (int64_t i = 0; i < g->live_count; i++) {
        serve_sequence *s = g->live[i];
        if (s->tokens_in_pass == 0) continue;
        g->sessions[count] = s->session;
        const int64_t held = plsh_session_length(s->session);
        g->steps[count++] =
            (plsh_step){.ids = s->text.ids + held,
                        .count = s->tokens_in_pass,
                        .logits = s->tokens_in_pass == pending(s) ? s->text.logits : NULL,
                        .length = held + pending(s)};
        *tokens += s->tokens_in_pass;
    }
    return count;
}

static void note_pass(serve_generator *g, int64_t tokens, double seconds) {
    serve_server *server = g->server;
    pthread_mutex_lock(&server->lock);
    server->metrics.passes++;
    server->metrics.pass_tokens += (uint64_t)tokens;
    serve_histogram_add(&server->metrics.pass_seconds, seconds);
    pthread_mutex_unlock(&server->lock);
}

/* A failed pass changed nothing. Out of memory: drop kept texts and retry, then fail the newest
 * sequence. */
static void recover(serve_generator *g, plsh_status status, const char *message) {
    if (status == PLSH_STATUS_NO_MEMORY && g->prefix_count > 0) {
        serve_prefix_drop(g, g->server->limits.caches);
        return;
    }
    const int64_t first = status == PLSH_STATUS_NO_MEMORY ? g->live_count - 1 : 0;
    for (int64_t i = first; i < g->live_count; i++) fail(g->live[i], status, message);
}

static void run_pass(serve_generator *g) {
    int64_t tokens;
    plsh_error error;
    divide_pass(g);
    const int64_t count = make_steps(g, &tokens);
    const double began = plsh_clock_seconds();
    const plsh_status status = plsh_session_step_batch(g->sessions, g->steps, count, &error);
    note_pass(g, tokens, plsh_clock_seconds() - began);
    if (status == PLSH_STATUS_OK)
        add_tokens(g);
    else
        recover(g, status, error.message);
}

/* ---- The loop ---- */

/* Makes the host, in whose buffers all passes work. It takes a step of one token and forgets it, so
 * that the buffers are allocated. */
static plsh_status make_host(serve_generator *g, plsh_error *error) {
    const int32_t id = 0;
    const plsh_step step = {.ids = &id, .count = 1};
    plsh_status status = plsh_session_create(&g->host, g->server->model.model, &g->options, error);
    if (status == PLSH_STATUS_OK) status = plsh_session_step(g->host, &step, error);
    if (status == PLSH_STATUS_OK) status = plsh_session_truncate(g->host, 0, error);
    return status;
}

int serve_generator_open(serve_server *server) {
    const size_t most = (size_t)server->limits.sequences;
    plsh_error error;
    serve_generator *g = calloc(1, sizeof *g);
    if (g == NULL) return cli_fail("out of memory");
    server->generator = g;
    g->server = server;
    g->options = cli_model_session(server->options, &server->model);
    g->options.chunk = server->limits.batch + server->limits.sequences;
    g->ids = malloc(most * sizeof *g->ids);
    g->live = calloc(most, sizeof *g->live);
    g->sessions = calloc(most + 1, sizeof *g->sessions);
    g->steps = calloc(most + 1, sizeof *g->steps);
    if (!g->ids || !g->live || !g->sessions || !g->steps) return cli_fail("out of memory");
    return make_host(g, &error) == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

void serve_generator_close(serve_generator *g) {
    if (g == NULL) return;
    plsh_session_destroy(g->host);
    free(g->ids);
    free(g->live);
    free(g->sessions);
    free(g->steps);
    free(g);
}

static void end_all(serve_generator *g) {
    collect(g, false);
    for (int64_t i = 0; i < g->live_count; i++)
        serve_refuse(&g->live[i]->job->fault, 503, NULL, "the server is shutting down");
    for (serve_sequence *s = g->waiting; s != NULL; s = s->after)
        serve_refuse(&s->job->fault, 503, NULL, "the server is shutting down");
    end_live(g);
    end_waiting(g);
    serve_prefix_drop(g, g->server->limits.caches + 1);
}

void serve_generate_loop(serve_server *server) {
    serve_generator *g = server->generator;
    while (!serve_is_stopping(server)) {
        collect(g, g->live_count == 0 && g->waiting == NULL);
        end_live(g);
        end_waiting(g);
        begin_waiting(g);
        pthread_mutex_lock(&server->lock);
        server->cache_bytes = g->reserved + g->kept;
        pthread_mutex_unlock(&server->lock);
        if (g->live_count > 0) run_pass(g);
    }
    end_all(g);
}
