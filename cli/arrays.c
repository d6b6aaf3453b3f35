/* cli: the arrays that attention commands read. */
#include "cli/arrays.h"

#include "cli/message.h"

#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>

const cli_option cli_inputs_options[CLI_INPUTS_COUNT] = {
    {.name = "q",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_inputs, q),
     .value = "FILE",
     .help = "queries, .npy [heads, n, dim] of float32, float16 or float64"},
    {.name = "k",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_inputs, k),
     .value = "FILE",
     .help = "keys, [kv heads, n, dim]; there may be fewer heads and more rows than of queries, "
             "which are then the last positions"},
    {.name = "v",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_inputs, v),
     .value = "FILE",
     .help = "values, [kv heads, n, value dim]"},
    {.name = "random",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(cli_inputs, random),
     .value = "H,N,D",
     .help = "instead of files: standard normal arrays, H heads of N rows of D",
     .range = CLI_BETWEEN(1, 1073741824)},
    {.name = "causal",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_inputs, causal),
     .help = "causal mask: a position sees itself and earlier ones"},
    {.name = "scale",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_inputs, scale),
     .value = "X",
     .help = "factor of q.k; 0 is 1 / sqrt(dim)",
     .fallback = "0"},
};

const cli_option cli_knobs_options[CLI_KNOBS_COUNT] = {
    {.name = "eps",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_knobs, eps),
     .value = "X",
     .help = "exact, auto: the largest share of a row's weight that may be left out; 0 is 2^-24",
     .fallback = "0",
     .range = {.least = 0, .most = 1, .below = true}},
    {.name = "window",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_knobs, window),
     .value = "R",
     .help =
         "window: a query sees keys nearer than this (among points a radius); 0 is 27 sigma (or "
         "27 times the distance where the decay is 1/e)",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 1e15)},
    {.name = "block",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_knobs, block),
     .value = "N",
     .help =
         "fixed: positions per block; 0 is 2 sigma (or twice the distance where the decay is 1/e)",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
};

static int make_random(const cli_integers *shape, uint64_t seed, plsh_npy *out) {
    if (shape->count != 3) return cli_usage("--random: three numbers: heads, rows, dim");
    *out = (plsh_npy){.type = PLSH_DTYPE_FLOAT32, .rank = 3, .count = 1};
    for (int i = 0; i < 3; i++) {
        out->shape[i] = shape->values[i];
        if (__builtin_mul_overflow(out->count, (size_t)shape->values[i], &out->count))
            return cli_fail("--random: the arrays are too large");
    }
    size_t bytes;
    if (__builtin_mul_overflow(out->count, sizeof(float), &bytes) || bytes > SIZE_MAX - 64)
        return cli_fail("--random: the arrays are too large");
    float *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == NULL) return cli_fail("out of memory for %zu numbers", out->count);
    bench_fill_normal(data, out->count, seed);
    out->data = data;
    return CLI_DONE;
}

static int read_one(const char *path, const char *name, plsh_npy *out) {
    plsh_error error;
    if (path == NULL) return cli_usage("--%s is needed: --q, --k and --v, or --random", name);
    if (plsh_npy_read(path, out, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (out->rank != 3)
        return cli_fail("%s: rank %d; attention takes [heads, n, dim]", path, out->rank);
    if (out->type != PLSH_DTYPE_FLOAT16 && plsh_npy_to_float32(out, &error) != PLSH_STATUS_OK)
        return cli_fail("%s: %s", path, error.message);
    return CLI_DONE;
}

/* If q, k and v all have one half-precision type they keep it; otherwise all become float32. */
static int same_type(cli_arrays *arrays) {
    plsh_npy *all[] = {&arrays->q, &arrays->k, &arrays->v};
    int halves = 0;
    for (int i = 0; i < 3; i++) halves += all[i]->type == PLSH_DTYPE_FLOAT16;
    plsh_error error;
    for (int i = 0; i < 3 && halves < 3; i++)
        if (plsh_npy_to_float32(all[i], &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    arrays->attention.dtype = halves == 3 ? PLSH_DTYPE_FLOAT16 : PLSH_DTYPE_FLOAT32;
    return CLI_DONE;
}

static int check_shapes(const cli_arrays *arrays) {
    const int64_t *q = arrays->q.shape, *k = arrays->k.shape, *v = arrays->v.shape;
    if (q[2] != k[2])
        return cli_fail("q has rows of %lld, k of %lld; they have to be equal", (long long)q[2],
                        (long long)k[2]);
    if (k[0] != v[0] || k[1] != v[1])
        return cli_fail("k is [%lld, %lld, ..], v is [%lld, %lld, ..]; they have to be equal",
                        (long long)k[0], (long long)k[1], (long long)v[0], (long long)v[1]);
    return CLI_DONE;
}

int cli_arrays_read(const cli_inputs *inputs, const cli_common *common, cli_arrays *out) {
    *out = (cli_arrays){.random = inputs->random.count > 0};
    const char *paths[] = {inputs->q, inputs->k, inputs->v}, *names[] = {"q", "k", "v"};
    plsh_npy *all[] = {&out->q, &out->k, &out->v};
    int code = CLI_DONE;
    for (int i = 0; i < 3 && code == CLI_DONE; i++) {
        if (out->random && paths[i] != NULL)
            code = cli_usage("--random and --%s: give one of them", names[i]);
        else if (out->random)
            code = make_random(&inputs->random, 4 * common->seed + (uint64_t)i, all[i]);
        else
            code = read_one(paths[i], names[i], all[i]);
    }
    if (code == CLI_DONE) code = same_type(out);
    if (code == CLI_DONE) code = check_shapes(out);
    plsh_attention *a = &out->attention;
    a->heads = out->q.shape[0];
    a->kv_heads = out->k.shape[0];
    a->queries = out->q.shape[1];
    a->keys = out->k.shape[1];
    a->head_dim = out->q.shape[2];
    a->value_dim = out->v.shape[2];
    a->causal = inputs->causal;
    a->scale = inputs->scale;
    a->threads = (int)common->threads;
    a->isa = common->isa;
    if (code == CLI_DONE && (a->heads == 0 || a->head_dim == 0 || a->value_dim == 0))
        code = cli_fail("q is [%lld, %lld, %lld], v has rows of %lld; heads and dims are 1 or more",
                        (long long)a->heads, (long long)a->queries, (long long)a->head_dim,
                        (long long)a->value_dim);
    if (code != CLI_DONE) cli_arrays_free(out);
    return code;
}

void cli_arrays_free(cli_arrays *arrays) {
    plsh_npy *all[] = {&arrays->q, &arrays->k, &arrays->v};
    for (int i = 0; i < 3; i++) {
        if (arrays->random)
            free(all[i]->data);
        else
            plsh_npy_free(all[i]);
    }
    *arrays = (cli_arrays){0};
}

plsh_head cli_head_make(int method, const plsh_decay *decay, const cli_knobs *knobs) {
    plsh_head head = plsh_head_default((plsh_method)method, decay);
    head.eps = knobs->eps;
    if (knobs->window > 0) head.window = (int64_t)ceil(knobs->window);
    head.radius = knobs->window;
    if (knobs->block > 0) head.block = knobs->block;
    return head;
}
