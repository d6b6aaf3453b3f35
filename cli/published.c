/* cli: the curves of the paper's figure of norms. */
#include "cli/published.h"

#include <math.h>
#include <string.h>

/* experiments/figure-norms/published.tsv, by the build. */
static const cli_point points[] = {
#include "published.inc"
};

const char *const cli_published_models[] = {"Llama-4-Scout-17B-16E", "Mistral-7B", NULL};

const cli_point *cli_published_find(const char *model, const char *norm, double sigma,
                                    int64_t samples) {
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        if (points[i].sigma == sigma && points[i].samples == samples &&
            strcmp(points[i].model, model) == 0 && strcmp(points[i].norm, norm) == 0)
            return &points[i];
    return NULL;
}

bool cli_published_holds(const cli_point *point, double mean) {
    const double rounding = 0.0005;
    double ours = log10(mean);
    return ours >= point->low - rounding && ours <= point->high + rounding;
}
