/* cli: descriptions of the attention that the layers of a model run. */
#include "cli/lm/model.h"

#include "cli/message.h"
#include "cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const plsh_layer_attention *attention_at(const cli_model *m, int64_t layer) {
    return &m->attention[m->attention_count == 1 ? 0 : layer];
}

static plsh_head head_at(const cli_model *m, int64_t layer, int64_t head) {
    return plsh_model_head(m->model, attention_at(m, layer), layer, head);
}

/* ---- One layer ------------------------------------------------------------------------------- */

static void print_own(FILE *out, const cli_model *m, int64_t layer) {
    const plsh_head head = plsh_model_head(m->model, NULL, layer, 0);
    fputs(m->facts.alibi ? "exact ALiBi" : m->facts.rope ? "RoPE" : "learned positions", out);
    if (m->facts.alibi && m->facts.slopes_learned) fputs(", learned slopes", out);
    if (head.method == PLSH_METHOD_WINDOW) fprintf(out, ", window %lld", (long long)head.window);
}

/* "9", or "9 to 300" over the heads of a layer. */
static void print_range(FILE *out, const cli_model *m, int64_t layer,
                        double (*number)(const plsh_head *head)) {
    double least = INFINITY, most = -INFINITY;
    for (int64_t h = 0; h < m->facts.heads; h++) {
        const plsh_head head = head_at(m, layer, h);
        least = fmin(least, number(&head));
        most = fmax(most, number(&head));
    }
    fprintf(out, "%.9g", least);
    if (least < most) fprintf(out, " to %.9g", most);
}

static double window_of(const plsh_head *head) { return (double)head->window; }
static double block_of(const plsh_head *head) { return (double)head->block; }
static double samples_of(const plsh_head *head) { return (double)head->partition.samples; }
static double sigma_of(const plsh_head *head) { return head->partition.decay.a; }

/* Does every head have the bias of the model's files? */
static bool has_own_bias(const cli_model *m, int64_t layer) {
    bool own = m->facts.alibi || m->facts.slopes_learned;
    for (int64_t h = 0; own && h < m->facts.heads; h++) {
        const plsh_decay decay = head_at(m, layer, h).partition.decay;
        own = decay.kind == PLSH_DECAY_ALIBI && decay.limit == 0 &&
              decay.a == 1.0 / plsh_model_slope(m->model, layer, h);
    }
    return own;
}

static void print_bias(FILE *out, const cli_lm *options, const cli_model *m, int64_t layer) {
    const plsh_head head = head_at(m, layer, 0);
    const plsh_decay *decay = &head.partition.decay;
    if (head.method == PLSH_METHOD_NONE || head.method == PLSH_METHOD_FIXED) return;
    if (has_own_bias(m, layer)) {
        if (m->facts.slopes_learned) fputs(", learned slopes", out);
        return;
    }
    if (decay->kind == PLSH_DECAY_ALIBI) {
        fputs(", sigma ", out);
        print_range(out, m, layer, sigma_of);
    } else {
        fprintf(out, ", decay %s", options->decays.decay);
    }
    if (decay->limit > 0) fprintf(out, ", limit %g", decay->limit);
}

/* The method that auto chooses. A session chooses by the kind of decay, which is one for all heads
 * of a layer. For whole sequences a plan chooses, by their length. */
static void print_auto(FILE *out, const cli_lm *options, const cli_model *m, int64_t layer) {
    const plsh_head head = head_at(m, layer, 0);
    const plsh_cache_config config = {.heads = 1,
                                      .head_dim = m->facts.head_dim,
                                      .head = &head,
                                      .head_count = 1,
                                      .isa = options->common.isa};
    plsh_cache *cache = NULL;
    const char *reason = "";
    if (options->model.whole || !m->facts.causal || cli_rank_count() > 1) {
        fputs(" (exact, dense or a window, by the length of each text)", out);
    } else if (plsh_cache_create(&config, &cache, NULL) == PLSH_STATUS_OK) {
        plsh_cache_head(cache, 0, &reason);
        fprintf(out, " (%s)", reason);
        plsh_cache_destroy(cache);
    }
}

static void print_method(FILE *out, const cli_lm *options, const cli_model *m, int64_t layer) {
    const plsh_head head = head_at(m, layer, 0);
    fputs(plsh_method_names()[head.method], out);
    if (head.method == PLSH_METHOD_AUTO) print_auto(out, options, m, layer);
    if (head.method == PLSH_METHOD_WINDOW) {
        fputc(' ', out);
        print_range(out, m, layer, window_of);
    }
    if (head.method == PLSH_METHOD_FIXED) {
        fputs(", blocks of ", out);
        print_range(out, m, layer, block_of);
    }
    if (plsh_method_is_sampled(head.method)) {
        fputs(m->labels.values != NULL ? ", labels, samples " : ", samples ", out);
        print_range(out, m, layer, samples_of);
    }
    print_bias(out, options, m, layer);
    if (m->facts.rope)
        fputs(attention_at(m, layer)->drop_rope ? ", RoPE dropped" : ", RoPE kept", out);
}

/* ---- All layers ------------------------------------------------------------------------------ */

/* The attention of each layer, a text per layer; NULL: out of memory. */
static char **make_words(const cli_lm *options, const cli_model *m, bool own) {
    char **words = calloc((size_t)m->facts.layers, sizeof *words);
    for (int64_t l = 0; words != NULL && l < m->facts.layers; l++) {
        size_t size;
        FILE *out = open_memstream(&words[l], &size);
        if (out == NULL) break;
        const bool original = attention_at(m, l)->original;
        if (original && !own) fputs("original: ", out);
        if (original || own)
            print_own(out, m, l);
        else
            print_method(out, options, m, l);
        fclose(out);
    }
    return words;
}

