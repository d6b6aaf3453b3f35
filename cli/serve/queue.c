/* serve: jobs on their way from a connection to the model and back. */
#include "cli/serve/serve.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static void push(serve_jobs *jobs, serve_job *job) {
    job->after = NULL;
    if (jobs->last != NULL) jobs->last->after = job;
    if (jobs->first == NULL) jobs->first = job;
    jobs->last = job;
}

static serve_job *pop(serve_jobs *jobs) {
    serve_job *job = jobs->first;
    if (job == NULL) return NULL;
    jobs->first = job->after;
    if (jobs->first == NULL) jobs->last = NULL;
    job->after = NULL;
    return job;
}

/* ---- A job ---- */

serve_job *serve_job_create(serve_server *server, serve_route route) {
    serve_job *job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    job->server = server;
    job->route = route;
    job->references = 1;
    pthread_cond_init(&job->ready, NULL);
    pthread_mutex_lock(&server->lock);
    job->number = ++server->last_number;
    server->job_count++;
    pthread_mutex_unlock(&server->lock);
    return job;
}

static void free_texts(serve_job *job) {
    for (int64_t i = 0; i < job->text_count; i++) {
        free(job->texts[i].ids);
        free(job->texts[i].types);
    }
    free(job->texts);
}

void serve_job_release(serve_job *job) {
    serve_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    const bool last = --job->references == 0;
    if (last) {
        server->reserved -= job->stage == SERVE_DONE ? job->cost : 0;
        server->job_count--;
        pthread_cond_broadcast(&server->changed);
    }
    pthread_mutex_unlock(&server->lock);
    if (!last) return;
    serve_body_release(server, job->capacity);
    for (int64_t i = 0; i < job->sequence_count; i++) serve_sequence_free(job->sequences[i]);
    free(job->sequences);
    free_texts(job);
    serve_request_free(&job->request);
    free(job->body);
    free(job->rows);
    free(job->answer);
    pthread_cond_destroy(&job->ready);
    free(job);
}

bool serve_body_reserve(serve_server *server, size_t bytes) {
    pthread_mutex_lock(&server->lock);
    const bool fits = bytes <= server->limits.bodies - server->body_bytes;
    if (fits) server->body_bytes += bytes;
    pthread_mutex_unlock(&server->lock);
    return fits;
}

void serve_body_release(serve_server *server, size_t bytes) {
    pthread_mutex_lock(&server->lock);
    server->body_bytes -= bytes;
    pthread_mutex_unlock(&server->lock);
}

static void link_live(serve_server *server, serve_job *job) {
    job->after_live = server->live;
    if (server->live != NULL) server->live->before_live = job;
    server->live = job;
}

static void unlink_live(serve_server *server, serve_job *job) {
    if (job->before_live != NULL)
        job->before_live->after_live = job->after_live;
    else
        server->live = job->after_live;
    if (job->after_live != NULL) job->after_live->before_live = job->before_live;
    job->before_live = job->after_live = NULL;
}

/* ---- Between threads ---- */

void serve_job_wait(serve_job *job) {
    job->waiting = true;
    pthread_cond_wait(&job->ready, &job->server->lock);
    job->waiting = false;
}

/* The job is complete: its answer can be sent. */
static void complete(serve_job *job) {
    serve_server *server = job->server;
    const double now = plsh_clock_seconds();
    pthread_mutex_lock(&server->lock);
    if (job->stage == SERVE_QUEUED || job->stage == SERVE_WRITING) {
        server->admitted--;
        server->admitted_tokens -= job->tokens;
    } else {
        job->cost = 0; /* it was never reserved */
    }
    job->stage = SERVE_DONE;
    job->complete = true;
    job->completed = now;
    server->metrics.left += job->left;
    serve_metrics_count(&server->metrics, job->route,
                        job->left           ? 499
                        : job->fault.status ? job->fault.status
                                            : 200);
    serve_histogram_add(&server->metrics.seconds, now - job->arrived);
    unlink_live(server, job);
    pthread_cond_broadcast(&job->ready);
    pthread_mutex_unlock(&server->lock);
    serve_job_release(job);
}

