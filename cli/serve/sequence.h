/* serve: one text that is being generated. */
#ifndef PLSH_CLI_SERVE_SEQUENCE_H
#define PLSH_CLI_SERVE_SEQUENCE_H

#include "cli/serve/serve.h"

/* A token with its log-probability, and the most likely ones at its place. */
typedef struct serve_likely {
    double own;
    int32_t id;
    size_t offset; /* of its text in the sequence's */
    int64_t count;
    int32_t ids[SERVE_LIKELY];
    double logprobs[SERVE_LIKELY];
} serve_likely;

struct serve_sequence {
    serve_job *job;
    int64_t choice;
    plsh_session *session; /* NULL before its first pass and after its end */
    int32_t *ids;          /* [prompt + max_tokens]: prompt, then what was made */
    int64_t prompt, made;
    int64_t share;             /* tokens of the pass that is being made */
    plsh_token_stream *stream; /* of what was made */
    plsh_token_text text;
    size_t sent;          /* bytes of the text that no stop can begin in, and that were sent */
    float *logits;        /* [vocabulary] */
    float *copy;          /* the same, with logprobs */
    serve_likely *likely; /* [made], with logprobs */
    int64_t told;         /* of these were sent */
    size_t reserved;      /* bytes of its cache at its longest */
    const char *finish;   /* "stop", "length"; NULL: it is not over */
    double last;          /* time of its last token */
    serve_sequence *after;
};

/* Decodes one token for people. */
plsh_token_text serve_token_text(const serve_server *server, int32_t id);

#endif
