/* cli/report: recorded experiments: plots, and a table of training steps at the paper's sizes. */
#include "cli/report/page.h"
#include "cli/report/report.h"
#include "cli/report/sheet.h"

#include <math.h>
#include <string.h>

/* Closes a sheet that was read with `code`; a problem with its cells is a failure too. */
static int finish(int code, cli_sheet *sheet) {
    if (code == CLI_DONE) code = cli_sheet_check(sheet);
    cli_sheet_free(sheet);
    return code;
}

/* The series of a name: the first time a new one, six colours solid and then six dashed. */
static cli_series *series_named(cli_plot *plot, size_t first, const char *name) {
    for (size_t i = first; i < plot->count; i++)
        if (strcmp(plot->series[i].name, name) == 0) return &plot->series[i];
    const size_t number = plot->count - first;
    return cli_plot_series(plot, number < 6 ? CLI_SERIES_LINE : CLI_SERIES_DASHES,
                           (int)(number % 6), "%s", name);
}

/* ---- error against s ------------------------------------------------------------------------- */

/* Marks from a table of logarithms to base ten. */
static void add_logarithms(cli_sheet *sheet, size_t row, const char *low, const char *high,
                           cli_series *series) {
    cli_series_mark(series, (cli_mark){cli_sheet_number(sheet, row, "samples"),
                                       pow(10, cli_sheet_number(sheet, row, "log10_mean")),
                                       pow(10, cli_sheet_number(sheet, row, low)),
                                       pow(10, cli_sheet_number(sheet, row, high))});
}

static void add_published(cli_sheet *sheet, double sigma, cli_plot *plot) {
    for (size_t r = 0; r < sheet->rows; r++) {
        if (cli_sheet_number(sheet, r, "sigma") != sigma) continue;
        cli_series *band = series_named(plot, 0, cli_sheet_text(sheet, r, "model"));
        band->style = CLI_SERIES_BAND;
        band->colour = band == plot->series ? 4 : 3;
        add_logarithms(sheet, r, "log10_lo", "log10_hi", band);
    }
}

static void add_measured(cli_sheet *sheet, double sigma, cli_plot *plot) {
    const size_t first = plot->count;
    for (size_t r = 0; r < sheet->rows; r++) {
        if (cli_sheet_number(sheet, r, "sigma") != sigma) continue;
        if (strcmp(cli_sheet_text(sheet, r, "run"), "layer15") != 0) continue;
        const bool iid = strcmp(cli_sheet_text(sheet, r, "design"), "iid") == 0;
        add_logarithms(sheet, r, "log10_low", "log10_high",
                       series_named(plot, first, iid ? "independent draws" : "stratified draws"));
    }
}

int cli_report_output_recorded(cli_report *report) {
    static const double sigma = 16;
    cli_plot plot = {.title = "A model's arrays (SmolLM2, layer 15), σ = 16",
                     .x = {"samples s", CLI_AXIS_TENS},
                     .y = {"‖T* − T̃‖ max", CLI_AXIS_TENS}};
    cli_sheet measured, published = {0};
    int code = cli_sheet_read(report->experiments, "figure-output/summary.tsv", &measured);
    if (code == CLI_DONE)
        code = cli_sheet_read(report->experiments, "figure-output/published.tsv", &published);
    if (code == CLI_DONE && measured.rows == 0) {
        cli_report_missing(report, "experiments/figure-output/run");
    } else if (code == CLI_DONE) {
        add_published(&published, sigma, &plot);
        add_measured(&measured, sigma, &plot);
        cli_report_plot(report, &plot, measured.recorded, "experiments/figure-output/run");
    }
    code = finish(code, &published);
    return finish(code, &measured);
}

/* ---- error against time ---------------------------------------------------------------------- */

int cli_report_trade_recorded(cli_report *report) {
    static const double sigma = 32;
    cli_plot plot = {.title = "A model's arrays (SmolLM2, layer 15), σ = 32, one core",
                     .x = {"milliseconds", CLI_AXIS_TENS},
                     .y = {"root mean square error", CLI_AXIS_TENS}};
    cli_sheet sheet;
    int code = cli_sheet_read(report->experiments, "error-time/data.tsv", &sheet);
    for (size_t r = 0; r < sheet.rows; r++) {
        if (cli_sheet_number(&sheet, r, "sigma") != sigma) continue;
        cli_series_mark(
            series_named(&plot, 0, cli_sheet_text(&sheet, r, "method")),
            (cli_mark){1e3 * cli_sheet_number(&sheet, r, "seconds"),
                       fmax(cli_sheet_number(&sheet, r, "rms_error"), CLI_REPORT_LEAST_ERROR), NAN,
                       NAN});
    }
    if (code == CLI_DONE && sheet.rows == 0)
        cli_report_missing(report, "experiments/error-time/run");
    else if (code == CLI_DONE)
        cli_report_plot(report, &plot, sheet.recorded, "experiments/error-time/run");
    return finish(code, &sheet);
}

/* ---- extrapolation --------------------------------------------------------------------------- */

/* The attentions with one sigma, and the model's own, whose sigma is "-". */
static void plot_sigma(cli_report *report, cli_sheet *sheet, const char *sigma) {
    char title[96] = "The standard series of ALiBi";
    if (strcmp(sigma, "alibi") != 0)
        snprintf(title, sizeof title, "One σ = %.16s for all heads", sigma);
    cli_plot plot = {
        .title = title, .x = {"context length", CLI_AXIS_TWOS}, .y = {"perplexity", CLI_AXIS_TENS}};
    for (size_t r = 0; r < sheet->rows; r++) {
        const char *of = cli_sheet_text(sheet, r, "sigma");
        if (strcmp(of, "-") != 0 && strcmp(of, sigma) != 0) continue;
        cli_series_mark(series_named(&plot, 0, cli_sheet_text(sheet, r, "name")),
                        (cli_mark){cli_sheet_number(sheet, r, "context"),
                                   cli_sheet_number(sheet, r, "perplexity"), NAN, NAN});
    }
    cli_report_plot(report, &plot, sheet->recorded, "experiments/extrapolation/run");
}

