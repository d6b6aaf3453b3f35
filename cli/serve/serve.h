/* serve: the server's parts and what they share.
 *
 *     connections (http.c, threads of libmicrohttpd)      receive a body, send an answer
 *     helpers (queue.c, SERVE_HELPERS threads)            body to tokens; results to an answer
 *     scheduler (encode.c, generate.c, one thread)        runs the model, and it alone
 *     main thread (serve.c)                               signals, and clients that left or stall
 *
 * A job is one request. It goes connection -> helper -> scheduler -> helper -> connection; while
 * others have it, its connection waits. All fields of the server below `lock`, and the
 * fields of a job that say so, are read and written under that lock. */
#ifndef PLSH_CLI_SERVE_SERVE_H
#define PLSH_CLI_SERVE_SERVE_H

#include "cli/lm/model.h"
#include "cli/serve/metrics.h"
#include "cli/serve/request.h"

#include <pthread.h>

struct MHD_Connection;
struct MHD_Daemon;
typedef struct serve_server serve_server;
typedef struct serve_job serve_job;
typedef struct serve_sequence serve_sequence;
typedef struct serve_generator serve_generator;
typedef struct serve_prefixes serve_prefixes;

enum { SERVE_HELPERS = 2 };

/* Where a job is. */
typedef enum serve_stage {
    SERVE_RECEIVING, /* the connection's */
    SERVE_READING,   /* with a helper: JSON, tokens, admission */
    SERVE_QUEUED,    /* admitted: the scheduler's */
    SERVE_WRITING,   /* with a helper: the answer */
    SERVE_DONE       /* the connection's again */
} serve_stage;

/* The tokens of an input. */
typedef struct serve_text {
    int32_t *ids, *types; /* types NULL: all 0 */
    int64_t count;
    bool begun; /* the scheduler's: it is or was in a pass */
} serve_text;

struct serve_job {
    serve_server *server;
    struct MHD_Connection *connection;
    int socket;
    serve_route route;
    bool root; /* it came by POST / */
    char *body;
    size_t size, capacity;
    serve_request request;
    serve_text *texts; /* [text_count] */
    int64_t text_count;
    int64_t given;  /* tokens of all texts, */
    int64_t tokens; /* and with those that may be generated */
    size_t cost;    /* bytes that it may take, reserved while it is admitted */
    uint64_t number;
    double arrived, started; /* seconds; started: its first pass */
    int64_t created;         /* the calendar's */
    /* results of encoders: [text_count][columns] */
    float *rows;
    int64_t columns;
    int64_t finished; /* texts that are done; the scheduler's */
    /* results of generation */
    serve_sequence **sequences; /* [sequence_count] */
    int64_t sequence_count, sequences_left, made;
    /* the answer */
    serve_fault fault;
    char *answer; /* whole, or the newest part of a stream (under lock) */
    size_t answer_size, answer_capacity;
    size_t answer_sent; /* of a stream: bytes at the front that libmicrohttpd has */
    /* under lock */
    serve_stage stage;
    bool streaming; /* the answer is an event stream that has begun */
    bool waiting;   /* its connection waits for it */
    pthread_cond_t ready;
    bool left;     /* the client went away */
    bool complete; /* nothing more comes */
    double completed;
    int references; /* the connection's, and that of the thread that works on it */
    serve_job *after;
    serve_job *before_live, *after_live; /* all jobs that are not complete */
};

/* A queue of jobs. */
typedef struct serve_jobs {
    serve_job *first, *last;
} serve_jobs;

/* One TCP connection. */
typedef struct serve_peer {
    int socket;
    double since; /* it opened, its last answer was sent, or a request's headers arrived */
    serve_job *job;
    struct serve_peer *before, *after;
} serve_peer;

typedef struct serve_limits {
    int64_t text_tokens;  /* of one text, or of prompt and completion together */
    int64_t queue_tokens; /* of all admitted requests */
    int64_t requests;     /* admitted at a time */
    int64_t connections;
    int64_t sequences;   /* generated at a time */
    int64_t batch;       /* tokens of a pass */
    int64_t values;      /* of the JSON document of a body */
    size_t body, bodies; /* bytes of one body, and of all that are held */
    size_t answers;      /* bytes that admitted requests may take for tokens and answers */
    size_t caches;       /* bytes of keys and values */
    size_t memory;       /* all of it, weights excepted */
    double patience;     /* seconds for a request to arrive; ten times that to read an answer */
    double drain;        /* seconds that a drain may take */
} serve_limits;

