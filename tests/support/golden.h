/* tests: a case of the reference data, golden/attention or golden/masks. */
#ifndef PLSH_TESTS_GOLDEN_H
#define PLSH_TESTS_GOLDEN_H

#include "plsh/attention.h"
#include "plsh/io.h"

typedef struct golden {
    int64_t heads, kv_heads, queries, keys, d, dv;
    int64_t samples; /* masks only */
    bool causal;
    double scale, sigma[8];
    plsh_npy q, k, v, d_o;          /* float32 */
    plsh_npy o, lse, d_q, d_k, d_v; /* float64 */
    plsh_npy labels;                /* masks: int32 [heads, samples, keys] */
    char meta[4096];
} golden;

/* Reads "attention/a_n1", say. Skips the test where the data is absent. */
void golden_read(golden *g, const char *name);
void golden_free(golden *g);

/* The descriptor of the case; head[heads] is filled in, ALiBi or the case's labels. */
plsh_attention golden_attention(const golden *g, plsh_method method, plsh_head *head);

/* Is every got[i] within twice the stored float32 error of `array` ("o", "dq", ..), plus 4 ulps of
 * its largest value? Fails the test if not, naming `what`. */
void golden_compare(const golden *g, const char *what, const char *array, const plsh_npy *expected,
                    const float *got);

#endif
