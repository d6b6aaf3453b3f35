/* attention: collision counts, by events. */
#include "attention/counting/counting.h"

#include "base/arena.h"
#include "base/status.h"
#include "partition/shifted.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Blocks are cut off this far from the tile's first query: no sequence is longer. */
static const int64_t REACH = PLSH_COUNTING_REACH;

/* Every architecture has vectors of four lanes in its baseline. Wider ones are hardly faster,
 * because most of the time goes to the events. */
typedef float count_lanes __attribute__((vector_size(16)));
typedef float unaligned_count_lanes __attribute__((vector_size(16), aligned(4)));
enum { LANES = 4 };

/* ---- the table ------------------------------------------------------------------------------- */

/* By decreasing width, so that the number of blocks in a tile hardly changes from row to row of the
 * table. */
static int compare_draws(const void *x, const void *y) {
    const plsh_counting_draw *a = x, *b = y;
    if (a->width != b->width) return a->width < b->width ? 1 : -1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static void merge_draws(plsh_counting *counting) {
    plsh_counting_draw *draw = counting->draw;
    int64_t kept = 0;
    qsort(draw, (size_t)counting->draws, sizeof *draw, compare_draws);
    for (int64_t i = 0; i < counting->draws; i++) {
        if (kept > 0 && compare_draws(&draw[kept - 1], &draw[i]) == 0)
            draw[kept - 1].times += draw[i].times;
        else
            draw[kept++] = draw[i];
    }
    counting->draws = kept;
}

static void compile_draws(plsh_counting *counting) {
    for (int64_t i = 0; i < counting->draws; i++) {
        plsh_draw draw = plsh_draw_get(&counting->set, i);
        counting->shift = draw.shift; /* the same for all of a set */
        /* Blocks no wider than 1 hold one position each. */
        if (draw.width > 0 && draw.width <= INT64_C(1) << draw.shift)
            draw = (plsh_draw){INT64_C(1) << draw.shift, 0, draw.shift};
        if (draw.width == 0) draw.offset = 0;
        counting->draw[i] = (plsh_counting_draw){draw.width, draw.offset,
                                                 draw.width > 0 ? 1 / (double)draw.width : 0, 1};
    }
}

plsh_status plsh_counting_create(const plsh_partition *set, bool merge, plsh_counting **out,
                                 plsh_error *error) {
    *out = NULL;
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof **out, "partition draws", error);
    if (status) return status;
    plsh_counting *counting = memory;
    *counting = (plsh_counting){.set = *set, .draws = set->samples};
    if (plsh_partition_is_grid(set)) {
        status = plsh_allocate(&memory, (size_t)counting->draws, sizeof *counting->draw,
                               "partition draws", error);
        if (status) {
            plsh_counting_destroy(counting);
            return status;
        }
        counting->draw = memory;
        compile_draws(counting);
        if (merge) merge_draws(counting);
    }
    if (plsh_partition_is_shifted(set)) counting->draws = plsh_shifted_most(set->samples);
    if (merge && plsh_partition_is_golden(set)) counting->golden = plsh_golden_line_of(set);
    *out = counting;
    return PLSH_STATUS_OK;
}

void plsh_counting_destroy(plsh_counting *counting) {
    if (counting) plsh_release(counting->draw);
    plsh_release(counting);
}

/* ---- the workspace --------------------------------------------------------------------------- */

/* Keys are relative to the tile's first query. Events with the same key, or keys that differ by
 * a multiple of the slots, are a chain. */
typedef struct event {
    int32_t key, next;
    float times;
    int16_t first, last; /* queries */
} event;

struct plsh_counts {
    plsh_counts_tile tile;
    int groups;
    int32_t least, most; /* the keys there are, relative */
    int32_t low, high;   /* the tile's range, relative */
    int32_t *group_low;  /* [groups], the ranges of the groups */
    int32_t *group_high; /* [groups] */
    int32_t *group_rows; /* [groups], rows of weights written by a call of fill */
    int16_t *group_from; /* [rows + 1], the first group that begins at or after it */
    float *count;        /* [groups * group], the running counts */
    float *change;       /* [stride], their change at a key, from one query to the next */
    float *inner;        /* [rows][stride], the same for the keys at the tile's own positions */
    int16_t *inner_first, *inner_last; /* [rows], the queries that change; last < 0: none */
    ptrdiff_t stride;                  /* groups * group and one more, rounded up */
    int32_t *slot;                     /* [slots], the last event of the chain */
    event *event;
    int64_t events;
};

