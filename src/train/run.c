/* train: a run: the steps of a training in a folder, skipped steps, patience, checkpoints, and the
 * check that a checkpoint belongs to the same run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "train/trainer.h"

enum { DEFAULT_KEEP = 2, DEFAULT_PATIENCE = 5 };

struct plsh_train_run {
    plsh_trainer *trainer;
    const plsh_corpus *corpus;
    plsh_train_run_options options;
    plsh_checkpoint state; /* of this moment */
    int64_t first;         /* the step after which it began or was resumed */
    int64_t saved;         /* the step of the last checkpoint, -1: none */
    int32_t *ids;          /* [batch][context] */
};

static int64_t windows_per_step(const plsh_train_run *run) {
    return run->trainer->options.batch * plsh_trainer_micro_batches(run->trainer);
}

/* ---- Settings -------------------------------------------------------------------------------- */

static plsh_status add_setting(plsh_checkpoint *state, const char *name, const char *value,
                               plsh_error *error) {
    const size_t used = strlen(state->settings), room = sizeof(state->settings) - used;
    int length = snprintf(state->settings + used, room, "%s%s=%s", used ? " " : "", name, value);
    if (length > 0 && (size_t)length < room) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the settings are too long to be written down; %zu bytes at most",
                     sizeof(state->settings) - 1);
}

static plsh_status add_checksum(plsh_checkpoint *state, const char *name, uint64_t checksum,
                                plsh_error *error) {
    char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, checksum);
    return add_setting(state, name, text, error);
}

static plsh_status write_settings(plsh_train_run *run, plsh_error *error) {
    const plsh_train_run_options *o = &run->options;
    plsh_status status =
        add_checksum(&run->state, "text", plsh_corpus_checksum(run->corpus), error);
    for (size_t i = 0; !status && i < o->setting_count; i++) {
        const plsh_train_setting *one = &o->settings[i];
        uint64_t checksum;
        if (one->file) {
            status = plsh_checkpoint_fingerprint(one->file, &checksum, error);
            if (!status) status = add_checksum(&run->state, one->name, checksum, error);
        } else if (one->value) {
            status = add_setting(&run->state, one->name, one->value, error);
        }
    }
    return status;
}

/* What messages call the file whose checksum is the setting `name`; NULL: not a checksum. */
static const char *file_of_setting(const plsh_train_run *run, const char *name, size_t length) {
    const plsh_train_run_options *o = &run->options;
    for (size_t i = 0; i < o->setting_count; i++) {
        const plsh_train_setting *one = &o->settings[i];
        if (!one->file || strlen(one->name) != length) continue;
        if (strncmp(one->name, name, length) == 0) return one->shown ? one->shown : one->name;
    }
    if (length != strlen("text") || strncmp(name, "text", length) != 0) return NULL;
    return o->text ? o->text : "text";
}

/* Names the first setting that differs. */
static plsh_status refuse_settings(const plsh_train_run *run, const char *was,
                                   plsh_train_resumed *found, plsh_error *error) {
    const char *is = run->state.settings;
    size_t at = 0;
    for (size_t i = 0; was[i] && was[i] == is[i]; i++) {
        if (was[i] == ' ') at = i + 1;
    }
    was += at;
    is += at;
    const size_t name = strcspn(was, "=");
    const char *file = strncmp(was, is, name + 1) == 0 ? file_of_setting(run, was, name) : NULL;
    if (file) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%.120s was made with another %s: its content has changed since (checksum "
                         "%.16s, now %.16s)",
                         found->folder, file, was + name + 1, is + name + 1);
    }
    found->settings_differ = true;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%.120s was made with %.*s, which is now %.*s",
                     found->folder, (int)strcspn(was, " "), was, (int)strcspn(is, " "), is);
}

/* ---- Resuming -------------------------------------------------------------------------------- */

/* *step becomes the first rank's. A rank that does not see that checkpoint refuses it for all. */
static plsh_status share_checkpoint(const plsh_train_run *run, int64_t *step, char *folder,
                                    plsh_error *error) {
    const plsh_ranks *ranks = run->trainer->options.ranks;
    double first = plsh_ranks_first(ranks) ? (double)*step : 0.0;
    plsh_status status = ranks ? ranks->sum(ranks->context, &first, 1, error) : PLSH_STATUS_OK;
    if (status) return status;
    *step = (int64_t)first;
    if (*step < 0) return PLSH_STATUS_OK;
    status =
        plsh_checkpoint_folder(run->options.folder, *step, folder, PLSH_CHECKPOINT_PATH, error);
    if (!status && !plsh_path_exists(folder)) {
        status = plsh_fail(
            error, PLSH_STATUS_IO,
            "%.160s is missing, but rank 0 has it: all hosts share the folder of a run", folder);
    }
    return plsh_ranks_agree(ranks, status, error);
}

