/* linear: the types of stored numbers: to float, and back for those that are written. */
#include "linear/types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "linear/quantise.h"

/* ---- To float. Every product below is exact in float32: a half has 11 bits, a scale 8 at most,
 * a q 8. ---- */

static float half_at(const uint8_t *bytes) {
    return plsh_half_to_float((uint16_t)(bytes[0] | bytes[1] << 8));
}

static void widen_f32(const void *from, float *to, int64_t count) {
    memcpy(to, from, (size_t)count * sizeof *to);
}

static void widen_f16(const void *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = half_at((const uint8_t *)from + 2 * i);
}

static void widen_bf16(const void *from, float *to, int64_t count) {
    const uint8_t *bytes = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = plsh_bfloat_to_float((uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8));
}

static void widen_q8_0(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 34) {
        float d = half_at(block);
        const int8_t *q = (const int8_t *)block + 2;
        for (int j = 0; j < 32; j++) to[i + j] = d * (float)q[j];
    }
}

/* 16 bytes hold values 0..15 in their low halves, 16..31 in their high ones; `high` holds a fifth
 * bit of each. */
static void widen_nibbles(const uint8_t *q, uint32_t high, float d, int less, float m, float *to) {
    for (int j = 0; j < 16; j++) {
        int low = (q[j] & 15) | (int)(high >> j & 1) << 4;
        int upper = q[j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
        to[j] = d * (float)(low - less) + m;
        to[j + 16] = d * (float)(upper - less) + m;
    }
}

static void widen_q4_0(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 18)
        widen_nibbles(block + 2, 0, half_at(block), 8, 0.0f, to + i);
}

static void widen_q4_1(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 20)
        widen_nibbles(block + 4, 0, half_at(block), 0, half_at(block + 2), to + i);
}

static uint32_t word_at(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void widen_q5_0(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 22)
        widen_nibbles(block + 6, word_at(block + 2), half_at(block), 16, 0.0f, to + i);
}

static void widen_q5_1(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 24)
        widen_nibbles(block + 8, word_at(block + 4), half_at(block), 0, half_at(block + 2), to + i);
}

/* 8 groups of 32: group 2c has the low halves of bytes 32c.., group 2c + 1 the high ones, and, with
 * five bits, bit 2c or 2c + 1 of `high`. */
static void widen_k_block(const uint8_t *block, const uint8_t *high, const uint8_t *q, float *to) {
    float d = half_at(block), m = half_at(block + 2);
    for (int g = 0; g < 8; g++) {
        int s, t;
        plsh_weight_k_scale(block + 4, g, &s, &t);
        float scale = d * (float)s, less = m * (float)t;
        for (int j = 0; j < 32; j++) {
            int value = q[g / 2 * 32 + j] >> g % 2 * 4 & 15;
            if (high) value |= (high[j] >> g & 1) << 4;
            to[g * 32 + j] = scale * (float)value - less;
        }
    }
}

static void widen_q4_k(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 144)
        widen_k_block(block, NULL, block + 16, to + i);
}

static void widen_q5_k(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 176)
        widen_k_block(block, block + 16, block + 48, to + i);
}

/* 128 bytes of low halves, 64 of pairs of high bits, 16 scales, d. Value 32 g + j of a half of 128
 * (g = 0..3) has its low bits in byte 32 (g % 2) + j, its high bits at 2g of byte j. */
static void widen_q6_k(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 210) {
        float d = half_at(block + 208);
        for (int x = 0; x < 256; x++) {
            int half = x / 128, g = x / 32 % 4, j = x % 32;
            int low = block[half * 64 + g % 2 * 32 + j] >> g / 2 * 4 & 15;
            int q = (low | (block[128 + half * 32 + j] >> 2 * g & 3) << 4) - 32;
            to[i + x] = d * (float)(int8_t)block[192 + x / 16] * (float)q;
        }
    }
}

/* 16 bytes with the scale and, in the high half, the offset of 16 values; 64 with 4 values each; d,
 * m. Value 32 g + j of a half of 128 (g = 0..3) has its bits at 2g of byte j. */
static void widen_q2_k(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 84) {
        float d = half_at(block + 80), m = half_at(block + 82);
        for (int x = 0; x < 256; x++) {
            int q = block[16 + x / 128 * 32 + x % 32] >> x / 32 % 4 * 2 & 3;
            int scale = block[x / 16];
            to[i + x] = d * (float)(scale & 15) * (float)q - m * (float)(scale >> 4);
        }
    }
}

/* 32 bytes of third bits (bit g of byte j is that of value 32 g + j), then the two low bits as in
 * Q2_K, 12 bytes of scales, d. */
