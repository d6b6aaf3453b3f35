/* text: normalizers, pre-tokenizers, post-processors and decoders of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include "text/load.h"

/* ---- normalizers ---- */

static plsh_status add_normalizer(plsh_load *load, plsh_normalizer step) {
    return plsh_normalizers_add(&load->tokenizer->normalizers, step, load->error);
}

static plsh_status normalizer_form(plsh_load *load, const json_t *object, int form) {
    (void)object;
    return add_normalizer(load,
                          (plsh_normalizer){.kind = PLSH_NORMALIZER_FORM, .form = (plsh_form)form});
}

static plsh_status normalizer_plain(plsh_load *load, const json_t *object, int kind) {
    (void)object;
    return add_normalizer(
        load, (plsh_normalizer){.kind = (plsh_normalizer_kind)kind, .drop = PLSH_CLASS_COMBINING});
}

static plsh_status normalizer_bert(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "normalizer BertNormalizer";
    (void)kind;
    bool clean = true, chinese = true, lowercase = true;
    plsh_status status = plsh_load_bool(load, part, object, "clean_text", &clean);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "handle_chinese_chars", &chinese);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "lowercase", &lowercase);
    bool accents = lowercase; /* null: as lowercase */
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "strip_accents", &accents);
    const struct {
        bool wanted;
        plsh_normalizer step;
    } steps[] = {
        {clean, {.kind = PLSH_NORMALIZER_CLEAN}},
        {chinese, {.kind = PLSH_NORMALIZER_CHINESE}},
        {accents, {.kind = PLSH_NORMALIZER_FORM, .form = PLSH_FORM_NFD}},
        {accents, {.kind = PLSH_NORMALIZER_DROP, .drop = PLSH_CLASS_NONSPACING}},
        {lowercase, {.kind = PLSH_NORMALIZER_LOWERCASE}},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == PLSH_STATUS_OK; i++)
        if (steps[i].wanted) status = add_normalizer(load, steps[i].step);
    return status;
}

static plsh_status normalizer_strip(plsh_load *load, const json_t *object, int kind) {
    plsh_normalizer step = {.kind = (plsh_normalizer_kind)kind, .left = true, .right = true};
    plsh_status status = plsh_load_bool(load, "normalizer Strip", object, "strip_left", &step.left);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, "normalizer Strip", object, "strip_right", &step.right);
    return status == PLSH_STATUS_OK ? add_normalizer(load, step) : status;
}

static plsh_status normalizer_prepend(plsh_load *load, const json_t *object, int kind) {
    plsh_normalizer step = {.kind = (plsh_normalizer_kind)kind};
    plsh_status status =
        plsh_load_text(load, "normalizer Prepend", object, "prepend", false, &step.content);
    if (status == PLSH_STATUS_OK) return add_normalizer(load, step);
    plsh_text_free(&step.content);
    return status;
}

static plsh_status normalizer_replace(plsh_load *load, const json_t *object, int kind) {
    plsh_normalizer step = {.kind = (plsh_normalizer_kind)kind};
    plsh_status status =
        plsh_load_text(load, "normalizer Replace", object, "content", false, &step.content);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_pattern(load, "normalizer Replace", object, &step.pattern);
    if (status == PLSH_STATUS_OK) return add_normalizer(load, step);
    plsh_text_free(&step.content);
    return status;
}

static plsh_status normalizer_sequence(plsh_load *load, const json_t *object, int kind) {
    (void)kind;
    return plsh_load_list(load, "normalizer", plsh_load_normalizer, object, "normalizers");
}

