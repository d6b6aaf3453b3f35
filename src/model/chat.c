/* model: conversations as tokens. */
#include "model/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/model.h"

/* ---- Opening ---- */

static plsh_string token_text(const plsh_tokenizer *tokenizer, int32_t id) {
    size_t length = 0;
    const char *bytes = id >= 0 ? plsh_tokenizer_token(tokenizer, id, &length) : NULL;
    return bytes != NULL ? (plsh_string){bytes, length} : (plsh_string){"", 0};
}

static bool contains(plsh_string text, const char *word) {
    for (size_t i = 0, length = strlen(word); i + length <= text.length; i++)
        if (memcmp(text.bytes + i, word, length) == 0) return true;
    return false;
}

/* The tokens that the template names by their role. */
static plsh_status take_tokens(plsh_chat *chat, plsh_string text, const char *name,
                               plsh_error *error) {
    const plsh_token_roles roles = plsh_tokenizer_roles(chat->tokenizer);
    if (contains(text, "bos_token")) chat->begin = token_text(chat->tokenizer, roles.begin);
    if (contains(text, "eos_token")) chat->end = token_text(chat->tokenizer, roles.end);
    const bool needs_end = chat->form == PLSH_CHAT_LLAMA2 || chat->form == PLSH_CHAT_MISTRAL ||
                           chat->form == PLSH_CHAT_ZEPHYR;
    const bool needs_begin = chat->form == PLSH_CHAT_LLAMA2 || chat->form == PLSH_CHAT_MISTRAL;
    if ((needs_end && chat->end.length == 0) || (needs_begin && chat->begin.length == 0))
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: the chat template uses %s, which the tokenizer's files do not name",
                         name, needs_end && chat->end.length == 0 ? "eos_token" : "bos_token");
    return PLSH_STATUS_OK;
}

plsh_status plsh_chat_parse(plsh_chat **out, plsh_string text, const char *name,
                            const plsh_tokenizer *tokenizer, plsh_error *error) {
    plsh_status status = plsh_allocate((void **)out, 1, sizeof **out, "a chat template", error);
    if (status) return status;
    (*out)->tokenizer = tokenizer;
    status = plsh_chat_recognise(*out, text, name, error);
    if (!status) status = take_tokens(*out, text, name, error);
    if (status) {
        plsh_release(*out);
        *out = NULL;
    }
    return status;
}

void plsh_chat_close(plsh_chat *chat) { plsh_release(chat); }

static plsh_status refuse_missing(const char *path, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s has no chat template (chat_template in tokenizer_config.json, "
                     "chat_template.jinja, or tokenizer.chat_template in a GGUF): it may not be a "
                     "model for conversations; continue a plain prompt instead",
                     path);
}

/* chat_template of tokenizer_config.json: a text, or a list of {name, template}. */
static const char *config_template(const json_t *root) {
    const json_t *value = json_object_get(root, "chat_template");
    if (json_is_string(value)) return json_string_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(item, "template"));
    }
    return NULL;
}

static plsh_status open_config(plsh_chat **out, const char *folder, const plsh_tokenizer *tokenizer,
                               plsh_error *error) {
    char *path;
    json_t *root = NULL;
    plsh_status status = plsh_path_join(&path, folder, "tokenizer_config.json", error);
    if (!status && plsh_path_exists(path)) status = plsh_weights_json_read(path, &root, error);
    const char *text = config_template(root);
    if (!status && text == NULL) status = refuse_missing(folder, error);
    if (!status)
        status = plsh_chat_parse(out, (plsh_string){text, strlen(text)}, path, tokenizer, error);
    json_decref(root);
    plsh_release(path);
    return status;
}

static plsh_status open_folder(plsh_chat **out, const char *folder, const plsh_tokenizer *tokenizer,
                               plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, folder, "chat_template.jinja", error);
    if (status || !plsh_path_exists(path)) {
        plsh_release(path);
        return status ? status : open_config(out, folder, tokenizer, error);
    }
    plsh_mapping file;
    status = plsh_mapping_open(&file, path, error);
    if (!status) {
        const plsh_string text = {(const char *)file.bytes, file.size};
        status = plsh_chat_parse(out, text, path, tokenizer, error);
        plsh_mapping_close(&file);
    }
    plsh_release(path);
    return status;
}

