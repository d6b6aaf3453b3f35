/* fuzz: safetensors files: whatever is opened lies inside the input, and opens the same twice. */
#include "fuzz/weights_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse_twice(data, size, walk_tensors);
    return 0;
}
