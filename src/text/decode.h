/* text: decoders: from tokens back to text. */
#ifndef PLSH_TEXT_DECODE_H
#define PLSH_TEXT_DECODE_H

#include "text/normalize.h"

typedef enum plsh_decoder_kind {
    PLSH_DECODER_BYTE_LEVEL,    /* letters as the bytes that they stand for */
    PLSH_DECODER_BYTE_FALLBACK, /* runs of <0xNN> as the bytes NN */
    PLSH_DECODER_FUSE,          /* all tokens in one */
    PLSH_DECODER_STRIP,         /* up to `start` and `stop` times `content` off each token's ends */
    PLSH_DECODER_REPLACE,       /* matches of `pattern` by `content` */
    PLSH_DECODER_METASPACE,     /* `content` as spaces, but in the first token */
    PLSH_DECODER_WORDPIECE, /* `content` begins tokens that continue a word; others get a space */
    PLSH_DECODER_BPE        /* `content` ends words */
} plsh_decoder_kind;

typedef struct plsh_decoder {
    plsh_decoder_kind kind;
    plsh_text content;
    plsh_pattern *pattern;
    size_t start, stop;
    bool keeps_first; /* metaspace: spaces in the first token too */
    bool cleanup;     /* wordpiece: no blanks before punctuation, .. */
} plsh_decoder;

enum { PLSH_DECODERS_MOST = 32 };

/* One after another. Without any, and not `present`, tokens are joined by spaces. */
typedef struct plsh_decoders {
    bool present;
    plsh_decoder steps[PLSH_DECODERS_MOST];
    size_t count;
} plsh_decoders;

/* Takes ownership of what `step` owns, also on failure. */
plsh_status plsh_decoders_add(plsh_decoders *decoders, plsh_decoder step, plsh_error *error);
void plsh_decoders_free(plsh_decoders *decoders);

/* Strings one after another. */
typedef struct plsh_token_list {
    plsh_text bytes;
    size_t *ends;
    size_t count, capacity;
} plsh_token_list;

/* Ends the token that was appended to `bytes` last. */
plsh_status plsh_token_list_end(plsh_token_list *list, plsh_error *error);
void plsh_token_list_free(plsh_token_list *list);

/* Replaces the tokens by the single text that they are. */
plsh_status plsh_decode(const plsh_decoders *decoders, plsh_token_list *tokens, plsh_error *error);

#endif
