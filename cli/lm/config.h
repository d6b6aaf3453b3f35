/* cli: options of a command from a JSON file, and as names and values. */
#ifndef PLSH_CLI_LM_CONFIG_H
#define PLSH_CLI_LM_CONFIG_H

#include "cli/command.h"
#include "plsh/train.h"

/* {"lr": 1e-3, "text": "a.txt", "resume": true, "sigma": [4, 8]}: names without dashes. */
int cli_config_read(const cli_command *command, const char *path, void *settings);

/* Names and values of options; the list ends before its last places, which others may fill. */
typedef struct cli_settings {
    plsh_train_setting list[128];
    size_t count, used; /* settings; bytes of text */
    char text[4096];    /* the values, each with a zero at its end */
} cli_settings;

/* Adds all options that vary by no more than `most`. */
int cli_config_settings(const cli_command *command, const void *given, cli_varies most,
                        cli_settings *out);

#endif
