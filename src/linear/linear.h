/* linear: linear layers on weights as they are stored.
 *
 *     y[rows][out] = x[rows][in] W^T (+ bias)        W [out][in] of any computed type
 *     dx[rows][in] = dy[rows][out] W
 *     dW[out][in] += dy[rows][out]^T x[rows][in]     dW float32
 *
 * Activations are float32. An engine with int8 quantises them for the forward products of q types
 * (linear/int8.h); one with bfloat rounds both factors of all products to bfloat16
 * (linear/bfloat.h). Their bits are also the same for all instruction sets, except for many rows in
 * bfloat16 by AMX. Few rows (up to PLSH_LINEAR_FEW): dot products on the stored type, exact to
 * rounding, W read once. More rows: panels of W are dequantised to float32 in a tile that stays in
 * cache. The bits of a result depend on the instruction set, never on the number of threads. In
 * int8 those of a row are the same among any number of rows; in float32 and bfloat16 they are the
 * same among few rows, and among more than few. */
#ifndef PLSH_LINEAR_LINEAR_H
#define PLSH_LINEAR_LINEAR_H

#include "base/matrix.h"
#include "plsh/weights.h"

typedef struct plsh_linear {
    plsh_weight_type type;
    const void *weight; /* [out][in], rows without gaps */
    const float *bias;  /* [out]; NULL: none */
    int64_t out, in;
} plsh_linear;

/* Which kernels, how many threads, and memory of plsh_linear_workspace(threads) bytes on a
 * PLSH_ALIGNMENT boundary; it may be shared by all layers, one call at a time. */
typedef struct plsh_linear_engine {
    const struct plsh_linear_kernels *kernels;
    /* Not both; NULL and NULL: all products in float32. */
    const struct plsh_int8_kernels *int8;
    const struct plsh_bfloat_kernels *bfloat;
    int threads;
    void *workspace;
} plsh_linear_engine;

/* The kernels of an instruction set by name; NULL: PLSH_ISA, or else the best. */
plsh_status plsh_linear_kernels_choose(const struct plsh_linear_kernels **out, const char *isa,
                                       plsh_error *error);

/* Those of products in int8: of this instruction set, with VNNI where the machine has it. "amx" is
 * AVX-512 with the tiles of AMX for many rows. */
plsh_status plsh_int8_kernels_choose(const struct plsh_int8_kernels **out, const char *isa,
                                     plsh_error *error);

/* Those of products in bfloat16: with AVX-512 BF16 where the machine has it; "amx" as above. */
plsh_status plsh_bfloat_kernels_choose(const struct plsh_bfloat_kernels **out, const char *isa,
                                       plsh_error *error);

size_t plsh_linear_workspace(int threads);

/* A layer of this tensor, which has to be a matrix [out, in] of a computed type. */
plsh_status plsh_linear_make(plsh_linear *layer, const plsh_tensor *weight, const float *bias,
                             int64_t out, int64_t in, plsh_error *error);

/* The layer of `count` outputs from `first` on: a part of a fused one. */
plsh_linear plsh_linear_slice(const plsh_linear *layer, int64_t first, int64_t count);

/* The weights where they are float32 at an address of floats; otherwise NULL. */
static inline const float *plsh_linear_floats(const plsh_linear *layer) {
    const bool aligned = (uintptr_t)layer->weight % sizeof(float) == 0;
    return layer->type == PLSH_WEIGHT_F32 && aligned ? (const float *)layer->weight : NULL;
}

/* In an engine with int8: is the forward product of this layer computed in int8? */
bool plsh_linear_in_int8(const plsh_linear *layer);

/* y = x W^T + bias, or with `add` y += x W^T (and no bias). */
void plsh_linear_forward(const plsh_linear_engine *engine, const plsh_linear *layer, int64_t rows,
                         plsh_const_matrix x, plsh_matrix y, bool add);

/* The same for `count` layers of one input in one parallel section: y[i] = x W_i^T + bias_i.
 */
void plsh_linear_forward_many(const plsh_linear_engine *engine, const plsh_linear *layers,
                              const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x);

/* The gradients of y = x W^T in one parallel section: dW += dy^T x, with dW [out][in] without gaps,
 * and dx = dy W, or with `add` dx += dy W. A gradient whose pointer is NULL is not computed. dx
 * must not overlap x or dy. */
void plsh_linear_backward(const plsh_linear_engine *engine, const plsh_linear *layer, int64_t rows,
                          plsh_const_matrix dy, plsh_const_matrix x, float *dw, plsh_matrix dx,
                          bool add);

/* db[o] += sum over the rows of dy[.][o], on all threads. */
void plsh_linear_backward_bias(const plsh_linear_engine *engine, int64_t rows, int64_t out,
                               plsh_const_matrix dy, float *db);

/* The kernels take 4 rows of x at a time, with a run of W that is in cache after the first 4. Found
 * by measuring steps of 4, 8 and 16 texts (bench/results/lm-batches.txt): 8 rows by panels took
 * longer than twice the time of 4 by dot products, for Q4_1 and BF16. */
enum { PLSH_LINEAR_FEW = 8 };

#endif
