/* serve: turns the texts of a request into tokens, and bounds its cost. */
#include "cli/serve/sequence.h"

#include "cli/lm/prompt.h"

#include <stdlib.h>
#include <string.h>

enum {
    COMPLETION_TOKENS = 16, /* max_tokens unless given, as OpenAI has it */
    GENERATE_TOKENS = 100,  /* and TGI */
    CHAT_TOKENS = 1024
};

/* ---- Which models do what ---- */

static bool check_route(const serve_job *job, serve_fault *fault) {
    const serve_server *server = job->server;
    const plsh_model_facts *facts = &server->model.facts;
    const bool generates = serve_route_generates(job->route);
    if (generates && !facts->causal)
        return serve_refuse(fault, 422, NULL,
                            "%s is an encoder, which generates no text: POST "
                            "/v1/embeddings",
                            facts->family);
    if (!generates && facts->causal && job->route != SERVE_TOKENIZE)
        return serve_refuse(fault, 422, NULL,
                            "%s generates text and is no encoder: POST "
                            "/v1/completions",
                            facts->family);
    if (job->route == SERVE_PREDICT && facts->labels == 0)
        return serve_refuse(fault, 422, NULL, "this model has no classifier: POST /embed");
    if (job->route == SERVE_RERANK && facts->labels != 1)
        return serve_refuse(fault, 422, NULL,
                            "a reranker is a classifier of one label; this model "
                            "has %lld labels",
                            (long long)facts->labels);
    if (job->route == SERVE_CHAT && server->chat == NULL)
        return serve_refuse(fault, 422, "messages", "%s", server->chat_refused);
    return true;
}

/* The field that holds the texts. */
static const char *texts_field(serve_route route) {
    return route == SERVE_EMBEDDINGS    ? "input"
           : route == SERVE_COMPLETIONS ? "prompt"
           : route == SERVE_CHAT        ? "messages"
           : route == SERVE_RERANK      ? "texts"
                                        : "inputs";
}

/* ---- Tokens ---- */

static bool check_ids(serve_job *job, const serve_input *input) {
    const int64_t vocabulary = job->server->model.facts.vocabulary;
    for (int64_t i = 0; i < input->count; i++)
        if (input->ids[i] >= vocabulary)
            return serve_refuse(&job->fault, 422, texts_field(job->route),
                                "token %lld is %d; this model has 0 to %lld", (long long)i,
                                input->ids[i], (long long)vocabulary - 1);
    return true;
}

/* The longest text that an encoder takes here. */
static int64_t longest_text(const serve_server *server) {
    const int64_t own = server->sentence_facts.longest, limit = server->limits.text_tokens;
    return own > 0 && own < limit ? own : limit;
}

/* Cuts the end of a text that has too many tokens; the special token that ends it stays. */
static void truncate_ids(const serve_server *server, plsh_token_ids *ids) {
    const size_t most = (size_t)longest_text(server);
    if (ids->count <= most) return;
    const int32_t last = ids->ids[ids->count - 1];
    ids->count = most;
    if (plsh_tokenizer_is_special(server->model.tokenizer, last)) ids->ids[most - 1] = last;
}

static plsh_status encode_input(const serve_job *job, const serve_input *input, plsh_token_ids *ids,
                                plsh_token_ids *types, plsh_error *error) {
    const serve_server *server = job->server;
    const plsh_tokenizer *tokenizer = server->model.tokenizer;
    const plsh_string text = input->text;
    const bool truncate = job->request.truncate;
    if (serve_route_generates(job->route))
        return cli_prompt_encode(tokenizer, text, true, false, ids, error);
    if (input->second.bytes != NULL)
        return plsh_tokenizer_encode_pair(tokenizer, text, input->second,
                                          truncate ? (size_t)longest_text(server) : 0, ids, types,
                                          error);
    if (job->route == SERVE_TOKENIZE)
        return plsh_tokenizer_encode(tokenizer, text.bytes, text.length, job->request.special, ids,
                                     error);
    plsh_status status = plsh_sentence_ids(server->sentence, tokenizer, text.bytes, text.length,
                                           truncate, ids, error);
    if (status == PLSH_STATUS_OK && truncate) truncate_ids(server, ids);
    return status;
}