static const plsh_load_row normalizer_rows[] = {
    {"NFC", normalizer_form, PLSH_FORM_NFC},
    {"NFD", normalizer_form, PLSH_FORM_NFD},
    {"NFKC", normalizer_form, PLSH_FORM_NFKC},
    {"NFKD", normalizer_form, PLSH_FORM_NFKD},
    {"Lowercase", normalizer_plain, PLSH_NORMALIZER_LOWERCASE},
    {"StripAccents", normalizer_plain, PLSH_NORMALIZER_DROP},
    {"Nmt", normalizer_plain, PLSH_NORMALIZER_NMT},
    {"ByteLevel", normalizer_plain, PLSH_NORMALIZER_BYTE_LEVEL},
    {"BertNormalizer", normalizer_bert, 0},
    {"Strip", normalizer_strip, PLSH_NORMALIZER_STRIP},
    {"Prepend", normalizer_prepend, PLSH_NORMALIZER_PREPEND},
    {"Replace", normalizer_replace, PLSH_NORMALIZER_REPLACE},
    {"Sequence", normalizer_sequence, 0},
    {NULL, NULL, 0},
};

plsh_status plsh_load_normalizer(plsh_load *load, const json_t *object) {
    return plsh_load_part(load, "normalizer", normalizer_rows, object);
}

/* ---- pre-tokenizers ---- */

static plsh_status add_splitter(plsh_load *load, plsh_splitter step) {
    return plsh_splitters_add(&load->tokenizer->splitters, step, load->error);
}

static plsh_status load_behavior(plsh_load *load, const char *part, const json_t *object,
                                 plsh_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const json_t *value = json_object_get(object, "behavior");
    if (value == NULL) return PLSH_STATUS_OK;
    const char *name = json_string_value(value);
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return *out = (plsh_split_behavior)i, PLSH_STATUS_OK;
    return plsh_load_fail(load, part, "\"behavior\" \"%.40s\" is not supported",
                          name != NULL ? name : "");
}

static plsh_status splitter_byte_level(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "pre_tokenizer ByteLevel";
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind, .prefix_space = true};
    bool expression = true;
    plsh_status status = plsh_load_bool(load, part, object, "add_prefix_space", &step.prefix_space);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "use_regex", &expression);
    if (status != PLSH_STATUS_OK) return status;
    if (!expression) return add_splitter(load, step);
    return plsh_tokenizer_split(load->tokenizer, step, plsh_gpt2_expression,
                                strlen(plsh_gpt2_expression), false, part, load->error);
}

static plsh_status splitter_split(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "pre_tokenizer Split";
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind, .behavior = PLSH_SPLIT_ISOLATED};
    plsh_status status = load_behavior(load, part, object, &step.behavior);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, part, object, "invert", &step.invert);
    if (status == PLSH_STATUS_OK) status = plsh_load_pattern(load, part, object, &step.pattern);
    return status == PLSH_STATUS_OK ? add_splitter(load, step) : status;
}

static plsh_status splitter_punctuation(plsh_load *load, const json_t *object, int kind) {
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind,
                          .class_ = PLSH_CLASS_PUNCTUATION,
                          .behavior = PLSH_SPLIT_ISOLATED};
    plsh_status status = load_behavior(load, "pre_tokenizer Punctuation", object, &step.behavior);
    return status == PLSH_STATUS_OK ? add_splitter(load, step) : status;
}

static plsh_status splitter_digits(plsh_load *load, const json_t *object, int kind) {
    bool single = false;
    plsh_status status =
        plsh_load_bool(load, "pre_tokenizer Digits", object, "individual_digits", &single);
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind,
                          .class_ = PLSH_CLASS_NUMERIC,
                          .behavior = single ? PLSH_SPLIT_ISOLATED : PLSH_SPLIT_CONTIGUOUS};
    return status == PLSH_STATUS_OK ? add_splitter(load, step) : status;
}

static plsh_status splitter_whitespace_split(plsh_load *load, const json_t *object, int kind) {
    (void)object;
    return add_splitter(load, (plsh_splitter){.kind = (plsh_splitter_kind)kind,
                                              .class_ = PLSH_CLASS_WHITESPACE,
                                              .behavior = PLSH_SPLIT_REMOVED});
}

static plsh_status splitter_bert(plsh_load *load, const json_t *object, int kind) {
    plsh_status status = splitter_whitespace_split(load, object, kind);
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind,
                          .class_ = PLSH_CLASS_PUNCTUATION,
                          .behavior = PLSH_SPLIT_ISOLATED};
    return status == PLSH_STATUS_OK ? add_splitter(load, step) : status;
}

