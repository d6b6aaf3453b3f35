/* fuzz: whole models: config.json with weights, an index and its files, a GGUF in one or two parts,
 * an adapter, slopes, a tokenizer; what opens also runs. */
#include "fuzz/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_files files;
    plsh_model *model;
    plsh_tokenizer *tokenizer;
    plsh_model_ends ends;
    plsh_sentence *sentence;
    model_files_write(&files, data, size);
    const plsh_model_options options = {.adapter = files.has_adapter ? files.adapter : NULL,
                                        .threads = 1};
    const plsh_status status = plsh_model_open(&model, files.model, &options, NULL);
    fail_if((status == PLSH_STATUS_OK) != (model != NULL));
    if (model) {
        run_model(model);
        plsh_model_checksum(model);
        if (plsh_model_end_tokens(model, &ends, NULL) == PLSH_STATUS_OK)
            fail_if(ends.count < 0 || ends.count > PLSH_MODEL_ENDS_MOST);
        const plsh_status opened = plsh_sentence_open(&sentence, model, PLSH_POOLING_COUNT, NULL);
        fail_if((opened == PLSH_STATUS_OK) != (sentence != NULL));
        plsh_sentence_close(sentence);
    }
    plsh_model_close(model);
    plsh_tokenizer_open(&tokenizer, files.model, NULL);
    plsh_tokenizer_free(tokenizer);
    model_files_remove(&files);
    return 0;
}
