/* cli: plsh error: the output's error against the number of samples, the paper's third curve. */
#include "cli/attention.h"
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/output.h"
#include "cli/positions.h"
#if PLSH_WITH_LM
#include "cli/lm/capture.h"
#endif

#include <math.h>
#include <stdlib.h>

typedef struct error_options {
    cli_integers samples;
    int64_t reps;
    int method;
    bool paper;
    const char *positions;
    const char *out;
} error_options;

typedef struct settings {
    error_options error;
#if PLSH_WITH_LM
    cli_capture_options capture;
#endif
    cli_problem problem;
} settings;

static const plsh_method sampled[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS, PLSH_METHOD_MEAN};

static const char *const *list_sampled(void) {
    static const char *names[CLI_COUNT(sampled) + 1];
    for (size_t i = 0; i < CLI_COUNT(sampled); i++) names[i] = plsh_method_names()[sampled[i]];
    return (const char *const *)names;
}

static const cli_option error_table[] = {
    {.name = "samples",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(error_options, samples),
     .value = "LIST",
     .help = "partitions per head; without it 1,10,100,1000, with --paper also 10000,100000 (with "
             "--labels: theirs)",
     .range = CLI_BETWEEN(1, 16777216)},
    {.name = "reps",
     .kind = CLI_INTEGER,
     CLI_MEMBER(error_options, reps),
     .value = "N",
     .help = "repetitions with other draws; 0 is 10, and 30 with --paper (with --labels: 1)",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 1000000)},
    {.name = "method",
     .kind = CLI_CHOICE,
     CLI_MEMBER(error_options, method),
     .value = "NAME",
     .help = "the sampled method",
     .fallback = "plsh",
     .choices = list_sampled},
    {.name = "paper",
     .kind = CLI_FLAG,
     CLI_MEMBER(error_options, paper),
     .help = "the paper's draws (binning, iid), sample counts and repetitions"},
    {.name = "positions",
     .kind = CLI_FILE,
     CLI_MEMBER(error_options, positions),
     .value = "FILE",
     .help = "where the rows are, .npy [n], [n, D] or [heads, n, D], D = 1 to 3: Euclidean "
             "distances instead of row numbers"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(error_options, out),
     .value = "FILE",
     .help = "also write the error of every head and repetition, tab separated"},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", error_table, settings, error),
#if PLSH_WITH_LM
    CLI_GROUP("Model", cli_capture_table, settings, capture),
#endif
    CLI_PROBLEM_GROUPS(settings, cli_paper_partitions_options),
};

/* One sigma and number of samples: sums over heads and repetitions. */
typedef struct cell {
    double sum, squares, most, seconds;
    int64_t count, pairs;
} cell;

typedef struct work {
    cli_arrays arrays; /* of the current layer, where they come from a model */
#if PLSH_WITH_LM
    cli_capture capture;
#endif
    size_t layers, layer; /* of a model that are measured, and the current one; otherwise 1, 0 */
    cli_decay_list decays;
    cli_labels labels;
    cli_positions positions;
    plsh_head *heads;
    float *exact, *o;
    cli_integers samples;
    int64_t reps;
    double done; /* runs */
    cell *cells; /* [layers][decays][samples] */
    cli_output out;
} work;

static size_t output_count(const work *w) {
    const plsh_attention *a = &w->arrays.attention;
    return (size_t)(a->heads * a->queries * a->value_dim);
}

/* The number of the current layer in the model; -1 for arrays. */
static int64_t layer_number(const work *w, size_t layer) {
#if PLSH_WITH_LM
    if (w->capture.count > 0) return w->capture.layers[layer];
#endif
    (void)w;
    (void)layer;
    return -1;
}

static cell *cell_at(const work *w, size_t layer, size_t i, size_t s) {
    return &w->cells[(layer * w->decays.count + i) * w->samples.count + s];
}

