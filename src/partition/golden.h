/* partition: the golden lattice: s partitions without randomness.
 *
 * The totally positive numbers x = m + k phi of Z[phi] whose norm x x' = m^2 + m k - k^2 is below X
 * = sqrt(5) s are blocks: x begins at sigma ln(x / sqrt X) and ends at -sigma ln(x' / sqrt X).
 * Multiplication by phi^2 moves a block by the period sigma ln phi^2, so one period is a table of
 * about 0.96 s blocks, which depends on s alone. At every begin the open block that ends first is
 * ended there: then exactly s blocks are open at any time, and they are s partitions
 * (docs/mathematics.md, section 21).
 *
 * Times are in turns of 2^-64 of a period. A block that is open when a period begins is a slot. The
 * blocks of one sample go through the slots of successive periods, slot -> next[slot]. */
#ifndef PLSH_PARTITION_GOLDEN_H
#define PLSH_PARTITION_GOLDEN_H

#include "partition/draw.h"

#include <stdatomic.h>

enum { PLSH_GOLDEN_SAMPLES = 1 << 16 };

typedef struct plsh_golden {
    int64_t samples, blocks; /* begins in a period */
    uint64_t *turn;          /* [blocks]: the begins of slot m are first[m] .. first[m+1] - 1 */
    int32_t *first;          /* [samples + 1] */
    int32_t *next;           /* [samples] */
    uint64_t *open_turn;     /* [samples]: the slot's block began `open_ago` periods ago */
    uint64_t *close_turn;    /* [samples]: what is open at the end ends `close_in` periods on */
    int32_t *open_ago, *close_in;
    /* The slots of a sample repeat: after p periods sample m has the slot cycle[c + (place[m] + p)
     * % length[c]], c = place[m] - its place in the cycle. */
    int32_t *cycle, *cycle_first, *cycle_length, *cycle_place;
    double longest;           /* block, in periods */
    _Atomic double max_error; /* 0: not computed yet */
    struct plsh_golden *older;
} plsh_golden;

/* Makes the table for s samples unless there is one. Tables stay until the process ends: about 100
 * s bytes each, together at most 1 GB. */
plsh_status plsh_golden_make(int64_t samples, plsh_error *error);

/* The table, after plsh_golden_make. */
plsh_golden *plsh_golden_find(int64_t samples);

/* The table on the line of a sigma, at most 2^48. The period is a fixed-point number, so that
 * edges are exact integers at any 64-bit position. */
typedef struct plsh_golden_line {
    const plsh_golden *table;
    int64_t period; /* below 2^48; times 2^-shift */
    int shift;
} plsh_golden_line;

plsh_golden_line plsh_golden_line_of(const plsh_partition *set);

/* The same without the table. */
plsh_golden_line plsh_golden_scale_of(const plsh_partition *set);

/* Position i lies `rest` after the begin of period `index`. */
typedef struct plsh_golden_place {
    plsh_int128 index;
    int64_t rest;
} plsh_golden_place;

plsh_golden_place plsh_golden_place_of(const plsh_golden_line *line, int64_t i);

/* The block of a slot that is open `rest` after the begin of the period: its edges in fixed point,
 * relative to that begin. */
typedef struct plsh_golden_edges {
    int64_t begin, end;
} plsh_golden_edges;

static inline int64_t plsh_golden_offset(const plsh_golden_line *line, uint64_t turn) {
    return (int64_t)((plsh_int128)line->period * (plsh_int128)turn >> 64);
}

static inline plsh_golden_edges plsh_golden_open(const plsh_golden_line *line, int64_t slot,
                                                 int64_t rest) {
    const plsh_golden *table = line->table;
    const int32_t first = table->first[slot], last = table->first[slot + 1];
    plsh_golden_edges edges = {
        plsh_golden_offset(line, table->open_turn[slot]) - table->open_ago[slot] * line->period,
        plsh_golden_offset(line, table->close_turn[slot]) + table->close_in[slot] * line->period};
    for (int32_t b = first; b < last; b++) {
        const int64_t begin = plsh_golden_offset(line, table->turn[b]);
        if (begin > rest) {
            edges.end = begin;
            break;
        }
        edges.begin = begin;
    }
    return edges;
}

/* The block of a sample that holds a position. */
plsh_range plsh_golden_block(const plsh_golden_line *line, int64_t sample, int64_t position);

/* No block has more positions than this. */
int64_t plsh_golden_longest(const plsh_golden_line *line);

/* An upper bound of |M~ - L*| over all entries, for every sigma and n: the greatest difference
 * over all real positions, computed, for up to 2^13 samples; beyond, the theorem's. */
double plsh_golden_max_error(int64_t samples);

#endif
