/* serve: connections. They receive bodies and send answers; while other threads do the work, the
 * connection's thread waits. */
#include "cli/message.h"
#include "cli/serve/serve.h"

#include "base/clock.h"

#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 32768,  /* of a request's line and headers: more is answered with 431 */
    STACK_BYTES = 1 << 18, /* stack of a connection's thread, which needs little */
    SPARE = 32,            /* connections above the limit, which are answered with 503 */
    SWALLOW = 1 << 20 /* bytes of a refused body that are read and dropped: a connection that is
                         closed with unread data may lose the answer */
};

static const struct {
    const char *path;
    bool post, open; /* open: needs no key */
} routes[SERVE_ROUTES] = {
    [SERVE_PAGE] = {"/", false, true},
    [SERVE_HEALTH] = {"/health", false, true},
    [SERVE_INFO] = {"/info", false, false},
    [SERVE_METRICS] = {"/metrics", false, false},
    [SERVE_MODELS] = {"/v1/models", false, false},
    [SERVE_EMBEDDINGS] = {"/v1/embeddings", true, false},
    [SERVE_EMBED] = {"/embed", true, false},
    [SERVE_RERANK] = {"/rerank", true, false},
    [SERVE_PREDICT] = {"/predict", true, false},
    [SERVE_TOKENIZE] = {"/tokenize", true, false},
    [SERVE_COMPLETIONS] = {"/v1/completions", true, false},
    [SERVE_CHAT] = {"/v1/chat/completions", true, false},
    [SERVE_GENERATE] = {"/generate", true, false},
    [SERVE_GENERATE_STREAM] = {"/generate_stream", true, false},
};

const char *serve_route_path(serve_route route) { return routes[route].path; }

static const char *route_methods(serve_route route) {
    return route == SERVE_PAGE ? "GET, HEAD, POST" : routes[route].post ? "POST" : "GET, HEAD";
}

/* ---- Answers ---- */

typedef struct answer {
    int status;
    const char *type;
    char *bytes; /* owned */
    size_t size;
    int retry;         /* seconds; 0: no such header */
    const char *allow; /* methods that the path takes; NULL: no such header */
} answer;

