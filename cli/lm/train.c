/* cli: plsh train: from scratch, or adapters on top of what there is. */
#include "cli/commands.h"
#include "cli/lm/config.h"
#include "cli/lm/train_log.h"
#include "cli/lm/train_options.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef cli_train_settings settings;

enum { PATH = PLSH_CHECKPOINT_PATH };

typedef struct work {
    const settings *given;
    cli_lm lm; /* with the model that is trained */
    char tokens[PATH], log_path[PATH], plot_path[PATH];
    cli_model model;
    plsh_trainer *trainer;
    plsh_corpus *corpus;
    cli_ids eval;
    int32_t *ids; /* [batch][context] */
    plsh_schedule schedule;
    plsh_checkpoint state;
    int64_t saved;    /* the step of the last checkpoint, -1: none */
    int64_t in_a_row; /* steps that were not finite */
    int lock;         /* the open file that keeps other runs out; -1: none yet */
    double last_loss;
    cli_train_log log;
} work;

/* ---- Signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop, asked_to_plot, asked_at;

/* One that comes more than a second after the first ends the program as ever; before that it is the
 * same one, sent to the process and to its group. */
static void ask_to_stop(int number) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!asked_to_stop) {
        asked_at = (sig_atomic_t)now.tv_sec;
        asked_to_stop = number;
    } else if ((sig_atomic_t)now.tv_sec - asked_at > 1) {
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

/* ---- The folder of the run ------------------------------------------------------------------- */

static int make_path(char out[PATH], const char *folder, const char *name) {
    int length = snprintf(out, PATH, "%s/%s", folder, name);
    return length > 0 && length < PATH ? CLI_DONE : cli_fail("%.200s..: a long name", folder);
}

static int copy_file(const char *from, const char *folder, const char *name) {
    char to[PATH];
    char *bytes;
    size_t length;
    plsh_error error;
    int code = make_path(to, folder, name);
    if (code == CLI_DONE) code = cli_text_read(from, &bytes, &length);
    if (code != CLI_DONE) return code;
    if (plsh_file_save(to, bytes, length, &error) != PLSH_STATUS_OK) code = cli_fail_error(&error);
    free(bytes);
    return code;
}

/* tokenizer.json, and what names its special tokens, go with new weights. */
static int copy_tokenizer(const char *path, const char *out) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    struct stat about;
    char from[PATH];
    if (stat(path, &about) != 0) return cli_fail("%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) {
        size_t length = strlen(path);
        if (length > 5 && strcmp(path + length - 5, ".gguf") == 0) {
            cli_note("the tokenizer of %s is not copied to %s: it is no tokenizer.json", path, out);
            return CLI_DONE;
        }
        return copy_file(path, out, names[0]);
    }
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < CLI_COUNT(names); i++) {
        code = make_path(from, path, names[i]);
        if (code == CLI_DONE && access(from, R_OK) == 0) code = copy_file(from, out, names[i]);
    }
    return code;
}

static int make_fresh(const settings *given) {
    const cli_train_data *data = &given->data;
    char weights[PATH];
    plsh_error error;
    int code = make_path(weights, data->out, "model.safetensors");
    if (code != CLI_DONE) return code;
    bool there = given->records.resume && access(weights, R_OK) == 0;
    if (!there && plsh_train_initialise(data->fresh, given->lm.common.seed, data->out, &error) !=
                      PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return data->tokenizer != NULL ? copy_tokenizer(data->tokenizer, data->out) : CLI_DONE;
}

/* One run at a time in a folder: a lock that ends with the process, whatever ends it. */
static int lock_folder(work *w) {
    const char *out = w->given->data.out;
    char path[PATH];
    int code = make_path(path, out, ".lock");
    if (code != CLI_DONE) return code;
    w->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->lock < 0) return cli_fail("%s: %s", path, strerror(errno));
    if (flock(w->lock, LOCK_EX | LOCK_NB) == 0) return CLI_DONE;
    if (errno != EWOULDBLOCK) return cli_fail("%s: %s", path, strerror(errno));
    return cli_fail(
        "%s: another run is at work in this folder; wait for it, or choose another --out", out);
}

