/* partition: the diagonals of s M~, from the farthest to the main one. */
#include "partition/diagonals.h"

#include "base/clones.h"
#include "base/memory.h"
#include "base/numbers.h"

plsh_status plsh_diagonals_open(const plsh_draws *draws, int64_t n, int64_t begin, int64_t end,
                                plsh_diagonals *diagonals, plsh_error *error) {
    const int64_t rows = end - begin, last = n - begin, far = plsh_least(draws->longest, last);
    *diagonals = (plsh_diagonals){.draws = draws,
                                  .begin = begin,
                                  .rows = rows,
                                  .last = last,
                                  .waiting = draws->set.samples,
                                  .t = far + 1};
    const struct {
        int32_t **array;
        int64_t count;
    } parts[] = {{&diagonals->ends, 2 * (plsh_least(rows + far, last) + 1)},
                 {&diagonals->cut, far + 2},
                 {&diagonals->entry, rows}};
    for (size_t x = 0; x < sizeof parts / sizeof parts[0]; x++) {
        plsh_status status = plsh_allocate((void **)parts[x].array, (size_t)parts[x].count,
                                           sizeof(int32_t), "diagonals of M~", error);
        if (status) {
            plsh_diagonals_close(diagonals);
            return status;
        }
    }
    return PLSH_STATUS_OK;
}

void plsh_diagonals_close(plsh_diagonals *diagonals) {
    plsh_release(diagonals->ends);
    plsh_release(diagonals->cut);
    plsh_release(diagonals->entry);
    diagonals->ends = diagonals->cut = diagonals->entry = NULL;
}

/* Adds the blocks of draw m, of width b, to A at diagonal t = floor(b). Blocks of floor(b) + 1
 * positions count from diagonal t on, blocks of floor(b) positions from t - 1 on. The block that
 * holds `begin` may be added one diagonal too early; this changes only rows before `begin`, which
 * are not read. The block that holds n - 1 is cut off and shorter. */
static void join(plsh_diagonals *diagonals, int64_t m) {
    const plsh_draws *draws = diagonals->draws;
    const int shift = draws->shift;
    const int64_t width = draws->width[m], rows = diagonals->rows, last = diagonals->last;
    if (width == 0) {
        for (int64_t i = 0; i < rows; i++) diagonals->entry[i]++;
        return;
    }
    const int64_t longer = (width >> shift) + 1, stop = plsh_least(rows + longer, last);
    int64_t edge = plsh_draws_opening(draws, m, diagonals->begin) + width;
    edge += (INT64_C(1) << shift) - 1;
    int64_t begin = 0, end = edge >> shift;
    int32_t *ends = diagonals->ends;
    if (end < last) {
        ends[2 * end]++;
        ends += longer; /* 2 end + longer - (end - begin) */
        for (begin = end; end = (edge += width) >> shift, end < stop; begin = end)
            ends[begin + end]++;
    }
    if (begin < rows) diagonals->cut[last - begin]++;
}

PLSH_CLONES static void advance(int32_t *restrict entry, int32_t *restrict ends, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        entry[i] += ends[2 * i];
        ends[2 * i] += ends[2 * i + 1];
        ends[2 * i + 1] = 0;
    }
}

void plsh_diagonals_next(plsh_diagonals *diagonals) {
    const plsh_draws *draws = diagonals->draws;
    const int64_t t = --diagonals->t, last = diagonals->last;
    while (diagonals->waiting > 0) {
        int64_t width = draws->width[diagonals->waiting - 1];
        if (width != 0 && width >> draws->shift < t) break;
        join(diagonals, --diagonals->waiting);
    }
    diagonals->count = plsh_least(diagonals->rows, last - t);
    if (diagonals->count > 0 && diagonals->count == last - t)
        diagonals->ends[2 * last] += diagonals->cut[t + 1];
    advance(diagonals->entry, diagonals->ends + 2 * (t + 1), diagonals->count);
}
