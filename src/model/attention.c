/* model: the attention heads of a layer. */
#include "model/attention.h"

#include "base/status.h"

/* Replaces "no decay" for methods that need one: k stays above 1 - 1e-3 up to 2^40 tokens. */
#define FLAT_SIGMA 1e15

static bool has_alibi(const plsh_model *model) {
    plsh_position_kind position = model->config.family->position;
    return position == PLSH_POSITION_ALIBI || position == PLSH_POSITION_ALIBI_SCALED;
}

/* The slope of a text of this length. */
static double slope_at(const plsh_model *model, int64_t layer, int64_t head, int64_t length) {
    const int64_t longest = model->config.alibi_length;
    const double slope = plsh_model_slope(model, layer, head);
    return longest > 0 && length > longest ? slope * (double)longest / (double)length : slope;
}

static plsh_head own_head(const plsh_model *model, int64_t layer, int64_t head, int64_t length) {
    const plsh_model_config *c = &model->config;
    plsh_head own = {.method = PLSH_METHOD_NONE};
    if (has_alibi(model)) {
        own.method = PLSH_METHOD_EXACT;
        own.partition.decay = plsh_decay_alibi(1.0 / slope_at(model, layer, head, length));
    } else if (c->sliding_window > 0 && layer >= c->sliding_from) {
        own.method = PLSH_METHOD_WINDOW;
        own.window = c->sliding_window;
        own.partition.decay = plsh_decay_alibi(FLAT_SIGMA);
    }
    return own;
}

plsh_head plsh_model_head(const plsh_model *model, const plsh_layer_attention *attention,
                          int64_t layer, int64_t head) {
    if (!attention || attention->original) return own_head(model, layer, head, 0);
    return attention->head[attention->head_count == 1 ? 0 : head];
}

double plsh_model_slope(const plsh_model *model, int64_t layer, int64_t head) {
    return model->slopes[layer * model->config.heads + head];
}

plsh_status plsh_model_heads(const plsh_model *model, plsh_method method, int64_t layer,
                             plsh_head *heads, plsh_error *error) {
    if (layer < 0 || layer >= model->config.layers)
        return plsh_fail(error, PLSH_STATUS_INVALID, "layer %lld; 0 to %lld", (long long)layer,
                         (long long)model->config.layers - 1);
    for (int64_t h = 0; h < model->config.heads; h++) {
        const plsh_decay decay = plsh_decay_alibi(1.0 / plsh_model_slope(model, layer, h));
        heads[h] = plsh_head_default(method, &decay);
        heads[h].partition.head = (uint32_t)h;
    }
    return PLSH_STATUS_OK;
}

const plsh_layer_attention *plsh_model_attention_at(const plsh_layer_attention *attention,
                                                    int64_t count, int64_t layer) {
    if (!attention || count == 0) return NULL;
    return &attention[count == 1 ? 0 : layer];
}

plsh_status plsh_model_attention_check(const plsh_model *model,
                                       const plsh_layer_attention *attention, int64_t count,
                                       plsh_error *error) {
    const plsh_model_config *c = &model->config;
    if (count < 0 || (count > 1 && count != c->layers) || (count > 0 && !attention)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "attention for %lld layers; 0, 1, or one for each of %lld",
                         (long long)count, (long long)c->layers);
    }
    for (int64_t i = 0; i < count; i++) {
        const plsh_layer_attention *a = &attention[i];
        if (a->original) continue;
        if (!a->head || (a->head_count != 1 && a->head_count != c->heads)) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "layer %lld: head_count is %lld; 1 or %lld, with an array of that "
                             "length",
                             (long long)i, (long long)a->head_count, (long long)c->heads);
        }
    }
    return PLSH_STATUS_OK;
}

bool plsh_model_attention_rotates(const plsh_model *model, const plsh_layer_attention *attention) {
    if (model->config.family->position != PLSH_POSITION_ROPE) return false;
    return !attention || attention->original || !attention->drop_rope;
}

void plsh_model_attention_heads(const plsh_model *model, const plsh_layer_attention *attention,
                                int64_t layer, int64_t length, plsh_head *head) {
    const bool own = !attention || attention->original;
    for (int64_t h = 0; h < model->config.heads; h++) {
        head[h] =
            own ? own_head(model, layer, h, length) : plsh_model_head(model, attention, layer, h);
    }
}
