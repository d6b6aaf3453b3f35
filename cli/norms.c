/* cli: plsh norms: norms of L* - M~, compared with the theorem and the published figure. */
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/moments.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/positions.h"
#include "cli/published.h"

#include "base/clock.h"
#include "bench/bench.h"
#include "plsh/theory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct norms_options {
    int64_t n;
    cli_integers samples;
    int64_t reps;
    double delta;
    double tolerance;
    bool paper;
    bool timing;
    const char *positions;
    const char *out;
} norms_options;

typedef struct settings {
    norms_options norms;
    cli_decays decays;
    cli_partitions partitions;
    cli_common common;
} settings;

static const cli_option norms_table[] = {
    {.name = "n",
     .kind = CLI_INTEGER,
     CLI_MEMBER(norms_options, n),
     .value = "N",
     .help =
         "positions; without it 4096, and 4250 with --paper (with --labels and --positions: all "
         "of theirs)",
     .range = CLI_BETWEEN(1, 2147483647)},
    {.name = "samples",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(norms_options, samples),
     .value = "LIST",
     .help = "partitions per mean; without it 1,10,100,1000, with --paper also 10000,100000",
     .range = CLI_BETWEEN(1, 2147483647)},
    {.name = "reps",
     .kind = CLI_INTEGER,
     CLI_MEMBER(norms_options, reps),
     .value = "N",
     .help = "repetitions with other draws; 0 is 10, and 30 with --paper",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 1000000000)},
    {.name = "delta",
     .kind = CLI_REAL,
     CLI_MEMBER(norms_options, delta),
     .value = "X",
     .help = "probability with which a bound may fail",
     .fallback = "0.01",
     .range = CLI_INSIDE(0, 1)},
    {.name = "tolerance",
     .kind = CLI_REAL,
     CLI_MEMBER(norms_options, tolerance),
     .value = "X",
     .help = "relative tolerance of the spectral norm",
     .fallback = "1e-6",
     .range = CLI_BETWEEN(1e-14, 0.5)},
    {.name = "paper",
     .kind = CLI_FLAG,
     CLI_MEMBER(norms_options, paper),
     .help =
         "the paper's draws (binning, iid) and counts, compared with its published bands; points "
         "outside are listed"},
    {.name = "timing",
     .kind = CLI_FLAG,
     CLI_MEMBER(norms_options, timing),
     .help = "also the seconds per repetition"},
    {.name = "positions",
     .kind = CLI_FILE,
     CLI_MEMBER(norms_options, positions),
     .value = "FILE",
     .help =
         "points instead of row numbers, and cells of hyperplanes: .npy [n], [n, D] or [sigmas, "
         "n, D], D = 1 to 3; takes 8 n^2 bytes, and O(n^3) time for bounds up to n = 4096"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(norms_options, out),
     .value = "FILE",
     .help = "also write the single repetitions, tab separated"},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", norms_table, settings, norms),
    CLI_GROUP("Bias", cli_decays_options, settings, decays),
    CLI_GROUP("Partitions", cli_paper_partitions_options, settings, partitions),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct norms_cell {
    plsh_decay decay;
    plsh_design design;
    double sigma; /* NAN for decays other than ALiBi */
    int64_t samples;
    cli_moments spectral, max;
    int64_t largest;
    plsh_bounds bounds;  /* at delta; NAN: none is known */
    double bound;        /* the spectral one of the last repetition */
    double block_of_all; /* exceeded by the largest of all repetitions with probability delta */
    int64_t beyond_spectral, beyond_max, beyond_block; /* repetitions that exceed them */
    double seconds;
} norms_cell;

typedef struct norms_work {
    int64_t n, reps;
    cli_decay_list decays;
    cli_labels labels;
    cli_points points; /* dim = 0: row numbers */
    norms_cell *cells;
    size_t count;
    cli_output out;
} norms_work;

/* The spectral bounds of a stratified set are those of the widths it has drawn: every repetition
 * has its own, and the row prints the largest. */
