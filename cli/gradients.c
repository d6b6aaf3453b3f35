/* cli: gradients of attention on arrays. */
#include "cli/gradients.h"

#include "cli/message.h"

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

static int read_d_o(const char *path, const plsh_attention *a, plsh_npy *out) {
    plsh_error error;
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

static int save(const char *path, int rank, const int64_t *shape, const float *data) {
    plsh_error error;
    if (path == NULL) return CLI_DONE;
    plsh_status status = plsh_npy_write(path, PLSH_NPY_FLOAT32, rank, shape, data, &error);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

static int save_decay(const char *path, int64_t heads, const double *d_decay) {
    if (path == NULL) return CLI_DONE;
    float *narrow = calloc((size_t)heads * 2, sizeof *narrow);
    if (narrow == NULL) return cli_fail("out of memory for %lld heads", (long long)heads);
    for (int64_t i = 0; i < 2 * heads; i++) narrow[i] = (float)d_decay[i];
    int code = save(path, 2, (const int64_t[]){heads, 2}, narrow);
    free(narrow);
    return code;
}

static int run_plan(const plsh_plan *plan, const plsh_backward *backward, cli_run *run) {
    plsh_error error;
    size_t bytes = (plsh_plan_backward_workspace(plan) + 64) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes);
    if (workspace == NULL) return cli_fail("out of memory for a workspace of %zu bytes", bytes);
    double start = cli_now();
    plsh_status status = plsh_plan_backward(plan, backward, workspace, &run->report, &error);
    run->seconds = cli_now() - start;
    free(workspace);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

int cli_gradients_run(const cli_gradients *given, const cli_arrays *arrays, const plsh_plan *plan,
                      const float *o, const float *lse, cli_run *run) {
    const plsh_attention *a = &arrays->attention;
    plsh_npy d_o = {0};
    plsh_backward backward = {
        .q = arrays->q.data, .k = arrays->k.data, .v = arrays->v.data, .o = o, .lse = lse};
    int code = read_d_o(given->d_o, a, &d_o);
    backward.d_o = d_o.data;
    if (code == CLI_DONE) code = make_room(given->d_q, &arrays->q, &backward.d_q);
    if (code == CLI_DONE) code = make_room(given->d_k, &arrays->k, &backward.d_k);
    if (code == CLI_DONE) code = make_room(given->d_v, &arrays->v, &backward.d_v);
    if (code == CLI_DONE && given->d_decay != NULL) {
        backward.d_decay = calloc((size_t)a->heads * 2, sizeof(double));
        if (backward.d_decay == NULL) code = cli_fail("out of memory for the decays' gradients");
    }
    if (code == CLI_DONE) code = run_plan(plan, &backward, run);
    if (code == CLI_DONE) code = save(given->d_q, 3, arrays->q.shape, backward.d_q);
    if (code == CLI_DONE) code = save(given->d_k, 3, arrays->k.shape, backward.d_k);
    if (code == CLI_DONE) code = save(given->d_v, 3, arrays->v.shape, backward.d_v);
    if (code == CLI_DONE) code = save_decay(given->d_decay, a->heads, backward.d_decay);
    free(backward.d_q);
    free(backward.d_k);
    free(backward.d_v);
    free(backward.d_decay);
    plsh_npy_free(&d_o);
    return code;
}
