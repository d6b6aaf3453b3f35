/* cli: plsh attend: attention on arrays. */
#include "cli/attention.h"
#include "cli/commands.h"
#include "cli/gradients.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/output.h"
#include "cli/positions.h"
#include "cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct attend_options {
    int method;
    int64_t samples, reps;
    const char *out, *lse, *certify, *grid, *positions, *query_positions;
    bool check;
} attend_options;

typedef struct settings {
    attend_options attend;
    cli_knobs knobs;
    cli_gradients gradients;
    cli_problem problem;
} settings;

static const cli_option attend_table[] = {
    {.name = "method",
     .kind = CLI_CHOICE,
     CLI_MEMBER(attend_options, method),
     .value = "NAME",
     .help = "attention method",
     .fallback = "exact",
     .choices = plsh_method_names},
    {.name = "samples",
     .kind = CLI_INTEGER,
     CLI_MEMBER(attend_options, samples),
     .value = "S",
     .help = "plsh, masks, mean: partitions per head",
     .fallback = "20",
     .range = CLI_BETWEEN(1, 16777216)},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(attend_options, out),
     .value = "FILE",
     .help = "the output, float32 .npy [heads, n, value dim]"},
    {.name = "lse",
     .kind = CLI_FILE,
     CLI_MEMBER(attend_options, lse),
     .value = "FILE",
     .help = "the log-sum-exp of every row, [heads, n]"},
    {.name = "certify",
     .kind = CLI_FILE,
     CLI_MEMBER(attend_options, certify),
     .value = "FILE",
     .help = "a proven bound on the error of every row against the untruncated bias, [heads, n]"},
    {.name = "grid",
     .kind = CLI_TEXT,
     CLI_MEMBER(attend_options, grid),
     .value = "HxW",
     .help = "plsh, masks, mean: the tokens lie on a grid, row by row, at L1 distances; any "
             "number of sides up to 8"},
    {.name = "positions",
     .kind = CLI_FILE,
     CLI_MEMBER(attend_options, positions),
     .value = "FILE",
     .help = "where the keys are, .npy [n], [n, D] or [heads, n, "
             "D], D = 1 to 3: Euclidean distances instead of row numbers; NaN is no position"},
    {.name = "query-positions",
     .kind = CLI_FILE,
     CLI_MEMBER(attend_options, query_positions),
     .value = "FILE",
     .help = "the same of the queries; without it they are the last keys"},
    {.name = "check",
     .kind = CLI_FLAG,
     CLI_MEMBER(attend_options, check),
     .help = "refuse NaN and infinities in the inputs"},
    {.name = "reps",
     .kind = CLI_INTEGER,
     CLI_MEMBER(attend_options, reps),
     .value = "N",
     .help = "repetitions; the fastest is reported",
     .fallback = "1",
     .range = CLI_BETWEEN(1, 1000000)},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", attend_table, settings, attend),
    CLI_GROUP("Methods", cli_knobs_options, settings, knobs),
    CLI_GROUP("Gradients", cli_gradients_options, settings, gradients),
    CLI_PROBLEM_GROUPS(settings, cli_points_partitions_options),
};

enum { OUT, LSE, CERTIFY, GRADIENTS, OUTPUTS = GRADIENTS + CLI_GRADIENTS };
_Static_assert((int)OUTPUTS <= (int)CLI_OUTPUTS_MOST, "a signal removes all of them");

typedef struct work {
    cli_arrays arrays;
    cli_decay_list decays;
    cli_labels labels;
    cli_positions positions;
    plsh_head *heads;
    cli_attention *attention;
    const plsh_plan *plan; /* its own */
    float *o, *lse, *certificate;
    plsh_npy d_o;
    cli_run run, backward;
    cli_output outputs[OUTPUTS];
} work;

static int make_head(const settings *given, work *w, size_t h) {
    const attend_options *options = &given->attend;
    const plsh_decay *decay = &w->decays.values[h];
    w->heads[h] = cli_head_make(options->method, decay, &given->knobs);
    if (!plsh_method_is_sampled((plsh_method)options->method)) return CLI_DONE;
    return cli_partition_make(&given->problem.partitions, &w->labels, decay, options->samples,
                              given->problem.common.seed, h, &w->heads[h].partition);
}

