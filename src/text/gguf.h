/* text: parts of a GGUF tokenizer that the file gives only by name. */
#ifndef PLSH_TEXT_GGUF_H
#define PLSH_TEXT_GGUF_H

#include "formats/json.h"
#include "plsh/tokenizer.h"
#include "plsh/weights.h"

enum { PLSH_CUTTING_MOST = 4 };

/* The expressions that cut a text for a value of tokenizer.ggml.pre, in their order. */
typedef struct plsh_gguf_cutting {
    const char *names; /* separated by spaces */
    const char *expressions[PLSH_CUTTING_MOST];
    bool ignore_merges;
    bool nfc; /* as the family's tokenizer.json has it */
} plsh_gguf_cutting;

plsh_status plsh_gguf_cutting_find(const plsh_weights *weights, const char *path,
                                   const plsh_gguf_cutting **out, plsh_error *error);

/* The tokenizer of a GGUF as the Hugging Face library keeps it: tokenizer.json and
 * tokenizer_config.json. Both are NULL where the file has none. */
plsh_status plsh_tokenizer_gguf_json(const plsh_weights *weights, json_t **tokenizer,
                                     json_t **config, plsh_error *error);

#endif
