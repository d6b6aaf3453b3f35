/* fuzz: GGUF files, their metadata in all its types, and configurations of models from it. */
#include "fuzz/weights_walk.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk_arrays(const plsh_weights *weights, const plsh_metadata *metadata) {
    const size_t count = plsh_metadata_length(weights, metadata->key);
    uint64_t sum = count;
    fail_if(count > metadata->size + 1);
    plsh_string *strings = calloc(count + 1, sizeof *strings);
    int64_t *integers = calloc(count + 1, sizeof *integers);
    double *numbers = calloc(count + 1, sizeof *numbers);
    if (plsh_metadata_strings(weights, metadata->key, strings, NULL) == PLSH_STATUS_OK)
        for (size_t i = 0; i < count; i++)
            sum += strings[i].length > 0 ? (uint64_t)strings[i].bytes[strings[i].length - 1] : 1;
    if (plsh_metadata_integers(weights, metadata->key, integers, NULL) == PLSH_STATUS_OK)
        for (size_t i = 0; i < count; i++) sum += (uint64_t)integers[i];
    plsh_metadata_numbers(weights, metadata->key, numbers, NULL);
    free(strings);
    free(integers);
    free(numbers);
    return sum;
}

static uint64_t walk(const plsh_weights *weights, const uint8_t *bytes, size_t size) {
    uint64_t sum = walk_tensors(weights, bytes, size);
    for (size_t i = 0; i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *metadata = plsh_metadata_at(weights, i);
        int64_t integer = 0;
        double number = 0.0;
        bool truth = false;
        plsh_string string = {"", 0};
        fail_if(plsh_metadata_find(weights, metadata->key) != metadata);
        plsh_metadata_integer(weights, metadata->key, INT64_MIN, INT64_MAX, &integer, NULL);
        plsh_metadata_number(weights, metadata->key, &number, NULL);
        plsh_metadata_bool(weights, metadata->key, &truth, NULL);
        plsh_metadata_string(weights, metadata->key, &string, NULL);
        sum += (uint64_t)integer + truth + string.length;
        if (metadata->is_array) sum += walk_arrays(weights, metadata);
    }
    plsh_model_config config;
    if (plsh_weights_form_of(weights) == PLSH_WEIGHTS_GGUF)
        sum += plsh_model_config_gguf(weights, "input", &config, NULL);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse_twice(data, size, walk);
    return 0;
}
