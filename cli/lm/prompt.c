/* cli: prompts, and the texts that continue them, for generate and serve. */
#include "cli/lm/prompt.h"

#include <string.h>

/* A prompt whose text already has the tokens that begin a text does not get them twice. */
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

/* Is it a token at which the text of this model ends? */
static bool is_end(const cli_rules *rules, int32_t id) {
    if (rules->ends == NULL) return false;
    for (int64_t i = 0; i < rules->ends->count; i++)
        if (rules->ends->ids[i] == id) return true;
    return id == plsh_tokenizer_roles(rules->tokenizer).end;
}

/* The index in text[from .. length) at which a stop begins, or may begin; otherwise `length`.
 * *whole: the text has all of the stop. */
static size_t find_stop(const cli_rules *rules, plsh_string text, size_t from, bool *whole) {
    size_t earliest = text.length;
    *whole = false;
    for (size_t i = 0; i < rules->stop_count; i++) {
        const plsh_string stop = rules->stops[i];
        for (size_t at = from; stop.length > 0 && at < earliest; at++) {
            const size_t left = text.length - at;
            const size_t have = left < stop.length ? left : stop.length;
            if (memcmp(text.bytes + at, stop.bytes, have) != 0) continue;
            earliest = at;
            *whole = have == stop.length;
        }
    }
    return earliest;
}

plsh_status cli_continuation_choose(const cli_rules *rules, cli_continuation *text,
                                    cli_likely *likely, float *copy, int32_t *id,
                                    plsh_error *error) {
    const int64_t vocabulary = rules->vocabulary, length = text->prompt + text->made;
    const plsh_penalty penalty = {rules->penalty, text->ids, length};
    plsh_status status = plsh_sampler_penalise(&penalty, text->logits, vocabulary, error);
    if (status != PLSH_STATUS_OK) return status;
    if (likely != NULL) {
        likely->count = plsh_model_likely(text->logits, vocabulary, likely->count, likely->ids,
                                          likely->logprobs);
        memcpy(copy, text->logits, (size_t)vocabulary * sizeof *copy);
    }
    status = plsh_sampler_choose(&rules->sampler, text->logits, vocabulary,
                                 (uint64_t)(text->before + length), id, error);
    if (status == PLSH_STATUS_OK && likely != NULL)
        likely->own = -plsh_model_score(copy, vocabulary, *id).nll;
    return status;
}

/* Ends the text where a stop begins. */
static void look_for_stop(const cli_rules *rules, cli_continuation *text) {
    const plsh_string bytes = {text->text.bytes, text->text.length};
    bool whole = false;
    if (bytes.length > 0) text->ready = find_stop(rules, bytes, text->ready, &whole);
    if (!whole) return;
    text->finish = "stop";
    text->text.length = text->ready;
    text->text.bytes[text->ready] = '\0';
}

plsh_status cli_continuation_end(const cli_rules *rules, cli_continuation *text,
                                 plsh_error *error) {
    const plsh_status status = plsh_token_stream_finish(text->stream, &text->text, error);
    if (status == PLSH_STATUS_OK) look_for_stop(rules, text);
    text->ready = text->text.length;
    return status;
}

plsh_status cli_continuation_add(const cli_rules *rules, cli_continuation *text, int32_t id,
                                 plsh_error *error) {
    if (is_end(rules, id)) {
        text->finish = "stop";
        return cli_continuation_end(rules, text, error);
    }
    text->ids[text->prompt + text->made++] = id;
    const plsh_status status = plsh_token_stream_next(text->stream, id, &text->text, error);
    if (status != PLSH_STATUS_OK) return status;
    look_for_stop(rules, text);
    if (text->finish != NULL || text->made < rules->tokens) return PLSH_STATUS_OK;
    text->finish = "length";
    return cli_continuation_end(rules, text, error);
}
