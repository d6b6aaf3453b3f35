/* plsh/thread.h - the threads that calls run on.
 *
 * A process has one pool of threads, which all calls of libplsh, libplsh_lm and libplsh_mpi share.
 * Work is cut into chunks. Every free thread claims the next chunk, and so does the calling thread.
 * At the end the caller waits only for chunks that were claimed, never for a thread that has not
 * started: on a busy machine a descheduled thread costs no more than its share of the speed.
 * Results do not depend on the number of threads.
 *
 * Threads are created by the first call that needs them. If one cannot be created, calls run on
 * fewer. Threads without work wait actively for at most a millisecond, then sleep. They block all
 * signals. Any number of threads may call at once. A child of fork makes threads of its own. At
 * exit the threads are joined.
 *
 * The number of threads of a call that is given threads = 0 is the first of these that is set:
 *
 *     plsh_thread_set_default
 *     PLSH_THREADS      1 to 4096; any other value is ignored
 *     OMP_NUM_THREADS   likewise; of a list the first number
 *     the processors in the process's affinity mask, and at most the CPU quota, rounded up, of its
 *     cgroup and of those above it (cpu.max, or cfs_quota of version 1) */
#ifndef PLSH_THREAD_H
#define PLSH_THREAD_H

#include "plsh/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most threads that a call takes. */
enum { PLSH_THREADS_MAX = 4096 };

/* requested > 0: that many, at most PLSH_THREADS_MAX; otherwise the default. The environment and
 * the processors are read once, at the first use. */
PLSH_API int plsh_thread_count(int requested);

/* Sets the default of plans, caches, models and trainers that are created later. 0: read the
 * environment and the processors again. */
PLSH_API plsh_status plsh_thread_set_default(int threads, plsh_error *error);

/* Where the default comes from: "plsh_thread_set_default", "PLSH_THREADS", "OMP_NUM_THREADS",
 * "affinity" or "cgroup"; a static string. */
PLSH_API const char *plsh_thread_default_source(void);

/* One chunk of a job. slot: 0 to threads - 1; no two chunks of a job run with one slot at the same
 * time, so a workspace per slot needs no lock. Slot 0 is the caller's. */
typedef void (*plsh_thread_function)(void *context, int64_t chunk, int slot);

/* Runs the chunks 0 to chunks - 1 on up to `threads` threads (plsh_thread_count of it) in any
 * order, and returns when all are done. A job that is started inside a chunk runs on the thread
 * that starts it, with slot 0. A chunk must not fork a child that returns from it, end its thread,
 * or leave by longjmp. */
PLSH_API void plsh_thread_run(int threads, int64_t chunks, plsh_thread_function function,
                              void *context);

#ifdef __cplusplus
}
#endif

#endif
