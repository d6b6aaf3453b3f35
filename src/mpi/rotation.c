/* mpi: units that need all rows. In turn t rank r has the rows of rank r - t (modulo ranks), and
 * sends its own to rank r + t; the rows of the next turn are in transit meanwhile. The results of
 * the turns are merged. dK and dV are sent back to the rank that owns the rows, which adds them in
 * the order of turns. */
#include "mpi/merge.h"

#include "base/arena.h"

/* The buffers of a unit; what arrives or leaves has two, of alternate turns. */
typedef struct buffers {
    char *k[2], *v[2];          /* rows of others */
    float *d_k[2], *d_v[2];     /* their gradients, on their way back */
    float *own_k[2], *own_v[2]; /* gradients of own rows that others have made */
} buffers;

static int peer_before(const plsh_mpi_plan *plan, int turn) {
    return (plan->rank - turn + plan->ranks) % plan->ranks;
}

static int peer_after(const plsh_mpi_plan *plan, int turn) {
    return (plan->rank + turn) % plan->ranks;
}

/* The rows of turn t, and those that are sent then. */
static plsh_range rows_of(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int turn) {
    const plsh_range need = unit->shard->need[plan->rank];
    return plsh_range_common(need, plan->shard->rows[peer_before(plan, turn)]);
}

static plsh_range rows_sent(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int turn) {
    return plsh_range_common(unit->shard->need[peer_after(plan, turn)], plsh_mpi_own_rows(plan));
}

static int64_t most_rows(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, bool sent) {
    int64_t most = 0;
    for (int t = unit->first ? 1 : 0; t < plan->ranks; t++) {
        const int64_t rows =
            plsh_range_size(sent ? rows_sent(plan, unit, t) : rows_of(plan, unit, t));
        most = rows > most ? rows : most;
    }
    return most;
}

static void lay_out(const plsh_mpi_call *call, const plsh_mpi_unit *unit, buffers *b,
                    plsh_arena *arena) {
    const plsh_mpi_plan *plan = call->plan;
    const plsh_attention *a = &plan->whole;
    const size_t size = plsh_dtype_size(a->dtype), kv = (size_t)unit->shard->kv_heads;
    const size_t rows = kv * (size_t)most_rows(plan, unit, false);
    const size_t sent = kv * (size_t)most_rows(plan, unit, true);
    const size_t d = (size_t)a->head_dim, dv = (size_t)a->value_dim;
    *b = (buffers){0};
    for (int i = 0; i < 2; i++) {
        b->k[i] = plsh_arena_take(arena, rows * d, size);
        b->v[i] = plsh_arena_take(arena, rows * dv, size);
    }
    for (int i = 0; call->backward && i < 2; i++) {
        b->d_k[i] = plsh_arena_floats(arena, rows * d);
        b->d_v[i] = plsh_arena_floats(arena, rows * dv);
        b->own_k[i] = plsh_arena_floats(arena, sent * d);
        b->own_v[i] = plsh_arena_floats(arena, sent * dv);
    }
}

plsh_status plsh_mpi_rotation_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    buffers unused;
    plsh_arena arena = {0};
    plsh_status status = plsh_mpi_unit_prepare(call->plan, unit, call->backward != NULL, error);
    lay_out(call, unit, &unused, &arena);
    if (!status) status = plsh_mpi_merge_prepare(call, unit, error);
    if (status) return status;
    return plsh_mpi_grow(&unit->buffer, &unit->buffer_size, arena.used, "rows of other ranks",
                         error);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

typedef struct rotation {
    plsh_mpi_call *call;
    plsh_mpi_unit *unit;
    buffers b;
    plsh_mpi_merge merge;
    plsh_mpi_rows own, gradients;
    int first, slots; /* of the requests: slots for rows of a turn, twice, then for gradients */
} rotation;

/* Rows of turn t begin to travel. */
static plsh_status exchange_rows(rotation *w, int turn, plsh_error *error) {
    plsh_mpi_plan *plan = w->call->plan;
    if (turn >= plan->ranks) return PLSH_STATUS_OK;
    const plsh_range rows = rows_of(plan, w->unit, turn);
    const plsh_mpi_rows held = plsh_mpi_rows_held(plan, rows, w->b.k[turn % 2], w->b.v[turn % 2]);
    plan->request_count = w->first + turn % 2 * w->slots;
    plsh_status status =
        plsh_mpi_receive(plan, w->unit, &held, rows, peer_before(plan, turn), error);
    if (!status)
        status = plsh_mpi_send(plan, w->unit, &w->own, rows_sent(plan, w->unit, turn),
                               peer_after(plan, turn), error);
    w->unit->rows_end = plan->request_count;
    return status;
}