/* found->folder: the newest complete checkpoint, or "". */
static plsh_status find_checkpoint(const plsh_train_run *run, plsh_train_resumed *found,
                                   plsh_error *error) {
    const plsh_ranks *ranks = run->trainer->options.ranks;
    plsh_checkpoint state;
    plsh_error damage = {0};
    int64_t step = -1, passed = 0;
    plsh_status status = PLSH_STATUS_OK;
    if (plsh_ranks_first(ranks)) {
        status = plsh_checkpoint_newest(run->options.folder, &step, &state, &passed, &damage);
    }
    if (status && error) *error = damage;
    status = plsh_ranks_agree(ranks, status, error);
    if (status) return status;
    if (passed > 0) found->damage = damage;
    return share_checkpoint(run, &step, found->folder, error);
}

/* Does the checkpoint belong to this run, and is its step possible? */
static plsh_status check_checkpoint(const plsh_train_run *run, plsh_train_resumed *found,
                                    plsh_error *error) {
    const int64_t steps = run->options.schedule.steps, windows = windows_per_step(run);
    plsh_checkpoint state;
    plsh_status status = plsh_checkpoint_check(found->folder, &state, error);
    if (status) return status;
    if (strcmp(state.settings, run->state.settings) != 0) {
        return refuse_settings(run, state.settings, found, error);
    }
    if (state.step <= steps && state.window == state.step * windows) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%.120s: damaged: step %lld and window %lld; this run has %lld steps of %lld "
                     "windows",
                     found->folder, (long long)state.step, (long long)state.window,
                     (long long)steps, (long long)windows);
}

plsh_status plsh_train_run_resume(plsh_train_run *run, const char *from, plsh_train_resumed *found,
                                  plsh_error *error) {
    plsh_checkpoint state;
    plsh_status status = PLSH_STATUS_OK;
    *found = (plsh_train_resumed){0};
    if (!from) {
        status = find_checkpoint(run, found, error);
    } else if ((size_t)snprintf(found->folder, sizeof(found->folder), "%s", from) >=
               sizeof(found->folder)) {
        status = plsh_fail(error, PLSH_STATUS_INVALID, "%.200s..: a long name", from);
    }
    if (status || !found->folder[0]) return status;
    status = check_checkpoint(run, found, error);
    status = plsh_ranks_agree(run->trainer->options.ranks, status, error);
    if (!status) status = plsh_checkpoint_load(run->trainer, found->folder, &state, error);
    if (status) return status;
    run->state = state;
    run->first = run->saved = state.step;
    return PLSH_STATUS_OK;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

bool plsh_train_run_is_due(const plsh_train_run *run) {
    const int64_t step = run->state.step, every = run->options.checkpoint_every;
    return every > 0 && step % every == 0 && step > run->first && step != run->saved &&
           step < run->options.schedule.steps && run->state.in_a_row == 0;
}

/* Old checkpoints are removed even if this one already existed: a run that was killed in between
 * has too many. */
plsh_status plsh_train_run_save(plsh_train_run *run, int64_t log_bytes, plsh_error *error) {
    const plsh_train_run_options *o = &run->options;
    const plsh_ranks *ranks = run->trainer->options.ranks;
    plsh_status status = PLSH_STATUS_OK;
    run->state.log_bytes = log_bytes;
    if (run->saved != run->state.step) {
        status = plsh_checkpoint_save(run->trainer, &run->state, o->folder, error);
    }
    if (status) return status;
    run->saved = run->state.step;
    if (plsh_ranks_first(ranks)) {
        status = plsh_checkpoint_prune(o->folder, run->saved, o->keep, error);
    }
    return plsh_ranks_agree(ranks, status, error);
}

int64_t plsh_train_run_saved(const plsh_train_run *run) { return run->saved; }

const plsh_checkpoint *plsh_train_run_state(const plsh_train_run *run) { return &run->state; }

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Gradients of all batches of a step; *loss is the mean of their losses. */
static plsh_status accumulate(plsh_train_run *run, double *loss, plsh_error *error) {
    const int64_t context = run->trainer->options.context, batch = run->trainer->options.batch;
    const int64_t micro_batches = plsh_trainer_micro_batches(run->trainer);
    plsh_status status = PLSH_STATUS_OK;
    *loss = 0.0;
    for (int64_t a = 0; !status && a < micro_batches; a++) {
        double one;
        plsh_corpus_windows(run->corpus, context, run->state.window + a * batch, batch, run->ids);
        status = plsh_trainer_accumulate(run->trainer, run->ids, context, batch, &one, error);
        if (!status) *loss += one / (double)micro_batches;
    }
    return status;
}

static plsh_status skip(plsh_train_run *run, plsh_train_step *step, plsh_error *error) {
    plsh_checkpoint *state = &run->state;
    step->kind = PLSH_TRAIN_SKIPPED;
    state->skipped++;
    state->in_a_row++;
    if (plsh_trainer_lost(run->trainer)) {
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "step %lld: %.200s", (long long)state->step,
                         step->reason);
    }
    if (state->in_a_row < run->options.patience) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "%lld step%s not finite",
                     (long long)state->in_a_row, state->in_a_row == 1 ? " was" : "s in a row were");
}

