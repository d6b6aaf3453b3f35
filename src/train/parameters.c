/* train: the parameters of a model: all of its weights, or those of adapters on top of them. */
#include "train/parameters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

enum { PURPOSE_LORA = 0x6c6f7261 };

/* Visits the model twice: to count the parameters, and to fill the arrays. */
typedef struct collector {
    plsh_parameters *to;
    plsh_model *model;
    const plsh_train_options *options;
    bool taking;
    size_t next, numbers;
    /* Of adapters, known after counting: */
    bool *found;          /* [lora_target_count]: is there such a module? */
    char modules[160];    /* what modules are called: "q_proj, k_proj, .." */
    int64_t adapter_rank; /* rank of the adapter whose training continues, 0: none, */
    double adapter_alpha; /* and its scale times that */
    bool adds;            /* does that adapter lack some of the modules? */
} collector;

/* The next parameter; while taking, where its numbers lie (otherwise NULL). */
static plsh_parameter *next_parameter(collector *c, const char *name, int64_t rows,
                                      int64_t columns) {
    size_t count = (size_t)(rows ? rows : 1) * (size_t)columns, index = c->next++;
    size_t first = c->numbers;
    c->numbers += count;
    if (!c->taking) return NULL;
    plsh_parameter *p = &c->to->list[index];
    *p = (plsh_parameter){
        .rows = rows, .columns = columns, .first = first, .count = count, .matrix = rows > 0};
    snprintf(p->name, sizeof(p->name), "%s", name);
    return p;
}

static void name_part(char out[160], const collector *c, plsh_role role, int64_t layer,
                      const char *part) {
    char module[140];
    plsh_model_module_name(&c->model->config, role, layer, module, sizeof(module));
    snprintf(out, 160, "%.140s.%s", module, part);
}

/* A vector of the model becomes a parameter. */
static void take_vector(collector *c, plsh_role role, int64_t layer, const char *part,
                        int64_t count, const float **vector, float **gradient) {
    char name[160];
    if (!*vector) return;
    name_part(name, c, role, layer, part);
    plsh_parameter *p = next_parameter(c, name, 0, count);
    if (!p) return;
    float *value = c->to->value + p->first;
    memcpy(value, *vector, (size_t)count * sizeof(float));
    *vector = value;
    *gradient = c->to->gradient + p->first;
}

static void take_norm(collector *c, plsh_role role, int64_t layer, plsh_norm *norm,
                      plsh_norm_gradient *gradient) {
    take_vector(c, role, layer, "weight", norm->width, &norm->weight, &gradient->weight);
    take_vector(c, role, layer, "bias", norm->width, &norm->bias, &gradient->bias);
}

/* The weight as float32 in the order of the stored rows. */
static void take_weight(collector *c, plsh_role role, int64_t layer, plsh_linear *linear,
                        float **gradient) {
    char name[160];
    name_part(name, c, role, layer, "weight");
    plsh_parameter *p = next_parameter(c, name, linear->out, linear->in);
    if (!p) return;
    p->transposed = plsh_model_transposed(&c->model->config, role);
    float *value = c->to->value + p->first;
    plsh_tensor stored = {.type = linear->type,
                          .rank = 2,
                          .shape = {linear->out, linear->in},
                          .data = linear->weight};
    plsh_tensor_to_float(&stored, 0, linear->out, value);
    linear->type = PLSH_WEIGHT_F32;
    linear->weight = value;
    *gradient = c->to->gradient + p->first;
}

static void take_linear(collector *c, plsh_role role, int64_t layer, plsh_model_linear *linear,
                        plsh_linear_gradient *gradient) {
    take_weight(c, role, layer, &linear->base, &gradient->weight);
    take_vector(c, role, layer, "bias", linear->base.out, &linear->base.bias, &gradient->bias);
}

/* ---- Adapters -------------------------------------------------------------------------------- */

