/* cli: positions that are points, from files. */
#include "cli/positions.h"

#include "cli/command.h"
#include "cli/message.h"

#include <math.h>
#include <string.h>

/* The shape of the array that was read. */
static int find_shape(const char *path, cli_points *out) {
    const int rank = out->array.rank;
    const int64_t *shape = out->array.shape;
    if (rank < 1 || rank > 3)
        return cli_fail("%s: rank %d; positions are [n], [n, D] or [heads, n, D]", path, rank);
    const int64_t dim = rank > 1 ? shape[rank - 1] : 1;
    if (dim < 1 || dim > 3)
        return cli_fail("%s: points of %lld coordinates; 1 to 3", path, (long long)dim);
    out->dim = (int)dim;
    out->sets = rank == 3 ? shape[0] : 1;
    out->n = rank == 3 ? shape[1] : shape[0];
    return CLI_DONE;
}

/* The first point that has a position. */
static void find_origin(cli_points *points) {
    const double *x = points->array.data;
    for (size_t i = 0; i < points->array.count; i += (size_t)points->dim) {
        bool finite = true;
        for (int c = 0; c < points->dim; c++) finite &= isfinite(x[i + (size_t)c]);
        if (!finite) continue;
        memcpy(points->origin, x + i, (size_t)points->dim * sizeof *x);
        return;
    }
}

static void subtract_origin(cli_points *points, const double origin[3]) {
    double *x = points->array.data;
    if (origin != NULL)
        memcpy(points->origin, origin, sizeof points->origin);
    else
        find_origin(points);
    for (size_t i = 0; i < points->array.count; i++)
        x[i] -= points->origin[i % (size_t)points->dim];
}

int cli_points_read(const char *path, const double origin[3], cli_points *out) {
    plsh_error error;
    *out = (cli_points){0};
    if (plsh_npy_read(path, &out->array, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    int code = find_shape(path, out);
    const bool wide = out->array.type == PLSH_DTYPE_FLOAT64;
    if (code == CLI_DONE && wide) subtract_origin(out, origin);
    if (code == CLI_DONE && plsh_npy_to_float32(&out->array, &error) != PLSH_STATUS_OK)
        code = cli_fail("%s: %s", path, error.message);
    float *x = out->array.data;
    for (size_t i = 0; code == CLI_DONE && !wide && origin != NULL && i < out->array.count; i++)
        x[i] = (float)((double)x[i] - origin[i % (size_t)out->dim]);
    if (code != CLI_DONE) cli_points_free(out);
    return code;
}

void cli_points_free(cli_points *points) { plsh_npy_free(&points->array); }

plsh_point_set cli_points_of(const cli_points *points, size_t head) {
    const int64_t set = points->sets == 1 ? 0 : (int64_t)head;
    return (plsh_point_set){points->dim, points->n,
                            (const float *)points->array.data + set * points->n * points->dim};
}

/* One file of a call: `rows` points in each of its sets. */
static int read_points(const char *path, const char *what, int64_t rows, int64_t heads,
                       const double origin[3], cli_points *out) {
    int code = cli_points_read(path, origin, out);
    if (code != CLI_DONE) return code;
    if (out->n != rows)
        return cli_fail("%s: positions of %lld rows; there are %lld %s", path, (long long)out->n,
                        (long long)rows, what);
    if (out->sets != 1 && out->sets != heads)
        return cli_fail("%s: %lld sets of positions; 1, or one per head, %lld", path,
                        (long long)out->sets, (long long)heads);
    return CLI_DONE;
}

int cli_positions_read(const char *path, const char *query_path, plsh_attention *a,
                       cli_positions *out) {
    if (path == NULL) {
        return query_path == NULL ? CLI_DONE
                                  : cli_usage("--query-positions needs --positions, of the keys");
    }
    const cli_points *key = &out->key, *query = &out->query;
    int code = read_points(path, "keys", a->keys, a->heads, NULL, &out->key);
    if (code != CLI_DONE) return code;
    a->positions = (plsh_positions){key->dim, key->sets, key->array.data, NULL};
    if (query_path == NULL) return CLI_DONE;
    code = read_points(query_path, "queries", a->queries, a->heads, key->origin, &out->query);
    if (code != CLI_DONE) return code;
    if (query->dim != key->dim || query->sets != key->sets)
        return cli_fail("%s: %lld sets of %d coordinates; %s has %lld of %d", query_path,
                        (long long)query->sets, query->dim, path, (long long)key->sets, key->dim);
    a->positions.query = query->array.data;
    return CLI_DONE;
}

void cli_positions_free(cli_positions *positions) {
    cli_points_free(&positions->key);
    cli_points_free(&positions->query);
}
