/* model: the families of transformers, as rows of one description.
 *
 *     x = scale embedding(ids) (+ positions) (+ types), normalised where the family does
 *     per layer, norms before (or, `post`, after) what they belong to:
 *         q, k, v = linear(norm(x)), clamped (MPT);  q, k normalised (`qk_norm`), rotated (RoPE)
 *         x = x + linear(attention(q, k, v));   x = x + mlp(norm(x))
 *     logits = scale head(norm(x))
 *
 * To add one: see "a model family" in CONTRIBUTING.md. */
#ifndef PLSH_MODEL_FAMILY_H
#define PLSH_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum plsh_norm_kind {
    PLSH_NORM_RMS,  /* x / sqrt(mean(x^2) + eps) * w */
    PLSH_NORM_LAYER /* (x - mean) / sqrt(variance + eps) * w + b */
} plsh_norm_kind;

typedef enum plsh_position_kind {
    PLSH_POSITION_ROPE,
    PLSH_POSITION_ALIBI,
    PLSH_POSITION_ALIBI_SCALED, /* the bias is inside the scale: slopes are divided by sqrt(d) */
    PLSH_POSITION_LEARNED
} plsh_position_kind;

typedef enum plsh_qkv_kind {
    PLSH_QKV_SPLIT,       /* three weights */
    PLSH_QKV_INTERLEAVED, /* one: rows [head][q, k, v][head_dim] */
    PLSH_QKV_STACKED,     /* one: rows [q; k; v] */
    PLSH_QKV_Q_AND_KV     /* two: q, and rows [k; v] */
} plsh_qkv_kind;

/* Norms of q and k. */
typedef enum plsh_qk_norm {
    PLSH_QK_NORM_NONE,
    PLSH_QK_NORM_HEAD, /* of each head by itself */
    PLSH_QK_NORM_WHOLE /* over all heads together, before they are split */
} plsh_qk_norm;

typedef enum plsh_activation {
    PLSH_ACTIVATION_SILU,
    PLSH_ACTIVATION_GELU,      /* x Phi(x), by erf */
    PLSH_ACTIVATION_GELU_TANH, /* its tanh form */
    PLSH_ACTIVATION_RELU
} plsh_activation;

typedef enum plsh_mlp_kind {
    PLSH_MLP_PLAIN,        /* down(act(up x)) */
    PLSH_MLP_GATED,        /* down(act(gate x) * up x) */
    PLSH_MLP_GATED_FUSED,  /* the same, gate and up in one weight: rows [gate; up] */
    PLSH_MLP_UP_GATE_FUSED /* the same, rows [up; gate] */
} plsh_mlp_kind;

/* What a tensor is for. */
typedef enum plsh_role {
    PLSH_ROLE_TOKENS, /* embeddings */
    PLSH_ROLE_POSITIONS,
    PLSH_ROLE_TYPES,
    PLSH_ROLE_TOKENS_NORM,
    PLSH_ROLE_FINAL_NORM,
    PLSH_ROLE_HEAD,
    PLSH_ROLE_LAYER, /* those from here on are there once per layer */
    PLSH_ROLE_ATTENTION_NORM = PLSH_ROLE_LAYER,
    PLSH_ROLE_QKV,
    PLSH_ROLE_Q,
    PLSH_ROLE_K,
    PLSH_ROLE_V,
    PLSH_ROLE_KV,
    PLSH_ROLE_Q_NORM,
    PLSH_ROLE_K_NORM,
    PLSH_ROLE_ATTENTION_OUT,
    PLSH_ROLE_ATTENTION_NORM_2, /* x + ATTENTION_NORM(x + attention), normalised */
    PLSH_ROLE_MLP_NORM,
    PLSH_ROLE_GATE,
    PLSH_ROLE_UP, /* GATED_FUSED: gate and up */
    PLSH_ROLE_DOWN,
    PLSH_ROLE_COUNT
} plsh_role;

typedef struct plsh_family {
    const char *name;
    const char *model_type;   /* of config.json; or a name for --family, where several share one */
    const char *class_name;   /* in "architectures" of config.json */
    const char *architecture; /* of a GGUF; NULL: not read from one */
    bool causal;
    plsh_norm_kind norm;
    bool norm_bias;
    bool post_norm;   /* norms follow the sums */
    bool tokens_norm; /* after the embedding */
    plsh_position_kind position;
    plsh_qkv_kind qkv;
    bool qkv_bias; /* q, k and v always have biases */
    plsh_qk_norm qk_norm;
    plsh_mlp_kind mlp;
    plsh_activation activation;
    bool normal_head;   /* each row of the head is divided by its length */
    bool transposed;    /* linear weights of a folder are [in, out] */
    bool bare_norm;     /* the final norm's name has no prefix */
    bool split_gguf;    /* q, k, v, and gate and up, are separate tensors in a GGUF and fused in a
                           folder */
    bool permuted_gguf; /* rows of q and k in a GGUF are permuted: RoPE turns pairs (2i, 2i+1) */
    const char *prefix; /* before the names of all but the head; files may lack it */
    const char *layers; /* "model.layers.": a number and a dot follow */
    const char *name_of[PLSH_ROLE_COUNT]; /* without prefix, layer and ".weight"; NULL: none */
    const char *const *ignored; /* tensors that may be in the file and are not used; NULL ends */
} plsh_family;

extern const plsh_family plsh_families[];
extern const size_t plsh_family_count;

/* Names in a GGUF, the same for all families. */
extern const char *const plsh_family_gguf_names[PLSH_ROLE_COUNT];

/* The family of this model_type; NULL: there is none. */
const plsh_family *plsh_family_find(const char *model_type);

/* Does `name` match a pattern that may end in '*'? */
bool plsh_family_ignores(const plsh_family *family, const char *name);

#endif