const char *plsh_module_last_part(const char *module) {
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

static bool is_target(const collector *c, const char *module, plsh_role role) {
    const plsh_train_options *options = c->options;
    /* an adapter that is continued without targets keeps its layers and gets no new ones */
    if (!options->lora_targets && options->adapter) return false;
    if (!options->lora_targets) {
        return role == PLSH_ROLE_Q || role == PLSH_ROLE_K || role == PLSH_ROLE_V ||
               role == PLSH_ROLE_QKV || role == PLSH_ROLE_KV || role == PLSH_ROLE_ATTENTION_OUT;
    }
    bool is = false;
    for (size_t i = 0; i < options->lora_target_count; i++) {
        const char *target = options->lora_targets[i];
        if (strcmp(target, module) != 0 && strcmp(target, plsh_module_last_part(module)) != 0)
            continue;
        c->found[i] = true;
        is = true;
    }
    return is;
}

/* The modules of the model and of the adapter, for the checks after counting. */
static void note_module(collector *c, const char *module, const plsh_model_linear *linear,
                        bool target) {
    const char *name = plsh_module_last_part(module);
    const size_t used = strlen(c->modules);
    /* relies on this: no module's name is a substring of one that was listed before */
    if (!strstr(c->modules, name)) {
        snprintf(c->modules + used, sizeof(c->modules) - used, "%s%s", used ? ", " : "", name);
    }
    if (linear->rank > 0) {
        c->adapter_rank = linear->rank;
        c->adapter_alpha = (double)linear->scale * (double)linear->rank;
    } else if (target) {
        c->adds = true;
    }
}

/* Checks that every target names a module, and that all modules of an adapter have one rank. */
static plsh_status check_adapter(const collector *c, plsh_error *error) {
    const plsh_train_options *o = c->options;
    for (size_t i = 0; i < o->lora_target_count; i++) {
        if (!c->found[i]) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "LoRA: the model has no module %.60s; it has %s", o->lora_targets[i],
                             c->modules);
        }
    }
    if (c->next == (o->learn_slopes ? 1 : 0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "LoRA: the model has none of the modules to train; it has %s", c->modules);
    }
    if (c->adds && c->adapter_rank && o->lora_rank != c->adapter_rank) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "LoRA: the adapter has rank %lld, and modules of rank %lld are to be "
                         "added; one rank serves all",
                         (long long)c->adapter_rank, (long long)o->lora_rank);
    }
    return PLSH_STATUS_OK;
}

/* The initial A of PEFT: uniform in +-1/sqrt(in). The initial B is zero. */
static void fill_uniform(float *a, size_t count, int64_t in, uint64_t seed, size_t index) {
    const double bound = 1.0 / sqrt((double)in);
    plsh_stream stream = {.seed = seed, .head = (uint32_t)index, .purpose = PURPOSE_LORA};
    for (size_t i = 0; i < count; i++) {
        double u = plsh_random_unit(plsh_random_at(stream, i).word[0]);
        a[i] = (float)((2.0 * u - 1.0) * bound);
    }
}

static void take_factor(collector *c, const char *name, plsh_linear *factor, int64_t rows,
                        int64_t columns, bool random, plsh_row_order order, float **gradient) {
    plsh_parameter *p = next_parameter(c, name, rows, columns);
    if (!p) return;
    p->order = order;
    float *value = c->to->value + p->first;
    if (factor->weight) {
        memcpy(value, factor->weight, p->count * sizeof(float));
    } else if (random) {
        fill_uniform(value, p->count, columns, c->options->seed, c->next);
    }
    *factor = (plsh_linear){.type = PLSH_WEIGHT_F32, .weight = value, .out = rows, .in = columns};
    *gradient = c->to->gradient + p->first;
}

