/* serve: how much memory there is, and how it is divided. */
#include "cli/message.h"
#include "cli/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECTION_BYTES = 40960, /* headers, and what is kept of a connection */
    OTHER_VALUES = 65536,     /* of a document, besides as many token ids as fit in the queue */
    FEWEST_TOKENS = 512       /* a limit of tokens that was not given never shrinks below this */
};

/* The first number of a file's line that begins with `word`; -1: none. */
static int64_t read_number(const char *path, const char *word) {
    char line[256];
    long long number = -1;
    FILE *file = fopen(path, "r");
    while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, word, strlen(word)) != 0 ||
            sscanf(line + strlen(word), "%lld", &number) != 1)
            number = -1;
    if (file != NULL) fclose(file);
    return number;
}

int64_t serve_memory_resident(void) {
    const int64_t kibibytes = read_number("/proc/self/status", "VmRSS:");
    return kibibytes > 0 ? kibibytes * 1024 : 0;
}

/* Bytes that can still be used: of the machine, and of its control group. */
static size_t available(void) {
    int64_t bytes = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    const int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    const int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    if (bytes <= 0) bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    if (limit > 0 && used >= 0 && limit - used < bytes) bytes = limit > used ? limit - used : 0;
    return (size_t)bytes;
}

/* Bytes of an encoder's longest pass, one text of `tokens` tokens or a batch, whichever is more:
 * activations and hidden states. Half as much again is for the passes nested in it, which need less
 * than 1/3 (encode.c). */
static plsh_status encoder_bytes(const serve_server *server, int64_t tokens, size_t *bytes,
                                 plsh_error *error) {
    const plsh_encoding encoding = {.count = tokens > server->limits.batch ? tokens
                                                                           : server->limits.batch,
                                    .attention = server->model.attention,
                                    .attention_count = server->model.attention_count};
    plsh_status status = plsh_model_encode_bytes(server->model.model, &encoding, bytes, error);
    *bytes += (size_t)encoding.count * (size_t)server->model.facts.hidden * sizeof(float);
    *bytes += *bytes / 2;
    return status;
}

/* Activations of a pass, the logits of all sequences, and the cache of the longest text. */
static plsh_status generator_bytes(const serve_server *server, int64_t tokens, size_t *bytes,
                                   size_t *cache, plsh_error *error) {
    plsh_session_options options = cli_model_session(server->options, &server->model);
    plsh_session *session;
    const int64_t sequences = server->limits.sequences;
    options.chunk = server->limits.batch + sequences;
    plsh_status status = plsh_session_create(&session, server->model.model, &options, error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_session_step_bytes(session, sequences + 1, bytes, error);
    *cache = plsh_session_cache_bytes_at(session, tokens);
    plsh_session_destroy(session);
    *bytes += 2 * (size_t)(sequences * server->model.facts.vocabulary) * sizeof(float);
    return status;
}

/* What is needed for texts of so many tokens, whatever else runs. */
static plsh_status needed(const serve_server *server, int64_t tokens, size_t *bytes, size_t *cache,
                          plsh_error *error) {
    *cache = 0;
    return server->model.facts.causal ? generator_bytes(server, tokens, bytes, cache, error)
                                      : encoder_bytes(server, tokens, bytes, error);
}

static int too_little(const serve_server *server, int64_t tokens, size_t bytes, size_t memory) {
    return cli_fail(
        "texts of %lld tokens need %.3g GB of memory besides the weights; there are "
        "%.3g GB: a smaller --max-tokens or --max-body, or a larger --memory, which is now "
        "%s",
        (long long)tokens, (double)bytes / 1e9, (double)memory / 1e9,
        server->limits.memory > 0 ? "given" : "60 % of what is free");
}

/* What helpers need to read bodies: documents, which get at most 1/8 of the memory by a limit of
 * their values, and ids of as many tokens as a body has bytes, in lists that double. */
static size_t plan_documents(serve_limits *limits, size_t memory) {
    const size_t most = memory / 8 / SERVE_HELPERS / SERVE_VALUE_BYTES;
    limits->values = limits->queue_tokens + OTHER_VALUES;
    if ((size_t)limits->values > most) limits->values = (int64_t)most;
    return SERVE_HELPERS *
           ((size_t)limits->values * SERVE_VALUE_BYTES + limits->body * (1 + 2 * sizeof(int32_t)));
}

/* Shares: 1/8 of the memory for bodies, 1/8 for tokens and answers, at most 1/8 for documents;
 * connections; then what a pass needs; the caches of generated texts get the rest. */
int serve_memory_plan(serve_server *server, double wanted) {
    serve_limits *limits = &server->limits;
    const size_t memory = wanted > 0 ? (size_t)wanted : available() / 10 * 6;
    const size_t connections = (size_t)limits->connections * CONNECTION_BYTES;
    size_t bytes = 0, cache = 0;
    plsh_error error;
    limits->memory = wanted > 0 ? memory : 0;
    limits->bodies = memory / 8 > limits->body + 1 ? memory / 8 : limits->body + 1;
    limits->answers = memory / 8;
    const size_t documents = plan_documents(limits, memory);
    const size_t fixed = connections + documents + limits->bodies + limits->answers;
    for (;;) {
        if (needed(server, limits->text_tokens, &bytes, &cache, &error) != PLSH_STATUS_OK)
            return cli_fail_error(&error);
        if (fixed + bytes + cache <= memory) break;
        if (cli_option_given("max-tokens") || limits->text_tokens / 2 < FEWEST_TOKENS)
            return too_little(server, limits->text_tokens, fixed + bytes + cache, memory);
        limits->text_tokens /= 2;
    }
    limits->memory = memory;
    limits->caches = memory - fixed - bytes;
    cli_note("memory: at most %.3g GB besides the weights: a pass %.3g, caches %.3g, answers %.3g, "
             "bodies %.3g",
             (double)memory / 1e9, (double)bytes / 1e9,
             server->model.facts.causal ? (double)limits->caches / 1e9 : 0.0,
             (double)limits->answers / 1e9, (double)limits->bodies / 1e9);
    return CLI_DONE;
}
