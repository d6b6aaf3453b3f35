/* fuzz: the bodies of requests to plsh serve. The first byte chooses the route, the rest is the
 * body. What is read keeps to its limits, and is the same when it is read again. */
#include "cli/serve/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VALUES = 4096 };

static void fail_if(bool wrong) {
    if (wrong) abort();
}

static void check(const serve_request *r, serve_route route) {
    const bool chat = route == SERVE_CHAT;
    fail_if(r->document == NULL);
    fail_if(chat ? r->message_count < 1 || r->message_count > SERVE_MESSAGES
                 : r->input_count < 1 || r->input_count > SERVE_INPUTS);
    for (int64_t i = 0; i < r->input_count; i++) {
        const serve_input *input = &r->inputs[i];
        fail_if((input->text.bytes == NULL) == (input->ids == NULL));
        fail_if(input->text.length > 0 && memchr(input->text.bytes, 0xff, input->text.length));
        for (int64_t t = 0; t < input->count; t++) fail_if(input->ids[t] < 0);
    }
    for (int64_t i = 0; i < r->message_count; i++)
        fail_if(r->messages[i].role == NULL || r->messages[i].content.bytes == NULL);
    for (int64_t i = 0; i < r->stop_count; i++)
        fail_if(r->stops[i].length < 1 || r->stops[i].length > SERVE_STOP_BYTES);
    fail_if(r->stop_count > SERVE_STOPS || r->likely > SERVE_LIKELY || r->choices > SERVE_CHOICES);
    fail_if(!(r->sampler.temperature >= 0) || !(r->sampler.top_p >= 0 && r->sampler.top_p <= 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const serve_route routes[] = {SERVE_EMBEDDINGS, SERVE_EMBED,    SERVE_RERANK,
                                         SERVE_PREDICT,    SERVE_TOKENIZE, SERVE_COMPLETIONS,
                                         SERVE_CHAT,       SERVE_GENERATE};
    if (size == 0) return 0;
    const serve_route route = routes[data[0] % (sizeof routes / sizeof *routes)];
    const char *body = (const char *)data + 1;
    serve_request once, twice;
    serve_fault fault = {0}, again = {0};
    const bool read = serve_request_parse(&once, route, body, size - 1, VALUES, &fault);
    fail_if(read != serve_request_parse(&twice, route, body, size - 1, VALUES, &again));
    fail_if(read ? fault.status != 0 : fault.status < 400 || fault.message[0] == '\0');
    fail_if(once.input_count != twice.input_count || once.message_count != twice.message_count);
    if (read) check(&once, route);
    serve_request_free(&once);
    serve_request_free(&twice);
    return 0;
}
