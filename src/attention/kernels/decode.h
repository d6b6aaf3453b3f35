/* attention: what the decode kernels work on.
 *
 * A few query rows against a run of stored keys, by dot products: K is read once, row by row, in
 * the order of memory, and so is V. All rows of a call share the two reads; a call is bound by
 * memory until there are about sixteen of them. Rows of K, V, q and o are padded with zeros to
 * plsh_decode_columns() elements, so no kernel has to handle a remainder. */
#ifndef PLSH_ATTENTION_KERNELS_DECODE_H
#define PLSH_ATTENTION_KERNELS_DECODE_H

#include <stddef.h>
#include <stdint.h>

enum { PLSH_DECODE_KEYS = 64 }; /* the most keys of a call */

typedef struct plsh_decode_row {
    const float *q; /* times scale * log2(e) */
    float *s;       /* [PLSH_DECODE_KEYS]: log2 of the keys' weights in; scratch after */
    float *o;       /* sum of 2^(score - m) v */
    float m, l;     /* largest score so far, in units of log2, from PLSH_SOFTMAX_START; the sum of
                     * 2^(score - m) */
    float headroom; /* m is the largest score plus this: 0, or see forward/headroom.h */
    float alpha;    /* scratch */
} plsh_decode_row;

/* Stored keys and values. */
typedef struct plsh_decode_page {
    const void *k, *v; /* [keys][d] and [keys][dv] */
    int keys;          /* 1 .. PLSH_DECODE_KEYS */
    int d, dv;
    ptrdiff_t k_stride, v_stride; /* elements from one row to the next; 0: rows without gaps */
} plsh_decode_page;

/* Elements from one row to the next: the widest vector divides it. */
static inline int64_t plsh_decode_columns(int64_t dim) { return (dim + 15) & ~INT64_C(15); }

#endif
