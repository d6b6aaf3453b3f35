/* text: the tokenizer of a GGUF as a tokenizer.json, which the Hugging Face library reads.
 *
 * Merges by score (SentencePiece) become merges by rank, as that library's own conversion makes
 * them: of two ways to make one token, the one of smaller ids comes first. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/gguf.h"
#include "text/tokenizer.h"

typedef struct writing {
    const plsh_weights *weights;
    const char *path;
    const plsh_tokenizer *t;
    plsh_status status; /* the first failure */
    plsh_error *error;
} writing;

static void fail(writing *w, plsh_status status, const char *what) {
    if (w->status == PLSH_STATUS_OK)
        w->status = plsh_fail(w->error, status, "%s: its tokenizer: %s", w->path, what);
}

/* Checks a result of jansson: NULL means out of memory. */
static json_t *made(writing *w, json_t *value) {
    if (value == NULL) fail(w, PLSH_STATUS_NO_MEMORY, "no memory for it");
    return value;
}

static json_t *token_json(writing *w, int32_t id) {
    size_t length = 0;
    const char *token = plsh_vocabulary_token(&w->t->vocabulary, id, &length);
    return made(w, token == NULL ? json_null() : json_stringn(token, length));
}

static void append(writing *w, json_t *list, json_t *value) {
    if (json_array_append_new(list, value) != 0) fail(w, PLSH_STATUS_NO_MEMORY, "no memory for it");
}

static void set(writing *w, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0)
        fail(w, PLSH_STATUS_NO_MEMORY, "no memory for it");
}

/* ---- the model ---- */

static json_t *vocabulary_json(writing *w) {
    json_t *out = made(w, json_object());
    const plsh_vocabulary *v = &w->t->vocabulary;
    plsh_text key = {0};
    for (int64_t id = 0; id <= v->largest && w->status == PLSH_STATUS_OK; id++) {
        size_t length;
        const char *token = plsh_vocabulary_token(v, id, &length);
        if (token == NULL) continue;
        if (memchr(token, 0, length) != NULL)
            fail(w, PLSH_STATUS_UNSUPPORTED, "a token with a zero byte");
        plsh_text_clear(&key);
        plsh_text_append(&key, token, length);
        plsh_text_append(&key, "", 1);
        if (w->status == PLSH_STATUS_OK) w->status = plsh_text_status(&key, w->error);
        if (w->status == PLSH_STATUS_OK) set(w, out, key.bytes, json_integer(id));
    }
    plsh_text_free(&key);
    return out;
}

static json_t *merges_json(writing *w) {
    json_t *out = made(w, json_array());
    plsh_bpe_pair *pairs = NULL;
    size_t count = 0;
    if (w->status == PLSH_STATUS_OK) w->status = plsh_bpe_list(w->t->bpe, &pairs, &count, w->error);
    for (size_t i = 0; i < count && w->status == PLSH_STATUS_OK; i++)
        append(w, out,
               json_pack("[o, o]", token_json(w, pairs[i].left), token_json(w, pairs[i].right)));
    plsh_release(pairs);
    return out;
}

static json_t *bpe_json(writing *w, bool sentencepiece, bool ignore_merges) {
    json_t *unknown = sentencepiece ? token_json(w, w->t->roles.unknown) : json_null();
    return made(w, json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                             "dropout", "unk_token", unknown, "continuing_subword_prefix",
                             "end_of_word_suffix", "fuse_unk", (int)sentencepiece, "byte_fallback",
                             (int)sentencepiece, "ignore_merges", (int)ignore_merges, "vocab",
                             vocabulary_json(w), "merges", merges_json(w)));
}

/* ---- what is done to texts ---- */

static json_t *replace_json(const char *from, const char *to) {
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content",
                     to);
}

static void make_gpt2(writing *w, json_t *root) {
    const plsh_gguf_cutting *cutting = NULL;
    w->status = plsh_gguf_cutting_find(w->weights, w->path, &cutting, w->error);
    if (w->status != PLSH_STATUS_OK) return;
    json_t *steps = made(w, json_array());
    for (size_t i = 0; i < PLSH_CUTTING_MOST && cutting->expressions[i] != NULL; i++)
        append(w, steps,
               json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                         cutting->expressions[i], "behavior", "Isolated", "invert", 0));
    append(w, steps,
           json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 0));
    set(w, root, "normalizer", cutting->nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
    set(w, root, "pre_tokenizer",
        json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps));
    set(w, root, "decoder",
        json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                  "trim_offsets", 1, "use_regex", 0));
    set(w, root, "model", bpe_json(w, false, cutting->ignore_merges));
}

#define LOW_LINE "\xE2\x96\x81" /* U+2581 stands for a space */

