/* Text to ids and back, whole and as a stream.
 *
 *     tokenize model/tokenizer.json "Some text"      (also a folder, or a .gguf)
 *
 * Without arguments it uses a tokenizer of a few tokens that it brings along. */
#include <stdio.h>
#include <string.h>

#include "plsh/tokenizer.h"

static const char small[] =
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"l\": 0, \"o\": 1, \"n\": 2, \"g\": 3, "
    "\"\\u0120\": 4,"
    "  \"on\": 5, \"long\": 6, \"ng\": 7, \"lo\": 8, \"\\u00c3\": 9, \"\\u00a9\": 10},"
    "  \"merges\": [\"l o\", \"n g\", \"lo ng\", \"o n\"]}}";

static int fail(const plsh_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(int argc, char **argv) {
    const char *text = argc > 2 ? argv[2] : "long longé";
    plsh_tokenizer *tokenizer;
    plsh_error error;
    plsh_status status =
        argc > 1 ? plsh_tokenizer_open(&tokenizer, argv[1], &error)
                 : plsh_tokenizer_parse(&tokenizer, small, strlen(small), "small", &error);
    if (status != PLSH_STATUS_OK) return fail(&error);

    plsh_token_ids ids = {0};
    status = plsh_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &error);
    if (status != PLSH_STATUS_OK) return fail(&error);
    for (size_t i = 0; i < ids.count; i++) {
        size_t length;
        const char *token = plsh_tokenizer_token(tokenizer, ids.ids[i], &length);
        printf("%6d  %.*s\n", (int)ids.ids[i], (int)length, token != NULL ? token : "");
    }

    /* As a model would hand them out: the two bytes of é are two tokens, and come out together. */
    plsh_token_stream *stream;
    plsh_token_text piece = {0};
    status = plsh_token_stream_create(&stream, tokenizer, true, &error);
    if (status != PLSH_STATUS_OK) return fail(&error);
    for (size_t i = 0; i < ids.count; i++) {
        piece.length = 0;
        status = plsh_token_stream_next(stream, ids.ids[i], &piece, &error);
        if (status != PLSH_STATUS_OK) return fail(&error);
        printf("[%.*s]", (int)piece.length, piece.bytes != NULL ? piece.bytes : "");
    }
    printf("\n");

    plsh_token_text_free(&piece);
    plsh_token_stream_free(stream);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(tokenizer);
    return 0;
}
