/* partition: finds which points share a cell of a draw.
 *
 * The code of a point is the sum of the weights of the hyperplanes that it lies beyond. It is equal
 * within a cell; two cells have the same code with probability 2^-64. Points are sorted into a tree
 * of boxes, once. A draw is then walked from the root: a hyperplane that misses a box adds its
 * weight to all points of the box or to none, and is skipped below it. In the plane about sqrt(n)
 * boxes of a level meet a line, instead of n points. */
#include "plsh/cells.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "partition/planes.h"
#include "partition/rate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tree of boxes ------------------------------------------------------------------------
 */

/* The points order[begin .. end) and the box around them. Its first half is the node after it, its
 * second half is node `second`; 0: no halves. */
typedef struct box_node {
    float low[3], high[3];
    int32_t begin, end, second;
} box_node;

/* Points of a box that is not divided. */
enum { FEW = 8 };

typedef struct point_tree {
    plsh_point_set points;
    int32_t *order; /* those that have a position, by box */
    int64_t placed;
    box_node *nodes;
    int32_t count;
    double radius; /* the largest |x| */
} point_tree;

static const float *point_of(const point_tree *tree, int64_t i) {
    return tree->points.x + i * tree->points.dim;
}

static void find_box(const point_tree *tree, box_node *node) {
    for (int a = 0; a < tree->points.dim; a++) {
        float low = INFINITY, high = -INFINITY;
        for (int32_t x = node->begin; x < node->end; x++) {
            const float at = point_of(tree, tree->order[x])[a];
            low = at < low ? at : low;
            high = at > high ? at : high;
        }
        node->low[a] = low;
        node->high[a] = high;
    }
}

/* Divides a node's points at the middle of its longest side; returns where the second half begins.
 * The box is tight, so that neither half is empty. */
static int32_t divide(const point_tree *tree, const box_node *node) {
    int axis = 0;
    for (int a = 1; a < tree->points.dim; a++)
        if ((double)node->high[a] - (double)node->low[a] >
            (double)node->high[axis] - (double)node->low[axis])
            axis = a;
    if (node->low[axis] == node->high[axis]) return node->begin;
    const double middle = ((double)node->low[axis] + (double)node->high[axis]) / 2;
    int32_t next = node->begin;
    for (int32_t x = node->begin; x < node->end; x++) {
        const int32_t point = tree->order[x];
        if ((double)point_of(tree, point)[axis] > middle) continue;
        tree->order[x] = tree->order[next];
        tree->order[next++] = point;
    }
    return next;
}

/* The depth is at most dim times the bits of a float's range, some 900. */
static void build(point_tree *tree, int32_t begin, int32_t end) {
    const int32_t at = tree->count++;
    box_node *node = &tree->nodes[at];
    *node = (box_node){.begin = begin, .end = end};
    find_box(tree, node);
    const int32_t half = end - begin > FEW ? divide(tree, node) : begin;
    if (half == begin) return;
    build(tree, begin, half);
    tree->nodes[at].second = tree->count;
    build(tree, half, end);
}

/* 1e-12 more than the largest |x|: no hyperplane beyond it separates any points. */
static plsh_status find_placed(point_tree *tree, plsh_error *error) {
    const int dim = tree->points.dim;
    double most = 0;
    for (int64_t i = 0; i < tree->points.n; i++) {
        const float *x = point_of(tree, i);
        double square = 0;
        for (int a = 0; a < dim; a++) square += (double)x[a] * (double)x[a];
        for (int a = 0; a < dim; a++)
            if (isinf(x[a]))
                return plsh_fail(error, PLSH_STATUS_INVALID,
                                 "coordinate %d of point %lld is infinite; finite, or NaN for a "
                                 "point without a position",
                                 a, (long long)i);
        if (isnan(square)) continue;
        tree->order[tree->placed++] = (int32_t)i;
        most = square > most ? square : most;
    }
    tree->radius = sqrt(most) * (1 + 1e-12);
    return PLSH_STATUS_OK;
}

static void tree_free(point_tree *tree) {
    plsh_release(tree->order);
    plsh_release(tree->nodes);
}

