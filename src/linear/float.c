/* linear: panels of b for products in float32. */
#include "linear/float.h"

#include <string.h>

#include "linear/types.h"

/* The panel that begins with this column of the tile. */
static float *panel_at(const plsh_float_pack *pack, int column) {
    return pack->panels + (ptrdiff_t)column * PLSH_FLOAT_DEPTH;
}

/* Rows of W that become the columns from c on, dequantised in steps. */
static void pack_rows(const plsh_float_pack *pack, const plsh_linear *layer, int c, int have) {
    const plsh_linear_kernels *kernels = pack->kernels;
    const int width = kernels->width, depth = pack->depth;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    const int step = plsh_weight_kinds[layer->type].block == 256 ? 256 : 64;
    const char *rows = (const char *)layer->weight + (size_t)(pack->n + c) * row_bytes;
    for (int from = 0; from < depth; from += step) {
        const int count = depth - from < step ? depth - from : step;
        const char *first = rows + plsh_weight_bytes_of(layer->type, pack->k + from);
        for (int r = 0; r < have; r++) {
            const char *piece = first + (size_t)r * row_bytes;
            plsh_weight_prefetch(piece + plsh_weight_bytes_of(layer->type, step), layer->type,
                                 step);
            kernels->widen[layer->type](piece, pack->widened + r * step, count);
        }
        kernels->transpose(panel_at(pack, c) + (ptrdiff_t)from * width, pack->widened, step, have,
                           count);
    }
}

/* Floats become columns without a copy. */
void plsh_float_pack_transposed(const plsh_float_pack *pack, const plsh_linear *layer) {
    const int width = pack->kernels->width;
    const float *floats = plsh_linear_floats(layer);
    for (int c = 0; c < pack->columns; c += width) {
        const int have = pack->columns - c < width ? pack->columns - c : width;
        if (floats)
            pack->kernels->transpose(panel_at(pack, c),
                                     floats + (pack->n + c) * layer->in + pack->k, layer->in, have,
                                     pack->depth);
        else
            pack_rows(pack, layer, c, have);
    }
}

/* One row of b, `columns` floats, into row k of the panels. */
static void pack_row(const plsh_float_pack *pack, const float *row, int k) {
    const int width = pack->kernels->width;
    for (int c = 0; c < pack->columns; c += width) {
        const int have = pack->columns - c < width ? pack->columns - c : width;
        float *to = panel_at(pack, c) + (ptrdiff_t)k * width;
        memcpy(to, row + c, (size_t)have * sizeof *to);
        for (int i = have; i < width; i++) to[i] = 0.0f;
    }
}

void plsh_float_pack_weights(const plsh_float_pack *pack, const plsh_linear *layer) {
    const float *floats = plsh_linear_floats(layer);
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    const char *first = (const char *)layer->weight + (size_t)pack->k * row_bytes +
                        plsh_weight_bytes_of(layer->type, pack->n);
    if (floats) {
        plsh_float_pack_floats(pack, (plsh_const_matrix){floats, layer->in});
        return;
    }
    for (int i = 0; i < pack->depth; i++) {
        pack->kernels->widen[layer->type](first + (size_t)i * row_bytes, pack->widened,
                                          pack->columns);
        pack_row(pack, pack->widened, i);
    }
}

void plsh_float_pack_floats(const plsh_float_pack *pack, plsh_const_matrix x) {
    for (int i = 0; i < pack->depth; i++)
        pack_row(pack, x.data + (pack->k + i) * x.stride + pack->n, i);
}
