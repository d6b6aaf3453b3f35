/* fuzz: templates of chats, and conversations by them. The input up to its first zero byte is a
 * template, the rest is messages: a byte that chooses the role, then the content, up to the next
 * zero byte. Ids have to be of the tokenizer, and the same twice. */
#include "plsh/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_MESSAGES = 6 };

/* The special tokens of every form that is known. */
static const char tokens[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true},"
    "{\"id\": 1, \"content\": \"</s>\", \"special\": true},"
    "{\"id\": 2, \"content\": \"<|im_start|>\", \"special\": true},"
    "{\"id\": 3, \"content\": \"<|im_end|>\", \"special\": true},"
    "{\"id\": 4, \"content\": \"<|begin_of_text|>\", \"special\": true},"
    "{\"id\": 5, \"content\": \"<|start_header_id|>\", \"special\": true},"
    "{\"id\": 6, \"content\": \"<|end_header_id|>\", \"special\": true},"
    "{\"id\": 7, \"content\": \"<|eot_id|>\", \"special\": true},"
    "{\"id\": 8, \"content\": \"[INST]\", \"special\": true},"
    "{\"id\": 9, \"content\": \"[/INST]\", \"special\": true}],"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"a\", \"fuse_unk\": true, \"merges\": [],"
    "\"vocab\": {\"<s>\": 0, \"</s>\": 1, \"<|im_start|>\": 2, \"<|im_end|>\": 3,"
    "\"<|begin_of_text|>\": 4, \"<|start_header_id|>\": 5, \"<|end_header_id|>\": 6,"
    "\"<|eot_id|>\": 7, \"[INST]\": 8, \"[/INST]\": 9, \"a\": 10, \"b\": 11, \"\\n\": 12,"
    "\" \": 13}}}";

static void fail_if(bool wrong) {
    if (wrong) abort();
}

static int64_t messages_of(const char *text, size_t size, plsh_chat_message *messages) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    int64_t count = 0;
    while (size > 0 && count < MOST_MESSAGES) {
        const char *end = memchr(text + 1, 0, size - 1);
        const size_t length = end ? (size_t)(end - text) - 1 : size - 1;
        messages[count++] = (plsh_chat_message){roles[(uint8_t)text[0] % 4], {text + 1, length}};
        text += length + 1;
        size -= length + 1;
        if (size > 0) text++, size--; /* the zero byte */
    }
    return count;
}

static void check(const plsh_chat *chat, const plsh_tokenizer *tokenizer,
                  const plsh_chat_message *messages, int64_t count, bool reply) {
    plsh_token_ids once = {0}, twice = {0};
    plsh_token_text text = {0};
    const plsh_status status = plsh_chat_ids(chat, messages, count, reply, &once, NULL);
    fail_if(status != plsh_chat_ids(chat, messages, count, reply, &twice, NULL));
    fail_if(once.count != twice.count);
    for (size_t i = 0; i < once.count; i++)
        fail_if(once.ids[i] != twice.ids[i] || once.ids[i] < 0 ||
                once.ids[i] >= plsh_tokenizer_size(tokenizer));
    plsh_chat_text(chat, messages, count, reply, &text, NULL);
    plsh_token_text_free(&text);
    plsh_token_ids_free(&once);
    plsh_token_ids_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plsh_tokenizer *tokenizer;
    const char *input = (const char *)data;
    const char *end = size > 0 ? memchr(input, 0, size) : NULL;
    const size_t length = end ? (size_t)(end - input) : size;
    plsh_chat_message messages[MOST_MESSAGES];
    plsh_chat *chat = NULL;
    if (!tokenizer)
        fail_if(plsh_tokenizer_parse(&tokenizer, tokens, strlen(tokens), "fixed", NULL) !=
                PLSH_STATUS_OK);
    const plsh_status status =
        plsh_chat_parse(&chat, (plsh_string){input, length}, "fuzz", tokenizer, NULL);
    fail_if((status == PLSH_STATUS_OK) != (chat != NULL));
    if (chat) {
        const plsh_chat_facts facts = plsh_chat_describe(chat);
        fail_if(!facts.form || facts.end < -1 || facts.end >= plsh_tokenizer_size(tokenizer));
        const int64_t count = end ? messages_of(end + 1, size - length - 1, messages) : 0;
        check(chat, tokenizer, messages, count, size % 2 == 0);
    }
    plsh_chat_close(chat);
    return 0;
}
