/* partition: the public functions on a set of draws. */
#include "plsh/partition.h"

#include "base/status.h"
#include "partition/convex.h"
#include "partition/draw.h"
#include "partition/permute.h"
#include "partition/shifted.h"

#include <math.h>
#include <string.h>

/* The most draws of a set. Products of two counts then fit into 64 bits. */
static const int64_t MAX_SAMPLES = INT64_C(1) << 31;

/* A block of cuts is found by walking to its ends. */
static const double MAX_CUTS_SIGMA = 0x1p24;

/* A block has at most some 20 periods, which have to fit into the positions. */
static const double MAX_GOLDEN_SIGMA = 0x1p48;

static const char *const scheme_names[] = {
    [PLSH_SCHEME_BINNING] = "binning",
    [PLSH_SCHEME_INTEGER] = "integer",
    [PLSH_SCHEME_CUTS] = "cuts",
    [PLSH_SCHEME_LABELS] = "labels",
    [PLSH_SCHEME_HYPERPLANES] = "hyperplanes",
    [PLSH_SCHEME_HYPERPLANES + 1] = NULL,
};
static const char *const design_names[] = {
    [PLSH_DESIGN_IID] = "iid",           [PLSH_DESIGN_STRATIFIED] = "stratified",
    [PLSH_DESIGN_GOLDEN] = "golden",     [PLSH_DESIGN_GOLDEN_SHIFTED] = "golden-shifted",
    [PLSH_DESIGN_TOEPLITZ] = "toeplitz", [PLSH_DESIGN_AUTO] = "auto",
    [PLSH_DESIGN_AUTO + 1] = NULL,
};

const char *const *plsh_scheme_names(void) { return scheme_names; }
const char *const *plsh_design_names(void) { return design_names; }

plsh_status plsh_scheme_find(const char *name, plsh_scheme *scheme, plsh_error *error) {
    int place;
    plsh_status status = plsh_name_find("scheme", scheme_names, name, &place, error);
    if (!status) *scheme = (plsh_scheme)place;
    return status;
}

plsh_status plsh_design_find(const char *name, plsh_design *design, plsh_error *error) {
    int place;
    plsh_status status = plsh_name_find("design", design_names, name, &place, error);
    if (!status) *design = (plsh_design)place;
    return status;
}

plsh_partition plsh_partition_default(double sigma, int64_t samples) {
    return (plsh_partition){.scheme = PLSH_SCHEME_INTEGER,
                            .design = PLSH_DESIGN_STRATIFIED,
                            .decay = plsh_decay_alibi(sigma),
                            .samples = samples,
                            .seed = 1};
}

static plsh_status check_labels(const plsh_partition *set, plsh_error *error) {
    if (set->labels == NULL || set->label_count <= 0)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "the partition is given by labels, but there are none");
    int64_t most = PTRDIFF_MAX / (int64_t)sizeof *set->labels / set->samples;
    if (set->label_count > most)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld labels for each of %lld draws are more than memory can hold",
                         (long long)set->label_count, (long long)set->samples);
    return PLSH_STATUS_OK;
}

static plsh_status check_scheme(const plsh_partition *set, const char *name, plsh_error *error) {
    plsh_status status = plsh_decay_check(&set->decay, error);
    if (status) return status;
    if (set->decay.kind != PLSH_DECAY_ALIBI || set->decay.limit != 0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "scheme %s draws ALiBi only; scheme integer draws any convex decay", name);
    return PLSH_STATUS_OK;
}

static bool is_alibi(const plsh_partition *set) {
    return set->decay.kind == PLSH_DECAY_ALIBI && set->decay.limit == 0;
}

/* Toeplitz against golden, measured for sigma 1 to 16 and s = 4 to 4096 (experiments/designs): for
 * s >= sigma^3.5 toeplitz has the smaller spectral and the smaller weighted error in all cases but
 * one (sigma 1, s = 4: weighted 2 % larger); below, golden has the smaller spectral error in most
 * cases. Golden has smaller norms than stratified for every s, but below 4 samples stratified sets
 * have the smaller error of the output on real Q, K, V. */