/* More slots cost more to clear; with fewer slots chains hold several keys and are walked once per
 * key. 2048 int32 are cleared in 50 ns and hold the union of 1000 draws of sigma 256. */
enum { SLOTS = 2048, NO_EVENT = -1 };

/* Takes the arrays behind the struct; the events come last, as many as the draws need. */
static void lay_out(plsh_counts *counts, int rows, int group, plsh_arena *arena) {
    const size_t groups = (size_t)((rows + group - 1) / group);
    plsh_arena_take(arena, 1, sizeof *counts);
    counts->group_low = plsh_arena_take(arena, groups, sizeof *counts->group_low);
    counts->group_high = plsh_arena_take(arena, groups, sizeof *counts->group_high);
    counts->group_rows = plsh_arena_take(arena, groups, sizeof *counts->group_rows);
    counts->group_from = plsh_arena_take(arena, (size_t)rows + 1, sizeof *counts->group_from);
    counts->count = plsh_arena_floats(arena, groups * (size_t)group);
    counts->stride = (ptrdiff_t)(groups * (size_t)group + LANES);
    counts->change = plsh_arena_floats(arena, (size_t)counts->stride);
    counts->inner = plsh_arena_floats(arena, (size_t)rows * (size_t)counts->stride);
    counts->inner_first = plsh_arena_take(arena, (size_t)rows, sizeof *counts->inner_first);
    counts->inner_last = plsh_arena_take(arena, (size_t)rows, sizeof *counts->inner_last);
    counts->slot = plsh_arena_take(arena, SLOTS, sizeof *counts->slot);
    counts->event = plsh_arena_take(arena, 0, sizeof *counts->event);
}

/* A draw has an event at the begin of the tile's first block, unless that is in the tile, and
 * without causality one at the end of its last. */
size_t plsh_counts_size(const plsh_counting *counting, int rows, int group, bool causal) {
    plsh_counts unused;
    plsh_arena arena = {0};
    lay_out(&unused, rows, group, &arena);
    plsh_arena_take(&arena, (size_t)counting->draws * (causal ? 1 : 2), sizeof(event));
    return arena.used;
}

/* ---- making events --------------------------------------------------------------------------- */

/* The functions that add events work on a local copy of the struct, so that the compiler keeps its
 * fields in registers. */

/* At a key of the tile's own positions. */
static inline void push_inner(plsh_counts *counts, int key, int first, int last, float times) {
    float *change = counts->inner + key * counts->stride;
    change[first] += times;
    change[last + 1] -= times;
    if (first < counts->inner_first[key]) counts->inner_first[key] = (int16_t)first;
    if (last > counts->inner_last[key]) counts->inner_last[key] = (int16_t)last;
}

/* At another key. */
static inline void push_outer(plsh_counts *counts, int64_t key, int first, int last, float times) {
    int32_t *slot = &counts->slot[key & (SLOTS - 1)];
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the workspace was measured */
    counts->event[counts->events] =
        (event){(int32_t)key, *slot, times, (int16_t)first, (int16_t)last};
    *slot = (int32_t)counts->events++;
}

/* The block [begin, end), relative, holds the queries first..last. */
static inline void push_block(plsh_counts *counts, int64_t begin, int64_t end, int first, int last,
                              float times) {
    if (begin < counts->least) begin = counts->least;
    if (begin >= 0) {
        push_inner(counts, first, first, last, times);
    } else {
        push_outer(counts, begin, first, last, times);
        int g = counts->group_from[last + 1] - 1; /* the last one it reaches */
        if (begin < counts->group_low[g]) counts->group_low[g] = (int32_t)begin;
    }
    if (counts->tile.causal) return;
    if (end > counts->most) end = counts->most;
    if (end < counts->tile.rows) {
        push_inner(counts, (int)end, first, last, -times);
    } else {
        push_outer(counts, end, first, last, -times);
        int g = counts->group_from[first + 1] - 1; /* the first one it reaches */
        if (end > counts->group_high[g]) counts->group_high[g] = (int32_t)end;
    }
}

/* The ranges of the groups. A block that reaches beyond the tile extends the range of every group
 * that it holds. Without such a block, the range begins with the first key at which the count of
 * the group's first query rises, and ends with the last key at which the count of its last query
 * falls. */
