/* serve: counters and histograms, as Prometheus reads them. */
#ifndef PLSH_CLI_SERVE_METRICS_H
#define PLSH_CLI_SERVE_METRICS_H

#include "cli/serve/request.h"

enum { SERVE_BUCKETS = 14, SERVE_CODES = 12 };

/* Seconds in buckets whose ends double. */
typedef struct serve_histogram {
    uint64_t buckets[SERVE_BUCKETS + 1]; /* the last: all above */
    uint64_t count;
    double sum;
} serve_histogram;

/* Under the server's lock. */
typedef struct serve_metrics {
    uint64_t requests[SERVE_ROUTES][SERVE_CODES];
    uint64_t tokens_in, tokens_out, tokens_shared, passes, pass_tokens, left, connections;
    serve_histogram seconds;     /* of a request, from its body to its whole answer */
    serve_histogram queued;      /* from admission to the first pass */
    serve_histogram first_token; /* of generation */
    serve_histogram next_token;
    serve_histogram pass_seconds;
} serve_metrics;

void serve_histogram_add(serve_histogram *h, double seconds);

/* A request of this route was answered with this status. */
void serve_metrics_count(serve_metrics *metrics, serve_route route, int status);

const char *serve_route_path(serve_route route);

#endif
