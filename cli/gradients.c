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
     .help = "gradient of the output, .npy like the output: what follows is the gradient of "
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
};

bool cli_gradients_asked(const cli_gradients *given) {
    return given->d_o != NULL || given->d_q != NULL || given->d_k != NULL || given->d_v != NULL ||
           given->d_decay != NULL;
}

int cli_gradients_read(const cli_gradients *given, const plsh_attention *a, plsh_npy *out) {
    plsh_error error;
    const char *path = given->d_o;
    if (!cli_gradients_asked(given)) return CLI_DONE;
    if (path == NULL) return cli_usage("--do is needed for --dq, --dk, --dv and --ddecay");
    if (plsh_npy_read(path, out, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (out->rank != 3 || out->shape[0] != a->heads || out->shape[1] != a->queries ||
        out->shape[2] != a->value_dim)
        return cli_fail("%s: the output is [%lld, %lld, %lld]; its gradient has the same shape",
                        path, (long long)a->heads, (long long)a->queries, (long long)a->value_dim);
    if (plsh_npy_to_float32(out, &error) != PLSH_STATUS_OK)
        return cli_fail("%s: %s", path, error.message);
    return CLI_DONE;
}

/* Room for an array like that, where it is asked for. */
static int make_room(const char *path, const plsh_npy *like, float **out) {
    if (path == NULL) return CLI_DONE;
    *out = calloc(like->count + 1, sizeof **out);
    return *out != NULL ? CLI_DONE : cli_fail("out of memory for %zu numbers", like->count);
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

static int save(const cli_output *outputs, const cli_arrays *arrays, const plsh_backward *from) {
    const plsh_npy *like[] = {&arrays->q, &arrays->k, &arrays->v};
    const float *data[] = {from->d_q, from->d_k, from->d_v};
    int code = CLI_DONE;
    for (int i = 0; i < 3 && code == CLI_DONE; i++)
        code = cli_output_array(&outputs[i], PLSH_DTYPE_FLOAT32, 3, like[i]->shape, data[i]);
    return code == CLI_DONE ? save_decay(&outputs[3], arrays->attention.heads, from->d_decay)
                            : code;
}

int cli_gradients_run(const cli_output *outputs, const cli_arrays *arrays, cli_attention *attention,
                      const plsh_backward *inputs, cli_run *run) {
    const size_t heads = (size_t)arrays->attention.heads;
    plsh_backward b = *inputs;
    int code = make_room(outputs[0].path, &arrays->q, &b.d_q);
    if (code == CLI_DONE) code = make_room(outputs[1].path, &arrays->k, &b.d_k);
    if (code == CLI_DONE) code = make_room(outputs[2].path, &arrays->v, &b.d_v);
    if (code == CLI_DONE && outputs[3].path != NULL) {
        b.d_decay = calloc(heads * 2, sizeof(double));
        if (b.d_decay == NULL) code = cli_fail("out of memory for the decays' gradients");
    }
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = cli_attention_backward(attention, &b, run);
    if (code == CLI_DONE) code = save(outputs, arrays, &b);
    free(b.d_q);
    free(b.d_k);
    free(b.d_v);
    free(b.d_decay);
    return code;
}
