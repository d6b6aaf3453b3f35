/* mpi: what `exact` has to fetch. */
#include "mpi/fades.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "mpi/agree.h"
#include "mpi/needs.h"

/* A tile of keys has at least 128 rows, and there are not many more than 32768 of them: a norm of
 * each goes to every rank. */
enum { TILE_ROWS = 128, TILES_MOST = 32768, CENTRE_ROWS = 64 };

static plsh_status allocate(void *out, int64_t count, size_t size, plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)count, size, "summaries of keys", error);
}

/* ---- Memory --------------------------------------------------------------------------------- */

static plsh_status make_tiles(const plsh_mpi_plan *plan, plsh_mpi_fades *f, plsh_error *error) {
    const int ranks = plan->ranks;
    f->tile_rows = TILE_ROWS;
    while (plan->whole.keys / f->tile_rows > TILES_MOST) f->tile_rows *= 2;
    plsh_status status = allocate(&f->first_tile, ranks + 1, sizeof(int64_t), error);
    if (!status) status = allocate(&f->counts, ranks, sizeof(int), error);
    if (!status) status = allocate(&f->places, ranks, sizeof(int), error);
    if (status) return status;
    for (int r = 0; r < ranks; r++) {
        const int64_t tiles = (plsh_block_size(plan->rows[r]) + f->tile_rows - 1) / f->tile_rows;
        f->first_tile[r + 1] = f->first_tile[r] + tiles;
        f->counts[r] = (int)(tiles * plan->whole.kv_heads);
        f->places[r] = (int)(f->first_tile[r] * plan->whole.kv_heads);
    }
    const int64_t all = f->first_tile[ranks];
    status = allocate(&f->tile_begin, all + 1, sizeof(int64_t), error);
    for (int r = 0; !status && r < ranks; r++)
        for (int64_t t = f->first_tile[r]; t < f->first_tile[r + 1]; t++)
            f->tile_begin[t] = plan->rows[r].begin + (t - f->first_tile[r]) * f->tile_rows;
    if (!status) f->tile_begin[all] = plan->whole.keys;
    return status;
}

/* The own queries in blocks, none of which lies in two sequences. */
static plsh_status make_blocks(const plsh_mpi_plan *plan, plsh_mpi_fades *f, plsh_error *error) {
    const plsh_attention *a = &plan->whole;
    const plsh_block queries = plsh_mpi_own_queries(plan);
    const int64_t single[2] = {0, a->keys}, sequences = a->sequences ? a->sequences : 1;
    const int64_t *offset = a->sequences ? plan->offsets : single;
    const int64_t most = plsh_block_size(queries) / PLSH_MPI_BLOCK_ROWS + sequences + 1;
    plsh_status status = allocate(&f->block, most, sizeof *f->block, error);
    for (int64_t x = 0; !status && x < sequences; x++) {
        const plsh_block sequence = {offset[x], offset[x + 1]};
        const plsh_block part = plsh_block_common(queries, sequence);
        for (int64_t i = part.begin; i < part.end; i += PLSH_MPI_BLOCK_ROWS) {
            const int64_t end = i + PLSH_MPI_BLOCK_ROWS;
            f->block[f->blocks++] = (plsh_mpi_block){.rows = {i, end < part.end ? end : part.end},
                                                     .sequence = sequence};
        }
    }
    if (!status) status = allocate(&f->most, a->heads * f->blocks, sizeof *f->most, error);
    return status;
}

plsh_status plsh_mpi_fades_make(plsh_mpi_plan *plan, plsh_error *error) {
    if (plan->fades_state) return PLSH_STATUS_OK;
    const plsh_attention *a = &plan->whole;
    const int64_t kv = a->kv_heads;
    plsh_mpi_fades *f;
    plsh_status status = allocate(&f, 1, sizeof *f, error);
    if (status) return status;
    status = make_tiles(plan, f, error);
    if (!status) status = make_blocks(plan, f, error);
    const int64_t tiles = status ? 0 : f->first_tile[plan->ranks];
    if (!status) status = allocate(&f->centre, kv * a->head_dim, sizeof(float), error);
    if (!status) status = allocate(&f->own_norms, kv * tiles, sizeof(float), error);
    if (!status) status = allocate(&f->norms, kv * tiles, sizeof(float), error);
    if (!status) status = allocate(&f->before, tiles, sizeof(float), error);
    if (!status) status = allocate(&f->after, tiles, sizeof(float), error);
    const int64_t ranges = 2 * kv * a->value_dim;
    if (!status) status = allocate(&f->own_ranges, ranges, sizeof(float), error);
    if (!status) status = allocate(&f->ranges, ranges * plan->ranks, sizeof(float), error);
    if (!status) status = allocate(&f->own_needs, plan->units, sizeof(plsh_mpi_need), error);
    if (!status)
        status = allocate(&f->needs, plan->units * plan->ranks, sizeof(plsh_mpi_need), error);
    if (status)
        plsh_mpi_fades_free(f);
    else
        plan->fades_state = f;
    return status;
}