void serve_job_submit(serve_job *job) {
    serve_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    const bool ends = server->stopping; /* helpers may have ended: no one would take the job */
    job->stage = SERVE_READING;
    job->arrived = plsh_clock_seconds();
    job->created = (int64_t)time(NULL);
    job->references++;
    link_live(server, job);
    if (!ends) push(&server->tasks, job);
    pthread_cond_signal(&server->helpers);
    pthread_mutex_unlock(&server->lock);
    if (!ends) return;
    serve_refuse(&job->fault, 503, NULL, "the server is shutting down");
    complete(job);
}

void serve_job_finish(serve_job *job) {
    serve_server *server = job->server;
    if (job->fault.status != 0 || job->request.stream || serve_job_left(job)) {
        complete(job);
        return;
    }
    pthread_mutex_lock(&server->lock);
    job->stage = SERVE_WRITING;
    push(&server->tasks, job);
    pthread_cond_signal(&server->helpers);
    pthread_mutex_unlock(&server->lock);
}

/* Drops what was sent once it is half of what is kept: every byte moves once on average, also for
 * a client that reads a long stream late. */
static void drop_sent(serve_job *job) {
    if (2 * job->answer_sent < job->answer_size || job->answer_sent == 0) return;
    job->answer_size -= job->answer_sent;
    memmove(job->answer, job->answer + job->answer_sent, job->answer_size);
    job->answer_sent = 0;
}

void serve_job_append(serve_job *job, const char *bytes, size_t size) {
    serve_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    drop_sent(job);
    if (job->answer_size + size > job->answer_capacity) {
        const size_t capacity = 2 * job->answer_capacity + size + 1024;
        char *grown = realloc(job->answer, capacity);
        if (grown == NULL)
            job->left = true; /* an incomplete stream must not look whole */
        else
            job->answer = grown, job->answer_capacity = capacity;
    }
    if (job->answer_size + size <= job->answer_capacity) {
        memcpy(job->answer + job->answer_size, bytes, size);
        job->answer_size += size;
    }
    pthread_cond_broadcast(&job->ready);
    pthread_mutex_unlock(&server->lock);
}

bool serve_job_left(serve_job *job) {
    pthread_mutex_lock(&job->server->lock);
    const bool left = job->left;
    pthread_mutex_unlock(&job->server->lock);
    return left;
}

int serve_retry_after(const serve_server *server) {
    const serve_histogram *passes = &server->metrics.pass_seconds;
    const double tokens = (double)server->metrics.pass_tokens;
    const double speed = passes->sum > 0 && tokens > 0 ? tokens / passes->sum : 1000;
    const double seconds = ceil((double)server->admitted_tokens / speed);
    return seconds < 1 ? 1 : seconds > 120 ? 120 : (int)seconds;
}

/* ---- Helpers ---- */

/* Under lock: is there room for this job? Reserves it. */
static bool admit(serve_server *server, serve_job *job) {
    const serve_limits *limits = &server->limits;
    if (server->draining)
        return serve_refuse(&job->fault, 503, NULL, "the server is shutting down");
    if (job->cost > limits->answers || job->tokens > limits->queue_tokens)
        return serve_refuse(&job->fault, 413, NULL,
                            "the request has %lld tokens and needs up to %zu bytes of memory; this "
                            "server takes %lld and %zu at a time: send fewer texts",
                            (long long)job->tokens, job->cost, (long long)limits->queue_tokens,
                            limits->answers);
    if (server->admitted >= limits->requests ||
        job->tokens > limits->queue_tokens - server->admitted_tokens ||
        job->cost > limits->answers - server->reserved)
        return serve_refuse(&job->fault, 429, NULL,
                            "the server is busy: %lld requests of %lld tokens are waiting",
                            (long long)server->admitted, (long long)server->admitted_tokens);
    server->admitted++;
    server->admitted_tokens += job->tokens;
    server->reserved += job->cost;
    server->metrics.tokens_in += (uint64_t)job->given;
    return true;
}