static int check_usage(const settings *given) {
    if ((given->gradients.d_positions != NULL || given->gradients.d_query_positions != NULL) &&
        given->attend.positions == NULL)
        return cli_usage("--dpositions and --dquery-positions need --positions");
    if (given->gradients.d_query_positions != NULL && given->attend.query_positions == NULL)
        return cli_usage("--dquery-positions needs --query-positions; without these the queries "
                         "are the last keys, and --dpositions has both gradients");
    if (given->attend.grid != NULL && given->attend.positions != NULL)
        return cli_usage("--grid and --positions exclude each other");
    if (given->attend.grid == NULL) return CLI_DONE;
    if (!plsh_method_is_sampled((plsh_method)given->attend.method) ||
        given->problem.partitions.labels != NULL)
        return cli_usage("--grid needs --method plsh, masks or mean, and no --labels");
    if (given->gradients.d_decay != NULL || given->attend.certify != NULL)
        return cli_usage("--ddecay and --certify need positions on one line, not on a --grid");
    return CLI_DONE;
}

/* Labels from a file, or made for a grid. */
static int read_labels(const settings *given, work *w) {
    const attend_options *options = &given->attend;
    const cli_partitions *partitions = &given->problem.partitions;
    const plsh_attention *a = &w->arrays.attention;
    if (options->grid == NULL) {
        int code = cli_labels_read(partitions, &w->labels);
        return code == CLI_DONE ? cli_labels_check(partitions, &w->labels, a->heads, a->keys)
                                : code;
    }
    cli_grid_sets sets = {partitions, &w->decays, options->samples, given->problem.common.seed};
    return cli_labels_grid(options->grid, a->keys, &sets, &w->labels);
}

static int open_outputs(const settings *given, work *w) {
    const char *paths[OUTPUTS] = {given->attend.out,
                                  given->attend.lse,
                                  given->attend.certify,
                                  given->gradients.d_q,
                                  given->gradients.d_k,
                                  given->gradients.d_v,
                                  given->gradients.d_decay,
                                  given->gradients.d_positions,
                                  given->gradients.d_query_positions};
    for (int i = 0; i < OUTPUTS; i++) w->outputs[i].path = paths[i];
    return cli_outputs_open(w->outputs, OUTPUTS);
}

static int read_inputs(const settings *given, work *w) {
    const cli_problem *problem = &given->problem;
    const plsh_attention *a = &w->arrays.attention;
    int code = check_usage(given);
    if (code == CLI_DONE) code = cli_arrays_read(&problem->inputs, &problem->common, &w->arrays);
    if (code == CLI_DONE)
        code = cli_positions_read(given->attend.positions, given->attend.query_positions,
                                  &w->arrays.attention, &w->positions);
    if (code == CLI_DONE) code = cli_gradients_read(&given->gradients, a, &w->d_o);
    if (code == CLI_DONE) code = cli_decays_make(&problem->decays, (size_t)a->heads, &w->decays);
    return code == CLI_DONE ? read_labels(given, w) : code;
}

static int prepare_attend(const settings *given, work *w) {
    int code = read_inputs(given, w);
    if (code == CLI_DONE) code = open_outputs(given, w);
    if (code != CLI_DONE) return code;
    plsh_attention *a = &w->arrays.attention;
    const size_t heads = (size_t)a->heads, rows = heads * (size_t)a->queries;
    w->heads = calloc(heads, sizeof *w->heads);
    w->o = calloc(rows * (size_t)a->value_dim + 1, sizeof *w->o);
    const bool needs_lse = given->attend.lse != NULL || cli_gradients_asked(&given->gradients);
    if (needs_lse) w->lse = calloc(rows + 1, sizeof *w->lse);
    if (given->attend.certify != NULL) w->certificate = calloc(rows + 1, sizeof *w->certificate);
    if (w->heads == NULL || w->o == NULL || (needs_lse && w->lse == NULL) ||
        (given->attend.certify != NULL && w->certificate == NULL))
        return cli_fail("out of memory for %zu rows of output", rows);
    for (size_t h = 0; code == CLI_DONE && h < heads; h++) code = make_head(given, w, h);
    a->head = w->heads;
    a->head_count = a->heads;
    a->check_finite = given->attend.check;
    return code;
}

