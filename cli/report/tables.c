/* cli/report: the paper's two tables, ours beside the published ones. */
#include "cli/moments.h"
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
    score cells[METHODS][LENGTHS];
} scores;

static size_t method_of(scores *to, const char *name) {
    size_t m = 0;
    while (m < to->methods && strcmp(to->name[m], name) != 0) m++;
    if (m < to->methods || m == METHODS) return m;
    to->name[to->methods++] = name;
    return m;
}

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

static const char *column_of(const char *what, int length, const char *ending, char text[64]) {
    snprintf(text, 64, "%s_%d%s", what, length, ending);
    return text;
}

/* Over the rows of a name: runs with other seeds. A table that has deviations already (columns
 * ppl_8192_std) has one row each. */
static void summarise(cli_sheet *sheet, const char *what, scores *out) {
    *out = (scores){0};
    find_lengths(sheet, what, out);
    for (size_t r = 0; r < sheet->rows; r++) method_of(out, cli_sheet_text(sheet, r, "name"));
    for (size_t m = 0; m < out->methods; m++)
        for (size_t l = 0; l < out->lengths; l++) {
            char column[64], deviation[64];
            cli_moments all = {0};
            score *cell = &out->cells[m][l];
            column_of(what, out->length[l], "", column);
            column_of(what, out->length[l], "_std", deviation);
            for (size_t r = 0; r < sheet->rows; r++) {
                if (strcmp(cli_sheet_text(sheet, r, "name"), out->name[m]) != 0) continue;
                cli_moments_add(&all, cli_sheet_number(sheet, r, column));
                if (cli_sheet_has(sheet, deviation))
                    cell->deviation = cli_sheet_number(sheet, r, deviation);
            }
            cell->mean = all.mean;
            if (all.count > 1) cell->deviation = cli_moments_deviation(&all);
        }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_heads(FILE *out, const scores *from, const char *class, const char *who) {
    for (size_t l = 0; l < from->lengths; l++)
        cli_page_element(out, class, "%s %dk", who, from->length[l] / 1024);
}

static void write_cells(FILE *out, const scores *from, const char *name, const char *class) {
    size_t m = 0;
    while (m < from->methods && strcmp(from->name[m], name) != 0) m++;
    for (size_t l = 0; l < from->lengths; l++) {
        fprintf(out, "<td%s>", class);
        if (m < from->methods) fprintf(out, "%.2f", from->cells[m][l].mean);
        if (m < from->methods && from->cells[m][l].deviation > 0)
            fprintf(out, " <small>±%.2f</small>", from->cells[m][l].deviation);
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
    for (size_t m = 0; m < ours->methods; m++) {
        fputs("<tr><td>", out);
        cli_page_text(out, ours->name[m]);
        fputs("</td>", out);
        write_cells(out, ours, ours->name[m], "");
        write_cells(out, theirs, ours->name[m], " class=\"theirs\"");
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

/* Methods of both tables; pairs that the published one tells apart by two deviations at its
 * shortest length, and how many of them are in the same order here. */
static void compare(cli_report *report, const scores *ours, const scores *theirs) {
    int told = 0, same = 0;
    for (size_t a = 0; a < theirs->methods; a++)
        for (size_t b = 0; b < a; b++) {
            size_t x = 0, y = 0;
            while (x < ours->methods && strcmp(ours->name[x], theirs->name[a]) != 0) x++;
            while (y < ours->methods && strcmp(ours->name[y], theirs->name[b]) != 0) y++;
            if (x == ours->methods || y == ours->methods) continue;
            const score *p = &theirs->cells[a][0], *q = &theirs->cells[b][0];
            if (fabs(p->mean - q->mean) < 2 * sqrt(2) * deviation_at(theirs, 0)) continue;
            told++;
            same += (p->mean > q->mean) == (ours->cells[x][0].mean > ours->cells[y][0].mean);
        }
    cli_page_element(report->out, "p",
                     "Of the %d pairs of attentions whose perplexities the published table tells "
                     "apart by two standard deviations at its training length, %d are in the same "
                     "order here.",
                     told, same);
}

static void plot_scores(cli_report *report, const scores *from, const scores *other,
                        const char *title, const char *day, const char *source) {
    cli_plot plot = {.title = title,
                     .x = {"context length", CLI_AXIS_TWOS},
                     .y = {"perplexity", CLI_AXIS_LINEAR}};
    for (size_t m = 0; m < other->methods && m < CLI_PLOT_SERIES; m++)
        for (size_t x = 0; x < from->methods; x++) {
            if (strcmp(from->name[x], other->name[m]) != 0) continue;
            cli_series *series =
                cli_plot_series(&plot, CLI_SERIES_LINE, (int)(m % 6), "%s", other->name[m]);
            for (size_t l = 0; l < from->lengths; l++) {
                const score *cell = &from->cells[x][l];
                cli_series_mark(series, (cli_mark){from->length[l], cell->mean,
                                                   cell->mean - cell->deviation,
                                                   cell->mean + cell->deviation});
            }
        }
    cli_report_plot(report, &plot, day, "%s", source);
}

static void write_scores(cli_report *report, cli_sheet *runs, cli_sheet *published,
                         const char *source) {
    scores ours, theirs;
    summarise(runs, "ppl", &ours);
    summarise(published, "ppl", &theirs);
    compare(report, &ours, &theirs);
    cli_report_plots_begin(report);
    plot_scores(report, &ours, &theirs, "Perplexity, ours", runs->recorded, source);
    plot_scores(report, &theirs, &theirs, "Perplexity, published", "published",
                "the paper's table");
    cli_report_plots_end(report);
    write_table(report->out, "Perplexity", &ours, &theirs);
    summarise(runs, "acc", &ours);
    summarise(published, "acc", &theirs);
    write_table(report->out, "Accuracy of the next token, percent", &ours, &theirs);
    cli_report_source(report, runs->recorded, "%s", source);
}

static int write_experiment(cli_report *report, const char *folder) {
    char runs_name[96], published_name[96], source[96];
    cli_sheet runs, published = {0};
    snprintf(runs_name, sizeof runs_name, "%s/runs.tsv", folder);
    snprintf(published_name, sizeof published_name, "%s/published.tsv", folder);
    snprintf(source, sizeof source, "experiments/%s/run", folder);
    int code = cli_sheet_read(report->experiments, runs_name, &runs);
    if (code == CLI_DONE) code = cli_sheet_read(report->experiments, published_name, &published);
    if (code == CLI_DONE && runs.rows == 0)
        cli_report_missing(report, source);
    else if (code == CLI_DONE)
        write_scores(report, &runs, &published, source);
    if (code == CLI_DONE) code = cli_sheet_check(&runs);
    if (code == CLI_DONE) code = cli_sheet_check(&published);
    cli_sheet_free(&runs);
    cli_sheet_free(&published);
    return code;
}

int cli_report_scratch(cli_report *report) {
    cli_page_element(report->out, "p",
                     "A small Qwen3 (1.4 million parameters, context 1k, WikiText-2) trained from "
                     "scratch with each attention, scored at longer contexts on the same tokens; "
                     "the paper's is Qwen3-0.6B at 8k. Mean ± standard deviation over the seeds.");
    return write_experiment(report, "table-scratch");
}

int cli_report_lora(cli_report *report) {
    cli_page_element(report->out, "p",
                     "SmolLM2-135M in four bits, fine-tuned with LoRA under each attention at a "
                     "context of 1k; the paper's is Mistral-7B at 4k.");
    return write_experiment(report, "table-lora");
}