static void free_words(char **words, int64_t layers) {
    for (int64_t l = 0; words != NULL && l < layers; l++) free(words[l]);
    free(words);
}

static bool is_complete(char *const *words, int64_t layers) {
    for (int64_t l = 0; words != NULL && l < layers; l++)
        if (words[l] == NULL) return false;
    return words != NULL;
}

/* " in layers 0-3,7": the layers with the description of layer `first`. */
static void print_layers(FILE *out, char *const *words, int64_t layers, int64_t first) {
    int64_t count = 0;
    for (int64_t l = first; l < layers; l++) count += strcmp(words[l], words[first]) == 0;
    fprintf(out, " in layer%s ", count > 1 ? "s" : "");
    for (int64_t l = first; l < layers; l++) {
        int64_t end = l;
        while (end < layers && strcmp(words[end], words[first]) == 0) end++;
        if (end == l) continue;
        fprintf(out, "%s%lld", l > first ? "," : "", (long long)l);
        if (end > l + 1) fprintf(out, "-%lld", (long long)end - 1);
        l = end;
    }
}

static bool are_one(char *const *words, int64_t layers) {
    for (int64_t l = 1; l < layers; l++)
        if (strcmp(words[l], words[0]) != 0) return false;
    return true;
}

/* Each description once, with the layers that it is of; without layers if one description serves
 * all. */
static void print_words(FILE *out, char *const *words, int64_t layers, const char *between) {
    for (int64_t l = 0; l < layers; l++) {
        int64_t before = 0;
        while (strcmp(words[before], words[l]) != 0) before++;
        if (before < l) continue;
        fprintf(out, "%s%s", l > 0 ? between : "", words[l]);
        if (!are_one(words, layers)) print_layers(out, words, layers, l);
    }
}

static bool is_original(const cli_model *m) {
    for (int64_t l = 0; l < m->facts.layers; l++)
        if (!attention_at(m, l)->original) return false;
    return true;
}

/* ---- What it was trained with ---------------------------------------------------------------- */

static const char file_name[] = "attention.txt";

/* Two texts with a character between them; NULL: no memory. */
static char *join(const char *a, char between, const char *b) {
    const size_t size = strlen(a) + strlen(b) + 2;
    char *text = malloc(size);
    if (text != NULL) snprintf(text, size, "%s%c%s", a, between, b);
    return text;
}

int cli_model_remember(const cli_model *m, const char *folder) {
    plsh_error error;
    char *path = join(folder, '/', file_name), *line = join(m->described, '\n', "");
    int code = path == NULL || line == NULL ? cli_fail("out of memory") : CLI_DONE;
    if (code == CLI_DONE && plsh_file_save_own(path, line, strlen(line), &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    free(path);
    free(line);
    return code;
}

/* The attention that the adapter, or the model, was trained with; NULL: the folder does not name
 * it. */
static char *recall(const cli_lm *options) {
    const char *folder = options->model.adapter;
    if (folder == NULL) folder = options->model.model;
    char *path = join(folder, '/', file_name), *text = NULL;
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    size_t size = 0;
    if (file != NULL && getline(&text, &size, file) < 0) {
        free(text);
        text = NULL;
    }
    if (text != NULL) text[strcspn(text, "\n")] = '\0';
    if (file != NULL) fclose(file);
    free(path);
    return text;
}

static void describe_compute(cli_model *m) {
    const long long all = m->facts.matrices, some = m->facts.int8_matrices;
    snprintf(m->compute, sizeof m->compute, "float32");
    if (m->facts.bfloat16)
        snprintf(m->compute, sizeof m->compute, "bfloat16%s",
                 m->facts.emulated ? ", emulated: slower than float32 on this processor" : "");
    if (some == all)
        snprintf(m->compute, sizeof m->compute, "int8 in all %lld matrices", all);
    else if (some > 0)
        snprintf(m->compute, sizeof m->compute, "int8 in %lld of %lld matrices", some, all);
}

int cli_model_describe(const cli_lm *options, cli_model *m) {
    const int64_t layers = m->facts.layers;
    describe_compute(m);
    char **words = make_words(options, m, false), **own = make_words(options, m, true);
    size_t size;
    FILE *out = NULL;
    if (is_complete(words, layers) && is_complete(own, layers))
        out = open_memstream(&m->described, &size);
    if (out != NULL) {
        print_words(out, words, layers, "; ");
        if (layers > 1 && are_one(words, layers))
            fprintf(out, " in all %lld layers", (long long)layers);
        if (!is_original(m)) {
            fputs("; the model's own is ", out);
            print_words(out, own, layers, " and ");
        }
        fclose(out);
    }
    free_words(words, layers);
    free_words(own, layers);
    m->trained = recall(options);
    return m->described != NULL ? CLI_DONE : cli_fail("out of memory");
}

void cli_model_announce(const cli_model *m) {
    if (m->facts.int8_matrices > 0 || cli_option_given("compute"))
        cli_note("attention: %s; compute: %s", m->described, m->compute);
    else
        cli_note("attention: %s", m->described);
    if (m->facts.rule != NULL)
        cli_note("family: %s: %s%s", m->facts.family, m->facts.rule,
                 cli_option_given("family") ? "" : " (--family takes another)");
    if (m->facts.differs != NULL) cli_note("this file: %s", m->facts.differs);
    if (is_original(m) && m->facts.slopes_learned && !m->facts.alibi)
        cli_note("its slopes.npy goes with --attention exact or another method with a bias; "
                 "original has none");
    else if (m->trained != NULL && !m->facts.slopes_learned &&
             strcmp(m->trained, m->described) != 0)
        cli_note("it was trained with another attention: %s", m->trained);
}
