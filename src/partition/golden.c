/* partition: the table of the golden lattice, and its blocks.
 *
 * Compiled without contraction of a * b + c, so that the table has the same bits everywhere. */
#include "partition/golden.h"

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "partition/portable.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static const double PHI = 1.6180339887498949;
static const double PERIOD = 0.96242365011920694; /* ln phi^2, in units of sigma */
static const double ROOT_5 = 2.2360679774997897;

/* Fraction bits of ends while the table is made. Ends are below 2^5 periods, times below 2^7. */
enum { END_BITS = 52 };

/* A block of the lattice: its begin within a period, and its end, counted from there. */
typedef struct lattice_block {
    uint64_t turn;
    int64_t end; /* in 2^-END_BITS of a period */
} lattice_block;

/* A block that is open. */
typedef struct open_block {
    int64_t end;    /* from the first period */
    int32_t period; /* in which it began */
    int32_t block;
    int32_t slot;
} open_block;

typedef struct builder {
    int64_t samples, blocks;
    lattice_block *block; /* one period, by begin */
    open_block *heap;     /* [samples], the one that ends first at 0 */
    open_block *state;    /* [samples], when the last period began */
    int32_t *from;        /* [blocks]: the slot whose block it ended */
    int32_t *slot;        /* [samples]: the slot's successor in the next period */
    int64_t open;
} builder;

/* ---- the lattice ----------------------------------------------------------------------------- */

