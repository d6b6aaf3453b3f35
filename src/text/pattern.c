/* text: the regular expressions of tokenizer files, by PCRE2. */
#include "text/pattern.h"

#include <stdio.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/unicode.h"

/* An expression is compiled twice: `quick` for the machine, with the limits below; `counted` with a
 * call back before every item, by which the work of a search is counted. */
typedef struct plsh_expression {
    pcre2_code *quick, *counted;
} plsh_expression;

struct plsh_pattern {
    char *literal; /* NULL: an expression */
    size_t literal_length;
    plsh_expression plain;
    plsh_expression newer; /* also knows characters above Unicode 14; NULL: needs no other form */
    bool refers_back;      /* has a back reference */
    uint32_t groups;       /* that are remembered */
    char what[96];
    char source[64]; /* the beginning of the expression, for messages */
};

/* How a search is bounded. PCRE2's limit of matches holds for one start of a match, and does not
 * count the characters that a single repeated class passes over. So it does not bound the time of a
 * search in a long text.
 *
 * A quick search sees QUICK_BYTES after its start and takes QUICK_STEPS for a start; its cost is at
 * most the product for every byte of the text. Where it would have to look further (PCRE2 says so:
 * a partial match), or comes to a limit, the counted search decides. It sees the whole text. A step
 * costs 1 plus the bytes that it moved, and a walk over a text of n bytes may take STEPS_AT_LEAST +
 * STEPS_PER_BYTE n steps.
 *
 * The numbers were measured: the expressions of GPT-2, Llama 3, Qwen, GPT-4o, BLOOM and DeepSeek
 * take at most 4 steps per byte on 2 MB of one class (letters of either case, digits, blanks,
 * newlines, signs, marks, Chinese; `test_long_runs` holds that), and the time to encode ordinary
 * texts is that of searches without limits. 64 steps per byte are 16 times that. */
enum {
    QUICK_BYTES = 256,
    QUICK_STEPS = 256,
    STEPS_PER_BYTE = 64,
    STEPS_AT_LEAST = 1 << 24,
    JIT_STACK_LEAST = 32 * 1024,
    JIT_STACK_MOST = 32 * 1024 * 1024,
    HEAP_KIBIBYTES = 64 * 1024,
    DEPTH_MOST = 1 << 20,
};

static plsh_status compile(pcre2_code **out, const plsh_text *expression, bool counted,
                           const char *what, plsh_error *error) {
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", what);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)expression->bytes, expression->length,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_USE_OFFSET_LIMIT | (counted ? PCRE2_AUTO_CALLOUT : 0),
                         &code, &offset, context);
    pcre2_compile_context_free(context);
    if (*out != NULL) {
        /* Where there is no compiler, it is interpreted. */
        pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE | (counted ? 0 : PCRE2_JIT_PARTIAL_HARD));
        return PLSH_STATUS_OK;
    }
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(code, message, sizeof message);
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: the regular expression is refused: %s", what,
                     (const char *)message);
}

