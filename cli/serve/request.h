/* serve: the fields of a request's body, checked without a model. Texts become tokens in
 * prepare.c. */
#ifndef PLSH_CLI_SERVE_REQUEST_H
#define PLSH_CLI_SERVE_REQUEST_H

#include "plsh/chat.h"
#include "plsh/sentence.h"

typedef enum serve_route {
    SERVE_PAGE,
    SERVE_HEALTH,
    SERVE_INFO,
    SERVE_METRICS,
    SERVE_MODELS,
    SERVE_EMBEDDINGS,
    SERVE_EMBED,
    SERVE_RERANK,
    SERVE_PREDICT,
    SERVE_TOKENIZE,
    SERVE_COMPLETIONS,
    SERVE_CHAT,
    SERVE_GENERATE, /* these two in the form of text-generation-inference (TGI) */
    SERVE_GENERATE_STREAM,
    SERVE_ROUTES
} serve_route;

bool serve_route_is_tgi(serve_route route);
bool serve_route_generates(serve_route route);

/* Why a request is refused: an HTTP status, a message for people, the field that is wrong. */
typedef struct serve_fault {
    int status;  /* 0: nothing is wrong */
    bool longer; /* than the model takes */
    const char *param;
    char message[384];
} serve_fault;

/* Fills it in; always false, for `return`. */
bool serve_refuse(serve_fault *fault, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Everything that a body can make grow has a limit. */
enum {
    SERVE_DEPTH = 16,    /* of arrays and objects within each other */
    SERVE_INPUTS = 2048, /* texts of a request */
    SERVE_MESSAGES = 1024,
    SERVE_STOPS = 16,
    SERVE_STOP_BYTES = 256,
    SERVE_LIKELY = 20, /* alternatives of a token */
    SERVE_CHOICES = 8,
    /* Bytes of a document in memory per value that serve_request_parse counts, its texts apart:
     * jansson takes 42 for a number, 91 for a text, 173 for {"a": 1}. */
    SERVE_VALUE_BYTES = 180
};

/* A text, a pair of texts, or token ids. Texts belong to the document. */
typedef struct serve_input {
    plsh_string text, second; /* second.bytes NULL: one text */
    int32_t *ids;             /* owned; NULL: a text */
    int64_t count;
} serve_input;

typedef struct serve_request {
    void *document; /* json_t: owns all texts but those of stops */
    int64_t values; /* that it has */
    serve_input *inputs;
    int64_t input_count;
    bool single; /* it was no list */
    /* encoders */
    bool base64, truncate, raw_scores, return_text, special;
    plsh_normalisation normalisation;
    int64_t dimensions; /* 0: all */
    /* generation */
    plsh_chat_message *messages;
    char **contents; /* [message_count], owned: contents that were lists of parts, or NULL */
    int64_t message_count;
    plsh_sampler sampler;
    bool seeded;
    double penalty;
    int64_t max_tokens; /* 0: not given */
    int64_t choices;
    bool logprobs;
    int64_t likely;                 /* alternatives of a token, with logprobs */
    plsh_string stops[SERVE_STOPS]; /* in stop_text */
    char *stop_text;                /* owned */
    int64_t stop_count;
    bool stream, usage;
    bool details;   /* TGI's: the tokens beside their text */
    bool full_text; /* TGI's: the prompt before the text */
} serve_request;

/* Reads a body of a route that has one. `values` is the most values that the document may have.
 * false: *fault says why, and nothing is to be freed. */
bool serve_request_parse(serve_request *out, serve_route route, const char *body, size_t size,
                         int64_t values, serve_fault *fault);
void serve_request_free(serve_request *request);

/* Frees the document early: the texts of inputs and messages are gone then. */
void serve_request_drop_texts(serve_request *request);

#endif
