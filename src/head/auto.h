/* attention: how much work a method is, before the data are known; and what `auto` takes. */
#ifndef PLSH_ATTENTION_PREDICT_H
#define PLSH_ATTENTION_PREDICT_H

#include "attention/plan/plan.h"

/* Keys that a query is scored against, on average over the longest sequence, by this method. The
 * head's decay, eps, window, block and partition are set. For `exact`: on q and k with entries
 * of variance 1. */
double plsh_predict_keys(const plsh_plan *plan, const plsh_head *head, plsh_method method);

/* Replaces `auto` by the cheapest method whose error is within eps whatever the data are: a window
 * where the decay ends, `exact`, or `dense`. Says why in head->reason. */
void plsh_predict_choose(const plsh_plan *plan, plsh_head_plan *head);

#endif