void plsh_mpi_fades_free(plsh_mpi_fades *f) {
    if (!f) return;
    void *arrays[] = {f->first_tile, f->counts,     f->places, f->tile_begin, f->block,
                      f->most,       f->centre,     f->norms,  f->own_norms,  f->before,
                      f->after,      f->own_ranges, f->ranges, f->own_needs,  f->needs};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) plsh_release(arrays[i]);
    plsh_release(f);
}

/* ---- Summaries of keys ----------------------------------------------------------------------- */

static plsh_status exchange(plsh_mpi_call *call, int code, int64_t bytes, double begin,
                            plsh_error *error) {
    plsh_mpi_book_wait(call->plan, begin);
    plsh_mpi_book_bytes(call->plan, bytes * (call->plan->ranks - 1));
    return plsh_mpi_try(code, "exchanging summaries of keys", error);
}

/* Any point would do; the mean of some keys of the first rank that has rows is near those of all,
 * for a score's part q.c is the same for all keys of a row. From 128 rows
 * on the first is not among them: a key of large norm, which often is there, would move the mean.
 */
static plsh_status share_centre(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_mpi_fades *f = plan->fades_state;
    const plsh_attention *a = &plan->whole;
    int root = 0;
    while (root < plan->ranks - 1 && plsh_block_size(plan->rows[root]) == 0) root++;
    const int64_t rows = plsh_block_size(plan->rows[root]);
    const int64_t count = rows < CENTRE_ROWS ? rows : CENTRE_ROWS, d = a->head_dim;
    for (int64_t i = 0; root == plan->rank && i < a->kv_heads * d; i++) {
        double sum = 0;
        for (int64_t j = 0; j < count; j++) {
            const int64_t row = (2 * j + 1) * rows / (2 * count);
            sum += (double)plsh_dtype_load(
                a->dtype, call->k, i / d * a->k.head_stride + row * a->k.row_stride + i % d);
        }
        const float mean = count ? (float)(sum / (double)count) : 0;
        f->centre[i] = isfinite(mean) ? mean : 0;
    }
    const double begin = MPI_Wtime();
    const int64_t size = a->kv_heads * d;
    const int code = MPI_Bcast(f->centre, (int)size, MPI_FLOAT, root, plan->communicator);
    return exchange(call, code, root == plan->rank ? size * 4 : 0, begin, error);
}

/* The larger, and NaN once there is one. */
static double larger(double a, double b) { return a >= b || a != a ? a : b; }

/* The largest |k - c| of some own rows, rounded up. */
static float largest_norm(const plsh_mpi_call *call, int64_t kv, int64_t first, int64_t end) {
    const plsh_attention *a = &call->plan->whole;
    const float *centre = call->plan->fades_state->centre + kv * a->head_dim;
    double most = 0;
    for (int64_t i = first; i < end; i++) {
        const ptrdiff_t at = kv * a->k.head_stride + i * a->k.row_stride;
        most = larger(most, plsh_mpi_square(a->dtype, call->k, at, centre, a->head_dim));
    }
    return nextafterf((float)sqrt(most), INFINITY);
}

/* Tile i % tiles of kv head i / tiles, of the own ones. */
static void find_norms(void *context, int64_t begin, int64_t end, int slot) {
    const plsh_mpi_call *call = context;
    const plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_fades *f = plan->fades_state;
    const int64_t rows = plsh_block_size(plsh_mpi_own_rows(plan));
    const int64_t tiles = f->first_tile[plan->rank + 1] - f->first_tile[plan->rank];
    (void)slot;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % tiles * f->tile_rows, next = first + f->tile_rows;
        f->own_norms[i] = largest_norm(call, i / tiles, first, next < rows ? next : rows);
    }
}

static plsh_status share_norms(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_mpi_fades *f = plan->fades_state;
    const int64_t kv = plan->whole.kv_heads;
    const int64_t tiles = f->first_tile[plan->rank + 1] - f->first_tile[plan->rank];
    plsh_thread_rows(plan->whole.threads, kv * tiles, 1, find_norms, call);
    const double begin = MPI_Wtime();
    const int code = MPI_Allgatherv(f->own_norms, f->counts[plan->rank], MPI_FLOAT, f->norms,
                                    f->counts, f->places, MPI_FLOAT, plan->communicator);
    return exchange(call, code, kv * tiles * 4, begin, error);
}

/* Certificates: the range of every column of the own values. */
static plsh_status share_ranges(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_mpi_fades *f = plan->fades_state;
    const plsh_attention *a = &plan->whole;
    const int64_t rows = plsh_block_size(plsh_mpi_own_rows(plan)), dv = a->value_dim;
    const int64_t columns = a->kv_heads * dv;
    for (int64_t i = 0; i < columns; i++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t j = 0; j < rows; j++) {
            const double v = (double)plsh_dtype_load(
                a->dtype, call->v, i / dv * a->v.head_stride + j * a->v.row_stride + i % dv);
            high = larger(high, v);
            low = -larger(-low, -v);
        }
        f->own_ranges[2 * i] = (float)low;
        f->own_ranges[2 * i + 1] = (float)high;
    }
    const double begin = MPI_Wtime();
    const int count = (int)(2 * columns);
    const int code = MPI_Allgather(f->own_ranges, count, MPI_FLOAT, f->ranges, count, MPI_FLOAT,
                                   plan->communicator);
    return exchange(call, code, (int64_t)count * 4, begin, error);
}

