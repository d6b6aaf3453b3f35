/* model: the heads of an encoder: masked LM and classifier. */
#include "model/encoder_heads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/activation.h"

/* y = W x + b as floats: W [out][in]. */
typedef struct dense {
    const float *weight, *bias;
    int64_t out, in;
} dense;

struct plsh_encoder_heads {
    bool masked;
    plsh_linear transform, decoder; /* of the masked-LM head */
    plsh_norm norm;
    int64_t labels;
    bool has_pooler;
    dense pooler, classifier;
    plsh_problem problem;
    char **label; /* [labels] names */
};

bool plsh_encoder_heads_masked(const plsh_encoder_heads *heads) { return heads && heads->masked; }

int64_t plsh_encoder_heads_labels(const plsh_encoder_heads *heads) {
    return heads ? heads->labels : 0;
}

/* ---- Binding --------------------------------------------------------------------------------- */

static plsh_linear bind_linear(plsh_binder *b, const char *weight, const char *bias, int64_t out,
                               int64_t in) {
    plsh_linear linear = {0};
    const plsh_tensor *w = plsh_bind_tensor(b, weight, true);
    const float *added = plsh_bind_vector(b, plsh_bind_tensor(b, bias, true), out);
    if (!b->status && plsh_bind_shape(b, w, out, in))
        b->status = plsh_linear_make(&linear, w, added, out, in, b->error);
    return linear;
}

/* The head is tied to the embedding unless the configuration says otherwise. Its bias has had two
 * names. MosaicBERT's norm has its own eps. */
static void bind_masked(plsh_binder *b, plsh_encoder_heads *heads) {
    const plsh_model_config *c = &b->model->config;
    const plsh_weights *weights = b->model->weights;
    static const char transform[] = "cls.predictions.transform.dense.weight";
    static const char tied_bias[] = "cls.predictions.bias",
                      own_bias[] = "cls.predictions.decoder.bias";
    const bool mosaic = strcmp(c->family->model_type, "mosaic-bert") == 0;
    if (b->status || c->gguf || !plsh_weights_find(weights, transform)) return;
    heads->transform =
        bind_linear(b, transform, "cls.predictions.transform.dense.bias", c->hidden, c->hidden);
    const char *norm = "cls.predictions.transform.LayerNorm.weight";
    heads->norm = (plsh_norm){
        .kind = PLSH_NORM_LAYER, .width = c->hidden, .eps = mosaic ? 1e-12 : c->norm_eps};
    heads->norm.weight = plsh_bind_vector(b, plsh_bind_tensor(b, norm, true), c->hidden);
    norm = "cls.predictions.transform.LayerNorm.bias";
    heads->norm.bias = plsh_bind_vector(b, plsh_bind_tensor(b, norm, true), c->hidden);
    const char *bias = plsh_weights_find(weights, own_bias) ? own_bias : tied_bias;
    const float *added = plsh_bind_vector(b, plsh_bind_tensor(b, bias, true), c->vocabulary);
    const plsh_tensor *decoder =
        c->tied ? b->model->tokens : plsh_bind_tensor(b, "cls.predictions.decoder.weight", true);
    if (b->status || !plsh_bind_shape(b, decoder, c->vocabulary, c->hidden)) return;
    b->status =
        plsh_linear_make(&heads->decoder, decoder, added, c->vocabulary, c->hidden, b->error);
    heads->masked = !b->status;
}

static dense bind_dense(plsh_binder *b, const char *name, int64_t out, int64_t in) {
    char part[160];
    dense d = {.out = out, .in = in};
    snprintf(part, sizeof part, "%s.weight", name);
    const plsh_tensor *weight = plsh_bind_tensor(b, part, true);
    snprintf(part, sizeof part, "%s.bias", name);
    d.bias = plsh_bind_vector(b, plsh_bind_tensor(b, part, true), out);
    if (b->status || !plsh_bind_shape(b, weight, out, in)) return d;
    float *copy = plsh_bind_floats(b, out * in);
    if (!copy) return d;
    plsh_tensor_to_float(weight, 0, out, copy);
    d.weight = copy;
    return d;
}

