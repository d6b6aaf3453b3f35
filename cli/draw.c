/* cli: plsh draw: draws partitions, and prints, writes or paints them. */
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/picture.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct draw_options {
    int64_t n;
    int64_t heads;
    int64_t samples;
    const char *out;
    const char *svg;
    const char *positions;
} draw_options;

typedef struct settings {
    draw_options draw;
    cli_decays decays;
    cli_partitions partitions;
    cli_common common;
} settings;

static const cli_option draw_table[] = {
    {.name = "n",
     .kind = CLI_INTEGER,
     CLI_MEMBER(draw_options, n),
     .value = "N",
     .help = "positions 0 to N - 1 (with --labels and --positions: all of theirs)",
     .fallback = "64",
     .range = CLI_BETWEEN(0, 0x1p62)},
    {.name = "heads",
     .kind = CLI_INTEGER,
     CLI_MEMBER(draw_options, heads),
     .value = "N",
     .help = "heads; 0 is one per sigma, and 8 for the standard series (with --labels: theirs)",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 65536)},
    {.name = "samples",
     .kind = CLI_INTEGER,
     CLI_MEMBER(draw_options, samples),
     .value = "S",
     .help = "partitions per head (with --labels: theirs)",
     .fallback = "20",
     .range = CLI_AT_LEAST(1)},
    {.name = "positions",
     .kind = CLI_FILE,
     CLI_MEMBER(draw_options, positions),
     .value = "FILE",
     .help = "cells of points instead of blocks of row numbers: .npy [n], [n, D] or [heads, n, D], "
             "D = 1 to 3; NaN is no position (label -1: it shares every cell)"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(draw_options, out),
     .value = "FILE",
     .help = "write the block labels: int32 .npy [heads, s, n]"},
    {.name = "svg",
     .kind = CLI_FILE,
     CLI_MEMBER(draw_options, svg),
     .value = "FILE",
     .help = "paint masks, their mean and the decay (256 positions and 8 heads at most); with "
             "--positions the cells of three draws of the first head, in the plane"},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", draw_table, settings, draw),
    CLI_GROUP("Bias", cli_decays_options, settings, decays),
    CLI_GROUP("Partitions", cli_points_partitions_options, settings, partitions),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

enum { OUT, SVG, OUTPUTS };

/* A drawing: a set per head, over n positions. */
typedef struct draw_work {
    int64_t n;
    size_t heads;
    int64_t samples;
    plsh_partition *sets;
    cli_decay_list decays;
    cli_labels labels;
    cli_points points; /* of --positions */
    cli_output outputs[OUTPUTS];
} draw_work;

/* Draws the cells of all heads, as labels. */
static int draw_cells(const settings *given, draw_work *out) {
    plsh_error error;
    int64_t count;
    if (__builtin_mul_overflow(given->draw.samples, out->n * (int64_t)out->heads, &count) ||
        count > INT64_C(1) << 40)
        return cli_fail("%lld labels of %lld partitions do not fit in memory", (long long)out->n,
                        (long long)given->draw.samples);
    out->labels = (cli_labels){(int64_t)out->heads, given->draw.samples, out->n, NULL, {0}, NULL};
    out->labels.values = out->labels.made = calloc((size_t)count + 1, sizeof(int32_t));
    if (out->labels.made == NULL)
        return cli_fail("out of memory for %lld labels", (long long)count);
    for (size_t h = 0; h < out->heads; h++) {
        const cli_labels none = {0};
        int code = cli_partition_make(&given->partitions, &none, &out->decays.values[h],
                                      given->draw.samples, given->common.seed, h, &out->sets[h]);
        if (code != CLI_DONE) return code;
        if (plsh_cells_label(&out->sets[h], 0, given->draw.samples, cli_points_of(&out->points, h),
                             out->labels.made + (int64_t)h * given->draw.samples * out->n,
                             (int)given->common.threads, &error) != PLSH_STATUS_OK)
            return cli_fail("%s: %s", given->draw.positions, error.message);
    }
    out->samples = given->draw.samples;
    return CLI_DONE;
}

