/* cli/report: a plot as SVG, to stand in a page: its colours are the page's (page.c), its legend is
 * beside it in HTML, so that both fit any width. Nothing is allocated. */
#ifndef PLSH_CLI_REPORT_PLOT_H
#define PLSH_CLI_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CLI_PLOT_SERIES = 12, CLI_SERIES_MARKS = 64, CLI_SERIES_NAME = 64, CLI_PLOT_COLOURS = 7 };

/* A point, and the ends of its bar or band (NAN: none). */
typedef struct cli_mark {
    double x, y, low, high;
} cli_mark;

typedef enum cli_series_style {
    CLI_SERIES_LINE,   /* dots joined by a line, with bars where a mark has ends */
    CLI_SERIES_DASHES, /* the same, dashed, with rings for dots */
    CLI_SERIES_DOTS,   /* dots alone */
    CLI_SERIES_BAND    /* the area between the ends of the marks */
} cli_series_style;

typedef struct cli_series {
    char name[CLI_SERIES_NAME]; /* in the legend; empty: not there */
    cli_series_style style;
    int colour;   /* 0 .. CLI_PLOT_COLOURS - 1; series that belong together share one */
    bool general; /* its name stands for all series of its style: the key is grey */
    size_t count;
    cli_mark marks[CLI_SERIES_MARKS];
} cli_series;

typedef enum cli_axis_scale {
    CLI_AXIS_LINEAR,
    CLI_AXIS_TENS, /* logarithmic, ticks at powers of ten (or 1, 2, 5 where there are few) */
    CLI_AXIS_TWOS  /* logarithmic, ticks at powers of two, 1024 written 1k */
} cli_axis_scale;

typedef struct cli_axis {
    const char *title;
    cli_axis_scale scale;
} cli_axis;

typedef struct cli_plot {
    const char *title; /* what the picture shows */
    cli_axis x, y;
    size_t count;
    cli_series series[CLI_PLOT_SERIES];
} cli_plot;

/* A new series of the plot, with printf's name; the last one again where there are too many. */
cli_series *cli_plot_series(cli_plot *plot, cli_series_style style, int colour, const char *name,
                            ...) __attribute__((format(printf, 4, 5)));

/* Adds a mark. One that the axes cannot show (no number, or not positive on a logarithmic one) and
 * marks beyond CLI_SERIES_MARKS are left out when it is drawn. */
void cli_series_mark(cli_series *series, cli_mark mark);

/* The picture, one <svg>, and the list of its series; false where there is nothing to draw. */
bool cli_plot_write(FILE *out, const cli_plot *plot);

#endif
