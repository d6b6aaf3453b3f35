/* partition: one draw as two integers, and its block edges.
 *
 * binning and integer draws are grids: label(i) = floor((i - c) / b). Here b and c are fixed-point
 * numbers with `shift` fraction bits, so labels and edges are exact integer arithmetic at any
 * 64-bit position, the same on every machine for the same b and c, and the next edge is an addition
 * and a shift. How b depends on libm: docs/mathematics.md, section 2. */
#ifndef PLSH_PARTITION_DRAW_H
#define PLSH_PARTITION_DRAW_H

#include "base/random.h"
#include "plsh/partition.h"

__extension__ typedef __int128 plsh_int128;

typedef struct plsh_draw {
    int64_t width;  /* b * 2^shift; 0: one block holds everything */
    int64_t offset; /* c * 2^shift, 0 <= offset < width */
    int shift;
} plsh_draw;

/* Fraction bits of the draws of a binning or integer set. */
int plsh_draw_shift(const plsh_partition *set);

/* Draw `sample` of a binning or integer set. Takes a fraction of a microsecond, so attention and
 * the norms keep a table of draws. */
plsh_draw plsh_draw_get(const plsh_partition *set, int64_t sample);

/* The draws first .. first + count - 1, the same bits, several times faster. */
void plsh_draw_fill(const plsh_partition *set, int64_t first, int64_t count, int64_t *width,
                    int64_t *offset);

/* What the random numbers of a set are for: the purpose of their stream (base/random.h). */
enum {
    PLSH_PURPOSE_GRID = 0,   /* widths and offsets of binning and integer draws */
    PLSH_PURPOSE_PLACE = 1,  /* the order of the samples along further axes */
    PLSH_PURPOSE_SHIFT = 2,  /* the translation of golden-shifted */
    PLSH_PURPOSE_SHELL = 3,  /* hyperplanes: their number in a shell, */
    PLSH_PURPOSE_PLANE = 4,  /* their directions and offsets, */
    PLSH_PURPOSE_WEIGHT = 5, /* their heights (dim 3) and weights */
    PLSH_PURPOSE_RATE = 6,   /* rates of mixtures of exponentials */
    PLSH_PURPOSE_CUTS = 16   /* scheme cuts; design iid has PLSH_PURPOSE_CUTS + sample */
};

/* The random words number `index` of a set, for one purpose. Axes have different keys. */
plsh_random plsh_partition_random(const plsh_partition *set, uint32_t purpose, uint64_t index);

/* The member of the design that this sample uses. The axes of a product must not use their strata
 * in the same order, so axes 1, 2, .. permute the samples. */
int64_t plsh_partition_place(const plsh_partition *set, int64_t sample);

/* The strata of a stratified binning or integer set, without those whose mean mask is exact for any
 * draw: their number, and the samples of the largest. */
typedef struct plsh_strata {
    int64_t count, largest;
} plsh_strata;

plsh_strata plsh_draw_strata(const plsh_partition *set);

/* The stratum that begins with member `first` of a stratified integer set of ALiBi: its width as
 * drawn, and how many members it has. Neighbouring strata of width b that have all b offsets count
 * as one. The next stratum begins with member first + count. */
typedef struct plsh_stratum {
    int64_t width, count;
} plsh_stratum;

plsh_stratum plsh_draw_stratum(const plsh_partition *set, int64_t first);

/* The x with Pr[Gamma(2, 1) > x] = (1 + x) exp(-x) = v, for normal v in (0, 1]. */
double plsh_draw_gamma2_quantile(double v);

/* ceil(edge / 2^shift): the first position at or after a grid edge. */
static inline int64_t plsh_draw_ceil(plsh_int128 edge, int shift) {
    return (int64_t)((edge + (((plsh_int128)1 << shift) - 1)) >> shift);
}

/* The last grid edge at or before position i: offset + label(i) * width. */
static inline plsh_int128 plsh_draw_edge(const plsh_draw *draw, int64_t i) {
    plsh_int128 at = (plsh_int128)i * ((plsh_int128)1 << draw->shift);
    plsh_int128 rest = (at - draw->offset) % draw->width;
    return at - (rest < 0 ? rest + draw->width : rest);
}

static inline plsh_range plsh_draw_block(const plsh_draw *draw, int64_t i) {
    if (draw->width == 0) return (plsh_range){INT64_MIN, INT64_MAX};
    plsh_int128 edge = plsh_draw_edge(draw, i);
    return (plsh_range){plsh_draw_ceil(edge, draw->shift),
                        plsh_draw_ceil(edge + draw->width, draw->shift)};
}

/* The design has no effect on labels of the user. */
static inline bool plsh_partition_is_golden(const plsh_partition *set) {
    return set->design == PLSH_DESIGN_GOLDEN && set->scheme != PLSH_SCHEME_LABELS;
}

/* Its blocks do not form partitions: see partition/shifted.h. */
static inline bool plsh_partition_is_shifted(const plsh_partition *set) {
    return set->design == PLSH_DESIGN_GOLDEN_SHIFTED && set->scheme != PLSH_SCHEME_LABELS;
}

static inline bool plsh_partition_is_toeplitz(const plsh_partition *set) {
    return set->design == PLSH_DESIGN_TOEPLITZ && set->scheme != PLSH_SCHEME_LABELS;
}

/* Is the set made of grids (binning, integer)? */
static inline bool plsh_partition_is_grid(const plsh_partition *set) {
    return (set->scheme == PLSH_SCHEME_BINNING || set->scheme == PLSH_SCHEME_INTEGER) &&
           !plsh_partition_is_golden(set) && !plsh_partition_is_shifted(set);
}

#endif