static int compare_blocks(const void *x, const void *y) {
    const lattice_block *a = x, *b = y;
    if (a->turn != b->turn) return a->turn < b->turn ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* The block of m + k phi. The middle of the block is within one period: see fill_lattice. */
static lattice_block block_of(int64_t m, int64_t k, int64_t norm, double half_log) {
    const double x = (double)m + (double)k * PHI, conjugate = (double)norm / x;
    double begin = (plsh_portable_log(x) - half_log) / PERIOD;
    double end = (half_log - plsh_portable_log(conjugate)) / PERIOD, whole = floor(begin);
    if (begin - whole >= 1) whole += 1; /* a begin just below 0 rounds to 1 */
    return (lattice_block){(uint64_t)((begin - whole) * 0x1p64),
                           (int64_t)((end - whole) * (double)(INT64_C(1) << END_BITS))};
}

/* One of x phi^2j has 1 <= x/x' < phi^4, and x >= x' iff k >= 0. Division by phi^2 takes k to k -
 * m, so x < phi^4 x' iff k < m. x x' < sqrt(5) s iff (x x')^2 < 5 s^2. Returns their number. */
static int64_t fill_lattice(int64_t s, lattice_block *block) {
    const double half_log = 0.5 * plsh_portable_log(ROOT_5 * (double)s);
    int64_t count = 0;
    for (int64_t m = 1; m * m * (m * m) < 5 * s * s; m++)
        for (int64_t k = 0; k < m; k++) {
            const int64_t norm = m * m + m * k - k * k;
            if (norm * norm >= 5 * s * s) continue;
            if (block) block[count] = block_of(m, k, norm, half_log);
            count++;
        }
    if (block) qsort(block, (size_t)count, sizeof *block, compare_blocks);
    return count;
}

/* ---- partitions ------------------------------------------------------------------------------ */

static bool ends_before(const open_block *a, const open_block *b) {
    if (a->end != b->end) return a->end < b->end;
    return a->period != b->period ? a->period < b->period : a->block < b->block;
}

static void sift_down(open_block *heap, int64_t count, int64_t at) {
    const open_block moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && ends_before(&heap[child + 1], &heap[child])) child++;
        if (ends_before(&moved, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void sift_up(open_block *heap, int64_t at) {
    const open_block moved = heap[at];
    for (int64_t parent; at > 0 && ends_before(&moved, &heap[parent = (at - 1) / 2]); at = parent)
        heap[at] = heap[parent];
    heap[at] = moved;
}

static int compare_begins(const void *x, const void *y) {
    const open_block *a = x, *b = y;
    if (a->period != b->period) return a->period < b->period ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

/* The open blocks by begin: their places are the slots. */
static void number_slots(builder *make) {
    for (int64_t m = 0; m < make->open; m++) make->state[m] = make->heap[m];
    qsort(make->state, (size_t)make->open, sizeof *make->state, compare_begins);
    for (int64_t m = 0; m < make->open; m++) {
        make->state[m].slot = (int32_t)m;
        make->heap[m] = make->state[m];
    }
    for (int64_t m = make->open / 2 - 1; m >= 0; m--) sift_down(make->heap, make->open, m);
}

/* Every begin ends the open block that would end first, and takes over its slot. */
static void run_period(builder *make, int32_t period) {
    for (int64_t b = 0; b < make->blocks; b++) {
        const int64_t end = make->block[b].end + ((int64_t)period << END_BITS);
        open_block begun = {end, period, (int32_t)b, 0};
        if (make->open < make->samples) {
            make->heap[make->open] = begun;
            sift_up(make->heap, make->open++);
            continue;
        }
        begun.slot = make->heap[0].slot;
        make->from[b] = begun.slot;
        make->heap[0] = begun;
        sift_down(make->heap, make->open, 0);
    }
}

/* Does the state after the period equal that before it, shifted by a period? Fills in `slot`. */
static bool is_periodic(builder *make, open_block *sorted) {
    if (make->open < make->samples) return false;
    for (int64_t m = 0; m < make->samples; m++) sorted[m] = make->heap[m];
    qsort(sorted, (size_t)make->samples, sizeof *sorted, compare_begins);
    for (int64_t m = 0; m < make->samples; m++)
        if (sorted[m].block != make->state[m].block ||
            sorted[m].period != make->state[m].period + 1)
            return false;
    for (int64_t m = 0; m < make->samples; m++) make->slot[sorted[m].slot] = (int32_t)m;
    return true;
}

/* Starts many periods earlier with no open block. The s open blocks are always the newest one and,
 * of all blocks before it, the s - 1 that end last. So the state is periodic as soon as the long
 * blocks of the lattice have begun. */
static plsh_status run_to_period(builder *make, open_block *sorted, int32_t *last,
                                 plsh_error *error) {
    for (int32_t period = 0; period < 64; period++) {
        const bool full = make->open == make->samples;
        number_slots(make);
        run_period(make, period);
        *last = period;
        if (full && is_periodic(make, sorted)) return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the golden lattice of %lld samples did not become periodic",
                     (long long)make->samples);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void lay_out(plsh_golden *table, plsh_arena *arena) {
    const size_t s = (size_t)table->samples, blocks = (size_t)table->blocks;
    plsh_arena_take(arena, 1, sizeof *table);
    table->turn = plsh_arena_take(arena, blocks, sizeof *table->turn);
    table->open_turn = plsh_arena_take(arena, s, sizeof *table->open_turn);
    table->close_turn = plsh_arena_take(arena, s, sizeof *table->close_turn);
    table->first = plsh_arena_take(arena, s + 1, sizeof *table->first);
    table->next = plsh_arena_take(arena, s, sizeof *table->next);
    table->open_ago = plsh_arena_take(arena, s, sizeof *table->open_ago);
    table->close_in = plsh_arena_take(arena, s, sizeof *table->close_in);
    table->cycle = plsh_arena_take(arena, s, sizeof *table->cycle);
    table->cycle_first = plsh_arena_take(arena, s, sizeof *table->cycle_first);
    table->cycle_length = plsh_arena_take(arena, s, sizeof *table->cycle_length);
    table->cycle_place = plsh_arena_take(arena, s, sizeof *table->cycle_place);
}

static void fill_slots(plsh_golden *table, const builder *make, int32_t last) {
    const int64_t s = table->samples;
    for (int64_t b = 0; b < table->blocks; b++) table->first[make->from[b] + 1]++;
    for (int64_t m = 0; m < s; m++) table->first[m + 1] += table->first[m];
    for (int64_t b = table->blocks - 1; b >= 0; b--) { /* first[m + 1] goes down to first[m] */
        const int32_t m = make->from[b];
        table->turn[--table->first[m + 1]] = make->block[b].turn;
    }
    for (int64_t m = 0; m < s; m++) table->first[m] = table->first[m + 1];
    table->first[s] = (int32_t)table->blocks;
    for (int64_t m = 0; m < s; m++) {
        table->next[m] = make->slot[m];
        table->open_turn[m] = make->block[make->state[m].block].turn;
        table->open_ago[m] = last - make->state[m].period;
    }
}

/* The block that is open when the period ends ends with the first begin of its later slots. */
static void fill_closes(plsh_golden *table) {
    for (int64_t m = 0; m < table->samples; m++) {
        int32_t slot = table->next[m], in = 1;
        while (table->first[slot] == table->first[slot + 1]) slot = table->next[slot], in++;
        table->close_turn[m] = table->turn[table->first[slot]];
        table->close_in[m] = in;
        const bool begun = table->first[m] < table->first[m + 1];
        const double begin = begun ? (double)table->turn[table->first[m + 1] - 1] * 0x1p-64
                                   : (double)table->open_turn[m] * 0x1p-64 - table->open_ago[m];
        table->longest = fmax(table->longest, in + (double)table->close_turn[m] * 0x1p-64 - begin);
    }
}

static void fill_cycles(plsh_golden *table) {
    int32_t filled = 0;
    for (int64_t m = 0; m < table->samples; m++) table->cycle_length[m] = 0;
    for (int64_t m = 0; m < table->samples; m++) {
        if (table->cycle_length[m] > 0) continue;
        const int32_t begin = filled;
        int32_t slot = (int32_t)m;
        do {
            table->cycle_first[slot] = begin;
            table->cycle_place[slot] = filled - begin;
            table->cycle[filled++] = slot;
            slot = table->next[slot];
        } while (slot != m);
        for (int32_t x = begin; x < filled; x++)
            table->cycle_length[table->cycle[x]] = filled - begin;
    }
}

static plsh_status builder_create(builder *make, int64_t s, plsh_error *error) {
    *make = (builder){.samples = s, .blocks = fill_lattice(s, NULL)};
    const size_t blocks = (size_t)make->blocks, samples = (size_t)s;
    const struct {
        void **array;
        size_t count, size;
    } parts[] = {{(void **)&make->block, blocks, sizeof *make->block},
                 {(void **)&make->heap, samples, sizeof *make->heap},
                 {(void **)&make->state, samples, sizeof *make->state},
                 {(void **)&make->slot, samples, sizeof *make->slot},
                 {(void **)&make->from, blocks, sizeof *make->from}};
    plsh_status status = PLSH_STATUS_OK;
    for (size_t x = 0; !status && x < sizeof parts / sizeof parts[0]; x++)
        status = plsh_allocate(parts[x].array, parts[x].count, parts[x].size, "the golden lattice",
                               error);
    if (!status) fill_lattice(s, make->block);
    return status;
}

static void builder_destroy(builder *make) {
    plsh_release(make->block);
    plsh_release(make->heap);
    plsh_release(make->state);
    plsh_release(make->slot);
    plsh_release(make->from);
}

static plsh_status table_create(int64_t samples, plsh_golden **out, size_t *bytes,
                                plsh_error *error) {
    builder make;
    plsh_status status = builder_create(&make, samples, error);
    open_block *sorted = NULL;
    int32_t last = 0;
    if (!status)
        status = plsh_allocate((void **)&sorted, (size_t)samples, sizeof *sorted,
                               "the golden lattice", error);
    if (!status) status = run_to_period(&make, sorted, &last, error);
    plsh_golden measured = {.samples = samples, .blocks = make.blocks};
    plsh_arena arena = {0};
    lay_out(&measured, &arena);
    void *memory = NULL;
    if (!status) status = plsh_allocate(&memory, 1, arena.used, "the golden lattice", error);
    if (!status) {
        plsh_golden *table = memory;
        *bytes = arena.used;
        table->samples = samples, table->blocks = make.blocks;
        arena = (plsh_arena){.memory = memory};
        lay_out(table, &arena);
        fill_slots(table, &make, last);
        fill_closes(table);
        fill_cycles(table);
        *out = table;
    }
    plsh_release(sorted);
    builder_destroy(&make);
    return status;
}

/* ---- the tables of a process ----------------------------------------------------------------- */

static plsh_golden *_Atomic tables; /* the newest; they are only added */
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t tables_bytes;
static const size_t TABLES_MOST = (size_t)1 << 30;

plsh_golden *plsh_golden_find(int64_t samples) {
    plsh_golden *table = atomic_load_explicit(&tables, memory_order_acquire);
    while (table && table->samples != samples) table = table->older;
    return table;
}

static plsh_status add_table(int64_t samples, plsh_error *error) {
    if (plsh_golden_find(samples)) return PLSH_STATUS_OK;
    if (tables_bytes > TABLES_MOST)
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY,
                         "the tables of design golden take %zu MB already, one for every number of "
                         "samples that was used; at most 1024",
                         tables_bytes >> 20);
    plsh_golden *table;
    size_t bytes;
    plsh_status status = table_create(samples, &table, &bytes, error);
    if (status) return status;
    tables_bytes += bytes;
    table->older = atomic_load_explicit(&tables, memory_order_relaxed);
    atomic_store_explicit(&tables, table, memory_order_release);
    return PLSH_STATUS_OK;
}

plsh_status plsh_golden_make(int64_t samples, plsh_error *error) {
    if (plsh_golden_find(samples)) return PLSH_STATUS_OK;
    pthread_mutex_lock(&tables_lock);
    plsh_status status = add_table(samples, error);
    pthread_mutex_unlock(&tables_lock);
    return status;
}

/* ---- accessors ------------------------------------------------------------------------------- */

plsh_golden_line plsh_golden_scale_of(const plsh_partition *set) {
    const double period = PERIOD * set->decay.a;
    int exponent;
    frexp(period, &exponent);
    const int shift = exponent < -6 ? 54 : 48 - exponent;
    const double fixed = floor(ldexp(period, shift) + 0.5);
    return (plsh_golden_line){NULL, fixed < 1 ? 1 : (int64_t)fixed, shift};
}

plsh_golden_line plsh_golden_line_of(const plsh_partition *set) {
    plsh_golden_line line = plsh_golden_scale_of(set);
    /* plsh_partition_check has made the table; a set that was not checked gets it here. */
    plsh_golden *table = plsh_golden_find(set->samples);
    if (!table && !plsh_golden_make(set->samples, NULL)) table = plsh_golden_find(set->samples);
    line.table = table;
    return line;
}

plsh_golden_place plsh_golden_place_of(const plsh_golden_line *line, int64_t i) {
    const plsh_int128 at = (plsh_int128)i * ((plsh_int128)1 << line->shift);
    plsh_int128 index = at / line->period;
    if (index * line->period > at) index--;
    return (plsh_golden_place){index, (int64_t)(at - index * line->period)};
}

/* The slot of a sample in period `index`. */
static int64_t slot_of(const plsh_golden *table, int64_t sample, plsh_int128 index) {
    const int64_t length = table->cycle_length[sample];
    int64_t place = (int64_t)((table->cycle_place[sample] + index) % length);
    if (place < 0) place += length;
    return table->cycle[table->cycle_first[sample] + place];
}

plsh_range plsh_golden_block(const plsh_golden_line *line, int64_t sample, int64_t position) {
    const plsh_golden_place at = plsh_golden_place_of(line, position);
    const plsh_golden_edges edges =
        plsh_golden_open(line, slot_of(line->table, sample, at.index), at.rest);
    const plsh_int128 origin = at.index * line->period;
    return (plsh_range){plsh_draw_ceil(origin + edges.begin, line->shift),
                        plsh_draw_ceil(origin + edges.end, line->shift)};
}

int64_t plsh_golden_longest(const plsh_golden_line *line) {
    return (int64_t)ldexp(line->table->longest * (double)line->period, -line->shift) + 2;
}
