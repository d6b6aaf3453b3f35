/* cli: what a model's files hold, for plsh info --model. */
#ifndef PLSH_CLI_LM_HOLDS_H
#define PLSH_CLI_LM_HOLDS_H

#include "cli/options.h"

/* Prints it; exit code. */
int cli_model_holds(const char *path, const cli_common *common);

#endif