/* Body to tokens, and into the scheduler's queue. */
static void read_job(serve_job *job) {
    serve_server *server = job->server;
    if (!serve_prepare(job)) {
        complete(job);
        return;
    }
    pthread_mutex_lock(&server->lock);
    const bool admitted = admit(server, job);
    if (admitted && job->route == SERVE_TOKENIZE) { /* it needs no pass */
        job->stage = SERVE_WRITING;
        push(&server->tasks, job);
        pthread_cond_signal(&server->helpers);
    } else if (admitted) {
        job->stage = SERVE_QUEUED;
        job->streaming = job->request.stream;
        pthread_cond_broadcast(&job->ready);
        push(&server->queue, job);
        pthread_cond_signal(&server->scheduler);
    }
    pthread_mutex_unlock(&server->lock);
    if (!admitted) complete(job);
}

static serve_job *next_task(serve_server *server) {
    pthread_mutex_lock(&server->lock);
    serve_job *job = pop(&server->tasks);
    while (job == NULL && !server->stopping) {
        pthread_cond_wait(&server->helpers, &server->lock);
        job = pop(&server->tasks);
    }
    pthread_mutex_unlock(&server->lock);
    return job;
}

void *serve_helper_main(void *context) {
    serve_server *server = context;
    for (serve_job *job = next_task(server); job != NULL; job = next_task(server)) {
        if (job->stage == SERVE_READING) {
            read_job(job);
            continue;
        }
        /* An answer is not written for a client that left. */
        if (!serve_job_left(job) && !serve_answer_write(job))
            serve_refuse(&job->fault, 503, NULL, "out of memory");
        complete(job);
    }
    return NULL;
}

/* ---- The scheduler ---- */

serve_job *serve_queue_take(serve_server *server, bool wait) {
    pthread_mutex_lock(&server->lock);
    serve_job *job = pop(&server->queue);
    while (job == NULL && wait && !server->stopping) {
        pthread_cond_wait(&server->scheduler, &server->lock);
        job = pop(&server->queue);
    }
    pthread_mutex_unlock(&server->lock);
    return job;
}

bool serve_is_stopping(serve_server *server) {
    pthread_mutex_lock(&server->lock);
    const bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    return stopping;
}

void *serve_scheduler_main(void *context) {
    serve_server *server = context;
    if (server->model.facts.causal)
        serve_generate_loop(server);
    else
        serve_encode_loop(server);
    return NULL;
}

/* ---- Clients that left or stall ---- */

/* While its thread waits, libmicrohttpd does not look at a connection's socket. Data that wait
 * there are the client's next request. */
static bool has_left(int socket) {
    struct pollfd events = {.fd = socket, .events = POLLRDHUP};
    char byte;
    if (poll(&events, 1, 0) <= 0) return false;
    if ((events.revents & (POLLHUP | POLLERR)) != 0) return true;
    return (events.revents & POLLRDHUP) != 0 &&
           recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static void end_left(serve_server *server) {
    for (serve_job *job = server->live; job != NULL; job = job->after_live) {
        if (!job->waiting || job->left || !has_left(job->socket)) continue;
        job->left = true;
        pthread_cond_broadcast(&job->ready);
        pthread_cond_signal(&server->scheduler);
    }
}

/* A request has to arrive within the time that is given to it, and its answer has to be read. */
static void end_stalled(serve_server *server, double now) {
    const double patience = server->limits.patience;
    for (serve_peer *peer = server->peers; peer != NULL; peer = peer->after) {
        const serve_job *job = peer->job;
        const bool receiving = job == NULL || job->stage == SERVE_RECEIVING;
        const bool sending = job != NULL && job->complete;
        if ((receiving && now - peer->since > patience) ||
            (sending && now - job->completed > 10 * patience))
            shutdown(peer->socket, SHUT_RDWR);
    }
}

void serve_watch(serve_server *server) {
    pthread_mutex_lock(&server->lock);
    end_left(server);
    end_stalled(server, plsh_clock_seconds());
    pthread_mutex_unlock(&server->lock);
}
