/* text: tokens and their ids. */
#ifndef PLSH_TEXT_VOCABULARY_H
#define PLSH_TEXT_VOCABULARY_H

#include "base/text.h"

enum { PLSH_NO_TOKEN = -1 };

/* Strings (any bytes) with ids from 0 to INT32_MAX, found by either. Ids may have gaps. */
typedef struct plsh_vocabulary {
    plsh_text strings; /* one after another */
    struct plsh_vocabulary_entry {
        size_t begin, length;
        int32_t id;
    } * entries;
    size_t count, capacity;
    uint32_t *by_string, *by_id; /* open addressing: entry + 1; 0: free */
    size_t slots;                /* of either; a power of two */
    size_t longest;              /* bytes of the longest string */
    int32_t largest;             /* id; PLSH_NO_TOKEN: none */
} plsh_vocabulary;

/* Room for so many tokens; a zeroed vocabulary is empty and finds nothing. */
plsh_status plsh_vocabulary_reserve(plsh_vocabulary *vocabulary, size_t count, plsh_error *error);
void plsh_vocabulary_free(plsh_vocabulary *vocabulary);

/* Adds a string. One that exists already gets the new id. If two strings have one id, the id gives
 * the first. */
plsh_status plsh_vocabulary_add(plsh_vocabulary *vocabulary, const char *bytes, size_t length,
                                int32_t id, plsh_error *error);

/* The id, or PLSH_NO_TOKEN. */
int32_t plsh_vocabulary_find(const plsh_vocabulary *vocabulary, const char *bytes, size_t length);

/* The string, which no zero byte ends; NULL: there is none. */
const char *plsh_vocabulary_token(const plsh_vocabulary *vocabulary, int64_t id, size_t *length);

/* A bijection of 64 bits that mixes them (the finalizer of splitmix64). */
static inline uint64_t plsh_hash_number(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

#endif
