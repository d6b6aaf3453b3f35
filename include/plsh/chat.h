/* plsh/chat.h - conversations: the messages of a chat as the tokens that a model was trained on.
 *
 *     plsh_chat *chat;
 *     plsh_chat_open(&chat, model, tokenizer, &error);
 *     plsh_chat_message messages[] = {{.role = "user", .content = {"Hello", 5}}};
 *     plsh_chat_ids(chat, messages, 1, true, &ids, &error);        // then plsh_session_step
 *
 * A model's files hold its template as a Jinja program: "chat_template" of tokenizer_config.json,
 * chat_template.jinja, or tokenizer.chat_template of a GGUF. The program is not run. Its form is
 * recognised by its text: ChatML (Qwen, SmolLM2, ..), Llama 2, Llama 3 (also with the dates of 3.1
 * and 3.2), Mistral (the instruction models 0.1 to 0.3), Zephyr (TinyLlama). For these the text is
 * that of transformers' apply_chat_template without tools. Other templates are refused.
 *
 * The special tokens of the template become their ids. The content of a message is plain text: the
 * text of a special token in it does not become that token, so that a message cannot end its turn
 * or begin another one.
 *
 * A chat is constant once opened: any number of threads may use it. Link libplsh_lm. */
#ifndef PLSH_CHAT_H
#define PLSH_CHAT_H

#include "plsh/model.h"
#include "plsh/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_chat plsh_chat;

/* The template of a model's files. The tokenizer has to outlive the chat. A model without a
 * template, or with one of another form, is refused; the message says what to do. */
PLSH_API plsh_status plsh_chat_open(plsh_chat **out, const plsh_model *model,
                                    const plsh_tokenizer *tokenizer, plsh_error *error);

/* The same from the text of a template; `name` is for messages. */
PLSH_API plsh_status plsh_chat_parse(plsh_chat **out, plsh_string text, const char *name,
                                     const plsh_tokenizer *tokenizer, plsh_error *error);

PLSH_API void plsh_chat_close(plsh_chat *chat); /* NULL is fine */

typedef struct plsh_chat_facts {
    const char *form; /* "ChatML", "Llama 2", "Llama 3", "Mistral", "Zephyr" */
    int32_t end;      /* the token that ends a turn of the assistant; -1: the tokenizer has none */
} plsh_chat_facts;

PLSH_API plsh_chat_facts plsh_chat_describe(const plsh_chat *chat);

typedef struct plsh_chat_message {
    const char *role; /* "system", "user" or "assistant" */
    plsh_string content;
} plsh_chat_message;

/* Appends the ids of a conversation, with the token that begins a text where the template has it.
 * `reply` adds the beginning of the assistant's next turn. Llama 2 and Mistral require alternating
 * messages of user and assistant, after at most one system message. An order that the template does
 * not support is refused. */
PLSH_API plsh_status plsh_chat_ids(const plsh_chat *chat, const plsh_chat_message *messages,
                                   int64_t count, bool reply, plsh_token_ids *out,
                                   plsh_error *error);

/* Appends the same as text, to be looked at. Its tokens are not those of plsh_chat_ids where a
 * message holds the text of a special token. */
PLSH_API plsh_status plsh_chat_text(const plsh_chat *chat, const plsh_chat_message *messages,
                                    int64_t count, bool reply, plsh_token_text *out,
                                    plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
