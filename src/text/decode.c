/* text: decoders. */
#include "text/decode.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

plsh_status plsh_decoders_add(plsh_decoders *d, plsh_decoder step, plsh_error *error) {
    plsh_status status = plsh_text_status(&step.content, error);
    if (status == PLSH_STATUS_OK && d->count == PLSH_DECODERS_MOST)
        status =
            plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "more than %d decoders", PLSH_DECODERS_MOST);
    if (status != PLSH_STATUS_OK) {
        plsh_text_free(&step.content);
        plsh_pattern_free(step.pattern);
        return status;
    }
    d->steps[d->count++] = step;
    return PLSH_STATUS_OK;
}

void plsh_decoders_free(plsh_decoders *d) {
    for (size_t i = 0; i < d->count; i++) {
        plsh_text_free(&d->steps[i].content);
        plsh_pattern_free(d->steps[i].pattern);
    }
    d->count = 0;
}

plsh_status plsh_token_list_end(plsh_token_list *list, plsh_error *error) {
    if (list->count == list->capacity) {
        size_t *grown;
        const size_t capacity = list->count < 8 ? 16 : 2 * list->count;
        plsh_status status =
            plsh_allocate((void **)&grown, capacity, sizeof *grown, "tokens", error);
        if (status != PLSH_STATUS_OK) return status;
        if (list->count > 0) memcpy(grown, list->ends, list->count * sizeof *grown);
        plsh_release(list->ends);
        list->ends = grown;
        list->capacity = capacity;
    }
    list->ends[list->count++] = list->bytes.length;
    return plsh_text_status(&list->bytes, error);
}

void plsh_token_list_free(plsh_token_list *list) {
    plsh_text_free(&list->bytes);
    plsh_release(list->ends);
    *list = (plsh_token_list){0};
}

/* Token number i. */
static const char *token_at(const plsh_token_list *list, size_t i, size_t *length) {
    const size_t begin = i > 0 ? list->ends[i - 1] : 0;
    *length = list->ends[i] - begin;
    return list->bytes.bytes == NULL ? "" : list->bytes.bytes + begin;
}

/* ---- decoders that see all tokens ---- */

/* Appends the bytes that a token's letters stand for. If one of its characters stands for no byte,
 * appends the token's own bytes. */
static void append_bytes(plsh_text *out, const char *token, size_t length) {
    const size_t before = out->length;
    for (size_t i = 0, size; i < length; i += size) {
        const int byte = plsh_byte_of_letter(plsh_utf8_next(token + i, &size));
        if (byte < 0) {
            out->length = before;
            plsh_text_append(out, token, length);
            return;
        }
        const char one = (char)byte;
        plsh_text_append(out, &one, 1);
    }
}

static plsh_status decode_byte_level(const plsh_token_list *in, plsh_token_list *out,
                                     plsh_error *error) {
    plsh_text bytes = {0};
    for (size_t i = 0; i < in->count; i++) {
        size_t length;
        const char *token = token_at(in, i, &length);
        append_bytes(&bytes, token, length);
    }
    plsh_utf8_append_lossy(&out->bytes, bytes.bytes, bytes.length);
    plsh_status status = plsh_text_status(&bytes, error);
    plsh_text_free(&bytes);
    return status == PLSH_STATUS_OK ? plsh_token_list_end(out, error) : status;
}

/* The value of a hexadecimal number of two digits, as Rust reads them (a plus sign may stand
 * first); -1: it is none. */
static int byte_of_hex(const char *digits) {
    int value = 0;
    for (int i = 0; i < 2; i++) {
        const char c = digits[i];
        if (c == '+' && i == 0) continue;
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + c - 'A' + 10;
        else
            return -1;
    }
    return value;
}

