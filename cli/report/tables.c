/* cli/report: the paper's two tables, ours beside the published ones. */
#include "cli/report/page.h"
#include "cli/report/report.h"
#include "cli/report/sheet.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTHS = 8, METHODS = 32 };

/* Mean and deviation of a method at a length. */
typedef struct score {
    double mean, deviation;
} score;

/* A table of methods by context lengths, perplexity or accuracy. */
typedef struct scores {
    size_t lengths, methods;
    int length[LENGTHS];
    const char *name[METHODS]; /* in the sheet */
    score cells[METHODS + 1][LENGTHS];
} scores;

/* The lengths of the columns ppl_1024, ppl_2048, .. */
static void find_lengths(const cli_sheet *sheet, const char *what, scores *out) {
    for (size_t c = 0; c < sheet->columns && out->lengths < LENGTHS; c++) {
        const size_t prefix = strlen(what);
        const char *name = sheet->cells[c];
        if (strncmp(name, what, prefix) != 0 || name[prefix] != '_') continue;
        char *end;
        const long length = strtol(name + prefix + 1, &end, 10);
        if (*end == '\0' && length > 0 && length < 1 << 30)
            out->length[out->lengths++] = (int)length;
    }
}

static double number_at(cli_sheet *sheet, size_t row, const char *what, int length,
                        const char *ending) {
    char column[64];
    snprintf(column, sizeof column, "%s_%d%s", what, length, ending);
    return cli_sheet_number(sheet, row, column);
}

/* The table of one measure: columns ppl_1024, ppl_1024_std ("-": a single run), .. */
static void read_scores(cli_sheet *sheet, const char *what, scores *out) {
    *out = (scores){.methods = sheet->rows < METHODS ? sheet->rows : METHODS};
    find_lengths(sheet, what, out);
    for (size_t m = 0; m < out->methods; m++) {
        out->name[m] = cli_sheet_text(sheet, m, "name");
        for (size_t l = 0; l < out->lengths; l++)
            out->cells[m][l] = (score){number_at(sheet, m, what, out->length[l], ""),
                                       number_at(sheet, m, what, out->length[l], "_std")};
    }
}

