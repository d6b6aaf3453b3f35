/* decay: the functions k(t), their logarithms, differences and derivatives. */
#include "plsh/decay.h"

#include "base/status.h"

#include <math.h>

static const char *const decay_names[] = {
    [PLSH_DECAY_ALIBI] = "alibi",
    [PLSH_DECAY_KERPLE_LOG] = "kerple-log",
    [PLSH_DECAY_KERPLE_POWER] = "kerple-power",
    [PLSH_DECAY_TRIANGLE] = "triangle",
    [PLSH_DECAY_TABLE] = "table",
    [PLSH_DECAY_TABLE + 1] = NULL,
};

const char *const *plsh_decay_names(void) { return decay_names; }

plsh_status plsh_decay_find(const char *name, plsh_decay_kind *kind, plsh_error *error) {
    int place;
    plsh_status status = plsh_name_find("decay", decay_names, name, &place, error);
    if (!status) *kind = (plsh_decay_kind)place;
    return status;
}

int plsh_decay_parameters(plsh_decay_kind kind) {
    if (kind == PLSH_DECAY_KERPLE_LOG || kind == PLSH_DECAY_KERPLE_POWER) return 2;
    return kind == PLSH_DECAY_ALIBI || kind == PLSH_DECAY_TRIANGLE ? 1 : 0;
}

plsh_decay plsh_decay_alibi(double sigma) {
    return (plsh_decay){.kind = PLSH_DECAY_ALIBI, .a = sigma};
}

static plsh_status check_range(double value, const char *name, double top, plsh_error *error) {
    if (value >= 1e-300 && value <= top) return PLSH_STATUS_OK; /* 1 / value is finite */
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "%s is %g; it must be above 0 (1e-300) and at most %g", name, value, top);
}

static plsh_status check_table(const plsh_decay *decay, plsh_error *error) {
    if (decay->table == NULL || decay->table_size == 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "decay table is empty; it needs k(0) = 1");
    if (decay->table_size > PTRDIFF_MAX / sizeof *decay->table)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "decay table has %zu entries, more than memory can hold",
                         decay->table_size);
    if (decay->table[0] != 1.0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "decay table begins with %g; k(0) must be 1",
                         decay->table[0]);
    for (size_t t = 0; t < decay->table_size; t++)
        if (!(decay->table[t] >= 0 && decay->table[t] <= 1))
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "decay table entry %zu is %g; entries lie in [0, 1]", t,
                             decay->table[t]);
    return PLSH_STATUS_OK;
}

plsh_status plsh_decay_check(const plsh_decay *decay, plsh_error *error) {
    if (!(decay->limit >= 0 && decay->limit <= 1))
        return plsh_fail(error, PLSH_STATUS_INVALID, "decay limit is %g; it lies in [0, 1]",
                         decay->limit);
    plsh_status status = PLSH_STATUS_OK;
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: return check_range(decay->a, "sigma", 1e15, error);
    case PLSH_DECAY_TRIANGLE: return check_range(decay->a, "triangle width", 1e15, error);
    case PLSH_DECAY_KERPLE_LOG:
        status = check_range(decay->a, "kerple-log r1", 1e6, error);
        return status ? status : check_range(decay->b, "kerple-log r2", 1e15, error);
    case PLSH_DECAY_KERPLE_POWER:
        status = check_range(decay->a, "kerple-power a", 1e15, error);
        return status ? status : check_range(decay->b, "kerple-power p", 2, error);
    case PLSH_DECAY_TABLE: return check_table(decay, error);
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "decay kind %d is unknown", (int)decay->kind);
}

static double table_at(const plsh_decay *decay, uint64_t t) {
    return decay->table[t < decay->table_size ? (size_t)t : decay->table_size - 1];
}

/* Between two whole distances, linearly. */
static double table_between(const plsh_decay *decay, double x) {
    const double last = (double)(decay->table_size - 1), whole = floor(x);
    if (!(x < last)) return decay->table[decay->table_size - 1];
    const double low = table_at(decay, (uint64_t)whole),
                 high = table_at(decay, (uint64_t)whole + 1);
    return low + (high - low) * (x - whole);
}

