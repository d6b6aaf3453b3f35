/* tests: the pool of threads: every chunk runs once, also if workers are delayed or missing. */
#include "support/support.h"

#include "base/thread.h"
#include "plsh/attention.h"

#include <fenv.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A test that hangs is ended by this. */
enum { SECONDS = 120 };

static int begin_test(void **state) {
    (void)state;
    alarm(SECONDS);
    return 0;
}

static int end_test(void **state) {
    (void)state;
    plsh_thread_watch(NULL);
    alarm(0);
    return 0;
}

/* A function in a child process: its exit code. */
static int run_in_child(int (*function)(void)) {
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(function());
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

enum { MOST_SLOTS = 80 };

/* How often each chunk ran, and that no slot was in two at once. */
typedef struct record {
    int64_t chunks;
    int threads;
    atomic_uchar *times;
    atomic_bool busy[MOST_SLOTS];
    atomic_int wrong;
    int work; /* of a chunk */
} record;

static void run_chunk(void *context, int64_t chunk, int slot) {
    record *r = context;
    if (chunk < 0 || chunk >= r->chunks || slot < 0 || slot >= r->threads) {
        atomic_fetch_add(&r->wrong, 1);
        return;
    }
    if (atomic_exchange(&r->busy[slot], true)) atomic_fetch_add(&r->wrong, 1);
    for (volatile int i = 0; i < r->work; i++) continue;
    atomic_fetch_add(&r->times[chunk], 1);
    atomic_store(&r->busy[slot], false);
}

/* Does a job run each of its chunks once? */
static bool check_job(int threads, int64_t chunks, int work) {
    record r = {.chunks = chunks, .threads = threads, .work = work};
    r.times = calloc((size_t)chunks + 1, sizeof *r.times);
    plsh_thread_run(threads, chunks, run_chunk, &r);
    bool good = atomic_load(&r.wrong) == 0;
    for (int64_t i = 0; i < chunks; i++) good = good && atomic_load(&r.times[i]) == 1;
    free((void *)r.times);
    return good;
}

static void test_every_chunk_once(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 7, 16, 70};
    static const int64_t chunks[] = {0, 1, 2, 3, 16, 100, 4095, 8190, 8191, 12285, 12286, 200000};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            assert_true(check_job(threads[t], chunks[c], 10));
    for (int i = 0; i < 1000; i++) assert_true(check_job(2 + i % 3, 1 + i % 40, i % 200));
    assert_true(plsh_thread_workers() >= 15);
}

/* No thread is created for a job of one thread. */
static int use_none(void) {
    return check_job(1, 100, 10) && check_job(8, 1, 10) && check_job(8, 0, 10)
               ? plsh_thread_workers()
               : 99;
}

static void test_no_thread_without_use(void **state) {
    (void)state;
    assert_int_equal(run_in_child(use_none), 0);
}

typedef struct rows_record {
    atomic_uchar times[1000];
    atomic_int chunks;
} rows_record;

static void run_rows(void *context, int64_t first, int64_t end, int slot) {
    rows_record *r = context;
    (void)slot;
    atomic_fetch_add(&r->chunks, 1);
    for (int64_t i = first; i < end; i++) atomic_fetch_add(&r->times[i], 1);
}

static void test_rows(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++)
        for (int64_t rows = 0; rows <= 1000; rows += 1 + rows / 3)
            for (int64_t least = 0; least <= 64; least += 8) {
                rows_record r = {0};
                plsh_thread_rows(threads, rows, least, run_rows, &r);
                for (int64_t i = 0; i < 1000; i++) assert_int_equal(r.times[i], i < rows);
                int chunks = atomic_load(&r.chunks);
                assert_true(chunks <= threads * PLSH_THREAD_CHUNKS && (threads > 1 || chunks <= 1));
                assert_true(chunks <= 1 || rows / chunks >= least);
            }
}

/* ---- Jobs inside chunks ---------------------------------------------------------------------- */

typedef struct nest {
    pthread_t thread;
    atomic_int inner, wrong;
} nest;

static void run_inner(void *context, int64_t chunk, int slot) {
    nest *n = context;
    (void)chunk;
    atomic_fetch_add(&n->inner, 1);
    if (slot != 0 || !pthread_equal(n->thread, pthread_self())) atomic_fetch_add(&n->wrong, 1);
}

