/* cli: option groups that several commands share. */
#include "cli/options.h"

#include "cli/message.h"
#include "cli/ranks.h"

#include "plsh/attention.h"
#include "plsh/cells.h"
#include "plsh/io.h"
#include "plsh/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_option cli_common_options[CLI_COMMON_COUNT] = {
    {.name = "threads",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_common, threads),
     .value = "N",
     .help = "threads to use; results do not depend on it; 0: from PLSH_THREADS, OMP_NUM_THREADS, "
             "or the processors and the CPU quota of this process",
     .fallback = "0",
     .range = CLI_BETWEEN(0, PLSH_THREADS_MAX),
     .varies = CLI_BY_RANK},
    {.name = "seed",
     .kind = CLI_SEED,
     CLI_MEMBER(cli_common, seed),
     .value = "N",
     .help = "seed of every random number",
     .fallback = "1"},
    {.name = "isa",
     .kind = CLI_TEXT,
     CLI_MEMBER(cli_common, isa),
     .value = "NAME",
     .help = "instruction set of the kernels; without it PLSH_ISA, else the best there is",
     .varies = CLI_BY_RANK},
    {.name = "json",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_common, json),
     .help = "print one JSON document",
     .varies = CLI_BY_RANK},
    {.name = "quiet",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_common, quiet),
     .help = "no progress and no notes",
     .varies = CLI_BY_RANK},
    {.name = "timeout",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_common, timeout),
     .value = "S",
     .help = "plsh-mpi: abort if a rank gives no sign of life for S seconds; 0: never",
     .fallback = "60",
     .range = CLI_BETWEEN(0, 1e9),
     .varies = CLI_BY_RUN},
};

const cli_common *cli_common_of(const cli_command *command, const void *settings) {
    const cli_group *group = &command->groups[command->group_count - 1];
    return (const cli_common *)((const char *)settings + group->offset);
}

const char *cli_common_isa(const cli_common *common) {
    const char *name = common->isa != NULL ? common->isa : getenv("PLSH_ISA");
    return name != NULL && name[0] != '\0' ? name : plsh_isa_available()[0];
}

/* The library ignores a PLSH_THREADS that it cannot read. */
static int check_threads(const cli_common *common) {
    plsh_error error;
    const char *text = getenv("PLSH_THREADS");
    if (common->threads > 0)
        return plsh_thread_set_default((int)common->threads, &error) == PLSH_STATUS_OK
                   ? CLI_DONE
                   : cli_fail_error(&error);
    if (text == NULL || text[0] == '\0' ||
        strcmp(plsh_thread_default_source(), "PLSH_THREADS") == 0)
        return CLI_DONE;
    return cli_fail("PLSH_THREADS is \"%s\"; 1 to %d", text, PLSH_THREADS_MAX);
}

int cli_common_check(const cli_common *common) {
    int code = check_threads(common);
    if (code != CLI_DONE) return code;
    const char *name = cli_common_isa(common);
    const char *const *available = plsh_isa_available();
    char list[256] = "";
    for (size_t i = 0, used = 0; available[i] != NULL && used < sizeof list; i++) {
        if (strcmp(name, available[i]) == 0) return cli_ranks_watch(common->timeout);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "",
                                 available[i]);
    }
    return cli_fail("%s: this machine has no \"%s\"; it has %s",
                    common->isa != NULL ? "--isa" : "PLSH_ISA", name, list);
}

const cli_option cli_decays_options[CLI_DECAYS_COUNT] = {
    {.name = "sigma",
     .kind = CLI_TEXT,
     CLI_MEMBER(cli_decays, sigma),
     .value = "LIST",
     .help =
         "ALiBi's sigma per head, or one for all; \"alibi\" is the standard series (the default)",
     .range = CLI_POSITIVE},
    {.name = "slopes",
     .kind = CLI_REALS,
     CLI_MEMBER(cli_decays, slopes),
     .value = "LIST",
     .help = "the same as slopes, 1 / sigma",
     .range = CLI_POSITIVE},
    {.name = "decay",
     .kind = CLI_TEXT,
     CLI_MEMBER(cli_decays, decay),
     .value = "NAME",
     .help = "alibi, kerple-log:r1,r2, kerple-power:a,p, triangle:w or table:FILE (numbers from "
             "distance 0 on, .npy or text)",
     .fallback = "alibi"},
    {.name = "limit",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_decays, limit),
     .value = "X",
     .help = "a part of the weight that does not decay: the decay becomes X + (1 - X) k(t)",
     .fallback = "0",
     .range = {.least = 0, .most = 1, .below = true}},
};

