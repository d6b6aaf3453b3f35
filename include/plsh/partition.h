/* plsh/partition.h - positional LSH: random partitions whose mean mask is the decay.
 *
 * One draw cuts the positions ... -1, 0, 1, 2 ... into contiguous blocks; its
 * mask M is 1 where two positions share a block. For every scheme and random design
 * here E[M_ij] = k(|i - j|) exactly, so the mean M~ of s masks converges to the
 * bias matrix (the paper's Theorem 2.1). The designs golden and toeplitz are not random: their M~
 * is within a proven error of the bias matrix.
 *
 * A set of s draws is a small value, not an array: every result is a function of (scheme,
 * design, decay, samples, seed, head) alone, takes O(1), works at any 64-bit position, and is the
 * same on every thread and machine.
 *
 *     plsh_partition set = plsh_partition_default(64.0, 20);
 *     plsh_range block;
 *     plsh_partition_block(&set, 7, 123456789, &block);   // draw 7 of 20
 *
 * Positions are those with |i| < 2^62. */
#ifndef PLSH_PARTITION_H
#define PLSH_PARTITION_H

#include "plsh/decay.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_scheme {
    /* The paper's Definition 3.1: b ~ Gamma(2, sigma), c ~ U[0, b), label
     * floor((i - c) / b). ALiBi only. */
    PLSH_SCHEME_BINNING,
    /* b in {1, 2, ...} with weight b (k(b+1) - 2 k(b) + k(b-1)), c uniform in
     * {0..b-1}; k(infinity) is the weight of one block that holds everything.
     * Any convex decreasing decay. */
    PLSH_SCHEME_INTEGER,
    /* Each gap (i, i+1) is cut independently with probability 1 - exp(-1/sigma).
     * ALiBi only; finding a block costs O(sigma). */
    PLSH_SCHEME_CUTS,
    /* The user's own hash: labels[draw * label_count + i], 0 <= i < label_count. */
    PLSH_SCHEME_LABELS,
    /* Cells of points in R^1, R^2 or R^3 by random hyperplanes: see plsh/cells.h. The calls below
     * are about row numbers and do not take it; plsh_partition_check refuses it. */
    PLSH_SCHEME_HYPERPLANES
} plsh_scheme;

typedef enum plsh_design {
    PLSH_DESIGN_IID,        /* s independent draws, as the paper */
    PLSH_DESIGN_STRATIFIED, /* the same mean, from stratified draws: at equal s the spectral error
                               is 2 to 9 times smaller, and the error next to the diagonal is
                               smaller */
    /* Partitions of the golden lattice, for ALiBi: every entry of M~ is within about
     * (1.4 + 0.33 ln s) / s of L*, for certain (plsh_max_certain). There is one set per s, not a
     * random one: seed and head do not change it, so M~ - L* is a bias that other seeds do not
     * average out. Schemes binning and integer give the same set; s is at most 2^16, sigma at most
     * 2^48. Its tables stay in memory until the process ends, about 100 s bytes for each s that was
     * checked. */
    PLSH_DESIGN_GOLDEN,
    /* The golden lattice, translated by a random vector of seed and head: E[M~] = L*, and every
     * entry is within (3.01 ln(sqrt(sqrt(5) s) + 3.62) + 0.56) / s of L*, for certain. The number
     * of blocks at a position is near s, but not s: M~ counts blocks that form no partitions, and
     * M~_ii is not 1. Only what counts blocks supports it: plsh_partition_count, norms, and the
     * method plsh with its gradients and decoding. Draws, labels and the methods masks and mean
     * refuse it. 7 <= s <= 2^16 (below 7 a position might be in no block),
     * 1/16 <= sigma <= 2^48. */
    PLSH_DESIGN_GOLDEN_SHIFTED,
    /* For ALiBi with a small sigma: N(t-1) - 2 N(t) + N(t+1) blocks of each width t, where N is an
     * integer convex sequence near s k(t), and each width with all of its offsets. M~ is exactly
     * Toeplitz, N(t) / s. Like golden it is not random: its error is known and other seeds do not
     * average it out. Schemes binning and integer give the same set; s is at most 2^20. */
    PLSH_DESIGN_TOEPLITZ,
    /* Stratified, golden or toeplitz, as plsh_design_choose selects. A plsh_partition needs one of
     * the others; heads of attention (plsh/attention.h) take this one too. */
    PLSH_DESIGN_AUTO
} plsh_design;

