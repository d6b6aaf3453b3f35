/* base: the pool of threads.
 *
 * A running job occupies a desk, which holds the function to call and the 64-bit words from which
 * chunks are claimed. Desks are static, and their words contain the number of the job. A late
 * worker therefore finds another number, or no chunks left, and never reads memory of a caller that
 * has returned. A thread reads the rest of the desk only after it has claimed a chunk: the job
 * cannot end before that chunk is done.
 *
 * A thread that waits spins for a while, then sleeps. Spinning is for work that arrives within
 * microseconds, such as the next layer of a model. Sleeping leaves the processor to other programs;
 * a fair scheduler then runs the thread at once when it is woken. */
#include "base/thread.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#if defined(__linux__) && !defined(PLSH_THREAD_PORTABLE)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifdef PLSH_TESTING
static void (*_Atomic watcher)(plsh_thread_event event);

void plsh_thread_watch(void (*hook)(plsh_thread_event event)) { atomic_store(&watcher, hook); }

static void tell(plsh_thread_event event) {
    void (*function)(plsh_thread_event) = atomic_load(&watcher);
    if (function != NULL) function(event);
}
#define TELL(event) tell(event)
#else
#define TELL(event) ((void)0)
#endif

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Sleeps while *word == value, until woken; spurious wakeups are possible. */
#if defined(__linux__) && !defined(PLSH_THREAD_PORTABLE)
static void sleep_on(atomic_uint *word, unsigned value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void forget_sleepers(void) {}
#else
/* One lock for all words: it is taken between changing a word and waking, so no wake is missed. */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;

static void sleep_on(atomic_uint *word, unsigned value) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&sleep_lock);
    if (atomic_load(word) == value) pthread_cond_wait(&woken, &sleep_lock);
    pthread_mutex_unlock(&sleep_lock);
    pthread_setcancelstate(state, NULL);
}

static void wake(atomic_uint *word) {
    (void)word;
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&sleep_lock);
}

static void forget_sleepers(void) {
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&woken, NULL);
}
#endif

static int64_t now(void) { return plsh_clock_read(CLOCK_MONOTONIC); }

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* How long to spin, in nanoseconds. A thread that sleeps is late by 10 to 100 us when it is woken,
 * so on an idle machine spinning continues over the serial parts between two jobs. Where other
 * programs want the processor, spinning takes time from them, and uses up this thread's own share.
 * Measured with bench/busy.py: decoding with 135 million parameters on two Zen 4 cores, speed
 * relative to the fair share, beside one busy loop per processor and beside two. Spinning for 5
 * us: 1.12 and 0.97; 20 us: 0.89 and 0.87; 50 us: 0.87 and 0.84; 1 ms: 0.86 and 0.67. On an idle
 * machine 5 us are 8 % slower than 1 ms. */
enum {
    SPIN_CROWDED = 5000,
    SPIN_ALONE = 1000000,
    WATCHED = 50000000,   /* ns; if a thread did not run for an eighth of it or more, */
    CROWDED = 1000000000, /* ns; it assumes for so long that others want its processor */
    PAUSES = 16           /* spins between two reads of the clock, 1 us or less */
};

static _Atomic int64_t crowded_until;

static bool is_crowded(int64_t time) {
    return time < atomic_load_explicit(&crowded_until, memory_order_relaxed);
}

/* Do other programs want this thread's processor? They do if this thread was ready to run but did
 * not run for a part of the elapsed time. Time asleep does not count: the clocks are read again
 * after waking. */
static void look_for_others(int64_t time) {
#ifdef RUSAGE_THREAD
    static _Thread_local int64_t last_time, last_used, last_slept, passed, lost;
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0) return;
    const int64_t used = plsh_clock_read(CLOCK_THREAD_CPUTIME_ID); /* in `usage`: steps of 4 ms */
    if (last_slept == usage.ru_nvcsw && last_time > 0) {
        passed += time - last_time;
        lost += time - last_time - (used - last_used);
    }
    last_time = time;
    last_used = used;
    last_slept = usage.ru_nvcsw;
    if (passed < WATCHED) return;
    if (lost > passed / 8)
        atomic_store_explicit(&crowded_until, time + CROWDED, memory_order_relaxed);
    passed = lost = 0;