static void run_outer(void *context, int64_t chunk, int slot) {
    atomic_int *sums = context;
    nest n = {.thread = pthread_self()};
    (void)chunk;
    (void)slot;
    plsh_thread_run(4, 10, run_inner, &n);
    atomic_fetch_add(&sums[0], atomic_load(&n.inner));
    atomic_fetch_add(&sums[1], atomic_load(&n.wrong));
}

static void test_nested(void **state) {
    (void)state;
    atomic_int sums[2] = {0};
    plsh_thread_run(3, 50, run_outer, sums);
    assert_int_equal(sums[0], 500);
    assert_int_equal(sums[1], 0);
    assert_true(check_job(3, 20, 10)); /* and the next is not taken for one inside */
}

/* ---- Many callers, random sleeps ------------------------------------------------------------- */

enum { CALLERS = 80 }; /* more than there are desks */

static void *call_often(void *context) {
    unsigned seed = (unsigned)(size_t)context;
    for (int i = 0; i < 40; i++)
        if (!check_job(1 + rand_r(&seed) % 5, rand_r(&seed) % 50, rand_r(&seed) % 500))
            return (void *)1;
    return NULL;
}

static void check_callers(int callers) {
    pthread_t thread[CALLERS];
    for (int i = 0; i < callers; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, (void *)(size_t)i), 0);
    for (int i = 0; i < callers; i++) {
        void *bad;
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
}

static void test_many_callers(void **state) {
    (void)state;
    check_callers(2);
    check_callers(8);
    check_callers(CALLERS);
}

static void sleep_at_random(plsh_thread_event event) {
    static _Thread_local unsigned seed;
    if (seed == 0) seed = (unsigned)(size_t)&seed | 1;
    unsigned draw = (unsigned)rand_r(&seed);
    if (draw % 8 == 0) usleep(draw / 8 % (event == PLSH_THREAD_SEES ? 2000 : 300));
}

static void test_random_sleeps(void **state) {
    (void)state;
    plsh_thread_watch(sleep_at_random);
    for (int i = 0; i < 300; i++) assert_true(check_job(2 + i % 6, 1 + i % 30, 100));
    check_callers(6);
}

/* The bits of both passes do not depend on which threads sleep. */
static void attend(int threads, float *out) {
    enum { N = 300, D = 8, HEADS = 4 };
    static float x[HEADS * N * D], o[HEADS * N * D], lse[HEADS * N];
    for (int i = 0; i < HEADS * N * D; i++) x[i] = (float)((i * 7919) % 1000) / 500 - 1;
    plsh_head head[HEADS];
    for (int h = 0; h < HEADS; h++) {
        const plsh_decay decay = {.kind = PLSH_DECAY_ALIBI, .a = 8 + h};
        head[h] = plsh_head_default(h % 2 ? PLSH_METHOD_DENSE : PLSH_METHOD_EXACT, &decay);
    }
    const plsh_attention a = {.heads = HEADS,
                              .kv_heads = 2,
                              .queries = N,
                              .keys = N,
                              .head_dim = D,
                              .causal = true,
                              .head = head,
                              .head_count = HEADS,
                              .threads = threads};
    plsh_plan *plan;
    plsh_error error;
    assert_ok(plsh_plan_create(&a, &plan, &error));
    void *memory = NULL;
    size_t forward = plsh_plan_workspace(plan), backward = plsh_plan_backward_workspace(plan);
    assert_int_equal(posix_memalign(&memory, 64, forward > backward ? forward : backward), 0);
    const plsh_forward f = {.q = x, .k = x, .v = x, .o = o, .lse = lse};
    assert_ok(plsh_plan_forward(plan, &f, memory, NULL, &error));
    const plsh_backward b = {.q = x,
                             .k = x,
                             .v = x,
                             .o = o,
                             .lse = lse,
                             .d_o = x,
                             .d_q = out,
                             .d_k = out + HEADS * N * D,
                             .d_v = out + 2 * HEADS * N * D};
    assert_ok(plsh_plan_backward(plan, &b, memory, NULL, &error));
    memcpy(out + 3 * HEADS * N * D, o, sizeof o);
    free(memory);
    plsh_plan_destroy(plan);
}

