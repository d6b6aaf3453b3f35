/* model: RoPE and sliding windows of a config.json. */
#ifndef PLSH_MODEL_CONFIG_ROPE_H
#define PLSH_MODEL_CONFIG_ROPE_H

#include "model/config_fields.h"

plsh_status plsh_config_rope(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error);

/* What YaRN multiplies cosines and sines by: 1 + 0.1 multiplier ln(factor). */
double plsh_rope_yarn_attention(double factor, double multiplier);
bool plsh_rope_yarn_is_valid(const plsh_rope_config *rope);

plsh_status plsh_config_sliding(const json_t *root, const char *what, plsh_model_config *config,
                                plsh_error *error);

#endif
