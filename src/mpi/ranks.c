/* mpi: the table of functions that libplsh_lm needs (plsh/ranks.h), for a communicator split into
 * groups.
 *
 * Sums. Each rank adds up one part of the numbers, in the order of ranks, and sends the result to
 * all:
 *
 *     exchange part r of every rank goes to rank r
 *     gather the sum of part r goes to every rank
 *
 * so that the bits depend on the number of ranks only, not on MPI's reduction algorithms. All
 * messages of a piece are sent at once. While a piece is exchanged, the one before it is gathered;
 * both overlap with the caller's work as far as the MPI library makes progress then. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "mpi/agree.h"
#include "mpi/plan.h"

enum {
    PIECE = 1 << 22,  /* numbers that are exchanged at once, and held a second time: 16 MiB */
    MESSAGE = 1 << 30 /* bytes; MPI counts in int */
};

/* Numbers that are added up together, cut into a part for each rank. */
typedef struct piece {
    float *numbers;      /* NULL: none */
    int *counts, *first; /* [ranks]; in use by MPI until the piece is gathered */
} piece;

typedef struct group {
    plsh_ranks table; /* its context is this struct */
    MPI_Comm all, own;
    int all_rank, all_ranks;
    piece now, before;             /* that is exchanged, and that is gathered */
    MPI_Request exchange, gathers; /* of which these are the requests */
    int *same, *places; /* [ranks]: counts and offsets of the parts that the exchange receives, */
    float *received;    /* [ranks][own part] */
    size_t room;
    double *doubles; /* [ranks][count] */
    size_t double_room;
    plsh_traffic traffic;
} group;

/* ---- Attention ------------------------------------------------------------------------------- */

static plsh_status make_plan(void *context, const plsh_attention *whole, plsh_range rows,
                             bool backward, void **plan, plsh_error *error) {
    group *g = context;
    (void)rows; /* plsh_mpi_split's, as plsh_ranks_rows has them */
    (void)backward;
    plsh_mpi_plan *made = NULL;
    plsh_status status = plsh_mpi_plan_create(whole, NULL, g->own, &made, error);
    if (made) made->traffic = &g->traffic;
    *plan = made;
    return status;
}

static void destroy_plan(void *plan) { plsh_mpi_plan_destroy(plan); }

static void count(const plsh_mpi_plan *plan, const plsh_mpi_stats *stats) {
    plan->traffic->bytes_sent += stats->bytes_sent;
    plan->traffic->waited += stats->waited;
}

static plsh_status forward(void *plan, const plsh_forward *arrays, plsh_error *error) {
    plsh_mpi_stats stats;
    plsh_status status = plsh_mpi_plan_forward(plan, arrays, &stats, error);
    count(plan, &stats);
    return status;
}

static plsh_status backward(void *plan, const plsh_backward *arrays, plsh_error *error) {
    plsh_mpi_stats stats;
    plsh_status status = plsh_mpi_plan_backward(plan, arrays, &stats, error);
    count(plan, &stats);
    return status;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Room for a piece, which all ranks need at the same time. */
static plsh_status reserve(group *g, size_t count, plsh_error *error) {
    const size_t ranks = (size_t)g->all_ranks, room = (count / ranks + 1) * ranks;
    if (room <= g->room) return PLSH_STATUS_OK;
    plsh_release(g->received);
    g->room = 0;
    plsh_status status =
        plsh_allocate((void **)&g->received, room, sizeof(float), "sums over ranks", error);
    status = plsh_mpi_agree(g->all, status, error);
    if (!status) g->room = room;
    return status;
}

/* Part r of `count` numbers begins at floor(count r / ranks). */
static void cut(group *g, float *numbers, int64_t count) {
    piece *now = &g->now;
    now->numbers = numbers;
    for (int r = 0; r < g->all_ranks; r++) {
        now->first[r] = (int)plsh_mpi_split(count, g->all_ranks, r);
        now->counts[r] = (int)plsh_mpi_split(count, g->all_ranks, r + 1) - now->first[r];
    }
    for (int r = 0; r < g->all_ranks; r++) {
        g->same[r] = now->counts[g->all_rank];
        g->places[r] = r * g->same[r];
    }
}

static void add_up(const group *g, const piece *p) {
    const int count = p->counts[g->all_rank];
    float *total = p->numbers + p->first[g->all_rank];
    memcpy(total, g->received, (size_t)count * sizeof(float));
    for (int r = 1; r < g->all_ranks; r++) {
        const float *part = g->received + (size_t)r * (size_t)count;
        for (int i = 0; i < count; i++) total[i] += part[i];
    }
}

static plsh_status wait_for(group *g, MPI_Request *request, const char *what, plsh_error *error) {
    const double begin = MPI_Wtime();
    plsh_status status = plsh_mpi_try(MPI_Wait(request, MPI_STATUS_IGNORE), what, error);
    g->traffic.waited += MPI_Wtime() - begin;
    return status;
}

static plsh_status end_gathers(group *g, plsh_error *error) {
    return wait_for(g, &g->gathers, "gathering sums", error);
}

/* Adds up the piece whose exchange is complete, and starts to gather it. */
static plsh_status sum_piece(group *g, plsh_error *error) {
    if (!g->now.numbers) return PLSH_STATUS_OK;
    plsh_status status = wait_for(g, &g->exchange, "exchanging parts of sums", error);
    if (!status) status = end_gathers(g, error);
    if (status) return status;
    const piece done = g->now;
    g->now = g->before;
    g->before = done;
    g->now.numbers = NULL;
    add_up(g, &done);
    return plsh_mpi_try(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, done.numbers, done.counts,
                                        done.first, MPI_FLOAT, g->all, &g->gathers),
                        "gathering sums", error);
}

