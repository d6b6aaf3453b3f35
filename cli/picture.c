/* cli: the picture of masks and their mean, which tends to the bias matrix, like the paper's Figure
 * 1. */
#include "cli/picture.h"

#include "cli/command.h"
#include "cli/message.h"

#include <stdio.h>
#include <stdlib.h>

/* Lengths in SVG units. A row: a fraction and a parenthesis, the masks, "=", M~, "~", L*. */
enum {
    SIDE = 150,
    GAP = 34,
    MARGIN = 24,
    LEFT = 74,
    TITLE = 46,
    ROW = SIDE + 62,
    BAR = 64,
    DOTS = 54
};
enum { MASKS = 3 }; /* single masks at the left, before the dots and the last one */

static const char serif[] = "font-family=\"Latin Modern Roman, STIX Two Text, Georgia, serif\"";

/* White to dark blue through equal steps of lightness, for a weight in [0, 1]. */
static void put_colour(FILE *out, double weight) {
    static const double stops[5][3] = {
        {255, 255, 255}, {201, 221, 240}, {126, 178, 221}, {47, 118, 183}, {8, 48, 107}};
    double x = weight < 0 ? 0 : weight > 1 ? 4 : 4 * weight;
    int i = x < 3 ? (int)x : 3;
    double f = x - i;
    fprintf(out, "#");
    for (int c = 0; c < 3; c++)
        fprintf(out, "%02x", (unsigned)(stops[i][c] + f * (stops[i + 1][c] - stops[i][c]) + 0.5));
}

static void put_frame(FILE *out, double x, double y) {
    fprintf(out,
            "<rect x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\" "
            "stroke-width=\"0.8\"/>\n",
            x, y, SIDE, SIDE);
}

/* Cells of equal weight in a row are one rectangle, in units of a cell. */
static void put_matrix(FILE *out, double x, double y, const double *weights, int64_t n) {
    fprintf(out, "<g shape-rendering=\"crispEdges\" transform=\"translate(%g %g) scale(%.8g)\">\n",
            x, y, (double)SIDE / (double)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0, end; j < n; j = end) {
            const double *row = weights + i * n;
            for (end = j + 1; end < n && row[end] == row[j];) end++;
            if (row[j] == 0) continue;
            fprintf(out, "<path fill=\"");
            put_colour(out, row[j]);
            fprintf(out, "\" d=\"M%d %dh%dv1H%dz\"/>\n", (int)j, (int)i, (int)(end - j), (int)j);
        }
    fprintf(out, "</g>\n");
    put_frame(out, x, y);
}

static void put_sign(FILE *out, double x, double y, const char *sign) {
    fprintf(out, "<text x=\"%g\" y=\"%g\" font-size=\"24\" text-anchor=\"middle\">%s</text>\n", x,
            y + SIDE / 2.0 + 8, sign);
}

static void put_caption(FILE *out, double x, double y, const char *caption) {
    fprintf(out, "<text x=\"%g\" y=\"%g\" font-size=\"15\" text-anchor=\"middle\">%s</text>\n",
            x + SIDE / 2.0, y + SIDE + 22, caption);
}

/* 1/s times an opening parenthesis as high as a matrix, or the closing one. */
static void put_parenthesis(FILE *out, double x, double y, bool opens) {
    double bulge = opens ? -9 : 9;
    fprintf(out,
            "<path d=\"M %g %g Q %g %g %g %g\" fill=\"none\" stroke=\"#222\" "
            "stroke-width=\"1.6\"/>\n",
            x, y + 2, x + 2 * bulge, y + SIDE / 2.0, x, y + SIDE - 2.0);
}

static void put_fraction(FILE *out, double x, double y, int64_t s) {
    double middle = y + SIDE / 2.0;
    fprintf(out,
            "<text x=\"%g\" y=\"%g\" font-size=\"17\" text-anchor=\"middle\">1</text>\n"
            "<line x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\" stroke=\"#222\"/>\n"
            "<text x=\"%g\" y=\"%g\" font-size=\"17\" text-anchor=\"middle\">%lld</text>\n",
            x, middle - 6, x - 19, x + 19, middle, middle, x, middle + 18, (long long)s);
}

