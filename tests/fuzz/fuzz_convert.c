/* fuzz: conversions of whole models into every form and type. The first byte chooses them. What
 * opens and is converted opens again, and has the same shapes. */
#include "fuzz/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_converted(const model_files *files, const char *out) {
    plsh_model *before, *after;
    plsh_error error = {0};
    const plsh_model_options options = {.threads = 1};
    if (plsh_model_open(&before, files->model, &options, NULL) != PLSH_STATUS_OK) return;
    if (plsh_model_open(&after, out, &options, &error) != PLSH_STATUS_OK) {
        fprintf(stderr, "converted, and does not open: %s\n", error.message);
        abort();
    }
    const plsh_model_facts x = plsh_model_describe(before), y = plsh_model_describe(after);
    fail_if(x.layers != y.layers || x.hidden != y.hidden || x.heads != y.heads ||
            x.kv_heads != y.kv_heads || x.head_dim != y.head_dim || x.vocabulary != y.vocabulary);
    run_model(after);
    plsh_model_close(before);
    plsh_model_close(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const plsh_weight_type types[] = {PLSH_WEIGHT_F32, PLSH_WEIGHT_F16, PLSH_WEIGHT_BF16,
                                             PLSH_WEIGHT_Q8_0, PLSH_WEIGHT_Q4_1};
    model_files files;
    char out[256];
    if (size == 0) return 0;
    model_files_write(&files, data + 1, size - 1);
    snprintf(out, sizeof out, "%.120s/%s", files.folder, data[0] & 1 ? "out.gguf" : "out");
    const plsh_convert_options options = {.model = files.model,
                                          .adapter = files.has_adapter ? files.adapter : NULL,
                                          .type = types[(data[0] >> 1) % 5],
                                          .out = out};
    const plsh_status status = plsh_convert(&options, NULL, NULL);
    if (status == PLSH_STATUS_OK)
        check_converted(&files, out);
    else
        fail_if(access(out, F_OK) == 0);
    model_files_remove(&files);
    return 0;
}