static plsh_status splitter_whitespace(plsh_load *load, const json_t *object, int kind) {
    (void)object;
    return add_splitter(load, (plsh_splitter){.kind = (plsh_splitter_kind)kind});
}

static plsh_status splitter_delimiter(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "pre_tokenizer CharDelimiterSplit";
    plsh_text delimiter = {0};
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind, .behavior = PLSH_SPLIT_REMOVED};
    plsh_status status = plsh_load_text(load, part, object, "delimiter", true, &delimiter);
    if (status == PLSH_STATUS_OK)
        status = plsh_tokenizer_split(load->tokenizer, step, delimiter.bytes, delimiter.length,
                                      true, part, load->error);
    plsh_text_free(&delimiter);
    return status;
}

/* "prepend_scheme", or "add_prefix_space" of older files. */
static plsh_status load_prepend(plsh_load *load, const char *part, const json_t *object,
                                plsh_prepend *out) {
    static const char *const names[] = {"always", "first", "never"};
    bool prefix = true;
    const char *name = json_string_value(json_object_get(object, "prepend_scheme"));
    plsh_status status = plsh_load_bool(load, part, object, "add_prefix_space", &prefix);
    *out = prefix ? PLSH_PREPEND_ALWAYS : PLSH_PREPEND_NEVER;
    if (status != PLSH_STATUS_OK || name == NULL) return status;
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        if (!prefix && i != PLSH_PREPEND_NEVER)
            return plsh_load_fail(load, part,
                                  "\"add_prefix_space\" contradicts \"prepend_scheme\"");
        return *out = (plsh_prepend)i, PLSH_STATUS_OK;
    }
    return plsh_load_fail(load, part, "\"prepend_scheme\" \"%.40s\" is not supported", name);
}

static plsh_status splitter_metaspace(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "pre_tokenizer Metaspace";
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind, .split = true};
    plsh_status status = load_prepend(load, part, object, &step.prepend);
    if (status == PLSH_STATUS_OK) status = plsh_load_bool(load, part, object, "split", &step.split);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_text(load, part, object, "replacement", true, &step.content);
    if (status == PLSH_STATUS_OK)
        status = plsh_pattern_create(&step.pattern, step.content.bytes, step.content.length, true,
                                     part, load->error);
    if (status == PLSH_STATUS_OK) return add_splitter(load, step);
    plsh_text_free(&step.content);
    return status;
}

static plsh_status splitter_length(plsh_load *load, const json_t *object, int kind) {
    plsh_splitter step = {.kind = (plsh_splitter_kind)kind, .length = 5};
    plsh_status status =
        plsh_load_size(load, "pre_tokenizer FixedLength", object, "length", &step.length);
    if (status == PLSH_STATUS_OK && step.length == 0)
        return plsh_load_fail(load, "pre_tokenizer FixedLength", "\"length\" must be above 0");
    return status == PLSH_STATUS_OK ? add_splitter(load, step) : status;
}

static plsh_status splitter_sequence(plsh_load *load, const json_t *object, int kind) {
    (void)kind;
    return plsh_load_list(load, "pre_tokenizer", plsh_load_pre_tokenizer, object, "pretokenizers");
}

static const plsh_load_row splitter_rows[] = {
    {"ByteLevel", splitter_byte_level, PLSH_SPLITTER_BYTE_LEVEL},
    {"Split", splitter_split, PLSH_SPLITTER_PATTERN},
    {"Punctuation", splitter_punctuation, PLSH_SPLITTER_CLASS},
    {"Digits", splitter_digits, PLSH_SPLITTER_CLASS},
    {"Whitespace", splitter_whitespace, PLSH_SPLITTER_WORDS},
    {"WhitespaceSplit", splitter_whitespace_split, PLSH_SPLITTER_CLASS},
    {"BertPreTokenizer", splitter_bert, PLSH_SPLITTER_CLASS},
    {"CharDelimiterSplit", splitter_delimiter, PLSH_SPLITTER_PATTERN},
    {"Metaspace", splitter_metaspace, PLSH_SPLITTER_METASPACE},
    {"FixedLength", splitter_length, PLSH_SPLITTER_LENGTH},
    {"Sequence", splitter_sequence, 0},
    {NULL, NULL, 0},
};

