/* text: tokenizers from the metadata of a GGUF file.
 *
 * The metadata names a model (gpt2, llama, bert) and, for gpt2, how texts are cut (`pre`); the rest
 * is what the family's tokenizer.json says. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/gguf.h"
#include "text/tokenizer.h"

/* Kinds of tokens. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* A file being read. */
typedef struct reading {
    const plsh_weights *weights;
    const char *path;
    plsh_tokenizer *tokenizer;
    plsh_string *tokens;
    int64_t *kinds;
    size_t count;
    plsh_error *error;
} reading;

static plsh_status refuse(const reading *r, const char *key, const char *problem) {
    return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s: %s: %s", r->path, key, problem);
}

/* ---- what all models have ---- */

static plsh_status read_tokens(reading *r) {
    r->count = plsh_metadata_length(r->weights, "tokenizer.ggml.tokens");
    if (r->count == 0) return refuse(r, "tokenizer.ggml.tokens", "there is no vocabulary");
    if (r->count > INT32_MAX) return refuse(r, "tokenizer.ggml.tokens", "too many");
    plsh_status status =
        plsh_allocate((void **)&r->tokens, r->count, sizeof *r->tokens, "tokens", r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate((void **)&r->kinds, r->count, sizeof *r->kinds, "tokens", r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_metadata_strings(r->weights, "tokenizer.ggml.tokens", r->tokens, r->error);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < r->count; i++) r->kinds[i] = NORMAL;
    const size_t kinds = plsh_metadata_length(r->weights, "tokenizer.ggml.token_type");
    if (kinds == 0) return PLSH_STATUS_OK;
    if (kinds != r->count)
        return refuse(r, "tokenizer.ggml.token_type", "not as many as there are tokens");
    return plsh_metadata_integers(r->weights, "tokenizer.ggml.token_type", r->kinds, r->error);
}

/* All other code relies on valid UTF-8. */
static plsh_status add_token(reading *r, const char *bytes, size_t length, size_t id) {
    size_t invalid;
    if (plsh_utf8_valid(bytes, length, &invalid) < length)
        return refuse(r, "tokenizer.ggml.tokens", "a token is not UTF-8");
    if (plsh_vocabulary_find(&r->tokenizer->vocabulary, bytes, length) != PLSH_NO_TOKEN)
        return PLSH_STATUS_OK; /* the first of two counts */
    return plsh_vocabulary_add(&r->tokenizer->vocabulary, bytes, length, (int32_t)id, r->error);
}

static plsh_status add_vocabulary(reading *r) {
    plsh_status status = plsh_vocabulary_reserve(&r->tokenizer->vocabulary, r->count, r->error);
    for (size_t i = 0; i < r->count && status == PLSH_STATUS_OK; i++)
        status = add_token(r, r->tokens[i].bytes, r->tokens[i].length, i);
    return status;
}

/* Control tokens, those of users, and the unknown one are cut out of texts. */
static plsh_status add_added(reading *r) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < r->count && status == PLSH_STATUS_OK; i++) {
        if (r->kinds[i] != CONTROL && r->kinds[i] != USER_DEFINED && r->kinds[i] != UNKNOWN)
            continue;
        const plsh_added_token token = {.special = r->kinds[i] != USER_DEFINED};
        status = plsh_tokenizer_add(r->tokenizer, token, r->tokens[i].bytes, r->tokens[i].length,
                                    r->error);
    }
    return status;
}

static plsh_status read_id(const reading *r, const char *key, int32_t *out) {
    int64_t id = -1;
    plsh_status status =
        plsh_metadata_integer(r->weights, key, 0, (int64_t)r->count - 1, &id, r->error);
    if (status == PLSH_STATUS_OK) *out = (int32_t)id;
    return status;
}

