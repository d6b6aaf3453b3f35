/* cli/report: how fast the mean of masks converges, drawn over the paper's bands. */
#include "cli/moments.h"
#include "cli/options.h"
#include "cli/published.h"
#include "cli/report/page.h"
#include "cli/report/report.h"

#include "plsh/theory.h"

enum { POSITIONS = 4250, SIGMAS = 3, COUNTS = 6 }; /* the paper's inputs had 4000 to 4500 tokens */
static const double sigmas[SIGMAS] = {2, 16, 128};
static const int64_t counts[COUNTS] = {1, 10, 100, 1000, 10000, 100000};
static const char *const norm_names[] = {"spectral", "max"};

typedef struct norms_figure {
    cli_plot plots[2]; /* spectral, max */
    int64_t reps;
    int points, held;
} norms_figure;

/* Means over the repetitions, with the seeds of plsh norms. */
static int measure(const cli_report *report, norms_figure *figure, plsh_partition set,
                   cli_moments norms[2]) {
    /* Stratified draws differ less from each other. */
    const int64_t reps = set.design == PLSH_DESIGN_IID ? figure->reps : figure->reps / 2;
    plsh_norms_options options = {.tolerance = 1e-4, .threads = (int)report->common->threads};
    set.seed = cli_partition_seed(report->common->seed, &set.decay, set.samples);
    for (int64_t rep = 0; rep < reps; rep++) {
        plsh_norms found;
        plsh_error error;
        set.head = (uint32_t)rep;
        plsh_status status = plsh_norms_measure(&set, POSITIONS, &options, &found, &error);
        if (status != PLSH_STATUS_OK) return cli_fail_error(&error);
        cli_moments_add(&norms[0], found.spectral);
        cli_moments_add(&norms[1], found.max);
    }
    return CLI_DONE;
}

static void add_bands(norms_figure *figure, size_t i, size_t used) {
    for (size_t x = 0; x < 2; x++)
        for (size_t m = 0; cli_published_models[m] != NULL; m++) {
            const bool named = i == 0 && m == 0;
            cli_series *band = cli_plot_series(&figure->plots[x], CLI_SERIES_BAND, (int)i, "%s",
                                               named ? "published, mean ± std" : "");
            band->general = true;
            for (size_t c = 0; c < used; c++) {
                const cli_point *point = cli_published_find(cli_published_models[m], norm_names[x],
                                                            sigmas[i], counts[c]);
                if (point != NULL)
                    cli_series_mark(band, (cli_mark){(double)counts[c], pow(10, point->mean),
                                                     pow(10, point->low), pow(10, point->high)});
            }
        }
}

/* How many of the published curves have this mean within their bands. */
static void compare(norms_figure *figure, const char *norm, double sigma, int64_t samples,
                    double mean) {
    if (isnan(mean)) return;
    for (size_t m = 0; cli_published_models[m] != NULL; m++) {
        const cli_point *point = cli_published_find(cli_published_models[m], norm, sigma, samples);
        if (point == NULL) continue;
        figure->points++;
        figure->held += cli_published_holds(point, mean);
    }
}

static int add_curves(const cli_report *report, norms_figure *figure, size_t i, plsh_design design,
                      size_t used) {
    const bool iid = design == PLSH_DESIGN_IID;
    cli_series *curves[2];
    for (size_t x = 0; x < 2; x++) {
        curves[x] = cli_plot_series(&figure->plots[x], iid ? CLI_SERIES_LINE : CLI_SERIES_DASHES,
                                    (int)i, "%s", i == 0 && !iid ? "stratified draws" : "");
        curves[x]->general = !iid;
        if (iid)
            snprintf(curves[x]->name, sizeof curves[x]->name, "σ = %g, independent", sigmas[i]);
    }
    for (size_t c = 0; c < used; c++) {
        cli_moments norms[2] = {0};
        plsh_partition set = plsh_partition_default(sigmas[i], counts[c]);
        set.scheme = PLSH_SCHEME_BINNING;
        set.design = design;
        int code = measure(report, figure, set, norms);
        if (code != CLI_DONE) return code;
        for (size_t x = 0; x < 2; x++) {
            cli_series_mark(curves[x], (cli_mark){(double)counts[c], norms[x].mean, NAN, NAN});
            if (iid) compare(figure, norm_names[x], sigmas[i], counts[c], norms[x].mean);
        }
    }
    return CLI_DONE;
}

int cli_report_norms(cli_report *report) {
    norms_figure figure = {
        .plots = {{.title = "Spectral norm",
                   .x = {"samples s", CLI_AXIS_TENS},
                   .y = {"‖L* − M̃‖", CLI_AXIS_TENS}},
                  {.title = "Largest entry",
                   .x = {"samples s", CLI_AXIS_TENS},
                   .y = {"‖L* − M̃‖ max", CLI_AXIS_TENS}}},
        .reps = report->quick ? 10 : 30,
    };
    const size_t used = report->quick ? 4 : COUNTS;
    for (size_t i = 0; i < SIGMAS; i++) add_bands(&figure, i, used);
    for (size_t i = 0; i < SIGMAS; i++) {
        int code = add_curves(report, &figure, i, PLSH_DESIGN_IID, used);
        if (code == CLI_DONE) code = add_curves(report, &figure, i, PLSH_DESIGN_STRATIFIED, used);
        if (code != CLI_DONE) return code;
    }
    cli_page_element(report->out, "p",
                     "%d of %d means lie within the published bands (two models, mean ± one "
                     "standard deviation). Stratified draws cost the same and converge faster.",
                     figure.held, figure.points);
    cli_report_plots_begin(report);
    for (size_t x = 0; x < 2; x++)
        cli_report_plot(report, &figure.plots[x], report->today,
                        "plsh norms --paper --sigma 2,16,128%s --reps %lld --tolerance 1e-4",
                        report->quick ? " --samples 1,10,100,1000" : "", (long long)figure.reps);
    cli_report_plots_end(report);
    return CLI_DONE;
}
