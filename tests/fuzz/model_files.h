/* fuzz: the files of a model out of one input, for the targets that open whole models.
 *
 * An input is a list of files: a byte that chooses a name (modulo their number), four bytes of
 * length, little endian, and so many bytes, or as many as are left. They are written into a folder
 * of this process, under TMPDIR. */
#ifndef PLSH_TESTS_FUZZ_MODEL_FILES_H
#define PLSH_TESTS_FUZZ_MODEL_FILES_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plsh/lm.h"

static const char *const model_file_names[] = {"config.json",
                                               "model.safetensors",
                                               "model.safetensors.index.json",
                                               "m-1.safetensors",
                                               "m-2.safetensors",
                                               "model.gguf",
                                               "adapter/adapter_config.json",
                                               "adapter/adapter_model.safetensors",
                                               "tokenizer.json",
                                               "slopes.npy",
                                               "generation_config.json",
                                               "1_Pooling/config.json",
                                               "tokenizer_config.json",
                                               "m-00001-of-00002.gguf",
                                               "m-00002-of-00002.gguf",
                                               "modules.json",
                                               "2_Dense/config.json",
                                               "2_Dense/model.safetensors",
                                               "sentence_bert_config.json",
                                               "config_sentence_transformers.json",
                                               "pytorch_model.bin",
                                               "chat_template.jinja"};
enum { MODEL_FILES = sizeof model_file_names / sizeof *model_file_names };

/* The folder, whose files are those of the input, and what is to be opened in it. */
typedef struct model_files {
    char folder[128], model[256], adapter[256];
    bool has_adapter;
} model_files;

static inline void fail_if(bool wrong) {
    if (wrong) abort();
}

static inline int remove_entry(const char *path, const struct stat *about, int kind,
                               struct FTW *walk) {
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

static inline void write_entry(model_files *m, const char *name, const uint8_t *bytes,
                               size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%.120s/%s", m->folder, name);
    FILE *file = fopen(path, "wb");
    fail_if(!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0);
    if (strcmp(name, "model.gguf") == 0 || strcmp(name, "m-00001-of-00002.gguf") == 0)
        snprintf(m->model, sizeof m->model, "%s", path);
    if (strncmp(name, "adapter", 7) == 0) m->has_adapter = true;
}

static inline void model_files_write(model_files *m, const uint8_t *data, size_t size) {
    static const char *const folders[] = {"adapter", "1_Pooling", "2_Dense"};
    const char *root = getenv("TMPDIR");
    char path[256];
    *m = (model_files){0};
    snprintf(m->folder, sizeof m->folder, "%.100s/plsh-fuzz-XXXXXX", root ? root : "/tmp");
    fail_if(!mkdtemp(m->folder));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%.120s/%s", m->folder, folders[i]);
        fail_if(mkdir(path, 0700) != 0);
    }
    snprintf(m->model, sizeof m->model, "%s", m->folder);
    snprintf(m->adapter, sizeof m->adapter, "%.120s/adapter", m->folder);
    for (size_t at = 0; at + 5 <= size;) {
        uint32_t length;
        const char *name = model_file_names[data[at] % MODEL_FILES];
        memcpy(&length, data + at + 1, 4);
        at += 5;
        if (length > size - at) length = (uint32_t)(size - at);
        write_entry(m, name, data + at, length);
        at += length;
    }
}

static inline void model_files_remove(const model_files *m) {
    nftw(m->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Two tokens through an encoder, and through its head. */
static inline void run_encoder(const plsh_model *model, const plsh_model_facts *facts,
                               const int32_t ids[2], float *out) {
    const plsh_encoding encoding = {.ids = ids, .count = 2, .hidden = out};
    if (plsh_model_encode(model, &encoding, NULL) != PLSH_STATUS_OK) return;
    float *logits = calloc((size_t)(facts->vocabulary + facts->labels), sizeof *logits);
    fail_if(!logits);
    if (facts->masked) plsh_model_token_logits(model, out, 1, logits, NULL);
    if (facts->labels > 0) plsh_model_classify(model, out, logits, NULL);
    for (int64_t i = 0; i < facts->labels; i++) fail_if(!plsh_model_label(model, i));
    free(logits);
}

/* Two tokens through the model; its numbers may be anything. */
static inline void run_model(const plsh_model *model) {
    const plsh_model_facts facts = plsh_model_describe(model);
    const int32_t ids[2] = {0, (int32_t)(facts.vocabulary - 1)};
    float *out = calloc((size_t)(facts.vocabulary + 2 * facts.hidden), sizeof *out);
    fail_if(!out);
    if (!facts.causal) {
        run_encoder(model, &facts, ids, out);
    } else {
        const plsh_session_options options = {.chunk = 2};
        const plsh_step step = {.ids = ids, .count = 2, .logits = out};
        plsh_session *session;
        if (plsh_session_create(&session, model, &options, NULL) == PLSH_STATUS_OK)
            plsh_session_step(session, &step, NULL);
        plsh_session_destroy(session);
    }
    free(out);
}

#endif
