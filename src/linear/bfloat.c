/* linear: products in bfloat16: a, panels of b and vectors rounded to pairs of bfloat16. */
#include "linear/bfloat.h"

#include <string.h>

#include "base/clones.h"
#include "linear/kernels/amx.h"
#include "linear/types.h"

enum {
    DEPTH = PLSH_BFLOAT_DEPTH,
    ROWS = PLSH_BFLOAT_ROWS,
    GROUP = PLSH_LINEAR_GROUP,
    AHEAD = 6 /* row o + AHEAD of W is prefetched while row o is rounded */
};

plsh_bfloat_memory plsh_bfloat_memory_take(plsh_arena *arena, int columns) {
    return (plsh_bfloat_memory){
        .panels = plsh_arena_take(arena, (size_t)columns * DEPTH, sizeof(uint16_t)),
        .block = plsh_arena_take(arena, (size_t)ROWS * DEPTH, sizeof(uint16_t)),
        .rows = plsh_arena_take(arena, (size_t)GROUP * DEPTH, sizeof(uint16_t))};
}

/* ---- Rounding ------------------------------------------------------------------------------- */

static inline uint16_t narrow(uint32_t bits) {
    const uint32_t size = bits & 0x7fffffffu;
    uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    nearest = size > 0x7f800000u ? bits >> 16 | 0x40 : nearest;
    return (uint16_t)(size < 0x00800000u ? bits >> 16 & 0x8000u : nearest);
}

static inline uint32_t bits_of(const float *x) {
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits;
}

PLSH_CLONES
static void narrow_all(const float *restrict from, uint16_t *restrict to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = narrow(bits_of(from + i));
}

void plsh_bfloat_narrow(const plsh_bfloat_kernels *kernels, const float *from, uint16_t *to,
                        int64_t count) {
    if (kernels->narrow)
        kernels->narrow(from, to, count);
    else
        narrow_all(from, to, count);
    if (count % 2) to[count] = 0;
}

/* Pairs (a[i], b[i]). */
PLSH_CLONES
static void zip_all(const float *restrict a, const float *restrict b, uint16_t *restrict to,
                    int count) {
    for (int i = 0; i < count; i++) {
        const uint32_t pair = narrow(bits_of(a + i)) | (uint32_t)narrow(bits_of(b + i)) << 16;
        memcpy(to + 2 * i, &pair, sizeof pair);
    }
}

static void narrow_pairs(const plsh_bfloat_kernels *kernels, const float *a, const float *b,
                         uint16_t *to, int count) {
    if (kernels->narrow_pairs)
        kernels->narrow_pairs(a, b, to, count);
    else
        zip_all(a, b, to, count);
}

/* Pairs (a[i], 0). */
static void narrow_last(const float *a, uint16_t *to, int count) {
    for (int i = 0; i < count; i++) {
        to[2 * i] = narrow(bits_of(a + i));
        to[2 * i + 1] = 0;
    }
}

/* ---- Panels --------------------------------------------------------------------------------- */

/* The depth rounded up to what tiles multiply at a time; the block and the panels are padded with
 * zeros up to there. */
static int whole_tiles(int depth) {
    enum { STEP = PLSH_TILE_BYTES / 2 };
    return (depth + STEP - 1) / STEP * STEP;
}

static void end_panels(const plsh_bfloat_pack *pack) {
    const int width = pack->kernels->plain->width, end = (pack->depth + 1) / 2 * 2;
    const size_t count = (size_t)(whole_tiles(pack->depth) - end) * (size_t)width;
    for (int c = 0; c < pack->columns; c += width)
        memset(pack->to.panels + (ptrdiff_t)c * DEPTH + (ptrdiff_t)end * width, 0,
               count * sizeof *pack->to.panels);
}

/* `count` values of W, from any address. */
static void narrow_stored(const plsh_bfloat_kernels *kernels, plsh_weight_type type,
                          const char *from, float *widened, uint16_t *to, int64_t count) {
    if (type == PLSH_WEIGHT_BF16) {
        memcpy(to, from, (size_t)count * sizeof *to);
        if (count % 2) to[count] = 0;
    } else {
        kernels->plain->widen[type](from, widened, count);
        plsh_bfloat_narrow(kernels, widened, to, count);
    }
}

/* Pairs are moved as floats are: no arithmetic is done on them. */
void plsh_bfloat_pack_transposed(const plsh_bfloat_pack *pack, const plsh_linear *layer) {
    const plsh_linear_kernels *plain = pack->kernels->plain;
    const int width = plain->width, depth = pack->depth;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    for (int c = 0; c < pack->columns; c += width) {
        const int have = pack->columns - c < width ? pack->columns - c : width;
        const char *first = (const char *)layer->weight + (size_t)(pack->n + c) * row_bytes +
                            plsh_weight_bytes_of(layer->type, pack->k);
        const float *floats = plsh_linear_floats(layer);
        for (int r = 0; r < have; r++) {
            const char *row = first + (size_t)r * row_bytes;
            if (floats) {
                plsh_bfloat_narrow(pack->kernels, floats + (pack->n + c + r) * layer->in + pack->k,
                                   pack->to.rows + r * DEPTH, depth);
                continue;
            }
            plsh_weight_prefetch(row + AHEAD * row_bytes, layer->type, depth);
            narrow_stored(pack->kernels, layer->type, row, pack->widened, pack->to.rows + r * DEPTH,
                          depth);
        }
        plain->transpose((float *)(void *)(pack->to.panels + (ptrdiff_t)c * DEPTH),
                         (const float *)(const void *)pack->to.rows, DEPTH / 2, have,
                         (depth + 1) / 2);
    }
    end_panels(pack);
}