static void make_llama(writing *w, json_t *root) {
    bool prefix = true;
    w->status =
        plsh_metadata_bool(w->weights, "tokenizer.ggml.add_space_prefix", &prefix, w->error);
    json_t *steps = made(w, json_array()), *back = made(w, json_array());
    if (prefix) append(w, steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", LOW_LINE));
    append(w, steps, replace_json(" ", LOW_LINE));
    append(w, back, replace_json(LOW_LINE, " "));
    append(w, back, json_pack("{s:s}", "type", "ByteFallback"));
    append(w, back, json_pack("{s:s}", "type", "Fuse"));
    if (prefix)
        append(w, back,
               json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1,
                         "stop", 0));
    set(w, root, "normalizer", json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", steps));
    set(w, root, "pre_tokenizer", json_null());
    set(w, root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", back));
    set(w, root, "model", bpe_json(w, true, false));
}

static void make_bert(writing *w, json_t *root) {
    const plsh_wordpiece *wordpiece = &w->t->wordpiece;
    set(w, root, "normalizer",
        json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1,
                  "handle_chinese_chars", 1, "strip_accents", "lowercase", 1));
    set(w, root, "pre_tokenizer", json_pack("{s:s}", "type", "BertPreTokenizer"));
    set(w, root, "decoder",
        json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1));
    set(w, root, "model",
        json_pack("{s:s, s:s%, s:s, s:I, s:o}", "type", "WordPiece", "unk_token",
                  wordpiece->unknown.bytes, wordpiece->unknown.length, "continuing_subword_prefix",
                  "##", "max_input_chars_per_word", (json_int_t)wordpiece->longest_word, "vocab",
                  vocabulary_json(w)));
}

/* ---- tokens with a role ---- */

static json_t *added_json(writing *w) {
    json_t *out = made(w, json_array());
    for (size_t i = 0; i < w->t->added.count; i++) {
        const plsh_added_token *token = &w->t->added.tokens[i];
        append(w, out,
               json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)token->id, "content",
                         token_json(w, token->id), "single_word", (int)token->single_word, "lstrip",
                         (int)token->lstrip, "rstrip", (int)token->rstrip, "normalized",
                         (int)token->normalized, "special", (int)token->special));
    }
    return out;
}

/* The template of one text, or of a pair: the second text comes after the whole template of the
 * first. */
static json_t *pieces_json(writing *w, bool pair) {
    const plsh_token_ids *ids = &w->t->template_ids;
    json_t *out = made(w, json_array());
    for (size_t i = 0; i < ids->count; i++)
        append(w, out,
               ids->ids[i] == PLSH_TEMPLATE_TEXT
                   ? json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0)
                   : json_pack("{s:{s:o, s:i}}", "SpecialToken", "id", token_json(w, ids->ids[i]),
                               "type_id", 0));
    if (pair) append(w, out, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B", "type_id", 1));
    return out;
}

static json_t *template_json(writing *w) {
    const plsh_token_ids *ids = &w->t->template_ids;
    if (ids->count < 2) return json_null(); /* the text alone */
    json_t *known = made(w, json_object());
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->ids[i] == PLSH_TEMPLATE_TEXT) continue;
        json_t *token = token_json(w, ids->ids[i]);
        set(w, known, json_string_value(token),
            json_pack("{s:O, s:[i], s:[O]}", "id", token, "ids", (int)ids->ids[i], "tokens",
                      token));
        json_decref(token);
    }
    return made(w, json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single",
                             pieces_json(w, false), "pair", pieces_json(w, true), "special_tokens",
                             known));
}

static json_t *config_json(writing *w) {
    const plsh_token_roles *roles = &w->t->roles;
    const struct {
        const char *name;
        int32_t id;
    } named[] = {{"bos_token", roles->begin},
                 {"eos_token", roles->end},
                 {"pad_token", roles->pad},
                 {"unk_token", roles->unknown}};
    plsh_string chat = {"", 0};
    json_t *out = made(w, json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                                    "clean_up_tokenization_spaces", 0));
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].id >= 0) set(w, out, named[i].name, token_json(w, named[i].id));
    if (w->status == PLSH_STATUS_OK)
        w->status = plsh_metadata_string(w->weights, "tokenizer.chat_template", &chat, w->error);
    if (chat.length > 0) set(w, out, "chat_template", json_stringn(chat.bytes, chat.length));
    return out;
}

/* ---- all of it ---- */

static json_t *tokenizer_json(writing *w, plsh_string model) {
    json_t *root = made(w, json_pack("{s:s, s:n, s:n, s:o}", "version", "1.0", "truncation",
                                     "padding", "added_tokens", added_json(w)));
    if (model.bytes[0] == 'g') make_gpt2(w, root);
    if (model.bytes[0] == 'l') make_llama(w, root);
    if (model.bytes[0] == 'b') make_bert(w, root);
    set(w, root, "post_processor", template_json(w));
    return root;
}

plsh_status plsh_tokenizer_gguf_json(const plsh_weights *weights, json_t **tokenizer,
                                     json_t **config, plsh_error *error) {
    static const char none[] = "no_vocab";
    plsh_string model = {"", 0};
    plsh_tokenizer *t = NULL;
    const char *path = plsh_weights_path(weights);
    *tokenizer = *config = NULL;
    plsh_status status = plsh_metadata_string(weights, "tokenizer.ggml.model", &model, error);
    if (status != PLSH_STATUS_OK || model.length == 0) return status;
    if (model.length == sizeof none - 1 && memcmp(model.bytes, none, model.length) == 0)
        return PLSH_STATUS_OK;
    status = plsh_tokenizer_read_gguf(&t, weights, path, error);
    if (status != PLSH_STATUS_OK) return status;
    writing w = {.weights = weights, .path = path, .t = t, .error = error};
    *tokenizer = tokenizer_json(&w, model);
    *config = config_json(&w);
    plsh_tokenizer_free(t);
    if (w.status == PLSH_STATUS_OK) return PLSH_STATUS_OK;
    json_decref(*tokenizer);
    json_decref(*config);
    *tokenizer = *config = NULL;
    return w.status;
}
