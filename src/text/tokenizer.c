/* text: text to ids and back. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

const char plsh_gpt2_expression[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

plsh_status plsh_tokenizer_create(plsh_tokenizer **out, plsh_error *error) {
    plsh_status status = plsh_allocate((void **)out, 1, sizeof **out, "a tokenizer", error);
    if (status == PLSH_STATUS_OK) (*out)->roles = (plsh_token_roles){-1, -1, -1, -1};
    return status;
}

void plsh_tokenizer_free(plsh_tokenizer *t) {
    if (t == NULL) return;
    plsh_bpe_free(t->bpe);
    plsh_wordpiece_free(&t->wordpiece);
    plsh_vocabulary_free(&t->vocabulary);
    plsh_added_free(&t->added);
    plsh_normalizers_free(&t->normalizers);
    plsh_splitters_free(&t->splitters);
    plsh_token_ids_free(&t->template_ids);
    plsh_token_ids_free(&t->pair_ids);
    plsh_token_ids_free(&t->pair_types);
    plsh_decoders_free(&t->decoders);
    plsh_release(t);
}

/* ---- lists ---- */

plsh_status plsh_ids_reserve(plsh_token_ids *ids, size_t more, plsh_error *error) {
    size_t needed;
    if (!plsh_add(ids->count, more, &needed) || needed > SIZE_MAX / 8)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a list of ids: its length overflows");
    if (needed <= ids->capacity) return PLSH_STATUS_OK;
    const size_t capacity = needed < 32 ? 64 : needed + needed / 2;
    int32_t *grown;
    plsh_status status = plsh_allocate((void **)&grown, capacity, sizeof *grown, "ids", error);
    if (status != PLSH_STATUS_OK) return status;
    if (ids->count > 0) memcpy(grown, ids->ids, ids->count * sizeof *grown);
    plsh_release(ids->ids);
    ids->ids = grown;
    ids->capacity = capacity;
    return PLSH_STATUS_OK;
}

void plsh_token_ids_free(plsh_token_ids *ids) {
    plsh_release(ids->ids);
    *ids = (plsh_token_ids){0};
}

void plsh_token_text_free(plsh_token_text *text) {
    plsh_release(text->bytes);
    *text = (plsh_token_text){0};
}

/* ---- making ---- */

