/* cli: options of a command from a JSON file, and as one line of text. */
#ifndef PLSH_CLI_LM_CONFIG_H
#define PLSH_CLI_LM_CONFIG_H

#include "cli/command.h"

/* {"lr": 1e-3, "text": "a.txt", "resume": true, "sigma": [4, 8]}: names without dashes. */
int cli_config_read(const cli_command *command, const char *path, void *settings);

/* "name=value name=value .." of all options but those in `left_out` (NULL at its end). */
int cli_config_print(const cli_command *command, const void *settings, const char *const *left_out,
                     char *out, size_t size);

#endif
