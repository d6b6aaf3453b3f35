/* model: one row for a whole text: pooling and the modules after it. */
#include "plsh/sentence.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "model/model.h"
#include "model/modules.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* The numbers of a module: [out][in] and [out]; of a norm [out] and [out]. */
typedef struct module_weights {
    float *weight, *bias;
} module_weights;

struct plsh_sentence {
    plsh_modules modules;
    module_weights weights[PLSH_MODULES_MOST];
    plsh_pooling pooling;
    int64_t hidden, widest; /* columns of an encoder's row; of the widest module */
    int64_t longest;
    const char *prompt;
};

/* ---- opening ---- */

/* The tensor `name` of rows x columns, as float32. */
static plsh_status read_tensor(const plsh_weights *weights, const char *name, int64_t rows,
                               int64_t columns, float **out, plsh_error *error) {
    const plsh_tensor *tensor = plsh_weights_find(weights, name);
    if (!tensor || plsh_tensor_rows(tensor) * plsh_tensor_columns(tensor) != rows * columns ||
        plsh_tensor_columns(tensor) != columns)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: there is no tensor %s of %lld x %lld",
                         plsh_weights_path(weights), name, (long long)rows, (long long)columns);
    if ((int)tensor->type >= PLSH_WEIGHT_COMPUTED)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: tensor %s is of type %s; f32, f16 and bf16 are supported",
                         plsh_weights_path(weights), name, plsh_weight_type_name(tensor->type));
    plsh_status status = plsh_allocate((void **)out, (size_t)(rows * columns), sizeof(float),
                                       "the weights of a module", error);
    if (!status) plsh_tensor_to_float(tensor, 0, rows, *out);
    return status;
}

static plsh_status open_module(const plsh_module *module, module_weights *out, plsh_error *error) {
    char *path;
    plsh_weights *weights = NULL;
    if (module->kind != PLSH_MODULE_DENSE && module->kind != PLSH_MODULE_LAYER_NORM)
        return PLSH_STATUS_OK;
    plsh_status status = plsh_path_join(&path, module->folder, "model.safetensors", error);
    if (!status && !plsh_path_exists(path)) {
        plsh_release(path);
        status = plsh_path_join(&path, module->folder, "pytorch_model.bin", error);
    }
    if (!status && !plsh_path_exists(path))
        status = plsh_fail(error, PLSH_STATUS_IO,
                           "%s: needs model.safetensors or pytorch_model.bin", module->folder);
    if (!status) status = plsh_weights_open(&weights, path, error);
    const bool dense = module->kind == PLSH_MODULE_DENSE;
    if (!status)
        status = dense ? read_tensor(weights, "linear.weight", module->out, module->in,
                                     &out->weight, error)
                       : read_tensor(weights, "norm.weight", 1, module->out, &out->weight, error);
    if (!status && (!dense || module->bias))
        status = read_tensor(weights, dense ? "linear.bias" : "norm.bias", 1, module->out,
                             &out->bias, error);
    plsh_weights_close(weights);
    plsh_release(path);
    return status;
}

/* The limit of learned positions, or a smaller one in the files. */
static int64_t find_longest(const plsh_model *model, int64_t limit) {
    const int64_t positions = model->positions ? model->config.context : 0;
    return positions > 0 && (limit == 0 || positions < limit) ? positions : limit;
}

static plsh_status open_sentence(plsh_sentence *s, const plsh_model *model, plsh_pooling pooling,
                                 plsh_error *error) {
    plsh_status status = plsh_modules_read(model->weights, &model->config, &s->modules, error);
    if (status) return status;
    const plsh_pooling listed = s->modules.pooling;
    /* Of an encoder the mean; a decoder's rows differ too much from each other for a guess. */
    if (model->config.family->causal && pooling == PLSH_POOLING_COUNT &&
        listed == PLSH_POOLING_COUNT)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: a %s whose files name no pooling (modules.json, pooling_type of a "
                         "GGUF): it has to be given, lasttoken in most embedders made of decoders",
                         plsh_weights_path(model->weights), model->config.family->name);
    s->pooling = pooling != PLSH_POOLING_COUNT  ? pooling
                 : listed != PLSH_POOLING_COUNT ? listed
                                                : PLSH_POOLING_MEAN;
    s->hidden = s->widest = model->config.hidden;
    s->longest = find_longest(model, s->modules.longest);
    s->prompt = "";
    for (size_t i = 0; !status && i < s->modules.count; i++) {
        const plsh_module *module = &s->modules.module[i];
        if (s->pooling != PLSH_POOLING_NONE) status = open_module(module, &s->weights[i], error);
        if (module->out > s->widest) s->widest = module->out;
    }
    if (status || !s->modules.default_prompt) return status;
    return plsh_sentence_prompt(s, s->modules.default_prompt, error);
}

