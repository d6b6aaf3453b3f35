/* serve: one text that is being generated. */
#include "cli/serve/generate.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

void serve_sequence_free(serve_sequence *s) {
    if (s == NULL) return;
    serve_sequence_end(s);
    plsh_token_stream_free(s->text.stream);
    plsh_token_text_free(&s->text.text);
    free(s->text.ids);
    free(s->likely);
    free(s);
}

static serve_sequence *create(serve_job *job, const serve_text *text, int64_t choice) {
    const serve_server *server = job->server;
    const serve_request *request = &job->request;
    serve_sequence *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->job = job;
    s->choice = choice;
    s->text.prompt = text->count;
    s->text.ids = malloc((size_t)(text->count + request->max_tokens) * sizeof *s->text.ids);
    if (request->logprobs) s->likely = malloc((size_t)request->max_tokens * sizeof *s->likely);
    if (s->text.ids == NULL || (request->logprobs && s->likely == NULL) ||
        plsh_token_stream_create(&s->text.stream, server->model.tokenizer, true, NULL) !=
            PLSH_STATUS_OK ||
        plsh_token_stream_follow(s->text.stream, text->ids, (size_t)text->count, NULL) !=
            PLSH_STATUS_OK) {
        serve_sequence_free(s);
        return NULL;
    }
    memcpy(s->text.ids, text->ids, (size_t)text->count * sizeof *s->text.ids);
    return s;
}

bool serve_sequence_begin(serve_sequence *s) {
    const size_t vocabulary = (size_t)s->job->server->model.facts.vocabulary;
    s->text.logits =
        malloc((s->job->request.logprobs ? 2 : 1) * vocabulary * sizeof *s->text.logits);
    s->copy = s->text.logits != NULL ? s->text.logits + vocabulary : NULL;
    return s->text.logits != NULL;
}

void serve_sequence_end(serve_sequence *s) {
    plsh_session_destroy(s->session);
    free(s->text.logits);
    s->session = NULL;
    s->text.logits = NULL;
}

bool serve_sequences_create(serve_generator *g, serve_job *job) {
    serve_sequence **end = &g->waiting;
    const int64_t count = job->text_count * job->request.choices;
    while (*end != NULL) end = &(*end)->after;
    if (!job->request.seeded)
        job->request.sampler.seed = g->server->entropy ^ job->number * UINT64_C(0x9e3779b97f4a7c15);
    job->sequences = calloc((size_t)count, sizeof *job->sequences);
    for (int64_t i = 0; job->sequences != NULL && i < count; i++) {
        job->sequences[i] = create(job, &job->texts[i / job->request.choices], i);
        if (job->sequences[i] == NULL) return false;
        job->sequence_count++;
    }
    for (int64_t i = 0; job->sequences != NULL && i < count; i++) {
        *end = job->sequences[i];
        end = &job->sequences[i]->after;
    }
    job->sequences_left = job->sequence_count;
    return job->sequences != NULL;
}

/* ---- Tokens ---- */

static cli_rules rules_of(const serve_sequence *s) {
    const serve_server *server = s->job->server;
    const serve_request *request = &s->job->request;
    cli_rules rules = {.tokenizer = server->model.tokenizer,
                       .ends = &server->ends,
                       .stops = request->stops,
                       .stop_count = (size_t)request->stop_count,
                       .sampler = request->sampler,
                       .penalty = request->penalty,
                       .vocabulary = server->model.facts.vocabulary,
                       .tokens = request->max_tokens};
    rules.sampler.seed += (uint64_t)(s->choice % request->choices);
    return rules;
}

bool serve_sequence_choose(serve_sequence *s, int32_t *id) {
    const serve_request *request = &s->job->request;
    const cli_rules rules = rules_of(s);
    if (!request->logprobs)
        return cli_continuation_choose(&rules, &s->text, NULL, NULL, id, NULL) == PLSH_STATUS_OK;
    serve_likely *now = &s->likely[s->text.made];
    cli_likely found = {.count = request->likely, .ids = now->ids, .logprobs = now->logprobs};
    if (cli_continuation_choose(&rules, &s->text, &found, s->copy, id, NULL) != PLSH_STATUS_OK)
        return false;
    now->id = *id;
    now->own = found.own;
    now->count = found.count;
    now->offset = s->text.text.length;
    return true;
}

/* Sends the text that is final. */
static bool send_text(serve_sequence *s) {
    const size_t end = s->text.ready;
    const char *text = end > s->sent ? s->text.text.bytes + s->sent : NULL;
    bool sent = true;
    if (s->job->request.stream && (text || s->text.finish != NULL))
        sent = serve_answer_event(s, text, end - s->sent);
    s->sent = end;
    return sent;
}

bool serve_sequence_add(serve_sequence *s, int32_t id) {
    const cli_rules rules = rules_of(s);
    const int64_t before = s->text.made;
    if (cli_continuation_add(&rules, &s->text, id, NULL) != PLSH_STATUS_OK) return false;
    s->job->made += s->text.made - before;
    s->ended = s->text.made == before;
    return send_text(s);
}
