/* cli: positions that are points, from files. */
#include "cli/positions.h"

#include "cli/command.h"
#include "cli/message.h"

/* The sets, rows and dimension of an array of points. */
typedef struct point_shape {
    int64_t sets, rows, dim;
} point_shape;

static point_shape shape_of(const plsh_npy *array) {
    const int64_t *s = array->shape;
    if (array->rank == 1) return (point_shape){1, s[0], 1};
    if (array->rank == 2) return (point_shape){1, s[0], s[1]};
    return (point_shape){s[0], s[1], s[2]};
}

/* One file: `rows` points in each of its sets. */
static int read_points(const char *path, const char *what, int64_t rows, int64_t heads,
                       plsh_npy *out) {
    plsh_error error;
    if (plsh_npy_read(path, out, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (out->rank < 1 || out->rank > 3)
        return cli_fail("%s: rank %d; positions are [n], [n, D] or [heads, n, D]", path, out->rank);
    if (plsh_npy_to_float32(out, &error) != PLSH_STATUS_OK)
        return cli_fail("%s: %s", path, error.message);
    const point_shape shape = shape_of(out);
    if (shape.dim < 1 || shape.dim > 3)
        return cli_fail("%s: points of %lld coordinates; 1 to 3", path, (long long)shape.dim);
    if (shape.rows != rows)
        return cli_fail("%s: positions of %lld rows; there are %lld %s", path,
                        (long long)shape.rows, (long long)rows, what);
    if (shape.sets != 1 && shape.sets != heads)
        return cli_fail("%s: %lld sets of positions; 1, or one per head, %lld", path,
                        (long long)shape.sets, (long long)heads);
    return CLI_DONE;
}

int cli_positions_read(const char *path, const char *query_path, plsh_attention *a,
                       cli_positions *out) {
    if (path == NULL) {
        return query_path == NULL ? CLI_DONE
                                  : cli_usage("--query-positions needs --positions, of the keys");
    }
    int code = read_points(path, "keys", a->keys, a->heads, &out->key);
    if (code != CLI_DONE) return code;
    const point_shape key = shape_of(&out->key);
    a->positions = (plsh_positions){(int)key.dim, key.sets, out->key.data, NULL};
    if (query_path == NULL) return CLI_DONE;
    code = read_points(query_path, "queries", a->queries, a->heads, &out->query);
    if (code != CLI_DONE) return code;
    const point_shape query = shape_of(&out->query);
    if (query.dim != key.dim || query.sets != key.sets)
        return cli_fail("%s: %lld sets of %lld coordinates; %s has %lld of %lld", query_path,
                        (long long)query.sets, (long long)query.dim, path, (long long)key.sets,
                        (long long)key.dim);
    a->positions.query = out->query.data;
    return CLI_DONE;
}

void cli_positions_free(cli_positions *positions) {
    plsh_npy_free(&positions->key);
    plsh_npy_free(&positions->query);
}
