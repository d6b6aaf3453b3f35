/* cli/report: a plot as SVG. */
#include "cli/report/plot.h"

#include "cli/report/page.h"

#include <math.h>
#include <stdarg.h>

/* In SVG units: about pixels on a phone, so that the text is readable there. The frame leaves room
 * for the title of y above, of x below, and the numbers of y at the left. */
enum { WIDTH = 350, HEIGHT = 250, LEFT = 46, RIGHT = 18, TOP = 26, BOTTOM = 40 };

cli_series *cli_plot_series(cli_plot *plot, cli_series_style style, int colour, const char *name,
                            ...) {
    if (plot->count == CLI_PLOT_SERIES) return &plot->series[plot->count - 1];
    cli_series *series = &plot->series[plot->count++];
    *series = (cli_series){.style = style, .colour = colour};
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(series->name, sizeof series->name, name, arguments);
    va_end(arguments);
    return series;
}

void cli_series_mark(cli_series *series, cli_mark mark) {
    if (series->count < CLI_SERIES_MARKS) series->marks[series->count++] = mark;
}

/* ---- from numbers to places ------------------------------------------------------------------ */

/* The range of an axis, in its own scale, and the positions of its ends in the picture. */
typedef struct span {
    const cli_axis *axis;
    double from, to;
    double begin, end;
} span;

static double scaled(const cli_axis *axis, double value) {
    return axis->scale == CLI_AXIS_LINEAR ? value : log10(value);
}

static bool shown(const cli_axis *axis, double value) { return isfinite(scaled(axis, value)); }

static double place(const span *s, double value) {
    double part = (scaled(s->axis, value) - s->from) / (s->to - s->from);
    return s->begin + part * (s->end - s->begin);
}

static void widen(span *s, double value) {
    if (!shown(s->axis, value)) return;
    s->from = fmin(s->from, scaled(s->axis, value));
    s->to = fmax(s->to, scaled(s->axis, value));
}

static bool drawn(const cli_plot *plot, const cli_series *series, const cli_mark *mark) {
    if (!shown(&plot->x, mark->x)) return false;
    if (series->style == CLI_SERIES_BAND)
        return shown(&plot->y, mark->low) && shown(&plot->y, mark->high);
    return shown(&plot->y, mark->y);
}

/* The frame that holds every mark, with a little air. False: there is none. */
static bool measure(const cli_plot *plot, span *x, span *y) {
    *x = (span){&plot->x, INFINITY, -INFINITY, LEFT, WIDTH - RIGHT};
    *y = (span){&plot->y, INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP};
    for (size_t i = 0; i < plot->count; i++)
        for (size_t m = 0; m < plot->series[i].count; m++) {
            const cli_series *series = &plot->series[i];
            const cli_mark *mark = &series->marks[m];
            if (!drawn(plot, series, mark)) continue;
            widen(x, mark->x);
            if (series->style != CLI_SERIES_BAND) widen(y, mark->y);
            widen(y, mark->low);
            widen(y, mark->high);
        }
    if (x->from > x->to) return false;
    span *all[] = {x, y};
    for (int i = 0; i < 2; i++) {
        double least =
            all[i]->axis->scale == CLI_AXIS_LINEAR ? 1e-12 + 0.02 * fabs(all[i]->to) : 0.1;
        double air =
            fmax(0.04 * (all[i]->to - all[i]->from), all[i]->to - all[i]->from < least ? least : 0);
        all[i]->from -= air;
        all[i]->to += air;
    }
    return true;
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* 10 to a power as people write it; between a hundredth and a thousand in full. */
static void write_power(FILE *out, int power) {
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    static const char *const plain[] = {"0.01", "0.1", "1", "10", "100", "1000"};
    if (power >= -2 && power <= 3) {
        fputs(plain[power + 2], out);
        return;
    }
    const int size = power < 0 ? -power : power;
    fprintf(out, "10%s", power < 0 ? "⁻" : "");
    if (size >= 10) fputs(digits[size / 10 % 10], out);
    fputs(digits[size % 10], out);
}

static void write_count(FILE *out, double value) {
    if (value >= 1048576)
        fprintf(out, "%gM", value / 1048576);
    else if (value >= 1024)
        fprintf(out, "%gk", value / 1024);
    else
        fprintf(out, "%g", value);
}

/* A line across the frame, and its number beside the axis. */
static void begin_tick(FILE *out, const span *s, double value, bool across) {
    const double at = place(s, value);
    if (across)
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">",
                LEFT, at, WIDTH - RIGHT, LEFT - 5, at + 4);
    else
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">",
                at, TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 15);
}

