#include "base/status.h"
#include "text/tokenizer.h"
plsh_status plsh_tokenizer_open_gguf(plsh_tokenizer **out, const char *path, plsh_error *error) {
    *out = NULL;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s", path);
}
