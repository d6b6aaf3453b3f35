/* attention: making a plan. */
#include "attention/plan/plan.h"

#include <math.h>
#include <stdlib.h>

#include "attention/plan/extent.h"
#include "base/memory.h"
#include "base/thread.h"
#include "head/auto.h"

static plsh_status allocate(void *out, int64_t count, size_t size, const char *what,
                            plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, what, error);
}

static plsh_status copy_offsets(plsh_plan *plan, plsh_error *error) {
    const plsh_attention *shape = &plan->shape;
    plan->sequences = shape->sequences ? shape->sequences : 1;
    int64_t entries = plan->sequences + 1;
    plsh_status status = allocate(&plan->query_offset, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->key_offset, entries, sizeof(int64_t), "offsets", error);
    if (!status) status = allocate(&plan->place, entries, sizeof(plsh_place), "offsets", error);
    if (status) return status;
    plan->query_offset[1] = shape->queries;
    plan->key_offset[1] = shape->keys;
    for (int64_t x = 0; shape->sequences && x < entries; x++) {
        plan->query_offset[x] = shape->query_offsets[x];
        plan->key_offset[x] = shape->key_offsets[x];
    }
    plsh_extent_place(plan, shape->places);
    plan->shape.places = plan->place;
    plan->shape.query_offsets = plan->query_offset;
    plan->shape.key_offsets = plan->key_offset;
    return PLSH_STATUS_OK;
}

/* ---- Decays --------------------------------------------------------------------------------- */

static bool same_decay(const plsh_decay *a, const plsh_decay *b) {
    return a->kind == b->kind && a->a == b->a && a->b == b->b && a->limit == b->limit &&
           a->table == b->table && a->table_size == b->table_size;
}

/* Heads of the same decay share a table. */
static plsh_status set_decay(plsh_plan *plan, int64_t h, plsh_error *error) {
    plsh_head_plan *head = &plan->head[h];
    const plsh_decay *decay = &head->head.partition.decay;
    if (!head->decay_known) return PLSH_STATUS_OK;
    if (plan->points.dim > 0 && !plsh_decay_is_linear(decay)) {
        head->sums.decreasing = plsh_decay_is_decreasing(decay);
        return PLSH_STATUS_OK;
    }
    for (int64_t i = 0; i < h; i++) {
        const plsh_head_plan *other = &plan->head[i];
        if (!other->decay_known || !same_decay(&other->head.partition.decay, decay)) continue;
        head->sums = other->sums;
        return PLSH_STATUS_OK;
    }
    if (plan->measured) return PLSH_STATUS_OK;
    const int64_t size = plsh_decay_sums_size(decay, plan->longest);
    float *table = NULL;
    plsh_status status = PLSH_STATUS_OK;
    if (size > 0) status = allocate(&table, size, sizeof(float), "decay tables", error);
    if (status) return status;
    if (table) plan->table[plan->table_count++] = table;
    plsh_decay_sums_fill(&head->sums, decay, plan->longest, table);
    return PLSH_STATUS_OK;
}

/* ---- Heads ---------------------------------------------------------------------------------- */

/* `fixed` and the sampled methods use their decay for certificates only, which caches do not ask
 * for. So a chunk of a prompt needs no decay tables for them. */
static bool knows_decay(const plsh_plan *plan, const plsh_head *head) {
    if (plan->paged && (head->method == PLSH_METHOD_FIXED || plsh_method_is_sampled(head->method)))
        return false;
    return plsh_head_knows_decay(head);
}

static plsh_status set_head(plsh_plan *plan, int64_t h, plsh_error *error) {
    const plsh_attention *shape = &plan->shape;
    plsh_head_plan *head = &plan->head[h];
    const plsh_shape common = plsh_attention_shape(shape);
    head->head = plsh_check_head(&common, h);
    head->log_eps = (float)log2(head->head.eps);
    head->reason = "as asked";
    const plsh_auto_setting setting = {plan->longest, shape->head_dim,     shape->scale,
                                       shape->causal, plan->kernel->group, PLSH_BOUND_KEYS};
    if (plan->points.dim > 0 && head->head.radius == 0.0)
        head->head.radius = (double)head->head.window;
    if (head->head.method == PLSH_METHOD_AUTO && plan->points.dim > 0)
        head->reason = plsh_auto_choose_points(&head->head);
    if (head->head.method == PLSH_METHOD_AUTO) {
        plsh_auto_choose(&setting, &head->head, head->reason_text, sizeof head->reason_text);
        head->reason = head->reason_text;
    }
    plsh_method method = head->head.method;
    head->groups = PLSH_TILE_QUERIES / plan->kernel->group;
    plan->boxes |= method == PLSH_METHOD_EXACT;
    head->decay_known = knows_decay(plan, &head->head);
    plsh_status status = set_decay(plan, h, error);
    if (!status && plsh_method_is_sampled(method)) {
        status = plsh_draws_prepare(plan, head, error);
    }
    /* With points, the number of near keys is not known beforehand. */
    head->cost =
        plsh_auto_keys(&setting, &head->head, plan->points.dim > 0 ? PLSH_METHOD_DENSE : method);
    return status;
}

/* Insertion sort of the heads by decreasing cost: there are few. */
static void sort_heads(plsh_plan *plan) {
    for (int64_t i = 0; i < plan->shape.heads; i++) {
        int64_t at = i;
        for (; at > 0 && plan->head[plan->order[at - 1]].cost < plan->head[i].cost; at--) {
            plan->order[at] = plan->order[at - 1];
        }
        plan->order[at] = i;
    }
}

