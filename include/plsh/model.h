/* plsh/model.h - runs language models and encoders from safetensors folders and GGUF files.
 *
 *     plsh_model *model;
 *     plsh_error error;
 *     if (plsh_model_open(&model, "model.gguf", NULL, &error)) puts(error.message);
 *     plsh_session *session;
 *     plsh_session_create(&session, model, NULL, &error);          // its own attention
 *     plsh_step step = {.ids = ids, .count = n, .logits = logits}; // of the last token
 *     plsh_session_step(session, &step, &error);
 *     plsh_session_destroy(session);
 *     plsh_model_close(model);
 *
 * Families: Llama, Mistral, Qwen2, Qwen3; BLOOM, MPT, Falcon, Baichuan, Jais, BTLM, Refact with
 * ALiBi; the encoders BERT, JinaBERT v2 and MosaicBERT (DNABERT-2). Weights stay mapped as they are
 * stored; activations are float32, quantised or rounded for products in fewer bits (plsh_compute).
 * A configuration that asks for something unsupported is refused; the message names the field.
 *
 * A model is constant: threads may share it. A session belongs to one thread at a time. Results are
 * the same to the bit for any number of threads. Link libplsh_lm. */
#ifndef PLSH_MODEL_H
#define PLSH_MODEL_H

#include "plsh/cache.h"
#include "plsh/ranks.h"
#include "plsh/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_model plsh_model;

/* The type in which linear layers multiply. Sums are float32.
 *
 * float32: the reference.
 * int8: quantised weights (Q8_0 and coarser) as stored, against activations that are quantised to
 *     int8 with a scale per block of 32; the products of a block are added exactly, in int32. An
 *     activation x is off by at most max |x| of its block / 254. The bits of a product are the
 *     same for any number of threads, for all instruction sets, and among any number of rows
 *     (tokens): those of a text that is continued among others are those of the text alone. Other
 * weights, adapters and attention stay in float32. A model without quantised weights is refused.
 * auto: int8 for quantised weights, float32 for others: no type of quantised weights is finer than
 *     int8 with a scale per block of 32.
 * bfloat16: weights of any type and activations are rounded to bfloat16, 8 bits of precision, each
 *     by at most 1/512 of itself. The bits are the same for any number of threads and for all
 *     instruction sets but "amx", where products of more than 8 rows add in another order. Adapters
 *     too; attention and the heads of encoders stay in float32. On AMD processors with AVX-512 BF16
 *     it is 1.5 to 1.8 times as fast as float32; elsewhere, except with AMX, it is emulated, and
 * slower than float32.
 *
 * int8 and bfloat16 use AMX where the processor has it and Linux permits it (isa "amx"). That code
 * is tested through an emulation of the instructions and has not run on such a processor yet;
 * PLSH_ISA=avx512 does without it. */
typedef enum plsh_compute {
    PLSH_COMPUTE_AUTO,
    PLSH_COMPUTE_FLOAT32,
    PLSH_COMPUTE_INT8,
    PLSH_COMPUTE_BFLOAT16
} plsh_compute;

typedef struct plsh_model_options {
    const char *adapter; /* a folder with a PEFT adapter, or NULL */
    int threads;         /* 0 = all */
    const char *isa;     /* NULL: PLSH_ISA, else the best there is */
    plsh_compute compute;
    /* Overrides the family chosen by plsh_model_facts.rule, or NULL: baichuan-13b,
     * baichuan2-13b, baichuan-7b, baichuan2-7b; gpt_refact, gpt_refact-rmsnorm. */
    const char *family;
} plsh_model_options;

/* A folder (config.json and safetensors) or a .gguf file. options may be NULL. */
PLSH_API plsh_status plsh_model_open(plsh_model **out, const char *path,
                                     const plsh_model_options *options, plsh_error *error);
PLSH_API void plsh_model_close(plsh_model *model); /* NULL is fine */

typedef struct plsh_model_facts {
    const char *family; /* "Llama" */
    const char *rule; /* the rule that chose the family, if neither fields nor tensors determine it;
                         or NULL */
    const char *differs; /* where llama.cpp is known to compute the file differently; or NULL */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
    int64_t context;      /* positions it was made for */
    int64_t alibi_length; /* slopes depend on the length of texts beyond it; 0: they do not */
    bool causal;          /* false: an encoder */
    bool rope, alibi;
    bool masked;         /* an encoder with a masked-LM head: plsh_model_token_logits */
    int64_t labels;      /* of an encoder with a classifier: plsh_model_classify; 0: none */
    bool slopes_learned; /* by training: slopes.npy lies beside the weights or the adapter */
    int64_t parameters;
    size_t bytes;          /* of the weights as stored */
    int64_t matrices;      /* of linear layers, with the head */
    int64_t int8_matrices; /* those whose products are in int8; the others are in float32 */
    bool bfloat16;         /* all products are in bfloat16, */
    bool emulated;         /* by a processor without instructions for it */
} plsh_model_facts;

