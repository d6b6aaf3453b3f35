/* tests: JSON and tables. */
#include "support/support.h"

#include "base/random.h"
#include "base/text.h"
#include "cli/record/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_json(cli_json *json, const char *expected) {
    plsh_error error;
    const char *text;
    size_t length;
    assert_ok(cli_json_finish(json, &text, &length, &error));
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    cli_json_free(json);
}

static void test_json_document(void **state) {
    (void)state;
    plsh_error error;
    cli_json *json;
    assert_ok(cli_json_create(&json, &error));
    cli_json_begin_object(json, NULL);
    cli_json_number(json, "x", 0.1);
    cli_json_integer(json, "big", INT64_MIN);
    cli_json_unsigned(json, "bigger", UINT64_MAX);
    cli_json_boolean(json, "yes", true);
    cli_json_text(json, "none", NULL);
    cli_json_begin_array(json, "empty");
    cli_json_end(json);
    cli_json_begin_array(json, "rows");
    cli_json_begin_object(json, NULL);
    cli_json_number(json, "nan", NAN);
    cli_json_number(json, "inf", -INFINITY);
    cli_json_end(json);
    cli_json_begin_array(json, NULL);
    cli_json_integer(json, NULL, 1);
    cli_json_integer(json, NULL, 2);
    cli_json_end(json);
    cli_json_end(json);
    cli_json_end(json);
    assert_json(json, "{\n"
                      "  \"x\": 0.1,\n"
                      "  \"big\": -9223372036854775808,\n"
                      "  \"bigger\": 18446744073709551615,\n"
                      "  \"yes\": true,\n"
                      "  \"none\": null,\n"
                      "  \"empty\": [],\n"
                      "  \"rows\": [\n"
                      "    {\"nan\": null,\"inf\": null},\n"
                      "    [1,2]\n"
                      "  ]\n"
                      "}\n");
}

/* A line of a log: ends where the line does, whatever a text holds. */
static void test_json_line(void **state) {
    (void)state;
    plsh_error error;
    cli_json *json;
    assert_ok(cli_json_create(&json, &error));
    cli_json_one_line(json);
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "step", 3);
    cli_json_rounded(json, "loss", 2.0 / 3.0, 9);
    cli_json_rounded(json, "norm", NAN, 9);
    cli_json_text(json, "skipped", "a \"b\"\n");
    cli_json_begin_array(json, "list");
    cli_json_integer(json, NULL, 1);
    cli_json_integer(json, NULL, 2);
    cli_json_end(json);
    cli_json_end(json);
    assert_json(json, "{\"step\": 3, \"loss\": 0.666666667, \"norm\": null, "
                      "\"skipped\": \"a \\\"b\\\"\\n\", \"list\": [1, 2]}\n");
}

static void test_json_strings(void **state) {
    (void)state;
    const char *cases[][2] = {
        {"plain", "\"plain\"\n"},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\"\n"},
        {"\n\t\x01\x7f", "\"\\n\\u0009\\u0001\\u007f\"\n"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\"\n"},
        {"\xff", "\"\\ufffd\"\n"},            /* no UTF-8 at all */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\"\n"}, /* overlong */
        {"\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n"}, /* past the last */
        {"\xe2\x82", "\"\\ufffd\\ufffd\"\n"},                       /* cut short */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plsh_error error;
        cli_json *json;
        assert_ok(cli_json_create(&json, &error));
        cli_json_text(json, NULL, cases[i][0]);
        assert_json(json, cases[i][1]);
    }
}

static void test_json_misuse_is_an_error(void **state) {
    (void)state;
    plsh_error error;
    cli_json *json;
    const char *text;
    size_t length;
    assert_ok(cli_json_create(&json, &error));
    cli_json_begin_object(json, NULL);
    assert_fails(cli_json_finish(json, &text, &length, &error), PLSH_STATUS_INVALID, "no end");
    cli_json_end(json);
    cli_json_end(json);
    assert_fails(cli_json_finish(json, &text, &length, &error), PLSH_STATUS_INVALID, "begin");
    cli_json_free(json);
    assert_ok(cli_json_create(&json, &error));
    for (int i = 0; i < 40; i++) cli_json_begin_array(json, NULL);
    for (int i = 0; i < 32; i++) cli_json_end(json);
    assert_fails(cli_json_finish(json, &text, &length, &error), PLSH_STATUS_OVERFLOW, "levels");
    cli_json_free(json);
    cli_json_free(NULL);
}

