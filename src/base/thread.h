/* base: loops over rows by the pool of threads (plsh/thread.h), and the processors that a process
 * may use. The pool is in libplsh alone: the other libraries have copies of base, but call the pool
 * of libplsh, so that a process has one. */
#ifndef PLSH_BASE_THREAD_H
#define PLSH_BASE_THREAD_H

#include "plsh/thread.h"

/* Rows first to end - 1 of a loop. */
typedef void (*plsh_thread_rows_function)(void *context, int64_t first, int64_t end, int slot);

typedef struct plsh_thread_rows_job {
    plsh_thread_rows_function function;
    void *context;
    int64_t rows, chunks;
} plsh_thread_rows_job;

static inline void plsh_thread_rows_chunk(void *context, int64_t chunk, int slot) {
    const plsh_thread_rows_job *job = (const plsh_thread_rows_job *)context;
    const int64_t each = job->rows / job->chunks, more = job->rows % job->chunks;
    const int64_t first = chunk * each + (chunk < more ? chunk : more);
    job->function(job->context, first, first + each + (chunk < more), slot);
}

/* Runs function over `rows` rows, cut into chunks of at least `least` rows: PLSH_THREAD_CHUNKS for
 * each thread where there are enough rows. What a row computes must not depend on its chunk. */
enum { PLSH_THREAD_CHUNKS = 8 };

static inline void plsh_thread_rows(int threads, int64_t rows, int64_t least,
                                    plsh_thread_rows_function function, void *context) {
    if (rows <= 0) return;
    plsh_thread_rows_job job = {function, context, rows, 1};
    const int64_t most = (int64_t)plsh_thread_count(threads) * PLSH_THREAD_CHUNKS;
    if (threads != 1) job.chunks = rows / (least > 1 ? least : 1);
    if (job.chunks > most) job.chunks = most;
    if (job.chunks < 1) job.chunks = 1;
    plsh_thread_run(threads, job.chunks, plsh_thread_rows_chunk, &job);
}

#ifdef PLSH_TESTING
/* The points in a worker's life at which the tests' hook is called; the hook may delay the
 * worker. */
typedef enum plsh_thread_event {
    PLSH_THREAD_STARTS,   /* begins its life */
    PLSH_THREAD_LOOKS,    /* looks for a job */
    PLSH_THREAD_SEES,     /* has seen chunks that are left, and claims one */
    PLSH_THREAD_CLAIMED,  /* has claimed a chunk, the caller too */
    PLSH_THREAD_FINISHED, /* has run a chunk and not reported it */
    PLSH_THREAD_SLEEPS,   /* goes to sleep */
    PLSH_THREAD_POSTS,    /* the caller has made workers and posts its job */
    PLSH_THREAD_WAITS     /* the caller waits for claimed chunks */
} plsh_thread_event;

/* NULL: no hook. Set while no job runs. */
void plsh_thread_watch(void (*hook)(plsh_thread_event event));

/* The number of threads in the pool; and a limit of threads that can be created. */
int plsh_thread_workers(void);
void plsh_thread_limit(int most);
#endif

/* The number of processors that the calling thread may run on, at least 1. */
int plsh_processors_of_affinity(void);

/* The number of processors that the CPU quotas of this process's cgroup and of those above it
 * allow, rounded up, at least 1; 0: there is no quota. Versions 1 and 2, found by proc/self/cgroup
 * and proc/self/mountinfo under `root`, "" for the machine's own. */
int plsh_processors_of_quota(const char *root);

#endif
