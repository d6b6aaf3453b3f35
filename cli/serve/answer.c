/* serve: answers, in the forms of OpenAI's API, of text-embeddings-inference (TEI) and of
 * text-generation-inference (TGI). */
#include "cli/lm/scores.h"
#include "cli/serve/sequence.h"

#include "plsh/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Documents ---- */

static cli_json *begin_document(void) {
    cli_json *json;
    if (cli_json_create(&json, NULL) != PLSH_STATUS_OK) return NULL;
    cli_json_one_line(json);
    return json;
}

/* Its text, allocated; frees the document. */
static char *end_document(cli_json *json, size_t *size) {
    const char *text;
    char *copy = NULL;
    if (json != NULL && cli_json_finish(json, &text, size, NULL) == PLSH_STATUS_OK) {
        copy = malloc(*size + 1);
        if (copy != NULL) memcpy(copy, text, *size + 1);
    }
    cli_json_free(json);
    return copy;
}

static bool is_openai(serve_route route) {
    return route == SERVE_EMBEDDINGS || route == SERVE_COMPLETIONS || route == SERVE_CHAT ||
           route == SERVE_MODELS;
}

static const char *openai_type(int status) {
    return status == 401   ? "authentication_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

/* The code by which clients distinguish refusals; NULL for most. */
static const char *openai_code(const serve_fault *fault) {
    return fault->status == 401                    ? "invalid_api_key"
           : fault->status == 404                  ? "unknown_url"
           : fault->status == 413 && fault->longer ? "context_length_exceeded"
           : fault->status == 429                  ? "rate_limit_exceeded"
                                                   : NULL;
}

static const char *tei_type(int status) {
    return status == 429                                     ? "Overloaded"
           : status == 503                                   ? "Unhealthy"
           : status == 500                                   ? "Backend"
           : status == 413 || status == 422 || status == 400 ? "Validation"
                                                             : "Request";
}

static const char *tgi_type(int status) {
    return status == 429 ? "overloaded" : status >= 500 ? "generation" : "validation";
}

static void put_openai_fault(cli_json *json, const serve_fault *fault) {
    cli_json_begin_object(json, "error");
    cli_json_text(json, "message", fault->message);
    cli_json_text(json, "type", openai_type(fault->status));
    cli_json_text(json, "param", fault->param);
    cli_json_text(json, "code", openai_code(fault));
    cli_json_end(json);
}

static void put_fault(cli_json *json, serve_route route, const serve_fault *fault) {
    cli_json_begin_object(json, NULL);
    if (is_openai(route)) {
        put_openai_fault(json, fault);
    } else {
        cli_json_text(json, "error", fault->message);
        cli_json_text(json, "error_type",
                      serve_route_is_tgi(route) ? tgi_type(fault->status)
                                                : tei_type(fault->status));
    }
    cli_json_end(json);
}

char *serve_answer_fault(serve_route route, const serve_fault *fault, size_t *size) {
    cli_json *json = begin_document();
    if (json == NULL) return NULL;
    put_fault(json, route, fault);
    return end_document(json, size);
}

static void put_usage(cli_json *json, int64_t prompt, int64_t made, bool generates) {
    cli_json_begin_object(json, "usage");
    cli_json_integer(json, "prompt_tokens", prompt);
    if (generates) cli_json_integer(json, "completion_tokens", made);
    cli_json_integer(json, "total_tokens", prompt + made);
    cli_json_end(json);
}

/* ---- Embeddings ---- */

/* RFC 4648, with padding; the numbers are float32, little endian, as OpenAI's clients expect. */
static char *to_base64(const float *row, int64_t count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t size = (size_t)count * sizeof *row;
    const unsigned char *from = (const unsigned char *)row;
    char *text = malloc((size + 2) / 3 * 4 + 1), *to = text;
    for (size_t i = 0; text != NULL && i < size; i += 3) {
        const unsigned left = size - i < 3 ? (unsigned)(size - i) : 3;
        const unsigned bits = (unsigned)from[i] << 16 |
                              (left > 1 ? (unsigned)from[i + 1] << 8 : 0) |
                              (left > 2 ? from[i + 2] : 0);
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[bits & 63] : '=';
    }
    if (text != NULL) *to = '\0';
    return text;
}

/* 9 digits give the same float32. */
static void put_row(cli_json *json, const char *key, const float *row, int64_t count) {
    cli_json_begin_array(json, key);
    for (int64_t c = 0; c < count; c++) cli_json_rounded(json, NULL, (double)row[c], 9);
    cli_json_end(json);
}

static void put_embedding(cli_json *json, serve_job *job, int64_t i) {
    float *row = job->rows + i * job->columns;
    const int64_t count = job->request.dimensions > 0 ? job->request.dimensions : job->columns;
    if (count < job->columns) plsh_sentence_normalise(row, count);
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "object", "embedding");
    cli_json_integer(json, "index", i);
    if (job->request.base64) {
        char *text = to_base64(row, count);
        cli_json_text(json, "embedding", text);
        if (text == NULL) {
            const plsh_error error = {PLSH_STATUS_NO_MEMORY, "out of memory"};
            cli_json_fail(json, &error);
        }
        free(text);
    } else {
        put_row(json, "embedding", row, count);
    }
    cli_json_end(json);
}

