/* model: recognises the form of a chat template by its text. */
#include <string.h>

#include "base/status.h"
#include "model/chat.h"

static const char *find_text(plsh_string text, const char *word) {
    const size_t length = strlen(word);
    for (size_t i = 0; i + length <= text.length; i++)
        if (memcmp(text.bytes + i, word, length) == 0) return text.bytes + i;
    return NULL;
}

static bool has(plsh_string text, const char *word) { return find_text(text, word) != NULL; }

/* ---- The strings of the program ---- */

typedef struct literals {
    plsh_string text;
    size_t at;
    char value[PLSH_CHAT_LITERAL];
} literals;

static char unescape(char c) { return c == 'n' ? '\n' : c == 't' ? '\t' : c; }

/* The next string in quotes within {{ }} or {% %}, without its escapes. One that is too long is
 * passed over. */
static bool next_literal(literals *l) {
    const char *bytes = l->text.bytes;
    bool inside = l->at > 0; /* every call ends after a string, inside {{ }} or {% %} */
    while (l->at < l->text.length) {
        const char c = bytes[l->at++], d = l->at < l->text.length ? bytes[l->at] : '\0';
        if (!inside && c == '{' && (d == '{' || d == '%')) inside = true;
        if (inside && (c == '}' || c == '%') && d == '}') inside = false;
        if (!inside || (c != '\'' && c != '"')) continue;
        size_t length = 0;
        while (l->at < l->text.length && bytes[l->at] != c) {
            char byte = bytes[l->at++];
            if (byte == '\\' && l->at < l->text.length) byte = unescape(bytes[l->at++]);
            if (length < sizeof l->value) l->value[length] = byte;
            length++;
        }
        l->at++;
        if (length >= sizeof l->value) continue;
        l->value[length] = '\0';
        return true;
    }
    return false;
}

/* ---- How the template writes a message ---- */

/* message['content'] | trim, content.strip(), .. */
static bool trims_content(plsh_string text) {
    static const char word[] = "content";
    const char *end = text.bytes + text.length, *at = text.bytes;
    while ((at = find_text((plsh_string){at, (size_t)(end - at)}, word)) != NULL) {
        at += sizeof word - 1;
        const char *next = at;
        while (next < end && (*next == '\'' || *next == '"' || *next == ']' || *next == ' '))
            next++;
        const plsh_string rest = {next, (size_t)(end - next)};
        if (rest.length >= 8 && memcmp(next, ".strip()", 8) == 0) return true;
        if (rest.length < 1 || *next != '|') continue;
        for (next++; next < end && *next == ' ';) next++;
        if (end - next >= 4 && memcmp(next, "trim", 4) == 0) return true;
    }
    return false;
}

static plsh_status refuse(const char *name, const char *why, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: the chat template %s; ChatML, Llama 2, Llama 3, Mistral and Zephyr are "
                     "supported. Write the prompt in the model's form yourself, and continue it "
                     "as plain text",
                     name, why);
}

/* ---- The forms ---- */

static plsh_status read_chatml(plsh_chat *chat, plsh_string text, const char *name,
                               plsh_error *error) {
    static const char system[] = "<|im_start|>system\n", end[] = "<|im_end|>",
                      reply[] = "<|im_start|>assistant";
    if (has(text, "<|im_sep|>") || has(text, "/no_think"))
        return refuse(name, "is a form of ChatML that is not known", error);
    literals l = {.text = text};
    while (next_literal(&l)) {
        char *stop = strstr(l.value, end);
        if (strncmp(l.value, system, sizeof system - 1) == 0 && stop != NULL) {
            *stop = '\0';
            strcpy(chat->system, l.value + sizeof system - 1);
        }
        if (strncmp(l.value, reply, sizeof reply - 1) == 0 && stop == NULL &&
            strlen(l.value) < sizeof chat->reply)
            strcpy(chat->reply, l.value);
    }
    if (chat->reply[0] == '\0') strcpy(chat->reply, "<|im_start|>assistant\n");
    chat->thinks = has(text, "</think>");
    return PLSH_STATUS_OK;
}

/* The literal that holds `word`, into out. */
static bool take_literal(plsh_string text, const char *word, char out[16]) {
    literals l = {.text = text};
    while (next_literal(&l))
        if (strstr(l.value, word) != NULL && strlen(l.value) < 16) {
            strcpy(out, l.value);
            return true;
        }
    return false;
}

static bool has_any(plsh_string text, const char *const *words) {
    for (size_t i = 0; words[i] != NULL; i++)
        if (has(text, words[i])) return true;
    return false;
}

static plsh_status read_mistral(plsh_chat *chat, plsh_string text, const char *name,
                                plsh_error *error) {
    static const char *const blank_before[] = {
        "' ' + message['content']", "\" \" + message[\"content\"]", "' ' + message.content",
        "\" \" + message.content", NULL};
    static const char *const blank_after[] = {"eos_token + ' '", "eos_token+' '",
                                              "eos_token + \" \"", "eos_token+\" \"", NULL};
    if (has(text, "[SYSTEM_PROMPT]"))
        return refuse(name, "is a form of Mistral that is not known ([SYSTEM_PROMPT])", error);
    if (!take_literal(text, "[INST]", chat->user[0]) ||
        !take_literal(text, "[/INST]", chat->user[1]) || !has(text, "bos_token") ||
        !has(text, "eos_token"))
        return refuse(name, "is a form of Mistral that is not known", error);
    if (has_any(text, blank_before)) strcpy(chat->assistant[0], " ");
    if (has_any(text, blank_after)) strcpy(chat->assistant[1], " ");
    chat->takes_system = has(text, "system_message");
    chat->system_last = has(text, "loop.last and system_message");
    return PLSH_STATUS_OK;
}

plsh_status plsh_chat_recognise(plsh_chat *chat, plsh_string text, const char *name,
                                plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    chat->trims = trims_content(text);
    if (has(text, "<|im_start|>") && has(text, "<|im_end|>")) {
        chat->form = PLSH_CHAT_CHATML;
        status = read_chatml(chat, text, name, error);
    } else if (has(text, "<|start_header_id|>") && has(text, "<|eot_id|>")) {
        chat->form = PLSH_CHAT_LLAMA3;
        chat->dates = has(text, "Cutting Knowledge Date: December 2023");
        chat->today = has(text, "strftime_now");
        if (has(text, "Cutting Knowledge Date") && !chat->dates)
            status = refuse(name, "is a form of Llama 3 that is not known", error);
    } else if (has(text, "<<SYS>>") && has(text, "[INST]")) {
        chat->form = PLSH_CHAT_LLAMA2;
    } else if (has(text, "[INST]") && has(text, "[/INST]")) {
        chat->form = PLSH_CHAT_MISTRAL;
        status = read_mistral(chat, text, name, error);
    } else if (has(text, "<|user|>") && has(text, "<|assistant|>") && has(text, "eos_token") &&
               !has(text, "<|end|>")) {
        chat->form = PLSH_CHAT_ZEPHYR;
    } else {
        status = refuse(name, "is not of a known form", error);
    }
    return status;
}
