/* linear: floats as the values of the q types that are written. */
#include "linear/quantise.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

static float put_half(float value, uint8_t *bytes) {
    uint16_t half = plsh_float_to_half(value);
    bytes[0] = (uint8_t)half;
    bytes[1] = (uint8_t)(half >> 8);
    return plsh_half_to_float(half);
}

/* Are all values within float16's range? *bad is the index of the first that is not. */
static bool fit_half(const float *x, int64_t count, int64_t *bad) {
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(x[i]) <= 65504.0f)) return *bad = i, false;
    return true;
}

/* The nearest whole number to x / d in least..most; d = 0: 0. */
static int nearest(float x, float d, int least, int most) {
    if (d == 0.0f) return 0;
    const float q = x / d;
    if (q <= (float)least) return least;
    return q >= (float)most ? most : (int)lrintf(q);
}

/* ---- Scales by least squares ----
 *
 * Tries some scales near the one that maps the extreme value to the largest q. Each gives whole
 * numbers q, and for these the best scale is computed. Errors of value x count |x| + the root of
 * the mean square: large weights matter more to an output than small ones. */

enum { MOST = 32, TRIES = 9, MIDDLE = TRIES / 2 };

static void fill_importance(const float *x, int count, float *importance) {
    float sum = 0.0f;
    for (int i = 0; i < count; i++) sum += x[i] * x[i];
    const float root = sqrtf(sum / (float)count);
    for (int i = 0; i < count; i++) importance[i] = root + fabsf(x[i]);
}

/* d of x ~ d q, q in -n .. n - 1. Of the two signs the extreme value takes -n.
 *
 * For given q, the error sum w (x - d q)^2 is least at d = sum w x q / sum w q^2, where it is
 * sum w x^2 - (sum w x q)^2 / sum w q^2. */
static float fit_scale(const float *x, int count, int n) {
    float w[MOST], top = 0.0f, best = -1.0f, d = 0.0f;
    for (int i = 0; i < count; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    if (top == 0.0f) return 0.0f;
    fill_importance(x, count, w);
    for (int t = 0; t < TRIES; t++) {
        const float tried = -top / ((float)n + 0.15f * (float)(t - MIDDLE));
        float xq = 0.0f, qq = 0.0f;
        for (int i = 0; i < count; i++) {
            const float q = (float)nearest(x[i], tried, -n, n - 1);
            xq += w[i] * x[i] * q;
            qq += w[i] * q * q;
        }
        if (qq > 0.0f && xq * xq / qq > best) {
            best = xq * xq / qq;
            d = xq / qq;
        }
    }
    return d;
}

/* x ~ d q - m, q in 0..n, m >= 0. */
typedef struct affine {
    float d, m;
} affine;

/* d and m that are best for q = round((x - least) / tried), and their error. */
static float fit_for(const float *x, const float *w, float least, float tried, int n, affine *to) {
    float sw = 0.0f, sx = 0.0f, sq = 0.0f, sqq = 0.0f, sxq = 0.0f, q[MOST], error = 0.0f;
    for (int i = 0; i < MOST; i++) {
        q[i] = (float)nearest(x[i] - least, tried, 0, n);
        sw += w[i];
        sx += w[i] * x[i];
        sq += w[i] * q[i];
        sqq += w[i] * q[i] * q[i];
        sxq += w[i] * x[i] * q[i];
    }
    const float determinant = sw * sqq - sq * sq;
    if (!(determinant > 0.0f)) return INFINITY;
    to->d = (sw * sxq - sx * sq) / determinant;
    to->m = -(sqq * sx - sq * sxq) / determinant;
    if (to->m < 0.0f) *to = (affine){sxq / sqq, 0.0f};
    for (int i = 0; i < MOST; i++) {
        const float off = to->d * q[i] - to->m - x[i];
        error += w[i] * off * off;
    }
    return error;
}

static affine fit_affine(const float *x, int n) {
    float least = fminf(x[0], 0.0f), most = x[0], w[MOST], best = INFINITY;
    for (int i = 1; i < MOST; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    affine fit = {0.0f, -least}, tried;
    if (!(most > least)) return fit;
    fit.d = (most - least) / (float)n;
    fill_importance(x, MOST, w);
    for (int t = 0; t < TRIES; t++) {
        const float d = (most - least) / ((float)n + 0.2f * (float)(t - MIDDLE));
        const float error = fit_for(x, w, least, d, n, &tried);
        if (error < best && tried.d > 0.0f) {
            best = error;
            fit = tried;
        }
    }
    return fit;
}

/* ---- Blocks of 32 ---- */

bool plsh_quantise_q8_0(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 32, block += 34) {
        const float *x = from + i;
        float top = 0.0f;
        for (int j = 0; j < 32; j++) top = fmaxf(top, fabsf(x[j]));
        float d = put_half(top / 127.0f, block);
        for (int j = 0; j < 32; j++) block[2 + j] = (uint8_t)nearest(x[j], d, -127, 127);
    }
    return true;
}

bool plsh_quantise_q4_0(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 32, block += 18) {
        const float *x = from + i, d = put_half(fit_scale(x, 32, 8), block);
        for (int j = 0; j < 16; j++)
            block[2 + j] =
                (uint8_t)((nearest(x[j], d, -8, 7) + 8) | (nearest(x[j + 16], d, -8, 7) + 8) << 4);
    }
    return true;
}

