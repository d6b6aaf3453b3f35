/* train: the head and the loss, together: logits exist for a few rows at a time only.
 *
 *     z_r = W h_r,   loss = mean over the scored rows of log sum_c exp(z_rc) - z_r,target
 *     dz_rc = (softmax(z_r)_c - [c = target]) / rows;   dh_r = W^T dz_r;   dW += dz_r h_r^T */
#ifndef PLSH_TRAIN_LOSS_H
#define PLSH_TRAIN_LOSS_H

#include "linear/linear.h"
#include "model/model.h"

/* How many at once: 8 MiB of logits, and 128 rows at least, so that products are efficient. */
int64_t plsh_loss_rows(int64_t vocabulary);

/* The rows of a pass, and where the gradients of their loss go. */
typedef struct plsh_loss {
    int64_t rows;
    const float *h;         /* [rows][hidden] */
    const int32_t *targets; /* [rows]; -1: a row that is not scored */
    double divisor;         /* gradients are those of the sum of losses divided by it */
    float *dh;              /* [rows][hidden], or NULL: the gradient of h */
    float *dw;              /* [vocabulary][hidden], or NULL: the gradient of W is added */
    float *logits;          /* [plsh_loss_rows][vocabulary], scratch */
} plsh_loss;

/* The sum of the losses of the scored rows, and their gradients. */
double plsh_loss_run(const plsh_linear_engine *engine, const plsh_model *model,
                     const plsh_loss *of);

#endif
