/* cli: the q, k and v of a model's layers, as arrays. */
#include "cli/lm/capture.h"

#include "cli/lm/model.h"
#include "cli/message.h"

#include <stdlib.h>
#include <string.h>

static const char *const *positions(void) {
    static const char *const names[] = {"raw", "rope", NULL};
    return names;
}

const cli_option cli_capture_table[CLI_CAPTURE_COUNT] = {
    {.name = "model",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_capture_options, model),
     .value = "PATH",
     .resolve = cli_hub_resolve,
     .help = "q, k and v of this model's layers instead of arrays"},
    {.name = "adapter",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_capture_options, adapter),
     .value = "DIR",
     .help = "a PEFT adapter (LoRA) on top of it"},
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_capture_options, text),
     .value = "FILE",
     .help = "the text it reads; - is stdin"},
    {.name = "ids",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_capture_options, ids),
     .value = "FILE",
     .help = "its tokens instead: int32 .npy [n] or [1, n]"},
    {.name = "layers",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(cli_capture_options, layers),
     .value = "LIST",
     .help = "which layers, from 0; without it all",
     .range = CLI_AT_LEAST(0)},
    {.name = "position",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_capture_options, position),
     .value = "NAME",
     .help = "q and k as projected (as the paper has them), or after RoPE",
     .fallback = "raw",
     .choices = positions},
    {.name = "limit-tokens",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_capture_options, limit),
     .value = "N",
     .help = "only the first N tokens; 0: all",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "compute",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_capture_options, compute),
     .value = "NAME",
     .help = "type in which its linear layers multiply",
     .fallback = "float32",
     .choices = cli_compute_choices},
};

/* Rows of one array: [heads, n, dim]. */
static int make_array(plsh_npy *out, int64_t heads, int64_t rows, int64_t dim) {
    *out = (plsh_npy){.type = PLSH_DTYPE_FLOAT32,
                      .rank = 3,
                      .shape = {heads, rows, dim},
                      .count = (size_t)(heads * rows * dim)};
    out->data = aligned_alloc(64, (out->count * sizeof(float) + 63) / 64 * 64);
    return out->data == NULL ? cli_fail("out of memory for %zu numbers", out->count) : CLI_DONE;
}

static int make_arrays(cli_capture *out, const plsh_model_facts *facts, int64_t tokens,
                       const cli_inputs *inputs, const cli_common *common) {
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < out->count; i++) {
        cli_arrays *a = &out->arrays[i];
        a->random = true;
        code = make_array(&a->q, facts->heads, tokens, facts->head_dim);
        if (code == CLI_DONE) code = make_array(&a->k, facts->kv_heads, tokens, facts->head_dim);
        if (code == CLI_DONE) code = make_array(&a->v, facts->kv_heads, tokens, facts->head_dim);
        a->attention = (plsh_attention){.heads = facts->heads,
                                        .kv_heads = facts->kv_heads,
                                        .queries = tokens,
                                        .keys = tokens,
                                        .head_dim = facts->head_dim,
                                        .value_dim = facts->head_dim,
                                        .causal = inputs->causal,
                                        .scale = inputs->scale,
                                        .threads = (int)common->threads,
                                        .isa = common->isa};
    }
    return code;
}

static void copy_rows(plsh_npy *to, const float *from, plsh_layout layout, int64_t first,
                      int64_t count) {
    const int64_t rows = to->shape[1], dim = to->shape[2];
    for (int64_t h = 0; h < to->shape[0]; h++)
        for (int64_t r = 0; r < count; r++)
            memcpy((float *)to->data + (h * rows + first + r) * dim,
                   from + h * layout.head_stride + r * layout.row_stride,
                   (size_t)dim * sizeof(float));
}