static int prepare_cells(const settings *given, draw_work *out) {
    int code = cli_points_read(given->draw.positions, NULL, &out->points);
    if (code != CLI_DONE) return code;
    const int64_t sets = out->points.sets;
    if (sets != 1 && given->draw.heads != 0 && given->draw.heads != sets)
        return cli_fail("%s: positions of %lld heads; there are %lld", given->draw.positions,
                        (long long)sets, (long long)given->draw.heads);
    code = cli_decays_make(&given->decays, (size_t)(sets != 1 ? sets : given->draw.heads),
                           &out->decays);
    if (code != CLI_DONE) return code;
    out->heads = out->decays.count;
    out->n = out->points.n;
    out->sets = calloc(out->heads + 1, sizeof *out->sets);
    if (out->sets == NULL) return cli_fail("out of memory for %zu heads", out->heads);
    return draw_cells(given, out);
}

static int prepare_draw(const settings *given, draw_work *out) {
    if (given->draw.positions != NULL) return prepare_cells(given, out);
    int code = cli_labels_read(&given->partitions, &out->labels);
    size_t heads = (size_t)given->draw.heads;
    if (code == CLI_DONE && given->partitions.labels != NULL) heads = (size_t)out->labels.heads;
    if (code == CLI_DONE) code = cli_decays_make(&given->decays, heads, &out->decays);
    if (code != CLI_DONE) return code;
    out->heads = out->decays.count;
    out->n = given->partitions.labels != NULL ? out->labels.n : given->draw.n;
    out->sets = calloc(out->heads + 1, sizeof *out->sets);
    if (out->sets == NULL) return cli_fail("out of memory for %zu heads", out->heads);
    for (size_t h = 0; h < out->heads && code == CLI_DONE; h++)
        code = cli_partition_make(&given->partitions, &out->labels, &out->decays.values[h],
                                  given->draw.samples, given->common.seed, h, &out->sets[h]);
    out->samples = out->heads > 0 ? out->sets[0].samples : 0;
    if (code == CLI_DONE && out->heads > 0 && out->sets[0].design == PLSH_DESIGN_GOLDEN_SHIFTED &&
        given->partitions.labels == NULL)
        return cli_usage("--design golden-shifted counts blocks and draws no partitions; golden "
                         "does");
    return code;
}

static void release(draw_work *drawing) {
    cli_outputs_abandon(drawing->outputs, OUTPUTS);
    free(drawing->sets);
    cli_decays_free(&drawing->decays);
    cli_labels_free(&drawing->labels);
    cli_points_free(&drawing->points);
}

static bool has_points(const draw_work *drawing) { return drawing->points.dim > 0; }

static const int32_t *cells_at(const draw_work *drawing, size_t head, int64_t sample) {
    return drawing->labels.made + ((int64_t)head * drawing->samples + sample) * drawing->n;
}

/* The block at `position`, cut to 0..n-1. */
static plsh_range block_at(const draw_work *drawing, size_t head, int64_t sample,
                           int64_t position) {
    plsh_range block;
    plsh_partition_block(&drawing->sets[head], sample, position, &block);
    if (block.begin < 0) block.begin = 0;
    if (block.end > drawing->n) block.end = drawing->n;
    return block;
}

typedef struct run_of_labels {
    int32_t label;
    int64_t begin;
} run_of_labels;