plsh_status plsh_load_pre_tokenizer(plsh_load *load, const json_t *object) {
    return plsh_load_part(load, "pre_tokenizer", splitter_rows, object);
}

/* ---- post-processors ---- */

static plsh_status append_template(plsh_load *load, int64_t id) {
    if (id < PLSH_TEMPLATE_TEXT || id > INT32_MAX)
        return plsh_load_fail(load, "post_processor", "an id is not from 0 to %d", INT32_MAX);
    return plsh_ids_append(&load->tokenizer->template_ids, (int32_t)id, load->error);
}

static plsh_status append_to_pair(plsh_load *load, int32_t id, int32_t type) {
    plsh_tokenizer *t = load->tokenizer;
    plsh_status status = plsh_ids_append(&t->pair_ids, id, load->error);
    return status == PLSH_STATUS_OK ? plsh_ids_append(&t->pair_types, type, load->error) : status;
}

static plsh_status refuse_second(plsh_load *load) {
    if (load->tokenizer->template_ids.count == 0) return PLSH_STATUS_OK;
    return plsh_load_fail(load, "post_processor", "two that add tokens are not supported");
}

/* The ids of a special token of the template. */
static plsh_status append_special(plsh_load *load, const json_t *object, const json_t *piece) {
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *token =
        name != NULL ? json_object_get(json_object_get(object, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(token, "ids");
    if (!json_is_array(ids))
        return plsh_load_fail(load, "post_processor TemplateProcessing",
                              "\"special_tokens\" lacks \"%.40s\"", name != NULL ? name : "");
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < json_array_size(ids) && status == PLSH_STATUS_OK; i++) {
        const json_t *id = json_array_get(ids, i);
        status = append_template(load, json_is_integer(id) ? json_integer_value(id) : -2);
    }
    return status;
}

/* One piece of "pair": a special token, or the sequence A or B. A template with other pieces is
 * ignored: only pairs of texts need it. */
static bool append_pair_piece(plsh_load *load, const json_t *object, const json_t *piece,
                              plsh_status *status) {
    const json_t *special = json_object_get(piece, "SpecialToken");
    const json_t *sequence = json_object_get(piece, "Sequence");
    const json_t *type = json_object_get(special ? special : sequence, "type_id");
    const char *which = json_string_value(json_object_get(special ? special : sequence, "id"));
    if (which == NULL || !json_is_integer(type) || json_integer_value(type) < 0 ||
        json_integer_value(type) > 1)
        return false;
    const int32_t kind = (int32_t)json_integer_value(type);
    if (special == NULL) {
        if (strcmp(which, "A") != 0 && strcmp(which, "B") != 0) return false;
        *status =
            append_to_pair(load, which[0] == 'A' ? PLSH_TEMPLATE_TEXT : PLSH_TEMPLATE_SECOND, kind);
        return true;
    }
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(object, "special_tokens"), which), "ids");
    for (size_t i = 0; i < json_array_size(ids) && *status == PLSH_STATUS_OK; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return false;
        *status = append_to_pair(load, (int32_t)json_integer_value(id), kind);
    }
    return json_is_array(ids);
}

static plsh_status read_pair(plsh_load *load, const json_t *object) {
    const json_t *pair = json_object_get(object, "pair");
    plsh_status status = PLSH_STATUS_OK;
    bool known = json_is_array(pair);
    for (size_t i = 0; known && i < json_array_size(pair) && status == PLSH_STATUS_OK; i++)
        known = append_pair_piece(load, object, json_array_get(pair, i), &status);
    if (!known) load->tokenizer->pair_ids.count = load->tokenizer->pair_types.count = 0;
    return status;
}