/* The place of a method; `methods` where it is not there. */
static size_t find_method(const scores *from, const char *name) {
    size_t m = 0;
    while (m < from->methods && strcmp(from->name[m], name) != 0) m++;
    return m;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_heads(FILE *out, const scores *from, const char *class, const char *who) {
    for (size_t l = 0; l < from->lengths; l++)
        cli_page_element(out, class, "%s %dk", who, from->length[l] / 1024);
}

static void write_cells(FILE *out, const scores *from, const char *name, const char *class) {
    const size_t m = find_method(from, name);
    for (size_t l = 0; l < from->lengths; l++) {
        const score *cell = &from->cells[m][l];
        fprintf(out, "<td%s>", class);
        if (m < from->methods && isfinite(cell->mean)) fprintf(out, "%.2f", cell->mean);
        if (m < from->methods && cell->deviation > 0)
            fprintf(out, " <small>±%.2f</small>", cell->deviation);
        fputs("</td>", out);
    }
}

static void write_table(FILE *out, const char *caption, const scores *ours, const scores *theirs) {
    fputs("<div class=\"wide\"><table>\n", out);
    cli_page_element(out, "caption", "%s", caption);
    fputs("<thead><tr><th>attention</th>", out);
    write_heads(out, ours, "th", "ours");
    write_heads(out, theirs, "th class=\"theirs\"", "paper");
    fputs("</tr></thead>\n<tbody>\n", out);
    const scores *rows = ours->methods > 0 ? ours : theirs;
    for (size_t m = 0; m < rows->methods; m++) {
        fputs("<tr><td>", out);
        cli_page_text(out, rows->name[m]);
        fputs("</td>", out);
        write_cells(out, ours, rows->name[m], "");
        write_cells(out, theirs, rows->name[m], " class=\"theirs\"");
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table></div>\n", out);
}

/* One deviation for all methods at a length: the root mean square of theirs, as
 * experiments/compare.py has it. */
static double deviation_at(const scores *from, size_t length) {
    double squares = 0, count = 0;
    for (size_t m = 0; m < from->methods; m++) {
        const double deviation = from->cells[m][length].deviation;
        if (!(deviation > 0)) continue;
        squares += deviation * deviation;
        count++;
    }
    return count > 0 ? sqrt(squares / count) : 0;
}

/* Pairs of methods that differ in the published table by two standard deviations of a difference at
 * its shortest length, and how many of them are in the same order here. */
static void compare(cli_report *report, const scores *ours, const scores *theirs) {
    int differing = 0, same = 0;
    const double least = 2 * sqrt(2) * deviation_at(theirs, 0);
    for (size_t a = 0; a < theirs->methods; a++)
        for (size_t b = 0; b < a; b++) {
            const size_t x = find_method(ours, theirs->name[a]);
            const size_t y = find_method(ours, theirs->name[b]);
            if (x == ours->methods || y == ours->methods) continue;
            const double published = theirs->cells[a][0].mean - theirs->cells[b][0].mean;
            if (fabs(published) < least) continue;
            differing++;
            same += published * (ours->cells[x][0].mean - ours->cells[y][0].mean) > 0;
        }
    cli_page_element(report->out, "p",
                     "Of the %d pairs of attentions whose perplexities the published table tells "
                     "apart by two standard deviations at its training length, %d are in the same "
                     "order here.",
                     differing, same);
}

/* The methods of both tables, in the same colours. */
static void plot_scores(cli_report *report, const scores *from, const scores *other,
                        const char *title, const char *day, const char *source) {
    cli_plot plot = {.title = title,
                     .x = {"context length", CLI_AXIS_TWOS},
                     .y = {"perplexity", CLI_AXIS_LINEAR}};
    for (size_t m = 0; m < other->methods && m < CLI_PLOT_SERIES; m++) {
        const score *cells = from->cells[find_method(from, other->name[m])];
        cli_series *series = cli_plot_series(&plot, m < 6 ? CLI_SERIES_LINE : CLI_SERIES_DASHES,
                                             (int)(m % 6), "%s", other->name[m]);
        if (find_method(from, other->name[m]) == from->methods) continue;
        for (size_t l = 0; l < from->lengths; l++)
            cli_series_mark(series, (cli_mark){from->length[l], cells[l].mean,
                                               cells[l].mean - cells[l].deviation,
                                               cells[l].mean + cells[l].deviation});
    }
    cli_report_plot(report, &plot, day, "%s", source);
}

/* Writes our table, the published one, or both, with a remark if ours has not been measured. */
static void write_scores(cli_report *report, cli_sheet *measured, cli_sheet *published,
                         const char *source) {
    scores ours, theirs;
    read_scores(measured, "ppl", &ours);
    read_scores(published, "ppl", &theirs);
    const bool has = ours.methods > 0;
    if (!has) cli_report_missing(report, source);
    if (!has && theirs.methods == 0) return;
    if (has && theirs.methods > 0) compare(report, &ours, &theirs);
    cli_report_plots_begin(report);
    if (has)
        plot_scores(report, &ours, theirs.methods > 0 ? &theirs : &ours, "Perplexity, ours",
                    measured->recorded, source);
    if (theirs.methods > 0)
        plot_scores(report, &theirs, &theirs, "Perplexity, published", "published",
                    "the paper's table");
    cli_report_plots_end(report);
    write_table(report->out, "Perplexity", &ours, &theirs);
    read_scores(measured, "acc", &ours);
    read_scores(published, "acc", &theirs);
    write_table(report->out, "Accuracy of the next token, percent", &ours, &theirs);
    if (has) cli_report_source(report, measured->recorded, "%s", source);
}

static int write_experiment(cli_report *report, const char *folder) {
    char measured_name[96], published_name[96], source[96];
    cli_sheet measured, published = {0};
    snprintf(measured_name, sizeof measured_name, "%s/summary.tsv", folder);
    snprintf(published_name, sizeof published_name, "%s/published.tsv", folder);
    snprintf(source, sizeof source, "experiments/%s/run", folder);
    int code = cli_sheet_read(report->experiments, measured_name, &measured);
    if (code == CLI_DONE) code = cli_sheet_read(report->experiments, published_name, &published);
    if (code == CLI_DONE) write_scores(report, &measured, &published, source);
    if (code == CLI_DONE) code = cli_sheet_check(&measured);
    if (code == CLI_DONE) code = cli_sheet_check(&published);
    cli_sheet_free(&measured);
    cli_sheet_free(&published);
    return code;
}

int cli_report_scratch(cli_report *report) {
    cli_page_element(report->out, "p",
                     "A small Qwen3 (1.0 million parameters, context 1k, WikiText-2) trained from "
                     "scratch with each attention, scored at longer contexts on the same tokens; "
                     "the paper's is Qwen3-0.6B at 8k. Mean ± standard deviation over the seeds.");
    return write_experiment(report, "table-scratch");
}

int cli_report_protocol(cli_report *report) {
    cli_page_element(report->out, "p",
                     "The same model and text. As in the paper's code the rows of the text are "
                     "shuffled, all heads have one sigma, and twice the length is scored on the "
                     "last half of every window.");
    return write_experiment(report, "table-protocol");
}

int cli_report_lora(cli_report *report) {
    cli_page_element(report->out, "p",
                     "SmolLM2-135M in four bits, fine-tuned with LoRA under each attention at a "
                     "context of 1k; the paper's is Mistral-7B at 4k.");
    return write_experiment(report, "table-lora");
}