plsh_design plsh_design_choose(const plsh_partition *set) {
    const double s = (double)set->samples, sigma = set->decay.a;
    if (set->design != PLSH_DESIGN_AUTO) return set->design;
    if ((set->scheme != PLSH_SCHEME_BINNING && set->scheme != PLSH_SCHEME_INTEGER) ||
        !is_alibi(set) || set->samples < 4)
        return PLSH_DESIGN_STRATIFIED;
    if (set->samples <= PLSH_CONVEX_SAMPLES && s >= sigma * sigma * sigma * sqrt(sigma))
        return PLSH_DESIGN_TOEPLITZ;
    const bool fits = set->samples <= PLSH_GOLDEN_SAMPLES && sigma <= MAX_GOLDEN_SIGMA;
    return fits ? PLSH_DESIGN_GOLDEN : PLSH_DESIGN_STRATIFIED;
}

/* The conditions of the designs golden, golden-shifted and toeplitz. After this check the table of
 * a golden set exists. */
static plsh_status check_alibi_design(const plsh_partition *set, plsh_error *error) {
    const char *name = design_names[set->design];
    const bool shifted = plsh_partition_is_shifted(set);
    plsh_status status = plsh_decay_check(&set->decay, error);
    if (status) return status;
    if (set->scheme != PLSH_SCHEME_BINNING && set->scheme != PLSH_SCHEME_INTEGER)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "design %s goes with the schemes binning and integer, not with %s", name,
                         (unsigned)set->scheme <= PLSH_SCHEME_HYPERPLANES
                             ? scheme_names[set->scheme]
                             : "this one");
    if (!is_alibi(set))
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "design %s is for ALiBi only; design stratified draws any convex decay",
                         name);
    if (plsh_partition_is_toeplitz(set)) {
        if (set->samples <= PLSH_CONVEX_SAMPLES) return PLSH_STATUS_OK;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "samples is %lld; design toeplitz takes at most 2^20",
                         (long long)set->samples);
    }
    if (set->samples > PLSH_GOLDEN_SAMPLES || set->decay.a > MAX_GOLDEN_SIGMA)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "samples is %lld and sigma %g; design %s takes at most 2^16 samples and a "
                         "sigma of 2^48",
                         (long long)set->samples, set->decay.a, name);
    if (!shifted) return plsh_golden_make(set->samples, error);
    if (set->samples >= PLSH_SHIFTED_LEAST_SAMPLES &&
        set->decay.a * PLSH_SHIFTED_LEAST_SIGMA_INVERSE >= 1)
        return PLSH_STATUS_OK;
    return plsh_fail(
        error, PLSH_STATUS_INVALID,
        "samples is %lld and sigma %g; design %s takes at least %d samples and a sigma "
        "of 1/16",
        (long long)set->samples, set->decay.a, name, PLSH_SHIFTED_LEAST_SAMPLES);
}

plsh_status plsh_partition_check(const plsh_partition *set, plsh_error *error) {
    if (set->samples < 1 || set->samples > MAX_SAMPLES)
        return plsh_fail(error, PLSH_STATUS_INVALID, "samples is %lld; 1 to 2^31",
                         (long long)set->samples);
    if ((unsigned)set->design > PLSH_DESIGN_AUTO)
        return plsh_fail(error, PLSH_STATUS_INVALID, "design %d is unknown", (int)set->design);
    if (set->design == PLSH_DESIGN_AUTO)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "design auto stands for another one; plsh_design_choose says which");
    if (plsh_partition_is_golden(set) || plsh_partition_is_shifted(set) ||
        plsh_partition_is_toeplitz(set))
        return check_alibi_design(set, error);
    plsh_status status;
    switch (set->scheme) {
    case PLSH_SCHEME_LABELS: return check_labels(set, error);
    case PLSH_SCHEME_BINNING: return check_scheme(set, "binning", error);
    case PLSH_SCHEME_INTEGER: return plsh_decay_check_convex(&set->decay, error);
    case PLSH_SCHEME_CUTS:
        status = check_scheme(set, "cuts", error);
        if (!status && set->decay.a > MAX_CUTS_SIGMA)
            status = plsh_fail(error, PLSH_STATUS_INVALID,
                               "sigma is %g; scheme cuts walks to a block's ends and takes at most "
                               "2^24, scheme integer any",
                               set->decay.a);
        return status;
    case PLSH_SCHEME_HYPERPLANES:
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "scheme hyperplanes draws cells of points and needs their positions; "
                         "scheme integer draws blocks of row numbers");
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "scheme %d is unknown", (int)set->scheme);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Is the gap between gap and gap + 1 cut in this draw? stratified: the s uniform numbers of a gap
 * are equispaced, so that nearly the same number of draws cuts at every gap. Every gap permutes
 * them in its own way; with one order for all, any two gaps would be cut in the same draws. Within
 * a draw gaps remain independent, so its distribution is unchanged. */
