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

typedef struct scoring {
    const cli_model *model;
    const cli_window *window;
    plsh_session *session;
    cli_scores *scores;
    float *logits; /* of LOGIT_ROWS rows, or where the window keeps them of all rows from `first` */
    int64_t first;
} scoring;

/* Logits of `count` rows, which predict ids[first] and the following. */
typedef struct scored_block {
    const scoring *of;
    const float *logits;
    int64_t vocabulary, first;
    plsh_score score[LOGIT_ROWS];
} scored_block;

static bool is_scored(const cli_window *w, int64_t next) {
    return next < w->count && next >= w->from;
}

static void score_row(void *context, int64_t i, int slot) {
    scored_block *b = context;
    (void)slot;
    const cli_window *w = b->of->window;
    if (is_scored(w, b->first + i))
        b->score[i] =
            plsh_model_score(b->logits + i * b->vocabulary, b->vocabulary, w->ids[b->first + i]);
}

/* The rows first .. first + rows - 1, whose hidden states are given. Row r predicts ids[r+1]. */
static int score_rows(const scoring *of, const float *hidden, int64_t first, int64_t rows) {
    const int64_t vocabulary = of->model->facts.vocabulary, width = of->model->facts.hidden;
    const bool keep = of->window->logits != NULL;
    plsh_error error;
    for (int64_t r = 0; r < rows; r += LOGIT_ROWS) {
        int64_t count = rows - r < LOGIT_ROWS ? rows - r : LOGIT_ROWS;
        float *to = keep ? of->logits + (first + r - of->first) * vocabulary : of->logits;
        bool needed = keep || first + r + count >= of->window->from;
        if (!needed) continue;
        if (plsh_session_logits(of->session, hidden + r * width, count, to, &error) !=
            PLSH_STATUS_OK)
            return cli_fail_error(&error);
        scored_block b = {.of = of, .logits = to, .vocabulary = vocabulary, .first = first + r + 1};
        plsh_thread_run(0, count, score_row, &b);
        for (int64_t i = 0; i < count; i++)
            if (is_scored(of->window, b.first + i)) add_score(of->scores, b.first + i, b.score[i]);
    }
    return CLI_DONE;
}

static int score_chunks(const scoring *of, int64_t chunk, float *hidden) {
    const cli_window *w = of->window;
    plsh_error error;
    int code = CLI_DONE;
    for (int64_t at = 0; code == CLI_DONE && at < w->count; at += chunk) {
        int64_t tokens = w->count - at < chunk ? w->count - at : chunk;
        float *to = w->hidden != NULL ? hidden + at * of->model->facts.hidden : hidden;
        plsh_step step = {.ids = w->ids + at, .count = tokens, .hidden = to, .length = w->count};
        if (plsh_session_step(of->session, &step, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        if (code == CLI_DONE) code = score_rows(of, to, at, tokens);
        if (w->done != NULL) w->done(tokens);
    }
    return code;
}

/* All rows of this rank at once. */
static int score_over_ranks(scoring *of, float *hidden) {
    const cli_model *m = of->model;
    const cli_window *w = of->window;
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
    of->first = own.begin;
    int code = score_rows(of, hidden, own.begin, own.end - own.begin);
    if (w->done != NULL) w->done(w->count);
    return code;
}

/* Allocates the arrays that are not given: hidden states of a chunk (over ranks: of all own rows),
 * and logits of LOGIT_ROWS rows. */
static int score_all(scoring *of, const plsh_session_options *session) {
    const cli_model *m = of->model;
    const cli_window *w = of->window;
    plsh_range own = plsh_ranks_rows(m->ranks, w->count);
    const int64_t rows = m->ranks != NULL ? own.end - own.begin : session->chunk;
    float *states = w->hidden, *logits = w->logits;
    if (states == NULL) states = malloc((size_t)(rows + 1) * (size_t)m->facts.hidden * 4);
    if (logits == NULL) logits = malloc((size_t)LOGIT_ROWS * (size_t)m->facts.vocabulary * 4);
    plsh_error error = {.message = "out of memory for logits"};
    plsh_status status = states == NULL || logits == NULL ? PLSH_STATUS_NO_MEMORY : PLSH_STATUS_OK;
    status = plsh_ranks_agree_group(m->ranks, status, &error);
    of->logits = logits;
    int code = status != PLSH_STATUS_OK ? cli_fail_error(&error)
               : m->ranks != NULL       ? score_over_ranks(of, states)
                                        : score_chunks(of, session->chunk, states);
    if (states != w->hidden) free(states);
    if (logits != w->logits) free(logits);
    return code;
}

int cli_score_window(const cli_lm *options, const cli_model *model, const cli_window *window,
                     cli_scores *scores) {
    plsh_session_options session = cli_model_session(options, model);
    session.length = window->count;
    scoring of = {.model = model, .window = window, .scores = scores};
    plsh_error error;
    if (cli_model_fits(options, model, window->count) != CLI_DONE) return CLI_FAILED;
    plsh_status status = plsh_session_create(&of.session, model->model, &session, &error);
    status = plsh_ranks_agree_group(model->ranks, status, &error);
    int code = status == PLSH_STATUS_OK ? score_all(&of, &session) : cli_fail_error(&error);
    plsh_session_destroy(of.session);
    return code;
}
