/* cli: the commands, one file each. A new one is declared here and listed in main.c. */
#ifndef PLSH_CLI_COMMANDS_H
#define PLSH_CLI_COMMANDS_H

#include "cli/command.h"

extern const cli_command cli_command_attend;
extern const cli_command cli_command_bench;
extern const cli_command cli_command_draw;
extern const cli_command cli_command_error;
extern const cli_command cli_command_info;
extern const cli_command cli_command_norms;
extern const cli_command cli_command_plan;
extern const cli_command cli_command_report;

#if PLSH_WITH_LM
extern const cli_command cli_command_classify;
extern const cli_command cli_command_convert;
extern const cli_command cli_command_embed;
extern const cli_command cli_command_forward;
extern const cli_command cli_command_generate;
extern const cli_command cli_command_perplexity;
extern const cli_command cli_command_rerank;
extern const cli_command cli_command_tokenize;
extern const cli_command cli_command_train;
#endif
#if PLSH_WITH_SERVE
extern const cli_command cli_command_serve;
#endif

#endif
