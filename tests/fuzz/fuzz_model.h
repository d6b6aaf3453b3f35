/* fuzz: a folder with a tiny model, for targets that need one. */
#ifndef PLSH_TESTS_FUZZ_MODEL_H
#define PLSH_TESTS_FUZZ_MODEL_H

#include "plsh/io.h"
#include "plsh/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUZZ_VOCABULARY = 32, FUZZ_LAYERS = 2 };

static char fuzz_folder[] = "plsh-fuzz-XXXXXX";

static inline void fuzz_fail_if(bool wrong, const char *what) {
    if (!wrong) return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* "<folder>/<name>", in a buffer that is reused after four calls. */
static inline const char *fuzz_path(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder, name);
    return path;
}

static void fuzz_remove(void) { plsh_folder_remove(fuzz_folder, NULL); }

/* Without syncing, which would cost most of the time. */
static inline void fuzz_write(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(fuzz_path(name), "wb");
    fuzz_fail_if(file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0,
                 "a file could not be written");
}

/* FOLDER/model: two layers, 2 heads over 1 kv head, 8 numbers wide. */
static inline void fuzz_make_model(void) {
    static const char config[] =
        "{\"model_type\": \"bloom\", \"hidden_size\": 8, \"n_layer\": 2, \"n_head\": 2, "
        "\"vocab_size\": 32, \"layer_norm_epsilon\": 1e-5}";
    plsh_error error;
    fuzz_fail_if(mkdtemp(fuzz_folder) == NULL, "no folder could be made");
    atexit(fuzz_remove);
    fuzz_write("config.json", config, sizeof config - 1);
    plsh_status status =
        plsh_train_initialise(fuzz_path("config.json"), 1, fuzz_path("model"), &error);
    fuzz_fail_if(status != PLSH_STATUS_OK, error.message);
}

#endif
