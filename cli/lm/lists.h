/* cli: the tokens of many texts, and an encoder's hidden states of each. */
#ifndef PLSH_CLI_LM_LISTS_H
#define PLSH_CLI_LM_LISTS_H

#include "cli/lm/model.h"

/* Text i has the tokens offsets[i] .. offsets[i + 1] - 1. Zero is an empty list. */
typedef struct cli_lists {
    int32_t *ids, *types; /* types: of tokens; all 0 where none were given */
    int64_t *offsets;
    int64_t texts, text_capacity, token_capacity;
} cli_lists;

/* Appends a text. types may be NULL: all 0. `path` is for a message. */
int cli_lists_add(cli_lists *lists, const char *path, const int32_t *ids, const int32_t *types,
                  size_t count);
void cli_lists_free(cli_lists *lists);

int64_t cli_lists_tokens(const cli_lists *lists);

/* Calls `each` for every text in turn with its last hidden states [tokens][hidden]; about `batch`
 * tokens go through the encoder at once. Shows progress. */
int cli_lists_encode(const cli_model *model, const cli_lists *lists, int64_t batch,
                     int (*each)(void *context, int64_t text, const float *hidden, int64_t tokens),
                     void *context);

#endif
