/* cli: plsh train: from scratch, or adapters on top of what there is. */
#include "cli/commands.h"
#include "cli/lm/config.h"
#include "cli/lm/describe.h"
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
#include <time.h>
#include <unistd.h>

typedef cli_train_settings settings;

enum { PATH = CLI_TRAIN_PATH };

typedef struct work {
    const settings *given;
    cli_lm lm; /* with the model that is trained */
    char weights[PATH], tokens[PATH], log_path[PATH], plot_path[PATH];
    cli_model model;
    plsh_trainer *trainer;
    plsh_corpus *corpus;
    cli_ids eval;
    int32_t *ids; /* [batch][context] */
    plsh_schedule schedule;
    plsh_checkpoint state;
    int64_t saved;    /* the step of the last checkpoint, -1: none */
    bool made_tokens; /* there were none before */
    cli_train_folder folder;
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

/* ---- Before the work ------------------------------------------------------------------------- */

/* Is it there? Looked at before new weights are made, which may take long. */
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
        return cli_fail("--log: %s is there; it is not overwritten: name another file, or --resume "
                        "the run that wrote it",
                        log);
    return CLI_DONE;
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

/* The ranks, which are told the same; before anything is written. */
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

/* The rank and the scale that are given are those of the adapter that it goes on with. */
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

/* To know its layers and its tokenizer. */
static int open_model(work *w) {
    const cli_train_data *data = &w->given->data;
    const plsh_ranks *ranks = w->model.ranks;
    w->lm = w->given->lm;
    w->lm.model.model = data->base != NULL ? data->base : w->weights;
    w->lm.model.tokenizer = data->tokenizer;
    w->lm.model.chunk = 512;
    w->lm.model.whole = true;
    int code = cli_train_folder_weights(w->weights, data->out);
    if (code == CLI_DONE) code = check_adapter(w->given);
    if (code == CLI_DONE) code = cli_model_open(&w->lm, &w->model);
    if (code == CLI_DONE) code = cli_model_fits(&w->lm, &w->model, w->given->steps.context);
    w->model.ranks = ranks;
    return cli_ranks_agree(code);
}

/* The trainer has the weights; what was opened to know the layers is closed again. */
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

/* The tokenizer of the texts: the one that was given, or the model's; NULL after a message. */
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

/* The held-out text, and what of it is not scored as one would think. */
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

/* Before the trainer, whose buffers for windows that no text fills would be large and in vain. */
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

/* Does every rank learn, and hold out, what the first does? */
static int same_data(const work *w) {
    const cli_model *m = &w->model;
    int code = cli_mesh_same_tokens(m, "tokens of --text", plsh_corpus_ids(w->corpus),
                                    plsh_corpus_count(w->corpus));
    if (code != CLI_DONE) return code;
    return cli_mesh_same_tokens(m, "tokens of --eval-text", w->eval.values, w->eval.count);
}

static int64_t windows_per_step(const cli_train_steps *s) { return s->batch * s->accumulate; }

/* How many steps there are, and what is left out of them. */
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
    int64_t tokens_seen;
    if (__builtin_mul_overflow(steps, windows_per_step(s), &tokens_seen) ||
        __builtin_mul_overflow(tokens_seen, s->context, &tokens_seen))
        return cli_fail("--steps: %lld steps of %lld windows of %lld tokens are more than 2^63 "
                        "tokens",
                        (long long)steps, (long long)windows_per_step(s), (long long)s->context);
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
    w->ids = calloc((size_t)(s->batch * s->context), sizeof *w->ids);
    return w->ids != NULL ? CLI_DONE : cli_fail("out of memory for a batch");
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* What may differ between the parts of one run; of the first five what is in them counts, not how
 * they are called. */
static const char *const not_settings[] = {
    "fresh",   "base",     "adapter",    "tokenizer", "text",      "out",  "config",
    "tokens",  "resume",   "from",       "log",       "plot",      "json", "checkpoint-every",
    "keep",    "quiet",    "eval-every", "isa",       "eval-text", "mesh", "eval-limit",
    "threads", "patience", "timeout",    NULL};

/* Checksums among the settings, and whose content they are of. */
static const struct {
    const char *name, *option;
} contents[] = {{"text", "text"},       {"fresh", "fresh"},           {"base", "base"},
                {"adapter", "adapter"}, {"labels-content", "labels"}, {"decay-content", "decay"}};

/* The file of "table:FILE"; NULL: the decay is no table. */
static const char *decay_table(const char *decay) {
    static const char begin[] = "table:";
    return decay != NULL && strncmp(decay, begin, sizeof begin - 1) == 0 ? decay + sizeof begin - 1
                                                                         : NULL;
}

/* " name=checksum" of a file behind what was printed; nothing where path is NULL. */
static int print_content(const char *name, const char *path, char *out, size_t size) {
    const size_t used = strlen(out);
    uint64_t checksum;
    plsh_error error;
    if (path == NULL) return CLI_DONE;
    if (plsh_checkpoint_fingerprint(path, &checksum, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    int length =
        snprintf(out + used, size - used, " %s=%016llx", name, (unsigned long long)checksum);
    return length > 0 && (size_t)length < size - used
               ? CLI_DONE
               : cli_fail("the options are too long to be written down");
}

/* The settings of this run: checksums of what it is made from, the options, and checksums of files
 * that these name. */
static int print_settings(const work *w, char *out, size_t size) {
    const cli_train_data *data = &w->given->data;
    const cli_lm *lm = &w->given->lm;
    snprintf(out, size, "text=%016llx", (unsigned long long)plsh_corpus_checksum(w->corpus));
    int code = print_content("fresh", data->fresh, out, size);
    if (code == CLI_DONE) code = print_content("base", data->base, out, size);
    if (code == CLI_DONE) code = print_content("adapter", data->adapter, out, size);
    if (code != CLI_DONE) return code;
    const size_t used = strlen(out);
    out[used] = ' ';
    code = cli_config_print(&cli_command_train, w->given, not_settings, out + used + 1,
                            size - used - 1);
    if (code == CLI_DONE) code = print_content("labels-content", lm->partitions.labels, out, size);
    if (code != CLI_DONE) return code;
    return print_content("decay-content", decay_table(lm->decays.decay), out, size);
}

/* The first setting of two lists that differs. */
static int refuse_settings(const char *folder, const char *was, const char *is) {
    size_t at = 0;
    for (size_t i = 0; was[i] != '\0' && was[i] == is[i]; i++)
        if (was[i] == ' ') at = i + 1;
    const size_t name = strcspn(was + at, "=");
    for (size_t i = 0; i < CLI_COUNT(contents); i++)
        if (strlen(contents[i].name) == name && strncmp(contents[i].name, was + at, name) == 0 &&
            strncmp(was + at, is + at, name + 1) == 0)
            return cli_fail(
                "%s was made with another --%s: its content has changed since (checksum "
                "%.16s, now %.16s)",
                folder, contents[i].option, was + at + name + 1, is + at + name + 1);
    return cli_fail("%s was made with %.*s, which is now %.*s; give the options of that run, or "
                    "begin another from what it learned: --base or --adapter %s, in another --out",
                    folder, (int)strcspn(was + at, " "), was + at, (int)strcspn(is + at, " "),
                    is + at, folder);
}

/* Of this run, and as far as it can have come? */
static int check_checkpoint(const work *w, const char *folder, const plsh_checkpoint *found) {
    if (strcmp(w->state.settings, found->settings) != 0)
        return refuse_settings(folder, found->settings, w->state.settings);
    if (found->step > w->schedule.steps ||
        found->window != found->step * windows_per_step(&w->given->steps))
        return cli_fail("%s: damaged: step %lld and window %lld; this run has %lld steps of %lld "
                        "windows",
                        folder, (long long)found->step, (long long)found->window,
                        (long long)w->schedule.steps,
                        (long long)windows_per_step(&w->given->steps));
    return CLI_DONE;
}

/* The checkpoint to go on from: --from, or the newest that is whole; "": there is none. */
static int find_checkpoint(const work *w, char folder[PATH]) {
    const char *out = w->given->data.out, *from = w->given->records.from;
    plsh_checkpoint found;
    plsh_error damage = {0}, error;
    int64_t step = -1, passed = 0;
    int code = CLI_DONE;
    if (from != NULL) {
        snprintf(folder, PATH, "%s", from);
        return CLI_DONE;
    }
    if (cli_rank() == 0 &&
        plsh_checkpoint_newest(out, &step, &found, &passed, &damage) != PLSH_STATUS_OK)
        code = cli_fail_error(&damage);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = cli_mesh_checkpoint(&w->model, out, &step);
    folder[0] = '\0';
    if (code != CLI_DONE || step < 0) return code;
    if (plsh_checkpoint_folder(out, step, folder, PATH, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    if (passed > 0)
        cli_say("%s; goes on from %s, the newest checkpoint that is whole", damage.message, folder);
    return CLI_DONE;
}

static int resume(work *w) {
    char folder[PATH];
    plsh_checkpoint found;
    plsh_error error;
    int code = find_checkpoint(w, folder);
    if (code != CLI_DONE) return code;
    if (folder[0] == '\0') {
        cli_note("%s has no checkpoint: from the beginning", w->given->data.out);
        return CLI_DONE;
    }
    if (plsh_checkpoint_check(folder, &found, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    else
        code = check_checkpoint(w, folder, &found); /* before anything of it is loaded */
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    if (plsh_checkpoint_load(w->trainer, folder, &w->state, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    w->saved = w->state.step;
    cli_note("goes on after step %lld", (long long)w->state.step);
    return CLI_DONE;
}

static plsh_status write_checkpoint(work *w, plsh_error *error) {
    if (w->saved == w->state.step) return PLSH_STATUS_OK;
    plsh_status status = plsh_checkpoint_save(w->trainer, &w->state, w->given->data.out, error);
    if (status == PLSH_STATUS_OK) w->saved = w->state.step;
    return status;
}

/* A run that was killed between the two has its last checkpoint, and too many before it. */
static int save(work *w) {
    const bool before = w->saved >= 0;
    plsh_error error;
    int code = cli_ranks_agree(cli_train_log_sync(&w->log, &w->state.log_bytes));
    if (code != CLI_DONE) return code;
    plsh_status status = write_checkpoint(w, &error);
    if (status == PLSH_STATUS_OK && cli_rank() == 0)
        status = plsh_checkpoint_prune(w->given->data.out, w->state.step, w->given->records.keep,
                                       &error);
    if (status == PLSH_STATUS_OK) return CLI_DONE;
    return cli_fail("%s; %s", error.message,
                    before ? "the checkpoint before is whole" : "there is no checkpoint before");
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
        m->heads[i].partition.decay.a = 1.0 / plsh_model_slope(m->model, i / heads, i % heads);
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
    code = cli_mesh_scores(&w->model, code, &scores);
    if (code != CLI_DONE) return code;
    const double loss = fabs(scores.nll) / (double)scores.tokens; /* a NaN without its sign */
    cli_note("step %lld: held-out loss %.5f, perplexity %.5g", (long long)w->state.step, loss,
             exp(loss));
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
        if (status == PLSH_STATUS_OK) *loss += one / (double)s->accumulate;
    }
    return status;
}

/* The same steps again would go the same way: what could help, and from where. */
static int give_up(const work *w, const char *why) {
    char folder[PATH];
    if (w->saved < 0 || plsh_checkpoint_folder(w->given->data.out, w->saved, folder, sizeof folder,
                                               NULL) != PLSH_STATUS_OK)
        return cli_fail("%s; there is no checkpoint before; try a lower --lr, or --clip", why);
    return cli_fail("%s; the last checkpoint before is that of step %lld; try a lower --lr, or "
                    "--clip, in another --out, from there with %s %s",
                    why, (long long)w->saved, w->given->lora.rank > 0 ? "--adapter" : "--base",
                    folder);
}

static int skip(work *w, const plsh_error *error) {
    char why[sizeof error->message + 40];
    int code = cli_train_log_skip(&w->log, w->state.step, error->message);
    w->state.skipped++;
    w->state.in_a_row++;
    if (code == CLI_DONE && plsh_trainer_lost(w->trainer)) {
        snprintf(why, sizeof why, "step %lld: %s", (long long)w->state.step, error->message);
        return give_up(w, why);
    }
    cli_note("step %lld is skipped: %s", (long long)w->state.step, error->message);
    if (code != CLI_DONE || w->state.in_a_row < w->given->steps.patience) return code;
    snprintf(why, sizeof why, "%lld step%s not finite", (long long)w->state.in_a_row,
             w->state.in_a_row == 1 ? " was" : "s in a row were");
    return give_up(w, why);
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
    w->state.in_a_row = 0;
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
    char folder[PATH] = "";
    int code = save(w);
    if (code != CLI_DONE) return code;
    plsh_checkpoint_folder(w->given->data.out, w->saved, folder, sizeof folder, NULL);
    return cli_fail("stopped by a signal after step %lld of %lld; --resume goes on; what it has "
                    "learned so far is in %s",
                    (long long)w->state.step, (long long)w->schedule.steps, folder);
}

static void plot(work *w) {
    const char *asked = w->given->records.plot;
    asked_to_plot = 0;
    if (cli_rank() == 0)
        cli_train_log_plot(&w->log, asked != NULL ? asked : w->plot_path, asked == NULL);
}

/* Was a rank asked to stop? The same answer on all of them: a signal that comes after the sum waits
 * for the next step, or one rank would stop alone. */
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
    const cli_train_records *records = &w->given->records;
    const int64_t first = w->state.step;
    int code = CLI_DONE;
    bool stops = false;
    cli_progress_begin((double)(w->schedule.steps - first), "steps");
    while (code == CLI_DONE && w->state.step < w->schedule.steps) {
        code = step(w);
        cli_progress((double)(w->state.step - first));
        if (code == CLI_DONE && w->eval.values != NULL && is_due(w, records->eval_every))
            code = evaluate(w);
        if (code == CLI_DONE && w->state.in_a_row == 0 && is_due(w, records->checkpoint_every))
            code = save(w);
        if (code == CLI_DONE && asked_to_plot) plot(w);
        code = cli_ranks_agree(code);
        if (code == CLI_DONE) code = share_signals(w, &stops);
        /* after the last step it ends by itself, with the last scoring */
        if (code == CLI_DONE && stops && w->state.step < w->schedule.steps) code = stop(w);
    }
    cli_progress_end();
    return code;
}

/* ---- The end --------------------------------------------------------------------------------- */

static int finish(work *w, bool finished_before, double seconds) {
    const char *out = w->given->data.out;
    plsh_error error;
    int code = CLI_DONE;
    if (!finished_before && w->state.skipped == w->state.step)
        return give_up(w, "no step was finite");
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
    if (cost.over_ranks) code = cli_train_log_costs(&w->log, w->state.step, &cost);
    if (code != CLI_DONE || w->given->lm.common.json) return code;
    printf("%lld step%s, %lld of them skipped", (long long)w->state.step,
           w->state.step == 1 ? "" : "s", (long long)w->state.skipped);
    if (!finished_before) printf(", last loss %.5f, in %.4g s", w->last_loss, seconds);
    cli_mesh_costs_print(&cost, "; ");
    printf("; %s in %s\n", w->given->lora.rank > 0 ? "the adapter is" : "the model is", out);
    return CLI_DONE;
}

static int train(work *w) {
    const settings *given = w->given;
    const char *log = given->records.log;
    const double start = cli_seconds();
    int code = cli_ranks_agree(print_settings(w, w->state.settings, sizeof w->state.settings));
    if (code == CLI_DONE) code = cli_train_path(w->log_path, given->data.out, "log.jsonl");
    if (code == CLI_DONE) code = cli_train_path(w->plot_path, given->data.out, "log.svg");
    if (code == CLI_DONE && log == NULL && cli_rank() == 0)
        code = cli_train_log_check_own(w->log_path);
    if (code == CLI_DONE && given->records.plot != NULL && cli_rank() == 0)
        code = cli_train_log_plot_check(given->records.plot);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE && given->records.resume) code = resume(w);
    if (code == CLI_DONE && cli_rank() == 0)
        code = cli_train_log_open(&w->log, log != NULL ? log : w->log_path,
                                  w->saved >= 0 ? w->state.log_bytes : -1, w->state.step,
                                  given->lm.common.json);
    code = cli_ranks_agree(code);
    if (code == CLI_DONE) code = cli_mesh_same_weights(&w->model);
    if (code != CLI_DONE) return code;
    const bool finished_before = w->state.step >= w->schedule.steps;
    w->folder.begun = true;
    cli_model_announce(&w->model);
    catch_signals();
    code = loop(w);
    return code == CLI_DONE ? finish(w, finished_before, cli_seconds() - start) : code;
}

static int run_train(const void *given) {
    work w = {.given = given, .saved = -1, .folder.lock = -1, .last_loss = NAN};
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
    /* A resume that was refused leaves no tokens: they may be another text's, and `keep` would then
     * refuse the right one. */
    if (w.made_tokens && w.folder.goes_on && !w.folder.begun)
        unlink(w.given->data.tokens != NULL ? w.given->data.tokens : w.tokens);
    cli_train_log_close(&w.log);
    free(w.ids);
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
