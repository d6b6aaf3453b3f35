/* cli/report: the paper's first figure: masks whose mean is ALiBi, as matrices. */
#include "cli/picture.h"
#include "cli/report/page.h"
#include "cli/report/report.h"

#include <stdlib.h>

enum { POSITIONS = 40, SAMPLES = 256, LEVELS = 64 };
static const double sigma = 8;

/* Cells of one weight are one path; the weight is how opaque it is. */
static void write_matrix(FILE *out, const double *weights) {
    fprintf(out, "<svg class=\"matrix\" viewBox=\"0 0 %d %d\" shape-rendering=\"crispEdges\">\n",
            POSITIONS, POSITIONS);
    for (int level = 1; level <= LEVELS; level++) {
        bool open = false;
        for (int i = 0; i < POSITIONS; i++)
            for (int j = 0, end; j < POSITIONS; j = end) {
                const double *row = weights + (size_t)i * POSITIONS;
                for (end = j; end < POSITIONS && (int)(LEVELS * row[end] + 0.5) == level;) end++;
                if (end == j && ++end) continue;
                if (!open)
                    fprintf(out, "<path fill=\"currentColor\" fill-opacity=\"%.3g\" d=\"",
                            (double)level / LEVELS);
                open = true;
                fprintf(out, "M%d %dh%dv1h-%dz", j, i, end - j, end - j);
            }
        if (open) fputs("\"/>\n", out);
    }
    fputs("</svg>\n", out);
}

static double largest_difference(const double *a, const double *b) {
    double most = 0;
    for (size_t x = 0; x < (size_t)POSITIONS * POSITIONS; x++) most = fmax(most, fabs(a[x] - b[x]));
    return most;
}

static int write_means(cli_report *report, double *weights, const double *limit) {
    static const int counts[] = {1, 16, SAMPLES};
    plsh_partition set = plsh_partition_default(sigma, SAMPLES);
    set.scheme = PLSH_SCHEME_BINNING; /* the paper's draws */
    set.design = PLSH_DESIGN_IID;
    set.seed = report->common->seed;
    for (size_t i = 0; i < CLI_COUNT(counts); i++) {
        int code = cli_masks_mean(&set, 0, counts[i], POSITIONS, weights);
        if (code != CLI_DONE) return code;
        fputs("<figure>\n", report->out);
        write_matrix(report->out, weights);
        if (counts[i] == 1)
            cli_page_element(report->out, "figcaption", "one mask");
        else
            cli_page_element(report->out, "figcaption", "mean of %d, within %.2f", counts[i],
                             largest_difference(weights, limit));
        fputs("</figure>\n", report->out);
    }
    return CLI_DONE;
}

int cli_report_masks(cli_report *report) {
    const size_t cells = (size_t)POSITIONS * POSITIONS;
    double *weights = calloc(2 * cells, sizeof *weights);
    if (weights == NULL) return cli_fail("out of memory for a picture");
    const plsh_partition set = plsh_partition_default(sigma, 1);
    cli_masks_limit(&set.decay, POSITIONS, weights + cells);
    cli_page_element(
        report->out, "p",
        "One draw cuts the positions into blocks: a mask of zeros and ones. The mean of "
        "such masks converges to the ALiBi matrix exp(−|i − j|/σ). Here σ = %g, "
        "positions 0 to %d.",
        sigma, POSITIONS - 1);
    fputs("<div class=\"matrices\">\n", report->out);
    int code = write_means(report, weights, weights + cells);
    if (code == CLI_DONE) {
        fputs("<figure>\n", report->out);
        write_matrix(report->out, weights + cells);
        cli_page_element(report->out, "figcaption", "ALiBi");
        fputs("</figure>\n</div>\n", report->out);
        cli_report_source(report, report->today,
                          "plsh draw --n %d --sigma %g --samples %d --scheme binning --design iid "
                          "--svg masks.svg",
                          POSITIONS, sigma, SAMPLES);
    }
    free(weights);
    return code;
}
