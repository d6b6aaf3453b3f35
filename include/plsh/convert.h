/* plsh/convert.h - converts weights between a folder of safetensors and GGUF.
 *
 *     plsh_convert_options options = {.model = "folder", .type = PLSH_WEIGHT_Q8_0,
 *                                     .out = "model.gguf"};
 *     plsh_convert(&options, NULL, &error);
 */
#ifndef PLSH_CONVERT_H
#define PLSH_CONVERT_H

#include "plsh/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_convert_options {
    const char *model;     /* what plsh_model_open takes: a folder, or a .gguf file */
    const char *adapter;   /* a PEFT adapter to merge, W += scale B A; NULL: none */
    const char *family;    /* as in plsh_model_options */
    plsh_weight_type type; /* F32, F16, BF16; for a GGUF also Q8_0, Q6_K, Q5_0, Q4_K, Q4_1, Q4_0 */
    const char *out;       /* a path that ends in .gguf, or else a folder */
    /* Progress: bytes written so far, and in all. Returning false stops. May be NULL. */
    bool (*progress)(void *context, size_t done, size_t total);
    void *context;
} plsh_convert_options;

typedef struct plsh_converted {
    size_t tensors, bytes; /* bytes of the tensors */
    size_t as_f16; /* matrices written as f16: their rows are not a whole number of blocks */
    size_t as_blocks_of_32; /* likewise, as q5_0 for q4_k and q8_0 for q6_k */
} plsh_converted;

/* A folder becomes a folder (config.json, tokenizer.json and the like are copied) or a GGUF, a GGUF
 * another one or a folder. Between a folder and a GGUF, names, the order of rows and metadata
 * change to those of llama.cpp. That is supported for Llama, Mistral, Qwen2, Qwen3, BLOOM,
 * MPT, Baichuan, Jais, BTLM (as Jais), Refact, BERT and JinaBERT (not classifiers and rerankers). A
 * GGUF of Jais holds the scales of embeddings and logits in its weights, one of Baichuan2 a
 * normalised head. Other families, and configuration fields that have no GGUF key, are refused; the
 * message names them. A GGUF's tokenizer becomes a tokenizer.json. Such a conversion, and merging
 * an adapter into a GGUF, opens the model with plsh_model_open and fails where that fails. In a
 * GGUF vectors stay float32; with Q4_0 and Q4_1 the output matrix (or a tied embedding) is Q8_0,
 * with Q4_K it is Q6_K. Files are written under temporary names and renamed at the end. An existing
 * folder is written into. `converted` may be NULL. */
PLSH_API plsh_status plsh_convert(const plsh_convert_options *options, plsh_converted *converted,
                                  plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
