/* plsh/train.h - training: gradients of language models, AdamW, LoRA.
 *
 *     plsh_trainer *trainer;
 *     plsh_train_options options = {.context = 1024, .batch = 1, .lora_rank = 16};
 *     plsh_trainer_create(&trainer, "model.gguf", &options, &error);
 *     for (int64_t step = 0; step < steps; step++) {
 *         plsh_trainer_accumulate(trainer, windows[step], 1024, 1, &loss, &error);
 *         plsh_trainer_update(trainer, &(plsh_update){.learning_rate = 1e-4, .clip = 1.0}, &norm);
 *     }
 *
 * float32 throughout; the same bits for any number of threads. Llama, Mistral, Qwen3, BLOOM, MPT
 * and Falcon. Attention by any method; sampled masks are drawn anew in every step, or kept. Link
 * libplsh_lm. */
#ifndef PLSH_TRAIN_H
#define PLSH_TRAIN_H

#include "plsh/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_train_options {
    int64_t context, batch; /* tokens per window, and windows at once, at most */
    const plsh_layer_attention *attention;
    int64_t attention_count; /* as in plsh_session_options */
    bool keep_draws;         /* the masks of the first step in all of them */
    bool recompute;          /* a layer's activations are made again in the backward pass */
    bool learn_slopes;       /* gradients of ALiBi's sigmas, and steps of their logarithms */
    uint64_t seed;
    double dropout;                  /* of hidden states; negative: as the configuration says */
    int64_t lora_rank;               /* 0: all weights are trained */
    double lora_alpha;               /* 0: twice the rank */
    double lora_dropout;             /* of the input of A */
    const char *const *lora_targets; /* "q_proj", ..; NULL: q, k, v and out projections */
    size_t lora_target_count;
    int threads; /* 0 = all */
    const char *isa;
    const char *adapter; /* a PEFT adapter to go on with, or NULL */
} plsh_train_options;

typedef struct plsh_trainer plsh_trainer;

/* From a folder or a .gguf file, as plsh_model_open. */
PLSH_API plsh_status plsh_trainer_create(plsh_trainer **out, const char *path,
                                         const plsh_train_options *options, plsh_error *error);
PLSH_API void plsh_trainer_destroy(plsh_trainer *trainer); /* NULL is fine */

/* The model as it is trained, for evaluation. */
PLSH_API const plsh_model *plsh_trainer_model(const plsh_trainer *trainer);

/* Adds the gradients of the mean next-token loss of `windows` windows of `context` tokens each, one
 * after the other in ids; *loss is that mean. Nothing is added where the loss is not finite:
 * PLSH_STATUS_NOT_FINITE. */
PLSH_API plsh_status plsh_trainer_accumulate(plsh_trainer *trainer, const int32_t *ids,
                                             int64_t context, int64_t windows, double *loss,
                                             plsh_error *error);

/* One step of AdamW on the gradients added so far, divided by `accumulated`; then they are zero.
 *
 *     g *= min(1, clip / (|g| + 1e-6));   p *= 1 - rate * decay
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     p -= rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps) */
typedef struct plsh_update {
    double learning_rate, weight_decay;
    double beta1, beta2, eps; /* 0: 0.9, 0.999, 1e-8 */
    double clip;              /* 0: none */
    bool decay_matrices_only; /* no weight decay of norms and biases */
    int64_t accumulated;      /* 0 = 1 */
} plsh_update;

/* *norm: of the gradients before they are clipped. Where that is not finite nothing changes but
 * that the gradients are zero: PLSH_STATUS_NOT_FINITE. */
PLSH_API plsh_status plsh_trainer_update(plsh_trainer *trainer, const plsh_update *update,
                                         double *norm, plsh_error *error);

/* Steps so far. */
PLSH_API int64_t plsh_trainer_steps(const plsh_trainer *trainer);

/* Parameter number i: its name, shape (rows 0: a vector), and its numbers. */
typedef struct plsh_trained {
    const char *name;
    int64_t rows, columns;
    float *value, *gradient, *m, *v;
} plsh_trained;

PLSH_API size_t plsh_trainer_count(const plsh_trainer *trainer);
PLSH_API plsh_trained plsh_trainer_at(const plsh_trainer *trainer, size_t index);

#ifdef __cplusplus
}
#endif

#endif