plsh_status plsh_sentence_open(plsh_sentence **out, const plsh_model *model, plsh_pooling pooling,
                               plsh_error *error) {
    *out = NULL;
    if (model->weights == NULL)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "this model was not read from files, which name the pooling");
    plsh_status status = plsh_allocate((void **)out, 1, sizeof **out, "a sentence model", error);
    if (status) return status;
    status = open_sentence(*out, model, pooling, error);
    if (!status) return status;
    plsh_sentence_close(*out);
    *out = NULL;
    return status;
}

void plsh_sentence_close(plsh_sentence *s) {
    if (s == NULL) return;
    for (size_t i = 0; i < PLSH_MODULES_MOST; i++) {
        plsh_release(s->weights[i].weight);
        plsh_release(s->weights[i].bias);
    }
    plsh_modules_free(&s->modules);
    plsh_release(s);
}

plsh_sentence_facts plsh_sentence_describe(const plsh_sentence *s) {
    const bool pooled = s->pooling != PLSH_POOLING_NONE;
    const int64_t columns = pooled ? s->modules.columns : s->hidden, kept = s->modules.kept;
    bool normalises = !s->modules.listed;
    for (size_t i = 0; i < s->modules.count; i++)
        normalises = normalises || s->modules.module[i].kind == PLSH_MODULE_NORMALIZE;
    return (plsh_sentence_facts){.pooling = s->pooling,
                                 .columns = pooled && kept > 0 && kept < columns ? kept : columns,
                                 .longest = s->longest,
                                 .normalises = normalises,
                                 .prompt = s->prompt};
}

plsh_status plsh_sentence_prompt(plsh_sentence *s, const char *name, plsh_error *error) {
    const char *prompt =
        name[0] ? json_string_value(json_object_get(s->modules.prompts, name)) : "";
    if (!prompt)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "there is no prompt \"%.60s\" in the \"prompts\" of %s", name,
                         PLSH_PROMPTS_FILE);
    if (prompt[0] && s->modules.without_prompt)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "the prompt \"%.60s\" with \"include_prompt\": false of the pooling is "
                         "not supported",
                         name);
    s->prompt = prompt;
    return PLSH_STATUS_OK;
}

/* ---- tokens ---- */

/* ids[begin..] are those of a text with the special tokens around it: drops tokens from the end of
 * the text itself, so that at most `most` stay. */
static plsh_status drop_tokens(const plsh_tokenizer *tokenizer, const plsh_text *text, size_t begin,
                               size_t most, plsh_token_ids *ids, plsh_error *error) {
    plsh_token_ids bare = {0};
    plsh_status status =
        plsh_tokenizer_encode(tokenizer, text->bytes, text->length, false, &bare, error);
    const size_t all = ids->count - begin;
    const bool longer = bare.count <= all; /* with special tokens than without */
    const size_t around = longer ? all - bare.count : 0;
    size_t before = 0; /* special tokens in front */
    while (!status && longer && before <= around && bare.count > 0 &&
           memcmp(ids->ids + begin + before, bare.ids, bare.count * sizeof *bare.ids) != 0)
        before++;
    if (!status && (!longer || before > around || around > most))
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                           "a text of %zu tokens cannot be truncated to %zu: %zu are special ones",
                           all, most, around);
    if (!status) {
        const size_t kept = before + (most - around), behind = around - before;
        memmove(ids->ids + begin + kept, ids->ids + ids->count - behind, behind * sizeof *ids->ids);
        ids->count = begin + most;
    }
    plsh_token_ids_free(&bare);
    return status;
}

static void append_lower(plsh_text *out, const char *bytes, size_t length) {
    plsh_text valid = {0};
    plsh_utf8_append_lossy(&valid, bytes, length);
    for (size_t i = 0, size; i < valid.length; i += size)
        plsh_unicode_lower(out, plsh_utf8_next(valid.bytes + i, &size));
    if (valid.failure.status) out->failure = valid.failure;
    plsh_text_free(&valid);
}

plsh_status plsh_sentence_ids(const plsh_sentence *s, const plsh_tokenizer *tokenizer,
                              const char *text, size_t length, bool truncate, plsh_token_ids *out,
                              plsh_error *error) {
    const size_t begin = out->count, most = (size_t)s->longest;
    plsh_text whole = {0};
    plsh_text_append(&whole, s->prompt, strlen(s->prompt));
    plsh_text_append(&whole, text, length);
    if (s->modules.lower_case) {
        plsh_text lower = {0};
        append_lower(&lower, whole.bytes, whole.length);
        plsh_text_free(&whole);
        whole = lower;
    }
    plsh_status status = plsh_text_status(&whole, error);
    if (!status)
        status = plsh_tokenizer_encode(tokenizer, whole.bytes, whole.length, true, out, error);
    if (!status && truncate && most > 0 && out->count - begin > most)
        status = drop_tokens(tokenizer, &whole, begin, most, out, error);
    plsh_text_free(&whole);
    if (status) out->count = begin;
    return status;
}

/* ---- rows ---- */

