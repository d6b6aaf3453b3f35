/* text: pre-tokenizers. */
#include "text/split.h"

#include <string.h>

#include "base/status.h"

plsh_status plsh_splitters_add(plsh_splitters *s, plsh_splitter step, plsh_error *error) {
    plsh_status status = plsh_text_status(&step.content, error);
    if (status == PLSH_STATUS_OK && s->count == PLSH_SPLITTERS_MOST)
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "more than %d pre-tokenizers",
                           PLSH_SPLITTERS_MOST);
    if (status != PLSH_STATUS_OK) {
        plsh_text_free(&step.content);
        plsh_pattern_free(step.pattern);
        return status;
    }
    s->steps[s->count++] = step;
    return PLSH_STATUS_OK;
}

void plsh_splitters_free(plsh_splitters *s) {
    for (size_t i = 0; i < s->count; i++) {
        plsh_text_free(&s->steps[i].content);
        plsh_pattern_free(s->steps[i].pattern);
    }
    s->count = 0;
}

void plsh_split_work_free(plsh_split_work *work) {
    for (size_t i = 0; i < PLSH_SPLITTERS_MOST; i++) {
        plsh_text_free(&work->steps[i].spaced);
        plsh_text_free(&work->steps[i].letters);
        plsh_search_free(&work->steps[i].search);
    }
}

/* A word between two steps: step number `step` is next. */
typedef struct walk {
    const plsh_splitters *splitters;
    plsh_split_work *work;
    plsh_split_word *word;
    void *context;
    plsh_error *error;
} walk;

static plsh_status run_step(const walk *w, size_t step, const char *bytes, size_t length,
                            bool first);

/* The receiver of a step's words. */
typedef struct cutter {
    const walk *w;
    size_t step;
    const char *bytes;
    bool first;   /* bytes[0] is where the user's text begins */
    bool letters; /* bytes as letters */
    plsh_split_behavior behavior;
    /* A piece that the next one may still join. */
    bool pending, pending_match;
    size_t begin, end;
} cutter;

static plsh_status hand_on(const cutter *c, size_t begin, size_t end) {
    const char *bytes = c->bytes + begin;
    size_t length = end - begin;
    if (length == 0) return PLSH_STATUS_OK;
    if (c->letters) {
        plsh_text *letters = &c->w->work->steps[c->step].letters;
        plsh_text_clear(letters);
        plsh_byte_letters_append(letters, bytes, length);
        const plsh_status status = plsh_text_status(letters, c->w->error);
        if (status != PLSH_STATUS_OK) return status;
        bytes = letters->bytes;
        length = letters->length;
    }
    return run_step(c->w, c->step + 1, bytes, length, c->first && begin == 0);
}

static plsh_status flush(cutter *c) {
    if (!c->pending) return PLSH_STATUS_OK;
    c->pending = false;
    return hand_on(c, c->begin, c->end);
}

/* Does a piece join the one that is pending? */
static bool joins(const cutter *c, bool is_match) {
    if (!c->pending) return false;
    switch (c->behavior) {
    case PLSH_SPLIT_MERGED_WITH_PREVIOUS: return is_match && !c->pending_match;
    case PLSH_SPLIT_MERGED_WITH_NEXT: return !is_match && c->pending_match;
    case PLSH_SPLIT_CONTIGUOUS: return is_match == c->pending_match;
    default: return false;
    }
}

/* The next piece of the text: a match, or the text between two matches. */
static plsh_status cut(cutter *c, size_t begin, size_t end, bool is_match) {
    if (c->behavior == PLSH_SPLIT_REMOVED)
        return is_match ? PLSH_STATUS_OK : hand_on(c, begin, end);
    if (c->behavior == PLSH_SPLIT_ISOLATED) return hand_on(c, begin, end);
    const bool joined = joins(c, is_match);
    const plsh_status status = joined ? PLSH_STATUS_OK : flush(c);
    if (!joined) c->begin = begin;
    c->end = end;
    c->pending = true;
    c->pending_match = is_match;
    return status;
}

static plsh_status cut_by_pattern(cutter *c, const plsh_pattern *pattern, bool invert,
                                  size_t length) {
    plsh_search *search = &c->w->work->steps[c->step].search;
    plsh_matches matches = plsh_matches_begin(pattern, search, c->bytes, length);
    size_t done = 0, begin = 0, end = 0;
    plsh_status status = PLSH_STATUS_OK;
    for (bool found = true; status == PLSH_STATUS_OK && found;) {
        status = plsh_matches_next(&matches, &begin, &end, &found, c->w->error);
        if (status != PLSH_STATUS_OK || !found) break;
        if (done != begin) status = cut(c, done, begin, invert);
        if (status == PLSH_STATUS_OK) status = cut(c, begin, end, !invert);
        done = end;
    }
    if (status == PLSH_STATUS_OK && done != length) status = cut(c, done, length, invert);
    return status == PLSH_STATUS_OK ? flush(c) : status;
}

static plsh_status cut_by_class(cutter *c, plsh_class class_, size_t length) {
    size_t done = 0;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0, size; i < length && status == PLSH_STATUS_OK; i += size) {
        if (!plsh_unicode_is(class_, plsh_utf8_next(c->bytes + i, &size))) continue;
        if (done < i) status = cut(c, done, i, false);
        if (status == PLSH_STATUS_OK) status = cut(c, i, i + size, true);
        done = i + size;
    }
    if (status == PLSH_STATUS_OK && done < length) status = cut(c, done, length, false);
    return status == PLSH_STATUS_OK ? flush(c) : status;
}