/* Inputs and a plan, on all ranks. */
static int begin(const settings *given, work *w) {
    int code = cli_ranks_agree(prepare_attend(given, w));
    if (code == CLI_DONE) code = cli_attention_create(&w->arrays.attention, &w->attention);
    if (code == CLI_DONE) w->plan = cli_attention_plan(w->attention);
    return code;
}

static int save(work *w) {
    const plsh_attention *a = &w->arrays.attention;
    const int64_t shape[] = {a->heads, a->queries, a->value_dim};
    const float *data[] = {w->o, w->lse, w->certificate};
    int code = CLI_DONE;
    for (int i = OUT; i <= CERTIFY && code == CLI_DONE; i++)
        code =
            cli_output_array(&w->outputs[i], PLSH_DTYPE_FLOAT32, i == OUT ? 3 : 2, shape, data[i]);
    return code == CLI_DONE ? cli_outputs_commit(w->outputs, OUTPUTS) : code;
}

/* ---- printing -------------------------------------------------------------------------------- */

static const cli_column columns[] = {
    {.name = "head", .kind = CLI_CELL_INTEGER},
    {.name = "sigma", .kind = CLI_CELL_NUMBER},
    {.name = "method", .kind = CLI_CELL_TEXT},
    {.name = "error_bound", .kind = CLI_CELL_NUMBER, .heading = "error at most", .digits = 3},
    {.name = "reason", .kind = CLI_CELL_TEXT},
    {.name = "design", .kind = CLI_CELL_TEXT}, /* with --design auto */
};

static double largest(const work *w, int64_t head) {
    if (w->certificate == NULL) return NAN;
    double most = 0;
    const int64_t rows = w->arrays.attention.queries;
    for (int64_t i = 0; i < rows && !isnan(most); i++) {
        double x = (double)w->certificate[head * rows + i];
        if (!(x <= most)) most = x;
    }
    return most;
}