static plsh_status tree_make(plsh_point_set points, point_tree *tree, plsh_error *error) {
    *tree = (point_tree){.points = points};
    if (points.dim < 1 || points.dim > 3)
        return plsh_fail(error, PLSH_STATUS_INVALID, "points of dimension %d; 1 to 3", points.dim);
    if (points.n < 0 || points.n > INT32_MAX / 2)
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld points; 0 to 2^30 - 1",
                         (long long)points.n);
    const size_t n = (size_t)points.n;
    plsh_status status =
        plsh_allocate((void **)&tree->order, n, sizeof *tree->order, "points", error);
    if (!status) status = find_placed(tree, error);
    /* Divided nodes have more than FEW points, their halves at least one. */
    if (!status)
        status = plsh_allocate((void **)&tree->nodes, 2 * n + 1, sizeof *tree->nodes,
                               "boxes of points", error);
    if (status)
        tree_free(tree);
    else if (tree->placed > 0)
        build(tree, 0, (int32_t)tree->placed);
    return status;
}

/* ---- codes of points --------------------------------------------------------------------------
 */

typedef struct coder {
    const point_tree *tree;
    plsh_planes planes;
    int32_t *list; /* the hyperplanes; those that meet the current node come first */
    int64_t listed;
    double slack; /* more than what rounding does to u.x */
    uint64_t *code;
} coder;

/* u.x of one point. All callers use this expression, with the coordinates in this order, so that
 * their results agree to the bit. */
static double project(const plsh_planes *planes, int64_t h, const float *x) {
    double sum = planes->normal[0][h] * (double)x[0];
    for (int a = 1; a < planes->dim; a++) sum += planes->normal[a][h] * (double)x[a];
    return sum;
}

/* Moves the hyperplanes that meet the box to the front of the first `count`; adds the weights of
 * those that it lies beyond to *code. Returns how many meet it. */
static int64_t sift(coder *at, const box_node *node, int64_t count, uint64_t *code) {
    const plsh_planes *planes = &at->planes;
    double centre[3] = {0}, half[3] = {0};
    for (int a = 0; a < planes->dim; a++) {
        centre[a] = ((double)node->low[a] + (double)node->high[a]) / 2;
        half[a] = ((double)node->high[a] - (double)node->low[a]) / 2;
    }
    int64_t met = 0;
    for (int64_t x = 0; x < count; x++) {
        const int32_t h = at->list[x];
        double middle = -planes->offset[h], reach = at->slack;
        for (int a = 0; a < planes->dim; a++) {
            middle += planes->normal[a][h] * centre[a];
            reach += fabs(planes->normal[a][h]) * half[a];
        }
        if (fabs(middle) <= reach) {
            at->list[x] = at->list[met];
            at->list[met++] = h;
        } else if (middle > 0) {
            *code += planes->weight[h];
        }
    }
    return met;
}

static void code_points(const coder *at, const box_node *node, int64_t count, uint64_t code) {
    for (int32_t x = node->begin; x < node->end; x++) {
        const int32_t i = at->tree->order[x];
        const float *point = point_of(at->tree, i);
        uint64_t sum = code;
        for (int64_t y = 0; y < count; y++) {
            const int32_t h = at->list[y];
            if (project(&at->planes, h, point) > at->planes.offset[h]) sum += at->planes.weight[h];
        }
        at->code[i] = sum;
    }
}

static void code_node(coder *at, int32_t number, int64_t count, uint64_t code) {
    const box_node *node = &at->tree->nodes[number];
    count = sift(at, node, count, &code);
    if (node->second == 0 || count == 0) {
        code_points(at, node, count, code);
        return;
    }
    code_node(at, number + 1, count, code);
    code_node(at, node->second, count, code);
}

/* ---- points that are all apart ----------------------------------------------------------------
 */

/* Distances of this many 1 / rate are as good as infinite: e^-100. */
static const double APART = 100;

/* From this many hyperplanes more than points on, they are tried first. */
enum { MANY = 1000 };

/* The most comparisons of points in the search for near ones. */
static const int64_t MOST_COMPARED = INT64_C(1) << 27;

typedef struct placed_point {
    double x[3];
    int32_t i;
} placed_point;

static int compare_points(const void *a, const void *b) {
    const placed_point *p = a, *q = b;
    for (int x = 0; x < 3; x++)
        if (p->x[x] != q->x[x]) return p->x[x] < q->x[x] ? -1 : 1;
    return 0;
}

/* Gives equal points equal codes and others different ones. *near is set where two different
 * points are less than `distance` apart, or the search was given up. */
