/* cli: option groups that several commands share, and their values. */
#ifndef PLSH_CLI_OPTIONS_H
#define PLSH_CLI_OPTIONS_H

#include "cli/command.h"

#include "cli/record/record.h"
#include "plsh/io.h"
#include "plsh/partition.h"

#include <math.h>

/* ---- every command ---- */

typedef struct cli_common {
    int64_t threads; /* 0: the default of plsh/thread.h */
    uint64_t seed;
    const char *isa; /* NULL: PLSH_ISA, else the best */
    bool json;
    bool quiet;
    double timeout; /* seconds */
} cli_common;

enum { CLI_COMMON_COUNT = 6 };
extern const cli_option cli_common_options[CLI_COMMON_COUNT];

/* The common part of a command's settings: every command has the group, as its last one. */
const cli_common *cli_common_of(const cli_command *command, const void *settings);

/* The instruction set that the kernels will use. */
const char *cli_common_isa(const cli_common *common);

/* Refuses an instruction set that is unknown or not there, and a PLSH_THREADS that is not a number;
 * sets the default number of threads; starts the watch of ranks. */
int cli_common_check(const cli_common *common);

/* ---- decays: draw, norms, attend, bench, error ---- */

typedef struct cli_decays {
    const char *sigma; /* a list, or "alibi" */
    cli_reals slopes;
    const char *decay;
    double limit;
} cli_decays;

enum { CLI_DECAYS_COUNT = 4 };
extern const cli_option cli_decays_options[CLI_DECAYS_COUNT];

/* One decay per head. `table` holds the numbers of table:FILE, which the decays borrow. */
typedef struct cli_decay_list {
    size_t count;
    plsh_decay *values;
    double *table;
} cli_decay_list;

/* heads = 0: as many heads as sigmas were given (8 for the series "alibi"). Otherwise one value
 * serves all heads, and any other number of values has to be `heads`. */
int cli_decays_make(const cli_decays *options, size_t heads, cli_decay_list *out);
void cli_decays_free(cli_decay_list *list);

/* ---- partitions: draw, norms, attend, bench, error ---- */

typedef struct cli_partitions {
    int scheme; /* a plsh_scheme, */
    int design; /* a plsh_design; -1: not given, and the table has no default */
    const char *labels;
} cli_partitions;

/* The table of these options; the one for commands with --positions; and the one for norms and
 * error, which also have --paper. */
enum { CLI_PARTITIONS_COUNT = 3 };
extern const cli_option cli_partitions_options[CLI_PARTITIONS_COUNT];
extern const cli_option cli_points_partitions_options[CLI_PARTITIONS_COUNT];
extern const cli_option cli_paper_partitions_options[CLI_PARTITIONS_COUNT];

/* For the last two tables: sets the defaults of options that were not given, and refuses
 * combinations that exclude each other. The defaults are integer and stratified as in all commands;
 * with --paper the paper's draws, binning and iid; for points hyperplanes. Returns an exit code. */
int cli_partitions_default(cli_partitions *options, bool paper, bool points);

/* The names of plsh_scheme except labels, NULL at the end. */
const char *const *cli_schemes(void);

/* User labels: int32 [heads, s, n]. values is NULL where the option was not given. */
typedef struct cli_labels {
    int64_t heads, samples, n;
    const int32_t *values;
    plsh_npy array; /* where they were read, and */
    int32_t *made;  /* where --grid made them: owned */
} cli_labels;

int cli_labels_read(const cli_partitions *options, cli_labels *out);

/* Checks that the labels serve `heads` heads (those of one head serve all) of n positions. Passes
 * if there are none. */
int cli_labels_check(const cli_partitions *options, const cli_labels *labels, int64_t heads,
                     int64_t n);
void cli_labels_free(cli_labels *labels);

/* The set of head `head`, checked: from the labels where they are given (with their number of
 * samples), otherwise drawn. In a model, heads are counted through all layers; labels of fewer
 * heads are used again from the first. */
int cli_partition_make(const cli_partitions *options, const cli_labels *labels,
                       const plsh_decay *decay, int64_t samples, uint64_t seed, size_t head,
                       plsh_partition *out);

/* The seed for one decay and number of samples in norms and error. It does not depend on the other
 * decays and numbers of samples of the command, and differs from their seeds. Repetition r is head
 * r. */
uint64_t cli_partition_seed(uint64_t seed, const plsh_decay *decay, int64_t samples);

/* "scheme" and "design" into an open object. */
void cli_partitions_json(const cli_partitions *options, cli_json *json);

/* ---- ranges that options share ---- */

#define CLI_POSITIVE                                                                               \
    { .least = 0, .most = INFINITY, .above = true }
#define CLI_AT_LEAST(x)                                                                            \
    { .least = (x), .most = INFINITY }
#define CLI_BETWEEN(x, y)                                                                          \
    { .least = (x), .most = (y) }
#define CLI_INSIDE(x, y)                                                                           \
    { .least = (x), .most = (y), .above = true, .below = true }

#endif