static plsh_status set_heads(plsh_plan *plan, plsh_error *error) {
    int64_t heads = plan->shape.heads, entries = plan->sequences + 1;
    plsh_status status = allocate(&plan->head, heads, sizeof(*plan->head), "heads", error);
    if (!status) status = allocate(&plan->table, heads, sizeof(float *), "heads", error);
    if (!status) status = allocate(&plan->order, heads, sizeof(int64_t), "heads", error);
    if (!status) status = allocate(&plan->first_item, heads + 1, sizeof(int64_t), "heads", error);
    if (!status) {
        status = allocate(&plan->tiles, heads * entries, sizeof(int64_t), "tiles of heads", error);
    }
    for (int64_t h = 0; !status && h < heads; h++) status = set_head(plan, h, error);
    if (status) return status;
    plan->shape.head = NULL; /* from here on plan->head is used */
    sort_heads(plan);
    return PLSH_STATUS_OK;
}

/* ---- Lengths -------------------------------------------------------------------------------- */

/* The order of points, where a head wants it. */
static plsh_status arrange_points(plsh_plan *plan, plsh_error *error) {
    bool wanted = false;
    for (int64_t h = 0; h < plan->shape.heads; h++)
        wanted |= plsh_head_is_arranged(plan, &plan->head[h]);
    plan->summaries = plan->shape.kv_heads;
    if (!wanted) return PLSH_STATUS_OK;
    const plsh_points_cut cut = {plan->sequences, plan->query_offset, plan->key_offset,
                                 plan->first_piece, plan->bound_keys};
    plsh_status status = plsh_points_arrange(&plan->points, &cut, error);
    if (plan->points.key_order && plan->points.sets > 1) plan->summaries = plan->shape.heads;
    plan->summary_bytes += plsh_plan_placed_bytes(plan);
    return status;
}

static plsh_status cut(plsh_plan *plan, plsh_error *error) {
    plsh_status status = plsh_extent_check_places(plan, error);
    if (!status)
        status =
            allocate(&plan->first_piece, plan->sequences + 1, sizeof(int64_t), "pieces", error);
    if (status) return status;
    plsh_extent_cut(plan);
    plan->most_tiles = plsh_extent_most_tiles(plan);
    plan->most_sequences = plan->sequences;
    return arrange_points(plan, error);
}

static plsh_status build(plsh_plan *plan, const plsh_attention *attention, plsh_error *error) {
    plsh_status status = plsh_attention_check(attention, &plan->shape, error);
    if (!status) status = plsh_kernels_choose(&plan->kernel, attention->isa, error);
    plan->threads = plsh_thread_count(attention->threads);
    plan->asked[0] = attention->q;
    plan->asked[1] = attention->k;
    plan->asked[2] = attention->v;
    plan->asked[3] = attention->o;
    if (!status) plan->shape.isa = plan->kernel->name;
    if (!status && plan->shape.dtype == PLSH_DTYPE_BFLOAT16 && plan->shape.head_dim % 2 == 0)
        plan->pairs = plan->kernel->pairs;
    if (!status) status = copy_offsets(plan, error);
    const plsh_points_cut points = {plan->sequences, plan->query_offset, plan->key_offset, NULL, 0};
    if (!status) status = plsh_points_make(&plan->points, attention, &points, error);
    if (!status) status = set_heads(plan, error);
    if (!status) status = cut(plan, error);
    plan->shape.positions = (plsh_positions){0}; /* from here on plan->points is used */
    return status;
}

plsh_status plsh_plan_make(const plsh_attention *attention, plsh_plan_use use, plsh_plan **plan,
                           plsh_error *error) {
    *plan = NULL;
    plsh_plan *made;
    plsh_status status = allocate(&made, 1, sizeof(*made), "attention plan", error);
    if (status) return status;
    made->paged = use != PLSH_PLAN_ARRAYS;
    made->measured = use == PLSH_PLAN_MEASURED;
    status = build(made, attention, error);
    if (status) {
        plsh_plan_destroy(made);
        return status;
    }
    *plan = made;
    return PLSH_STATUS_OK;
}

void plsh_plan_destroy(plsh_plan *plan) {
    if (!plan) return;
    for (int64_t i = 0; i < plan->table_count; i++) plsh_release(plan->table[i]);
    for (int64_t h = 0; plan->head && h < plan->shape.heads; h++) {
        plsh_draws_release(&plan->head[h]);
    }
    plsh_release(plan->query_offset);
    plsh_release(plan->key_offset);
    plsh_release(plan->place);
    plsh_points_release(&plan->points);
    plsh_release(plan->head);
    plsh_release(plan->order);
    plsh_release(plan->first_item);
    plsh_release(plan->tiles);
    plsh_release(plan->table);
    plsh_release(plan->first_piece);
    plsh_release(plan);
}

const char *plsh_plan_isa(const plsh_plan *plan) { return plan->kernel->name; }

double plsh_plan_predicted_pairs(const plsh_plan *plan) {
    double keys = 0; /* per query, over all heads */
    for (int64_t h = 0; h < plan->shape.heads; h++) keys += plan->head[h].cost;
    return keys * (double)plan->shape.queries;
}

plsh_head plsh_plan_head(const plsh_plan *plan, int64_t head, const char **reason) {
    if (reason) *reason = plan->head[head].reason;
    return plan->head[head].head;
}