static bool is_cut(const plsh_partition *set, int64_t sample, int64_t gap) {
    const uint64_t s = (uint64_t)set->samples;
    const double cut = -expm1(-1 / set->decay.a) * 0x1p64;
    if (set->design == PLSH_DESIGN_IID) {
        plsh_random random =
            plsh_partition_random(set, PLSH_PURPOSE_CUTS + (uint32_t)sample, (uint64_t)gap >> 1);
        return (double)random.word[gap & 1] < cut;
    }
    plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_CUTS, (uint64_t)gap);
    uint64_t place = plsh_permuted((uint64_t)plsh_partition_place(set, sample), s, random.word[1]);
    return (double)(random.word[0] + UINT64_MAX / s * place) < cut;
}

static plsh_range cuts_block(const plsh_partition *set, int64_t sample, int64_t position) {
    plsh_range block = {position, position + 1};
    while (!is_cut(set, sample, block.begin - 1)) block.begin--;
    while (!is_cut(set, sample, block.end - 1)) block.end++;
    return block;
}

/* ---- user labels ----------------------------------------------------------------------------- */

static const int32_t *labels_of(const plsh_partition *set, int64_t sample) {
    return set->labels + sample * set->label_count;
}

static plsh_range labels_block(const plsh_partition *set, int64_t sample, int64_t position) {
    const int32_t *labels = labels_of(set, sample);
    plsh_range block = {position, position + 1};
    while (block.begin > 0 && labels[block.begin - 1] == labels[position]) block.begin--;
    while (block.end < set->label_count && labels[block.end] == labels[position]) block.end++;
    return block;
}

/* ---- accessors ------------------------------------------------------------------------------- */

void plsh_partition_block(const plsh_partition *set, int64_t sample, int64_t position,
                          plsh_range *block) {
    if (set->scheme == PLSH_SCHEME_CUTS) {
        *block = cuts_block(set, sample, position);
    } else if (set->scheme == PLSH_SCHEME_LABELS) {
        *block = labels_block(set, sample, position);
    } else if (plsh_partition_is_golden(set)) {
        const plsh_golden_line line = plsh_golden_line_of(set);
        *block = plsh_golden_block(&line, sample, position);
    } else if (plsh_partition_is_shifted(set)) {
        *block = (plsh_range){position, position};
    } else {
        plsh_draw draw = plsh_draw_get(set, sample);
        *block = plsh_draw_block(&draw, position);
    }
}

bool plsh_partition_same(const plsh_partition *set, int64_t sample, int64_t i, int64_t j) {
    if (set->scheme == PLSH_SCHEME_LABELS) {
        const int32_t *labels = labels_of(set, sample);
        return labels[i] == labels[j];
    }
    plsh_range block;
    plsh_partition_block(set, sample, i, &block);
    return block.begin <= j && j < block.end;
}

void plsh_partition_draw(const plsh_partition *set, int64_t sample, double *b, double *c) {
    *b = *c = 0;
    if (!plsh_partition_is_grid(set)) return;
    plsh_draw draw = plsh_draw_get(set, sample);
    *b = ldexp((double)draw.width, -draw.shift);
    *c = ldexp((double)draw.offset, -draw.shift);
}

plsh_status plsh_partition_labels(const plsh_partition *set, int64_t sample, int64_t n,
                                  int32_t *labels, plsh_error *error) {
    if (n < 0 || n > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; labels serve 0 to 2^31 - 1",
                         (long long)n);
    if (set->scheme == PLSH_SCHEME_LABELS) {
        if (n > set->label_count)
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "n is %lld, but only %lld labels are given", (long long)n,
                             (long long)set->label_count);
        memcpy(labels, labels_of(set, sample), (size_t)n * sizeof *labels);
        return PLSH_STATUS_OK;
    }
    if (plsh_partition_is_shifted(set))
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "design golden-shifted has no labels: its blocks overlap and are counted; "
                         "design golden has");
    plsh_range block = {0, 0};
    for (int64_t i = 0, label = -1; i < n; i++) {
        if (i >= block.end) {
            plsh_partition_block(set, sample, i, &block);
            label++;
        }
        labels[i] = (int32_t)label;
    }
    return PLSH_STATUS_OK;
}

int64_t plsh_partition_count(const plsh_partition *set, int64_t i, int64_t j) {
    if (plsh_partition_is_shifted(set)) return plsh_shifted_count(set, i, j);
    int64_t count = 0;
    for (int64_t sample = 0; sample < set->samples; sample++)
        count += plsh_partition_same(set, sample, i, j);
    return count;
}
