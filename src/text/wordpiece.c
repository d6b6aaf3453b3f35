/* text: WordPiece. */
#include "text/wordpiece.h"

#include <string.h>

#include "base/status.h"
#include "text/utf8.h"

void plsh_wordpiece_free(plsh_wordpiece *model) {
    plsh_text_free(&model->prefix);
    plsh_text_free(&model->unknown);
    *model = (plsh_wordpiece){0};
}

/* No word has more characters than bytes: most need no counting. */
static bool is_too_long(const plsh_wordpiece *model, const char *bytes, size_t length) {
    size_t count = 0;
    if (length <= model->longest_word) return false;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count > model->longest_word;
}

static plsh_status append_unknown(const plsh_wordpiece *model, plsh_token_ids *out,
                                  plsh_error *error) {
    const char *name = model->unknown.bytes != NULL ? model->unknown.bytes : "";
    const int32_t id = plsh_vocabulary_find(model->vocabulary, name, model->unknown.length);
    if (id == PLSH_NO_TOKEN)
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "the unknown token \"%s\" is not in the vocabulary", name);
    return plsh_ids_append(out, id, error);
}

/* The longest token that begins at `begin`; *end is where it ends. The search is bounded by the
 * longest token, so that it is not quadratic. */
static int32_t find_longest(const plsh_wordpiece *model, plsh_text *scratch, const char *bytes,
                            size_t begin, size_t length, size_t *end) {
    const size_t prefix = begin > 0 ? model->prefix.length : 0;
    const size_t most = model->vocabulary->longest;
    if (most <= prefix) return PLSH_NO_TOKEN;
    *end = length - begin > most - prefix ? begin + most - prefix : length;
    while (*end < length && ((unsigned char)bytes[*end] & 0xC0) == 0x80) --*end;
    scratch->length = 0;
    if (prefix > 0) plsh_text_append(scratch, model->prefix.bytes, prefix);
    plsh_text_append(scratch, bytes + begin, *end - begin);
    if (scratch->failure.status != PLSH_STATUS_OK) return PLSH_NO_TOKEN;
    for (; *end > begin; *end = plsh_utf8_before(bytes, *end)) {
        const int32_t id =
            plsh_vocabulary_find(model->vocabulary, scratch->bytes, prefix + *end - begin);
        if (id != PLSH_NO_TOKEN) return id;
    }
    return PLSH_NO_TOKEN;
}

plsh_status plsh_wordpiece_encode(const plsh_wordpiece *model, plsh_text *scratch,
                                  const char *bytes, size_t length, plsh_token_ids *out,
                                  plsh_error *error) {
    const size_t before = out->count;
    if (is_too_long(model, bytes, length)) return append_unknown(model, out, error);
    for (size_t begin = 0, end = 0; begin < length; begin = end) {
        const int32_t id = find_longest(model, scratch, bytes, begin, length, &end);
        plsh_status status = plsh_text_status(scratch, error);
        if (status == PLSH_STATUS_OK && id == PLSH_NO_TOKEN) {
            out->count = before;
            return append_unknown(model, out, error);
        }
        if (status == PLSH_STATUS_OK) status = plsh_ids_append(out, id, error);
        if (status != PLSH_STATUS_OK) return status;
    }
    return PLSH_STATUS_OK;
}
