/* base: how many threads a call uses. */
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define ALONE __libc_single_threaded
#endif
#endif
#ifndef ALONE
#define ALONE 0 /* not known: a child is taken to have lost threads */
#endif

/* ---- Forks ----------------------------------------------------------------------------------- */

static atomic_bool had_threads, lost_threads;

static void before_fork(void) { atomic_store(&had_threads, !ALONE); }
static void in_child(void) { atomic_store(&lost_threads, atomic_load(&had_threads)); }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, NULL, in_child);
}

/* ---- Threads that cannot be made ------------------------------------------------------------- */

enum { MOST = 4096 + 1 }; /* a call has at most 4096 threads */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
} gate;

static void *wait_at(void *context) {
    gate *at = context;
    pthread_mutex_lock(&at->lock);
    while (!at->open) pthread_cond_wait(&at->opened, &at->lock);
    pthread_mutex_unlock(&at->lock);
    return NULL;
}

/* How many of `wanted` threads there can be at once. */
static int try_threads(int wanted) {
    pthread_t thread[MOST];
    gate at = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    int made = 0;
    while (made < wanted && made < MOST && pthread_create(&thread[made], NULL, wait_at, &at) == 0)
        made++;
    pthread_mutex_lock(&at.lock);
    at.open = true;
    pthread_cond_broadcast(&at.opened);
    pthread_mutex_unlock(&at.lock);
    for (int i = 0; i < made; i++) pthread_join(thread[i], NULL);
    return made;
}

int plsh_thread_team(int threads) {
    enum { SPARE = 1 }; /* somebody else's next thread */
    static _Thread_local int proven = 1;
    if (threads <= 1 || atomic_load_explicit(&lost_threads, memory_order_relaxed)) return 1;
    if (threads <= proven || omp_in_parallel()) return threads;
    int others = threads - 1, made = try_threads(others + SPARE);
    if (made < others + SPARE) return 1 + made / 2; /* near the limit: the rest stays free */
    proven = threads;
    return threads;
}
