/* web: sets of partitions, their masks and norms, and the cells of points. */
#include "web/web.h"

#include <stdlib.h>
#include <string.h>

static plsh_error last_error;
static plsh_partition set;

const char *web_error(void) { return last_error.message; }
plsh_error *web_error_target(void) { return &last_error; }

const char *web_name(web_list list, int i) {
    const char *const *names = list == WEB_SCHEMES   ? plsh_scheme_names()
                               : list == WEB_DESIGNS ? plsh_design_names()
                               : list == WEB_METHODS ? plsh_method_names()
                                                     : plsh_isa_available();
    for (int at = 0; at < i; at++)
        if (names[at] == NULL) return NULL;
    const bool on_line = list != WEB_SCHEMES || i < PLSH_SCHEME_LABELS;
    return on_line ? names[i] : NULL;
}

const char *web_version(void) { return PLSH_VERSION; }

bool web_set_choose(int scheme, int design, double sigma, int samples, int seed) {
    set = plsh_partition_default(sigma, samples);
    set.scheme = (plsh_scheme)scheme;
    set.design = (plsh_design)design;
    set.seed = (uint64_t)seed;
    set.design = plsh_design_choose(&set); /* of "auto" */
    return plsh_partition_check(&set, &last_error) == PLSH_STATUS_OK;
}

bool web_set_labels(int sample, int n, int32_t *labels) {
    return plsh_partition_labels(&set, sample, n, labels, &last_error) == PLSH_STATUS_OK;
}

bool web_set_has_labels(void) { return set.design != PLSH_DESIGN_GOLDEN_SHIFTED; }

/* M~ where there are no draws. */
static void count_blocks(int n, float *mean) {
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            mean[i * n + j] = mean[j * n + i] =
                (float)plsh_partition_count(&set, i, j) / (float)set.samples;
}

/* Adds the masks of one draw to the second differences of M~: a block [e, f) is a square, whose
 * differences are +1 at (e, e) and (f, f), -1 at (e, f) and (f, e). */
static void add_squares(float *difference, int n, const int32_t *labels) {
    for (int begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && labels[end] == labels[begin];) end++;
        difference[begin * n + begin] += 1;
        if (end == n) continue;
        difference[begin * n + end] -= 1;
        difference[end * n + begin] -= 1;
        difference[end * n + end] += 1;
    }
}

bool web_set_mean(int n, float *mean) {
    if (!web_set_has_labels()) {
        count_blocks(n, mean);
        return true;
    }
    int32_t *labels = malloc((size_t)n * sizeof *labels);
    bool done = labels != NULL;
    if (!done) strcpy(last_error.message, "out of memory");
    memset(mean, 0, (size_t)n * (size_t)n * sizeof *mean);
    for (int sample = 0; done && sample < set.samples; sample++) {
        done = web_set_labels(sample, n, labels);
        if (done) add_squares(mean, n, labels);
    }
    free(labels);
    for (int i = 0; i < n; i++)
        for (int j = 1; j < n; j++) mean[i * n + j] += mean[i * n + j - 1];
    for (int i = 1; i < n; i++)
        for (int j = 0; j < n; j++) mean[i * n + j] += mean[(i - 1) * n + j];
    for (int i = 0; i < n * n; i++) mean[i] /= (float)set.samples;
    return done;
}

void web_set_decay(int n, float *matrix) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            matrix[i * n + j] = (float)plsh_decay_value(&set.decay, abs(i - j));
}

bool web_set_norms(int n, double out[3]) {
    plsh_norms norms;
    const plsh_norms_options options = {.tolerance = 1e-9};
    if (plsh_norms_measure(&set, n, &options, &norms, &last_error) != PLSH_STATUS_OK) return false;
    out[0] = norms.spectral;
    out[1] = norms.max;
    out[2] = (double)norms.largest_block;
    return true;
}

bool web_set_bounds(int n, double delta, double out[3]) {
    plsh_bounds bounds;
    if (plsh_bounds_find(&set, n, delta, &bounds, &last_error) != PLSH_STATUS_OK) return false;
    out[0] = bounds.spectral;
    out[1] = bounds.max;
    out[2] = bounds.max_certain;
    return true;
}

/* ---- The plane ------------------------------------------------------------------------------- */

/* Independent draws: each picture is a draw of its own. */
static plsh_partition plane_set(void) {
    plsh_partition plane = set;
    plane.scheme = PLSH_SCHEME_HYPERPLANES;
    plane.design = PLSH_DESIGN_IID;
    return plane;
}

bool web_cells_label(int n, const float *x, int32_t *labels) {
    const plsh_partition plane = plane_set();
    const plsh_point_set points = {2, n, x};
    return plsh_cells_label(&plane, 0, plane.samples, points, labels, 1, &last_error) ==
           PLSH_STATUS_OK;
}

int web_cells_lines(int sample, double radius, double *lines, int capacity) {
    const plsh_partition plane = plane_set();
    plsh_hyperplane *found = malloc((size_t)capacity * sizeof *found);
    if (found == NULL) return 0;
    const int64_t count = plsh_cells_hyperplanes(&plane, sample, 2, radius, found, capacity);
    for (int i = 0; i < capacity && i < count; i++) {
        lines[3 * i] = found[i].normal[0];
        lines[3 * i + 1] = found[i].normal[1];
        lines[3 * i + 2] = found[i].offset;
    }
    free(found);
    return count < capacity ? (int)count : capacity;
}
