/* head: the predicted work of a method, and the choice of `auto`. */
#include "head/auto.h"

#include <math.h>
#include <stdio.h>

/* The cost of a pair of `exact` relative to a pair of `dense`: it includes the bounds, and tiles
 * that are not full. Measured at n = 16384, d = 64: 1.05 to 1.2. */
static const double EXACT_FACTOR = 1.15;

/* The sum of k over the distances from t on, up to the longest sequence. */
static double tail(const plsh_auto_setting *setting, const plsh_decay *decay, int64_t t) {
    return t < setting->longest ? plsh_decay_tail(decay, t, setting->longest - t) : 0;
}

/* The first distance from which on the decay sums up to at most `share` of all of it. */
static int64_t fading(const plsh_auto_setting *setting, const plsh_decay *decay, double share) {
    int64_t low = 0, high = setting->longest;
    const double all = tail(setting, decay, 0);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tail(setting, decay, middle) <= share * all)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Keys within `reach` on one side, the average over all positions of the sequence. */
static double one_side(const plsh_auto_setting *setting, double reach) {
    const double n = (double)setting->longest;
    if (n == 0) return 0;
    reach = fmin(reach, n);
    return reach - reach * reach / (2 * n);
}

/* E[the longest left reach of s masks] = the sum of 1 - (1 - k(t))^s over t = 1, 2, ..; every
 * power of two is enough for a prediction. */
static double union_reach(const plsh_auto_setting *setting, const plsh_decay *decay, double s) {
    double sum = 0;
    for (int64_t t = 1; t < setting->longest; t *= 2) {
        double k = fmin(plsh_decay_value(decay, t + t / 2), 1);
        sum += -expm1(s * log1p(-k)) * (double)t;
    }
    return sum;
}

/* `exact` walks until its bound on the remaining weight is eps of the row. The logarithm of the
 * bound exceeds the truth by up to |q| |k| scale, which is d scale for entries of variance 1; boxes
 * reduce this. */
static double exact_reach(const plsh_auto_setting *setting, const plsh_head *head) {
    const double gap = 1.3 * (double)setting->head_dim * fabs(setting->scale);
    const double rounding = setting->piece + setting->group / 2.0;
    return (double)fading(setting, &head->partition.decay, head->eps * exp(-gap)) + rounding;
}

double plsh_auto_keys(const plsh_auto_setting *setting, const plsh_head *head, plsh_method method) {
    const double sides = setting->causal ? 1 : 2, all = (double)setting->longest;
    const double group = (double)setting->group, s = (double)head->partition.samples;
    const plsh_decay *decay = &head->partition.decay;
    const bool labels = head->partition.scheme == PLSH_SCHEME_LABELS ||
                        head->partition.scheme == PLSH_SCHEME_HYPERPLANES;
    double keys = sides * one_side(setting, all), reach;
    switch (method) {
    case PLSH_METHOD_WINDOW: reach = (double)head->window; break;
    case PLSH_METHOD_FIXED: reach = (double)head->block / 2; break;
    case PLSH_METHOD_EXACT: reach = exact_reach(setting, head); break;
    case PLSH_METHOD_PLSH: reach = labels ? all : union_reach(setting, decay, s) + group / 2; break;
    case PLSH_METHOD_MASKS:
    case PLSH_METHOD_MEAN: /* the expected reach of one mask is the sum of the decay */
        return s * sides *
               (labels ? all / 2 : one_side(setting, tail(setting, decay, 1) + group / 2));
    default: return keys;
    }
    return fmin(keys, sides * one_side(setting, reach));
}

void plsh_auto_choose(const plsh_auto_setting *setting, plsh_head *head, char *reason,
                      size_t reason_size) {
    const plsh_decay *decay = &head->partition.decay;
    const int64_t end = fading(setting, decay, 0); /* k is 0 from there on */
    const double dense = plsh_auto_keys(setting, head, PLSH_METHOD_DENSE);
    const double exact = plsh_auto_keys(setting, head, PLSH_METHOD_EXACT);
    plsh_head window = *head;
    window.window = end > 0 ? end : 1;
    const double within = plsh_auto_keys(setting, &window, PLSH_METHOD_WINDOW);
    if (end < setting->longest && within <= exact * EXACT_FACTOR) {
        head->method = PLSH_METHOD_WINDOW;
        head->window = window.window;
        snprintf(reason, reason_size, "the decay is 0 from distance %lld on", (long long)end);
        return;
    }
    head->method = exact * EXACT_FACTOR < dense ? PLSH_METHOD_EXACT : PLSH_METHOD_DENSE;
    /* plsh is not considered: the relative error of s independent masks is about 1.25 / sqrt(s)
     * (ALiBi, equal scores: E|M~ - L| = sqrt(2 L (1 - L) / pi s)), and for other data no bound is
     * known beforehand. */
    snprintf(reason, reason_size,
             "about %.3g keys per query by exact, %.3g by dense; no cheaper method meets eps %.2g "
             "for all data",
             exact, dense, head->eps);
}

/* The distance from which on the decay is 0; INT64_MAX if there is none. */
static int64_t end_of(const plsh_decay *decay) {
    if (plsh_decay_infinity(decay) > 0) return INT64_MAX;
    if (decay->kind == PLSH_DECAY_TRIANGLE) return (int64_t)ceil(decay->a);
    if (decay->kind != PLSH_DECAY_TABLE) return INT64_MAX;
    size_t end = decay->table_size;
    while (decay->table[end - 1] == 0) end--; /* k(0) = 1 */
    return (int64_t)end;
}

/* With a decay whose limit is above 0, `exact` can never stop: dense. With a decay that becomes 0,
 * the window is known without the data: window. ALiBi underflows at 745 sigma, but `exact` stops
 * long before that. */
const char *plsh_auto_choose_any_length(plsh_head *head) {
    if (head->method != PLSH_METHOD_AUTO) return "";
    const plsh_decay *decay = &head->partition.decay;
    if (end_of(decay) < INT64_MAX) {
        head->method = PLSH_METHOD_WINDOW;
        head->window = end_of(decay);
        return "window: the decay is 0 beyond it, so older keys are dropped";
    }
    head->method = plsh_decay_infinity(decay) == 0 ? PLSH_METHOD_EXACT : PLSH_METHOD_DENSE;
    return head->method == PLSH_METHOD_EXACT
               ? "exact: it meets any eps and reads only what its bounds cannot rule out"
               : "dense: the decay does not fade to zero, so every key matters";
}

const char *plsh_auto_choose_points(plsh_head *head) {
    const plsh_decay *decay = &head->partition.decay;
    if (head->method != PLSH_METHOD_AUTO) return "";
    if (end_of(decay) < INT64_MAX) {
        head->method = PLSH_METHOD_WINDOW;
        head->radius = (double)end_of(decay);
        return "window: the decay is 0 from that radius on";
    }
    head->method = plsh_decay_infinity(decay) == 0 ? PLSH_METHOD_EXACT : PLSH_METHOD_DENSE;
    return head->method == PLSH_METHOD_EXACT
               ? "exact: it leaves out the keys whose distance makes them negligible"
               : "dense: the decay ends above 0, so no key is far enough to be left out";
}
