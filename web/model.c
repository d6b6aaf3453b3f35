/* web: a language model that continues a text, greedily, with one attention or another. */
#include "web/model.h"
#include "plsh/lm.h"
#include "web/web.h"

#include <stdlib.h>
#include <string.h>

static struct {
    plsh_model *model;
    plsh_tokenizer *tokenizer;
    plsh_model_ends ends;
} opened;

static struct {
    plsh_session *session;
    plsh_token_stream *stream;
    plsh_token_ids prompt;
    plsh_token_text text; /* of the last token */
    plsh_step step;       /* the next one */
    float *logits;
    int32_t token;
} running;

bool web_model_open(const char *path) {
    web_model_close();
    plsh_error *error = web_error_target();
    return plsh_model_open(&opened.model, path, NULL, error) == PLSH_STATUS_OK &&
           plsh_tokenizer_open(&opened.tokenizer, path, error) == PLSH_STATUS_OK &&
           plsh_model_end_tokens(opened.model, &opened.ends, error) == PLSH_STATUS_OK;
}

void web_model_close(void) {
    web_generate_end();
    plsh_tokenizer_free(opened.tokenizer);
    plsh_model_close(opened.model);
    memset(&opened, 0, sizeof opened);
}

const char *web_model_family(void) { return plsh_model_describe(opened.model).family; }

void web_model_facts(double out[5]) {
    const plsh_model_facts facts = plsh_model_describe(opened.model);
    out[0] = (double)facts.layers;
    out[1] = (double)facts.heads;
    out[2] = (double)facts.parameters;
    out[3] = (double)facts.bytes;
    out[4] = facts.alibi;
}

/* ---- Generating ------------------------------------------------------------------------------ */

/* The method in all layers, with the slopes of the model; RoPE is left as it is. */
static plsh_status make_session(int method, int samples) {
    plsh_error *error = web_error_target();
    const plsh_model_facts facts = plsh_model_describe(opened.model);
    plsh_layer_attention attention = {.original = method < 0, .head_count = facts.heads};
    plsh_head *heads = calloc((size_t)facts.heads, sizeof *heads);
    if (heads == NULL) return PLSH_STATUS_NO_MEMORY;
    plsh_status status = PLSH_STATUS_OK;
    if (method >= 0) {
        status = plsh_model_heads(opened.model, (plsh_method)method, 0, heads, error);
        for (int64_t h = 0; h < facts.heads; h++) heads[h].partition.samples = samples;
    }
    attention.head = heads;
    const plsh_session_options options = {.attention = &attention, .attention_count = 1};
    if (status == PLSH_STATUS_OK)
        status = plsh_session_create(&running.session, opened.model, &options, error);
    free(heads);
    return status;
}

static plsh_status encode_prompt(const char *prompt) {
    plsh_error *error = web_error_target();
    plsh_status status = plsh_tokenizer_begin(opened.tokenizer, &running.prompt, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_tokenizer_encode(opened.tokenizer, prompt, strlen(prompt), false,
                                       &running.prompt, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_token_stream_create(&running.stream, opened.tokenizer, true, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_token_stream_follow(running.stream, running.prompt.ids, running.prompt.count,
                                          error);
    return status;
}

int web_generate_begin(const char *prompt, int method, int samples) {
    web_generate_end();
    const int64_t vocabulary = plsh_model_describe(opened.model).vocabulary;
    running.logits = malloc((size_t)vocabulary * sizeof *running.logits);
    if (running.logits == NULL || make_session(method, samples) != PLSH_STATUS_OK ||
        encode_prompt(prompt) != PLSH_STATUS_OK)
        return -1;
    running.step = (plsh_step){.ids = running.prompt.ids,
                               .count = (int64_t)running.prompt.count,
                               .logits = running.logits};
    return (int)running.prompt.count;
}

static bool is_end(int32_t token) {
    bool found = token == plsh_tokenizer_roles(opened.tokenizer).end;
    for (int64_t i = 0; i < opened.ends.count; i++) found = found || opened.ends.ids[i] == token;
    return found;
}

int web_generate_next(void) {
    plsh_error *error = web_error_target();
    const plsh_sampler greedy = {.temperature = 0};
    const int64_t vocabulary = plsh_model_describe(opened.model).vocabulary;
    running.text.length = 0;
    if (running.text.bytes != NULL) running.text.bytes[0] = '\0';
    if (plsh_session_step(running.session, &running.step, error) != PLSH_STATUS_OK ||
        plsh_sampler_choose(&greedy, running.logits, vocabulary, 0, &running.token, error) !=
            PLSH_STATUS_OK)
        return WEB_GENERATE_FAILED;
    if (is_end(running.token)) return WEB_GENERATE_ENDED;
    if (plsh_token_stream_next(running.stream, running.token, &running.text, error) !=
        PLSH_STATUS_OK)
        return WEB_GENERATE_FAILED;
    running.step = (plsh_step){.ids = &running.token, .count = 1, .logits = running.logits};
    return running.token;
}

const char *web_generate_text(void) { return running.text.bytes != NULL ? running.text.bytes : ""; }

double web_generate_bytes(void) { return (double)plsh_session_cache_bytes(running.session); }

void web_generate_end(void) {
    plsh_token_stream_free(running.stream);
    plsh_session_destroy(running.session);
    plsh_token_ids_free(&running.prompt);
    plsh_token_text_free(&running.text);
    free(running.logits);
    memset(&running, 0, sizeof running);
}
