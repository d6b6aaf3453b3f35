/* cli/report: attention measured on random arrays: error against s, error against time, time
 * against n. */
#include "cli/attention.h"
#include "cli/moments.h"
#include "cli/report/page.h"
#include "cli/report/report.h"

#include <stdlib.h>

/* Normal arrays of one shape, causal, and the output of dense attention. */
typedef struct bed {
    cli_arrays arrays;
    plsh_head head; /* one for all heads */
    size_t count;   /* numbers of output */
    float *exact, *o;
} bed;

/* Timings are on one thread: the figure compares methods, not numbers of cores. */
enum { TIMED_THREADS = 1, REPEATS = 3 };

/* What one method did. */
typedef struct outcome {
    double seconds, rms;
    cli_moments largest; /* error of a head, over heads */
} outcome;

static void free_bed(bed *b) {
    cli_arrays_free(&b->arrays);
    free(b->exact);
    free(b->o);
    *b = (bed){0};
}

static void compare(const bed *b, outcome *out) {
    double squares = 0;
    const size_t heads = (size_t)b->arrays.attention.heads, each = b->count / heads;
    for (size_t h = 0; h < heads; h++) {
        double most = 0;
        for (size_t x = h * each; x < (h + 1) * each; x++) {
            const double error = fabs((double)b->o[x] - (double)b->exact[x]);
            most = fmax(most, error);
            squares += error * error;
        }
        cli_moments_add(&out->largest, most);
    }
    out->rms = sqrt(squares / (double)b->count);
}

/* The shortest time of `reps` runs, which a busy machine changes least, and the error where dense
 * attention is known. */
static int attend(bed *b, plsh_head head, int reps, outcome *out) {
    const plsh_forward arrays = {
        .q = b->arrays.q.data, .k = b->arrays.k.data, .v = b->arrays.v.data, .o = b->o};
    cli_attention *attention;
    cli_run run;
    b->head = head;
    b->arrays.attention.head = &b->head;
    b->arrays.attention.head_count = 1;
    int code = cli_attention_create(&b->arrays.attention, &attention);
    out->seconds = INFINITY;
    for (int r = 0; r < reps && code == CLI_DONE; r++) {
        code = cli_attention_forward(attention, &arrays, &run);
        if (code == CLI_DONE) out->seconds = fmin(out->seconds, run.seconds);
    }
    cli_attention_destroy(attention);
    if (code == CLI_DONE && b->exact != NULL) compare(b, out);
    return code;
}

static plsh_head head_of(plsh_method method, double sigma) {
    const plsh_partition set = plsh_partition_default(sigma, 1);
    return plsh_head_default(method, &set.decay);
}

static int make_bed(const cli_report *report, int64_t heads, int64_t n, int64_t dim, bool known,
                    double sigma, bed *out) {
    int64_t shape[] = {heads, n, dim};
    const cli_inputs inputs = {.random = {3, shape}, .causal = true};
    *out = (bed){.count = (size_t)(heads * n * dim)};
    int code = cli_arrays_read(&inputs, report->common, &out->arrays);
    if (code != CLI_DONE) return code;
    out->o = calloc(out->count, sizeof *out->o);
    float *exact = known ? calloc(out->count, sizeof *exact) : NULL;
    if (out->o == NULL || (known && exact == NULL)) {
        free(exact);
        return cli_fail("out of memory for %zu numbers of output", out->count);
    }
    outcome none = {0};
    if (!known) return CLI_DONE;
    code = attend(out, head_of(PLSH_METHOD_DENSE, sigma), 1, &none);
    for (size_t x = 0; x < out->count; x++) exact[x] = out->o[x];
    out->exact = exact;
    return code;
}

/* ---- error against s ------------------------------------------------------------------------- */

typedef struct sampled_curve {
    const char *name;
    plsh_method method;
    plsh_design design;
} sampled_curve;

static const sampled_curve curves[] = {
    {"independent draws", PLSH_METHOD_PLSH, PLSH_DESIGN_IID},
    {"stratified draws", PLSH_METHOD_PLSH, PLSH_DESIGN_STRATIFIED},
    {"mean of the masks' outputs", PLSH_METHOD_MEAN, PLSH_DESIGN_IID},
};

static const double output_sigma = 16;