static bool check_count(serve_job *job, int64_t i) {
    const int64_t count = job->texts[i].count;
    const int64_t most =
        job->server->sentence != NULL ? longest_text(job->server) : job->server->limits.text_tokens;
    job->given += count;
    if (count == 0 && job->route != SERVE_TOKENIZE)
        return serve_refuse(&job->fault, 422, texts_field(job->route), "text %lld has no tokens",
                            (long long)i);
    job->fault.longer = count > most;
    if (count > most)
        return serve_refuse(&job->fault, 413, texts_field(job->route),
                            "text %lld has %lld tokens; this server takes %lld%s", (long long)i,
                            (long long)count, (long long)most,
                            job->server->sentence != NULL ? ": truncate: true cuts its end" : "");
    return true;
}

/* A list of ids in memory of its own size; NULL for an empty one. */
static int32_t *copy_ids(const plsh_token_ids *ids, bool *failed) {
    if (ids->count == 0) return NULL;
    int32_t *copy = malloc(ids->count * sizeof *copy);
    if (copy != NULL) memcpy(copy, ids->ids, ids->count * sizeof *copy);
    *failed |= copy == NULL;
    return copy;
}

/* Keeps the tokens of text i, and frees the lists. */
static bool keep_text(serve_job *job, int64_t i, plsh_token_ids *ids, plsh_token_ids *types) {
    bool failed = false;
    job->texts[i] = (serve_text){.ids = copy_ids(ids, &failed),
                                 .types = copy_ids(types, &failed),
                                 .count = (int64_t)ids->count};
    plsh_token_ids_free(ids);
    plsh_token_ids_free(types);
    if (failed) return serve_refuse(&job->fault, 503, NULL, "out of memory");
    return check_count(job, i);
}

/* Ids in the request are used as they are. */
static bool take_ids(serve_job *job, int64_t i) {
    serve_input *input = &job->request.inputs[i];
    if (!check_ids(job, input)) return false;
    job->texts[i] = (serve_text){.ids = input->ids, .count = input->count};
    input->ids = NULL;
    return check_count(job, i);
}

static bool take_input(serve_job *job, int64_t i) {
    const serve_input *input = &job->request.inputs[i];
    plsh_token_ids ids = {0}, types = {0};
    plsh_error error;
    if (input->ids != NULL) return take_ids(job, i);
    if (encode_input(job, input, &ids, &types, &error) != PLSH_STATUS_OK) {
        plsh_token_ids_free(&ids);
        plsh_token_ids_free(&types);
        return serve_refuse(&job->fault, 422, texts_field(job->route), "text %lld: %s",
                            (long long)i, error.message);
    }
    return keep_text(job, i, &ids, &types);
}

static bool take_inputs(serve_job *job) {
    job->texts = calloc((size_t)job->request.input_count, sizeof *job->texts);
    if (job->texts == NULL) return serve_refuse(&job->fault, 503, NULL, "out of memory");
    job->text_count = job->request.input_count;
    for (int64_t i = 0; i < job->text_count; i++)
        if (!take_input(job, i)) return false;
    return true;
}

static bool take_messages(serve_job *job) {
    const serve_request *request = &job->request;
    plsh_token_ids ids = {0}, types = {0};
    plsh_error error;
    job->texts = calloc(1, sizeof *job->texts);
    if (job->texts == NULL) return serve_refuse(&job->fault, 503, NULL, "out of memory");
    job->text_count = 1;
    if (plsh_chat_ids(job->server->chat, request->messages, request->message_count, true, &ids,
                      &error) != PLSH_STATUS_OK) {
        plsh_token_ids_free(&ids);
        return serve_refuse(&job->fault, 422, "messages", "%s", error.message);
    }
    return keep_text(job, 0, &ids, &types);
}

/* ---- Costs ---- */

/* An answer is in memory twice: as it is built, and as it is sent (COPIES). The most characters of
 * its parts: */
enum {
    COPIES = 2,
    NUMBER = 16,       /* a number of an embedding */
    TEXT = 256,        /* the text around an embedding, or a score */
    TOKEN = 96,        /* a token of /tokenize besides its text */
    ESCAPE = 6,        /* a byte of a text: \u0000 */
    MADE = 48,         /* a token that was made */
    ALTERNATIVE = 128, /* a token with its log-probability */
    EVENT = 300        /* of a stream, besides the model's name */
};

