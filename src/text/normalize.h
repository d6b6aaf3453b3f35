/* text: normalizers, applied to a text before it is cut into words. */
#ifndef PLSH_TEXT_NORMALIZE_H
#define PLSH_TEXT_NORMALIZE_H

#include "text/pattern.h"
#include "text/unicode.h"

typedef enum plsh_normalizer_kind {
    PLSH_NORMALIZER_FORM,      /* NFC, NFD, NFKC, NFKD */
    PLSH_NORMALIZER_LOWERCASE, /* character by character */
    PLSH_NORMALIZER_DROP,      /* the characters of a class */
    PLSH_NORMALIZER_CLEAN,     /* BERT: no controls, blanks become spaces */
    PLSH_NORMALIZER_CHINESE,   /* BERT: spaces around Chinese characters */
    PLSH_NORMALIZER_NMT,       /* no controls, many others become spaces */
    PLSH_NORMALIZER_STRIP,     /* blanks at either end */
    PLSH_NORMALIZER_PREPEND,   /* `content`, unless the text is empty */
    PLSH_NORMALIZER_REPLACE,   /* every match of `pattern` by `content` */
    PLSH_NORMALIZER_BYTE_LEVEL /* bytes as letters */
} plsh_normalizer_kind;

typedef struct plsh_normalizer {
    plsh_normalizer_kind kind;
    plsh_form form;
    plsh_class drop;
    bool left, right; /* strip */
    plsh_text content;
    plsh_pattern *pattern;
} plsh_normalizer;

enum { PLSH_NORMALIZERS_MOST = 64 };

/* One after another; a Sequence in the file is laid out flat. */
typedef struct plsh_normalizers {
    plsh_normalizer *steps;
    size_t count, capacity;
} plsh_normalizers;

/* Adds a step, and hands out where; takes ownership of what `step` owns, also on failure. */
plsh_status plsh_normalizers_add(plsh_normalizers *normalizers, plsh_normalizer step,
                                 plsh_error *error);
void plsh_normalizers_free(plsh_normalizers *normalizers);

/* Scratch memory of one thread; initialise it with zeros. */
typedef struct plsh_normalize_work {
    plsh_text even, odd; /* output buffers of the steps, used alternately */
    plsh_search search;
} plsh_normalize_work;

void plsh_normalize_work_free(plsh_normalize_work *work);

/* The most bytes that the steps of a tokenizer's file may make of `length` bytes. Real files make
 * at most 100 times as many (NFKD 11, bytes as letters 2, a blank as a character of 3 bytes);
 * without a limit, steps that each double a text could fill any memory. The constant part is for
 * prepended text. */
static inline size_t plsh_text_most(size_t length) {
    return length < SIZE_MAX / 512 ? 256 * length + 1024 : SIZE_MAX / 2;
}

/* The normalised text: it lies in `work`, or is `bytes` itself where there is nothing to do.
 * *moved: the original first character was dropped. */
plsh_status plsh_normalize(const plsh_normalizers *normalizers, plsh_normalize_work *work,
                           const char **bytes, size_t *length, bool *moved, plsh_error *error);

/* Every byte as a letter, as GPT-2 writes them: 256 strings of one or two bytes; and back, -1 for
 * characters that do not stand for a byte. */
void plsh_byte_letters_append(plsh_text *out, const char *bytes, size_t length);
int plsh_byte_of_letter(uint32_t c);

#endif
