/* cli: positions that are points, from files. */
#ifndef PLSH_CLI_POSITIONS_H
#define PLSH_CLI_POSITIONS_H

#include "plsh/attention.h"
#include "plsh/io.h"

/* Points of the keys and of the queries (rank 0: none). */
typedef struct cli_positions {
    plsh_npy key, query;
} cli_positions;

/* Reads the positions of a call from .npy files: [n], [n, D] or [heads, n, D], D = 1 to 3.
 * query_path may be NULL: the queries are the last keys. Sets a->positions. */
int cli_positions_read(const char *path, const char *query_path, plsh_attention *a,
                       cli_positions *out);
void cli_positions_free(cli_positions *positions);

#endif
