/* text: decoding one id at a time.
 *
 * The ids of the last piece that was handed out stay (`prefix` is their text): the text of a token
 * depends on the token before it (a leading blank, a continuation). The new text is what follows
 * the prefix when all of them are decoded; while it ends in U+FFFD, a character may lack bytes.
 */
#include "text/tokenizer.h"

#include <string.h>

#include "base/memory.h"

/* A character has at most 4 bytes, so that no more ids than that can wait for the rest of one; if a
 * model generates only invalid bytes, the decoding must not restart from the beginning for every
 * token. */
enum { MOST_WAITING = 64 };

struct plsh_token_stream {
    const plsh_tokenizer *tokenizer;
    bool skip_special;
    plsh_token_ids ids;
    size_t prefix_ids; /* the first of these: the prefix is their text */
    plsh_token_text prefix, text;
};

plsh_status plsh_token_stream_create(plsh_token_stream **out, const plsh_tokenizer *tokenizer,
                                     bool skip_special, plsh_error *error) {
    plsh_status status = plsh_allocate((void **)out, 1, sizeof **out, "a stream", error);
    if (status != PLSH_STATUS_OK) return status;
    (*out)->tokenizer = tokenizer;
    (*out)->skip_special = skip_special;
    return PLSH_STATUS_OK;
}

void plsh_token_stream_free(plsh_token_stream *stream) {
    if (stream == NULL) return;
    plsh_token_ids_free(&stream->ids);
    plsh_token_text_free(&stream->prefix);
    plsh_token_text_free(&stream->text);
    plsh_release(stream);
}

/* An id that gives text. */
static bool is_shown(const plsh_token_stream *s, int32_t id) {
    size_t length;
    return plsh_tokenizer_token(s->tokenizer, id, &length) != NULL &&
           !(s->skip_special && plsh_tokenizer_is_special(s->tokenizer, id));
}

/* The text of the ids from number `begin` on. */
static plsh_status decode_from(plsh_token_stream *s, size_t begin, plsh_token_text *out,
                               plsh_error *error) {
    out->length = 0;
    return plsh_tokenizer_decode(s->tokenizer, s->ids.ids + begin, s->ids.count - begin,
                                 s->skip_special, out, error);
}

static bool ends_broken(const plsh_token_text *text) {
    return text->length >= 3 && memcmp(text->bytes + text->length - 3, "\xEF\xBF\xBD", 3) == 0;
}

static plsh_status append(plsh_token_text *out, const char *bytes, size_t length,
                          plsh_error *error) {
    plsh_text text = {.bytes = out->bytes, .length = out->length, .capacity = out->capacity};
    plsh_text_append(&text, bytes, length);
    *out = (plsh_token_text){text.bytes, text.length, text.capacity};
    return plsh_text_status(&text, error);
}

/* Returns the text after the prefix. If the text of the prefix has changed (bytes of a character
 * that are now part of an invalid sequence), the new ids are decoded alone. */
static plsh_status hand_out(plsh_token_stream *s, plsh_token_text *out, plsh_error *error) {
    const size_t known = s->prefix.length;
    if (s->text.length >= known &&
        (known == 0 || memcmp(s->text.bytes, s->prefix.bytes, known) == 0))
        return append(out, s->text.bytes + known, s->text.length - known, error);
    const plsh_status status = decode_from(s, s->prefix_ids, &s->text, error);
    return status == PLSH_STATUS_OK ? append(out, s->text.bytes, s->text.length, error) : status;
}

plsh_status plsh_token_stream_follow(plsh_token_stream *s, const int32_t *ids, size_t count,
                                     plsh_error *error) {
    size_t begin = count;
    while (begin > 0 && count - begin < MOST_WAITING && is_shown(s, ids[begin - 1])) begin--;
    s->ids.count = s->prefix_ids = 0;
    s->prefix.length = 0;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = begin; i < count && status == PLSH_STATUS_OK; i++)
        status = plsh_ids_append(&s->ids, ids[i], error);
    if (status != PLSH_STATUS_OK) return status;
    s->prefix_ids = s->ids.count;
    return decode_from(s, 0, &s->prefix, error);
}

plsh_status plsh_token_stream_next(plsh_token_stream *s, int32_t id, plsh_token_text *out,
                                   plsh_error *error) {
    if (!is_shown(s, id)) return PLSH_STATUS_OK;
    plsh_status status = plsh_ids_append(&s->ids, id, error);
    if (status == PLSH_STATUS_OK) status = decode_from(s, 0, &s->text, error);
    if (status != PLSH_STATUS_OK) return status;
    const bool may_wait = s->ids.count - s->prefix_ids < MOST_WAITING;
    if (may_wait && (s->text.length <= s->prefix.length || ends_broken(&s->text)))
        return PLSH_STATUS_OK;
    status = hand_out(s, out, error);
    if (status != PLSH_STATUS_OK) return status;
    /* The new ids are the next prefix. */
    s->ids.count -= s->prefix_ids;
    memmove(s->ids.ids, s->ids.ids + s->prefix_ids, s->ids.count * sizeof *s->ids.ids);
    s->prefix_ids = s->ids.count;
    return decode_from(s, 0, &s->prefix, error);
}

plsh_status plsh_token_stream_finish(plsh_token_stream *s, plsh_token_text *out,
                                     plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (s->ids.count > s->prefix_ids) {
        status = decode_from(s, 0, &s->text, error);
        if (status == PLSH_STATUS_OK) status = hand_out(s, out, error);
    }
    s->ids.count = s->prefix_ids = 0;
    s->prefix.length = 0;
    return status;
}
