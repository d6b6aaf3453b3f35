/* cli/report: a self-contained HTML page. */
#ifndef PLSH_CLI_REPORT_PAGE_H
#define PLSH_CLI_REPORT_PAGE_H

#include <stdio.h>

/* The head of the page with its style, up to the first heading; and its end. */
void cli_page_begin(FILE *out, const char *title);
void cli_page_end(FILE *out);

/* Writes text, with HTML's special characters escaped. */
void cli_page_text(FILE *out, const char *text);

/* One element around text that is printed and escaped: <p class="lead">..</p>. `element` may have
 * attributes: "p class=\"lead\"". */
void cli_page_element(FILE *out, const char *element, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
