/* attention: the positions of a plan that are points. */
#include "attention/plan/points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static plsh_status allocate(void *out, int64_t count, size_t size, plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, "positions", error);
}

/* ---- Copies --------------------------------------------------------------------------------- */

/* The queries are the last keys of their sequences. */
static void take_last_keys(plsh_plan_points *points, const plsh_points_cut *cut) {
    for (int64_t set = 0; set < points->sets; set++) {
        for (int64_t x = 0; x < cut->sequences; x++) {
            const int64_t count = cut->query_offset[x + 1] - cut->query_offset[x];
            const int64_t to = set * points->queries + cut->query_offset[x];
            const int64_t from = set * points->keys + cut->key_offset[x + 1] - count;
            memcpy(points->query + to * points->dim, points->key + from * points->dim,
                   sizeof(float) * (size_t)(count * points->dim));
        }
    }
}

plsh_status plsh_points_make(plsh_plan_points *points, const plsh_attention *a,
                             const plsh_points_cut *cut, plsh_error *error) {
    const plsh_positions *p = &a->positions;
    if (p->dim == 0) return PLSH_STATUS_OK;
    *points = (plsh_plan_points){.dim = p->dim,
                                 .sets = p->sets,
                                 .queries = a->queries,
                                 .keys = a->keys,
                                 .query_given = p->query != NULL};
    const size_t point = sizeof(float) * (size_t)p->dim;
    plsh_status status = allocate(&points->key, p->sets * a->keys, point, error);
    if (!status) status = allocate(&points->query, p->sets * a->queries, point, error);
    if (status) return status;
    if (a->keys > 0) memcpy(points->key, p->key, point * (size_t)(p->sets * a->keys));
    if (!p->query)
        take_last_keys(points, cut);
    else if (a->queries > 0)
        memcpy(points->query, p->query, point * (size_t)(p->sets * a->queries));
    return PLSH_STATUS_OK;
}

void plsh_points_release(plsh_plan_points *points) {
    plsh_release(points->query);
    plsh_release(points->key);
    plsh_release(points->query_order);
    plsh_release(points->key_order);
    plsh_release(points->query_placed);
    plsh_release(points->key_placed);
    plsh_release(points->box);
    plsh_release(points->least_row);
}

/* ---- The Hilbert curve ---------------------------------------------------------------------- */

static bool has_position(const float *point, int dim) {
    for (int i = 0; i < dim; i++)
        if (isnan(point[i])) return false;
    return true;
}

/* The box of some points, those without a position left out: [least .. , most ..], least > most
 * where there is none. */
static void find_box(const float *points, int64_t count, int dim, float *box) {
    for (int i = 0; i < dim; i++) {
        box[i] = INFINITY;
        box[dim + i] = -INFINITY;
    }
    for (int64_t r = 0; r < count; r++) {
        const float *at = points + r * dim;
        for (int i = 0; has_position(at, dim) && i < dim; i++) {
            box[i] = at[i] < box[i] ? at[i] : box[i];
            box[dim + i] = at[i] > box[dim + i] ? at[i] : box[dim + i];
        }
    }
}

/* The place on a Hilbert curve of `bits` bits per axis (J. Skilling, Programming the Hilbert curve,
 * 2004): undo the excess work, Gray decode, interleave. */
static uint64_t hilbert(uint32_t *x, int dim, int bits) {
    const uint32_t top = UINT32_C(1) << (bits - 1);
    uint32_t flip = 0;
    for (uint32_t q = top; q > 1; q >>= 1) {
        for (int i = 0; i < dim; i++) {
            const uint32_t swap = x[i] & q ? 0 : (x[0] ^ x[i]) & (q - 1);
            x[0] ^= x[i] & q ? q - 1 : swap;
            x[i] ^= swap;
        }
    }
    for (int i = 1; i < dim; i++) x[i] ^= x[i - 1];
    for (uint32_t q = top; q > 1; q >>= 1)
        if (x[dim - 1] & q) flip ^= q - 1;
    uint64_t place = 0;
    for (int bit = bits - 1; bit >= 0; bit--)
        for (int i = 0; i < dim; i++) place = place << 1 | ((x[i] ^ flip) >> bit & 1);
    return place;
}

/* A number whose order is that of the points; those without a position come last. */
static uint64_t place_of(const float *point, int dim, const float *box) {
    const int bits = dim == 1 ? 32 : dim == 2 ? 31 : 21;
    uint32_t x[3];
    if (!has_position(point, dim)) return UINT64_MAX;
    if (dim ==
        1) { /* the bits of the float, inverted if negative: as integers they have its order */
        const float at = point[0] + 0.0f;
        memcpy(x, &at, sizeof at);
        return x[0] >> 31 ? ~x[0] : x[0] | UINT32_C(1) << 31;
    }
    for (int i = 0; i < dim; i++) {
        const double width = (double)box[dim + i] - (double)box[i];
        const double share = width > 0 ? ((double)point[i] - (double)box[i]) / width : 0;
        x[i] = (uint32_t)(share * (double)((UINT64_C(1) << bits) - 1));
    }
    return hilbert(x, dim, bits);
}

typedef struct placed_row {
    uint64_t place;
    int32_t row;
} placed_row;

