/* mpi: detects ranks that are stopped or unreachable.
 *
 * MPI does not notice a rank that is stopped or unreachable: the others wait for it forever. So a
 * thread of each rank sends a message to a few neighbours (the PEERS next ones in both directions
 * of a ring) at regular intervals, independently of the other threads. A rank that sent no message
 * within the allowed time counts as lost, and all ranks exit. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/agree.h"
#include "plsh/mpi.h"

enum {
    PEERS = 8,          /* neighbours either way */
    BEATS = 6,          /* messages in the time that is allowed */
    ABORT_SECONDS = 10, /* seconds for MPI_Abort, which may try to reach a host that is gone */
    TAG = 0
};
static const double PAUSE_MOST = 5; /* seconds between messages, at most */
static const double GRACE = 2; /* pauses between the loss of a rank and the end: the last messages
                                * of ranks that are cut off together are up to a pause apart */

/* The kinds of messages. */
enum { BEAT, FAREWELL };

typedef struct peer {
    int rank;
    double heard;        /* time of its last message; INFINITY after its farewell */
    char sending;        /* the message that is being sent, by */
    MPI_Request request; /* this request */
} peer;

struct plsh_mpi_watch {
    MPI_Comm communicator;
    int rank, ranks;
    double seconds, pause;
    plsh_mpi_lost lost;
    void *context;
    peer peer[2 * PEERS];
    int peers;
    pthread_t thread;
    pthread_mutex_t lock; /* of `stop` */
    pthread_cond_t wake;
    bool stop;
};

/* ---- Messages -------------------------------------------------------------------------------- */

static void hear(plsh_mpi_watch *w) {
    int some = 1;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG, w->communicator, &some, &status) == MPI_SUCCESS &&
           some) {
        char received = BEAT;
        if (MPI_Recv(&received, 1, MPI_CHAR, status.MPI_SOURCE, TAG, w->communicator,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        for (int i = 0; i < w->peers; i++)
            if (w->peer[i].rank == status.MPI_SOURCE)
                w->peer[i].heard = received == FAREWELL ? INFINITY : plsh_clock_seconds();
    }
}

/* Sends to every peer whose previous message is delivered and that has no farewell yet. Returns
 * whether all have it. */
static bool speak(plsh_mpi_watch *w, char what) {
    bool all = true;
    for (int i = 0; i < w->peers; i++) {
        peer *p = &w->peer[i];
        int sent = 0;
        MPI_Test(&p->request, &sent, MPI_STATUS_IGNORE);
        if (sent && p->sending != FAREWELL) {
            p->sending = what;
            MPI_Isend(&p->sending, 1, MPI_CHAR, p->rank, TAG, w->communicator, &p->request);
            MPI_Test(&p->request, &sent, MPI_STATUS_IGNORE);
        }
        all &= sent && p->sending == FAREWELL;
    }
    return all;
}

/* ---- Loss ------------------------------------------------------------------------------------ */

static void end_now(int number) {
    (void)number;
    _exit(1);
}

/* Is a rank lost, and for long enough that ranks lost at the same time are known too? */
static bool is_one_lost(const plsh_mpi_watch *w, double time) {
    for (int i = 0; i < w->peers; i++)
        if (time - w->peer[i].heard > w->seconds + GRACE * w->pause) return true;
    return false;
}

/* Writes "2, 3" for the ranks that are lost at `time`; returns their number. */
static int name_lost(const plsh_mpi_watch *w, double time, char *text, size_t size) {
    int count = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < w->ranks; rank++) { /* in their order */
        for (int i = 0; i < w->peers; i++) {
            const peer *p = &w->peer[i];
            if (p->rank != rank || !(time - p->heard > w->seconds) || used >= size) continue;
            used += (size_t)snprintf(text + used, size - used, "%s%d", count ? ", " : "", rank);
            count++;
        }
    }
    return count;
}

/* Is there a live rank with a lower number, which will print the message? */
static bool is_first(const plsh_mpi_watch *w, double time) {
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].rank < w->rank && !(time - w->peer[i].heard > w->seconds)) return false;
    return true;
}

static void end_all(const plsh_mpi_watch *w, int count, const char *names, double time) {
    char message[256];
    snprintf(message, sizeof message,
             "%s %.100s of %d: no sign of life for %g s; stopped, or the link to %s is cut",
             count > 1 ? "ranks" : "rank", names, w->ranks, w->seconds, count > 1 ? "them" : "it");
    const bool speaks = is_first(w, time);
    if (w->lost)
        w->lost(w->context, speaks ? message : NULL);
    else if (speaks)
        fprintf(stderr, "plsh: %s\n", message);
    if (!speaks)
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* time for the message to be forwarded */
    signal(SIGALRM, end_now);
    alarm(ABORT_SECONDS);
    MPI_Abort(w->communicator, 1);
    _exit(1);
}

