/* formats: a file of weights that is being written. */
#ifndef PLSH_FORMATS_WRITER_H
#define PLSH_FORMATS_WRITER_H

#include "base/text.h"
#include "plsh/io.h"
#include "plsh/weights.h"

enum { PLSH_GGUF_ALIGNMENT = 32 };

struct plsh_weights_writer {
    plsh_file *file;
    plsh_weights_form form;
    plsh_text metadata; /* GGUF: keys and values as they will stand in the file */
    uint64_t metadata_count;
    plsh_tensor *tensors; /* their names are owned; `data` is not used */
    size_t count, capacity;
    bool begun;     /* the header is in the file */
    size_t turn;    /* the tensor whose turn it is, */
    size_t written; /* and its bytes so far */
    void *narrowed; /* rows of the file's type */
    size_t narrowed_size;
};

/* The whole header, up to the first byte of data. */
plsh_status plsh_gguf_header(const plsh_weights_writer *writer, plsh_text *out, plsh_error *error);
plsh_status plsh_safetensors_header(const plsh_weights_writer *writer, plsh_text *out,
                                    plsh_error *error);

#endif
