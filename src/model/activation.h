/* model: the activation inside an MLP, forward and backward. */
#ifndef PLSH_MODEL_ACTIVATION_H
#define PLSH_MODEL_ACTIVATION_H

#include <stdint.h>

#include "model/family.h"

/* y[r][c] = act(x[r][c]), c < width; with a gate y[r][c] = act(x[r][c]) x[r][width + c], x having
 * 2 * width columns. Rows follow each other without gaps. y may be x where there is no gate. */
void plsh_activation_forward(plsh_activation kind, bool gated, const float *x, float *y,
                             int64_t rows, int64_t width, int threads);

/* dx = the gradient of x, given that of y: dy[r][c] act'(x), and with a gate both halves. */
void plsh_activation_backward(plsh_activation kind, bool gated, const float *x, const float *dy,
                              float *dx, int64_t rows, int64_t width, int threads);

#endif
