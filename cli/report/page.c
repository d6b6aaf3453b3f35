/* cli/report: a self-contained HTML page. */
#include "cli/report/page.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Colours are variables with values for light and for dark mode: text, faint text, rules, and the
 * series, which differ in lightness too. Nothing is wider than the page but tables, which scroll in
 * their own box. */
static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#18222d;--faint:#566473;--rule:#dde4ea;"
    "--shade:#f4f7f9;--c0:#1f6fb5;--c1:#d1580a;--c2:#12824a;--c3:#8446ac;--c4:#a67808;"
    "--c5:#c22f4b;--c6:#66727f}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#11161c;--ink:#e5ebf2;--faint:#9dabba;"
    "--rule:#2b3541;--shade:#1a212a;--c0:#6cb2f5;--c1:#ff9d5a;--c2:#5ed08f;--c3:#c99ded;"
    "--c4:#e6bf4b;--c5:#ff8094;--c6:#9dabba}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:62rem;margin:0 auto;padding:1rem}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:.6rem 0}\n"
    "h2{font-size:1.25rem;margin:0 0 .2rem}\n"
    "section{border-top:1px solid var(--rule);padding:1.4rem 0 1rem}\n"
    "p{margin:.3rem 0 .7rem;max-width:46rem}\n"
    ".source,.note{color:var(--faint);font-size:.82rem;margin:.5rem 0 0;max-width:none}\n"
    "code{font-size:.95em;overflow-wrap:anywhere}\n"
    ".plots{display:grid;gap:1.2rem 2rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr))}\n"
    ".matrices{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));"
    "max-width:52rem}\n"
    "figure{margin:0;min-width:0}\n"
    "figcaption{font-weight:600;font-size:.92rem}\n"
    ".matrices figcaption{font-weight:400;text-align:center;margin-top:.2rem}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--faint)}\n"
    "svg .title{fill:var(--ink)}\n"
    ".grid,.frame{fill:none;stroke:var(--rule)}\n"
    ".frame{stroke:var(--faint)}\n"
    ".line,.bar{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}\n"
    ".bar{stroke-width:1.2;opacity:.6}\n"
    ".dashes .line{stroke-dasharray:5 3;stroke-width:1.4}\n"
    "circle{fill:currentColor}\n"
    ".dashes circle{fill:var(--paper);stroke:currentColor;stroke-width:1.2}\n"
    ".band{fill:currentColor;opacity:.22}\n"
    ".matrix{color:var(--c0);background:var(--paper);border:1px solid var(--faint)}\n"
    ".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}"
    ".c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}\n"
    ".legend{list-style:none;margin:.1rem 0 0;padding:0 0 0 12%;display:flex;flex-wrap:wrap;"
    "gap:0 1rem;font-size:.85rem}\n"
    ".legend li{display:flex;align-items:center;gap:.4rem}\n"
    ".key{width:24px;height:10px;flex:none}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}\n"
    "caption{text-align:left;font-weight:600;padding:.3rem 0}\n"
    "th,td{padding:.15rem .45rem;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--rule)}\n"
    "th{font-weight:600}th:first-child,td:first-child{text-align:left;padding-left:0}\n"
    "td small{color:var(--faint);font-size:.8em}\n"
    "td.theirs,th.theirs{background:var(--shade)}\n"
    "pre{background:var(--shade);padding:.6rem;overflow-x:auto;font-size:.8rem}\n";

void cli_page_begin(FILE *out, const char *title) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          out);
    cli_page_element(out, "title", "%s", title);
    fprintf(out, "<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
    cli_page_element(out, "h1", "%s", title);
}

void cli_page_end(FILE *out) { fputs("</main>\n</body>\n</html>\n", out); }

void cli_page_text(FILE *out, const char *text) {
    for (; *text != '\0'; text++) switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
}

void cli_page_element(FILE *out, const char *element, const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    fprintf(out, "<%s>", element);
    if (text != NULL) cli_page_text(out, text);
    fprintf(out, "</%.*s>\n", (int)strcspn(element, " "), element);
    free(text);
}
