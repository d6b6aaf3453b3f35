/* decay: sums of k(t), as numbers, as logarithms, and in tables. */
#include "decay/tail.h"

#include "base/arena.h"
#include "base/numbers.h"
#include "base/status.h"

#include <string.h>

/* ---- One sum --------------------------------------------------------------------------------- */

/* The integral of (1 + b u)^-a from x to x + width. */
static double kerple_log_area(double a, double b, double x, double width) {
    double low = log1p(b * x), high = log1p(b * (x + width));
    if (fabs(1 - a) * (high - low) < 1e-9) return (high - low) * exp((1 - a) * low) / b;
    return exp((1 - a) * low) * expm1((1 - a) * (high - low)) / (b * (1 - a));
}

static double table_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    double sum = 0;
    for (int64_t u = t; u < t + count; u++) {
        if ((uint64_t)u + 1 >= decay->table_size)
            return sum + plsh_decay_value(decay, u) * (double)(t + count - u);
        sum += plsh_decay_value(decay, u);
    }
    return sum;
}

/* k(u) = exp(-a u^p) decreases, so a sum of `width` terms from u on is at most width k(u). For p <=
 * 1 k is convex, and the sum is at most width times the mean of its first and last term. The first
 * 2^16 terms are added one by one; after that a step covers 2^-10 of the distance so far. The loop
 * ends where the rest cannot matter, after at most 2^16 + 2^15 steps for any decay. */
static double kerple_power_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    double sum = 0;
    for (int64_t done = 0, width; done < count; done += width) {
        double first = plsh_decay_value(decay, t + done);
        if (first * (double)(count - done) < 1e-9 * sum)
            return sum + first * (double)(count - done);
        width = done < 1 << 16 ? 1 : done >> 10;
        if (width > count - done) width = count - done;
        double last = decay->b <= 1 ? plsh_decay_value(decay, t + done + width - 1) : first;
        sum += (first + last) / 2 * (double)width;
    }
    return sum;
}

/* sum of k(u), t <= u < t + count, limit = 0. In closed form for ALiBi and the triangle. For
 * KERPLE-log: k(t) plus the integral, which is an upper bound because k decreases (1e-6 covers its
 * rounding). */
static double base_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    double a = decay->a, m = (double)count, first = plsh_decay_value(decay, t);
    switch (decay->kind) {
    case PLSH_DECAY_ALIBI: return first * expm1(-m / a) / expm1(-1 / a);
    case PLSH_DECAY_KERPLE_LOG:
        return fmin(first + kerple_log_area(a, decay->b, (double)t, m - 1), first * m) * (1 + 1e-6);
    case PLSH_DECAY_KERPLE_POWER: return kerple_power_tail(decay, t, count);
    case PLSH_DECAY_TRIANGLE: {
        double terms = fmin(m, fmax(0, ceil(a - (double)t)));
        return terms * (first + fmax(0, 1 - ((double)t + terms - 1) / a)) / 2;
    }
    case PLSH_DECAY_TABLE: break;
    }
    return table_tail(decay, t, count);
}

double plsh_decay_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    if (count <= 0) return 0;
    if (count > INT64_MAX - t) count = INT64_MAX - t;
    plsh_decay base = *decay;
    base.limit = 0;
    return decay->limit * (double)count + (1 - decay->limit) * base_tail(&base, t, count);
}

/* log of a sum that may have underflowed to 0. All kinds except tables decrease, so the sum is at
 * most count k(t). The entries of a table are taken as given. */
static double log_of(double sum, const plsh_decay *decay, int64_t t, int64_t count) {
    if (sum > 1e-290 || decay->kind == PLSH_DECAY_TABLE) return log(sum) + 1e-9;
    return plsh_decay_log(decay, t) + log((double)count) + 1e-9;
}

double plsh_decay_log_tail(const plsh_decay *decay, int64_t t, int64_t count) {
    if (count <= 0) return -INFINITY;
    if (!plsh_decay_is_linear(decay))
        return log_of(plsh_decay_tail(decay, t, count), decay, t, count);
    const double a = decay->a, m = (double)count;
    return -(double)t / a + log(expm1(-m / a) / expm1(-1 / a)) + 1e-9;
}

/* ---- Sums for every distance ----------------------------------------------------------------- */

/* log2(2^a + 2^b). */
static double log2_sum(double a, double b) {
    const double most = a > b ? a : b, least = a > b ? b : a;
    return most == -INFINITY ? most : most + log1p(exp2(least - most)) * PLSH_LOG2_E;
}

/* The least float that is not below x. */
static float round_up(double x) {
    const float y = (float)x;
    return (double)y < x ? nextafterf(y, INFINITY) : y;
}

static float log2_at(const plsh_decay *decay, int64_t t) {
    return (float)(plsh_decay_log(decay, t) * PLSH_LOG2_E);
}

bool plsh_decay_is_decreasing(const plsh_decay *decay) {
    if (decay->kind != PLSH_DECAY_TABLE) return true;
    for (size_t t = 1; t < decay->table_size; t++)
        if (decay->table[t] > decay->table[t - 1]) return false;
    return true;
}