static void put_embeddings(cli_json *json, serve_job *job) {
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "object", "list");
    cli_json_begin_array(json, "data");
    for (int64_t i = 0; i < job->text_count; i++) put_embedding(json, job, i);
    cli_json_end(json);
    cli_json_text(json, "model", job->server->name);
    put_usage(json, job->given, 0, false);
    cli_json_end(json);
}

static void put_rows(cli_json *json, const serve_job *job) {
    cli_json_begin_array(json, NULL);
    for (int64_t i = 0; i < job->text_count; i++)
        put_row(json, NULL, job->rows + i * job->columns, job->columns);
    cli_json_end(json);
}

/* ---- Scores ---- */

static bool put_ranking(cli_json *json, const serve_job *job) {
    cli_ranked *sorted = cli_scores_sort(job->rows, job->text_count);
    cli_json_begin_array(json, NULL);
    for (int64_t i = 0; sorted != NULL && i < job->text_count; i++) {
        const plsh_string text = job->request.inputs[sorted[i].index].second;
        cli_json_begin_object(json, NULL);
        cli_json_integer(json, "index", sorted[i].index);
        cli_json_rounded(json, "score", (double)sorted[i].score, 9);
        if (job->request.return_text) cli_json_bytes(json, "text", text.bytes, text.length);
        cli_json_end(json);
    }
    cli_json_end(json);
    free(sorted);
    return sorted != NULL;
}

/* The labels of one text, the most likely first. */
static bool put_labels(cli_json *json, const serve_job *job, int64_t text) {
    cli_ranked *sorted = cli_scores_sort(job->rows + text * job->columns, job->columns);
    cli_json_begin_array(json, NULL);
    for (int64_t l = 0; sorted != NULL && l < job->columns; l++) {
        cli_json_begin_object(json, NULL);
        cli_json_rounded(json, "score", (double)sorted[l].score, 9);
        cli_json_text(json, "label", plsh_model_label(job->server->model.model, sorted[l].index));
        cli_json_end(json);
    }
    cli_json_end(json);
    free(sorted);
    return sorted != NULL;
}

static bool put_predictions(cli_json *json, const serve_job *job) {
    if (job->request.single) return put_labels(json, job, 0);
    bool put = true;
    cli_json_begin_array(json, NULL);
    for (int64_t i = 0; put && i < job->text_count; i++) put = put_labels(json, job, i);
    cli_json_end(json);
    return put;
}

/* ---- Tokens ---- */

plsh_token_text serve_token_text(const serve_server *server, int32_t id) {
    plsh_token_text text = {0};
    plsh_tokenizer_decode(server->model.tokenizer, &id, 1, false, &text, NULL);
    return text;
}