static int compare_runs(const void *x, const void *y) {
    const run_of_labels *a = x, *b = y;
    if (a->label != b->label) return a->label < b->label ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* A label that reappears after a gap has no [begin, end) to print. */
static int check_contiguous(const draw_work *drawing, const char *path) {
    run_of_labels *runs = calloc((size_t)drawing->n, sizeof *runs);
    if (runs == NULL) return cli_fail("out of memory for %lld labels", (long long)drawing->n);
    int code = CLI_DONE;
    for (int64_t x = 0; x < (int64_t)drawing->heads * drawing->samples && code == CLI_DONE; x++) {
        const size_t head = (size_t)(x / drawing->samples);
        const int64_t sample = x % drawing->samples;
        size_t count = 0;
        for (int64_t i = 0; i < drawing->n; i = block_at(drawing, head, sample, i).end)
            runs[count++] = (run_of_labels){drawing->sets[head].labels[sample * drawing->n + i], i};
        qsort(runs, count, sizeof *runs, compare_runs);
        for (size_t i = 1; i < count && code == CLI_DONE; i++)
            if (runs[i].label == runs[i - 1].label)
                code = cli_fail("%s: head %zu, sample %lld: label %d comes back at position %lld; "
                                "only blocks without gaps can be printed (--svg paints any)",
                                path, head, (long long)sample, (int)runs[i].label,
                                (long long)runs[i].begin);
    }
    free(runs);
    return code;
}

static int write_labels(const draw_work *drawing) {
    const char *path = drawing->outputs[OUT].path;
    if (path == NULL) return CLI_DONE;
    const int64_t shape[3] = {(int64_t)drawing->heads, drawing->samples, drawing->n};
    if (has_points(drawing))
        return cli_output_array(&drawing->outputs[OUT], PLSH_DTYPE_INT32, 3, shape,
                                drawing->labels.made);
    size_t count;
    if (__builtin_mul_overflow(drawing->heads, (size_t)drawing->samples, &count) ||
        __builtin_mul_overflow(count, (size_t)drawing->n, &count) || count > SIZE_MAX / 8)
        return cli_fail("--out: %zu x %lld x %lld labels do not fit in memory", drawing->heads,
                        (long long)drawing->samples, (long long)drawing->n);
    int32_t *labels = malloc((count + 1) * sizeof *labels);
    if (labels == NULL) return cli_fail("--out: out of memory for %zu labels", count);
    plsh_error error;
    int code = CLI_DONE;
    int32_t *next = labels;
    for (size_t h = 0; h < drawing->heads; h++)
        for (int64_t m = 0; m < drawing->samples && code == CLI_DONE; m++, next += drawing->n)
            if (plsh_partition_labels(&drawing->sets[h], m, drawing->n, next, &error) !=
                PLSH_STATUS_OK)
                code = cli_fail_error(&error);
    if (code == CLI_DONE)
        code = cli_output_array(&drawing->outputs[OUT], PLSH_DTYPE_INT32, 3, shape, labels);
    free(labels);
    return code;
}

static int64_t painted_positions(const draw_work *drawing) {
    return drawing->n < CLI_PICTURE_POSITIONS ? drawing->n : CLI_PICTURE_POSITIONS;
}

static size_t painted_heads(const draw_work *drawing) {
    return drawing->heads < CLI_PICTURE_HEADS ? drawing->heads : CLI_PICTURE_HEADS;
}

static int paint(const draw_work *drawing) {
    const cli_output *output = &drawing->outputs[SVG];
    if (output->path == NULL) return CLI_DONE;
    if (drawing->n == 0 || drawing->heads == 0)
        return cli_fail("--svg: there is nothing to paint with --n 0");
    if (has_points(drawing)) {
        if (drawing->points.dim != 2)
            return cli_fail("--svg paints points in the plane; these have %d coordinate%s",
                            drawing->points.dim, drawing->points.dim == 1 ? "" : "s");
        return cli_cells_paint(output, &drawing->sets[0], cli_points_of(&drawing->points, 0),
                               drawing->labels.made);
    }
    return cli_picture_write(output, drawing->sets, painted_heads(drawing),
                             painted_positions(drawing));
}

/* Puts both files in place, or neither; then prints what they hold. */
static int write_files(draw_work *drawing) {
    int code = write_labels(drawing);
    if (code == CLI_DONE) code = paint(drawing);
    if (code == CLI_DONE) code = cli_outputs_commit(drawing->outputs, OUTPUTS);
    if (code != CLI_DONE) return code;
    const char *out = drawing->outputs[OUT].path, *svg = drawing->outputs[SVG].path;
    const size_t heads = painted_heads(drawing);
    if (out != NULL)
        cli_note("%s: labels of %zu head%s, %lld partitions, %lld positions", out, drawing->heads,
                 drawing->heads == 1 ? "" : "s", (long long)drawing->samples,
                 (long long)drawing->n);
    if (svg != NULL && has_points(drawing))
        cli_note("%s: the cells of %lld points", svg, (long long)drawing->n);
    else if (svg != NULL)
        cli_note("%s: the first %lld positions of %zu head%s", svg,
                 (long long)painted_positions(drawing), heads, heads == 1 ? "" : "s");
    return CLI_DONE;
}

static int print_json(const draw_work *drawing, const settings *given) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_integer(json, "n", drawing->n);
    cli_json_integer(json, "heads", (int64_t)drawing->heads);
    cli_json_integer(json, "samples", drawing->samples);
    cli_partitions_json(&given->partitions, json);
    cli_json_unsigned(json, "seed", given->common.seed);
    cli_json_begin_array(json, has_points(drawing) ? "labels" : "blocks");
    for (size_t h = 0; h < drawing->heads; h++) {
        cli_json_begin_array(json, NULL);
        for (int64_t m = 0; m < drawing->samples; m++) {
            cli_json_begin_array(json, NULL);
            for (int64_t i = 0; i < drawing->n && has_points(drawing); i++)
                cli_json_integer(json, NULL, cells_at(drawing, h, m)[i]);
            for (int64_t i = 0; i < drawing->n && !has_points(drawing);) {
                plsh_range block = block_at(drawing, h, m, i);
                cli_json_begin_array(json, NULL);
                cli_json_integer(json, NULL, block.begin);
                cli_json_integer(json, NULL, block.end);
                cli_json_end(json);
                i = block.end;
            }
            cli_json_end(json);
        }
        cli_json_end(json);
    }
    cli_json_end(json);
    return cli_document_end(json);
}