/* Runs attention of every head of the arrays under decay number i. */
static int attend(const settings *given, work *w, size_t i, int64_t samples, uint64_t seed,
                  plsh_method method, float *o, cli_run *run) {
    plsh_attention *a = &w->arrays.attention;
    for (size_t h = 0; h < (size_t)a->heads; h++) {
        w->heads[h] = (plsh_head){.method = method, .partition.decay = w->decays.values[i]};
        if (method == PLSH_METHOD_EXACT) continue;
        int code = cli_partition_make(&given->problem.partitions, &w->labels, &w->decays.values[i],
                                      samples, seed, h, &w->heads[h].partition);
        if (code != CLI_DONE) return code;
    }
    a->head = w->heads;
    a->head_count = a->heads;
    const plsh_forward arrays = {
        .q = w->arrays.q.data, .k = w->arrays.k.data, .v = w->arrays.v.data, .o = o};
    cli_attention *attention;
    int code = cli_attention_create(a, &attention);
    if (code == CLI_DONE) code = cli_attention_forward(attention, &arrays, run);
    cli_attention_destroy(attention);
    return code;
}

static double sigma_of(const work *w, size_t i) {
    const plsh_decay *decay = &w->decays.values[i];
    return decay->kind == PLSH_DECAY_ALIBI ? decay->a : NAN;
}

/* The larger of two; NaN if either is NaN (fmax would ignore it). */
static double larger(double most, double x) { return isnan(most) || x <= most ? most : x; }

/* Adds the largest difference of every head. */
static int compare(work *w, cell *to, size_t i, int64_t samples, int64_t rep) {
    const plsh_attention *a = &w->arrays.attention;
    const size_t each = (size_t)(a->queries * a->value_dim);
    int code = CLI_DONE;
    for (size_t h = 0; h < (size_t)a->heads && code == CLI_DONE; h++) {
        double most = 0;
        for (size_t x = h * each; x < (h + 1) * each; x++)
            most = larger(most, fabs((double)w->o[x] - (double)w->exact[x]));
        to->sum += most;
        to->squares += most * most;
        to->most = larger(to->most, most);
        to->count++;
        const int64_t layer = layer_number(w, w->layer);
        if (layer >= 0) code = cli_output_print(&w->out, "%lld\t", (long long)layer);
        if (code == CLI_DONE)
            code = cli_output_print(&w->out, "%g\t%lld\t%lld\t%zu\t%.6g\n", sigma_of(w, i),
                                    (long long)samples, (long long)rep, h, most);
    }
    return code;
}

static int measure_sigma(const settings *given, work *w, size_t i) {
    const cli_integers *samples = &w->samples;
    cli_run run;
    int code = attend(given, w, i, 0, 0, PLSH_METHOD_EXACT, w->exact, &run);
    for (size_t s = 0; s < samples->count && code == CLI_DONE; s++) {
        cell *to = cell_at(w, w->layer, i, s);
        for (int64_t rep = 0; rep < w->reps && code == CLI_DONE; rep++) {
            uint64_t seed = given->problem.common.seed + (uint64_t)rep;
            code = attend(given, w, i, samples->values[s], seed, sampled[given->error.method], w->o,
                          &run);
            if (code == CLI_DONE) code = compare(w, to, i, samples->values[s], rep);
            to->seconds += run.seconds;
            to->pairs = run.stats.pairs;
            cli_progress(w->done += 1);
        }
    }
    return code;
}

/* The numbers of samples and repetitions. Labels have a fixed number of samples and need one
 * repetition. */
static int plan_runs(const settings *given, work *w) {
    static int64_t counts[] = {1, 10, 100, 1000, 10000, 100000};
    const bool labels = given->problem.partitions.labels != NULL, paper = given->error.paper;
    w->samples = given->error.samples;
    w->reps = given->error.reps > 0 ? given->error.reps : labels ? 1 : paper ? 30 : 10;
    if (labels && (w->samples.count > 0 || w->reps > 1 || paper))
        return cli_usage("--labels fixes the number of samples and repetitions; leave out "
                         "--samples, --reps and --paper");
    if (labels)
        w->samples = (cli_integers){1, &w->labels.samples};
    else if (w->samples.count == 0)
        w->samples = (cli_integers){paper ? 6 : 4, counts};
    return CLI_DONE;
}

