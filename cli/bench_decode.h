/* cli: plsh bench --pass decode: steps of one token against a cache. */
#ifndef PLSH_CLI_BENCH_DECODE_H
#define PLSH_CLI_BENCH_DECODE_H

#include "plsh/cache.h"

/* One method on one shape. The arrays are [heads, n, dim] and borrowed. */
typedef struct cli_decoder {
    plsh_cache *cache;
    const plsh_attention *shape; /* queries = keys = n */
    const float *q, *k, *v;
    float *rows; /* outputs of a step */
    plsh_dtype storage;
    int threads;
    double seconds; /* of a token, of the last repetition */
    double roof;    /* of a plain read of as many bytes, right after it */
    int64_t pairs;  /* of a token */
    size_t bytes;   /* of the cache */
    double error;   /* of the last tokens of the arrays, against exact attention */
} cli_decoder;

/* Fills a cache with the arrays and decodes their last tokens, which gives the error. */
int cli_decoder_make(cli_decoder *decoder, const plsh_attention *shape, plsh_dtype storage,
                     const float *q, const float *k, const float *v);
void cli_decoder_free(cli_decoder *decoder);

/* One repetition: many tokens, one step each. */
int cli_decoder_run(cli_decoder *decoder);

#endif
