/* cli: --grid HxW: tokens on a grid, as labels of products of partitions. */
#include "cli/grid.h"

#include "cli/message.h"

#include "plsh/grid.h"

#include <stdlib.h>

typedef struct sides {
    int dims;
    int64_t side[PLSH_GRID_AXES];
    int64_t tokens; /* their product */
} sides;

/* "64x64", "8x16x16": row-major, the last axis fastest. */
static int parse(const char *text, sides *out) {
    *out = (sides){.tokens = 1};
    const char *rest = text;
    for (bool more = true; more;) {
        char *end;
        long long side = strtoll(rest, &end, 10);
        if (*rest < '0' || *rest > '9' || side < 1 || out->dims == PLSH_GRID_AXES ||
            __builtin_mul_overflow(out->tokens, (int64_t)side, &out->tokens) ||
            (*end != 'x' && *end != '\0'))
            return cli_usage("--grid: \"%s\" is not a grid of up to %d sides like 64x64", text,
                             PLSH_GRID_AXES);
        out->side[out->dims++] = side;
        more = *end == 'x';
        rest = end + 1;
    }
    return CLI_DONE;
}

static void fill_positions(const sides *grid, int64_t *positions) {
    for (int64_t i = 0; i < grid->tokens; i++) {
        int64_t left = i;
        for (int a = grid->dims - 1; a >= 0; a--) {
            positions[i * grid->dims + a] = left % grid->side[a];
            left /= grid->side[a];
        }
    }
}

static int fill_labels(const sides *grid, const int64_t *positions, const cli_grid_sets *sets,
                       cli_labels *out) {
    int32_t *labels = out->made;
    cli_labels none = {0};
    cli_partitions partitions = *sets->partitions;
    if (partitions.design == PLSH_DESIGN_AUTO) /* the others are for one axis */
        partitions.design = PLSH_DESIGN_STRATIFIED;
    for (size_t h = 0; h < sets->decays->count; h++) {
        plsh_partition set;
        int code = cli_partition_make(&partitions, &none, &sets->decays->values[h], sets->samples,
                                      sets->seed, h, &set);
        if (code != CLI_DONE) return code;
        plsh_grid product = plsh_grid_make(&set, grid->dims);
        for (int64_t m = 0; m < sets->samples; m++, labels += grid->tokens) {
            plsh_error error;
            if (plsh_grid_labels(&product, m, positions, grid->tokens, labels, &error))
                return cli_fail_error(&error);
        }
    }
    return CLI_DONE;
}

int cli_labels_grid(const char *text, int64_t n, const cli_grid_sets *sets, cli_labels *out) {
    sides grid;
    int code = parse(text, &grid);
    if (code != CLI_DONE) return code;
    if (grid.tokens != n)
        return cli_usage("--grid: %s has %lld tokens, the arrays have %lld", text,
                         (long long)grid.tokens, (long long)n);
    int64_t heads = (int64_t)sets->decays->count, count;
    if (__builtin_mul_overflow(heads * sets->samples, n, &count))
        return cli_fail("--grid: %lld x %lld labels are too many", (long long)heads, (long long)n);
    *out = (cli_labels){.heads = heads, .samples = sets->samples, .n = n};
    out->values = out->made = calloc((size_t)count + 1, sizeof *out->made);
    if (out->made == NULL) return cli_fail("out of memory for %lld labels", (long long)count);
    int64_t *positions = calloc((size_t)(n * grid.dims) + 1, sizeof *positions);
    if (positions == NULL) return cli_fail("out of memory for %lld positions", (long long)n);
    fill_positions(&grid, positions);
    code = fill_labels(&grid, positions, sets, out);
    free(positions);
    return code;
}
