/* formats: adapter_config.json. */
#ifndef PLSH_FORMATS_ADAPTER_H
#define PLSH_FORMATS_ADAPTER_H

#include "plsh/status.h"

typedef struct plsh_adapter_config {
    int64_t rank;
    double scale; /* alpha / rank, or alpha / sqrt(rank) */
} plsh_adapter_config;

/* `what` names the text in messages. */
plsh_status plsh_adapter_config_parse(const char *text, size_t length, const char *what,
                                      plsh_adapter_config *config, plsh_error *error);

#endif
