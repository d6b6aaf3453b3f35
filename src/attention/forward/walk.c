/* attention: the walk over the keys, outward from the diagonal, for the methods that do not sample.
 * dense and none visit all keys, window and fixed a range; exact stops where the rest cannot
 * matter. */
#include "attention/forward/tile.h"

#include "attention/forward/bounds.h"
#include "base/numbers.h"
#include "head/reach.h"

/* The keys that positions begin .. end - 1 may see. Both count from the first key of the call.
 * (Tiles of `fixed` do not cross the edges of its blocks.) */
static plsh_range visible(const plsh_tile *tile, int64_t begin, int64_t end) {
    const int64_t origin = tile->at.origin;
    const plsh_range keys =
        plsh_reach_visible(&tile->at.head->head, tile->plan->shape.causal, origin + tile->at.keys,
                           (plsh_range){origin + begin, origin + end});
    return (plsh_range){plsh_most(keys.begin - origin, 0), keys.end - origin};
}

/* The sides of the diagonal on which a group still visits keys. */
enum { LEFT = 1, RIGHT = 2 };

typedef struct walker {
    plsh_tile *tile;
    bool exact;
    int open[PLSH_TILE_QUERIES]; /* per group: LEFT | RIGHT */
    plsh_range keys;             /* of the whole tile */
    int64_t first, last;         /* steps that have visible keys */
    int64_t left, right;         /* the next step to the left, and to the right */
} walker;

/* Group g against those of the keys begin .. end - 1 of the step that it has to score. */
static void visit_keys(const walker *w, int g, int64_t begin, int64_t end) {
    plsh_tile *tile = w->tile;
    plsh_range runs[PLSH_BOUNDS_RUNS] = {{begin, end}};
    const int count = w->exact ? plsh_bounds_select(tile, g, begin, end, runs) : 1;
    for (int i = 0; i < count; i++)
        tile->pass->visit(tile, g, runs[i].begin, (int)(runs[i].end - runs[i].begin));
}

/* Visits the keys of step `index` for every group that still looks to that side. */
static void take_step(walker *w, int64_t index, int side) {
    plsh_tile *tile = w->tile;
    int64_t begin = plsh_most(w->keys.begin, index * PLSH_TILE_KEYS);
    int64_t end = plsh_least(w->keys.end, (index + 1) * PLSH_TILE_KEYS);
    bool loaded = false;
    for (int g = 0; g < tile->at.groups; g++) {
        if (!(w->open[g] & side)) continue;
        plsh_range seen =
            visible(tile, plsh_tile_group_begin(tile, g), plsh_tile_group_end(tile, g));
        int64_t from = plsh_most(begin, seen.begin), to = plsh_least(end, seen.end);
        if (from < to) {
            if (!loaded) plsh_tile_load(tile, begin, (int)(end - begin), true);
            loaded = true;
            visit_keys(w, g, from, to);
        }
        /* A group can stop only after it has visited its own diagonal. */
        if (w->exact && begin <= plsh_tile_group_begin(tile, g) &&
            plsh_bounds_stop_left(tile, g, begin)) {
            w->open[g] &= ~LEFT;
        }
        if (w->exact && (w->open[g] & RIGHT) && end >= plsh_tile_group_end(tile, g) &&
            plsh_bounds_stop_right(tile, g, end)) {
            w->open[g] &= ~RIGHT;
        }
    }
}

/* The sides with steps left and a group that still visits keys there. */
static int open_sides(const walker *w) {
    int open = 0;
    for (int g = 0; g < w->tile->at.groups; g++) open |= w->open[g];
    if (w->left < w->first) open &= ~LEFT;
    if (w->right > w->last) open &= ~RIGHT;
    return open;
}

static void advance(walker *w, int side) {
    take_step(w, side & LEFT ? w->left-- : w->right++, side);
    plsh_tile *tile = w->tile;
    if (!tile->pass->step) return;
    int open = open_sides(w);
    tile->pass->step(tile, open & LEFT ? (w->left + 1) * PLSH_TILE_KEYS : 0,
                     open & RIGHT ? w->right * PLSH_TILE_KEYS : INT64_MAX);
}

void plsh_walk_tile(plsh_tile *tile) {
    walker w = {.tile = tile, .exact = tile->at.bounded};
    tile->pass->begin(tile);
    if (w.exact) plsh_bounds_begin(tile);
    w.keys = visible(tile, tile->at.position, tile->at.position + tile->at.rows);
    if (w.keys.begin >=
        w.keys.end) { /* with places, queries may lie outside the range of the keys */
        tile->pass->finish(tile);
        return;
    }
    plsh_tile_prefetch(tile, w.keys.begin);
    for (int g = 0; g < tile->at.groups; g++) {
        w.open[g] = tile->plan->shape.causal ? LEFT : LEFT | RIGHT;
    }
    w.first = w.keys.begin / PLSH_TILE_KEYS;
    w.last = (w.keys.end - 1) / PLSH_TILE_KEYS;
    w.left = plsh_most(
        w.first, plsh_least(w.last, (tile->at.position + tile->at.rows - 1) / PLSH_TILE_KEYS));
    w.right = w.left + 1;
    advance(&w, LEFT | RIGHT);
    while (open_sides(&w)) {
        if (open_sides(&w) & LEFT) advance(&w, LEFT);
        if (open_sides(&w) & RIGHT) advance(&w, RIGHT);
    }
    tile->pass->finish(tile);
}