static int compare(const void *a, const void *b) {
    const placed_row *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* order and placed of some rows. */
static void sort_rows(const float *points, int64_t count, int dim, const float *box,
                      placed_row *rows, int32_t *order, float *placed) {
    for (int64_t r = 0; r < count; r++)
        rows[r] = (placed_row){place_of(points + r * dim, dim, box), (int32_t)r};
    if (count > 0) qsort(rows, (size_t)count, sizeof *rows, compare);
    for (int64_t r = 0; r < count; r++) {
        order[r] = rows[r].row;
        memcpy(placed + r * dim, points + rows[r].row * dim, sizeof(float) * (size_t)dim);
    }
}

static plsh_status make_order(plsh_plan_points *p, const plsh_points_cut *cut, plsh_error *error) {
    const size_t point = sizeof(float) * (size_t)p->dim;
    const int64_t most = p->queries > p->keys ? p->queries : p->keys;
    placed_row *rows = NULL;
    plsh_status status = allocate(&p->key_order, p->sets * p->keys, sizeof(int32_t), error);
    if (!status) status = allocate(&p->query_order, p->sets * p->queries, sizeof(int32_t), error);
    if (!status) status = allocate(&p->key_placed, p->sets * p->keys, point, error);
    if (!status) status = allocate(&p->query_placed, p->sets * p->queries, point, error);
    if (!status) status = allocate(&rows, most, sizeof *rows, error);
    for (int64_t i = 0; !status && i < p->sets * cut->sequences; i++) {
        const int64_t set = i / cut->sequences, x = i % cut->sequences;
        const int64_t key = set * p->keys + cut->key_offset[x];
        const int64_t keys = cut->key_offset[x + 1] - cut->key_offset[x];
        const int64_t query = set * p->queries + cut->query_offset[x];
        const int64_t queries = cut->query_offset[x + 1] - cut->query_offset[x];
        float box[6];
        find_box(p->key + key * p->dim, keys, p->dim, box);
        sort_rows(p->key + key * p->dim, keys, p->dim, box, rows, p->key_order + key,
                  p->key_placed + key * p->dim);
        find_box(p->query + query * p->dim, queries, p->dim, box);
        sort_rows(p->query + query * p->dim, queries, p->dim, box, rows, p->query_order + query,
                  p->query_placed + query * p->dim);
    }
    plsh_release(rows);
    return status;
}

/* ---- Pieces --------------------------------------------------------------------------------- */

/* The points of the keys of a piece, in the order of the rows or of the places. */
typedef struct piece {
    int64_t first; /* place of its first key */
    int64_t keys;
    int64_t at; /* of that key among all of its set */
} piece;

static piece find_piece(const plsh_points_cut *cut, int64_t x, int64_t number) {
    const int64_t first = (number - cut->first_piece[x]) * cut->piece_keys;
    const int64_t left = cut->key_offset[x + 1] - cut->key_offset[x] - first;
    return (piece){first, left < cut->piece_keys ? left : cut->piece_keys,
                   cut->key_offset[x] + first};
}

/* Fills in the boxes of all pieces of these points; the sum of their widths. */
static double fill_boxes(plsh_plan_points *p, const plsh_points_cut *cut, const float *points) {
    double sum = 0;
    for (int64_t set = 0; set < p->sets; set++) {
        for (int64_t x = 0; x < cut->sequences; x++) {
            for (int64_t i = cut->first_piece[x]; i < cut->first_piece[x + 1]; i++) {
                const piece of = find_piece(cut, x, i);
                float *box = p->box + (set * p->pieces + i) * 2 * p->dim;
                find_box(points + (set * p->keys + of.at) * p->dim, of.keys, p->dim, box);
                for (int c = 0; c < p->dim; c++)
                    sum += fmax(0, (double)box[p->dim + c] - (double)box[c]);
            }
        }
    }
    return sum;
}

/* The box of a piece with a key that has no position is all of space: that key is near everything.
 */
static void finish_piece(plsh_plan_points *p, int64_t set, piece of, int64_t number) {
    const float *points =
        (p->key_order ? p->key_placed : p->key) + (set * p->keys + of.at) * p->dim;
    float *box = p->box + (set * p->pieces + number) * 2 * p->dim;
    int32_t least = INT32_MAX;
    bool whole = true;
    for (int64_t j = 0; j < of.keys; j++) {
        const int32_t row =
            p->key_order ? p->key_order[set * p->keys + of.at + j] : (int32_t)(of.first + j);
        least = row < least ? row : least;
        whole &= has_position(points + j * p->dim, p->dim);
    }
    for (int c = 0; !whole && c < p->dim; c++) {
        box[c] = -INFINITY;
        box[p->dim + c] = INFINITY;
    }
    p->least_row[set * p->pieces + number] = least;
}

static void drop_order(plsh_plan_points *p) {
    void **arrays[] = {(void **)&p->query_order, (void **)&p->key_order, (void **)&p->query_placed,
                       (void **)&p->key_placed};
    for (int i = 0; i < 4; i++) {
        plsh_release(*arrays[i]);
        *arrays[i] = NULL;
    }
}

plsh_status plsh_points_arrange(plsh_plan_points *p, const plsh_points_cut *cut,
                                plsh_error *error) {
    /* The order of the rows is kept if their boxes are at most this many times as wide: then
     * nothing has to be copied. */
    const double good = 1.25;
    p->pieces = cut->first_piece[cut->sequences];
    plsh_status status =
        allocate(&p->box, p->sets * p->pieces, sizeof(float) * 2 * (size_t)p->dim, error);
    if (!status) status = allocate(&p->least_row, p->sets * p->pieces, sizeof(int32_t), error);
    if (!status) status = make_order(p, cut, error);
    if (status) return status;
    const double ordered = fill_boxes(p, cut, p->key_placed);
    if (fill_boxes(p, cut, p->key) <= good * ordered)
        drop_order(p);
    else
        fill_boxes(p, cut, p->key_placed);
    for (int64_t set = 0; set < p->sets; set++)
        for (int64_t x = 0; x < cut->sequences; x++)
            for (int64_t i = cut->first_piece[x]; i < cut->first_piece[x + 1]; i++)
                finish_piece(p, set, find_piece(cut, x, i), i);
    return PLSH_STATUS_OK;
}