/* A plot for every sigma, in the order of the table. */
static void plot_sigmas(cli_report *report, cli_sheet *sheet) {
    for (size_t r = 0; r < sheet->rows; r++) {
        const char *sigma = cli_sheet_text(sheet, r, "sigma");
        size_t first = 0;
        while (strcmp(cli_sheet_text(sheet, first, "sigma"), sigma) != 0) first++;
        if (first == r && strcmp(sigma, "-") != 0) plot_sigma(report, sheet, sigma);
    }
}

int cli_report_extrapolation(cli_report *report) {
    cli_sheet sheet;
    int code = cli_sheet_read(report->experiments, "extrapolation/summary.tsv", &sheet);
    cli_page_element(report->out, "p",
                     "A pretrained model (SmolLM2-135M, which has RoPE) reads WikiText under "
                     "attentions that it was not trained with; the same tokens are scored at every "
                     "length.");
    cli_report_plots_begin(report);
    if (code == CLI_DONE && sheet.rows == 0)
        cli_report_missing(report, "experiments/extrapolation/run");
    else if (code == CLI_DONE)
        plot_sigmas(report, &sheet);
    cli_report_plots_end(report);
    return finish(code, &sheet);
}

/* ---- one long text --------------------------------------------------------------------------- */

static double plain(double x) { return x; }
static double megabytes(double bytes) { return bytes / 1e6; }

/* A column of the table by position, a series for each attention. */
static void plot_positions(cli_report *report, cli_sheet *sheet, const char *title,
                           const char *column, double (*turn)(double), cli_axis y) {
    cli_plot plot = {.title = title, .x = {"position in the text", CLI_AXIS_TWOS}, .y = y};
    for (size_t r = 0; r < sheet->rows; r++)
        cli_series_mark(series_named(&plot, 0, cli_sheet_text(sheet, r, "name")),
                        (cli_mark){cli_sheet_number(sheet, r, "position") +
                                       cli_sheet_number(sheet, r, "tokens"),
                                   turn(cli_sheet_number(sheet, r, column)), NAN, NAN});
    cli_report_plot(report, &plot, sheet->recorded, "experiments/streaming/run");
}

int cli_report_streaming(cli_report *report) {
    cli_sheet sheet;
    int code = cli_sheet_read(report->experiments, "streaming/positions.tsv", &sheet);
    cli_page_element(
        report->out, "p",
        "SmolLM2-135M, tuned to ALiBi, reads the test split of WikiText as one text; "
        "beside it the untouched model, whose RoPE was made for 8k tokens. A point stands "
        "for the tokens since the point before.");
    cli_report_plots_begin(report);
    if (code == CLI_DONE && sheet.rows == 0) {
        cli_report_missing(report, "experiments/streaming/run");
    } else if (code == CLI_DONE) {
        plot_positions(report, &sheet, "Perplexity by position", "nll", exp,
                       (cli_axis){"perplexity", CLI_AXIS_TENS});
        plot_positions(report, &sheet, "Time per token", "ms_per_token", plain,
                       (cli_axis){"milliseconds", CLI_AXIS_LINEAR});
        plot_positions(report, &sheet, "Memory", "peak_bytes", megabytes,
                       (cli_axis){"peak, MB", CLI_AXIS_TENS});
    }
    cli_report_plots_end(report);
    return finish(code, &sheet);
}

/* ---- the paper's own sizes ------------------------------------------------------------------- */

static void write_sizes(cli_report *report, cli_sheet *sheet) {
    FILE *out = report->out;
    fputs("<div class=\"wide\"><table>\n<thead><tr><th>run</th><th>context</th>"
          "<th>seconds a step</th><th>tokens a second</th><th>peak GB</th>"
          "<th>days for an epoch</th></tr></thead>\n<tbody>\n",
          out);
    for (size_t r = 0; r < sheet->rows; r++) {
        fputs("<tr><td>", out);
        cli_page_text(out, cli_sheet_text(sheet, r, "name"));
        fprintf(out,
                "</td><td>%.0f</td><td>%.0f</td><td>%.1f</td><td>%.1f</td><td>%.0f</td></tr>\n",
                cli_sheet_number(sheet, r, "context"), cli_sheet_number(sheet, r, "seconds"),
                cli_sheet_number(sheet, r, "tokens_per_second"),
                cli_sheet_number(sheet, r, "peak_bytes") / 1e9, cli_sheet_number(sheet, r, "days"));
    }
    fputs("</tbody>\n</table></div>\n", out);
    cli_report_source(report, sheet->recorded, "experiments/full-scale/run");
}

int cli_report_full_scale(cli_report *report) {
    cli_sheet sheet;
    int code = cli_sheet_read(report->experiments, "full-scale/summary.tsv", &sheet);
    cli_page_element(report->out, "p",
                     "Steps of training at the paper's sizes on two cores: Qwen3-0.6B from scratch "
                     "at 8k tokens, and LoRA on a Mistral-7B shape in four bits at 1k. An epoch is "
                     "WikiText-103.");
    if (code == CLI_DONE && sheet.rows == 0)
        cli_report_missing(report, "experiments/full-scale/run");
    else if (code == CLI_DONE)
        write_sizes(report, &sheet);
    return finish(code, &sheet);
}
