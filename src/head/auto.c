/* attention: how much work a method is. */
#include "attention/plan/predict.h"

#include <math.h>
#include <stdio.h>

/* What a pair of `exact` costs more than one of `dense`: its bounds, and tiles that are not full.
 * Measured at n = 16384, d = 64: 1.05 to 1.2. */
static const double EXACT_FACTOR = 1.15;

/* The sum of k over the distances from t on, up to the longest sequence. */
static double tail(const plsh_plan *plan, const plsh_decay *decay, int64_t t) {
    return t < plan->longest ? plsh_decay_tail(decay, t, plan->longest - t) : 0;
}

/* The first distance from which on the decay sums up to at most `share` of all of it. */
static int64_t fading(const plsh_plan *plan, const plsh_decay *decay, double share) {
    int64_t low = 0, high = plan->longest;
    const double all = tail(plan, decay, 0);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tail(plan, decay, middle) <= share * all)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Keys within `reach` on one side, the average over all positions of the sequence. */
static double one_side(const plsh_plan *plan, double reach) {
    const double n = (double)plan->longest;
    if (n == 0) return 0;
    reach = fmin(reach, n);
    return reach - reach * reach / (2 * n);
}

/* E[the longest left reach of s masks] = the sum of 1 - (1 - k(t))^s over t = 1, 2, ..; every
 * power of two is enough for a prediction. */
static double union_reach(const plsh_plan *plan, const plsh_decay *decay, double s) {
    double sum = 0;
    for (int64_t t = 1; t < plan->longest; t *= 2) {
        double k = fmin(plsh_decay_value(decay, t + t / 2), 1);
        sum += -expm1(s * log1p(-k)) * (double)t;
    }
    return sum;
}

/* `exact` walks until the bound on the rest is eps of the row: the bound exceeds the truth by
 * |q| |k| scale, d scale for entries of variance 1, and the boxes take a part of that back. */
static double exact_reach(const plsh_plan *plan, const plsh_head *head) {
    const double gap = 1.3 * (double)plan->shape.head_dim * fabs(plan->shape.scale);
    const double rounding = PLSH_BOUND_KEYS + plan->kernel->group / 2.0;
    return (double)fading(plan, &head->partition.decay, head->eps * exp(-gap)) + rounding;
}

double plsh_predict_keys(const plsh_plan *plan, const plsh_head *head, plsh_method method) {
    const double sides = plan->shape.causal ? 1 : 2, all = (double)plan->longest;
    const double group = (double)plan->kernel->group, s = (double)head->partition.samples;
    const plsh_decay *decay = &head->partition.decay;
    const bool labels = head->partition.scheme == PLSH_SCHEME_LABELS;
    double keys = sides * one_side(plan, all), reach;
    switch (method) {
    case PLSH_METHOD_WINDOW: reach = (double)head->window; break;
    case PLSH_METHOD_FIXED: reach = (double)head->block / 2; break;
    case PLSH_METHOD_EXACT: reach = exact_reach(plan, head); break;
    case PLSH_METHOD_PLSH: reach = labels ? all : union_reach(plan, decay, s) + group / 2; break;
    case PLSH_METHOD_MASKS:
    case PLSH_METHOD_MEAN: /* one mask reaches as far as the decay sums up to */
        return s * sides * (labels ? all / 2 : one_side(plan, tail(plan, decay, 1) + group / 2));
    default: return keys;
    }
    return fmin(keys, sides * one_side(plan, reach));
}

void plsh_predict_choose(const plsh_plan *plan, plsh_head_plan *head) {
    plsh_head *h = &head->head;
    const plsh_decay *decay = &h->partition.decay;
    const int64_t end = fading(plan, decay, 0); /* k is 0 from there on */
    const double dense = plsh_predict_keys(plan, h, PLSH_METHOD_DENSE);
    const double exact = plsh_predict_keys(plan, h, PLSH_METHOD_EXACT);
    plsh_head window = *h;
    window.window = end > 0 ? end : 1;
    const double within = plsh_predict_keys(plan, &window, PLSH_METHOD_WINDOW);
    head->reason = head->reason_text;
    if (end < plan->longest && within <= exact * EXACT_FACTOR) {
        h->method = PLSH_METHOD_WINDOW;
        h->window = window.window;
        snprintf(head->reason_text, sizeof head->reason_text,
                 "the decay is 0 from distance %lld on", (long long)end);
        return;
    }
    h->method = exact * EXACT_FACTOR < dense ? PLSH_METHOD_EXACT : PLSH_METHOD_DENSE;
    /* Not plsh: relative to sum A L, s independent masks are off by about 1.25 / sqrt(s) (ALiBi,
     * equal scores: E|M~ - L| = sqrt(2 L (1 - L) / pi s)), and nothing bounds it beforehand. */
    snprintf(
        head->reason_text, sizeof head->reason_text,
        "about %.3g keys per query by exact, %.3g by dense; no cheaper method keeps to eps %.2g "
        "whatever the data are",
        exact, dense, h->eps);
}