static void close_ranges(plsh_counts *counts) {
    const int rows = counts->tile.rows, group = counts->tile.group;
    int32_t *low = counts->group_low, *high = counts->group_high;
    for (int g = counts->groups - 2; g >= 0; g--)
        if (low[g + 1] < low[g]) low[g] = low[g + 1];
    for (int g = 1; g < counts->groups && !counts->tile.causal; g++)
        if (high[g - 1] > high[g]) high[g] = high[g - 1];
    for (int g = 0; g < counts->groups; g++) {
        int first = g * group, last = first + group <= rows ? first + group - 1 : rows - 1;
        if (low[g] == INT32_MAX) {
            low[g] = 0;
            while (counts->inner_last[low[g]] < first) low[g]++;
        }
        if (high[g] == INT32_MIN) {
            high[g] = rows - 1;
            while (high[g] > last && counts->inner_first[high[g]] > last) high[g]--;
            if (high[g] == last) high[g]++;
        }
        if (low[g] < counts->low) counts->low = low[g];
        if (high[g] > counts->high) counts->high = high[g];
    }
}

/* push_block for the common case, which is most of the work: a block with `times` equal draws that
 * begins in the tile, at query `first`, causal. */
static inline void push_start(float *inner, ptrdiff_t stride, int16_t *inner_last, int first,
                              int next, float times) {
    float *change = inner + first * stride;
    change[first] += times;
    change[next] -= times;
    if (next > inner_last[first] + 1) inner_last[first] = (int16_t)(next - 1);
}

/* Grids whose positions fit in 63 bits with their fraction. With x = first - c + b > 0 in fixed
 * point, rest = x mod b is the part of the block before the first query; the quotient by a double
 * reciprocal is within one of the true one, since it is below 2^51. */
static inline void push_grid(plsh_counts *counts, const plsh_counting_draw *draw, int shift) {
    const int rows = counts->tile.rows;
    const int64_t width = draw->width, part = (INT64_C(1) << shift) - 1;
    const float times = draw->times;
    int64_t x = ((counts->tile.origin + counts->tile.first) << shift) - draw->offset + width;
    int64_t rest = x - (int64_t)((double)x * draw->inverse) * width;
    rest += rest < 0 ? width : 0;
    rest -= rest >= width ? width : 0;
    int64_t edge = width - rest, end = (edge + part) >> shift;
    int next = end < rows ? (int)end : rows;
    push_block(counts, -(rest >> shift), end, 0, next - 1, times);
    float *inner = counts->inner;
    int16_t *inner_last = counts->inner_last;
    const ptrdiff_t stride = counts->stride;
    const bool causal = counts->tile.causal;
    for (int first = next; first < rows; first = next) {
        edge += width;
        end = (edge + part) >> shift;
        next = end < rows ? (int)end : rows;
        if (causal)
            push_start(inner, stride, inner_last, first, next, times);
        else
            push_block(counts, first, end, first, next - 1, times);
    }
}

/* Any scheme, at any position. */
static void push_any(plsh_counts *counts, const plsh_counting *counting, int64_t row) {
    const int64_t at = counts->tile.origin + counts->tile.first;
    const int rows = counts->tile.rows;
    float times = counting->draw ? counting->draw[row].times : 1;
    for (int first = 0; first < rows;) {
        plsh_range block;
        if (counting->draw) {
            plsh_draw draw = {counting->draw[row].width, counting->draw[row].offset,
                              counting->shift};
            block = plsh_draw_block(&draw, at + first);
        } else {
            plsh_partition_block(&counting->set, row, at + first, &block);
        }
        int64_t end = block.end - at;
        int next = end < rows ? (int)end : rows;
        push_block(counts, block.begin - at, end, first, next - 1, times);
        first = next;
    }
}

/* The golden lattice, one slot: `base` is the begin of its period relative to the first query, in
 * fixed point. Every begin ends the block before it. */