static plsh_status copy_label(char **out, const char *text, plsh_error *error) {
    return plsh_path_copy(out, text, strlen(text), error);
}

/* Names of labels and the problem type, from config.json, which was checked before. */
static plsh_status read_labels(plsh_encoder_heads *heads, const json_t *root, const char *path,
                               plsh_error *error) {
    const char *problem =
        heads->labels == 1 ? "multi_label_classification" : "single_label_classification";
    const json_t *names = json_object_get(root, "id2label");
    plsh_status status = plsh_weights_json_string(root, "problem_type", path, &problem, error);
    if (!status && json_is_object(names) && (int64_t)json_object_size(names) != heads->labels)
        status = plsh_fail(error, PLSH_STATUS_FORMAT,
                           "%s: \"id2label\" has %zu labels; the classifier has %lld", path,
                           json_object_size(names), (long long)heads->labels);
    for (int64_t i = 0; !status && i < heads->labels; i++) {
        char key[32], plain[40];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(plain, sizeof plain, "LABEL_%s", key);
        const char *name = json_string_value(json_object_get(names, key));
        if (names && !json_is_null(names) && !name)
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%s: \"id2label\" has no text for \"%s\"; the labels are 0 to %lld",
                             path, key, (long long)heads->labels - 1);
        status = copy_label(&heads->label[i], name ? name : plain, error);
    }
    heads->problem = strcmp(problem, "regression") == 0 ? PLSH_PROBLEM_REGRESSION
                     : strcmp(problem, "multi_label_classification") == 0
                         ? PLSH_PROBLEM_MULTI_LABEL
                         : PLSH_PROBLEM_SINGLE_LABEL;
    return status;
}

static plsh_status load_labels(plsh_binder *b, plsh_encoder_heads *heads) {
    char *path = NULL;
    json_t *root = NULL;
    plsh_status status = plsh_allocate((void **)&heads->label, (size_t)heads->labels,
                                       sizeof *heads->label, "labels", b->error);
    if (!status)
        status =
            plsh_path_join(&path, plsh_weights_folder(b->model->weights), "config.json", b->error);
    if (!status) status = plsh_weights_json_read(path, &root, b->error);
    if (!status) status = read_labels(heads, root, path, b->error);
    json_decref(root);
    plsh_release(path);
    return status;
}

/* A classifier [labels, hidden], with the pooler before it where the file has one. */
static void bind_classifier(plsh_binder *b, plsh_encoder_heads *heads) {
    const plsh_model_config *c = &b->model->config;
    const plsh_weights *weights = b->model->weights;
    const plsh_tensor *classifier = plsh_weights_find(weights, "classifier.weight");
    char pooler[160], name[176];
    if (b->status || c->gguf || !classifier) return;
    snprintf(pooler, sizeof pooler, "%spooler.dense", b->prefixed ? c->family->prefix : "");
    snprintf(name, sizeof name, "%s.weight", pooler);
    heads->has_pooler = plsh_weights_find(weights, name) != NULL;
    if (heads->has_pooler) heads->pooler = bind_dense(b, pooler, c->hidden, c->hidden);
    heads->labels = plsh_tensor_rows(classifier);
    heads->classifier = bind_dense(b, "classifier", heads->labels, c->hidden);
    if (!b->status) b->status = load_labels(b, heads);
}

void plsh_encoder_heads_bind(plsh_binder *b) {
    plsh_encoder_heads *heads = NULL;
    b->status = plsh_allocate((void **)&heads, 1, sizeof *heads, "heads", b->error);
    b->model->encoder_heads = heads;
    if (b->status) return;
    bind_masked(b, heads);
    bind_classifier(b, heads);
}

void plsh_encoder_heads_free(plsh_encoder_heads *heads) {
    if (!heads) return;
    for (int64_t i = 0; heads->label && i < heads->labels; i++) plsh_release(heads->label[i]);
    plsh_release(heads->label);
    plsh_release(heads);
}

