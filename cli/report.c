/* cli: plsh report: measurements as one HTML page with plots. */
#include "cli/report/report.h"
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report/page.h"

#include "plsh/version.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct report_options {
    const char *out;
    const char *experiments;
    bool quick;
} report_options;

typedef struct settings {
    report_options report;
    cli_common common;
} settings;

static const cli_option report_table[] = {
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(report_options, out),
     .value = "FILE",
     .help = "the page",
     .required = true},
    {.name = "experiments",
     .kind = CLI_FILE,
     CLI_MEMBER(report_options, experiments),
     .value = "DIR",
     .help = "recorded experiments; without it those of the source tree or the installation"},
    {.name = "quick",
     .kind = CLI_FLAG,
     CLI_MEMBER(report_options, quick),
     .help = "shorter contexts and fewer samples: seconds instead of minutes"},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", report_table, settings, report),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

static const cli_column columns[] = {
    {.name = "section", .kind = CLI_CELL_TEXT},
    {.name = "when", .kind = CLI_CELL_TEXT},
    {.name = "source", .kind = CLI_CELL_TEXT},
};

/* ---- what sections call ---------------------------------------------------------------------- */

static void note_source(cli_report *report, const char *day, const char *source) {
    cli_table_add(report->made,
                  (cli_cell[]){{.text = report->section}, {.text = day}, {.text = source}});
}

static void write_source(cli_report *report, const char *day, const char *source) {
    fputs("<p class=\"source\"><code>", report->out);
    cli_page_text(report->out, source);
    fputs("</code> · ", report->out);
    cli_page_text(report->out, day);
    fputs("</p>\n", report->out);
    note_source(report, day, source);
}

