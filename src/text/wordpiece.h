/* text: WordPiece: the longest token that begins a word, then the longest continuation, .. */
#ifndef PLSH_TEXT_WORDPIECE_H
#define PLSH_TEXT_WORDPIECE_H

#include "text/ids.h"
#include "text/vocabulary.h"

typedef struct plsh_wordpiece {
    const plsh_vocabulary *vocabulary;
    plsh_text prefix,
        unknown;         /* of tokens that continue a word ("##"); of words that have no tokens */
    size_t longest_word; /* characters; longer ones are unknown */
} plsh_wordpiece;

void plsh_wordpiece_free(plsh_wordpiece *model);

/* Appends the ids of one word (valid UTF-8). `scratch` is any text, and is overwritten. */
plsh_status plsh_wordpiece_encode(const plsh_wordpiece *model, plsh_text *scratch,
                                  const char *bytes, size_t length, plsh_token_ids *out,
                                  plsh_error *error);

#endif
