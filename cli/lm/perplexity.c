/* cli: plsh perplexity: how well a model predicts a text. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/mesh.h"
#include "cli/lm/model.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct perplexity_options {
    const char *text, *ids, *mesh;
    cli_integers context;
    int64_t stride, limit, by_position;
    bool same_tokens, bos;
} perplexity_options;

typedef struct settings {
    perplexity_options perplexity;
    cli_lm lm;
} settings;

static const cli_option perplexity_table[] = {
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(perplexity_options, text),
     .value = "FILE",
     .help = "the text, byte for byte; - is stdin",
     .varies = CLI_BY_RANK},
    {.name = "ids",
     .kind = CLI_FILE,
     CLI_MEMBER(perplexity_options, ids),
     .value = "FILE",
     .help = "its tokens instead: int32 .npy [n] or [1, n]",
     .varies = CLI_BY_RANK},
    {.name = "context",
     .kind = CLI_INTEGERS,
     CLI_MEMBER(perplexity_options, context),
     .value = "LIST",
     .help = "tokens per window",
     .fallback = "1024",
     .range = CLI_AT_LEAST(2)},
    {.name = "stride",
     .kind = CLI_INTEGER,
     CLI_MEMBER(perplexity_options, stride),
     .value = "N",
     .help = "tokens between the starts of windows, whose last N tokens are scored; 0: the whole "
             "window",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "same-tokens",
     .kind = CLI_FLAG,
     CLI_MEMBER(perplexity_options, same_tokens),
     .help = "every context scores the same tokens: segments of --stride (else of the shortest "
             "context), each but its first token, with what fits before it"},
    {.name = "limit-tokens",
     .kind = CLI_INTEGER,
     CLI_MEMBER(perplexity_options, limit),
     .value = "N",
     .help = "only the first N tokens of the text; 0: all",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "by-position",
     .kind = CLI_INTEGER,
     CLI_MEMBER(perplexity_options, by_position),
     .value = "N",
     .help = "also a row for every N positions of the windows, with time and memory; 0: none",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "bos",
     .kind = CLI_FLAG,
     CLI_MEMBER(perplexity_options, bos),
     .help = "the first token of every window, which is not scored, is the one that begins a text "
             "(<s>), as llama.cpp has it"},
    CLI_MESH_OPTION(perplexity_options, mesh),
};

/* Windows [first + k * step, + length), k < count, of which tokens from `from` on are scored. */
typedef struct windows {
    int64_t first, step, length, from, count;
} windows;

static const cli_group groups[] = {CLI_GROUP("Options", perplexity_table, settings, perplexity),
                                   CLI_LM_GROUPS(settings)};

static int64_t extreme(const cli_integers *list, bool most) {
    int64_t found = list->values[0];
    for (size_t i = 1; i < list->count; i++) {
        int64_t x = list->values[i];
        if (most ? x > found : x < found) found = x;
    }
    return found;
}

/* Segment k, [k S, (k + 1) S), ends the window of every context; segments that the longest context
 * cannot precede are left out for all. */
static int same_windows(const perplexity_options *options, int64_t tokens, int64_t context,
                        windows *out) {
    int64_t shortest = extreme(&options->context, false),
            longest = extreme(&options->context, true);
    int64_t segment = options->stride > 0 ? options->stride : shortest;
    if (segment < 2)
        return cli_usage("--stride: %lld tokens; 2 or more with --same-tokens", (long long)segment);
    int64_t skipped = (longest - 1) / segment; /* the first segments */
    *out = (windows){.first = (skipped + 1) * segment - context,
                     .step = segment,
                     .length = context,
                     .from = context - segment + 1,
                     .count = tokens / segment - skipped};
    if (out->count < 1)
        return cli_fail("%lld tokens are too few for --context %lld; give a longer text, or a "
                        "shorter context",
                        (long long)tokens, (long long)longest);
    return CLI_DONE;
}

/* A window scores no more tokens than it has. */
static int check_stride(const perplexity_options *options) {
    const int64_t shortest = extreme(&options->context, false);
    if (options->stride <= shortest) return CLI_DONE;
    return cli_usage("--stride: %lld tokens; at most the shortest context, %lld",
                     (long long)options->stride, (long long)shortest);
}

static int plain_windows(const perplexity_options *options, int64_t tokens, int64_t context,
                         windows *out) {
    int64_t length = context < tokens ? context : tokens;
    int64_t step = options->stride > 0 && options->stride < length ? options->stride : length;
    *out = (windows){.step = step,
                     .length = length,
                     .from = step < length ? length - step : 1,
                     .count = (tokens - length) / step + 1};
    if (length < 2) return cli_fail("a text of %lld token; at least 2", (long long)tokens);
    if (out->count * step + (length - step) < tokens)
        cli_note("context %lld: the last %lld tokens fill no window and are left out",
                 (long long)context, (long long)(tokens - (out->count * step + (length - step))));
    return CLI_DONE;
}