PLSH_API plsh_model_facts plsh_model_describe(const plsh_model *model);
PLSH_API const plsh_weights *plsh_model_weights(const plsh_model *model);

/* A checksum of all weights, with adapter and slopes. Reads all weights once. */
PLSH_API uint64_t plsh_model_checksum(const plsh_model *model);

/* ---- Attention ----
 *
 * By default every model runs with its own attention: RoPE models without a bias (in their sliding
 * window, if they have one), ALiBi models with `exact`. To change the attention of a layer: */
typedef struct plsh_layer_attention {
    bool original;  /* the model's own; all other fields are ignored */
    bool drop_rope; /* no rotation of q and k */
    const plsh_head *head;
    int64_t head_count; /* 1 (for all heads), or one per head */
} plsh_layer_attention;

/* The slope of ALiBi that a head has: the learned one if there is one, else the model's own, else
 * (a model without ALiBi) that of the standard series. */
PLSH_API double plsh_model_slope(const plsh_model *model, int64_t layer, int64_t head);

/* heads[0 .. heads of the model) of a layer: this method, its defaults, and the slopes of
 * plsh_model_slope. */
PLSH_API plsh_status plsh_model_heads(const plsh_model *model, plsh_method method, int64_t layer,
                                      plsh_head *heads, plsh_error *error);

/* The head h of a layer under `attention` (NULL: the model's own). */
PLSH_API plsh_head plsh_model_head(const plsh_model *model, const plsh_layer_attention *attention,
                                   int64_t layer, int64_t head);

/* A tap is called once for each layer and chunk, before RoPE or after it, with q, k and v of
 * `count` tokens from `position` on: head h of row r begins at q + h * q_layout.head_stride + r *
 * q_layout.row_stride. The two elements of q and k that RoPE rotates together are adjacent in a
 * GGUF of a Llama, and half a head apart elsewhere; q.k is the same. */
typedef struct plsh_model_qkv {
    int64_t layer, position, count;
    const float *q, *k, *v;
    plsh_layout q_layout, k_layout, v_layout;
} plsh_model_qkv;

typedef struct plsh_model_tap {
    void (*see)(void *context, const plsh_model_qkv *qkv);
    void *context;
    bool after_rope;
} plsh_model_tap;

/* ---- Sessions: one sequence, token after token ---- */

typedef struct plsh_session plsh_session;

typedef struct plsh_session_options {
    const plsh_layer_attention *attention;
    int64_t attention_count; /* 0: all layers have their own; 1: one for all; or one per layer */
    plsh_dtype kv;           /* the type in which keys and values are stored */
    int64_t chunk;           /* tokens that go through the layers at once, 0 = 512 */
    int64_t undo;            /* this many of the last tokens can always be truncated */
    /* The number of tokens that the session will hold, for models with a
     * plsh_model_facts.alibi_length L: the slopes of all tokens are divided by length / L if that
     * is above 1. 0: they are not. */
    int64_t length;
    plsh_model_tap tap;
} plsh_session_options;

/* Causal models only. options may be NULL. Everything that it points to is copied, except decay
 * tables and labels. The model must outlive its sessions. */
PLSH_API plsh_status plsh_session_create(plsh_session **out, const plsh_model *model,
                                         const plsh_session_options *options, plsh_error *error);
PLSH_API void plsh_session_destroy(plsh_session *session); /* NULL is fine */

typedef struct plsh_step {
    const int32_t *ids;
    int64_t count;
    float *hidden; /* [count][hidden] after the last norm, or NULL */
    float *logits; /* [vocabulary] of the last token, or NULL */
    /* Tokens of the whole text, if later steps append more of it; 0: it ends with these. RoPE with
     * dynamic scaling rotates by frequencies that depend on it. Keys in the cache keep their
     * rotation when the text grows beyond that length. */
    int64_t length;
} plsh_step;

/* Appends tokens. Activations take the memory of one chunk, however many tokens there are. After an
 * error the session is unchanged; if that is impossible, it refuses further steps. */
PLSH_API plsh_status plsh_session_step(plsh_session *session, const plsh_step *step,
                                       plsh_error *error);

