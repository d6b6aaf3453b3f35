/* serve: parses the body of a request. */
#include "cli/serve/request.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool serve_refuse(serve_fault *fault, int status, const char *param, const char *format, ...) {
    va_list args;
    fault->status = status;
    fault->param = param;
    va_start(args, format);
    vsnprintf(fault->message, sizeof fault->message, format, args);
    va_end(args);
    return false;
}

bool serve_route_is_tgi(serve_route route) {
    return route == SERVE_GENERATE || route == SERVE_GENERATE_STREAM;
}

bool serve_route_generates(serve_route route) {
    return route == SERVE_COMPLETIONS || route == SERVE_CHAT || serve_route_is_tgi(route);
}

/* ---- The document ---- */

/* Depth and number of values before anything is allocated: a value of two bytes becomes an object
 * of a hundred. */
static bool check_shape(const char *body, size_t size, int64_t values, int64_t *counted,
                        serve_fault *fault) {
    int64_t depth = 0, count = 1;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        const char c = body[i];
        if (quoted) {
            if (c == '\\') i++;
            if (c == '"') quoted = false;
            continue;
        }
        quoted = c == '"';
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        count += c == ',' || c == '[' || c == '{';
        if (depth > SERVE_DEPTH)
            return serve_refuse(fault, 422, NULL, "the body is nested more than %d deep",
                                SERVE_DEPTH);
        if (count > values)
            return serve_refuse(fault, 413, NULL, "the body has more than %lld values",
                                (long long)values);
    }
    *counted = count;
    return true;
}

/* A field that is there and not null. */
static json_t *field(const json_t *root, const char *name) {
    json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

static bool read_flag(const json_t *root, const char *name, bool *out, serve_fault *fault) {
    const json_t *value = field(root, name);
    if (value == NULL) return true;
    if (!json_is_boolean(value))
        return serve_refuse(fault, 422, name, "%s has to be true or false", name);
    *out = json_is_true(value);
    return true;
}

typedef struct bounds {
    double least, most;
} bounds;

static bool read_number(const json_t *root, const char *name, bounds within, double *out,
                        serve_fault *fault) {
    const json_t *value = field(root, name);
    if (value == NULL) return true;
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= within.least && number <= within.most))
        return serve_refuse(fault, 422, name, "%s has to be a number from %g to %g", name,
                            within.least, within.most);
    *out = number;
    return true;
}

static bool read_integer(const json_t *root, const char *name, bounds within, int64_t *out,
                         serve_fault *fault) {
    const json_t *value = field(root, name);
    if (value == NULL) return true;
    const double number = json_is_integer(value) ? (double)json_integer_value(value) : NAN;
    if (!(number >= within.least && number <= within.most))
        return serve_refuse(fault, 422, name, "%s has to be an integer from %.0f to %.0f", name,
                            within.least, within.most);
    *out = json_integer_value(value);
    return true;
}

static plsh_string string_of(const json_t *value) {
    return (plsh_string){json_string_value(value), json_string_length(value)};
}

/* Refuses fields that would change the answer and are not supported. Values that mean the default
 * pass. */
static bool refuse_field(const json_t *root, const char *name, serve_fault *fault) {
    const json_t *value = field(root, name);
    if (value == NULL || json_is_false(value) ||
        (json_is_number(value) && json_number_value(value) == 0) ||
        (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return true;
    return serve_refuse(fault, 422, name, "%s is not supported by this server; leave it out", name);
}

/* ---- Inputs ---- */

static bool grow_inputs(serve_request *out, size_t count, const char *name, serve_fault *fault) {
    if (count == 0) return serve_refuse(fault, 422, name, "%s is empty", name);
    if (count > SERVE_INPUTS)
        return serve_refuse(fault, 413, name, "%s has %zu texts; at most %d in a request", name,
                            count, SERVE_INPUTS);
    out->inputs = calloc(count, sizeof *out->inputs);
    if (out->inputs == NULL) return serve_refuse(fault, 503, NULL, "out of memory");
    out->input_count = (int64_t)count;
    return true;
}

static bool is_ids(const json_t *value) {
    return json_is_array(value) && json_is_integer(json_array_get(value, 0));
}

static bool read_ids(const json_t *list, const char *name, serve_input *out, serve_fault *fault) {
    const size_t count = json_array_size(list);
    out->ids = calloc(count, sizeof *out->ids);
    if (out->ids == NULL) return serve_refuse(fault, 503, NULL, "out of memory");
    out->count = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || number > INT32_MAX)
            return serve_refuse(fault, 422, name, "%s: token %zu is no token id", name, i);
        out->ids[i] = (int32_t)number;
    }
    return true;
}

