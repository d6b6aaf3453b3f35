/* tests: trainers on a few tokens: their gradients, and whether two of them are the same. */
#ifndef PLSH_TESTS_TRAIN_CASES_H
#define PLSH_TESTS_TRAIN_CASES_H

#include "plsh/train.h"

enum { TRAIN_CASE_VOCABULARY = 64 };

/* ids[windows][context]: the same tokens in every window, others in every step. */
void train_case_ids(int32_t *ids, int64_t windows, int64_t context, int64_t step);

/* The gradients of a batch of options.context and .batch against differences of its loss. */
void train_case_check_gradients(const char *model, const plsh_train_options *options);

/* Values and moments, to the bit. */
void train_case_check_same(const plsh_trainer *a, const plsh_trainer *b);

#endif
