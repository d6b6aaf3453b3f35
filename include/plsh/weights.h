/* plsh/weights.h - files of weights: safetensors, GGUF and PEFT adapters, read and written;
 * pytorch_model.bin, read.
 *
 * Files are mapped into memory; weights are dequantised a few rows at a time, never a whole model.
 * Nothing in a file is trusted: a file that is truncated, or has tensors that overlap, overflow or
 * are misaligned, is refused, and the message says where and why.
 *
 *     plsh_weights *weights;
 *     plsh_weights_open(&weights, "model.gguf", &error);
 *     const plsh_tensor *norm = plsh_weights_find(weights, "output_norm.weight");
 *     plsh_tensor_to_float(norm, 0, 1, row);
 *     plsh_weights_close(weights); */
#ifndef PLSH_WEIGHTS_H
#define PLSH_WEIGHTS_H

#include "plsh/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- How the numbers of a tensor are stored ----
 *
 * The q types are those of GGUF: a block of values shares its scales, and a row is a whole number
 * of blocks. Types after IQ4_XS can be stored and read (ids, masks), but not computed with.
 */

typedef enum plsh_weight_type {
    PLSH_WEIGHT_F32,
    PLSH_WEIGHT_F16,
    PLSH_WEIGHT_BF16,
    PLSH_WEIGHT_Q8_0,   /* 32 values: x = d q, q in -128..127 */
    PLSH_WEIGHT_Q4_0,   /* 32 values: x = d (q - 8), q in 0..15 */
    PLSH_WEIGHT_Q4_1,   /* 32 values: x = d q + m */
    PLSH_WEIGHT_Q5_0,   /* 32 values: x = d (q - 16), q in 0..31 */
    PLSH_WEIGHT_Q5_1,   /* 32 values: x = d q + m */
    PLSH_WEIGHT_IQ4_NL, /* 32 values: x = d v[q], v a table of 16 numbers in -127..113 */
    PLSH_WEIGHT_Q4_K,   /* 256 values, 8 groups: x = d s_g q - m t_g */
    PLSH_WEIGHT_Q5_K,   /* the same with 5 bits */
    PLSH_WEIGHT_Q6_K,   /* 256 values, 16 groups: x = d s_g (q - 32) */
    PLSH_WEIGHT_Q2_K,   /* 256 values, 16 groups: x = d s_g q - m t_g, q in 0..3 */
    PLSH_WEIGHT_Q3_K,   /* 256 values, 16 groups: x = d s_g (q - 4), q in 0..7 */
    PLSH_WEIGHT_IQ4_XS, /* 256 values, 8 groups: x = d s_g v[q] */
    PLSH_WEIGHT_F64,
    PLSH_WEIGHT_I8,
    PLSH_WEIGHT_I16,
    PLSH_WEIGHT_I32,
    PLSH_WEIGHT_I64,
    PLSH_WEIGHT_U8,
    PLSH_WEIGHT_U16,
    PLSH_WEIGHT_U32,
    PLSH_WEIGHT_U64,
    PLSH_WEIGHT_BOOL
} plsh_weight_type;

enum { PLSH_WEIGHT_TYPES = PLSH_WEIGHT_BOOL + 1, PLSH_WEIGHT_COMPUTED = PLSH_WEIGHT_IQ4_XS + 1 };

/* "q4_1"; a static string. The type of that name; an error lists the names. */
PLSH_API const char *plsh_weight_type_name(plsh_weight_type type);
PLSH_API plsh_status plsh_weight_type_find(const char *name, plsh_weight_type *type,
                                           plsh_error *error);

/* Values per block (1 for plain numbers), bytes per block. */
PLSH_API int64_t plsh_weight_type_block(plsh_weight_type type);
PLSH_API size_t plsh_weight_type_bytes(plsh_weight_type type);

/* ---- Tensors ---- */

enum { PLSH_TENSOR_RANK = 8 }; /* the most dimensions a tensor may have */