plsh_status plsh_chat_open(plsh_chat **out, const plsh_model *model,
                           const plsh_tokenizer *tokenizer, plsh_error *error) {
    const plsh_weights *weights = plsh_model_weights(model);
    *out = NULL;
    if (plsh_weights_form_of(weights) != PLSH_WEIGHTS_GGUF)
        return open_folder(out, plsh_weights_folder(weights), tokenizer, error);
    plsh_string text = {0};
    plsh_status status = plsh_metadata_string(weights, "tokenizer.chat_template", &text, error);
    if (status) return status;
    if (text.length == 0) return refuse_missing(plsh_weights_path(weights), error);
    return plsh_chat_parse(out, text, plsh_weights_path(weights), tokenizer, error);
}

plsh_chat_facts plsh_chat_describe(const plsh_chat *chat) {
    static const char *const names[] = {"ChatML", "Llama 2", "Llama 3", "Mistral", "Zephyr"};
    const char *end = chat->form == PLSH_CHAT_CHATML   ? "<|im_end|>"
                      : chat->form == PLSH_CHAT_LLAMA3 ? "<|eot_id|>"
                                                       : NULL;
    return (plsh_chat_facts){.form = names[chat->form],
                             .end = end != NULL
                                        ? plsh_tokenizer_find(chat->tokenizer, end, strlen(end))
                                        : plsh_tokenizer_roles(chat->tokenizer).end};
}

/* ---- Messages ---- */

typedef struct writer {
    const plsh_chat *chat;
    plsh_text_part *parts;
    size_t count, capacity;
    char date[32];
    plsh_error *error;
    plsh_status status; /* the first failure */
} writer;

static void put(writer *w, plsh_string text, bool special) {
    if (w->status || text.length == 0) return;
    if (w->count == w->capacity) {
        const size_t capacity = 2 * w->capacity + 32;
        plsh_text_part *grown;
        w->status = plsh_allocate((void **)&grown, capacity, sizeof *grown, "a chat", w->error);
        if (w->status) return;
        if (w->count > 0) memcpy(grown, w->parts, w->count * sizeof *grown);
        plsh_release(w->parts);
        w->parts = grown;
        w->capacity = capacity;
    }
    w->parts[w->count++] = (plsh_text_part){text.bytes, text.length, special};
}

