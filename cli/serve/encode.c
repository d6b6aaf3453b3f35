/* serve: the scheduler of encoders.
 *
 * A pass takes whole texts, packed one after the other without padding, up to limits.batch tokens:
 * an equal number of every request, then more of the first ones. Requests with many texts take
 * turns in being first. A longer text has a pass of its own. Between the parts of a pass's layers
 * (plsh_pause) the scheduler runs shorter passes, so that a long text does not hold up short ones:
 * in a pass of L tokens passes of at most L / NESTED_SHARE, which may be interrupted in turn.
 * Activations of nested passes are in memory together: at most 1 + 1/4 + 1/16 + .. < 4/3 times
 * those of the longest. They get at most NESTED_TIME times the time of the pass that they
 * interrupt, so that short texts do not starve a long one either. */
#include "cli/serve/serve.h"

#include "base/clock.h"
#include "cli/lm/scores.h"

#include <stdlib.h>
#include <string.h>

enum {
    NESTED_SHARE = 4,
    NESTED_TIME = 3,
    NESTED_LEAST = 256 /* shorter passes are not worth an interruption of their own */
};

/* Jobs with texts that are in no pass yet, in their order. */
typedef struct encoder {
    serve_server *server;
    serve_job *first;
} encoder;

typedef struct place {
    serve_job *job;
    int64_t text;
} place;

/* The texts of a pass, one after the other. */
typedef struct pass {
    encoder *encoder;
    place *places;
    int64_t count, tokens;
    int32_t *ids, *types;
    int64_t *offsets;
    float *hidden;
    double began, nested; /* seconds of passes inside of this one */
} pass;

/* ---- Jobs ---- */

static serve_job **end_of(encoder *e) {
    serve_job **end = &e->first;
    while (*end != NULL) end = &(*end)->after;
    return end;
}

static void collect(encoder *e, bool wait) {
    serve_job **end = end_of(e);
    for (serve_job *job = serve_queue_take(e->server, wait); job != NULL;
         job = serve_queue_take(e->server, false)) {
        *end = job;
        end = &job->after;
    }
}

/* Counts texts of a job that are finished or will not be computed. */
static void count_finished(serve_job *job, int64_t texts) {
    job->finished += texts;
    if (job->finished == job->text_count) serve_job_finish(job);
}

/* Takes the jobs out of the list whose texts are all in passes, or whose client left. */
static void clean(encoder *e) {
    for (serve_job **at = &e->first; *at != NULL;) {
        serve_job *job = *at;
        int64_t left = 0;
        for (int64_t i = 0; i < job->text_count; i++) left += !job->texts[i].begun;
        if (left > 0 && !serve_job_left(job)) {
            at = &job->after;
            continue;
        }
        *at = job->after;
        job->after = NULL;
        for (int64_t i = 0; left > 0 && i < job->text_count; i++) job->texts[i].begun = true;
        if (left > 0) count_finished(job, left);
    }
}

/* ---- A pass ---- */

/* Adds texts of every job until it has `share` tokens of them, or the pass has `most`. */
static void add_texts(encoder *e, int64_t most, int64_t share, pass *out) {
    for (serve_job *job = e->first; job != NULL && out->tokens < most; job = job->after) {
        const int64_t end = out->tokens + share;
        for (int64_t i = 0; i < job->text_count && out->tokens < most && out->tokens < end; i++) {
            serve_text *text = &job->texts[i];
            if (text->begun || text->count > most - out->tokens) continue;
            text->begun = true;
            out->places[out->count++] = (place){job, i};
            out->tokens += text->count;
        }
    }
}

/* Up to `most` tokens: every job gets an equal part, so that a list of many texts does not hold up
 * the text of another client; what is left goes to the first. */
static void choose(encoder *e, int64_t most, pass *out) {
    int64_t jobs = 0;
    for (const serve_job *job = e->first; job != NULL; job = job->after) jobs++;
    if (jobs > 1) add_texts(e, most, (most + jobs - 1) / jobs, out);
    add_texts(e, most, most, out);
}

/* The first text, where it is longer than a pass of several. */
static bool choose_long(encoder *e, int64_t most, pass *out) {
    for (int64_t i = 0; e->first != NULL && i < e->first->text_count; i++) {
        serve_text *text = &e->first->texts[i];
        if (text->begun) continue;
        if (text->count <= most) return false;
        text->begun = true;
        out->places[out->count++] = (place){e->first, i};
        out->tokens = text->count;
        return true;
    }
    return false;
}

static bool fill(pass *p, int64_t width) {
    p->ids = malloc((size_t)p->tokens * sizeof *p->ids);
    p->types = calloc((size_t)p->tokens, sizeof *p->types);
    p->offsets = calloc((size_t)p->count + 1, sizeof *p->offsets);
    p->hidden = malloc((size_t)p->tokens * (size_t)width * sizeof *p->hidden);
    if (p->ids == NULL || p->types == NULL || p->offsets == NULL || p->hidden == NULL) return false;
    for (int64_t i = 0; i < p->count; i++) {
        const serve_text *text = &p->places[i].job->texts[p->places[i].text];
        const int64_t at = p->offsets[i];
        memcpy(p->ids + at, text->ids, (size_t)text->count * sizeof *p->ids);
        if (text->types != NULL)
            memcpy(p->types + at, text->types, (size_t)text->count * sizeof *p->types);
        p->offsets[i + 1] = at + text->count;
    }
    return true;
}

static void free_pass(pass *p) {
    free(p->places);
    free(p->ids);
    free(p->types);
    free(p->offsets);
    free(p->hidden);
}