static const cli_column columns[] = {
    {"head", CLI_CELL_INTEGER, NULL, 0},    {"sigma", CLI_CELL_NUMBER, NULL, 0},
    {"sample", CLI_CELL_INTEGER, NULL, 0},  {"blocks", CLI_CELL_INTEGER, NULL, 0},
    {"largest", CLI_CELL_INTEGER, NULL, 0}, {"begins", CLI_CELL_TEXT, "blocks begin at", 0},
};

static void add_row(const draw_work *drawing, size_t head, int64_t sample, cli_table *table) {
    enum { SHOWN = 60 }; /* characters of begins */
    char begins[SHOWN + 32] = "";
    size_t used = 0;
    int64_t blocks = 0, largest = 0;
    bool cut = false;
    for (int64_t i = 0; i < drawing->n; blocks++) {
        plsh_range block = block_at(drawing, head, sample, i);
        if (block.end - block.begin > largest) largest = block.end - block.begin;
        if (used < SHOWN)
            used += (size_t)snprintf(begins + used, sizeof begins - used, "%s%lld",
                                     blocks > 0 ? " " : "", (long long)block.begin);
        else
            cut = true;
        i = block.end;
    }
    if (cut) snprintf(begins + used, sizeof begins - used, " ..");
    const plsh_decay *decay = &drawing->sets[head].decay;
    cli_table_add(table, (cli_cell[]){{.integer = (int64_t)head},
                                      {.number = decay->kind == PLSH_DECAY_ALIBI ? decay->a : NAN},
                                      {.integer = sample},
                                      {.integer = blocks},
                                      {.integer = largest},
                                      {.text = begins}});
}