/* Takes the arrays from files, from random numbers or from a model. */
static int read_arrays(const settings *given, work *w) {
    const cli_problem *problem = &given->problem;
    w->layers = 1;
#if PLSH_WITH_LM
    if (given->capture.model != NULL && given->error.positions != NULL)
        return cli_usage("--positions are those of arrays; the tokens of a --model have row "
                         "numbers");
    if (given->capture.model != NULL) {
        int code =
            cli_capture_run(&given->capture, &problem->inputs, &problem->common, &w->capture);
        w->layers = w->capture.count;
        if (code == CLI_DONE) w->arrays = w->capture.arrays[0];
        return code;
    }
    if (cli_capture_check() != CLI_DONE) return CLI_USAGE;
#endif
    return cli_arrays_read(&problem->inputs, &problem->common, &w->arrays);
}

static int read_inputs(const settings *given, work *w) {
    const cli_problem *problem = &given->problem;
    const plsh_attention *a = &w->arrays.attention;
    int code = plan_runs(given, w);
    if (code == CLI_DONE) code = read_arrays(given, w);
    if (code == CLI_DONE)
        code =
            cli_positions_read(given->error.positions, NULL, &w->arrays.attention, &w->positions);
    if (code == CLI_DONE) code = cli_decays_make(&problem->decays, 0, &w->decays);
    if (code == CLI_DONE) code = cli_labels_read(&problem->partitions, &w->labels);
    if (code == CLI_DONE)
        code = cli_labels_check(&problem->partitions, &w->labels, a->heads, a->keys);
    return code;
}

static int prepare_error(const settings *given, work *w) {
    int code = read_inputs(given, w);
    w->out.path = given->error.out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->out, 1);
    if (code != CLI_DONE) return code;
    w->heads = calloc((size_t)w->arrays.attention.heads, sizeof *w->heads);
    w->exact = calloc(output_count(w) + 1, sizeof *w->exact);
    w->o = calloc(output_count(w) + 1, sizeof *w->o);
    w->cells = calloc(w->layers * w->decays.count * w->samples.count + 1, sizeof *w->cells);
    if (w->heads == NULL || w->exact == NULL || w->o == NULL || w->cells == NULL)
        return cli_fail("out of memory for %zu numbers of output", output_count(w));
    return cli_output_print(&w->out, "%ssigma\tsamples\trep\thead\terror\n",
                            layer_number(w, 0) >= 0 ? "layer\t" : "");
}

static int measure(const settings *given, work *w) {
    int code = CLI_DONE;
    const size_t cells = w->layers * w->decays.count * w->samples.count;
    cli_progress_begin((double)cells * (double)w->reps, "runs");
    for (w->layer = 0; w->layer < w->layers && code == CLI_DONE; w->layer++) {
#if PLSH_WITH_LM
        if (w->capture.count > 0) w->arrays = w->capture.arrays[w->layer];
#endif
        for (size_t i = 0; i < w->decays.count && code == CLI_DONE; i++)
            code = measure_sigma(given, w, i);
    }
    cli_progress_end();
    return code == CLI_DONE ? cli_outputs_commit(&w->out, 1) : code;
}

/* ---- printing -------------------------------------------------------------------------------- */

static const cli_column columns[] = {
    {.name = "layer", .kind = CLI_CELL_INTEGER},
    {.name = "sigma", .kind = CLI_CELL_NUMBER},
    {.name = "samples", .kind = CLI_CELL_INTEGER},
    {.name = "output_mean", .kind = CLI_CELL_NUMBER, .heading = "|T* - T~|max", .digits = 4},
    {.name = "output_std", .kind = CLI_CELL_NUMBER, .heading = "+-", .digits = 2},
    {.name = "output_max", .kind = CLI_CELL_NUMBER, .heading = "largest", .digits = 4},
    {.name = "keys_per_query", .kind = CLI_CELL_NUMBER, .heading = "keys/query", .digits = 4},
    {.name = "seconds", .kind = CLI_CELL_NUMBER, .digits = 3},
};

