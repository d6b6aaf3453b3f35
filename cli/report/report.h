/* cli/report: the page's sections. Measurements of seconds run when the page is made; those of
 * hours are read from the experiments' folder, which may be absent. */
#ifndef PLSH_CLI_REPORT_REPORT_H
#define PLSH_CLI_REPORT_REPORT_H

#include "cli/message.h"
#include "cli/options.h"
#include "cli/report/plot.h"

#include <stdio.h>

/* Errors are drawn no lower than this: float32 has no more digits of an output. */
#define CLI_REPORT_LEAST_ERROR 1e-8

typedef struct cli_report {
    FILE *out;
    const cli_common *common;
    const char *experiments; /* the folder; NULL: there is none */
    bool quick;
    char today[11];
    const char *section; /* the title of the current one */
    cli_table *made;     /* the line on stdout: section, source, date */
} cli_report;

/* Below a figure or a table: the command that made it and the day. */
void cli_report_source(cli_report *report, const char *day, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A plot with its title and its source; one of the figures between the next two. */
void cli_report_plot(cli_report *report, const cli_plot *plot, const char *day, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));
void cli_report_plots_begin(cli_report *report);
void cli_report_plots_end(cli_report *report);

/* Replaces a section without data by the command that makes the data. */
void cli_report_missing(cli_report *report, const char *script);

/* Each writes what follows its heading and returns an exit code. Measured here: */
int cli_report_masks(cli_report *report);
int cli_report_norms(cli_report *report);
int cli_report_output(cli_report *report);
int cli_report_trade(cli_report *report);
int cli_report_growth(cli_report *report);

/* Recorded. For output and trade these are the plots beside the measured ones. */
int cli_report_output_recorded(cli_report *report);
int cli_report_trade_recorded(cli_report *report);
int cli_report_extrapolation(cli_report *report);
int cli_report_scratch(cli_report *report);
int cli_report_protocol(cli_report *report);
int cli_report_lora(cli_report *report);
int cli_report_streaming(cli_report *report);
int cli_report_full_scale(cli_report *report);

#endif