static bool read_input(const json_t *value, const char *name, serve_input *out,
                       serve_fault *fault) {
    if (json_is_string(value)) {
        out->text = string_of(value);
        return true;
    }
    if (is_ids(value)) return read_ids(value, name, out, fault);
    return serve_refuse(fault, 422, name,
                        "%s has to be a text, a list of texts, token ids, or a "
                        "list of lists of token ids",
                        name);
}

/* A text or ids, or a list of such. */
static bool read_inputs(serve_request *out, const json_t *root, const char *name,
                        serve_fault *fault) {
    const json_t *value = field(root, name);
    if (value == NULL) return serve_refuse(fault, 422, name, "%s is missing", name);
    out->single = json_is_string(value) || is_ids(value);
    if (!out->single && !json_is_array(value)) return read_input(value, name, NULL, fault);
    if (!grow_inputs(out, out->single ? 1 : json_array_size(value), name, fault)) return false;
    for (int64_t i = 0; i < out->input_count; i++)
        if (!read_input(out->single ? value : json_array_get(value, (size_t)i), name,
                        &out->inputs[i], fault))
            return false;
    return true;
}

/* A list of one or two texts. */
static bool read_pair(const json_t *pair, serve_input *out, serve_fault *fault) {
    const size_t count = json_array_size(pair);
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (count > 2 || !json_is_string(first) || (count == 2 && !json_is_string(second)))
        return serve_refuse(fault, 422, "inputs",
                            "inputs has to be a text, a pair of texts, or a list of lists of one "
                            "or two texts");
    out->text = string_of(first);
    if (count == 2) out->second = string_of(second);
    return true;
}

/* TEI's /predict: a text, a pair of texts, or a list of lists of one or two texts. */
static bool read_predictions(serve_request *out, const json_t *root, serve_fault *fault) {
    const json_t *value = field(root, "inputs");
    const bool pair = json_is_string(json_array_get(value, 0));
    if (!pair && !json_is_array(json_array_get(value, 0)))
        return read_inputs(out, root, "inputs", fault);
    out->single = pair;
    if (!grow_inputs(out, pair ? 1 : json_array_size(value), "inputs", fault)) return false;
    for (int64_t i = 0; i < out->input_count; i++)
        if (!read_pair(pair ? value : json_array_get(value, (size_t)i), &out->inputs[i], fault))
            return false;
    return true;
}

static bool read_pairs(serve_request *out, const json_t *root, serve_fault *fault) {
    const json_t *query = field(root, "query"), *texts = field(root, "texts");
    if (!json_is_string(query)) return serve_refuse(fault, 422, "query", "query has to be a text");
    if (!json_is_array(texts))
        return serve_refuse(fault, 422, "texts", "texts has to be a list of texts");
    if (!grow_inputs(out, json_array_size(texts), "texts", fault)) return false;
    for (int64_t i = 0; i < out->input_count; i++) {
        const json_t *text = json_array_get(texts, (size_t)i);
        if (!json_is_string(text))
            return serve_refuse(fault, 422, "texts", "texts: entry %lld is no text", (long long)i);
        out->inputs[i] = (serve_input){.text = string_of(query), .second = string_of(text)};
    }
    return true;
}

/* ---- Encoders ---- */

static bool read_embeddings(serve_request *out, const json_t *root, serve_fault *fault) {
    const json_t *format = field(root, "encoding_format");
    if (!read_inputs(out, root, "input", fault)) return false;
    if (format != NULL) {
        const char *name = json_is_string(format) ? json_string_value(format) : "";
        out->base64 = strcmp(name, "base64") == 0;
        if (!out->base64 && strcmp(name, "float") != 0)
            return serve_refuse(fault, 422, "encoding_format",
                                "encoding_format has to be \"float\" or \"base64\"");
    }
    return read_integer(root, "dimensions", (bounds){1, 1 << 20}, &out->dimensions, fault);
}

