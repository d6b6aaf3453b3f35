/* cli: the options of every command that runs a model: the model, and its attention. */
#ifndef PLSH_CLI_LM_MODEL_H
#define PLSH_CLI_LM_MODEL_H

#include "cli/arrays.h"
#include "cli/options.h"
#include "cli/record/record.h"
#include "plsh/lm.h"

typedef struct cli_model_options {
    const char *model, *adapter, *tokenizer; /* tokenizer NULL: the model's */
    const char *family;                      /* NULL: decided by rules from its files */
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

/* The table ends with the options of caches, which encoders and embedders do not have. */
enum { CLI_ENCODER_COUNT = 4, CLI_MODEL_COUNT = 6, CLI_ATTENTION_COUNT = 3 };
extern const cli_option cli_model_table[CLI_MODEL_COUNT];
extern const cli_option cli_attention_table[CLI_ATTENTION_COUNT];

#define CLI_LM_GROUPS(settings)                                                                    \
    CLI_GROUP("Model", cli_model_table, settings, lm.model), CLI_ATTENTION_GROUPS(settings)

#define CLI_ENCODER_GROUPS(settings)                                                               \
    {"Model", cli_model_table, CLI_ENCODER_COUNT, offsetof(settings, lm.model)},                   \
        CLI_ATTENTION_GROUPS(settings)

#define CLI_ATTENTION_GROUPS(settings)                                                             \
    CLI_GROUP("Attention", cli_attention_table, settings, lm.model),                               \
        CLI_GROUP("Methods", cli_knobs_options, settings, lm.knobs),                               \
        CLI_GROUP("Bias", cli_decays_options, settings, lm.decays),                                \
        CLI_GROUP("Partitions", cli_partitions_options, settings, lm.partitions),                  \
        CLI_GROUP("Common options", cli_common_options, settings, lm.common)

/* An open model, and the attention of its layers. */
typedef struct cli_model {
    plsh_model *owned;       /* NULL if another object owns the model, */
    const plsh_model *model; /* such as a trainer */
    const plsh_ranks *ranks; /* that share the work; NULL: this process alone */
    plsh_model_facts facts;
    plsh_tokenizer *tokenizer; /* NULL until it is asked for */
    cli_decay_list decays;
    cli_labels labels;
    plsh_head *heads;
    plsh_layer_attention *attention; /* one, or one per layer */
    int64_t attention_count;
    char *described;  /* which attention runs, in words */
    char compute[64]; /* the type in which it multiplies, in words */
    char *trained;    /* the attention of its training; NULL: not known */
} cli_model;

/* Refuses options of attention if every layer keeps its own, because they would have no effect.
 * cli_model_open calls it first. */
int cli_attention_check(const cli_lm *options);

/* Opens it. */
int cli_model_open(const cli_lm *options, cli_model *out);
void cli_model_close(cli_model *model);

/* Checks that --labels cover so many tokens of a text. */
int cli_model_fits(const cli_lm *options, const cli_model *model, int64_t tokens);

/* Prints a remark if a model with RoPE was trained on shorter texts than this. */
void cli_model_warn_context(const cli_model *model, int64_t tokens);

#define CLI_FAMILY_HELP                                                                            \
    "the family, if the files do not determine it: baichuan-13b, baichuan2-13b, baichuan-7b, "     \
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

/* The result of a command as JSON, opened as by cli_document_begin: first the model, its attention
 * and the type of its products. cli_model_document_end adds the cost of the run. */
cli_json *cli_model_document(const cli_lm *options, const cli_model *model);
int cli_model_document_end(cli_json *json, int64_t tokens, double seconds);

/* The peak memory of this process so far, in bytes. */
int64_t cli_peak_bytes(void);

/* ---- hub.c ---- */

/* The `resolve` of options that name a model: a path that exists stays; otherwise owner/name is
 * looked for in the local cache of the Hugging Face hub. */
const char *cli_hub_resolve(const char *value);

/* ---- model_info.c ---- */

/* Prints the contents of a model's files, for plsh info --model. Returns an exit code. */
int cli_model_info(const char *path, const cli_common *common);

/* ---- describe.c ---- */

/* Fills in model->described: the attention of each layer, and the model's own attention where it
 * differs. Fills in model->compute. */
int cli_model_describe(const cli_lm *options, cli_model *model);

/* Writes it into a folder as attention.txt: the attention of the training. Commands that run the
 * model with another one print a note. */
int cli_model_remember(const cli_model *model, const char *folder);

/* Prints both to stderr; the type only if it is not float32 or was asked for. A command calls it
 * when its work begins: if it fails before, it prints only its error. */
void cli_model_announce(const cli_model *model);

#endif