static plsh_status do_step(plsh_train_run *run, plsh_train_step *step, plsh_error *error) {
    const plsh_train_run_options *o = &run->options;
    plsh_update update = o->update;
    plsh_error reason = {0};
    step->rate = plsh_schedule_rate(&o->schedule, run->state.step);
    update.learning_rate = step->rate;
    update.accumulated = plsh_trainer_micro_batches(run->trainer);
    plsh_status status = accumulate(run, &step->loss, &reason);
    if (!status) status = plsh_trainer_update(run->trainer, &update, &step->norm, &reason);
    if (status && status != PLSH_STATUS_NOT_FINITE) {
        if (error) *error = reason;
        return status;
    }
    step->number = ++run->state.step;
    run->state.window += windows_per_step(run);
    step->tokens = run->state.window * run->trainer->options.context;
    snprintf(step->reason, sizeof(step->reason), "%s", reason.message);
    if (status) return skip(run, step, error);
    step->kind = PLSH_TRAIN_DONE;
    run->state.in_a_row = 0;
    return PLSH_STATUS_OK;
}

plsh_status plsh_train_run_next(plsh_train_run *run, plsh_train_step *step, plsh_error *error) {
    const plsh_checkpoint *state = &run->state;
    const int64_t steps = run->options.schedule.steps;
    *step = (plsh_train_step){.kind = PLSH_TRAIN_FINISHED, .number = state->step};
    plsh_status status = PLSH_STATUS_OK;
    if (plsh_train_run_is_due(run)) status = plsh_train_run_save(run, state->log_bytes, error);
    if (status) return status;
    if (state->step < steps) return do_step(run, step, error);
    if (run->first < steps && state->skipped == state->step) {
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "no step was finite");
    }
    return PLSH_STATUS_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static plsh_status check_options(const plsh_train_run *run, plsh_error *error) {
    const plsh_train_run_options *o = &run->options;
    const int64_t context = run->trainer->options.context, windows = windows_per_step(run);
    const int64_t steps = o->schedule.steps;
    int64_t tokens;
    if (!o->folder) return plsh_fail(error, PLSH_STATUS_INVALID, "a run needs a folder");
    if (steps < 1 || o->checkpoint_every < 0 || o->keep < 0 || o->patience < 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "a run of %lld steps, a checkpoint every %lld, %lld kept, patience %lld; "
                         "at least 1, 0, 0, 0",
                         (long long)steps, (long long)o->checkpoint_every, (long long)o->keep,
                         (long long)o->patience);
    }
    if (plsh_corpus_count(run->corpus) < context) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld tokens fill no window of %lld",
                         (long long)plsh_corpus_count(run->corpus), (long long)context);
    }
    if (__builtin_mul_overflow(steps, windows, &tokens) ||
        __builtin_mul_overflow(tokens, context, &tokens)) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW,
                         "%lld steps of %lld windows of %lld tokens are more than 2^63 tokens",
                         (long long)steps, (long long)windows, (long long)context);
    }
    return PLSH_STATUS_OK;
}

static plsh_status prepare_run(plsh_train_run *run, plsh_error *error) {
    const plsh_train_options *o = &run->trainer->options;
    void *ids = NULL;
    plsh_status status = check_options(run, error);
    if (!status) {
        status =
            plsh_allocate(&ids, (size_t)(o->batch * o->context), sizeof(int32_t), "a batch", error);
    }
    run->ids = ids;
    if (!status) status = write_settings(run, error);
    return status;
}

plsh_status plsh_train_run_open(plsh_train_run **out, plsh_trainer *trainer,
                                const plsh_corpus *corpus, const plsh_train_run_options *options,
                                plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_train_run), "a run", error);
    plsh_train_run *run = memory;
    if (!status) {
        *run = (plsh_train_run){
            .trainer = trainer, .corpus = corpus, .options = *options, .saved = -1};
        if (!options->keep) run->options.keep = DEFAULT_KEEP;
        if (!options->patience) run->options.patience = DEFAULT_PATIENCE;
        status = prepare_run(run, error);
    }
    status = plsh_ranks_agree(trainer->options.ranks, status, error);
    *out = status ? NULL : run;
    if (status) plsh_train_run_close(run);
    return status;
}

void plsh_train_run_close(plsh_train_run *run) {
    if (!run) return;
    plsh_release(run->ids);
    plsh_release(run);
}
