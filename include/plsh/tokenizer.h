/* plsh/tokenizer.h - text to token ids and back, as the Hugging Face tokenizers library does it.
 *
 * A tokenizer is read from a tokenizer.json or from a GGUF file. The families: byte-level BPE
 * (GPT-2, Llama 3, Qwen, SmolLM, BLOOM, Falcon, ..), BPE over characters with byte fallback (Llama
 * 2, Mistral), WordPiece (BERT, MiniLM, Jina). A file with an unsupported part (another model,
 * normalizer, pre-tokenizer, post-processor, decoder, a dropout) is refused; the message names it.
 * "truncation" and "padding" of a tokenizer.json concern batches and are not applied.
 *
 *     plsh_tokenizer *tokenizer;
 *     plsh_token_ids ids = {0};
 *     plsh_tokenizer_open(&tokenizer, "model/tokenizer.json", &error);
 *     plsh_tokenizer_encode(tokenizer, "Hello", 5, true, &ids, &error);
 *
 * A tokenizer is constant once made: any number of threads may use one at the same time. Lists of
 * ids, texts and streams belong to one thread at a time. */
#ifndef PLSH_TOKENIZER_H
#define PLSH_TOKENIZER_H

#include "plsh/status.h"
#include "plsh/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_tokenizer plsh_tokenizer;

/* `path` is a folder with a tokenizer.json, such a file, a .safetensors file beside one, or a
 * .gguf. A tokenizer_config.json beside a tokenizer.json names the tokens that begin, end and pad a
 * text. On failure *out is NULL, and the message names the file and the part of it that is refused.
 */
PLSH_API plsh_status plsh_tokenizer_open(plsh_tokenizer **out, const char *path, plsh_error *error);

/* The same from a tokenizer.json in memory; `name` is for messages. */
PLSH_API plsh_status plsh_tokenizer_parse(plsh_tokenizer **out, const void *json, size_t size,
                                          const char *name, plsh_error *error);

/* The same from an open GGUF file, which may be closed afterwards. */
PLSH_API plsh_status plsh_tokenizer_read_gguf(plsh_tokenizer **out, const plsh_weights *weights,
                                              const char *name, plsh_error *error);

/* NULL is fine. */
PLSH_API void plsh_tokenizer_free(plsh_tokenizer *tokenizer);

/* ---- Text to ids ---- */

/* A list that calls append to. Initialise it with zeros; free it at the end. */
typedef struct plsh_token_ids {
    int32_t *ids;
    size_t count, capacity;
} plsh_token_ids;

PLSH_API void plsh_token_ids_free(plsh_token_ids *ids);

/* Appends the ids of a text of `length` bytes, which may hold zero bytes. Added tokens ("<s>",
 * "<|im_start|>") that stand in the text become their ids in any case; `special` adds those that
 * the file's post-processor puts around a text ([CLS] and [SEP], <s>). The text is UTF-8; every
 * maximal part that is not valid UTF-8 becomes U+FFFD, as with Python's errors="replace".
 *
 * Takes about length * log(length) at worst, and memory in proportion to the text. Fails where a
 * character has no token and the file's unknown token is missing. */
PLSH_API plsh_status plsh_tokenizer_encode(const plsh_tokenizer *tokenizer, const char *text,
                                           size_t length, bool special, plsh_token_ids *out,
                                           plsh_error *error);

/* A part of a text that is made of a template and of messages. */
typedef struct plsh_text_part {
    const char *bytes; /* UTF-8; a template's has to be valid */
    size_t length;
    bool special; /* of the template: special tokens in it become their ids. In a message they are
                     plain text, so that a message cannot end its turn */
} plsh_text_part;

/* Appends the ids of the parts as of one text: words may begin in one part and end in the next.
 * Adds no tokens around it. Some vocabularies have special tokens among their words. Text of a
 * message that would become such a token is refused. */
PLSH_API plsh_status plsh_tokenizer_encode_parts(const plsh_tokenizer *tokenizer,
                                                 const plsh_text_part *parts, size_t count,
                                                 plsh_token_ids *out, plsh_error *error);

