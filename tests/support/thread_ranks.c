/* tests: ranks that are threads of one process. */
#include "support/thread_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

typedef struct world {
    int groups, ranks;
    pthread_barrier_t all, group[MOST];
    const void *posted[MOST];
    plsh_error errors[MOST];
    void (*work)(const plsh_ranks *, void *);
    void *context;
} world;

typedef struct member {
    world *world;
    int group, rank;
    pthread_t thread;
} member;

static int number_of(const member *m) { return m->group * m->world->ranks + m->rank; }

static void wait_for(member *m, bool group) {
    pthread_barrier_wait(group ? &m->world->group[m->group] : &m->world->all);
}

/* ---- Attention ------------------------------------------------------------------------------- */

typedef struct plan {
    member *member;
    plsh_attention whole; /* its heads and offsets belong to the plan */
    plsh_range rows;
    plsh_plan *plan;
    void *workspace;
} plan;

/* An array of rows of heads, this rank's or all. */
typedef struct rows_of {
    char *data;
    int64_t heads, width; /* numbers */
    plsh_layout layout;
} rows_of;

static void copy_rows(rows_of to, int64_t at, rows_of from, int64_t first, int64_t count) {
    for (int64_t h = 0; h < to.heads; h++) {
        for (int64_t r = 0; r < count; r++) {
            float *x = (float *)(void *)to.data;
            const float *y = (const float *)(const void *)from.data;
            memcpy(x + h * to.layout.head_stride + (at + r) * to.layout.row_stride,
                   y + h * from.layout.head_stride + (first + r) * from.layout.row_stride,
                   (size_t)to.width * sizeof(float));
        }
    }
}

/* The arrays of a call: own rows in, all rows of the group. */
enum { Q, K, V, O, LSE, D_O, D_Q, D_K, D_V, ARRAYS };

typedef struct posted {
    plsh_range rows;
    rows_of array[ARRAYS];
} posted;

static rows_of describe(const plan *p, int which, const void *data, int64_t rows) {
    const plsh_attention *a = &p->whole;
    const bool kv = which == K || which == V || which == D_K || which == D_V;
    plsh_layout layout = which == O || which == D_O   ? a->o
                         : which == K || which == D_K ? a->k
                         : which == V || which == D_V ? a->v
                         : which == LSE ? (plsh_layout){.head_stride = rows, .row_stride = 1}
                                        : a->q;
    return (rows_of){.data = (char *)(uintptr_t)data,
                     .heads = kv ? a->kv_heads : a->heads,
                     .width = which == LSE ? 1 : a->head_dim,
                     .layout = layout};
}

static rows_of make_whole(const plan *p, int which) {
    rows_of whole = describe(p, which, NULL, p->whole.queries);
    const int64_t n = p->whole.queries;
    whole.data = calloc((size_t)(whole.layout.head_stride * whole.heads +
                                 whole.layout.row_stride * n + whole.width),
                        sizeof(float));
    return whole;
}

/* All rows of the group, of the arrays first .. last. */
static void gather(plan *p, const posted *mine, int first, int last, rows_of whole[ARRAYS]) {
    member *m = p->member;
    m->world->posted[number_of(m)] = mine;
    wait_for(m, true);
    for (int i = first; i <= last; i++) {
        whole[i] = make_whole(p, i);
        for (int r = 0; r < m->world->ranks; r++) {
            const posted *other = m->world->posted[m->group * m->world->ranks + r];
            copy_rows(whole[i], other->rows.begin, other->array[i], 0,
                      other->rows.end - other->rows.begin);
        }
    }
    wait_for(m, true);
}

static void keep_own(const plan *p, const posted *mine, int which, rows_of whole) {
    copy_rows(mine->array[which], 0, whole, p->rows.begin, p->rows.end - p->rows.begin);
}

static posted post(const plan *p, const void *const data[ARRAYS]) {
    posted mine = {.rows = p->rows};
    for (int i = 0; i < ARRAYS; i++) {
        mine.array[i] = describe(p, i, data[i], p->rows.end - p->rows.begin);
    }
    return mine;
}

static plsh_status make_plan(void *context, const plsh_attention *whole, plsh_range rows,
                             bool backward, void **out, plsh_error *error) {
    plan *p = calloc(1, sizeof(*p));
    *p = (plan){.member = context, .whole = *whole, .rows = rows};
    (void)backward;
    plsh_status status = plsh_plan_create(whole, &p->plan, error);
    if (status) {
        free(p);
        return status;
    }
    size_t forward = plsh_plan_workspace(p->plan), back = plsh_plan_backward_workspace(p->plan);
    p->workspace = aligned_alloc(64, (forward > back ? forward : back) + 64);
    *out = p;
    return PLSH_STATUS_OK;
}

static void destroy_plan(void *out) {
    plan *p = out;
    if (!p) return;
    plsh_plan_destroy(p->plan);
    free(p->workspace);
    free(p);
}

static plsh_status forward(void *context, const plsh_forward *a, plsh_error *error) {
    plan *p = context;
    posted mine = post(
        p, (const void *[ARRAYS]){[Q] = a->q, [K] = a->k, [V] = a->v, [O] = a->o, [LSE] = a->lse});
    rows_of whole[ARRAYS];
    gather(p, &mine, Q, V, whole);
    whole[O] = make_whole(p, O);
    whole[LSE] = make_whole(p, LSE);
    plsh_forward all = {.q = whole[Q].data,
                        .k = whole[K].data,
                        .v = whole[V].data,
                        .o = whole[O].data,
                        .lse = (float *)(void *)whole[LSE].data,
                        .dropout = a->dropout};
    plsh_status status = plsh_plan_forward(p->plan, &all, p->workspace, NULL, error);
    keep_own(p, &mine, O, whole[O]);
    if (a->lse) keep_own(p, &mine, LSE, whole[LSE]);
    for (int i = Q; i <= LSE; i++) free(whole[i].data);
    return status;
}

