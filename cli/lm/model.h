/* cli: the options of every command that runs a model: which one, and how it attends. */
#ifndef PLSH_CLI_LM_MODEL_H
#define PLSH_CLI_LM_MODEL_H

#include "cli/arrays.h"
#include "cli/options.h"

#include "plsh/lm.h"

typedef struct cli_model_options {
    const char *model, *adapter, *tokenizer; /* tokenizer NULL: the model's */
    const char *family;                      /* NULL: as the rules of its files have it */
    cli_words attention;                     /* "original", or methods: one, or one per layer; none
                                                where a command has no such option: original */
    int rope;                                /* 0: keep, 1: drop */
    int64_t samples, chunk;
    int kv, compute;
    bool whole; /* texts go through the layers as a whole, as in training, not in chunks */
} cli_model_options;

/* Options of such a command, the member `lm` of its settings. */
typedef struct cli_lm {
    cli_model_options model;
    cli_knobs knobs;
    cli_decays decays;
    cli_partitions partitions;
    cli_common common;
} cli_lm;

/* The names of plsh_compute, in its order. */
const char *const *cli_compute_choices(void);

enum { CLI_MODEL_COUNT = 6, CLI_ATTENTION_COUNT = 3 };
extern const cli_option cli_model_table[CLI_MODEL_COUNT];
extern const cli_option cli_attention_table[CLI_ATTENTION_COUNT];

#define CLI_LM_GROUPS(settings)                                                                    \
    CLI_GROUP("Model", cli_model_table, settings, lm.model), CLI_ATTENTION_GROUPS(settings)

#define CLI_ATTENTION_GROUPS(settings)                                                             \
    CLI_GROUP("Attention", cli_attention_table, settings, lm.model),                               \
        CLI_GROUP("Methods", cli_knobs_options, settings, lm.knobs),                               \
        CLI_GROUP("Bias", cli_decays_options, settings, lm.decays),                                \
        CLI_GROUP("Partitions", cli_partitions_options, settings, lm.partitions),                  \
        CLI_GROUP("Common options", cli_common_options, settings, lm.common)

/* An open model, and the attention of its layers. */
typedef struct cli_model {
    plsh_model *owned;       /* NULL where it is another's, */
    const plsh_model *model; /* as that of a trainer */
    const plsh_ranks *ranks; /* that share the work; NULL: this process alone */
    plsh_model_facts facts;
    plsh_tokenizer *tokenizer; /* NULL until it is asked for */
    cli_decay_list decays;
    cli_labels labels;
    plsh_head *heads;
    plsh_layer_attention *attention; /* one, or one per layer */
    int64_t attention_count;
    char *said;       /* which attention runs, in words */
    char compute[64]; /* which numbers its products are made of, in words */
    char *trained;    /* which ran while it was trained; NULL: not told */
} cli_model;

/* Refuses options of attention that were given while every layer has its own, which they do not
 * change. cli_model_open does it first. */
int cli_attention_check(const cli_lm *options);

/* Opens it; cli/lm/describe.h says which attention its layers run. */
int cli_model_open(const cli_lm *options, cli_model *out);
void cli_model_close(cli_model *model);

/* Do --labels reach over so many tokens of a text? */
int cli_model_fits(const cli_lm *options, const cli_model *model, int64_t tokens);

/* A remark where so many tokens are more than a model with RoPE was trained on. */
void cli_model_warn_context(const cli_model *model, int64_t tokens);

#define CLI_FAMILY_HELP                                                                            \
    "another family, where no file tells it: baichuan-13b, baichuan2-13b, baichuan-7b, "           \
    "baichuan2-7b; gpt_refact, gpt_refact-rmsnorm"

/* Its tokenizer: in the folder, or in the GGUF. */
int cli_model_tokenizer(const cli_lm *options, cli_model *model);

/* Options for a session: attention, cache type, chunk. */
plsh_session_options cli_model_session(const cli_lm *options, const cli_model *model);

/* Tokens from --ids (int32 .npy [n] or [1, n]) or from --text (a file, "-" for stdin, or a file of
 * tokens that plsh train made), owned. */
typedef struct cli_ids {
    int32_t *values;
    int64_t count;
} cli_ids;

int cli_ids_read(const cli_lm *options, cli_model *model, const char *ids, const char *text,
                 bool special, cli_ids *out);

/* All bytes of a file, or of stdin for "-". */
int cli_text_read(const char *path, char **bytes, size_t *length);

/* The largest memory this process had, in bytes. */
int64_t cli_peak_bytes(void);

#endif
