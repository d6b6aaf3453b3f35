/* model: fields of config.json of single causal families that a table cannot describe. */
#ifndef PLSH_MODEL_CONFIG_CAUSAL_H
#define PLSH_MODEL_CONFIG_CAUSAL_H

#include "model/config_fields.h"

/* The reader of MPT, Baichuan, Jais, BTLM or Refact; NULL: it is another model_type. The last four
 * are in config_remote.c. */
const plsh_config_reader *plsh_config_find_causal(const char *model_type);
const plsh_config_reader *plsh_config_find_remote(const char *model_type);

plsh_status plsh_config_falcon(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error);

/* plsh_config_baichuan chooses among the four families of Baichuan: by the vocabulary and by
 * `known`, the positions according to a GGUF's key. If that is unknown: by the number of layers of
 * a GGUF, or the hidden size of a folder. Sets config->rule. */
typedef enum plsh_baichuan_positions {
    PLSH_BAICHUAN_UNKNOWN,
    PLSH_BAICHUAN_ALIBI,
    PLSH_BAICHUAN_ROPE
} plsh_baichuan_positions;
void plsh_config_baichuan(plsh_model_config *config, plsh_baichuan_positions known);

#endif