/* ln k(x) for limit = 0. */
static double base_log(const plsh_decay *decay, double x) {
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: return -x / decay->a;
    case PLSH_DECAY_KERPLE_LOG: return -decay->a * log1p(decay->b * x);
    case PLSH_DECAY_KERPLE_POWER: return -decay->a * pow(x, decay->b);
    case PLSH_DECAY_TRIANGLE: return x < decay->a ? log1p(-x / decay->a) : -INFINITY;
    case PLSH_DECAY_TABLE: break;
    }
    return log(table_between(decay, x));
}

static double base_value(const plsh_decay *decay, double x) {
    if (decay->kind == PLSH_DECAY_TABLE) return table_between(decay, x);
    if (decay->kind == PLSH_DECAY_TRIANGLE) return fmax(0, 1 - x / decay->a);
    return exp(base_log(decay, x));
}

/* k(t) - k(t+1) = k(t) (1 - exp(ln k(t+1) - ln k(t))), the difference of the logarithms
 * taken without cancellation. */
static double base_drop(const plsh_decay *decay, int64_t t) {
    double x = (double)t, a = decay->a, b = decay->b, step = 0;
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: step = -1 / a; break;
    case PLSH_DECAY_KERPLE_LOG: step = -a * log1p(b / (1 + b * x)); break;
    case PLSH_DECAY_KERPLE_POWER:
        step = t == 0 ? -a : -a * pow(x, b) * expm1(b * log1p(1 / x));
        break;
    case PLSH_DECAY_TRIANGLE: return fmin(1 / a, base_value(decay, x));
    case PLSH_DECAY_TABLE: return table_at(decay, (uint64_t)t) - table_at(decay, (uint64_t)t + 1);
    }
    return base_value(decay, x) * -expm1(step);
}

double plsh_decay_value_at(const plsh_decay *decay, double r) {
    return decay->limit + (1 - decay->limit) * base_value(decay, r);
}

double plsh_decay_log_at(const plsh_decay *decay, double r) {
    return decay->limit == 0 ? base_log(decay, r) : log(plsh_decay_value_at(decay, r));
}

double plsh_decay_value(const plsh_decay *decay, int64_t t) {
    return plsh_decay_value_at(decay, (double)t);
}

double plsh_decay_log(const plsh_decay *decay, int64_t t) {
    return plsh_decay_log_at(decay, (double)t);
}

/* The derivatives of ln k(x) by a and b for limit = 0 and k(x) > 0. */
static void base_log_gradient(const plsh_decay *decay, double x, double gradient[2]) {
    double a = decay->a, b = decay->b;
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: gradient[0] = x / (a * a); break;
    case PLSH_DECAY_KERPLE_LOG:
        gradient[0] = -log1p(b * x);
        gradient[1] = -a * x / (1 + b * x);
        break;
    case PLSH_DECAY_KERPLE_POWER:
        if (x == 0) break;
        gradient[0] = -pow(x, b);
        gradient[1] = -a * pow(x, b) * log(x);
        break;
    case PLSH_DECAY_TRIANGLE: gradient[0] = x / (a * (a - x)); break;
    case PLSH_DECAY_TABLE: break;
    }
}

/* k = l + (1 - l) k0, so d log k = (1 - l) k0 / k d log k0. */
static double share_of_base(const plsh_decay *decay, double x) {
    if (decay->limit == 0) return 1;
    return (1 - decay->limit) * base_value(decay, x) / plsh_decay_value_at(decay, x);
}

void plsh_decay_log_gradient_at(const plsh_decay *decay, double r, double gradient[2]) {
    gradient[0] = gradient[1] = 0;
    if (base_log(decay, r) == -INFINITY) return;
    base_log_gradient(decay, r, gradient);
    const double share = share_of_base(decay, r);
    gradient[0] *= share;
    gradient[1] *= share;
}

void plsh_decay_log_gradient(const plsh_decay *decay, int64_t t, double gradient[2]) {
    plsh_decay_log_gradient_at(decay, (double)t, gradient);
}

