/* cli: plsh generate --prompts: several prompts, whose texts are generated together. */
#ifndef PLSH_CLI_LM_PROMPTS_H
#define PLSH_CLI_LM_PROMPTS_H

#include "cli/lm/model.h"
#include "cli/lm/prompt.h"

#include <signal.h>

/* The model that generate has opened, and the options it was given. */
typedef struct cli_prompts {
    const cli_lm *options;
    const cli_model *model;
    const plsh_chat *chat; /* NULL: prompts are continued as they stand */
    const char *system;    /* NULL: none */
    const char *path;      /* lines, or JSON lines, CSV or TSV by its name */
    cli_rules rules;
    bool begins, special;
    const volatile sig_atomic_t *interrupted; /* ends all texts where they are */
} cli_prompts;

/* Generates and prints them in the order of the prompts; exit code. */
int cli_prompts_generate(const cli_prompts *given);

#endif
