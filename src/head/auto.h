/* head: the predicted work of a method, without the data, and the choice of `auto`. */
#ifndef PLSH_HEAD_AUTO_H
#define PLSH_HEAD_AUTO_H

#include "plsh/head.h"

/* The sizes of a call that the work of a head depends on. */
typedef struct plsh_auto_setting {
    int64_t longest; /* positions of the longest sequence */
    int64_t head_dim;
    double scale;
    bool causal;
    int group; /* queries of one kernel call (the lanes) */
    int piece; /* keys of a piece, which `exact` keeps or leaves out together */
} plsh_auto_setting;

/* Keys that a query is scored against, on average over the longest sequence, by this method. The
 * head's decay, eps, window, block and partition are set. For `exact`: on q and k with entries
 * of variance 1. */
double plsh_auto_keys(const plsh_auto_setting *setting, const plsh_head *head, plsh_method method);

/* Replaces `auto` by the cheapest method whose error is within eps for all data: a window if the
 * decay becomes 0, otherwise `exact` or `dense`. Writes the reason. */
void plsh_auto_choose(const plsh_auto_setting *setting, plsh_head *head, char *reason,
                      size_t reason_size);

/* The same where positions are points; any other method is left as it is. Returns the reason. */
const char *plsh_auto_choose_points(plsh_head *head);

/* The same where the length is not known, as in decoding; other methods stay. Returns the reason,
 * "" if the method was not `auto`. */
const char *plsh_auto_choose_any_length(plsh_head *head);

#endif
