/* partition: a logarithm that has the same bits on every machine. */
#ifndef PLSH_PARTITION_PORTABLE_H
#define PLSH_PARTITION_PORTABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ln x for normal x > 0, by additions, multiplications and divisions alone: the last bit of libm's
 * log differs between machines, and widths must have the same bits everywhere. x = 2^e m, m in
 * [1/sqrt2, sqrt2); ln m = 2 atanh(z), z = (m - 1) / (m + 1), |z| <= 0.172: the term z^21 / 21 is
 * below 2^-57. The exponent is converted to a double as the low bits of 2^52 + e. There is no call
 * and no branch, so a loop of logarithms vectorises. */
static inline double plsh_portable_log(double x) {
    uint64_t bits, one, exponent;
    double m, e;
    memcpy(&bits, &x, sizeof bits);
    one = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x3fe) << 52; /* 1/2 <= m < 1 */
    exponent = bits >> 52 | UINT64_C(0x433) << 52;
    memcpy(&m, &one, sizeof m);
    memcpy(&e, &exponent, sizeof e);
    e -= 0x1p52 + 1022;
    bool low = m < 0.70710678118654752;
    m = low ? m * 2 : m;
    e = low ? e - 1 : e;
    double z = (m - 1) / (m + 1), square = z * z, sum = 0;
    for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
    return e * 0.69314718055994531 + (2 * z + 2 * z * sum);
}

#endif