static plsh_status read_roles(reading *r) {
    plsh_token_roles *roles = &r->tokenizer->roles;
    plsh_status status = read_id(r, "tokenizer.ggml.bos_token_id", &roles->begin);
    if (status == PLSH_STATUS_OK) status = read_id(r, "tokenizer.ggml.eos_token_id", &roles->end);
    if (status == PLSH_STATUS_OK)
        status = read_id(r, "tokenizer.ggml.padding_token_id", &roles->pad);
    if (status == PLSH_STATUS_OK)
        status = read_id(r, "tokenizer.ggml.unknown_token_id", &roles->unknown);
    return status;
}

/* The tokens that `special` puts around a text; the defaults are the family's. */
static plsh_status read_template(reading *r, bool begins, bool ends, int32_t begin, int32_t end) {
    plsh_status status =
        plsh_metadata_bool(r->weights, "tokenizer.ggml.add_bos_token", &begins, r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_metadata_bool(r->weights, "tokenizer.ggml.add_eos_token", &ends, r->error);
    plsh_token_ids *ids = &r->tokenizer->template_ids;
    if (status == PLSH_STATUS_OK && begins && begin >= 0)
        status = plsh_ids_append(ids, begin, r->error);
    if (status == PLSH_STATUS_OK) status = plsh_ids_append(ids, PLSH_TEMPLATE_TEXT, r->error);
    if (status == PLSH_STATUS_OK && ends && end >= 0) status = plsh_ids_append(ids, end, r->error);
    return status;
}

static plsh_status add_decoder(reading *r, plsh_decoder step) {
    r->tokenizer->decoders.present = true;
    return plsh_decoders_add(&r->tokenizer->decoders, step, r->error);
}

static plsh_text text_of(const char *bytes) {
    plsh_text text = {0};
    plsh_text_append(&text, bytes, strlen(bytes));
    return text;
}

/* ---- gpt2: byte-level BPE ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 plsh_gpt2_expression
#define LLAMA3                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"      \
                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                                      \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"           \
                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER     \
    "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"      \
    "\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const plsh_gguf_cutting cuttings[] = {
    {"gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
     "roberta-bpe gigachat",
     {GPT2},
     false,
     false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b",
     {"\\p{N}", GPT2},
     false,
     false},
    {"qwen2 deepseek-r1-qwen", {QWEN2}, false, true},
    {"stablelm2 hunyuan megrez", {QWEN2}, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0", {LLAMA3}, true, false},
    {"dbrx smaug-bpe chatglm-bpe", {LLAMA3}, false, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false},
    {"bloom poro-chat gpt3-finnish", {BLOOM}, false, false},
    {"viking", {BLOOM, "\\p{N}"}, false, false},
    {"tekken", {TEKKEN}, true, false},
    {"gpt-4o llama4", {GPT4O}, false, false},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}, false, false},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+|\\p{N}"},
     false,
     false},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
};

static bool holds_name(const char *names, plsh_string name) {
    for (const char *at = names; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == name.length && memcmp(at, name.bytes, length) == 0) return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

plsh_status plsh_gguf_cutting_find(const plsh_weights *weights, const char *path,
                                   const plsh_gguf_cutting **out, plsh_error *error) {
    plsh_string name = {"gpt-2", 5}; /* files from before there was a choice */
    plsh_status status = plsh_metadata_string(weights, "tokenizer.ggml.pre", &name, error);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++)
        if (holds_name(cuttings[i].names, name)) return *out = &cuttings[i], PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: tokenizer.ggml.pre: \"%.*s\" is not supported", path,
                     (int)(name.length < 40 ? name.length : 40), name.bytes);
}