/* The same for several sessions of one model at once: steps[i] for sessions[i], which are distinct.
 * The steps may have any lengths: parts of prompts and single tokens go through the layers
 * together, up to `chunk` tokens of the first session at a time, and the weights are read once for
 * all of them. One of the sessions, the one that has the most memory for
 * activations, lends it to all; beside others a session may take a step of 0 tokens to lend its
 * own. With up to 4 tokens in all the results have the bits of single steps, and so have linear
 * layers in int8 with any number of tokens. Otherwise the results are those of single steps to
 * float rounding: in float32 and bfloat16 the order of sums in a linear layer is one for up to 8
 * rows and another one for more. After an error all sessions are unchanged, or refuse further
 * steps. Sessions with a tap, and those whose layers apply RoPE differently, take passes of their
 * own. */
PLSH_API plsh_status plsh_session_step_batch(plsh_session *const *sessions, const plsh_step *steps,
                                             int64_t count, plsh_error *error);

/* logits[rows][vocabulary] from rows of the hidden states of a step. */
PLSH_API plsh_status plsh_session_logits(plsh_session *session, const float *hidden, int64_t rows,
                                         float *logits, plsh_error *error);

PLSH_API int64_t plsh_session_length(const plsh_session *session);
PLSH_API size_t plsh_session_cache_bytes(const plsh_session *session);

/* An upper bound of plsh_session_cache_bytes once the session has `length` tokens, more than now:
 * that of caches which drop nothing. */
PLSH_API size_t plsh_session_cache_bytes_at(const plsh_session *session, int64_t length);

/* An upper bound of the bytes that sessions like this one hold for activations while up to `count`
 * of them take steps together, a chunk at a time: one of them has the memory for all. */
PLSH_API plsh_status plsh_session_step_bytes(plsh_session *session, int64_t count, size_t *bytes,
                                             plsh_error *error);

/* A second session with the same tokens; memory is shared until one of them writes to it. */
PLSH_API plsh_status plsh_session_fork(const plsh_session *session, plsh_session **fork,
                                       plsh_error *error);

/* Drops all tokens from position `length` on. */
PLSH_API plsh_status plsh_session_truncate(plsh_session *session, int64_t length,
                                           plsh_error *error);

/* Saves a session to one file, whole or not at all (plsh_file_create): after a crash the file holds
 * the old session or the new one. Loads it into a session of the same model and options. The file
 * holds a fingerprint of the model, plsh_model_checksum with the configuration: all weights are
 * read once, at about 2.5 GB a second, at the first save or load of a model. The file of another
 * model is refused, and so are the folders of earlier versions, which have no fingerprint. Every
 * number in the file is checked; checksums detect damage. */
PLSH_API plsh_status plsh_session_save(const plsh_session *session, const char *path,
                                       plsh_error *error);
PLSH_API plsh_status plsh_session_load(plsh_session **out, const plsh_model *model,
                                       const plsh_session_options *options, const char *path,
                                       plsh_error *error);

/* ---- Whole sequences at once: encoders, embedders made of decoders, causal models over ranks ----
 */

/* Called by the thread that called plsh_model_encode, several times in each layer, between its
 * parts: a server runs short texts there in the middle of a long one. It may call
 * plsh_model_encode itself. false ends the work with PLSH_STATUS_CANCELLED. */
typedef struct plsh_pause {
    bool (*run)(void *context);
    void *context;
} plsh_pause;

typedef struct plsh_encoding {
    const int32_t *ids;     /* of all sequences, one after the other */
    const int32_t *types;   /* of all ids, 0 or 1 in pairs of texts; NULL: all 0 */
    const int64_t *offsets; /* sequences + 1 entries; NULL for one sequence of `count` ids */
    int64_t sequences;
    int64_t count; /* of all ids */
    const plsh_layer_attention *attention;
    int64_t attention_count; /* as in plsh_session_options */
    float *hidden;           /* [count][hidden], the last hidden states */
    const plsh_ranks *ranks; /* NULL: this process alone */
    plsh_pause pause;        /* run NULL: none. Not with ranks */
} plsh_encoding;

/* With ranks, all ranks of a group call it with the same ids, and `hidden` receives the rows of
 * this rank, plsh_ranks_rows(ranks, count): a rank needs memory for its own rows only. A causal
 * model gives its hidden states after the last norm, as a step of a session does. */
PLSH_API plsh_status plsh_model_encode(const plsh_model *model, const plsh_encoding *encoding,
                                       plsh_error *error);

