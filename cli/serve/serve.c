/* cli: plsh serve: a model over HTTP. */
#include "cli/serve/serve.h"

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/model.h"
#include "cli/message.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

enum {
    TICK = 50000000, /* nanoseconds between two looks at the clients */
    TRIM = 20,       /* ticks between two returns of free memory */
    HEAPS = 1,
    LONGEST_TEXT = 131072, /* tokens of a text, if the model has no limit */
    CAUSAL_TEXT = 4096
};

typedef struct serve_options {
    const char *host, *key, *name;
    int64_t port, max_tokens, max_body, queue_tokens, queue_requests, connections, parallel, batch;
    double memory, patience, drain;
} serve_options;

typedef struct settings {
    serve_options serve;
    cli_lm lm;
} settings;

static const cli_option serve_table[] = {
    {.name = "host",
     .kind = CLI_TEXT,
     CLI_MEMBER(serve_options, host),
     .value = "NAME",
     .help = "address to listen on; 0.0.0.0 or :: for all of the machine's",
     .fallback = "127.0.0.1"},
    {.name = "port",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, port),
     .value = "N",
     .help = "port; 0: any free one, which is printed",
     .fallback = "8080",
     .range = CLI_BETWEEN(0, 65535)},
    {.name = "api-key",
     .kind = CLI_TEXT,
     CLI_MEMBER(serve_options, key),
     .value = "KEY",
     .help = "clients have to send Authorization: Bearer KEY; without it PLSH_API_KEY of the "
             "environment, which others on the machine cannot see; else no key is needed"},
    {.name = "model-name",
     .kind = CLI_TEXT,
     CLI_MEMBER(serve_options, name),
     .value = "NAME",
     .help = "the model's name in answers; without it that of its file or folder"},
    {.name = "max-tokens",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, max_tokens),
     .value = "N",
     .help = "most tokens of a text, or of a prompt and its completion; 0: the length the model "
             "was made for, or less if memory is short",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "max-body",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, max_body),
     .value = "BYTES",
     .help = "most bytes of a request's body",
     .fallback = "8388608",
     .range = CLI_BETWEEN(1024, 1073741824)},
    {.name = "queue-tokens",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, queue_tokens),
     .value = "N",
     .help = "most tokens of all admitted requests; above, clients get 429",
     .fallback = "1048576",
     .range = CLI_AT_LEAST(1)},
    {.name = "queue-requests",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, queue_requests),
     .value = "N",
     .help = "most admitted requests; above, clients get 429",
     .fallback = "512",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "connections",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, connections),
     .value = "N",
     .help = "most open connections; above, clients get 503",
     .fallback = "1024",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "parallel",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, parallel),
     .value = "N",
     .help = "most texts that are generated at a time; the others wait",
     .fallback = "16",
     .range = CLI_BETWEEN(1, 1024)},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(serve_options, batch),
     .value = "N",
     .help = "tokens of a pass through the model: short texts together, or parts of prompts; "
             "without it 2048 for encoders, --chunk for others",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 32768)},
    {.name = "memory",
     .kind = CLI_REAL,
     CLI_MEMBER(serve_options, memory),
     .value = "GB",
     .help = "most memory besides the weights; 0: 60 % of what is free at the start",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "patience",
     .kind = CLI_REAL,
     CLI_MEMBER(serve_options, patience),
     .value = "SECONDS",
     .help = "a request has to arrive, and an idle connection to send one, within this time; an "
             "answer has to be read within ten times as long",
     .fallback = "30",
     .range = CLI_BETWEEN(0.1, 86400)},
    {.name = "drain",
     .kind = CLI_REAL,
     CLI_MEMBER(serve_options, drain),
     .value = "SECONDS",
     .help = "after SIGTERM or Ctrl-C, admitted requests are answered within this time; a second "
             "signal ends at once",
     .fallback = "60",
     .range = CLI_AT_LEAST(0)},
};

static const cli_group groups[] = {CLI_GROUP("Options", serve_table, settings, serve),
                                   CLI_LM_GROUPS(settings)};

/* ---- Opening ---- */

