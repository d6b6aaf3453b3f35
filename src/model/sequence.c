/* model: attention of a layer over whole sequences at once, forward and backward. */
#include "model/sequence.h"

#include "base/memory.h"
#include "model/attention.h"

static plsh_attention describe(const plsh_model *model, const plsh_sequences *sequences,
                               const plsh_head *head) {
    const plsh_model_config *c = &model->config;
    plsh_layout qkv = {.head_stride = model->qkv.head_stride, .row_stride = model->qkv.width};
    return (plsh_attention){.heads = c->heads,
                            .kv_heads = c->kv_heads,
                            .queries = sequences->rows,
                            .keys = sequences->rows,
                            .head_dim = c->head_dim,
                            .sequences = sequences->count,
                            .query_offsets = sequences->offsets,
                            .key_offsets = sequences->offsets,
                            .causal = c->family->causal,
                            .scale = c->scale,
                            .q = qkv,
                            .k = qkv,
                            .v = qkv,
                            .o = {.head_stride = c->head_dim, .row_stride = c->heads * c->head_dim},
                            .head = head,
                            .head_count = c->heads,
                            .threads = model->threads,
                            .isa = model->isa};
}

/* If the slopes of a model depend on the length, those of the longest text of the batch serve all,
 * as in the published code, which pads the others. */
static int64_t longest(const plsh_sequences *s) {
    int64_t most = s->offsets ? 0 : s->rows;
    for (int64_t i = 0; s->offsets && i < s->count; i++) {
        const int64_t length = s->offsets[i + 1] - s->offsets[i];
        most = length > most ? length : most;
    }
    return most;
}

static plsh_status make_alone(plsh_sequence_attention *out, const plsh_attention *attention,
                              bool backward, plsh_error *error) {
    plsh_status status = plsh_plan_create(attention, &out->plan, error);
    if (status) return status;
    size_t bytes = plsh_plan_workspace(out->plan);
    if (backward && plsh_plan_backward_workspace(out->plan) > bytes) {
        bytes = plsh_plan_backward_workspace(out->plan);
    }
    return plsh_allocate(&out->workspace, bytes, 1, "attention workspace", error);
}

plsh_status plsh_sequence_attention_make(plsh_sequence_attention *out, const plsh_model *model,
                                         const plsh_layer_attention *choice, int64_t l,
                                         const plsh_sequences *sequences, bool backward,
                                         plsh_error *error) {
    const plsh_ranks *ranks = sequences->ranks;
    plsh_head *head;
    *out = (plsh_sequence_attention){.ranks = ranks};
    plsh_status status =
        plsh_allocate((void **)&head, (size_t)model->config.heads, sizeof(*head), "heads", error);
    status = plsh_ranks_agree_group(ranks, status, error);
    if (!status) {
        plsh_model_attention_heads(model, choice, l, longest(sequences), head);
        plsh_attention whole = describe(model, sequences, head);
        status = ranks ? ranks->plan(ranks->context, &whole, sequences->own, backward, &out->shared,
                                     error)
                       : make_alone(out, &whole, backward, error);
    }
    plsh_release(head);
    if (status) plsh_sequence_attention_clear(out);
    return status;
}

void plsh_sequence_attention_clear(plsh_sequence_attention *attention) {
    if (attention->ranks) attention->ranks->plan_destroy(attention->shared);
    plsh_plan_destroy(attention->plan);
    plsh_release(attention->workspace);
    *attention = (plsh_sequence_attention){0};
}

plsh_status plsh_sequence_attention_forward(const plsh_sequence_attention *attention,
                                            const plsh_forward *arrays, plsh_error *error) {
    if (attention->ranks) return attention->ranks->forward(attention->shared, arrays, error);
    return plsh_plan_forward(attention->plan, arrays, attention->workspace, NULL, error);
}

plsh_status plsh_sequence_attention_backward(const plsh_sequence_attention *attention,
                                             const plsh_backward *arrays, plsh_error *error) {
    if (attention->ranks) return attention->ranks->backward(attention->shared, arrays, error);
    return plsh_plan_backward(attention->plan, arrays, attention->workspace, NULL, error);
}