#else
    (void)time;
#endif
}

/* Spins until *word is not `value` (with `until_zero`: until it is 0); false after the time
 * limit. */
static bool spin_on(const atomic_uint *word, unsigned value, bool until_zero) {
    const int64_t begin = now();
    bool looked = false;
    for (int64_t time = begin; time < begin + SPIN_ALONE; time = now()) {
        if (!looked && time >= begin + SPIN_CROWDED) {
            look_for_others(time);
            if (is_crowded(time)) return false;
            looked = true;
        }
        for (int i = 0; i < PAUSES; i++) {
            const unsigned seen = atomic_load_explicit(word, memory_order_acquire);
            if (until_zero ? seen == 0 : seen != value) return true;
            pause_briefly();
        }
    }
    return false;
}

/* ---- Rounding and underflow ------------------------------------------------------------------ */

/* A worker uses the rounding mode of the caller, which may flush denormal numbers to zero: the bits
 * must not depend on the thread that runs a chunk. */
#if defined(__x86_64__)
static uint64_t get_rounding(void) { return __builtin_ia32_stmxcsr() & ~63u; } /* without flags */
static void set_rounding(uint64_t mode) { __builtin_ia32_ldmxcsr((unsigned)mode); }
#elif defined(__aarch64__)
static uint64_t get_rounding(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void set_rounding(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
static uint64_t get_rounding(void) { return 0; }
static void set_rounding(uint64_t mode) { (void)mode; }
#endif

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* The chunks of a job are divided into lanes of consecutive chunks. A slot takes chunks from the
 * front of its own lane, so that it reads memory in order, and from the ends of other lanes when
 * its own is empty. (A single counter, with neighbouring chunks on different threads, made decoding
 * 7 % slower.)
 *
 * Words carry the number of the job, 40 bits of it: a number is reused only after 2^40 jobs, so a
 * delayed thread cannot take a new job for an old one. */
enum { COUNT_BITS = 12, MOST = (1 << COUNT_BITS) - 1, LANES = 64 };

typedef struct lane {
    _Alignas(64) _Atomic uint64_t left; /* job; next piece and end, from the lane's first */
} lane;

typedef struct desk {
    _Alignas(64) _Atomic uint64_t seats; /* job, seats that workers have taken, and all */
    /* Twice the number of unfinished pieces, plus 1 while the caller sleeps. */
    _Alignas(64) atomic_uint pending;
    plsh_thread_function function;
    void *context;
    int64_t chunks, each; /* chunks of a piece: 1, or more where a job has very many */
    unsigned pieces;
    uint64_t rounding;
    lane lane[LANES];
} desk;

_Static_assert(PLSH_THREADS_MAX - 1 <= MOST, "the seats of a job fit");

static uint64_t make_word(uint64_t job, unsigned first, unsigned second) {
    return job << 2 * COUNT_BITS | (uint64_t)first << COUNT_BITS | second;
}
static uint64_t job_of(uint64_t word) { return word >> 2 * COUNT_BITS; }
static unsigned first_of(uint64_t word) { return (unsigned)(word >> COUNT_BITS & MOST); }
static unsigned second_of(uint64_t word) { return (unsigned)(word & MOST); }

/* A thread at a desk. */
typedef struct participant {
    desk *desk;
    uint64_t job;
    unsigned slot, lanes;
} participant;

static unsigned lanes_of(unsigned seats) { return seats < LANES ? seats + 1 : LANES; }

/* The first piece of a lane. */
static unsigned lane_begin(unsigned pieces, unsigned lanes, unsigned number) {
    return (unsigned)((uint64_t)pieces * number / lanes);
}

enum { DESKS = 64 }; /* bits of `used`; further callers at once run their jobs alone */

typedef struct worker {
    _Alignas(64) atomic_uint asleep;
    pthread_t thread;
} worker;

static struct {
    _Alignas(64) _Atomic uint64_t used; /* desks with a job */
    _Alignas(64) atomic_uint posted;    /* jobs so far: what idle workers look at */
    _Alignas(64) atomic_int spinning, sleeping;
    atomic_int workers, wanted; /* wanted: seats of all jobs */
    atomic_bool stopped;
    int processors;
    int64_t retry; /* creating a thread failed: the next attempt is not before this time */
    pthread_mutex_t making;
    desk desk[DESKS];
    worker worker[PLSH_THREADS_MAX];
} pool = {.making = PTHREAD_MUTEX_INITIALIZER};

/* Is this thread inside a chunk? */
static _Thread_local bool inside;

static void run_piece(const desk *d, unsigned piece, int slot) {
    const int64_t first = (int64_t)piece * d->each;
    const int64_t end = d->chunks - first < d->each ? d->chunks : first + d->each;
    for (int64_t chunk = first; chunk < end; chunk++) d->function(d->context, chunk, slot);
}

/* Claims a piece of a lane, if the job still has one there. *piece is counted from the lane's
 * first. */
static bool claim_from(lane *from, const participant *at, bool own, unsigned *piece) {
    uint64_t seen = atomic_load_explicit(&from->left, memory_order_relaxed);
    while (job_of(seen) == at->job && first_of(seen) < second_of(seen)) {
        if (at->slot > 0) TELL(PLSH_THREAD_SEES);
        const uint64_t then = own ? seen + (UINT64_C(1) << COUNT_BITS) : seen - 1;
        *piece = own ? first_of(seen) : second_of(then);
        if (atomic_compare_exchange_weak_explicit(&from->left, &seen, then, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

static bool claim(const participant *at, unsigned *piece) {
    const unsigned own = at->slot % at->lanes;
    for (unsigned i = 0; i < at->lanes; i++) {
        const unsigned number = (own + i) % at->lanes;
        if (!claim_from(&at->desk->lane[number], at, i == 0, piece)) continue;
        *piece += lane_begin(at->desk->pieces, at->lanes, number);
        return true;
    }
    return false;
}

/* Runs all pieces that can be claimed and returns their number. They are counted as finished
 * together at the end: until then the job cannot end. */
static unsigned run_claims(const participant *at) {
    unsigned done = 0, piece;
    while (claim(at, &piece)) {
        TELL(PLSH_THREAD_CLAIMED);
        if (done == 0 && at->slot > 0 && get_rounding() != at->desk->rounding)
            set_rounding(at->desk->rounding);
        inside = true;
        run_piece(at->desk, piece, (int)at->slot);
        inside = false;
        done++;
        TELL(PLSH_THREAD_FINISHED);
        if (at->slot > 0 && atomic_load_explicit(&pool.stopped, memory_order_relaxed)) break;
    }
    return done;
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* Joins the job. The caller does not wait for a thread that has joined but claimed no chunk. */
static bool take_seat(desk *d, participant *at) {
    uint64_t seen = atomic_load_explicit(&d->seats, memory_order_acquire);
    while (first_of(seen) < second_of(seen)) {
        if (!atomic_compare_exchange_weak_explicit(&d->seats, &seen,
                                                   seen + (UINT64_C(1) << COUNT_BITS),
                                                   memory_order_acquire, memory_order_acquire))
            continue;
        *at = (participant){d, job_of(seen), first_of(seen) + 1, lanes_of(second_of(seen))};
        return true;
    }
    return false;
}

static bool work_at(desk *d) {
    participant at;
    if (!take_seat(d, &at)) return false;
    const unsigned done = run_claims(&at);
    if (done > 0 && atomic_fetch_sub(&d->pending, 2 * done) == 2 * done + 1) wake(&d->pending);
    return done > 0;
}

/* Looks at all desks; each worker starts at a different one. */
static bool work_somewhere(int number) {
    const uint64_t used = atomic_load_explicit(&pool.used, memory_order_relaxed);
    const int first = number % DESKS;
    bool worked = false;
    for (uint64_t left = used >> first | used << (DESKS - first) % DESKS; left != 0;
         left &= left - 1)
        worked = work_at(&pool.desk[(first + __builtin_ctzll(left)) % DESKS]) || worked;
    return worked;
}

static void sleep_until_posted(worker *self, unsigned seen) {
    unsigned yes = 1;
    TELL(PLSH_THREAD_SLEEPS);
    atomic_store(&self->asleep, 1);
    atomic_fetch_add(&pool.sleeping, 1);
    if (atomic_load(&pool.posted) == seen && !atomic_load(&pool.stopped)) {
        while (atomic_load(&self->asleep) == 1) sleep_on(&self->asleep, 1);
        look_for_others(now());
    } else if (atomic_compare_exchange_strong(&self->asleep, &yes, 0)) {
        atomic_fetch_sub(&pool.sleeping, 1);
    }
}

/* At most as many threads spin as there are processors besides the caller's. */
static void wait_for_job(int number, unsigned seen) {
    if (number + 1 < pool.processors) {
        atomic_fetch_add(&pool.spinning, 1);
        const bool came = spin_on(&pool.posted, seen, false);
        atomic_fetch_sub(&pool.spinning, 1);
        if (came) return;
    }
    sleep_until_posted(&pool.worker[number], seen);
}

static void *live(void *context) {
    worker *self = context;
    const int number = (int)(self - pool.worker);
    TELL(PLSH_THREAD_STARTS);
    while (!atomic_load(&pool.stopped)) {
        const unsigned seen = atomic_load(&pool.posted);
        TELL(PLSH_THREAD_LOOKS);
        if (!work_somewhere(number)) wait_for_job(number, seen);
    }
    return NULL;
}

/* Wakes one worker; the thread that changes its `asleep` from 1 to 0 decrements the count. */
static bool wake_worker(worker *which) {
    unsigned yes = 1;
    if (!atomic_compare_exchange_strong(&which->asleep, &yes, 0)) return false;
    atomic_fetch_sub(&pool.sleeping, 1);
    wake(&which->asleep);
    return true;
}

static void wake_workers(int seats) {
    int missing = seats - atomic_load(&pool.spinning);
    const int workers = atomic_load(&pool.workers);
    for (int i = 0; i < workers && missing > 0 && atomic_load(&pool.sleeping) > 0; i++)
        missing -= wake_worker(&pool.worker[i]);
}

/* ---- Making, forking, ending ----------------------------------------------------------------- */

static void before_fork(void) { pthread_mutex_lock(&pool.making); }
static void in_parent(void) { pthread_mutex_unlock(&pool.making); }

/* Jobs that other threads of the parent had posted have no free seat in the child. */
static void clear_seats(desk *d) {
    atomic_store(&d->seats, make_word(job_of(atomic_load(&d->seats)), 0, 0));
}

/* The child has only the calling thread, and no job: chunks must not fork. */
static void in_child(void) {
    pthread_mutex_init(&pool.making, NULL);
    forget_sleepers();
    for (int i = 0; i < DESKS; i++) clear_seats(&pool.desk[i]);
    atomic_store(&pool.used, 0);
    atomic_store(&pool.spinning, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.workers, 0);
    atomic_store(&pool.wanted, 0);
    pool.retry = 0;
}

static void prepare_pool(void) {
    pool.processors = plsh_processors_of_affinity();
    pthread_atfork(before_fork, in_parent, in_child);
}

#ifdef PLSH_TESTING
static atomic_int limit = PLSH_THREADS_MAX;

void plsh_thread_limit(int most) { atomic_store(&limit, most); }
#define CANNOT_MAKE(which) ((which)-pool.worker >= atomic_load(&limit))
#else
#define CANNOT_MAKE(which) 0
#endif

/* Signals are for the threads of the program. */
static bool make_worker(worker *which) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    atomic_store(&which->asleep, 0);
    const int failed = CANNOT_MAKE(which) || pthread_create(&which->thread, NULL, live, which);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return !failed;
}

/* Creates workers for a job of that many seats, and for all jobs together up to the number of
 * processors. After a failure it tries again after RETRY nanoseconds. */
static void make_workers(int seats) {
    enum { RETRY = 1000000000 };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare_pool);
    int most = pool.processors - 1, wanted = atomic_load(&pool.wanted);
    if (most > PLSH_THREADS_MAX) most = PLSH_THREADS_MAX;
    if (wanted > most) wanted = most;
    if (wanted < seats) wanted = seats;
    if (atomic_load(&pool.workers) >= wanted || pthread_mutex_trylock(&pool.making) != 0) return;
    if (pool.retry == 0 || now() > pool.retry) {
        int made = atomic_load(&pool.workers);
        while (!atomic_load(&pool.stopped) && made < wanted && make_worker(&pool.worker[made]))
            atomic_store(&pool.workers, ++made);
        pool.retry = made < wanted ? now() + RETRY : 0;
    }
    pthread_mutex_unlock(&pool.making);
}

/* Also runs when the library is unloaded: no thread may run its code afterwards. */
__attribute__((destructor)) static void stop_workers(void) {
    pthread_mutex_lock(&pool.making);
    atomic_store(&pool.stopped, true);
    atomic_fetch_add(&pool.posted, 1);
    const int workers = atomic_load(&pool.workers);
    for (int i = 0; i < workers; i++) wake_worker(&pool.worker[i]);
    for (int i = 0; i < workers; i++)
        if (!pthread_equal(pthread_self(), pool.worker[i].thread))
            pthread_join(pool.worker[i].thread, NULL);
    atomic_store(&pool.workers, 0);
    pthread_mutex_unlock(&pool.making);
}

#ifdef PLSH_TESTING
int plsh_thread_workers(void) { return atomic_load(&pool.workers); }
#endif

/* ---- Callers --------------------------------------------------------------------------------- */

/* A free desk; NULL where all are taken. */
static desk *take_desk(void) {
    uint64_t used = atomic_load_explicit(&pool.used, memory_order_relaxed);
    while (~used != 0) {
        const int number = __builtin_ctzll(~used);
        if (atomic_compare_exchange_weak(&pool.used, &used, used | UINT64_C(1) << number))
            return &pool.desk[number];
    }
    return NULL;
}

static void leave_desk(const desk *d) {
    atomic_fetch_and(&pool.used, ~(UINT64_C(1) << (d - pool.desk)));
}

/* Puts a job on a desk; the caller has the first seat. */
static participant post(desk *d, int64_t chunks, unsigned seats, plsh_thread_function function,
                        void *context) {
    const uint64_t job = job_of(atomic_load_explicit(&d->seats, memory_order_relaxed)) + 1;
    const participant at = {d, job << 2 * COUNT_BITS >> 2 * COUNT_BITS, 0, lanes_of(seats)};
    d->function = function;
    d->context = context;
    d->chunks = chunks;
    d->each = (chunks - 1) / ((int64_t)MOST * at.lanes) + 1;
    d->pieces = (unsigned)((chunks - 1) / d->each + 1);
    d->rounding = get_rounding();
    atomic_store_explicit(&d->pending, 2 * d->pieces, memory_order_relaxed);
    for (unsigned i = 0; i < at.lanes; i++) {
        const unsigned begin = lane_begin(d->pieces, at.lanes, i);
        atomic_store_explicit(&d->lane[i].left,
                              make_word(at.job, 0, lane_begin(d->pieces, at.lanes, i + 1) - begin),
                              memory_order_release);
    }
    atomic_store_explicit(&d->seats, make_word(at.job, 0, seats), memory_order_release);
    atomic_fetch_add(&pool.posted, 1);
    if (atomic_load(&pool.sleeping) > 0) wake_workers((int)seats);
    return at;
}

/* Waits for the pieces that other threads have claimed. */
static void await_claimed(desk *d) {
    if (spin_on(&d->pending, 0, true)) return;
    unsigned seen = atomic_fetch_or(&d->pending, 1) | 1;
    while (seen != 1) {
        sleep_on(&d->pending, seen);
        seen = atomic_load(&d->pending);
    }
    look_for_others(now());
}

static void run_alone(int64_t chunks, plsh_thread_function function, void *context) {
    for (int64_t chunk = 0; chunk < chunks; chunk++) function(context, chunk, 0);
}

void plsh_thread_run(int threads, int64_t chunks, plsh_thread_function function, void *context) {
    threads = plsh_thread_count(threads);
    desk *d = NULL;
    if (threads > 1 && chunks > 1 && !inside && !atomic_load(&pool.stopped)) d = take_desk();
    if (d == NULL) {
        run_alone(chunks, function, context);
        return;
    }
    const int seats = (chunks < threads ? (int)chunks : threads) - 1;
    atomic_fetch_add(&pool.wanted, seats);
    make_workers(seats);
    TELL(PLSH_THREAD_POSTS);
    const participant at = post(d, chunks, (unsigned)seats, function, context);
    const unsigned done = run_claims(&at);
    if (atomic_fetch_sub(&d->pending, 2 * done) != 2 * done) {
        TELL(PLSH_THREAD_WAITS);
        await_claimed(d);
    }
    atomic_fetch_sub(&pool.wanted, seats);
    leave_desk(d);
}

/* ---- The default number ---------------------------------------------------------------------- */

/* The default number and its source in one word; 0: not determined yet. */
static const char *const sources[] = {"plsh_thread_set_default", "PLSH_THREADS", "OMP_NUM_THREADS",
                                      "affinity", "cgroup"};
enum { SET, FROM_PLSH, FROM_OMP, FROM_AFFINITY, FROM_CGROUP, SOURCES = 8 };
static atomic_int preset;

/* 1 to PLSH_THREADS_MAX at the begin of a text, before its end or a comma; otherwise 0. */
static int parse_threads(const char *text, bool list) {
    char *end;
    if (text == NULL || *text == '\0') return 0;
    errno = 0;
    const long threads = strtol(text, &end, 10);
    const bool whole = *end == '\0' || (list && *end == ',');
    return whole && errno == 0 && threads >= 1 && threads <= PLSH_THREADS_MAX ? (int)threads : 0;
}

static int look_around(void) {
    int threads = parse_threads(getenv("PLSH_THREADS"), false), source = FROM_PLSH;
    if (threads == 0) {
        source = FROM_OMP;
        threads = parse_threads(getenv("OMP_NUM_THREADS"), true);
    }
    if (threads == 0) {
        const int quota = plsh_processors_of_quota("");
        source = FROM_AFFINITY;
        threads = plsh_processors_of_affinity();
        if (quota > 0 && quota < threads) {
            source = FROM_CGROUP;
            threads = quota;
        }
    }
    return (threads < PLSH_THREADS_MAX ? threads : PLSH_THREADS_MAX) * SOURCES + source;
}

/* Two threads that determine it at once find the same; a number that is set meanwhile is kept. */
static int find_preset(void) {
    int found = atomic_load_explicit(&preset, memory_order_relaxed), none = 0;
    if (found != 0) return found;
    found = look_around();
    return atomic_compare_exchange_strong(&preset, &none, found) ? found : none;
}

int plsh_thread_count(int requested) {
    if (requested <= 0) return find_preset() / SOURCES;
    return requested < PLSH_THREADS_MAX ? requested : PLSH_THREADS_MAX;
}

const char *plsh_thread_default_source(void) { return sources[find_preset() % SOURCES]; }

plsh_status plsh_thread_set_default(int threads, plsh_error *error) {
    if (threads < 0 || threads > PLSH_THREADS_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "threads is %d; 0 to %d", threads,
                         PLSH_THREADS_MAX);
    atomic_store(&preset, threads == 0 ? look_around() : threads * SOURCES + SET);
    return PLSH_STATUS_OK;
}
