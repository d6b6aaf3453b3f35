/* text: byte pair encoding: the characters of a word, merged in the order of a list of pairs. */
#ifndef PLSH_TEXT_BPE_H
#define PLSH_TEXT_BPE_H

#include "text/ids.h"
#include "text/vocabulary.h"

typedef struct plsh_bpe plsh_bpe;

typedef struct plsh_bpe_options {
    const char *unknown; /* the token of characters that have none; NULL: they are dropped */
    const char *prefix;  /* before every character but a word's first; NULL: nothing */
    const char *suffix;  /* after a word's last character; NULL: nothing */
    bool fuse_unknown;   /* adjacent unknown characters become one token */
    bool byte_fallback;  /* a character without a token becomes its bytes, <0x00> to <0xFF> */
    bool ignore_merges;  /* a word that is a token is that token */
} plsh_bpe_options;

/* Keeps the vocabulary, which outlives it; copies the options. Room for `merges` of them. */
plsh_status plsh_bpe_create(plsh_bpe **out, const plsh_vocabulary *vocabulary,
                            const plsh_bpe_options *options, size_t merges, plsh_error *error);
void plsh_bpe_free(plsh_bpe *bpe);

/* Ids `left` and `right` become `merged`; pairs of smaller rank first. If a pair is given twice,
 * the last call counts. After all of them: plsh_bpe_finish. */
void plsh_bpe_merge(plsh_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t merged);
plsh_status plsh_bpe_finish(plsh_bpe *bpe, plsh_error *error);

/* The merges in their order, of one rank by their ids; frees with plsh_release. */
typedef struct plsh_bpe_pair {
    int32_t left, right, merged;
    uint32_t rank;
} plsh_bpe_pair;

plsh_status plsh_bpe_list(const plsh_bpe *bpe, plsh_bpe_pair **out, size_t *count,
                          plsh_error *error);

/* Scratch memory of one thread; initialise it with zeros. */
typedef struct plsh_bpe_work {
    plsh_token_ids symbols;
    void *links, *heap; /* of long words */
    size_t links_capacity, heap_capacity;
} plsh_bpe_work;

void plsh_bpe_work_free(plsh_bpe_work *work);

/* Appends the ids of one word (valid UTF-8). */
plsh_status plsh_bpe_encode(const plsh_bpe *bpe, plsh_bpe_work *work, const char *bytes,
                            size_t length, plsh_token_ids *out, plsh_error *error);

#endif
