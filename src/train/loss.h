/* train: the head and the loss, together: logits exist for a few rows at a time only.
 *
 *     z_r = W h_r,   loss = mean over the scored rows of log sum_c exp(z_rc) - z_r,target
 *     dz_rc = (softmax(z_r)_c - [c = target]) / rows;   dh_r = W^T dz_r;   dW += dz_r h_r^T */
#ifndef PLSH_TRAIN_LOSS_H
#define PLSH_TRAIN_LOSS_H

#include "linear/linear.h"

/* How many at once: 8 MiB of logits, and 128 rows at least, so that products are efficient. */
int64_t plsh_loss_rows(int64_t vocabulary);

/* h [rows][hidden], targets[rows] (-1: a row that is not scored); dh, where it is not NULL, takes
 * its gradient, and dw, where it is not NULL, is added to. logits: [plsh_loss_rows][vocabulary].
 * Returns the sum of the losses of the scored rows; gradients are those of that sum divided by
 * `divisor`. */
double plsh_loss_run(const plsh_linear_engine *engine, const plsh_linear *head, const float *h,
                     const int32_t *targets, int64_t rows, double divisor, float *dh, float *dw,
                     float *logits);

#endif