plsh_status plsh_tokenizer_add(plsh_tokenizer *t, plsh_added_token token, const char *content,
                               size_t length, plsh_error *error) {
    if (length == 0) return PLSH_STATUS_OK;
    token.id = plsh_tokenizer_find(t, content, length);
    if (token.id == PLSH_NO_TOKEN) {
        /* As in the Hugging Face library: numbered from the size of the model's vocabulary, gaps or
         * not. */
        const int64_t next = (int64_t)t->vocabulary.count + t->created++;
        if (next > INT32_MAX) return plsh_fail(error, PLSH_STATUS_FORMAT, "too many tokens");
        token.id = (int32_t)next;
    }
    const char *form = content;
    size_t form_length = length;
    bool moved;
    plsh_normalize_work work = {0};
    plsh_status status = PLSH_STATUS_OK;
    if (token.normalized)
        status = plsh_normalize(&t->normalizers, &work, &form, &form_length, &moved, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_added_add(&t->added, token, content, length, form, form_length, error);
    plsh_normalize_work_free(&work);
    return status;
}

plsh_status plsh_tokenizer_split(plsh_tokenizer *t, plsh_splitter step, const char *expression,
                                 size_t length, bool literal, const char *what, plsh_error *error) {
    plsh_status status =
        plsh_pattern_create(&step.pattern, expression, length, literal, what, error);
    return status == PLSH_STATUS_OK ? plsh_splitters_add(&t->splitters, step, error) : status;
}

/* ---- text to ids ---- */

/* One call of encode. */
typedef struct encoding {
    const plsh_tokenizer *tokenizer;
    plsh_token_ids *out;
    plsh_normalize_work normalize;
    plsh_split_work split;
    plsh_bpe_work bpe;
    plsh_text scratch;
    bool first;   /* the piece that is worked on begins where the text does */
    bool follows; /* a special token stands before the text */
    bool plain;   /* special tokens in the text are text like any other */
    plsh_error *error;
} encoding;

static plsh_status encode_word(void *context, const char *bytes, size_t length) {
    encoding *e = context;
    const plsh_tokenizer *t = e->tokenizer;
    if (t->bpe != NULL) return plsh_bpe_encode(t->bpe, &e->bpe, bytes, length, e->out, e->error);
    return plsh_wordpiece_encode(&t->wordpiece, &e->scratch, bytes, length, e->out, e->error);
}

/* Between tokens that were found in the normalised text. */
static plsh_status encode_normalized(void *context, const char *bytes, size_t begin, size_t end,
                                     int32_t id) {
    encoding *e = context;
    if (id != PLSH_NO_TOKEN) return plsh_ids_append(e->out, id, e->error);
    return plsh_split(&e->tokenizer->splitters, &e->split, bytes + begin, end - begin,
                      e->first && begin == 0, encode_word, e, e->error);
}

/* The text between tokens that were found before normalisation. */
static plsh_status encode_piece(void *context, const char *bytes, size_t begin, size_t end,
                                int32_t id) {
    encoding *e = context;
    const plsh_tokenizer *t = e->tokenizer;
    if (id != PLSH_NO_TOKEN) return plsh_ids_append(e->out, id, e->error);
    bool moved;
    const char *piece = bytes + begin;
    size_t length = end - begin;
    plsh_status status =
        plsh_normalize(&t->normalizers, &e->normalize, &piece, &length, &moved, e->error);
    if (status != PLSH_STATUS_OK) return status;
    e->first = begin == 0 && !moved && !e->follows;
    const plsh_added_search search = {&t->added, &t->added.normalized, e->plain};
    return plsh_added_cut(&search, piece, length, encode_normalized, e);
}

static void encoding_free(encoding *e) {
    plsh_normalize_work_free(&e->normalize);
    plsh_split_work_free(&e->split);
    plsh_bpe_work_free(&e->bpe);
    plsh_text_free(&e->scratch);
}

static plsh_status encode_text(const plsh_tokenizer *t, const char *text, size_t length,
                               plsh_token_ids *out, plsh_error *error) {
    size_t invalid = 0;
    plsh_text valid = {0};
    if (plsh_utf8_valid(text, length, &invalid) < length) {
        plsh_utf8_append_lossy(&valid, text, length);
        const plsh_status status = plsh_text_status(&valid, error);
        if (status != PLSH_STATUS_OK) return plsh_text_free(&valid), status;
        text = valid.bytes;
        length = valid.length;
    }
    encoding e = {.tokenizer = t, .out = out, .error = error};
    const plsh_added_search search = {&t->added, &t->added.plain, false};
    plsh_status status = plsh_added_cut(&search, text, length, encode_piece, &e);
    encoding_free(&e);
    plsh_text_free(&valid);
    return status;
}

/* ---- parts of a text ---- */

/* Encodes the text since the last special token of a template as a whole, because a word may begin
 * in one part and end in the next. */
typedef struct joining {
    encoding e;
    plsh_text run;
} joining;

/* A word that is spelled like a special token can be in the vocabulary of a GGUF. It must not
 * become that token. */
static plsh_status check_plain(const encoding *e, size_t from) {
    const plsh_tokenizer *t = e->tokenizer;
    for (size_t i = from; i < e->out->count; i++) {
        const int32_t id = e->out->ids[i];
        if (id == t->roles.unknown || !plsh_tokenizer_is_special(t, id)) continue;
        size_t length;
        const char *token = plsh_tokenizer_token(t, id, &length);
        if (length == 5 && memcmp(token, "<unk>", 5) == 0) continue;
        return plsh_fail(e->error, PLSH_STATUS_INVALID,
                         "the text holds \"%.*s\", a special token of this model, which it cannot "
                         "write as plain text",
                         (int)(length < 60 ? length : 60), token);
    }
    return PLSH_STATUS_OK;
}

static plsh_status encode_run(joining *j) {
    const plsh_tokenizer *t = j->e.tokenizer;
    const plsh_added_search search = {&t->added, &t->added.plain, true};
    const size_t from = j->e.out->count;
    plsh_status status = plsh_text_status(&j->run, j->e.error);
    if (status != PLSH_STATUS_OK || j->run.length == 0) return status;
    status = plsh_added_cut(&search, j->run.bytes, j->run.length, encode_piece, &j->e);
    if (status == PLSH_STATUS_OK) status = check_plain(&j->e, from);
    j->run.length = 0;
    return status;
}

/* A piece of a template. A special token ends the run. */
static plsh_status join_piece(void *context, const char *bytes, size_t begin, size_t end,
                              int32_t id) {
    joining *j = context;
    if (id == PLSH_NO_TOKEN || !plsh_tokenizer_is_special(j->e.tokenizer, id)) {
        plsh_text_append(&j->run, bytes + begin, end - begin);
        return plsh_text_status(&j->run, j->e.error);
    }
    plsh_status status = encode_run(j);
    j->e.follows = true;
    return status == PLSH_STATUS_OK ? plsh_ids_append(j->e.out, id, j->e.error) : status;
}

/* Some files have their special tokens among those that are looked for in normalised text. */
static plsh_status join_template(void *context, const char *bytes, size_t begin, size_t end,
                                 int32_t id) {
    joining *j = context;
    const plsh_tokenizer *t = j->e.tokenizer;
    const plsh_added_search search = {&t->added, &t->added.normalized, false};
    if (id != PLSH_NO_TOKEN) return join_piece(j, bytes, begin, end, id);
    return plsh_added_cut(&search, bytes + begin, end - begin, join_piece, j);
}

static plsh_status join_part(joining *j, const plsh_text_part *part) {
    const plsh_tokenizer *t = j->e.tokenizer;
    const plsh_added_search search = {&t->added, &t->added.plain, false};
    if (part->length == 0) return PLSH_STATUS_OK;
    if (part->special) return plsh_added_cut(&search, part->bytes, part->length, join_template, j);
    size_t invalid = 0;
    if (plsh_utf8_valid(part->bytes, part->length, &invalid) < part->length)
        plsh_utf8_append_lossy(&j->run, part->bytes, part->length);
    else
        plsh_text_append(&j->run, part->bytes, part->length);
    return plsh_text_status(&j->run, j->e.error);
}

plsh_status plsh_tokenizer_encode_parts(const plsh_tokenizer *t, const plsh_text_part *parts,
                                        size_t count, plsh_token_ids *out, plsh_error *error) {
    joining j = {.e = {.tokenizer = t, .out = out, .plain = true, .error = error}};
    const size_t before = out->count;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++)
        status = join_part(&j, &parts[i]);
    if (status == PLSH_STATUS_OK) status = encode_run(&j);
    if (status != PLSH_STATUS_OK) out->count = before;
    encoding_free(&j.e);
    plsh_text_free(&j.run);
    return status;
}

