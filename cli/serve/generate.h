/* serve: the parts of the scheduler of causal models. */
#ifndef PLSH_CLI_SERVE_GENERATE_H
#define PLSH_CLI_SERVE_GENERATE_H

#include "cli/serve/sequence.h"

enum {
    SERVE_PREFIXES = 32,    /* kept texts */
    SERVE_PREFIX_LEAST = 16 /* tokens: shorter beginnings are computed again */
};

/* A text that was generated: its cache serves later prompts that begin like it. */
typedef struct serve_prefix {
    plsh_session *session;
    int32_t *ids; /* [count], as many as the session holds */
    int64_t count;
    size_t bytes;
    uint64_t used; /* larger: more recently */
} serve_prefix;

struct serve_generator {
    serve_server *server;
    plsh_session_options options;
    plsh_session *host;      /* has the memory for activations, and no tokens */
    serve_sequence *waiting; /* in their order */
    serve_sequence **live;   /* [limits.sequences], the oldest first */
    int64_t live_count;
    serve_prefix prefix[SERVE_PREFIXES];
    int64_t prefix_count;
    uint64_t clock;
    size_t reserved, kept;   /* bytes of the caches of live sequences, and of prefixes */
    plsh_session **sessions; /* [limits.sequences + 1] of a pass */
    plsh_step *steps;
    int32_t *ids; /* [limits.sequences] chosen after a pass; -1: none, -2: it failed */
};

/* ---- sequence.c ---- */

/* The sequences of a job, appended to the waiting ones; false: memory. */
bool serve_sequences_create(serve_generator *g, serve_job *job);

/* Memory that only live sequences have: for logits, and the session, which others make. begin
 * false: there is none. */
bool serve_sequence_begin(serve_sequence *s);
void serve_sequence_end(serve_sequence *s);

/* Chooses the next token from the logits. Runs on any thread. */
bool serve_sequence_choose(serve_sequence *s, int32_t *id);

/* Adds a token; sends what can be sent. The sequence may be over then. */
bool serve_sequence_add(serve_sequence *s, int32_t id);

/* ---- prefix.c ---- */

/* Gives the sequence a session that starts from the longest common beginning that is in a cache.
 * false: it should wait, because a live sequence is computing a longer one. On failure *status is
 * set. */
bool serve_prefix_begin(serve_generator *g, serve_sequence *s, plsh_status *status);

/* Keeps the session of a sequence that is over. */
void serve_prefix_keep(serve_generator *g, serve_sequence *s);

/* Drops the least recently used texts until their caches and `wanted` more bytes fit. */
void serve_prefix_drop(serve_generator *g, size_t wanted);

#endif