/* The derivative of ln k(x) by x for limit = 0 and k(x) > 0. */
static double base_log_slope(const plsh_decay *decay, double x) {
    const double a = decay->a, b = decay->b;
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: return -1 / a;
    case PLSH_DECAY_KERPLE_LOG: return -a * b / (1 + b * x);
    case PLSH_DECAY_KERPLE_POWER: return x == 0 && b < 1 ? 0 : -a * b * pow(x, b - 1);
    case PLSH_DECAY_TRIANGLE: return -1 / (a - x);
    case PLSH_DECAY_TABLE: break;
    }
    if (!(x < (double)(decay->table_size - 1))) return 0;
    const uint64_t t = (uint64_t)x;
    return (table_at(decay, t + 1) - table_at(decay, t)) / table_between(decay, x);
}

double plsh_decay_log_slope_at(const plsh_decay *decay, double r) {
    if (base_log(decay, r) == -INFINITY) return 0;
    return base_log_slope(decay, r) * share_of_base(decay, r);
}

double plsh_decay_drop(const plsh_decay *decay, int64_t t) {
    return (1 - decay->limit) * base_drop(decay, t);
}

double plsh_decay_infinity(const plsh_decay *decay) {
    double base = 0;
    if (decay->kind == PLSH_DECAY_TABLE) base = decay->table[decay->table_size - 1];
    return decay->limit + (1 - decay->limit) * base;
}

static plsh_status fail_convex(int64_t t, const char *why, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "the decay %s at t = %lld, so it is not a mean of block masks and cannot be "
                     "sampled; use dense or window",
                     why, (long long)t);
}

/* The entries of a table are rounded to doubles: a second difference below 4 ulp of k counts as
 * 0. */
static plsh_status check_convex_table(const plsh_decay *decay, plsh_error *error) {
    for (size_t i = 0; i < decay->table_size; i++) {
        int64_t t = (int64_t)i;
        double drop = plsh_decay_drop(decay, t), next = plsh_decay_drop(decay, t + 1);
        double slack = 4 * 0x1p-53 * plsh_decay_value(decay, t);
        if (drop < -slack) return fail_convex(t + 1, "rises", error);
        if (next - drop > slack) return fail_convex(t + 1, "is not convex", error);
    }
    return PLSH_STATUS_OK;
}

/* ALiBi, KERPLE-log, the triangle, and exp(-a t^p) with p <= 1 are convex. For p > 1, exp(-a t^p)
 * has k'' < 0 up to t* = ((p - 1) / (a p))^(1/p) and k'' > 0 beyond. It is enough to check t = 1,
 * where the second difference is d(a) = 1 - 2 exp(-a) + exp(-a 2^p). d falls from 0 at a = 0 and
 * then rises, so d < 0 up to some a0 and d >= 0 from there on. a0 is above (p - 1) / p: there t* =
 * 1 and d is still negative. So d(a) >= 0 implies t* < 1, and all later second differences are
 * positive too. (Large a are convex: 1, 0.007, 2e-9, ..) */
plsh_status plsh_decay_check_convex(const plsh_decay *decay, plsh_error *error) {
    plsh_status status = plsh_decay_check(decay, error);
    if (status || decay->limit == 1) return status;
    if (decay->kind == PLSH_DECAY_TABLE) return check_convex_table(decay, error);
    if (decay->kind != PLSH_DECAY_KERPLE_POWER || decay->b <= 1) return PLSH_STATUS_OK;
    bool bends = decay->a <= (decay->b - 1) / decay->b || base_drop(decay, 1) > base_drop(decay, 0);
    return bends ? fail_convex(1, "is not convex", error) : PLSH_STATUS_OK;
}

plsh_status plsh_alibi_slopes(size_t heads, double *slopes, plsh_error *error) {
    if (heads == 0 || (uint64_t)heads > UINT64_C(1) << 32)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the number of heads is %zu; 1 to 2^32",
                         heads);
    size_t power = 1;
    while (power * 2 <= heads) power *= 2;
    for (size_t h = 0; h < power; h++) slopes[h] = exp2(-8.0 * (double)(h + 1) / (double)power);
    for (size_t h = power; h < heads; h++)
        slopes[h] = exp2(-8.0 * (double)(2 * (h - power) + 1) / (double)(2 * power));
    return PLSH_STATUS_OK;
}
