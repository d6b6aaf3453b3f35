/* partition: the blocks of the translated golden lattice.
 *
 * Compiled without contraction of a * b + c, so that blocks have the same bits everywhere. */
#include "partition/shifted.h"

#include "partition/portable.h"

#include <math.h>

static const double PHI = 1.6180339887498949, PHI_SQUARE = 2.6180339887498949;
static const double PERIOD = 0.96242365011920694; /* ln phi^2 */
static const double ROOT_5 = 2.2360679774997897;

enum {
    /* Blocks are cut off after this many periods. Only e^-30.8 = 4e-14 of the blocks that hold a
       pair are longer, and there the rounding of x' is as large as x' itself. */
    DEPTH = 32,
    END_BITS = 52
};

double plsh_shifted_delta(int64_t samples) {
    return 3.01 * log(sqrt(ROOT_5 * (double)samples) + 3.62) + 0.56;
}

int64_t plsh_shifted_most(int64_t samples) {
    return samples + (int64_t)ceil(plsh_shifted_delta(samples)) + 1;
}

int64_t plsh_shifted_longest(const plsh_partition *set) {
    const plsh_golden_line line = plsh_golden_scale_of(set);
    return (int64_t)ldexp((double)line.period * DEPTH, -line.shift) + 2;
}

/* ---- the translation ------------------------------------------------------------------------- */

/* A symmetric 2 x 2 matrix modulo 2^64, and a vector in turns of 2^-64. */
typedef struct map {
    uint64_t a, b, d;
} map;

typedef struct shift {
    uint64_t m, k;
} shift;

static const map FORWARD = {2, UINT64_MAX, 1}, BACK = {1, 1, 2};

static shift apply(map by, shift at) {
    return (shift){by.a * at.m + by.b * at.k, by.b * at.m + by.d * at.k};
}

/* Powers of one matrix commute, so their products are symmetric. */
static map multiply(map x, map y) {
    return (map){x.a * y.a + x.b * y.b, x.a * y.b + x.b * y.d, x.b * y.b + x.d * y.d};
}

static shift shift_of(const plsh_partition *set, plsh_int128 slab) {
    const plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_SHIFT, 0);
    shift at = {random.word[0], random.word[1]};
    map power = slab < 0 ? BACK : FORWARD;
    for (plsh_int128 left = slab < 0 ? -slab : slab; left > 0; left >>= 1) {
        if (left & 1) at = apply(power, at);
        power = multiply(power, power);
    }
    return at;
}

/* ---- a slab ---------------------------------------------------------------------------------- */

typedef struct walk {
    plsh_golden_line line;
    plsh_range rows;
    double root, log_root; /* sqrt X */
    plsh_shifted_visitor *visit;
    void *context;
} walk;

/* The position `origin` + period * part / 2^bits, rounded up. */
static int64_t position_of(const walk *at, plsh_int128 origin, plsh_int128 part, int bits) {
    return plsh_draw_ceil(origin + (at->line.period * part >> bits), at->line.shift);
}

/* Visits the block of the point (x, x') if the point belongs to the slab and the block holds a row.
 * The slab begins at `origin` (fixed point). */
static void visit_point(const walk *at, plsh_int128 origin, double x, double conjugate) {
    if (!(x >= at->root && x < at->root * PHI_SQUARE && conjugate > 0 &&
          x * conjugate < at->root * at->root))
        return;
    const double begin = (plsh_portable_log(x) - at->log_root) / PERIOD;
    const double end = (at->log_root - plsh_portable_log(fmax(conjugate, 0x1p-100))) / PERIOD;
    const double turn = fmin(fmax(begin, 0), 1 - 0x1p-53);
    const plsh_range block = {
        position_of(at, origin, (plsh_int128)(uint64_t)(turn * 0x1p64), 64),
        position_of(at, origin, (plsh_int128)(int64_t)(fmin(end, DEPTH) * 0x1p52), END_BITS)};
    if (block.begin < block.end && block.begin < at->rows.end && block.end > at->rows.begin)
        at->visit(at->context, block);
}

/* Visits the lattice points m + k phi of the slab with x' up to `most`, and perhaps a few more,
 * which visit_point drops. x - x' = k sqrt 5 bounds k. */
static void visit_slab(const walk *at, plsh_int128 origin, shift by, double most) {
    const double dm = (double)by.m * 0x1p-64, dk = (double)by.k * 0x1p-64;
    const double last = at->root * PHI_SQUARE / ROOT_5;
    for (int64_t y = (int64_t)floor((at->root - most) / ROOT_5 - dk); (double)y < last; y++) {
        const double k =
            (double)y + dk; /* not by adding 1: its bits do not depend on where y began */
        const double above = fmax(at->root - k * PHI, k / PHI);
        const double below = fmin(at->root * PHI_SQUARE - k * PHI, most + k / PHI);
        for (int64_t x = (int64_t)floor(above - dm); (double)x <= below; x++) {
            const double m = (double)x + dm;
            visit_point(at, origin, m + k * PHI, m - k / PHI);
        }
    }
}

void plsh_shifted_visit(const plsh_partition *set, plsh_range rows, plsh_shifted_visitor *visit,
                        void *context) {
    const double area = ROOT_5 * (double)set->samples;
    const walk at = {plsh_golden_scale_of(set),     rows,  sqrt(area),
                     0.5 * plsh_portable_log(area), visit, context};
    const plsh_int128 first = plsh_golden_place_of(&at.line, rows.begin).index;
    const plsh_int128 last = plsh_golden_place_of(&at.line, rows.end - 1).index;
    shift by = shift_of(set, first - DEPTH);
    for (plsh_int128 slab = first - DEPTH; slab <= last; slab++) {
        /* Only blocks that end after the first row count; one more period for rounding. */
        const double before = first > slab ? (double)(first - slab) : 0;
        const double most = at.root * exp(-PERIOD * before) * (1 + 0x1p-20) + 0x1p-20;
        visit_slab(&at, slab * at.line.period, by, most);
        by = apply(FORWARD, by);
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

static void extend(void *context, plsh_range block) {
    plsh_range *hull = context;
    if (block.begin < hull->begin) hull->begin = block.begin;
    if (block.end > hull->end) hull->end = block.end;
}

plsh_range plsh_shifted_hull(const plsh_partition *set, plsh_range rows) {
    plsh_range hull = rows;
    plsh_shifted_visit(set, rows, extend, &hull);
    return hull;
}

typedef struct pair {
    int64_t low, high, count;
} pair;

static void count_block(void *context, plsh_range block) {
    pair *both = context;
    both->count += block.begin <= both->low && both->high < block.end;
}

int64_t plsh_shifted_count(const plsh_partition *set, int64_t i, int64_t j) {
    pair both = {i < j ? i : j, i < j ? j : i, 0};
    plsh_shifted_visit(set, (plsh_range){both.low, both.low + 1}, count_block, &both);
    return both.count;
}
