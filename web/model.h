/* web: what the page calls to run a language model; one at a time, one text at a time. */
#ifndef PLSH_WEB_MODEL_H
#define PLSH_WEB_MODEL_H

#include "web/web.h"

/* A folder or a .gguf file, with its tokenizer; the one before is closed. */
WEB_EXPORT(web_model_open) bool web_model_open(const char *path);
WEB_EXPORT(web_model_close) void web_model_close(void);
WEB_EXPORT(web_model_family) const char *web_model_family(void);

/* out: layers, heads, parameters, bytes of the weights, whether it has ALiBi. */
WEB_EXPORT(web_model_facts) void web_model_facts(double out[5]);

/* Begins a text: tokens of the prompt, or -1 on failure. method < 0: the model's own attention;
 * otherwise this one in all layers. */
WEB_EXPORT(web_generate_begin)
int web_generate_begin(const char *prompt, int method, int samples);

/* The next token, the most likely one; its text is web_generate_text() until the next call. */
enum { WEB_GENERATE_FAILED = -1, WEB_GENERATE_ENDED = -2 };
WEB_EXPORT(web_generate_next) int web_generate_next(void);
WEB_EXPORT(web_generate_text) const char *web_generate_text(void);

/* Bytes of the keys and values that are kept. */
WEB_EXPORT(web_generate_bytes) double web_generate_bytes(void);
WEB_EXPORT(web_generate_end) void web_generate_end(void);

#endif
