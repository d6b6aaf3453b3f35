/* attention: sums of large values. */
#include "attention/forward/headroom.h"

#include <float.h>
#include <math.h>

#include "base/dtype.h"

bool plsh_headroom_is_needed(const float *o, int64_t dim, float m, float l) {
    if (!isfinite(m) || !isfinite(l)) return false;
    for (int64_t c = 0; c < dim; c++)
        if (!isfinite(o[c])) return true;
    return false;
}

void plsh_headroom_mend(plsh_dtype dtype, void *o, const float *sum, double factor, bool is_mean,
                        int64_t dim) {
    for (int64_t c = 0; c < dim; c++) {
        double x = (double)sum[c] * factor;
        if (isfinite(plsh_dtype_load(dtype, o, c)) || !isfinite(x)) continue;
        if (is_mean) x = fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, x));
        plsh_dtype_store(dtype, o, c, (float)x);
    }
}
