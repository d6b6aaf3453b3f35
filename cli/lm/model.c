/* cli: the options of every command that runs a model. */
#include "cli/lm/model.h"

#include "cli/message.h"
#include "cli/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const *rope_choices(void) {
    static const char *const names[] = {"keep", "drop", NULL};
    return names;
}

static const char *const *kv_choices(void) {
    static const char *const names[] = {"float32", "float16", "bfloat16", NULL};
    return names;
}

const char *const *cli_compute_choices(void) {
    static const char *const names[] = {"auto", "float32", "int8", "bfloat16", NULL};
    return names;
}

const cli_option cli_model_table[CLI_MODEL_COUNT] = {
    {.name = "model",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_model_options, model),
     .value = "PATH",
     .resolve = cli_hub_resolve,
     .help = "a folder (config.json, safetensors or pytorch_model.bin, tokenizer.json), a .gguf "
             "file, or "
             "owner/name of a model in the local Hugging Face cache",
     .required = true,
     .varies = CLI_BY_RANK},
    {.name = "adapter",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_model_options, adapter),
     .value = "DIR",
     .help = "a PEFT adapter (LoRA) on top of it",
     .varies = CLI_BY_RANK},
    {.name = "compute",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_model_options, compute),
     .value = "NAME",
     .help = "type in which linear layers multiply; auto: int8 for quantised weights, float32 for "
             "others; bfloat16 takes any weights",
     .fallback = "auto",
     .choices = cli_compute_choices},
    {.name = "family",
     .kind = CLI_TEXT,
     CLI_MEMBER(cli_model_options, family),
     .value = "NAME",
     .help = CLI_FAMILY_HELP},
    {.name = "chunk",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_model_options, chunk),
     .value = "N",
     .help =
         "tokens of a prompt that go through the layers at once: memory is that of a chunk; over "
         "ranks not used, all of a rank's tokens go at once",
     .fallback = "512",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "kv",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_model_options, kv),
     .value = "NAME",
     .help = "type of keys and values in the cache",
     .fallback = "float32",
     .choices = kv_choices},
};

const cli_option cli_attention_table[CLI_ATTENTION_COUNT] = {
    {.name = "attention",
     .kind = CLI_WORDS,
     CLI_MEMBER(cli_model_options, attention),
     .value = "LIST",
     .help = "original (the model's own), or a method instead; one per layer, or one for all",
     .fallback = "original"},
    {.name = "rope",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_model_options, rope),
     .value = "NAME",
     .help = "keep or drop RoPE under another attention",
     .fallback = "keep",
     .choices = rope_choices},
    {.name = "samples",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_model_options, samples),
     .value = "S",
     .help = "plsh, masks, mean: partitions per head",
     .fallback = "20",
     .range = CLI_BETWEEN(1, 16777216)},
};

/* ---- Attention ------------------------------------------------------------------------------- */

/* -1: original; -2: no such word. */
static int find_method(const char *word) {
    if (strcmp(word, "original") == 0) return -1;
    plsh_method method;
    return plsh_method_find(word, &method, NULL) == PLSH_STATUS_OK ? (int)method : -2;
}

/* The attention of a layer, from the options. */
static const char *word_at(const cli_words *words, int64_t layer) {
    return words->count == 0 ? "original" : words->values[words->count == 1 ? 0 : (size_t)layer];
}

static bool all_original(const cli_words *words) {
    for (size_t i = 0; i < words->count; i++)
        if (find_method(words->values[i]) != -1) return false;
    return true;
}

int cli_attention_check(const cli_lm *options) {
    static const char *const names[] = {"sigma",   "slopes", "decay",  "limit",  "window", "block",
                                        "samples", "labels", "scheme", "design", "eps"};
    const cli_words *words = &options->model.attention;
    if (words->count == 0 || !all_original(words)) return CLI_DONE;
    if (options->model.rope == 1)
        return cli_usage("--rope drop goes with an --attention that takes the place of the model's "
                         "own, such as exact");
    for (size_t i = 0; i < CLI_COUNT(names); i++)
        if (cli_option_given(names[i]))
            return cli_usage("--%s goes with an --attention that takes the place of the model's "
                             "own, such as exact",
                             names[i]);
    return CLI_DONE;
}

static bool has_own_sigmas(const cli_lm *options, const cli_model *m) {
    return (m->facts.alibi || m->facts.slopes_learned) && options->decays.sigma == NULL &&
           options->decays.slopes.count == 0 && strcmp(options->decays.decay, "alibi") == 0;
}

