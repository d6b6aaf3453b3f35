/* model: the modules after the layers of an encoder, from its files. */
#ifndef PLSH_MODEL_MODULES_H
#define PLSH_MODEL_MODULES_H

#include "formats/json.h"
#include "model/config.h"
#include "plsh/sentence.h"

#define PLSH_MODULES_FILE "modules.json"
#define PLSH_POOLING_FOLDER "1_Pooling" /* the folder that sentence-transformers writes, */
#define PLSH_POOLING_FILE "1_Pooling/config.json" /* and the file that names the pooling */
#define PLSH_SENTENCE_FILE "sentence_bert_config.json"
#define PLSH_PROMPTS_FILE "config_sentence_transformers.json"

typedef enum plsh_module_kind {
    PLSH_MODULE_TRANSFORMER,
    PLSH_MODULE_POOLING,
    PLSH_MODULE_DENSE,
    PLSH_MODULE_LAYER_NORM,
    PLSH_MODULE_NORMALIZE,
    PLSH_MODULE_DROPOUT
} plsh_module_kind;

typedef enum plsh_module_activation {
    PLSH_MODULE_TANH,
    PLSH_MODULE_IDENTITY,
    PLSH_MODULE_RELU,
    PLSH_MODULE_GELU,
    PLSH_MODULE_SILU,
    PLSH_MODULE_SIGMOID
} plsh_module_activation;

/* A module after the pooling. */
typedef struct plsh_module {
    plsh_module_kind kind;
    char *folder; /* where its weights are */
    int64_t in, out;
    bool bias;
    plsh_module_activation activation;
} plsh_module;

enum { PLSH_MODULES_MOST = 16 };

typedef struct plsh_modules {
    bool listed;          /* by a modules.json */
    plsh_pooling pooling; /* PLSH_POOLING_COUNT: the files name none */
    bool moved;           /* the pooling's folder has another name than 1_Pooling */
    bool without_prompt;  /* the pooling leaves the prompt's tokens out */
    plsh_module module[PLSH_MODULES_MOST];
    size_t count;
    int64_t columns; /* of a row after the last module */
    int64_t longest; /* tokens of a text; 0: the files name no limit */
    bool lower_case;
    int64_t kept;         /* columns that are kept; 0: all */
    json_t *prompts;      /* texts by their names; NULL: none */
    char *default_prompt; /* its name; NULL: none */
} plsh_modules;

/* A configuration whose `hidden` is 0 is one of a family that is not known: widths are not
 * checked. */
plsh_status plsh_modules_read(const plsh_weights *weights, const plsh_model_config *config,
                              plsh_modules *out, plsh_error *error);
void plsh_modules_free(plsh_modules *modules);

/* Refuses what a conversion would drop, and names it: modules with weights, which are not copied;
 * for a GGUF, which can store only a pooling, all else that changes rows. */
plsh_status plsh_modules_check_convert(const plsh_modules *modules, const char *folder,
                                       bool to_gguf, plsh_error *error);

/* The number of <architecture>.pooling_type in a GGUF; -1: it has none for this one. */
int64_t plsh_pooling_gguf_type(plsh_pooling pooling);

#endif
