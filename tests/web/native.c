/* tests: what the page computes, computed by the library on this machine. Reads requests, one per
 * line, and answers each with a line of JSON:
 *     set SCHEME DESIGN SIGMA SAMPLES SEED N DELTA    labels, norms and bounds
 *     cells SIGMA SAMPLES SEED X Y X Y ..             labels
 *     attend N DIM SIGMA SEED METHOD DESIGN SAMPLES WINDOW    errors
 *     generate MODEL METHOD SAMPLES TOKENS PROMPT     ids */
#include "web/web.h"
#ifdef PLSH_WITH_LM
#include "web/model.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SINGLES = 3, MOST_POINTS = 64 };

static int print_error(void) { return printf("{\"error\": \"%s\"}\n", web_error()); }

static void print_numbers(const char *name, const double *x, int count) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) {
        if (i > 0) printf(", ");
        if (isfinite(x[i]))
            printf("%.17g", x[i]);
        else
            printf("null");
    }
    printf("]");
}

static void print_labels(const int32_t *labels, int count) {
    printf("[");
    for (int i = 0; i < count; i++) printf("%s%d", i ? ", " : "", (int)labels[i]);
    printf("]");
}

static void answer_set(const char *line) {
    int scheme, design, samples, seed, n;
    double sigma, delta, norms[3], bounds[3];
    if (sscanf(line, "set %d %d %lf %d %d %d %lf", &scheme, &design, &sigma, &samples, &seed, &n,
               &delta) != 7)
        exit(2);
    int32_t *labels = malloc((size_t)n * sizeof *labels);
    if (labels == NULL) exit(1);
    if (!web_set_choose(scheme, design, sigma, samples, seed) || !web_set_norms(n, norms) ||
        !web_set_bounds(n, delta, bounds)) {
        print_error();
    } else {
        printf("{\"labels\": [");
        for (int i = 0; web_set_has_labels() && i < SINGLES && i < samples; i++) {
            if (!web_set_labels(i, n, labels)) exit(1);
            printf("%s", i ? ", " : "");
            print_labels(labels, n);
        }
        printf("], ");
        print_numbers("norms", norms, 3);
        printf(", ");
        print_numbers("bounds", bounds, 3);
        printf("}\n");
    }
    free(labels);
}

static void answer_cells(const char *line) {
    int samples, seed, used, n = 0, more;
    double sigma;
    float x[2 * MOST_POINTS];
    if (sscanf(line, "cells %lf %d %d%n", &sigma, &samples, &seed, &used) != 3) exit(2);
    for (line += used; n < MOST_POINTS; n++, line += more)
        if (sscanf(line, "%f %f%n", &x[2 * n], &x[2 * n + 1], &more) != 2) break;
    int32_t *labels = malloc((size_t)n * (size_t)samples * sizeof *labels);
    if (labels == NULL) exit(1);
    if (!web_set_choose(PLSH_SCHEME_BINNING, PLSH_DESIGN_IID, sigma, samples, seed) ||
        !web_cells_label(n, x, labels)) {
        print_error();
    } else {
        printf("{\"labels\": ");
        print_labels(labels, n * samples);
        printf("}\n");
    }
    free(labels);
}

static void answer_attend(const char *line) {
    int n, dim, seed, method, design, samples, window;
    double sigma, out[4];
    if (sscanf(line, "attend %d %d %lf %d %d %d %d %d", &n, &dim, &sigma, &seed, &method, &design,
               &samples, &window) != 8)
        exit(2);
    if (!web_attention_begin(n, dim, sigma, true, seed) ||
        !web_attention_run(method, design, samples, window, 0, out)) {
        print_error();
    } else {
        printf("{");
        print_numbers("errors", out + 1, 2);
        printf("}\n");
    }
    web_attention_end();
}

#ifdef PLSH_WITH_LM
static void answer_generate(const char *line) {
    char path[1024];
    int method, samples, tokens, used;
    if (sscanf(line, "generate %1023s %d %d %d %n", path, &method, &samples, &tokens, &used) != 4)
        exit(2);
    if (!web_model_open(path) || web_generate_begin(line + used, method, samples) < 0) {
        print_error();
    } else {
        printf("{\"ids\": [");
        for (int i = 0; i < tokens; i++) {
            const int id = web_generate_next();
            if (id < 0) break;
            printf("%s%d", i ? ", " : "", id);
        }
        printf("]}\n");
    }
    web_model_close();
}
#endif

int main(void) {
    char line[1 << 14];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "set ", 4) == 0)
            answer_set(line);
        else if (strncmp(line, "cells ", 6) == 0)
            answer_cells(line);
        else if (strncmp(line, "attend ", 7) == 0)
            answer_attend(line);
#ifdef PLSH_WITH_LM
        else if (strncmp(line, "generate ", 9) == 0)
            answer_generate(line);
#endif
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}
