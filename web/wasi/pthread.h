/* web: POSIX threads for a machine that has one thread, as far as the library uses them. Locks are
 * always free, and no thread can be created: the pool then runs all chunks on the caller. */
#ifndef PLSH_WEB_PTHREAD_H
#define PLSH_WEB_PTHREAD_H

#include <__typedef_sigset_t.h>
#include <errno.h>
#include <stddef.h>

typedef int pthread_t;
typedef int pthread_mutex_t;
typedef int pthread_cond_t;
typedef int pthread_once_t;
enum { PTHREAD_CANCEL_DISABLE = 1, SIG_SETMASK = 2 };

#define PTHREAD_MUTEX_INITIALIZER 0
#define PTHREAD_COND_INITIALIZER 0
#define PTHREAD_ONCE_INIT 0

static inline int pthread_mutex_init(pthread_mutex_t *lock, const void *attributes) {
    (void)attributes;
    *lock = 0;
    return 0;
}
static inline int pthread_mutex_lock(pthread_mutex_t *lock) { return *lock; }
static inline int pthread_mutex_trylock(pthread_mutex_t *lock) { return *lock; }
static inline int pthread_mutex_unlock(pthread_mutex_t *lock) { return *lock; }
static inline int pthread_mutex_destroy(pthread_mutex_t *lock) { return *lock; }

static inline int pthread_cond_init(pthread_cond_t *condition, const void *attributes) {
    return pthread_mutex_init(condition, attributes);
}
static inline int pthread_cond_broadcast(pthread_cond_t *condition) { return *condition; }
static inline int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
    return *condition + *lock;
}

static inline int pthread_once(pthread_once_t *once, void (*function)(void)) {
    if (*once == 0) function();
    *once = 1;
    return 0;
}
static inline int pthread_setcancelstate(int state, int *old) {
    if (old != NULL) *old = state;
    return 0;
}
static inline int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
    (void)before, (void)parent, (void)child;
    return 0;
}
static inline int pthread_create(pthread_t *thread, const void *attributes, void *(*begin)(void *),
                                 void *context) {
    (void)thread, (void)attributes, (void)begin, (void)context;
    return EAGAIN;
}
static inline int pthread_join(pthread_t thread, void **result) {
    (void)result;
    return thread;
}
static inline pthread_t pthread_self(void) { return 1; }
static inline int pthread_equal(pthread_t a, pthread_t b) { return a == b; }
static inline int sigfillset(sigset_t *set) {
    *set = (sigset_t)-1;
    return 0;
}
static inline int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    (void)how, (void)set, (void)old;
    return 0;
}

#endif
