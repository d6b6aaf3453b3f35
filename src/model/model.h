/* model: the struct of a model: its weights by role. */
#ifndef PLSH_MODEL_MODEL_H
#define PLSH_MODEL_MODEL_H

#include <stdatomic.h>

#include "linear/linear.h"
#include "model/config.h"
#include "model/norm.h"
#include "model/rope.h"
#include "plsh/model.h"

/* y = W x + b (+ scale B (A x) where there is an adapter). */
typedef struct plsh_model_linear {
    plsh_linear base;
    plsh_linear a, b; /* [rank][in], [out][rank]; rank 0: none */
    int64_t rank;
    float scale;
} plsh_model_linear;

typedef struct plsh_layer {
    plsh_norm attention_norm, mlp_norm, q_norm, k_norm;
    plsh_norm attention_norm_2; /* JinaBERT code alone has it */
    plsh_model_linear qkv[3];   /* their outputs side by side */
    int qkv_count;              /* 1: fused; 2: q, and k with v */
    plsh_model_linear attention_out;
    plsh_model_linear up[2]; /* gate, up; their outputs side by side */
    int up_count;
    plsh_model_linear down;
} plsh_layer;

/* Where q, k and v lie in a row of the outputs of the qkv layers. */
typedef struct plsh_qkv_layout {
    int64_t width; /* of a row */
    int64_t q, k, v, head_stride;
} plsh_qkv_layout;

struct plsh_model {
    plsh_model_config config;
    plsh_weights *weights; /* NULL where they are in memory */
    plsh_adapter *adapter;
    const struct plsh_linear_kernels *kernels;
    const struct plsh_int8_kernels *int8; /* as in plsh_linear_engine */
    const struct plsh_bfloat_kernels *bfloat;
    char *isa; /* NULL: not asked for */
    int threads;
    const plsh_tensor *tokens; /* embeddings */
    const plsh_tensor *positions;
    float *types; /* [types][hidden] */
    plsh_norm tokens_norm, final_norm;
    plsh_model_linear head;
    float *head_scales; /* [vocabulary]: logits are multiplied by them; NULL: they are not */
    float *head_rows;   /* [threads][hidden], to compute them */
    struct plsh_encoder_heads *encoder_heads; /* NULL: none, or not an encoder */
    plsh_layer *layer;
    plsh_qkv_layout qkv;
    plsh_rope rope;
    double *slopes; /* [layers][heads], see slopes.h */
    bool slopes_learned;
    int64_t rank_max;
    void **owned; /* float copies of norms, biases and adapters */
    size_t owned_count, owned_capacity;
    bool *used;                        /* [tensors of the file] */
    bool changes;                      /* it belongs to a trainer, which changes its weights */
    atomic_uint_least64_t fingerprint; /* computed at the first request; 0: not yet */
};

/* plsh_model_checksum, computed once for a model whose weights do not change. */
uint64_t plsh_model_fingerprint(const plsh_model *model);

/* The name of a tensor in the file: role, layer (of those that are there once per layer) and
 * "weight" or "bias". */
void plsh_model_tensor_name(const plsh_model_config *config, bool prefixed, plsh_role role,
                            int64_t layer, const char *part, char *out, size_t size);

/* The same without the part, as Hugging Face calls the module: what adapters name. */
void plsh_model_module_name(const plsh_model_config *config, plsh_role role, int64_t layer,
                            char *out, size_t size);

/* The roles of the linear layers of q, k and v; how many there are. */
int plsh_model_qkv_roles(const plsh_model_config *config, plsh_role roles[3]);

/* The rows of a role's weight [out, in]. */
int64_t plsh_model_role_rows(const plsh_model_config *config, plsh_role role);

/* Is the weight of a role stored as [in, out]? */
bool plsh_model_transposed(const plsh_model_config *config, plsh_role role);

#define PLSH_HEAD_SHORTEST 1e-12 /* rows of the head are divided by no less */

/* Recomputes head_scales, where there are any: a trainer changes the head. */
void plsh_model_head_scales(plsh_model *model);

/* The order of the rows of a tensor in a GGUF, relative to that in a folder. */
typedef enum plsh_row_order {
    PLSH_ROWS_SAME,
    PLSH_ROWS_PAIRS,  /* Llama's q and k: in a head of d rows, row 2i is row i of the folder, row
                         2i + 1 is row i + d/2 */
    PLSH_ROWS_STACKED /* BLOOM's q, k, v: [q; k; v][head] instead of [head][q, k, v] */
} plsh_row_order;

plsh_row_order plsh_model_gguf_order(const plsh_family *family, plsh_role role);

/* The same of a model's own file: SAME where it is a folder. */
plsh_row_order plsh_model_row_order(const plsh_model_config *config, plsh_role role);

/* The row in the folder of a row in the GGUF, and the inverse. */
int64_t plsh_model_row_in_folder(const plsh_model_config *config, plsh_row_order order,
                                 int64_t row);
int64_t plsh_model_row_in_gguf(const plsh_model_config *config, plsh_row_order order, int64_t row);

/* The engine of its linear layers, still without workspace. */
static inline plsh_linear_engine plsh_model_engine(const plsh_model *model) {
    return (plsh_linear_engine){.kernels = model->kernels,
                                .int8 = model->int8,
                                .bfloat = model->bfloat,
                                .threads = model->threads};
}

#endif
