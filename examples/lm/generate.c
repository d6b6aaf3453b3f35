/* Loads a model and continues a prompt, token after token.
 *
 *     generate model.gguf "Once upon a time" 40        (or a folder of Hugging Face) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"

static int fail(const plsh_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

/* Prints what a token adds to the text. */
static plsh_status print_token(plsh_token_stream *stream, int32_t token, plsh_error *error) {
    plsh_token_text piece = {0};
    plsh_status status = plsh_token_stream_next(stream, token, &piece, error);
    if (!status && piece.length > 0) fwrite(piece.bytes, 1, piece.length, stdout);
    fflush(stdout);
    plsh_token_text_free(&piece);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT [TOKENS]\n", argv[0]);
        return 2;
    }
    int tokens = argc > 3 ? atoi(argv[3]) : 40;
    plsh_error error;
    plsh_model *model = NULL;
    plsh_session *session = NULL;
    plsh_tokenizer *tokenizer = NULL;
    plsh_token_stream *stream = NULL;
    plsh_token_ids prompt = {0};
    plsh_status status = plsh_model_open(&model, argv[1], NULL, &error);
    if (!status) status = plsh_tokenizer_open(&tokenizer, argv[1], &error);
    if (!status) {
        status = plsh_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), false, &prompt, &error);
    }
    if (!status) status = plsh_session_create(&session, model, NULL, &error);
    if (!status) status = plsh_token_stream_create(&stream, tokenizer, true, &error);
    if (!status) status = plsh_token_stream_follow(stream, prompt.ids, prompt.count, &error);
    if (status) return fail(&error);

    int64_t vocabulary = plsh_model_describe(model).vocabulary;
    float *logits = malloc((size_t)vocabulary * sizeof *logits);
    plsh_sampler sampler = {.temperature = 0.8, .top_p = 0.95, .seed = 1};
    plsh_step step = {.ids = prompt.ids, .count = (int64_t)prompt.count, .logits = logits};
    int32_t token;
    for (int i = 0; logits && i < tokens && !status; i++) {
        status = plsh_session_step(session, &step, &error);
        if (!status) {
            status = plsh_sampler_choose(&sampler, logits, vocabulary, (uint64_t)i, &token, &error);
        }
        if (!status) status = print_token(stream, token, &error);
        step = (plsh_step){.ids = &token, .count = 1, .logits = logits};
    }
    printf("\n");
    free(logits);
    plsh_token_stream_free(stream);
    plsh_session_destroy(session);
    plsh_token_ids_free(&prompt);
    plsh_tokenizer_free(tokenizer);
    plsh_model_close(model);
    return status ? fail(&error) : 0;
}