static void test_same_bits(void **state) {
    (void)state;
    enum { COUNT = 4 * 4 * 300 * 8 };
    static float alone[COUNT], together[COUNT];
    attend(1, alone);
    plsh_thread_watch(sleep_at_random);
    for (int threads = 2; threads <= 5; threads++)
        for (int i = 0; i < 4; i++) {
            attend(threads, together);
            assert_memory_equal(alone, together, sizeof alone);
        }
}

/* ---- Delayed workers ------------------------------------------------------------------------- */

static pthread_t caller;
static atomic_bool held_open;
static atomic_int held_at, held; /* a plsh_thread_event; workers that are held there now */

/* Holds every thread but the caller at one event. */
static void hold(plsh_thread_event event) {
    if ((int)event != atomic_load(&held_at) || pthread_equal(caller, pthread_self())) return;
    atomic_fetch_add(&held, 1);
    while (!atomic_load(&held_open)) usleep(100);
    atomic_fetch_sub(&held, 1);
}

static void hold_workers(plsh_thread_event event) {
    caller = pthread_self();
    atomic_store(&held_open, false);
    atomic_store(&held_at, event);
    plsh_thread_watch(hold);
}

static void let_workers_go(void) {
    atomic_store(&held_open, true);
    while (atomic_load(&held) > 0) usleep(100);
    plsh_thread_watch(NULL);
}

static void touch(void *context, int64_t chunk, int slot) {
    atomic_int *times = context;
    (void)slot;
    atomic_fetch_add(&times[chunk], 1);
}

/* The caller waits until a worker is held. */
static void touch_and_wait(void *context, int64_t chunk, int slot) {
    touch(context, chunk, slot);
    while (slot == 0 && atomic_load(&held) == 0 && !atomic_load(&held_open)) usleep(100);
}

/* A job ends without a worker that has claimed no chunk, wherever that worker is held. So does the
 * next job. When the worker continues, it does not see the first job. */
static void check_held(plsh_thread_event event) {
    enum { CHUNKS = 16 };
    atomic_int first[CHUNKS] = {0}, second[CHUNKS] = {0}, third[CHUNKS] = {0};
    assert_true(check_job(2, CHUNKS, 10)); /* there is a worker */
    hold_workers(event);
    plsh_thread_run(2, CHUNKS, event == PLSH_THREAD_SLEEPS ? touch : touch_and_wait, first);
    while (atomic_load(&held) == 0) usleep(100);
    for (int i = 0; i < CHUNKS; i++) assert_int_equal(first[i], 1);
    plsh_thread_run(2, CHUNKS, touch, second);
    for (int i = 0; i < CHUNKS; i++) assert_int_equal(second[i], 1);
    let_workers_go();
    for (int i = 0; i < 100; i++) plsh_thread_run(2, CHUNKS, touch, third);
    for (int i = 0; i < CHUNKS; i++) {
        assert_int_equal(first[i] + second[i], 2);
        assert_int_equal(third[i], 100);
    }
}

static int hold_the_first(void) {
    atomic_int times[16] = {0};
    hold_workers(PLSH_THREAD_STARTS);
    plsh_thread_run(2, 16, touch, times);
    for (int i = 0; i < 16; i++)
        if (times[i] != 1) return 1;
    return 0;
}

static void test_never_waits_for_who_has_not_started(void **state) {
    (void)state;
    assert_int_equal(run_in_child(hold_the_first), 0);
}

static void test_never_waits_for_who_has_not_come(void **state) {
    (void)state;
    check_held(PLSH_THREAD_LOOKS);
    check_held(PLSH_THREAD_SEES);
    check_held(PLSH_THREAD_SLEEPS);
}

static void *let_go_soon(void *context) {
    (void)context;
    while (atomic_load(&held) == 0) usleep(100);
    usleep(20000); /* longer than callers spin */
    atomic_store(&held_open, true);
    return NULL;
}