/* A run of bytes: one token if it is UTF-8, else one U+FFFD for each of them. */
static plsh_status end_run(plsh_text *run, plsh_token_list *out, plsh_error *error) {
    size_t invalid;
    plsh_status status = plsh_text_status(run, error);
    if (status != PLSH_STATUS_OK || run->length == 0) return status;
    plsh_utf8_valid(run->bytes, run->length, &invalid);
    if (invalid == 0) plsh_text_append(&out->bytes, run->bytes, run->length);
    for (size_t i = 0; i < run->length && invalid > 0 && status == PLSH_STATUS_OK; i++) {
        plsh_text_append(&out->bytes, "\xEF\xBF\xBD", 3);
        status = plsh_token_list_end(out, error);
    }
    plsh_text_clear(run);
    return invalid == 0 ? plsh_token_list_end(out, error) : status;
}

static plsh_status decode_byte_fallback(const plsh_token_list *in, plsh_token_list *out,
                                        plsh_error *error) {
    plsh_text run = {0};
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < in->count && status == PLSH_STATUS_OK; i++) {
        size_t length;
        const char *token = token_at(in, i, &length);
        int byte = -1;
        if (length == 6 && memcmp(token, "<0x", 3) == 0 && token[5] == '>')
            byte = byte_of_hex(token + 3);
        if (byte >= 0) {
            const char one = (char)byte;
            plsh_text_append(&run, &one, 1);
            continue;
        }
        status = end_run(&run, out, error);
        if (status != PLSH_STATUS_OK) break;
        plsh_text_append(&out->bytes, token, length);
        status = plsh_token_list_end(out, error);
    }
    if (status == PLSH_STATUS_OK) status = end_run(&run, out, error);
    plsh_text_free(&run);
    return status;
}

/* ---- decoders of one token at a time ---- */

/* Appends the text with every `from` replaced by `to`. */
static void append_replaced(plsh_text *out, const char *bytes, size_t length, const char *from,
                            size_t from_length, const char *to) {
    while (length > 0) {
        const char *hit = memmem(bytes, length, from, from_length);
        const size_t before = hit != NULL ? (size_t)(hit - bytes) : length;
        plsh_text_append(out, bytes, before);
        if (hit == NULL) return;
        plsh_text_append(out, to, strlen(to));
        bytes += before + from_length;
        length -= before + from_length;
    }
}

static void decode_strip(const plsh_decoder *step, const char *token, size_t length,
                         plsh_text *out) {
    const char *sign = step->content.bytes;
    const size_t size = step->content.length;
    size_t begin = 0, end = length;
    for (size_t i = 0; i < step->start && end - begin >= size; i++, begin += size)
        if (memcmp(token + begin, sign, size) != 0) break;
    for (size_t i = 0; i < step->stop && end - begin >= size; i++, end -= size)
        if (memcmp(token + end - size, sign, size) != 0) break;
    plsh_text_append(out, token + begin, end - begin);
}

static plsh_status decode_replace(const plsh_decoder *step, plsh_search *search, const char *token,
                                  size_t length, plsh_text *out, plsh_error *error) {
    plsh_matches matches = plsh_matches_begin(step->pattern, search, token, length);
    size_t done = 0, begin, end;
    for (bool found = true; length > 0;) {
        const plsh_status status = plsh_matches_next(&matches, &begin, &end, &found, error);
        if (status != PLSH_STATUS_OK) return status;
        if (!found) break;
        plsh_text_append(out, token + done, begin - done);
        plsh_text_append(out, step->content.bytes, step->content.length);
        done = end;
    }
    plsh_text_append(out, token + done, length - done);
    return PLSH_STATUS_OK;
}

/* Cleans up spaces before punctuation and English contractions: one replacement after another, in
 * the library's order. */
static void clean_up(plsh_text *text, size_t begin) {
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    plsh_text other = {0};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *from = pairs[i][0];
        if (text->length == begin ||
            memmem(text->bytes + begin, text->length - begin, from, strlen(from)) == NULL)
            continue;
        plsh_text_clear(&other);
        append_replaced(&other, text->bytes + begin, text->length - begin, from, strlen(from),
                        pairs[i][1]);
        text->length = begin;
        plsh_text_append(text, other.bytes, other.length);
    }
    if (other.failure.status != PLSH_STATUS_OK) text->failure = other.failure;
    plsh_text_free(&other);
}

