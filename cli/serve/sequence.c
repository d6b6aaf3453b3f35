/* serve: one text that is being generated. */
#include "cli/serve/generate.h"

#include "base/clock.h"
#include "cli/lm/prompt.h"

#include <stdlib.h>
#include <string.h>

void serve_sequence_free(serve_sequence *s) {
    if (s == NULL) return;
    plsh_session_destroy(s->session);
    plsh_token_stream_free(s->stream);
    plsh_token_text_free(&s->text);
    free(s->ids);
    free(s->logits);
    free(s->likely);
    free(s);
}

static serve_sequence *create(serve_job *job, const serve_text *text, int64_t choice) {
    const serve_server *server = job->server;
    const serve_request *request = &job->request;
    const size_t vocabulary = (size_t)server->model.facts.vocabulary;
    serve_sequence *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->job = job;
    s->choice = choice;
    s->prompt = text->count;
    s->ids = malloc((size_t)(text->count + request->max_tokens) * sizeof *s->ids);
    s->logits = malloc((request->logprobs ? 2 : 1) * vocabulary * sizeof *s->logits);
    if (request->logprobs) s->likely = malloc((size_t)request->max_tokens * sizeof *s->likely);
    if (s->ids == NULL || s->logits == NULL || (request->logprobs && s->likely == NULL) ||
        plsh_token_stream_create(&s->stream, server->model.tokenizer, true, NULL) !=
            PLSH_STATUS_OK ||
        plsh_token_stream_follow(s->stream, text->ids, (size_t)text->count, NULL) !=
            PLSH_STATUS_OK) {
        serve_sequence_free(s);
        return NULL;
    }
    s->copy = request->logprobs ? s->logits + vocabulary : NULL;
    memcpy(s->ids, text->ids, (size_t)text->count * sizeof *s->ids);
    return s;
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

/* ---- Choosing ---- */

static void note_likely(serve_sequence *s) {
    const int64_t vocabulary = s->job->server->model.facts.vocabulary;
    serve_likely *now = &s->likely[s->made];
    now->count =
        plsh_model_likely(s->logits, vocabulary, s->job->request.likely, now->ids, now->logprobs);
    memcpy(s->copy, s->logits, (size_t)vocabulary * sizeof *s->copy);
}

bool serve_sequence_choose(serve_sequence *s, int32_t *id) {
    const serve_request *request = &s->job->request;
    const int64_t vocabulary = s->job->server->model.facts.vocabulary;
    const plsh_penalty penalty = {request->penalty, s->ids, s->prompt + s->made};
    plsh_sampler sampler = request->sampler;
    sampler.seed += (uint64_t)(s->choice % request->choices);
    if (plsh_sampler_penalise(&penalty, s->logits, vocabulary, NULL) != PLSH_STATUS_OK)
        return false;
    if (request->logprobs) note_likely(s);
    if (plsh_sampler_choose(&sampler, s->logits, vocabulary, (uint64_t)(s->prompt + s->made), id,
                            NULL) != PLSH_STATUS_OK)
        return false;
    if (!request->logprobs) return true;
    s->likely[s->made].id = *id;
    s->likely[s->made].own = -plsh_model_score(s->copy, vocabulary, *id).nll;
    s->likely[s->made].offset = s->text.length;
    return true;
}

/* ---- Adding ---- */

/* Sends the text that cannot be the beginning of a stop. */
static bool send_text(serve_sequence *s) {
    const serve_request *request = &s->job->request;
    const plsh_string text = {s->text.bytes, s->text.length};
    bool whole = false;
    size_t end = text.length > 0 ? cli_prompt_find_stop(request->stops, (size_t)request->stop_count,
                                                        text, s->sent, &whole)
                                 : 0;
    if (whole) s->finish = "stop";
    if (s->finish != NULL && !whole) end = text.length;
    if (whole) s->text.length = end;
    bool sent = true;
    if (request->stream && (end > s->sent || s->finish != NULL))
        sent = serve_answer_event(s, s->text.bytes + s->sent, end - s->sent);
    s->sent = end;
    return sent;
}

bool serve_sequence_add(serve_sequence *s, int32_t id) {
    const serve_server *server = s->job->server;
    if (cli_prompt_is_end(&server->ends, server->model.tokenizer, id)) {
        s->finish = "stop";
    } else {
        s->ids[s->prompt + s->made++] = id;
        s->job->made++;
        if (plsh_token_stream_next(s->stream, id, &s->text, NULL) != PLSH_STATUS_OK) return false;
        if (s->made == s->job->request.max_tokens) s->finish = "length";
    }
    if (s->finish != NULL && plsh_token_stream_finish(s->stream, &s->text, NULL) != PLSH_STATUS_OK)
        return false;
    return send_text(s);
}
