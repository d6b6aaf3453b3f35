/* tests: configurations of a decoding cache, their data, and the definition in double. */
#ifndef PLSH_TESTS_CACHE_CASES_H
#define PLSH_TESTS_CACHE_CASES_H

#include "plsh/cache.h"

typedef struct test_case {
    const char *name;
    int64_t heads, kv_heads, head_dim, value_dim, length;
    plsh_dtype dtype;
    bool interleaved; /* [tokens, heads, dim] instead of [heads, tokens, dim] */
    bool narrow;      /* q, k, v are handed over in the storage's type */
    const plsh_head *head;
    int64_t head_count;
} test_case;

/* Ends with a case without name. */
extern const test_case test_cases[];

/* The whole sequence, in the layout of the case. lse is kept by pieces, as the calls wrote it: the
 * piece that token t came with has begun at piece[t] and has size[t] tokens. */
typedef struct test_data {
    float *q, *k, *v, *o, *lse;
    uint16_t *narrow[3]; /* q, k, v rounded, where the case is narrow */
    int64_t *piece, *size;
} test_data;

plsh_cache_config test_config(const test_case *c);
test_data test_data_make(const test_case *c, uint64_t seed);
void test_data_free(test_data *data);
void test_data_copy_prefix(const test_case *c, test_data *to, const test_data *from, int64_t count);

/* The tokens from..from + count - 1, their outputs among those of the others. */
plsh_tokens test_tokens(const test_case *c, test_data *data, int64_t from, int64_t count);

/* A uniform number in (0, 1). */
double test_number(uint64_t seed, int64_t index);

/* What the definition says, [heads, length, value_dim] and [heads, length], for some of the rows.
 */
typedef struct test_answer {
    double *o, *lse;
} test_answer;

test_answer test_answer_make(const test_case *c, const test_data *data);
void test_answer_free(test_answer *answer);

/* Fails where o or lse is not the answer, to the rounding of float. */
void test_compare(const test_case *c, const test_data *data, const test_answer *answer,
                  const char *what);

/* Fails where two outputs of all tokens differ by more than the rounding of float. */
void test_close(const test_case *c, const test_data *a, const test_data *b);

/* Fails where the outputs of the tokens from `from` on are not the same bits. */
void test_same(const test_case *c, const test_data *a, const test_data *b, int64_t from);

#endif
