/* cli: the contents of a model's files, for plsh info --model. */
#include "cli/lm/model.h"

#include "cli/message.h"

#include <stdio.h>
#include <string.h>

/* Where facts go: printed as lines, or put into the document. */
typedef struct facts {
    cli_json *json; /* NULL: lines */
} facts;

/* The text may be a file's own. */
static void put_text(const facts *f, const char *key, const char *text) {
    if (f->json != NULL) {
        cli_json_text(f->json, key, text);
        return;
    }
    printf("%-14s ", key);
    cli_write_text(stdout, text != NULL ? text : "-", text != NULL ? strlen(text) : 1, false);
    printf("\n");
}

static void put_number(const facts *f, const char *key, int64_t number) {
    if (f->json != NULL)
        cli_json_integer(f->json, key, number);
    else
        printf("%-14s %lld\n", key, (long long)number);
}

static const char *form_name(const plsh_weights *weights) {
    static const char *const names[] = {"safetensors", "GGUF", "torch"};
    return names[plsh_weights_form_of(weights)];
}

/* How many tensors there are of each type, and their bytes. */
static void put_types(const facts *f, const plsh_weights *weights) {
    if (f->json != NULL) cli_json_begin_array(f->json, "types");
    for (int type = 0; type < PLSH_WEIGHT_TYPES; type++) {
        const char *name = plsh_weight_type_name((plsh_weight_type)type);
        int64_t count = 0, bytes = 0;
        for (size_t i = 0; i < plsh_weights_count(weights); i++) {
            const plsh_tensor *tensor = plsh_weights_at(weights, i);
            if ((int)tensor->type != type) continue;
            count++;
            bytes += (int64_t)tensor->size;
        }
        if (count > 0 && f->json != NULL) {
            cli_json_begin_object(f->json, NULL);
            cli_json_text(f->json, "type", name);
            cli_json_integer(f->json, "tensors", count);
            cli_json_integer(f->json, "bytes", bytes);
            cli_json_end(f->json);
        } else if (count > 0) {
            printf("%-14s %s: %lld tensors, %.4g MB\n", "type", name, (long long)count,
                   (double)bytes / 1e6);
        }
    }
    if (f->json != NULL) cli_json_end(f->json);
}

/* "causal", "encoder", .. with its head. */
static const char *kind_of(const plsh_model_facts *m) {
    return m->causal        ? "causal"
           : m->labels == 1 ? "encoder, classifier of one label (a reranker)"
           : m->labels > 1  ? "encoder, classifier"
           : m->masked      ? "encoder, masked-LM head"
                            : "encoder";
}

static void put_model(const facts *f, const plsh_model *model) {
    const plsh_model_facts m = plsh_model_describe(model);
    put_text(f, "format", form_name(plsh_model_weights(model)));
    put_text(f, "family", m.family);
    put_text(f, "kind", kind_of(&m));
    put_number(f, "parameters", m.parameters);
    put_number(f, "bytes", (int64_t)m.bytes);
    put_number(f, "layers", m.layers);
    put_number(f, "hidden", m.hidden);
    put_number(f, "intermediate", m.intermediate);
    put_number(f, "heads", m.heads);
    put_number(f, "kv_heads", m.kv_heads);
    put_number(f, "head_dim", m.head_dim);
    put_number(f, "vocabulary", m.vocabulary);
    put_number(f, "context", m.context);
    put_text(f, "position", m.alibi ? "ALiBi" : m.rope ? "RoPE" : "learned");
    if (m.labels > 0) put_number(f, "labels", m.labels);
    put_types(f, plsh_model_weights(model));
}

/* A tokenizer or a template that is missing or not supported is a fact too. */
static void put_texts(const facts *f, const plsh_model *model, const char *path) {
    plsh_tokenizer *tokenizer;
    plsh_chat *chat = NULL;
    plsh_error error;
    if (plsh_tokenizer_open(&tokenizer, path, &error) != PLSH_STATUS_OK) {
        put_number(f, "tokens", 0);
        put_text(f, "tokenizer", error.message);
        return;
    }
    put_number(f, "tokens", plsh_tokenizer_size(tokenizer));
    put_text(f, "tokenizer", "read");
    if (plsh_model_describe(model).causal) {
        const bool open = plsh_chat_open(&chat, model, tokenizer, &error) == PLSH_STATUS_OK;
        put_text(f, "chat", open ? plsh_chat_describe(chat).form : error.message);
    }
    plsh_chat_close(chat);
    plsh_tokenizer_free(tokenizer);
}

static void put_sentence(const facts *f, const plsh_model *model) {
    plsh_sentence *sentence;
    plsh_error error;
    if (plsh_model_describe(model).causal) return;
    if (plsh_sentence_open(&sentence, model, PLSH_POOLING_COUNT, &error) != PLSH_STATUS_OK) {
        put_text(f, "pooling", error.message);
        return;
    }
    const plsh_sentence_facts s = plsh_sentence_describe(sentence);
    put_text(f, "pooling", plsh_pooling_names()[s.pooling]);
    put_number(f, "columns", s.columns);
    put_number(f, "longest_text", s.longest);
    plsh_sentence_close(sentence);
}

int cli_model_info(const char *path, const cli_common *common) {
    plsh_model *model;
    plsh_error error;
    const plsh_model_options options = {.threads = (int)common->threads, .isa = common->isa};
    if (plsh_model_open(&model, path, &options, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    const facts f = {common->json ? cli_document_begin() : NULL};
    int code = common->json && f.json == NULL ? CLI_FAILED : CLI_DONE;
    if (code == CLI_DONE) {
        put_text(&f, "model", path);
        put_model(&f, model);
        put_texts(&f, model, path);
        put_sentence(&f, model);
        if (f.json != NULL) code = cli_document_end(f.json);
    }
    plsh_model_close(model);
    return code;
}