typedef struct plsh_tensor {
    const char *name;
    plsh_weight_type type;
    int rank;
    int64_t shape[PLSH_TENSOR_RANK]; /* outermost first: a linear layer's weight is [out, in] */
    const void *data;                /* in the mapped file, at any address: not for casts */
    size_t size;                     /* bytes */
} plsh_tensor;

/* A tensor seen as a matrix: a row is its last dimension. */
PLSH_API int64_t plsh_tensor_rows(const plsh_tensor *tensor);
PLSH_API int64_t plsh_tensor_columns(const plsh_tensor *tensor);

/* out[rows][columns] = rows first .. first + rows - 1 as float32. Types up to IQ4_XS only. */
PLSH_API void plsh_tensor_to_float(const plsh_tensor *tensor, int64_t first, int64_t rows,
                                   float *out);

/* ---- Files of weights ---- */

typedef enum plsh_weights_form {
    PLSH_WEIGHTS_SAFETENSORS,
    PLSH_WEIGHTS_GGUF,
    PLSH_WEIGHTS_TORCH /* read only */
} plsh_weights_form;

typedef struct plsh_weights plsh_weights;

/* A folder with model.safetensors, with model.safetensors.index.json and the files it names, with
 * pytorch_model.bin or its index, or with a single other .safetensors file (the first of these that
 * is there); a .safetensors file; a file of torch.save; a .gguf file (versions 2 and 3), of one
 * that is split (model-00001-of-00003.gguf) any part.
 *
 * A file of torch.save is a zip archive with a pickle, which is a program. The reader knows only
 * the opcodes and globals that make a dictionary of tensors. It refuses all others, names them in
 * the message, and never runs code. Its tensors may share bytes. They have to be contiguous.
 *
 * The files must not change while they are open. */
PLSH_API plsh_status plsh_weights_open(plsh_weights **out, const char *path, plsh_error *error);

/* The same for one file in memory, which has to outlive the weights and to begin on an 8-byte
 * boundary; `name` is for messages. */
PLSH_API plsh_status plsh_weights_parse(plsh_weights **out, const void *bytes, size_t size,
                                        const char *name, plsh_error *error);

/* NULL is fine. */
PLSH_API void plsh_weights_close(plsh_weights *weights);

PLSH_API plsh_weights_form plsh_weights_form_of(const plsh_weights *weights);

/* The path that was opened, as given; and its folder, where config.json and tokenizer.json are
 * looked for. */
PLSH_API const char *plsh_weights_path(const plsh_weights *weights);
PLSH_API const char *plsh_weights_folder(const plsh_weights *weights);

/* The tensors in the order of the file, one array, and by name (NULL: there is none). */
PLSH_API size_t plsh_weights_count(const plsh_weights *weights);
PLSH_API const plsh_tensor *plsh_weights_at(const plsh_weights *weights, size_t index);
PLSH_API const plsh_tensor *plsh_weights_find(const plsh_weights *weights, const char *name);

/* Bytes of all tensors as stored. */
PLSH_API size_t plsh_weights_bytes(const plsh_weights *weights);

/* ---- Models by their hub names ----
 *
 * Files that others have fetched into the local cache of the Hugging Face hub (HF_HUB_CACHE,
 * HF_HOME/hub, or ~/.cache/huggingface/hub). Nothing is fetched here. */

enum { PLSH_HUB_PATH = 4096 };

/* Does it have the form owner/name? */
PLSH_API bool plsh_hub_is_name(const char *name);

/* The folder of the revision that the cache has as "main". If there is none, the message has the
 * command that fetches it. */
PLSH_API plsh_status plsh_hub_find(const char *name, char out[PLSH_HUB_PATH], plsh_error *error);

/* ---- Metadata: the keys and values of a GGUF file ----
 *
 * A safetensors file has none. */