static void put_template(writer *w, const char *text) {
    put(w, (plsh_string){text, strlen(text)}, true);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static plsh_string trim(plsh_string text) {
    while (text.length > 0 && is_blank(text.bytes[0])) text.bytes++, text.length--;
    while (text.length > 0 && is_blank(text.bytes[text.length - 1])) text.length--;
    return text;
}

static void put_content(writer *w, plsh_string content) {
    put(w, w->chat->trims ? trim(content) : content, false);
}

static bool is_role(const plsh_chat_message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

/* An earlier reply without its reasoning: the text after the last </think>. */
static plsh_string without_thoughts(plsh_string text) {
    static const char end[] = "</think>";
    const size_t length = sizeof end - 1;
    for (size_t i = text.length; i >= length; i--) {
        if (memcmp(text.bytes + i - length, end, length) != 0) continue;
        plsh_string rest = {text.bytes + i, text.length - i};
        while (rest.length > 0 && rest.bytes[0] == '\n') rest.bytes++, rest.length--;
        return rest;
    }
    return text;
}

static void write_chatml(writer *w, const plsh_chat_message *messages, int64_t count, bool reply) {
    const plsh_chat *chat = w->chat;
    put(w, chat->begin, true);
    if (chat->system[0] != '\0' && !is_role(&messages[0], "system")) {
        put_template(w, "<|im_start|>system\n");
        put_template(w, chat->system);
        put_template(w, "<|im_end|>\n");
    }
    for (int64_t i = 0; i < count; i++) {
        const bool old_reply = chat->thinks && is_role(&messages[i], "assistant");
        put_template(w, "<|im_start|>");
        put_template(w, messages[i].role);
        put_template(w, "\n");
        put_content(w, old_reply ? without_thoughts(messages[i].content) : messages[i].content);
        put_template(w, "<|im_end|>\n");
    }
    if (reply) put_template(w, chat->reply);
}

static void put_header(writer *w, const char *role) {
    put_template(w, "<|start_header_id|>");
    put_template(w, role);
    put_template(w, "<|end_header_id|>\n\n");
}

static void write_llama3(writer *w, const plsh_chat_message *messages, int64_t count, bool reply) {
    const plsh_chat *chat = w->chat;
    int64_t first = 0;
    put(w, chat->begin, true);
    if (chat->dates) {
        put_header(w, "system");
        put_template(w, "Cutting Knowledge Date: December 2023\nToday Date: ");
        put_template(w, w->date);
        put_template(w, "\n\n");
        if (is_role(&messages[0], "system")) put_content(w, messages[first++].content);
        put_template(w, "<|eot_id|>");
    }
    for (int64_t i = first; i < count; i++) {
        put_header(w, messages[i].role);
        put_content(w, messages[i].content);
        put_template(w, "<|eot_id|>");
    }
    if (reply) put_header(w, "assistant");
}

static void write_zephyr(writer *w, const plsh_chat_message *messages, int64_t count, bool reply) {
    put(w, w->chat->begin, true);
    for (int64_t i = 0; i < count; i++) {
        put_template(w, "<|");
        put_template(w, messages[i].role);
        put_template(w, "|>\n");
        put_content(w, messages[i].content);
        put(w, w->chat->end, true);
        put_template(w, "\n");
    }
    if (reply) put_template(w, "<|assistant|>\n");
}

/* A turn is trimmed as a whole: blanks before the system message (without one, before the user's)
 * and after the user's. */
static void write_llama2(writer *w, const plsh_chat_message *messages, int64_t count) {
    const bool system = is_role(&messages[0], "system");
    for (int64_t i = system; i < count; i++) {
        plsh_string content = messages[i].content;
        const bool told = system && i == 1;
        if (is_role(&messages[i], "assistant")) {
            put_template(w, " ");
            put(w, trim(content), false);
            put_template(w, " ");
            put(w, w->chat->end, true);
            continue;
        }
        put(w, w->chat->begin, true);
        put_template(w, "[INST] ");
        if (told) {
            put_template(w, "<<SYS>>\n");
            put(w, messages[0].content, false);
            const bool empty = trim(content).length == 0;
            put_template(w, empty ? "\n<</SYS>>" : "\n<</SYS>>\n\n");
        }
        const plsh_string trimmed = trim(content);
        if (told && trimmed.length > 0) {
            content.length = (size_t)(trimmed.bytes - content.bytes) + trimmed.length;
            put(w, content, false);
        } else {
            put(w, trimmed, false);
        }
        put_template(w, " [/INST]");
    }
}

static void write_mistral(writer *w, const plsh_chat_message *messages, int64_t count) {
    const plsh_chat *chat = w->chat;
    const bool system = is_role(&messages[0], "system");
    const int64_t told = !system ? -1 : chat->system_last ? count - 1 : 1;
    put(w, chat->begin, true);
    for (int64_t i = system; i < count; i++) {
        if (is_role(&messages[i], "assistant")) {
            put_template(w, chat->assistant[0]);
            put_content(w, messages[i].content);
            put(w, chat->end, true);
            put_template(w, chat->assistant[1]);
            continue;
        }
        put_template(w, chat->user[0]);
        if (i == told) {
            put(w, messages[0].content, false);
            put_template(w, "\n\n");
        }
        put(w, messages[i].content, false);
        put_template(w, chat->user[1]);
    }
}

/* ---- Checks ---- */

static plsh_status check_roles(const plsh_chat_message *messages, int64_t count,
                               plsh_error *error) {
    for (int64_t i = 0; i < count; i++) {
        const plsh_chat_message *m = &messages[i];
        if (m->role == NULL || (m->content.bytes == NULL && m->content.length > 0) ||
            (!is_role(m, "system") && !is_role(m, "user") && !is_role(m, "assistant")))
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "message %lld: the role is \"%.40s\"; system, user or assistant",
                             (long long)i, m->role != NULL ? m->role : "NULL");
    }
    return PLSH_STATUS_OK;
}

/* user, assistant, user, ..: after a system message where the template takes one. */
static plsh_status check_turns(const plsh_chat *chat, const plsh_chat_message *messages,
                               int64_t count, plsh_error *error) {
    if (chat->form != PLSH_CHAT_LLAMA2 && chat->form != PLSH_CHAT_MISTRAL) return PLSH_STATUS_OK;
    const bool system = is_role(&messages[0], "system");
    if (system && chat->form == PLSH_CHAT_MISTRAL && !chat->takes_system)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "message 0: this model's template takes no system message; put it before "
                         "what the user says");
    if (system && count == 1)
        return plsh_fail(error, PLSH_STATUS_INVALID, "there is no message after the system's");
    for (int64_t i = system; i < count; i++)
        if (!is_role(&messages[i], (i - system) % 2 == 0 ? "user" : "assistant"))
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "message %lld is of the %s: under this model's template user and "
                             "assistant take turns, and the user begins",
                             (long long)i, messages[i].role);
    return PLSH_STATUS_OK;
}

