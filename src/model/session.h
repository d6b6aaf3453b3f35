/* model: the insides of a session. */
#ifndef PLSH_MODEL_SESSION_H
#define PLSH_MODEL_SESSION_H

#include "base/reader.h"
#include "model/layer.h"

/* Steps whose logits are computed together. */
enum { PLSH_SESSION_LOGITS = 32 };

struct plsh_session {
    const plsh_model *model;
    plsh_layer_attention *attention; /* copies, see plsh_session_options */
    int64_t attention_count;
    plsh_head *heads;
    plsh_dtype kv;
    int64_t chunk, undo;
    int64_t planned; /* tokens that it will hold, on which slopes may depend; 0: they do not */
    plsh_model_tap tap;
    plsh_cache **cache; /* [layers] */
    plsh_linear_engine engine;
    plsh_layer_buffers buffers;
    int64_t rows;           /* of the buffers; 0: none yet */
    char *memory;           /* of the buffers */
    void *attention_memory; /* one workspace for the caches of all layers */
    size_t attention_bytes;
    struct {
        int64_t tokens;
        size_t bytes;
    } need[2];     /* what its caches need for single tokens, and for a step of up to `tokens` */
    float *logits; /* [PLSH_SESSION_LOGITS] hidden states and logits of a batch; NULL: none yet */
    bool stepping; /* while steps are checked */
    bool broken;   /* layers hold different numbers of tokens */
};

/* The contents of a session's file: the sizes of its caches, and the caches. */
typedef struct plsh_session_source {
    plsh_reader sizes, caches;
    uint64_t fingerprint;
} plsh_session_source;

/* A session with new caches (source NULL), or with those that were saved. */
plsh_status plsh_session_make(plsh_session **out, const plsh_model *model,
                              const plsh_session_options *options, plsh_session_source *source,
                              plsh_error *error);

/* plsh_session_source_check fails unless the file was saved by a session of the same model and
 * rotations. The other reads the cache of the next layer (session_file.c). */
plsh_status plsh_session_source_check(const plsh_session *session,
                                      const plsh_session_source *source, plsh_error *error);
plsh_status plsh_session_source_next(plsh_session_source *source, const plsh_cache_config *config,
                                     plsh_cache **cache, plsh_error *error);

#endif
