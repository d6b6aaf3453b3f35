/* text: the struct of a tokenizer. */
#ifndef PLSH_TEXT_TOKENIZER_H
#define PLSH_TEXT_TOKENIZER_H

#include "plsh/tokenizer.h"

#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/wordpiece.h"

/* Where the text stands in a template; and where the second one of a pair does. */
enum { PLSH_TEMPLATE_TEXT = -1, PLSH_TEMPLATE_SECOND = -2 };

struct plsh_tokenizer {
    plsh_vocabulary vocabulary; /* of the model */
    plsh_bpe *bpe;              /* NULL: WordPiece */
    plsh_wordpiece wordpiece;
    plsh_added added;
    int64_t created; /* of the added tokens, those that the vocabulary does not have */
    plsh_normalizers normalizers;
    plsh_splitters splitters;
    plsh_token_ids template_ids; /* ids and PLSH_TEMPLATE_TEXT; empty: the text alone */
    plsh_token_ids pair_ids;     /* the same for two texts; empty: the file has no such template */
    plsh_token_ids pair_types;   /* of each */
    plsh_decoders decoders;
    plsh_token_roles roles;
};

plsh_status plsh_tokenizer_create(plsh_tokenizer **out, plsh_error *error);

/* Adds a token to those that are cut out of texts: normalises it where it says so, and takes its id
 * from the vocabulary, or the next free one. */
plsh_status plsh_tokenizer_add(plsh_tokenizer *tokenizer, plsh_added_token token,
                               const char *content, size_t length, plsh_error *error);

/* GPT-2's expression, also that of ByteLevel; and a step that cuts by an expression. */
extern const char plsh_gpt2_expression[];
plsh_status plsh_tokenizer_split(plsh_tokenizer *tokenizer, plsh_splitter step,
                                 const char *expression, size_t length, bool literal,
                                 const char *what, plsh_error *error);

/* From the metadata of a GGUF file. */
plsh_status plsh_tokenizer_open_gguf(plsh_tokenizer **out, const char *path, plsh_error *error);

#endif
