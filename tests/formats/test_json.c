/* weights: fields of JSON objects, present, absent and wrong. */
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static json_t *parse(const char *text) {
    json_t *root;
    plsh_error error;
    assert_int_equal(plsh_weights_json_parse(text, strlen(text), "x.json", &root, &error),
                     PLSH_STATUS_OK);
    return root;
}

static void test_fields(void **state) {
    (void)state;
    json_t *root = parse("{\"n\": 7, \"x\": 1.5, \"b\": true, \"s\": \"hi\", \"nothing\": null}");
    int64_t n = 1, other = 2;
    double x = 0.0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(plsh_weights_json_integer(root, "n", 0, 9, "x.json", &n, NULL),
                     PLSH_STATUS_OK);
    assert_int_equal(plsh_weights_json_integer(root, "nothing", 0, 9, "x.json", &other, NULL), 0);
    assert_int_equal(plsh_weights_json_integer(root, "absent", 0, 9, "x.json", &other, NULL), 0);
    assert_int_equal(plsh_weights_json_number(root, "x", "x.json", &x, NULL), PLSH_STATUS_OK);
    assert_int_equal(plsh_weights_json_bool(root, "b", "x.json", &b, NULL), PLSH_STATUS_OK);
    assert_int_equal(plsh_weights_json_string(root, "s", "x.json", &s, NULL), PLSH_STATUS_OK);
    assert_int_equal(n, 7);
    assert_int_equal(other, 2);
    assert_true(x == 1.5 && b);
    assert_string_equal(s, "hi");
    json_decref(root);
}

static void test_wrong(void **state) {
    (void)state;
    plsh_error error;
    json_t *root = parse("{\"n\": 70, \"x\": \"1.5\", \"z\": \"a\\u0000b\"}");
    int64_t n = 1;
    double x = 0.0;
    const char *s = NULL;
    assert_int_equal(plsh_weights_json_integer(root, "n", 0, 9, "x.json", &n, &error),
                     PLSH_STATUS_FORMAT);
    assert_string_equal(error.message, "x.json: \"n\" is 70; 0 to 9");
    assert_int_equal(plsh_weights_json_number(root, "x", "x.json", &x, &error), PLSH_STATUS_FORMAT);
    assert_string_equal(error.message, "x.json: \"x\" must be a number");
    assert_int_equal(plsh_weights_json_string(root, "z", "x.json", &s, &error), PLSH_STATUS_FORMAT);
    json_decref(root);
    const char *bad = "{\"a\": 1, \"a\": 2}";
    assert_int_equal(plsh_weights_json_parse(bad, strlen(bad), "x.json", &root, &error),
                     PLSH_STATUS_FORMAT);
    assert_null(root);
}

/* A text of 13 MB that would be a tree of 500 MB and more. */
static void test_too_many(void **state) {
    (void)state;
    enum { COUNT = 4 << 20 };
    plsh_error error;
    json_t *root;
    char *text = malloc(3 * (size_t)COUNT + 8);
    assert_non_null(text);
    size_t length = 0;
    text[length++] = '[';
    for (int i = 0; i < COUNT; i++, length += 3) memcpy(text + length, "[],", 3);
    memcpy(text + length, "[]]", 3);
    length += 3;
    assert_int_equal(plsh_weights_json_parse(text, length, "x.json", &root, &error),
                     PLSH_STATUS_UNSUPPORTED);
    assert_null(root);
    assert_string_equal(error.message, "x.json: JSON of 8388610 values; at most 4194304 are read");
    /* In a string they cost nothing. */
    text[1] = '"';
    memcpy(text + length - 2, "\"]", 2);
    assert_int_equal(plsh_weights_json_parse(text, length, "x.json", &root, &error),
                     PLSH_STATUS_OK);
    json_decref(root);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
