/* fuzz: config.json of models, adapter_config.json of adapters: the same text as both. */
#include "formats/adapter.h"
#include "model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    plsh_model_config config;
    plsh_adapter_config adapter;
    const char *text = (const char *)data;
    if (plsh_model_config_json(text, size, "input", &config, NULL) == PLSH_STATUS_OK &&
        (config.family == NULL || config.layers < 1 || config.heads < 1))
        abort();
    if (plsh_adapter_config_parse(text, size, "input", &adapter, NULL) == PLSH_STATUS_OK &&
        adapter.rank < 1)
        abort();
    return 0;
}
