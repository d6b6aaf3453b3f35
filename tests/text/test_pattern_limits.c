/* text: searches in long texts. They find what PCRE2 finds without limits, the expressions of real
 * tokenizers are far from every limit, and expressions that would not end are refused. */
#include "text/pattern.h"

#include <stdio.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "support/support.h"

static plsh_pattern *make(const char *expression) {
    plsh_pattern *pattern;
    plsh_error error;
    assert_ok(plsh_pattern_create(&pattern, expression, strlen(expression), false, "test", &error));
    return pattern;
}

/* ---- the same matches ---- */

static pcre2_code *compile_plainly(const char *expression) {
    plsh_text text = {0};
    plsh_error error;
    int code;
    PCRE2_SIZE offset;
    assert_ok(plsh_pattern_translate(&text, expression, strlen(expression), false, "test", &error));
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)text.bytes, text.length, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                      &code, &offset, NULL);
    assert_non_null(compiled);
    plsh_text_free(&text);
    return compiled;
}

/* Runs of one character each, some longer than what a quick search sees. */
static void write_runs(plsh_text *text, uint64_t seed) {
    static const char *const units[] = {"a",
                                        "B",
                                        "1",
                                        " ",
                                        "\n",
                                        "\r\n",
                                        ".",
                                        "'s",
                                        "\xC3\xA9",
                                        "\xE4\xB8\x80",
                                        "\xF0\x9F\x98\x80",
                                        "\t",
                                        "e\xCC\x81"};
    static const size_t lengths[] = {1, 1, 2, 3, 5, 40, 130, 254, 255, 256, 257, 300, 700};
    plsh_text_clear(text);
    while (text->length < 6000) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const char *unit = units[(seed >> 40) % 13];
        for (size_t i = lengths[(seed >> 50) % 13]; i > 0; i--)
            plsh_text_append(text, unit, strlen(unit));
    }
}

static void compare(const char *expression, const plsh_text *text) {
    plsh_pattern *pattern = make(expression);
    pcre2_code *code = compile_plainly(expression);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    plsh_search search = {0};
    plsh_error error;
    plsh_matches matches = plsh_matches_begin(pattern, &search, text->bytes, text->length);
    for (size_t at = 0, last = SIZE_MAX; at <= text->length;) {
        size_t begin, end;
        bool found;
        const int result = pcre2_match(code, (PCRE2_SPTR)text->bytes, text->length, at,
                                       PCRE2_NO_UTF_CHECK, match, NULL);
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(match);
        if (result >= 0 && place[0] == place[1] && place[1] == last) {
            at += at < text->length ? plsh_utf8_size(text->bytes[at]) : 1;
            continue;
        }
        assert_ok(plsh_matches_next(&matches, &begin, &end, &found, &error));
        assert_int_equal(found, result >= 0);
        if (!found) break;
        if (begin != place[0] || end != place[1])
            fail_msg("%s: [%zu, %zu), and by PCRE2 [%zu, %zu)", expression, begin, end, place[0],
                     place[1]);
        at = last = end;
    }
    plsh_search_free(&search);
    plsh_pattern_free(pattern);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

static const char *const real[] = {
    /* GPT-2 */
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    /* Llama 3, Qwen 2 and 3 (with one digit at a time) */
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    /* GPT-4o */
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    /* BLOOM; DeepSeek */
    " ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])]"
    "+",
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
};

static void test_same_matches(void **state) {
    (void)state;
    static const char *const others[] = {
        "\\b",           "$",           "^.*$",           "(?<=a)1|B(?=1)", "\\R", "\\X", "x*",
        "(?:a|1)+(?!B)", "[^\\n]+\\n?", "a{3,300}?[.B]?", "(.)\\1\\1",
    };
    plsh_text text = {0};
    for (uint64_t seed = 0; seed < 6; seed++) {
        write_runs(&text, seed);
        for (size_t i = 0; i < sizeof real / sizeof *real; i++) compare(real[i], &text);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) compare(others[i], &text);
    }
    plsh_text_free(&text);
}

