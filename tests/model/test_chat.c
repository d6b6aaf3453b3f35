/* model: conversations as tokens, against what Jinja renders, and what they refuse. */
#include <jansson.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"

static const char tokenizer_json[] =
    "{\"added_tokens\": ["
    "{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
    "{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
    "{\"id\": 2, \"content\": \"</s>\", \"special\": true},"
    "{\"id\": 3, \"content\": \"<|im_start|>\", \"special\": true},"
    "{\"id\": 4, \"content\": \"<|im_end|>\", \"special\": true}],"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"merges\": [], \"vocab\": {"
    "\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2, \"<|im_start|>\": 3, \"<|im_end|>\": 4, \"a\": 5,"
    "\"b\": 6, \"<\": 7, \"s\": 8, \">\": 9, \"u\": 10, \"e\": 11, \"r\": 12, \"\\n\": 13}}}";

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}";

static plsh_tokenizer *tokenizer;

static int set_up(void **state) {
    plsh_error error;
    if (test_folder_make(state) != 0) return -1;
    test_write("tokenizer.json", tokenizer_json);
    test_write("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    assert_ok(plsh_tokenizer_open(&tokenizer, test_folder, &error));
    return 0;
}

static int tear_down(void **state) {
    plsh_tokenizer_free(tokenizer);
    return test_folder_remove(state);
}

static plsh_status parse(plsh_chat **out, const char *text, plsh_error *error) {
    return plsh_chat_parse(out, (plsh_string){text, strlen(text)}, "x.jinja", tokenizer, error);
}

static void check_case(const json_t *one) {
    const json_t *list = json_object_get(one, "messages"), *text = json_object_get(one, "text");
    plsh_chat_message messages[8];
    plsh_token_text out = {0};
    plsh_error error;
    plsh_chat *chat;
    assert_ok(parse(&chat, json_string_value(json_object_get(one, "template")), &error));
    assert_string_equal(plsh_chat_describe(chat).form,
                        json_string_value(json_object_get(one, "form")));
    const size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        const json_t *m = json_array_get(list, i), *content = json_object_get(m, "content");
        messages[i] =
            (plsh_chat_message){json_string_value(json_object_get(m, "role")),
                                {json_string_value(content), json_string_length(content)}};
    }
    const bool reply = json_is_true(json_object_get(one, "reply"));
    if (json_is_null(text)) {
        assert_fails(plsh_chat_text(chat, messages, (int64_t)count, reply, &out, &error),
                     PLSH_STATUS_INVALID, "system");
    } else {
        assert_ok(plsh_chat_text(chat, messages, (int64_t)count, reply, &out, &error));
        assert_string_equal(out.bytes, json_string_value(text));
    }
    plsh_token_text_free(&out);
    plsh_chat_close(chat);
}

static void texts_are_those_of_jinja(void **state) {
    (void)state;
    json_t *cases = json_load_file(PLSH_TEST_FOLDER "/chat_cases.json", 0, NULL);
    assert_true(json_array_size(cases) > 30);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(cases);
}

/* The template's tokens are special; the same text within a message is not. */
static void a_message_cannot_end_its_turn(void **state) {
    static const int32_t expected[] = {3, 10, 8, 11, 12, 13, 5, 7, 8, 9, 6, 4, 13};
    const plsh_chat_message message = {"user", {"a<s>b", 5}};
    plsh_token_ids ids = {0};
    plsh_error error;
    plsh_chat *chat;
    (void)state;
    assert_ok(parse(&chat, chatml, &error));
    assert_ok(plsh_chat_ids(chat, &message, 1, false, &ids, &error));
    assert_int_equal(ids.count, sizeof expected / sizeof *expected);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_int_equal(plsh_chat_describe(chat).end, 4);
    plsh_token_ids_free(&ids);
    plsh_chat_close(chat);
}

static void refusals(void **state) {
    const plsh_chat_message tool = {"tool", {"a", 1}}, reply = {"assistant", {"a", 1}};
    plsh_token_ids ids = {0};
    plsh_error error;
    plsh_chat *chat;
    (void)state;
    assert_fails(parse(&chat, "{{ messages }}", &error), PLSH_STATUS_UNSUPPORTED, "ChatML");
    assert_null(chat);
    assert_fails(parse(&chat, "", &error), PLSH_STATUS_UNSUPPORTED, "x.jinja");
    assert_ok(parse(&chat, chatml, &error));
    assert_fails(plsh_chat_ids(chat, &tool, 1, true, &ids, &error), PLSH_STATUS_INVALID, "tool");
    assert_fails(plsh_chat_ids(chat, NULL, 0, true, &ids, &error), PLSH_STATUS_INVALID,
                 "0 messages");
    plsh_chat_close(chat);
    assert_ok(
        parse(&chat, "{{bos_token}}{{'[INST] '+m['content']+' [/INST]'}}{{eos_token}}", &error));
    assert_fails(plsh_chat_ids(chat, &reply, 1, true, &ids, &error), PLSH_STATUS_INVALID, "turns");
    assert_int_equal(ids.count, 0);
    plsh_chat_close(chat);
}

static plsh_status encode_once(void *context, plsh_error *error) {
    const plsh_chat_message message = {"user", {"a<s>b", 5}};
    plsh_token_ids ids = {0};
    plsh_chat *chat;
    (void)context;
    plsh_status status = parse(&chat, chatml, error);
    if (!status) status = plsh_chat_ids(chat, &message, 1, true, &ids, error);
    plsh_chat_close(chat);
    plsh_token_ids_free(&ids);
    return status;
}

static void every_allocation(void **state) {
    (void)state;
    test_every_allocation(encode_once, NULL, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_jinja), cmocka_unit_test(a_message_cannot_end_its_turn),
        cmocka_unit_test(refusals), cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