/* TEI gives the place of a token in the text too; this tokenizer does not know it. */
static void put_token(cli_json *json, const serve_server *server, int32_t id) {
    plsh_token_text text = serve_token_text(server, id);
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "id", id);
    cli_json_bytes(json, "text", text.length > 0 ? text.bytes : "", text.length);
    cli_json_boolean(json, "special", plsh_tokenizer_is_special(server->model.tokenizer, id));
    cli_json_text(json, "start", NULL);
    cli_json_text(json, "stop", NULL);
    cli_json_end(json);
    plsh_token_text_free(&text);
}

static void put_tokens(cli_json *json, const serve_job *job) {
    cli_json_begin_array(json, NULL);
    for (int64_t i = 0; i < job->text_count; i++) {
        cli_json_begin_array(json, NULL);
        for (int64_t t = 0; t < job->texts[i].count; t++)
            put_token(json, job->server, job->texts[i].ids[t]);
        cli_json_end(json);
    }
    cli_json_end(json);
}

/* ---- Generated texts ---- */

static void put_name(cli_json *json, const char *key, const serve_server *server, int32_t id) {
    plsh_token_text text = serve_token_text(server, id);
    if (key != NULL)
        cli_json_bytes(json, key, text.length > 0 ? text.bytes : "", text.length);
    else
        cli_json_bytes(json, NULL, text.length > 0 ? text.bytes : "", text.length);
    plsh_token_text_free(&text);
}

/* {"token": .., "logprob": .., "bytes": [..]: a chat's form, left open */
static void begin_chat_token(cli_json *json, const serve_server *server, int32_t id,
                             double logprob) {
    plsh_token_text text = serve_token_text(server, id);
    cli_json_begin_object(json, NULL);
    cli_json_bytes(json, "token", text.length > 0 ? text.bytes : "", text.length);
    cli_json_rounded(json, "logprob", logprob, 9);
    cli_json_begin_array(json, "bytes");
    for (size_t i = 0; i < text.length; i++)
        cli_json_integer(json, NULL, (unsigned char)text.bytes[i]);
    cli_json_end(json);
    plsh_token_text_free(&text);
}

static void put_chat_logprobs(cli_json *json, const serve_sequence *s, int64_t from, int64_t to) {
    cli_json_begin_object(json, "logprobs");
    cli_json_begin_array(json, "content");
    for (int64_t i = from; i < to; i++) {
        const serve_likely *l = &s->likely[i];
        begin_chat_token(json, s->job->server, l->id, l->own);
        cli_json_begin_array(json, "top_logprobs");
        for (int64_t j = 0; j < l->count; j++) {
            begin_chat_token(json, s->job->server, l->ids[j], l->logprobs[j]);
            cli_json_end(json);
        }
        cli_json_end(json);
        cli_json_end(json);
    }
    cli_json_end(json);
    cli_json_end(json);
}

/* {" the": -1.2, ..}: tokens of the same text are written once. */
static void put_alternatives(cli_json *json, const serve_server *server, const serve_likely *l) {
    cli_json_begin_object(json, NULL);
    for (int64_t j = 0; j < l->count; j++) {
        plsh_token_text text = serve_token_text(server, l->ids[j]);
        cli_json_rounded(json, text.length > 0 ? text.bytes : "", l->logprobs[j], 9);
        plsh_token_text_free(&text);
    }
    cli_json_end(json);
}

static void put_completion_logprobs(cli_json *json, const serve_sequence *s, int64_t from,
                                    int64_t to) {
    cli_json_begin_object(json, "logprobs");
    cli_json_begin_array(json, "tokens");
    for (int64_t i = from; i < to; i++) put_name(json, NULL, s->job->server, s->likely[i].id);
    cli_json_end(json);
    cli_json_begin_array(json, "token_logprobs");
    for (int64_t i = from; i < to; i++) cli_json_rounded(json, NULL, s->likely[i].own, 9);
    cli_json_end(json);
    cli_json_begin_array(json, "top_logprobs");
    for (int64_t i = from; i < to; i++) put_alternatives(json, s->job->server, &s->likely[i]);
    cli_json_end(json);
    cli_json_begin_array(json, "text_offset");
    for (int64_t i = from; i < to; i++) cli_json_integer(json, NULL, (int64_t)s->likely[i].offset);
    cli_json_end(json);
    cli_json_end(json);
}