static void push_slot(plsh_counts *counts, const plsh_golden_line *line, int64_t slot,
                      int64_t base) {
    const plsh_golden *table = line->table;
    const int rows = counts->tile.rows, shift = line->shift;
    const int64_t part = (INT64_C(1) << shift) - 1;
    int64_t edge = base - table->open_ago[slot] * line->period;
    int64_t begin = (edge + plsh_golden_offset(line, table->open_turn[slot]) + part) >> shift;
    int first = 0;
    while (first < rows) {
        for (int32_t b = table->first[slot]; b < table->first[slot + 1] && first < rows; b++) {
            const int64_t end = (base + plsh_golden_offset(line, table->turn[b]) + part) >> shift;
            const int next = end < rows ? (int)end : rows;
            if (next > first) push_block(counts, begin, end, first, next - 1, 1);
            if (next > first) first = next;
            begin = end;
        }
        const int32_t periods = table->close_in[slot];
        base += periods * line->period;
        edge = base + plsh_golden_offset(line, table->close_turn[slot]);
        const int64_t end = (edge + part) >> shift;
        if (end >= rows && first < rows) {
            push_block(counts, begin, end, first, rows - 1, 1);
            return;
        }
        for (int32_t x = 0; x < periods; x++) slot = table->next[slot];
    }
}

/* All slots, where the positions of a tile fit into 64 bits. */
static bool push_slots(plsh_counts *counts, const plsh_counting *counting) {
    const plsh_golden_line *line = &counting->golden;
    const plsh_counts_tile *tile = &counts->tile;
    if (!line->table || line->shift > 62 - 10) return false;
    const plsh_golden_place at = plsh_golden_place_of(line, tile->origin + tile->first);
    for (int64_t slot = tile->first_draw; slot < tile->first_draw + tile->draws; slot++)
        push_slot(counts, line, slot, -at.rest);
    return true;
}

typedef struct shifted_blocks {
    plsh_counts *counts;
    int64_t at; /* position of the first query */
} shifted_blocks;

static void push_shifted(void *context, plsh_range block) {
    const shifted_blocks *to = context;
    const int64_t begin = block.begin - to->at, end = block.end - to->at;
    const int64_t rows = to->counts->tile.rows;
    push_block(to->counts, begin, end, begin > 0 ? (int)begin : 0,
               (int)(end < rows ? end : rows) - 1, 1);
}

static void push_draws(plsh_counts *counts, const plsh_counting *counting) {
    plsh_counts local = *counts;
    const plsh_counts_tile *tile = &counts->tile;
    if (plsh_partition_is_shifted(&counting->set)) { /* all of them */
        const int64_t at = tile->origin + tile->first;
        plsh_shifted_visit(&counting->set, (plsh_range){at, at + tile->rows}, push_shifted,
                           &(shifted_blocks){counts, at});
        return;
    }
    /* Positions of the fast path: their fixed point fits, and so does their label in 51 bits. */
    int bits = 61 - counting->shift < 50 ? 61 - counting->shift : 50;
    bool fast = counting->draw && tile->origin + tile->first < INT64_C(1) << bits;
    const bool slots = push_slots(&local, counting);
    for (int64_t i = tile->first_draw; !slots && i < tile->first_draw + tile->draws; i++) {
        const plsh_counting_draw *draw = counting->draw ? &counting->draw[i] : NULL;
        if (draw && draw->width == 0)
            push_block(&local, -REACH, REACH, 0, tile->rows - 1, draw->times);
        else if (fast)
            push_grid(&local, draw, counting->shift);
        else
            push_any(&local, counting, i);
    }
    counts->events = local.events;
}

plsh_counts *plsh_counts_begin(void *workspace, const plsh_counting *counting,
                               const plsh_counts_tile *tile) {
    plsh_counts *counts = workspace;
    const int rows = tile->rows, group = tile->group;
    int64_t left = tile->first, right = tile->keys - tile->first;
    *counts = (plsh_counts){.tile = *tile,
                            .groups = (rows + group - 1) / group,
                            .least = (int32_t) - (left < REACH ? left : REACH),
                            .most = (int32_t)(right < REACH ? right : REACH),
                            .low = INT32_MAX,
                            .high = INT32_MIN};
    lay_out(counts, rows, group, &(plsh_arena){.memory = workspace});
    memset(counts->slot, NO_EVENT, SLOTS * sizeof *counts->slot);
    size_t stride = (size_t)counts->stride;
    memset(counts->count, 0, (size_t)(counts->groups * group) * sizeof *counts->count);
    memset(counts->change, 0, stride * sizeof *counts->change);
    memset(counts->inner, 0, (size_t)rows * stride * sizeof *counts->inner);
    for (int r = 0; r < rows; r++) {
        counts->inner_first[r] = tile->causal ? (int16_t)r : INT16_MAX;
        counts->inner_last[r] = -1;
    }
    for (int g = 0; g < counts->groups; g++) {
        int end = (g + 1) * group;
        counts->group_low[g] = INT32_MAX;
        counts->group_high[g] = !tile->causal ? INT32_MIN : end < rows ? end : rows;
    }
    for (int r = 0, g = 0; r <= rows; r++) {
        if (r > g * group) g++;
        counts->group_from[r] = (int16_t)g;
    }
    push_draws(counts, counting);
    close_ranges(counts);
    return counts;
}