plsh_status plsh_tokenizer_begin(const plsh_tokenizer *t, plsh_token_ids *out, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < t->template_ids.count && status == PLSH_STATUS_OK; i++) {
        if (t->template_ids.ids[i] == PLSH_TEMPLATE_TEXT) break;
        status = plsh_ids_append(out, t->template_ids.ids[i], error);
    }
    return status;
}

plsh_status plsh_tokenizer_encode(const plsh_tokenizer *t, const char *text, size_t length,
                                  bool special, plsh_token_ids *out, plsh_error *error) {
    const size_t before = out->count;
    const size_t pieces = t->template_ids.count;
    plsh_status status = PLSH_STATUS_OK;
    size_t begin = 0, count = 0; /* of the text's ids, once they are there */
    bool encoded = false;
    if (text == NULL && length > 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "text is NULL, its length %zu", length);
    for (size_t i = 0; i < (pieces > 0 ? pieces : 1) && status == PLSH_STATUS_OK; i++) {
        const int32_t id = pieces > 0 ? t->template_ids.ids[i] : PLSH_TEMPLATE_TEXT;
        if (id != PLSH_TEMPLATE_TEXT) {
            if (special) status = plsh_ids_append(out, id, error);
        } else if (!encoded) {
            begin = out->count;
            status = encode_text(t, text, length, out, error);
            count = out->count - begin;
            encoded = true;
        } else { /* a template that repeats the text */
            status = plsh_ids_reserve(out, count, error);
            if (status != PLSH_STATUS_OK) break;
            memcpy(out->ids + out->count, out->ids + begin, count * sizeof *out->ids);
            out->count += count;
        }
    }
    if (status != PLSH_STATUS_OK) out->count = before;
    return status;
}

/* ---- pairs of texts ---- */

/* How many tokens of the second text fit beside the first and the special ones. */
static plsh_status fit_second(const plsh_tokenizer *t, size_t first, size_t second, size_t most,
                              size_t *kept, plsh_error *error) {
    size_t others = 0;
    for (size_t i = 0; i < t->pair_ids.count; i++)
        others += t->pair_ids.ids[i] >= 0                    ? 1
                  : t->pair_ids.ids[i] == PLSH_TEMPLATE_TEXT ? first
                                                             : 0;
    *kept = second;
    if (most == 0 || others + second <= most) return PLSH_STATUS_OK;
    if (others > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "the first text of a pair and the special tokens are %zu tokens; at most "
                         "%zu",
                         others, most);
    *kept = most - others;
    return PLSH_STATUS_OK;
}

static plsh_status append_run(plsh_token_ids *out, plsh_token_ids *types, const int32_t *ids,
                              size_t count, int32_t type, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++) {
        status = plsh_ids_append(out, ids[i], error);
        if (status == PLSH_STATUS_OK && types != NULL) status = plsh_ids_append(types, type, error);
    }
    return status;
}