static void see(void *context, const plsh_model_qkv *qkv) {
    cli_capture *capture = context;
    for (size_t i = 0; i < capture->count; i++) {
        cli_arrays *a = &capture->arrays[i];
        if (capture->layers[i] != qkv->layer) continue;
        copy_rows(&a->q, qkv->q, qkv->q_layout, qkv->position, qkv->count);
        copy_rows(&a->k, qkv->k, qkv->k_layout, qkv->position, qkv->count);
        copy_rows(&a->v, qkv->v, qkv->v_layout, qkv->position, qkv->count);
    }
}

static int choose_layers(const cli_capture_options *options, int64_t layers, cli_capture *out) {
    const cli_integers *given = &options->layers;
    out->count = given->count > 0 ? given->count : (size_t)layers;
    out->layers = calloc(out->count, sizeof *out->layers);
    out->arrays = calloc(out->count, sizeof *out->arrays);
    if (out->layers == NULL || out->arrays == NULL) return cli_fail("out of memory");
    for (size_t i = 0; i < out->count; i++) {
        out->layers[i] = given->count > 0 ? given->values[i] : (int64_t)i;
        if (out->layers[i] >= layers)
            return cli_fail("--layers: layer %lld; this model has 0 to %lld",
                            (long long)out->layers[i], (long long)layers - 1);
    }
    return CLI_DONE;
}

static int feed(const cli_capture_options *options, const cli_model *model, const cli_ids *ids,
                cli_capture *out) {
    plsh_session *session;
    plsh_error error;
    plsh_session_options made = {
        .tap = {.see = see, .context = out, .after_rope = options->position == 1}};
    if (plsh_session_create(&session, model->model, &made, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    plsh_step step = {.ids = ids->values, .count = ids->count};
    int code = plsh_session_step(session, &step, &error) == PLSH_STATUS_OK ? CLI_DONE
                                                                           : cli_fail_error(&error);
    plsh_session_destroy(session);
    return code;
}

int cli_capture_check(void) {
    for (size_t i = 1; i < CLI_CAPTURE_COUNT; i++)
        if (cli_option_given(cli_capture_table[i].name))
            return cli_usage("--%s goes with --model", cli_capture_table[i].name);
    return CLI_DONE;
}

int cli_capture_run(const cli_capture_options *options, const cli_inputs *inputs,
                    const cli_common *common, cli_capture *out) {
    cli_lm lm = {.model = {.model = options->model,
                           .adapter = options->adapter,
                           .chunk = 512,
                           .compute = options->compute},
                 .decays = {.decay = "alibi"},
                 .common = *common};
    cli_model model = {0};
    cli_ids ids = {0};
    *out = (cli_capture){0};
    if (inputs->q != NULL || inputs->k != NULL || inputs->v != NULL || inputs->random.count > 0)
        return cli_usage("--model takes the place of --q, --k, --v and --random");
    int code = cli_model_open(&lm, &model);
    if (code == CLI_DONE && !model.facts.causal)
        code = cli_fail("%s: an encoder; its arrays are not taken", options->model);
    if (code == CLI_DONE)
        code = cli_ids_read(&lm, &model, options->ids, options->text, false, &ids);
    if (code == CLI_DONE && options->limit > 0 && ids.count > options->limit)
        ids.count = options->limit;
    if (code == CLI_DONE) code = choose_layers(options, model.facts.layers, out);
    if (code == CLI_DONE) code = make_arrays(out, &model.facts, ids.count, inputs, common);
    if (code == CLI_DONE) cli_model_announce(&model);
    if (code == CLI_DONE) code = feed(options, &model, &ids, out);
    out->described = model.described;
    model.described = NULL;
    free(ids.values);
    cli_model_close(&model);
    return code;
}

void cli_capture_free(cli_capture *capture) {
    for (size_t i = 0; i < capture->count && capture->arrays != NULL; i++)
        cli_arrays_free(&capture->arrays[i]);
    free(capture->arrays);
    free(capture->layers);
    free(capture->described);
    *capture = (cli_capture){0};
}