/* The caller waits for claimed chunks, also when it sleeps. */
static void test_waits_for_what_is_claimed(void **state) {
    (void)state;
    static const plsh_thread_event events[] = {PLSH_THREAD_CLAIMED, PLSH_THREAD_FINISHED};
    for (int i = 0; i < 2; i++) {
        atomic_int times[4] = {0};
        pthread_t other;
        hold_workers(events[i]);
        assert_int_equal(pthread_create(&other, NULL, let_go_soon, NULL), 0);
        plsh_thread_run(2, 4, touch_and_wait, times);
        for (int c = 0; c < 4; c++) assert_int_equal(times[c], 1);
        assert_true(atomic_load(&held_open)); /* not before the worker was let go */
        pthread_join(other, NULL);
        let_workers_go();
    }
}

/* ---- Fork, exit, threads that cannot be made ------------------------------------------------- */

/* The thread sanitizer knows no new threads in the child of a process with threads. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { IN_CHILD = 0 };
#else
enum { IN_CHILD = 2 };
#endif

static int work_in_child(void) {
    if (plsh_thread_workers() != 0) return 1;
    plsh_thread_limit(IN_CHILD);
    for (int i = 0; i < 50; i++)
        if (!check_job(3, 20, 100)) return 2;
    return plsh_thread_workers() == IN_CHILD ? 0 : 3;
}

static void test_fork(void **state) {
    (void)state;
    assert_true(check_job(4, 20, 100));
    assert_int_equal(run_in_child(work_in_child), 0);
    assert_true(check_job(4, 20, 100));
}

/* ---- A job of the parent that the child must not run ------------------------------------------
 */

static pid_t parent;
static atomic_bool parent_ends;
static atomic_int parent_began, strays;

static void wait_in_parent(void *context, int64_t chunk, int slot) {
    (void)context, (void)chunk, (void)slot;
    if (getpid() != parent) {
        atomic_fetch_add(&strays, 1);
        return;
    }
    atomic_fetch_add(&parent_began, 1);
    while (!atomic_load(&parent_ends)) usleep(100);
}

/* More seats than there are workers, and chunks for all of them. */
static void *hold_a_job(void *context) {
    (void)context;
    plsh_thread_run(plsh_thread_workers() + 10, 4000, wait_in_parent, NULL);
    return NULL;
}

static void post_late(plsh_thread_event event) {
    if (event == PLSH_THREAD_POSTS) usleep(20000);
}

static int post_after_workers_look(void) {
    plsh_thread_watch(post_late);
    const int found = work_in_child();
    return found == 0 && atomic_load(&strays) > 0 ? 4 : found;
}

static void test_fork_inside_a_job(void **state) {
    (void)state;
    pthread_t holder;
    parent = getpid();
    assert_true(check_job(3, 20, 100));
    plsh_thread_limit(plsh_thread_workers());
    assert_int_equal(pthread_create(&holder, NULL, hold_a_job, NULL), 0);
    while (atomic_load(&parent_began) == 0) usleep(100);
    const int found = run_in_child(post_after_workers_look);
    atomic_store(&parent_ends, true);
    pthread_join(holder, NULL);
    plsh_thread_limit(PLSH_THREADS_MAX);
    assert_int_equal(found, 0);
}

static void *fork_often(void *context) {
    (void)context;
    for (int i = 0; i < 5; i++)
        if (run_in_child(work_in_child) != 0) return (void *)1;
    return NULL;
}

/* A child of a process whose other threads are inside jobs. */
static void test_fork_beside_jobs(void **state) {
    (void)state;
    pthread_t forker, other;
    void *bad;
    assert_int_equal(pthread_create(&other, NULL, call_often, (void *)5), 0);
    assert_int_equal(pthread_create(&forker, NULL, fork_often, NULL), 0);
    check_callers(2);
    pthread_join(forker, &bad);
    assert_null(bad);
    pthread_join(other, &bad);
    assert_null(bad);
}

static void exit_from_chunk(void *context, int64_t chunk, int slot) {
    (void)context;
    (void)slot;
    if (chunk == 7) exit(3);
    usleep(1000);
}

static int exit_idle(void) {
    if (!check_job(4, 20, 100)) return 1;
    usleep(2000); /* asleep */
    exit(3);
}

static int exit_inside(void) {
    plsh_thread_run(4, 100, exit_from_chunk, NULL);
    return 1;
}

/* Threads that wait or work do not hold up the end of the process. */
static void test_exit(void **state) {
    (void)state;
    assert_int_equal(run_in_child(exit_idle), 3);
    for (int i = 0; i < 5; i++) assert_int_equal(run_in_child(exit_inside), 3);
}