/* TEI's "normalize": always or never; not given: as the model's files ask. */
static bool read_normalise(serve_request *out, const json_t *root, serve_fault *fault) {
    bool wanted = true;
    if (!read_flag(root, "normalize", &wanted, fault)) return false;
    if (field(root, "normalize") != NULL)
        out->normalisation = wanted ? PLSH_NORMALISE_ALWAYS : PLSH_NORMALISE_NEVER;
    return true;
}

/* TEI's truncation_direction: the end of a text is cut; its prompts are not known here. */
static bool check_cut(const json_t *root, serve_fault *fault) {
    const json_t *direction = field(root, "truncation_direction");
    if (direction != NULL &&
        (!json_is_string(direction) || strcasecmp(json_string_value(direction), "right") != 0))
        return serve_refuse(fault, 422, "truncation_direction",
                            "truncation_direction has to be \"Right\"");
    return refuse_field(root, "prompt_name", fault);
}

static bool read_encoder(serve_request *out, serve_route route, const json_t *root,
                         serve_fault *fault) {
    bool read = route == SERVE_EMBEDDINGS ? read_embeddings(out, root, fault)
                : route == SERVE_PREDICT  ? read_predictions(out, root, fault)
                : route == SERVE_RERANK   ? read_pairs(out, root, fault)
                                          : read_inputs(out, root, "inputs", fault);
    out->special = true;
    return read && check_cut(root, fault) && read_flag(root, "truncate", &out->truncate, fault) &&
           read_flag(root, "raw_scores", &out->raw_scores, fault) &&
           read_flag(root, "return_text", &out->return_text, fault) &&
           read_flag(root, "add_special_tokens", &out->special, fault) &&
           read_normalise(out, root, fault);
}

/* ---- Generation ---- */

/* The texts of a list of parts, one after the other. */
static bool join_parts(const json_t *parts, char **bytes, plsh_string *out, serve_fault *fault) {
    size_t length = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        if (!json_is_string(text))
            return serve_refuse(fault, 422, "messages",
                                "a part of a message has to be {\"type\": \"text\", \"text\": ..}");
        length += json_string_length(text);
    }
    *bytes = malloc(length + 1);
    if (*bytes == NULL) return serve_refuse(fault, 503, NULL, "out of memory");
    *out = (plsh_string){*bytes, length};
    char *to = *bytes;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const plsh_string text = string_of(json_object_get(json_array_get(parts, i), "text"));
        memcpy(to, text.bytes, text.length);
        to += text.length;
    }
    return true;
}

static const char *role_of(const json_t *message) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(message, "role");
    const char *name = json_is_string(role) ? json_string_value(role) : "";
    if (strcmp(name, "developer") == 0) return roles[0];
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, roles[i]) == 0) return roles[i];
    return NULL;
}

static bool read_messages(serve_request *out, const json_t *root, serve_fault *fault) {
    const json_t *messages = field(root, "messages");
    const size_t count = json_array_size(messages);
    if (count < 1 || count > SERVE_MESSAGES)
        return serve_refuse(fault, 422, "messages", "messages has to be a list of 1 to %d messages",
                            SERVE_MESSAGES);
    out->messages = calloc(count, sizeof *out->messages);
    out->contents = calloc(count, sizeof *out->contents);
    if (out->messages == NULL || out->contents == NULL)
        return serve_refuse(fault, 503, NULL, "out of memory");
    out->message_count = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = field(message, "content");
        out->messages[i].role = role_of(message);
        if (out->messages[i].role == NULL)
            return serve_refuse(fault, 422, "messages",
                                "message %zu: role has to be system, user or assistant", i);
        if (json_is_string(content))
            out->messages[i].content = string_of(content);
        else if (!json_is_array(content))
            return serve_refuse(fault, 422, "messages", "message %zu: content has to be a text", i);
        else if (!join_parts(content, &out->contents[i], &out->messages[i].content, fault))
            return false;
    }
    return true;
}

