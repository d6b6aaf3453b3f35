/* partition: the blocks of all draws in the order of their begins. */
#include "partition/blocks.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "partition/draw.h"
#include "partition/shifted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of draws ---------------------------------------------------------------------- */

static int compare_labels(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Collects the labels of the runs of one draw and sorts them: a label that occurs twice has two
 * runs, so it is not contiguous. */
static plsh_status check_runs(const plsh_partition *set, int64_t sample, int32_t *runs,
                              double *total, plsh_error *error) {
    const int32_t *labels = set->labels + sample * set->label_count;
    int64_t count = 0;
    for (int64_t i = 0; i < set->label_count; i++)
        if (i == 0 || labels[i] != labels[i - 1]) runs[count++] = labels[i];
    *total += (double)count;
    qsort(runs, (size_t)count, sizeof *runs, compare_labels);
    for (int64_t i = 1; i < count; i++)
        if (runs[i] == runs[i - 1])
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "label %d of draw %lld has more than one run of positions; the norms "
                             "need contiguous blocks",
                             (int)runs[i], (long long)sample);
    return PLSH_STATUS_OK;
}

static plsh_status check_contiguous(const plsh_partition *set, double *total, plsh_error *error) {
    int32_t *runs;
    plsh_status status = plsh_allocate((void **)&runs, (size_t)set->label_count, sizeof *runs,
                                       "runs of labels", error);
    for (int64_t sample = 0; !status && sample < set->samples; sample++)
        status = check_runs(set, sample, runs, total, error);
    plsh_release(runs);
    return status;
}

static void summarise(plsh_draws *draws) {
    const int64_t one = INT64_C(1) << draws->shift;
    draws->longest = 0;
    draws->density = 0;
    for (int64_t m = 0; m < draws->set.samples; m++) {
        const int64_t width = draws->width[m];
        int64_t most = width == 0 ? INT64_MAX : (width + one - 1) >> draws->shift;
        if (most > draws->longest) draws->longest = most;
        if (width > 0) draws->density += (double)one / (double)width;
    }
}

enum { PIECE = 4096 }; /* draws of a chunk */

/* A width below 1 is replaced by 1: both make every position a block, and with 1 there are no empty
 * bins. */
static void fill_piece(void *context, int64_t piece, int slot) {
    const plsh_draws *draws = context;
    const int64_t first = piece * PIECE, left = draws->set.samples - first;
    const int64_t count = left < PIECE ? left : PIECE, one = INT64_C(1) << draws->shift;
    int64_t *width = draws->width + first, *offset = draws->offset + first;
    (void)slot;
    plsh_draw_fill(&draws->set, first, count, width, offset);
    for (int64_t m = 0; m < count; m++)
        if (width[m] > 0 && width[m] < one) width[m] = one, offset[m] = 0;
}

static void table_fill(plsh_draws *draws, int threads) {
    draws->shift = plsh_draw_shift(&draws->set);
    plsh_thread_run(threads, (draws->set.samples + PIECE - 1) / PIECE, fill_piece, draws);
}

/* Counting sort by floor(b); all widths of n and more are one class. `first` has most + 2 zeros,
 * `sorted` has room for two tables. */
static void sort_table(plsh_draws *draws, int64_t most, int64_t *first, int64_t *sorted) {
    const int64_t s = draws->set.samples;
    for (int round = 0; round < 2; round++) {
        for (int64_t m = 0; m < s; m++) {
            const int64_t width = draws->width[m], length = width >> draws->shift;
            int64_t *at = &first[width == 0 || length > most ? most : length];
            if (round == 0) {
                at[1]++;
                continue;
            }
            sorted[*at] = width;
            sorted[s + (*at)++] = draws->offset[m];
        }
        for (int64_t x = 0; round == 0 && x < most; x++) first[x + 1] += first[x];
    }
    memcpy(draws->width, sorted, (size_t)s * sizeof *sorted);
    memcpy(draws->offset, sorted + s, (size_t)s * sizeof *sorted);
}

