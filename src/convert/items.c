/* convert: the rows of a tensor: ordered, joined, transposed, scaled, with an adapter merged in. */
#include "convert/items.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

typedef plsh_conversion conversion;
typedef plsh_convert_item item;
typedef plsh_convert_piece piece;

bool plsh_convert_is_vector(const plsh_tensor *tensor) {
    return tensor->rank < 2 || plsh_tensor_rows(tensor) == 1;
}

/* An adapter's layer as floats. */
typedef struct merge {
    float *a, *b; /* [rank][in], one row of B */
    float scale;
} merge;

static plsh_status begin_merge(merge *m, const item *it, plsh_error *error) {
    const plsh_adapter_layer *layer = it->adapter;
    *m = (merge){0};
    if (!layer) return PLSH_STATUS_OK;
    int64_t in = layer->a->shape[1];
    void *memory;
    size_t count = (size_t)(layer->rank * in + layer->rank);
    plsh_status status = plsh_allocate(&memory, count, sizeof(float), "an adapter", error);
    if (status) return status;
    m->a = memory;
    m->b = m->a + layer->rank * in;
    m->scale = layer->scale;
    plsh_tensor_to_float(layer->a, 0, layer->rank, m->a);
    return PLSH_STATUS_OK;
}

/* row += scale B[at] A */
static void merge_row(const merge *m, const item *it, int64_t at, float *row) {
    const int64_t in = it->adapter->a->shape[1];
    plsh_tensor_to_float(it->adapter->b, at, 1, m->b);
    for (int64_t k = 0; k < in; k++) {
        float sum = 0.0f;
        for (int64_t r = 0; r < it->adapter->rank; r++) sum += m->b[r] * m->a[r * in + k];
        row[k] += m->scale * sum;
    }
}

static plsh_status show_progress(conversion *c, size_t more, plsh_error *error) {
    c->written += more;
    const plsh_convert_options *o = c->options;
    if (!o->progress || o->progress(o->context, c->written, plsh_weights_writer_size(c->writer)))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_IO, "stopped before the end");
}

/* A row to be written: the piece that it comes from, and its number there. */
static piece find_piece(const item *it, int64_t *row) {
    int i = 0;
    if (it->pieces == 0) return (piece){.from = it->from, .order = it->order};
    while (i + 1 < it->pieces && *row >= it->piece[i].rows) *row -= it->piece[i++].rows;
    return it->piece[i];
}

/* The number of a row in the adapter (in the order of a folder), and in the file that is read. */
static int64_t folder_row_of(const conversion *c, const piece *p, int64_t row) {
    return c->to_gguf ? plsh_model_row_in_folder(&c->from, p->order, row) : row;
}

static int64_t from_row_of(const conversion *c, const piece *p, int64_t row) {
    const int64_t in_folder = folder_row_of(c, p, row);
    return c->from.gguf ? plsh_model_row_in_gguf(&c->from, p->order, in_folder) : in_folder;
}

static void finish_row(const item *it, int64_t columns, float *row) {
    double factor = (double)it->scale, square = 0.0;
    for (int64_t i = 0; it->normal && i < columns; i++) square += (double)row[i] * (double)row[i];
    if (it->normal) factor /= fmax(sqrt(square), PLSH_HEAD_SHORTEST);
    for (int64_t i = 0; factor != 1.0 && i < columns; i++) row[i] *= (float)factor;
}

static void make_row(const conversion *c, const item *it, const merge *m, int64_t row, float *to) {
    const piece p = find_piece(it, &row);
    plsh_tensor_to_float(p.from, p.first + from_row_of(c, &p, row), 1, to);
    if (it->adapter) merge_row(m, it, p.first + folder_row_of(c, &p, row), to);
    finish_row(it, plsh_tensor_columns(p.from), to);
}

/* A bias: its numbers have the order of the rows of its weight. */
static plsh_status write_ordered_vector(conversion *c, const item *it, plsh_error *error) {
    const int64_t count = plsh_tensor_columns(&it->to);
    int64_t longest = plsh_tensor_columns(it->from);
    for (int i = 0; i < it->pieces; i++)
        if (plsh_tensor_columns(it->piece[i].from) > longest)
            longest = plsh_tensor_columns(it->piece[i].from);
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)(count + longest), sizeof(float), "a bias", error);
    if (status) return status;
    float *from = memory, *to = from + longest;
    const plsh_tensor *read = NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i;
        const piece p = find_piece(it, &row);
        if (p.from != read) plsh_tensor_to_float(p.from, 0, 1, from);
        read = p.from;
        to[i] = from[p.first + from_row_of(c, &p, row)];
    }
    status = plsh_weights_writer_rows(c->writer, to, 1, error);
    plsh_release(memory);
    return status ? status : show_progress(c, (size_t)count * sizeof(float), error);
}