static void decode_wordpiece(const plsh_decoder *step, const char *token, size_t length,
                             bool is_first, plsh_text *out) {
    const size_t before = out->length, prefix = step->content.length;
    const bool goes_on =
        length >= prefix && (prefix == 0 || memcmp(token, step->content.bytes, prefix) == 0);
    if (!is_first && !goes_on) plsh_text_append(out, " ", 1);
    const size_t skip = !is_first && goes_on ? prefix : 0;
    plsh_text_append(out, token + skip, length - skip);
    if (step->cleanup) clean_up(out, before);
}

static plsh_status decode_token(const plsh_decoder *step, plsh_search *search,
                                const plsh_token_list *in, size_t i, plsh_text *out,
                                plsh_error *error) {
    size_t length;
    const char *token = token_at(in, i, &length);
    switch (step->kind) {
    case PLSH_DECODER_STRIP: decode_strip(step, token, length, out); break;
    case PLSH_DECODER_REPLACE: return decode_replace(step, search, token, length, out, error);
    case PLSH_DECODER_METASPACE:
        append_replaced(out, token, length, step->content.bytes, step->content.length,
                        i == 0 && !step->keeps_first ? "" : " ");
        break;
    case PLSH_DECODER_WORDPIECE: decode_wordpiece(step, token, length, i == 0, out); break;
    case PLSH_DECODER_BPE:
        append_replaced(out, token, length, step->content.bytes, step->content.length,
                        i + 1 == in->count ? "" : " ");
        break;
    default: plsh_text_append(out, token, length);
    }
    return PLSH_STATUS_OK;
}

static plsh_status run_step(const plsh_decoder *step, plsh_search *search,
                            const plsh_token_list *in, plsh_token_list *out, plsh_error *error) {
    if (step->kind == PLSH_DECODER_BYTE_LEVEL) return decode_byte_level(in, out, error);
    if (step->kind == PLSH_DECODER_BYTE_FALLBACK) return decode_byte_fallback(in, out, error);
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < in->count && status == PLSH_STATUS_OK; i++) {
        status = decode_token(step, search, in, i, &out->bytes, error);
        if (status == PLSH_STATUS_OK && step->kind != PLSH_DECODER_FUSE)
            status = plsh_token_list_end(out, error);
    }
    if (status == PLSH_STATUS_OK && step->kind == PLSH_DECODER_FUSE)
        status = plsh_token_list_end(out, error);
    return status;
}

/* Without a decoder: a space between tokens. */
static plsh_status join(plsh_token_list *tokens, plsh_error *error) {
    plsh_token_list joined = {0};
    for (size_t i = 0; i < tokens->count; i++) {
        size_t length;
        const char *token = token_at(tokens, i, &length);
        if (i > 0) plsh_text_append(&joined.bytes, " ", 1);
        plsh_text_append(&joined.bytes, token, length);
    }
    plsh_token_list_free(tokens);
    *tokens = joined;
    return plsh_text_status(&tokens->bytes, error);
}

plsh_status plsh_decode(const plsh_decoders *decoders, plsh_token_list *tokens, plsh_error *error) {
    if (!decoders->present) return join(tokens, error);
    plsh_search search = {0};
    plsh_status status = PLSH_STATUS_OK;
    const size_t given = tokens->bytes.length, most = plsh_text_most(given);
    for (size_t i = 0; i < decoders->count && status == PLSH_STATUS_OK; i++) {
        plsh_token_list next = {.bytes = {.limit = most}};
        status = run_step(&decoders->steps[i], &search, tokens, &next, error);
        if (next.bytes.failure.status == PLSH_STATUS_UNSUPPORTED)
            status =
                plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                          "the decoders make more than %zu bytes of tokens of %zu", most, given);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(&next.bytes, error);
        plsh_token_list_free(tokens);
        *tokens = next;
    }
    plsh_search_free(&search);
    return status;
}