/* The first rank's business. */
static int make_folder(work *w) {
    const settings *given = w->given;
    const char *out = given->data.out;
    if (mkdir(out, 0777) != 0 && errno != EEXIST) return cli_fail("%s: %s", out, strerror(errno));
    int code = lock_folder(w);
    if (code != CLI_DONE) return code;
    if (!given->records.resume && plsh_checkpoint_last(out, -1) >= 0)
        return cli_fail("%s has the checkpoints of another run: --resume goes on with it, or "
                        "choose another --out",
                        out);
    return given->data.fresh != NULL ? make_fresh(given) : CLI_DONE;
}

/* The ranks, which are told the same; before anything is written. */
static int open_ranks(work *w) {
    const cli_train_steps *s = &w->given->steps;
    int code = cli_spread_open(&w->given->lm, s->mesh, &w->model);
    const plsh_ranks *ranks = w->model.ranks;
    if (code == CLI_DONE && ranks != NULL && s->batch < ranks->groups)
        code = cli_usage("--mesh %s: %lld groups share a --batch of %lld windows; give it one for "
                         "each, at least",
                         s->mesh, (long long)ranks->groups, (long long)s->batch);
    if (code == CLI_DONE) code = cli_spread_same_settings(&w->model, &cli_command_train, w->given);
    return cli_ranks_agree(code);
}

static int prepare_folder(work *w) {
    const settings *given = w->given;
    const cli_train_data *data = &given->data;
    if ((data->fresh == NULL) == (data->base == NULL))
        return cli_usage("give new weights with --fresh CONFIG.json, or a model with --base");
    if (data->fresh != NULL && (given->lora.rank > 0 || data->adapter != NULL))
        return cli_usage("adapters go on top of a model that is given with --base");
    if (data->adapter != NULL && given->lora.rank == 0)
        return cli_usage("--adapter: say its --lora-rank too");
    if (given->records.from != NULL && !given->records.resume)
        return cli_usage("--from goes with --resume");
    int code = open_ranks(w);
    if (code != CLI_DONE) return code;
    return cli_ranks_agree(cli_rank() == 0 ? make_folder(w) : CLI_DONE);
}

/* ---- Model and data -------------------------------------------------------------------------- */

static plsh_train_options trainer_options(const work *w) {
    const settings *given = w->given;
    const cli_train_lora *lora = &given->lora;
    return (plsh_train_options){.context = given->steps.context,
                                .batch = given->steps.batch,
                                .attention = w->model.attention,
                                .attention_count = w->model.attention_count,
                                .keep_draws = given->steps.draws == 1,
                                .recompute = given->steps.recompute,
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
                                .adapter = given->data.adapter,
                                .ranks = w->model.ranks,
                                .passes = given->steps.accumulate};
}

