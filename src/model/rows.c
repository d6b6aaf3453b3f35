/* model: rows that are copied, cleared and added on all threads. */
#include "model/rows.h"

#include <string.h>

#include "base/clones.h"
#include "base/thread.h"

enum { LEAST = 1 << 14 }; /* numbers of a chunk: 64 KiB, some microseconds */

typedef struct row_job {
    float *to;
    const float *from;
} row_job;

static void copy(void *context, int64_t first, int64_t end, int slot) {
    const row_job *job = context;
    (void)slot;
    memcpy(job->to + first, job->from + first, (size_t)(end - first) * sizeof *job->to);
}

void plsh_rows_copy(int threads, float *to, const float *from, int64_t count) {
    row_job job = {to, from};
    if (to != from) plsh_thread_rows(threads, count, LEAST, copy, &job);
}

static void clear(void *context, int64_t first, int64_t end, int slot) {
    const row_job *job = context;
    (void)slot;
    memset(job->to + first, 0, (size_t)(end - first) * sizeof *job->to);
}

void plsh_rows_clear(int threads, float *to, int64_t count) {
    row_job job = {to, NULL};
    plsh_thread_rows(threads, count, LEAST, clear, &job);
}

PLSH_CLONES static void add_all(float *restrict to, const float *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

static void add(void *context, int64_t first, int64_t end, int slot) {
    const row_job *job = context;
    (void)slot;
    add_all(job->to + first, job->from + first, end - first);
}

void plsh_rows_add(int threads, float *to, const float *from, int64_t count) {
    row_job job = {to, from};
    plsh_thread_rows(threads, count, LEAST, add, &job);
}
