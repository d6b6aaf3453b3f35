/* cli: plsh bench --pass decode: steps of one token against a cache. */
#include "cli/bench_decode.h"

#include "cli/command.h"
#include "cli/message.h"

#include "base/clock.h"
#include "bench/bench.h"
#include "plsh/thread.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAST_TOKENS = 16,  /* decoded for the error */
    GROUP_TOKENS = 64, /* a page of the cache, so that each group of tokens allocates and drops the
                          same number of pages */
    GROUPS =
        16 /* groups of a repetition, at most; its time is their median, because an interruption of
              a few milliseconds would double the mean time of tokens that take 20 us */
};
static const double LONG_ENOUGH = 0.05; /* seconds of a repetition */

static int64_t kv_heads(const plsh_attention *shape) {
    return shape->kv_heads ? shape->kv_heads : shape->heads;
}

/* `count` tokens from row `at` of the arrays on, outputs as [heads, LAST_TOKENS, dim]. */
static plsh_tokens rows_at(const cli_decoder *d, int64_t at, int64_t count, int64_t out) {
    int64_t dim = d->shape->head_dim;
    plsh_layout whole = {d->shape->keys * dim, dim}, last = {LAST_TOKENS * dim, dim};
    return (plsh_tokens){.count = count,
                         .q = d->q + at * dim,
                         .k = d->k + at * dim,
                         .v = d->v + at * dim,
                         .o = d->rows + out * dim,
                         .q_layout = whole,
                         .k_layout = whole,
                         .v_layout = whole,
                         .o_layout = last};
}

/* The error of LAST_TOKENS rows, q gathered as the oracle wants it. */
static int find_error(cli_decoder *d, int64_t tokens) {
    int64_t heads = d->shape->heads, dim = d->shape->head_dim, n = d->shape->keys;
    float *both = malloc(2 * (size_t)(heads * tokens * dim) * sizeof *both);
    if (both == NULL) return cli_fail("out of memory");
    float *q = both, *o = both + heads * tokens * dim;
    for (int64_t h = 0; h < heads; h++) {
        size_t bytes = (size_t)(tokens * dim) * sizeof *q;
        memcpy(q + h * tokens * dim, d->q + (h * n + n - tokens) * dim, bytes);
        memcpy(o + h * tokens * dim, d->rows + h * LAST_TOKENS * dim, bytes);
    }
    plsh_attention shape = *d->shape;
    shape.queries = tokens;
    shape.causal = true;
    d->error = bench_max_error(&shape, q, d->k, d->v, o, tokens);
    free(both);
    return CLI_DONE;
}

static int fill(cli_decoder *d) {
    int64_t n = d->shape->keys, last = n < LAST_TOKENS ? n : LAST_TOKENS;
    plsh_error error;
    /* Fills the cache in several steps, so that methods that drop keys drop them. */
    for (int64_t at = 0, piece; at < n - last; at += piece) {
        piece = n - last - at < 1024 ? n - last - at : 1024;
        plsh_tokens tokens = rows_at(d, at, piece, 0);
        if (plsh_cache_append(d->cache, &tokens, &error)) return cli_fail_error(&error);
    }
    for (int64_t t = 0; t < last; t++) {
        plsh_tokens token = rows_at(d, n - last + t, 1, t);
        if (plsh_cache_step(d->cache, &token, NULL, &error)) return cli_fail_error(&error);
    }
    return find_error(d, last);
}

int cli_decoder_make(cli_decoder *decoder, const plsh_attention *shape, plsh_dtype storage,
                     const float *q, const float *k, const float *v) {
    *decoder = (cli_decoder){.shape = shape, .storage = storage, .q = q, .k = k, .v = v};
    decoder->threads = plsh_thread_count(shape->threads);
    size_t size = (size_t)(shape->heads * LAST_TOKENS * shape->head_dim) * sizeof(float);
    decoder->rows = malloc(size);
    if (decoder->rows == NULL) return cli_fail("out of memory");
    plsh_cache_config config = {.heads = shape->heads,
                                .kv_heads = shape->kv_heads,
                                .head_dim = shape->head_dim,
                                .dtype = storage,
                                .head = shape->head,
                                .head_count = shape->head_count,
                                .threads = shape->threads,
                                .isa = shape->isa};
    plsh_error error;
    if (plsh_cache_create(&config, &decoder->cache, &error)) return cli_fail_error(&error);
    return fill(decoder);
}

void cli_decoder_free(cli_decoder *decoder) {
    plsh_cache_destroy(decoder->cache);
    free(decoder->rows);
}

/* The bytes of K and V that a token reads: the heads of a group share a read. The plain read is
 * repeated as often as tokens are decoded, so that both have the same cache hits. */
static double measure_roof(const cli_decoder *d) {
    int64_t kv = kv_heads(d->shape), group = d->shape->heads / kv;
    int64_t all = kv * d->shape->keys * d->shape->head_dim;
    int64_t half = d->pairs / group * d->shape->head_dim; /* of K; and of V */
    if (d->storage != PLSH_DTYPE_FLOAT32) half /= 2;
    if (half > all) half = all;
    double seconds[GROUPS], elapsed = 0;
    int count = 0;
    for (; count < GROUPS && elapsed < LONG_ENOUGH; elapsed += seconds[count++])
        seconds[count] = bench_read_seconds(d->k, (size_t)half, d->threads) +
                         bench_read_seconds(d->v, (size_t)half, d->threads);
    return bench_summarise(seconds, count).median;
}

static int run_token(cli_decoder *d, plsh_cache *cache, int64_t next, int64_t *pairs) {
    plsh_tokens token = rows_at(d, next % d->shape->keys, 1, 0);
    plsh_stats stats;
    plsh_error error;
    if (plsh_cache_step(cache, &token, &stats, &error)) return cli_fail_error(&error);
    *pairs += stats.pairs;
    return CLI_DONE;
}

static int run_tokens(cli_decoder *d, plsh_cache *cache) {
    double mean[GROUPS], begin = plsh_clock_seconds(), now = begin;
    int64_t pairs = 0, tokens = 0;
    int groups = 0;
    do {
        double start = now;
        int64_t first = tokens;
        do {
            int code = run_token(d, cache, tokens++, &pairs);
            if (code != CLI_DONE) return code;
            now = plsh_clock_seconds();
        } while (tokens < first + GROUP_TOKENS && now - begin < LONG_ENOUGH);
        mean[groups++] = (now - start) / (double)(tokens - first);
    } while (groups < GROUPS && now - begin < LONG_ENOUGH);
    d->seconds = bench_summarise(mean, groups).median;
    d->pairs = pairs / tokens;
    d->bytes = plsh_cache_bytes(cache);
    d->roof = measure_roof(d);
    return CLI_DONE;
}

/* Every repetition works on a fork, so that it begins after the same tokens. */
int cli_decoder_run(cli_decoder *d) {
    plsh_cache *fork;
    plsh_error error;
    if (plsh_cache_fork(d->cache, &fork, &error)) return cli_fail_error(&error);
    int code = run_tokens(d, fork);
    plsh_cache_destroy(fork);
    return code;
}
