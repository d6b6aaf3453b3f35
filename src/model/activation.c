/* model: the activation inside an MLP, forward and backward. */
#include "model/activation.h"

#include "base/clones.h"
#include "base/thread.h"
#include "model/rowmath.h"

#define SQRT_2_OVER_PI 0x1.988454p-1f
#define CUBE 0.044715f
#define INVERSE_SQRT_2PI 0x1.988454p-2f

/* One loop for each kind, so that the loop has no branch and vectorises. */
#define EACH(expression)                                                                           \
    for (int64_t c = 0; c < width; c++) {                                                          \
        float x = from[c];                                                                         \
        to[c] = (expression);                                                                      \
    }                                                                                              \
    break

/* to = act(from). gelu_tanh: x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2/pi) (x + c x^3). */
PLSH_CLONES static void apply(plsh_activation kind, const float *restrict from, float *to,
                              int64_t width) {
    switch (kind) {
    case PLSH_ACTIVATION_SILU: EACH(x * plsh_rowmath_sigmoid(x));
    case PLSH_ACTIVATION_GELU: EACH(x * plsh_rowmath_normal(x));
    case PLSH_ACTIVATION_GELU_TANH:
        EACH(x * plsh_rowmath_sigmoid(2.0f * SQRT_2_OVER_PI * (x + CUBE * x * x * x)));
    case PLSH_ACTIVATION_RELU: EACH(x > 0.0f ? x : 0.0f);
    }
}

/* d silu = s (1 + x (1 - s)), s = sigmoid(x). */
static inline float silu_slope(float x) {
    float s = plsh_rowmath_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* d (x Phi(x)) = Phi(x) + x phi(x). */
static inline float gelu_slope(float x) {
    return plsh_rowmath_normal(x) + x * INVERSE_SQRT_2PI * plsh_rowmath_exp(-0.5f * x * x);
}

/* d (x s(2u)) = s + x s (1 - s) 2 u'. */
static inline float gelu_tanh_slope(float x) {
    float s = plsh_rowmath_sigmoid(2.0f * SQRT_2_OVER_PI * (x + CUBE * x * x * x));
    return s + x * s * (1.0f - s) * 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBE * x * x);
}

/* to = act'(from). */
PLSH_CLONES static void slope(plsh_activation kind, const float *restrict from, float *to,
                              int64_t width) {
    switch (kind) {
    case PLSH_ACTIVATION_SILU: EACH(silu_slope(x));
    case PLSH_ACTIVATION_GELU: EACH(gelu_slope(x));
    case PLSH_ACTIVATION_GELU_TANH: EACH(gelu_tanh_slope(x));
    case PLSH_ACTIVATION_RELU: EACH(x > 0.0f ? 1.0f : 0.0f);
    }
}

typedef struct layer {
    plsh_activation kind;
    bool gated;
    int64_t width;
    const float *x, *dy;
    float *to; /* y or dx */
} layer;

static void forward_rows(void *context, int64_t first, int64_t end, int slot) {
    const layer *a = context;
    const int64_t width = a->width;
    (void)slot;
    for (int64_t r = first; r < end; r++) {
        const float *from = a->x + r * width * (a->gated ? 2 : 1);
        float *to = a->to + r * width;
        apply(a->kind, from, to, width);
        for (int64_t c = 0; a->gated && c < width; c++) to[c] *= from[width + c];
    }
}

void plsh_activation_forward(plsh_activation kind, bool gated, const float *x, float *y,
                             int64_t rows, int64_t width, int threads) {
    layer a = {.kind = kind, .gated = gated, .width = width, .x = x, .to = y};
    plsh_thread_rows(threads, rows, 1, forward_rows, &a);
}

static void backward_rows(void *context, int64_t first, int64_t end, int slot) {
    const layer *a = context;
    const int64_t width = a->width;
    (void)slot;
    for (int64_t r = first; r < end; r++) {
        const float *from = a->x + r * width * (a->gated ? 2 : 1), *dout = a->dy + r * width;
        float *to = a->to + r * width * (a->gated ? 2 : 1);
        if (a->gated) apply(a->kind, from, to + width, width);
        slope(a->kind, from, to, width);
        for (int64_t c = 0; c < width; c++) to[c] *= dout[c];
        for (int64_t c = 0; a->gated && c < width; c++) {
            to[c] *= from[width + c];
            to[width + c] *= dout[c];
        }
    }
}

void plsh_activation_backward(plsh_activation kind, bool gated, const float *x, const float *dy,
                              float *dx, int64_t rows, int64_t width, int threads) {
    layer a = {.kind = kind, .gated = gated, .width = width, .x = x, .dy = dy, .to = dx};
    plsh_thread_rows(threads, rows, 1, backward_rows, &a);
}
