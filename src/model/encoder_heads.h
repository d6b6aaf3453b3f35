/* model: the heads of an encoder: masked LM and classifier. */
#ifndef PLSH_MODEL_ENCODER_HEADS_H
#define PLSH_MODEL_ENCODER_HEADS_H

#include "model/bind.h"

typedef struct plsh_encoder_heads plsh_encoder_heads;

/* The heads whose tensors the file has, into model->encoder_heads. */
void plsh_encoder_heads_bind(plsh_binder *binder);
void plsh_encoder_heads_free(plsh_encoder_heads *heads); /* NULL is fine */

/* Is there a masked-LM head? How many labels has the classifier? NULL: none. */
bool plsh_encoder_heads_masked(const plsh_encoder_heads *heads);
int64_t plsh_encoder_heads_labels(const plsh_encoder_heads *heads);

#endif
