/* tests: models with random weights, written as people have them. */
#ifndef PLSH_TESTS_TINY_MODEL_H
#define PLSH_TESTS_TINY_MODEL_H

#include "plsh/weights.h"

typedef struct tiny_tensor {
    const char *name;      /* "%d" stands for the layer: such a tensor is there for each */
    int64_t rows, columns; /* rows 0: a vector */
} tiny_tensor;

/* A folder of its own with config.json and model.safetensors of these tensors; the path in a buffer
 * that is reused after eight calls. */
const char *tiny_model_write(const char *config, const tiny_tensor *tensors, size_t count,
                             int64_t layers);

/* Two layers, hidden 32, 4 heads over 2 kv heads, vocabulary 64. */
const char *tiny_llama(void);
const char *tiny_llama_dropping(double p); /* with dropout of attention weights */
extern const char tiny_llama_config[];
extern const tiny_tensor tiny_llama_tensors[];
extern const size_t tiny_llama_count;

/* Writes the tensors of a file after the metadata of another, and commits it. */
void tiny_model_copy_tensors(plsh_weights_writer *writer, const plsh_weights *weights);

/* Removes such a folder. */
void tiny_model_remove(const char *folder);

/* Asserts that every tensor of one model is in the other one, byte for byte. */
void tiny_model_same_weights(const char *one, const char *other);

#endif
