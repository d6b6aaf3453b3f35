/* model: the attention heads of a layer. */
#ifndef PLSH_MODEL_ATTENTION_H
#define PLSH_MODEL_ATTENTION_H

#include "model/model.h"

/* The choice for a layer out of `count` (0, 1 or one per layer); NULL: its own. */
const plsh_layer_attention *plsh_model_attention_at(const plsh_layer_attention *attention,
                                                    int64_t count, int64_t layer);

/* Is there one choice per layer, or one for all, with heads for all or each? */
plsh_status plsh_model_attention_check(const plsh_model *model,
                                       const plsh_layer_attention *attention, int64_t count,
                                       plsh_error *error);

/* Does RoPE apply to a layer under this choice? */
bool plsh_model_attention_rotates(const plsh_model *model, const plsh_layer_attention *attention);

/* head[0 .. heads): the heads of a layer, for texts of this length (0: any), on which the slopes of
 * some models depend. */
void plsh_model_attention_heads(const plsh_model *model, const plsh_layer_attention *attention,
                                int64_t layer, int64_t length, plsh_head *head);

#endif
