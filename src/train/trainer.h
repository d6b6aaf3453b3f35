/* train: the insides of a trainer. */
#ifndef PLSH_TRAIN_TRAINER_H
#define PLSH_TRAIN_TRAINER_H

#include "train/parameters.h"

/* The buffers of one pass over a batch of up to `rows` rows. */
typedef struct plsh_trainer_buffers {
    plsh_layer_buffers *layer; /* [layers]; with recomputation they share all but x, or but x, o and
                                  lse */
    plsh_backward_buffers backward;
    float *x; /* [layers + 1][rows][hidden]: the input of each layer, and the output of the last */
    float *h; /* [rows][hidden], after the last norm */
    float *logits;    /* [plsh_loss_rows][vocabulary] */
    float *scratch;   /* [rows][hidden] for a norm of the embedding; without, one row */
    int32_t *target;  /* [rows] */
    int64_t *offsets; /* [batch + 1] */
} plsh_trainer_buffers;

struct plsh_trainer {
    plsh_model *model;
    plsh_train_options options; /* its attention is copied below; other pointers are kept */
    plsh_layer_attention *attention;
    plsh_head
        *heads; /* [layers][heads]: the heads as chosen; the draws of a step are made from them */
    plsh_parameters parameters;
    plsh_linear_engine engine;
    plsh_trainer_buffers buffers;
    char *memory;
    plsh_sequence_attention *layer; /* [layers], kept from one micro-batch to the next */
    int64_t planned_rows, planned_windows, planned_step; /* rows of all of the group's ranks */
    int64_t steps;                                       /* of the optimiser */
    int64_t micro_batches;                               /* within this step */
    double *partial;                                     /* of norms: [chunks of numbers] */
    int64_t slopes;                                      /* how many are learned */
    bool lost; /* parameters are not finite after an update, or a checkpoint was read in part:
                  refuses to save */
};

/* Copies the learned slopes to the model and its heads. */
void plsh_trainer_apply_slopes(plsh_trainer *trainer);

/* Gradients are zero, and the next micro-batch is the first of a step. */
void plsh_trainer_drop_gradients(plsh_trainer *trainer);

/* In a step: options.micro_batches, or 1. */
int64_t plsh_trainer_micro_batches(const plsh_trainer *trainer);

/* One micro-batch, forward and backward: the mean loss of the windows; adds its gradients. The last
 * micro-batch of a step adds up those of all ranks. */
plsh_status plsh_trainer_pass(plsh_trainer *trainer, const int32_t *ids, int64_t context,
                              int64_t windows, double *loss, plsh_error *error);

#endif