static void end_tick(FILE *out) { fputs("</text>\n", out); }

static void linear_ticks(FILE *out, const span *s, bool across) {
    double step = pow(10, floor(log10((s->to - s->from) / 2)));
    if ((s->to - s->from) / step > 12) step *= 5;
    if ((s->to - s->from) / step > 6) step *= 2;
    for (double t = ceil(s->from / step); t * step <= s->to; t++) {
        begin_tick(out, s, t * step, across);
        fprintf(out, "%.6g", t * step);
        end_tick(out);
    }
}

static void power_ticks(FILE *out, const span *s, bool across) {
    const int first = (int)ceil(s->from), last = (int)floor(s->to);
    const int step = 1 + (last - first) / 7;
    static const double parts[] = {1, 2, 5};
    const bool few = last - first < 1;
    for (int p = few ? first - 1 : first; p <= last; p += few ? 1 : step)
        for (int i = 0; i < (few ? 3 : 1); i++) {
            const double value = parts[i] * pow(10, p);
            if (scaled(s->axis, value) < s->from || scaled(s->axis, value) > s->to) continue;
            begin_tick(out, s, value, across);
            if (few)
                fprintf(out, "%g", value);
            else
                write_power(out, p);
            end_tick(out);
        }
}

static void doubling_ticks(FILE *out, const span *s, bool across) {
    const double doublings = (s->to - s->from) / log10(2);
    const double factor = doublings > 14 ? 16 : doublings > 7 ? 4 : 2;
    const double first = ceil(s->from / log10(factor) - 1e-9);
    for (double value = pow(factor, first); log10(value) <= s->to + 1e-9; value *= factor) {
        begin_tick(out, s, value, across);
        write_count(out, value);
        end_tick(out);
    }
}

static void write_axis(FILE *out, const span *s, bool across) {
    if (s->axis->scale == CLI_AXIS_LINEAR) linear_ticks(out, s, across);
    if (s->axis->scale == CLI_AXIS_TENS) power_ticks(out, s, across);
    if (s->axis->scale == CLI_AXIS_TWOS) doubling_ticks(out, s, across);
    if (across)
        fprintf(out, "<text class=\"title\" x=\"4\" y=\"13\">");
    else
        fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", WIDTH - RIGHT,
                HEIGHT - 8);
    cli_page_text(out, s->axis->title);
    end_tick(out);
}

/* ---- series ---------------------------------------------------------------------------------- */

static void write_band(FILE *out, const cli_plot *plot, const cli_series *series, const span *x,
                       const span *y) {
    char letter = 'M';
    fprintf(out, "<path class=\"band c%d\" d=\"", series->colour);
    for (size_t m = 0; m < series->count; m++, letter = 'L')
        if (drawn(plot, series, &series->marks[m]))
            fprintf(out, "%c%.1f %.1f", letter, place(x, series->marks[m].x),
                    place(y, series->marks[m].high));
    for (size_t m = series->count; m-- > 0;)
        if (drawn(plot, series, &series->marks[m]))
            fprintf(out, "L%.1f %.1f", place(x, series->marks[m].x),
                    place(y, series->marks[m].low));
    fputs("z\"/>\n", out);
}

