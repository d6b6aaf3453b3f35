/* train: initial weights of a configuration, with the distributions of transformers. */
#include <math.h>
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "convert/convert.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/model.h"
#include "plsh/io.h"
#include "plsh/train.h"

enum { PURPOSE_INITIAL = 0x696e6974, ROWS = 64, MOST_LAYERS = 4096 };

typedef struct initialiser {
    plsh_model_config config;
    double range;    /* the standard deviation of linear layers and embeddings */
    int64_t padding; /* the row of the embedding that is zero, or -1 */
    uint64_t seed;
    plsh_weights_writer *writer;
    float *rows; /* [ROWS][widest] */
} initialiser;

/* The shapes of the tensors of a role; out = 0: the configuration has none. */
typedef struct role_shape {
    int64_t out, in; /* in = 0: a norm of `out` numbers */
    bool bias;
} role_shape;

static role_shape shape_of(const plsh_model_config *c, plsh_role role) {
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, h = c->hidden;
    const bool split = c->qkv == PLSH_QKV_SPLIT, two = c->qkv == PLSH_QKV_Q_AND_KV;
    const bool gated = c->mlp == PLSH_MLP_GATED, whole = c->qk_norm == PLSH_QK_NORM_WHOLE;
    const int64_t rows = plsh_model_role_rows(c, role);
    const role_shape none = {0}, norm = {h, 0, c->norm_bias};
    switch (role) {
    case PLSH_ROLE_TOKENS: return (role_shape){rows, h, false};
    case PLSH_ROLE_TOKENS_NORM: return c->family->tokens_norm ? norm : none;
    case PLSH_ROLE_HEAD: return c->tied ? none : (role_shape){rows, h, false};
    case PLSH_ROLE_FINAL_NORM:
    case PLSH_ROLE_ATTENTION_NORM: return norm;
    case PLSH_ROLE_MLP_NORM: return c->parallel ? none : norm;
    case PLSH_ROLE_QKV: return split || two ? none : (role_shape){rows, h, c->qkv_bias};
    case PLSH_ROLE_Q: return split || two ? (role_shape){rows, h, c->qkv_bias} : none;
    case PLSH_ROLE_K:
    case PLSH_ROLE_V: return split ? (role_shape){rows, h, c->qkv_bias} : none;
    case PLSH_ROLE_KV: return two ? (role_shape){rows, h, c->qkv_bias} : none;
    case PLSH_ROLE_Q_NORM:
    case PLSH_ROLE_K_NORM:
        if (c->qk_norm == PLSH_QK_NORM_NONE) return none;
        return (role_shape){!whole                     ? c->head_dim
                            : role == PLSH_ROLE_Q_NORM ? q
                                                       : kv,
                            0, c->norm_bias};
    case PLSH_ROLE_ATTENTION_OUT: return (role_shape){h, q, c->attention_bias};
    case PLSH_ROLE_GATE: return gated ? (role_shape){rows, h, c->mlp_bias} : none;
    case PLSH_ROLE_UP: return (role_shape){rows, h, c->mlp_bias};
    case PLSH_ROLE_DOWN: return (role_shape){h, c->intermediate, c->mlp_bias};
    default: return none;
    }
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Numbers `first` .. of a tensor: normal, two from every draw (Box and Muller). */
static void fill_normal(float *to, int64_t count, double deviation, plsh_stream stream,
                        int64_t first) {
    for (int64_t i = 0; i < count; i++) {
        const uint64_t at = (uint64_t)(first + i);
        const plsh_random r = plsh_random_at(stream, at / 2);
        const double radius = sqrt(-2.0 * log(plsh_random_unit(r.word[0])));
        const double angle = 2.0 * M_PI * plsh_random_unit(r.word[1]);
        to[i] = (float)(deviation * radius * (at % 2 ? sin(angle) : cos(angle)));
    }
}

/* The random stream of each matrix, of STREAMS per layer. The numbers stay as they are when roles
 * are added: a seed gives the same weights in every version. */
enum { STREAMS = 18 };
static const uint32_t stream_of[PLSH_ROLE_COUNT] = {
    [PLSH_ROLE_TOKENS] = 0, [PLSH_ROLE_HEAD] = 5,
    [PLSH_ROLE_QKV] = 7,    [PLSH_ROLE_Q] = 8,
    [PLSH_ROLE_K] = 9,      [PLSH_ROLE_V] = 10,
    [PLSH_ROLE_KV] = 11,    [PLSH_ROLE_ATTENTION_OUT] = 13,
    [PLSH_ROLE_GATE] = 15,  [PLSH_ROLE_UP] = 16,
    [PLSH_ROLE_DOWN] = 17};

static plsh_status write_matrix(const initialiser *n, plsh_role role, int64_t layer,
                                role_shape shape, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    const plsh_stream stream = {.seed = n->seed,
                                .head = (uint32_t)(layer * STREAMS) + stream_of[role],
                                .purpose = PURPOSE_INITIAL};
    for (int64_t first = 0; !status && first < shape.out; first += ROWS) {
        int64_t rows = shape.out - first < ROWS ? shape.out - first : ROWS;
        fill_normal(n->rows, rows * shape.in, n->range, stream, first * shape.in);
        int64_t padding = role == PLSH_ROLE_TOKENS ? n->padding - first : -1;
        if (padding >= 0 && padding < rows) {
            memset(n->rows + padding * shape.in, 0, (size_t)shape.in * sizeof(float));
        }
        status = plsh_weights_writer_rows(n->writer, n->rows, rows, error);
    }
    return status;
}

static plsh_status write_vector(const initialiser *n, int64_t count, float value,
                                plsh_error *error) {
    for (int64_t i = 0; i < count; i++) n->rows[i] = value;
    return plsh_weights_writer_rows(n->writer, n->rows, 1, error);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static plsh_status declare(const initialiser *n, plsh_role role, int64_t layer, const char *part,
                           int64_t out, int64_t in, plsh_error *error) {
    char name[160];
    plsh_model_tensor_name(&n->config, true, role, layer, part, name, sizeof(name));
    plsh_tensor tensor = {
        .name = name, .type = PLSH_WEIGHT_F32, .rank = in ? 2 : 1, .shape = {out, in}};
    return plsh_weights_writer_declare(n->writer, &tensor, error);
}

/* The weight and the bias of a role: first declared, then written. */
static plsh_status take_role(const initialiser *n, plsh_role role, int64_t layer, bool writing,
                             plsh_error *error) {
    const role_shape shape = shape_of(&n->config, role);
    plsh_status status;
    if (!shape.out) return PLSH_STATUS_OK;
    const bool transposed = plsh_model_transposed(&n->config, role);
    const role_shape weight = transposed ? (role_shape){shape.in, shape.out, false} : shape;
    if (!writing) {
        status = declare(n, role, layer, "weight", weight.out, weight.in, error);
        if (!status && shape.bias) status = declare(n, role, layer, "bias", shape.out, 0, error);
        return status;
    }
    status = shape.in ? write_matrix(n, role, layer, weight, error)
                      : write_vector(n, shape.out, 1.0f, error);
    if (!status && shape.bias) status = write_vector(n, shape.out, 0.0f, error);
    return status;
}

static plsh_status take_roles(const initialiser *n, bool writing, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int role = 0; role < PLSH_ROLE_COUNT; role++) {
        const int64_t layers = role < PLSH_ROLE_LAYER ? 1 : n->config.layers;
        for (int64_t l = 0; !status && l < layers; l++) {
            status = take_role(n, (plsh_role)role, l, writing, error);
        }
    }
    return status;
}

static plsh_status write_weights(initialiser *n, const char *folder, plsh_error *error) {
    char *path;
    const plsh_model_config *c = &n->config;
    int64_t widest = c->hidden > c->intermediate ? c->hidden : c->intermediate;
    const int64_t q = c->heads * c->head_dim + 2 * c->kv_heads * c->head_dim;
    if (q > widest) widest = q;
    if (2 * c->intermediate > widest) widest = 2 * c->intermediate; /* gate and up in one */
    plsh_status status = plsh_path_join(&path, folder, "model.safetensors", error);
    if (status) return status;
    status = plsh_allocate((void **)&n->rows, ROWS * (size_t)widest, sizeof(float), "rows", error);
    if (!status) {
        status = plsh_weights_writer_create(&n->writer, path, PLSH_WEIGHTS_SAFETENSORS, error);
    }
    plsh_release(path);
    if (!status) status = take_roles(n, false, error);
    if (!status) status = take_roles(n, true, error);
    if (!status) {
        status = plsh_weights_writer_commit(n->writer, error);
        n->writer = NULL;
    }
    plsh_weights_writer_abandon(n->writer);
    plsh_release(n->rows);
    return status;
}

/* ---- Configurations -------------------------------------------------------------------------- */

/* Llama, Mistral and Qwen have an embedding with a padding row, which transformers zeroes. */
static plsh_status read_fields(initialiser *n, const plsh_mapping *text, const char *path,
                               plsh_error *error) {
    json_t *root;
    plsh_status status =
        plsh_weights_json_parse((const char *)text->bytes, text->size, path, &root, error);
    if (status) return status;
    n->range = 0.02;
    n->padding = -1;
    status = plsh_weights_json_number(root, "initializer_range", path, &n->range, error);
    if (!status && n->config.family->position == PLSH_POSITION_ROPE) {
        status = plsh_weights_json_integer(root, "pad_token_id", -1, n->config.vocabulary - 1, path,
                                           &n->padding, error);
    }
    json_decref(root);
    if (!status && !(n->range >= 0.0 && isfinite((float)(10.0 * n->range)))) {
        status =
            plsh_fail(error, PLSH_STATUS_INVALID, "%s: initializer_range is %g", path, n->range);
    }
    return status;
}

static plsh_status read_config(initialiser *n, const char *path, plsh_error *error) {
    plsh_mapping text;
    plsh_status status = plsh_mapping_open(&text, path, error);
    if (status) return status;
    status = plsh_model_config_json((const char *)text.bytes, text.size, path, &n->config, error);
    if (!status && !n->config.family->causal) {
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: %s: encoders are not trained here",
                           path, n->config.family->name);
    }
    if (!status && n->config.layers > MOST_LAYERS) {
        status = plsh_fail(error, PLSH_STATUS_INVALID, "%s: %lld layers; new weights have up to %d",
                           path, (long long)n->config.layers, MOST_LAYERS);
    }
    if (!status) status = read_fields(n, &text, path, error);
    plsh_mapping_close(&text);
    return status;
}

plsh_status plsh_train_initialise(const char *config, uint64_t seed, const char *folder,
                                  plsh_error *error) {
    initialiser n = {.seed = seed};
    char *copy;
    plsh_status status = read_config(&n, config, error);
    if (status) return status;
    status = plsh_folder_make(folder, NULL, error);
    if (status) return status;
    status = plsh_path_join(&copy, folder, "config.json", error);
    if (status) return status;
    status = plsh_convert_copy_config(config, copy, PLSH_WEIGHT_F32, error);
    plsh_release(copy);
    return status ? status : write_weights(&n, folder, error);
}