static plsh_status check_messages(const plsh_chat *chat, const plsh_chat_message *messages,
                                  int64_t count, plsh_error *error) {
    if (count < 1 || messages == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID, "a conversation of %lld messages; at least 1",
                         (long long)count);
    plsh_status status = check_roles(messages, count, error);
    if (status) return status;
    if (chat->thinks && is_role(&messages[count - 1], "assistant"))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "message %lld, the last, is the assistant's; under this model's template "
                         "the user has the last word",
                         (long long)(count - 1));
    return check_turns(chat, messages, count, error);
}

static plsh_status write_messages(writer *w, const plsh_chat_message *messages, int64_t count,
                                  bool reply) {
    w->status = check_messages(w->chat, messages, count, w->error);
    if (w->status) return w->status;
    const time_t now = time(NULL);
    struct tm local;
    if (!w->chat->today || localtime_r(&now, &local) == NULL ||
        strftime(w->date, sizeof w->date, "%d %b %Y", &local) == 0)
        snprintf(w->date, sizeof w->date, "26 Jul 2024"); /* the template's own, without a clock */
    switch (w->chat->form) {
    case PLSH_CHAT_CHATML: write_chatml(w, messages, count, reply); break;
    case PLSH_CHAT_LLAMA2: write_llama2(w, messages, count); break;
    case PLSH_CHAT_LLAMA3: write_llama3(w, messages, count, reply); break;
    case PLSH_CHAT_MISTRAL: write_mistral(w, messages, count); break;
    case PLSH_CHAT_ZEPHYR: write_zephyr(w, messages, count, reply); break;
    }
    return w->status;
}

plsh_status plsh_chat_ids(const plsh_chat *chat, const plsh_chat_message *messages, int64_t count,
                          bool reply, plsh_token_ids *out, plsh_error *error) {
    writer w = {.chat = chat, .error = error};
    plsh_status status = write_messages(&w, messages, count, reply);
    if (!status)
        status = plsh_tokenizer_encode_parts(chat->tokenizer, w.parts, w.count, out, error);
    plsh_release(w.parts);
    return status;
}

plsh_status plsh_chat_text(const plsh_chat *chat, const plsh_chat_message *messages, int64_t count,
                           bool reply, plsh_token_text *out, plsh_error *error) {
    writer w = {.chat = chat, .error = error};
    plsh_text text = {.bytes = out->bytes, .length = out->length, .capacity = out->capacity};
    plsh_status status = write_messages(&w, messages, count, reply);
    for (size_t i = 0; !status && i < w.count; i++)
        plsh_text_append(&text, w.parts[i].bytes, w.parts[i].length);
    if (!status) status = plsh_text_status(&text, error);
    *out = (plsh_token_text){text.bytes, text.length, text.capacity};
    plsh_release(w.parts);
    return status;
}