/* ---- reading them ---------------------------------------------------------------------------- */

plsh_range plsh_counts_range(const plsh_counts *counts, int g) {
    int64_t low = g < 0 ? counts->low : counts->group_low[g];
    int64_t high = g < 0 ? counts->high : counts->group_high[g];
    if (low >= high) return (plsh_range){0, 0};
    return (plsh_range){counts->tile.first + low, counts->tile.first + high};
}

/* x[0], x[0] + x[1], x[0] + x[1] + x[2], ... */
static inline count_lanes running_sum(count_lanes x) {
    const count_lanes zero = {0};
    x += __builtin_shufflevector(zero, x, 0, 4, 5, 6);
    return x + __builtin_shufflevector(zero, x, 0, 1, 4, 5);
}

/* The changes at a key, and in [first, last] their queries; last < 0: none. */
static inline float *take_events(plsh_counts *counts, int64_t key, int *first, int *last) {
    *first = INT_MAX;
    *last = -1;
    if (key >= 0 && key < counts->tile.rows) {
        *first = counts->inner_first[key];
        *last = counts->inner_last[key];
        return counts->inner + key * counts->stride;
    }
    for (int32_t i = counts->slot[key & (SLOTS - 1)]; i != NO_EVENT;) {
        const event at = counts->event[i];
        i = at.next;
        if (at.key != key) continue;
        counts->change[at.first] += at.times;
        counts->change[at.last + 1] -= at.times;
        if (at.first < *first) *first = at.first;
        if (at.last > *last) *last = at.last;
    }
    return counts->change;
}

/* Adds the changes of the queries begin .. end - 1, all that there are, and clears them. */
static inline void apply_changes(float *restrict count, float *restrict change, int begin,
                                 int end) {
    count_lanes carry = {0};
    for (int r = begin; r < end; r += LANES) {
        count_lanes sum = running_sum(*(count_lanes *)(change + r)) + carry;
        *(count_lanes *)(count + r) += sum;
        *(count_lanes *)(change + r) = (count_lanes){0};
        carry = __builtin_shufflevector(sum, sum, 3, 3, 3, 3);
    }
    change[end] = 0;
}

static inline void write_row(plsh_counts *counts, int g, float factor, float *w) {
    const int group = counts->tile.group;
    const float *count = counts->count + g * group;
    float *to = w + (ptrdiff_t)counts->group_rows[g]++ * group;
    for (int r = 0; r < group; r += LANES)
        *(unaligned_count_lanes *)(to + r) = *(const count_lanes *)(count + r) * factor;
}

void plsh_counts_fill(plsh_counts *counts, int64_t key, int keys, float factor,
                      plsh_counts_weights weights) {
    const int groups = counts->groups, rows = counts->tile.rows;
    for (int g = 0; g < groups; g++) counts->group_rows[g] = 0;
    for (int j = 0; j < keys; j++) {
        int64_t at = key - counts->tile.first + j;
        int first, last;
        float *change = take_events(counts, at, &first, &last);
        int from = groups, to = 0; /* groups whose counts change here */
        if (last >= 0) {
            from = counts->group_from[first + 1] - 1;
            to = counts->group_from[last + 1];
            apply_changes(counts->count, change, first / LANES * LANES,
                          last / LANES * LANES + LANES);
        }
        if (counts->tile.causal && at > 0 && at <= rows) { /* query at - 1 is past */
            counts->count[at - 1] = 0;
            int g = counts->group_from[at] - 1;
            if (g < from) from = g;
            if (g >= to) to = g + 1;
        }
        if (j == 0) from = 0, to = groups;
        for (int g = from; g < to; g++)
            write_row(counts, g, factor, weights.w + g * weights.w_stride);
        for (int g = 0; g < groups; g++)
            weights.row[g * weights.row_stride + j] = counts->group_rows[g] - 1;
    }
}
