/* text: added tokens, which are cut out of a text before all other steps. */
#ifndef PLSH_TEXT_ADDED_H
#define PLSH_TEXT_ADDED_H

#include "text/vocabulary.h"

typedef struct plsh_added_token {
    int32_t id;
    bool single_word;         /* only where no letter or digit touches it */
    bool lstrip, rstrip;      /* takes the blanks before, after it */
    bool normalized;          /* looked for in the normalised text, as its normalised form */
    bool special;             /* left out by decoding when asked for */
    size_t form, form_length; /* in `forms`: the text that is searched for, and written */
} plsh_added_token;

/* A tree of the bytes of some added tokens. */
typedef struct plsh_added_tree {
    struct plsh_added_node {
        uint32_t child, sibling; /* 0: none */
        uint32_t token;          /* in `tokens`, plus 1; 0: no token ends here */
        unsigned char byte;
    } * nodes; /* nodes[0] is the root */
    size_t count, capacity;
    uint32_t first[256]; /* the root's children by their bytes */
} plsh_added_tree;

typedef struct plsh_added {
    plsh_added_token *tokens;
    size_t count, capacity;
    plsh_text forms;
    plsh_vocabulary contents; /* as the file spells them -> id */
    plsh_vocabulary specials; /* the contents of those that are special */
    plsh_vocabulary places;   /* the bytes of an id -> its place in `tokens` */
    plsh_added_tree plain, normalized;
} plsh_added;

void plsh_added_free(plsh_added *added);

/* `content` as in the file; `form` is the text to search for. */
plsh_status plsh_added_add(plsh_added *added, plsh_added_token token, const char *content,
                           size_t length, const char *form, size_t form_length, plsh_error *error);

/* The text that decoding writes for an id; NULL: not an added token. */
const char *plsh_added_written(const plsh_added *added, int32_t id, size_t *length);

/* Calls `piece` for every token and for the text between tokens (id PLSH_NO_TOKEN), in order, until
 * it fails. */
typedef plsh_status plsh_added_piece(void *context, const char *bytes, size_t begin, size_t end,
                                     int32_t id);

typedef struct plsh_added_search {
    const plsh_added *added;
    const plsh_added_tree *tree; /* one of the two of `added` */
    bool plain;                  /* special tokens are not looked for: their text is plain text */
} plsh_added_search;

plsh_status plsh_added_cut(const plsh_added_search *search, const char *bytes, size_t length,
                           plsh_added_piece *piece, void *context);

#endif