/* The weight of row t of a text in the sum. */
static double weigh(plsh_pooling pooling, int64_t t, int64_t tokens) {
    switch (pooling) {
    case PLSH_POOLING_CLS: return t == 0 ? 1 : 0;
    case PLSH_POOLING_LASTTOKEN: return t + 1 == tokens ? 1 : 0;
    case PLSH_POOLING_WEIGHTEDMEAN: return (double)(t + 1);
    default: return 1;
    }
}

static double divisor(plsh_pooling pooling, int64_t tokens) {
    const double n = (double)tokens;
    switch (pooling) {
    case PLSH_POOLING_MEAN: return n;
    case PLSH_POOLING_MEAN_SQRT_LEN_TOKENS: return sqrt(n);
    case PLSH_POOLING_WEIGHTEDMEAN: return n * (n + 1) / 2;
    default: return 1;
    }
}

static void pool(plsh_pooling pooling, const float *hidden, int64_t tokens, int64_t width,
                 float *row) {
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        float most = hidden[c];
        for (int64_t t = 0; t < tokens; t++) {
            const float value = hidden[t * width + c];
            const double weight = weigh(pooling, t, tokens);
            if (value > most) most = value;
            if (weight > 0) sum += weight * (double)value;
        }
        row[c] = pooling == PLSH_POOLING_MAX ? most : (float)(sum / divisor(pooling, tokens));
    }
}

static double activate(plsh_module_activation activation, double x) {
    switch (activation) {
    case PLSH_MODULE_TANH: return tanh(x);
    case PLSH_MODULE_RELU: return x > 0 ? x : 0;
    case PLSH_MODULE_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case PLSH_MODULE_SILU: return x / (1 + exp(-x));
    case PLSH_MODULE_SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

static void run_dense(const plsh_module *module, const module_weights *w, const float *in,
                      float *out) {
    for (int64_t o = 0; o < module->out; o++) {
        double sum = w->bias ? (double)w->bias[o] : 0;
        for (int64_t i = 0; i < module->in; i++)
            sum += (double)w->weight[o * module->in + i] * (double)in[i];
        out[o] = (float)activate(module->activation, sum);
    }
}

static void run_layer_norm(const module_weights *w, int64_t width, float *row) {
    const double eps = 1e-5; /* torch's */
    double mean = 0, square = 0;
    for (int64_t c = 0; c < width; c++) mean += (double)row[c] / (double)width;
    for (int64_t c = 0; c < width; c++)
        square += ((double)row[c] - mean) * ((double)row[c] - mean) / (double)width;
    for (int64_t c = 0; c < width; c++)
        row[c] = (float)(((double)row[c] - mean) / sqrt(square + eps) * (double)w->weight[c] +
                         (double)w->bias[c]);
}

void plsh_sentence_normalise(float *row, int64_t columns) {
    double square = 0;
    for (int64_t c = 0; c < columns; c++) square += (double)row[c] * (double)row[c];
    for (int64_t c = 0; square > 0 && c < columns; c++)
        row[c] = (float)((double)row[c] / sqrt(square));
}

/* `count` modules after the pooling; x and y are as wide as the widest, the result is in *x. */
static void run_modules(const plsh_sentence *s, size_t count, float **x, float **y) {
    int64_t width = s->hidden;
    for (size_t i = 0; i < count; i++) {
        const plsh_module *module = &s->modules.module[i];
        if (module->kind == PLSH_MODULE_NORMALIZE) plsh_sentence_normalise(*x, width);
        if (module->kind == PLSH_MODULE_LAYER_NORM) run_layer_norm(&s->weights[i], width, *x);
        if (module->kind != PLSH_MODULE_DENSE) continue;
        run_dense(module, &s->weights[i], *x, *y);
        float *swap = *x;
        *x = *y;
        *y = swap;
        width = module->out;
    }
}

plsh_status plsh_sentence_row(const plsh_sentence *s, const float *hidden, int64_t tokens,
                              plsh_normalisation normalisation, float *row, plsh_error *error) {
    const int64_t columns = plsh_sentence_describe(s).columns;
    size_t count = s->modules.count;
    while (normalisation == PLSH_NORMALISE_NEVER && count > 0 &&
           s->modules.module[count - 1].kind == PLSH_MODULE_NORMALIZE)
        count--;
    float *memory;
    plsh_status status =
        plsh_allocate((void **)&memory, 2 * (size_t)s->widest, sizeof *memory, "a row", error);
    if (status) return status;
    float *x = memory, *y = memory + s->widest;
    memset(row, 0, (size_t)columns * sizeof *row);
    if (tokens > 0) {
        pool(s->pooling, hidden, tokens, s->hidden, x);
        run_modules(s, count, &x, &y);
        memcpy(row, x, (size_t)columns * sizeof *row);
    }
    if (normalisation == PLSH_NORMALISE_ALWAYS ||
        (normalisation == PLSH_NORMALISE_AS_ASKED && !s->modules.listed))
        plsh_sentence_normalise(row, columns);
    plsh_release(memory);
    return PLSH_STATUS_OK;
}
