/* model: the form of a chat template. */
#ifndef PLSH_MODEL_CHAT_H
#define PLSH_MODEL_CHAT_H

#include "plsh/chat.h"

typedef enum plsh_chat_form {
    PLSH_CHAT_CHATML,
    PLSH_CHAT_LLAMA2,
    PLSH_CHAT_LLAMA3,
    PLSH_CHAT_MISTRAL,
    PLSH_CHAT_ZEPHYR
} plsh_chat_form;

enum { PLSH_CHAT_LITERAL = 1024 }; /* the longest default system message, and its zero byte */

struct plsh_chat {
    const plsh_tokenizer *tokenizer;
    plsh_chat_form form;
    plsh_string begin, end; /* the tokens that begin and end a text; empty where not used */
    bool trims;             /* blanks around a message are dropped */
    bool thinks; /* earlier replies are used without their reasoning, which ends with </think> */
    bool takes_system; /* Mistral */
    bool system_last;  /* Mistral: the system message goes before the last user message */
    bool dates, today; /* Llama 3.1: its system message has dates; 3.2: today's */
    char system[PLSH_CHAT_LITERAL];     /* ChatML: used where there is none; "": none */
    char reply[64];                     /* ChatML: the beginning of a reply */
    char user[2][16], assistant[2][16]; /* Mistral: texts around a message */
};

/* Recognises a template: fills in all but the tokenizer. */
plsh_status plsh_chat_recognise(plsh_chat *chat, plsh_string text, const char *name,
                                plsh_error *error);

#endif