/* `since`: the time of the previous check. If this rank itself was stopped or had no processor, it
 * received no messages, so the other ranks get the full time again. */
static void check(plsh_mpi_watch *w, double since) {
    const double time = plsh_clock_seconds();
    char names[100];
    for (int i = 0; i < w->peers && time - since > w->seconds / 2; i++)
        if (w->peer[i].heard < time) w->peer[i].heard = time;
    if (is_one_lost(w, time)) end_all(w, name_lost(w, time, names, sizeof names), names, time);
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Waits for the interval, or until the watch is stopped. Returns whether it is stopped. */
static bool rest(plsh_mpi_watch *w, double seconds) {
    const int64_t end = plsh_clock_read(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    const struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    pthread_mutex_lock(&w->lock);
    while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT) continue;
    const bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop;
}

static bool all_said_farewell(const plsh_mpi_watch *w) {
    for (int i = 0; i < w->peers; i++)
        if (isfinite(w->peer[i].heard)) return false;
    return true;
}

static void *watch(void *context) {
    plsh_mpi_watch *w = context;
    double since = plsh_clock_seconds();
    for (bool stop = false, all_told = false; !stop || !all_told || !all_said_farewell(w);) {
        hear(w);
        all_told = speak(w, stop ? FAREWELL : BEAT);
        check(w, since);
        since = plsh_clock_seconds();
        if (stop)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        else
            stop = rest(w, w->pause);
    }
    return NULL;
}

/* ---- Starting and stopping ------------------------------------------------------------------- */

static void add_peer(plsh_mpi_watch *w, int rank) {
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].rank == rank) return;
    if (rank != w->rank)
        w->peer[w->peers++] =
            (peer){.rank = rank, .heard = plsh_clock_seconds(), .request = MPI_REQUEST_NULL};
}

/* Signals are for the program's own threads. */
static int start_thread(plsh_mpi_watch *w) {
    sigset_t all, before;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static plsh_status check_watch(double seconds, plsh_error *error) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (!(seconds > 0) || !(seconds <= 1e9))
        return plsh_fail(error, PLSH_STATUS_INVALID, "a watch of %g s; above 0, to 1e9", seconds);
    if (level < MPI_THREAD_MULTIPLE)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "a watch needs MPI_THREAD_MULTIPLE, which MPI was not started with");
    return PLSH_STATUS_OK;
}

plsh_status plsh_mpi_watch_start(MPI_Comm communicator, double seconds, plsh_mpi_lost lost,
                                 void *context, plsh_mpi_watch **out, plsh_error *error) {
    plsh_mpi_watch *w = NULL;
    *out = NULL;
    plsh_status status = check_watch(seconds, error);
    if (!status) status = plsh_allocate((void **)&w, 1, sizeof *w, "a watch", error);
    status = plsh_mpi_agree(communicator, status, error);
    if (!status && w) {
        *w = (plsh_mpi_watch){.communicator = MPI_COMM_NULL,
                              .seconds = seconds,
                              .pause = fmin(PAUSE_MOST, seconds / BEATS),
                              .lost = lost,
                              .context = context};
        status = plsh_mpi_try(MPI_Comm_dup(communicator, &w->communicator),
                              "duplicating the communicator", error);
    }
    if (status || !w) {
        plsh_release(w);
        return status;
    }
    MPI_Comm_set_errhandler(w->communicator, MPI_ERRORS_RETURN);
    MPI_Comm_rank(w->communicator, &w->rank);
    MPI_Comm_size(w->communicator, &w->ranks);
    for (int i = 1; i <= PEERS && i < w->ranks; i++) {
        add_peer(w, (w->rank + i) % w->ranks);
        add_peer(w, (w->rank + w->ranks - i) % w->ranks);
    }
    if (start_thread(w) != 0)
        status = plsh_fail(error, PLSH_STATUS_NO_MEMORY, "a watch: no thread can be made");
    status = plsh_mpi_agree(communicator, status, error);
    if (status) return status; /* other ranks may have a thread that goes on: all have to exit */
    *out = w;
    return PLSH_STATUS_OK;
}

void plsh_mpi_watch_stop(plsh_mpi_watch *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    MPI_Comm_free(&w->communicator);
    plsh_release(w);
}