static int follow_bounds(const plsh_partition *set, double delta, int64_t n, norms_cell *cell) {
    plsh_error error;
    plsh_bounds own = cell->bounds;
    if (set->design == PLSH_DESIGN_STRATIFIED && set->scheme == PLSH_SCHEME_INTEGER &&
        plsh_bounds_find(set, n, delta, &own, &error))
        return cli_fail_error(&error);
    cell->bound = own.spectral;
    if (cell->spectral.count == 1) cell->bounds = own;
    cell->bounds.spectral = fmax(cell->bounds.spectral, own.spectral);
    cell->bounds.spectral_expectation =
        fmax(cell->bounds.spectral_expectation, own.spectral_expectation);
    return CLI_DONE;
}

/* The norms of a set: over row numbers, or over the points of its decay. */
static plsh_status measure_set(const norms_work *work, const plsh_partition *set, size_t head,
                               const plsh_norms_options *options, plsh_norms *norms,
                               plsh_error *error) {
    if (work->points.dim == 0) return plsh_norms_measure(set, work->n, options, norms, error);
    return plsh_cells_norms(set, cli_points_of(&work->points, head), options, norms, error);
}

static plsh_status find_bounds(const norms_work *work, const plsh_partition *set, size_t head,
                               double delta, plsh_bounds *bounds, plsh_error *error) {
    if (work->points.dim == 0) return plsh_bounds_find(set, work->n, delta, bounds, error);
    return plsh_cells_bounds(set, cli_points_of(&work->points, head), delta, 0, bounds, error);
}

static int measure_once(const settings *given, norms_work *work, norms_cell *cell, size_t head,
                        int64_t rep) {
    plsh_partition set;
    plsh_norms norms;
    plsh_error error;
    plsh_norms_options options = {.tolerance = given->norms.tolerance,
                                  .threads = (int)given->common.threads};
    int code = cli_partition_make(
        &given->partitions, &work->labels, &cell->decay, cell->samples,
        cli_partition_seed(given->common.seed, &cell->decay, cell->samples), head, &set);
    if (code != CLI_DONE) return code;
    if (given->partitions.labels == NULL) set.head = (uint32_t)rep;
    double begin = plsh_clock_seconds();
    if (measure_set(work, &set, head, &options, &norms, &error) != PLSH_STATUS_OK)
        return given->partitions.labels == NULL
                   ? cli_fail_error(&error)
                   : cli_fail("%s: %s", given->partitions.labels, error.message);
    cell->seconds += plsh_clock_seconds() - begin;
    cli_moments_add(&cell->spectral, norms.spectral);
    cli_moments_add(&cell->max, norms.max);
    code = follow_bounds(&set, given->norms.delta, work->n, cell);
    if (code != CLI_DONE) return code;
    if (norms.largest_block > cell->largest) cell->largest = norms.largest_block;
    cell->beyond_spectral += norms.spectral > cell->bound;
    cell->beyond_max += norms.max > cell->bounds.max;
    cell->beyond_block += (double)norms.largest_block > cell->bounds.largest_block;
    return cli_output_print(&work->out, "%.9g\t%lld\t%lld\t%.9g\t%.9g\t%lld\n", cell->sigma,
                            (long long)cell->samples, (long long)rep, norms.spectral, norms.max,
                            (long long)norms.largest_block);
}