static plsh_status begin_piece(group *g, float *numbers, int64_t count, plsh_error *error) {
    plsh_status status = sum_piece(g, error);
    if (!status) status = reserve(g, (size_t)count, error);
    if (status) return status;
    cut(g, numbers, count);
    /* Sends every rank its part, and the sum of the own part to all. */
    const int64_t own = g->now.counts[g->all_rank];
    g->traffic.bytes_sent += (count - own + own * (g->all_ranks - 1)) * (int64_t)sizeof(float);
    return plsh_mpi_try(MPI_Ialltoallv(numbers, g->now.counts, g->now.first, MPI_FLOAT, g->received,
                                       g->same, g->places, MPI_FLOAT, g->all, &g->exchange),
                        "exchanging parts of sums", error);
}

static plsh_status sum_begin(void *context, float *numbers, size_t count, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t first = 0; !status && first < count; first += PIECE) {
        const size_t left = count - first;
        status =
            begin_piece(context, numbers + first, (int64_t)(left < PIECE ? left : PIECE), error);
    }
    return status;
}

static plsh_status sum_end(void *context, plsh_error *error) {
    plsh_status status = sum_piece(context, error);
    return status ? status : end_gathers(context, error);
}

static plsh_status sum(void *context, double *numbers, size_t count, plsh_error *error) {
    group *g = context;
    plsh_status status = PLSH_STATUS_OK;
    if (count > INT32_MAX / sizeof(double)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "a sum of %zu numbers at once", count);
    }
    if (count > g->double_room) {
        plsh_release(g->doubles);
        g->double_room = 0;
        status = plsh_allocate((void **)&g->doubles, (size_t)g->all_ranks * count, sizeof(double),
                               "sums over ranks", error);
        status = plsh_mpi_agree(g->all, status, error);
        if (status) return status;
        g->double_room = count;
    }
    status = plsh_mpi_try(
        MPI_Allgather(numbers, (int)count, MPI_DOUBLE, g->doubles, (int)count, MPI_DOUBLE, g->all),
        "gathering sums", error);
    for (size_t i = 0; !status && i < count; i++) {
        numbers[i] = g->doubles[i];
        for (int r = 1; r < g->all_ranks; r++) numbers[i] += g->doubles[(size_t)r * count + i];
    }
    return status;
}

/* ---- Agreement, and rows to the first ----------------------------------------------------------
 */

static plsh_status agree(void *context, bool of_group, plsh_status status, plsh_error *error) {
    const group *g = context;
    return plsh_mpi_agree(of_group ? g->own : g->all, status, error);
}

static int message_size(size_t left) { return left < MESSAGE ? (int)left : MESSAGE; }

static plsh_status send(void *context, const void *bytes, size_t size, plsh_error *error) {
    group *g = context;
    plsh_status status = PLSH_STATUS_OK;
    g->traffic.bytes_sent += (int64_t)size;
    for (size_t at = 0; !status && at < size; at += MESSAGE) {
        status = plsh_mpi_try(
            MPI_Send((const char *)bytes + at, message_size(size - at), MPI_BYTE, 0, 0, g->own),
            "sending rows to the first rank", error);
    }
    return status;
}

