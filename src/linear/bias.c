/* linear: the gradient of a bias. */
#include "base/clones.h"
#include "base/thread.h"
#include "linear/linear.h"

typedef struct bias_job {
    plsh_const_matrix dy;
    float *db;
    int64_t rows;
} bias_job;

PLSH_CLONES static void add(float *restrict to, const float *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* Outputs first to end - 1, row after row. */
static void add_rows(void *context, int64_t first, int64_t end, int slot) {
    const bias_job *job = context;
    (void)slot;
    for (int64_t r = 0; r < job->rows; r++)
        add(job->db + first, job->dy.data + r * job->dy.stride + first, end - first);
}

void plsh_linear_backward_bias(const plsh_linear_engine *engine, int64_t rows, int64_t out,
                               plsh_const_matrix dy, float *db) {
    enum { LEAST = 64 }; /* outputs of a chunk */
    bias_job job = {dy, db, rows};
    plsh_thread_rows(engine->threads, out, LEAST, add_rows, &job);
}