/* ---- how far from the limit ---- */

enum { LONG = 2000000, SHORT = 100000 };

/* Walks over a text; how many steps it took per byte. */
static double walk(const plsh_pattern *pattern, const char *subject, size_t length,
                   plsh_status *status, plsh_error *error) {
    plsh_search search = {0};
    plsh_matches matches = plsh_matches_begin(pattern, &search, subject, length);
    const uint64_t before = matches.steps_left;
    size_t begin, end;
    bool found = true;
    *status = PLSH_STATUS_OK;
    while (*status == PLSH_STATUS_OK && found)
        *status = plsh_matches_next(&matches, &begin, &end, &found, error);
    plsh_search_free(&search);
    return (double)(before - matches.steps_left) / (double)length;
}

static void fill(char *subject, const char *unit) {
    const size_t size = strlen(unit);
    for (size_t i = 0; i < LONG; i++) subject[i] = unit[i % size];
}

static void test_long_runs(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "A",
                                        "1",
                                        " ",
                                        "\n",
                                        ".",
                                        "\t",
                                        "\xC3\xA9",
                                        " .",
                                        "\xCC\x81",
                                        "\xE4\xB8\x80\xE4\xB8\x80",
                                        "aB",
                                        "'s"};
    char *subject = malloc(LONG);
    double most = 0;
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        plsh_pattern *pattern = make(real[i]);
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            plsh_status status;
            plsh_error error;
            fill(subject, units[k]);
            if (LONG % strlen(units[k]) != 0) memset(subject + LONG - 2, '.', 2);
            const double steps = walk(pattern, subject, LONG, &status, &error);
            assert_ok(status);
            if (steps > most) most = steps;
        }
        plsh_pattern_free(pattern);
    }
    print_message("at most %.2f steps per byte\n", most);
    assert_true(most > 1); /* a run was searched by counted steps */
    assert_true(most < 8); /* of the 64 that a search has */
    free(subject);
}

/* ---- expressions that would not end ---- */

static void test_hostile(void **state) {
    (void)state;
    static const char steps[] = "takes more than 64 steps per byte",
                      memory[] = "needs more than 64 MB";
    static const struct {
        const char *expression, *limit;
        size_t length;
    } cases[] = {
        {"(?=(?:a|b)*c)", memory, LONG},       {"(?=a*c)", steps, LONG},
        {"(?=(?:a|b)*c)", steps, SHORT},       {"(?=a*a*a*c)", steps, SHORT},
        {"(?=(?:a|aa)+c)", steps, SHORT},      {"(a*)*c", steps, SHORT},
        {"(?=(a*)\\1\\1c)", steps, SHORT},     {"(?=(?>a*)(?>b*)c)", steps, SHORT},
        {"(?=(?:a{1000}){60}c)", steps, LONG},
    };
    char *subject = malloc(LONG);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_pattern *pattern = make(cases[i].expression);
        plsh_status status;
        plsh_error error;
        fill(subject, "a");
        memcpy(subject + cases[i].length - 2, "bc", 2);
        walk(pattern, subject, cases[i].length, &status, &error);
        if (status != PLSH_STATUS_UNSUPPORTED)
            fail_msg("%s: status %d", cases[i].expression, (int)status);
        test_message_holds(error.message, "test: the regular expression ");
        test_message_holds(error.message, cases[i].expression);
        test_message_holds(error.message, cases[i].limit);
        plsh_pattern_free(pattern);
    }
    free(subject);
}

static void test_repeats(void **state) {
    (void)state;
    plsh_pattern *pattern;
    plsh_error error;
    assert_fails(plsh_pattern_create(&pattern, "a{1001}", 7, false, "test", &error),
                 PLSH_STATUS_UNSUPPORTED, "more than 1000 times");
    plsh_pattern_free(make("a{1000,}|b{1,5000}"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_matches), cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_repeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
