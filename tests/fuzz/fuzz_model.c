/* fuzz: whole models: config.json with weights, an index and its files, a GGUF in one or two parts,
 * pytorch_model.bin, an adapter, slopes, a tokenizer, a chat template, the modules of
 * sentence-transformers; what opens also runs. */
#include "fuzz/model_files.h"

/* The row of a text of two tokens, whose hidden states may be anything. */
static void run_sentence(const plsh_sentence *sentence, const plsh_model *model) {
    const int64_t hidden = plsh_model_describe(model).hidden;
    const plsh_sentence_facts facts = plsh_sentence_describe(sentence);
    float *memory = calloc((size_t)(2 * hidden + facts.columns), sizeof *memory);
    fail_if(!memory || facts.columns < 1);
    if (facts.pooling != PLSH_POOLING_NONE)
        plsh_sentence_row(sentence, memory, 2, PLSH_NORMALISE_AS_ASKED, memory + 2 * hidden, NULL);
    free(memory);
}

/* The turns of a conversation as tokens. */
static void run_chat(const plsh_model *model, const plsh_tokenizer *tokenizer) {
    const plsh_chat_message message = {"user", {"a b", 3}};
    plsh_token_ids ids = {0};
    plsh_chat *chat;
    const plsh_status status = plsh_chat_open(&chat, model, tokenizer, NULL);
    fail_if((status == PLSH_STATUS_OK) != (chat != NULL));
    if (chat) plsh_chat_ids(chat, &message, 1, true, &ids, NULL);
    for (size_t i = 0; i < ids.count; i++)
        fail_if(ids.ids[i] < 0 || ids.ids[i] >= plsh_tokenizer_size(tokenizer));
    plsh_token_ids_free(&ids);
    plsh_chat_close(chat);
}

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
        if (sentence) run_sentence(sentence, model);
        plsh_sentence_close(sentence);
    }
    plsh_tokenizer_open(&tokenizer, files.model, NULL);
    if (model && tokenizer) run_chat(model, tokenizer);
    plsh_tokenizer_free(tokenizer);
    plsh_model_close(model);
    model_files_remove(&files);
    return 0;
}
