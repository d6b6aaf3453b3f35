/* cli: plsh generate --prompts: several prompts, whose texts are generated together. */
#ifndef PLSH_CLI_LM_PROMPTS_H
#define PLSH_CLI_LM_PROMPTS_H

#include "cli/lm/model.h"

#include <signal.h>

/* What generate has opened and was asked for. */
typedef struct cli_prompts {
    const cli_lm *options;
    const cli_model *model;
    const plsh_model_ends *ends;
    const plsh_chat *chat; /* NULL: prompts are continued as they stand */
    const char *system;    /* NULL: none */
    const char *path;      /* lines, or JSON lines, CSV or TSV by its name */
    const plsh_string *stops;
    size_t stop_count;
    plsh_sampler sampler;
    double penalty;
    int64_t tokens;
    bool begins, special, ignore_end;
    const volatile sig_atomic_t *interrupted; /* ends all texts where they are */
} cli_prompts;

/* Generates and prints them in the order of the prompts; exit code. */
int cli_prompts_generate(const cli_prompts *given);

#endif
