/* model: exp and erf as plain C that compilers turn into vector code.
 *
 * The same operations in the same order for every element, no branch and no call: the bits do not
 * depend on how wide the vectors are. */
#ifndef PLSH_MODEL_ROWMATH_H
#define PLSH_MODEL_ROWMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* -87 and 88, hidden from the compiler. If gcc 12 knows the limits, it evaluates the whole
 * expression for them too, in every lane, and x sigmoid(-88) is a denormal number, which costs a
 * hundred cycles (SiLU took 4 times as long on an Intel Xeon). */
extern const float plsh_rowmath_limits[2];

/* e^x to 2 ulp. x is clamped to -87 .. 88. x = n ln 2 + r with |r| <= ln 2 / 2;
 * ln 2 in two parts, the first of which times n is exact; (e^r - 1 - r) / r^2 is a polynomial of
 * degree 4 fitted for the least relative error (7e-9). */
static inline float plsh_rowmath_exp(float x) {
    const float magic = 0x1.8p23f; /* leaves a whole number in the low bits */
    const float low = plsh_rowmath_limits[0], high = plsh_rowmath_limits[1];
    x = x < low ? low : x;
    x = x > high ? high : x;
    float t = x * 0x1.715476p0f + magic, n = t - magic;
    float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float y = 1.390152843669057e-3f;
    y = y * r + 8.363128639757633e-3f;
    y = y * r + 4.1666850447654724e-2f;
    y = y * r + 1.6666577756404877e-1f;
    y = y * r + 0.5f;
    y = y * r * r + r + 1.0f;
    int32_t bits;
    memcpy(&bits, &t, sizeof(bits));
    bits = (int32_t)(((uint32_t)bits + 127u) << 23); /* 2^n */
    float power;
    memcpy(&power, &bits, sizeof(power));
    return y * power;
}

/* 1 / (1 + e^-x). */
static inline float plsh_rowmath_sigmoid(float x) { return 1.0f / (1.0f + plsh_rowmath_exp(-x)); }

/* The distribution function of the normal law, (1 + erf(x / sqrt 2)) / 2, to 1e-7. For z = |x| /
 * sqrt 2 below 1, erf(z) / z is a polynomial in z^2 (1e-9); from 1 on, erfc(z) e^(z^2) is one in
 * u = 1 / (1 + z / 2) (6e-10); beyond 4.2 erfc is below 3e-9. */
static inline float plsh_rowmath_normal(float x) {
    float z = fabsf(x) * 0x1.6a09e6p-1f, s = z * z;
    float p = 7.854065188439563e-5f;
    p = p * s - 8.010254241526127e-4f;
    p = p * s + 5.18833426758647e-3f;
    p = p * s - 2.6853814721107483e-2f;
    p = p * s + 1.128358542919159e-1f;
    p = p * s - 3.761262595653534e-1f;
    p = p * s + 1.1283791065216064f;
    float near = 0.5f - 0.5f * p * z; /* the upper tail, as the one below */
    float w = z > 4.2f ? 4.2f : z, u = 1.0f / (1.0f + 0.5f * w);
    float q = 1.1767903715372086e-1f;
    q = q * u - 4.6547797322273254e-1f;
    q = q * u + 5.549333691596985e-1f;
    q = q * u - 9.691997617483139e-2f;
    q = q * u + 3.446047902107239e-1f;
    q = q * u + 2.605976164340973e-1f;
    q = q * u + 2.8476977348327637e-1f;
    q = q * u - 1.4465738786384463e-4f;
    float far = 0.5f * q * plsh_rowmath_exp(-w * w);
    float tail = z < 1.0f ? near : far;
    return x < 0.0f ? tail : 1.0f - tail;
}

#endif