/* The row of one text, or the scores of its labels. */
static plsh_status take_row(const pass *p, int64_t i, plsh_error *error) {
    serve_job *job = p->places[i].job;
    const serve_server *server = job->server;
    const plsh_model *model = server->model.model;
    const float *hidden = p->hidden + p->offsets[i] * server->model.facts.hidden;
    float *row = job->rows + p->places[i].text * job->columns;
    if (job->route != SERVE_PREDICT && job->route != SERVE_RERANK)
        return plsh_sentence_row(server->sentence, hidden, p->offsets[i + 1] - p->offsets[i],
                                 job->request.normalisation, row, error);
    plsh_status status = plsh_model_classify(model, hidden, row, error);
    if (status == PLSH_STATUS_OK && !job->request.raw_scores)
        cli_scores_probabilities(model, row, job->columns);
    return status;
}

static void fail_text(serve_job *job, plsh_status status, const char *message) {
    serve_refuse(&job->fault, status == PLSH_STATUS_NO_MEMORY ? 503 : 500, NULL, "%s", message);
}

/* Hands the results out, or the failure. */
static void hand_out(const pass *p, plsh_status status, const plsh_error *failure) {
    plsh_error error;
    for (int64_t i = 0; i < p->count; i++) {
        serve_job *job = p->places[i].job;
        if (status != PLSH_STATUS_OK)
            fail_text(job, status, failure->message);
        else if (take_row(p, i, &error) != PLSH_STATUS_OK)
            fail_text(job, error.status, error.message);
        count_finished(job, 1);
    }
}

static void note_pass(const pass *p, double now) {
    serve_server *server = p->encoder->server;
    pthread_mutex_lock(&server->lock);
    server->metrics.passes++;
    server->metrics.pass_tokens += (uint64_t)p->tokens;
    serve_histogram_add(&server->metrics.pass_seconds, now - p->began - p->nested);
    for (int64_t i = 0; i < p->count; i++) {
        serve_job *job = p->places[i].job;
        if (job->started == 0) {
            job->started = p->began;
            serve_histogram_add(&server->metrics.queued, p->began - job->arrived);
        }
    }
    pthread_mutex_unlock(&server->lock);
}

/* Memory for the results of jobs that begin. */
static bool reserve_rows(const pass *p) {
    bool reserved = true;
    for (int64_t i = 0; i < p->count; i++) {
        serve_job *job = p->places[i].job;
        if (job->rows == NULL)
            job->rows = calloc((size_t)job->text_count * (size_t)job->columns, sizeof(float));
        reserved &= job->rows != NULL;
    }
    return reserved;
}

static bool run_between(void *context);

static void run_pass(pass *p) {
    serve_server *server = p->encoder->server;
    plsh_error error = {PLSH_STATUS_NO_MEMORY, "out of memory"};
    plsh_status status = PLSH_STATUS_NO_MEMORY;
    p->began = plsh_clock_seconds();
    if (reserve_rows(p) && fill(p, server->model.facts.hidden)) {
        const plsh_encoding encoding = {.ids = p->ids,
                                        .types = p->types,
                                        .offsets = p->offsets,
                                        .sequences = p->count,
                                        .count = p->tokens,
                                        .attention = server->model.attention,
                                        .attention_count = server->model.attention_count,
                                        .hidden = p->hidden,
                                        .pause = {run_between, p}};
        status = plsh_model_encode(server->model.model, &encoding, &error);
    }
    note_pass(p, plsh_clock_seconds());
    hand_out(p, status, &error);
}

/* Moves the job that was first in the last pass to the end of the list, if it has texts left. So
 * the next pass begins with another job, whose text may not have fitted into this one. */
static void rotate(encoder *e, serve_job *first) {
    if (e->first != first || first->after == NULL) return;
    e->first = first->after;
    first->after = NULL;
    *end_of(e) = first;
}

/* The next pass of at most `most` tokens (`alone`: or of one longer text); false: nothing waits. */
static bool run_next(encoder *e, int64_t most, bool alone) {
    clean(e);
    pass p = {.encoder = e, .places = calloc((size_t)most, sizeof *p.places)};
    if (p.places == NULL) return false;
    serve_job *first = e->first;
    if (!alone || !choose_long(e, most, &p)) choose(e, most, &p);
    const bool any = p.count > 0;
    /* jobs without texts to begin leave the list before the pass: when it ends they belong to other
     * threads */
    clean(e);
    if (any && alone) rotate(e, first);
    if (any) run_pass(&p);
    free_pass(&p);
    return any;
}

/* Between two parts of a pass: a shorter one, if its turn has come. false: the clients of this
 * pass have all left. */
static bool run_between(void *context) {
    pass *p = context;
    const double now = plsh_clock_seconds();
    const int64_t batch = p->encoder->server->limits.batch;
    int64_t most = p->tokens / NESTED_SHARE;
    if (most > batch) most = batch;
    bool wanted = false;
    for (int64_t i = 0; !wanted && i < p->count; i++) wanted = !serve_job_left(p->places[i].job);
    if (serve_is_stopping(p->encoder->server)) return false;
    if (!wanted || most < NESTED_LEAST) return wanted;
    if (p->nested > NESTED_TIME * (now - p->began - p->nested)) return true;
    collect(p->encoder, false);
    if (run_next(p->encoder, most, false)) p->nested += plsh_clock_seconds() - now;
    return true;
}

void serve_encode_loop(serve_server *server) {
    encoder e = {.server = server};
    while (!serve_is_stopping(server)) {
        clean(&e);
        collect(&e, e.first == NULL);
        run_next(&e, server->limits.batch, true);
    }
    clean(&e);
    collect(&e, false);
    for (serve_job *job = e.first; job != NULL; job = e.first) {
        e.first = job->after;
        job->after = NULL;
        serve_refuse(&job->fault, 503, NULL, "the server is shutting down");
        serve_job_finish(job);
    }
}
