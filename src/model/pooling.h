/* model: how an encoder's files ask for the rows of a text to be made into one. */
#ifndef PLSH_MODEL_POOLING_H
#define PLSH_MODEL_POOLING_H

#include "model/config.h"
#include "plsh/model.h"

#define PLSH_POOLING_FOLDER "1_Pooling"           /* of sentence-transformers, */
#define PLSH_POOLING_FILE "1_Pooling/config.json" /* which says it */

/* *out is left alone where they do not say. */
plsh_status plsh_pooling_read(const plsh_weights *weights, const plsh_family *family,
                              plsh_pooling *out, plsh_error *error);

/* The number of <architecture>.pooling_type in a GGUF. */
int64_t plsh_pooling_gguf_type(plsh_pooling pooling);

#endif