static enum MHD_Result queue_response(struct MHD_Connection *connection,
                                      struct MHD_Response *response, const answer *a) {
    char number[16];
    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", a->type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (a->allow != NULL) MHD_add_response_header(response, "Allow", a->allow);
    if (a->status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (a->retry > 0) {
        snprintf(number, sizeof number, "%d", a->retry);
        MHD_add_response_header(response, "Retry-After", number);
    }
    const enum MHD_Result queued = MHD_queue_response(connection, (unsigned)a->status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, answer *a) {
    if (a->bytes == NULL) return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(a->size, a->bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) free(a->bytes);
    return queue_response(connection, response, a);
}

static enum MHD_Result send_fault(serve_job *job) {
    serve_server *server = job->server;
    answer a = {.status = job->fault.status, .type = "application/json"};
    pthread_mutex_lock(&server->lock);
    if (a.status == 429 || a.status == 503) a.retry = serve_retry_after(server);
    pthread_mutex_unlock(&server->lock);
    if (a.status == 405) a.allow = route_methods(job->route);
    a.bytes = serve_answer_fault(job->route, &job->fault, &a.size);
    return send_answer(job->connection, &a);
}

static char *copy_text(const char *text, size_t size) {
    char *copy = malloc(size + 1);
    if (copy != NULL) memcpy(copy, text, size + 1);
    return copy;
}

/* The page may load nothing and talk to this server only. */
static enum MHD_Result send_page(struct MHD_Connection *connection) {
    const answer a = {.status = 200, .type = "text/html; charset=utf-8"};
    struct MHD_Response *response = MHD_create_response_from_buffer(
        serve_page_size, (void *)(uintptr_t)serve_page, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action "
                            "'none'; frame-ancestors 'none'");
    return queue_response(connection, response, &a);
}

static enum MHD_Result send_health(serve_job *job) {
    static const char ready[] = "{\"status\": \"ok\"}\n", ending[] = "{\"status\": \"draining\"}\n";
    serve_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    const bool draining = server->draining;
    pthread_mutex_unlock(&server->lock);
    const char *text = draining ? ending : ready;
    answer a = {.status = draining ? 503 : 200, .type = "application/json", .size = strlen(text)};
    a.bytes = copy_text(text, a.size);
    return send_answer(job->connection, &a);
}

/* Routes without a body. */
static enum MHD_Result send_fact(serve_job *job) {
    answer a = {.status = 200, .type = "application/json"};
    switch (job->route) {
    case SERVE_PAGE: return send_page(job->connection);
    case SERVE_HEALTH: return send_health(job);
    case SERVE_INFO: a.bytes = serve_answer_info(job->server, &a.size); break;
    case SERVE_METRICS:
        a.type = "text/plain; version=0.0.4; charset=utf-8";
        a.bytes = serve_metrics_text(job->server, &a.size);
        break;
    default: a.bytes = serve_answer_models(job->server, &a.size); break;
    }
    return send_answer(job->connection, &a);
}

static void count_answer(const serve_job *job, int status) {
    pthread_mutex_lock(&job->server->lock);
    serve_metrics_count(&job->server->metrics, job->route, status);
    pthread_mutex_unlock(&job->server->lock);
}

/* ---- Streams ---- */

/* Under lock: the next bytes of a stream, its end, or 0 where there is nothing yet. */
static ssize_t take_bytes(serve_job *job, char *bytes, size_t most) {
    const size_t rest = job->answer_size - job->answer_sent, size = rest < most ? rest : most;
    if (job->left) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (size == 0) return job->complete ? MHD_CONTENT_READER_END_OF_STREAM : 0;
    memcpy(bytes, job->answer + job->answer_sent, size);
    job->answer_sent += size;
    return (ssize_t)size;
}

/* libmicrohttpd asks for the next bytes, and waits for them. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t most) {
    serve_job *job = context;
    serve_server *server = job->server;
    (void)position;
    pthread_mutex_lock(&server->lock);
    ssize_t size = take_bytes(job, bytes, most);
    while (size == 0) {
        serve_job_wait(job);
        size = take_bytes(job, bytes, most);
    }
    pthread_mutex_unlock(&server->lock);
    return size;
}

static enum MHD_Result send_stream(serve_job *job) {
    const answer a = {.status = 200, .type = "text/event-stream; charset=utf-8"};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 8192, read_stream, job, NULL);
    if (response != NULL) MHD_add_response_header(response, "X-Accel-Buffering", "no");
    return queue_response(job->connection, response, &a);
}

/* ---- Requests ---- */

/* Takes as long for a wrong key as for the right one, whatever it begins with. */
static bool is_key(const char *key, const char *given) {
    const size_t length = strlen(key), size = strlen(given);
    unsigned char differs = length != size;
    for (size_t i = 0; i < length; i++)
        differs |= (unsigned char)(key[i] ^ given[size > 0 ? i % size : 0]);
    return differs == 0;
}

static bool has_key(const serve_server *server, struct MHD_Connection *connection) {
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    if (server->key == NULL) return true;
    if (given == NULL || strncasecmp(given, "Bearer ", 7) != 0) return false;
    return is_key(server->key, given + 7);
}

/* Browsers send this type across sites only after a CORS preflight, which fails here: the pages of
 * other sites cannot use the server through a visitor. */
static bool is_json(struct MHD_Connection *connection) {
    static const char wanted[] = "application/json";
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type");
    return type != NULL && strncasecmp(type, wanted, sizeof wanted - 1) == 0 &&
           strchr("; \t", type[sizeof wanted - 1]) != NULL;
}

/* TGI and TEI take POST / for what the model does, and clients that know only a host send it. */
static serve_route root_route(const plsh_model_facts *facts) {
    return facts->causal        ? SERVE_GENERATE
           : facts->labels == 1 ? SERVE_RERANK
           : facts->labels > 1  ? SERVE_PREDICT
                                : SERVE_EMBED;
}

/* The route of a request. For an unknown path it sets a fault, and returns the route in whose
 * format errors are written: /v1/models (OpenAI) or /info (TEI). */
static serve_route find_route(const serve_server *server, const char *url, const char *method,
                              serve_fault *fault) {
    const bool post = strcmp(method, "POST") == 0;
    const bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (post && strcmp(url, "/") == 0) return root_route(&server->model.facts);
    for (int r = 0; r < SERVE_ROUTES; r++) {
        if (strcmp(url, routes[r].path) != 0) continue;
        if (routes[r].post ? !post : !get)
            serve_refuse(fault, 405, NULL, "%s takes %s", url, route_methods((serve_route)r));
        return (serve_route)r;
    }
    serve_refuse(fault, 404, NULL, "there is no %.100s", url);
    return strncmp(url, "/v1/", 4) == 0 ? SERVE_MODELS : SERVE_INFO;
}

/* Refuses what it can before the body arrives. */
static void check_request(serve_job *job, int64_t length) {
    serve_server *server = job->server;
    serve_fault *fault = &job->fault;
    pthread_mutex_lock(&server->lock);
    const bool crowded = server->peer_count > server->limits.connections;
    const bool draining = server->draining && !routes[job->route].open;
    pthread_mutex_unlock(&server->lock);
    if (crowded)
        serve_refuse(fault, 503, NULL, "too many connections");
    else if (fault->status != 0)
        return;
    else if (!routes[job->route].open && !has_key(server, job->connection))
        serve_refuse(fault, 401, NULL, "the key is missing or wrong: Authorization: Bearer KEY");
    else if (draining)
        serve_refuse(fault, 503, NULL, "the server is shutting down");
    else if (routes[job->route].post && !is_json(job->connection))
        serve_refuse(fault, 415, NULL, "the body has to be JSON: Content-Type: application/json");
    else if (length > (int64_t)server->limits.body)
        serve_refuse(fault, 413, NULL, "the body has %lld bytes; at most %zu", (long long)length,
                     server->limits.body);
}

static serve_peer *peer_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* The headers are there. */
static enum MHD_Result begin_request(serve_server *server, struct MHD_Connection *connection,
                                     const char *url, const char *method, void **state) {
    serve_fault fault = {0};
    const serve_route route = find_route(server, url, method, &fault);
    const char *size = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const char *expects = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect");
    const int64_t length = size != NULL ? strtoll(size, NULL, 10) : 0;
    serve_peer *peer = peer_of(connection);
    serve_job *job = peer != NULL ? serve_job_create(server, route) : NULL;
    if (job == NULL) return MHD_NO;
    job->connection = connection;
    job->fault = fault;
    job->root = strcmp(url, "/") == 0;
    pthread_mutex_lock(&server->lock);
    job->socket = peer->socket;
    peer->job = job;
    peer->since = plsh_clock_seconds();
    pthread_mutex_unlock(&server->lock);
    *state = job;
    check_request(job, length);
    /* A body that is refused and long is not read; libmicrohttpd closes the connection then. */
    if (job->fault.status == 0 || (expects == NULL && length <= SWALLOW)) return MHD_YES;
    count_answer(job, job->fault.status);
    return send_fault(job);
}

static bool grow_body(serve_job *job, size_t size) {
    serve_server *server = job->server;
    size_t capacity = job->capacity > 0 ? 2 * job->capacity : 4096;
    while (capacity < size) capacity *= 2;
    if (capacity > server->limits.body + 1) capacity = server->limits.body + 1;
    if (!serve_body_reserve(server, capacity - job->capacity))
        return serve_refuse(&job->fault, 503, NULL, "too many bodies are being received");
    char *grown = realloc(job->body, capacity);
    if (grown == NULL) {
        serve_body_release(server, capacity - job->capacity);
        return serve_refuse(&job->fault, 503, NULL, "out of memory");
    }
    job->body = grown;
    job->capacity = capacity;
    return true;
}

/* A part of the body. */
static enum MHD_Result receive(serve_job *job, const char *data, size_t size) {
    const size_t limit = job->server->limits.body;
    if (job->fault.status == 0 && job->size + size > limit)
        serve_refuse(&job->fault, 413, NULL, "the body has more than %zu bytes", limit);
    if (job->fault.status == 0 && job->size + size > job->capacity)
        grow_body(job, job->size + size);
    if (job->fault.status == 0) memcpy(job->body + job->size, data, size);
    job->size += size;
    return job->size <= limit + SWALLOW ? MHD_YES : MHD_NO;
}

/* The whole request is there. */
static enum MHD_Result answer_request(serve_job *job) {
    serve_server *server = job->server;
    if (job->fault.status != 0 || !routes[job->route].post) {
        count_answer(job, job->fault.status != 0 ? job->fault.status : 200);
        return job->fault.status != 0 ? send_fault(job) : send_fact(job);
    }
    serve_job_submit(job);
    pthread_mutex_lock(&server->lock);
    while (!job->complete && !job->streaming && !job->left) serve_job_wait(job);
    const bool left = job->left, streaming = job->streaming;
    pthread_mutex_unlock(&server->lock);
    if (left) return MHD_NO;
    if (streaming) return send_stream(job);
    if (job->fault.status != 0) return send_fault(job);
    answer a = {200, "application/json", job->answer, job->answer_size, 0, NULL};
    job->answer = NULL;
    return send_answer(job->connection, &a);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    serve_job *job = *state;
    (void)version;
    if (job == NULL) return begin_request(context, connection, url, method, state);
    if (*size > 0) {
        const enum MHD_Result received = receive(job, data, *size);
        *size = 0;
        return received;
    }
    return answer_request(job);
}

/* The request is over, answered or not. */
static void end_request(void *context, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode code) {
    serve_server *server = context;
    serve_job *job = *state;
    serve_peer *peer = peer_of(connection);
    (void)code;
    if (job == NULL) return;
    pthread_mutex_lock(&server->lock);
    if (!job->complete) job->left = true;
    job->waiting = false;
    if (peer != NULL) {
        peer->job = NULL;
        peer->since = plsh_clock_seconds();
    }
    pthread_cond_signal(&server->scheduler);
    pthread_mutex_unlock(&server->lock);
    *state = NULL;
    serve_job_release(job);
}

/* ---- Connections ---- */

static void open_peer(serve_server *server, struct MHD_Connection *connection, void **state) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    serve_peer *peer = info != NULL ? calloc(1, sizeof *peer) : NULL;
    *state = peer;
    if (peer == NULL) return; /* its requests are refused by closing the connection */
    peer->socket = info->connect_fd;
    peer->since = plsh_clock_seconds();
    pthread_mutex_lock(&server->lock);
    peer->after = server->peers;
    if (server->peers != NULL) server->peers->before = peer;
    server->peers = peer;
    server->peer_count++;
    server->metrics.connections++;
    pthread_mutex_unlock(&server->lock);
}

static void close_peer(serve_server *server, serve_peer *peer) {
    if (peer == NULL) return;
    pthread_mutex_lock(&server->lock);
    if (peer->before != NULL)
        peer->before->after = peer->after;
    else
        server->peers = peer->after;
    if (peer->after != NULL) peer->after->before = peer->before;
    server->peer_count--;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    free(peer);
}

static void note_connection(void *context, struct MHD_Connection *connection, void **state,
                            enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        open_peer(context, connection, state);
    else
        close_peer(context, *state);
}

/* No timeouts of libmicrohttpd's own: it would count the time in which a request is worked on.
 * serve_watch ends clients that stall. */
static struct MHD_Daemon *start_daemon(serve_server *server, const struct addrinfo *at) {
    const unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                           MHD_USE_ITC | (at->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0U);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR, at->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(server->limits.connections + SPARE),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        end_request, server, MHD_OPTION_NOTIFY_CONNECTION, note_connection, server,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024U, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_END);
}

