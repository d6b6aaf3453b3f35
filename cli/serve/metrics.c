/* serve: counters and histograms, as Prometheus reads them. */
#include "cli/serve/serve.h"

#include "base/clock.h"
#include "plsh/version.h"

#include <stdio.h>
#include <stdlib.h>

static const int codes[SERVE_CODES] = {200, 400, 401, 404, 405, 413, 415, 422, 429, 499, 500, 503};
static const double shortest = 0.001; /* the end of the first bucket, in seconds */

void serve_histogram_add(serve_histogram *h, double seconds) {
    double end = shortest;
    int bucket = 0;
    for (; bucket < SERVE_BUCKETS && seconds > end; bucket++) end *= 2;
    h->buckets[bucket]++;
    h->count++;
    h->sum += seconds;
}

void serve_metrics_count(serve_metrics *metrics, serve_route route, int status) {
    for (int i = 0; i < SERVE_CODES; i++)
        if (codes[i] == status) metrics->requests[route][i]++;
}

static void print_histogram(FILE *out, const char *name, const char *help,
                            const serve_histogram *h) {
    uint64_t sum = 0;
    double end = shortest;
    fprintf(out, "# HELP plsh_%s %s\n# TYPE plsh_%s histogram\n", name, help, name);
    for (int b = 0; b < SERVE_BUCKETS; b++, end *= 2) {
        sum += h->buckets[b];
        fprintf(out, "plsh_%s_bucket{le=\"%g\"} %llu\n", name, end, (unsigned long long)sum);
    }
    fprintf(out, "plsh_%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)h->count);
    fprintf(out, "plsh_%s_sum %.6f\nplsh_%s_count %llu\n", name, h->sum, name,
            (unsigned long long)h->count);
}

static void print_value(FILE *out, const char *name, const char *type, const char *help,
                        double value) {
    fprintf(out, "# HELP plsh_%s %s\n# TYPE plsh_%s %s\nplsh_%s %.17g\n", name, help, name, type,
            name, value);
}

static void print_requests(FILE *out, const serve_metrics *m) {
    fprintf(out, "# HELP plsh_requests_total Requests that were answered.\n"
                 "# TYPE plsh_requests_total counter\n");
    for (int r = 0; r < SERVE_ROUTES; r++)
        for (int c = 0; c < SERVE_CODES; c++)
            if (m->requests[r][c] > 0)
                fprintf(out, "plsh_requests_total{route=\"%s\",code=\"%d\"} %llu\n",
                        serve_route_path((serve_route)r), codes[c],
                        (unsigned long long)m->requests[r][c]);
}

static void print_counters(FILE *out, const serve_metrics *m) {
    print_value(out, "prompt_tokens_total", "counter", "Tokens of texts and prompts.",
                (double)m->tokens_in);
    print_value(out, "generated_tokens_total", "counter", "Tokens that were generated.",
                (double)m->tokens_out);
    print_value(out, "shared_tokens_total", "counter",
                "Tokens of prompts that were taken from another request's cache.",
                (double)m->tokens_shared);
    print_value(out, "passes_total", "counter", "Passes through the model.", (double)m->passes);
    print_value(out, "pass_tokens_total", "counter", "Tokens of all passes.",
                (double)m->pass_tokens);
    print_value(out, "clients_left_total", "counter",
                "Requests whose client left before the answer.", (double)m->left);
    print_value(out, "connections_total", "counter", "Connections that were accepted.",
                (double)m->connections);
}

static void print_gauges(FILE *out, const serve_server *s, int64_t resident) {
    print_value(out, "connections", "gauge", "Open connections.", (double)s->peer_count);
    print_value(out, "queue_requests", "gauge", "Admitted requests that are not answered yet.",
                (double)s->admitted);
    print_value(out, "queue_tokens", "gauge", "Tokens of these requests.",
                (double)s->admitted_tokens);
    print_value(out, "body_bytes", "gauge", "Bytes of request bodies in memory.",
                (double)s->body_bytes);
    print_value(out, "reserved_bytes", "gauge", "Bytes reserved for tokens and answers.",
                (double)s->reserved);
    print_value(out, "cache_bytes", "gauge", "Bytes reserved for keys and values.",
                (double)s->cache_bytes);
    print_value(out, "memory_limit_bytes", "gauge", "Limit of all memory besides the weights.",
                (double)s->limits.memory);
    print_value(out, "resident_bytes", "gauge", "Memory of the process, mapped weights included.",
                (double)resident);
    print_value(out, "uptime_seconds", "gauge", "Since the model was opened.",
                plsh_clock_seconds() - s->began);
    print_value(out, "draining", "gauge", "1: no new requests are taken.", s->draining);
}

char *serve_metrics_text(serve_server *server, size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (out == NULL) return NULL;
    const int64_t resident = serve_memory_resident(); /* reads a file: not under the lock */
    fprintf(out, "# TYPE plsh_build_info gauge\nplsh_build_info{version=\"%s\"} 1\n",
            plsh_version());
    pthread_mutex_lock(&server->lock);
    print_requests(out, &server->metrics);
    print_counters(out, &server->metrics);
    print_gauges(out, server, resident);
    print_histogram(out, "request_seconds", "From a request's body to its whole answer.",
                    &server->metrics.seconds);
    print_histogram(out, "queue_seconds", "From admission to the first pass.",
                    &server->metrics.queued);
    print_histogram(out, "first_token_seconds", "From admission to the first token.",
                    &server->metrics.first_token);
    print_histogram(out, "next_token_seconds", "Between tokens of a sequence.",
                    &server->metrics.next_token);
    print_histogram(out, "pass_seconds", "Of a pass through the model.",
                    &server->metrics.pass_seconds);
    pthread_mutex_unlock(&server->lock);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
