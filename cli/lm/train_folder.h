/* cli: the folder of a run of plsh train, --out. */
#ifndef PLSH_CLI_LM_TRAIN_FOLDER_H
#define PLSH_CLI_LM_TRAIN_FOLDER_H

#include "cli/lm/train_options.h"

typedef struct cli_train_folder {
    const char *path;
    int lock;     /* the open file that keeps other runs out; -1: none yet */
    bool made;    /* this run made it */
    bool goes_on; /* from a checkpoint */
    bool initial; /* new weights were made */
    bool begun;   /* steps were made: its files are kept in any case */
} cli_train_folder;

enum { CLI_TRAIN_PATH = PLSH_CHECKPOINT_PATH };

/* "folder/name" */
int cli_train_path(char out[CLI_TRAIN_PATH], const char *folder, const char *name);

/* Makes the folder if it is missing, locks it against other runs, refuses one whose model or
 * checkpoints this run would overwrite, and writes new weights if asked for: to FOLDER/.initial, so
 * that FOLDER has no model before it is trained. Called by the first rank only. */
int cli_train_folder_open(cli_train_folder *folder, const cli_train_settings *given);

/* The weights of a run from scratch, for their shapes: FOLDER/.initial, or where that is gone the
 * trained ones. */
int cli_train_folder_weights(char out[CLI_TRAIN_PATH], const char *folder);

/* The trained model is in the folder: removes the initial weights. */
int cli_train_folder_finish(const cli_train_folder *folder);

/* Releases the lock; removes the files of a run that made no step. */
void cli_train_folder_close(cli_train_folder *folder);

#endif