static plsh_status post_template(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "post_processor TemplateProcessing";
    (void)kind;
    const json_t *single = json_object_get(object, "single");
    plsh_status status = refuse_second(load);
    if (status == PLSH_STATUS_OK && !json_is_array(single))
        return plsh_load_fail(load, part, "\"single\" must be a list");
    bool has_text = false;
    for (size_t i = 0; i < json_array_size(single) && status == PLSH_STATUS_OK; i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *sequence = json_object_get(piece, "Sequence");
        const char *which = json_string_value(json_object_get(sequence, "id"));
        if (special != NULL)
            status = append_special(load, object, special);
        else if (which != NULL && strcmp(which, "A") == 0)
            status = append_template(load, PLSH_TEMPLATE_TEXT), has_text = true;
        else
            return plsh_load_fail(load, part,
                                  "\"single\", number %zu, is neither a special token "
                                  "nor the sequence A",
                                  i);
    }
    if (status == PLSH_STATUS_OK && !has_text)
        return plsh_load_fail(load, part, "\"single\" lacks the sequence A");
    return status == PLSH_STATUS_OK ? read_pair(load, object) : status;
}

/* "cls": ["[CLS]", 101]. */
static plsh_status append_pair(plsh_load *load, const json_t *object, const char *key) {
    const json_t *id = json_array_get(json_object_get(object, key), 1);
    if (!json_is_integer(id))
        return plsh_load_fail(load, "post_processor", "\"%s\" must be a token and its id", key);
    return append_template(load, json_integer_value(id) < 0 ? -2 : json_integer_value(id));
}

/* The template for two texts: BERT's cls A sep B sep, where B and the last sep have type 1;
 * RoBERTa's cls A sep sep B sep, all of type 0. It extends the template for one text, cls A sep. */
static plsh_status make_pair(plsh_load *load, bool roberta) {
    const plsh_token_ids *single = &load->tokenizer->template_ids;
    const int32_t cls = single->ids[0], sep = single->ids[2];
    plsh_status status = append_to_pair(load, cls, 0);
    if (status == PLSH_STATUS_OK) status = append_to_pair(load, PLSH_TEMPLATE_TEXT, 0);
    if (status == PLSH_STATUS_OK) status = append_to_pair(load, sep, 0);
    if (status == PLSH_STATUS_OK && roberta) status = append_to_pair(load, sep, 0);
    if (status == PLSH_STATUS_OK) status = append_to_pair(load, PLSH_TEMPLATE_SECOND, !roberta);
    return status == PLSH_STATUS_OK ? append_to_pair(load, sep, !roberta) : status;
}

static plsh_status post_pair(plsh_load *load, const json_t *object, int roberta) {
    plsh_status status = refuse_second(load);
    if (status == PLSH_STATUS_OK) status = append_pair(load, object, "cls");
    if (status == PLSH_STATUS_OK) status = append_template(load, PLSH_TEMPLATE_TEXT);
    if (status == PLSH_STATUS_OK) status = append_pair(load, object, "sep");
    return status == PLSH_STATUS_OK ? make_pair(load, roberta) : status;
}

static plsh_status post_nothing(plsh_load *load, const json_t *object, int kind) {
    (void)load, (void)object, (void)kind; /* ByteLevel changes only offsets, which are not computed
                                             here */
    return PLSH_STATUS_OK;
}

static plsh_status post_sequence(plsh_load *load, const json_t *object, int kind) {
    (void)kind;
    return plsh_load_list(load, "post_processor", plsh_load_post_processor, object, "processors");
}

static const plsh_load_row post_rows[] = {
    {"TemplateProcessing", post_template, 0}, {"BertProcessing", post_pair, 0},
    {"RobertaProcessing", post_pair, 1},      {"ByteLevel", post_nothing, 0},
    {"Sequence", post_sequence, 0},           {NULL, NULL, 0},
};

plsh_status plsh_load_post_processor(plsh_load *load, const json_t *object) {
    return plsh_load_part(load, "post_processor", post_rows, object);
}

/* ---- decoders ---- */

static plsh_status add_decoder(plsh_load *load, plsh_decoder step, plsh_status status) {
    if (status == PLSH_STATUS_OK)
        return plsh_decoders_add(&load->tokenizer->decoders, step, load->error);
    plsh_text_free(&step.content);
    plsh_pattern_free(step.pattern);
    return status;
}

