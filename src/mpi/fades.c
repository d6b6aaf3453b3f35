/* mpi: the exchange that finds which rows `exact` needs. */
#include "mpi/call.h"

#include "mpi/agree.h"

/* Ends an exchange that began at `begin`, in which this rank sent `bytes` to each of the others. */
static plsh_status finish(plsh_mpi_plan *plan, int code, int64_t bytes, double begin,
                          plsh_error *error) {
    plsh_mpi_book_wait(plan, begin);
    plsh_mpi_book_bytes(plan, bytes * (plan->ranks - 1));
    return plsh_mpi_try(code, "exchanging summaries of keys", error);
}

static plsh_status share_centre(plsh_mpi_plan *plan, plsh_error *error) {
    const plsh_shard_exchange *x = plan->shard->exchange;
    const double begin = MPI_Wtime();
    const int code =
        MPI_Bcast(x->centre, (int)x->centre_count, MPI_FLOAT, x->root, plan->communicator);
    return finish(plan, code, x->root == plan->rank ? x->centre_count * 4 : 0, begin, error);
}

static plsh_status share_norms(plsh_mpi_plan *plan, plsh_error *error) {
    const plsh_shard_exchange *x = plan->shard->exchange;
    const int count = x->norm_counts[plan->rank];
    const double begin = MPI_Wtime();
    const int code = MPI_Allgatherv(x->own_norms, count, MPI_FLOAT, x->norms, x->norm_counts,
                                    x->norm_places, MPI_FLOAT, plan->communicator);
    return finish(plan, code, (int64_t)count * 4, begin, error);
}

static plsh_status share_ranges(plsh_mpi_plan *plan, plsh_error *error) {
    const plsh_shard_exchange *x = plan->shard->exchange;
    const int count = (int)x->range_count;
    const double begin = MPI_Wtime();
    const int code = MPI_Allgather(x->own_ranges, count, MPI_FLOAT, x->ranges, count, MPI_FLOAT,
                                   plan->communicator);
    return finish(plan, code, (int64_t)count * 4, begin, error);
}

static plsh_status share_needs(plsh_mpi_plan *plan, plsh_error *error) {
    const plsh_shard_exchange *x = plan->shard->exchange;
    const int count = (int)x->need_count * 3;
    const double begin = MPI_Wtime();
    const int code = MPI_Allgather(x->own_needs, count, MPI_INT64_T, x->needs, count, MPI_INT64_T,
                                   plan->communicator);
    return finish(plan, code, (int64_t)count * 8, begin, error);
}

plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    const plsh_attention *a = &plan->whole;
    const plsh_shard_arrays arrays = {call->q, call->k, certificate ? call->v : NULL,
                                      a->q,    a->k,    a->v};
    plsh_shard_begin(plan->shard, &arrays);
    plsh_status status = share_centre(plan, error);
    if (status) return status;
    plsh_shard_measure(plan->shard);
    status = share_norms(plan, error);
    if (!status && certificate) status = share_ranges(plan, error);
    if (status) return status;
    plsh_shard_find(plan->shard, certificate);
    status = share_needs(plan, error);
    if (!status) plsh_shard_learn(plan->shard);
    return status;
}
