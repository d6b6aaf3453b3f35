/* plsh/cache.h - decoding: the keys and values of the tokens so far, and attention over them.
 *
 * A cache holds one sequence for one layer. Each step appends the new tokens and attends for them,
 * causally, as if one forward pass over the whole sequence had been made:
 *
 *     plsh_head head[8];
 *     plsh_heads_alibi(8, PLSH_METHOD_EXACT, head, NULL);
 *     plsh_cache_config config = {.heads = 8, .kv_heads = 2, .head_dim = 64,
 *                                 .head = head, .head_count = 8};
 *     plsh_cache *cache;
 *     plsh_error error;
 *     if (plsh_cache_create(&config, &cache, &error)) puts(error.message);
 *     plsh_tokens token = {.count = 1, .q = q, .k = k, .v = v, .o = o};
 *     plsh_cache_step(cache, &token, NULL, &error);        // once per token
 *     plsh_cache_destroy(cache);
 *
 * Keys that no later query can reach are dropped: beyond the window for `window`, beyond the oldest
 * block that is still open for the sampled methods (O(sigma log s) tokens), beyond the block for
 * `fixed`. `dense`, `exact` and `none` keep everything; `exact` reads only the keys that its bounds
 * cannot rule out. A sampled or windowed head therefore decodes texts of any length in constant
 * memory, with constant time per token.
 *
 * Positions may be points instead of row numbers (position_dim): every token then brings its own.
 * Forget gates are such positions, one set per head, on a line.
 *
 * A language model has a cache for every layer and sequence. Layers run one after the other, so one
 * workspace serves them all (plsh_cache_workspace); sequences that decode together take their steps
 * together (plsh_cache_step_batch). A prompt may come in chunks of any size: a chunk of 32 tokens
 * or more runs through the tiles of plsh_plan_forward on the pages of the cache where that is
 * faster.
 *
 * Threads: a cache belongs to one thread at a time. A call on a cache fails with
 * PLSH_STATUS_INVALID and changes nothing while another thread is inside a call on it.
 * plsh_cache_destroy cannot fail, so it must not be called then. Forks share memory but are
 * independent: different threads may use them at once. Results are the same to the bit for any
 * number of threads. A call that fails leaves the cache as it was. */
#ifndef PLSH_CACHE_H
#define PLSH_CACHE_H

#include "plsh/attention.h"
#include "plsh/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_cache plsh_cache;

typedef struct plsh_cache_config {
    int64_t heads;
    int64_t kv_heads;      /* divides heads, 0 = heads; head h reads h / (heads / kv_heads) */
    int64_t head_dim;      /* 1..512 */
    int64_t value_dim;     /* 1..512, 0 = head_dim */
    plsh_dtype dtype;      /* how keys and values are stored */
    double scale;          /* 0 = 1 / sqrt(head_dim) */
    const plsh_head *head; /* head_count = 1 serves all heads, else heads entries */
    int64_t head_count;
    /* Positions that are points (plsh_positions in plsh/head.h), given with every token: dense,
     * exact, window (a radius), none and auto. All keys are kept: a later token may lie near an old
     * one. */
    int position_dim;      /* 1 to 3; 0: positions are row numbers */
    int64_t position_sets; /* 1 (0): shared by all heads; heads: one set per head */
    int64_t undo; /* this many of the last tokens can always be truncated: assisted decoding with
                     drafts of k tokens needs k */
    int threads;  /* 0 = all */
    const char *isa;
} plsh_cache_config;

/* Copies everything that the config points to, except decay tables and user labels: these must
 * outlive the cache and its forks. */
PLSH_API plsh_status plsh_cache_create(const plsh_cache_config *config, plsh_cache **cache,
                                       plsh_error *error);
PLSH_API void plsh_cache_destroy(plsh_cache *cache); /* NULL is fine */

/* Rows of consecutive tokens: k and v [kv_heads, count, dim], q and o [heads, count, dim] unless
 * the layouts say otherwise. */
typedef struct plsh_tokens {
    int64_t count;
    plsh_dtype dtype;   /* of q, k and v: float32, or what the cache stores */
    plsh_dtype o_dtype; /* of o: float32 (0), float16 or bfloat16, rounded to nearest even */
    const void *q, *k, *v;
    void *o;
    float *lse;             /* [heads, count] or NULL */
    const float *positions; /* [position_sets, count, position_dim], of queries and keys alike; read
                             * by append and step */
    plsh_layout q_layout, k_layout, v_layout, o_layout;
    /* Memory on a 64-byte boundary, of plsh_cache_workspace bytes, for the time of the call; NULL:
     * the cache keeps its own, or allocates it for the call. */
    void *workspace;
    size_t workspace_bytes;
} plsh_tokens;