static const cli_column cell_columns[] = {
    {"head", CLI_CELL_INTEGER, NULL, 0},    {"sigma", CLI_CELL_NUMBER, NULL, 0},
    {"sample", CLI_CELL_INTEGER, NULL, 0},  {"cells", CLI_CELL_INTEGER, NULL, 0},
    {"largest", CLI_CELL_INTEGER, NULL, 0}, {"mean", CLI_CELL_NUMBER, "points per cell", 4},
};

/* size: [n + 1] of scratch. */
static void add_cells_row(const draw_work *drawing, size_t head, int64_t sample, int64_t *size,
                          cli_table *table) {
    const int32_t *labels = cells_at(drawing, head, sample);
    int64_t cells = 0, largest = 0, placed = 0;
    for (int64_t i = 0; i < drawing->n; i++) size[i] = 0;
    for (int64_t i = 0; i < drawing->n; i++) {
        if (labels[i] == PLSH_CELL_EVERY) continue;
        placed++;
        cells += size[labels[i]]++ == 0;
        if (size[labels[i]] > largest) largest = size[labels[i]];
    }
    const plsh_decay *decay = &drawing->sets[head].decay;
    cli_table_add(table, (cli_cell[]){{.integer = (int64_t)head},
                                      {.number = decay->kind == PLSH_DECAY_ALIBI ? decay->a : NAN},
                                      {.integer = sample},
                                      {.integer = cells},
                                      {.integer = largest},
                                      {.number = (double)placed / (double)(cells ? cells : 1)}});
}

static int print_table(const draw_work *drawing) {
    cli_table *table;
    plsh_error error;
    const bool points = has_points(drawing);
    int64_t *size = calloc((size_t)(points ? drawing->n : 0) + 1, sizeof *size);
    if (size == NULL) return cli_fail("out of memory for %lld points", (long long)drawing->n);
    if (cli_table_create(&table, points ? cell_columns : columns, CLI_COUNT(columns), &error) !=
        PLSH_STATUS_OK) {
        free(size);
        return cli_fail_error(&error);
    }
    for (size_t h = 0; h < drawing->heads; h++)
        for (int64_t m = 0; m < drawing->samples; m++)
            if (points)
                add_cells_row(drawing, h, m, size, table);
            else
                add_row(drawing, h, m, table);
    free(size);
    int code = cli_print_table(table);
    cli_table_free(table);
    return code;
}

static int run_draw(const void *given) {
    settings settled = *(const settings *)given;
    const settings *options = &settled;
    int code = cli_partitions_default(&settled.partitions, false, settled.draw.positions != NULL);
    if (code != CLI_DONE) return code;
    const char *labels = options->partitions.labels;
    draw_work drawing = {.outputs = {{.path = options->draw.out}, {.path = options->draw.svg}}};
    const bool prints =
        options->common.json || (options->draw.out == NULL && options->draw.svg == NULL);
    code = prepare_draw(options, &drawing);
    if (code == CLI_DONE && prints && labels != NULL) code = check_contiguous(&drawing, labels);
    if (code == CLI_DONE) code = cli_outputs_open(drawing.outputs, OUTPUTS);
    if (code == CLI_DONE) code = write_files(&drawing);
    if (code == CLI_DONE && prints)
        code = options->common.json ? print_json(&drawing, options) : print_table(&drawing);
    release(&drawing);
    return code;
}

const cli_command cli_command_draw = {
    .name = "draw",
    .summary = "draws partitions; prints their blocks, writes labels, or paints the masks",
    .text =
        "Draws random partitions of the positions into contiguous blocks whose masks have the "
        "decay as their mean. Without --out and --svg it prints the blocks. With --positions it "
        "draws cells of points by random hyperplanes: two points share a cell with the "
        "probability that the decay has at their Euclidean distance.",
    .example = "plsh draw --n 32 --sigma 4,8 --samples 3\n"
               "plsh draw --n 1000 --sigma 16 --out labels.npy\n"
               "plsh draw --n 48 --sigma 4,16 --samples 64 --design iid --svg masks.svg",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_draw,
};