static plsh_status table_sort(plsh_draws *draws, int64_t n, plsh_error *error) {
    const int64_t most = draws->longest < n ? draws->longest : n;
    int64_t *first, *sorted = NULL;
    plsh_status status =
        plsh_allocate((void **)&first, (size_t)most + 2, sizeof *first, "a sort of draws", error);
    if (!status)
        status = plsh_allocate((void **)&sorted, 2 * (size_t)draws->set.samples, sizeof *sorted,
                               "a sort of draws", error);
    if (!status) sort_table(draws, most, first, sorted);
    plsh_release(first);
    plsh_release(sorted);
    return status;
}

plsh_status plsh_draws_create(const plsh_partition *set, int64_t n, int threads, plsh_draws *draws,
                              plsh_error *error) {
    *draws = (plsh_draws){.set = *set, .longest = INT64_MAX};
    if (set->scheme == PLSH_SCHEME_LABELS) {
        double runs = 0;
        plsh_status status = check_contiguous(set, &runs, error);
        draws->density = runs / (double)set->label_count;
        return status;
    }
    if (plsh_partition_is_shifted(set)) {
        draws->longest = plsh_shifted_longest(set);
        draws->density = (double)set->samples / set->decay.a;
        return PLSH_STATUS_OK;
    }
    if (plsh_partition_is_golden(set)) {
        const plsh_golden_line line = plsh_golden_line_of(set);
        draws->longest = plsh_golden_longest(&line);
        draws->density = (double)set->samples / set->decay.a;
        return PLSH_STATUS_OK;
    }
    if (!plsh_partition_is_grid(set)) {
        draws->density = (double)set->samples * -expm1(-1 / set->decay.a);
        return PLSH_STATUS_OK;
    }
    size_t s = (size_t)set->samples;
    plsh_status status =
        plsh_allocate((void **)&draws->width, s, sizeof *draws->width, "widths of draws", error);
    if (!status)
        status = plsh_allocate((void **)&draws->offset, s, sizeof *draws->offset,
                               "offsets of draws", error);
    if (!status) {
        table_fill(draws, threads);
        summarise(draws);
        status = table_sort(draws, n, error);
    }
    if (status) plsh_draws_destroy(draws);
    return status;
}

void plsh_draws_destroy(plsh_draws *draws) {
    plsh_release(draws->width);
    plsh_release(draws->offset);
    draws->width = draws->offset = NULL;
}

plsh_draws plsh_draws_part(const plsh_draws *draws, int64_t first, int64_t count) {
    plsh_draws part = *draws;
    part.set.samples = count;
    part.width += first;
    part.offset += first;
    if (count == 0) part.longest = 0;
    if (count > 0 && first + count < draws->set.samples && part.width[count - 1] > 0)
        part.longest = (part.width[count - 1] >> draws->shift) + 1;
    return part;
}

plsh_range plsh_draws_block(const plsh_draws *draws, int64_t sample, int64_t position) {
    plsh_range block;
    if (draws->width) {
        plsh_draw draw = {draws->width[sample], draws->offset[sample], draws->shift};
        return plsh_draw_block(&draw, position);
    }
    plsh_partition_block(&draws->set, sample, position, &block);
    return block;
}

/* n, and the largest so far. */
typedef struct measured_blocks {
    int64_t n, largest;
} measured_blocks;

static void measure_block(void *context, plsh_range block) {
    measured_blocks *at = context;
    const int64_t begin = block.begin > 0 ? block.begin : 0;
    const int64_t length = (block.end < at->n ? block.end : at->n) - begin;
    if (length > at->largest) at->largest = length;
}

