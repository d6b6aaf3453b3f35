/* bench: time, the roof of the machine, and the error that goes with the time. Uses the public
 * headers only. */
#ifndef PLSH_BENCH_H
#define PLSH_BENCH_H

#include "plsh/attention.h"

/* Standard normal floats: a function of (seed, index) alone. */
void bench_fill_normal(float *x, size_t count, uint64_t seed);

/* Interleaved measurements of several things, so that a slow moment of the machine affects all of
 * them: things * reps seconds are collected, then each has a median and a spread. */
typedef struct bench_times {
    double median, spread; /* spread: (third quartile - first) / median */
} bench_times;

bench_times bench_summarise(double *seconds, int reps);

/* OpenBLAS, if it is installed: its version (NULL without) and its number of threads. */
const char *bench_blas_config(void);
void bench_blas_threads(int threads);

/* OpenBLAS chooses its kernels when it is loaded, and old ones if it does not know the processor.
 * This call restarts the program with the core (OPENBLAS_CORETYPE) that matches the instruction
 * set, unless it has that already or the variable is set. Returns where nothing is to be done. */
void bench_roof_prepare(const char *isa);
const char *bench_roof_core(void); /* NULL without OpenBLAS */

/* One OpenBLAS sgemm of 2048^3 on `threads` threads: GFLOP/s. The peak with which kernels are
 * compared. NAN if there is no memory or no OpenBLAS. */
double bench_sgemm_gflops(int threads);

/* Seconds to read (sum up) so many floats on `threads` threads: the roof of what memory limits. */
double bench_read_seconds(const float *x, size_t count, int threads);

/* Largest |o - o_exact| over `rows` evenly spaced rows per head; o_exact in double from the whole
 * decay of each head, whatever its method. Float32 arrays in the default layouts, one sequence. */
double bench_max_error(const plsh_attention *attention, const float *q, const float *k,
                       const float *v, const float *o, int64_t rows);

/* The same of |d_q - d_q_exact|, the gradient of sum(o * d_o). */
double bench_max_gradient_error(const plsh_attention *attention, const float *q, const float *k,
                                const float *v, const float *d_o, const float *d_q, int64_t rows);

#endif
