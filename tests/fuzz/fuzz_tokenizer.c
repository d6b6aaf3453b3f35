/* fuzz: tokenizers. The input up to its first zero byte is a tokenizer.json (where that is empty, a
 * fixed tokenizer serves), the rest a text. What it encodes is decoded, streamed, and encoded
 * again: all of it has to come out the same twice. */
#include "plsh/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Byte-level BPE with added tokens, an expression of every kind, and a decoder: most of the room.
 */
static const char fixed[] =
    "{\"added_tokens\": [{\"content\": \"<s>\", \"special\": true, \"normalized\": false},"
    "{\"content\": \" it\", \"lstrip\": true, \"rstrip\": true, \"single_word\": true}],"
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"},"
    "{\"type\": \"BertNormalizer\"}, {\"type\": \"Strip\"}]}, \"pre_tokenizer\": {\"type\":"
    "\"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\":"
    "\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|[[:punct:]&&[^.]]| "
    "?[^\\\\s\\\\w]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\": \"MergedWithPrevious\", \"invert\": true}, {\"type\": \"Metaspace\","
    "\"replacement\": \"_\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": true}]},"
    "\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 0], \"sep\": [\"b\", 1]},"
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \"a\","
    "\"start\": 1, \"stop\": 1}, {\"type\": \"ByteFallback\"}, {\"type\": \"ByteLevel\"}]},"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"u\", \"fuse_unk\": true, \"vocab\": {\"a\": 0,"
    "\"b\": 1, \"ab\": 2, \"u\": 3, \"abab\": 4, \"\\u0120\": 5, \"\\u0120a\": 6, \"t\": 7},"
    "\"merges\": [\"a b\", \"ab ab\", \"\\u0120 a\"]}}";

static void fail_if(bool wrong) {
    if (wrong) abort();
}

static void check(const plsh_tokenizer *tokenizer, const char *text, size_t length) {
    plsh_token_ids once = {0}, twice = {0};
    plsh_token_text decoded = {0}, streamed = {0};
    plsh_token_stream *stream = NULL;
    const plsh_status status = plsh_tokenizer_encode(tokenizer, text, length, true, &once, NULL);
    fail_if(status != plsh_tokenizer_encode(tokenizer, text, length, true, &twice, NULL));
    fail_if(once.count != twice.count);
    fail_if(once.count > 0 && memcmp(once.ids, twice.ids, once.count * sizeof *once.ids) != 0);
    for (size_t i = 0; i < once.count; i++)
        fail_if(once.ids[i] < 0 || once.ids[i] >= plsh_tokenizer_size(tokenizer));
    plsh_tokenizer_decode(tokenizer, once.ids, once.count, length % 2 == 0, &decoded, NULL);
    if (plsh_token_stream_create(&stream, tokenizer, length % 2 == 0, NULL) == PLSH_STATUS_OK) {
        for (size_t i = 0; i < once.count && i < 256; i++)
            plsh_token_stream_next(stream, once.ids[i], &streamed, NULL);
        plsh_token_stream_finish(stream, &streamed, NULL);
    }
    plsh_token_stream_free(stream);
    plsh_token_text_free(&decoded);
    plsh_token_text_free(&streamed);
    plsh_token_ids_free(&once);
    plsh_token_ids_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plsh_tokenizer *known;
    const char *input = (const char *)data;
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t json = end != NULL ? (size_t)(end - data) : size;
    const size_t text = end != NULL ? json + 1 : size;
    plsh_tokenizer *tokenizer = NULL;
    if (known == NULL)
        fail_if(plsh_tokenizer_parse(&known, fixed, strlen(fixed), "fixed", NULL) !=
                PLSH_STATUS_OK);
    if (json == 0)
        check(known, input + text, size - text);
    else if (plsh_tokenizer_parse(&tokenizer, input, json, "fuzz", NULL) == PLSH_STATUS_OK)
        check(tokenizer, end != NULL ? input + text : input, end != NULL ? size - text : json);
    plsh_tokenizer_free(tokenizer);
    return 0;
}