static int open_encoder(serve_server *s) {
    plsh_error error;
    if (plsh_sentence_open(&s->sentence, s->model.model, PLSH_POOLING_COUNT, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    s->sentence_facts = plsh_sentence_describe(s->sentence);
    if (s->sentence_facts.pooling == PLSH_POOLING_NONE)
        return cli_fail("%s: its files ask for a row per token, which serve does not have",
                        s->options->model.model);
    return CLI_DONE;
}

/* A model without a chat template, or with one that is not known, still completes. */
static int open_generator(serve_server *s) {
    plsh_error error;
    if (plsh_chat_open(&s->chat, s->model.model, s->model.tokenizer, &error) != PLSH_STATUS_OK)
        snprintf(s->chat_refused, sizeof s->chat_refused, "%s", error.message);
    if (plsh_model_end_tokens(s->model.model, &s->ends, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* What the model was made for; encoders with ALiBi take any length. */
static int64_t longest_text(const serve_server *s, int64_t given) {
    const plsh_model_facts *facts = &s->model.facts;
    const int64_t own = facts->causal ? facts->context : s->sentence_facts.longest;
    if (given > 0) return given;
    if (own > 0 && own < LONGEST_TEXT) return own;
    return facts->causal && !facts->alibi && own <= 0 ? CAUSAL_TEXT : LONGEST_TEXT;
}

static int set_limits(const settings *given, serve_server *s) {
    const serve_options *o = &given->serve;
    const bool causal = s->model.facts.causal;
    s->limits = (serve_limits){.text_tokens = longest_text(s, o->max_tokens),
                               .queue_tokens = o->queue_tokens,
                               .requests = o->queue_requests,
                               .connections = o->connections,
                               .sequences = o->parallel,
                               .batch = o->batch > 0 ? o->batch
                                        : causal     ? given->lm.model.chunk
                                                     : 2048,
                               .body = (size_t)o->max_body,
                               .patience = o->patience,
                               .drain = o->drain};
    return serve_memory_plan(s, 1e9 * o->memory);
}

/* "models/name.gguf" and "models/name/": name. */
static const char *base_name(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    return strndup(path + begin, length - begin);
}

static int open_server(const settings *given, serve_server *s) {
    const char *key = given->serve.key != NULL ? given->serve.key : getenv("PLSH_API_KEY");
    s->options = &given->lm;
    s->key = key;
    s->began = plsh_clock_seconds();
    if (key != NULL && key[0] == '\0') return cli_usage("--api-key: an empty key keeps no one out");
    int code = cli_model_open(&given->lm, &s->model);
    if (code == CLI_DONE) code = cli_model_tokenizer(&given->lm, &s->model);
    if (code == CLI_DONE) code = s->model.facts.causal ? open_generator(s) : open_encoder(s);
    if (code == CLI_DONE) code = set_limits(given, s);
    if (code == CLI_DONE && s->model.facts.causal) code = serve_generator_open(s);
    if (code != CLI_DONE) return code;
    s->name = base_name(given->serve.name != NULL ? given->serve.name : given->lm.model.model);
    if (s->name == NULL) return cli_fail("out of memory");
    /* The system call: glibc has the function getrandom only from 2.25 on. */
    if (syscall(SYS_getrandom, &s->entropy, sizeof s->entropy, 0) != sizeof s->entropy)
        s->entropy = (uint64_t)plsh_clock_read(CLOCK_REALTIME);
    cli_model_announce(&s->model);
    return CLI_DONE;
}

/* ---- Running ---- */

typedef struct threads {
    pthread_t thread[SERVE_HELPERS + 1];
    int count;
} threads;

static int start_threads(serve_server *s, threads *t) {
    int failed = pthread_create(&t->thread[0], NULL, serve_scheduler_main, s);
    t->count = failed == 0;
    for (int i = 0; failed == 0 && i < SERVE_HELPERS; i++) {
        failed = pthread_create(&t->thread[t->count], NULL, serve_helper_main, s);
        t->count += failed == 0;
    }
    return failed == 0 ? CLI_DONE : cli_fail("a thread could not be made: %s", strerror(failed));
}

static void stop_threads(serve_server *s, threads *t) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->scheduler);
    pthread_mutex_unlock(&s->lock);
    if (t->count > 0) pthread_join(t->thread[0], NULL);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->helpers);
    pthread_mutex_unlock(&s->lock);
    for (int i = 1; i < t->count; i++) pthread_join(t->thread[i], NULL);
}

/* glibc gives threads several heaps, but malloc_trim returns the free end of the main heap only.
 * All threads share that one: with a second heap, an idle server of a tiny model kept 10 MB that
 * were free. The memory is returned while nothing runs. */
static void tidy_memory(serve_server *s, int64_t ticks) {
#if defined(__GLIBC__)
    pthread_mutex_lock(&s->lock);
    const bool idle = s->admitted == 0;
    pthread_mutex_unlock(&s->lock);
    if (ticks % TRIM == TRIM - 1 && idle) malloc_trim(0);
#else
    (void)s;
    (void)ticks;
#endif
}

/* Waits a tick for a signal to end, and looks at the clients. */
static bool wait_tick(serve_server *s, const sigset_t *signals) {
    const struct timespec tick = {.tv_nsec = TICK};
    const bool ended = sigtimedwait(signals, NULL, &tick) > 0;
    serve_watch(s);
    return ended;
}

/* No new requests; those that were admitted are answered, if they can be in time. */
static void drain(serve_server *s, const sigset_t *signals) {
    const double end = plsh_clock_seconds() + s->limits.drain;
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    const int64_t jobs = s->admitted;
    pthread_mutex_unlock(&s->lock);
    serve_http_stop_listening(s);
    cli_note("ending: %lld requests are still to be answered", (long long)jobs);
    for (bool busy = true; busy && plsh_clock_seconds() < end;) {
        if (wait_tick(s, signals)) break;
        pthread_mutex_lock(&s->lock);
        busy = s->job_count > 0;
        pthread_mutex_unlock(&s->lock);
    }
}

static int serve(const settings *given, serve_server *s, const sigset_t *signals) {
    threads t = {0};
    char *address = NULL;
    int code = start_threads(s, &t);
    if (code == CLI_DONE)
        code = serve_http_start(s, given->serve.host, given->serve.port, &address);
    if (code == CLI_DONE) {
        fprintf(stderr, "listening on %s\n", address);
        fflush(stderr);
        for (int64_t ticks = 0; !wait_tick(s, signals); ticks++) tidy_memory(s, ticks);
        drain(s, signals);
    }
    stop_threads(s, &t);
    if (s->daemon != NULL) serve_http_stop(s);
    free(address);
    return code;
}

static void close_server(serve_server *s) {
    serve_generator_close(s->generator);
    plsh_chat_close(s->chat);
    plsh_sentence_close(s->sentence);
    cli_model_close(&s->model);
    free((char *)(uintptr_t)s->name);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->helpers);
    pthread_cond_destroy(&s->scheduler);
    pthread_cond_destroy(&s->changed);
}

static int run_serve(const void *given) {
    serve_server s = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .helpers = PTHREAD_COND_INITIALIZER,
                      .scheduler = PTHREAD_COND_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    signal(SIGPIPE, SIG_IGN);
#if defined(__GLIBC__)
    mallopt(M_ARENA_MAX, HEAPS);
#endif
    int code = open_server(given, &s);
    if (code == CLI_DONE) { /* before there are threads, which inherit it */
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        code = serve(given, &s, &signals);
    }
    close_server(&s);
    return code;
}

const cli_command cli_command_serve = {
    .name = "serve",
    .summary = "a model over HTTP, with the routes of OpenAI's API, of TEI and TGI",
    .text = "Answers HTTP requests until SIGTERM or Ctrl-C. Encoders: POST /v1/embeddings, /embed, "
            "/rerank, /predict, /tokenize. Causal models: POST /v1/completions, "
            "/v1/chat/completions and /generate, also as event streams. Both: GET /v1/models, "
            "/health, /info, "
            "/metrics, and a page to try the model at /. Requests of all clients go through the "
            "model together. The server speaks plain HTTP: if the network is not trusted, put a "
            "proxy with TLS (nginx, Caddy) before it, and set a key.",
    .example = "plsh serve --model model --port 0",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_serve,
};