static bool read_stops(serve_request *out, const json_t *root, serve_fault *fault) {
    const json_t *stop = field(root, "stop");
    if (stop == NULL) return true;
    const size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    if (count > SERVE_STOPS)
        return serve_refuse(fault, 422, "stop", "stop has %zu texts; at most %d", count,
                            SERVE_STOPS);
    out->stop_text = malloc(SERVE_STOPS * SERVE_STOP_BYTES);
    if (out->stop_text == NULL) return serve_refuse(fault, 503, NULL, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(stop) ? json_array_get(stop, i) : stop;
        const size_t length = json_is_string(one) ? json_string_length(one) : 0;
        if (length < 1 || length > SERVE_STOP_BYTES)
            return serve_refuse(fault, 422, "stop", "stop has to be texts of 1 to %d bytes",
                                SERVE_STOP_BYTES);
        char *copy = out->stop_text + i * SERVE_STOP_BYTES;
        memcpy(copy, json_string_value(one), length);
        out->stops[out->stop_count++] = (plsh_string){copy, length};
    }
    return true;
}

/* "logprobs" is a number in completions; in chats a flag, and top_logprobs the number. */
static bool read_logprobs(serve_request *out, serve_route route, const json_t *root,
                          serve_fault *fault) {
    if (route == SERVE_COMPLETIONS) {
        out->logprobs = field(root, "logprobs") != NULL;
        return read_integer(root, "logprobs", (bounds){0, SERVE_LIKELY}, &out->likely, fault);
    }
    if (!read_flag(root, "logprobs", &out->logprobs, fault) ||
        !read_integer(root, "top_logprobs", (bounds){0, SERVE_LIKELY}, &out->likely, fault))
        return false;
    if (out->likely > 0 && !out->logprobs)
        return serve_refuse(fault, 422, "top_logprobs", "top_logprobs needs logprobs: true");
    return true;
}

static bool read_sampler(serve_request *out, const json_t *root, serve_fault *fault) {
    plsh_sampler *s = &out->sampler;
    int64_t seed = 0;
    *s = (plsh_sampler){.temperature = 1, .top_p = 1};
    out->penalty = 1;
    out->seeded = field(root, "seed") != NULL;
    if (!read_number(root, "temperature", (bounds){0, 100}, &s->temperature, fault) ||
        !read_number(root, "top_p", (bounds){0, 1}, &s->top_p, fault) ||
        !read_number(root, "min_p", (bounds){0, 1}, &s->min_p, fault) ||
        !read_integer(root, "top_k", (bounds){-1, INT32_MAX}, &s->top_k, fault) ||
        !read_number(root, "repetition_penalty", (bounds){0.01, 100}, &out->penalty, fault) ||
        !read_integer(root, "seed", (bounds){-0x1p63, 0x1p63}, &seed, fault))
        return false;
    if (s->top_k < 0) s->top_k = 0; /* -1 is "all" to some clients */
    s->seed = (uint64_t)seed;
    return true;
}

static bool read_counts(serve_request *out, serve_route route, const json_t *root,
                        serve_fault *fault) {
    const bounds tokens = {1, INT32_MAX};
    int64_t best = 0;
    out->choices = 1;
    if (!read_integer(root, "max_tokens", tokens, &out->max_tokens, fault) ||
        (route == SERVE_CHAT &&
         !read_integer(root, "max_completion_tokens", tokens, &out->max_tokens, fault)) ||
        !read_integer(root, "n", (bounds){1, SERVE_CHOICES}, &out->choices, fault) ||
        !read_integer(root, "best_of", (bounds){1, SERVE_CHOICES}, &best, fault))
        return false;
    if (best > 0 && best != out->choices)
        return serve_refuse(fault, 422, "best_of", "best_of other than n is not supported");
    return true;
}

static bool read_generation(serve_request *out, serve_route route, const json_t *root,
                            serve_fault *fault) {
    static const char *const refused[] = {
        "presence_penalty", "frequency_penalty", "logit_bias", "suffix", "echo", "tools",
        "functions"};
    const json_t *options = field(root, "stream_options"), *format = field(root, "response_format");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!refuse_field(root, refused[i], fault)) return false;
    if (options != NULL && !json_is_object(options))
        return serve_refuse(fault, 422, "stream_options", "stream_options has to be an object");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0))
        return serve_refuse(fault, 422, "response_format", "response_format has to be text");
    const bool read = route == SERVE_CHAT ? read_messages(out, root, fault)
                                          : read_inputs(out, root, "prompt", fault);
    return read && read_sampler(out, root, fault) && read_counts(out, route, root, fault) &&
           read_stops(out, root, fault) && read_logprobs(out, route, root, fault) &&
           read_flag(root, "stream", &out->stream, fault) &&
           read_flag(options, "include_usage", &out->usage, fault);
}