static plsh_status decoder_plain(plsh_load *load, const json_t *object, int kind) {
    (void)object;
    return add_decoder(load, (plsh_decoder){.kind = (plsh_decoder_kind)kind}, PLSH_STATUS_OK);
}

static plsh_status decoder_strip(plsh_load *load, const json_t *object, int kind) {
    static const char part[] = "decoder Strip";
    plsh_decoder step = {.kind = (plsh_decoder_kind)kind};
    plsh_status status = plsh_load_text(load, part, object, "content", true, &step.content);
    if (status == PLSH_STATUS_OK) status = plsh_load_size(load, part, object, "start", &step.start);
    if (status == PLSH_STATUS_OK) status = plsh_load_size(load, part, object, "stop", &step.stop);
    return add_decoder(load, step, status);
}

static plsh_status decoder_replace(plsh_load *load, const json_t *object, int kind) {
    plsh_decoder step = {.kind = (plsh_decoder_kind)kind};
    plsh_status status =
        plsh_load_text(load, "decoder Replace", object, "content", false, &step.content);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_pattern(load, "decoder Replace", object, &step.pattern);
    return add_decoder(load, step, status);
}

static plsh_status decoder_metaspace(plsh_load *load, const json_t *object, int kind) {
    plsh_decoder step = {.kind = (plsh_decoder_kind)kind};
    plsh_prepend prepend;
    plsh_status status = load_prepend(load, "decoder Metaspace", object, &prepend);
    step.keeps_first = prepend == PLSH_PREPEND_NEVER;
    if (status == PLSH_STATUS_OK)
        status =
            plsh_load_text(load, "decoder Metaspace", object, "replacement", true, &step.content);
    return add_decoder(load, step, status);
}

static plsh_status decoder_wordpiece(plsh_load *load, const json_t *object, int kind) {
    plsh_decoder step = {.kind = (plsh_decoder_kind)kind, .cleanup = true};
    plsh_status status =
        plsh_load_text(load, "decoder WordPiece", object, "prefix", false, &step.content);
    if (status == PLSH_STATUS_OK)
        status = plsh_load_bool(load, "decoder WordPiece", object, "cleanup", &step.cleanup);
    return add_decoder(load, step, status);
}

static plsh_status decoder_bpe(plsh_load *load, const json_t *object, int kind) {
    plsh_decoder step = {.kind = (plsh_decoder_kind)kind};
    plsh_status status =
        plsh_load_text(load, "decoder BPEDecoder", object, "suffix", false, &step.content);
    if (status == PLSH_STATUS_OK && step.content.length == 0)
        status = plsh_load_fail(load, "decoder BPEDecoder", "\"suffix\" must not be empty");
    return add_decoder(load, step, status);
}

static plsh_status decoder_sequence(plsh_load *load, const json_t *object, int kind) {
    (void)kind;
    return plsh_load_list(load, "decoder", plsh_load_decoder, object, "decoders");
}

static const plsh_load_row decoder_rows[] = {
    {"ByteLevel", decoder_plain, PLSH_DECODER_BYTE_LEVEL},
    {"ByteFallback", decoder_plain, PLSH_DECODER_BYTE_FALLBACK},
    {"Fuse", decoder_plain, PLSH_DECODER_FUSE},
    {"Strip", decoder_strip, PLSH_DECODER_STRIP},
    {"Replace", decoder_replace, PLSH_DECODER_REPLACE},
    {"Metaspace", decoder_metaspace, PLSH_DECODER_METASPACE},
    {"WordPiece", decoder_wordpiece, PLSH_DECODER_WORDPIECE},
    {"BPEDecoder", decoder_bpe, PLSH_DECODER_BPE},
    {"Sequence", decoder_sequence, 0},
    {NULL, NULL, 0},
};

plsh_status plsh_load_decoder(plsh_load *load, const json_t *object) {
    load->tokenizer->decoders.present = object != NULL && !json_is_null(object);
    return plsh_load_part(load, "decoder", decoder_rows, object);
}
