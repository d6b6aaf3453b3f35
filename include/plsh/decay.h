/* plsh/decay.h - how attention decays with distance.
 *
 * A decay is a function k(t) of the distance t = |i - j| = 0, 1, 2, ... with
 * k(0) = 1: attention weights are exp(q.k * scale) * k(t). ALiBi is
 * k(t) = exp(-t / sigma), one sigma per head, sigma = 1 / slope.
 *
 *     plsh_decay decay = plsh_decay_alibi(64.0);
 *     double half = plsh_decay_value(&decay, 44);
 *
 * A decay can be sampled (it is the expectation of masks of contiguous blocks) if
 * and only if it is convex and decreasing on the integers; plsh_decay_check_convex checks this, and
 * names the first t that violates it. The methods that do not sample take every decay. */
#ifndef PLSH_DECAY_H
#define PLSH_DECAY_H

#include "plsh/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_decay_kind {
    PLSH_DECAY_ALIBI,        /* exp(-t / a)                 a = sigma > 0      */
    PLSH_DECAY_KERPLE_LOG,   /* (1 + b t)^-a                a = r1, b = r2 > 0 */
    PLSH_DECAY_KERPLE_POWER, /* exp(-a t^b)                 a > 0, 0 < b <= 2  */
    PLSH_DECAY_TRIANGLE,     /* max(0, 1 - t / a)           a > 0              */
    PLSH_DECAY_TABLE         /* table[t], then the last entry          */
} plsh_decay_kind;

/* A plain value. The table is borrowed: it must outlive every use. With limit = l > 0 the decay is
 * l + (1 - l) k(t), which is never below l. */
typedef struct plsh_decay {
    plsh_decay_kind kind;
    double a, b;
    double limit;
    const double *table;
    size_t table_size;
} plsh_decay;

/* "alibi", "kerple-log", "kerple-power", "triangle", "table": the names of the kinds in the order
 * of the enum, NULL at the end; the kind of a name; and how many of a and b a kind has. */
PLSH_API const char *const *plsh_decay_names(void);
PLSH_API plsh_status plsh_decay_find(const char *name, plsh_decay_kind *kind, plsh_error *error);
PLSH_API int plsh_decay_parameters(plsh_decay_kind kind);

/* ALiBi with the given sigma. */
PLSH_API plsh_decay plsh_decay_alibi(double sigma);

/* Checks that the parameters are in their ranges (finite, table[0] = 1, entries in [0, 1]). All
 * functions below expect a decay that passed this check. */
PLSH_API plsh_status plsh_decay_check(const plsh_decay *decay, plsh_error *error);

/* Checks that it can be sampled: k(t) >= k(t+1) and k(t-1) - 2 k(t) + k(t+1) >= 0 for all t. If
 * not, PLSH_STATUS_UNSUPPORTED with the first t that violates it. O(1), except for tables, which
 * are scanned. */
PLSH_API plsh_status plsh_decay_check_convex(const plsh_decay *decay, plsh_error *error);

/* k(t), its logarithm (-INFINITY where k is 0), and the drop k(t) - k(t+1)
 * without cancellation. t is a distance, t >= 0. */
PLSH_API double plsh_decay_value(const plsh_decay *decay, int64_t t);
PLSH_API double plsh_decay_log(const plsh_decay *decay, int64_t t);
PLSH_API double plsh_decay_drop(const plsh_decay *decay, int64_t t);

/* The same at a real distance r >= 0, and the derivative of log k by r (0 where k is 0 or constant;
 * at r = 0 that from the right, where it is finite, otherwise 0). A table is interpolated linearly.
 */
PLSH_API double plsh_decay_value_at(const plsh_decay *decay, double r);
PLSH_API double plsh_decay_log_at(const plsh_decay *decay, double r);
PLSH_API double plsh_decay_log_slope_at(const plsh_decay *decay, double r);

/* gradient = the derivatives of log k(t) with respect to a and b. They are 0 where k is 0, for a
 * parameter that the kind does not have, and for tables. */
PLSH_API void plsh_decay_log_gradient(const plsh_decay *decay, int64_t t, double gradient[2]);
PLSH_API void plsh_decay_log_gradient_at(const plsh_decay *decay, double r, double gradient[2]);

/* The limit of k(t) for large t. */
PLSH_API double plsh_decay_infinity(const plsh_decay *decay);

/* An upper bound of k(t) + k(t+1) + ... + k(t+count-1), tight for ALiBi, and of
 * its logarithm, which stays finite where the sum underflows. k need not be summable. `exact`
 * compares this bound with the row sum. */
PLSH_API double plsh_decay_tail(const plsh_decay *decay, int64_t t, int64_t count);
PLSH_API double plsh_decay_log_tail(const plsh_decay *decay, int64_t t, int64_t count);

/* The standard ALiBi slopes of a model with this many heads, slopes[0..heads):
 * 2^(-8 (h+1) / heads) if heads is a power of two; otherwise those of the
 * next lower power c, then every second one of those of 2c (Press et al. 2022,
 * as BLOOM, MPT and Falcon use them). */
PLSH_API plsh_status plsh_alibi_slopes(size_t heads, double *slopes, plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
