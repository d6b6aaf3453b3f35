/* model: normalisation of rows, forward and backward. */
#include "model/norm.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/thread.h"

enum {
    SUMS = 16
}; /* independent partial sums, so that the loop vectorises with a fixed order of additions */

typedef struct statistics {
    float mean, inverse; /* y = (x - mean) * inverse * w + b */
} statistics;

/* Pairwise: four dependent additions instead of 16. */
static inline float total(const float *sum) {
    double all[SUMS];
    for (int i = 0; i < SUMS; i++) all[i] = (double)sum[i];
    for (int half = SUMS / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) all[i] += all[i + half];
    }
    return (float)all[0];
}

/* sum of a[i] b[i]; b = NULL: of a. */
static inline float dot(const float *a, const float *b, int64_t width) {
    float sum[SUMS] = {0};
    int64_t c = 0;
    for (; c + SUMS <= width; c += SUMS) {
        for (int i = 0; i < SUMS; i++) sum[i] += a[c + i] * (b ? b[c + i] : 1.0f);
    }
    for (int i = 0; c < width; c++, i++) sum[i] += a[c] * (b ? b[c] : 1.0f);
    return total(sum);
}

static inline float variance(const float *x, float mean, int64_t width) {
    float sum[SUMS] = {0};
    int64_t c = 0;
    for (; c + SUMS <= width; c += SUMS) {
        for (int i = 0; i < SUMS; i++) sum[i] += (x[c + i] - mean) * (x[c + i] - mean);
    }
    for (int i = 0; c < width; c++, i++) sum[i] += (x[c] - mean) * (x[c] - mean);
    return total(sum) / (float)width;
}

static inline statistics measure(const plsh_norm *norm, const float *x) {
    float mean = 0.0f, square;
    if (norm->kind == PLSH_NORM_LAYER) {
        mean = dot(x, NULL, norm->width) / (float)norm->width;
        square = variance(x, mean, norm->width);
    } else {
        square = dot(x, x, norm->width) / (float)norm->width;
    }
    return (statistics){mean, (float)(1.0 / sqrt((double)square + norm->eps))};
}

/* The parts of a row. */
PLSH_CLONES static void forward_row(const plsh_norm *norm, int64_t parts, const float *x,
                                    float *y) {
    const int64_t width = norm->width;
    for (int64_t p = 0; p < parts; p++, x += width, y += width) {
        const statistics s = measure(norm, x);
        for (int64_t c = 0; c < width; c++) y[c] = (x[c] - s.mean) * s.inverse * norm->weight[c];
        for (int64_t c = 0; norm->bias && c < width; c++) y[c] += norm->bias[c];
    }
}

typedef struct norm_job {
    const plsh_norm *norm;
    plsh_norm_rows shape;
    const float *x, *dy;
    float *to; /* y or dx */
    float *partial;
} norm_job;

static void forward_rows(void *context, int64_t first, int64_t end, int slot) {
    const norm_job *p = context;
    (void)slot;
    for (int64_t r = first; r < end; r++)
        forward_row(p->norm, p->shape.parts, p->x + r * p->shape.stride,
                    p->to + r * p->shape.stride);
}

void plsh_norm_forward(const plsh_norm *norm, plsh_norm_rows shape, const float *x, float *y,
                       int threads) {
    norm_job p = {.norm = norm, .shape = shape, .x = x, .to = y};
    plsh_thread_rows(threads, shape.rows, 8, forward_rows, &p);
}

typedef struct row_sums {
    float along[SUMS], flat[SUMS]; /* of g n and of g, see backward_part */
} row_sums;

/* Adds `count` numbers, at most SUMS, to the sums of a row's backward pass, and to dw and db. */
static inline void add_sums(const float *restrict weight, statistics s, const float *restrict x,
                            const float *restrict dy, int count, row_sums *restrict sums,
                            float *restrict dw, float *restrict db) {
    for (int i = 0; i < count; i++) {
        float g = weight[i] * dy[i], n = (x[i] - s.mean) * s.inverse;
        sums->along[i] += g * n;
        sums->flat[i] += g;
        dw[i] += dy[i] * n;
        db[i] += dy[i];
    }
}

/* With n = (x - mean) inverse and g = w dy:
 *     dx += inverse (g - [mean(g)] - n mean(g n)),   the bracket for the layer norm only. */
static inline void backward_part(const plsh_norm *norm, const float *x, const float *dy, float *dx,
                                 float *dw, float *db) {
    const int64_t width = norm->width;
    const statistics s = measure(norm, x);
    const float *w = norm->weight;
    row_sums sums = {0};
    int64_t c = 0;
    for (; c + SUMS <= width; c += SUMS)
        add_sums(w + c, s, x + c, dy + c, SUMS, &sums, dw + c, db + c);
    add_sums(w + c, s, x + c, dy + c, (int)(width - c), &sums, dw + c, db + c);
    const float mean_along = total(sums.along) / (float)width;
    const float mean_flat = norm->kind == PLSH_NORM_LAYER ? total(sums.flat) / (float)width : 0.0f;
    for (c = 0; c < width; c++) {
        float g = w[c] * dy[c], n = (x[c] - s.mean) * s.inverse;
        dx[c] += s.inverse * (g - mean_flat - n * mean_along);
    }
}

PLSH_CLONES static void backward_row(const plsh_norm *norm, int64_t parts, const float *x,
                                     const float *dy, float *dx, float *dw, float *db) {
    for (int64_t p = 0; p < parts; p++) {
        const int64_t at = p * norm->width;
        backward_part(norm, x + at, dy + at, dx + at, dw, db);
    }
}

static void backward_chunk(void *context, int64_t chunk, int slot) {
    const norm_job *p = context;
    const int64_t width = p->norm->width, end = (chunk + 1) * PLSH_NORM_CHUNK;
    float *sums = p->partial + chunk * 2 * width;
    (void)slot;
    memset(sums, 0, sizeof(float) * 2 * (size_t)width);
    for (int64_t r = chunk * PLSH_NORM_CHUNK; r < end && r < p->shape.rows; r++)
        backward_row(p->norm, p->shape.parts, p->x + r * p->shape.stride,
                     p->dy + r * p->shape.stride, p->to + r * p->shape.stride, sums, sums + width);
}

void plsh_norm_backward(const plsh_norm *norm, plsh_norm_rows shape, const float *x,
                        const float *dy, float *dx, const plsh_norm_gradient *to, float *partial,
                        int threads) {
    const int64_t width = norm->width,
                  chunks = (shape.rows + PLSH_NORM_CHUNK - 1) / PLSH_NORM_CHUNK;
    norm_job p = {.norm = norm, .shape = shape, .x = x, .dy = dy, .to = dx, .partial = partial};
    plsh_thread_run(threads, chunks, backward_chunk, &p);
    for (int64_t b = 0; b < chunks; b++) {
        const float *sums = partial + b * 2 * width;
        for (int64_t c = 0; to->weight && c < width; c++) to->weight[c] += sums[c];
        for (int64_t c = 0; to->bias && c < width; c++) to->bias[c] += sums[width + c];
    }
}