static plsh_status join_pair(const plsh_tokenizer *t, const plsh_token_ids text[2], size_t most,
                             plsh_token_ids *out, plsh_token_ids *types, plsh_error *error) {
    size_t kept;
    plsh_status status = fit_second(t, text[0].count, text[1].count, most, &kept, error);
    for (size_t i = 0; i < t->pair_ids.count && status == PLSH_STATUS_OK; i++) {
        const int32_t id = t->pair_ids.ids[i], type = t->pair_types.ids[i];
        if (id == PLSH_TEMPLATE_TEXT)
            status = append_run(out, types, text[0].ids, text[0].count, type, error);
        else if (id == PLSH_TEMPLATE_SECOND)
            status = append_run(out, types, text[1].ids, kept, type, error);
        else
            status = append_run(out, types, &id, 1, type, error);
    }
    return status;
}

plsh_status plsh_tokenizer_encode_pair(const plsh_tokenizer *t, plsh_string first,
                                       plsh_string second, size_t most, plsh_token_ids *out,
                                       plsh_token_ids *types, plsh_error *error) {
    const size_t before = out->count, types_before = types != NULL ? types->count : 0;
    plsh_token_ids text[2] = {{0}};
    if (t->pair_ids.count == 0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "this tokenizer has no template for pairs of texts (post_processor)");
    plsh_status status = encode_text(t, first.bytes, first.length, &text[0], error);
    if (status == PLSH_STATUS_OK)
        status = encode_text(t, second.bytes, second.length, &text[1], error);
    if (status == PLSH_STATUS_OK) status = join_pair(t, text, most, out, types, error);
    plsh_token_ids_free(&text[0]);
    plsh_token_ids_free(&text[1]);
    if (status == PLSH_STATUS_OK) return status;
    out->count = before;
    if (types != NULL) types->count = types_before;
    return status;
}

/* ---- ids to text ---- */

static plsh_status decode_text(const plsh_tokenizer *t, const int32_t *ids, size_t count,
                               bool skip_special, plsh_token_list *tokens, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++) {
        size_t length;
        const char *token = plsh_tokenizer_token(t, ids[i], &length);
        if (token == NULL) continue;
        if (skip_special && plsh_tokenizer_is_special(t, ids[i])) continue;
        plsh_text_append(&tokens->bytes, token, length);
        status = plsh_token_list_end(tokens, error);
    }
    return status == PLSH_STATUS_OK ? plsh_decode(&t->decoders, tokens, error) : status;
}

plsh_status plsh_tokenizer_decode(const plsh_tokenizer *t, const int32_t *ids, size_t count,
                                  bool skip_special, plsh_token_text *out, plsh_error *error) {
    plsh_token_list tokens = {0};
    plsh_text text = {.bytes = out->bytes, .length = out->length, .capacity = out->capacity};
    plsh_status status = decode_text(t, ids, count, skip_special, &tokens, error);
    if (status == PLSH_STATUS_OK) {
        plsh_text_append(&text, tokens.bytes.bytes, tokens.bytes.length);
        status = plsh_text_status(&text, error);
        *out = (plsh_token_text){text.bytes, text.length, text.capacity};
    }
    plsh_token_list_free(&tokens);
    return status;
}

/* ---- the vocabulary ---- */

int64_t plsh_tokenizer_size(const plsh_tokenizer *t) {
    int64_t size = t->vocabulary.count > 0 ? (int64_t)t->vocabulary.largest + 1 : 0;
    for (size_t i = 0; i < t->added.count; i++)
        if (t->added.tokens[i].id >= size) size = (int64_t)t->added.tokens[i].id + 1;
    for (size_t i = 0; i < t->pair_ids.count; i++)
        if (t->pair_ids.ids[i] >= size) size = (int64_t)t->pair_ids.ids[i] + 1;
    for (size_t i = 0; i < t->template_ids.count; i++) /* a file may name ids without a token */
        if (t->template_ids.ids[i] >= size) size = (int64_t)t->template_ids.ids[i] + 1;
    return size;
}

int32_t plsh_tokenizer_find(const plsh_tokenizer *t, const char *token, size_t length) {
    const int32_t id = plsh_vocabulary_find(&t->added.contents, token, length);
    return id != PLSH_NO_TOKEN ? id : plsh_vocabulary_find(&t->vocabulary, token, length);
}

const char *plsh_tokenizer_token(const plsh_tokenizer *t, int32_t id, size_t *length) {
    const char *added = plsh_added_written(&t->added, id, length);
    return added != NULL ? added : plsh_vocabulary_token(&t->vocabulary, id, length);
}

bool plsh_tokenizer_is_special(const plsh_tokenizer *t, int32_t id) {
    size_t length;
    const char *token = plsh_tokenizer_token(t, id, &length);
    return token != NULL && plsh_vocabulary_find(&t->added.specials, token, length) >= 0;
}

plsh_token_roles plsh_tokenizer_roles(const plsh_tokenizer *t) { return t->roles; }
