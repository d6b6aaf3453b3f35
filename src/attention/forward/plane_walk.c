/* attention: the walk of `exact` and `window` over points.
 *
 * The keys of a sequence, in the order of places, are cut into steps of PLSH_TILE_KEYS and these
 * into pieces with a box of points each. A tile visits the steps from near to far, by the distance
 * of its own box to theirs. `window` leaves out the pieces beyond its radius. `exact` leaves out
 * those that are negligible by distance and score (bounds.h), and stops where all remaining ones
 * together are negligible. */
#include "attention/forward/plane_walk.h"

#include <math.h>
#include <string.h>

#include "attention/forward/bounds.h"
#include "attention/forward/plane.h"
#include "decay/tail.h"

/* Facts about the queries of a tile that bound distances. */
typedef struct outline {
    float box[6];  /* of those that have a position */
    bool placed;   /* one of them has */
    bool unplaced; /* one of them has not: it is near everything */
    int64_t last;  /* the last row that any of them sees, if causal */
} outline;

static outline find_outline(const plsh_tile *tile) {
    const int dim = tile->at.dim;
    outline out = {.last = 0};
    for (int i = 0; i < dim; i++) {
        out.box[i] = INFINITY;
        out.box[dim + i] = -INFINITY;
    }
    for (int r = 0; r < tile->at.rows; r++) {
        const float *x = tile->at.x + (ptrdiff_t)r * dim;
        const int64_t position = plsh_plane_position(tile, r);
        bool none = false;
        for (int i = 0; i < dim; i++) none |= isnan(x[i]);
        out.placed |= !none;
        out.unplaced |= none;
        out.last = position > out.last ? position : out.last;
        for (int i = 0; !none && i < dim; i++) {
            out.box[i] = x[i] < out.box[i] ? x[i] : out.box[i];
            out.box[dim + i] = x[i] > out.box[dim + i] ? x[i] : out.box[dim + i];
        }
    }
    return out;
}

/* The distance of two boxes, rounded down. */
static float between(const float *a, const float *b, int dim) {
    float sum = 0.0f;
    for (int i = 0; i < dim; i++) {
        const float before = b[i] - a[dim + i], behind = a[i] - b[dim + i];
        const float gap = before > behind ? before : behind;
        sum += gap > 0.0f ? gap * gap : 0.0f;
    }
    return sqrtf(sum) * (1.0f - 0x1p-20f);
}

/* Pieces first .. end - 1 of a step. */
typedef struct pieces {
    int64_t first, end;
} pieces;

static pieces pieces_of(const plsh_tile *tile, int64_t step) {
    const int64_t each = PLSH_TILE_KEYS / tile->plan->bound_keys, x = tile->at.sequence;
    const int64_t all = tile->plan->first_piece[x + 1] - tile->plan->first_piece[x];
    return (pieces){step * each, (step + 1) * each < all ? (step + 1) * each : all};
}

/* The keys of a step. */
static plsh_range keys_of(const plsh_tile *tile, int64_t step) {
    const int64_t begin = step * PLSH_TILE_KEYS, end = begin + PLSH_TILE_KEYS;
    return (plsh_range){begin, end < tile->at.keys ? end : tile->at.keys};
}

/* The distance to the nearest piece that a query may see; NaN: there is none. */
static float distance_to(const plsh_tile *tile, const outline *out, int64_t step) {
    const pieces in = pieces_of(tile, step);
    const int dim = tile->at.dim;
    float least = NAN;
    for (int64_t i = in.first; i < in.end; i++) {
        if (tile->plan->shape.causal && tile->at.least_row[i] > out->last) continue;
        const float t = out->placed ? between(out->box, tile->at.box + i * 2 * dim, dim) : 0.0f;
        least = t >= least ? least : t;
    }
    return least;
}

/* Floats that are not negative have the order of their representations. */
static uint64_t entry_of(float distance, int64_t step) {
    uint32_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return (uint64_t)bits << 32 | (uint64_t)step;
}

static float distance_of(uint64_t entry) {
    const uint32_t bits = (uint32_t)(entry >> 32);
    float distance;
    memcpy(&distance, &bits, sizeof distance);
    return distance;
}

static int64_t step_of(uint64_t entry) { return (int64_t)(entry & UINT32_MAX); }

/* Heap sort: in place, and nothing is allocated. */
static void sift(uint64_t *heap, int64_t at, int64_t count) {
    const uint64_t moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= moved) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void sort(uint64_t *entries, int64_t count) {
    for (int64_t i = count / 2; i-- > 0;) sift(entries, i, count);
    for (int64_t end = count; end-- > 1;) {
        const uint64_t largest = entries[0];
        entries[0] = entries[end];
        entries[end] = largest;
        sift(entries, 0, end);
    }
}