int64_t plsh_decay_sums_size(const plsh_decay *decay, int64_t longest) {
    if (plsh_decay_is_linear(decay)) return 0;
    return 2 * ((INT64_C(256) << plsh_tail_octave(longest)) + 1);
}

void plsh_decay_sums_fill(plsh_decay_sums *sums, const plsh_decay *decay, int64_t longest,
                          float *table) {
    *sums = (plsh_decay_sums){.decreasing = plsh_decay_is_decreasing(decay)};
    if (plsh_decay_is_linear(decay)) {
        sums->slope = PLSH_LOG2_E / decay->a;
        sums->log_total = (float)-log2(-expm1(-1.0 / decay->a)) + 1e-3f;
        return;
    }
    const int64_t n = plsh_decay_sums_size(decay, longest) / 2;
    double sum = -INFINITY;
    for (int64_t t = n - 1; t >= 0; t--) {
        const int octave = plsh_tail_octave(t);
        if (t == INT64_C(256) << octave) sum = -INFINITY; /* the last of its octave */
        table[t] = log2_at(decay, t);
        sum = log2_sum(sum, (double)table[t]);
        table[n + t] = round_up(sum + 1e-5);
        sums->octave_sum[octave] = table[n + t];
    }
    sums->log_k = table;
    sums->log_tail = table + n;
}

void plsh_decay_sums_cut(plsh_decay_sums *sums, int64_t longest) {
    float rest = -INFINITY;
    for (int i = plsh_tail_octave(longest); sums->log_k && i >= 0; i--) {
        sums->octave_rest[i] = rest;
        rest = plsh_log2_sum_up(rest, sums->octave_sum[i]);
    }
}

/* ---- Sums at every page ---------------------------------------------------------------------- */

static plsh_decay_table *lay_out(int64_t size, int64_t sums, plsh_arena *arena) {
    plsh_decay_table *table = plsh_arena_take(arena, 1, sizeof *table);
    float *log2_k = plsh_arena_floats(arena, (size_t)size);
    double *sum = plsh_arena_take(arena, (size_t)sums, sizeof *sum);
    if (table == NULL) return NULL;
    *table = (plsh_decay_table){.size = size, .log2 = log2_k, .sum = sums > 0 ? sum : NULL};
    atomic_init(&table->references, 1);
    return table;
}

static void fill_sums(plsh_decay_table *table, const plsh_decay *decay) {
    double sum = 0;
    for (int64_t t = table->size - 1; table->sum && t >= 0; t--) {
        sum += plsh_decay_value(decay, t);
        if (t % table->step == 0) table->sum[t / table->step] = sum * (1 + 1e-9);
    }
}

plsh_status plsh_decay_table_grow(plsh_decay_table **table, const plsh_decay *decay, int64_t size,
                                  int64_t step, bool with_sums, plsh_error *error) {
    const bool closed = decay->kind != PLSH_DECAY_KERPLE_POWER && decay->kind != PLSH_DECAY_TABLE;
    const int64_t sums = with_sums && !closed ? size / step : 0;
    plsh_arena arena = {0};
    lay_out(size, sums, &arena);
    if (arena.overflow)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the table of a decay overflows");
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, arena.used, "a decay", error);
    if (status) return status;
    arena = (plsh_arena){.memory = memory};
    plsh_decay_table *made = lay_out(size, sums, &arena);
    made->step = step;
    const int64_t old = *table ? (*table)->size : 0;
    if (old) memcpy(made->log2, (*table)->log2, (size_t)old * sizeof(float));
    for (int64_t t = old; t < size; t++) made->log2[t] = log2_at(decay, t);
    fill_sums(made, decay);
    plsh_decay_table_release(*table);
    *table = made;
    return PLSH_STATUS_OK;
}

plsh_decay_table *plsh_decay_table_share(plsh_decay_table *table) {
    if (table) atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
    return table;
}

void plsh_decay_table_release(plsh_decay_table *table) {
    if (table == NULL) return;
    if (atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) == 1)
        plsh_release(table);
}

size_t plsh_decay_table_bytes(const plsh_decay_table *table) {
    if (table == NULL) return 0;
    const size_t sums = table->sum ? (size_t)(table->size / table->step) : 0;
    return (size_t)table->size * sizeof(float) + sums * sizeof(double);
}

double plsh_decay_table_log2_tail(const plsh_decay_table *table, const plsh_decay *decay, int64_t t,
                                  int64_t count) {
    if (table == NULL || table->sum == NULL)
        return plsh_decay_log_tail(decay, t, count) * PLSH_LOG2_E;
    const int64_t first = t / table->step, after = (t + count + table->step - 1) / table->step;
    double sum = table->sum[first];
    if (after < table->size / table->step) sum -= table->sum[after] * (1 - 3e-9);
    return log_of(sum, decay, t, count) * PLSH_LOG2_E;
}