static plsh_status receive(void *context, int64_t from, void *bytes, size_t size,
                           plsh_error *error) {
    const group *g = context;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t at = 0; !status && at < size; at += MESSAGE) {
        status = plsh_mpi_try(MPI_Recv((char *)bytes + at, message_size(size - at), MPI_BYTE,
                                       (int)from, 0, g->own, MPI_STATUS_IGNORE),
                              "receiving rows of other ranks", error);
    }
    return status;
}

static plsh_traffic traffic(void *context) { return ((const group *)context)->traffic; }

/* ---- Making ---------------------------------------------------------------------------------- */

static plsh_status cut_communicator(group *g, MPI_Comm communicator, int groups,
                                    plsh_error *error) {
    plsh_status status =
        plsh_mpi_try(MPI_Comm_dup(communicator, &g->all), "duplicating the communicator", error);
    if (status) return status;
    MPI_Comm_set_errhandler(g->all, MPI_ERRORS_RETURN);
    const int ranks = g->all_ranks / groups;
    status = plsh_mpi_try(MPI_Comm_split(g->all, g->all_rank / ranks, g->all_rank, &g->own),
                          "cutting the communicator into groups", error);
    if (!status) MPI_Comm_set_errhandler(g->own, MPI_ERRORS_RETURN);
    return status;
}

static plsh_status make_arrays(group *g, plsh_error *error) {
    int **const arrays[] = {&g->now.counts,   &g->now.first, &g->before.counts,
                            &g->before.first, &g->same,      &g->places};
    plsh_status status = PLSH_STATUS_OK;
    for (int i = 0; !status && i < 6; i++) {
        status =
            plsh_allocate((void **)arrays[i], (size_t)g->all_ranks, sizeof(int), "ranks", error);
    }
    return status;
}

static plsh_ranks make_table(group *g, int groups) {
    const int ranks = g->all_ranks / groups;
    return (plsh_ranks){.context = g,
                        .group = g->all_rank / ranks,
                        .groups = groups,
                        .rank = g->all_rank % ranks,
                        .ranks = ranks,
                        .plan = make_plan,
                        .plan_destroy = destroy_plan,
                        .forward = forward,
                        .backward = backward,
                        .sum_begin = sum_begin,
                        .sum_end = sum_end,
                        .sum = sum,
                        .agree = agree,
                        .send = send,
                        .receive = receive,
                        .traffic = traffic};
}

plsh_status plsh_mpi_ranks_create(MPI_Comm communicator, int groups, const plsh_ranks **out,
                                  plsh_error *error) {
    group *g;
    int rank = 0, ranks = 0;
    *out = NULL;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &ranks);
    if (groups < 1 || ranks % groups != 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%d groups of %d ranks; as many in each, at least 1", groups, ranks);
    }
    plsh_status status = plsh_allocate((void **)&g, 1, sizeof(*g), "ranks", error);
    if (!status) {
        *g = (group){.all = MPI_COMM_NULL,
                     .own = MPI_COMM_NULL,
                     .all_rank = rank,
                     .all_ranks = ranks,
                     .exchange = MPI_REQUEST_NULL,
                     .gathers = MPI_REQUEST_NULL};
        g->table = make_table(g, groups);
        status = make_arrays(g, error);
    }
    status = plsh_mpi_agree(communicator, status, error);
    if (!status) status = cut_communicator(g, communicator, groups, error);
    if (status) {
        plsh_mpi_ranks_destroy(g ? &g->table : NULL);
        return status;
    }
    *out = &g->table;
    return PLSH_STATUS_OK;
}

void plsh_mpi_ranks_destroy(const plsh_ranks *ranks) {
    if (!ranks) return;
    group *g = ranks->context;
    void *const arrays[] = {g->now.counts, g->now.first, g->before.counts, g->before.first,
                            g->same,       g->places,    g->received,      g->doubles};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) plsh_release(arrays[i]);
    if (g->own != MPI_COMM_NULL) MPI_Comm_free(&g->own);
    if (g->all != MPI_COMM_NULL) MPI_Comm_free(&g->all);
    plsh_release(g);
}