static plsh_status add_cutting(reading *r, const plsh_gguf_cutting *cutting) {
    plsh_status status = PLSH_STATUS_OK;
    if (cutting->nfc)
        status = plsh_normalizers_add(
            &r->tokenizer->normalizers,
            (plsh_normalizer){.kind = PLSH_NORMALIZER_FORM, .form = PLSH_FORM_NFC}, r->error);
    for (size_t i = 0;
         i < PLSH_CUTTING_MOST && cutting->expressions[i] != NULL && status == PLSH_STATUS_OK; i++)
        status = plsh_tokenizer_split(
            r->tokenizer,
            (plsh_splitter){.kind = PLSH_SPLITTER_PATTERN, .behavior = PLSH_SPLIT_ISOLATED},
            cutting->expressions[i], strlen(cutting->expressions[i]), false, r->path, r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_splitters_add(&r->tokenizer->splitters,
                                    (plsh_splitter){.kind = PLSH_SPLITTER_BYTE_LEVEL}, r->error);
    return status;
}

static plsh_status add_merge(reading *r, plsh_string merge, uint32_t rank, plsh_text *scratch) {
    const plsh_vocabulary *v = &r->tokenizer->vocabulary;
    /* The space that separates the two parts is not the first character. */
    const char *space = merge.length > 1 ? memchr(merge.bytes + 1, ' ', merge.length - 1) : NULL;
    if (space == NULL) return refuse(r, "tokenizer.ggml.merges", "one is not a pair");
    const size_t left = (size_t)(space - merge.bytes), right = merge.length - left - 1;
    plsh_text_clear(scratch);
    plsh_text_append(scratch, merge.bytes, left);
    plsh_text_append(scratch, space + 1, right);
    const plsh_status status = plsh_text_status(scratch, r->error);
    if (status != PLSH_STATUS_OK) return status;
    const int32_t a = plsh_vocabulary_find(v, merge.bytes, left);
    const int32_t b = plsh_vocabulary_find(v, space + 1, right);
    const int32_t both = plsh_vocabulary_find(v, scratch->bytes, scratch->length);
    if (a < 0 || b < 0 || both < 0)
        return refuse(r, "tokenizer.ggml.merges", "one is of tokens that are not there");
    plsh_bpe_merge(r->tokenizer->bpe, a, b, rank, both);
    return PLSH_STATUS_OK;
}

static plsh_status add_merges(reading *r, const plsh_bpe_options *options) {
    plsh_tokenizer *t = r->tokenizer;
    const size_t count = plsh_metadata_length(r->weights, "tokenizer.ggml.merges");
    plsh_string *merges = NULL;
    plsh_text scratch = {0};
    plsh_status status = plsh_bpe_create(&t->bpe, &t->vocabulary, options, count, r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate((void **)&merges, count, sizeof *merges, "merges", r->error);
    if (status == PLSH_STATUS_OK && count > 0)
        status = plsh_metadata_strings(r->weights, "tokenizer.ggml.merges", merges, r->error);
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++)
        status = add_merge(r, merges[i], (uint32_t)i, &scratch);
    plsh_text_free(&scratch);
    plsh_release(merges);
    return status == PLSH_STATUS_OK ? plsh_bpe_finish(t->bpe, r->error) : status;
}

static plsh_status read_gpt2(reading *r) {
    const plsh_gguf_cutting *cutting = NULL;
    plsh_status status = plsh_gguf_cutting_find(r->weights, r->path, &cutting, r->error);
    if (status == PLSH_STATUS_OK) status = add_vocabulary(r);
    if (status == PLSH_STATUS_OK)
        status = add_merges(r, &(plsh_bpe_options){.ignore_merges = cutting->ignore_merges});
    if (status == PLSH_STATUS_OK) status = add_cutting(r, cutting);
    if (status == PLSH_STATUS_OK)
        status = add_decoder(r, (plsh_decoder){.kind = PLSH_DECODER_BYTE_LEVEL});
    if (status != PLSH_STATUS_OK) return status;
    const plsh_token_roles *roles = &r->tokenizer->roles;
    /* llama.cpp adds <s> by default where it takes whole words first: Llama 3's and Tekken's. */
    return read_template(r, cutting->ignore_merges, false, roles->begin, roles->end);
}

/* ---- llama: BPE over characters, merged by the score of what they become ---- */

/* A merge: a token that is made of two others. */
typedef struct pairing {
    double score;
    int32_t left, right, both;
} pairing;

static int compare_pairings(const void *x, const void *y) {
    const pairing *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

/* Lists all merges that make a token; if `out` is NULL, only counts them. */
static size_t find_pairings(const reading *r, size_t id, double score, pairing *out) {
    const plsh_vocabulary *v = &r->tokenizer->vocabulary;
    const plsh_string token = r->tokens[id];
    size_t count = 0;
    if (r->kinds[id] != NORMAL && r->kinds[id] != UNUSED) return 0;
    if (plsh_vocabulary_find(v, token.bytes, token.length) != (int32_t)id) return 0;
    for (size_t cut = 1; cut < token.length; cut++) {
        if (((unsigned char)token.bytes[cut] & 0xC0) == 0x80) continue;
        const int32_t left = plsh_vocabulary_find(v, token.bytes, cut);
        const int32_t right = plsh_vocabulary_find(v, token.bytes + cut, token.length - cut);
        if (left < 0 || right < 0) continue;
        if (out != NULL) out[count] = (pairing){score, left, right, (int32_t)id};
        count++;
    }
    return count;
}

static plsh_status add_pairings(reading *r, const plsh_bpe_options *options, const double *scores) {
    plsh_tokenizer *t = r->tokenizer;
    pairing *pairings = NULL;
    size_t count = 0, used = 0;
    for (size_t i = 0; i < r->count; i++) count += find_pairings(r, i, scores[i], NULL);
    plsh_status status =
        plsh_allocate((void **)&pairings, count, sizeof *pairings, "merges", r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_bpe_create(&t->bpe, &t->vocabulary, options, count, r->error);
    if (status == PLSH_STATUS_OK) {
        for (size_t i = 0; i < r->count; i++)
            used += find_pairings(r, i, scores[i], pairings + used);
        qsort(pairings, count, sizeof *pairings, compare_pairings);
        /* Equal scores have equal rank: then the one on the left is merged first. */
        uint32_t rank = 0;
        for (size_t i = 0; i < count; i++) {
            if (i > 0 && pairings[i].score != pairings[i - 1].score) rank++;
            plsh_bpe_merge(t->bpe, pairings[i].left, pairings[i].right, rank, pairings[i].both);
        }
        status = plsh_bpe_finish(t->bpe, r->error);
    }
    plsh_release(pairings);
    return status;
}

static plsh_status read_scores(reading *r, const plsh_bpe_options *options) {
    double *scores;
    if (plsh_metadata_length(r->weights, "tokenizer.ggml.scores") != r->count)
        return refuse(r, "tokenizer.ggml.scores", "not as many as there are tokens");
    plsh_status status =
        plsh_allocate((void **)&scores, r->count, sizeof *scores, "scores", r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_metadata_numbers(r->weights, "tokenizer.ggml.scores", scores, r->error);
    for (size_t i = 0; i < r->count && status == PLSH_STATUS_OK; i++)
        if (scores[i] != scores[i]) status = refuse(r, "tokenizer.ggml.scores", "one is NaN");
    if (status == PLSH_STATUS_OK) status = add_pairings(r, options, scores);
    plsh_release(scores);
    return status;
}

#define LOW_LINE "\xE2\x96\x81" /* U+2581 stands for a space */

/* Puts a space before every piece of text and writes spaces as U+2581; decoding does the
 * inverse. */
static plsh_status add_spaces(reading *r, bool prefix) {
    plsh_normalizers *n = &r->tokenizer->normalizers;
    plsh_normalizer lines = {.kind = PLSH_NORMALIZER_REPLACE};
    plsh_decoder spaces = {.kind = PLSH_DECODER_REPLACE};
    plsh_status status = PLSH_STATUS_OK;
    if (prefix)
        status = plsh_normalizers_add(
            n, (plsh_normalizer){.kind = PLSH_NORMALIZER_PREPEND, .content = text_of(LOW_LINE)},
            r->error);
    if (status == PLSH_STATUS_OK)
        status = plsh_pattern_create(&lines.pattern, " ", 1, true, r->path, r->error);
    if (status == PLSH_STATUS_OK) {
        lines.content = text_of(LOW_LINE);
        status = plsh_normalizers_add(n, lines, r->error);
    }
    if (status == PLSH_STATUS_OK)
        status = plsh_pattern_create(&spaces.pattern, LOW_LINE, 3, true, r->path, r->error);
    if (status == PLSH_STATUS_OK) {
        spaces.content = text_of(" ");
        status = add_decoder(r, spaces);
    }
    if (status == PLSH_STATUS_OK)
        status = add_decoder(r, (plsh_decoder){.kind = PLSH_DECODER_BYTE_FALLBACK});
    if (status == PLSH_STATUS_OK)
        status = add_decoder(r, (plsh_decoder){.kind = PLSH_DECODER_FUSE});
    if (status == PLSH_STATUS_OK && prefix)
        status = add_decoder(
            r, (plsh_decoder){.kind = PLSH_DECODER_STRIP, .content = text_of(" "), .start = 1});
    return status;
}

static plsh_status read_llama(reading *r) {
    bool prefix = true;
    plsh_text unknown = {0};
    plsh_token_roles *roles = &r->tokenizer->roles;
    plsh_status status =
        plsh_metadata_bool(r->weights, "tokenizer.ggml.add_space_prefix", &prefix, r->error);
    if (status == PLSH_STATUS_OK) status = add_vocabulary(r);
    if (status == PLSH_STATUS_OK && roles->unknown >= 0) {
        const plsh_string *token = &r->tokens[roles->unknown];
        plsh_text_append(&unknown, token->bytes, token->length);
        status = plsh_text_status(&unknown, r->error);
    }
    const plsh_bpe_options options = {
        .unknown = unknown.bytes, .fuse_unknown = true, .byte_fallback = true};
    if (status == PLSH_STATUS_OK) status = read_scores(r, &options);
    plsh_text_free(&unknown);
    if (status == PLSH_STATUS_OK) status = add_spaces(r, prefix);
    if (status != PLSH_STATUS_OK) return status;
    return read_template(r, true, false, roles->begin, roles->end);
}

/* ---- bert: WordPiece ---- */

/* The file marks tokens that begin a word, the vocabulary marks continuations. */
static plsh_status add_word_pieces(reading *r) {
    plsh_text token = {0};
    plsh_status status = plsh_vocabulary_reserve(&r->tokenizer->vocabulary, r->count, r->error);
    for (size_t i = 0; i < r->count && status == PLSH_STATUS_OK; i++) {
        const plsh_string stored = r->tokens[i];
        const bool begins = stored.length >= 3 && memcmp(stored.bytes, LOW_LINE, 3) == 0;
        plsh_text_clear(&token);
        if (r->kinds[i] == NORMAL && !begins) plsh_text_append(&token, "##", 2);
        const size_t skip = r->kinds[i] == NORMAL && begins ? 3 : 0;
        plsh_text_append(&token, stored.bytes + skip, stored.length - skip);
        status = plsh_text_status(&token, r->error);
        if (status == PLSH_STATUS_OK) status = add_token(r, token.bytes, token.length, i);
    }
    plsh_text_free(&token);
    return status;
}

static plsh_status add_bert_normalizers(reading *r) {
    const plsh_normalizer steps[] = {
        {.kind = PLSH_NORMALIZER_CLEAN},
        {.kind = PLSH_NORMALIZER_CHINESE},
        {.kind = PLSH_NORMALIZER_FORM, .form = PLSH_FORM_NFD},
        {.kind = PLSH_NORMALIZER_DROP, .drop = PLSH_CLASS_NONSPACING},
        {.kind = PLSH_NORMALIZER_LOWERCASE},
    };
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == PLSH_STATUS_OK; i++)
        status = plsh_normalizers_add(&r->tokenizer->normalizers, steps[i], r->error);
    return status;
}

static plsh_status read_bert(reading *r) {
    plsh_tokenizer *t = r->tokenizer;
    plsh_splitter blanks = {.kind = PLSH_SPLITTER_CLASS,
                            .class_ = PLSH_CLASS_WHITESPACE,
                            .behavior = PLSH_SPLIT_REMOVED};
    plsh_splitter punctuation = {.kind = PLSH_SPLITTER_CLASS,
                                 .class_ = PLSH_CLASS_PUNCTUATION,
                                 .behavior = PLSH_SPLIT_ISOLATED};
    t->wordpiece = (plsh_wordpiece){
        .vocabulary = &t->vocabulary, .prefix = text_of("##"), .longest_word = 100};
    plsh_status status = plsh_text_status(&t->wordpiece.prefix, r->error);
    if (status == PLSH_STATUS_OK) status = add_word_pieces(r);
    if (status != PLSH_STATUS_OK) return status;
    size_t length;
    const char *unknown = plsh_vocabulary_token(&t->vocabulary, t->roles.unknown, &length);
    if (unknown != NULL)
        plsh_text_append(&t->wordpiece.unknown, unknown, length);
    else
        t->wordpiece.unknown = text_of("[UNK]");
    status = plsh_text_status(&t->wordpiece.unknown, r->error);
    if (status == PLSH_STATUS_OK) status = add_bert_normalizers(r);
    if (status == PLSH_STATUS_OK) status = plsh_splitters_add(&t->splitters, blanks, r->error);
    if (status == PLSH_STATUS_OK) status = plsh_splitters_add(&t->splitters, punctuation, r->error);
    if (status == PLSH_STATUS_OK)
        status = add_decoder(r, (plsh_decoder){.kind = PLSH_DECODER_WORDPIECE,
                                               .content = text_of("##"),
                                               .cleanup = true});
    int32_t begin = -1, end = -1;
    if (status == PLSH_STATUS_OK) status = read_id(r, "tokenizer.ggml.cls_token_id", &begin);
    if (status == PLSH_STATUS_OK) status = read_id(r, "tokenizer.ggml.seperator_token_id", &end);
    if (begin < 0)
        begin = t->roles.begin >= 0 ? t->roles.begin : plsh_tokenizer_find(t, "[CLS]", 5);
    if (end < 0) end = plsh_tokenizer_find(t, "[SEP]", 5);
    return status == PLSH_STATUS_OK ? read_template(r, true, true, begin, end) : status;
}

/* ---- the file ---- */

static plsh_status read_model(reading *r) {
    static const struct {
        const char *name;
        plsh_status (*read)(reading *r);
    } models[] = {{"gpt2", read_gpt2}, {"llama", read_llama}, {"bert", read_bert}};
    plsh_string name = {"", 0};
    plsh_status status = plsh_metadata_string(r->weights, "tokenizer.ggml.model", &name, r->error);
    if (status == PLSH_STATUS_OK && name.length == 0)
        return refuse(r, "tokenizer.ggml.model", "the file has no tokenizer");
    if (status == PLSH_STATUS_OK) status = read_tokens(r);
    if (status == PLSH_STATUS_OK) status = read_roles(r);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strlen(models[i].name) != name.length ||
            memcmp(models[i].name, name.bytes, name.length) != 0)
            continue;
        status = models[i].read(r);
        return status == PLSH_STATUS_OK ? add_added(r) : status;
    }
    return plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                     "%s: tokenizer.ggml.model: \"%.*s\" is not supported", r->path,
                     (int)(name.length < 40 ? name.length : 40), name.bytes);
}

plsh_status plsh_tokenizer_read_gguf(plsh_tokenizer **out, const plsh_weights *weights,
                                     const char *name, plsh_error *error) {
    reading r = {.weights = weights, .path = name, .error = error};
    *out = NULL;
    plsh_status status = plsh_tokenizer_create(&r.tokenizer, error);
    if (status == PLSH_STATUS_OK) status = read_model(&r);
    plsh_release(r.tokens);
    plsh_release(r.kinds);
    if (status != PLSH_STATUS_OK) {
        plsh_tokenizer_free(r.tokenizer);
        return status;
    }
    *out = r.tokenizer;
    return PLSH_STATUS_OK;
}

plsh_status plsh_tokenizer_open_gguf(plsh_tokenizer **out, const char *path, plsh_error *error) {
    plsh_weights *weights;
    *out = NULL;
    plsh_status status = plsh_weights_open(&weights, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_tokenizer_read_gguf(out, weights, path, error);
    plsh_weights_close(weights);
    return status;
}
