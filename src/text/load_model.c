/* text: the models of a tokenizer.json: BPE, WordPiece. */
#include <string.h>

#include "text/load.h"

static plsh_status load_vocabulary(plsh_load *load, const char *part, const json_t *object) {
    json_t *tokens = json_object_get(object, "vocab"), *id;
    plsh_vocabulary *vocabulary = &load->tokenizer->vocabulary;
    if (!json_is_object(tokens)) return plsh_load_fail(load, part, "\"vocab\" must be an object");
    const char *token;
    plsh_status status = plsh_vocabulary_reserve(vocabulary, json_object_size(tokens), load->error);
    json_object_foreach(tokens, token, id) {
        if (status != PLSH_STATUS_OK) break;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return plsh_load_fail(load, part, "\"vocab\": \"%.40s\" has no id from 0 to %d", token,
                                  INT32_MAX);
        status = plsh_vocabulary_add(vocabulary, token, strlen(token),
                                     (int32_t)json_integer_value(id), load->error);
    }
    return status;
}

/* A string without zero bytes, or NULL. */
static plsh_status load_optional(const plsh_load *load, const char *part, const json_t *object,
                                 const char *key, const char **out) {
    const json_t *value = json_object_get(object, key);
    *out = NULL;
    if (value == NULL || json_is_null(value)) return PLSH_STATUS_OK;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return plsh_load_fail(load, part, "\"%s\" must be a string or null", key);
    *out = json_string_value(value);
    return PLSH_STATUS_OK;
}

/* ---- BPE ---- */

/* The two sides of a merge: "a b", or ["a", "b"]. */
static bool merge_sides(const json_t *merge, const char *side[2], size_t length[2]) {
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            side[i] = json_string_value(json_array_get(merge, i));
            length[i] = json_string_length(json_array_get(merge, i));
        }
        return side[0] != NULL && side[1] != NULL;
    }
    side[0] = json_string_value(merge);
    const char *space = side[0] != NULL ? strchr(side[0], ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
    length[0] = (size_t)(space - side[0]);
    side[1] = space + 1;
    length[1] = json_string_length(merge) - length[0] - 1;
    return true;
}

static plsh_status load_merge(plsh_load *load, const json_t *merge, size_t place, uint32_t rank,
                              size_t prefix, plsh_text *scratch) {
    plsh_tokenizer *t = load->tokenizer;
    const char *side[2];
    size_t length[2];
    if (!merge_sides(merge, side, length))
        return plsh_load_fail(load, "model", "\"merges\", number %zu, is not a pair", place);
    const int32_t left = plsh_vocabulary_find(&t->vocabulary, side[0], length[0]);
    const int32_t right = plsh_vocabulary_find(&t->vocabulary, side[1], length[1]);
    plsh_text_clear(scratch);
    plsh_text_append(scratch, side[0], length[0]);
    /* A continuation token drops its prefix when it is merged. */
    if (length[1] >= prefix) plsh_text_append(scratch, side[1] + prefix, length[1] - prefix);
    plsh_status status = plsh_text_status(scratch, load->error);
    if (status != PLSH_STATUS_OK) return status;
    const int32_t merged = plsh_vocabulary_find(&t->vocabulary, scratch->bytes, scratch->length);
    if (left < 0 || right < 0 || merged < 0 || length[1] < prefix)
        return plsh_load_fail(load, "model",
                              "\"merges\", number %zu: \"%.*s\" and \"%.*s\" or both together are "
                              "not in the vocabulary",
                              place, (int)(length[0] < 30 ? length[0] : 30), side[0],
                              (int)(length[1] < 30 ? length[1] : 30), side[1]);
    plsh_bpe_merge(t->bpe, left, right, rank, merged);
    return PLSH_STATUS_OK;
}

static plsh_status load_merges(plsh_load *load, const json_t *merges, size_t prefix) {
    plsh_text scratch = {0};
    plsh_status status = PLSH_STATUS_OK;
    uint32_t rank = 0;
    for (size_t i = 0; i < json_array_size(merges) && status == PLSH_STATUS_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        const char *line = json_string_value(merge);
        if (line != NULL && strncmp(line, "#version", 8) == 0) continue;
        status = load_merge(load, merge, i, rank++, prefix, &scratch);
    }
    plsh_text_free(&scratch);
    return status == PLSH_STATUS_OK ? plsh_bpe_finish(load->tokenizer->bpe, load->error) : status;
}