static plsh_status backward(void *context, const plsh_backward *a, plsh_error *error) {
    plan *p = context;
    posted mine = post(
        p, (const void *[ARRAYS]){a->q, a->k, a->v, a->o, a->lse, a->d_o, a->d_q, a->d_k, a->d_v});
    rows_of whole[ARRAYS];
    gather(p, &mine, Q, D_O, whole);
    for (int i = D_Q; i <= D_V; i++) whole[i] = make_whole(p, i);
    plsh_backward all = {.q = whole[Q].data,
                         .k = whole[K].data,
                         .v = whole[V].data,
                         .o = (float *)(void *)whole[O].data,
                         .lse = (float *)(void *)whole[LSE].data,
                         .d_o = (float *)(void *)whole[D_O].data,
                         .d_q = (float *)(void *)whole[D_Q].data,
                         .d_k = (float *)(void *)whole[D_K].data,
                         .d_v = (float *)(void *)whole[D_V].data,
                         .d_decay = a->d_decay,
                         .dropout = a->dropout};
    plsh_status status = plsh_plan_backward(p->plan, &all, p->workspace, NULL, error);
    for (int i = D_Q; i <= D_V; i++) keep_own(p, &mine, i, whole[i]);
    for (int i = Q; i <= D_V; i++) free(whole[i].data);
    return status;
}

/* ---- Sums, agreement ------------------------------------------------------------------------- */

static plsh_status sum(void *context, double *numbers, size_t count, plsh_error *error) {
    member *m = context;
    double *total = calloc(count + 1, sizeof(*total));
    (void)error;
    m->world->posted[number_of(m)] = numbers;
    wait_for(m, false);
    for (int r = 0; r < m->world->groups * m->world->ranks; r++) {
        const double *other = m->world->posted[r];
        for (size_t i = 0; i < count; i++) total[i] += other[i];
    }
    wait_for(m, false);
    memcpy(numbers, total, count * sizeof(*total));
    free(total);
    return PLSH_STATUS_OK;
}

/* In float, in the order of ranks. */
static plsh_status sum_begin(void *context, float *numbers, size_t count, plsh_error *error) {
    member *m = context;
    float *total = calloc(count + 1, sizeof(*total));
    (void)error;
    m->world->posted[number_of(m)] = numbers;
    wait_for(m, false);
    for (int r = 0; r < m->world->groups * m->world->ranks; r++) {
        const float *other = m->world->posted[r];
        for (size_t i = 0; i < count; i++) total[i] += other[i];
    }
    wait_for(m, false);
    memcpy(numbers, total, count * sizeof(*total));
    free(total);
    return PLSH_STATUS_OK;
}

static plsh_status sum_end(void *context, plsh_error *error) {
    (void)context;
    (void)error;
    return PLSH_STATUS_OK;
}

static plsh_status agree(void *context, bool group, plsh_status status, plsh_error *error) {
    member *m = context;
    world *w = m->world;
    plsh_error *own = &w->errors[number_of(m)];
    *own = (plsh_error){.status = status};
    if (status && error) snprintf(own->message, sizeof(own->message), "%s", error->message);
    wait_for(m, group);
    plsh_status found = PLSH_STATUS_OK;
    const int first = group ? m->group * w->ranks : 0;
    const int count = group ? w->ranks : w->groups * w->ranks;
    for (int r = first; !found && r < first + count; r++) {
        found = w->errors[r].status;
        if (found && error) {
            error->status = found;
            snprintf(error->message, sizeof(error->message), "rank %d: %.220s", r,
                     w->errors[r].message);
        }
    }
    wait_for(m, group);
    return found;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void *run_member(void *context) {
    member *m = context;
    plsh_ranks ranks = {.context = m,
                        .group = m->group,
                        .groups = m->world->groups,
                        .rank = m->rank,
                        .ranks = m->world->ranks,
                        .plan = make_plan,
                        .plan_destroy = destroy_plan,
                        .forward = forward,
                        .backward = backward,
                        .sum_begin = sum_begin,
                        .sum_end = sum_end,
                        .sum = sum,
                        .agree = agree};
    m->world->work(&ranks, m->world->context);
    return NULL;
}

void test_ranks_run(int groups, int ranks, void (*work)(const plsh_ranks *ranks, void *context),
                    void *context) {
    world w = {.groups = groups, .ranks = ranks, .work = work, .context = context};
    member members[MOST];
    if (groups * ranks > MOST) abort();
    pthread_barrier_init(&w.all, NULL, (unsigned)(groups * ranks));
    for (int g = 0; g < groups; g++) pthread_barrier_init(&w.group[g], NULL, (unsigned)ranks);
    for (int i = 0; i < groups * ranks; i++) {
        members[i] = (member){.world = &w, .group = i / ranks, .rank = i % ranks};
        if (pthread_create(&members[i].thread, NULL, run_member, &members[i])) abort();
    }
    for (int i = 0; i < groups * ranks; i++) pthread_join(members[i].thread, NULL);
    for (int g = 0; g < groups; g++) pthread_barrier_destroy(&w.group[g]);
    pthread_barrier_destroy(&w.all);
}