void cli_report_source(cli_report *report, const char *day, const char *format, ...) {
    char source[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(source, sizeof source, format, arguments);
    va_end(arguments);
    write_source(report, day, source);
}

void cli_report_plot(cli_report *report, const cli_plot *plot, const char *day, const char *format,
                     ...) {
    char source[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(source, sizeof source, format, arguments);
    va_end(arguments);
    fputs("<figure>\n", report->out);
    cli_page_element(report->out, "figcaption", "%s", plot->title);
    if (!cli_plot_write(report->out, plot))
        cli_page_element(report->out, "p class=\"note\"", "There is nothing to draw.");
    write_source(report, day, source);
    fputs("</figure>\n", report->out);
}

void cli_report_plots_begin(cli_report *report) { fputs("<div class=\"plots\">\n", report->out); }
void cli_report_plots_end(cli_report *report) { fputs("</div>\n", report->out); }

void cli_report_missing(cli_report *report, const char *script) {
    cli_page_element(report->out, "p class=\"note\"", "Not measured yet: run %s.", script);
    note_source(report, "not measured yet", script);
}

/* ---- the page -------------------------------------------------------------------------------- */

static const struct {
    const char *id, *title;
    int (*write)(cli_report *report);
} sections[] = {
    {"masks", "Masks become ALiBi", cli_report_masks},
    {"norms", "The mean of masks converges", cli_report_norms},
    {"output", "So does the output of attention", cli_report_output},
    {"trade", "Error against time", cli_report_trade},
    {"growth", "Growth with the context", cli_report_growth},
    {"extrapolation", "Longer texts than a model was trained on", cli_report_extrapolation},
    {"scratch", "Trained from scratch: the paper's Table 1", cli_report_scratch},
    {"protocol", "The same with the paper's own protocol", cli_report_protocol},
    {"lora", "Fine-tuned: the paper's Table 2", cli_report_lora},
    {"streaming", "One text of hundreds of thousands of tokens", cli_report_streaming},
    {"full-scale", "The paper's own sizes on one machine", cli_report_full_scale},
};

static int write_page(cli_report *report) {
    int code = CLI_DONE;
    cli_page_begin(report->out, "plsh: attention with linear biases, measured");
    cli_page_element(report->out, "p class=\"note\"",
                     "plsh %s, %s kernels, made %s. Below every figure stand the command that "
                     "made it and the day.",
                     plsh_version(), cli_common_isa(report->common), report->today);
    const size_t count = CLI_COUNT(sections);
    cli_progress_begin((double)count, "sections");
    for (size_t i = 0; i < count && code == CLI_DONE; i++) {
        report->section = sections[i].title;
        fprintf(report->out, "<section id=\"%s\">\n", sections[i].id);
        cli_page_element(report->out, "h2", "%s", sections[i].title);
        code = sections[i].write(report);
        fputs("</section>\n", report->out);
        cli_progress((double)i + 1);
    }
    cli_progress_end();
    cli_page_end(report->out);
    return code;
}

/* Renders all recorded sections and discards the result: a damaged table is refused before anything
 * is measured. */
static int check_recorded(cli_report *report) {
    static int (*const recorded[])(cli_report *) = {
        cli_report_output_recorded, cli_report_trade_recorded, cli_report_extrapolation,
        cli_report_scratch,         cli_report_protocol,       cli_report_lora,
        cli_report_streaming,       cli_report_full_scale};
    int code = CLI_DONE;
    for (size_t i = 0; i < CLI_COUNT(recorded) && code == CLI_DONE; i++) code = recorded[i](report);
    return code;
}

/* The output of `write`, as text for the caller to free. */
static int collect(cli_report *report, int (*write)(cli_report *), char **text) {
    size_t length = 0;
    plsh_error error;
    *text = NULL;
    if (cli_table_create(&report->made, columns, CLI_COUNT(columns), &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    report->out = open_memstream(text, &length);
    if (report->out == NULL) return cli_fail("out of memory for the page");
    int code = write(report);
    return fclose(report->out) == 0 ? code : cli_fail("out of memory for the page");
}

static int make_page(cli_report *report, const cli_output *output) {
    char *text;
    int code = collect(report, check_recorded, &text);
    free(text);
    cli_table_free(report->made);
    report->made = NULL;
    if (code != CLI_DONE) return code;
    code = collect(report, write_page, &text);
    if (code == CLI_DONE) code = cli_output_print(output, "%s", text);
    free(text);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Finds the experiments relative to the program: bin/plsh if installed, build/plsh in a source
 * tree. */
static const char *find_experiments(char found[PATH_MAX + 64]) {
    static const char *const places[] = {"../share/plsh/experiments", "../experiments"};
    char program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return NULL;
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < CLI_COUNT(places); i++) {
        snprintf(found, PATH_MAX + 64, "%s/%s", program, places[i]);
        if (is_folder(found)) return found;
    }
    return NULL;
}

static int print_json(const char *path, const cli_table *table) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "out", path);
    cli_table_json(table, json, "rows");
    return cli_document_end(json);
}

static int run_report(const void *given) {
    const settings *options = given;
    char found[PATH_MAX + 64];
    cli_report report = {.common = &options->common,
                         .quick = options->report.quick,
                         .experiments = options->report.experiments};
    if (report.experiments == NULL)
        report.experiments = find_experiments(found);
    else if (!is_folder(report.experiments))
        return cli_fail("--experiments: %s is not a folder", report.experiments);
    const time_t now = time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day) != NULL) strftime(report.today, sizeof report.today, "%Y-%m-%d", &day);
    cli_output output = {.path = options->report.out};
    int code = cli_outputs_open(&output, 1);
    if (code == CLI_DONE) code = make_page(&report, &output);
    if (code == CLI_DONE) code = cli_outputs_commit(&output, 1);
    if (code == CLI_DONE)
        code = options->common.json ? print_json(options->report.out, report.made)
                                    : cli_print_table(report.made);
    cli_outputs_abandon(&output, 1);
    cli_table_free(report.made);
    return code;
}

const cli_command cli_command_report = {
    .name = "report",
    .summary = "measurements as one HTML page with plots",
    .text = "Writes a page that needs no network: the paper's figures and tables with our numbers "
            "beside the published ones, each with the command that made it and the day. "
            "Measurements of seconds run now, on this machine; those of hours are read from a "
            "folder of recorded experiments, and the page says which are missing. Prints the "
            "sections of the page and their sources.",
    .example = "plsh report --quick --out report.html",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_report,
};