static plsh_mpi_rows made_in(const rotation *w, int turn) {
    const plsh_backward *b = w->call->backward;
    return plsh_mpi_rows_gradients(w->call->plan, rows_of(w->call->plan, w->unit, turn),
                                   b->d_k ? w->b.d_k[turn % 2] : NULL,
                                   b->d_v ? w->b.d_v[turn % 2] : NULL);
}

static plsh_mpi_rows got_in(const rotation *w, int turn) {
    const plsh_backward *b = w->call->backward;
    return plsh_mpi_rows_gradients(w->call->plan, rows_sent(w->call->plan, w->unit, turn),
                                   b->d_k ? w->b.own_k[turn % 2] : NULL,
                                   b->d_v ? w->b.own_v[turn % 2] : NULL);
}

/* Sends the gradients of turn t back, and starts to receive those of own rows. */
static plsh_status exchange_gradients(rotation *w, int turn, plsh_error *error) {
    plsh_mpi_plan *plan = w->call->plan;
    const plsh_mpi_rows made = made_in(w, turn), got = got_in(w, turn);
    plan->request_count = w->first + (2 + turn % 2) * w->slots;
    plsh_status status = plsh_mpi_receive(plan, w->unit, &got, rows_sent(plan, w->unit, turn),
                                          peer_after(plan, turn), error);
    if (!status)
        status = plsh_mpi_send(plan, w->unit, &made, rows_of(plan, w->unit, turn),
                               peer_before(plan, turn), error);
    w->unit->returns_end = plan->request_count;
    return status;
}

/* Waits for the gradients of turn t and adds them. */
static plsh_status finish_gradients(rotation *w, int turn, int end, plsh_error *error) {
    plsh_mpi_plan *plan = w->call->plan;
    const plsh_mpi_rows got = got_in(w, turn);
    plsh_status status = plsh_mpi_wait(plan, w->first + (2 + turn % 2) * w->slots, end, error);
    if (!status)
        plsh_mpi_rows_add(plan, w->unit, &w->gradients, &got, rows_sent(plan, w->unit, turn));
    return status;
}

/* Do the own queries see rows of others? */
static bool sees_others(const rotation *w) {
    const plsh_mpi_plan *plan = w->call->plan;
    const plsh_range need = w->unit->shard->need[plan->rank], own = plsh_mpi_own_rows(plan);
    return need.begin < own.begin || need.end > own.end;
}

/* The own rows: where the user has them, or (a unit that shares its kv head) copied. */
static plsh_mpi_part own_part(rotation *w) {
    plsh_mpi_plan *plan = w->call->plan;
    plsh_mpi_part part = {.queries = plsh_mpi_own_queries(plan),
                          .keys = plsh_mpi_own_rows(plan),
                          .plan = w->unit->first ? w->unit->own : w->unit->other,
                          .some_keys = sees_others(w),
                          .certifies = plan->ranks == 1,
                          .k = w->own.k,
                          .v = w->own.v,
                          .o = w->merge.o,
                          .lse = w->merge.lse,
                          .d_k = (float *)(void *)w->gradients.k,
                          .d_v = (float *)(void *)w->gradients.v};
    if (w->unit->first) return part;
    part.keys = rows_of(plan, w->unit, 0);
    const plsh_mpi_rows held = plsh_mpi_rows_held(plan, part.keys, w->b.k[0], w->b.v[0]);
    plsh_mpi_rows_copy(plan, w->unit, &held, &w->own, part.keys);
    part.k = held.k;
    part.v = held.v;
    if (w->call->backward) {
        const plsh_mpi_rows made = made_in(w, 0);
        part.d_k = (float *)(void *)made.k;
        part.d_v = (float *)(void *)made.v;
    }
    return part;
}

static void turn_own(rotation *w) {
    const plsh_mpi_plan *plan = w->call->plan;
    const plsh_mpi_part part = own_part(w);
    const bool empty = plsh_range_size(part.queries) == 0;
    if (w->call->backward && w->unit->first && empty)
        plsh_mpi_rows_clear(plan, w->unit, &w->gradients, plsh_mpi_own_rows(plan));
    plsh_mpi_call_attend(w->call, w->unit, &part);
    if (w->call->backward && !w->unit->first && !empty) {
        const plsh_mpi_rows made = made_in(w, 0);
        plsh_mpi_rows_add(plan, w->unit, &w->gradients, &made, part.keys);
    }
}

