/* tests: threads that cannot be made, and children that lost theirs. */
#include "support/support.h"

#include "base/thread.h"
#include "plsh/attention.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a system that has only so many threads ---- */

#ifndef TEST_SANITIZED /* which have a pthread_create of their own */
static atomic_int alive, allowed = 1 << 20;

typedef struct start {
    void *(*function)(void *);
    void *context;
} start;

static void *run_counted(void *context) {
    start given = *(start *)context;
    free(context);
    void *result = given.function(given.context);
    atomic_fetch_sub(&alive, 1);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *context) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (atomic_fetch_add(&alive, 1) >= atomic_load(&allowed)) {
        atomic_fetch_sub(&alive, 1);
        return EAGAIN;
    }
    start *given = malloc(sizeof *given);
    *given = (start){function, context};
    return real(thread, attributes, run_counted, given);
}
#endif

static plsh_status attend(int threads) {
    static float x[64 * 8], o[64 * 8];
    const plsh_decay decay = {.kind = PLSH_DECAY_ALIBI, .a = 8};
    const plsh_head head = plsh_head_default(PLSH_METHOD_DENSE, &decay);
    const plsh_attention a = {.heads = 1,
                              .queries = 64,
                              .keys = 64,
                              .head_dim = 8,
                              .head = &head,
                              .head_count = 1,
                              .threads = threads};
    return plsh_attend(&a, x, x, x, o, NULL, NULL);
}

#ifndef TEST_SANITIZED
static void *attend_afresh(void *context) {
    int *most = context;
    *most = plsh_thread_team(64);
    return attend(64) == PLSH_STATUS_OK ? context : NULL;
}
#endif

/* Were a thread missing that OpenMP asks for, it would end the process. */
static void test_fewer_threads(void **state) {
    (void)state;
#ifdef TEST_SANITIZED
    test_skip("the sanitizer has a pthread_create of its own");
#else
    for (int left = 0; left <= 8; left += 4) {
        pthread_t thread;
        int most = 0;
        void *result;
        atomic_store(&allowed, atomic_load(&alive) + 1 + left); /* one for the thread itself */
        assert_int_equal(pthread_create(&thread, NULL, attend_afresh, &most), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        atomic_store(&allowed, 1 << 20);
        assert_ptr_equal(result, &most);
        assert_int_equal(most, 1 + left / 2);
    }
    assert_int_equal(plsh_thread_team(3), 3);
    assert_int_equal(plsh_thread_team(2), 2);
    assert_int_equal(plsh_thread_team(1), 1);
#endif
}

/* A child of a process with threads has one; it does not wait for those it lost. */
static void test_fork(void **state) {
    (void)state;
    assert_int_equal(attend(2), PLSH_STATUS_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a child that hangs is ended by this */
        bool good = plsh_thread_team(2) == 1 && attend(2) == PLSH_STATUS_OK;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(attend(2), PLSH_STATUS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewer_threads),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
