/* model: what single causal families add to a configuration: fields that no table can read. */
#ifndef PLSH_MODEL_CONFIG_CAUSAL_H
#define PLSH_MODEL_CONFIG_CAUSAL_H

#include "model/config_fields.h"

plsh_status plsh_config_mpt(const json_t *root, const char *what, plsh_model_config *config,
                            plsh_error *error);
plsh_status plsh_config_falcon(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error);

#endif
