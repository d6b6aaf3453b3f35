/* cli: plsh forward: one pass over given tokens. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/mesh.h"
#include "cli/lm/model.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct forward_options {
    const char *text, *ids, *logits, *hidden, *gradients;
    bool special;
} forward_options;

typedef struct settings {
    forward_options forward;
    cli_lm lm;
} settings;

static const cli_option forward_table[] = {
    {.name = "ids",
     .kind = CLI_FILE,
     CLI_MEMBER(forward_options, ids),
     .value = "FILE",
     .help = "the tokens: int32 .npy [n] or [1, n]",
     .varies = CLI_BY_RANK},
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(forward_options, text),
     .value = "FILE",
     .help = "a text instead; - is stdin",
     .varies = CLI_BY_RANK},
    {.name = "special",
     .kind = CLI_FLAG,
     CLI_MEMBER(forward_options, special),
     .help = "with --text: add the tokens that the tokenizer puts around a text"},
    {.name = "logits",
     .kind = CLI_FILE,
     CLI_MEMBER(forward_options, logits),
     .value = "FILE",
     .help = "all logits, float32 .npy [n, vocabulary]; of an encoder those of its masked-LM head, "
             "or of its classifier, [1, labels]"},
    {.name = "hidden",
     .kind = CLI_FILE,
     CLI_MEMBER(forward_options, hidden),
     .value = "FILE",
     .help = "the last hidden states, float32 .npy [n, hidden]"},
    {.name = "gradients",
     .kind = CLI_FILE,
     CLI_MEMBER(forward_options, gradients),
     .value = "FILE",
     .help = "gradients of the mean next-token loss by all weights (with --adapter: by those of "
             "the adapter), .safetensors with the weights' names"},
};

static const cli_group groups[] = {CLI_GROUP("Options", forward_table, settings, forward),
                                   CLI_LM_GROUPS(settings)};

enum { GRADIENTS, LOGITS, HIDDEN, OUTPUTS };

typedef struct work {
    cli_model model;
    cli_ids ids;
    float *logits, *hidden;
    bool classifies; /* logits are those of the text, not of tokens */
    cli_scores scores;
    double seconds;
    cli_output outputs[OUTPUTS];
} work;

static float *make_rows(int64_t rows, int64_t columns) {
    size_t size;
    if (__builtin_mul_overflow((size_t)rows, (size_t)columns, &size) || size > SIZE_MAX / 8)
        return NULL;
    return malloc((size + 1) * sizeof(float));
}

/* The outputs of this rank's rows. */
static int make_outputs(const forward_options *options, work *w) {
    const plsh_model_facts *facts = &w->model.facts;
    const plsh_range own = plsh_ranks_rows(w->model.ranks, w->ids.count);
    if (cli_rank() == 0) { /* who writes */
        w->outputs[GRADIENTS].path = options->gradients;
        w->outputs[LOGITS].path = options->logits;
        w->outputs[HIDDEN].path = options->hidden;
    }
    int code = cli_outputs_open(w->outputs, OUTPUTS);
    if (options->logits != NULL)
        w->logits = w->classifies ? make_rows(1, facts->labels)
                                  : make_rows(own.end - own.begin, facts->vocabulary);
    if (options->hidden != NULL || !facts->causal)
        w->hidden = make_rows(own.end - own.begin, facts->hidden);
    bool missing = (options->logits != NULL && w->logits == NULL) ||
                   ((options->hidden != NULL || !facts->causal) && w->hidden == NULL);
    if (code == CLI_DONE && missing)
        code = cli_fail("out of memory for the outputs of %lld tokens", (long long)w->ids.count);
    return code;
}

static int prepare_forward(const settings *given, work *w) {
    const forward_options *options = &given->forward;
    const plsh_model_facts *facts = &w->model.facts;
    int code = cli_model_open(&given->lm, &w->model);
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    code = cli_mesh_open(&given->lm, NULL, &w->model);
    if (code == CLI_DONE)
        code = cli_ids_read(&given->lm, &w->model, options->ids, options->text, options->special,
                            &w->ids);
    w->classifies = !facts->causal && !facts->masked && facts->labels > 0;
    if (code == CLI_DONE && !facts->causal && options->logits != NULL && !facts->masked &&
        facts->labels == 0)
        code = cli_fail("--logits: %s is an encoder, which has hidden states only (no masked-LM "
                        "head, no classifier)",
                        facts->family);
    if (code == CLI_DONE && w->classifies && w->model.ranks != NULL && options->logits != NULL)
        code = cli_fail("--logits of a classifier: run it in one process");
    if (code == CLI_DONE && options->gradients != NULL && w->ids.count < 2)
        code = cli_fail("--gradients: the loss of the next token takes at least 2 tokens; there is "
                        "1");
    if (code == CLI_DONE) code = cli_model_fits(&given->lm, &w->model, w->ids.count);
    if (code == CLI_DONE) cli_model_warn_context(&w->model, w->ids.count);
    if (code == CLI_DONE) code = make_outputs(options, w);
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    return cli_mesh_same(&w->model, &cli_command_forward, given, &w->ids);
}

static double fed;
static void count_fed(int64_t tokens) { cli_progress(fed += (double)tokens); }