/* Texts that are kept for the answer. */
static size_t kept_bytes(const serve_job *job) {
    return job->size * (1 + COPIES * ESCAPE) + (size_t)job->request.values * SERVE_VALUE_BYTES;
}

static void count_encoder(serve_job *job) {
    const serve_server *server = job->server;
    const bool scores = job->route == SERVE_PREDICT || job->route == SERVE_RERANK;
    job->tokens = job->given;
    job->columns = scores ? server->model.facts.labels : server->sentence_facts.columns;
    job->cost = (size_t)job->tokens * 2 * sizeof(int32_t);
    if (job->route == SERVE_TOKENIZE)
        job->cost += COPIES * ((size_t)job->tokens * TOKEN + job->size * ESCAPE);
    else
        job->cost += (size_t)job->text_count *
                     ((size_t)job->columns * (sizeof(float) + COPIES * NUMBER) + COPIES * TEXT);
    if (job->request.return_text) job->cost += kept_bytes(job);
}

/* The most bytes that one generated token takes: its id, its text, and its part of the answer. The
 * part of a stream is an event, which stays in memory while the client does not read. */
static size_t made_bytes(const serve_job *job) {
    const serve_request *request = &job->request;
    size_t characters = request->stream ? EVENT + strlen(job->server->name) : MADE;
    size_t bytes = sizeof(int32_t) + MADE;
    if (request->logprobs) {
        characters += ALTERNATIVE * (size_t)(request->likely + 1);
        bytes += sizeof(serve_likely);
    }
    return bytes + COPIES * characters;
}

static bool count_generation(serve_job *job) {
    serve_request *request = &job->request;
    const int64_t most = job->server->limits.text_tokens;
    int64_t longest = 0;
    for (int64_t i = 0; i < job->text_count; i++)
        longest = job->texts[i].count > longest ? job->texts[i].count : longest;
    const int64_t fallback = job->route == SERVE_CHAT          ? CHAT_TOKENS
                             : job->route == SERVE_COMPLETIONS ? COMPLETION_TOKENS
                                                               : GENERATE_TOKENS;
    if (request->max_tokens == 0)
        request->max_tokens = fallback < most - longest ? fallback : most - longest;
    job->fault.longer = request->max_tokens < 1 || longest + request->max_tokens > most;
    if (job->fault.longer)
        return serve_refuse(&job->fault, 413, "max_tokens",
                            "a prompt of %lld tokens and max_tokens = %lld are %lld tokens; this "
                            "server takes %lld",
                            (long long)longest, (long long)request->max_tokens,
                            (long long)(longest + request->max_tokens), (long long)most);
    const int64_t sequences = job->text_count * request->choices;
    job->tokens = request->choices * job->given + sequences * request->max_tokens;
    job->cost = (size_t)job->tokens * 2 * sizeof(int32_t) +
                (size_t)sequences * ((size_t)request->max_tokens * made_bytes(job) + 4096);
    if (request->full_text) job->cost += kept_bytes(job);
    return true;
}

static void free_body(serve_job *job) {
    free(job->body);
    serve_body_release(job->server, job->capacity);
    job->body = NULL;
    job->capacity = 0;
}

bool serve_prepare(serve_job *job) {
    const serve_server *server = job->server;
    if (!check_route(job, &job->fault)) return false;
    const bool read = serve_request_parse(&job->request, job->route, job->body, job->size,
                                          server->limits.values, &job->fault);
    free_body(job);
    if (!read) return false;
    if (!(job->route == SERVE_CHAT ? take_messages(job) : take_inputs(job))) return false;
    if (!job->request.return_text && !job->request.full_text)
        serve_request_drop_texts(&job->request);
    if (serve_route_generates(job->route)) return count_generation(job);
    count_encoder(job);
    if (job->request.dimensions > job->columns)
        return serve_refuse(&job->fault, 422, "dimensions", "dimensions has to be 1 to %lld",
                            (long long)job->columns);
    return true;
}
