/* model: the configuration of a model, read from config.json or from the metadata of a GGUF.
 *
 * One description serves all families: a family is a row of constants (family.c), a configuration
 * the numbers that a file adds to it. A file that asks for an unsupported feature is refused; the
 * message names the field. */
#ifndef PLSH_MODEL_CONFIG_H
#define PLSH_MODEL_CONFIG_H

#include "model/family.h"
#include "plsh/weights.h"

typedef enum plsh_rope_scaling {
    PLSH_ROPE_DEFAULT,
    PLSH_ROPE_LINEAR, /* positions divided by the factor */
    PLSH_ROPE_LLAMA3, /* low frequencies divided by the factor, high ones kept, those between
                         interpolated */
    PLSH_ROPE_YARN,   /* the same with a ramp over the pairs; cosines and sines are scaled */
    PLSH_ROPE_DYNAMIC /* theta grows with texts longer than the original context */
} plsh_rope_scaling;

typedef struct plsh_rope_config {
    double theta;
    plsh_rope_scaling scaling;
    double factor, low_frequency, high_frequency; /* of the scalings */
    /* YaRN: pairs with more turns in the original context than beta_fast are kept, those with fewer
     * than beta_slow divided by the factor. `rounded`: the ramp begins and ends at whole pairs.
     * Cosines and sines are multiplied by `attention`. */
    double beta_fast, beta_slow, attention;
    bool rounded;
    int64_t original_context;
} plsh_rope_config;

typedef struct plsh_model_config {
    const plsh_family *family;
    const char *rule; /* the rule that chose the family; NULL: the fields determine it */
    /* Those of the family, unless a field or the form of the file differs: */
    plsh_norm_kind norm;
    bool norm_bias;
    plsh_qkv_kind qkv;
    plsh_qk_norm qk_norm;
    plsh_mlp_kind mlp;
    double clip;            /* q, k and v are clamped to [-clip, clip]; 0: they are not */
    double alibi_max;       /* slopes are 2^(-alibi_max (h + 1) / heads), .. */
    double alibi_factor;    /* divided by this, */
    int64_t alibi_length;   /* and by length / alibi_length for longer texts; 0: they are not */
    double embedding_scale; /* of token embeddings */
    double embedding_share; /* of their gradient (MPT's embedding_fraction) */
    double logit_scale;
    bool gguf; /* names, the order of rows, and how q, k, v are joined are those of a GGUF */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
    int64_t context; /* positions it was made for; a limit only where positions are learned */
    double norm_eps;
    plsh_rope_config rope;
    int64_t sliding_window; /* 0: none */
    int64_t sliding_from;   /* layers from this one on have the window */
    plsh_activation activation;
    plsh_activation head_activation; /* of the masked-LM head of an encoder */
    bool tied;                       /* the head is the embedding */
    bool qkv_bias, attention_bias;   /* q, k and v have biases; the output of attention has one */
    bool mlp_bias;                   /* the linear layers of the MLP have biases */
    bool multi_query, parallel;      /* Falcon: one kv head; attention and MLP side by side */
    int64_t types;                   /* token type embeddings; 0: none */
    double scale;                    /* of scores; 0: 1 / sqrt(head_dim) */
    double dropout;                  /* of hidden states, in training */
    double attention_dropout;        /* of attention weights, in training */
} plsh_model_config;

/* Sets the family, and all that it decides on unless fields say otherwise. */
void plsh_model_config_family(plsh_model_config *config, const plsh_family *family);

/* From the text of a config.json; `what` names it in messages. */
plsh_status plsh_model_config_json(const char *text, size_t length, const char *what,
                                   plsh_model_config *config, plsh_error *error);

/* Replaces the family by another one that neither config.json nor the tensors distinguish from it:
 * one of the four of Baichuan, or Refact with either norm. */
plsh_status plsh_model_config_choose(plsh_model_config *config, const char *name,
                                     plsh_error *error);

/* Chooses by the tensors between families that config.json or a GGUF's metadata do not distinguish:
 * JinaBERT and the one for code, BERT and MosaicBERT, Refact of 2023. Also the width of Refact's
 * MLP. */
void plsh_model_config_tensors(plsh_model_config *config, const plsh_weights *weights);

/* Are there enough tensors for that many layers? Each layer has tensors of its own. */
plsh_status plsh_model_config_fits(const plsh_model_config *config, const plsh_weights *weights,
                                   plsh_error *error);

/* From the metadata of a GGUF. */
plsh_status plsh_model_config_gguf(const plsh_weights *weights, const char *what,
                                   plsh_model_config *config, plsh_error *error);

#endif