typedef enum plsh_metadata_type { /* the numbers of the format */
                                  PLSH_METADATA_U8,
                                  PLSH_METADATA_I8,
                                  PLSH_METADATA_U16,
                                  PLSH_METADATA_I16,
                                  PLSH_METADATA_U32,
                                  PLSH_METADATA_I32,
                                  PLSH_METADATA_F32,
                                  PLSH_METADATA_BOOL,
                                  PLSH_METADATA_STRING,
                                  PLSH_METADATA_ARRAY, /* not the type of a plsh_metadata: that is
                                                          its elements' */
                                  PLSH_METADATA_U64,
                                  PLSH_METADATA_I64,
                                  PLSH_METADATA_F64
} plsh_metadata_type;

typedef struct plsh_metadata {
    const char *key;
    plsh_metadata_type type; /* of the value, or of the elements of an array */
    bool is_array;
    size_t count;      /* elements; 1 for a single value */
    const void *bytes; /* the value, or the elements, as in the file */
    size_t size;
} plsh_metadata;

/* Bytes of a file, without a zero at the end. */
typedef struct plsh_string {
    const char *bytes;
    size_t length;
} plsh_string;

/* All metadata in the order of the file, and the entry of a key (NULL: there is none). */
PLSH_API size_t plsh_metadata_count(const plsh_weights *weights);
PLSH_API const plsh_metadata *plsh_metadata_at(const plsh_weights *weights, size_t index);
PLSH_API const plsh_metadata *plsh_metadata_find(const plsh_weights *weights, const char *key);

/* A single value. A missing key leaves *out unchanged, so that it keeps its default; a value of
 * another type, or out of range, is an error that names the key. plsh_metadata_number also takes a
 * whole number. */
PLSH_API plsh_status plsh_metadata_integer(const plsh_weights *weights, const char *key,
                                           int64_t least, int64_t most, int64_t *out,
                                           plsh_error *error);
PLSH_API plsh_status plsh_metadata_number(const plsh_weights *weights, const char *key, double *out,
                                          plsh_error *error);
PLSH_API plsh_status plsh_metadata_bool(const plsh_weights *weights, const char *key, bool *out,
                                        plsh_error *error);
PLSH_API plsh_status plsh_metadata_string(const plsh_weights *weights, const char *key,
                                          plsh_string *out, plsh_error *error);

/* How many elements the array of this key has; 0 where there is none. */
PLSH_API size_t plsh_metadata_length(const plsh_weights *weights, const char *key);

/* All elements of an array, which has to be there, into out[plsh_metadata_length]. Strings point
 * into the file. */
PLSH_API plsh_status plsh_metadata_strings(const plsh_weights *weights, const char *key,
                                           plsh_string *out, plsh_error *error);
PLSH_API plsh_status plsh_metadata_integers(const plsh_weights *weights, const char *key,
                                            int64_t *out, plsh_error *error);
PLSH_API plsh_status plsh_metadata_numbers(const plsh_weights *weights, const char *key,
                                           double *out, plsh_error *error);

/* ---- Writing ----
 *
 * Declare all metadata and all tensors, then append the tensors' rows in the same order: only a few
 * rows are in memory at a time. The file is written under a temporary name and renamed at the end.
 * After a failure the only valid call is plsh_weights_writer_abandon. */

typedef struct plsh_weights_writer plsh_weights_writer;

PLSH_API plsh_status plsh_weights_writer_create(plsh_weights_writer **out, const char *path,
                                                plsh_weights_form form, plsh_error *error);

/* GGUF only. Strings and arrays of strings; numbers of any kind, in the machine's layout. */
PLSH_API plsh_status plsh_weights_writer_string(plsh_weights_writer *writer, const char *key,
                                                const char *bytes, size_t length,
                                                plsh_error *error);
PLSH_API plsh_status plsh_weights_writer_strings(plsh_weights_writer *writer, const char *key,
                                                 const plsh_string *strings, size_t count,
                                                 plsh_error *error);
PLSH_API plsh_status plsh_weights_writer_value(plsh_weights_writer *writer, const char *key,
                                               plsh_metadata_type type, const void *value,
                                               plsh_error *error);