int cli_masks_mean(const plsh_partition *set, int64_t first, int64_t count, int64_t n,
                   double *weights) {
    plsh_error error;
    int32_t *labels = calloc((size_t)n, sizeof *labels);
    if (labels == NULL) return cli_fail("out of memory for %lld labels", (long long)n);
    int code = CLI_DONE;
    for (int64_t i = 0; i < n * n; i++) weights[i] = 0;
    for (int64_t m = first; m < first + count && code == CLI_DONE; m++) {
        if (plsh_partition_labels(set, m, n, labels, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        for (int64_t i = 0; i < n && code == CLI_DONE; i++)
            for (int64_t j = 0; j < n; j++) weights[i * n + j] += labels[i] == labels[j];
    }
    for (int64_t i = 0; i < n * n; i++) weights[i] /= (double)count;
    free(labels);
    return code;
}

void cli_masks_limit(const plsh_decay *decay, int64_t n, double *weights) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            weights[i * n + j] = plsh_decay_value(decay, i < j ? j - i : i - j);
}

typedef struct canvas {
    FILE *out;
    int64_t n;
    double *weights; /* n * n */
} canvas;

static int put_mask(canvas *c, const plsh_partition *set, int64_t sample, double x, double y) {
    char caption[96];
    int code = cli_masks_mean(set, sample, 1, c->n, c->weights);
    if (code != CLI_DONE) return code;
    put_matrix(c->out, x, y, c->weights, c->n);
    snprintf(caption, sizeof caption,
             "<tspan font-style=\"italic\">M</tspan><tspan font-size=\"11\" dy=\"4\">%lld</tspan>",
             (long long)sample + 1);
    put_caption(c->out, x, y, caption);
    return CLI_DONE;
}

static int put_mean(canvas *c, const plsh_partition *set, double x, double y) {
    int code = cli_masks_mean(set, 0, set->samples, c->n, c->weights);
    if (code != CLI_DONE) return code;
    put_matrix(c->out, x, y, c->weights, c->n);
    char caption[160];
    snprintf(caption, sizeof caption,
             "<tspan font-style=\"italic\">M&#771;</tspan>, mean of %lld mask%s",
             (long long)set->samples, set->samples == 1 ? "" : "s");
    put_caption(c->out, x, y, caption);
    return CLI_DONE;
}

static void put_limit(canvas *c, const plsh_partition *set, double x, double y) {
    cli_masks_limit(&set->decay, c->n, c->weights);
    put_matrix(c->out, x, y, c->weights, c->n);
    const char *name = "<tspan font-style=\"italic\">L</tspan>*";
    char caption[192];
    if (set->decay.kind == PLSH_DECAY_ALIBI && set->decay.limit == 0)
        snprintf(caption, sizeof caption,
                 "%s = exp(&#8722;|<tspan font-style=\"italic\">i</tspan> &#8722; <tspan "
                 "font-style=\"italic\">j</tspan>| / %.4g)",
                 name, set->decay.a);
    else
        snprintf(caption, sizeof caption, "%s, the decay itself", name);
    put_caption(c->out, x, y, caption);
}

/* Three masks, dots and the last one; all of them where there are at most four. */
static int put_row(canvas *c, const plsh_partition *set, double y) {
    double x = LEFT;
    int64_t s = set->samples;
    int64_t first = s <= MASKS + 1 ? s : MASKS;
    int code = CLI_DONE;
    put_fraction(c->out, x - 40, y, s);
    put_parenthesis(c->out, x - 8, y, true);
    for (int64_t m = 0; m < first && code == CLI_DONE; m++, x += SIDE + GAP) {
        if (m > 0) put_sign(c->out, x - GAP / 2.0, y, "+");
        code = put_mask(c, set, m, x, y);
    }
    if (first < s && code == CLI_DONE) {
        put_sign(c->out, x + (DOTS - GAP) / 2.0, y, "+ &#8943; +");
        x += DOTS;
        code = put_mask(c, set, s - 1, x, y);
        x += SIDE + GAP;
    }
    put_parenthesis(c->out, x - GAP + 8, y, false);
    put_sign(c->out, x, y, "=");
    x += GAP;
    if (code == CLI_DONE) code = put_mean(c, set, x, y);
    x += SIDE + GAP;
    put_sign(c->out, x - GAP / 2.0, y, "&#8776;");
    if (code == CLI_DONE) put_limit(c, set, x, y);
    return code;
}

static double row_width(int64_t samples) {
    int64_t masks = samples <= MASKS + 1 ? samples : MASKS + 1;
    double dots = samples <= MASKS + 1 ? 0 : DOTS;
    return LEFT + (double)(masks + 1) * (SIDE + GAP) + dots + GAP + SIDE;
}

/* The scale of the weights, beside the last matrix of the first row. */
static void put_scale(FILE *out, double x, double y) {
    enum { STEPS = 50 };
    fprintf(out, "<g shape-rendering=\"crispEdges\">\n");
    for (int i = 0; i < STEPS; i++) {
        double height = (double)SIDE / STEPS;
        fprintf(out, "<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"%g\" fill=\"", x,
                y + i * height, height);
        put_colour(out, 1 - (i + 0.5) / STEPS);
        fprintf(out, "\"/>\n");
    }
    fprintf(out,
            "</g>\n<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"%d\" fill=\"none\" "
            "stroke=\"#444\" stroke-width=\"0.8\"/>\n",
            x, y, SIDE);
    for (int i = 0; i <= 2; i++)
        fprintf(out, "<text x=\"%g\" y=\"%g\" font-size=\"12\">%s</text>\n", x + 17,
                y + i * SIDE / 2.0 + 4,
                i == 0   ? "1"
                : i == 1 ? "&#189;"
                         : "0");
}

static int put_picture(canvas *c, const plsh_partition *sets, size_t count) {
    double row = row_width(sets[0].samples);
    double width = row + BAR, height = TITLE + (double)count * ROW + MARGIN - 24;
    fprintf(c->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
            "height=\"%g\" %s fill=\"#222\">\n<title>Random block masks, their mean, and the bias "
            "matrix they converge to</title>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            width, height, width, height, serif);
    fprintf(c->out,
            "<text x=\"%g\" y=\"28\" font-size=\"17\" text-anchor=\"middle\">The mean of random "
            "block masks converges to %s, positions 0 to %lld</text>\n",
            width / 2, sets[0].decay.kind == PLSH_DECAY_ALIBI ? "ALiBi" : "the decay",
            (long long)c->n - 1);
    int code = CLI_DONE;
    for (size_t h = 0; h < count && code == CLI_DONE; h++)
        code = put_row(c, &sets[h], TITLE + (double)h * ROW);
    put_scale(c->out, row + 18, TITLE);
    fprintf(c->out, "</svg>\n");
    return code;
}

int cli_picture_write(const cli_output *output, const plsh_partition *sets, size_t count,
                      int64_t n) {
    char *text = NULL;
    size_t length = 0;
    canvas c = {.out = open_memstream(&text, &length), .n = n};
    c.weights = calloc((size_t)(n * n), sizeof *c.weights);
    int code = CLI_FAILED;
    bool memory = c.out != NULL && c.weights != NULL;
    if (memory) code = put_picture(&c, sets, count);
    if (c.out != NULL && fclose(c.out) != 0) memory = false;
    if (!memory)
        code = cli_fail("%s: out of memory for the picture", output->path);
    else if (code == CLI_DONE)
        code = cli_output_print(output, "%s", text);
    free(c.weights);
    free(text);
    return code;
}