/* The heads of one layer under a method. */
static int make_heads(const cli_lm *options, cli_model *m, int method, int64_t layer,
                      plsh_head *heads) {
    plsh_error error;
    size_t count = (size_t)m->facts.heads;
    if (plsh_model_heads(m->model, (plsh_method)method, layer, heads, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    int code = CLI_DONE;
    for (size_t h = 0; code == CLI_DONE && h < count; h++) {
        plsh_decay decay =
            has_own_sigmas(options, m) ? heads[h].partition.decay : m->decays.values[h];
        decay.limit = options->decays.limit;
        heads[h] = cli_head_make(method, &decay, &options->knobs);
        if (!plsh_method_is_sampled((plsh_method)method)) continue;
        code = cli_partition_make(&options->partitions, &m->labels, &decay, options->model.samples,
                                  options->common.seed, (size_t)layer * count + h,
                                  &heads[h].partition);
    }
    return code;
}

/* The attention of one layer, or of all, as a session takes it. */
static int make_layer(const cli_lm *options, cli_model *m, const char *word, int64_t layer,
                      plsh_layer_attention *out) {
    int method = find_method(word);
    plsh_head *heads = m->heads + layer * m->facts.heads;
    if (method == -2)
        return cli_usage("--attention: \"%s\" is neither a method nor \"original\"", word);
    *out = (plsh_layer_attention){.original = method == -1,
                                  .drop_rope = options->model.rope == 1,
                                  .head = heads,
                                  .head_count = m->facts.heads};
    return method == -1 ? CLI_DONE : make_heads(options, m, method, layer, heads);
}

/* Sampled methods draw other partitions in every layer, and every layer has its own learned slopes:
 * these get a choice per layer. */
static bool one_for_all(const cli_lm *options, const cli_model *m) {
    const cli_words *words = &options->model.attention;
    return words->count <= 1 &&
           !plsh_method_is_sampled((plsh_method)find_method(word_at(words, 0))) &&
           !m->facts.slopes_learned;
}

/* Labels may be those of one head, of the heads of one layer, or of the heads of all layers. */
static int check_labels(const cli_lm *options, const cli_model *m) {
    const int64_t given = m->labels.heads, heads = m->facts.heads, all = heads * m->facts.layers;
    if (m->labels.values == NULL || given == 1 || given == heads || given == all) return CLI_DONE;
    return cli_fail("--labels: %s has labels of %lld heads; give those of 1, of the %lld of a "
                    "layer, or of all %lld in %lld layers",
                    options->partitions.labels, (long long)given, (long long)heads, (long long)all,
                    (long long)m->facts.layers);
}

int cli_model_fits(const cli_lm *options, const cli_model *m, int64_t tokens) {
    if (m->labels.values == NULL || tokens <= m->labels.n) return CLI_DONE;
    return cli_fail("--labels: %s has labels of %lld positions; there are %lld tokens",
                    options->partitions.labels, (long long)m->labels.n, (long long)tokens);
}

/* Does any layer apply RoPE? */
static bool uses_rope(const cli_model *m) {
    for (int64_t l = 0; l < m->attention_count; l++)
        if (m->attention[l].original || !m->attention[l].drop_rope) return m->facts.rope;
    return false;
}

void cli_model_warn_context(const cli_model *m, int64_t tokens) {
    if (m->facts.context <= 0 || tokens <= m->facts.context || !uses_rope(m)) return;
    cli_note("warning: %lld tokens; this model was trained on at most %lld (its context), and "
             "what it predicts beyond them gets worse",
             (long long)tokens, (long long)m->facts.context);
}

static int make_attention(const cli_lm *options, cli_model *m) {
    const cli_words *words = &options->model.attention;
    const size_t layers = (size_t)m->facts.layers;
    if (words->count > 1 && words->count != layers)
        return cli_usage("--attention: %zu methods for %zu layers; give one, or one per layer",
                         words->count, layers);
    m->attention_count = one_for_all(options, m) ? 1 : (int64_t)layers;
    m->heads = calloc(layers * (size_t)m->facts.heads, sizeof *m->heads);
    m->attention = calloc(layers, sizeof *m->attention);
    if (m->heads == NULL || m->attention == NULL) return cli_fail("out of memory");
    int code = cli_decays_make(&options->decays, (size_t)m->facts.heads, &m->decays);
    if (code == CLI_DONE) code = cli_labels_read(&options->partitions, &m->labels);
    if (code == CLI_DONE) code = check_labels(options, m);
    for (int64_t l = 0; code == CLI_DONE && l < m->attention_count; l++)
        code = make_layer(options, m, word_at(words, l), l, &m->attention[l]);
    return code == CLI_DONE ? cli_model_describe(options, m) : code;
}

/* ---- Opening --------------------------------------------------------------------------------- */

int cli_model_open(const cli_lm *options, cli_model *out) {
    plsh_error error;
    *out = (cli_model){0};
    if (cli_attention_check(options) != CLI_DONE) return CLI_USAGE;
    plsh_model_options given = {.adapter = options->model.adapter,
                                .threads = (int)options->common.threads,
                                .isa = options->common.isa,
                                .family = options->model.family,
                                .compute = (plsh_compute)options->model.compute};
    if (plsh_model_open(&out->owned, options->model.model, &given, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    out->model = out->owned;
    out->facts = plsh_model_describe(out->model);
    return make_attention(options, out);
}

void cli_model_close(cli_model *m) {
    plsh_tokenizer_free(m->tokenizer);
    plsh_model_close(m->owned);
    cli_decays_free(&m->decays);
    cli_labels_free(&m->labels);
    free(m->heads);
    free(m->attention);
    free(m->described);
    free(m->trained);
    *m = (cli_model){0};
}

int cli_model_tokenizer(const cli_lm *options, cli_model *m) {
    plsh_error error;
    if (m->tokenizer != NULL) return CLI_DONE;
    const char *path = options->model.tokenizer;
    if (path == NULL) path = options->model.model;
    if (plsh_tokenizer_open(&m->tokenizer, path, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

plsh_session_options cli_model_session(const cli_lm *options, const cli_model *m) {
    static const plsh_dtype kv[] = {PLSH_DTYPE_FLOAT32, PLSH_DTYPE_FLOAT16, PLSH_DTYPE_BFLOAT16};
    return (plsh_session_options){.attention = m->attention,
                                  .attention_count = m->attention_count,
                                  .kv = kv[options->model.kv],
                                  .chunk = options->model.chunk};
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

int cli_text_read(const char *path, char **bytes, size_t *length) {
    bool standard = strcmp(path, "-") == 0;
    *bytes = NULL;
    *length = 0;
    if (standard && cli_rank_count() > 1)
        return cli_usage("stdin is one rank's; give a file that all of them can read");
    FILE *file = standard ? stdin : fopen(path, "rb");
    size_t capacity = 0;
    int code = CLI_DONE;
    if (file == NULL) return cli_fail("%s: %s", path, strerror(errno));
    while (code == CLI_DONE) {
        if (*length == capacity) {
            capacity = capacity < 4096 ? 65536 : 2 * capacity;
            char *grown = realloc(*bytes, capacity + 1);
            if (grown == NULL) code = cli_fail("%s: out of memory", path);
            if (grown != NULL) *bytes = grown;
        }
        if (code != CLI_DONE) break;
        size_t got = fread(*bytes + *length, 1, capacity - *length, file);
        *length += got;
        if (got == 0) break;
    }
    if (code == CLI_DONE && ferror(file)) code = cli_fail("%s: %s", path, strerror(errno));
    if (!standard) fclose(file);
    if (code != CLI_DONE) free(*bytes);
    if (code != CLI_DONE) *bytes = NULL;
    return code;
}

static int read_ids(const char *path, cli_ids *out) {
    plsh_npy array;
    plsh_error error;
    if (plsh_npy_read(path, &array, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    bool fits = array.rank == 1 || (array.rank == 2 && array.shape[0] == 1);
    bool wide = array.type == PLSH_DTYPE_INT64;
    int code = CLI_DONE;
    if (!fits || (!wide && array.type != PLSH_DTYPE_INT32)) {
        char shape[128] = "";
        for (int i = 0, used = 0; i < array.rank && used < (int)sizeof shape; i++)
            used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                             (long long)array.shape[i]);
        code = cli_fail("%s: %s [%s]; ids are int32 [n] or [1, n]", path,
                        plsh_dtype_name(array.type), shape);
    } else if ((out->values = calloc(array.count + 1, sizeof *out->values)) == NULL) {
        code = cli_fail("%s: out of memory", path);
    }
    for (size_t i = 0; code == CLI_DONE && i < array.count; i++) {
        int64_t id = wide ? ((int64_t *)array.data)[i] : ((int32_t *)array.data)[i];
        if (id < 0 || id > INT32_MAX)
            code = cli_fail("%s: id %zu is %lld; not negative", path, i, (long long)id);
        out->values[i] = (int32_t)id;
    }
    out->count = (int64_t)array.count;
    plsh_npy_free(&array);
    return code;
}

/* A file of tokens, as plsh train makes them; of this tokenizer, where there is one to compare. */
static int read_tokens(const cli_lm *options, const char *path, cli_ids *out) {
    const char *model = options->model.model, *tokenizer = options->model.tokenizer;
    char inside[PLSH_CHECKPOINT_PATH];
    struct stat about;
    plsh_corpus *corpus;
    plsh_error error;
    snprintf(inside, sizeof inside, "%s/tokenizer.json", model);
    const bool folder = stat(model, &about) == 0 && S_ISDIR(about.st_mode);
    if (tokenizer == NULL && (!folder || access(inside, R_OK) == 0)) tokenizer = model;
    const plsh_corpus_options wanted = {.text = path, .tokenizer = tokenizer};
    if (plsh_corpus_open(&corpus, &wanted, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    const size_t count = (size_t)plsh_corpus_count(corpus);
    out->count = (int64_t)count;
    out->values = calloc(count + 1, sizeof *out->values);
    if (out->values != NULL && count > 0)
        memcpy(out->values, plsh_corpus_ids(corpus), count * sizeof *out->values);
    plsh_corpus_close(corpus);
    return out->values != NULL ? CLI_DONE : cli_fail("%s: out of memory", path);
}

static int read_text(const cli_lm *options, cli_model *m, const char *path, bool special,
                     cli_ids *out) {
    char *bytes;
    size_t length;
    plsh_error error;
    plsh_token_ids ids = {0};
    int code = cli_model_tokenizer(options, m);
    if (code == CLI_DONE) code = cli_text_read(path, &bytes, &length);
    if (code != CLI_DONE) return code;
    if (plsh_tokenizer_encode(m->tokenizer, bytes, length, special, &ids, &error) != PLSH_STATUS_OK)
        code = cli_fail("%s: %s", path, error.message);
    free(bytes);
    if (code == CLI_DONE) {
        out->values = calloc(ids.count + 1, sizeof *out->values);
        out->count = (int64_t)ids.count;
        if (out->values == NULL) code = cli_fail("%s: out of memory", path);
    }
    if (code == CLI_DONE && ids.count > 0)
        memcpy(out->values, ids.ids, ids.count * sizeof *ids.ids);
    plsh_token_ids_free(&ids);
    return code;
}

int cli_ids_read(const cli_lm *options, cli_model *m, const char *ids, const char *text,
                 bool special, cli_ids *out) {
    *out = (cli_ids){0};
    if ((ids == NULL) == (text == NULL))
        return cli_usage("give the tokens with --ids, or a text with --text");
    int code = ids != NULL                   ? read_ids(ids, out)
               : plsh_corpus_is_tokens(text) ? read_tokens(options, text, out)
                                             : read_text(options, m, text, special, out);
    if (code == CLI_DONE && out->count == 0)
        code = cli_fail("%s: there is no token in it", ids != NULL ? ids : text);
    for (int64_t i = 0; code == CLI_DONE && i < out->count; i++)
        if (out->values[i] >= m->facts.vocabulary)
            code = cli_fail("%s: token %lld is %d; this model has 0 to %lld, so the ids are of "
                            "another tokenizer",
                            ids != NULL ? ids : text, (long long)i, (int)out->values[i],
                            (long long)m->facts.vocabulary - 1);
    return code;
}

/* ---- The result ------------------------------------------------------------------------------ */

cli_json *cli_model_document(const cli_lm *options, const cli_model *model) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return NULL;
    cli_json_text(json, "model", options->model.model);
    cli_json_text(json, "attention", model->described);
    cli_json_text(json, "compute", model->compute);
    return json;
}

int cli_model_document_end(cli_json *json, int64_t tokens, double seconds) {
    cli_json_integer(json, "tokens", tokens);
    cli_json_number(json, "seconds", seconds);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    return cli_document_end(json);
}

/* ---- The process ----------------------------------------------------------------------------- */

/* Without /proc, the maximum of getrusage, which includes the program that started this one. */
int64_t cli_peak_bytes(void) {
    struct rusage usage;
    char line[128];
    long long kibibytes = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && kibibytes < 0 && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmHWM: %lld kB", &kibibytes) != 1) kibibytes = -1;
    if (status != NULL) fclose(status);
    if (kibibytes < 0 && getrusage(RUSAGE_SELF, &usage) == 0) kibibytes = usage.ru_maxrss;
    return kibibytes < 0 ? 0 : (int64_t)kibibytes * 1024;
}
