/* mpi: sends rows of k and v to the ranks that need them, and their gradients back. */
#include "mpi/transfer.h"

#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "mpi/agree.h"

/* ---- Types ---------------------------------------------------------------------------------- */

void plsh_mpi_types_clear(plsh_mpi_types *types) {
    *types = (plsh_mpi_types){MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_DATATYPE_NULL,
                              MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
}

void plsh_mpi_types_free(plsh_mpi_types *types) {
    MPI_Datatype *all[] = {&types->own_k, &types->own_v, &types->k,
                           &types->v,     &types->d_k,   &types->d_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i] != MPI_DATATYPE_NULL) MPI_Type_free(all[i]);
}

/* `dim` elements; rows of them lie `stride` elements apart. */
static int make_type(MPI_Datatype element, int64_t dim, int64_t stride, size_t size,
                     MPI_Datatype *type) {
    MPI_Datatype row;
    int code = MPI_Type_contiguous((int)dim, element, &row);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(row, 0, (MPI_Aint)(stride * (int64_t)size), type);
    MPI_Type_free(&row);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

plsh_status plsh_mpi_types_make(plsh_mpi_plan *plan, plsh_error *error) {
    const plsh_attention *a = &plan->whole;
    plsh_mpi_types *t = &plan->types;
    const size_t size = plsh_dtype_size(a->dtype), wide = sizeof(float);
    const MPI_Datatype element = size == wide ? MPI_FLOAT : MPI_UINT16_T;
    const int64_t d = a->head_dim, dv = a->value_dim;
    int code = make_type(element, d, a->k.row_stride, size, &t->own_k);
    if (code == MPI_SUCCESS) code = make_type(element, dv, a->v.row_stride, size, &t->own_v);
    if (code == MPI_SUCCESS) code = make_type(element, d, d, size, &t->k);
    if (code == MPI_SUCCESS) code = make_type(element, dv, dv, size, &t->v);
    if (code == MPI_SUCCESS) code = make_type(MPI_FLOAT, d, d, wide, &t->d_k);
    if (code == MPI_SUCCESS) code = make_type(MPI_FLOAT, dv, dv, wide, &t->d_v);
    return plsh_mpi_try(code, "describing rows", error);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static plsh_mpi_rows own_rows(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, void *k,
                              void *v, int64_t size) {
    const plsh_attention *a = &plan->whole;
    plsh_mpi_rows rows = {.k_type = plan->types.own_k,
                          .v_type = plan->types.own_v,
                          .k_head = a->k.head_stride * size,
                          .v_head = a->v.head_stride * size,
                          .k_row = a->k.row_stride * size,
                          .v_row = a->v.row_stride * size,
                          .first = plsh_mpi_own_rows(plan).begin};
    if (k) rows.k = (char *)k + unit->shard->kv_head * rows.k_head;
    if (v) rows.v = (char *)v + unit->shard->kv_head * rows.v_head;
    return rows;
}

plsh_mpi_rows plsh_mpi_rows_own(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, const void *k,
                                const void *v) {
    const int64_t size = (int64_t)plsh_dtype_size(plan->whole.dtype);
    return own_rows(plan, unit, (void *)k, (void *)v, size);
}

plsh_mpi_rows plsh_mpi_rows_own_gradients(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                                          float *d_k, float *d_v) {
    return own_rows(plan, unit, d_k, d_v, sizeof(float));
}

static plsh_mpi_rows without_gaps(const plsh_mpi_plan *plan, plsh_range keys, void *k, void *v,
                                  int64_t size) {
    const int64_t count = plsh_range_size(keys);
    const int64_t k_row = plan->whole.head_dim * size, v_row = plan->whole.value_dim * size;
    return (plsh_mpi_rows){.k = k,
                           .v = v,
                           .k_type = plan->types.k,
                           .v_type = plan->types.v,
                           .k_head = count * k_row,
                           .v_head = count * v_row,
                           .k_row = k_row,
                           .v_row = v_row,
                           .first = keys.begin};
}

plsh_mpi_rows plsh_mpi_rows_held(const plsh_mpi_plan *plan, plsh_range keys, void *k, void *v) {
    return without_gaps(plan, keys, k, v, (int64_t)plsh_dtype_size(plan->whole.dtype));
}

plsh_mpi_rows plsh_mpi_rows_gradients(const plsh_mpi_plan *plan, plsh_range keys, float *d_k,
                                      float *d_v) {
    plsh_mpi_rows rows = without_gaps(plan, keys, d_k, d_v, sizeof(float));
    rows.k_type = plan->types.d_k;
    rows.v_type = plan->types.d_v;
    rows.gradients = true;
    return rows;
}

static char *k_at(const plsh_mpi_rows *rows, int64_t kv, int64_t row) {
    return rows->k + kv * rows->k_head + (row - rows->first) * rows->k_row;
}

static char *v_at(const plsh_mpi_rows *rows, int64_t kv, int64_t row) {
    return rows->v + kv * rows->v_head + (row - rows->first) * rows->v_row;
}

void plsh_mpi_rows_copy(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                        const plsh_mpi_rows *to, const plsh_mpi_rows *from, plsh_range range) {
    const size_t size = plsh_dtype_size(plan->whole.dtype);
    const size_t k = (size_t)plan->whole.head_dim * size, v = (size_t)plan->whole.value_dim * size;
    for (int64_t kv = 0; kv < unit->shard->kv_heads; kv++) {
        for (int64_t row = range.begin; row < range.end; row++) {
            memcpy(k_at(to, kv, row), k_at(from, kv, row), k);
            memcpy(v_at(to, kv, row), v_at(from, kv, row), v);
        }
    }
}

static void add(char *to, const char *from, int64_t count) {
    float *sum = (float *)(void *)to;
    const float *term = (const float *)(const void *)from;
    for (int64_t x = 0; x < count; x++) sum[x] += term[x];
}

void plsh_mpi_rows_add(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                       const plsh_mpi_rows *to, const plsh_mpi_rows *from, plsh_range range) {
    const int64_t d = plan->whole.head_dim, dv = plan->whole.value_dim;
    for (int64_t kv = 0; kv < unit->shard->kv_heads; kv++) {
        for (int64_t row = range.begin; row < range.end; row++) {
            if (to->k) add(k_at(to, kv, row), k_at(from, kv, row), d);
            if (to->v) add(v_at(to, kv, row), v_at(from, kv, row), dv);
        }
    }
}

void plsh_mpi_rows_clear(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                         const plsh_mpi_rows *rows, plsh_range range) {
    const size_t k = (size_t)plan->whole.head_dim, v = (size_t)plan->whole.value_dim;
    for (int64_t kv = 0; kv < unit->shard->kv_heads; kv++) {
        for (int64_t row = range.begin; row < range.end; row++) {
            if (rows->k) memset(k_at(rows, kv, row), 0, k * sizeof(float));
            if (rows->v) memset(v_at(rows, kv, row), 0, v * sizeof(float));
        }
    }
}

/* ---- Messages ------------------------------------------------------------------------------- */

plsh_status plsh_mpi_requests_reserve(plsh_mpi_plan *plan, int64_t count, plsh_error *error) {
    if (count > INT_MAX)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%lld messages at once", (long long)count);
    if (count <= plan->request_room) return PLSH_STATUS_OK;
    plsh_release(plan->requests);
    plan->request_room = 0;
    plsh_status status = plsh_allocate((void **)&plan->requests, (size_t)count,
                                       sizeof *plan->requests, "messages", error);
    if (!status) plan->request_room = (int)count;
    return status;
}

void plsh_mpi_book_bytes(plsh_mpi_plan *plan, int64_t bytes) { plan->stats->bytes_sent += bytes; }

void plsh_mpi_book_wait(plsh_mpi_plan *plan, double begin) {
    plan->stats->waited += MPI_Wtime() - begin;
}

enum { TAG_K, TAG_V, TAG_GRADIENTS };

typedef struct message {
    char *data;
    MPI_Datatype type;
    int tag, peer;
    int64_t rows;
    bool sends;
} message;

static plsh_status post(plsh_mpi_plan *plan, const message *m, plsh_error *error) {
    MPI_Request *request = &plan->requests[plan->request_count++];
    int code, size;
    *request = MPI_REQUEST_NULL;
    if (m->rows > INT_MAX)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%lld rows in one message; below 2^31",
                         (long long)m->rows);
    if (m->sends)
        code =
            MPI_Isend(m->data, (int)m->rows, m->type, m->peer, m->tag, plan->communicator, request);
    else
        code =
            MPI_Irecv(m->data, (int)m->rows, m->type, m->peer, m->tag, plan->communicator, request);
    if (m->sends && MPI_Type_size(m->type, &size) == MPI_SUCCESS)
        plsh_mpi_book_bytes(plan, m->rows * size);
    return plsh_mpi_try(code, m->sends ? "sending rows" : "receiving rows", error);
}

static plsh_status post_rows(plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                             const plsh_mpi_rows *rows, plsh_range range, int peer, bool sends,
                             plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    const int64_t count = plsh_range_size(range);
    const int tag = rows->gradients ? TAG_GRADIENTS : 0;
    for (int64_t kv = 0; !status && count > 0 && kv < unit->shard->kv_heads; kv++) {
        if (rows->k) {
            char *at = k_at(rows, kv, range.begin);
            const message m = {at, rows->k_type, tag + TAG_K, peer, count, sends};
            status = post(plan, &m, error);
        }
        if (!status && rows->v) {
            char *at = v_at(rows, kv, range.begin);
            const message m = {at, rows->v_type, tag + TAG_V, peer, count, sends};
            status = post(plan, &m, error);
        }
    }
    return status;
}

plsh_status plsh_mpi_send(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, const plsh_mpi_rows *rows,
                          plsh_range range, int to, plsh_error *error) {
    return post_rows(plan, unit, rows, range, to, true, error);
}

plsh_status plsh_mpi_receive(plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                             const plsh_mpi_rows *rows, plsh_range range, int from,
                             plsh_error *error) {
    return post_rows(plan, unit, rows, range, from, false, error);
}

plsh_status plsh_mpi_wait(plsh_mpi_plan *plan, int first, int end, plsh_error *error) {
    if (first >= end) return PLSH_STATUS_OK;
    const double begin = MPI_Wtime();
    const int code = MPI_Waitall(end - first, plan->requests + first, MPI_STATUSES_IGNORE);
    plsh_mpi_book_wait(plan, begin);
    return plsh_mpi_try(code, "waiting for rows", error);
}

void plsh_mpi_poke(plsh_mpi_plan *plan) {
    int unused;
    MPI_Testall(plan->request_count, plan->requests, &unused, MPI_STATUSES_IGNORE);
}