bool plsh_quantise_q4_1(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 32, block += 20) {
        const float *x = from + i;
        float least = x[0], most = x[0];
        for (int j = 1; j < 32; j++) {
            least = fminf(least, x[j]);
            most = fmaxf(most, x[j]);
        }
        float m = put_half(least, block + 2);
        float d = put_half((most - m) / 15.0f, block);
        for (int j = 0; j < 16; j++)
            block[4 + j] =
                (uint8_t)(nearest(x[j] - m, d, 0, 15) | nearest(x[j + 16] - m, d, 0, 15) << 4);
    }
    return true;
}

/* d, 32 fifth bits, 16 bytes of the other four. */
bool plsh_quantise_q5_0(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 32, block += 22) {
        const float *x = from + i, d = put_half(fit_scale(x, 32, 16), block);
        memset(block + 2, 0, 20);
        for (int j = 0; j < 32; j++) {
            const int q = nearest(x[j], d, -16, 15) + 16;
            block[2 + j / 8] |= (uint8_t)(q >> 4 << j % 8);
            block[6 + j % 16] |= (uint8_t)((q & 15) << j / 16 * 4);
        }
    }
    return true;
}

/* ---- Blocks of 256 ---- */

/* The inverse of plsh_weight_k_scale. */
static void put_k_scale(uint8_t *packed, int j, int s, int t) {
    if (j < 4) {
        packed[j] |= (uint8_t)s;
        packed[j + 4] |= (uint8_t)t;
    } else {
        packed[j + 4] |= (uint8_t)((s & 15) | (t & 15) << 4);
        packed[j - 4] |= (uint8_t)(s >> 4 << 6);
        packed[j] |= (uint8_t)(t >> 4 << 6);
    }
}

static void quantise_k_block(const float *x, uint8_t *block) {
    affine group[8];
    float most_d = 0.0f, most_m = 0.0f;
    for (int g = 0; g < 8; g++) {
        group[g] = fit_affine(x + 32 * g, 15);
        most_d = fmaxf(most_d, group[g].d);
        most_m = fmaxf(most_m, group[g].m);
    }
    memset(block, 0, 144);
    const float d = put_half(most_d / 63.0f, block), m = put_half(most_m / 63.0f, block + 2);
    for (int g = 0; g < 8; g++) {
        const int s = nearest(group[g].d, d, 0, 63), t = nearest(group[g].m, m, 0, 63);
        const float scale = d * (float)s, less = m * (float)t;
        put_k_scale(block + 4, g, s, t);
        for (int j = 0; j < 32; j++)
            block[16 + g / 2 * 32 + j] |=
                (uint8_t)(nearest(x[32 * g + j] + less, scale, 0, 15) << g % 2 * 4);
    }
}

bool plsh_quantise_q4_k(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 256, block += 144) quantise_k_block(from + i, block);
    return true;
}

/* Scales are signed 8-bit numbers; the largest becomes -128. */
static void quantise_six_block(const float *x, uint8_t *block) {
    float scale[16], top = 0.0f;
    for (int g = 0; g < 16; g++) {
        scale[g] = fit_scale(x + 16 * g, 16, 32);
        if (fabsf(scale[g]) > fabsf(top)) top = scale[g];
    }
    memset(block, 0, 210);
    const float d = put_half(top / -128.0f, block + 208);
    for (int g = 0; g < 16; g++) block[192 + g] = (uint8_t)nearest(scale[g], d, -128, 127);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, g = i / 32 % 4, j = i % 32;
        const float own = d * (float)(int8_t)block[192 + i / 16];
        const int q = nearest(x[i], own, -32, 31) + 32;
        block[half * 64 + g % 2 * 32 + j] |= (uint8_t)((q & 15) << g / 2 * 4);
        block[128 + half * 32 + j] |= (uint8_t)(q >> 4 << 2 * g);
    }
}

bool plsh_quantise_q6_k(const float *from, void *to, int64_t count, int64_t *bad) {
    uint8_t *block = to;
    if (!fit_half(from, count, bad)) return false;
    for (int64_t i = 0; i < count; i += 256, block += 210) quantise_six_block(from + i, block);
    return true;
}
