/* ranks: the rows and windows of each rank, and a check that all ranks have the same inputs. */
#include "plsh/ranks.h"

#include <string.h>

#include "base/checksum.h"
#include "base/status.h"

static plsh_range part_of(int64_t i, int64_t parts, int64_t count) {
    return (plsh_range){.begin = count * i / parts, .end = count * (i + 1) / parts};
}

bool plsh_ranks_first(const plsh_ranks *ranks) {
    return !ranks || (ranks->group == 0 && ranks->rank == 0);
}

plsh_status plsh_ranks_agree(const plsh_ranks *ranks, plsh_status status, plsh_error *error) {
    return ranks ? ranks->agree(ranks->context, false, status, error) : status;
}

plsh_status plsh_ranks_agree_group(const plsh_ranks *ranks, plsh_status status, plsh_error *error) {
    return ranks ? ranks->agree(ranks->context, true, status, error) : status;
}

/* The other ranks add zeros, so the sum is a broadcast of the first rank's numbers. A 64-bit
 * checksum is sent as two halves, which doubles hold exactly. */
plsh_status plsh_ranks_same(const plsh_ranks *ranks, const char *what, const void *items,
                            int64_t count, size_t size, plsh_error *error) {
    if (!ranks) return PLSH_STATUS_OK;
    const uint64_t h = plsh_checksum(items, (size_t)count * size);
    const double mine[] = {(double)count, (double)(h >> 32), (double)(h & UINT32_MAX)};
    double first[3] = {0};
    if (plsh_ranks_first(ranks)) memcpy(first, mine, sizeof(first));
    plsh_status status = ranks->sum(ranks->context, first, 3, error);
    if (status) return status;
    if (first[0] != mine[0]) {
        status =
            plsh_fail(error, PLSH_STATUS_INVALID, "other %s than rank 0 has: %lld instead of %lld",
                      what, (long long)count, (long long)first[0]);
    } else if (first[1] != mine[1] || first[2] != mine[2]) {
        status = plsh_fail(error, PLSH_STATUS_INVALID, "other %s than rank 0 has", what);
    }
    return plsh_ranks_agree(ranks, status, error);
}

plsh_range plsh_ranks_windows(const plsh_ranks *ranks, int64_t windows) {
    return ranks ? part_of(ranks->group, ranks->groups, windows) : part_of(0, 1, windows);
}

plsh_range plsh_ranks_rows(const plsh_ranks *ranks, int64_t rows) {
    return ranks ? part_of(ranks->rank, ranks->ranks, rows) : part_of(0, 1, rows);
}
