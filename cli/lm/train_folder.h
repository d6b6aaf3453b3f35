/* cli: the folder of a run of plsh train, --out. */
#ifndef PLSH_CLI_LM_TRAIN_FOLDER_H
#define PLSH_CLI_LM_TRAIN_FOLDER_H

#include "cli/lm/train_options.h"

typedef struct cli_train_folder {
    const char *path;
    int lock;   /* the open file that keeps other runs out; -1: none yet */
    bool made;  /* it was not there before this run */
    bool begun; /* steps were made: what is in it stays, whatever happens */
} cli_train_folder;

enum { CLI_TRAIN_PATH = PLSH_CHECKPOINT_PATH };

/* "folder/name" */
int cli_train_path(char out[CLI_TRAIN_PATH], const char *folder, const char *name);

/* Makes the folder where it is missing, keeps other runs out, refuses one whose model or
 * checkpoints this run would overwrite, and puts new weights into it where they are asked for. The
 * first rank's business. */
int cli_train_folder_open(cli_train_folder *folder, const cli_train_settings *given);

/* The trained model is about to be written: from now on it is one that no run overwrites. */
void cli_train_folder_keep(const cli_train_folder *folder);

/* Lets others in; what a run made that never made a step is removed. */
void cli_train_folder_close(cli_train_folder *folder);

#endif