static void widen_q3_k(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 110) {
        float d = half_at(block + 108);
        for (int x = 0; x < 256; x++) {
            int low = block[32 + x / 128 * 32 + x % 32] >> x / 32 % 4 * 2 & 3;
            int q = (low | (block[x % 32] >> x / 32 & 1) << 2) - 4;
            to[i + x] = d * (float)plsh_weight_q3_scale(block + 96, x / 16) * (float)q;
        }
    }
}

const int8_t plsh_weight_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

static void widen_table(const uint8_t *q, float d, float *to) {
    for (int j = 0; j < 16; j++) {
        to[j] = d * (float)plsh_weight_iq4[q[j] & 15];
        to[j + 16] = d * (float)plsh_weight_iq4[q[j] >> 4];
    }
}

static void widen_iq4_nl(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 32, block += 18)
        widen_table(block + 2, half_at(block), to + i);
}

static void widen_iq4_xs(const void *from, float *to, int64_t count) {
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += 256, block += 136) {
        for (int g = 0; g < 8; g++)
            widen_table(block + 8 + 16 * g, half_at(block) * (float)plsh_weight_iq4_scale(block, g),
                        to + i + 32 * g);
    }
}

/* ---- From float ---- */

static bool narrow_f32(const float *from, void *to, int64_t count, int64_t *bad) {
    (void)bad;
    memcpy(to, from, (size_t)count * sizeof *from);
    return true;
}

static bool narrow_f16(const float *from, void *to, int64_t count, int64_t *bad) {
    uint16_t *half = to;
    for (int64_t i = 0; i < count; i++) {
        half[i] = plsh_float_to_half(from[i]);
        if (isfinite(from[i]) && (half[i] & 0x7c00) == 0x7c00) return *bad = i, false;
    }
    return true;
}

static bool narrow_bf16(const float *from, void *to, int64_t count, int64_t *bad) {
    uint16_t *bfloat = to;
    (void)bad;
    for (int64_t i = 0; i < count; i++) bfloat[i] = plsh_float_to_bfloat(from[i]);
    return true;
}

/* ---- The table ---- */

const plsh_weight_kind plsh_weight_kinds[PLSH_WEIGHT_TYPES] = {
    [PLSH_WEIGHT_F32] = {"f32", 1, 4, 0, "F32", widen_f32, narrow_f32},
    [PLSH_WEIGHT_F16] = {"f16", 1, 2, 1, "F16", widen_f16, narrow_f16},
    [PLSH_WEIGHT_BF16] = {"bf16", 1, 2, 30, "BF16", widen_bf16, narrow_bf16},
    [PLSH_WEIGHT_Q8_0] = {"q8_0", 32, 34, 8, NULL, widen_q8_0, plsh_quantise_q8_0},
    [PLSH_WEIGHT_Q4_0] = {"q4_0", 32, 18, 2, NULL, widen_q4_0, plsh_quantise_q4_0},
    [PLSH_WEIGHT_Q4_1] = {"q4_1", 32, 20, 3, NULL, widen_q4_1, plsh_quantise_q4_1},
    [PLSH_WEIGHT_Q5_0] = {"q5_0", 32, 22, 6, NULL, widen_q5_0, plsh_quantise_q5_0},
    [PLSH_WEIGHT_Q5_1] = {"q5_1", 32, 24, 7, NULL, widen_q5_1, NULL},
    [PLSH_WEIGHT_Q4_K] = {"q4_k", 256, 144, 12, NULL, widen_q4_k, plsh_quantise_q4_k},
    [PLSH_WEIGHT_Q5_K] = {"q5_k", 256, 176, 13, NULL, widen_q5_k, NULL},
    [PLSH_WEIGHT_Q6_K] = {"q6_k", 256, 210, 14, NULL, widen_q6_k, plsh_quantise_q6_k},
    [PLSH_WEIGHT_Q2_K] = {"q2_k", 256, 84, 10, NULL, widen_q2_k, NULL},
    [PLSH_WEIGHT_Q3_K] = {"q3_k", 256, 110, 11, NULL, widen_q3_k, NULL},
    [PLSH_WEIGHT_IQ4_NL] = {"iq4_nl", 32, 18, 20, NULL, widen_iq4_nl, NULL},
    [PLSH_WEIGHT_IQ4_XS] = {"iq4_xs", 256, 136, 23, NULL, widen_iq4_xs, NULL},
    [PLSH_WEIGHT_F64] = {"f64", 1, 8, 28, "F64", NULL, NULL},
    [PLSH_WEIGHT_I8] = {"i8", 1, 1, 24, "I8", NULL, NULL},
    [PLSH_WEIGHT_I16] = {"i16", 1, 2, 25, "I16", NULL, NULL},
    [PLSH_WEIGHT_I32] = {"i32", 1, 4, 26, "I32", NULL, NULL},
    [PLSH_WEIGHT_I64] = {"i64", 1, 8, 27, "I64", NULL, NULL},
    [PLSH_WEIGHT_U8] = {"u8", 1, 1, -1, "U8", NULL, NULL},
    [PLSH_WEIGHT_U16] = {"u16", 1, 2, -1, "U16", NULL, NULL},
    [PLSH_WEIGHT_U32] = {"u32", 1, 4, -1, "U32", NULL, NULL},
    [PLSH_WEIGHT_U64] = {"u64", 1, 8, -1, "U64", NULL, NULL},
    [PLSH_WEIGHT_BOOL] = {"bool", 1, 1, -1, "BOOL", NULL, NULL},
};

