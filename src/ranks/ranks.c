/* ranks: who has which part of a batch. */
#include "plsh/ranks.h"

static plsh_block part_of(int64_t i, int64_t parts, int64_t count) {
    return (plsh_block){.begin = count * i / parts, .end = count * (i + 1) / parts};
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

plsh_block plsh_ranks_windows(const plsh_ranks *ranks, int64_t windows) {
    return ranks ? part_of(ranks->group, ranks->groups, windows) : part_of(0, 1, windows);
}

plsh_block plsh_ranks_rows(const plsh_ranks *ranks, int64_t rows) {
    return ranks ? part_of(ranks->rank, ranks->ranks, rows) : part_of(0, 1, rows);
}