static void take_adapter(collector *c, plsh_role role, int64_t layer, plsh_model_linear *linear,
                         plsh_linear_gradient *gradient) {
    const plsh_train_options *o = c->options;
    char module[140], name[160];
    plsh_model_module_name(&c->model->config, role, layer, module, sizeof(module));
    if (!*module)
        return; /* a GGUF's tensor that folders store fused with others: PEFT has no name */
    const bool has = linear->rank > 0, target = is_target(c, module, role);
    if (!c->taking) note_module(c, module, linear, target);
    if (!has && !target) return;
    int64_t rank = has ? linear->rank : o->lora_rank, in = linear->base.in, out = linear->base.out;
    snprintf(name, sizeof(name), "base_model.model.%.120s.lora_A.weight", module);
    take_factor(c, name, &linear->a, rank, in, true, PLSH_ROWS_SAME, &gradient->a);
    snprintf(name, sizeof(name), "base_model.model.%.120s.lora_B.weight", module);
    take_factor(c, name, &linear->b, out, rank, false,
                plsh_model_row_order(&c->model->config, role), &gradient->b);
    if (!c->taking) return;
    const double alpha = c->adapter_rank       ? c->adapter_alpha
                         : o->lora_alpha > 0.0 ? o->lora_alpha
                                               : 2.0 * (double)rank;
    c->to->alpha = alpha;
    if (has) return;
    linear->rank = rank;
    linear->scale = (float)(alpha / (double)rank);
    if (rank > c->model->rank_max) c->model->rank_max = rank;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static void take_any(collector *c, plsh_role role, int64_t layer, plsh_model_linear *linear,
                     plsh_linear_gradient *gradient) {
    if (c->options->lora_rank > 0) {
        take_adapter(c, role, layer, linear, gradient);
    } else {
        take_linear(c, role, layer, linear, gradient);
    }
}

static void take_layer(collector *c, int64_t l, plsh_layer *layer, plsh_layer_gradient *g) {
    plsh_role qkv[3];
    plsh_model_qkv_roles(&c->model->config, qkv);
    static const plsh_role gated[] = {PLSH_ROLE_GATE, PLSH_ROLE_UP};
    bool all = c->options->lora_rank == 0;
    if (all) {
        take_norm(c, PLSH_ROLE_ATTENTION_NORM, l, &layer->attention_norm, &g->attention_norm);
        if (layer->mlp_norm.weight) {
            take_norm(c, PLSH_ROLE_MLP_NORM, l, &layer->mlp_norm, &g->mlp_norm);
        }
        if (layer->q_norm.weight) take_norm(c, PLSH_ROLE_Q_NORM, l, &layer->q_norm, &g->q_norm);
        if (layer->k_norm.weight) take_norm(c, PLSH_ROLE_K_NORM, l, &layer->k_norm, &g->k_norm);
    }
    for (int i = 0; i < 3 && i < layer->qkv_count; i++) {
        take_any(c, qkv[i], l, &layer->qkv[i], &g->qkv[i]);
    }
    take_any(c, PLSH_ROLE_ATTENTION_OUT, l, &layer->attention_out, &g->attention_out);
    for (int i = 0; i < 2 && i < layer->up_count; i++) {
        take_any(c, layer->up_count == 1 ? PLSH_ROLE_UP : gated[i], l, &layer->up[i], &g->up[i]);
    }
    take_any(c, PLSH_ROLE_DOWN, l, &layer->down, &g->down);
}

/* The embedding, which may be the head too. */
static void take_embedding(collector *c) {
    plsh_model *model = c->model;
    const plsh_model_config *config = &model->config;
    plsh_parameters *to = c->to;
    bool tied = model->head.base.weight == model->tokens->data;
    plsh_linear table = {.type = model->tokens->type,
                         .weight = model->tokens->data,
                         .out = config->vocabulary,
                         .in = config->hidden};
    take_weight(c, PLSH_ROLE_TOKENS, 0, &table, &to->tokens);
    if (c->taking) {
        to->embedding = *model->tokens;
        to->embedding.type = PLSH_WEIGHT_F32;
        to->embedding.data = table.weight;
        model->tokens = &to->embedding;
    }
    if (tied && c->taking) {
        model->head.base = table;
        to->head.weight = to->tokens;
    } else if (!tied) {
        take_linear(c, PLSH_ROLE_HEAD, 0, &model->head, &to->head);
    }
}

/* Before all other parameters: ranks add up gradients in reverse order, so these are added last. */
static void take_slopes(collector *c) {
    const plsh_model_config *config = &c->model->config;
    plsh_parameter *p = next_parameter(c, PLSH_LOG_SLOPES, config->layers, config->heads);
    if (!p) return;
    p->not_a_weight = true;
    for (size_t i = 0; i < p->count; i++) {
        c->to->value[p->first + i] = (float)log(c->model->slopes[i]);
    }
    for (int64_t l = 0; l < config->layers; l++) c->to->layer[l].decay = c->to->decay;
}

static void take_all(collector *c) {
    plsh_model *model = c->model;
    if (c->options->learn_slopes) take_slopes(c);
    if (c->options->lora_rank == 0) {
        take_embedding(c);
        if (model->tokens_norm.weight) {
            take_norm(c, PLSH_ROLE_TOKENS_NORM, 0, &model->tokens_norm, &c->to->tokens_norm);
        }
        take_norm(c, PLSH_ROLE_FINAL_NORM, 0, &model->final_norm, &c->to->final_norm);
    }
    for (int64_t l = 0; l < model->config.layers; l++) {
        c->to->layer_first[l] = c->numbers;
        take_layer(c, l, &model->layer[l], &c->to->layer[l]);
    }
    c->to->layer_first[model->config.layers] = c->numbers;
}

/* Counts the parameters; checks the options of adapters. */
static plsh_status count_all(collector *c, plsh_error *error) {
    plsh_status status = plsh_allocate((void **)&c->found, c->options->lora_target_count,
                                       sizeof(*c->found), "targets", error);
    if (status) return status;
    take_all(c);
    c->to->count = c->next;
    c->to->numbers = c->numbers;
    return c->options->lora_rank > 0 ? check_adapter(c, error) : PLSH_STATUS_OK;
}

static plsh_status make_arrays(plsh_parameters *p, plsh_error *error) {
    float **arrays[] = {&p->value, &p->gradient, &p->m, &p->v};
    plsh_status status = PLSH_STATUS_OK;
    for (int i = 0; !status && i < 4; i++) {
        status = plsh_allocate((void **)arrays[i], p->numbers, sizeof(float),
                               "parameters, gradients and moments", error);
    }
    return status;
}

plsh_status plsh_parameters_make(plsh_parameters *out, plsh_model *model,
                                 const plsh_train_options *options, plsh_error *error) {
    *out = (plsh_parameters){0};
    plsh_status status = plsh_allocate((void **)&out->layer, (size_t)model->config.layers,
                                       sizeof(*out->layer), "layers", error);
    if (!status) {
        status = plsh_allocate((void **)&out->layer_first, (size_t)model->config.layers + 1,
                               sizeof(*out->layer_first), "layers", error);
    }
    if (!status && options->learn_slopes) {
        status = plsh_allocate((void **)&out->decay, 2 * (size_t)model->config.heads,
                               sizeof(*out->decay), "heads", error);
    }
    if (status) {
        plsh_parameters_clear(out);
        return status;
    }
    collector c = {.to = out, .model = model, .options = options};
    status = count_all(&c, error);
    if (!status) {
        status =
            plsh_allocate((void **)&out->list, out->count, sizeof(*out->list), "parameters", error);
    }
    if (!status) status = make_arrays(out, error);
    if (status) {
        plsh_release(c.found);
        plsh_parameters_clear(out);
        return status;
    }
    c.taking = true;
    c.next = c.numbers = 0;
    take_all(&c);
    plsh_release(c.found);
    return PLSH_STATUS_OK;
}

void plsh_parameters_clear(plsh_parameters *p) {
    void *arrays[] = {p->list, p->value, p->gradient,    p->m,
                      p->v,    p->layer, p->layer_first, p->decay};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) plsh_release(arrays[i]);
    *p = (plsh_parameters){0};
}