static void put_logprobs(cli_json *json, const serve_sequence *s, int64_t from, int64_t to) {
    if (!s->job->request.logprobs)
        cli_json_text(json, "logprobs", NULL);
    else if (s->job->route == SERVE_CHAT)
        put_chat_logprobs(json, s, from, to);
    else
        put_completion_logprobs(json, s, from, to);
}

/* {"id": .., "object": .., "created": .., "model": ..: left open */
static void begin_generation(cli_json *json, const serve_job *job, bool event) {
    char id[48];
    const bool chat = job->route == SERVE_CHAT;
    snprintf(id, sizeof id, "%s-%llu", chat ? "chatcmpl" : "cmpl", (unsigned long long)job->number);
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "id", id);
    cli_json_text(json, "object",
                  !chat   ? "text_completion"
                  : event ? "chat.completion.chunk"
                          : "chat.completion");
    cli_json_integer(json, "created", job->created);
    cli_json_text(json, "model", job->server->name);
}

static void put_choice(cli_json *json, const serve_sequence *s) {
    const char *text = s->text.text.length > 0 ? s->text.text.bytes : "";
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "index", s->choice);
    if (s->job->route == SERVE_CHAT) {
        cli_json_begin_object(json, "message");
        cli_json_text(json, "role", "assistant");
        cli_json_bytes(json, "content", text, s->text.text.length);
        cli_json_end(json);
    } else {
        cli_json_bytes(json, "text", text, s->text.text.length);
    }
    put_logprobs(json, s, 0, s->text.made);
    cli_json_text(json, "finish_reason", s->text.finish);
    cli_json_end(json);
}

static void put_generation(cli_json *json, const serve_job *job) {
    begin_generation(json, job, false);
    cli_json_begin_array(json, "choices");
    for (int64_t i = 0; i < job->sequence_count; i++) put_choice(json, job->sequences[i]);
    cli_json_end(json);
    put_usage(json, job->given, job->made, true);
    cli_json_end(json);
}

/* ---- Generated texts as TGI has them ---- */

/* The whole text, after its prompt where that was asked for. */
static bool put_full_text(cli_json *json, const serve_sequence *s) {
    const plsh_string made = {s->text.text.bytes, s->text.text.length};
    plsh_string prompt = {0};
    if (s->job->request.full_text) prompt = s->job->request.inputs[0].text;
    char *whole = malloc(prompt.length + made.length + 1);
    if (whole == NULL) return false;
    if (prompt.length > 0) memcpy(whole, prompt.bytes, prompt.length);
    if (made.length > 0) memcpy(whole + prompt.length, made.bytes, made.length);
    cli_json_bytes(json, "generated_text", whole, prompt.length + made.length);
    free(whole);
    return true;
}

/* Tokens that were chosen: to TGI the one that ends a text is part of it. */
static int64_t chosen(const serve_sequence *s) { return s->text.made + s->ended; }

/* The fields of a token; text.bytes NULL: its own. */
static void put_tgi_token(cli_json *json, const serve_sequence *s, int64_t i, plsh_string text) {
    const serve_server *server = s->job->server;
    const serve_likely *l = &s->likely[i];
    cli_json_integer(json, "id", l->id);
    if (text.bytes != NULL)
        cli_json_bytes(json, "text", text.bytes, text.length);
    else
        put_name(json, "text", server, l->id);
    cli_json_rounded(json, "logprob", l->own, 9);
    cli_json_boolean(json, "special", plsh_tokenizer_is_special(server->model.tokenizer, l->id));
    cli_json_end(json);
}

