/* cli: cells of points: plsh draw --positions. */
#include "cli/picture.h"

#include "cli/command.h"
#include "cli/message.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the picture ------------------------------------------------------------------------------
 */

enum { SIDE = 320, GAP = 24, TITLE = 40, PANELS = 3, LINES = 4096 };

/* The box of the points, and how it is drawn. */
typedef struct frame {
    double low[2], span, radius; /* radius: the largest |x| of the box */
} frame;

static frame find_frame(plsh_point_set points) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int64_t i = 0; i < points.n; i++)
        for (int a = 0; a < 2; a++) { /* fmin and fmax pass over NaN */
            low[a] = fmin(low[a], (double)points.x[2 * i + a]);
            high[a] = fmax(high[a], (double)points.x[2 * i + a]);
        }
    frame out = {.span = fmax(fmax(high[0] - low[0], high[1] - low[1]), 1e-30) * 1.06};
    double square = 0;
    for (int a = 0; a < 2; a++) {
        out.low[a] = (low[a] + high[a] - out.span) / 2;
        square += pow(fmax(fabs(out.low[a]), fabs(out.low[a] + out.span)), 2);
    }
    out.radius = sqrt(square);
    return out;
}

static double place(const frame *in, int axis, double x) {
    return (x - in->low[axis]) / in->span * SIDE;
}

/* A colour of its own for every label, by steps of the golden ratio around the circle of hues. */
static void put_point(FILE *out, const frame *in, const float *x, int32_t label, double size) {
    if (isnan(x[0]) || isnan(x[1])) return;
    const double hue = 360 * fmod(label * 0.6180339887498949, 1);
    fprintf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"hsl(%.0f 65%% %d%%)\"/>\n",
            place(in, 0, (double)x[0]), place(in, 1, (double)x[1]), size, hue,
            45 + 12 * (label % 3));
}

static void put_line(FILE *out, const frame *in, const plsh_hyperplane *line) {
    const double u = line->normal[0], v = line->normal[1], far = 4 * in->radius;
    fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
            place(in, 0, u * line->offset - v * far), place(in, 1, v * line->offset + u * far),
            place(in, 0, u * line->offset + v * far), place(in, 1, v * line->offset - u * far));
}

static void put_panel(FILE *out, const plsh_partition *set, plsh_point_set points,
                      const int32_t *labels, int64_t sample, plsh_hyperplane *lines) {
    const frame in = find_frame(points);
    const double size = fmax(0.6, fmin(5, 0.32 * SIDE / sqrt((double)points.n)));
    int64_t count = plsh_cells_hyperplanes(set, sample, 2, in.radius, lines, LINES);
    fprintf(out,
            "<svg x=\"%lld\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<g stroke=\"#999\" stroke-width=\"0.7\">\n",
            (long long)(GAP + sample * (SIDE + GAP)), TITLE, SIDE, SIDE, SIDE, SIDE);
    /* If there are more lines than this, none is drawn: they would cover the picture. */
    for (int64_t h = 0; h < count && count <= LINES; h++) put_line(out, &in, &lines[h]);
    fprintf(out, "</g>\n");
    for (int64_t i = 0; i < points.n; i++)
        put_point(out, &in, points.x + 2 * i, labels[sample * points.n + i], size);
    fprintf(out,
            "<rect x=\"0.4\" y=\"0.4\" width=\"%g\" height=\"%g\" fill=\"none\" stroke=\"#444\" "
            "stroke-width=\"0.8\"/>\n</svg>\n",
            SIDE - 0.8, SIDE - 0.8);
}

int cli_cells_paint(const cli_output *output, const plsh_partition *set, plsh_point_set points,
                    const int32_t *labels) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    plsh_hyperplane *lines = calloc(LINES, sizeof *lines);
    bool memory = out != NULL && lines != NULL;
    const int64_t panels = set->samples < PANELS ? set->samples : PANELS;
    const long long width = GAP + panels * (SIDE + GAP), height = TITLE + SIDE + GAP;
    if (memory) {
        fprintf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %lld %lld\" "
                "width=\"%lld\" height=\"%lld\" font-family=\"serif\" fill=\"#222\">\n<title>Cells "
                "of random hyperplanes</title>\n<rect width=\"100%%\" height=\"100%%\" "
                "fill=\"#fff\"/>\n<text x=\"%d\" y=\"26\" font-size=\"16\">%lld points, draws 1 to "
                "%lld of %lld: points of one colour share a cell</text>\n",
                width, height, width, height, GAP, (long long)points.n, (long long)panels,
                (long long)set->samples);
        for (int64_t m = 0; m < panels; m++) put_panel(out, set, points, labels, m, lines);
        fprintf(out, "</svg>\n");
    }
    if (out != NULL && fclose(out) != 0) memory = false;
    int code = memory ? cli_output_print(output, "%s", text)
                      : cli_fail("%s: out of memory for the picture", output->path);
    free(lines);
    free(text);
    return code;
}