/* 0: blank, 1: part of a word, 2: neither. */
static int word_kind(const char *bytes, size_t *size) {
    const uint32_t c = plsh_utf8_next(bytes, size);
    if (plsh_unicode_is(PLSH_CLASS_WORD, c)) return 1;
    return plsh_unicode_is(PLSH_CLASS_WHITESPACE, c) ? 0 : 2;
}

static plsh_status cut_by_words(cutter *c, size_t length) {
    plsh_status status = PLSH_STATUS_OK;
    size_t size;
    for (size_t begin = 0, end; begin < length && status == PLSH_STATUS_OK; begin = end) {
        const int kind = word_kind(c->bytes + begin, &size);
        for (end = begin + size; end < length && word_kind(c->bytes + end, &size) == kind;)
            end += size;
        if (kind != 0) status = hand_on(c, begin, end);
    }
    return status;
}

static plsh_status cut_by_length(cutter *c, size_t count, size_t length) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t begin = 0, end = 0; begin < length && status == PLSH_STATUS_OK; begin = end) {
        for (size_t i = 0; i < count && end < length; i++) end += plsh_utf8_size(c->bytes[end]);
        status = hand_on(c, begin, end);
    }
    return status;
}

static plsh_status run_byte_level(const walk *w, size_t step, const char *bytes, size_t length,
                                  bool first) {
    const plsh_splitter *splitter = &w->splitters->steps[step];
    if (splitter->prefix_space && bytes[0] != ' ') {
        plsh_text *spaced = &w->work->steps[step].spaced;
        plsh_text_clear(spaced);
        plsh_text_append(spaced, " ", 1);
        plsh_text_append(spaced, bytes, length);
        const plsh_status status = plsh_text_status(spaced, w->error);
        if (status != PLSH_STATUS_OK) return status;
        bytes = spaced->bytes;
        length = spaced->length;
    }
    cutter c = {.w = w,
                .step = step,
                .bytes = bytes,
                .first = first,
                .letters = true,
                .behavior = PLSH_SPLIT_ISOLATED};
    if (splitter->pattern == NULL) return hand_on(&c, 0, length);
    return cut_by_pattern(&c, splitter->pattern, false, length);
}

static plsh_status run_metaspace(const walk *w, size_t step, const char *bytes, size_t length,
                                 bool first) {
    const plsh_splitter *splitter = &w->splitters->steps[step];
    const char *sign = splitter->content.bytes;
    const size_t size = splitter->content.length;
    plsh_text *spaced = &w->work->steps[step].spaced;
    plsh_text_clear(spaced);
    const bool there = bytes[0] == ' ' || (length >= size && memcmp(bytes, sign, size) == 0);
    const bool wanted = splitter->prepend == PLSH_PREPEND_ALWAYS ||
                        (splitter->prepend == PLSH_PREPEND_FIRST && first);
    if (wanted && !there) plsh_text_append(spaced, sign, size);
    for (size_t i = 0; i < length;) {
        const char *space = memchr(bytes + i, ' ', length - i);
        const size_t end = space != NULL ? (size_t)(space - bytes) : length;
        plsh_text_append(spaced, bytes + i, end - i);
        if (space != NULL) plsh_text_append(spaced, sign, size);
        i = end + 1;
    }
    const plsh_status status = plsh_text_status(spaced, w->error);
    if (status != PLSH_STATUS_OK) return status;
    cutter c = {.w = w,
                .step = step,
                .bytes = spaced->bytes,
                .first = first,
                .behavior = PLSH_SPLIT_MERGED_WITH_NEXT};
    if (!splitter->split) return hand_on(&c, 0, spaced->length);
    return cut_by_pattern(&c, splitter->pattern, false, spaced->length);
}

static plsh_status run_step(const walk *w, size_t step, const char *bytes, size_t length,
                            bool first) {
    if (step == w->splitters->count) return w->word(w->context, bytes, length);
    const plsh_splitter *splitter = &w->splitters->steps[step];
    cutter c = {
        .w = w, .step = step, .bytes = bytes, .first = first, .behavior = splitter->behavior};
    switch (splitter->kind) {
    case PLSH_SPLITTER_PATTERN:
        return cut_by_pattern(&c, splitter->pattern, splitter->invert, length);
    case PLSH_SPLITTER_CLASS: return cut_by_class(&c, splitter->class_, length);
    case PLSH_SPLITTER_WORDS: return cut_by_words(&c, length);
    case PLSH_SPLITTER_BYTE_LEVEL: return run_byte_level(w, step, bytes, length, first);
    case PLSH_SPLITTER_METASPACE: return run_metaspace(w, step, bytes, length, first);
    case PLSH_SPLITTER_LENGTH: return cut_by_length(&c, splitter->length, length);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_split(const plsh_splitters *splitters, plsh_split_work *work, const char *bytes,
                       size_t length, bool first, plsh_split_word *word, void *context,
                       plsh_error *error) {
    const walk w = {splitters, work, word, context, error};
    return length == 0 ? PLSH_STATUS_OK : run_step(&w, 0, bytes, length, first);
}
