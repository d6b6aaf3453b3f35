/* fuzz: tokenizers in GGUF files. The input is such a file; a short text is encoded and decoded
 * with what it holds, and its tokenizer.json made and read: both tokenizers agree on how many
 * tokens there are. */
#include <stdlib.h>
#include <string.h>

#include "plsh/weights.h"
#include "text/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail_if(bool wrong) {
    if (wrong) abort();
}

static void use(const plsh_tokenizer *tokenizer) {
    static const char text[] = "It's  \xC3\xA9t\xC3\xA9 2024<s>!\n\n\xE6\xBC\xA2 ##x";
    plsh_token_ids ids = {0};
    plsh_token_text decoded = {0};
    plsh_tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, NULL);
    for (size_t i = 0; i < ids.count; i++)
        fail_if(ids.ids[i] < 0 || ids.ids[i] >= plsh_tokenizer_size(tokenizer));
    plsh_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded, NULL);
    plsh_token_text_free(&decoded);
    plsh_token_ids_free(&ids);
}

static void write_and_read(const plsh_weights *weights, const plsh_tokenizer *tokenizer) {
    json_t *root, *config;
    plsh_tokenizer *back = NULL;
    if (plsh_tokenizer_gguf_json(weights, &root, &config, NULL) != PLSH_STATUS_OK) return;
    char *text = json_dumps(root, 0);
    if (text != NULL &&
        plsh_tokenizer_parse(&back, text, strlen(text), "written", NULL) == PLSH_STATUS_OK) {
        fail_if(plsh_tokenizer_size(back) != plsh_tokenizer_size(tokenizer));
        use(back);
    }
    plsh_tokenizer_free(back);
    free(text);
    json_decref(root);
    json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    plsh_weights *weights = NULL;
    plsh_tokenizer *tokenizer = NULL;
    void *aligned = aligned_alloc(64, (size + 64) / 64 * 64);
    if (aligned == NULL) return 0;
    if (size > 0) memcpy(aligned, data, size);
    if (plsh_weights_parse(&weights, aligned, size, "fuzz", NULL) == PLSH_STATUS_OK &&
        plsh_weights_form_of(weights) == PLSH_WEIGHTS_GGUF &&
        plsh_tokenizer_read_gguf(&tokenizer, weights, "fuzz", NULL) == PLSH_STATUS_OK) {
        use(tokenizer);
        write_and_read(weights, tokenizer);
    }
    plsh_tokenizer_free(tokenizer);
    plsh_weights_close(weights);
    free(aligned);
    return 0;
}
