/* head: checks that arrays of a call do not share memory. */
#include "base/status.h"
#include "head/check.h"

/* `heads` times `rows` runs of `width` bytes. Adjacent runs are merged: [heads, rows, dim] without
 * gaps is a single run, [rows, heads, dim] one per row. */
typedef struct runs {
    int64_t begin, width, heads, head_step, rows, row_step;
} runs;

static runs runs_of(const plsh_check_array *a) {
    const int64_t size = (int64_t)a->size;
    runs r = {(int64_t)(uintptr_t)a->data,  a->dim * size, a->heads,
              a->layout.head_stride * size, a->rows,       a->layout.row_stride * size};
    if (r.heads == 1 || r.head_step == r.width) { /* the heads of a row are adjacent, or one */
        r.width = (r.heads - 1) * r.head_step + r.width;
        r.heads = 1;
    }
    if (r.rows == 1 || r.row_step == r.width) { /* and so are the rows */
        r.width = (r.rows - 1) * r.row_step + r.width;
        r.rows = 1;
    }
    if (r.heads > 1 && r.rows == 1 && r.head_step == r.width) {
        r.width *= r.heads;
        r.heads = 1;
    }
    return r;
}

/* x / y rounded down, y > 0. */
static int64_t divide_down(int64_t x, int64_t y) { return x / y - (x % y < 0); }

/* gap is the distance in bytes from the first row of a to the first of b. Row i of a and row j of b
 * share memory where -width_b < gap + (j - i) step < width_a: is there such a j - i? */
static bool rows_meet(const runs *a, const runs *b, int64_t gap) {
    const int64_t end_a = (a->rows - 1) * a->row_step + a->width;
    const int64_t end_b = gap + (b->rows - 1) * b->row_step + b->width;
    if (gap >= end_a || end_b <= 0) return false;
    if (a->rows == 1 && b->rows == 1) return true;
    const int64_t step = a->rows > 1 ? a->row_step : b->row_step;
    if (b->rows > 1 && b->row_step != step)
        return true; /* rows of different strides: assumed to overlap */
    int64_t least = divide_down(-b->width - gap, step) + 1;
    int64_t most = divide_down(a->width - gap - 1, step);
    if (least <= -a->rows) least = 1 - a->rows;
    if (most >= b->rows) most = b->rows - 1;
    return least <= most;
}

static bool runs_meet(const runs *a, const runs *b) {
    const int64_t gap = b->begin - a->begin;
    const int64_t end_a = (a->heads - 1) * a->head_step + (a->rows - 1) * a->row_step + a->width;
    const int64_t end_b = (b->heads - 1) * b->head_step + (b->rows - 1) * b->row_step + b->width;
    if (gap >= end_a || gap <= -end_b) return false;
    for (int64_t g = 0; g < a->heads; g++) {
        for (int64_t h = 0; h < b->heads; h++) {
            if (rows_meet(a, b, gap + h * b->head_step - g * a->head_step)) return true;
        }
    }
    return false;
}

plsh_status plsh_check_overlap(const plsh_check_array *arrays, int count, plsh_error *error) {
    for (int i = 0; i < count; i++) {
        const plsh_check_array *a = &arrays[i];
        if (!a->data || a->heads * a->rows * a->dim == 0) continue;
        const runs of_a = runs_of(a);
        for (int j = 0; j < i; j++) {
            const plsh_check_array *b = &arrays[j];
            if (!b->data || b->heads * b->rows * b->dim == 0) continue;
            if (!a->written && !b->written) continue;
            const runs of_b = runs_of(b);
            if (!runs_meet(&of_a, &of_b)) continue;
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "%s and %s share memory; an output needs memory of its own", b->name,
                             a->name);
        }
    }
    return PLSH_STATUS_OK;
}