/* Appends the ids of two texts as the file's template for pairs joins them, and to `types`, unless
 * it is NULL, the type of each token: <s> first </s></s> second </s>. `most`, where it is not 0, is
 * the largest number of tokens: the end of the second text is left out. A tokenizer of a GGUF, or
 * without a template for pairs, is refused. */
PLSH_API plsh_status plsh_tokenizer_encode_pair(const plsh_tokenizer *tokenizer, plsh_string first,
                                                plsh_string second, size_t most,
                                                plsh_token_ids *out, plsh_token_ids *types,
                                                plsh_error *error);

/* Appends the tokens that the file's post-processor puts before a text (<s>), and not those after
 * it: the beginning of a prompt, as in llama.cpp and transformers. */
PLSH_API plsh_status plsh_tokenizer_begin(const plsh_tokenizer *tokenizer, plsh_token_ids *out,
                                          plsh_error *error);

/* ---- Ids to text ---- */

/* Bytes that calls append to, followed by a zero byte. Initialise it with zeros; free it at the
 * end. */
typedef struct plsh_token_text {
    char *bytes; /* NULL while nothing was appended */
    size_t length, capacity;
} plsh_token_text;

PLSH_API void plsh_token_text_free(plsh_token_text *text);

/* Appends the text of ids; `skip_special` leaves the special tokens out. Unknown ids give no text.
 * The text is valid UTF-8: invalid bytes become U+FFFD, one per maximal part (byte-level), or one
 * per byte of a run (byte fallback). */
PLSH_API plsh_status plsh_tokenizer_decode(const plsh_tokenizer *tokenizer, const int32_t *ids,
                                           size_t count, bool skip_special, plsh_token_text *out,
                                           plsh_error *error);

/* Decodes one id at a time, while a model generates them. Incomplete characters are held back until
 * all their bytes are known. The pieces together equal the text of all ids, except for invalid
 * UTF-8: text already returned stays, even if a later byte would have changed its decoding. The
 * tokenizer has to outlive the stream. */
typedef struct plsh_token_stream plsh_token_stream;

PLSH_API plsh_status plsh_token_stream_create(plsh_token_stream **out,
                                              const plsh_tokenizer *tokenizer, bool skip_special,
                                              plsh_error *error);
PLSH_API void plsh_token_stream_free(plsh_token_stream *stream);

/* Begins a text that continues a prompt, whose ids are given. The next ids are decoded as a
 * continuation of the prompt's last tokens, so that the first new word keeps its leading blank.
 * After a special token (with skip_special) a new text begins, as always. */
PLSH_API plsh_status plsh_token_stream_follow(plsh_token_stream *stream, const int32_t *ids,
                                              size_t count, plsh_error *error);

/* Appends the text that this id completes: often a word, sometimes nothing. */
PLSH_API plsh_status plsh_token_stream_next(plsh_token_stream *stream, int32_t id,
                                            plsh_token_text *out, plsh_error *error);

/* Appends what is still held back, and begins a new text. */
PLSH_API plsh_status plsh_token_stream_finish(plsh_token_stream *stream, plsh_token_text *out,
                                              plsh_error *error);

/* ---- The vocabulary ---- */

/* One above the largest id that encoding may give. */
PLSH_API int64_t plsh_tokenizer_size(const plsh_tokenizer *tokenizer);

/* The id of a token as the file spells it ("\xC4\xA0the" for " the" of a byte-level vocabulary), or
 * -1. */
PLSH_API int32_t plsh_tokenizer_find(const plsh_tokenizer *tokenizer, const char *token,
                                     size_t length);

/* The other way; NULL: no such id. It belongs to the tokenizer, and no zero byte ends it. */
PLSH_API const char *plsh_tokenizer_token(const plsh_tokenizer *tokenizer, int32_t id,
                                          size_t *length);

/* Is it one of the tokens that decoding skips? */
PLSH_API bool plsh_tokenizer_is_special(const plsh_tokenizer *tokenizer, int32_t id);

/* Tokens with a role, -1 where the files name none: from the GGUF, or from tokenizer_config.json.
 */
typedef struct plsh_token_roles {
    int32_t begin, end, pad, unknown;
} plsh_token_roles;

PLSH_API plsh_token_roles plsh_tokenizer_roles(const plsh_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif

#endif
