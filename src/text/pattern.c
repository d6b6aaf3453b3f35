/* text: the regular expressions of tokenizer files, by PCRE2. */
#include "text/pattern.h"

#include <stdio.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/unicode.h"

struct plsh_pattern {
    char *literal; /* NULL: an expression */
    size_t literal_length;
    pcre2_code *plain;
    pcre2_code *newer; /* also knows characters above Unicode 14; NULL: needs no other form */
    char what[96];
};

enum { STACK_LEAST = 32 * 1024, STACK_MOST = 32 * 1024 * 1024 }; /* of compiled expressions */

static plsh_status compile(pcre2_code **out, const plsh_text *expression, const char *what,
                           plsh_error *error) {
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", what);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)expression->bytes, expression->length,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                         &offset, context);
    pcre2_compile_context_free(context);
    if (*out != NULL) {
        pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* where there is none, it is interpreted */
        return PLSH_STATUS_OK;
    }
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(code, message, sizeof message);
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: the regular expression is refused: %s", what,
                     (const char *)message);
}

static plsh_status compile_forms(plsh_pattern *pattern, const char *expression, size_t length,
                                 plsh_error *error) {
    plsh_text plain = {0}, newer = {0};
    plsh_text_reserve(&plain, 1);
    plsh_status status =
        plsh_pattern_translate(&plain, expression, length, false, pattern->what, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_pattern_translate(&newer, expression, length, true, pattern->what, error);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&plain, error);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&newer, error);
    if (status == PLSH_STATUS_OK) status = compile(&pattern->plain, &plain, pattern->what, error);
    if (status == PLSH_STATUS_OK && newer.length != plain.length)
        status = compile(&pattern->newer, &newer, pattern->what, error);
    plsh_text_free(&plain);
    plsh_text_free(&newer);
    return status;
}

plsh_status plsh_pattern_create(plsh_pattern **out, const char *expression, size_t length,
                                bool literal, const char *what, plsh_error *error) {
    plsh_pattern *pattern;
    *out = NULL;
    plsh_status status = plsh_allocate((void **)&pattern, 1, sizeof *pattern, "a pattern", error);
    if (status != PLSH_STATUS_OK) return status;
    snprintf(pattern->what, sizeof pattern->what, "%s", what);
    if (literal && length > 0) {
        status = plsh_allocate((void **)&pattern->literal, length, 1, "a pattern", error);
        if (status == PLSH_STATUS_OK) memcpy(pattern->literal, expression, length);
        pattern->literal_length = length;
    } else {
        status = compile_forms(pattern, expression, length, error);
    }
    if (status != PLSH_STATUS_OK) {
        plsh_pattern_free(pattern);
        return status;
    }
    *out = pattern;
    return PLSH_STATUS_OK;
}

void plsh_pattern_free(plsh_pattern *pattern) {
    if (pattern == NULL) return;
    pcre2_code_free(pattern->plain);
    pcre2_code_free(pattern->newer);
    plsh_release(pattern->literal);
    plsh_release(pattern);
}

void plsh_search_free(plsh_search *search) {
    pcre2_match_data_free(search->match);
    pcre2_match_context_free(search->context);
    pcre2_jit_stack_free(search->stack);
    *search = (plsh_search){0};
}

static bool prepare_search(plsh_search *search) {
    if (search->match != NULL) return true;
    if (search->context == NULL) search->context = pcre2_match_context_create(NULL);
    if (search->context == NULL) return false;
    search->match = pcre2_match_data_create(1, NULL);
    return search->match != NULL;
}

plsh_matches plsh_matches_begin(const plsh_pattern *pattern, plsh_search *search, const char *bytes,
                                size_t length) {
    return (plsh_matches){
        .pattern = pattern,
        .search = search,
        .bytes = bytes,
        .length = length,
        .last_end = SIZE_MAX,
        .newer = pattern->newer != NULL && plsh_unicode_has_newer(bytes, length),
    };
}

static void find_literal(plsh_matches *m, size_t *begin, size_t *end, bool *found) {
    const plsh_pattern *pattern = m->pattern;
    const char *hit =
        memmem(m->bytes + m->at, m->length - m->at, pattern->literal, pattern->literal_length);
    *found = hit != NULL;
    if (!*found) return;
    *begin = (size_t)(hit - m->bytes);
    *end = *begin + pattern->literal_length;
    m->at = *end;
}

/* One search. The thread's own stack serves nearly all; then a larger one, then the interpreter. */
static int search_once(const plsh_matches *m, const pcre2_code *code) {
    plsh_search *search = m->search;
    const PCRE2_SPTR bytes = (PCRE2_SPTR)m->bytes;
    int result = pcre2_match(code, bytes, m->length, m->at, PCRE2_NO_UTF_CHECK, search->match,
                             search->context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    if (search->stack == NULL) {
        search->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
        pcre2_jit_stack_assign(search->context, NULL, search->stack);
        result = pcre2_match(code, bytes, m->length, m->at, PCRE2_NO_UTF_CHECK, search->match,
                             search->context);
        if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    }
    return pcre2_match(code, bytes, m->length, m->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       search->match, search->context);
}

static plsh_status find_expression(plsh_matches *m, size_t *begin, size_t *end, bool *found,
                                   plsh_error *error) {
    if (!prepare_search(m->search))
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", m->pattern->what);
    const int result = search_once(m, m->newer ? m->pattern->newer : m->pattern->plain);
    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH) return PLSH_STATUS_OK;
    if (result < 0) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(result, message, sizeof message);
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: searching failed: %s",
                         m->pattern->what, (const char *)message);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(m->search->match);
    *begin = place[0];
    *end = place[1];
    if (*begin > *end) *begin = *end; /* \K inside a lookahead */
    return PLSH_STATUS_OK;
}

plsh_status plsh_matches_next(plsh_matches *m, size_t *begin, size_t *end, bool *found,
                              plsh_error *error) {
    *found = false;
    while (m->at <= m->length) {
        if (m->pattern->literal != NULL) return find_literal(m, begin, end, found), PLSH_STATUS_OK;
        const plsh_status status = find_expression(m, begin, end, found, error);
        if (status != PLSH_STATUS_OK || !*found) return status;
        if (*begin != *end || *end != m->last_end) {
            m->at = m->last_end = *end;
            return PLSH_STATUS_OK;
        }
        *found = false;
        m->at += m->at < m->length ? plsh_utf8_size(m->bytes[m->at]) : 1;
    }
    return PLSH_STATUS_OK;
}
