/* cli: the curves of the paper's figure of norms, and whether a mean lies in their bands. */
#ifndef PLSH_CLI_PUBLISHED_H
#define PLSH_CLI_PUBLISHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One point: log10 of the mean, of mean - std and of mean + std, to three decimals. */
typedef struct cli_point {
    const char *model;
    double sigma;
    int64_t samples;
    const char *norm; /* "spectral" or "max" */
    double mean, low, high;
} cli_point;

/* The models, NULL at the end; the point of a curve, NULL where none was published. */
extern const char *const cli_published_models[];
const cli_point *cli_published_find(const char *model, const char *norm, double sigma,
                                    int64_t samples);

/* Does log10(mean) lie in the band, as far as three decimals tell? */
bool cli_published_holds(const cli_point *point, double mean);

#endif
