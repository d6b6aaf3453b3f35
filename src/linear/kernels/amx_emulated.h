/* linear: emulates the AMX instructions that the kernels use, as Intel's manual defines them, in
 * plain C and under the names of immintrin.h. Where the processor would raise a fault, the program
 * ends. */
#ifndef PLSH_LINEAR_AMX_EMULATED_H
#define PLSH_LINEAR_AMX_EMULATED_H

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "linear/kernels/bfloat_plain.h"

enum { TILE_COUNT = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

typedef struct emulated_tile {
    int rows, bytes;
    uint8_t at[TILE_ROWS][TILE_BYTES];
} emulated_tile;

static _Thread_local struct {
    bool configured;
    emulated_tile tile[TILE_COUNT];
} emulated;

static _Atomic int emulated_held; /* threads that hold tiles */

static inline void require(bool holds) {
    if (!holds) abort();
}

/* Palette 1: the bytes per row of each tile are 16-bit numbers from byte 16 on, the numbers of rows
 * are bytes from byte 48 on. All tiles become 0. */
static inline void emulate_loadconfig(const void *memory) {
    const uint8_t *config = memory;
    require(config[0] == 1 && config[1] == 0);
    emulated_held += !emulated.configured;
    emulated.configured = true;
    for (int t = 0; t < TILE_COUNT; t++) {
        emulated_tile *tile = &emulated.tile[t];
        *tile = (emulated_tile){.rows = config[48 + t],
                                .bytes = config[16 + 2 * t] | config[17 + 2 * t] << 8};
        require(tile->rows > 0 && tile->rows <= TILE_ROWS);
        require(tile->bytes > 0 && tile->bytes <= TILE_BYTES);
    }
}

static inline void emulate_release(void) {
    emulated_held -= emulated.configured;
    emulated.configured = false;
}

static inline emulated_tile *configured_tile(int t) {
    require(emulated.configured);
    return &emulated.tile[t];
}

static inline void emulate_zero(int t) {
    emulated_tile *tile = configured_tile(t);
    memset(tile->at, 0, sizeof tile->at);
}

static inline void emulate_loadd(int t, const void *from, long stride) {
    emulated_tile *tile = configured_tile(t);
    memset(tile->at, 0, sizeof tile->at);
    for (int m = 0; m < tile->rows; m++)
        memcpy(tile->at[m], (const char *)from + m * stride, (size_t)tile->bytes);
}

static inline void emulate_stored(int t, void *to, long stride) {
    const emulated_tile *tile = configured_tile(t);
    for (int m = 0; m < tile->rows; m++)
        memcpy((char *)to + m * stride, tile->at[m], (size_t)tile->bytes);
}

/* The shapes of c += a b, words of 4 bytes. */
static inline void require_shapes(const emulated_tile *c, const emulated_tile *a,
                                  const emulated_tile *b) {
    require(a->rows == c->rows && b->bytes == c->bytes && a->bytes == 4 * b->rows);
    require(a->bytes % 4 == 0 && c->bytes % 4 == 0);
}

static inline int32_t add_bytes(int32_t sum, const uint8_t *a, const uint8_t *b, bool b_signed) {
    for (int i = 0; i < 4; i++) {
        const int x = a[i] < 128 ? a[i] : a[i] - 256;
        sum += x * (b_signed && b[i] >= 128 ? b[i] - 256 : b[i]);
    }
    return sum;
}

static inline void multiply_bytes(int tc, int ta, int tb, bool b_signed) {
    emulated_tile *c = configured_tile(tc);
    const emulated_tile *a = configured_tile(ta), *b = configured_tile(tb);
    require_shapes(c, a, b);
    for (int m = 0; m < c->rows; m++) {
        int32_t sums[TILE_BYTES / 4];
        memcpy(sums, c->at[m], sizeof sums);
        for (int k = 0; k < b->rows; k++)
            for (int n = 0; n < c->bytes / 4; n++)
                sums[n] = add_bytes(sums[n], a->at[m] + 4 * k, b->at[k] + 4 * n, b_signed);
        memcpy(c->at[m], sums, sizeof sums);
    }
}

static inline void emulate_dpbssd(int c, int a, int b) { multiply_bytes(c, a, b, true); }
static inline void emulate_dpbsud(int c, int a, int b) { multiply_bytes(c, a, b, false); }

static inline float bfloat_at(const uint8_t *bytes) {
    return normal_or_zero(plsh_bfloat_to_float((uint16_t)(bytes[0] | bytes[1] << 8)));
}

/* Sums even and odd products separately, then adds even plus odd to c. */
static inline void emulate_dpbf16ps(int tc, int ta, int tb) {
    emulated_tile *c = configured_tile(tc);
    const emulated_tile *a = configured_tile(ta), *b = configured_tile(tb);
    require_shapes(c, a, b);
    for (int m = 0; m < c->rows; m++) {
        for (int n = 0; n < c->bytes / 4; n++) {
            float sum, odd[2] = {0.0f, 0.0f};
            for (int k = 0; k < b->rows; k++)
                for (int i = 0; i < 2; i++)
                    odd[i] = add_product(odd[i], bfloat_at(a->at[m] + 4 * k + 2 * i),
                                         bfloat_at(b->at[k] + 4 * n + 2 * i));
            memcpy(&sum, c->at[m] + 4 * n, sizeof sum);
            sum = add_product(sum, 1.0f, add_product(odd[0], 1.0f, odd[1]));
            memcpy(c->at[m] + 4 * n, &sum, sizeof sum);
        }
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig emulate_loadconfig
#define _tile_release emulate_release
#define _tile_zero emulate_zero
#define _tile_loadd emulate_loadd
#define _tile_stored emulate_stored
#define _tile_dpbssd emulate_dpbssd
#define _tile_dpbsud emulate_dpbsud
#define _tile_dpbf16ps emulate_dpbf16ps

#endif