/* The trainer has the weights; what was opened to know the layers is closed again. */
static int open_model(work *w) {
    const cli_train_data *data = &w->given->data;
    const plsh_ranks *ranks = w->model.ranks;
    plsh_error error;
    w->lm = w->given->lm;
    w->lm.model.model = data->base != NULL ? data->base : data->out;
    w->lm.model.tokenizer = data->tokenizer;
    w->lm.model.chunk = 512;
    int code = cli_ranks_agree(cli_model_open(&w->lm, &w->model));
    if (code != CLI_DONE) return code;
    w->model.ranks = ranks;
    plsh_train_options options = trainer_options(w);
    if (plsh_trainer_create(&w->trainer, w->lm.model.model, &options, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    plsh_model_close(w->model.owned);
    w->model.owned = NULL;
    w->model.model = plsh_trainer_model(w->trainer);
    return CLI_DONE;
}

/* The first rank makes the file of tokens, which all then map. */
static int open_corpus(work *w) {
    const cli_train_data *data = &w->given->data;
    plsh_error error;
    int code = make_path(w->tokens, data->out, "train.tokens");
    plsh_corpus_options options = {.text = data->text,
                                   .tokenizer = data->tokenizer != NULL ? data->tokenizer
                                                                        : w->lm.model.model,
                                   .tokens = data->tokens != NULL ? data->tokens : w->tokens,
                                   .shuffle_rows = data->order == 1,
                                   .seed = data->order_seed};
    for (int turn = 0; code == CLI_DONE && turn < 2; turn++) {
        if (turn == (cli_rank() > 0) &&
            plsh_corpus_open(&w->corpus, &options, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        code = cli_ranks_agree(code);
    }
    return code;
}

static int open_data(work *w) {
    const settings *given = w->given;
    const cli_train_data *data = &given->data;
    const int64_t vocabulary = w->model.facts.vocabulary;
    int code = open_corpus(w);
    if (code != CLI_DONE) return code;
    if (plsh_corpus_largest(w->corpus) >= vocabulary)
        return cli_fail("%s has the token %d; this model has %lld", data->text,
                        (int)plsh_corpus_largest(w->corpus), (long long)vocabulary);
    if (given->records.eval_text != NULL)
        code = cli_ids_read(&w->lm, &w->model, NULL, given->records.eval_text, false, &w->eval);
    if (given->records.eval_limit > 0 && w->eval.count > given->records.eval_limit)
        w->eval.count = given->records.eval_limit;
    if (code == CLI_DONE && w->eval.values != NULL && w->eval.count < 2)
        code = cli_fail("%s: at least 2 tokens", given->records.eval_text);
    return code;
}

/* Does every rank learn, and hold out, what the first does? */
static int same_data(const work *w) {
    const cli_model *m = &w->model;
    int code = cli_spread_same_tokens(m, "tokens of --text", plsh_corpus_ids(w->corpus),
                                      plsh_corpus_count(w->corpus));
    if (code != CLI_DONE) return code;
    return cli_spread_same_tokens(m, "tokens of --eval-text", w->eval.values, w->eval.count);
}

static int64_t windows_per_step(const cli_train_steps *s) { return s->batch * s->accumulate; }

/* How many steps there are, and what is left out of them. */
static int plan_steps(work *w) {
    const cli_train_steps *s = &w->given->steps;
    const int64_t tokens = plsh_corpus_count(w->corpus), windows = tokens / s->context;
    if (windows < 1)
        return cli_fail("%s: %lld tokens fill no window of %lld", w->given->data.text,
                        (long long)tokens, (long long)s->context);
    if (tokens % s->context > 0)
        cli_note("the last %lld of %lld tokens fill no window and are left out",
                 (long long)(tokens % s->context), (long long)tokens);
    const double all = floor(s->epochs * (double)windows + 1e-9);
    int64_t steps = s->steps > 0 ? s->steps : (int64_t)(all / (double)windows_per_step(s));
    if (steps < 1)
        return cli_fail("%lld windows are too few for one step of %lld", (long long)windows,
                        (long long)windows_per_step(s));
    int64_t left = s->steps > 0 ? 0 : (int64_t)all - steps * windows_per_step(s);
    if (left > 0) cli_note("the last %lld windows fill no step and are left out", (long long)left);
    const double warmup = s->warmup < 1.0 ? ceil(s->warmup * (double)steps) : floor(s->warmup);
    w->schedule = (plsh_schedule){.shape = (plsh_schedule_shape)s->schedule,
                                  .peak = s->lr,
                                  .warmup = (int64_t)warmup,
                                  .steps = steps};
    w->ids = calloc((size_t)(s->batch * s->context), sizeof *w->ids);
    return w->ids != NULL ? CLI_DONE : cli_fail("out of memory for a batch");
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* What may differ between the parts of one run. */
static const char *const not_settings[] = {
    "out", "config",  "tokens",    "resume", "from",  "checkpoint-every", "keep",
    "log", "plot",    "eval-text", "json",   "quiet", "eval-every",       "eval-limit",
    "isa", "threads", "patience",  "mesh",   NULL};

/* The first setting of two lists that differs. */
static int refuse_settings(const char *folder, const char *was, const char *is) {
    size_t at = 0;
    for (size_t i = 0; was[i] != '\0' && was[i] == is[i]; i++)
        if (was[i] == ' ') at = i + 1;
    return cli_fail("%s was made with %.*s, which is now %.*s", folder, (int)strcspn(was + at, " "),
                    was + at, (int)strcspn(is + at, " "), is + at);
}

/* A damaged one is refused; the one before it is offered, where it is whole. */
static int refuse_damaged(const work *w, int64_t step, const plsh_error *error) {
    const char *out = w->given->data.out;
    char folder[PATH];
    plsh_checkpoint other;
    int64_t before = step >= 0 ? plsh_checkpoint_last(out, step) : -1;
    if (w->given->records.from == NULL && before >= 0 &&
        plsh_checkpoint_folder(out, before, folder, sizeof folder, NULL) == PLSH_STATUS_OK &&
        plsh_checkpoint_check(folder, &other, NULL) == PLSH_STATUS_OK)
        return cli_fail("%s; the one before it is whole: --resume --from %s", error->message,
                        folder);
    return cli_fail_error(error);
}

static int resume(work *w) {
    const settings *given = w->given;
    char folder[PATH], settings_now[sizeof w->state.settings];
    plsh_error error;
    int64_t step = plsh_checkpoint_last(given->data.out, -1);
    if (given->records.from == NULL) {
        int code = cli_spread_checkpoint(&w->model, given->data.out, &step);
        if (code != CLI_DONE) return code;
    }
    snprintf(settings_now, sizeof settings_now, "%s", w->state.settings);
    if (given->records.from != NULL) {
        snprintf(folder, sizeof folder, "%s", given->records.from);
    } else if (step < 0) {
        cli_note("%s has no checkpoint: from the beginning", given->data.out);
        return CLI_DONE;
    } else if (plsh_checkpoint_folder(given->data.out, step, folder, sizeof folder, &error) !=
               PLSH_STATUS_OK) {
        return cli_fail_error(&error);
    }
    if (plsh_checkpoint_load(w->trainer, folder, &w->state, &error) != PLSH_STATUS_OK)
        return refuse_damaged(w, step, &error);
    if (strcmp(settings_now, w->state.settings) != 0)
        return refuse_settings(folder, w->state.settings, settings_now);
    w->saved = w->state.step;
    cli_note("goes on after step %lld", (long long)w->state.step);
    return CLI_DONE;
}

static int save(work *w) {
    const char *out = w->given->data.out;
    plsh_error error;
    if (w->saved == w->state.step) return CLI_DONE;
    w->state.log_bytes = cli_train_log_length(&w->log);
    plsh_status status = plsh_checkpoint_save(w->trainer, &w->state, out, &error);
    if (status == PLSH_STATUS_OK && cli_rank() == 0)
        status = plsh_checkpoint_prune(out, w->given->records.keep, &error);
    if (status != PLSH_STATUS_OK)
        return cli_fail("%s; the checkpoint before is whole", error.message);
    w->saved = w->state.step;
    return CLI_DONE;
}

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
        m->heads[i].partition.decay =
            plsh_decay_alibi(1.0 / plsh_model_slope(m->model, i / heads, i % heads));
}

/* Every whole window of the held-out text, scored but for its first token. */
static int evaluate(work *w) {
    const int64_t context = w->given->steps.context;
    const int64_t length = context < w->eval.count ? context : w->eval.count;
    const plsh_block mine = plsh_ranks_windows(w->model.ranks, w->eval.count / length);
    cli_scores scores = {0};
    int code = CLI_DONE;
    if (w->given->steps.learn_slopes) follow_slopes(w);
    for (int64_t k = mine.begin; code == CLI_DONE && k < mine.end; k++)
        code = cli_score_window(&w->lm, &w->model, w->eval.values + k * length, length, 1, &scores,
                                NULL, NULL, NULL);
    code = cli_spread_scores(&w->model, code, &scores);
    if (code != CLI_DONE) return code;
    cli_note("step %lld: held-out loss %.5f, perplexity %.5g", (long long)w->state.step,
             scores.nll / (double)scores.tokens, exp(scores.nll / (double)scores.tokens));
    return cli_train_log_scores(&w->log, w->state.step, &scores);
}

/* Gradients of all batches of a step. */
static plsh_status accumulate(work *w, double *loss, plsh_error *error) {
    const cli_train_steps *s = &w->given->steps;
    plsh_status status = PLSH_STATUS_OK;
    *loss = 0.0;
    for (int64_t a = 0; status == PLSH_STATUS_OK && a < s->accumulate; a++) {
        double one;
        plsh_corpus_windows(w->corpus, s->context, w->state.window + a * s->batch, s->batch,
                            w->ids);
        status = plsh_trainer_accumulate(w->trainer, w->ids, s->context, s->batch, &one, error);
        *loss += one / (double)s->accumulate;
    }
    return status;
}

static int skip(work *w, const plsh_error *error) {
    int code = cli_train_log_skip(&w->log, w->state.step, error->message);
    w->state.skipped++;
    w->in_a_row++;
    cli_note("step %lld is skipped: %s", (long long)w->state.step, error->message);
    if (code != CLI_DONE || w->in_a_row < w->given->steps.patience) return code;
    if (w->saved < 0)
        return cli_fail("%lld steps in a row were not finite; there is no checkpoint before them",
                        (long long)w->in_a_row);
    return cli_fail("%lld steps in a row were not finite; the last checkpoint before them is that "
                    "of step %lld",
                    (long long)w->in_a_row, (long long)w->saved);
}

static int step(work *w) {
    const cli_train_steps *s = &w->given->steps;
    const double start = cli_seconds();
    const int64_t windows = windows_per_step(s);
    plsh_error error;
    cli_train_step done = {.rate = plsh_schedule_rate(&w->schedule, w->state.step)};
    plsh_update update = {.learning_rate = done.rate,
                          .weight_decay = s->weight_decay,
                          .beta1 = s->beta1,
                          .beta2 = s->beta2,
                          .eps = s->eps,
                          .clip = s->clip,
                          .decay_matrices_only = s->decay_matrices,
                          .accumulated = s->accumulate};
    plsh_status status = accumulate(w, &done.loss, &error);
    if (status == PLSH_STATUS_OK)
        status = plsh_trainer_update(w->trainer, &update, &done.norm, &error);
    if (status != PLSH_STATUS_OK && status != PLSH_STATUS_NOT_FINITE) return cli_fail_error(&error);
    w->state.step++;
    w->state.window += windows;
    if (status == PLSH_STATUS_NOT_FINITE) return skip(w, &error);
    w->in_a_row = 0;
    w->last_loss = done.loss;
    done.step = w->state.step;
    done.tokens = w->state.window * s->context;
    done.speed = (double)(windows * s->context) / (cli_seconds() - start);
    cli_progress_detail("step %lld, loss %.4f, %.4g tokens/s", (long long)done.step, done.loss,
                        done.speed);
    return cli_train_log_step(&w->log, &done);
}

static bool is_due(const work *w, int64_t every) {
    return every > 0 && w->state.step % every == 0 && w->state.step < w->schedule.steps;
}

static int stop(work *w) {
    int code = save(w);
    if (code != CLI_DONE) return code;
    return cli_fail("stopped by a signal after step %lld of %lld; --resume goes on",
                    (long long)w->state.step, (long long)w->schedule.steps);
}

static int plot(work *w) {
    const char *asked = w->given->records.plot;
    asked_to_plot = 0;
    if (cli_rank() > 0) return CLI_DONE;
    return cli_train_log_plot(&w->log, asked != NULL ? asked : w->plot_path, asked != NULL);
}

/* What one rank was asked all were. */
static int share_signals(const work *w) {
    const plsh_ranks *ranks = w->model.ranks;
    plsh_error error;
    double asked = (double)asked_to_stop;
    if (ranks == NULL) return CLI_DONE;
    if (ranks->sum(ranks->context, &asked, 1, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    if (asked > 0.0 && !asked_to_stop) asked_to_stop = SIGTERM;
    return CLI_DONE;
}

static int loop(work *w) {
    const cli_train_records *records = &w->given->records;
    const int64_t first = w->state.step;
    int code = CLI_DONE;
    cli_progress_begin((double)(w->schedule.steps - first), "steps");
    while (code == CLI_DONE && w->state.step < w->schedule.steps) {
        code = step(w);
        cli_progress((double)(w->state.step - first));
        if (code == CLI_DONE && w->eval.values != NULL && is_due(w, records->eval_every))
            code = evaluate(w);
        if (code == CLI_DONE && w->in_a_row == 0 && is_due(w, records->checkpoint_every))
            code = save(w);
        if (code == CLI_DONE && asked_to_plot) code = plot(w);
        code = cli_ranks_agree(code);
        if (code == CLI_DONE) code = share_signals(w);
        if (code == CLI_DONE && asked_to_stop) code = stop(w);
    }
    cli_progress_end();
    return code;
}

/* ---- The end --------------------------------------------------------------------------------- */

static int finish(work *w, bool finished_before, double seconds) {
    const char *out = w->given->data.out;
    plsh_error error;
    int code = CLI_DONE;
    if (w->eval.values != NULL && !finished_before) code = evaluate(w);
    if (code == CLI_DONE) code = save(w);
    if (code == CLI_DONE && plsh_trainer_save(w->trainer, out, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE) code = plot(w);
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    const cli_spread_cost cost = cli_spread_costs(&w->model);
    if (cost.over_ranks) code = cli_train_log_costs(&w->log, w->state.step, &cost);
    if (code != CLI_DONE || w->given->lm.common.json) return code;
    printf("%lld steps, %lld of them skipped", (long long)w->state.step,
           (long long)w->state.skipped);
    if (!finished_before) printf(", last loss %.5f, in %.4g s", w->last_loss, seconds);
    cli_spread_costs_print(&cost, "; ");
    printf("; %s in %s\n", w->given->lora.rank > 0 ? "the adapter is" : "the model is", out);
    return CLI_DONE;
}

static int train(work *w) {
    const settings *given = w->given;
    const char *log = given->records.log;
    const double start = cli_seconds();
    int code = cli_config_print(&cli_command_train, given, not_settings, w->state.settings,
                                sizeof w->state.settings);
    if (code == CLI_DONE) code = make_path(w->log_path, given->data.out, "log.jsonl");
    if (code == CLI_DONE) code = make_path(w->plot_path, given->data.out, "log.svg");
    if (code == CLI_DONE && given->records.resume) code = resume(w);
    if (code == CLI_DONE && cli_rank() == 0)
        code = cli_train_log_open(&w->log, log != NULL ? log : w->log_path,
                                  w->saved >= 0 ? w->state.log_bytes : -1, given->lm.common.json);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = cli_spread_same_weights(&w->model);
    if (code != CLI_DONE) return code;
    const bool finished_before = w->state.step >= w->schedule.steps;
    catch_signals();
    code = loop(w);
    return code == CLI_DONE ? finish(w, finished_before, cli_seconds() - start) : code;
}

static int run(const void *given) {
    work w = {.given = given, .saved = -1, .lock = -1, .last_loss = NAN};
    int code = prepare_folder(&w);
    if (code == CLI_DONE) code = open_model(&w);
    if (code == CLI_DONE) code = open_data(&w);
    if (code == CLI_DONE) code = plan_steps(&w);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = same_data(&w);
    if (code == CLI_DONE) code = train(&w);
    cli_train_log_close(&w.log);
    free(w.ids);
    free(w.eval.values);
    plsh_corpus_close(w.corpus);
    cli_model_close(&w.model);
    plsh_trainer_destroy(w.trainer);
    if (w.lock >= 0) close(w.lock);
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
    .text = "Learns a text in windows of --context tokens with AdamW, in float32. The folder --out "
            "holds the checkpoints, the log, and at the end a model that plsh and transformers "
            "load, or an adapter that PEFT loads. The same command with --resume goes on after "
            "anything, kill -9 too, as if it had not stopped; Ctrl-C writes a checkpoint first. "
            "The last tokens that fill no window are left out. Results are the same for any number "
            "of threads. Under mpirun, plsh-mpi shares the tokens of every batch among its ranks; "
            "any number of them can resume.",
    .example = "plsh train --fresh model/config.json --tokenizer model --text text.txt "
               "--context 128 --steps 4 --out scratch --attention plsh --samples 10 --sigma 16\n"
               "plsh train --base model --text text.txt --context 128 --steps 4 --lora-rank 4 "
               "--out adapter",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run,
    .configure = cli_config_read,
    .over_ranks = true,
};