static plsh_status load_bpe(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "model BPE";
    (void)kind;
    plsh_bpe_options options = {0};
    const json_t *merges = json_object_get(object, "merges");
    const json_t *dropout = json_object_get(object, "dropout");
    if (!json_is_array(merges)) return plsh_load_fail(load, part, "\"merges\" must be a list");
    if (dropout != NULL && !json_is_null(dropout) && json_number_value(dropout) != 0.0)
        return plsh_load_fail(load, part, "\"dropout\" is not supported; 0 or null is");
    plsh_status status = load_optional(load, part, object, "unk_token", &options.unknown);
    if (status == PLSH_STATUS_OK)
        status = load_optional(load, part, object, "continuing_subword_prefix", &options.prefix);
    if (status == PLSH_STATUS_OK)
        status = load_optional(load, part, object, "end_of_word_suffix", &options.suffix);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "fuse_unk", &options.fuse_unknown);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "byte_fallback", &options.byte_fallback);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "ignore_merges", &options.ignore_merges);
    if (status == PLSH_STATUS_OK) status = load_vocabulary(load, part, object);
    plsh_tokenizer *t = load->tokenizer;
    if (status == PLSH_STATUS_OK)
        status = plsh_bpe_create(&t->bpe, &t->vocabulary, &options, json_array_size(merges),
                                 load->error);
    if (status != PLSH_STATUS_OK) return status;
    if (options.unknown != NULL)
        t->roles.unknown =
            plsh_vocabulary_find(&t->vocabulary, options.unknown, strlen(options.unknown));
    return load_merges(load, merges, options.prefix != NULL ? strlen(options.prefix) : 0);
}

/* ---- WordPiece ---- */

static plsh_status load_wordpiece(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "model WordPiece";
    (void)kind;
    plsh_wordpiece *model = &load->tokenizer->wordpiece;
    const char *prefix, *unknown;
    model->vocabulary = &load->tokenizer->vocabulary;
    model->longest_word = 100;
    plsh_status status = load_optional(load, part, object, "continuing_subword_prefix", &prefix);
    if (status == PLSH_STATUS_OK) status = load_optional(load, part, object, "unk_token", &unknown);
    if (status == PLSH_STATUS_OK)
        status =
            plsh_load_size(load, part, object, "max_input_chars_per_word", &model->longest_word);
    if (status == PLSH_STATUS_OK) status = load_vocabulary(load, part, object);
    if (status != PLSH_STATUS_OK) return status;
    if (prefix == NULL) prefix = "##";
    if (unknown == NULL) unknown = "[UNK]";
    plsh_text_append(&model->prefix, prefix, strlen(prefix));
    plsh_text_append(&model->unknown, unknown, strlen(unknown));
    load->tokenizer->roles.unknown =
        plsh_vocabulary_find(model->vocabulary, unknown, strlen(unknown));
    status = plsh_text_status(&model->prefix, load->error);
    return status == PLSH_STATUS_OK ? plsh_text_status(&model->unknown, load->error) : status;
}

plsh_status plsh_load_model(plsh_load *load, const json_t *object) {
    static const plsh_load_row rows[] = {
        {"BPE", load_bpe, 0}, {"WordPiece", load_wordpiece, 0}, {NULL, NULL, 0}};
    if (!json_is_object(object)) return plsh_load_fail(load, "model", "there is none");
    if (json_object_get(object, "type") != NULL) return plsh_load_part(load, "model", rows, object);
    /* Files of the first versions do not have this field. */
    if (json_object_get(object, "merges") != NULL) return load_bpe(load, object, 0);
    if (json_object_get(object, "max_input_chars_per_word") != NULL)
        return load_wordpiece(load, object, 0);
    return plsh_load_fail(load, "model", "has no \"type\"");
}