static int allocate_decays(size_t count, cli_decay_list *out) {
    out->count = count;
    out->values = calloc(count + 1, sizeof *out->values);
    return out->values == NULL ? cli_fail("out of memory for %zu heads", count) : CLI_DONE;
}

/* The sigmas of the options: *out is empty for the series "alibi". */
static int given_sigmas(const cli_decays *options, cli_reals *out) {
    if (options->slopes.count > 0) {
        if (options->sigma != NULL) return cli_usage("--sigma and --slopes: give one of them");
        out->values = calloc(options->slopes.count, sizeof(double));
        if (out->values == NULL) return cli_fail("out of memory");
        out->count = options->slopes.count;
        for (size_t i = 0; i < out->count; i++) out->values[i] = 1.0 / options->slopes.values[i];
        return CLI_DONE;
    }
    if (options->sigma == NULL || strcmp(options->sigma, "alibi") == 0) return CLI_DONE;
    cli_option list = cli_decays_options[0];
    list.kind = CLI_REALS;
    return cli_parse_value(&list, options->sigma, out);
}

static int alibi_series(size_t heads, cli_reals *out) {
    out->values = calloc(heads, sizeof(double));
    if (out->values == NULL) return cli_fail("out of memory for %zu heads", heads);
    out->count = heads;
    plsh_error error;
    if (plsh_alibi_slopes(heads, out->values, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    for (size_t i = 0; i < heads; i++) out->values[i] = 1.0 / out->values[i];
    return CLI_DONE;
}

enum { CLI_SERIES_HEADS = 8 };

static int make_alibi(const cli_decays *options, size_t heads, cli_decay_list *out) {
    cli_reals sigmas = {0};
    int code = given_sigmas(options, &sigmas);
    if (code == CLI_DONE && sigmas.count == 0)
        code = alibi_series(heads > 0 ? heads : CLI_SERIES_HEADS, &sigmas);
    if (code == CLI_DONE && heads > 1 && sigmas.count > 1 && sigmas.count != heads)
        code = cli_usage("--sigma: %zu values for %zu heads; give one, or one per head",
                         sigmas.count, heads);
    if (code == CLI_DONE && heads == 1 && sigmas.count > 1)
        code = cli_usage("--sigma: %zu values for one head", sigmas.count);
    if (code == CLI_DONE) code = allocate_decays(heads > 0 ? heads : sigmas.count, out);
    for (size_t h = 0; code == CLI_DONE && h < out->count; h++)
        out->values[h] = plsh_decay_alibi(sigmas.values[sigmas.count == 1 ? 0 : h]);
    free(sigmas.values);
    return code;
}

static int read_text_table(const char *path, double **out, size_t *count) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return cli_fail("%s: %s", path, strerror(errno));
    size_t capacity = 0;
    double value;
    int code = CLI_DONE;
    while (code == CLI_DONE && fscanf(file, " %lf", &value) == 1) {
        if (*count == capacity) {
            capacity = capacity < 8 ? 64 : 2 * capacity;
            double *grown = realloc(*out, capacity * sizeof **out);
            if (grown == NULL) {
                code = cli_fail("%s: out of memory", path);
                break;
            }
            *out = grown;
        }
        (*out)[(*count)++] = value;
    }
    if (code == CLI_DONE && ferror(file))
        code = cli_fail("%s: %s", path, strerror(errno));
    else if (code == CLI_DONE && !feof(file))
        code = cli_fail("%s: entry %zu is not a number", path, *count);
    fclose(file);
    return code;
}

static int read_npy_table(const char *path, double **out, size_t *count) {
    plsh_npy array;
    plsh_error error;
    if (plsh_npy_read(path, &array, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    int code = CLI_DONE;
    if (array.rank != 1 || (array.type != PLSH_DTYPE_FLOAT64 && array.type != PLSH_DTYPE_FLOAT32)) {
        code = cli_fail("%s: rank %d of %s; a decay table is one row of float64 or float32", path,
                        array.rank, plsh_dtype_name(array.type));
    } else if ((*out = calloc(array.count + 1, sizeof **out)) == NULL) {
        code = cli_fail("%s: out of memory", path);
    } else {
        *count = array.count;
        for (size_t i = 0; i < array.count; i++)
            (*out)[i] = array.type == PLSH_DTYPE_FLOAT64 ? ((double *)array.data)[i]
                                                         : (double)((float *)array.data)[i];
    }
    plsh_npy_free(&array);
    return code;
}

static int parse_table(const char *path, plsh_decay *decay, cli_decay_list *out) {
    if (path[0] == '\0')
        return cli_usage("--decay: \"table:\" needs a file after the colon, .npy or text");
    size_t length = strlen(path), count = 0;
    bool npy = length > 4 && strcmp(path + length - 4, ".npy") == 0;
    int code = npy ? read_npy_table(path, &out->table, &count)
                   : read_text_table(path, &out->table, &count);
    if (code != CLI_DONE) return code;
    *decay = (plsh_decay){.kind = PLSH_DECAY_TABLE, .table = out->table, .table_size = count};
    return CLI_DONE;
}

/* "kerple-log:r1,r2" and its like: the kind and `wanted` numbers after the colon. */
static int parse_parameters(const char *text, const char *numbers, size_t wanted,
                            plsh_decay *decay) {
    double values[2] = {0, 0};
    size_t count = 0;
    for (const char *rest = numbers; count < wanted; count++) {
        char *end;
        values[count] = strtod(rest, &end);
        if (end == rest || *end != (count + 1 < wanted ? ',' : '\0')) break;
        rest = end + 1;
    }
    if (count != wanted)
        return cli_usage("--decay: \"%s\" needs %zu number%s after the colon", text, wanted,
                         wanted > 1 ? "s" : "");
    decay->a = values[0];
    decay->b = values[1];
    return CLI_DONE;
}

static int parse_decay(const char *text, plsh_decay *decay, cli_decay_list *out) {
    const char *colon = strchr(text, ':');
    const size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    for (int kind = PLSH_DECAY_ALIBI + 1; colon != NULL && plsh_decay_names()[kind]; kind++) {
        const char *name = plsh_decay_names()[kind];
        if (strlen(name) != length || strncmp(text, name, length) != 0) continue;
        if (kind == PLSH_DECAY_TABLE) return parse_table(colon + 1, decay, out);
        *decay = (plsh_decay){.kind = (plsh_decay_kind)kind};
        return parse_parameters(text, colon + 1, (size_t)plsh_decay_parameters(decay->kind), decay);
    }
    return cli_usage("--decay: \"%s\" is not one of alibi, kerple-log:r1,r2, kerple-power:a,p, "
                     "triangle:w, table:FILE",
                     text);
}

static int make_other(const cli_decays *options, size_t heads, cli_decay_list *out) {
    if (options->sigma != NULL || options->slopes.count > 0)
        return cli_usage("--sigma and --slopes belong to --decay alibi, not to \"%s\"",
                         options->decay);
    plsh_decay decay = {0};
    int code = parse_decay(options->decay, &decay, out);
    if (code == CLI_DONE) code = allocate_decays(heads > 0 ? heads : 1, out);
    for (size_t h = 0; code == CLI_DONE && h < out->count; h++) out->values[h] = decay;
    return code;
}

int cli_decays_make(const cli_decays *options, size_t heads, cli_decay_list *out) {
    *out = (cli_decay_list){0};
    bool alibi = strcmp(options->decay, "alibi") == 0;
    int code = alibi ? make_alibi(options, heads, out) : make_other(options, heads, out);
    for (size_t h = 0; code == CLI_DONE && h < out->count; h++) {
        plsh_error error;
        out->values[h].limit = options->limit;
        if (plsh_decay_check(&out->values[h], &error) != PLSH_STATUS_OK)
            code = cli_usage("--%s: %s", alibi ? "sigma" : "decay", error.message);
    }
    if (code != CLI_DONE) cli_decays_free(out);
    return code;
}

void cli_decays_free(cli_decay_list *list) {
    free(list->values);
    free(list->table);
    *list = (cli_decay_list){0};
}

const char *const *cli_schemes(void) {
    static const char *drawn[PLSH_SCHEME_LABELS + 1]; /* labels have an option of their own */
    for (int i = 0; i < PLSH_SCHEME_LABELS; i++) drawn[i] = plsh_scheme_names()[i];
    return (const char *const *)drawn;
}

/* The schemes of row numbers, and last the one of points. */
static const char *const *all_schemes(void) {
    static const char *names[PLSH_SCHEME_LABELS + 2];
    for (int i = 0; i < PLSH_SCHEME_LABELS; i++) names[i] = plsh_scheme_names()[i];
    names[PLSH_SCHEME_LABELS] = plsh_scheme_names()[PLSH_SCHEME_HYPERPLANES];
    return (const char *const *)names;
}

#define SCHEME_OPTION                                                                              \
    .name = "scheme", .kind = CLI_CHOICE, CLI_MEMBER(cli_partitions, scheme), .value = "NAME"
#define DESIGN_OPTION                                                                              \
    .name = "design", .kind = CLI_CHOICE, CLI_MEMBER(cli_partitions, design), .value = "NAME",     \
    .choices = plsh_design_names
#define DESIGN_HELP                                                                                \
    "how the draws of a head are placed; golden, golden-shifted, toeplitz: for ALiBi; auto: the "  \
    "one with the least error as measured"
#define LABELS_OPTION                                                                              \
    .name = "labels", .kind = CLI_FILE, CLI_MEMBER(cli_partitions, labels), .value = "FILE",       \
    .help = "block labels of your own instead of draws: int32 .npy [heads, s, n]; those of one "   \
            "head serve all"

const cli_option cli_partitions_options[CLI_PARTITIONS_COUNT] = {
    {SCHEME_OPTION, .choices = cli_schemes, .help = "how one partition is drawn",
     .fallback = "integer"},
    {DESIGN_OPTION, .help = DESIGN_HELP, .fallback = "stratified"},
    {LABELS_OPTION},
};

const cli_option cli_points_partitions_options[CLI_PARTITIONS_COUNT] = {
    {SCHEME_OPTION, .choices = all_schemes,
     .help = "how one partition is drawn; without it integer, with --positions hyperplanes"},
    {DESIGN_OPTION, .help = DESIGN_HELP, .fallback = "stratified"},
    {LABELS_OPTION},
};

const cli_option cli_paper_partitions_options[CLI_PARTITIONS_COUNT] = {
    {SCHEME_OPTION, .choices = all_schemes,
     .help =
         "how one partition is drawn; without it integer, with --paper binning, with --positions "
         "hyperplanes"},
    {DESIGN_OPTION,
     .help = "how the draws of a head are chosen; without it stratified, with --paper iid"},
    {LABELS_OPTION},
};

int cli_partitions_default(cli_partitions *options, bool paper, bool points) {
    const int hyperplanes = PLSH_SCHEME_LABELS; /* its index in all_schemes */
    if (points && options->labels != NULL)
        return cli_usage("--labels and --positions: give one of them");
    if (points && options->scheme >= 0 && options->scheme != hyperplanes)
        return cli_usage("--scheme %s cuts row numbers; --positions takes hyperplanes",
                         all_schemes()[options->scheme]);
    if (!points && options->scheme == hyperplanes)
        return cli_usage("--scheme hyperplanes needs --positions");
    if (points)
        options->scheme = PLSH_SCHEME_HYPERPLANES;
    else if (options->scheme < 0)
        options->scheme = paper ? PLSH_SCHEME_BINNING : PLSH_SCHEME_INTEGER;
    if (options->design < 0) options->design = paper ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
    return CLI_DONE;
}

int cli_labels_read(const cli_partitions *options, cli_labels *out) {
    *out = (cli_labels){0};
    if (options->labels == NULL) return CLI_DONE;
    plsh_npy array;
    plsh_error error;
    if (plsh_npy_read(options->labels, &array, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    if (array.rank != 3 || array.type != PLSH_DTYPE_INT32) {
        int code = cli_fail("%s: rank %d of %s; labels are int32 [heads, s, n]", options->labels,
                            array.rank, plsh_dtype_name(array.type));
        plsh_npy_free(&array);
        return code;
    }
    if (array.count == 0) {
        plsh_npy_free(&array);
        return cli_fail("%s: there are no labels in it; [heads, s, n] are 1 or more",
                        options->labels);
    }
    out->heads = array.shape[0];
    out->samples = array.shape[1];
    out->n = array.shape[2];
    out->array = array;
    out->values = array.data;
    return CLI_DONE;
}

int cli_labels_check(const cli_partitions *options, const cli_labels *labels, int64_t heads,
                     int64_t n) {
    if (options->labels == NULL) return CLI_DONE;
    if (labels->heads != 1 && labels->heads != heads)
        return cli_fail("%s: labels of %lld heads; there are %lld: give those of one, or of all",
                        options->labels, (long long)labels->heads, (long long)heads);
    if (labels->n < n)
        return cli_fail("%s: labels of %lld positions; there are %lld keys", options->labels,
                        (long long)labels->n, (long long)n);
    return CLI_DONE;
}

void cli_labels_free(cli_labels *labels) {
    free(labels->made);
    plsh_npy_free(&labels->array);
    *labels = (cli_labels){0};
}

/* Mixes the parts of a seed by the finaliser of SplitMix64. */
static uint64_t mix(uint64_t seed, uint64_t part) {
    uint64_t z = seed + part * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t cli_partition_seed(uint64_t seed, const plsh_decay *decay, int64_t samples) {
    uint64_t bits;
    memcpy(&bits, &decay->a, sizeof bits);
    return mix(mix(seed, bits), (uint64_t)samples);
}

/* Reports once which design `auto` chose for this sigma and number of samples. */
static void note_design(const plsh_partition *set) {
    static struct {
        double sigma;
        int64_t samples;
    } reported[64];
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (reported[i].sigma == set->decay.a && reported[i].samples == set->samples) return;
    if (count == CLI_COUNT(reported)) return;
    reported[count].sigma = set->decay.a, reported[count++].samples = set->samples;
    const char *name = plsh_design_names()[set->design];
    if (set->decay.kind == PLSH_DECAY_ALIBI)
        cli_note("design auto: sigma %g, %lld samples: %s", set->decay.a, (long long)set->samples,
                 name);
    else
        cli_note("design auto: %lld samples: %s", (long long)set->samples, name);
}

int cli_partition_make(const cli_partitions *options, const cli_labels *labels,
                       const plsh_decay *decay, int64_t samples, uint64_t seed, size_t head,
                       plsh_partition *out) {
    *out = (plsh_partition){.scheme = (plsh_scheme)options->scheme,
                            .design = (plsh_design)options->design,
                            .decay = *decay,
                            .samples = samples,
                            .seed = seed,
                            .head = (uint32_t)head};
    if (labels->values != NULL) {
        const int64_t from = (int64_t)head % labels->heads; /* one head's serve all */
        out->scheme = PLSH_SCHEME_LABELS;
        out->samples = labels->samples;
        out->labels = labels->values + from * labels->samples * labels->n;
        out->label_count = labels->n;
    }
    if (out->design == PLSH_DESIGN_AUTO) {
        out->design = plsh_design_choose(out);
        if (!labels->values) note_design(out);
    }
    plsh_error error;
    if ((out->scheme == PLSH_SCHEME_HYPERPLANES
             ? plsh_cells_check(out, &error)
             : plsh_partition_check(out, &error)) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

void cli_partitions_json(const cli_partitions *options, cli_json *json) {
    bool labels = options->labels != NULL;
    cli_json_text(json, "scheme",
                  plsh_scheme_names()[labels ? PLSH_SCHEME_LABELS : options->scheme]);
    cli_json_text(json, "design", labels ? NULL : plsh_design_names()[options->design]);
}