static void code_apart(const coder *at, placed_point *points, double distance, bool *near) {
    const point_tree *tree = at->tree;
    for (int64_t x = 0; x < tree->placed; x++) {
        points[x] = (placed_point){.i = tree->order[x]};
        for (int a = 0; a < tree->points.dim; a++)
            points[x].x[a] = (double)point_of(tree, points[x].i)[a];
    }
    qsort(points, (size_t)tree->placed, sizeof *points, compare_points);
    int64_t compared = 0;
    for (int64_t x = 0, first = 0; x < tree->placed && !*near; x++) {
        if (compare_points(&points[x], &points[first]) != 0) first = x;
        at->code[points[x].i] = (uint64_t)first;
        if (first != x) continue; /* an equal point was compared already */
        for (int64_t y = x + 1; y < tree->placed && !*near; y++) {
            double square = 0;
            if (points[y].x[0] - points[x].x[0] >= distance) break;
            for (int a = 0; a < 3; a++)
                square += (points[y].x[a] - points[x].x[a]) * (points[y].x[a] - points[x].x[a]);
            *near = (square > 0 && square < distance * distance) || ++compared > MOST_COMPARED;
        }
    }
}

static plsh_status refuse(const point_tree *tree, double rate, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "a point lies %.3g from the origin, and the decay of a draw has sigma %.3g: "
                     "more than 2^24 hyperplanes; move the points nearer to the origin, or take "
                     "method exact",
                     tree->radius, 1 / rate);
}

/* *near: some points are too near to each other; then there are no codes. */
static plsh_status code_separate(coder *at, double rate, bool *near, plsh_error *error) {
    placed_point *points;
    plsh_status status = plsh_allocate((void **)&points, (size_t)at->tree->placed, sizeof *points,
                                       "points in order", error);
    if (status) return status;
    *near = false;
    code_apart(at, points, APART / rate, near);
    plsh_release(points);
    return PLSH_STATUS_OK;
}

/* ---- labels -----------------------------------------------------------------------------------
 */

/* An open hash table from codes to labels, at most half full; slots hold label + 1. */
typedef struct code_table {
    uint64_t *codes; /* by label */
    int32_t *slots;
    uint64_t mask;
} code_table;

static void number_codes(const coder *at, const code_table *table, int32_t *labels) {
    const point_tree *tree = at->tree;
    int32_t count = 0;
    memset(table->slots, 0, (table->mask + 1) * sizeof *table->slots);
    for (int64_t i = 0; i < tree->points.n; i++) {
        bool placed = true;
        for (int a = 0; a < tree->points.dim; a++) placed &= !isnan(point_of(tree, i)[a]);
        labels[i] = PLSH_CELL_EVERY;
        if (!placed) continue;
        uint64_t slot = (at->code[i] * UINT64_C(0x9e3779b97f4a7c15) >> 32) & table->mask;
        while (table->slots[slot] != 0 && table->codes[table->slots[slot] - 1] != at->code[i])
            slot = (slot + 1) & table->mask;
        if (table->slots[slot] == 0) {
            table->codes[count] = at->code[i];
            table->slots[slot] = ++count;
        }
        labels[i] = table->slots[slot] - 1;
    }
}

/* What a thread needs for its draws. */
typedef struct label_slot {
    coder coder;
    code_table table;
    plsh_status status;
    plsh_error error;
} label_slot;

typedef struct label_job {
    const plsh_partition *set;
    const point_tree *tree;
    int64_t first;
    int32_t *labels;
    label_slot *slots;
} label_job;

static plsh_status list_planes(coder *at, plsh_error *error) {
    if (at->planes.count > at->listed) {
        plsh_release(at->list);
        at->list = NULL;
        at->listed = 0;
        plsh_status status = plsh_allocate((void **)&at->list, (size_t)at->planes.capacity,
                                           sizeof *at->list, "a list of hyperplanes", error);
        if (status) return status;
        at->listed = at->planes.capacity;
    }
    for (int64_t h = 0; h < at->planes.count; h++) at->list[h] = (int32_t)h;
    return PLSH_STATUS_OK;
}

static plsh_status code_draw(coder *at, const plsh_partition *set, int64_t sample,
                             plsh_error *error) {
    const point_tree *tree = at->tree;
    const double rate = plsh_rate_of(set, sample);
    if (tree->placed == 0) return PLSH_STATUS_OK;
    /* Mixtures sometimes draw very large rates. Then it is cheaper to check that all points are far
     * apart than to draw the hyperplanes that separate them. */
    const double expected = plsh_planes_expected(tree->points.dim, rate, tree->radius);
    plsh_status status = PLSH_STATUS_OK;
    bool near = true;
    if (expected > (double)(tree->placed + MANY)) status = code_separate(at, rate, &near, error);
    if (status || !near) return status;
    if (expected > PLSH_PLANES_MOST) return refuse(tree, rate, error);
    status =
        plsh_planes_draw(set, sample, tree->points.dim, rate, tree->radius, &at->planes, error);
    if (!status) status = list_planes(at, error);
    at->slack = 1e-14 * tree->radius;
    if (!status) code_node(at, 0, at->planes.count, 0);
    return status;
}

