/* partition: the rows of M~ as step functions, one after the other. */
#include "partition/rows.h"

#include "base/memory.h"

#include <string.h>

plsh_status plsh_rows_open(const plsh_draws *draws, int64_t begin, int64_t end, plsh_rows *rows,
                           plsh_error *error) {
    *rows = (plsh_rows){.row = begin - 1};
    plsh_status status = plsh_blocks_open(draws, begin, end, 0, &rows->blocks, error);
    if (status) return status;
    int64_t longest = draws->longest < end - begin ? draws->longest : end - begin;
    rows->window = rows->blocks.chunk + longest + 1;
    status = plsh_allocate((void **)&rows->ending, (size_t)rows->window, sizeof *rows->ending,
                           "ends of blocks", error);
    if (!status)
        status = plsh_allocate((void **)&rows->count, (size_t)longest + 1, sizeof *rows->count,
                               "a row of M~", error);
    if (status) plsh_rows_close(rows);
    return status;
}

void plsh_rows_close(plsh_rows *rows) {
    plsh_blocks_close(&rows->blocks);
    plsh_release(rows->ending);
    plsh_release(rows->count);
    rows->ending = rows->count = NULL;
}

/* Moves to the next chunk and shifts the histogram accordingly. */
static plsh_status next_chunk(plsh_rows *rows, plsh_error *error) {
    const int64_t passed = rows->blocks.rows, kept = rows->window - passed;
    plsh_status status = plsh_blocks_next(&rows->blocks, error);
    if (status) return status;
    memmove(rows->ending, rows->ending + passed, (size_t)kept * sizeof *rows->ending);
    memset(rows->ending + kept, 0, (size_t)passed * sizeof *rows->ending);
    rows->top -= passed;
    rows->at = 0;
    return PLSH_STATUS_OK;
}

/* Adds the blocks that begin in chunk row i to the histogram of ends. Those that end there are no
 * longer open. */
static void add_blocks(plsh_rows *rows, int64_t i) {
    const plsh_blocks *blocks = &rows->blocks;
    rows->open += (int64_t)(blocks->first[i + 1] - blocks->first[i]) - rows->ending[i];
    for (uint32_t b = blocks->first[i]; b < blocks->first[i + 1]; b++) {
        int64_t end = blocks->ends[b];
        rows->ending[end]++;
        if (end > rows->top) rows->top = end;
    }
}

plsh_status plsh_rows_next(plsh_rows *rows, bool *more, plsh_error *error) {
    const plsh_blocks *blocks = &rows->blocks;
    *more = false;
    if (rows->at == blocks->rows) {
        plsh_status status = next_chunk(rows, error);
        if (status || blocks->rows == 0) return status;
    }
    const int64_t i = rows->at++;
    add_blocks(rows, i);
    rows->row++;
    rows->reach = rows->top - i;
    const int32_t *ending = rows->ending + i + 1;
    int32_t count = (int32_t)rows->open;
    for (int64_t t = 0; t < rows->reach; t++) {
        rows->count[t] = count;
        count -= ending[t];
    }
    *more = true;
    return PLSH_STATUS_OK;
}