/* If the input or the output is [in, out]: reads the whole matrix as [out, in] into `all`. */
static void fill_matrix(const item *it, const merge *m, float *all, int64_t out, int64_t in,
                        float *scratch) {
    for (int64_t r = 0; r < (it->from_transposed ? in : out); r++) {
        plsh_tensor_to_float(it->from, r, 1, it->from_transposed ? scratch : all + r * in);
        for (int64_t o = 0; it->from_transposed && o < out; o++) all[o * in + r] = scratch[o];
    }
    for (int64_t o = 0; it->adapter && o < out; o++) merge_row(m, it, o, all + o * in);
}

static plsh_status write_transposed(conversion *c, const item *it, const merge *m,
                                    plsh_error *error) {
    const int64_t rows = plsh_tensor_rows(it->from), columns = plsh_tensor_columns(it->from);
    const int64_t out = it->from_transposed ? columns : rows,
                  in = it->from_transposed ? rows : columns;
    const int64_t written = it->to_transposed ? in : out, wide = it->to_transposed ? out : in;
    void *memory;
    if (out == 0 || in == 0) return PLSH_STATUS_OK;
    plsh_status status = plsh_allocate(&memory, (size_t)(out * in + (out > in ? out : in)),
                                       sizeof(float), "a matrix to be transposed", error);
    if (status) return status;
    float *all = memory, *row = all + out * in;
    fill_matrix(it, m, all, out, in, row);
    for (int64_t r = 0; r < written && !status; r++) {
        for (int64_t o = 0; it->to_transposed && o < out; o++) row[o] = all[o * in + r];
        status =
            plsh_weights_writer_rows(c->writer, it->to_transposed ? row : all + r * in, 1, error);
        size_t bytes = (size_t)(wide / plsh_weight_type_block(it->to.type)) *
                       plsh_weight_type_bytes(it->to.type);
        if (!status) status = show_progress(c, bytes, error);
    }
    plsh_release(memory);
    return status;
}

static plsh_status write_rows(conversion *c, const item *it, const merge *m, plsh_error *error) {
    enum { AT_ONCE = 1 << 18 }; /* values, or one row */
    const int64_t rows = plsh_tensor_rows(&it->to), columns = plsh_tensor_columns(&it->to);
    const int64_t step = columns > 0 && columns < AT_ONCE ? AT_ONCE / columns : 1;
    if (rows == 0 || columns == 0) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)(step * columns), sizeof(float), "rows", error);
    float *values = memory;
    for (int64_t r = 0; r < rows && !status; r += step) {
        const int64_t some = rows - r < step ? rows - r : step;
        for (int64_t i = 0; i < some; i++) make_row(c, it, m, r + i, values + i * columns);
        status = plsh_weights_writer_rows(c->writer, values, some, error);
        size_t bytes = (size_t)(some * columns / plsh_weight_type_block(it->to.type)) *
                       plsh_weight_type_bytes(it->to.type);
        if (!status) status = show_progress(c, bytes, error);
    }
    plsh_release(memory);
    return status;
}

plsh_status plsh_convert_write_item(conversion *c, const item *it, plsh_error *error) {
    if (it->values) return plsh_weights_writer_rows(c->writer, it->values, 1, error);
    const bool reordered =
        (it->order != PLSH_ROWS_SAME && c->from.gguf != c->to_gguf) || it->pieces > 0;
    const bool transposed = it->from_transposed || it->to_transposed;
    const bool same = !reordered && it->from_transposed == it->to_transposed && !it->normal &&
                      it->scale == 1.0f && !it->adapter;
    const bool as_is = it->to.type == it->from->type && same;
    if (as_is) {
        plsh_status status =
            plsh_weights_writer_bytes(c->writer, it->from->data, it->from->size, error);
        return status ? status : show_progress(c, it->from->size, error);
    }
    if (reordered && plsh_convert_is_vector(it->from)) return write_ordered_vector(c, it, error);
    merge m;
    plsh_status status = begin_merge(&m, it, error);
    if (!status)
        status = transposed ? write_transposed(c, it, &m, error) : write_rows(c, it, &m, error);
    plsh_release(m.a);
    return status;
}
