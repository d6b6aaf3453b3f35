/* cli: plsh bench: speed and error of the methods side by side, against the roof. */
#include "cli/attention.h"
#include "cli/bench_decode.h"
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/options.h"
#include "cli/ranks.h"

#include "bench/bench.h"
#include "plsh/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const passes[] = {"forward", "backward", "decode", NULL};
enum { FORWARD, BACKWARD, DECODE };
static const char *const *list_passes(void) { return passes; }

static const char *const *list_storages(void) {
    static const char *names[PLSH_DTYPE_BFLOAT16 + 2]; /* the types that a cache stores */
    for (int i = 0; i <= PLSH_DTYPE_BFLOAT16; i++) names[i] = plsh_dtype_name((plsh_dtype)i);
    return (const char *const *)names;
}

typedef struct shape_options {
    cli_integers n, dim;
    int64_t heads, kv_heads;
    cli_words methods, passes;
    cli_integers samples;
    int64_t reps;
    bool causal;
    int storage; /* a plsh_dtype */
} shape_options;

typedef struct settings {
    shape_options shape;
    cli_knobs knobs;
    cli_decays decays;
    cli_partitions partitions;
    cli_common common;
} settings;

static const cli_option shape_table[] = {
    {.name = "n",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(shape_options, n),
     .value = "LIST",
     .help = "context lengths",
     .fallback = "4096",
     .range = CLI_BETWEEN(1, 0x1p40)},
    {.name = "dim",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(shape_options, dim),
     .value = "LIST",
     .help = "head dimensions",
     .fallback = "64",
     .range = CLI_BETWEEN(1, 512)},
    {.name = "heads",
     .kind = CLI_INTEGER,
     CLI_MEMBER(shape_options, heads),
     .value = "N",
     .help = "query heads",
     .fallback = "8",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "kv-heads",
     .kind = CLI_INTEGER,
     CLI_MEMBER(shape_options, kv_heads),
     .value = "N",
     .help = "key and value heads; 0 is as many as query heads",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 65536)},
    {.name = "methods",
     .kind = CLI_WORDS,
     CLI_MEMBER(shape_options, methods),
     .value = "LIST",
     .help = "methods to measure",
     .fallback = "dense,exact,plsh,window",
     .choices = plsh_method_names},
    {.name = "pass",
     .kind = CLI_WORDS,
     CLI_MEMBER(shape_options, passes),
     .value = "LIST",
     .help = "passes to measure",
     .fallback = "forward",
     .choices = list_passes},
    {.name = "samples",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(shape_options, samples),
     .value = "LIST",
     .help = "numbers of partitions for plsh, masks and mean",
     .fallback = "20",
     .range = CLI_AT_LEAST(1)},
    {.name = "reps",
     .kind = CLI_INTEGER,
     CLI_MEMBER(shape_options, reps),
     .value = "N",
     .help = "repetitions; the table has medians",
     .fallback = "5",
     .range = CLI_BETWEEN(1, 10000)},
    {.name = "causal",
     .kind = CLI_FLAG,
     CLI_MEMBER(shape_options, causal),
     .help = "causal mask: a position sees itself and earlier ones; decode is always causal"},
    {.name = "storage",
     .kind = CLI_CHOICE,
     CLI_MEMBER(shape_options, storage),
     .value = "TYPE",
     .help = "the type of q, k and v; in decode, of keys and values in the cache",
     .fallback = "float32",
     .choices = list_storages},
};

