/* train: the head and the loss, together. */
#include "train/loss.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/thread.h"
#include "model/layer.h"
#include "model/rowmath.h"

enum { SUMS = 16, MOST_ROWS = 1024, LEAST_ROWS = 128, NUMBERS = 1 << 21 };

PLSH_CLONES static float largest(const float *z, int64_t count) {
    float top[SUMS];
    for (int i = 0; i < SUMS; i++) top[i] = z[0];
    int64_t c = 0;
    for (; c + SUMS <= count; c += SUMS) {
        for (int i = 0; i < SUMS; i++) top[i] = z[c + i] > top[i] ? z[c + i] : top[i];
    }
    for (; c < count; c++) top[0] = z[c] > top[0] ? z[c] : top[0];
    for (int i = 1; i < SUMS; i++) top[0] = top[i] > top[0] ? top[i] : top[0];
    return top[0];
}

/* z = e^(z - top); their sum, in chunks that are added in double. */
PLSH_CLONES static double exponentiate(float *z, float top, int64_t count) {
    double total = 0.0;
    for (int64_t first = 0; first < count; first += 1024) {
        int64_t end = first + 1024 < count ? first + 1024 : count, c = first;
        float sum[SUMS] = {0};
        for (; c + SUMS <= end; c += SUMS) {
            for (int i = 0; i < SUMS; i++) {
                float e = plsh_rowmath_exp(z[c + i] - top);
                z[c + i] = e;
                sum[i] += e;
            }
        }
        for (int i = 0; c < end; c++, i++) {
            z[c] = plsh_rowmath_exp(z[c] - top);
            sum[i] += z[c];
        }
        for (int i = 0; i < SUMS; i++) total += (double)sum[i];
    }
    return total;
}

PLSH_CLONES static void multiply(float *z, float factor, int64_t count) {
    for (int64_t c = 0; c < count; c++) z[c] *= factor;
}

/* The loss of a row, whose logits become their gradient. */
static double row_loss(float *z, int64_t count, int32_t target, double divisor) {
    if (target < 0) {
        memset(z, 0, (size_t)count * sizeof(float));
        return 0.0;
    }
    const float top = largest(z, count), own = z[target];
    const double sum = exponentiate(z, top, count);
    multiply(z, (float)(1.0 / (sum * divisor)), count);
    z[target] -= (float)(1.0 / divisor);
    return log(sum) - ((double)own - (double)top);
}

typedef struct loss_rows {
    float *logits;
    const int32_t *targets;
    int64_t vocabulary;
    double divisor, *loss;
} loss_rows;

static void run_row(void *context, int64_t row, int slot) {
    const loss_rows *all = context;
    (void)slot;
    all->loss[row] = row_loss(all->logits + row * all->vocabulary, all->vocabulary,
                              all->targets[row], all->divisor);
}

int64_t plsh_loss_rows(int64_t vocabulary) {
    int64_t rows = NUMBERS / vocabulary;
    if (rows < LEAST_ROWS) return LEAST_ROWS;
    return rows < MOST_ROWS ? rows : MOST_ROWS;
}

double plsh_loss_run(const plsh_linear_engine *engine, const plsh_model *model,
                     const plsh_loss *of) {
    const plsh_linear *head = &model->head.base;
    const int64_t width = head->in, vocabulary = head->out;
    const plsh_matrix z = {of->logits, vocabulary};
    const plsh_const_matrix dz = {of->logits, vocabulary}; /* in the place of z */
    const int64_t most = plsh_loss_rows(vocabulary);
    double total = 0.0, loss[MOST_ROWS];
    for (int64_t first = 0; first < of->rows; first += most) {
        int64_t left = of->rows - first, count = left < most ? left : most;
        plsh_const_matrix from = {of->h + first * width, width};
        plsh_linear_forward(engine, head, count, from, z, false);
        plsh_layer_scale_logits(model, count, z.data);
        loss_rows all = {of->logits, of->targets + first, vocabulary, of->divisor, loss};
        plsh_thread_run(engine->threads, count, run_row, &all);
        for (int64_t r = 0; r < count; r++) total += loss[r];
        plsh_layer_scale_logits(model, count, z.data); /* the gradient, by the same numbers */
        const plsh_matrix dh = {of->dh ? of->dh + first * width : NULL, width};
        plsh_linear_backward(engine, head, count, dz, from, of->dw, dh, false);
    }
    return total;
}