/* Any finite double reads back as itself; simple ones stay short. */
static void test_numbers_round_trip(void **state) {
    (void)state;
    char text[PLSH_NUMBER_SIZE];
    const plsh_stream stream = {.seed = 5, .head = 0, .purpose = 0};
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t bits = plsh_random_at(stream, i).word[0];
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        plsh_number_print(text, value);
        assert_true(strtod(text, NULL) == value);
    }
    plsh_number_print(text, 0.1);
    assert_string_equal(text, "0.1");
    plsh_number_print(text, 1.0 / 3);
    assert_string_equal(text, "0.3333333333333333");
    plsh_number_print(text, 5e-324);
    assert_true(strtod(text, NULL) == 5e-324);
}

static const cli_column columns[] = {
    {"name", CLI_CELL_TEXT, NULL, 0},
    {"count", CLI_CELL_INTEGER, "how many", 0},
    {"x", CLI_CELL_NUMBER, NULL, 3},
    {"ok", CLI_CELL_BOOLEAN, NULL, 0},
};

static void add_rows(cli_table *table) {
    char name[] = "caf\xc3\xa9";
    cli_table_add(
        table, (cli_cell[]){{.text = name}, {.integer = 7}, {.number = 1.0 / 3}, {.boolean = 1}});
    name[0] = 'X'; /* texts are copied */
    cli_table_add(table, (cli_cell[]){{.text = NULL},
                                      {.integer = -123456789012},
                                      {.number = NAN},
                                      {.boolean = false}});
}

static void test_table_serves_both(void **state) {
    (void)state;
    plsh_error error;
    cli_table *table;
    cli_json *json;
    const char *text;
    size_t length;
    assert_ok(cli_table_create(&table, columns, 4, &error));
    add_rows(table);
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(cli_table_text(table, &text, &length, &error));
        assert_string_equal(text, "name       how many      x   ok\n"
                                  "caf\xc3\xa9              7  0.333  yes\n"
                                  "-     -123456789012      -   no\n");
    }
    assert_ok(cli_json_create(&json, &error));
    cli_table_json(table, json, NULL);
    assert_json(json, "[\n"
                      "  {\n"
                      "    \"name\": \"caf\xc3\xa9\",\n"
                      "    \"count\": 7,\n"
                      "    \"x\": 0.3333333333333333,\n"
                      "    \"ok\": true\n"
                      "  },\n"
                      "  {\n"
                      "    \"name\": null,\n"
                      "    \"count\": -123456789012,\n"
                      "    \"x\": null,\n"
                      "    \"ok\": false\n"
                      "  }\n"
                      "]\n");
    cli_table_free(table);
    cli_table_free(NULL);
}

static plsh_status fill(void *context, plsh_error *error) {
    (void)context;
    cli_table *table = NULL;
    cli_json *json = NULL;
    const char *text;
    size_t length;
    plsh_status status = cli_table_create(&table, columns, 4, error);
    for (int i = 0; i < 40 && status == PLSH_STATUS_OK; i++) add_rows(table);
    if (status == PLSH_STATUS_OK) status = cli_table_text(table, &text, &length, error);
    if (status == PLSH_STATUS_OK) status = cli_json_create(&json, error);
    if (status == PLSH_STATUS_OK) cli_table_json(table, json, NULL);
    if (status == PLSH_STATUS_OK) status = cli_json_finish(json, &text, &length, error);
    cli_json_free(json);
    cli_table_free(table);
    return status;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    test_every_allocation(fill, NULL, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_document),
        cmocka_unit_test(test_json_line),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_misuse_is_an_error),
        cmocka_unit_test(test_numbers_round_trip),
        cmocka_unit_test(test_table_serves_both),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