/* ---- Needs ---------------------------------------------------------------------------------- */

/* Everybody's needs, which so far only each rank itself knows. */
static plsh_status share_needs(plsh_mpi_call *call, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_mpi_fades *f = plan->fades_state;
    int count = 0;
    for (int64_t i = 0; i < plan->units; i++) {
        const plsh_mpi_unit *unit = &plan->unit[i];
        if (unit->asks)
            f->own_needs[count++] =
                (plsh_mpi_need){unit->need[plan->rank], unit->fetches[plan->rank]};
    }
    const double begin = MPI_Wtime();
    const int code = MPI_Allgather(f->own_needs, 3 * count, MPI_INT64_T, f->needs, 3 * count,
                                   MPI_INT64_T, plan->communicator);
    plsh_status status = exchange(call, code, count * (int64_t)sizeof(plsh_mpi_need), begin, error);
    int at = 0;
    for (int64_t i = 0; !status && i < plan->units; i++) {
        if (!plan->unit[i].asks) continue;
        for (int r = 0; r < plan->ranks; r++) {
            plan->unit[i].need[r] = f->needs[r * count + at].rows;
            plan->unit[i].fetches[r] = f->needs[r * count + at].outliers;
        }
        at++;
    }
    return status;
}

plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error) {
    plsh_mpi_plan *plan = call->plan;
    plsh_status status = share_centre(call, error);
    if (!status) status = share_norms(call, error);
    if (!status && certificate) status = share_ranges(call, error);
    for (int64_t i = 0; !status && i < plan->units; i++) {
        plsh_mpi_unit *unit = &plan->unit[i];
        unit->asks = !unit->rotates && (unit->fades || certificate);
        if (unit->asks) plsh_mpi_needs_find(call, unit);
    }
    return status ? status : share_needs(call, error);
}

/* ---- Certificates --------------------------------------------------------------------------- */

/* The largest max - min of a column of the values that a row of this rank may see. */
static double value_range(const plsh_mpi_plan *plan, int64_t kv) {
    const plsh_mpi_fades *f = plan->fades_state;
    const int64_t dv = plan->whole.value_dim, columns = plan->whole.kv_heads * dv;
    const int last = plan->whole.causal ? plan->rank : plan->ranks - 1;
    double widest = 0;
    for (int64_t c = kv * dv; c < (kv + 1) * dv; c++) {
        double low = INFINITY, high = -INFINITY;
        for (int r = 0; r <= last; r++) {
            low = -larger(-low, -(double)f->ranges[2 * (r * columns + c)]);
            high = larger(high, (double)f->ranges[2 * (r * columns + c) + 1]);
        }
        widest = larger(widest, high - low);
    }
    return widest;
}

/* A row of several parts: its first call's bound is for the keys of that call, whose weights have
 * become others. But each part p leaves out at most r_p <= eps D_p of the weight that it keeps, so
 * all of them at most eps of the row, and what is left out of a mean of values moves it by no more
 * than its share of their range:
 *     |o - o*| <= R sum r_p / (sum D_p + r_p) <= R eps. */
static void certify_head(plsh_mpi_call *call, const plsh_mpi_unit *unit, int64_t h) {
    const plsh_mpi_plan *plan = call->plan;
    const plsh_mpi_fades *f = plan->fades_state;
    const plsh_block own = plsh_mpi_own_queries(plan);
    const int64_t kv = h / (plan->whole.heads / plan->whole.kv_heads);
    const double range = value_range(plan, kv);
    float *bound = call->forward->certificate + h * plsh_block_size(own);
    plsh_mpi_needs_maxima(plan, unit, kv);
    for (int64_t b = 0; b < f->blocks; b++) {
        const double share = plsh_mpi_needs_rest(plan, unit, h, b);
        const bool merged = plsh_mpi_needs_merged(plan, unit, b);
        if (share == 0 && !merged) continue; /* nothing left out, whatever the values */
        for (int64_t i = f->block[b].rows.begin; i < f->block[b].rows.end; i++) {
            float *at = &bound[i - own.begin];
            const double held =
                merged ? larger((double)*at, range * plan->head[h].eps) : (double)*at;
            const double sum = held + range * (share > 1 ? 1 : share);
            *at = nextafterf((float)sum, INFINITY);
        }
    }
}

void plsh_mpi_fades_certify(plsh_mpi_call *call) {
    const plsh_mpi_plan *plan = call->plan;
    for (int64_t i = 0; i < plan->units; i++) {
        const plsh_mpi_unit *unit = &plan->unit[i];
        for (int64_t h = 0; unit->asks && h < unit->heads; h++)
            certify_head(call, unit, unit->head + h);
    }
}
