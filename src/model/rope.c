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

/* YaRN: the pair that turns so many times in the original context, a real number. */
static double pair_of(const plsh_rope_config *c, double turns, int64_t head_dim) {
    return (double)head_dim * log((double)c->original_context / (turns * TWO_PI)) /
           (2.0 * log(c->theta));
}

/* Pairs before the one that turns beta_fast times are kept, those after the one that turns
 * beta_slow times are divided by the factor, with a ramp between. */
static double scale_yarn(const plsh_rope_config *c, double frequency, int64_t i, int64_t head_dim) {
    double low = pair_of(c, c->beta_fast, head_dim), high = pair_of(c, c->beta_slow, head_dim);
    if (c->rounded) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)head_dim - 1.0);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return frequency / c->factor * ramp + frequency * (1.0 - ramp);
}

plsh_status plsh_rope_make(plsh_rope *rope, const plsh_rope_config *config, int64_t head_dim,
                           bool adjacent, const float *factors, plsh_error *error) {
    *rope = (plsh_rope){.head_dim = head_dim, .adjacent = adjacent, .config = *config};
    plsh_status status = plsh_allocate((void **)&rope->frequency, (size_t)head_dim / 2,
                                       sizeof(double), "RoPE frequencies", error);
    for (int64_t i = 0; !status && i < head_dim / 2; i++) {
        double frequency = pow(config->theta, -2.0 * (double)i / (double)head_dim);
        if (config->scaling == PLSH_ROPE_LINEAR) frequency /= config->factor;
        if (config->scaling == PLSH_ROPE_LLAMA3) frequency = scale_llama3(config, frequency);
        if (config->scaling == PLSH_ROPE_YARN)
            frequency = scale_yarn(config, frequency, i, head_dim);
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

/* Dynamic scaling: beyond the original context theta is multiplied by
 * (factor length / context - (factor - 1))^(d / (d - 2)). */
static double frequency_at(const plsh_rope *rope, int64_t i, int64_t length) {
    const plsh_rope_config *c = &rope->config;
    if (c->scaling != PLSH_ROPE_DYNAMIC || length <= c->original_context) return rope->frequency[i];
    const double d = (double)rope->head_dim;
    const double ratio = (double)length / (double)c->original_context;
    const double grown = pow(c->factor * ratio - (c->factor - 1.0), d / (d - 2.0));
    return (double)(float)pow(c->theta * grown, -2.0 * (double)i / d);
}

void plsh_rope_fill(const plsh_rope *rope, int64_t first, int64_t rows, int64_t length,
                    float *table) {
    const int64_t half = rope->head_dim / 2;
    const double scale = rope->config.scaling == PLSH_ROPE_YARN ? rope->config.attention : 1.0;
    for (int64_t i = 0; i < half; i++) {
        const double frequency = frequency_at(rope, i, length);
        for (int64_t r = 0; r < rows; r++) {
            double angle = (double)(first + r) * frequency;
            table[r * 2 * half + i] = (float)(scale * cos(angle));
            table[r * 2 * half + half + i] = (float)(scale * sin(angle));
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

void plsh_rope_rotate(const plsh_rope *rope, const float *table, plsh_rope_heads heads, bool back,
                      int threads) {
    rotation t = {.adjacent = rope->adjacent,
                  .half = rope->head_dim / 2,
                  .sign = back ? -1.0f : 1.0f,
                  .table = table,
                  .of = heads};
    plsh_thread_rows(threads, heads.rows, 8, turn_rows, &t);
}
