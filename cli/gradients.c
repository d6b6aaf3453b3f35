/* cli: gradients of attention on arrays. */
#include "cli/gradients.h"

#include "cli/message.h"
#include "cli/ranks.h"

#include <stdlib.h>

const cli_option cli_gradients_options[CLI_GRADIENTS_COUNT] = {
    {.name = "do",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_o),
     .value = "FILE",
     .help = "gradient of the output, .npy like the output: the files below are gradients of "
             "sum(out * do)"},
    {.name = "dq",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_q),
     .value = "FILE",
     .help = "gradient of the queries, like --q"},
    {.name = "dk",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_k),
     .value = "FILE",
     .help = "gradient of the keys, like --k"},
    {.name = "dv",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_v),
     .value = "FILE",
     .help = "gradient of the values, like --v"},
    {.name = "ddecay",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_decay),
     .value = "FILE",
     .help = "gradients of the decay's two parameters, [heads, 2]; for alibi: sigma and 0"},
    {.name = "dpositions",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_positions),
     .value = "FILE",
     .help = "gradient of the positions, like --positions"},
    {.name = "dquery-positions",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_gradients, d_query_positions),
     .value = "FILE",
     .help = "gradient of the queries' positions, like --query-positions"},
};

bool cli_gradients_asked(const cli_gradients *given) {
    return given->d_o != NULL || given->d_q != NULL || given->d_k != NULL || given->d_v != NULL ||
           given->d_decay != NULL || given->d_positions != NULL || given->d_query_positions != NULL;
}

int cli_gradients_read(const cli_gradients *given, const plsh_attention *a, plsh_npy *out) {
    plsh_error error;
    const char *path = given->d_o;
    if (!cli_gradients_asked(given)) return CLI_DONE;
    if (path == NULL)
        return cli_usage("--do is needed for --dq, --dk, --dv, --ddecay and --dpositions");
    if (plsh_npy_read(path, out, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (out->rank != 3 || out->shape[0] != a->heads || out->shape[1] != a->queries ||
        out->shape[2] != a->value_dim)
        return cli_fail("%s: the output is [%lld, %lld, %lld]; its gradient has the same shape",
                        path, (long long)a->heads, (long long)a->queries, (long long)a->value_dim);
    if (plsh_npy_to_float32(out, &error) != PLSH_STATUS_OK)
        return cli_fail("%s: %s", path, error.message);
    return CLI_DONE;
}

enum { D_Q, D_K, D_V, D_DECAY, D_POSITIONS, D_QUERY_POSITIONS };

/* The array that an output is like; NULL for those of the decay. */
static const plsh_npy *array_like(const cli_gradients_call *call, int output) {
    const plsh_npy *like[CLI_GRADIENTS] = {[D_Q] = &call->arrays->q,
                                           [D_K] = &call->arrays->k,
                                           [D_V] = &call->arrays->v,
                                           [D_POSITIONS] = &call->positions->key.array,
                                           [D_QUERY_POSITIONS] = &call->positions->query.array};
    return like[output];
}

/* The array of the backward pass for an output that has the shape of an input. */
static float *gradient_of(const plsh_backward *b, int output) {
    float *const at[CLI_GRADIENTS] = {[D_Q] = b->d_q,
                                      [D_K] = b->d_k,
                                      [D_V] = b->d_v,
                                      [D_POSITIONS] = b->d_key_positions,
                                      [D_QUERY_POSITIONS] = b->d_query_positions};
    return at[output];
}

static void set_gradient(plsh_backward *b, int output, float *room) {
    if (output == D_Q) b->d_q = room;
    if (output == D_K) b->d_k = room;
    if (output == D_V) b->d_v = room;
    if (output == D_POSITIONS) b->d_key_positions = room;
    if (output == D_QUERY_POSITIONS) b->d_query_positions = room;
}

/* Allocates the gradients that were asked for. */
static int make_room(const cli_output *outputs, const cli_gradients_call *call, plsh_backward *b) {
    for (int i = 0; i < CLI_GRADIENTS; i++) {
        const plsh_npy *like = array_like(call, i);
        if (outputs[i].path == NULL) continue;
        if (i == D_DECAY) {
            b->d_decay = calloc((size_t)call->arrays->attention.heads * 2, sizeof(double));
            if (b->d_decay == NULL) return cli_fail("out of memory for the decays' gradients");
            continue;
        }
        float *room = calloc(like->count + 1, sizeof(float));
        set_gradient(b, i, room);
        if (room == NULL) return cli_fail("out of memory for %zu numbers", like->count);
    }
    return CLI_DONE;
}

static int save_decay(const cli_output *output, int64_t heads, const double *d_decay) {
    if (output->path == NULL) return CLI_DONE;
    float *narrow = calloc((size_t)heads * 2, sizeof *narrow);
    if (narrow == NULL) return cli_fail("out of memory for %lld heads", (long long)heads);
    for (int64_t i = 0; i < 2 * heads; i++) narrow[i] = (float)d_decay[i];
    const int64_t shape[] = {heads, 2};
    int code = cli_output_array(output, PLSH_DTYPE_FLOAT32, 2, shape, narrow);
    free(narrow);
    return code;
}

static int save(const cli_output *outputs, const cli_gradients_call *call, const plsh_backward *b) {
    int code = save_decay(&outputs[D_DECAY], call->arrays->attention.heads, b->d_decay);
    for (int i = 0; i < CLI_GRADIENTS && code == CLI_DONE; i++) {
        const plsh_npy *like = array_like(call, i);
        if (like != NULL && outputs[i].path != NULL)
            code = cli_output_array(&outputs[i], PLSH_DTYPE_FLOAT32, like->rank, like->shape,
                                    gradient_of(b, i));
    }
    return code;
}

int cli_gradients_run(const cli_output *outputs, const cli_gradients_call *call, cli_run *run) {
    plsh_backward b = *call->inputs;
    int code = cli_ranks_agree(make_room(outputs, call, &b));
    if (code == CLI_DONE) code = cli_attention_backward(call->attention, &b, run);
    if (code == CLI_DONE) code = save(outputs, call, &b);
    for (int i = 0; i < CLI_GRADIENTS; i++) free(gradient_of(&b, i));
    free(b.d_decay);
    return code;
}