static void list_steps(plsh_tile *tile, const outline *out) {
    const bool window = tile->at.head->head.method == PLSH_METHOD_WINDOW;
    const int64_t steps = (tile->at.keys + PLSH_TILE_KEYS - 1) / PLSH_TILE_KEYS;
    plsh_tile_plane *plane = &tile->plane;
    plane->count = 0;
    for (int64_t i = 0; i < steps; i++) {
        const float t = distance_to(tile, out, i);
        if (isnan(t)) continue;
        if (window && !out->unplaced && (double)t >= tile->at.head->head.radius) continue;
        plane->steps[plane->count++] = entry_of(t, i);
    }
    sort(plane->steps, plane->count);
}

/* Fills in rest and norm of every step, beginning with the farthest. */
static void sum_rests(plsh_tile *tile, const outline *out) {
    plsh_tile_plane *plane = &tile->plane;
    const float *norm = tile->at.summary.norm + tile->plan->first_piece[tile->at.sequence];
    plane->rest[plane->count] = -INFINITY;
    plane->norm[plane->count] = 0.0f;
    for (int64_t i = plane->count; i-- > 0;) {
        const int64_t step = step_of(plane->steps[i]);
        const pieces in = pieces_of(tile, step);
        const plsh_range keys = keys_of(tile, step);
        const float t = out->unplaced ? 0.0f : distance_of(plane->steps[i]);
        const float own =
            log2f((float)(keys.end - keys.begin)) + 1e-3f + plsh_plane_log_most(tile->at.head, t);
        float most = plane->norm[i + 1];
        for (int64_t p = in.first; p < in.end; p++)
            most = norm[p] >= most || isnan(norm[p]) ? norm[p] : most;
        plane->norm[i] = most;
        plane->rest[i] = plsh_log2_sum_up(plane->rest[i + 1], own);
    }
}

/* The pieces of a step that group g has within its radius: `runs` of keys. */
static int select_near(const plsh_tile *tile, int g, plsh_range keys, plsh_range *runs) {
    const int64_t size = tile->plan->bound_keys;
    float t[PLSH_GROUP_MAX];
    int count = 0;
    for (int64_t begin = keys.begin; begin < keys.end; begin += size) {
        const int64_t end = begin + size < keys.end ? begin + size : keys.end;
        const float least = plsh_plane_to_piece(tile, g, begin / size, t);
        if ((double)least >= tile->at.head->head.radius) continue;
        if (count > 0 && runs[count - 1].end == begin)
            runs[count - 1].end = end;
        else
            runs[count++] = (plsh_range){begin, end};
    }
    return count;
}

/* Visits step number `at` of the list for every group that is open; closes those that can stop. */
static void take_step(plsh_tile *tile, int64_t at, bool *open) {
    const bool exact = tile->at.head->head.method == PLSH_METHOD_EXACT;
    const plsh_range keys = keys_of(tile, step_of(tile->plane.steps[at]));
    bool loaded = false;
    tile->plane.at = at;
    for (int g = 0; g < tile->at.groups; g++) {
        plsh_range runs[PLSH_BOUNDS_RUNS];
        if (!open[g]) continue;
        const int count = exact ? plsh_bounds_select_points(tile, g, keys, runs)
                                : select_near(tile, g, keys, runs);
        for (int i = 0; i < count; i++) {
            if (!loaded) plsh_tile_load(tile, keys.begin, (int)(keys.end - keys.begin), true);
            loaded = true;
            tile->pass->visit(tile, g, runs[i].begin, (int)(runs[i].end - runs[i].begin));
        }
        if (exact && plsh_bounds_stop_points(tile, g)) open[g] = false;
    }
}

/* The keys that the steps after number `at` may still visit: those of steps before the tile's own
 * are below *left, the others from *right on. */
static void find_open_keys(const plsh_tile *tile, int64_t at, int64_t *left, int64_t *right) {
    const int64_t own = tile->at.position / PLSH_TILE_KEYS;
    *left = 0;
    *right = INT64_MAX;
    for (int64_t i = at + 1; i < tile->plane.count; i++) {
        const int64_t step = step_of(tile->plane.steps[i]);
        const plsh_range keys = keys_of(tile, step);
        if (step < own)
            *left = keys.end > *left ? keys.end : *left;
        else
            *right = keys.begin < *right ? keys.begin : *right;
    }
}

void plsh_plane_walk(plsh_tile *tile) {
    bool open[PLSH_TILE_QUERIES] = {false};
    tile->pass->begin(tile);
    const outline out = find_outline(tile);
    const bool exact = tile->at.head->head.method == PLSH_METHOD_EXACT;
    if (exact) plsh_bounds_begin(tile);
    list_steps(tile, &out);
    if (exact) sum_rests(tile, &out);
    for (int g = 0; g < tile->at.groups; g++) open[g] = true;
    for (int64_t at = 0; at < tile->plane.count; at++) {
        bool any = false;
        for (int g = 0; g < tile->at.groups; g++) any |= open[g];
        if (!any) break;
        take_step(tile, at, open);
        if (!tile->pass->step) continue;
        int64_t left, right;
        find_open_keys(tile, at, &left, &right);
        tile->pass->step(tile, left, right);
    }
    tile->pass->finish(tile);
}
