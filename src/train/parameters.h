/* train: the parameters of a model: all of its weights, or those of adapters on top of them.
 *
 * A parameter is a float32 array with its gradient and the two moments of AdamW. The model's layers
 * read these arrays, so that a step changes the model. */
#ifndef PLSH_TRAIN_PARAMETERS_H
#define PLSH_TRAIN_PARAMETERS_H

#include "plsh/train.h"
#include "train/layer_backward.h"

typedef struct plsh_parameter {
    char name[160];        /* as Hugging Face, or PEFT, calls it */
    int64_t rows, columns; /* rows 0: a vector */
    size_t first, count;   /* its numbers within the arrays below */
    bool matrix;           /* weight decay groups: vectors (norms, biases) may be left out */
    bool not_a_weight;     /* not a weight: not in the file of weights, and without weight decay */
    plsh_row_order order;  /* of its rows, where they are those of a GGUF */
    bool transposed;       /* the file has it as [columns, rows] */
} plsh_parameter;

/* ln(slope) of every layer and head: slopes stay above 0. */
#define PLSH_LOG_SLOPES "log_slopes"

typedef struct plsh_parameters {
    plsh_parameter *list;
    size_t count;
    size_t numbers;                  /* of all */
    float *value, *gradient, *m, *v; /* [numbers] */
    plsh_layer_gradient *layer;      /* [layers]: where their gradients go */
    size_t *layer_first;             /* [layers + 1]: where their numbers begin; first all others */
    plsh_norm_gradient tokens_norm, final_norm;
    plsh_linear_gradient head;
    float *tokens;         /* the gradient of the embedding; NULL: none */
    plsh_tensor embedding; /* what the model reads it from */
    double alpha;          /* of adapters: their scale times their rank */
    double *decay;         /* [heads][2]: a layer's gradients by its decays; NULL: not learned */
} plsh_parameters;

/* Creates the parameters: all weights if options->lora_rank is 0, otherwise those of adapters. The
 * model then reads its weights from these arrays. */
plsh_status plsh_parameters_make(plsh_parameters *out, plsh_model *model,
                                 const plsh_train_options *options, plsh_error *error);

void plsh_parameters_clear(plsh_parameters *parameters);

/* The last part of a module's name: q_proj of model.layers.0.self_attn.q_proj. */
const char *plsh_module_last_part(const char *module);

#endif
