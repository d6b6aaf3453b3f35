/* model: the slopes of ALiBi, one per layer and head: a family's own, or those that training
 * learned, which are in slopes.npy (float32 [layers, heads]) beside the weights or the adapter. */
#ifndef PLSH_MODEL_SLOPES_H
#define PLSH_MODEL_SLOPES_H

#include "model/model.h"

#define PLSH_SLOPES_FILE "slopes.npy"

/* model->slopes and slopes_learned. Those beside the adapter (NULL: none) come before those beside
 * the weights, which come before the standard series. */
plsh_status plsh_slopes_make(plsh_model *model, const char *adapter, plsh_error *error);

/* Writes slopes.npy into a folder. */
plsh_status plsh_slopes_save(const plsh_model *model, const char *folder, plsh_error *error);

#endif