/* ---- By position -------------------------------------------------------------------------------
 */

static const cli_column position_columns[] = {
    {.name = "context", .kind = CLI_CELL_INTEGER},
    {.name = "position", .kind = CLI_CELL_INTEGER},
    {.name = "tokens", .kind = CLI_CELL_INTEGER},
    {.name = "nll", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "perplexity", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "accuracy", .kind = CLI_CELL_NUMBER, .digits = 4},
    {.name = "milliseconds", .kind = CLI_CELL_NUMBER, .heading = "ms/token", .digits = 4},
    {.name = "peak_bytes", .kind = CLI_CELL_INTEGER},
};

/* Scores between two multiples of --by-position, of all windows so far. */
typedef struct position_bin {
    int64_t tokens, first, fed;
    double nll, seconds;
    int64_t peak;
} position_bin;

/* The state of the run: the callback of cli_score_window gets only the number of tokens. */
static struct {
    double fed; /* for the progress */
    int64_t at, length, step;
    position_bin *bins; /* [length / step + 1], or NULL */
    const cli_scores *now;
    cli_scores before;
    double clock;
} track;

static void count_fed(int64_t tokens) {
    cli_progress(track.fed += (double)tokens);
    if (track.bins == NULL) return;
    position_bin *bin = &track.bins[track.at / track.step];
    const double now = plsh_clock_seconds();
    bin->tokens += track.now->tokens - track.before.tokens;
    bin->first += track.now->first - track.before.first;
    bin->nll += track.now->nll - track.before.nll;
    bin->seconds += now - track.clock;
    bin->fed += tokens;
    bin->peak = cli_peak_bytes();
    track.before = *track.now;
    track.clock = now;
    track.at = (track.at + tokens) % track.length;
}

static void add_positions(cli_table *table, int64_t context) {
    for (int64_t i = 0; i * track.step < track.length; i++) {
        const position_bin *bin = &track.bins[i];
        const double n = (double)bin->tokens;
        cli_cell row[] = {{.integer = context},
                          {.integer = i * track.step},
                          {.integer = bin->tokens},
                          {.number = bin->nll / n},
                          {.number = exp(bin->nll / n)},
                          {.number = (double)bin->first / n},
                          {.number = 1e3 * bin->seconds / (double)bin->fed},
                          {.integer = bin->peak}};
        if (bin->tokens > 0) cli_table_add(table, row);
    }
}

/* Scores by position are added up chunk by chunk. */
static int begin_positions(const settings *given, const windows *w, const cli_scores *scores) {
    const int64_t step = given->perplexity.by_position, chunk = given->lm.model.chunk;
    track.fed = 0;
    if (step == 0) return CLI_DONE;
    if (step % chunk != 0)
        return cli_usage("--by-position: %lld; a multiple of --chunk, %lld", (long long)step,
                         (long long)chunk);
    track.bins = calloc((size_t)(w->length / step + 1), sizeof *track.bins);
    if (track.bins == NULL) return cli_fail("out of memory for positions");
    track.at = 0;
    track.length = w->length;
    track.step = step;
    track.now = scores;
    track.before = *scores;
    track.clock = plsh_clock_seconds();
    return CLI_DONE;
}

/* ---- Windows -----------------------------------------------------------------------------------
 */

static const cli_column columns[] = {
    {.name = "context", .kind = CLI_CELL_INTEGER},
    {.name = "stride", .kind = CLI_CELL_INTEGER},
    {.name = "tokens", .kind = CLI_CELL_INTEGER},
    {.name = "nll", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "perplexity", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "accuracy", .kind = CLI_CELL_NUMBER, .digits = 4},
    {.name = "top10", .kind = CLI_CELL_NUMBER, .digits = 4},
    {.name = "top100", .kind = CLI_CELL_NUMBER, .digits = 4},
    {.name = "mrr", .kind = CLI_CELL_NUMBER, .digits = 4},
    {.name = "entropy", .kind = CLI_CELL_NUMBER, .digits = 5},
    {.name = "tokens_per_second", .kind = CLI_CELL_NUMBER, .heading = "tokens/s", .digits = 4},
    /* only under --compute int8 or bfloat16: */
    {.name = "float32_nll", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "float32_perplexity", .kind = CLI_CELL_NUMBER, .digits = 7},
    {.name = "perplexity_change", .kind = CLI_CELL_NUMBER, .digits = 2},
};

