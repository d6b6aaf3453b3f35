/* cli: plsh train: from scratch, or LoRA adapters on a model. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/config.h"
#include "cli/lm/model.h"
#include "cli/lm/train_folder.h"
#include "cli/lm/train_log.h"
#include "cli/lm/train_options.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef cli_train_settings settings;

enum { PATH = CLI_TRAIN_PATH };

typedef struct work {
    const settings *given;
    cli_lm lm; /* its model is the trainer's */
    char weights[PATH], tokens[PATH], log_path[PATH], plot_path[PATH];
    cli_model model;
    plsh_trainer *trainer;
    plsh_corpus *corpus;
    cli_ids eval;
    plsh_schedule schedule;
    cli_settings settings; /* that all parts of a run have */
    plsh_train_run *run;
    bool made_tokens; /* there were none before */
    cli_train_folder folder;
    double last_loss;
    cli_train_log log;
} work;

/* ---- Signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop, asked_to_plot, asked_at;

/* A second signal ends the program if it comes more than a second after the first. An earlier one
 * is a copy of the first, which was sent to the process and to its group. */
static void ask_to_stop(int number) {
    const sig_atomic_t now = (sig_atomic_t)plsh_clock_seconds();
    if (!asked_to_stop) {
        asked_at = now;
        asked_to_stop = number;
    } else if (now - asked_at > 1) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static void ask_to_plot(int number) { asked_to_plot = number; }

static void catch_signals(void) {
    struct sigaction stop = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
    struct sigaction plot = {.sa_handler = ask_to_plot, .sa_flags = SA_RESTART};
    sigemptyset(&stop.sa_mask);
    sigemptyset(&plot.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGUSR1, &plot, NULL);
}

/* ---- Before the work ------------------------------------------------------------------------- */

/* Does the file exist? Checked before initial weights are made, which may take long. */
static int check_readable(const char *option, const char *path) {
    if (path == NULL || strcmp(path, "-") == 0 || access(path, R_OK) == 0) return CLI_DONE;
    return cli_fail("--%s: %s: %s", option, path, strerror(errno));
}

static int check_files(const settings *given) {
    const char *log = given->records.log;
    struct stat about;
    int code = check_readable("text", given->data.text);
    if (code == CLI_DONE) code = check_readable("tokenizer", given->data.tokenizer);
    if (code == CLI_DONE) code = check_readable("eval-text", given->records.eval_text);
    if (code != CLI_DONE || log == NULL || given->records.resume) return code;
    if (stat(log, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
        return cli_fail("--log: %s exists and is not overwritten: name another file, or --resume "
                        "the run that wrote it",
                        log);
    return CLI_DONE;
}

/* ---- Model and data -------------------------------------------------------------------------- */

static plsh_compute compute_of(const settings *given) {
    return given->steps.compute == 1 ? PLSH_COMPUTE_BFLOAT16 : PLSH_COMPUTE_FLOAT32;
}

static plsh_train_options trainer_options(const work *w) {
    const settings *given = w->given;
    const cli_train_lora *lora = &given->lora;
    return (plsh_train_options){.context = given->steps.context,
                                .batch = given->steps.batch,
                                .attention = w->model.attention,
                                .attention_count = w->model.attention_count,
                                .keep_draws = given->steps.draws == 1,
                                .recompute = given->steps.recompute,
                                .keep_attention = given->steps.keep_attention,
                                .learn_slopes = given->steps.learn_slopes,
                                .seed = given->lm.common.seed,
                                .dropout = given->steps.dropout,
                                .lora_rank = lora->rank,
                                .lora_alpha = lora->alpha,
                                .lora_dropout = lora->dropout,
                                .lora_targets = (const char *const *)lora->targets.values,
                                .lora_target_count = lora->targets.count,
                                .threads = (int)given->lm.common.threads,
                                .isa = given->lm.common.isa,
                                .compute = compute_of(given),
                                .adapter = given->data.adapter,
                                .family = given->data.family,
                                .ranks = w->model.ranks,
                                .micro_batches = given->steps.accumulate};
}

/* Opens the ranks and checks that all have the same options, before anything is written. */
static int open_ranks(work *w) {
    const cli_train_steps *s = &w->given->steps;
    int code = cli_mesh_open(&w->given->lm, s->mesh, &w->model);
    const plsh_ranks *ranks = w->model.ranks;
    if (code == CLI_DONE && ranks != NULL && s->batch < ranks->groups)
        code = cli_usage("--mesh %s: %lld groups share a --batch of %lld windows; give it one for "
                         "each, at least",
                         s->mesh, (long long)ranks->groups, (long long)s->batch);
    if (code == CLI_DONE) code = cli_mesh_same_settings(&w->model, &cli_command_train, w->given);
    return cli_ranks_agree(code);
}

/* Checks that the given rank and scale are those of the adapter whose training continues. */
static int check_adapter(const settings *given) {
    const cli_train_lora *lora = &given->lora;
    plsh_adapter *adapter;
    plsh_error error;
    if (given->data.adapter == NULL) return CLI_DONE;
    if (plsh_adapter_open(&adapter, given->data.adapter, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    const plsh_adapter_layer *layer =
        plsh_adapter_count(adapter) > 0 ? plsh_adapter_at(adapter, 0) : NULL;
    const int64_t rank = layer != NULL ? layer->rank : lora->rank;
    const double alpha = layer != NULL ? (double)layer->scale * (double)rank : lora->alpha;
    plsh_adapter_close(adapter);
    if (rank != lora->rank)
        return cli_fail("--lora-rank is %lld, and the adapter %s has %lld: it keeps its rank",
                        (long long)lora->rank, given->data.adapter, (long long)rank);
    if (lora->alpha > 0 && fabs(lora->alpha - alpha) > 1e-6 * alpha)
        return cli_fail("--lora-alpha is %g, and the adapter %s has %g: it keeps its scale",
                        lora->alpha, given->data.adapter, alpha);
    return CLI_DONE;
}

/* Opens the base model, to know its layers and its tokenizer. */
static int open_model(work *w) {
    const cli_train_data *data = &w->given->data;
    const plsh_ranks *ranks = w->model.ranks;
    w->lm = w->given->lm;
    w->lm.model.model = data->base != NULL ? data->base : w->weights;
    w->lm.model.tokenizer = data->tokenizer;
    w->lm.model.chunk = 512;
    w->lm.model.compute = compute_of(w->given);
    w->lm.model.whole = true;
    int code = cli_train_folder_weights(w->weights, data->out);
    if (code == CLI_DONE) code = check_adapter(w->given);
    if (code == CLI_DONE) code = cli_model_open(&w->lm, &w->model);
    if (code == CLI_DONE) code = cli_model_fits(&w->lm, &w->model, w->given->steps.context);
    w->model.ranks = ranks;
    return cli_ranks_agree(code);
}

/* Closes the model that was opened to know the layers; the trainer has its own weights. */
static int make_trainer(work *w) {
    plsh_error error;
    plsh_train_options options = trainer_options(w);
    if (plsh_trainer_create(&w->trainer, w->lm.model.model, &options, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    plsh_model_close(w->model.owned);
    w->model.owned = NULL;
    w->model.model = plsh_trainer_model(w->trainer);
    return CLI_DONE;
}

/* The tokenizer of the texts: --tokenizer, or the model's; NULL after a message. */
static const char *find_tokenizer(const work *w, const char *text) {
    const cli_train_data *data = &w->given->data;
    char own[PATH];
    if (data->tokenizer != NULL) return data->tokenizer;
    if (data->fresh == NULL) return data->base;
    if (cli_train_path(own, w->weights, "tokenizer.json") == CLI_DONE && access(own, R_OK) == 0)
        return w->weights;
    if (cli_train_path(own, data->out, "tokenizer.json") == CLI_DONE && access(own, R_OK) == 0)
        return data->out;
    cli_say("--fresh: new weights have no tokenizer for %s; give one with --tokenizer", text);
    return NULL;
}

/* The first rank makes the file of tokens, which all then map. */
static int open_corpus(work *w) {
    const cli_train_data *data = &w->given->data;
    plsh_error error;
    int code = cli_train_path(w->tokens, data->out, "train.tokens");
    const bool made = plsh_corpus_is_tokens(data->text);
    plsh_corpus_options options = {.text = data->text,
                                   .tokenizer =
                                       made ? data->tokenizer : find_tokenizer(w, data->text),
                                   .tokens = data->tokens != NULL ? data->tokens : w->tokens,
                                   .shuffle_rows = data->order == 1,
                                   .seed = data->order_seed,
                                   .keep = w->folder.goes_on};
    if (!made && options.tokenizer == NULL) return CLI_USAGE;
    w->made_tokens = !made && cli_rank() == 0 && access(options.tokens, F_OK) != 0;
    for (int turn = 0; code == CLI_DONE && turn < 2; turn++) {
        if (turn == (cli_rank() > 0) &&
            plsh_corpus_open(&w->corpus, &options, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        code = cli_ranks_agree(code);
    }
    return code;
}

/* Opens the held-out text, and notes which of its tokens are not scored. */
static int open_held_out(work *w) {
    const cli_train_records *records = &w->given->records;
    const int64_t context = w->given->steps.context;
    const char *text = records->eval_text;
    if (text == NULL) return CLI_DONE;
    if (!plsh_corpus_is_tokens(text) && find_tokenizer(w, text) == NULL) return CLI_USAGE;
    int code = cli_ids_read(&w->lm, &w->model, NULL, text, false, &w->eval);
    if (code != CLI_DONE) return code;
    if (records->eval_limit > 0 && w->eval.count > records->eval_limit)
        w->eval.count = records->eval_limit;
    const int64_t count = w->eval.count;
    if (count < 2) return cli_fail("%s: at least 2 tokens", text);
    if (count < context)
        cli_note("%s: its %lld tokens are scored as one window, shorter than --context %lld", text,
                 (long long)count, (long long)context);
    else if (count % context > 0)
        cli_note("%s: the last %lld of %lld tokens fill no window and are not scored", text,
                 (long long)(count % context), (long long)count);
    return CLI_DONE;
}

/* Checked before the trainer is made: its buffers for windows longer than the text would be large
 * and unused. */
static int open_data(work *w) {
    const cli_train_data *data = &w->given->data;
    const int64_t vocabulary = w->model.facts.vocabulary, context = w->given->steps.context;
    int code = open_corpus(w);
    if (code != CLI_DONE) return code;
    if (plsh_corpus_largest(w->corpus) >= vocabulary)
        return cli_fail("%s has the token %d; this model has %lld", data->text,
                        (int)plsh_corpus_largest(w->corpus), (long long)vocabulary);
    if (plsh_corpus_count(w->corpus) < context)
        return cli_fail("%s: %lld tokens fill no window of --context %lld", data->text,
                        (long long)plsh_corpus_count(w->corpus), (long long)context);
    return open_held_out(w);
}

/* Checks that all ranks have the training and held-out tokens of the first rank. */
static int same_data(const work *w) {
    const cli_model *m = &w->model;
    int code = cli_mesh_same_tokens(m, "tokens of --text", plsh_corpus_ids(w->corpus),
                                    plsh_corpus_count(w->corpus));
    if (code != CLI_DONE) return code;
    return cli_mesh_same_tokens(m, "tokens of --eval-text", w->eval.values, w->eval.count);
}

static int64_t windows_per_step(const cli_train_steps *s) { return s->batch * s->accumulate; }

/* Computes the number of steps, and notes how many tokens are left out. */
static int plan_steps(work *w) {
    const cli_train_steps *s = &w->given->steps;
    const int64_t tokens = plsh_corpus_count(w->corpus), windows = tokens / s->context;
    if (tokens % s->context > 0)
        cli_note("the last %lld of %lld tokens fill no window and are left out",
                 (long long)(tokens % s->context), (long long)tokens);
    const double all = floor(s->epochs * (double)windows + 1e-9);
    int64_t steps = s->steps > 0 ? s->steps : (int64_t)(all / (double)windows_per_step(s));
    if (steps < 1)
        return cli_fail("--epochs: %g of %lld windows are too few for one step of %lld (--batch "
                        "times --accumulate)",
                        s->epochs, (long long)windows, (long long)windows_per_step(s));
    int64_t left = s->steps > 0 ? 0 : (int64_t)all - steps * windows_per_step(s);
    if (left > 0) cli_note("the last %lld windows fill no step and are left out", (long long)left);
    const double warmup = s->warmup < 1.0 ? ceil(s->warmup * (double)steps) : floor(s->warmup);
    w->schedule = (plsh_schedule){.shape = (plsh_schedule_shape)s->schedule,
                                  .peak = s->lr,
                                  .warmup = (int64_t)warmup,
                                  .steps = steps};
    if (w->schedule.warmup >= steps)
        cli_note("--warmup: the rate rises on all of the %lld step%s, and never reaches --lr",
                 (long long)steps, steps == 1 ? "" : "s");
    return CLI_DONE;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* The file of "table:FILE"; NULL: the decay is no table. */
static const char *decay_table(const char *decay) {
    static const char begin[] = "table:";
    return decay != NULL && strncmp(decay, begin, sizeof begin - 1) == 0 ? decay + sizeof begin - 1
                                                                         : NULL;
}

/* The settings that all parts of a run share: checksums of its inputs, the options, and checksums
 * of files that the options name. */
static int list_settings(const settings *given, cli_settings *out) {
    const cli_train_data *data = &given->data;
    const plsh_train_setting files[] = {
        {.name = "fresh", .file = data->fresh, .shown = "--fresh"},
        {.name = "base", .file = data->base, .shown = "--base"},
        {.name = "adapter", .file = data->adapter, .shown = "--adapter"},
        {.name = "labels-content", .file = given->lm.partitions.labels, .shown = "--labels"},
        {.name = "decay-content", .file = decay_table(given->lm.decays.decay), .shown = "--decay"}};
    for (size_t i = 0; i < 3; i++) out->list[out->count++] = files[i];
    int code = cli_config_settings(&cli_command_train, given, CLI_FIXED, out);
    if (code == CLI_DONE && out->count + 2 > CLI_COUNT(out->list))
        code = cli_fail("the options are too long to be written down");
    for (size_t i = 3; code == CLI_DONE && i < 5; i++) out->list[out->count++] = files[i];
    return code;
}

static int open_run(work *w) {
    const cli_train_steps *s = &w->given->steps;
    const cli_train_records *records = &w->given->records;
    plsh_error error;
    int code = cli_ranks_agree(list_settings(w->given, &w->settings));
    if (code != CLI_DONE) return code;
    plsh_train_run_options options = {.folder = w->given->data.out,
                                      .schedule = w->schedule,
                                      .update = {.weight_decay = s->weight_decay,
                                                 .beta1 = s->beta1,
                                                 .beta2 = s->beta2,
                                                 .eps = s->eps,
                                                 .clip = s->clip,
                                                 .decay_matrices_only = s->decay_matrices},
                                      .checkpoint_every = records->checkpoint_every,
                                      .keep = records->keep,
                                      .patience = s->patience,
                                      .settings = w->settings.list,
                                      .setting_count = w->settings.count,
                                      .text = "--text"};
    plsh_status status = plsh_train_run_open(&w->run, w->trainer, w->corpus, &options, &error);
    if (status == PLSH_STATUS_OVERFLOW) return cli_fail("--steps: %s", error.message);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

static int resume(work *w) {
    plsh_train_resumed found;
    plsh_error error;
    plsh_status status = plsh_train_run_resume(w->run, w->given->records.from, &found, &error);
    if (found.damage.status != PLSH_STATUS_OK && found.folder[0] != '\0')
        cli_say("%s; continues from %s, the newest checkpoint that is whole", found.damage.message,
                found.folder);
    if (found.settings_differ)
        return cli_fail("%s; give the options of that run, or begin another from what it learned: "
                        "--base or --adapter %s, in another --out",
                        error.message, found.folder);
    if (status != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (found.folder[0] == '\0')
        cli_note("%s has no checkpoint: from the beginning", w->given->data.out);
    else
        cli_note("continues after step %lld", (long long)plsh_train_run_saved(w->run));
    return CLI_DONE;
}

static int save(work *w) {
    const bool before = plsh_train_run_saved(w->run) >= 0;
    int64_t log_bytes;
    plsh_error error;
    int code = cli_ranks_agree(cli_train_log_sync(&w->log, &log_bytes));
    if (code != CLI_DONE) return code;
    if (plsh_train_run_save(w->run, log_bytes, &error) == PLSH_STATUS_OK) return CLI_DONE;
    return cli_fail("%s; %s", error.message,
                    before ? "the checkpoint before is whole" : "there is no checkpoint before");
}

static int64_t steps_done(const work *w) { return plsh_train_run_state(w->run)->step; }

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Heads with the slopes learned so far: one choice per layer from now on. */
static void follow_slopes(work *w) {
    cli_model *m = &w->model;
    const int64_t heads = m->facts.heads;
    for (int64_t l = m->attention_count; l < m->facts.layers; l++) {
        memcpy(m->heads + l * heads, m->heads, (size_t)heads * sizeof *m->heads);
        m->attention[l] = m->attention[0];
        m->attention[l].head = m->heads + l * heads;
    }
    m->attention_count = m->facts.layers;
    for (int64_t i = 0; i < m->facts.layers * heads; i++)
        m->heads[i].partition.decay.a = 1.0 / plsh_model_slope(m->model, i / heads, i % heads);
}

/* Every whole window of the held-out text, scored except for its first token. */
static int evaluate(work *w) {
    const int64_t context = w->given->steps.context;
    const int64_t length = context < w->eval.count ? context : w->eval.count;
    const plsh_range mine = plsh_ranks_windows(w->model.ranks, w->eval.count / length);
    cli_scores scores = {0};
    int code = CLI_DONE;
    if (w->given->steps.learn_slopes) follow_slopes(w);
    for (int64_t k = mine.begin; code == CLI_DONE && k < mine.end; k++) {
        const cli_window one = {.ids = w->eval.values + k * length, .count = length, .from = 1};
        code = cli_score_window(&w->lm, &w->model, &one, &scores);
    }
    code = cli_mesh_scores(&w->model, code, &scores);
    if (code != CLI_DONE) return code;
    const double loss = fabs(scores.nll) / (double)scores.tokens; /* a NaN without its sign */
    cli_note("step %lld: held-out loss %.5f, perplexity %.5g", (long long)steps_done(w), loss,
             exp(loss));
    return cli_train_log_scores(&w->log, steps_done(w), &scores);
}

/* Repeating the same steps would fail in the same way: suggests what could help, and from which
 * checkpoint. */
static int give_up(const work *w, const char *why) {
    const int64_t saved = plsh_train_run_saved(w->run);
    char folder[PATH];
    if (saved < 0 || plsh_checkpoint_folder(w->given->data.out, saved, folder, sizeof folder,
                                            NULL) != PLSH_STATUS_OK)
        return cli_fail("%s; there is no checkpoint before; try a lower --lr, or --clip", why);
    return cli_fail("%s; the last checkpoint before is that of step %lld; try a lower --lr, or "
                    "--clip, in another --out, from there with %s %s",
                    why, (long long)saved, w->given->lora.rank > 0 ? "--adapter" : "--base",
                    folder);
}

static int step(work *w, bool *finished) {
    const cli_train_steps *s = &w->given->steps;
    const double start = plsh_clock_seconds();
    plsh_error error;
    plsh_train_step done;
    plsh_status status = plsh_train_run_next(w->run, &done, &error);
    const double speed =
        (double)(windows_per_step(s) * s->context) / (plsh_clock_seconds() - start);
    if (status != PLSH_STATUS_OK && status != PLSH_STATUS_NOT_FINITE) return cli_fail_error(&error);
    *finished = done.kind == PLSH_TRAIN_FINISHED;
    int code = *finished ? CLI_DONE : cli_train_log_step(&w->log, &done, speed);
    if (done.kind == PLSH_TRAIN_SKIPPED && !plsh_trainer_lost(w->trainer))
        cli_note("step %lld is skipped: %s", (long long)done.number, done.reason);
    if (code == CLI_DONE && status != PLSH_STATUS_OK) return give_up(w, error.message);
    if (done.kind != PLSH_TRAIN_DONE) return code;
    w->last_loss = done.loss;
    cli_progress_detail("step %lld, loss %.4f, %.4g tokens/s", (long long)done.number, done.loss,
                        speed);
    return code;
}

static bool is_scored(const work *w) {
    const int64_t every = w->given->records.eval_every, now = steps_done(w);
    return w->eval.values != NULL && every > 0 && now % every == 0 && now < w->schedule.steps;
}

static int stop(work *w) {
    char folder[PATH] = "";
    int code = save(w);
    if (code != CLI_DONE) return code;
    plsh_checkpoint_folder(w->given->data.out, steps_done(w), folder, sizeof folder, NULL);
    return cli_fail("stopped by a signal after step %lld of %lld; --resume continues; the model so "
                    "far is in %s",
                    (long long)steps_done(w), (long long)w->schedule.steps, folder);
}

static void plot(work *w) {
    const char *asked = w->given->records.plot;
    asked_to_plot = 0;
    if (cli_rank() == 0)
        cli_train_log_plot(&w->log, asked != NULL ? asked : w->plot_path, asked == NULL);
}

/* Has any rank got a signal to stop? All ranks get the same answer. A signal that arrives after the
 * sum counts in the next step, so that no rank stops alone. */
static int share_signals(const work *w, bool *stops) {
    const plsh_ranks *ranks = w->model.ranks;
    plsh_error error;
    double asked = (double)asked_to_stop;
    if (ranks != NULL && ranks->sum(ranks->context, &asked, 1, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    *stops = asked > 0.0;
    return CLI_DONE;
}

static int loop(work *w) {
    const int64_t first = steps_done(w);
    int code = CLI_DONE;
    bool finished = false, stops = false;
    cli_progress_begin((double)(w->schedule.steps - first), "steps");
    while (code == CLI_DONE && !finished) {
        code = step(w, &finished);
        cli_progress((double)(steps_done(w) - first));
        if (code == CLI_DONE && is_scored(w)) code = evaluate(w);
        if (code == CLI_DONE && plsh_train_run_is_due(w->run)) code = save(w);
        if (code == CLI_DONE && asked_to_plot) plot(w);
        code = cli_ranks_agree(code);
        if (code == CLI_DONE) code = share_signals(w, &stops);
        /* after the last step the run ends in any case, with a last evaluation */
        if (code == CLI_DONE && stops && steps_done(w) < w->schedule.steps) code = stop(w);
    }
    cli_progress_end();
    return code;
}

/* ---- The end --------------------------------------------------------------------------------- */

static int finish(work *w, bool finished_before, double seconds) {
    const char *out = w->given->data.out;
    const plsh_checkpoint *state = plsh_train_run_state(w->run);
    plsh_error error;
    int code = CLI_DONE;
    if (w->eval.values != NULL && !finished_before) code = evaluate(w);
    if (code == CLI_DONE) code = save(w);
    if (code == CLI_DONE && plsh_trainer_save(w->trainer, out, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE && cli_rank() == 0) code = cli_model_remember(&w->model, out);
    if (code == CLI_DONE && cli_rank() == 0) code = cli_train_folder_finish(&w->folder);
    if (code == CLI_DONE) plot(w);
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    const cli_mesh_cost cost = cli_mesh_costs(&w->model);
    if (cost.over_ranks) code = cli_train_log_costs(&w->log, state->step, &cost);
    if (code != CLI_DONE || w->given->lm.common.json) return code;
    printf("%lld step%s, %lld of them skipped", (long long)state->step, state->step == 1 ? "" : "s",
           (long long)state->skipped);
    if (!finished_before) printf(", last loss %.5f, in %.4g s", w->last_loss, seconds);
    cli_mesh_costs_print(&cost, "; ");
    printf("; %s in %s\n", w->given->lora.rank > 0 ? "the adapter is" : "the model is", out);
    return CLI_DONE;
}

static int train(work *w) {
    const settings *given = w->given;
    const char *log = given->records.log;
    const double start = plsh_clock_seconds();
    int code = open_run(w);
    if (code == CLI_DONE) code = cli_train_path(w->log_path, given->data.out, "log.jsonl");
    if (code == CLI_DONE) code = cli_train_path(w->plot_path, given->data.out, "log.svg");
    if (code == CLI_DONE && log == NULL && cli_rank() == 0)
        code = cli_train_log_check_own(w->log_path);
    if (code == CLI_DONE && given->records.plot != NULL && cli_rank() == 0)
        code = cli_train_log_plot_check(given->records.plot);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE && given->records.resume) code = resume(w);
    if (code == CLI_DONE && cli_rank() == 0)
        code = cli_train_log_open(
            &w->log, log != NULL ? log : w->log_path,
            plsh_train_run_saved(w->run) >= 0 ? plsh_train_run_state(w->run)->log_bytes : -1,
            steps_done(w), given->lm.common.json);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = cli_mesh_same_weights(&w->model);
    if (code != CLI_DONE) return code;
    const bool finished_before = steps_done(w) >= w->schedule.steps;
    w->folder.begun = true;
    cli_model_announce(&w->model);
    catch_signals();
    code = loop(w);
    return code == CLI_DONE ? finish(w, finished_before, plsh_clock_seconds() - start) : code;
}

static int run_train(const void *given) {
    work w = {.given = given, .folder.lock = -1, .last_loss = NAN};
    int code = cli_train_check(given);
    if (code == CLI_DONE) code = open_ranks(&w);
    if (code == CLI_DONE) code = cli_ranks_agree(check_files(given));
    if (code == CLI_DONE)
        code =
            cli_ranks_agree(cli_rank() == 0 ? cli_train_folder_open(&w.folder, given) : CLI_DONE);
    if (code == CLI_DONE) code = open_model(&w);
    if (code == CLI_DONE) code = cli_ranks_agree(open_data(&w));
    if (code == CLI_DONE) code = make_trainer(&w);
    if (code == CLI_DONE) code = plan_steps(&w);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = same_data(&w);
    if (code == CLI_DONE) code = train(&w);
    /* A refused --resume removes the tokens that it made: they may be those of another text, and
     * `keep` would then refuse the right one. */
    if (w.made_tokens && w.folder.goes_on && !w.folder.begun)
        unlink(w.given->data.tokens != NULL ? w.given->data.tokens : w.tokens);
    cli_train_log_close(&w.log);
    plsh_train_run_close(w.run);
    free(w.eval.values);
    plsh_corpus_close(w.corpus);
    cli_model_close(&w.model);
    plsh_trainer_destroy(w.trainer);
    cli_train_folder_close(&w.folder);
    return code;
}

static const cli_group groups[] = {
    CLI_GROUP("Model and data", cli_train_data_table, settings, data),
    CLI_GROUP("Steps", cli_train_steps_table, settings, steps),
    CLI_GROUP("Adapters", cli_train_lora_table, settings, lora),
    CLI_GROUP("Records", cli_train_records_table, settings, records),
    CLI_ATTENTION_GROUPS(settings)};

const cli_command cli_command_train = {
    .name = "train",
    .summary = "trains a language model from scratch, or adapters (LoRA) on top of one",
    .text =
        "Trains on a text in windows of --context tokens with AdamW, in float32. The folder --out "
        "holds the checkpoints, the log, and at the end a model that plsh and transformers load, "
        "or an adapter that PEFT loads. The same command with --resume continues after any end, "
        "kill -9 included, as if the run had not stopped. Ctrl-C writes a checkpoint before it "
        "stops. Tokens after the last whole window are left out. Results are the same for any "
        "number of threads. --json prints a line of JSON per step, as in the log. Under mpirun, "
        "plsh-mpi shares the tokens of every batch among its ranks; any number of them can resume.",
    .example = "plsh train --fresh model/config.json --tokenizer model --text text.txt "
               "--context 128 --steps 4 --out scratch --attention plsh --samples 10 --sigma 16\n"
               "plsh train --base model --text text.txt --context 128 --steps 4 --lora-rank 4 "
               "--out adapter",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_train,
    .configure = cli_config_read,
    .over_ranks = true,
};
