/* train: learning rates, step by step. */
#include <math.h>

#include "plsh/train.h"

double plsh_schedule_rate(const plsh_schedule *s, int64_t step) {
    const double warmup = (double)s->warmup, now = (double)step;
    if (step < s->warmup) return s->peak * now / fmax(1.0, warmup);
    if (s->shape == PLSH_SCHEDULE_CONSTANT) return s->peak;
    const double rest = fmax(1.0, (double)s->steps - warmup);
    if (s->shape == PLSH_SCHEDULE_LINEAR) {
        return s->peak * fmax(0.0, ((double)s->steps - now) / rest);
    }
    return s->peak * fmax(0.0, 0.5 * (1.0 + cos(M_PI * (now - warmup) / rest)));
}
