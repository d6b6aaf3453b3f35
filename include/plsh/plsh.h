/* plsh/plsh.h - everything: attention with linear biases in near-linear time.
 *
 * Read the topics in this order: status.h (errors), decay.h (the bias), partition.h (its random
 * block masks), head.h (methods, and the descriptor of a call), attention.h (computing it), then
 * the rest as needed. */
#ifndef PLSH_PLSH_H
#define PLSH_PLSH_H

#include "plsh/attention.h"
#include "plsh/cache.h"
#include "plsh/cells.h"
#include "plsh/decay.h"
#include "plsh/dtype.h"
#include "plsh/grid.h"
#include "plsh/head.h"
#include "plsh/io.h"
#include "plsh/partition.h"
#include "plsh/shard.h"
#include "plsh/status.h"
#include "plsh/theory.h"
#include "plsh/thread.h"
#include "plsh/version.h"

#endif
