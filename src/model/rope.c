/* model: rotary positions, forward and backward. */
#include "model/rope.h"

#include <math.h>

#include "base/clones.h"
#include "base/memory.h"
#include "base/thread.h"

#define TWO_PI 6.283185307179586

/* Llama 3: waves longer than context / low are stretched by the factor, those shorter than context
 * / high are kept, and those between are interpolated. */
static double scale_llama3(const plsh_rope_config *c, double frequency) {
    double wave = TWO_PI / frequency, context = (double)c->original_context;
    if (wave < context / c->high_frequency) return frequency;
    if (wave > context / c->low_frequency) return frequency / c->factor;
    double mix = (context / wave - c->low_frequency) / (c->high_frequency - c->low_frequency);
    return (1.0 - mix) * frequency / c->factor + mix * frequency;
}

plsh_status plsh_rope_make(plsh_rope *rope, const plsh_rope_config *config, int64_t head_dim,
                           bool adjacent, const float *factors, plsh_error *error) {
    *rope = (plsh_rope){.head_dim = head_dim, .adjacent = adjacent};
    plsh_status status = plsh_allocate((void **)&rope->frequency, (size_t)head_dim / 2,
                                       sizeof(double), "RoPE frequencies", error);
    for (int64_t i = 0; !status && i < head_dim / 2; i++) {
        double frequency = pow(config->theta, -2.0 * (double)i / (double)head_dim);
        if (config->scaling == PLSH_ROPE_LINEAR) frequency /= config->factor;
        if (config->scaling == PLSH_ROPE_LLAMA3) frequency = scale_llama3(config, frequency);
        if (factors) frequency /= (double)factors[i];
        rope->frequency[i] =
            (double)(float)frequency; /* rounded to float, as in other implementations */
    }
    return status;
}

void plsh_rope_clear(plsh_rope *rope) {
    plsh_release(rope->frequency);
    *rope = (plsh_rope){0};
}

void plsh_rope_fill(const plsh_rope *rope, int64_t first, int64_t rows, float *table) {
    const int64_t half = rope->head_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)(first + r) * rope->frequency[i];
            table[r * 2 * half + i] = (float)cos(angle);
            table[r * 2 * half + half + i] = (float)sin(angle);
        }
    }
}

PLSH_CLONES static void turn_halves(float *x, const float *cosine, const float *sine, float sign,
                                    int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i], s = sign * sine[i];
        x[i] = a * cosine[i] - b * s;
        x[half + i] = b * cosine[i] + a * s;
    }
}

PLSH_CLONES static void turn_adjacent(float *x, const float *cosine, const float *sine, float sign,
                                      int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], s = sign * sine[i];
        x[2 * i] = a * cosine[i] - b * s;
        x[2 * i + 1] = b * cosine[i] + a * s;
    }
}

typedef struct rotation {
    bool adjacent;
    int64_t half;
    float sign;
    const float *table;
    plsh_rope_heads of;
} rotation;

static void turn_rows(void *context, int64_t first, int64_t end, int slot) {
    const rotation *t = context;
    (void)slot;
    for (int64_t r = first; r < end; r++) {
        const float *cosine = t->table + r * 2 * t->half;
        for (int64_t h = 0; h < t->of.heads; h++) {
            float *at = t->of.x + r * t->of.row_stride + h * t->of.head_stride;
            if (t->adjacent) {
                turn_adjacent(at, cosine, cosine + t->half, t->sign, t->half);
            } else {
                turn_halves(at, cosine, cosine + t->half, t->sign, t->half);
            }
        }
    }
}

void plsh_rope_turn(const plsh_rope *rope, const float *table, plsh_rope_heads heads, bool back,
                    int threads) {
    rotation t = {.adjacent = rope->adjacent,
                  .half = rope->head_dim / 2,
                  .sign = back ? -1.0f : 1.0f,
                  .table = table,
                  .of = heads};
    plsh_thread_rows(threads, heads.rows, 8, turn_rows, &t);
}
