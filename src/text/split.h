/* text: pre-tokenizers, which cut a normalised text into words. */
#ifndef PLSH_TEXT_SPLIT_H
#define PLSH_TEXT_SPLIT_H

#include "text/normalize.h"

/* What becomes of a match at which a text is cut. */
typedef enum plsh_split_behavior {
    PLSH_SPLIT_REMOVED,
    PLSH_SPLIT_ISOLATED,             /* a word of its own */
    PLSH_SPLIT_MERGED_WITH_PREVIOUS, /* the end of the word before */
    PLSH_SPLIT_MERGED_WITH_NEXT,     /* the beginning of the next */
    PLSH_SPLIT_CONTIGUOUS            /* matches next to each other are one word */
} plsh_split_behavior;

typedef enum plsh_splitter_kind {
    PLSH_SPLITTER_PATTERN,    /* cuts at the matches of `pattern` */
    PLSH_SPLITTER_CLASS,      /* cuts at the characters of `class_` */
    PLSH_SPLITTER_WORDS,      /* runs of \w, and of what is neither \w nor blank */
    PLSH_SPLITTER_BYTE_LEVEL, /* cuts by `pattern`, if any; then bytes as letters */
    PLSH_SPLITTER_METASPACE,  /* spaces become `content`, which begins a word */
    PLSH_SPLITTER_LENGTH      /* cuts every `length` characters */
} plsh_splitter_kind;

typedef enum plsh_prepend {
    PLSH_PREPEND_ALWAYS,
    PLSH_PREPEND_FIRST,
    PLSH_PREPEND_NEVER
} plsh_prepend;

typedef struct plsh_splitter {
    plsh_splitter_kind kind;
    plsh_split_behavior behavior;
    bool invert; /* cuts at what is no match */
    plsh_class class_;
    plsh_pattern *pattern;
    bool prefix_space;    /* byte level: a space before a word that has none */
    plsh_text content;    /* metaspace: one character */
    plsh_prepend prepend; /* metaspace */
    bool split;           /* metaspace */
    size_t length;
} plsh_splitter;

/* One after another; a Sequence in the file is laid out flat. */
enum { PLSH_SPLITTERS_MOST = 32 };

typedef struct plsh_splitters {
    plsh_splitter steps[PLSH_SPLITTERS_MOST];
    size_t count;
} plsh_splitters;

/* Takes ownership of what `step` owns, also on failure. */
plsh_status plsh_splitters_add(plsh_splitters *splitters, plsh_splitter step, plsh_error *error);
void plsh_splitters_free(plsh_splitters *splitters);

/* Scratch memory of one thread; initialise it with zeros. A text per step, so that words go through
 * all steps one by one, and memory is that of the longest word of each. */
typedef struct plsh_split_work {
    struct plsh_split_scratch {
        plsh_text spaced, letters;
        plsh_search search;
    } steps[PLSH_SPLITTERS_MOST];
} plsh_split_work;

void plsh_split_work_free(plsh_split_work *work);

/* Calls `word` for every word, in order, until it fails. `first`: the text begins where the user's
 * did. */
typedef plsh_status plsh_split_word(void *context, const char *bytes, size_t length);

plsh_status plsh_split(const plsh_splitters *splitters, plsh_split_work *work, const char *bytes,
                       size_t length, bool first, plsh_split_word *word, void *context,
                       plsh_error *error);

#endif