/* Rows k and k + 1 of b, `columns` floats each (b NULL: 0), into pairs number k / 2 of the panels.
 */
static void pack_two_rows(const plsh_bfloat_pack *pack, const float *a, const float *b, int k) {
    const int width = pack->kernels->plain->width;
    for (int c = 0; c < pack->columns; c += width) {
        const int have = pack->columns - c < width ? pack->columns - c : width;
        uint16_t *to = pack->to.panels + (ptrdiff_t)c * DEPTH + (ptrdiff_t)k * width;
        if (b)
            narrow_pairs(pack->kernels, a + c, b + c, to, have);
        else
            narrow_last(a + c, to, have);
        if (have < width) memset(to + 2 * have, 0, (size_t)(width - have) * 2 * sizeof *to);
    }
}

void plsh_bfloat_pack_weights(const plsh_bfloat_pack *pack, const plsh_linear *layer) {
    const plsh_linear_kernels *plain = pack->kernels->plain;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    const char *first = (const char *)layer->weight + (size_t)pack->k * row_bytes +
                        plsh_weight_bytes_of(layer->type, pack->n);
    float *two[2] = {pack->widened, pack->widened + pack->columns};
    const float *floats = plsh_linear_floats(layer);
    if (floats) {
        plsh_bfloat_pack_floats(pack, (plsh_const_matrix){floats, layer->in});
        return;
    }
    for (int i = 0; i < pack->depth; i += 2) {
        const bool both = i + 1 < pack->depth;
        for (int j = 0; j < 1 + both; j++)
            plain->widen[layer->type](first + (size_t)(i + j) * row_bytes, two[j], pack->columns);
        pack_two_rows(pack, two[0], both ? two[1] : NULL, i);
    }
    end_panels(pack);
}

void plsh_bfloat_pack_floats(const plsh_bfloat_pack *pack, plsh_const_matrix x) {
    for (int i = 0; i < pack->depth; i += 2) {
        const float *row = x.data + (pack->k + i) * x.stride + pack->n;
        pack_two_rows(pack, row, i + 1 < pack->depth ? row + x.stride : NULL, i);
    }
    end_panels(pack);
}

_Static_assert(ROWS *PLSH_LINEAR_GROUP * sizeof(float) <= GROUP * DEPTH * sizeof(uint16_t),
               "a part has room where rows of W are");

/* Columns of the block come from rows of a, in parts of as many as the panels' width. */
static void transpose_block(const plsh_bfloat_kernels *kernels, const plsh_bfloat_memory *to,
                            plsh_const_matrix a, int rows, int depth) {
    const int width = kernels->plain->width;
    float *part = (float *)(void *)to->rows; /* [rows][width] */
    for (int k = 0; k < depth; k += width) {
        const int have = depth - k < width ? depth - k : width;
        kernels->plain->transpose(part, a.data + k * a.stride, a.stride, have, rows);
        for (int m = 0; m < rows; m++)
            plsh_bfloat_narrow(kernels, part + m * width, to->block + m * DEPTH + k, have);
    }
}

void plsh_bfloat_take_block(const plsh_bfloat_kernels *kernels, const plsh_bfloat_memory *to,
                            plsh_const_matrix a, bool transposed, int rows, int depth) {
    if (transposed && !kernels->tiles) {
        for (int k = 0; k < depth; k += 2) {
            const float *row = a.data + k * a.stride;
            if (k + 1 < depth)
                narrow_pairs(kernels, row, row + a.stride, to->block + k * ROWS, rows);
            else
                narrow_last(row, to->block + k * ROWS, rows);
        }
        return;
    }
    if (transposed) transpose_block(kernels, to, a, rows, depth);
    for (int m = 0; m < rows; m++) {
        uint16_t *row = to->block + m * DEPTH;
        if (!transposed) plsh_bfloat_narrow(kernels, a.data + m * a.stride, row, depth);
        memset(row + depth, 0, (size_t)(whole_tiles(depth) - depth) * sizeof *row);
    }
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* The kernels take PLSH_LINEAR_FEW_ROWS rows at a time. */
static void dot_rows(const plsh_bfloat_kernels *kernels, plsh_bfloat_dot dot) {
    for (int left = dot.rows; left > 0; left -= dot.rows) {
        dot.rows = left < PLSH_LINEAR_FEW_ROWS ? left : PLSH_LINEAR_FEW_ROWS;
        kernels->dot(&dot);
        dot.x += dot.rows * dot.x_stride;
        dot.y += dot.rows * dot.y_stride;
        if (dot.start) dot.start += dot.rows * dot.start_stride;
    }
}

void plsh_bfloat_dots(const plsh_bfloat_kernels *kernels, const plsh_linear *layer, int64_t first,
                      int64_t outs, plsh_bfloat_dot dot, float *widened, uint16_t *row) {
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    const char *weight = (const char *)layer->weight + (size_t)first * row_bytes;
    if (layer->type == PLSH_WEIGHT_BF16) {
        dot.weight = weight;
        dot.row_bytes = row_bytes;
        dot.outs = outs;
        dot_rows(kernels, dot);
        return;
    }
    dot.weight = row;
    dot.outs = 1;
    for (int64_t o = 0; o < outs; o++, weight += row_bytes) {
        for (int64_t k = 0; k < layer->in; k += DEPTH) {
            const int64_t some = layer->in - k < DEPTH ? layer->in - k : DEPTH;
            narrow_stored(kernels, layer->type, weight + plsh_weight_bytes_of(layer->type, k),
                          widened, row + k, some);
        }
        dot_rows(kernels, dot);
        if (dot.start) dot.start++;
        dot.y++;
    }
}
