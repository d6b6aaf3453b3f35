/* cli: positions that are points, from files. */
#ifndef PLSH_CLI_POSITIONS_H
#define PLSH_CLI_POSITIONS_H

#include "plsh/attention.h"
#include "plsh/cells.h"
#include "plsh/io.h"

/* Positions as they were read: n points of `sets` heads; rank 0: none. */
typedef struct cli_points {
    plsh_npy array;
    int64_t sets, n;
    int dim;
    double origin[3]; /* what was subtracted */
} cli_points;

/* Reads [n], [n, D] or [heads, n, D], D = 1 to 3. From float64 an origin is subtracted before it is
 * rounded to float32, so that large coordinates (times, for instance) keep their differences, which
 * are all that counts. `origin`: that of other points that belong to these; NULL: the first point
 * that has a position. Returns an exit code. */
int cli_points_read(const char *path, const double origin[3], cli_points *out);
void cli_points_free(cli_points *points);

/* The points of a head: those of one set serve all. */
plsh_point_set cli_points_of(const cli_points *points, size_t head);

/* Points of the keys and of the queries. */
typedef struct cli_positions {
    cli_points key, query;
} cli_positions;

/* Reads the positions of a call. Both paths may be NULL: positions are row numbers, and the queries
 * are the last keys. Sets a->positions. Returns an exit code. */
int cli_positions_read(const char *path, const char *query_path, plsh_attention *a,
                       cli_positions *out);
void cli_positions_free(cli_positions *positions);

#endif
