/* model: the insides of a session. */
#ifndef PLSH_MODEL_SESSION_H
#define PLSH_MODEL_SESSION_H

#include "model/layer.h"

struct plsh_session {
    const plsh_model *model;
    plsh_layer_attention *attention; /* copies, see plsh_session_options */
    int64_t attention_count;
    plsh_head *heads;
    plsh_dtype kv;
    int64_t chunk, undo;
    plsh_model_tap tap;
    plsh_cache **cache; /* [layers] */
    plsh_linear_engine engine;
    plsh_layer_buffers buffers;
    char *memory;           /* of the buffers */
    void *attention_memory; /* one workspace for the caches of all layers */
    size_t attention_bytes;
    bool broken; /* layers hold different numbers of tokens */
};

/* A session with new caches, or with those that `folder` holds. */
plsh_status plsh_session_make(plsh_session **out, const plsh_model *model,
                              const plsh_session_options *options, const char *folder,
                              plsh_error *error);

/* The cache of layer l out of a folder (session_file.c). */
plsh_status plsh_session_load_cache(const plsh_cache_config *config, const char *folder, int64_t l,
                                    plsh_cache **cache, plsh_error *error);

#endif