enum { COLUMNS = CLI_COUNT(columns), BESIDE_COLUMNS = 3 };

static void add_row(cli_table *table, int64_t context, const windows *w, const cli_scores *s,
                    const cli_scores *beside, double speed) {
    double n = (double)s->tokens;
    cli_cell row[] = {{.integer = context},
                      {.integer = w->step},
                      {.integer = s->tokens},
                      {.number = s->nll / n},
                      {.number = exp(s->nll / n)},
                      {.number = (double)s->first / n},
                      {.number = (double)s->top10 / n},
                      {.number = (double)s->top100 / n},
                      {.number = s->reciprocal / n},
                      {.number = s->entropy / n},
                      {.number = speed},
                      {.number = beside->nll / n},
                      {.number = exp(beside->nll / n)},
                      {.number = expm1((s->nll - beside->nll) / n)}};
    cli_table_add(table, row);
}

typedef struct tables {
    cli_table *contexts, *positions;
} tables;

/* The token that begins a text. */
static int find_bos(const settings *given, cli_model *model, int32_t *out) {
    plsh_token_ids ids = {0};
    plsh_error error;
    int code = given->perplexity.bos ? cli_model_tokenizer(&given->lm, model) : CLI_DONE;
    if (code != CLI_DONE || !given->perplexity.bos) return code;
    *out = plsh_tokenizer_roles(model->tokenizer).begin;
    if (plsh_tokenizer_begin(model->tokenizer, &ids, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    else if (ids.count > 0)
        *out = ids.ids[0];
    plsh_token_ids_free(&ids);
    if (code == CLI_DONE && (*out < 0 || *out >= model->facts.vocabulary))
        code = cli_fail("--bos: the tokenizer of %s names no token that begins a text",
                        given->lm.model.model);
    return code;
}

/* The tokens to score, and the models that score them. */
typedef struct reading {
    const settings *given;
    const cli_model *model;
    const cli_model *plain; /* the same in float32; NULL: not asked for */
    const cli_ids *ids;
    int32_t bos;
} reading;

static int score_windows(const reading *r, const cli_model *model, const windows *w,
                         cli_scores *scores) {
    const plsh_range mine = plsh_ranks_windows(model->ranks, w->count);
    int code = CLI_DONE;
    cli_progress_begin((double)((mine.end - mine.begin) * w->length), "tokens");
    for (int64_t k = mine.begin; code == CLI_DONE && k < mine.end; k++) {
        const int64_t at = w->first + k * w->step;
        const int32_t first = r->ids->values[at];
        if (r->given->perplexity.bos) r->ids->values[at] = r->bos;
        const cli_window one = {
            .ids = r->ids->values + at, .count = w->length, .from = w->from, .done = count_fed};
        code = cli_score_window(&r->given->lm, model, &one, scores);
        r->ids->values[at] = first;
        if (code == CLI_DONE && scores->broken > 0)
            code = cli_fail("%s: the logits for token %lld are not finite",
                            r->given->lm.model.model, (long long)(at + scores->broken));
    }
    code = cli_mesh_scores(model, code, scores);
    cli_progress_end();
    return code;
}

static int measure(const reading *r, int64_t context, const tables *to) {
    const perplexity_options *options = &r->given->perplexity;
    windows w = {0};
    cli_scores scores = {0}, beside = {0};
    int code = options->same_tokens ? same_windows(options, r->ids->count, context, &w)
                                    : plain_windows(options, r->ids->count, context, &w);
    if (code == CLI_DONE) code = begin_positions(r->given, &w, &scores);
    if (code != CLI_DONE) return code;
    const double start = plsh_clock_seconds();
    code = score_windows(r, r->model, &w, &scores);
    const double seconds = plsh_clock_seconds() - start;
    if (code == CLI_DONE && track.bins != NULL) add_positions(to->positions, context);
    free(track.bins);
    track.bins = NULL;
    track.fed = 0;
    if (code == CLI_DONE && r->plain != NULL) code = score_windows(r, r->plain, &w, &beside);
    if (code == CLI_DONE)
        add_row(to->contexts, context, &w, &scores, &beside,
                (double)(w.count * w.length) / seconds);
    return code;
}

/* If --compute asks for int8 or bfloat16: opens the same model in float32, to compare. */
static int open_plain(const settings *given, const cli_model *model, cli_model *plain,
                      bool *beside) {
    cli_lm lm = given->lm;
    *beside =
        cli_option_given("compute") && (model->facts.bfloat16 || model->facts.int8_matrices > 0);
    if (!*beside) return CLI_DONE;
    lm.model.compute = PLSH_COMPUTE_FLOAT32;
    const int code = cli_model_open(&lm, plain);
    plain->ranks = model->ranks;
    return code;
}

static int print_tables(const settings *given, const tables *from, const cli_mesh_cost *cost) {
    int code = cli_print_table(from->contexts);
    cli_mesh_costs_print(cost, "\n");
    if (cost->over_ranks) putchar('\n');
    if (code != CLI_DONE || given->perplexity.by_position == 0) return code;
    putchar('\n');
    return cli_print_table(from->positions);
}

static int print(const settings *given, const cli_model *model, const tables *from) {
    const cli_mesh_cost cost = cli_mesh_costs(model);
    if (!given->lm.common.json) return print_tables(given, from, &cost);
    cli_json *json = cli_model_document(&given->lm, model);
    if (json == NULL) return CLI_FAILED;
    cli_table_json(from->contexts, json, "rows");
    if (given->perplexity.by_position > 0) cli_table_json(from->positions, json, "positions");
    cli_mesh_costs_json(&cost, json);
    return cli_document_end(json);
}

typedef struct work {
    cli_model model, plain;
    bool beside; /* is `plain` open? */
    cli_ids ids;
    int32_t bos;
    tables to;
} work;

static int make_tables(work *w) {
    plsh_error error;
    const size_t shown = w->beside ? COLUMNS : COLUMNS - BESIDE_COLUMNS;
    if (cli_table_create(&w->to.contexts, columns, shown, &error) != PLSH_STATUS_OK ||
        cli_table_create(&w->to.positions, position_columns, CLI_COUNT(position_columns), &error) !=
            PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* The model, the tokens, and tables without rows. */
static int prepare_perplexity(const settings *given, work *w) {
    const perplexity_options *options = &given->perplexity;
    int code = check_stride(options);
    if (code == CLI_DONE) code = cli_ranks_agree(cli_model_open(&given->lm, &w->model));
    if (code == CLI_DONE) code = cli_mesh_open(&given->lm, options->mesh, &w->model);
    if (code == CLI_DONE && w->model.ranks != NULL && options->by_position > 0)
        code = cli_usage("--by-position: ranks go over all positions at once");
    if (code == CLI_DONE && !w->model.facts.causal)
        code = cli_fail("%s: an encoder does not predict tokens; perplexity needs a causal model",
                        given->lm.model.model);
    if (code == CLI_DONE)
        code = cli_ids_read(&given->lm, &w->model, options->ids, options->text, false, &w->ids);
    if (code == CLI_DONE && options->limit > 0 && w->ids.count > options->limit)
        w->ids.count = options->limit;
    if (code == CLI_DONE) code = open_plain(given, &w->model, &w->plain, &w->beside);
    if (code == CLI_DONE) code = make_tables(w);
    if (code == CLI_DONE) code = find_bos(given, &w->model, &w->bos);
    return code;
}

static int run_perplexity(const void *given) {
    const settings *options = given;
    const cli_integers *contexts = &options->perplexity.context;
    work w = {.bos = -1};
    int code = cli_ranks_agree(prepare_perplexity(options, &w));
    if (code == CLI_DONE) code = cli_mesh_same(&w.model, &cli_command_perplexity, options, &w.ids);
    if (code == CLI_DONE) {
        const int64_t longest = extreme(contexts, true);
        cli_model_announce(&w.model);
        cli_model_warn_context(&w.model, longest < w.ids.count ? longest : w.ids.count);
    }
    const reading r = {options, &w.model, w.beside ? &w.plain : NULL, &w.ids, w.bos};
    for (size_t i = 0; code == CLI_DONE && i < contexts->count; i++)
        code = measure(&r, contexts->values[i], &w.to);
    if (code == CLI_DONE) code = print(options, &w.model, &w.to);
    cli_table_free(w.to.contexts);
    cli_table_free(w.to.positions);
    free(w.ids.values);
    cli_model_close(&w.plain);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_perplexity = {
    .name = "perplexity",
    .summary = "how well a model predicts a text",
    .text =
        "Runs a model over a text in independent windows of --context tokens and scores its "
        "prediction of every token: loss in nats, perplexity, accuracy (how often the most "
        "likely token was right), how often the token was among the first 10 and 100, the mean "
        "reciprocal rank, and the entropy of the predictions. With --compute int8 or bfloat16 it "
        "runs a second time in float32 and prints that beside. --attention replaces the model's "
        "own attention. Under mpirun, plsh-mpi shares the tokens of a window among its ranks.",
    .example = "plsh perplexity --model model --text text.txt --context 512,1024\n"
               "plsh perplexity --model model --text text.txt --context 512,1024 "
               "--same-tokens --attention exact --sigma 64",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_perplexity,
    .over_ranks = true,
};
