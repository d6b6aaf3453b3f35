/* formats: an open file of weights, as the readers of the formats fill it. */
#ifndef PLSH_FORMATS_FILE_H
#define PLSH_FORMATS_FILE_H

#include "base/mapping.h"
#include "base/reader.h"
#include "plsh/weights.h"

/* What one file holds. Names and keys point into `names`, where each ends with a zero. */
typedef struct plsh_weights_part {
    plsh_mapping mapping; /* closed where the bytes are the caller's */
    plsh_tensor *tensors;
    size_t tensor_count;
    plsh_metadata *metadata;
    size_t metadata_count;
    char *names;
} plsh_weights_part;

struct plsh_weights {
    plsh_weights_form form;
    char *path, *folder;
    plsh_weights_part *parts;
    size_t part_count;
    plsh_tensor *all;            /* the tensors of the parts in turn */
    const plsh_tensor **by_name; /* the same, sorted */
    size_t count;
    const plsh_metadata **by_key; /* of the first part */
};

/* The whole number of this key of one file; `fallback` where there is none. */
int64_t plsh_metadata_part_integer(const plsh_weights_part *part, const char *key,
                                   int64_t fallback);

/* Bytes of a number of metadata; 0: not a number. */
int plsh_metadata_width(uint32_t type);

/* Fill `part`, which is zeroed; on failure it may be filled in part. */
plsh_status plsh_gguf_parse(plsh_weights_part *part, plsh_reader *reader, plsh_error *error);
plsh_status plsh_safetensors_parse(plsh_weights_part *part, plsh_reader *reader, plsh_error *error);
plsh_status plsh_torch_parse(plsh_weights_part *part, plsh_reader *reader, plsh_error *error);

/* A pickle without the archive around it: refused, with what to do. */
plsh_status plsh_torch_refuse_old(plsh_reader *reader, plsh_error *error);

/* model.safetensors.index.json, pytorch_model.bin.index.json: the paths of the files it names. */
typedef struct plsh_weights_index {
    void *json;
    char **files;
    size_t count;
} plsh_weights_index;

plsh_status plsh_weights_index_read(plsh_weights_index *index, const char *folder, const char *path,
                                    plsh_error *error);
/* Every tensor the index names is in the weights. */
plsh_status plsh_weights_index_check(const plsh_weights_index *index, const plsh_weights *weights,
                                     const char *path, plsh_error *error);
void plsh_weights_index_close(plsh_weights_index *index);

/* No two tensors share a byte, nor one with the header, which ends at `begin`; with `full`, every
 * byte from there on belongs to one. `reader` is the file. */
plsh_status plsh_weights_check_places(const plsh_weights_part *part, plsh_reader *reader,
                                      size_t begin, bool full, plsh_error *error);

#endif