/* Over heads and repetitions, seeds as plsh error has them. */
static int add_errors(const cli_report *report, bed *b, const sampled_curve *curve, int64_t most,
                      int reps, cli_series *series) {
    for (int64_t s = 1; s <= most; s *= 10) {
        outcome all = {0};
        for (int rep = 0; rep < reps; rep++) {
            plsh_head head = head_of(curve->method, output_sigma);
            head.partition.samples = s;
            head.partition.design = curve->design;
            head.partition.seed = report->common->seed + (uint64_t)rep;
            int code = attend(b, head, 1, &all);
            if (code != CLI_DONE) return code;
        }
        const double mean = all.largest.mean, deviation = cli_moments_deviation(&all.largest);
        cli_series_mark(series, (cli_mark){(double)s, mean, mean - deviation, mean + deviation});
    }
    return CLI_DONE;
}

int cli_report_output(cli_report *report) {
    const int reps = report->quick ? 5 : 10;
    const int64_t n = report->quick ? 1024 : 4096, most = report->quick ? 1000 : 10000;
    cli_plot plot = {.title = "Random arrays, σ = 16",
                     .x = {"samples s", CLI_AXIS_TENS},
                     .y = {"‖T* − T̃‖ max", CLI_AXIS_TENS}};
    bed b;
    cli_page_element(report->out, "p",
                     "The output of sampled attention converges as the masks do, like 1/√s with "
                     "independent draws. The mean of the single masks' outputs does not.");
    int code = make_bed(report, 1, n, 64, true, output_sigma, &b);
    for (size_t i = 0; i < CLI_COUNT(curves) && code == CLI_DONE; i++) {
        const bool mean = curves[i].method == PLSH_METHOD_MEAN; /* one mask at a time */
        cli_series *series = cli_plot_series(&plot, CLI_SERIES_LINE, (int)i, "%s", curves[i].name);
        code = add_errors(report, &b, &curves[i], mean ? 100 : most, reps, series);
    }
    free_bed(&b);
    if (code != CLI_DONE) return code;
    cli_report_plots_begin(report);
    cli_report_plot(report, &plot, report->today,
                    "plsh error --random 1,%lld,64 --causal --sigma %g --reps %d --design iid (and "
                    "stratified, and --method mean)",
                    (long long)n, output_sigma, reps);
    code = cli_report_output_recorded(report);
    cli_report_plots_end(report);
    return code;
}

/* ---- error against time ---------------------------------------------------------------------- */

static const double speed_sigma = 64;

static int add_trial(bed *b, plsh_head head, cli_series *series) {
    outcome out = {0};
    int code = attend(b, head, REPEATS, &out);
    const double rms = fmax(out.rms, CLI_REPORT_LEAST_ERROR);
    cli_series_mark(series, (cli_mark){1e3 * out.seconds, rms, NAN, NAN});
    return code;
}

static int trade_sampled(bed *b, plsh_design design, int colour, cli_plot *plot) {
    static const int64_t counts[] = {1, 4, 16, 64, 256, 1024};
    const bool iid = design == PLSH_DESIGN_IID;
    cli_series *series =
        cli_plot_series(plot, iid ? CLI_SERIES_DASHES : CLI_SERIES_LINE, colour,
                        iid ? "plsh, independent" : "plsh, stratified: s = 1 .. 1024");
    int code = CLI_DONE;
    for (size_t i = 0; i < CLI_COUNT(counts) && code == CLI_DONE; i++) {
        plsh_head head = head_of(PLSH_METHOD_PLSH, speed_sigma);
        head.partition.samples = counts[i];
        head.partition.design = design;
        code = add_trial(b, head, series);
    }
    return code;
}

static int trade_others(bed *b, cli_plot *plot) {
    static const double eps[] = {0.3, 1e-2, 1e-4, 0x1p-24};
    static const int64_t windows[] = {64, 128, 256, 512, 1024};
    int code = CLI_DONE;
    plsh_head head = head_of(PLSH_METHOD_WINDOW, speed_sigma);
    cli_series *series = cli_plot_series(plot, CLI_SERIES_LINE, 1, "window of σ .. 16 σ");
    for (size_t i = 0; i < CLI_COUNT(windows) && code == CLI_DONE; i++) {
        head.window = windows[i];
        code = add_trial(b, head, series);
    }
    head = head_of(PLSH_METHOD_EXACT, speed_sigma);
    series = cli_plot_series(plot, CLI_SERIES_LINE, 2, "exact: ε = 0.3 .. 2⁻²⁴");
    for (size_t i = 0; i < CLI_COUNT(eps) && code == CLI_DONE; i++) {
        head.eps = eps[i];
        code = add_trial(b, head, series);
    }
    return code;
}