static int make_few(int can, int wanted) {
    plsh_thread_limit(can);
    for (int i = 0; i < 10; i++)
        if (!check_job(wanted, 50, 100)) return 1;
    return plsh_thread_workers() == (can < wanted ? can : wanted - 1) ? 0 : 2;
}

static int make_none(void) { return make_few(0, 4); }
static int make_two(void) { return make_few(2, 8); }

/* Workers are created once that is possible again. */
static int make_later(void) {
    if (make_few(1, 4) != 0) return 1;
    plsh_thread_limit(PLSH_THREADS_MAX);
    while (plsh_thread_workers() < 3) {
        if (!check_job(4, 50, 100)) return 2;
        usleep(10000);
    }
    return 0;
}

static void test_fewer_threads(void **state) {
    (void)state;
    assert_int_equal(run_in_child(make_none), 0);
    assert_int_equal(run_in_child(make_two), 0);
    assert_int_equal(run_in_child(make_later), 0);
}

/* ---- State that a worker takes from the caller ----------------------------------------------- */

typedef struct manners {
    atomic_int rounded, signals, others;
    pthread_t caller;
} manners;

static void look_at_manners(void *context, int64_t chunk, int slot) {
    manners *m = context;
    volatile float three = 3, third = 1 / three;
    sigset_t blocked;
    (void)chunk;
    (void)slot;
    if (third * three > 1 || third > 0.33333334f) atomic_fetch_add(&m->rounded, 1);
    if (pthread_equal(pthread_self(), m->caller)) return;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    atomic_fetch_add(&m->others, 1);
    if (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM))
        atomic_fetch_add(&m->signals, 1);
}

/* In every job workers have the rounding mode of the caller; they handle no signals. */
static void test_manners(void **state) {
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    for (int i = 0; i < 4; i++) {
        manners m = {.caller = pthread_self()};
        const bool up = modes[i] == FE_UPWARD;
        for (int tries = 0; tries < 100 && (atomic_load(&m.others) == 0 || tries < 5); tries++) {
            atomic_store(&m.rounded, 0);
            fesetround(modes[i]);
            plsh_thread_run(3, 2000, look_at_manners, &m);
            fesetround(FE_TONEAREST);
            assert_int_equal(m.rounded, up ? 2000 : 0);
        }
        assert_int_equal(m.signals, 0);
    }
}

/* ---- The default number ---------------------------------------------------------------------- */

