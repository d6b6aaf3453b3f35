/* convert: the frequencies of RoPE as Llama 3 scales them. */
#include <math.h>

#include "base/status.h"
#include "convert/convert.h"

/* Low frequencies are divided by the factor, high ones are kept, and those between are
 * interpolated. */
static double factor_at(const plsh_rope_config *rope, int64_t i, int64_t half) {
    double frequency = pow(rope->theta, -(double)i / (double)half);
    double turns = (double)rope->original_context * frequency / (2.0 * M_PI);
    double mix = (turns - rope->low_frequency) / (rope->high_frequency - rope->low_frequency);
    mix = mix < 0.0 ? 0.0 : mix > 1.0 ? 1.0 : mix;
    return 1.0 / ((1.0 - mix) / rope->factor + mix);
}

void plsh_convert_rope_factors(const plsh_rope_config *rope, int64_t half, float *out) {
    for (int64_t i = 0; i < half; i++) out[i] = (float)factor_at(rope, i, half);
}

/* Other programs make the factors from frequencies in float32. */
static bool makes(const plsh_rope_config *rope, const float *factors, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        double right = (double)factors[i];
        if (!(fabs(factor_at(rope, i, half) - right) <= 2e-6 * right)) return false;
    }
    return true;
}

/* The three numbers are redundant (doubling the context equals halving the low and high factors),
 * so the low factor is set to 1, as in Llama. The high factor is a whole number, the context a
 * power of 2. */
plsh_status plsh_convert_rope_recover(const float *factors, int64_t half, const char *what,
                                      plsh_rope_config *rope, plsh_error *error) {
    enum { HIGHEST = 64, SHORTEST = 6, LONGEST = 24 };
    plsh_rope_config found = *rope;
    found.scaling = PLSH_ROPE_LLAMA3;
    found.factor = 1.0;
    found.low_frequency = 1.0;
    for (int64_t i = 0; i < half; i++) found.factor = fmax(found.factor, (double)factors[i]);
    for (int high = 2; high <= HIGHEST && rope->scaling == PLSH_ROPE_DEFAULT; high++) {
        for (int power = SHORTEST; power <= LONGEST; power++) {
            found.high_frequency = high == 2 ? 4.0 : high == 4 ? 2.0 : high; /* Llama's first */
            found.original_context = INT64_C(1) << power;
            if (!makes(&found, factors, half)) continue;
            *rope = found;
            return PLSH_STATUS_OK;
        }
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: rope_freqs.weight has no place in a folder: its factors are not those "
                     "that a \"rope_scaling\" of type llama3 makes with low_freq_factor 1, a whole "
                     "high_freq_factor up to %d and a power of 2 up to 2^%d as "
                     "original_max_position_embeddings",
                     what, (int)HIGHEST, (int)LONGEST);
}
