/* base: functions that every kernel template needs in addition to the vector vocabulary. */
#ifndef PLSH_BASE_SIMD_VECTOR_MATH_H
#define PLSH_BASE_SIMD_VECTOR_MATH_H

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

#ifndef V_HAS_EXP2
/* 2^x for x < 100 or NaN, to 1.4 ulp; 0 below 2^-125.5. x = n + f with |f| <= 1/2: adding
 * 1.5 * 2^23 + 126 leaves n + 126 in the low bits, which shifted to the exponent's place are
 * 2^(n-1), and 0 for n = -126. The polynomial is the minimax one for 2^f relative to 2^f with
 * constant 1, doubled: so no result is below the normal range, where arithmetic is slow. */
INLINE vector v_exp2(vector x) {
    const vector magic = v_set(0x1.8p23f + 126.0f);
    x = v_max(v_set(-126.0f), x);
    vector t = x + magic;
    vector f = x - (t - magic);
    vector y = v_set(0x1.5bba16p-9f);
    y = v_fma(y, f, v_set(0x1.3cea88p-6f));
    y = v_fma(y, f, v_set(0x1.c6b752p-4f));
    y = v_fma(y, f, v_set(0x1.ebf9bcp-2f));
    y = v_fma(y, f, v_set(0x1.62e42ap-0f));
    y = v_fma(y, f, v_set(2.0f));
    return y * v_shift_exponent(t);
}
#endif

#endif
