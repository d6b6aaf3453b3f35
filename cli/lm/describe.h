/* cli: which attention the layers of a model run, and in which numbers, in words. */
#ifndef PLSH_CLI_LM_DESCRIBE_H
#define PLSH_CLI_LM_DESCRIBE_H

#include "cli/lm/model.h"

/* Fills in model->said: the attention of each layer, and the model's own attention where it
 * differs. Fills in model->compute. */
int cli_model_describe(const cli_lm *options, cli_model *model);

/* Writes it into a folder as attention.txt: the attention of the training. Commands that run the
 * model with another one print a note. */
int cli_model_remember(const cli_model *model, const char *folder);

/* Prints both to stderr, compute only where it is not float32 or was asked for. Called when the
 * work begins, so that a command that fails earlier prints one line only. */
void cli_model_announce(const cli_model *model);

#endif