static int fill_table(const settings *given, const work *w, cli_table **table) {
    plsh_error error;
    const bool automatic = given->problem.partitions.design == PLSH_DESIGN_AUTO;
    if (cli_table_create(table, columns, CLI_COUNT(columns) - !automatic, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    for (int64_t h = 0; h < w->arrays.attention.heads; h++) {
        const char *reason;
        plsh_head head = plsh_plan_head(w->plan, h, &reason);
        const plsh_decay *decay = &head.partition.decay;
        bool alibi = decay->kind == PLSH_DECAY_ALIBI && decay->a > 0;
        cli_cell row[] = {{.integer = h},
                          {.number = alibi ? decay->a : NAN},
                          {.text = plsh_method_names()[head.method]},
                          {.number = largest(w, h)},
                          {.text = reason},
                          {.text = plsh_method_is_sampled(head.method)
                                       ? plsh_design_names()[head.partition.design]
                                       : NULL}};
        cli_table_add(*table, row);
    }
    return CLI_DONE;
}

static int print_json(const settings *given, const work *w, const cli_table *table) {
    const plsh_attention *a = &w->arrays.attention;
    const double bound = w->certificate != NULL ? w->run.stats.error_bound : NAN;
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "method", plsh_method_names()[given->attend.method]);
    cli_json_integer(json, "queries", a->queries);
    cli_json_integer(json, "keys", a->keys);
    cli_json_number(json, "seconds", w->run.seconds);
    cli_json_integer(json, "pairs", w->run.stats.pairs);
    if (cli_gradients_asked(&given->gradients)) {
        cli_json_number(json, "backward_seconds", w->backward.seconds);
        cli_json_integer(json, "backward_pairs", w->backward.stats.pairs);
    }
    cli_json_text(json, "certificate", given->attend.certify);
    cli_json_number(json, "error_bound", bound);
    if (cli_rank_count() > 1) {
        cli_json_integer(json, "ranks", cli_rank_count());
        cli_json_integer(json, "bytes_sent", w->run.bytes_sent);
        cli_json_number(json, "waited", w->run.waited);
    }
    cli_json_text(json, "isa", plsh_plan_isa(w->plan));
    cli_table_json(table, json, "heads");
    return cli_document_end(json);
}

static int print_result(const settings *given, const work *w) {
    cli_table *table = NULL;
    int code = fill_table(given, w, &table);
    if (code == CLI_DONE && given->problem.common.json) {
        code = print_json(given, w, table);
    } else if (code == CLI_DONE) {
        const double rows = (double)(w->arrays.attention.heads * w->arrays.attention.queries);
        code = cli_print_table(table);
        printf("%lld pairs scored, %.4g per query and head, in %.4g s\n",
               (long long)w->run.stats.pairs, rows > 0 ? (double)w->run.stats.pairs / rows : 0,
               w->run.seconds);
        if (cli_gradients_asked(&given->gradients))
            printf("gradients: %lld pairs in %.4g s\n", (long long)w->backward.stats.pairs,
                   w->backward.seconds);
        if (cli_rank_count() > 1)
            printf("%d ranks; forward, a rank sent at most %lld bytes and waited %.4g s\n",
                   cli_rank_count(), (long long)w->run.bytes_sent, w->run.waited);
    }
    cli_table_free(table);
    return code;
}

static int forward(const settings *given, work *w) {
    double fastest = INFINITY;
    int code = CLI_DONE;
    const plsh_forward arrays = {.q = w->arrays.q.data,
                                 .k = w->arrays.k.data,
                                 .v = w->arrays.v.data,
                                 .o = w->o,
                                 .lse = w->lse,
                                 .certificate = w->certificate};
    for (int64_t i = 0; code == CLI_DONE && i < given->attend.reps; i++) {
        code = cli_attention_forward(w->attention, &arrays, &w->run);
        fastest = fmin(fastest, w->run.seconds);
    }
    w->run.seconds = fastest;
    return code;
}

static int backward(const settings *given, work *w) {
    if (!cli_gradients_asked(&given->gradients)) return CLI_DONE;
    plsh_backward inputs = {.q = w->arrays.q.data,
                            .k = w->arrays.k.data,
                            .v = w->arrays.v.data,
                            .o = w->o,
                            .lse = w->lse,
                            .d_o = w->d_o.data};
    const cli_gradients_call call = {&w->arrays, &w->positions, w->attention, &inputs};
    return cli_gradients_run(w->outputs + GRADIENTS, &call, &w->backward);
}

static int run_attend(const void *given) {
    settings settled = *(const settings *)given;
    const settings *options = &settled;
    work w = {0};
    int code = cli_partitions_default(&settled.problem.partitions, false,
                                      settled.attend.positions != NULL);
    if (code == CLI_DONE) code = begin(options, &w);
    if (code == CLI_DONE) code = forward(options, &w);
    if (code == CLI_DONE) code = backward(options, &w);
    if (code == CLI_DONE) code = save(&w);
    if (code == CLI_DONE) code = print_result(options, &w);
    cli_outputs_abandon(w.outputs, OUTPUTS);
    plsh_npy_free(&w.d_o);
    cli_attention_destroy(w.attention);
    cli_arrays_free(&w.arrays);
    cli_decays_free(&w.decays);
    cli_labels_free(&w.labels);
    cli_positions_free(&w.positions);
    float *arrays[] = {w.o, w.lse, w.certificate};
    for (int i = 0; i < 3; i++) free(arrays[i]);
    free(w.heads);
    return code;
}

const cli_command cli_command_attend = {
    .name = "attend",
    .summary = "attention with a positional bias on arrays",
    .text =
        "Computes attention on the arrays of --q, --k and --v and writes the output. Optional "
        "outputs are the log-sum-exp of every row and a certificate: a proven bound on the largest "
        "error of the row against the full, untruncated bias, rounding included. With --do, the "
        "gradient of the "
        "output, it also computes the gradients of the arrays and of the bias. Methods: dense "
        "applies the bias in quadratic time, exact in near-linear time; plsh uses the mean of "
        "--samples partitions, in one fused computation; masks computes the same one mask at a "
        "time, by the paper's algorithm; mean averages the outputs of single masks; window "
        "truncates the bias; fixed has equal blocks and no bias; none has no bias; auto chooses "
        "the cheapest method that meets --eps for any data, and reports its choice and the reason. "
        "Under mpirun the ranks of plsh-mpi share the rows; every rank holds the whole arrays.",
    .example = "plsh attend --random 8,2000,64 --causal --method auto\n"
               "plsh attend --random 2,1000,32 --sigma 4,64 --method plsh --samples 64 "
               "--out o.npy --certify bound.npy\n"
               "plsh attend --random 1,1024,32 --grid 32x32 --sigma 4 --method plsh",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .over_ranks = true,
    .run = run_attend,
};