int serve_http_start(serve_server *server, const char *host, int64_t port, char **address) {
    char number[16];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    snprintf(number, sizeof number, "%lld", (long long)port);
    const int failed = getaddrinfo(host, number, &hints, &found);
    if (failed != 0) return cli_fail("--host %s: %s", host, gai_strerror(failed));
    server->daemon = start_daemon(server, found);
    const bool six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (server->daemon == NULL)
        return cli_fail("--port %lld: %s: it could not be opened; it may be in use (--port 0 takes "
                        "a free one)",
                        (long long)port, host);
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const size_t size = strlen(host) + 32;
    *address = malloc(size);
    if (*address == NULL) return cli_fail("out of memory");
    snprintf(*address, size, six ? "http://[%s]:%u" : "http://%s:%u", host,
             info != NULL ? info->port : (unsigned)port);
    return CLI_DONE;
}

void serve_http_stop_listening(serve_server *server) {
    const MHD_socket socket = MHD_quiesce_daemon(server->daemon);
    if (socket != MHD_INVALID_SOCKET) close(socket);
}

/* Connections that still wait for a job end first. */
void serve_http_stop(serve_server *server) {
    pthread_mutex_lock(&server->lock);
    for (serve_job *job = server->live; job != NULL; job = job->after_live) {
        job->left = true;
        pthread_cond_broadcast(&job->ready);
    }
    pthread_mutex_unlock(&server->lock);
    MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}
