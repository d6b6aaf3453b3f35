/* fuzz: .npy files: what is read accounts for every byte, reads the same twice, and survives being
 * turned into floats. */
#include "plsh/io.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail_if(bool wrong) {
    if (wrong) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    plsh_npy array, again;
    plsh_error error = {.message = ""};
    const plsh_status status = plsh_npy_parse(data, size, "input", &array, &error);
    fail_if(plsh_npy_parse(data, size, "input", &again, NULL) != status);
    if (status != PLSH_STATUS_OK) {
        fail_if(array.data != NULL || again.data != NULL || error.message[0] == '\0');
        return 0;
    }
    const size_t bytes = array.count * plsh_dtype_size(array.type);
    size_t count = 1;
    fail_if(array.rank < 0 || array.rank > PLSH_NPY_RANK || bytes > size);
    for (int i = 0; i < array.rank; i++) count *= (size_t)array.shape[i];
    fail_if(count != array.count || again.count != count);
    fail_if(bytes > 0 && memcmp(array.data, again.data, bytes) != 0);
    fail_if(bytes > 0 && memcmp(array.data, data + size - bytes, bytes) != 0);
    if (plsh_npy_to_float32(&array, &error) == PLSH_STATUS_OK)
        fail_if(array.type != PLSH_DTYPE_FLOAT32 || array.count != count);
    plsh_npy_free(&array);
    plsh_npy_free(&again);
    return 0;
}