static void add_row(const work *w, size_t layer, size_t i, size_t s, cli_table *table) {
    const cell *c = cell_at(w, layer, i, s);
    const int64_t number = layer_number(w, layer);
    const plsh_attention *a = &w->arrays.attention;
    const double n = (double)c->count, mean = c->sum / n;
    const double variance = n > 1 ? larger(0, (c->squares - n * mean * mean) / (n - 1)) : 0;
    cli_cell row[] = {{.integer = number},
                      {.number = sigma_of(w, i)},
                      {.integer = w->samples.values[s]},
                      {.number = mean},
                      {.number = sqrt(variance)},
                      {.number = c->most},
                      {.number = (double)c->pairs / (double)(a->heads * a->queries)},
                      {.number = c->seconds / (double)w->reps}};
    cli_table_add(table, row + (number < 0));
}

static int print_json(const settings *given, const work *w, const cli_table *table) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
#if PLSH_WITH_LM
    if (w->capture.count > 0) cli_json_text(json, "attention", w->capture.described);
#endif
    cli_json_text(json, "method", list_sampled()[given->error.method]);
    cli_partitions_json(&given->problem.partitions, json);
    cli_json_boolean(json, "causal", given->problem.inputs.causal);
    cli_json_integer(json, "reps", w->reps);
    cli_table_json(table, json, "rows");
    return cli_document_end(json);
}

static int print_result(const settings *given, const work *w) {
    cli_table *table;
    plsh_error error;
    const size_t skip = layer_number(w, 0) < 0; /* arrays have no layer */
    if (cli_table_create(&table, columns + skip, CLI_COUNT(columns) - skip, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    for (size_t l = 0; l < w->layers; l++)
        for (size_t i = 0; i < w->decays.count; i++)
            for (size_t s = 0; s < w->samples.count; s++) add_row(w, l, i, s, table);
    int code = given->problem.common.json ? print_json(given, w, table) : cli_print_table(table);
    cli_table_free(table);
    return code;
}

static int run_error(const void *given) {
    settings options = *(const settings *)given;
    work w = {0};
    int code = cli_partitions_default(&options.problem.partitions, options.error.paper,
                                      options.error.positions != NULL);
    if (code == CLI_DONE) code = prepare_error(&options, &w);
    if (code == CLI_DONE) code = measure(&options, &w);
    if (code == CLI_DONE) code = print_result(&options, &w);
    cli_outputs_abandon(&w.out, 1);
#if PLSH_WITH_LM
    if (w.capture.count > 0) w.arrays = (cli_arrays){0}; /* one of the capture's */
    cli_capture_free(&w.capture);
#endif
    cli_arrays_free(&w.arrays);
    cli_decays_free(&w.decays);
    cli_labels_free(&w.labels);
    cli_positions_free(&w.positions);
    void *all[] = {w.heads, w.exact, w.o, w.cells};
    for (int i = 0; i < 4; i++) free(all[i]);
    return code;
}

const cli_command cli_command_error = {
    .name = "error",
    .summary = "the error of sampled attention's output against the number of samples",
    .text = "Measures ||T* - T~*||_max, the largest entry of the difference between exact "
            "attention and attention under the mean of s partitions, for every sigma and number of "
            "samples: the third curve of the paper's figure. Every sigma is given to all heads of "
            "the arrays; mean and standard deviation are over heads and repetitions. Repetition r "
            "has the seed --seed + r. Partitions are integer and stratified by default; --paper "
            "takes the paper's. With --positions the rows are points, and the partitions cells of "
            "hyperplanes. With --model the arrays are q, k and v of its layers on a text, "
            "and every layer has its own rows in the table.",
    .example = "plsh error --random 2,500,16 --sigma 4,32 --samples 1,10,100 --reps 3 --causal",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_error,
};
