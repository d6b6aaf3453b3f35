/* head: the names of the methods, and the defaults of a head. */
#include "head/check.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

static const char *const method_names[] = {
    [PLSH_METHOD_DENSE] = "dense", [PLSH_METHOD_EXACT] = "exact", [PLSH_METHOD_PLSH] = "plsh",
    [PLSH_METHOD_MASKS] = "masks", [PLSH_METHOD_MEAN] = "mean",   [PLSH_METHOD_WINDOW] = "window",
    [PLSH_METHOD_FIXED] = "fixed", [PLSH_METHOD_NONE] = "none",   [PLSH_METHOD_AUTO] = "auto",
    [PLSH_METHOD_AUTO + 1] = NULL};

const char *const *plsh_method_names(void) { return method_names; }

plsh_status plsh_method_find(const char *name, plsh_method *method, plsh_error *error) {
    int place;
    plsh_status status = plsh_name_find("method", method_names, name, &place, error);
    if (!status) *method = (plsh_method)place;
    return status;
}

bool plsh_method_is_sampled(plsh_method method) {
    return method == PLSH_METHOD_PLSH || method == PLSH_METHOD_MASKS || method == PLSH_METHOD_MEAN;
}

/* The first distance at which a decay has fallen to 1/e, PLSH_POSITIONS where it never does; for
 * ALiBi sigma itself. */
static double width_of(const plsh_decay *decay) {
    const double share = 0.36787944117144233;
    if (decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0.0) return decay->a;
    if (decay->kind == PLSH_DECAY_TABLE) { /* may rise again */
        size_t t = 1;
        while (t < decay->table_size && plsh_decay_value(decay, (int64_t)t) > share) t++;
        return t < decay->table_size ? (double)t : (double)PLSH_POSITIONS;
    }
    int64_t low = 0, high = 1;
    while (high < PLSH_POSITIONS && plsh_decay_value(decay, high) > share) {
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(plsh_decay_value(decay, middle) > share ? &low : &high) = middle;
    }
    return (double)high;
}

/* x rounded up, 1 .. PLSH_POSITIONS. */
static int64_t whole(double x) {
    if (!(x > 1.0)) return 1;
    return x < (double)PLSH_POSITIONS ? (int64_t)ceil(x) : PLSH_POSITIONS;
}

plsh_head plsh_head_default(plsh_method method, const plsh_decay *decay) {
    const double width = width_of(decay);
    plsh_head head = {.method = method,
                      .partition = plsh_partition_default(1.0, 20),
                      .window = whole(27.0 * width),
                      .block = whole(2.0 * width)};
    head.partition.decay = *decay;
    return head;
}

plsh_status plsh_heads_alibi(int64_t count, plsh_method method, plsh_head *heads,
                             plsh_error *error) {
    if (count < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld heads; at least 1", (long long)count);
    }
    double *slopes;
    plsh_status status =
        plsh_allocate((void **)&slopes, (size_t)count, sizeof(double), "ALiBi slopes", error);
    if (!status) status = plsh_alibi_slopes((size_t)count, slopes, error);
    for (int64_t h = 0; !status && h < count; h++) {
        const plsh_decay decay = plsh_decay_alibi(1.0 / slopes[h]);
        heads[h] = plsh_head_default(method, &decay);
        heads[h].partition.head = (uint32_t)h;
    }
    plsh_release(slopes);
    return status;
}