static void turn_other(rotation *w, int turn) {
    const plsh_mpi_plan *plan = w->call->plan;
    plsh_mpi_part part = {.queries = plsh_mpi_own_queries(plan),
                          .keys = rows_of(plan, w->unit, turn),
                          .plan = w->unit->other,
                          .some_keys = true,
                          .k = w->b.k[turn % 2],
                          .v = w->b.v[turn % 2],
                          .o = w->merge.part,
                          .lse = w->merge.part_lse,
                          .d_q = w->merge.part};
    if (plsh_range_size(part.keys) == 0 || plsh_range_size(part.queries) == 0) return;
    if (w->call->backward) {
        const plsh_mpi_rows made = made_in(w, turn);
        part.d_k = (float *)(void *)made.k;
        part.d_v = (float *)(void *)made.v;
    }
    plsh_mpi_call_attend(w->call, w->unit, &part);
    if (!w->call->status) plsh_mpi_merge_part(w->call, w->unit, &w->merge, part.queries);
}

static plsh_status take_turns(rotation *w, plsh_error *error) {
    plsh_mpi_plan *plan = w->call->plan;
    int returns_end = w->first;
    plsh_status status = exchange_rows(w, 1, error);
    turn_own(w);
    for (int turn = 1; !status && turn < plan->ranks; turn++) {
        status = plsh_mpi_wait(plan, w->first + turn % 2 * w->slots, w->unit->rows_end, error);
        if (!status) status = exchange_rows(w, turn + 1, error);
        turn_other(w, turn);
        if (!w->call->backward || status) continue;
        if (turn > 1) status = finish_gradients(w, turn - 1, returns_end, error);
        if (!status) status = exchange_gradients(w, turn, error);
        returns_end = w->unit->returns_end;
    }
    if (!status && w->call->backward && plan->ranks > 1)
        status = finish_gradients(w, plan->ranks - 1, returns_end, error);
    return status;
}

/* A certificate is 0, to which plsh_shard_certify adds what rounding may do, or NaN where o is not
 * finite. A single rank has its own. */
static void certify(const rotation *w) {
    const plsh_mpi_plan *plan = w->call->plan;
    const plsh_layout layout = plan->whole.o;
    const int64_t queries = plsh_range_size(plsh_mpi_own_queries(plan));
    const float *o = w->merge.o;
    float *bound = plan->ranks > 1 ? w->call->forward->certificate : NULL;
    for (int64_t i = 0; o && bound && i < w->unit->shard->heads * queries; i++) {
        const float *row = o + i / queries * layout.head_stride + i % queries * layout.row_stride;
        float trace = 0;
        for (int64_t x = 0; x < plan->whole.value_dim; x++) trace += row[x] - row[x];
        bound[w->unit->shard->head * queries + i] = trace;
    }
}

static rotation begin(plsh_mpi_call *call, plsh_mpi_unit *unit) {
    const plsh_mpi_plan *plan = call->plan;
    rotation w = {.call = call,
                  .unit = unit,
                  .own = plsh_mpi_rows_own(plan, unit, call->k, call->v),
                  .first = plan->request_count,
                  .slots = (int)(4 * unit->shard->kv_heads)};
    plsh_arena arena = {.memory = unit->buffer};
    lay_out(call, unit, &w.b, &arena);
    w.merge = plsh_mpi_merge_of(call, unit);
    if (call->backward)
        w.gradients =
            plsh_mpi_rows_own_gradients(plan, unit, call->backward->d_k, call->backward->d_v);
    return w;
}

plsh_status plsh_mpi_rotation_run(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error) {
    rotation w = begin(call, unit);
    const int most = w.first + 4 * w.slots;
    for (int i = w.first; i < most; i++) call->plan->requests[i] = MPI_REQUEST_NULL;
    plsh_status status = take_turns(&w, error);
    if (!status) status = plsh_mpi_wait(call->plan, w.first, most, error);
    call->plan->request_count = w.first;
    if (!status && call->forward && !call->status) {
        certify(&w);
        plsh_mpi_merge_finish(call, unit, &w.merge);
    }
    return status;
}