static void set_environment(const char *name, const char *value) {
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void check_default(const char *plsh, const char *omp, int threads, const char *source) {
    plsh_error error;
    set_environment("PLSH_THREADS", plsh);
    set_environment("OMP_NUM_THREADS", omp);
    assert_ok(plsh_thread_set_default(0, &error));
    if (threads > 0) assert_int_equal(plsh_thread_count(0), threads);
    if (source != NULL) assert_string_equal(plsh_thread_default_source(), source);
}

static void test_default(void **state) {
    (void)state;
    plsh_error error;
    const char *outer = getenv("OMP_NUM_THREADS"), *own = getenv("PLSH_THREADS");
    char kept[2][64] = {"", ""};
    if (outer) snprintf(kept[0], sizeof kept[0], "%s", outer);
    if (own) snprintf(kept[1], sizeof kept[1], "%s", own);
    check_default("3", "5", 3, "PLSH_THREADS");
    check_default(NULL, "5", 5, "OMP_NUM_THREADS");
    check_default(NULL, "6,2", 6, "OMP_NUM_THREADS");
    check_default("4096", NULL, 4096, "PLSH_THREADS");
    static const char *const bad[] = {"",    "0",  "-1", "4097", "99999999999999999999",
                                      "two", "2x", "2 ", "1.5",  "3,2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_default(bad[i], "7", 7, "OMP_NUM_THREADS");
    for (size_t i = 0; i < 9; i++) {
        check_default(NULL, bad[i], 0, NULL);
        assert_true(strcmp(plsh_thread_default_source(), "affinity") == 0 ||
                    strcmp(plsh_thread_default_source(), "cgroup") == 0);
        assert_in_range(plsh_thread_count(0), 1, plsh_processors_of_affinity());
    }
    assert_ok(plsh_thread_set_default(9, &error));
    assert_int_equal(plsh_thread_count(0), 9);
    assert_int_equal(plsh_thread_count(2), 2);
    assert_int_equal(plsh_thread_count(1 << 20), PLSH_THREADS_MAX);
    assert_string_equal(plsh_thread_default_source(), "plsh_thread_set_default");
    assert_int_equal(plsh_thread_set_default(-1, &error), PLSH_STATUS_INVALID);
    assert_string_equal(error.message, "threads is -1; 0 to 4096");
    assert_int_equal(plsh_thread_set_default(4097, NULL), PLSH_STATUS_INVALID);
    check_default(own ? kept[1] : NULL, outer ? kept[0] : NULL, 0, NULL);
}

/* ---- Quotas ---------------------------------------------------------------------------------- */

static char root[256];

static int remove_one(const char *path, const struct stat *state, int kind, struct FTW *at) {
    (void)state;
    (void)kind;
    (void)at;
    return remove(path);
}

static void write_under_root(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_quota(void **state) {
    (void)state;
    strcpy(root, "thread-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(plsh_processors_of_quota(root), 0); /* nothing there */
    write_under_root("proc/self/cgroup", "0::/a/b\n");
    write_under_root("proc/self/mountinfo",
                     "22 1 0:20 / /proc rw shared:5 - proc proc rw\n"
                     "30 22 0:26 / /cg2 rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    assert_int_equal(plsh_processors_of_quota(root), 0);
    write_under_root("cg2/a/b/cpu.max", "max 100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 0);
    write_under_root("cg2/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 3); /* rounded up */
    write_under_root("cg2/a/cpu.max", "200000 100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 2); /* the group above */
    write_under_root("cg2/a/b/cpu.max", "1000 100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 1);
    write_under_root("cg2/a/b/cpu.max", "-5 what\n");
    assert_int_equal(plsh_processors_of_quota(root), 2);
    /* Version 1, mounted from within a container. */
    write_under_root("proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/docker/x/y\n0::/\n");
    write_under_root("proc/self/mountinfo",
                     "31 22 0:27 /docker/x /cg1/cpuset rw - cgroup cgroup rw,cpuset\n"
                     "32 22 0:28 /docker/x /cg1/cpu rw - cgroup cgroup rw,cpuacct,cpu\n");
    write_under_root("cg1/cpuset/y/cpu.cfs_quota_us", "100000\n");
    write_under_root("cg1/cpuset/y/cpu.cfs_period_us", "100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 0); /* another controller's */
    write_under_root("cg1/cpu/y/cpu.cfs_quota_us", "-1\n");
    write_under_root("cg1/cpu/y/cpu.cfs_period_us", "100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 0);
    write_under_root("cg1/cpu/cpu.cfs_quota_us", "350000\n");
    write_under_root("cg1/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(plsh_processors_of_quota(root), 4);
    write_under_root("cg1/cpu/y/cpu.cfs_quota_us", "50000\n");
    assert_int_equal(plsh_processors_of_quota(root), 1);
    /* Invalid contents of the files are ignored. */
    write_under_root("proc/self/cgroup", "4:cpu:/\n0::\n:::\n\nx");
    write_under_root("proc/self/mountinfo", " - \n - cgroup\n1 2 3\n- cgroup x cpu\n");
    assert_int_equal(plsh_processors_of_quota(root), 0);
    assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin_test, end_test)

int main(void) {
    const struct CMUnitTest tests[] = {
        /* First those whose children make threads: this process has none. */
        TEST(test_no_thread_without_use),
        TEST(test_exit),
        TEST(test_fewer_threads),
        TEST(test_never_waits_for_who_has_not_started),
        TEST(test_every_chunk_once),
        TEST(test_rows),
        TEST(test_nested),
        TEST(test_many_callers),
        TEST(test_random_sleeps),
        TEST(test_same_bits),
        TEST(test_never_waits_for_who_has_not_come),
        TEST(test_waits_for_what_is_claimed),
        TEST(test_fork),
        TEST(test_fork_inside_a_job),
        TEST(test_fork_beside_jobs),
        TEST(test_manners),
        TEST(test_default),
        TEST(test_quota),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
