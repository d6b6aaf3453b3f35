/* train: parameters to and from files, in the order of rows that Hugging Face has. */
#ifndef PLSH_TRAIN_SAVE_H
#define PLSH_TRAIN_SAVE_H

#include "train/trainer.h"

/* plsh_trainer_save of this rank alone, into a folder that has nothing of these names. */
plsh_status plsh_trainer_write(const plsh_trainer *trainer, const char *folder, plsh_error *error);

/* One parameter's part of `numbers` (values, moments) from the order in which it is stored. */
void plsh_parameter_fetch(const plsh_trainer *trainer, const plsh_parameter *parameter,
                          const float *in, float *numbers);

#endif