/* {"finish_reason": .., ..: left open */
static void begin_tgi_details(cli_json *json, const serve_sequence *s) {
    const serve_request *request = &s->job->request;
    cli_json_begin_object(json, "details");
    cli_json_text(json, "finish_reason",
                  s->ended                                ? "eos_token"
                  : strcmp(s->text.finish, "length") == 0 ? "length"
                                                          : "stop_sequence");
    cli_json_integer(json, "generated_tokens", chosen(s));
    cli_json_integer(json, "input_length", s->text.prompt);
    if (request->seeded)
        cli_json_unsigned(json, "seed", request->sampler.seed);
    else
        cli_json_text(json, "seed", NULL);
}

/* POST / answers with a list of one, as TGI does. */
static bool put_tgi(cli_json *json, const serve_job *job) {
    const serve_sequence *s = job->sequences[0];
    if (job->root) cli_json_begin_array(json, NULL);
    cli_json_begin_object(json, NULL);
    const bool put = put_full_text(json, s);
    if (job->request.details) {
        begin_tgi_details(json, s);
        cli_json_begin_array(json, "prefill");
        cli_json_end(json);
        cli_json_begin_array(json, "tokens");
        for (int64_t i = 0; i < chosen(s); i++) {
            cli_json_begin_object(json, NULL);
            put_tgi_token(json, s, i, (plsh_string){0});
        }
        cli_json_end(json);
        cli_json_end(json);
    }
    cli_json_end(json);
    if (job->root) cli_json_end(json);
    return put;
}

/* ---- Streams ---- */

static bool send_event(serve_job *job, cli_json *json) {
    size_t size;
    char *text = end_document(json, &size);
    if (text == NULL) return false;
    serve_job_append(job, "data: ", 6);
    serve_job_append(job, text, size);
    serve_job_append(job, "\n", 1); /* after the document's own newline */
    free(text);
    return true;
}

static void put_delta(cli_json *json, const serve_sequence *s, const char *text, size_t length) {
    cli_json_begin_object(json, "delta");
    if (s->likely_sent == 0 && s->sent == 0) cli_json_text(json, "role", "assistant");
    if (length > 0 || s->text.finish == NULL) cli_json_bytes(json, "content", text, length);
    cli_json_end(json);
}

/* An event for each token: texts of tokens that were held back are in the last one. */
static bool send_tgi_events(serve_sequence *s, plsh_string text) {
    bool sent = true;
    for (int64_t i = s->likely_sent; sent && i < chosen(s); i++) {
        const bool last = i + 1 == chosen(s), ends = last && s->text.finish != NULL;
        cli_json *json = begin_document();
        if (json == NULL) return false;
        cli_json_begin_object(json, NULL);
        cli_json_integer(json, "index", i + 1);
        cli_json_begin_object(json, "token");
        put_tgi_token(json, s, i, last ? text : (plsh_string){"", 0});
        if (ends) {
            sent = put_full_text(json, s);
            begin_tgi_details(json, s);
            cli_json_end(json);
        } else {
            cli_json_text(json, "generated_text", NULL);
            cli_json_text(json, "details", NULL);
        }
        cli_json_end(json);
        sent &= send_event(s->job, json);
    }
    s->likely_sent = chosen(s);
    return sent;
}

bool serve_answer_event(serve_sequence *s, const char *text, size_t length) {
    if (serve_route_is_tgi(s->job->route))
        return send_tgi_events(s, (plsh_string){length > 0 ? text : "", length});
    cli_json *json = begin_document();
    if (json == NULL) return false;
    begin_generation(json, s->job, true);
    cli_json_begin_array(json, "choices");
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "index", s->choice);
    if (s->job->route == SERVE_CHAT)
        put_delta(json, s, length > 0 ? text : "", length);
    else
        cli_json_bytes(json, "text", length > 0 ? text : "", length);
    put_logprobs(json, s, s->likely_sent, s->text.made);
    cli_json_text(json, "finish_reason", s->text.finish);
    cli_json_end(json);
    cli_json_end(json);
    cli_json_end(json);
    s->likely_sent = s->text.made;
    return send_event(s->job, json);
}