/* Bytes that plsh_model_encode allocates for `encoding`, in this process alone, besides the array
 * `hidden` and the small tables of a plan. Only count, offsets, sequences and the attention are
 * read. */
PLSH_API plsh_status plsh_model_encode_bytes(const plsh_model *model, const plsh_encoding *encoding,
                                             size_t *bytes, plsh_error *error);

/* ---- Heads of encoders ----
 *
 *     masked LM:   logits = E norm(act(dense x)) + b           of every token
 *     classifier:  logits = W tanh(pooler x_0) + b             of the first token of a text
 *
 * A model has a head if its file has the tensors (cls.predictions.*; pooler.dense and classifier).
 * A reranker is a classifier of one label. plsh_model_classify refuses a classifier without a
 * pooler: one that labels tokens, or one of a GGUF, whose format drops the pooler. */

/* What the logits of a classifier are, by "problem_type" of config.json. If it is absent, one label
 * is MULTI_LABEL and several are SINGLE_LABEL, as in transformers' pipelines. */
typedef enum plsh_problem {
    PLSH_PROBLEM_SINGLE_LABEL, /* probabilities: softmax */
    PLSH_PROBLEM_MULTI_LABEL,  /* each label by itself: 1 / (1 + exp(-x)) */
    PLSH_PROBLEM_REGRESSION    /* numbers, not probabilities */
} plsh_problem;

PLSH_API plsh_problem plsh_model_problem(const plsh_model *model);

/* The name of a label: "id2label" of config.json, or LABEL_0, ..; NULL: there is no such label. */
PLSH_API const char *plsh_model_label(const plsh_model *model, int64_t label);

/* logits[labels] from the last hidden state of the first token of a text. */
PLSH_API plsh_status plsh_model_classify(const plsh_model *model, const float *hidden,
                                         float *logits, plsh_error *error);

/* logits[rows][vocabulary] from rows of last hidden states. */
PLSH_API plsh_status plsh_model_token_logits(const plsh_model *model, const float *hidden,
                                             int64_t rows, float *logits, plsh_error *error);

/* ---- Choosing the next token ---- */

/* The tokens at which its text ends, besides the tokenizer's: "eos_token_id" of a folder's
 * generation_config.json, else of its config.json; eos_token_id, eot_token_id and eom_token_id of a
 * GGUF's tokenizer, and the tokens that llama.cpp knows as ends by their text (<|im_end|>,
 * <|eot_id|>, <end_of_turn>, ..). */
enum { PLSH_MODEL_ENDS_MOST = 64 };
typedef struct plsh_model_ends {
    int64_t count;
    int32_t ids[PLSH_MODEL_ENDS_MOST];
} plsh_model_ends;

PLSH_API plsh_status plsh_model_end_tokens(const plsh_model *model, plsh_model_ends *out,
                                           plsh_error *error);

typedef struct plsh_sampler {
    double temperature; /* 0: the most likely token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 0 or 1: all */
    uint64_t seed;
    double min_p; /* only tokens at least so likely, relative to the most likely one; 0: all */
} plsh_sampler;

/* Tokens that occur in ids become less likely: a positive logit is divided by `factor`, a negative
 * one multiplied, once however often the token occurs, as in transformers. 1: no change. Ids out of
 * range are ignored. */
typedef struct plsh_penalty {
    double factor;
    const int32_t *ids;
    int64_t count;
} plsh_penalty;

PLSH_API plsh_status plsh_sampler_penalise(const plsh_penalty *penalty, float *logits,
                                           int64_t count, plsh_error *error);

/* Chooses the token at position `index` of the text from its logits, which are overwritten. The
 * choice is a function of these arguments alone. */
PLSH_API plsh_status plsh_sampler_choose(const plsh_sampler *sampler, float *logits, int64_t count,
                                         uint64_t index, int32_t *token, plsh_error *error);

/* The score of the actual token under the logits: its negative log-likelihood, its rank (0: the
 * most likely), and the entropy of the distribution, in nats. If a logit is not finite, nll or
 * entropy is not finite either; a token whose logit is NaN has the rank `count`. */
typedef struct plsh_score {
    double nll, entropy;
    int64_t rank;
} plsh_score;

/* The n most likely tokens under the logits, the most likely first, and the natural logarithms of
 * their probabilities. Returns how many: n, or `count` where that is less. Takes time count * n. */
PLSH_API int64_t plsh_model_likely(const float *logits, int64_t count, int64_t n, int32_t *ids,
                                   double *logprobs);

PLSH_API plsh_score plsh_model_score(const float *logits, int64_t count, int32_t token);

#ifdef __cplusplus
}
#endif

#endif