static const cli_group groups[] = {
    CLI_GROUP("What is measured", shape_table, settings, shape),
    CLI_GROUP("Methods", cli_knobs_options, settings, knobs),
    CLI_GROUP("Decay", cli_decays_options, settings, decays),
    CLI_GROUP("Partitions", cli_partitions_options, settings, partitions),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

static const cli_column columns[] = {
    {"method", CLI_CELL_TEXT, NULL, 0},
    {"pass", CLI_CELL_TEXT, NULL, 0},
    {"n", CLI_CELL_INTEGER, NULL, 0},
    {"dim", CLI_CELL_INTEGER, NULL, 0},
    {"samples", CLI_CELL_INTEGER, NULL, 0},
    {"seconds", CLI_CELL_NUMBER, NULL, 4},
    {"spread", CLI_CELL_NUMBER, NULL, 2},
    {"gflops", CLI_CELL_NUMBER, NULL, 4},
    {"roof_share", CLI_CELL_NUMBER, "of roof", 3},
    {"pairs", CLI_CELL_INTEGER, NULL, 0},
    {"predicted", CLI_CELL_NUMBER, NULL, 3},
    {"max_error", CLI_CELL_NUMBER, "error", 2},
    {"bytes", CLI_CELL_INTEGER, NULL, 0},
    {"sent", CLI_CELL_INTEGER, NULL, 0}, /* these two: over ranks */
    {"waited", CLI_CELL_NUMBER, NULL, 3},
};

/* One line of the result: a method on a shape. */
typedef struct measured {
    plsh_method method;
    int pass;
    int64_t n, dim, samples;
    plsh_head *head;
    plsh_attention attention;
    cli_attention *run;
    const plsh_plan *plan; /* its own */
    size_t bytes;          /* of its workspace */
    int64_t sent;          /* over ranks: bytes, the most of a rank */
    const struct arrays *arrays;
    cli_decoder decoder;
    double *seconds;
    double *waited; /* over ranks: seconds of it, the most of a rank */
    double *memory; /* decode: seconds of a plain read of as many bytes */
    int64_t pairs;
    double error;
} measured;

/* Arrays of one shape, shared by its lines. */
typedef struct arrays {
    int64_t n, dim;
    float *q, *k, *v, *o;
    void *stored[3];                    /* q, k and v in the type that a pass reads */
    float *lse, *d_o, *d_q, *d_k, *d_v; /* for backward, or NULL */
} arrays;

static void free_arrays(arrays *a) {
    free(a->q);
    free(a->k);
    free(a->v);
    free(a->o);
    for (int i = 0; i < 3; i++) free(a->stored[i]);
    free(a->lse);
    free(a->d_o);
    free(a->d_q);
    free(a->d_k);
    free(a->d_v);
    *a = (arrays){0};
}

/* [heads, n, dim]: 2^60 numbers at most, or there would be no plan. NULL: no memory. */
static float *normals(int64_t heads, int64_t n, int64_t dim, uint64_t seed) {
    const size_t count = (size_t)(heads * n * dim), bytes = count * sizeof(float);
    float *x = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (x != NULL) bench_fill_normal(x, count, seed);
    return x;
}

/* [heads, n, dim] floats as `type`, to which they are rounded. NULL: no memory. */
static void *stored_as(plsh_dtype type, float *x, int64_t heads, int64_t n, int64_t dim) {
    const size_t count = (size_t)(heads * n * dim);
    void *to = malloc(count * plsh_dtype_size(type));
    plsh_error error;
    if (to == NULL || plsh_dtype_from_float(type, to, x, count, &error) != PLSH_STATUS_OK ||
        plsh_dtype_to_float(type, to, x, count, &error) != PLSH_STATUS_OK) {
        free(to);
        return NULL;
    }
    return to;
}

static bool has_pass(const shape_options *shape, const char *name) {
    for (size_t i = 0; i < shape->passes.count; i++)
        if (strcmp(shape->passes.values[i], name) == 0) return true;
    return false;
}

static int make_arrays(const settings *options, arrays *out) {
    const shape_options *shape = &options->shape;
    int64_t n = out->n, dim = out->dim;
    int64_t kv = shape->kv_heads ? shape->kv_heads : shape->heads;
    uint64_t seed = 4 * options->common.seed;
    out->q = normals(shape->heads, n, dim, seed);
    out->k = normals(kv, n, dim, seed + 1);
    out->v = normals(kv, n, dim, seed + 2);
    out->o = normals(shape->heads, n, dim, seed + 3);
    bool there = out->q != NULL && out->k != NULL && out->v != NULL && out->o != NULL;
    if (there && (has_pass(shape, "forward") || has_pass(shape, "backward"))) {
        const plsh_dtype type = (plsh_dtype)shape->storage;
        out->stored[0] = stored_as(type, out->q, shape->heads, n, dim);
        out->stored[1] = stored_as(type, out->k, kv, n, dim);
        out->stored[2] = stored_as(type, out->v, kv, n, dim);
        for (int i = 0; i < 3; i++) there = there && out->stored[i] != NULL;
    }
    if (there && has_pass(shape, "backward")) {
        out->lse = normals(shape->heads, n, 1, seed);
        out->d_o = normals(shape->heads, n, dim, ~seed);
        out->d_q = normals(shape->heads, n, dim, seed);
        out->d_k = normals(kv, n, dim, seed);
        out->d_v = normals(kv, n, dim, seed);
        there = out->lse != NULL && out->d_o != NULL && out->d_q != NULL && out->d_k != NULL &&
                out->d_v != NULL;
    }
    if (there) return CLI_DONE;
    return cli_fail("out of memory for %lld heads of %lld x %lld", (long long)shape->heads,
                    (long long)n, (long long)dim);
}

static int make_heads(const settings *options, const cli_decay_list *decays,
                      const cli_labels *labels, measured *line) {
    const shape_options *shape = &options->shape;
    line->head = calloc((size_t)shape->heads, sizeof *line->head);
    if (line->head == NULL)
        return cli_fail("out of memory for %lld heads", (long long)shape->heads);
    for (int64_t h = 0; h < shape->heads; h++) {
        plsh_head *head = &line->head[h];
        const plsh_decay *decay = &decays->values[h];
        *head = cli_head_make(line->method, decay, &options->knobs);
        if (line->samples == 0) continue;
        int code = cli_partition_make(&options->partitions, labels, decay, line->samples,
                                      options->common.seed, (size_t)h, &head->partition);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

static int make_line(const settings *options, const cli_decay_list *decays,
                     const cli_labels *labels, measured *line) {
    const shape_options *shape = &options->shape;
    int code = make_heads(options, decays, labels, line);
    if (code != CLI_DONE) return code;
    line->attention = (plsh_attention){.heads = shape->heads,
                                       .kv_heads = shape->kv_heads,
                                       .queries = line->n,
                                       .keys = line->n,
                                       .head_dim = line->dim,
                                       .causal = shape->causal,
                                       .head = line->head,
                                       .head_count = shape->heads,
                                       .threads = (int)options->common.threads,
                                       .isa = options->common.isa};
    if (line->pass != DECODE) line->attention.dtype = (plsh_dtype)shape->storage;
    line->seconds = calloc(3 * (size_t)shape->reps, sizeof *line->seconds);
    line->memory = line->seconds + shape->reps;
    line->waited = line->memory + shape->reps;
    code = cli_attention_create(&line->attention, &line->run);
    if (code != CLI_DONE) return code;
    line->plan = cli_attention_plan(line->run);
    if (cli_rank_count() == 1) bench_roof_prepare(plsh_plan_isa(line->plan));
    line->bytes = line->pass == BACKWARD ? plsh_plan_backward_workspace(line->plan)
                                         : plsh_plan_workspace(line->plan);
    return line->seconds != NULL ? CLI_DONE : cli_fail("out of memory");
}

static void free_line(measured *line) {
    cli_attention_destroy(line->run);
    cli_decoder_free(&line->decoder);
    free(line->seconds);
    free(line->head);
}

/* The index of a word in its list of choices. The parser has checked that the list has it. */
static int index_of(const char *const *choices, const char *word) {
    int i = 0;
    while (choices[i] != NULL && strcmp(choices[i], word) != 0) i++;
    return i;
}

static void add_lines(const shape_options *shape, measured line, measured *lines, size_t *count) {
    for (size_t p = 0; p < shape->passes.count; p++) {
        line.pass = index_of(passes, shape->passes.values[p]);
        lines[(*count)++] = line;
    }
}

/* The lines of one shape: a line per method and pass, and per sample count for the sampled ones. */
static void list_lines(const shape_options *shape, const arrays *a, measured *lines,
                       size_t *count) {
    for (size_t m = 0; m < shape->methods.count; m++) {
        int method = index_of(plsh_method_names(), shape->methods.values[m]);
        bool sampled = plsh_method_is_sampled((plsh_method)method);
        for (size_t s = 0; s < (sampled ? shape->samples.count : 1); s++)
            add_lines(shape,
                      (measured){.method = (plsh_method)method,
                                 .n = a->n,
                                 .dim = a->dim,
                                 .samples = sampled ? shape->samples.values[s] : 0,
                                 .arrays = a},
                      lines, count);
    }
}

static void take_run(measured *line, const cli_run *run, int64_t rep) {
    if (rep >= 0) line->seconds[rep] = run->seconds;
    if (rep >= 0) line->waited[rep] = run->waited;
    line->pairs = run->stats.pairs;
    line->sent = run->bytes_sent;
}

static plsh_forward inputs_of(const arrays *a) {
    return (plsh_forward){
        .q = a->stored[0], .k = a->stored[1], .v = a->stored[2], .o = a->o, .lse = a->lse};
}

static int run_forward(measured *line, const arrays *a, int64_t rep) {
    plsh_forward io = inputs_of(a);
    cli_run run;
    int code = cli_attention_forward(line->run, &io, &run);
    if (code != CLI_DONE) return code;
    take_run(line, &run, rep);
    /* 16 rows per head are enough to show the error of a method, and take O(16 heads n dim)
     * operations. */
    if (rep < 0 && cli_rank() == 0)
        line->error = bench_max_error(&line->attention, a->q, a->k, a->v, a->o, 16);
    return CLI_DONE;
}

/* Its forward pass, for o and lse, then the backward pass, measured. */
static int run_backward(measured *line, const arrays *a, int64_t rep) {
    plsh_forward inputs = inputs_of(a);
    plsh_backward io = {.q = a->stored[0],
                        .k = a->stored[1],
                        .v = a->stored[2],
                        .o = a->o,
                        .lse = a->lse,
                        .d_o = a->d_o,
                        .d_q = a->d_q,
                        .d_k = a->d_k,
                        .d_v = a->d_v};
    cli_run run;
    int code = cli_attention_forward(line->run, &inputs, &run);
    if (code == CLI_DONE) code = cli_attention_backward(line->run, &io, &run);
    if (code != CLI_DONE) return code;
    take_run(line, &run, rep);
    if (rep < 0 && cli_rank() == 0)
        line->error =
            bench_max_gradient_error(&line->attention, a->q, a->k, a->v, a->d_o, a->d_q, 16);
    return CLI_DONE;
}

static int run_decode(measured *line, const arrays *a, int64_t rep, int storage) {
    cli_decoder *decoder = &line->decoder;
    if (rep < 0) {
        int code =
            cli_decoder_make(decoder, &line->attention, (plsh_dtype)storage, a->q, a->k, a->v);
        line->error = decoder->error;
        return code == CLI_DONE ? cli_decoder_run(decoder) : code;
    }
    int code = cli_decoder_run(decoder);
    line->seconds[rep] = decoder->seconds;
    line->memory[rep] = decoder->roof;
    line->pairs = decoder->pairs;
    line->bytes = decoder->bytes;
    return code;
}

static int run_line(measured *line, int64_t rep, int storage) {
    const arrays *a = line->arrays;
    if (line->pass == DECODE) return run_decode(line, a, rep, storage);
    return line->pass == BACKWARD ? run_backward(line, a, rep) : run_forward(line, a, rep);
}

/* The waiting time of the repetition whose time is the median (of two the lower one). */
static double median_wait(const measured *line, int64_t reps) {
    const double *s = line->seconds;
    for (int64_t i = 0; i < reps; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < reps; j++) before += s[j] < s[i] || (s[j] == s[i] && j < i);
        if (before == (reps - 1) / 2) return line->waited[i];
    }
    return NAN;
}

static void add_row(cli_table *table, measured *line, int64_t reps, double roof) {
    const double waited = median_wait(line, reps); /* before they are sorted */
    bench_times times = bench_summarise(line->seconds, (int)reps);
    double products = line->pass == BACKWARD ? 5 : 2;
    double flops = 2 * products * (double)line->dim * (double)line->pairs;
    double gflops = 1e-9 * flops / times.median;
    double share = gflops / roof;
    if (line->pass == DECODE)
        share = bench_summarise(line->memory, (int)reps).median / times.median;
    const cli_cell cells[] = {
        {.text = plsh_method_names()[line->method]},
        {.text = passes[line->pass]},
        {.integer = line->n},
        {.integer = line->dim},
        {.integer = line->samples},
        {.number = times.median},
        {.number = times.spread},
        {.number = gflops},
        {.number = share},
        {.integer = line->pairs},
        {.number = line->pass == DECODE ? NAN : plsh_plan_predicted_pairs(line->plan)},
        {.number = line->error},
        {.integer = (int64_t)line->bytes},
        {.integer = line->sent},
        {.number = waited},
    };
    cli_table_add(table, cells);
}

/* All measurements, interleaved: a slow moment of the machine affects all methods and all context
 * lengths alike, so their ratios hold. */
typedef struct session {
    cli_decay_list decays;
    cli_labels labels;
    arrays *shapes; /* [shape_count]: every n with every dim */
    size_t shape_count;
    measured *lines;
    size_t count;
    double *roofs; /* [reps] */
} session;

static int make_session(const settings *options, session *all) {
    const shape_options *shape = &options->shape;
    size_t dims = shape->dim.count, shapes = shape->n.count * dims;
    size_t most = shape->methods.count * shape->samples.count * shape->passes.count;
    all->shapes = calloc(shapes, sizeof *all->shapes);
    all->lines = calloc(shapes * most + 1, sizeof *all->lines);
    all->roofs = calloc((size_t)shape->reps, sizeof *all->roofs);
    if (all->shapes == NULL || all->lines == NULL || all->roofs == NULL)
        return cli_fail("out of memory");
    all->shape_count = shapes;
    int code = cli_labels_read(&options->partitions, &all->labels);
    if (code == CLI_DONE)
        code = cli_decays_make(&options->decays, (size_t)shape->heads, &all->decays);
    for (size_t i = 0; i < shapes; i++) {
        all->shapes[i].n = shape->n.values[i / dims];
        all->shapes[i].dim = shape->dim.values[i % dims];
        list_lines(shape, &all->shapes[i], all->lines, &all->count);
        if (code == CLI_DONE)
            code = cli_labels_check(&options->partitions, &all->labels, shape->heads,
                                    all->shapes[i].n);
    }
    for (size_t i = 0; code == CLI_DONE && i < all->count; i++)
        code = make_line(options, &all->decays, &all->labels, &all->lines[i]);
    for (size_t i = 0; code == CLI_DONE && i < shapes; i++)
        code = make_arrays(options, &all->shapes[i]);
    return code;
}

static void free_session(session *all) {
    for (size_t i = 0; i < all->count; i++) free_line(&all->lines[i]);
    for (size_t i = 0; i < all->shape_count; i++) free_arrays(&all->shapes[i]);
    free(all->lines);
    free(all->shapes);
    free(all->roofs);
    cli_decays_free(&all->decays);
    cli_labels_free(&all->labels);
}

/* All lines and the roof, repeated; rep = -1 warms them up. */
static int measure(const settings *options, session *all) {
    int threads = plsh_thread_count((int)options->common.threads);
    int64_t reps = options->shape.reps;
    double steps = (double)(reps + 1) * (double)all->count, done = 0;
    int code = CLI_DONE;
    cli_progress_begin(steps, "measurements");
    for (int64_t rep = -1; code == CLI_DONE && rep < reps; rep++) {
        double roof = bench_sgemm_gflops(threads) * cli_rank_count(); /* all at once */
        if (rep >= 0) all->roofs[rep] = roof;
        for (size_t i = 0; code == CLI_DONE && i < all->count; i++) {
            code = run_line(&all->lines[i], rep, options->shape.storage);
            cli_progress(++done);
        }
    }
    cli_progress_end();
    return code;
}

static int print_result(const settings *options, cli_table *table, double roof) {
    if (!options->common.json) {
        if (bench_roof_core() == NULL)
            printf("roof: unknown (no OpenBLAS here)\n");
        else
            printf("roof: %.1f GFLOP/s (OpenBLAS %s sgemm 2048^3, same threads, same run)\n", roof,
                   bench_roof_core());
        return cli_print_table(table);
    }
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_number(json, "roof_gflops", roof);
    cli_json_text(json, "roof_core", bench_roof_core());
    cli_table_json(table, json, "rows");
    return cli_document_end(json);
}

static int run_bench(const void *given) {
    const settings *options = given;
    int64_t reps = options->shape.reps;
    session all = {0};
    cli_table *table = NULL;
    plsh_error error;
    const size_t column_count = CLI_COUNT(columns) - (cli_rank_count() > 1 ? 0 : 2);
    if (cli_rank_count() > 1 && has_pass(&options->shape, "decode"))
        return cli_usage("--pass decode runs in one process; there are %d", cli_rank_count());
    int code = cli_ranks_agree(make_session(options, &all));
    if (code == CLI_DONE) code = measure(options, &all);
    if (code == CLI_DONE && cli_table_create(&table, columns, column_count, &error))
        code = cli_fail_error(&error);
    if (code == CLI_DONE) {
        double roof = bench_summarise(all.roofs, (int)reps).median;
        for (size_t i = 0; i < all.count; i++) add_row(table, &all.lines[i], reps, roof);
        code = print_result(options, table, roof);
    }
    cli_table_free(table);
    free_session(&all);
    return code;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "measures speed and error of the methods side by side",
    .text = "Runs attention on standard normal arrays and prints a row per method: the median "
            "time; the throughput as a share of the machine's roof (OpenBLAS sgemm of 2048^3 on "
            "the same threads in the same run); the number of (query, key) pairs scored and the "
            "predicted number, by which auto chooses its method (not for decode); the largest "
            "error against attention in double precision (16 rows per head; of dQ for the backward "
            "pass); and the bytes of workspace. Methods and lengths are interleaved, so that a "
            "slow moment of the machine affects all of them. spread is the interquartile range of "
            "the times divided by their median. A decode row measures one token after n tokens: "
            "its time, its pairs, the error of the last 16 of the n tokens, the bytes of the "
            "cache; its roof is the time to read the bytes of keys and values that it needs, "
            "measured interleaved with it. Over the ranks of plsh-mpi every rank holds the whole "
            "arrays, times are those of the slowest rank, and there are two more columns: the most "
            "bytes that a rank sent, and the most seconds that a rank waited.",
    .example = "plsh bench --n 1024 --heads 4 --reps 2 --causal\n"
               "plsh bench --pass decode --n 1024,4096 --heads 4 --sigma 16 --reps 2",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .over_ranks = true,
    .run = run_bench,
};
