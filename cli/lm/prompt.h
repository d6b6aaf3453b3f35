/* cli: prompts and ends of generated texts, for generate and serve. */
#ifndef PLSH_CLI_LM_PROMPT_H
#define PLSH_CLI_LM_PROMPT_H

#include "plsh/model.h"
#include "plsh/tokenizer.h"

/* Appends the ids of a text to an empty list, after the tokens that begin one (`begins`); a text
 * that has these already does not get them twice. `special` adds those around it too. */
plsh_status cli_prompt_encode(const plsh_tokenizer *tokenizer, plsh_string text, bool begins,
                              bool special, plsh_token_ids *out, plsh_error *error);

/* Is it a token at which the text of this model ends? */
bool cli_prompt_is_end(const plsh_model_ends *ends, const plsh_tokenizer *tokenizer, int32_t id);

/* Where in text[from .. length) a stop begins, or may begin; else its length. *whole: all of the
 * stop is there. */
size_t cli_prompt_find_stop(const plsh_string *stops, size_t count, plsh_string text, size_t from,
                            bool *whole);

#endif
