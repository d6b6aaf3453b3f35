/* plsh/convert.h - weights from one form to another.
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
    plsh_weight_type type; /* F32, F16, BF16; for a GGUF also Q8_0 and Q4_1 */
    const char *out;       /* a path that ends in .gguf, or else a folder */
    /* Called now and then with the bytes written and to be written; false stops. NULL: not. */
    bool (*progress)(void *context, size_t done, size_t total);
    void *context;
} plsh_convert_options;

typedef struct plsh_converted {
    size_t tensors, bytes; /* bytes of the tensors */
    size_t as_f16;         /* matrices whose rows are no whole blocks of the type, written as f16 */
} plsh_converted;

/* A folder becomes a folder (config.json, tokenizer.json and the like are copied) or a GGUF, a GGUF
 * another one or a folder. Between the forms, names, the order of rows and metadata change, as
 * llama.cpp has them: that is there for Llama, Mistral, Qwen3, BLOOM, MPT, BERT and JinaBERT; other
 * families, and what a GGUF has no key for, are refused by their names. A GGUF's tokenizer becomes
 * a tokenizer.json. Where the form changes, or an adapter goes into a GGUF, the model is opened as
 * plsh_model_open does, and refused where that refuses it. In a GGUF vectors stay float32, and with
 * Q4_1 the weights of the logits (a tied embedding) are Q8_0. Files
 * are written beside their places and put there at the end; an existing folder is written into.
 * `converted` may be NULL. */
PLSH_API plsh_status plsh_convert(const plsh_convert_options *options, plsh_converted *converted,
                                  plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