bool plsh_weight_type_of_gguf(uint32_t number, plsh_weight_type *type) {
    for (int i = 0; i < PLSH_WEIGHT_TYPES; i++) {
        if (plsh_weight_kinds[i].gguf >= 0 && (uint32_t)plsh_weight_kinds[i].gguf == number)
            return *type = (plsh_weight_type)i, true;
    }
    return false;
}

const char *plsh_weight_ggml_name(uint32_t number) {
    static const char *const names[] = {
        [0] = "f32",     [1] = "f16",      [2] = "q4_0",   [3] = "q4_1",    [6] = "q5_0",
        [7] = "q5_1",    [8] = "q8_0",     [9] = "q8_1",   [10] = "q2_K",   [11] = "q3_K",
        [12] = "q4_K",   [13] = "q5_K",    [14] = "q6_K",  [15] = "q8_K",   [16] = "iq2_xxs",
        [17] = "iq2_xs", [18] = "iq3_xxs", [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s",
        [22] = "iq2_s",  [23] = "iq4_xs",  [24] = "i8",    [25] = "i16",    [26] = "i32",
        [27] = "i64",    [28] = "f64",     [29] = "iq1_m", [30] = "bf16",   [34] = "tq1_0",
        [35] = "tq2_0",  [39] = "mxfp4"};
    const bool known = number < sizeof names / sizeof *names && names[number];
    return known ? names[number] : "unknown";
}

bool plsh_weight_type_of_safetensors(const char *name, plsh_weight_type *type) {
    for (int i = 0; i < PLSH_WEIGHT_TYPES; i++) {
        const char *known = plsh_weight_kinds[i].safetensors;
        if (known && strcmp(known, name) == 0) return *type = (plsh_weight_type)i, true;
    }
    return false;
}

bool plsh_weight_type_size(plsh_weight_type type, int rank, const int64_t *shape, size_t *size) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || !plsh_multiply(count, (size_t)shape[i], &count)) return false;
    int64_t row = rank > 0 ? shape[rank - 1] : 1;
    if ((uint64_t)count > INT64_MAX / 8 || row % kind->block != 0) return false;
    return plsh_multiply(count / (size_t)kind->block, (size_t)kind->bytes, size);
}

const char *plsh_weight_type_name(plsh_weight_type type) {
    return (unsigned)type < PLSH_WEIGHT_TYPES ? plsh_weight_kinds[type].name : "unknown type";
}

int64_t plsh_weight_type_block(plsh_weight_type type) { return plsh_weight_kinds[type].block; }

size_t plsh_weight_type_bytes(plsh_weight_type type) {
    return (size_t)plsh_weight_kinds[type].bytes;
}

plsh_status plsh_weight_type_find(const char *name, plsh_weight_type *type, plsh_error *error) {
    char names[240] = "";
    for (int i = 0; i < PLSH_WEIGHT_TYPES; i++) {
        const char *known = plsh_weight_kinds[i].name;
        if (strcmp(known, name) == 0) return *type = (plsh_weight_type)i, PLSH_STATUS_OK;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", known);
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "there is no type '%.20s'; there are %s", name,
                     names);
}

int64_t plsh_tensor_columns(const plsh_tensor *tensor) {
    return tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
}

int64_t plsh_tensor_rows(const plsh_tensor *tensor) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < tensor->rank; i++) rows *= tensor->shape[i];
    return rows;
}

void plsh_tensor_to_float(const plsh_tensor *tensor, int64_t first, int64_t rows, float *out) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[tensor->type];
    int64_t columns = plsh_tensor_columns(tensor);
    size_t row_bytes = (size_t)(columns / kind->block) * (size_t)kind->bytes;
    kind->widen((const char *)tensor->data + (size_t)first * row_bytes, out, rows * columns);
}
