/* cli: plsh generate --prompts: several prompts, whose texts are generated together. */
#include "cli/lm/prompts.h"

#include "base/clock.h"
#include "cli/lm/texts.h"
#include "cli/message.h"
#include "plsh/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 32 }; /* texts at a time: each has a cache */

typedef struct prompted {
    plsh_session *session;
    plsh_token_ids prompt;
    cli_continuation text;
} prompted;

typedef struct many {
    const cli_prompts *given;
    cli_texts texts;
    prompted *all; /* [texts.count] */
    double seconds;
} many;

static int encode(const cli_prompts *given, plsh_string text, plsh_token_ids *out) {
    const plsh_chat_message messages[2] = {
        {"system", {given->system, given->system != NULL ? strlen(given->system) : 0}},
        {"user", text}};
    const int skip = given->system == NULL;
    plsh_error error;
    const plsh_status status =
        given->chat != NULL
            ? plsh_chat_ids(given->chat, messages + skip, 2 - skip, true, out, &error)
            : cli_prompt_encode(given->model->tokenizer, text, given->begins, given->special, out,
                                &error);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

static int take_prompt(many *m, int64_t i) {
    const cli_prompts *given = m->given;
    prompted *c = &m->all[i];
    const plsh_string text = {m->texts.items[i].bytes, m->texts.items[i].length};
    char place[CLI_PLACE_SIZE];
    cli_texts_place(&m->texts, i, place);
    int code = encode(given, text, &c->prompt);
    c->text.prompt = (int64_t)c->prompt.count;
    const int64_t whole = c->text.prompt + given->rules.tokens;
    if (code == CLI_DONE && c->prompt.count == 0) code = cli_fail("%s: it is empty", place);
    if (code == CLI_DONE) code = cli_model_fits(given->options, given->model, whole);
    return code;
}

static int begin(const cli_prompts *given, prompted *c) {
    const plsh_session_options options = cli_model_session(given->options, given->model);
    cli_continuation *text = &c->text;
    plsh_error error;
    text->ids = malloc((c->prompt.count + (size_t)given->rules.tokens) * sizeof *text->ids);
    text->logits = malloc((size_t)given->rules.vocabulary * sizeof *text->logits);
    if (text->ids == NULL || text->logits == NULL) return cli_fail("out of memory");
    memcpy(text->ids, c->prompt.ids, c->prompt.count * sizeof *text->ids);
    if (plsh_session_create(&c->session, given->model->model, &options, &error) != PLSH_STATUS_OK ||
        plsh_token_stream_create(&text->stream, given->model->tokenizer, true, &error) !=
            PLSH_STATUS_OK ||
        plsh_token_stream_follow(text->stream, c->prompt.ids, c->prompt.count, &error) !=
            PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* Frees its memory, except the text and its tokens. */
static void finish(prompted *c) {
    plsh_session_destroy(c->session);
    plsh_token_stream_free(c->text.stream);
    free(c->text.logits);
    c->session = NULL;
    c->text.stream = NULL;
    c->text.logits = NULL;
}

/* The next token, from the logits. */
static int add_token(const cli_prompts *given, cli_continuation *text) {
    plsh_error error;
    int32_t id;
    if (cli_continuation_choose(&given->rules, text, NULL, NULL, &id, &error) != PLSH_STATUS_OK ||
        cli_continuation_add(&given->rules, text, id, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* One pass over the unfinished texts: their prompts, or their last tokens. */
static int step(const cli_prompts *given, prompted **live, int64_t count) {
    plsh_session *sessions[TOGETHER];
    plsh_step steps[TOGETHER];
    plsh_error error;
    for (int64_t i = 0; i < count; i++) {
        const cli_continuation *text = &live[i]->text;
        const int64_t have = plsh_session_length(live[i]->session);
        sessions[i] = live[i]->session;
        steps[i] = (plsh_step){.ids = text->ids + have,
                               .count = text->prompt + text->made - have,
                               .logits = text->logits};
    }
    if (plsh_session_step_batch(sessions, steps, count, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    int code = CLI_DONE;
    for (int64_t i = 0; code == CLI_DONE && i < count; i++) code = add_token(given, &live[i]->text);
    return code;
}

static int generate_all(many *m) {
    prompted *live[TOGETHER];
    int64_t count = 0, next = 0, done = 0;
    int code = CLI_DONE;
    const double began = plsh_clock_seconds();
    cli_progress_begin((double)m->texts.count, "texts");
    while (code == CLI_DONE && done < m->texts.count && !*m->given->interrupted) {
        while (code == CLI_DONE && count < TOGETHER && next < m->texts.count) {
            live[count++] = &m->all[next];
            code = begin(m->given, &m->all[next++]);
        }
        if (code == CLI_DONE) code = step(m->given, live, count);
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++) {
            if (live[i]->text.finish == NULL) {
                live[kept++] = live[i];
                continue;
            }
            finish(live[i]);
            done++;
        }
        count = kept;
        cli_progress((double)done);
    }
    cli_progress_end();
    m->seconds = plsh_clock_seconds() - began;
    return code;
}

static void put_row(const many *m, cli_json *json, int64_t i) {
    const cli_continuation *c = &m->all[i].text;
    cli_json_begin_object(json, NULL);
    cli_json_bytes(json, "prompt", m->texts.items[i].bytes, m->texts.items[i].length);
    cli_json_bytes(json, "text", c->text.length > 0 ? c->text.bytes : "", c->text.length);
    cli_json_begin_array(json, "ids");
    for (int64_t t = 0; t < c->made; t++) cli_json_integer(json, NULL, c->ids[c->prompt + t]);
    cli_json_end(json);
    cli_json_integer(json, "prompt_tokens", c->prompt);
    cli_json_text(json, "finish", c->finish);
    cli_json_end(json);
}

static int print_all(const many *m) {
    int64_t made = 0;
    for (int64_t i = 0; i < m->texts.count; i++) made += m->all[i].text.made;
    const double speed = m->seconds > 0 ? (double)made / m->seconds : 0;
    if (!m->given->options->common.json) {
        for (int64_t i = 0; i < m->texts.count; i++) {
            cli_write_text(stdout, m->texts.items[i].bytes, m->texts.items[i].length, true);
            cli_write_text(stdout, m->all[i].text.text.bytes, m->all[i].text.text.length, true);
            printf("\n\n");
        }
        cli_note("%lld texts, %lld new tokens at %.4g per second", (long long)m->texts.count,
                 (long long)made, speed);
        return CLI_DONE;
    }
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "model", m->given->options->model.model);
    cli_json_text(json, "attention", m->given->model->described);
    cli_json_begin_array(json, "rows");
    for (int64_t i = 0; i < m->texts.count; i++) put_row(m, json, i);
    cli_json_end(json);
    cli_json_number(json, "tokens_per_second", speed);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    cli_json_boolean(json, "interrupted", *m->given->interrupted != 0);
    return cli_document_end(json);
}

int cli_prompts_generate(const cli_prompts *given) {
    many m = {.given = given};
    const cli_texts_options options = {.text = given->path, .format = -1};
    int code = cli_texts_read(&options, &m.texts);
    if (code != CLI_DONE) return code;
    m.all = calloc((size_t)m.texts.count, sizeof *m.all);
    if (m.all == NULL) code = cli_fail("out of memory");
    for (int64_t i = 0; code == CLI_DONE && i < m.texts.count; i++) code = take_prompt(&m, i);
    if (code == CLI_DONE) cli_model_announce(given->model);
    if (code == CLI_DONE) code = generate_all(&m);
    if (code == CLI_DONE) code = print_all(&m);
    for (int64_t i = 0; m.all != NULL && i < m.texts.count; i++) {
        finish(&m.all[i]);
        plsh_token_ids_free(&m.all[i].prompt);
        plsh_token_text_free(&m.all[i].text.text);
        free(m.all[i].text.ids);
    }
    free(m.all);
    cli_texts_free(&m.texts);
    return code;
}
