/* serve: one text that is being generated. */
#ifndef PLSH_CLI_SERVE_SEQUENCE_H
#define PLSH_CLI_SERVE_SEQUENCE_H

#include "cli/lm/prompt.h"
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
    plsh_session *session;  /* NULL before its first pass and after its end */
    cli_continuation text;  /* ids: [prompt + max_tokens]; logits while it has a session */
    int64_t tokens_in_pass; /* tokens of the pass that is being made */
    size_t sent;            /* bytes of the text that were sent */
    float *copy;            /* [vocabulary], with logprobs */
    serve_likely *likely;   /* [made], with logprobs */
    int64_t likely_sent;    /* of these, how many were sent */
    bool ended;             /* by an end token, which is likely[made] */
    size_t reserved;        /* bytes of its cache at its longest */
    double last;            /* time of its last token */
    serve_sequence *after;
};

/* Decodes one token for people. */
plsh_token_text serve_token_text(const serve_server *server, int32_t id);

#endif