static plsh_status compile_both(plsh_expression *out, const plsh_text *expression, const char *what,
                                plsh_error *error) {
    const plsh_status status = compile(&out->quick, expression, false, what, error);
    return status == PLSH_STATUS_OK ? compile(&out->counted, expression, true, what, error)
                                    : status;
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
    if (status == PLSH_STATUS_OK)
        status = compile_both(&pattern->plain, &plain, pattern->what, error);
    if (status == PLSH_STATUS_OK && newer.length != plain.length)
        status = compile_both(&pattern->newer, &newer, pattern->what, error);
    uint32_t back = 0;
    if (status == PLSH_STATUS_OK)
        pcre2_pattern_info(pattern->plain.quick, PCRE2_INFO_BACKREFMAX, &back);
    pattern->refers_back = back > 0;
    if (status == PLSH_STATUS_OK)
        pcre2_pattern_info(pattern->plain.quick, PCRE2_INFO_CAPTURECOUNT, &pattern->groups);
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
    const size_t most = sizeof pattern->source - 1;
    snprintf(pattern->source, sizeof pattern->source, "%.*s",
             (int)(length <= most ? length : plsh_utf8_before(expression, most)), expression);
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
    pcre2_code_free(pattern->plain.quick);
    pcre2_code_free(pattern->plain.counted);
    pcre2_code_free(pattern->newer.quick);
    pcre2_code_free(pattern->newer.counted);
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
    pcre2_set_heap_limit(search->context, HEAP_KIBIBYTES);
    pcre2_set_depth_limit(search->context, DEPTH_MOST);
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
        .steps_left = STEPS_AT_LEAST + STEPS_PER_BYTE * (uint64_t)length,
        .newer = pattern->newer.quick != NULL && plsh_unicode_has_newer(bytes, length),
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

/* The steps left to the counted search, and the position of its last step. */
typedef struct step_counter {
    uint64_t left;
    size_t place;
    const plsh_pattern *pattern;
} step_counter;

/* Called by PCRE2 before every item, with a copy of the groups. A back reference may compare all
 * that was matched so far. */
static int count_step(pcre2_callout_block *block, void *data) {
    step_counter *counter = data;
    const size_t place = block->current_position;
    uint64_t cost = 1 + counter->pattern->groups / 8;
    cost += place > counter->place ? place - counter->place : counter->place - place;
    if (counter->pattern->refers_back && place > block->start_match)
        cost += place - block->start_match;
    counter->place = place;
    counter->left = cost < counter->left ? counter->left - cost : 0;
    return counter->left > 0 ? 0 : PCRE2_ERROR_CALLOUT;
}

/* A match that begins at `at` to the context's offset limit, by counted steps. */
static int search_counted(plsh_matches *m, const pcre2_code *code, size_t at) {
    plsh_search *search = m->search;
    const PCRE2_SPTR bytes = (PCRE2_SPTR)m->bytes;
    step_counter counter = {m->steps_left, at, m->pattern};
    if (search->stack == NULL)
        search->stack = pcre2_jit_stack_create(JIT_STACK_LEAST, JIT_STACK_MOST, NULL);
    pcre2_jit_stack_assign(search->context, NULL, search->stack);
    pcre2_set_match_limit(search->context,
                          m->steps_left < UINT32_MAX ? (uint32_t)m->steps_left : UINT32_MAX);
    pcre2_set_callout(search->context, count_step, &counter);
    int result =
        pcre2_match(code, bytes, m->length, at, PCRE2_NO_UTF_CHECK, search->match, search->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(code, bytes, m->length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             search->match, search->context);
    pcre2_set_callout(search->context, NULL, NULL);
    pcre2_jit_stack_assign(search->context, NULL, NULL);
    m->steps_left = counter.left;
    return result;
}

static bool is_inconclusive(int result) {
    return result == PCRE2_ERROR_PARTIAL || result == PCRE2_ERROR_MATCHLIMIT ||
           result == PCRE2_ERROR_DEPTHLIMIT || result == PCRE2_ERROR_HEAPLIMIT ||
           result == PCRE2_ERROR_JIT_STACKLIMIT;
}

/* The first match from m->at on, QUICK_BYTES of starts at a time. */
static int search_windows(plsh_matches *m, const plsh_expression *expression) {
    plsh_search *search = m->search;
    for (size_t at = m->at, end;; at = end) {
        const bool last = m->length - at <= QUICK_BYTES;
        end = last ? m->length : plsh_utf8_before(m->bytes, at + QUICK_BYTES);
        pcre2_set_offset_limit(search->context,
                               last ? PCRE2_UNSET : plsh_utf8_before(m->bytes, end));
        pcre2_set_match_limit(search->context, QUICK_STEPS);
        int result = pcre2_match(expression->quick, (PCRE2_SPTR)m->bytes, end, at,
                                 PCRE2_NO_UTF_CHECK | (last ? 0 : PCRE2_PARTIAL_HARD),
                                 search->match, search->context);
        if (is_inconclusive(result)) result = search_counted(m, expression->counted, at);
        if (result != PCRE2_ERROR_NOMATCH || last) return result;
    }
}

static plsh_status fail_search(const plsh_matches *m, int result, plsh_error *error) {
    const plsh_pattern *p = m->pattern;
    PCRE2_UCHAR message[128];
    if (result == PCRE2_ERROR_CALLOUT || result == PCRE2_ERROR_MATCHLIMIT)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the regular expression %s takes more than %d steps per byte on a text"
                         " of %zu bytes; it has to search in linear time",
                         p->what, p->source, STEPS_PER_BYTE, m->length);
    if (result == PCRE2_ERROR_HEAPLIMIT || result == PCRE2_ERROR_DEPTHLIMIT)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the regular expression %s needs more than %d MB to search a text of"
                         " %zu bytes; a group that repeats needs less where it is possessive (+ "
                         "after its repeat)",
                         p->what, p->source, HEAP_KIBIBYTES / 1024, m->length);
    pcre2_get_error_message(result, message, sizeof message);
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: the regular expression %s: %s", p->what,
                     p->source, (const char *)message);
}

static plsh_status find_expression(plsh_matches *m, size_t *begin, size_t *end, bool *found,
                                   plsh_error *error) {
    if (!prepare_search(m->search))
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", m->pattern->what);
    const int result = search_windows(m, m->newer ? &m->pattern->newer : &m->pattern->plain);
    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH) return PLSH_STATUS_OK;
    if (result < 0) return fail_search(m, result, error);
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
