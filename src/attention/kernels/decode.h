/* attention: the decode kernels, one table of them per instruction set.
 *
 * A few query rows against a run of stored keys: dot products, so that K is read once, row by row,
 * as it lies, and V likewise. All rows of a call share the two reads; a call is bound by memory
 * until there are about sixteen of them. Rows of K, V, q and o are padded with zeros to
 * plsh_decode_columns() elements, so no kernel has a remainder to care for. */
#ifndef PLSH_ATTENTION_KERNELS_DECODE_H
#define PLSH_ATTENTION_KERNELS_DECODE_H

#include "attention/kernels/kernels.h"

enum { PLSH_DECODE_KEYS = 64 }; /* the most keys of a call */

typedef struct plsh_decode_row {
    const float *q; /* times scale * log2(e) */
    float *s;       /* [PLSH_DECODE_KEYS]: log2 of the keys' weights in; scratch after */
    float *o;       /* sum of 2^(score - m) v */
    float m, l;     /* largest score so far, in units of log2, from PLSH_SOFTMAX_START; the sum of
                     * 2^(score - m) */
    float alpha;    /* scratch */
} plsh_decode_row;

typedef struct plsh_decode_kernels {
    const char *name;

    /* Adds keys (1..PLSH_DECODE_KEYS) keys to every row's (m, l, o). A key whose weight in s is
     * -inf counts for nothing, whatever q and k hold. By storage: index it with the plsh_dtype. */
    void (*attend[3])(plsh_decode_row *const *rows, int count, const void *k, const void *v,
                      int keys, int d, int dv);

    /* to[0..count) = from, rounded to nearest even. */
    void (*narrow_half)(uint16_t *to, const float *from, int64_t count);
} plsh_decode_kernels;

/* Elements from one row to the next: the widest vector divides it. */
static inline int64_t plsh_decode_columns(int64_t dim) { return (dim + 15) & ~INT64_C(15); }

/* The table of the instruction set that plsh_kernels_choose takes; the reference where that set
 * has no decode kernels. */
plsh_status plsh_decode_kernels_choose(const plsh_decode_kernels **out, const char *isa,
                                       plsh_error *error);

#endif
