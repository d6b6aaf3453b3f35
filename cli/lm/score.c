/* cli: scoring a text: the model's prediction of every token. */
#include "cli/lm/score.h"

#include "cli/message.h"

#include "plsh/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGIT_ROWS = 64 }; /* rows of logits at once: [tokens, vocabulary] is never in memory */

static void add_score(cli_scores *scores, int64_t token, plsh_score one) {
    if (scores->broken == 0 && !(isfinite(one.nll) && isfinite(one.entropy)))
        scores->broken = token;
    scores->tokens++;
    scores->nll += one.nll;
    scores->entropy += one.entropy;
    scores->reciprocal += 1.0 / (double)(one.rank + 1);
    scores->first += one.rank == 0;
    scores->top10 += one.rank < 10;
    scores->top100 += one.rank < 100;
}

typedef struct window {
    const cli_model *model;
    plsh_session *session;
    const int32_t *ids;
    int64_t count, from;
    cli_scores *scores;
    float *logits; /* of LOGIT_ROWS rows, or of all rows from `first` on (keep) */
    int64_t first;
    bool keep;
} window;

/* Logits of `count` rows, which predict ids[first] and the following. */
typedef struct scored_block {
    const window *w;
    const float *logits;
    int64_t vocabulary, first;
    plsh_score score[LOGIT_ROWS];
} scored_block;

static bool is_scored(const window *w, int64_t next) { return next < w->count && next >= w->from; }

static void score_row(void *context, int64_t i, int slot) {
    scored_block *b = context;
    (void)slot;
    if (is_scored(b->w, b->first + i))
        b->score[i] =
            plsh_model_score(b->logits + i * b->vocabulary, b->vocabulary, b->w->ids[b->first + i]);
}

/* The rows first .. first + rows - 1, whose hidden states are given. Row r predicts ids[r+1]. */
static int score_rows(window *w, const float *hidden, int64_t first, int64_t rows) {
    const int64_t vocabulary = w->model->facts.vocabulary, width = w->model->facts.hidden;
    plsh_error error;
    for (int64_t r = 0; r < rows; r += LOGIT_ROWS) {
        int64_t count = rows - r < LOGIT_ROWS ? rows - r : LOGIT_ROWS;
        float *to = w->keep ? w->logits + (first + r - w->first) * vocabulary : w->logits;
        bool needed = w->keep || first + r + count >= w->from;
        if (!needed) continue;
        if (plsh_session_logits(w->session, hidden + r * width, count, to, &error) !=
            PLSH_STATUS_OK)
            return cli_fail_error(&error);
        scored_block b = {.w = w, .logits = to, .vocabulary = vocabulary, .first = first + r + 1};
        plsh_thread_run(0, count, score_row, &b);
        for (int64_t i = 0; i < count; i++)
            if (is_scored(w, b.first + i)) add_score(w->scores, b.first + i, b.score[i]);
    }
    return CLI_DONE;
}

static int run_window(window *w, int64_t chunk, float *hidden, bool keep_hidden,
                      void (*done)(int64_t tokens)) {
    plsh_error error;
    int code = CLI_DONE;
    for (int64_t at = 0; code == CLI_DONE && at < w->count; at += chunk) {
        int64_t tokens = w->count - at < chunk ? w->count - at : chunk;
        float *to = keep_hidden ? hidden + at * w->model->facts.hidden : hidden;
        plsh_step step = {.ids = w->ids + at, .count = tokens, .hidden = to};
        if (plsh_session_step(w->session, &step, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        if (code == CLI_DONE) code = score_rows(w, to, at, tokens);
        if (done != NULL) done(tokens);
    }
    return code;
}

/* All rows of this rank at once. */
static int run_over_ranks(window *w, float *hidden, void (*done)(int64_t tokens)) {
    const cli_model *m = w->model;
    plsh_range own = plsh_ranks_rows(m->ranks, w->count);
    plsh_encoding encoding = {.ids = w->ids,
                              .count = w->count,
                              .attention = m->attention,
                              .attention_count = m->attention_count,
                              .hidden = hidden,
                              .ranks = m->ranks};
    plsh_error error;
    if (plsh_model_encode(m->model, &encoding, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    w->first = own.begin;
    int code = score_rows(w, hidden, own.begin, own.end - own.begin);
    if (done != NULL) done(w->count);
    return code;
}

/* Allocates the arrays that are not given: hidden states of a chunk (over ranks: of all own rows),
 * and logits of LOGIT_ROWS rows. */
static int run_any(window *w, const plsh_session_options *session, float *hidden,
                   void (*done)(int64_t tokens)) {
    const cli_model *m = w->model;
    plsh_range own = plsh_ranks_rows(m->ranks, w->count);
    const int64_t rows = m->ranks != NULL ? own.end - own.begin : session->chunk;
    float *const given = w->logits;
    float *states = hidden, *logits = given;
    if (states == NULL) states = malloc((size_t)(rows + 1) * (size_t)m->facts.hidden * 4);
    if (logits == NULL) logits = malloc((size_t)LOGIT_ROWS * (size_t)m->facts.vocabulary * 4);
    plsh_error error = {.message = "out of memory for logits"};
    plsh_status status = states == NULL || logits == NULL ? PLSH_STATUS_NO_MEMORY : PLSH_STATUS_OK;
    status = plsh_ranks_agree_group(m->ranks, status, &error);
    w->logits = logits;
    int code = status != PLSH_STATUS_OK ? cli_fail_error(&error)
               : m->ranks != NULL       ? run_over_ranks(w, states, done)
                                  : run_window(w, session->chunk, states, hidden != NULL, done);
    if (states != hidden) free(states);
    if (logits != given) free(logits);
    w->logits = given;
    return code;
}

int cli_score_window(const cli_lm *options, const cli_model *model, const int32_t *ids,
                     int64_t count, int64_t from, cli_scores *scores, float *logits, float *hidden,
                     void (*done)(int64_t tokens)) {
    plsh_session_options session = cli_model_session(options, model);
    window w = {.model = model,
                .ids = ids,
                .count = count,
                .from = from,
                .scores = scores,
                .logits = logits,
                .keep = logits != NULL};
    plsh_error error;
    if (cli_model_fits(options, model, count) != CLI_DONE) return CLI_FAILED;
    plsh_status status = plsh_session_create(&w.session, model->model, &session, &error);
    status = plsh_ranks_agree_group(model->ranks, status, &error);
    int code =
        status == PLSH_STATUS_OK ? run_any(&w, &session, hidden, done) : cli_fail_error(&error);
    plsh_session_destroy(w.session);
    return code;
}
