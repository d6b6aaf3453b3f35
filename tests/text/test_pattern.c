/* text: regular expressions in Oniguruma's dialect. The expected results are those of the
 * library. */
#include "text/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* Writes "[match]" around every match. */
static void mark(const char *expression, const char *subject, char *out, size_t size) {
    plsh_pattern *pattern;
    plsh_search search = {0};
    plsh_error error;
    assert_ok(plsh_pattern_create(&pattern, expression, strlen(expression), false, "test", &error));
    plsh_matches matches = plsh_matches_begin(pattern, &search, subject, strlen(subject));
    size_t done = 0, begin, end;
    plsh_text text = {0};
    for (bool found = true;;) {
        assert_ok(plsh_matches_next(&matches, &begin, &end, &found, &error));
        if (!found) break;
        plsh_text_append(&text, subject + done, begin - done);
        plsh_text_print(&text, "[%.*s]", (int)(end - begin), subject + begin);
        done = end;
    }
    plsh_text_append(&text, subject + done, strlen(subject) - done);
    assert_true(text.length < size);
    memcpy(out, text.bytes, text.length + 1);
    plsh_text_free(&text);
    plsh_search_free(&search);
    plsh_pattern_free(pattern);
}

static void test_dialect(void **state) {
    (void)state;
    static const struct {
        const char *expression, *subject, *marked;
    } cases[] = {
        {" ?[^(\\s|[.,!?])]+", "foo, (bar) x|y", "[foo], ([bar])[ x]|[y]"},
        {"[a-z&&[^aeiou]]+", "hello", "[h]e[ll]o"},
        {"[^a-c&&b]", "abc", "[a]b[c]"},
        {"[^[^ab]]", "abc", "[a][b]c"},
        {"\\h+", "xfaceg", "x[face]g"},
        {"a{1,2}+b", "aaaab", "[aaaab]"},
        {"a{2}?b", "aaab b", "a[aab] [b]"},
        {"a{,2}b", "aaab b", "a[aab] [b]"},
        {"a?+a", "aa", "[aa]"},
        {"\\s", "a\xE1\xA0\x8E\x62 \xC2\x85", "a\xE1\xA0\x8E\x62[ ][\xC2\x85]"},
        {"\\w+", "a\xCC\x81-b_1", "[a\xCC\x81]-[b_1]"},
        {"\\b", "a b", "[]a[] []b[]"},
        {"(?m:.)x", "\nx", "[\nx]"},
        {".x", "\nx", "\nx"},
        {"^.|.$", "ab\ncd", "[a][b]\n[c][d]"},
        {"a(?i)b|c", "aB aC C", "[aB] [aC] C"},
        {"(?x: a # b\n c )", "ac", "[ac]"},
        {"[[:punct:]]", "a+\xC2\xB0", "a[+][\xC2\xB0]"},
        {"\\p{Punct}", "a+.", "a+[.]"},
        {"[]a]", "a]b", "[a][]]b"},
        {"[a-]", "a-b", "[a][-]b"},
        {"[\\d-x]", "1-x2", "[1][-][x][2]"},
        {"\\p{^L}\\P{L}", "a12", "a[12]"},
        {"x*", "axb", "[]a[x]b[]"},
        {"(?<=a)b(?!c)", "ab abc b", "a[b] abc b"},
        /* Newer than Unicode 14: a letter of Unicode 15, and of 16. */
        {"\\p{L}+", "a\xF0\xB1\x8D\x90 \xF0\x90\x97\x80", "[a\xF0\xB1\x8D\x90] [\xF0\x90\x97\x80]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char marked[256];
        mark(cases[i].expression, cases[i].subject, marked, sizeof marked);
        if (strcmp(marked, cases[i].marked) != 0)
            fail_msg("%s on \"%s\": %s, expected %s", cases[i].expression, cases[i].subject, marked,
                     cases[i].marked);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"(a", "a group without its )"}, {"a)", "a ) without its ("},
        {"[a", "a class without its ]"}, {"*a", "nothing to repeat"},
        {"\\p{Nonsense}", "Nonsense"},   {"(?s:.)", "an unknown option"},
        {"[b-a]", "backwards"},          {"(?~a)", "an unknown option"},
        {"\\", "a backslash at the end"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_pattern *pattern;
        plsh_error error;
        error.message[0] = '\0';
        assert_int_not_equal(
            plsh_pattern_create(&pattern, cases[i][0], strlen(cases[i][0]), false, "test", &error),
            PLSH_STATUS_OK);
        test_message_holds(error.message, cases[i][1]);
    }
    /* Depth is bounded, so that no file can exhaust the stack. */
    char deep[2001] = "";
    memset(deep, '(', 1000);
    memset(deep + 1000, ')', 1000);
    plsh_pattern *pattern;
    plsh_error error;
    assert_fails(plsh_pattern_create(&pattern, deep, 2000, false, "test", &error),
                 PLSH_STATUS_UNSUPPORTED, "nested too deeply");
}

/* A million of what backtracks: more than the thread's stack would hold. */
static void test_long(void **state) {
    (void)state;
    enum { N = 1000000 };
    static const char *const expressions[] = {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "(?:[ [^a]])+"};
    char *subject = malloc(N);
    memset(subject, ' ', N);
    for (size_t i = 0; i < 2; i++) {
        plsh_pattern *pattern;
        plsh_search search = {0};
        plsh_error error;
        size_t begin, end;
        bool found;
        assert_ok(plsh_pattern_create(&pattern, expressions[i], strlen(expressions[i]), false,
                                      "test", &error));
        plsh_matches matches = plsh_matches_begin(pattern, &search, subject, N);
        assert_ok(plsh_matches_next(&matches, &begin, &end, &found, &error));
        assert_true(found && begin == 0 && end == N);
        plsh_search_free(&search);
        plsh_pattern_free(pattern);
    }
    free(subject);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dialect),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