/* TGI takes the likeliest token, unless it is told to draw or how. */
static bool read_draws(serve_request *out, const json_t *given, serve_fault *fault) {
    plsh_sampler *s = &out->sampler;
    bool draws = false;
    if (!read_flag(given, "do_sample", &draws, fault) || !read_sampler(out, given, fault))
        return false;
    draws |= s->temperature != 1 || s->top_p != 1 || s->min_p != 0 || s->top_k != 0;
    if (!draws) s->temperature = 0;
    return true;
}

/* {"inputs": a text, "parameters": {..}, "stream": ..} */
static bool read_tgi(serve_request *out, serve_route route, const json_t *root,
                     serve_fault *fault) {
    static const char *const refused[] = {
        "frequency_penalty",     "grammar",      "watermark", "adapter_id",
        "decoder_input_details", "top_n_tokens", "typical_p", "truncate"};
    const json_t *given = field(root, "parameters");
    int64_t best = 1;
    if (given != NULL && !json_is_object(given))
        return serve_refuse(fault, 422, "parameters", "parameters has to be an object");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!refuse_field(given, refused[i], fault)) return false;
    if (!json_is_string(field(root, "inputs")))
        return serve_refuse(fault, 422, "inputs", "inputs has to be a text");
    if (!read_inputs(out, root, "inputs", fault) || !read_draws(out, given, fault) ||
        !read_integer(given, "max_new_tokens", (bounds){1, INT32_MAX}, &out->max_tokens, fault) ||
        !read_integer(given, "best_of", (bounds){1, 1}, &best, fault) ||
        !read_stops(out, given, fault) ||
        !read_flag(given, "return_full_text", &out->full_text, fault) ||
        !read_flag(given, "details", &out->details, fault) ||
        !read_flag(root, "stream", &out->stream, fault))
        return false;
    out->choices = 1;
    out->stream |= route == SERVE_GENERATE_STREAM;
    out->logprobs = out->details || out->stream;
    return true;
}

bool serve_request_parse(serve_request *out, serve_route route, const char *body, size_t size,
                         int64_t values, serve_fault *fault) {
    json_error_t error;
    *out = (serve_request){0};
    if (!check_shape(body, size, values, &out->values, fault)) return false;
    json_t *root = json_loadb(body, size, JSON_ALLOW_NUL, &error);
    if (root == NULL && json_error_code(&error) == json_error_numeric_overflow)
        return serve_refuse(fault, 422, NULL, "a number is too large: line %d, column %d",
                            error.line, error.column);
    if (root == NULL)
        return serve_refuse(fault, 400, NULL, "the body is not JSON: line %d, column %d: %.200s",
                            error.line, error.column, error.text);
    out->document = root;
    bool read = json_is_object(root);
    if (!read) serve_refuse(fault, 422, NULL, "the body has to be a JSON object");
    if (read)
        read = serve_route_is_tgi(route)      ? read_tgi(out, route, root, fault)
               : serve_route_generates(route) ? read_generation(out, route, root, fault)
                                              : read_encoder(out, route, root, fault);
    if (!read) serve_request_free(out);
    return read;
}

void serve_request_drop_texts(serve_request *request) {
    json_decref(request->document);
    request->document = NULL;
    for (int64_t i = 0; i < request->message_count; i++) free(request->contents[i]);
    free(request->contents);
    free(request->messages);
    request->contents = NULL;
    request->messages = NULL;
    request->message_count = 0;
}

void serve_request_free(serve_request *request) {
    for (int64_t i = 0; i < request->input_count; i++) free(request->inputs[i].ids);
    free(request->inputs);
    free(request->stop_text);
    serve_request_drop_texts(request);
    *request = (serve_request){0};
}
