/* linear: floats as the values of the q types that are written. */
#ifndef PLSH_LINEAR_QUANTISE_H
#define PLSH_LINEAR_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

/* See `narrow` of plsh_weight_kind. Values are rounded with the scales as they are stored: to
 * float16, and in the blocks of 256 to 6 or 8 bits. */
bool plsh_quantise_q8_0(const float *from, void *to, int64_t count, int64_t *bad);
bool plsh_quantise_q4_0(const float *from, void *to, int64_t count, int64_t *bad);
bool plsh_quantise_q4_1(const float *from, void *to, int64_t count, int64_t *bad);
bool plsh_quantise_q5_0(const float *from, void *to, int64_t count, int64_t *bad);
bool plsh_quantise_q4_k(const float *from, void *to, int64_t count, int64_t *bad);
bool plsh_quantise_q6_k(const float *from, void *to, int64_t count, int64_t *bad);

#endif
