/* cli: which attention the layers of a model run, in words. */
#ifndef PLSH_CLI_LM_DESCRIBE_H
#define PLSH_CLI_LM_DESCRIBE_H

#include "cli/lm/model.h"

/* Fills in model->said: which layers do what, and what the model's own attention is where they do
 * something else. */
int cli_model_describe(const cli_lm *options, cli_model *model);

/* Writes it into a folder as attention.txt: what a model was trained with, of which all commands
 * that run it otherwise remind. */
int cli_model_remember(const cli_model *model, const char *folder);

/* Says it on stderr: where the work begins, so that a command that fails before says one line. */
void cli_model_announce(const cli_model *model);

#endif