PLSH_API plsh_status plsh_weights_writer_values(plsh_weights_writer *writer, const char *key,
                                                plsh_metadata_type type, const void *values,
                                                size_t count, plsh_error *error);
PLSH_API plsh_status plsh_weights_writer_copy(plsh_weights_writer *writer,
                                              const plsh_metadata *metadata, plsh_error *error);

/* Declares a tensor; its data is ignored. A safetensors file cannot hold a q type. */
PLSH_API plsh_status plsh_weights_writer_declare(plsh_weights_writer *writer,
                                                 const plsh_tensor *tensor, plsh_error *error);

/* Appends rows to the current tensor: float32 that is rounded to its type (F32, F16, BF16, Q8_0,
 * Q6_K, Q5_0, Q4_K, Q4_1, Q4_0), or bytes as they are. */
PLSH_API plsh_status plsh_weights_writer_rows(plsh_weights_writer *writer, const float *values,
                                              int64_t rows, plsh_error *error);
PLSH_API plsh_status plsh_weights_writer_bytes(plsh_weights_writer *writer, const void *bytes,
                                               size_t size, plsh_error *error);

/* Renames the file to its path; refuses a file with missing rows. Frees the writer in any case. */
PLSH_API plsh_status plsh_weights_writer_commit(plsh_weights_writer *writer, plsh_error *error);
PLSH_API void plsh_weights_writer_abandon(plsh_weights_writer *writer);

/* Bytes of the tensors declared so far. */
PLSH_API size_t plsh_weights_writer_size(const plsh_weights_writer *writer);

/* A safetensors file of tensors in memory, at once. */
PLSH_API plsh_status plsh_safetensors_save(const char *path, const plsh_tensor *tensors,
                                           size_t count, plsh_error *error);

/* ---- PEFT adapters (LoRA) ----
 *
 * y = W x + scale B (A x) for the linear layers named; scale = alpha / r, or alpha / sqrt(r) with
 * rsLoRA. */

typedef struct plsh_adapter_layer {
    const char *module;       /* "model.layers.0.self_attn.q_proj": its weight is .weight */
    const plsh_tensor *a, *b; /* A [rank, in], B [out, rank] */
    int64_t rank;
    float scale;
} plsh_adapter_layer;

typedef struct plsh_adapter plsh_adapter;

/* A folder with adapter_config.json and adapter_model.safetensors. Unsupported features of PEFT
 * (DoRA, biases, ranks by pattern, modules saved whole) are refused; the message names them. */
PLSH_API plsh_status plsh_adapter_open(plsh_adapter **out, const char *folder, plsh_error *error);
PLSH_API void plsh_adapter_close(plsh_adapter *adapter);

PLSH_API const char *plsh_adapter_path(const plsh_adapter *adapter); /* of its weights */
PLSH_API size_t plsh_adapter_count(const plsh_adapter *adapter);
PLSH_API const plsh_adapter_layer *plsh_adapter_at(const plsh_adapter *adapter, size_t index);
PLSH_API const plsh_adapter_layer *plsh_adapter_find(const plsh_adapter *adapter,
                                                     const char *module);

/* The settings of an adapter to be written. All layers have one rank; scale = alpha / rank. */
typedef struct plsh_adapter_settings {
    const char *base;           /* base_model_name_or_path; NULL: none */
    const char *task;           /* "CAUSAL_LM" where NULL */
    const char *const *targets; /* "q_proj", .. */
    size_t target_count;
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    bool transposed; /* the weights below are [in, out] (fan_in_fan_out); A and B are not */
} plsh_adapter_settings;

/* Both files into an existing folder. Of the layers module, a and b are used; F32, F16 or BF16. */
PLSH_API plsh_status plsh_adapter_save(const char *folder, const plsh_adapter_settings *settings,
                                       const plsh_adapter_layer *layers, size_t count,
                                       plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