static plsh_status slot_open(label_slot *slot, const point_tree *tree, plsh_error *error) {
    const size_t n = (size_t)tree->points.n;
    slot->table.mask = 1;
    while (slot->table.mask + 1 < 2 * n) slot->table.mask = 2 * slot->table.mask + 1;
    slot->coder.tree = tree;
    plsh_status status =
        plsh_allocate((void **)&slot->coder.code, n, sizeof(uint64_t), "codes of points", error);
    if (!status)
        status = plsh_allocate((void **)&slot->table.codes, n, sizeof(uint64_t), "codes of cells",
                               error);
    if (!status)
        status = plsh_allocate((void **)&slot->table.slots, slot->table.mask + 1, sizeof(int32_t),
                               "a table of cells", error);
    return status;
}

static void slot_close(label_slot *slot) {
    plsh_planes_release(&slot->coder.planes);
    plsh_release(slot->coder.list);
    plsh_release(slot->coder.code);
    plsh_release(slot->table.codes);
    plsh_release(slot->table.slots);
}

static void label_draw(void *context, int64_t draw, int slot_number) {
    const label_job *job = context;
    label_slot *slot = &job->slots[slot_number];
    if (slot->status) return;
    if (slot->coder.code == NULL) slot->status = slot_open(slot, job->tree, &slot->error);
    if (!slot->status)
        slot->status = code_draw(&slot->coder, job->set, job->first + draw, &slot->error);
    if (!slot->status)
        number_codes(&slot->coder, &slot->table, job->labels + draw * job->tree->points.n);
}

static plsh_status label_draws(const label_job *job, int64_t count, int threads,
                               plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    plsh_thread_run(threads, count, label_draw, (void *)job);
    for (int x = 0; x < threads; x++) {
        if (!status && job->slots[x].status) {
            status = job->slots[x].status;
            *error = job->slots[x].error;
        }
        slot_close(&job->slots[x]);
    }
    return status;
}

plsh_status plsh_cells_check(const plsh_partition *set, plsh_error *error) {
    if (set->scheme != PLSH_SCHEME_HYPERPLANES)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "positions that are points need scheme hyperplanes");
    if (set->design != PLSH_DESIGN_IID && set->design != PLSH_DESIGN_STRATIFIED)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "scheme hyperplanes takes the designs iid and stratified");
    if (set->samples < 1 || set->samples > INT64_C(1) << 31)
        return plsh_fail(error, PLSH_STATUS_INVALID, "samples is %lld; 1 to 2^31",
                         (long long)set->samples);
    return plsh_rate_check(&set->decay, error);
}

plsh_status plsh_cells_label(const plsh_partition *set, int64_t first, int64_t count,
                             plsh_point_set points, int32_t *labels, int threads,
                             plsh_error *error) {
    plsh_status status = plsh_cells_check(set, error);
    if (status) return status;
    if (first < 0 || count < 0 || first > set->samples - count)
        return plsh_fail(error, PLSH_STATUS_INVALID, "draws %lld to %lld of a set that has %lld",
                         (long long)first, (long long)(first + count - 1), (long long)set->samples);
    point_tree tree;
    status = tree_make(points, &tree, error);
    if (status) return status;
    threads = plsh_thread_count(threads);
    label_job job = {set, &tree, first, labels, NULL};
    status = plsh_allocate((void **)&job.slots, (size_t)threads, sizeof *job.slots,
                           "labels of points", error);
    if (!status) status = label_draws(&job, count, threads, error);
    plsh_release(job.slots);
    tree_free(&tree);
    return status;
}

int64_t plsh_cells_hyperplanes(const plsh_partition *set, int64_t sample, int dim, double radius,
                               plsh_hyperplane *planes, int64_t capacity) {
    plsh_planes drawn = {0};
    plsh_error error;
    const double rate = plsh_rate_of(set, sample);
    if (plsh_planes_expected(dim, rate, radius) > PLSH_PLANES_MOST ||
        plsh_planes_draw(set, sample, dim, rate, radius, &drawn, &error))
        return INT64_MAX;
    for (int64_t h = 0; h < drawn.count && h < capacity; h++) {
        planes[h] = (plsh_hyperplane){.offset = drawn.offset[h]};
        for (int a = 0; a < dim; a++) planes[h].normal[a] = drawn.normal[a][h];
    }
    const int64_t count = drawn.count;
    plsh_planes_release(&drawn);
    return count;
}