/* The last events: usage where it was asked for, or what went wrong, and the mark of the end. */
bool serve_answer_stream_end(serve_job *job) {
    static const char end[] = "data: [DONE]\n\n";
    bool sent = true;
    if (job->fault.status != 0 || job->request.usage) {
        cli_json *json = begin_document();
        if (json == NULL) return false;
        if (job->fault.status != 0) {
            put_fault(json, job->route, &job->fault);
        } else {
            begin_generation(json, job, true);
            cli_json_begin_array(json, "choices");
            cli_json_end(json);
            put_usage(json, job->given, job->made, true);
            cli_json_end(json);
        }
        sent = send_event(job, json);
    }
    /* TGI's clients read every event as JSON. */
    if (!serve_route_is_tgi(job->route)) serve_job_append(job, end, sizeof end - 1);
    return sent;
}

/* ---- The server ---- */

bool serve_answer_write(serve_job *job) {
    cli_json *json = begin_document();
    bool put = json != NULL;
    if (!put) return false;
    switch (job->route) {
    case SERVE_EMBEDDINGS: put_embeddings(json, job); break;
    case SERVE_EMBED: put_rows(json, job); break;
    case SERVE_RERANK: put = put_ranking(json, job); break;
    case SERVE_PREDICT: put = put_predictions(json, job); break;
    case SERVE_TOKENIZE: put_tokens(json, job); break;
    case SERVE_GENERATE: put = put_tgi(json, job); break;
    default: put_generation(json, job); break;
    }
    job->answer = end_document(json, &job->answer_size);
    return put && job->answer != NULL;
}

char *serve_answer_models(const serve_server *server, size_t *size) {
    cli_json *json = begin_document();
    if (json == NULL) return NULL;
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "object", "list");
    cli_json_begin_array(json, "data");
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "id", server->name);
    cli_json_text(json, "object", "model");
    cli_json_integer(json, "created", 0);
    cli_json_text(json, "owned_by", "plsh");
    cli_json_end(json);
    cli_json_end(json);
    cli_json_end(json);
    return end_document(json, size);
}

static const char *model_kind(const serve_server *server) {
    const plsh_model_facts *facts = &server->model.facts;
    return facts->causal        ? "generation"
           : facts->labels == 1 ? "reranker"
           : facts->labels > 1  ? "classifier"
                                : "embedding";
}

/* The fields of TEI's /info, and those of a model here. */
char *serve_answer_info(serve_server *server, size_t *size) {
    const plsh_model_facts *facts = &server->model.facts;
    const serve_limits *limits = &server->limits;
    cli_json *json = begin_document();
    if (json == NULL) return NULL;
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "model_id", server->name);
    cli_json_begin_object(json, "model_type");
    cli_json_begin_object(json, model_kind(server));
    if (server->sentence != NULL && facts->labels == 0)
        cli_json_text(json, "pooling", plsh_pooling_names()[server->sentence_facts.pooling]);
    cli_json_end(json);
    cli_json_end(json);
    cli_json_integer(json, "max_concurrent_requests", limits->requests);
    cli_json_integer(json, "max_input_length", limits->text_tokens);
    cli_json_integer(json, "max_batch_tokens", limits->batch);
    cli_json_integer(json, "max_client_batch_size", SERVE_INPUTS);
    cli_json_integer(json, "tokenization_workers", SERVE_HELPERS);
    cli_json_text(json, "version", plsh_version());
    cli_json_text(json, "family", facts->family);
    cli_json_text(json, "attention", server->model.described);
    cli_json_text(json, "compute", server->model.compute);
    cli_json_integer(json, "parameters", facts->parameters);
    cli_json_integer(json, "hidden_size", facts->hidden);
    cli_json_integer(json, "layers", facts->layers);
    cli_json_integer(json, "vocabulary", facts->vocabulary);
    cli_json_integer(json, "context", facts->context);
    cli_json_text(json, "chat",
                  server->chat != NULL ? plsh_chat_describe(server->chat).form : NULL);
    cli_json_integer(json, "memory_limit_bytes", (int64_t)limits->memory);
    cli_json_integer(json, "resident_bytes", serve_memory_resident());
    cli_json_end(json);
    return end_document(json, size);
}
