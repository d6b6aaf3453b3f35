/* plsh/lm.h - language models on top of plsh: link libplsh_lm too.
 *
 * Read the topics in this order: weights.h (files of weights), tokenizer.h (text to ids and back),
 * model.h (running a model), chat.h (conversations), sentence.h (rows for texts), train.h (training
 * one), ranks.h (both, over many processes). */
#ifndef PLSH_LM_H
#define PLSH_LM_H

#include "plsh/chat.h"
#include "plsh/convert.h"
#include "plsh/model.h"
#include "plsh/plsh.h"
#include "plsh/ranks.h"
#include "plsh/sentence.h"
#include "plsh/tokenizer.h"
#include "plsh/train.h"
#include "plsh/weights.h"

#endif