typedef struct plsh_partition {
    plsh_scheme scheme;
    plsh_design design;
    plsh_decay decay;
    int64_t samples; /* 1 <= s <= 2^31; attention takes 2^24 */
    uint64_t seed;
    uint32_t head;         /* draws of different heads are independent */
    uint32_t axis;         /* and so are those of different axes: see plsh/grid.h */
    const int32_t *labels; /* PLSH_SCHEME_LABELS only, borrowed: [samples][label_count] */
    int64_t label_count;
} plsh_partition;

/* The positions or rows begin <= i < end. A block of unbounded width is INT64_MIN .. INT64_MAX. */
typedef struct plsh_range {
    int64_t begin, end;
} plsh_range;

/* "binning", "integer", ..., and "iid", "stratified", ...: the names in the order of the enums,
 * NULL at the end; and the value of a name. */
PLSH_API const char *const *plsh_scheme_names(void);
PLSH_API plsh_status plsh_scheme_find(const char *name, plsh_scheme *scheme, plsh_error *error);
PLSH_API const char *const *plsh_design_names(void);
PLSH_API plsh_status plsh_design_find(const char *name, plsh_design *design, plsh_error *error);

/* What design auto stands for, by the scheme, the decay and the samples of the set; other designs
 * are returned as they are. ALiBi by binning or integer: toeplitz, where it has the smaller errors
 * (spectral and weighted, measured: experiments/designs), otherwise golden from 4 samples on. All
 * other sets: stratified. */
PLSH_API plsh_design plsh_design_choose(const plsh_partition *set);

/* integer, stratified, seed 1, head 0. */
PLSH_API plsh_partition plsh_partition_default(double sigma, int64_t samples);

/* Checks that the set can be drawn. A decay that is not convex and decreasing is refused, and so is
 * one that is not ALiBi where the scheme is for ALiBi only. The calls below expect a set that
 * passed this check. */
PLSH_API plsh_status plsh_partition_check(const plsh_partition *set, plsh_error *error);

/* The block of draw `sample` that holds `position`. For PLSH_SCHEME_LABELS: the
 * run of equal labels around it. Design golden-shifted has no draws: an empty range. */
PLSH_API void plsh_partition_block(const plsh_partition *set, int64_t sample, int64_t position,
                                   plsh_range *block);

/* Do two positions share a block in that draw (for labels: have equal labels)? */
PLSH_API bool plsh_partition_same(const plsh_partition *set, int64_t sample, int64_t i, int64_t j);

/* Width and offset of one draw: b and c of the definitions above; b = 0 means that one block holds
 * everything. Both are 0 for cuts, labels and the designs golden and golden-shifted, which are not
 * grids. */
PLSH_API void plsh_partition_draw(const plsh_partition *set, int64_t sample, double *b, double *c);

/* labels[i] for i = 0..n-1: 0 for the block of position 0, then 1, 2, ... Design golden-shifted has
 * no labels: PLSH_STATUS_UNSUPPORTED. */
PLSH_API plsh_status plsh_partition_labels(const plsh_partition *set, int64_t sample, int64_t n,
                                           int32_t *labels, plsh_error *error);

/* M~_ij times s: in how many of the draws i and j share a block; of design golden-shifted, how many
 * blocks hold both. O(s). */
PLSH_API int64_t plsh_partition_count(const plsh_partition *set, int64_t i, int64_t j);

#ifdef __cplusplus
}
#endif

#endif