static int measure(const settings *given, norms_work *work) {
    int code = CLI_DONE;
    cli_progress_begin((double)work->count * (double)work->reps, "repetitions");
    for (size_t c = 0; c < work->count && code == CLI_DONE; c++)
        for (int64_t rep = 0; rep < work->reps && code == CLI_DONE; rep++) {
            code = measure_once(given, work, &work->cells[c], c * work->decays.count / work->count,
                                rep);
            cli_progress((double)c * (double)work->reps + (double)rep + 1);
        }
    cli_progress_end();
    return code;
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* A cell per decay and sample count. */
static int make_cells(const settings *given, norms_work *work) {
    static int64_t counts[] = {1, 10, 100, 1000, 10000, 100000};
    cli_integers samples = given->norms.samples;
    if (work->labels.heads > 0)
        samples = (cli_integers){1, &work->labels.samples};
    else if (samples.count == 0)
        samples = (cli_integers){given->norms.paper ? 6 : 4, counts};
    work->count = work->decays.count * samples.count;
    work->cells = calloc(work->count, sizeof *work->cells);
    if (work->cells == NULL) return cli_fail("out of memory for %zu means", work->count);
    for (size_t c = 0; c < work->count; c++) {
        plsh_decay decay = work->decays.values[c / samples.count];
        bool alibi = decay.kind == PLSH_DECAY_ALIBI && decay.limit == 0;
        work->cells[c].decay = decay;
        work->cells[c].sigma = alibi ? decay.a : NAN;
        work->cells[c].samples = samples.values[c % samples.count];
    }
    return CLI_DONE;
}

/* The bounds that hold for the sets that will be drawn. */
static int make_bounds(const settings *given, norms_work *work) {
    for (size_t c = 0; c < work->count; c++) {
        norms_cell *cell = &work->cells[c];
        plsh_partition set;
        plsh_error error;
        int code = cli_partition_make(&given->partitions, &work->labels, &cell->decay,
                                      cell->samples, 1, 0, &set);
        if (code != CLI_DONE) return code;
        plsh_bounds all;
        cell->design = set.design;
        const size_t head = c * work->decays.count / work->count;
        const double delta = given->norms.delta;
        if (find_bounds(work, &set, head, delta, &cell->bounds, &error) ||
            find_bounds(work, &set, head, delta / (double)work->reps, &all, &error))
            return cli_fail_error(&error);
        cell->block_of_all = all.largest_block;
    }
    return CLI_DONE;
}

static int prepare_norms(const settings *given, norms_work *work) {
    const norms_options *options = &given->norms;
    bool labels = given->partitions.labels != NULL;
    if (labels && (options->samples.count > 0 || options->reps > 1 || options->paper))
        return cli_usage("--labels fixes the number of samples and repetitions; leave out "
                         "--samples, --reps and --paper");
    if (options->positions != NULL && options->paper)
        return cli_usage("--paper is about row numbers; leave out --positions");
    int code = cli_labels_read(&given->partitions, &work->labels);
    if (code == CLI_DONE && options->positions != NULL)
        code = cli_points_read(options->positions, NULL, &work->points);
    if (code == CLI_DONE)
        code = cli_decays_make(&given->decays, (size_t)work->labels.heads, &work->decays);
    if (code == CLI_DONE) code = make_cells(given, work);
    if (code != CLI_DONE) return code;
    if (work->points.sets > 1 && (size_t)work->points.sets != work->decays.count)
        return cli_fail("%s: %lld sets of positions; 1, or one per sigma, %zu", options->positions,
                        (long long)work->points.sets, work->decays.count);
    work->n = work->points.dim ? work->points.n
              : labels         ? work->labels.n
              : options->n     ? options->n
              : options->paper ? 4250
                               : 4096;
    work->reps = labels ? 1 : options->reps ? options->reps : options->paper ? 30 : 10;
    work->out.path = options->out;
    code = make_bounds(given, work);
    if (code == CLI_DONE) code = cli_outputs_open(&work->out, 1);
    if (code != CLI_DONE) return code;
    return cli_output_print(&work->out, "sigma\tsamples\trepetition\tspectral\tmax\tbmax\n");
}

static void release(norms_work *work) {
    cli_outputs_abandon(&work->out, 1);
    free(work->cells);
    cli_decays_free(&work->decays);
    cli_labels_free(&work->labels);
    cli_points_free(&work->points);
}

/* ---- printing -------------------------------------------------------------------------------- */

enum { COLUMNS = 21 };

static const cli_column columns[COLUMNS] = {
    {.name = "sigma", .kind = CLI_CELL_NUMBER},
    {.name = "samples", .kind = CLI_CELL_INTEGER},
    {.name = "spectral_mean", .kind = CLI_CELL_NUMBER, .heading = "spectral", .digits = 4},
    {.name = "spectral_std", .kind = CLI_CELL_NUMBER, .heading = "+-", .digits = 2},
    {.name = "bound_spectral", .kind = CLI_CELL_NUMBER, .heading = "bound", .digits = 4},
    {.name = "bound_spectral_expectation",
     .kind = CLI_CELL_NUMBER,
     .heading = "mean's bound",
     .digits = 4},
    {.name = "max_mean", .kind = CLI_CELL_NUMBER, .heading = "max", .digits = 4},
    {.name = "max_std", .kind = CLI_CELL_NUMBER, .heading = "+-", .digits = 2},
    {.name = "bound_max", .kind = CLI_CELL_NUMBER, .heading = "bound", .digits = 4},
    {.name = "bmax_max", .kind = CLI_CELL_INTEGER, .heading = "b_max"},
    {.name = "bound_bmax_max", .kind = CLI_CELL_NUMBER, .heading = "bound", .digits = 4},
    /* JSON only */
    {.name = "bound_bmax", .kind = CLI_CELL_NUMBER},
    {.name = "bound_max_certain", .kind = CLI_CELL_BOOLEAN},
    {.name = "paper_spectral", .kind = CLI_CELL_NUMBER},
    {.name = "paper_spectral_expectation", .kind = CLI_CELL_NUMBER},
    {.name = "paper_max", .kind = CLI_CELL_NUMBER},
    {.name = "paper_bmax", .kind = CLI_CELL_NUMBER},
    {.name = "exceed_spectral", .kind = CLI_CELL_NUMBER},
    {.name = "exceed_max", .kind = CLI_CELL_NUMBER},
    {.name = "exceed_bmax", .kind = CLI_CELL_NUMBER},
    {.name = "seconds", .kind = CLI_CELL_NUMBER, .digits = 3},
};

enum { SHOWN = 11 };

/* The fraction of repetitions that exceed a bound; NaN without a bound. */
static double share_beyond(double bound, int64_t beyond, double reps) {
    return isnan(bound) ? NAN : (double)beyond / reps;
}

static void fill_row(const settings *given, const norms_work *work, const norms_cell *cell,
                     cli_cell *out) {
    const double sigma = cell->sigma, delta = given->norms.delta, reps = (double)work->reps;
    const int64_t n = work->n, s = cell->samples;
    const plsh_bounds *bounds = &cell->bounds;
    const cli_cell values[COLUMNS] = {
        {.number = sigma},
        {.integer = s},
        {.number = cell->spectral.mean},
        {.number = cli_moments_deviation(&cell->spectral)},
        {.number = bounds->spectral},
        {.number = bounds->spectral_expectation},
        {.number = cell->max.mean},
        {.number = cli_moments_deviation(&cell->max)},
        {.number = bounds->max},
        {.integer = cell->largest},
        {.number = cell->block_of_all},
        {.number = bounds->largest_block},
        {.boolean = bounds->max_certain},
        {.number = plsh_paper_spectral_error(n, sigma, s, delta)},
        {.number = plsh_paper_spectral_expectation(n, sigma, s)},
        {.number = plsh_paper_max_error(n, s, delta)},
        {.number = plsh_paper_block_bound(sigma, s, delta)},
        {.number = share_beyond(bounds->spectral, cell->beyond_spectral, reps)},
        {.number = share_beyond(bounds->max, cell->beyond_max, reps)},
        {.number = share_beyond(bounds->largest_block, cell->beyond_block, reps)},
        {.number = cell->seconds / reps},
    };
    memcpy(out, values, sizeof values);
}

static void json_cell(cli_json *json, const cli_column *column, cli_cell value) {
    if (column->kind == CLI_CELL_NUMBER) cli_json_number(json, column->name, value.number);
    if (column->kind == CLI_CELL_INTEGER) cli_json_integer(json, column->name, value.integer);
    if (column->kind == CLI_CELL_BOOLEAN) cli_json_boolean(json, column->name, value.boolean);
}

static double mean_of(const norms_cell *cell, const char *norm) {
    return norm[0] == 's' ? cell->spectral.mean : cell->max.mean;
}

static const char *const norm_names[] = {"spectral", "max"};

/* "in_band": {model: {norm: true or false}}, without the curves that were not published there. */
static void json_bands(cli_json *json, const norms_cell *cell) {
    cli_json_begin_object(json, "in_band");
    for (size_t m = 0; cli_published_models[m] != NULL; m++) {
        cli_json_begin_object(json, cli_published_models[m]);
        for (size_t x = 0; x < CLI_COUNT(norm_names); x++) {
            const cli_point *point = cli_published_find(cli_published_models[m], norm_names[x],
                                                        cell->sigma, cell->samples);
            if (point != NULL)
                cli_json_boolean(json, norm_names[x],
                                 cli_published_holds(point, mean_of(cell, norm_names[x])));
        }
        cli_json_end(json);
    }
    cli_json_end(json);
}

typedef struct comparison {
    const cli_point *point;
    double ours, error; /* the mean and its standard error */
    bool holds;
} comparison;

/* Calls `visit` for every published point of a model that was measured. */
static void compare(const norms_work *work, const char *model,
                    void (*visit)(void *context, const comparison *comparison), void *context) {
    for (size_t x = 0; x < CLI_COUNT(norm_names); x++)
        for (size_t c = 0; c < work->count; c++) {
            const norms_cell *cell = &work->cells[c];
            const cli_moments *m = x == 0 ? &cell->spectral : &cell->max;
            comparison one = {.ours = m->mean, .error = cli_moments_deviation(m) / sqrt(m->count)};
            one.point = cli_published_find(model, norm_names[x], cell->sigma, cell->samples);
            if (one.point == NULL) continue;
            one.holds = cli_published_holds(one.point, one.ours);
            visit(context, &one);
        }
}

typedef struct norms_score {
    int64_t points, held;
    cli_json *json; /* or NULL: print */
} norms_score;

static void count_point(void *context, const comparison *one) {
    norms_score *score = context;
    score->points++;
    score->held += one->holds;
}

/* For a point outside its band: how far our mean is from the band and from the published mean, in
 * standard errors of the difference (the published mean is over 30 inputs). */
static void describe_miss(const comparison *one, char *text, size_t size) {
    const cli_point *point = one->point;
    double mean = pow(10, point->mean), ours = log10(one->ours);
    double theirs = (pow(10, point->high) - mean) / sqrt(30);
    double both = sqrt(theirs * theirs + one->error * one->error);
    double edge = ours < point->low ? point->low : point->high;
    snprintf(text, size,
             "%.4f beyond the band's edge in log10, its half width is %.4f; our mean is %.1f "
             "standard errors of the difference from theirs",
             fabs(ours - edge), (point->high - point->low) / 2, fabs(one->ours - mean) / both);
}

static void report_miss(void *context, const comparison *one) {
    norms_score *score = context;
    if (one->holds) return;
    const cli_point *point = one->point;
    char reason[256];
    describe_miss(one, reason, sizeof reason);
    if (score->json == NULL) {
        printf("  %s, sigma %g, s %lld: %.4f, published %.3f (%.3f to %.3f): %s\n", point->norm,
               point->sigma, (long long)point->samples, log10(one->ours), point->mean, point->low,
               point->high, reason);
        return;
    }
    cli_json_begin_object(score->json, NULL);
    cli_json_text(score->json, "norm", point->norm);
    cli_json_number(score->json, "sigma", point->sigma);
    cli_json_integer(score->json, "samples", point->samples);
    cli_json_number(score->json, "log10_mean", log10(one->ours));
    cli_json_number(score->json, "published_mean", point->mean);
    cli_json_number(score->json, "published_low", point->low);
    cli_json_number(score->json, "published_high", point->high);
    cli_json_text(score->json, "reason", reason);
    cli_json_end(score->json);
}

static void json_paper(const norms_work *work, cli_json *json) {
    cli_json_begin_array(json, "paper");
    for (size_t m = 0; cli_published_models[m] != NULL; m++) {
        norms_score score = {.json = json};
        compare(work, cli_published_models[m], count_point, &score);
        cli_json_begin_object(json, NULL);
        cli_json_text(json, "model", cli_published_models[m]);
        cli_json_integer(json, "points", score.points);
        cli_json_integer(json, "in_band", score.held);
        cli_json_begin_array(json, "missed");
        compare(work, cli_published_models[m], report_miss, &score);
        cli_json_end(json);
        cli_json_end(json);
    }
    cli_json_end(json);
}

static void print_paper(const norms_work *work) {
    for (size_t m = 0; cli_published_models[m] != NULL; m++) {
        norms_score score = {0};
        compare(work, cli_published_models[m], count_point, &score);
        printf("%s: %lld of %lld published points have our mean in their band\n",
               cli_published_models[m], (long long)score.held, (long long)score.points);
        compare(work, cli_published_models[m], report_miss, &score);
    }
}

static int print_json(const settings *given, const norms_work *work) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_integer(json, "n", work->n);
    cli_json_integer(json, "reps", work->reps);
    cli_partitions_json(&given->partitions, json);
    cli_json_number(json, "delta", given->norms.delta);
    cli_json_number(json, "tolerance", given->norms.tolerance);
    cli_json_begin_array(json, "rows");
    for (size_t c = 0; c < work->count; c++) {
        cli_cell row[COLUMNS];
        fill_row(given, work, &work->cells[c], row);
        cli_json_begin_object(json, NULL);
        for (size_t x = 0; x < (given->norms.timing ? COLUMNS : COLUMNS - 1); x++)
            json_cell(json, &columns[x], row[x]);
        if (given->partitions.design == PLSH_DESIGN_AUTO)
            cli_json_text(json, "design", plsh_design_names()[work->cells[c].design]);
        if (given->norms.paper) json_bands(json, &work->cells[c]);
        cli_json_end(json);
    }
    cli_json_end(json);
    if (given->norms.paper) json_paper(work, json);
    return cli_document_end(json);
}