/* ---- Running --------------------------------------------------------------------------------- */

plsh_problem plsh_model_problem(const plsh_model *model) {
    return model->encoder_heads ? model->encoder_heads->problem : PLSH_PROBLEM_REGRESSION;
}

const char *plsh_model_label(const plsh_model *model, int64_t label) {
    const plsh_encoder_heads *heads = model->encoder_heads;
    return heads && label >= 0 && label < heads->labels ? heads->label[label] : NULL;
}

static void run_dense(const dense *d, const float *x, float *y) {
    for (int64_t o = 0; o < d->out; o++) {
        double sum = (double)d->bias[o];
        for (int64_t i = 0; i < d->in; i++) sum += (double)d->weight[o * d->in + i] * (double)x[i];
        y[o] = (float)sum;
    }
}

plsh_status plsh_model_classify(const plsh_model *model, const float *hidden, float *logits,
                                plsh_error *error) {
    const plsh_encoder_heads *heads = model->encoder_heads;
    const int64_t width = model->config.hidden;
    if (plsh_encoder_heads_labels(heads) == 0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s has no classifier (the tensors pooler.dense and classifier)",
                         plsh_weights_path(model->weights));
    if (!heads->has_pooler)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the classifier has no pooler before it (pooler.dense), so it is not "
                         "one of whole texts",
                         plsh_weights_path(model->weights));
    void *memory;
    plsh_status status = plsh_allocate(&memory, (size_t)width, sizeof(float), "a row", error);
    if (status) return status;
    float *pooled = memory;
    run_dense(&heads->pooler, hidden, pooled);
    for (int64_t i = 0; i < width; i++) pooled[i] = tanhf(pooled[i]);
    run_dense(&heads->classifier, pooled, logits);
    plsh_release(memory);
    return PLSH_STATUS_OK;
}

enum { ROWS = 256 }; /* at once */

/* A chunk of rows: y = act(transform x), normalised; logits = decoder y. */
static void run_rows(const plsh_model *model, const plsh_linear_engine *engine, const float *hidden,
                     int64_t rows, float *y, float *logits) {
    const plsh_encoder_heads *heads = model->encoder_heads;
    const int64_t width = model->config.hidden, all = model->config.vocabulary;
    plsh_linear_forward(engine, &heads->transform, rows, (plsh_const_matrix){hidden, width},
                        (plsh_matrix){y, width}, false);
    plsh_activation_forward(model->config.head_activation, false, y, y, rows, width,
                            model->threads);
    plsh_norm_forward(&heads->norm, plsh_norm_whole(&heads->norm, rows), y, y, model->threads);
    plsh_linear_forward(engine, &heads->decoder, rows, (plsh_const_matrix){y, width},
                        (plsh_matrix){logits, all}, false);
}

plsh_status plsh_model_token_logits(const plsh_model *model, const float *hidden, int64_t rows,
                                    float *logits, plsh_error *error) {
    const int64_t width = model->config.hidden, all = model->config.vocabulary;
    if (!plsh_encoder_heads_masked(model->encoder_heads))
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s has no masked-LM head (the tensors cls.predictions.*)",
                         plsh_weights_path(model->weights));
    plsh_linear_engine engine = {.kernels = model->kernels, .threads = model->threads};
    float *y = NULL;
    char *memory = NULL;
    for (int pass = 0; pass < 2; pass++) {
        plsh_arena arena = {.memory = memory};
        engine.workspace = plsh_arena_take(&arena, plsh_linear_workspace(engine.threads), 1);
        y = plsh_arena_floats(&arena, (size_t)(ROWS * width));
        if (pass == 1) break;
        plsh_status status =
            plsh_allocate((void **)&memory, arena.used, 1, "the head of an encoder", error);
        if (status) return status;
    }
    for (int64_t r = 0; r < rows; r += ROWS)
        run_rows(model, &engine, hidden + r * width, rows - r < ROWS ? rows - r : ROWS, y,
                 logits + r * all);
    plsh_release(memory);
    return PLSH_STATUS_OK;
}
