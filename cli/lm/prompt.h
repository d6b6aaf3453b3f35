/* cli: prompts, and the texts that continue them, for generate and serve. */
#ifndef PLSH_CLI_LM_PROMPT_H
#define PLSH_CLI_LM_PROMPT_H

#include "plsh/model.h"
#include "plsh/tokenizer.h"

/* Appends the ids of a text to an empty list, after the tokens that begin one (`begins`); if it has
 * them already, they are not added again. `special` adds all tokens that the tokenizer puts around
 * a text. */
plsh_status cli_prompt_encode(const plsh_tokenizer *tokenizer, plsh_string text, bool begins,
                              bool special, plsh_token_ids *out, plsh_error *error);

/* The rules by which a text is continued. */
typedef struct cli_rules {
    const plsh_tokenizer *tokenizer;
    const plsh_model_ends *ends; /* NULL: end tokens do not end the text */
    const plsh_string *stops;    /* texts that end it, and that it does not have */
    size_t stop_count;
    plsh_sampler sampler;
    double penalty;
    int64_t vocabulary;
    int64_t tokens; /* generated at most, above 0 */
} cli_rules;

/* A text that is being continued. */
typedef struct cli_continuation {
    int32_t *ids; /* the prompt, then the generated tokens, with room for one more */
    int64_t prompt, made;
    int64_t before; /* tokens of the session before ids[0] */
    float *logits;  /* [vocabulary], of the next token */
    plsh_token_stream *stream;
    plsh_token_text text; /* of the generated tokens */
    size_t ready;         /* bytes of it that are final: no stop begins there */
    const char *finish;   /* "stop", "length"; NULL: it is not finished */
} cli_continuation;

/* A choice: the log-probability of the chosen token, and those of the most likely ones. */
typedef struct cli_likely {
    double own;
    int64_t count; /* in: how many are wanted; out: how many there are */
    int32_t *ids;  /* [count] */
    double *logprobs;
} cli_likely;

/* Chooses the next token from the logits, which are overwritten. likely: NULL, or filled in; then
 * `copy` has room for the logits. Several texts may be handled by several threads. */
plsh_status cli_continuation_choose(const cli_rules *rules, cli_continuation *text,
                                    cli_likely *likely, float *copy, int32_t *id,
                                    plsh_error *error);

/* Adds a token. An end token, a stop and the number of tokens finish the text. */
plsh_status cli_continuation_add(const cli_rules *rules, cli_continuation *text, int32_t id,
                                 plsh_error *error);

/* Completes the text, which no token follows: bytes of an incomplete character, and the beginning
 * of a stop that did not come, are part of it. */
plsh_status cli_continuation_end(const cli_rules *rules, cli_continuation *text, plsh_error *error);

#endif