struct serve_server {
    const cli_lm *options;
    cli_model model;
    const char *name; /* of the model, for clients */
    plsh_sentence *sentence;
    plsh_sentence_facts sentence_facts;
    plsh_chat *chat;
    char chat_refused[248]; /* why there is no chat */
    plsh_model_ends ends;
    serve_generator *generator; /* NULL: an encoder */
    const char *key;            /* NULL: none */
    serve_limits limits;
    struct MHD_Daemon *daemon;
    double began;
    uint64_t entropy; /* for requests without a seed */

    pthread_mutex_t lock;
    pthread_cond_t helpers, scheduler, changed;
    serve_jobs tasks; /* for helpers */
    serve_jobs queue; /* for the scheduler */
    serve_job *live;
    serve_peer *peers;
    int64_t peer_count, job_count, admitted, admitted_tokens;
    size_t body_bytes, reserved, cache_bytes;
    uint64_t last_number;
    bool draining, stopping;
    serve_metrics metrics;
};

/* ---- queue.c: jobs on their way ---- */

serve_job *serve_job_create(serve_server *server, serve_route route);
void serve_job_release(serve_job *job); /* a reference; under no lock */

/* The connection waits, under lock, until something changed. */
void serve_job_wait(serve_job *job);

/* Hands a received job to the helpers. */
void serve_job_submit(serve_job *job);

/* From the scheduler: all results are there, or fault is set. */
void serve_job_finish(serve_job *job);

/* The scheduler appends to the answer of a stream. */
void serve_job_append(serve_job *job, const char *bytes, size_t size);

/* Has the client gone? */
bool serve_job_left(serve_job *job);

/* Bodies are counted while they arrive; false: too many bytes are held already. */
bool serve_body_reserve(serve_server *server, size_t bytes);
void serve_body_release(serve_server *server, size_t bytes);

/* Seconds after which a client that was refused may try again. Under lock. */
int serve_retry_after(const serve_server *server);

/* Threads; they end once the server is stopping. */
bool serve_is_stopping(serve_server *server);
void *serve_helper_main(void *context);
void *serve_scheduler_main(void *context);

/* A tick of the main thread: clients that left or stall. */
void serve_watch(serve_server *server);

/* ---- prepare.c: from texts to tokens ---- */

/* Fills in texts, tokens and cost, or fault. */
bool serve_prepare(serve_job *job);

/* ---- answer.c ---- */

/* Writes the answer of a job whose results are there. false: memory. */
bool serve_answer_write(serve_job *job);

/* The body of an error in the form that clients of the route expect, allocated. */
char *serve_answer_fault(serve_route route, const serve_fault *fault, size_t *size);

/* /metrics (metrics.c), /info, /v1/models: allocated; NULL: memory. */
char *serve_metrics_text(serve_server *server, size_t *size);
char *serve_answer_info(serve_server *server, size_t *size);
char *serve_answer_models(const serve_server *server, size_t *size);

/* An event of a stream: the text that sequence made since the last one, or its end. */
bool serve_answer_event(serve_sequence *s, const char *text, size_t length);
bool serve_answer_stream_end(serve_job *job);

/* ---- encode.c, generate.c: the scheduler's two kinds of model ---- */

void serve_encode_loop(serve_server *server);
void serve_sequence_free(serve_sequence *s); /* NULL is fine */
void serve_generate_loop(serve_server *server);

/* The generator's memory, all of it that no request brings, before there are requests. */
int serve_generator_open(serve_server *server);
void serve_generator_close(serve_generator *g); /* NULL is fine */

/* The scheduler's next job, waiting for one if asked to; NULL: none, or the server stops. */
serve_job *serve_queue_take(serve_server *server, bool wait);

/* ---- http.c ---- */

/* Opens the port; *address is its URL, allocated. */
int serve_http_start(serve_server *server, const char *host, int64_t port, char **address);
void serve_http_stop_listening(serve_server *server);
void serve_http_stop(serve_server *server);

/* ---- memory.c ---- */

/* Divides the memory, and refuses limits that do not fit. */
int serve_memory_plan(serve_server *server, double wanted);
int64_t serve_memory_resident(void);

/* ---- page.c, made from page.html ---- */

extern const char serve_page[];
extern const size_t serve_page_size;

#endif