static int print_table(const settings *given, const norms_work *work) {
    cli_table *table;
    plsh_error error;
    const bool timing = given->norms.timing;
    cli_column shown[SHOWN + 1];
    memcpy(shown, columns, SHOWN * sizeof *shown);
    shown[SHOWN] = columns[COLUMNS - 1];
    if (cli_table_create(&table, shown, SHOWN + timing, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    for (size_t c = 0; c < work->count; c++) {
        cli_cell row[COLUMNS];
        fill_row(given, work, &work->cells[c], row);
        row[SHOWN] = row[COLUMNS - 1];
        cli_table_add(table, row);
    }
    int code = cli_print_table(table);
    cli_table_free(table);
    if (code == CLI_DONE && given->norms.paper) print_paper(work);
    return code;
}

static int run_norms(const void *given) {
    settings options = *(const settings *)given;
    norms_work work = {0};
    int code = cli_partitions_default(&options.partitions, options.norms.paper,
                                      options.norms.positions != NULL);
    /* ARPACK's vectors are short: threads of OpenBLAS would only compete with those of plsh. */
    bench_blas_threads(1);
    if (code == CLI_DONE) code = prepare_norms(&options, &work);
    if (code == CLI_DONE) code = measure(&options, &work);
    if (code == CLI_DONE) code = cli_outputs_commit(&work.out, 1);
    if (code == CLI_DONE)
        code = options.common.json ? print_json(&options, &work) : print_table(&options, &work);
    release(&work);
    return code;
}

const cli_command cli_command_norms = {
    .name = "norms",
    .summary = "measures how far the mean of s masks is from the bias matrix, against its bounds",
    .text =
        "Measures the spectral norm and the max norm of L* - M~ and the largest block, for every "
        "sigma and number of samples, over repetitions, beside bounds that hold for the scheme and "
        "design: values that are exceeded with probability --delta at most, and a bound on the "
        "mean; - (null in the JSON) means that none is known. b_max is the largest of all "
        "repetitions, "
        "and the bound beside it holds for all of them together (bound_bmax in the JSON is that of "
        "one). The bounds on the spectral norm of "
        "stratified sets by integer are for the widths of each repetition, and the largest of them "
        "is printed; their bound on the max norm is never exceeded (bound_max_certain). "
        "With --positions the rows are points and the masks cells of hyperplanes; b_max is the "
        "most points of a cell, points of NaN are left out, and the spectral and max norm have "
        "bounds with --design iid. In "
        "the JSON paper_* are the bounds of the paper's Theorem 2.1 as published, about binning "
        "and iid; exceed_spectral, exceed_max and exceed_bmax are the fractions of the repetitions "
        "that exceed our bounds: on average at most --delta each. With --paper the published "
        "settings are the defaults, and every mean is compared with the published mean +- one "
        "standard deviation; exit code 0 also where points lie outside.",
    .example = "plsh norms --n 512 --sigma 2,16 --samples 1,20,1000 --design iid --reps 3\n"
               "plsh norms --n 512 --sigma 16 --samples 64 --reps 3\n"
               "plsh norms --paper --sigma 16 --samples 1,10,100 --reps 5 --tolerance 1e-4",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_norms,
};