int64_t plsh_draws_largest_block(const plsh_draws *draws, int64_t n) {
    if (plsh_partition_is_shifted(&draws->set)) {
        measured_blocks at = {n, 0};
        if (n > 0) plsh_shifted_visit(&draws->set, (plsh_range){0, n}, measure_block, &at);
        return at.largest;
    }
    int64_t largest = 0;
    for (int64_t m = draws->set.samples - 1; m >= 0 && largest < n; m--) { /* the widest first */
        /* Skip a grid that cannot have a longer block than the longest so far. */
        if (draws->width && draws->width[m] != 0 && (draws->width[m] - 1) >> draws->shift < largest)
            continue;
        for (int64_t i = 0; i < n;) {
            int64_t end = plsh_draws_block(draws, m, i).end;
            if (end > n) end = n;
            if (end - i > largest) largest = end - i;
            i = end;
        }
    }
    return largest;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Rows of a chunk with 32 fraction bits, plus a width of 62 bits, fit into 63 bits. */
static const int64_t MAX_CHUNK = INT64_C(1) << 29;

/* About eight blocks per draw and chunk, so that the cost per draw is small beside the cost per
 * block. */
static int64_t choose_chunk(const plsh_draws *draws, int64_t rows) {
    double chunk = 8 * (double)draws->set.samples / fmax(draws->density, 1e-9);
    if (chunk < 64) chunk = 64;
    if (chunk > 65536) chunk = 65536;
    return chunk < (double)rows ? (int64_t)chunk : rows;
}

/* begin < 2^31 with at most 32 fraction bits, and offsets below 2^62: 64 bits are enough. */
int64_t plsh_draws_opening(const plsh_draws *draws, int64_t m, int64_t begin) {
    if (!draws->width || draws->width[m] == 0) return 0;
    int64_t rest = (begin * (INT64_C(1) << draws->shift) - draws->offset[m]) % draws->width[m];
    return rest < 0 ? -rest - draws->width[m] : -rest;
}

plsh_status plsh_blocks_open(const plsh_draws *draws, int64_t begin, int64_t end, int64_t chunk,
                             plsh_blocks *blocks, plsh_error *error) {
    *blocks =
        (plsh_blocks){.draws = draws, .begin = begin, .end = end, .row = begin, .chunk = chunk};
    if (begin < 0 || end < begin || end > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "rows %lld to %lld are not a range within 0 .. 2^31 - 1", (long long)begin,
                         (long long)end);
    if (chunk <= 0) blocks->chunk = choose_chunk(draws, end - begin);
    if (blocks->chunk > MAX_CHUNK) blocks->chunk = MAX_CHUNK;
    size_t s = (size_t)draws->set.samples;
    plsh_status status =
        plsh_allocate((void **)&blocks->next, s, sizeof *blocks->next, "a walk of blocks", error);
    if (!status)
        status = plsh_allocate((void **)&blocks->first, (size_t)blocks->chunk + 2,
                               sizeof *blocks->first, "a walk of blocks", error);
    if (status) {
        plsh_blocks_close(blocks);
        return status;
    }
    for (int64_t m = 0; m < draws->set.samples; m++)
        blocks->next[m] = plsh_draws_opening(draws, m, begin);
    return PLSH_STATUS_OK;
}

void plsh_blocks_close(plsh_blocks *blocks) {
    plsh_release(blocks->next);
    plsh_release(blocks->first);
    plsh_release(blocks->ends);
    blocks->next = NULL;
    blocks->first = blocks->ends = NULL;
}

/* Counts, for every row of the chunk, the blocks that begin there: count[i]. */
static void count_grid(const plsh_blocks *blocks, uint32_t *count) {
    const plsh_draws *draws = blocks->draws;
    const int shift = draws->shift;
    const int64_t round = (INT64_C(1) << shift) - 1, stop = blocks->rows << shift;
    for (int64_t m = 0; m < draws->set.samples; m++) {
        const int64_t width = draws->width[m];
        int64_t edge = blocks->next[m];
        if (edge <= 0) count[0]++, edge += width ? width : stop;
        for (; edge + round < stop; edge += width) count[(edge + round) >> shift]++;
    }
}

/* Repeats the walk and writes the ends. Leaves `next` at the first edge beyond the chunk. */
static void place_grid(plsh_blocks *blocks, uint32_t *slot) {
    const plsh_draws *draws = blocks->draws;
    const int shift = draws->shift;
    const int64_t round = (INT64_C(1) << shift) - 1, stop = blocks->rows << shift;
    const int64_t last = blocks->end - blocks->row;
    uint32_t *ends = blocks->ends;
    for (int64_t m = 0; m < draws->set.samples; m++) {
        const int64_t width = draws->width[m];
        int64_t edge = blocks->next[m], begin = edge <= 0 ? 0 : (edge + round) >> shift;
        while (begin < blocks->rows) {
            edge = width ? edge + width : INT64_MAX / 2;
            int64_t end = (edge + round) >> shift;
            ends[slot[begin]++] = (uint32_t)(end < last ? end : last);
            begin = end;
        }
        blocks->next[m] = edge - stop;
    }
}

/* Cuts and labels: next[m] is a position; plsh_draws_block finds the end of its block. */
static void walk_any(plsh_blocks *blocks, uint32_t *slot, bool place) {
    const int64_t last = blocks->end - blocks->row;
    for (int64_t m = 0; m < blocks->draws->set.samples; m++) {
        int64_t begin = blocks->next[m];
        while (begin < blocks->rows) {
            int64_t end = plsh_draws_block(blocks->draws, m, blocks->row + begin).end - blocks->row;
            if (end > last) end = last;
            if (place)
                blocks->ends[slot[begin]++] = (uint32_t)end;
            else
                slot[begin]++;
            begin = end;
        }
        if (place) blocks->next[m] = begin - blocks->rows;
    }
}

/* Design golden-shifted: the blocks that begin in the chunk, and for the first chunk also those
 * that hold its first row.
 */
typedef struct shifted_chunk {
    plsh_blocks *blocks;
    uint32_t *slot;
    bool place, first;
} shifted_chunk;

static void walk_block(void *context, plsh_range block) {
    const shifted_chunk *at = context;
    const int64_t row = at->blocks->row, last = at->blocks->end - row;
    int64_t begin = block.begin - row, end = block.end - row;
    if (begin < 0 && !at->first) return;
    if (begin < 0) begin = 0;
    if (end > last) end = last;
    if (at->place)
        at->blocks->ends[at->slot[begin]++] = (uint32_t)end;
    else
        at->slot[begin]++;
}

static void walk_shifted(plsh_blocks *blocks, uint32_t *slot, bool place) {
    shifted_chunk at = {blocks, slot, place, blocks->row == blocks->begin};
    plsh_shifted_visit(&blocks->draws->set, (plsh_range){blocks->row, blocks->row + blocks->rows},
                       walk_block, &at);
}

static void walk_blocks(plsh_blocks *blocks, uint32_t *slot, bool place) {
    if (plsh_partition_is_shifted(&blocks->draws->set))
        walk_shifted(blocks, slot, place);
    else
        walk_any(blocks, slot, place);
}

static plsh_status reserve(plsh_blocks *blocks, size_t count, plsh_error *error) {
    if (count <= blocks->capacity) return PLSH_STATUS_OK;
    plsh_release(blocks->ends);
    blocks->capacity = 0;
    plsh_status status = plsh_allocate((void **)&blocks->ends, count + count / 8,
                                       sizeof *blocks->ends, "the blocks of a chunk", error);
    if (!status) blocks->capacity = count + count / 8;
    return status;
}

/* Counting sort of the blocks by row. first[i + 2] counts the blocks of row i; after the prefix
 * sum, first[i + 1] is the slot of row i's next end. Placing moves every slot to the first of the
 * next row, so that row i has the slots first[i] .. first[i + 1] in the end. */
plsh_status plsh_blocks_next(plsh_blocks *blocks, plsh_error *error) {
    blocks->row += blocks->rows;
    int64_t left = blocks->end - blocks->row;
    blocks->rows = left < blocks->chunk ? left : blocks->chunk;
    if (blocks->rows == 0) return PLSH_STATUS_OK;
    uint32_t *first = blocks->first;
    memset(first, 0, ((size_t)blocks->rows + 2) * sizeof *first);
    const bool grid = blocks->draws->width != NULL;
    if (grid)
        count_grid(blocks, first + 2);
    else
        walk_blocks(blocks, first + 2, false);
    uint64_t total = 0;
    for (int64_t i = 0; i < blocks->rows; i++) {
        total += first[i + 2];
        first[i + 2] = (uint32_t)total;
    }
    if (total > UINT32_MAX)
        return plsh_fail(
            error, PLSH_STATUS_OVERFLOW,
            "%llu blocks in %lld rows are more than a chunk holds; take shorter chunks",
            (unsigned long long)total, (long long)blocks->rows);
    plsh_status status = reserve(blocks, (size_t)total, error);
    if (status) return status;
    if (grid)
        place_grid(blocks, first + 1);
    else
        walk_blocks(blocks, first + 1, true);
    return PLSH_STATUS_OK;
}

bool plsh_partition_contiguous(const plsh_partition *set, int64_t n) {
    for (int64_t m = 0; m < set->samples; m++) {
        const int32_t *labels = set->labels + m * set->label_count;
        for (int64_t i = 1; i < n; i++)
            if (labels[i] < labels[i - 1]) return false;
    }
    return true;
}
