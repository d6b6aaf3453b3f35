/* model: RoPE and sliding windows of a config.json. */
#ifndef PLSH_MODEL_CONFIG_ROPE_H
#define PLSH_MODEL_CONFIG_ROPE_H

#include "model/config_fields.h"

plsh_status plsh_config_rope(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error);
plsh_status plsh_config_sliding(const json_t *root, const char *what, plsh_model_config *config,
                                plsh_error *error);

#endif