static void write_line(FILE *out, const cli_plot *plot, const cli_series *series, const span *x,
                       const span *y) {
    char letter = 'M';
    fputs("<path class=\"line\" d=\"", out);
    for (size_t m = 0; m < series->count; m++) {
        const cli_mark *mark = &series->marks[m];
        if (!drawn(plot, series, mark)) continue;
        fprintf(out, "%c%.1f %.1f", letter, place(x, mark->x), place(y, mark->y));
        letter = 'L';
    }
    fputs("\"/>\n", out);
}

/* Dots, and bars between the ends of a mark. */
static void write_marks(FILE *out, const cli_plot *plot, const cli_series *series, const span *x,
                        const span *y) {
    for (size_t m = 0; m < series->count; m++) {
        const cli_mark *mark = &series->marks[m];
        if (!drawn(plot, series, mark)) continue;
        const double across = place(x, mark->x);
        if (shown(&plot->y, mark->low) && shown(&plot->y, mark->high))
            fprintf(out, "<path class=\"bar\" d=\"M%.1f %.1fV%.1f\"/>", across, place(y, mark->low),
                    place(y, mark->high));
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>\n", across, place(y, mark->y));
    }
}

static const char *class_of(const cli_series *series) {
    return series->style == CLI_SERIES_DASHES ? "dashes" : "solid";
}

static void write_picture(FILE *out, const cli_plot *plot, const span *x, const span *y) {
    fprintf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, HEIGHT);
    cli_page_text(out, plot->title);
    fputs("</title>\n", out);
    write_axis(out, x, false);
    write_axis(out, y, true);
    for (size_t i = 0; i < plot->count; i++)
        if (plot->series[i].style == CLI_SERIES_BAND) write_band(out, plot, &plot->series[i], x, y);
    for (size_t i = 0; i < plot->count; i++) {
        const cli_series *series = &plot->series[i];
        if (series->style == CLI_SERIES_BAND) continue;
        fprintf(out, "<g class=\"%s c%d\">\n", class_of(series), series->colour);
        if (series->style != CLI_SERIES_DOTS) write_line(out, plot, series, x, y);
        write_marks(out, plot, series, x, y);
        fputs("</g>\n", out);
    }
    fprintf(out, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n</svg>\n", LEFT, TOP, HEIGHT - BOTTOM,
            WIDTH - RIGHT);
}

static void write_key(FILE *out, const cli_series *series) {
    const int colour = series->general ? CLI_PLOT_COLOURS - 1 : series->colour;
    fputs("<svg class=\"key\" viewBox=\"0 0 24 10\" aria-hidden=\"true\">", out);
    if (series->style == CLI_SERIES_BAND) {
        fprintf(out, "<path class=\"band c%d\" d=\"M0 0h24v10h-24z\"/>", colour);
    } else {
        fprintf(out, "<g class=\"%s c%d\">", class_of(series), colour);
        if (series->style != CLI_SERIES_DOTS) fputs("<path class=\"line\" d=\"M0 5h24\"/>", out);
        fputs("<circle cx=\"12\" cy=\"5\" r=\"3\"/></g>", out);
    }
    fputs("</svg>", out);
}

/* Names that stand for several series come last. */
static void write_legend(FILE *out, const cli_plot *plot) {
    fputs("<ul class=\"legend\">\n", out);
    for (int general = 0; general < 2; general++)
        for (size_t i = 0; i < plot->count; i++) {
            const cli_series *series = &plot->series[i];
            if (series->name[0] == '\0' || series->count == 0 || series->general != (general > 0))
                continue;
            fputs("<li>", out);
            write_key(out, series);
            cli_page_text(out, series->name);
            fputs("</li>\n", out);
        }
    fputs("</ul>\n", out);
}

bool cli_plot_write(FILE *out, const cli_plot *plot) {
    span x, y;
    if (!measure(plot, &x, &y)) return false;
    write_picture(out, plot, &x, &y);
    write_legend(out, plot);
    return true;
}