static int encode(work *w) {
    plsh_error error;
    plsh_encoding encoding = {.ids = w->ids.values,
                              .count = w->ids.count,
                              .attention = w->model.attention,
                              .attention_count = w->model.attention_count,
                              .hidden = w->hidden,
                              .ranks = w->model.ranks};
    const plsh_range own = plsh_ranks_rows(w->model.ranks, w->ids.count);
    plsh_status status = plsh_model_encode(w->model.model, &encoding, &error);
    if (status == PLSH_STATUS_OK && w->logits != NULL)
        status = w->classifies ? plsh_model_classify(w->model.model, w->hidden, w->logits, &error)
                               : plsh_model_token_logits(w->model.model, w->hidden,
                                                         own.end - own.begin, w->logits, &error);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

static int compute(const settings *given, work *w) {
    double start = plsh_clock_seconds();
    int code;
    cli_model_announce(&w->model);
    cli_progress_begin((double)w->ids.count, "tokens");
    const cli_window all = {.ids = w->ids.values,
                            .count = w->ids.count,
                            .from = 1,
                            .logits = w->logits,
                            .hidden = w->hidden,
                            .done = count_fed};
    if (w->model.facts.causal)
        code = cli_score_window(&given->lm, &w->model, &all, &w->scores);
    else
        code = encode(w);
    code = cli_mesh_scores(&w->model, code, &w->scores);
    cli_progress_end();
    w->seconds = plsh_clock_seconds() - start;
    return code;
}

/* The mean loss of all tokens as one window, and its gradients. */
static int differentiate(const settings *given, work *w) {
    plsh_trainer *trainer;
    plsh_error error;
    double loss;
    plsh_train_options options = {.context = w->ids.count,
                                  .batch = 1,
                                  .attention = w->model.attention,
                                  .attention_count = w->model.attention_count,
                                  .seed = given->lm.common.seed,
                                  .lora_rank = given->lm.model.adapter != NULL,
                                  .threads = (int)given->lm.common.threads,
                                  .isa = given->lm.common.isa,
                                  .adapter = given->lm.model.adapter,
                                  .family = given->lm.model.family,
                                  .ranks = w->model.ranks};
    if (plsh_trainer_create(&trainer, given->lm.model.model, &options, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    plsh_status status =
        plsh_trainer_accumulate(trainer, w->ids.values, w->ids.count, 1, &loss, &error);
    cli_outputs_abandon(w->outputs, 1); /* it made sure that the file can be written; the trainer
                                           writes it */
    if (status == PLSH_STATUS_OK)
        status = plsh_trainer_save_gradients(trainer, given->forward.gradients, &error);
    plsh_trainer_destroy(trainer);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

static int save(const settings *given, work *w) {
    const plsh_model_facts *facts = &w->model.facts;
    const int64_t rows = w->ids.count;
    int code =
        w->classifies
            ? cli_mesh_rows(&w->model, &w->outputs[LOGITS], 1, facts->labels, w->logits)
            : cli_mesh_rows(&w->model, &w->outputs[LOGITS], rows, facts->vocabulary, w->logits);
    if (code == CLI_DONE)
        code = cli_mesh_rows(&w->model, &w->outputs[HIDDEN], rows, facts->hidden,
                             given->forward.hidden != NULL ? w->hidden : NULL);
    return code == CLI_DONE ? cli_outputs_commit(w->outputs, OUTPUTS) : code;
}

static int print_result(const settings *given, const work *w) {
    const double loss = w->scores.tokens > 0 ? w->scores.nll / (double)w->scores.tokens : NAN;
    const cli_mesh_cost cost = cli_mesh_costs(&w->model);
    if (w->scores.tokens > 0 && !isfinite(loss) && cli_rank() == 0)
        cli_say("%s: the loss is not finite", given->lm.model.model);
    if (!given->lm.common.json) {
        printf("%lld token%s in %.4g s, %.4g per second", (long long)w->ids.count,
               w->ids.count == 1 ? "" : "s", w->seconds, (double)w->ids.count / w->seconds);
        if (!isnan(loss)) printf(", loss %.7g", loss);
        cli_mesh_costs_print(&cost, "; ");
        putchar('\n');
        return CLI_DONE;
    }
    cli_json *json = cli_model_document(&given->lm, &w->model);
    if (json == NULL) return CLI_FAILED;
    cli_json_integer(json, "tokens", w->ids.count);
    cli_json_number(json, "loss", loss);
    cli_json_number(json, "seconds", w->seconds);
    cli_mesh_costs_json(&cost, json);
    return cli_document_end(json);
}

static int run_forward(const void *given) {
    const settings *options = given;
    work w = {0};
    int code = prepare_forward(options, &w);
    if (code == CLI_DONE) code = compute(options, &w);
    if (code == CLI_DONE && options->forward.gradients != NULL) code = differentiate(options, &w);
    if (code == CLI_DONE) code = save(options, &w);
    if (code == CLI_DONE) code = print_result(options, &w);
    cli_outputs_abandon(w.outputs, OUTPUTS);
    free(w.logits);
    free(w.hidden);
    free(w.ids.values);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_forward = {
    .name = "forward",
    .summary = "a forward pass of a model over given tokens",
    .text = "Runs a model over tokens and writes the logits of every token, the last hidden "
            "states, and the mean loss of the next token. Encoders give hidden states, and "
            "the logits of their masked-LM head or classifier. Under "
            "mpirun, plsh-mpi shares the tokens among its ranks.",
    .example = "plsh forward --model model --text text.txt --hidden hidden.npy",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_forward,
    .over_ranks = true,
};