int cli_report_trade(cli_report *report) {
    const int64_t n = report->quick ? 4096 : 16384;
    cli_plot plot = {.title = "Random arrays, σ = 64, one core",
                     .x = {"milliseconds", CLI_AXIS_TENS},
                     .y = {"root mean square error", CLI_AXIS_TENS}};
    bed b;
    cli_page_element(report->out, "p",
                     "Every method at several settings, against dense attention: left and low is "
                     "good. A window gives the least error for the time; exact costs a little more "
                     "and proves its error.");
    int code = make_bed(report, 1, n, 64, true, speed_sigma, &b);
    b.arrays.attention.threads = TIMED_THREADS;
    if (code == CLI_DONE) code = trade_sampled(&b, PLSH_DESIGN_STRATIFIED, 0, &plot);
    if (code == CLI_DONE) code = trade_sampled(&b, PLSH_DESIGN_IID, 0, &plot);
    if (code == CLI_DONE) code = trade_others(&b, &plot);
    free_bed(&b);
    if (code != CLI_DONE) return code;
    cli_report_plots_begin(report);
    cli_report_plot(report, &plot, report->today,
                    "plsh bench --threads 1 --n %lld --heads 1 --sigma %g --causal --methods "
                    "plsh,window,exact (with --samples, --window, --eps)",
                    (long long)n, speed_sigma);
    code = cli_report_trade_recorded(report);
    cli_report_plots_end(report);
    return code;
}

/* ---- time against n -------------------------------------------------------------------------- */

typedef struct growth_curve {
    const char *name;
    plsh_method method;
    int64_t quick, most; /* longest context, with --quick and without */
} growth_curve;

static const growth_curve growths[] = {
    {"dense", PLSH_METHOD_DENSE, 8192, 32768},
    {"exact", PLSH_METHOD_EXACT, 32768, 262144},
    {"plsh, s = 20", PLSH_METHOD_PLSH, 32768, 262144},
    {"window", PLSH_METHOD_WINDOW, 32768, 262144},
};

/* The slope of log y over log x of the last three marks, by least squares. */
static double exponent_of(const cli_series *series) {
    double x = 0, y = 0, xx = 0, xy = 0, count = 0;
    for (size_t m = series->count > 3 ? series->count - 3 : 0; m < series->count; m++, count++) {
        const double a = log(series->marks[m].x), b = log(series->marks[m].y);
        x += a, y += b, xx += a * a, xy += a * b;
    }
    return (count * xy - x * y) / (count * xx - x * x);
}

static int add_length(const cli_report *report, int64_t n, cli_plot *plot) {
    bed b;
    int code = make_bed(report, 1, n, 64, false, speed_sigma, &b);
    b.arrays.attention.threads = TIMED_THREADS;
    for (size_t i = 0; i < CLI_COUNT(growths) && code == CLI_DONE; i++) {
        outcome out = {0};
        plsh_head head = head_of(growths[i].method, speed_sigma);
        head.partition.samples = 20;
        if (n > (report->quick ? growths[i].quick : growths[i].most)) continue;
        code = attend(&b, head, REPEATS, &out);
        cli_series_mark(&plot->series[i], (cli_mark){(double)n, 1e3 * out.seconds, NAN, NAN});
    }
    free_bed(&b);
    return code;
}

int cli_report_growth(cli_report *report) {
    const int64_t most = report->quick ? 32768 : 262144;
    cli_plot plot = {.title = "A forward pass of one head, σ = 64, one core",
                     .x = {"context length n", CLI_AXIS_TWOS},
                     .y = {"milliseconds", CLI_AXIS_TENS}};
    int code = CLI_DONE;
    for (size_t i = 0; i < CLI_COUNT(growths); i++)
        cli_plot_series(&plot, CLI_SERIES_LINE,
                        i == 0   ? 6
                        : i == 1 ? 2
                        : i == 2 ? 0
                                 : 1,
                        "%s", growths[i].name);
    for (int64_t n = 1024; n <= most && code == CLI_DONE; n *= 2)
        code = add_length(report, n, &plot);
    if (code != CLI_DONE) return code;
    cli_page_element(report->out, "p",
                     "Time grows as n to the power %.2f for dense attention, %.2f for exact, %.2f "
                     "for plsh and %.2f for a window (the last three lengths).",
                     exponent_of(&plot.series[0]), exponent_of(&plot.series[1]),
                     exponent_of(&plot.series[2]), exponent_of(&plot.series[3]));
    cli_report_plots_begin(report);
    cli_report_plot(
        report, &plot, report->today,
        "plsh bench --threads 1 --n 1024,..,%lld --heads 1 --sigma %g --causal --methods "
        "dense,exact,plsh,window --reps %d",
        (long long)most, speed_sigma, REPEATS);
    cli_report_plots_end(report);
    return CLI_DONE;
}
