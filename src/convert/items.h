/* convert: the tensors that a conversion reads and writes. */
#ifndef PLSH_CONVERT_ITEMS_H
#define PLSH_CONVERT_ITEMS_H

#include "convert/convert.h"
#include "model/model.h"

/* Rows of a tensor of the input; of its columns, where it is [in, out]. */
typedef struct plsh_convert_piece {
    const plsh_tensor *from;
    int64_t first, rows;
    plsh_row_order order; /* of rows in a GGUF */
} plsh_convert_piece;

enum { PLSH_CONVERT_PIECES = 3 };

/* One tensor of the output. */
typedef struct plsh_convert_item {
    const plsh_tensor *from;                       /* of its first piece; NULL: `values` */
    const float *values;                           /* one row, made here */
    plsh_convert_piece piece[PLSH_CONVERT_PIECES]; /* its rows, one piece after the other */
    int pieces;                                    /* 0: all of `from`, in `order` */
    plsh_tensor to;                                /* name, type, shape */
    char name[160];                                /* of `to` */
    plsh_row_order order;                          /* of rows in a GGUF */
    const plsh_adapter_layer *adapter;             /* to be merged; NULL: none */
    bool from_transposed, to_transposed;           /* [in, out] */
    bool normal;                                   /* each row is divided by its length */
    float scale;                                   /* and multiplied by this */
} plsh_convert_item;

typedef struct plsh_conversion {
    const plsh_convert_options *options;
    plsh_model *model;         /* NULL: form and names stay, so the family need not be known */
    plsh_weights *own_weights; /* where there is no model */
    plsh_adapter *own_adapter;
    const plsh_weights *weights; /* the model's, or own_weights */
    const plsh_adapter *adapter; /* likewise */
    plsh_model_config from, to;  /* `to` differs in its form, and in the family Mistral */
    bool to_gguf, prefixed;
    bool rope_carried; /* the tensor ROPE_FACTORS was replaced by fields of the configuration */
    plsh_convert_item *items;
    size_t count, merged;
    float *rope_factors; /* [head_dim / 2], where the frequencies are scaled as Llama 3's */
    plsh_weights_writer *writer;
    plsh_converted done;
    size_t written;
} plsh_conversion;

/* A vector, or a matrix of one row, as some files have biases. */
bool plsh_convert_is_vector(const plsh_tensor *tensor);

/* Writes one tensor to c->writer. */
plsh_status plsh_convert_write_item(plsh_conversion *c, const plsh_convert_item *it,
                                    plsh_error *error);

#endif
