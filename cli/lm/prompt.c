/* cli: prompts and ends of generated texts, for generate and serve. */
#include "cli/lm/prompt.h"

#include <string.h>

/* A prompt that has the tokens of its begin in its text does not get them twice. */
static void drop_second_begin(plsh_token_ids *prompt, size_t first) {
    const size_t bytes = first * sizeof *prompt->ids;
    if (prompt->count < 2 * first || memcmp(prompt->ids, prompt->ids + first, bytes) != 0) return;
    prompt->count -= first;
    memmove(prompt->ids, prompt->ids + first, prompt->count * sizeof *prompt->ids);
}

plsh_status cli_prompt_encode(const plsh_tokenizer *tokenizer, plsh_string text, bool begins,
                              bool special, plsh_token_ids *out, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (begins) status = plsh_tokenizer_begin(tokenizer, out, error);
    const size_t first = out->count;
    if (status == PLSH_STATUS_OK)
        status = plsh_tokenizer_encode(tokenizer, text.bytes, text.length, special, out, error);
    if (status == PLSH_STATUS_OK && first > 0) drop_second_begin(out, first);
    return status;
}

bool cli_prompt_is_end(const plsh_model_ends *ends, const plsh_tokenizer *tokenizer, int32_t id) {
    for (int64_t i = 0; i < ends->count; i++)
        if (ends->ids[i] == id) return true;
    return id == plsh_tokenizer_roles(tokenizer).end;
}

size_t cli_prompt_find_stop(const plsh_string *stops, size_t count, plsh_string text, size_t from,
                            bool *whole) {
    size_t earliest = text.length;
    *whole = false;
    for (size_t i = 0; i < count; i++) {
        for (size_t at = from; stops[i].length > 0 && at < earliest; at++) {
            const size_t left = text.length - at;
            const size_t have = left < stops[i].length ? left : stops[i].length;
            if (memcmp(text.bytes + at, stops[i].bytes, have) != 0) continue;
            earliest = at;
            *whole = have == stops[i].length;
        }
    }
    return earliest;
}
