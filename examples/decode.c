/* Decoding with a cache: a prompt, then token by token, with two branches from one prefix.
 *
 *     cc decode.c $(pkg-config --cflags --libs plsh) -o decode && ./decode */
#include <plsh/plsh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, PROMPT = 500, TOKENS = 1000 };

/* Stands in for a model: the projections of the next `count` tokens. */
typedef struct rows {
    float q[HEADS * PROMPT * DIM], k[KV_HEADS * PROMPT * DIM], v[KV_HEADS * PROMPT * DIM];
    float o[HEADS * PROMPT * DIM];
} rows;

static plsh_tokens next_tokens(rows *r, int64_t count) {
    float *array[] = {r->q, r->k, r->v};
    size_t heads[] = {HEADS, KV_HEADS, KV_HEADS};
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < heads[a] * (size_t)count * DIM; i++)
            array[a][i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return (plsh_tokens){.count = count, .q = r->q, .k = r->k, .v = r->v, .o = r->o};
}

/* A prompt in one step, then tokens; prints what the cache has come to. */
static int decode(plsh_method method, const char *name, rows *r) {
    plsh_error error;
    plsh_head head[HEADS];
    plsh_cache *cache = NULL, *branch = NULL;
    if (plsh_heads_alibi(HEADS, method, head, &error)) goto failed;
    plsh_cache_config config = {.heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .head_dim = DIM,
                                .dtype = PLSH_DTYPE_FLOAT16,
                                .head = head,
                                .head_count = HEADS,
                                .undo = 16};
    if (plsh_cache_create(&config, &cache, &error)) goto failed;
    plsh_tokens tokens = next_tokens(r, PROMPT);
    if (plsh_cache_step(cache, &tokens, NULL, &error)) goto failed;
    plsh_stats stats;
    for (int t = 0; t < TOKENS; t++) {
        tokens = next_tokens(r, 1);
        if (plsh_cache_step(cache, &tokens, &stats, &error)) goto failed;
    }
    printf("%-6s after %lld tokens: the last one scored %5lld pairs, %5.1f MB in memory\n", name,
           (long long)plsh_cache_length(cache), (long long)stats.pairs,
           (double)plsh_cache_bytes(cache) / 1e6);

    /* A branch shares what it has in common; undo takes tokens back. The same token after the
     * same prefix gives the same bits. */
    float before[HEADS * DIM];
    if (plsh_cache_fork(cache, &branch, &error)) goto failed;
    tokens = next_tokens(r, 1);
    if (plsh_cache_step(branch, &tokens, NULL, &error)) goto failed;
    memcpy(before, r->o, sizeof before);
    for (int t = 0; t < 10; t++)
        if (plsh_cache_step(cache, &tokens, NULL, &error)) goto failed;
    if (plsh_cache_truncate(cache, PROMPT + TOKENS, &error)) goto failed;
    if (plsh_cache_step(cache, &tokens, NULL, &error)) goto failed;
    plsh_cache_destroy(branch);
    plsh_cache_destroy(cache);
    return memcmp(before, r->o, sizeof before) != 0;
failed:
    fprintf(stderr, "%s: %s\n", name, error.message);
    plsh_cache_destroy(branch);
    plsh_cache_destroy(cache);
    return 1;
}

int main(void) {
    rows *r = calloc(1, sizeof *r);
    int failed = r == NULL;
    if (!failed) failed = decode(PLSH_METHOD_DENSE, "dense", r);   /* reads everything */
    if (!failed) failed = decode(PLSH_METHOD_EXACT, "exact", r);   /* reads what matters */
    if (!failed) failed = decode(PLSH_METHOD_WINDOW, "window", r); /* keeps 27 sigma */
    if (!failed) failed = decode(PLSH_METHOD_PLSH, "plsh", r);     /* keeps sigma log s */
    free(r);
    return failed;
}