/* Appends k and v. q, o and lse are ignored. */
PLSH_API plsh_status plsh_cache_append(plsh_cache *cache, const plsh_tokens *tokens,
                                       plsh_error *error);

/* Attention of the queries q at the last `count` positions into o (and lse). k and v are ignored.
 * A `count` of at most the tokens of the last append or step plus `undo` always works; for a larger
 * one the error names the first position whose keys are all still kept. stats may be NULL. */
PLSH_API plsh_status plsh_cache_attend(plsh_cache *cache, const plsh_tokens *tokens,
                                       plsh_stats *stats, plsh_error *error);

/* Appends the tokens, attends for them, then drops the keys that no later query can reach. */
PLSH_API plsh_status plsh_cache_step(plsh_cache *cache, const plsh_tokens *tokens,
                                     plsh_stats *stats, plsh_error *error);

/* The steps of several sequences at once, tokens[i] for caches[i]: in parallel over sequences,
 * heads and spans of keys, which keeps all threads busy where one token of one sequence would not.
 * The caches must be distinct and may have different configs; the smallest number of threads of any
 * of them is used. The results are those of single steps, to the bit. An error names the sequence,
 * and all caches stay as they were. The workspace of tokens[0] serves all. The stats are the
 * sum. */
PLSH_API plsh_status plsh_cache_step_batch(plsh_cache *const *caches, const plsh_tokens *tokens,
                                           int64_t count, plsh_stats *stats, plsh_error *error);

/* Bytes of workspace that any append, attend or step of up to `count` tokens in each of the caches
 * needs, for any length of the caches. One workspace serves one call at a time, of any caches for
 * which it is large enough: all layers of a model. With it a step allocates nothing but pages for
 * new tokens, and for chunks of 32 tokens or more a plan (with positions also its workspace). */
PLSH_API plsh_status plsh_cache_workspace(plsh_cache *const *caches, int64_t sequences,
                                          int64_t count, size_t *bytes, plsh_error *error);

/* A second cache with the same tokens, for beams: each survivor forks its parent. Memory is shared
 * until one of them writes to it: that copies at most one page (64 tokens) per head. Costs a
 * pointer per page. */
PLSH_API plsh_status plsh_cache_fork(const plsh_cache *cache, plsh_cache **fork, plsh_error *error);

/* Drops all tokens from position `length` on. Fails if the next token would need keys that were
 * dropped; the error names the shortest possible length (plsh_cache_earliest). */
PLSH_API plsh_status plsh_cache_truncate(plsh_cache *cache, int64_t length, plsh_error *error);
PLSH_API int64_t plsh_cache_earliest(const plsh_cache *cache);

/* Tokens so far, dropped ones included; and the first position whose key head h still has. */
PLSH_API int64_t plsh_cache_length(const plsh_cache *cache);
PLSH_API int64_t plsh_cache_first(const plsh_cache *cache, int64_t head);

/* Memory in use, pages shared with forks included; and an upper bound of it for a cache of `length`
 * tokens, more than it has now, that drops none. */
PLSH_API size_t plsh_cache_bytes(const plsh_cache *cache);
PLSH_API size_t plsh_cache_bytes_at(const plsh_cache *cache, int64_t length);

/* The head as the cache runs it (auto resolved), with the reason in words for auto, and the
 * instruction set in use. */
PLSH_API plsh_head plsh_cache_head(const plsh_cache *cache, int64_t head, const char **reason);
PLSH_API const char *plsh_cache_isa(const plsh_cache *cache);

/* Writes the cache to a file, whole or not at all; and makes one from such a file. The config has
 * to equal that of the saved cache, except for threads and isa; an error names the first
 * difference. Every number in the file is checked. The file is little endian. */
PLSH_API plsh_status plsh_cache_save(const plsh_cache *cache, const char *path, plsh_error *error);
PLSH_API plsh_status plsh_cache_load(const plsh_cache_config *config, const char *path,
                                     plsh_cache **cache, plsh_error *error);

/* The same as a part of a larger file: its bytes (as long as no token is added), appended to an
 * open file, and read back from memory; `name` is for messages. */
PLSH_API size_t plsh_cache_file_bytes(const plsh_cache *cache);
PLSH_API plsh_status plsh_cache_save_into(const plsh_cache *cache, plsh_file *file,
                                          plsh_error *error);
PLSH_API plsh_status plsh_cache_parse(const plsh_cache_config *config, const void *bytes,
                                      size_t size, const char *name, plsh_cache **cache,
                                      plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
