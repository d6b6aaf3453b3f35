/* cli: the options of plsh train. */
#ifndef PLSH_CLI_LM_TRAIN_OPTIONS_H
#define PLSH_CLI_LM_TRAIN_OPTIONS_H

#include "cli/lm/mesh.h"

typedef struct cli_train_data {
    const char *fresh, *base, *family, *adapter, *tokenizer, *text, *tokens, *out, *config;
    int order; /* 0: of the text, 1: rows shuffled */
    uint64_t order_seed;
} cli_train_data;

typedef struct cli_train_steps {
    int64_t context, batch, accumulate, steps;
    double epochs, lr, warmup, weight_decay, beta1, beta2, eps, clip, dropout;
    int schedule; /* a plsh_schedule_shape */
    int draws;    /* 0: new, 1: kept */
    int compute;  /* 0: float32, 1: bfloat16 */
    bool decay_matrices, recompute, keep_attention, learn_slopes;
    int64_t patience;
    const char *mesh;
} cli_train_steps;

typedef struct cli_train_lora {
    int64_t rank;
    double alpha, dropout;
    cli_words targets;
} cli_train_lora;

typedef struct cli_train_records {
    int64_t checkpoint_every, keep, eval_every, eval_limit;
    bool resume;
    const char *from, *eval_text, *log, *plot;
} cli_train_records;

typedef struct cli_train_settings {
    cli_train_data data;
    cli_train_steps steps;
    cli_train_lora lora;
    cli_train_records records;
    cli_lm lm;
} cli_train_settings;

enum {
    CLI_TRAIN_DATA_COUNT = 11,
    CLI_TRAIN_STEPS_COUNT = 22,
    CLI_TRAIN_LORA_COUNT = 4,
    CLI_TRAIN_RECORDS_COUNT = 9
};
extern const cli_option cli_train_data_table[CLI_TRAIN_DATA_COUNT];
extern const cli_option cli_train_steps_table[CLI_TRAIN_STEPS_COUNT];
extern const cli_option cli_train_lora_table[CLI_TRAIN_LORA_COUNT];
extern const cli_option cli_train_records_table[CLI_TRAIN_RECORDS_COUNT];

/* Refuses options that exclude each other; CLI_USAGE after a message. */
int cli_train_check(const cli_train_settings *given);

#endif
