/* model: finding the tensors of a model in its file. */
#ifndef PLSH_MODEL_BIND_H
#define PLSH_MODEL_BIND_H

#include "model/model.h"

typedef struct plsh_binder {
    plsh_model *model;
    bool prefixed;
    plsh_error *error;
    plsh_status status; /* the first failure; nothing happens after it */
    bool in_adapter;    /* the current tensor is the adapter's */
} plsh_binder;

/* Memory that the model owns; NULL on failure. */
float *plsh_bind_floats(plsh_binder *binder, int64_t count);

/* The tensor of this name, which is then used; NULL where it is absent, a failure if it is
 * required.
 */
const plsh_tensor *plsh_bind_tensor(plsh_binder *binder, const char *name, bool required);

/* Has the tensor this shape, and a type to compute with? If not, that is a failure. */
bool plsh_bind_shape(plsh_binder *binder, const plsh_tensor *tensor, int64_t rows, int64_t columns);

/* A vector as floats: in the file where it is stored so, or a copy. NULL: no tensor, or a failure.
 */
const float *plsh_bind_vector(plsh_binder *binder, const plsh_tensor *tensor, int64_t count);

#endif
