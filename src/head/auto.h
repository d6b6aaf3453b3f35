/* head: how much work a method is before the data are known, and what `auto` takes. */
#ifndef PLSH_HEAD_AUTO_H
#define PLSH_HEAD_AUTO_H

#include "plsh/head.h"

/* What the work of a head depends on besides the head. */
typedef struct plsh_auto_setting {
    int64_t longest; /* positions of the longest sequence */
    int64_t head_dim;
    double scale;
    bool causal;
    int group; /* queries that a kernel takes at once */
    int piece; /* keys that `exact` decides about together */
} plsh_auto_setting;

/* Keys that a query is scored against, on average over the longest sequence, by this method. The
 * head's decay, eps, window, block and partition are set. For `exact`: on q and k with entries
 * of variance 1. */
double plsh_auto_keys(const plsh_auto_setting *setting, const plsh_head *head, plsh_method method);

/* Replaces `auto` by the cheapest method whose error is within eps whatever the data are: a window
 * where the decay ends, `exact`, or `dense`. Writes the reason. */
void plsh_auto_choose(const plsh_auto_setting *setting, plsh_head *head, char *reason,
                      size_t reason_size);

/* The same where the length is not known, as in decoding; any other method is left as it is.
 * Returns the reason, "" if there was nothing to choose. */
const char *plsh_auto_choose_any_length(plsh_head *head);

#endif
