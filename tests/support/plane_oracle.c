/* tests: attention with positions that are points, in double and in float. */
#include "support/plane_oracle.h"

#include "support/support.h"

#include <math.h>
#include <stdlib.h>

#include "support/oracle.h"

#define REAL double
#define NAME(x) double_##x
#include "support/plane_template.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(x) float_##x
#include "support/plane_template.h"

void plane_compare(const char *what, const char *name, const float *ours, const float *plain,
                   const double *exact, size_t count, double share) {
    double most = 0, plain_error = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        if (exact[i] == -INFINITY && ours[i] == -INFINITY) continue;
        most = fmax(most, fabs(exact[i]));
        plain_error = fmax(plain_error, fabs((double)plain[i] - exact[i]));
        const double off = fabs((double)ours[i] - exact[i]);
        error = isnan(off) ? INFINITY : fmax(error, off);
    }
    if (!(error <= 2 * plain_error + share * most + 1e-15))
        fail_msg("%s: %s is off by %g, a plain implementation by %g; the largest is %g", what, name,
                 error, plain_error, most);
}
