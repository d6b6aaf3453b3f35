/* convert: the tokenizer of a folder (tokenizer.json) as the metadata of a GGUF. */
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "convert/convert.h"
#include "formats/json.h"
#include "formats/path.h"

/* The numbers of GGUF's token types. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

typedef struct tokens {
    plsh_string *text; /* [count]; an id without a token is empty until it gets a padding token */
    int32_t *type;
    float *score; /* SentencePiece only */
    size_t count;
    plsh_text names; /* of the padding */
    plsh_text words; /* of WordPiece: tokens as a GGUF writes them */
} tokens;

typedef struct job {
    plsh_weights_writer *writer;
    const char *path;
    json_t *root, *model, *vocabulary;
    bool sentencepiece, wordpiece;
    const char *pre; /* llama.cpp's name of its pre-tokenizer */
    tokens t;
    plsh_error *error;
} job;

static plsh_status refuse(const job *j, const char *what) {
    return plsh_fail(j->error, PLSH_STATUS_UNSUPPORTED, "%s: %s has no place in a GGUF", j->path,
                     what);
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

/* ---- How it splits -------------------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define THE_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *name_of_pattern(const char *pattern) {
    static const struct {
        const char *pattern, *name;
    } known[] = {
        {CONTRACTIONS WORDS "\\p{N}" THE_REST, "qwen2"},
        {CONTRACTIONS WORDS "\\p{N}{1,3}" THE_REST, "llama-bpe"},
        {" ?[^(\\s|[.,!?…。，、।۔،])]+", "bloom"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (pattern && strcmp(pattern, known[i].pattern) == 0) return known[i].name;
    return NULL;
}

/* Byte-level tokenizers: alone, after splitting single digits, or after a known pattern. */
static const char *name_of_splitting(const json_t *splitter) {
    if (strcmp(type_of(splitter), "ByteLevel") == 0)
        return json_is_true(json_object_get(splitter, "add_prefix_space")) ? NULL : "gpt-2";
    const json_t *parts = json_object_get(splitter, "pretokenizers");
    const json_t *first = json_array_get(parts, 0), *last = json_array_get(parts, 1);
    if (json_array_size(parts) != 2 || strcmp(type_of(last), "ByteLevel") != 0) return NULL;
    if (json_is_true(json_object_get(last, "add_prefix_space"))) return NULL;
    const bool regex = !json_is_false(json_object_get(last, "use_regex"));
    if (strcmp(type_of(first), "Digits") == 0)
        return regex && json_is_true(json_object_get(first, "individual_digits")) ? "smollm" : NULL;
    if (strcmp(type_of(first), "Split") != 0 || regex) return NULL;
    const json_t *pattern = json_object_get(json_object_get(first, "pattern"), "Regex");
    return name_of_pattern(json_string_value(pattern));
}

/* A GGUF supports only BERT's uncased normalizer. */
static plsh_status look_at_wordpiece(const job *j) {
    const json_t *normalizer = json_object_get(j->root, "normalizer");
    const char *prefix = json_string_value(json_object_get(j->model, "continuing_subword_prefix"));
    if (prefix && strcmp(prefix, "##") != 0) return refuse(j, "its continuing_subword_prefix");
    if (strcmp(type_of(normalizer), "BertNormalizer") != 0 ||
        !json_is_true(json_object_get(normalizer, "lowercase")) ||
        json_is_false(json_object_get(normalizer, "strip_accents")))
        return refuse(j, "a WordPiece that keeps case or accents");
    if (strcmp(type_of(json_object_get(j->root, "pre_tokenizer")), "BertPreTokenizer") != 0)
        return refuse(j, "its \"pre_tokenizer\"");
    return PLSH_STATUS_OK;
}

static plsh_status look_at_kind(job *j) {
    const json_t *splitter = json_object_get(j->root, "pre_tokenizer");
    j->wordpiece = strcmp(type_of(j->model), "WordPiece") == 0;
    if (j->wordpiece) return look_at_wordpiece(j);
    if (strcmp(type_of(j->model), "BPE") != 0)
        return refuse(j, "a model that is neither BPE nor WordPiece");
    j->sentencepiece = json_is_true(json_object_get(j->model, "byte_fallback"));
    if (j->sentencepiece) return PLSH_STATUS_OK;
    j->pre = name_of_splitting(splitter);
    return j->pre ? PLSH_STATUS_OK : refuse(j, "its \"pre_tokenizer\"");
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static bool is_byte(plsh_string text) {
    return text.length == 6 && memcmp(text.bytes, "<0x", 3) == 0 && text.bytes[5] == '>';
}

static plsh_string string_of(const json_t *value) {
    return (plsh_string){json_string_value(value), json_string_length(value)};
}

static plsh_status set_token(job *j, int64_t id, plsh_string text, int32_t type) {
    if (id < 0 || (uint64_t)id >= j->t.count)
        return plsh_fail(j->error, PLSH_STATUS_FORMAT,
                         "%s: token %lld, but the model has %zu embeddings", j->path, (long long)id,
                         j->t.count);
    j->t.text[id] = text;
    j->t.type[id] = type;
    return PLSH_STATUS_OK;
}

static plsh_status read_vocabulary(job *j) {
    const char *key;
    json_t *id;
    json_object_foreach(j->vocabulary, key, id) {
        plsh_string text = {key, strlen(key)};
        int32_t type = j->sentencepiece && is_byte(text) ? TOKEN_BYTE : TOKEN_NORMAL;
        if (!json_is_integer(id)) return refuse(j, "a token without a number");
        plsh_status status = set_token(j, json_integer_value(id), text, type);
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

static plsh_status read_added(job *j) {
    const char *unknown = json_string_value(json_object_get(j->model, "unk_token"));
    size_t index;
    json_t *token;
    json_array_foreach(json_object_get(j->root, "added_tokens"), index, token) {
        const json_t *content = json_object_get(token, "content");
        if (!json_is_string(content)) return refuse(j, "an added token without content");
        bool special = json_is_true(json_object_get(token, "special"));
        int32_t type = special ? TOKEN_CONTROL : TOKEN_USER;
        if (unknown && strcmp(unknown, json_string_value(content)) == 0) type = TOKEN_UNKNOWN;
        plsh_status status = set_token(j, json_integer_value(json_object_get(token, "id")),
                                       string_of(content), type);
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

/* Embeddings without a token are called [PADn]. */
static plsh_status pad(job *j) {
    for (size_t i = 0; i < j->t.count; i++) {
        if (j->t.type[i]) continue;
        plsh_text_print(&j->t.names, "[PAD%zu]", i);
        plsh_text_append(&j->t.names, "", 1);
    }
    plsh_status status = plsh_text_status(&j->t.names, j->error);
    const char *name = j->t.names.bytes;
    for (size_t i = 0; i < j->t.count && !status && name; i++) {
        if (j->t.type[i]) continue;
        j->t.type[i] = TOKEN_UNUSED;
        j->t.text[i] = (plsh_string){name, strlen(name)};
        name += strlen(name) + 1;
    }
    return status;
}

/* WordPiece marks continuations of a word, "##b"; a GGUF marks the beginnings, "▁a". */
static plsh_status mark_words(job *j) {
    for (size_t i = 0; i < j->t.count; i++) {
        const plsh_string token = j->t.text[i];
        if (j->t.type[i] != TOKEN_NORMAL) continue;
        const bool goes_on = token.length >= 2 && memcmp(token.bytes, "##", 2) == 0;
        if (!goes_on) plsh_text_append(&j->t.words, "\xE2\x96\x81", 3);
        plsh_text_append(&j->t.words, token.bytes + 2 * goes_on, token.length - 2 * goes_on);
    }
    plsh_status status = plsh_text_status(&j->t.words, j->error);
    size_t at = 0;
    for (size_t i = 0; i < j->t.count && !status; i++) {
        plsh_string *token = &j->t.text[i];
        if (j->t.type[i] != TOKEN_NORMAL) continue;
        const bool goes_on = token->length >= 2 && memcmp(token->bytes, "##", 2) == 0;
        const size_t length = goes_on ? token->length - 2 : token->length + 3;
        *token = (plsh_string){j->t.words.bytes + at, length};
        at += length;
    }
    return status;
}

static plsh_status allocate_tokens(job *j, size_t count) {
    void *text = NULL, *type = NULL, *score = NULL;
    j->t.count = count;
    plsh_status status = plsh_allocate(&text, count, sizeof(plsh_string), "tokens", j->error);
    j->t.text = text;
    if (!status) status = plsh_allocate(&type, count, sizeof(int32_t), "tokens", j->error);
    j->t.type = type;
    if (!status) status = plsh_allocate(&score, count, sizeof(float), "tokens", j->error);
    j->t.score = score;
    return status;
}

/* ---- Merges --------------------------------------------------------------------------------- */

/* A merge is "a b" or ["a", "b"]: its two parts. */
static bool read_merge(const json_t *merge, plsh_string *a, plsh_string *b) {
    if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
        json_is_string(json_array_get(merge, 1))) {
        *a = string_of(json_array_get(merge, 0));
        *b = string_of(json_array_get(merge, 1));
        return true;
    }
    if (!json_is_string(merge)) return false;
    plsh_string both = string_of(merge);
    const char *space = both.length > 1 ? memchr(both.bytes + 1, ' ', both.length - 1) : NULL;
    if (!space) return false;
    *a = (plsh_string){both.bytes, (size_t)(space - both.bytes)};
    *b = (plsh_string){space + 1, both.length - a->length - 1};
    return true;
}

/* SentencePiece has no merges: of two pairs it joins the one whose result scores higher. */
static void score_merge(job *j, const char *joined, size_t rank) {
    const json_t *id = json_object_get(j->vocabulary, joined);
    if (!json_is_integer(id)) return;
    int64_t token = json_integer_value(id);
    if (token < 0 || (uint64_t)token >= j->t.count || j->t.score[token] < 0.0f) return;
    j->t.score[token] = -(float)(rank + 1);
}

static plsh_status write_merges(job *j) {
    json_t *merges = json_object_get(j->model, "merges");
    const size_t count = json_array_size(merges);
    plsh_text text = {0};
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, 2 * count, sizeof(size_t), "the places of merges", j->error);
    if (status) return status;
    size_t *ends = memory;
    for (size_t i = 0; i < count && !status; i++) {
        plsh_string a, b;
        if (!read_merge(json_array_get(merges, i), &a, &b)) {
            status = refuse(j, "a merge that is not a pair");
            break;
        }
        plsh_text_append(&text, a.bytes, a.length);
        if (!j->sentencepiece) plsh_text_append(&text, " ", 1);
        plsh_text_append(&text, b.bytes, b.length);
        ends[i] = text.length;
        plsh_text_append(&text, "", 1);
        status = plsh_text_status(&text, j->error);
        if (!status && j->sentencepiece) score_merge(j, text.bytes + (i ? ends[i - 1] + 1 : 0), i);
    }
    void *strings = NULL;
    if (!status && !j->sentencepiece)
        status = plsh_allocate(&strings, count, sizeof(plsh_string), "merges", j->error);
    if (!status && !j->sentencepiece) {
        plsh_string *merge = strings;
        for (size_t i = 0; i < count; i++) {
            size_t begin = i ? ends[i - 1] + 1 : 0;
            merge[i] = (plsh_string){text.bytes + begin, ends[i] - begin};
        }
        status =
            plsh_weights_writer_strings(j->writer, "tokenizer.ggml.merges", merge, count, j->error);
    }
    plsh_release(strings);
    plsh_release(memory);
    plsh_text_free(&text);
    return status;
}

/* ---- The whole tokenizer -------------------------------------------------------------------- */

static plsh_status write_text(job *j, const char *key, const char *value) {
    return plsh_weights_writer_string(j->writer, key, value, strlen(value), j->error);
}

static plsh_status write_bool(job *j, const char *key, bool value) {
    return plsh_weights_writer_value(j->writer, key, PLSH_METADATA_BOOL, &(uint8_t){value},
                                     j->error);
}

static plsh_status write_tokens(job *j) {
    plsh_status status = write_text(j, "tokenizer.ggml.model",
                                    j->wordpiece       ? "bert"
                                    : j->sentencepiece ? "llama"
                                                       : "gpt2");
    if (!status) status = write_text(j, "tokenizer.ggml.pre", j->pre ? j->pre : "default");
    if (!status)
        status = plsh_weights_writer_strings(j->writer, "tokenizer.ggml.tokens", j->t.text,
                                             j->t.count, j->error);
    if (!status && !j->wordpiece) status = write_merges(j);
    if (!status && j->sentencepiece)
        status = plsh_weights_writer_values(j->writer, "tokenizer.ggml.scores", PLSH_METADATA_F32,
                                            j->t.score, j->t.count, j->error);
    if (!status)
        status = plsh_weights_writer_values(j->writer, "tokenizer.ggml.token_type",
                                            PLSH_METADATA_I32, j->t.type, j->t.count, j->error);
    return status;
}

/* Does the post-processor put the token of this id in front of a text, or at its end? */
static bool adds_token(const json_t *processor, int64_t id, bool last) {
    const char *type = type_of(processor);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        const json_t *number = json_array_get(json_object_get(processor, last ? "sep" : "cls"), 1);
        return json_is_integer(number) && json_integer_value(number) == id;
    }
    if (strcmp(type, "Sequence") == 0) {
        size_t index;
        json_t *part;
        json_array_foreach(json_object_get(processor, "processors"), index, part) {
            if (adds_token(part, id, last)) return true;
        }
        return false;
    }
    const json_t *single = json_object_get(processor, "single");
    const size_t count = json_array_size(single);
    const json_t *special =
        json_object_get(json_array_get(single, last && count > 0 ? count - 1 : 0), "SpecialToken");
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *known = json_object_get(json_object_get(processor, "special_tokens"), name);
    const json_t *number = json_array_get(json_object_get(known, "ids"), 0);
    return name && json_is_integer(number) && json_integer_value(number) == id;
}

/* WordPiece: the special tokens around a text, under BERT's names for them. */
static plsh_status write_around(job *j) {
    static const char *const fields[][2] = {{"[CLS]", "tokenizer.ggml.bos_token_id"},
                                            {"[CLS]", "tokenizer.ggml.cls_token_id"},
                                            {"[SEP]", "tokenizer.ggml.seperator_token_id"},
                                            {"[UNK]", "tokenizer.ggml.unknown_token_id"},
                                            {"[PAD]", "tokenizer.ggml.padding_token_id"},
                                            {"[MASK]", "tokenizer.ggml.mask_token_id"}};
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !status; i++) {
        const json_t *id = json_object_get(j->vocabulary, fields[i][0]);
        if (!json_is_integer(id)) continue;
        status = plsh_weights_writer_value(j->writer, fields[i][1], PLSH_METADATA_U32,
                                           &(uint32_t){(uint32_t)json_integer_value(id)}, j->error);
    }
    return status;
}

/* bos_token_id and eos_token_id of config.json: a number, or the first of a list. */
static plsh_status write_special(job *j, const json_t *config) {
    static const char *const fields[][2] = {
        {"bos_token_id", "tokenizer.ggml.bos_token_id"},
        {"eos_token_id", "tokenizer.ggml.eos_token_id"},
        {"pad_token_id", "tokenizer.ggml.padding_token_id"},
    };
    plsh_status status = PLSH_STATUS_OK;
    bool adds[2] = {false, false}; /* in front, at the end */
    for (size_t i = 0; i < 3 && !status; i++) {
        const json_t *value = json_object_get(config, fields[i][0]);
        if (json_is_array(value)) value = json_array_get(value, 0);
        if (!json_is_integer(value) || json_integer_value(value) < 0) continue;
        int64_t id = json_integer_value(value);
        status = plsh_weights_writer_value(j->writer, fields[i][1], PLSH_METADATA_U32,
                                           &(uint32_t){(uint32_t)id}, j->error);
        if (i < 2) adds[i] = adds_token(json_object_get(j->root, "post_processor"), id, i == 1);
    }
    if (!status) status = write_bool(j, "tokenizer.ggml.add_bos_token", adds[0]);
    if (!status) status = write_bool(j, "tokenizer.ggml.add_eos_token", adds[1]);
    return status;
}

/* SentencePiece: "▁" before the text. */
static bool has_prefix(const json_t *normalizer) {
    if (strcmp(type_of(normalizer), "Prepend") == 0) return true;
    const json_t *first = json_array_get(json_object_get(normalizer, "normalizers"), 0);
    return strcmp(type_of(first), "Prepend") == 0;
}

static plsh_status write_all(job *j, const json_t *config, size_t count) {
    j->model = json_object_get(j->root, "model");
    j->vocabulary = json_object_get(j->model, "vocab");
    plsh_status status = look_at_kind(j);
    if (!status) status = allocate_tokens(j, count);
    if (!status) status = read_vocabulary(j);
    if (!status) status = read_added(j);
    if (!status && j->wordpiece) status = mark_words(j);
    if (!status) status = pad(j);
    if (!status) status = write_tokens(j);
    if (!status) status = j->wordpiece ? write_around(j) : write_special(j, config);
    if (!status && j->sentencepiece)
        status = write_bool(j, "tokenizer.ggml.add_space_prefix",
                            has_prefix(json_object_get(j->root, "normalizer")));
    plsh_release(j->t.text);
    plsh_release(j->t.type);
    plsh_release(j->t.score);
    plsh_text_free(&j->t.names);
    plsh_text_free(&j->t.words);
    return status;
}

static plsh_status read_json(const char *path, json_t **root, plsh_error *error) {
    plsh_mapping mapping;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status) return status;
    status = plsh_weights_json_parse((const char *)mapping.bytes, mapping.size, path, root, error);
    plsh_mapping_close(&mapping);
    return status;
}

plsh_status plsh_convert_tokenizer(plsh_weights_writer *writer, const plsh_model_config *config,
                                   const char *folder, plsh_error *error) {
    char *path = NULL, *config_path = NULL;
    json_t *root = NULL, *fields = NULL;
    plsh_status status = plsh_path_join(&path, folder, "tokenizer.json", error);
    if (!status) status = plsh_path_join(&config_path, folder, "config.json", error);
    if (!status && !plsh_path_exists(path)) {
        static const char none[] = "no_vocab";
        status = plsh_weights_writer_string(writer, "tokenizer.ggml.model", none, sizeof none - 1,
                                            error);
    } else if (!status) {
        status = read_json(path, &root, error);
        if (!status) status = read_json(config_path, &fields, error);
        job j = {.writer = writer, .path = path, .root = root, .error = error};
        if (!status) status = write_all(&j, fields, (size_t)config->vocabulary);
    }
    json_decref(root);
    json_decref(fields);
    plsh_release(path);
    plsh_release(config_path);
    return status;
}
