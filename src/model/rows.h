/* model: rows that are copied, cleared and added on all threads. */
#ifndef PLSH_MODEL_ROWS_H
#define PLSH_MODEL_ROWS_H

#include <stdint.h>

/* to = from; nothing where they are one array. Otherwise they must not overlap. */
void plsh_rows_copy(int threads, float *to, const float *from, int64_t count);

/* to = 0. */
void plsh_rows_clear(int threads, float *to, int64_t count);

/* to += from. */
void plsh_rows_add(int threads, float *to, const float *from, int64_t count);

#endif
