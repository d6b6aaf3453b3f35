/* web: the plots of `plsh report`, drawn into memory. */
#include "cli/report/plot.h"
#include "web/web.h"

#include <stdlib.h>
#include <string.h>

/* The texts of the plot, which has only pointers to them. */
static char texts[3][96];
static cli_plot plot;
static cli_series *series;
static char *drawn;

static const char *keep(char to[96], const char *text) {
    snprintf(to, 96, "%s", text);
    return to;
}

void web_plot_begin(const char *title, const char *x, int x_scale, const char *y, int y_scale) {
    memset(&plot, 0, sizeof plot);
    plot.title = keep(texts[0], title);
    plot.x = (cli_axis){keep(texts[1], x), (cli_axis_scale)x_scale};
    plot.y = (cli_axis){keep(texts[2], y), (cli_axis_scale)y_scale};
}

void web_plot_series(int style, int colour, const char *name) {
    series = cli_plot_series(&plot, (cli_series_style)style, colour, "%s", name);
}

void web_plot_mark(double x, double y, double low, double high) {
    cli_series_mark(series, (cli_mark){x, y, low, high});
}

const char *web_plot_end(void) {
    size_t size = 0;
    free(drawn);
    drawn = NULL;
    FILE *out = open_memstream(&drawn, &size);
    const bool any = out != NULL && cli_plot_write(out, &plot);
    if (out != NULL) fclose(out);
    return any ? drawn : NULL;
}
