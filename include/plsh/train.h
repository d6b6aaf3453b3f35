/* plsh/train.h - training: gradients of language models, AdamW, LoRA; data, schedules, checkpoints.
 *
 *     plsh_trainer *trainer;
 *     plsh_train_options options = {.context = 1024, .batch = 1, .lora_rank = 16};
 *     plsh_trainer_create(&trainer, "model.gguf", &options, &error);
 *     for (int64_t step = 0; step < steps; step++) {
 *         plsh_trainer_accumulate(trainer, windows[step], 1024, 1, &loss, &error);
 *         plsh_update update = {.learning_rate = 1e-4, .clip = 1.0};
 *         plsh_trainer_update(trainer, &update, &norm, &error);
 *     }
 *
 * float32 throughout, or bfloat16 in the products of linear layers; the same bits for any number of
 * threads. Llama, Mistral, Qwen2, Qwen3, BLOOM, MPT, Falcon, Baichuan, Jais, BTLM and Refact.
 * Attention by any method; sampled masks are redrawn in every step, or kept. Link libplsh_lm. */
#ifndef PLSH_TRAIN_H
#define PLSH_TRAIN_H

#include "plsh/model.h"
#include "plsh/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_train_options {
    int64_t context, batch; /* tokens per window, and windows at once, at most */
    const plsh_layer_attention *attention;
    int64_t attention_count; /* as in plsh_session_options */
    bool keep_draws;         /* use the masks of the first step in all steps */
    bool learn_slopes; /* train the slopes of ALiBi, one per layer and head, as logarithms; for
                          sampled masks with the straight-through estimate, see plsh_backward. They
                          are written as slopes.npy, which plsh_model_open reads */
    bool recompute; /* recompute a layer's activations in the backward pass (gradient checkpointing)
                     */
    bool keep_attention; /* with recompute: keep the output of every layer's attention, heads *
                            head_dim numbers a token and layer, and do not compute it again */
    uint64_t seed;
    double dropout;      /* of hidden states; attention dropout is then 0. Negative: both as in the
                            configuration */
    int64_t lora_rank;   /* 0: all weights are trained */
    double lora_alpha;   /* 0: twice the rank */
    double lora_dropout; /* of the input of A */
    const char *family;  /* as in plsh_model_options */
    const char *const
        *lora_targets; /* "q_proj", ..; NULL: q, k, v and out projections. Not copied */
    size_t lora_target_count;
    int threads; /* 0 = all */
    const char *isa;
    plsh_compute compute; /* of the linear layers, in both passes and in evaluation: float32 (auto),
                             or bfloat16. Weights, their gradients, sums and attention are float32
                           */
    const char
        *adapter; /* a PEFT adapter to continue training (its layers, and lora_targets), or NULL */
    const plsh_ranks *ranks; /* that share the work, see below; NULL: one process. Not copied */
    int64_t micro_batches;   /* calls of plsh_trainer_accumulate before an update; 0 = 1. Used with
                                ranks only: they add up their gradients in the last call */
} plsh_train_options;

typedef struct plsh_trainer plsh_trainer;

/* With ranks (plsh/ranks.h) all ranks call every function of a trainer, and of checkpoints with
 * one, with the same arguments. The arguments include all windows; each rank takes its own rows.
 * Loss and norm are those of all rows; weights and moments have the same bits on every rank. The
 * first rank writes files, and all ranks get its status. Every rank reads checkpoints; a checkpoint
 * may come from a run with another number of ranks. The bits of a run depend on the number of
 * ranks, but not on threads or timing. */

/* Initialises weights for a Hugging Face configuration as transformers does: normal numbers of
 * standard deviation initializer_range for linear layers and embeddings (the row of the padding
 * token is zero where it is in transformers), norms 1, biases 0. Writes config.json and
 * model.safetensors (float32) into `folder`, which is created if it is missing. `config` is the
 * path of a config.json. */
PLSH_API plsh_status plsh_train_initialise(const char *config, uint64_t seed, const char *folder,
                                           plsh_error *error);

/* From a folder or a .gguf file, as plsh_model_open; a .gguf takes adapters only. */
PLSH_API plsh_status plsh_trainer_create(plsh_trainer **out, const char *path,
                                         const plsh_train_options *options, plsh_error *error);
PLSH_API void plsh_trainer_destroy(plsh_trainer *trainer); /* NULL is fine */

/* The model as it is trained, for evaluation. */
PLSH_API const plsh_model *plsh_trainer_model(const plsh_trainer *trainer);

/* Adds the gradients of the mean next-token loss of `windows` windows of `context` tokens each, one
 * after the other in ids; *loss is that mean. If the loss is not finite or an allocation fails, all
 * gradients added so far are discarded: PLSH_STATUS_NOT_FINITE, PLSH_STATUS_NO_MEMORY. Invalid
 * arguments (sizes, ids) change nothing. */
PLSH_API plsh_status plsh_trainer_accumulate(plsh_trainer *trainer, const int32_t *ids,
                                             int64_t context, int64_t windows, double *loss,
                                             plsh_error *error);

/* One step of AdamW on the gradients added so far, divided by `accumulated`; then they are zero.
 *
 *     g *= min(1, clip / (|g| + 1e-6));   p *= 1 - rate * decay
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     p -= rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps) */
typedef struct plsh_update {
    double learning_rate, weight_decay;
    double beta1, beta2, eps; /* 0: 0.9, 0.999, 1e-8 */
    double clip;              /* 0: none */
    bool decay_matrices_only; /* no weight decay of norms and biases */
    int64_t accumulated;      /* 0 = 1 */
} plsh_update;

/* *norm is the norm of the gradients before clipping. If it is not finite, the gradients are set to
 * zero and nothing else changes: PLSH_STATUS_NOT_FINITE. If the update itself makes a parameter not
 * finite, the status is the same and the trainer is lost: it refuses to save until it loads a
 * checkpoint. */
PLSH_API plsh_status plsh_trainer_update(plsh_trainer *trainer, const plsh_update *update,
                                         double *norm, plsh_error *error);
PLSH_API bool plsh_trainer_lost(const plsh_trainer *trainer);

/* Steps so far. */
PLSH_API int64_t plsh_trainer_steps(const plsh_trainer *trainer);

/* Parameter number i: its name, shape (rows 0: a vector), value, gradient and moments. */
typedef struct plsh_trained {
    const char *name;
    int64_t rows, columns;
    float *value, *gradient, *m, *v;
} plsh_trained;

PLSH_API size_t plsh_trainer_count(const plsh_trainer *trainer);
PLSH_API plsh_trained plsh_trainer_at(const plsh_trainer *trainer, size_t index);

/* Writes the trained weights into an existing folder: model.safetensors with the configuration and
 * the tokenizer of the model it came from, which transformers and plsh_model_open read; or an
 * adapter in PEFT's form. All is written into a folder of its own in `folder` and then renamed,
 * file by file: symbolic links of these names are replaced, never followed. */
PLSH_API plsh_status plsh_trainer_save(const plsh_trainer *trainer, const char *folder,
                                       plsh_error *error);

/* The gradients added so far as safetensors, under the names of the parameters. */
PLSH_API plsh_status plsh_trainer_save_gradients(const plsh_trainer *trainer, const char *path,
                                                 plsh_error *error);

/* ---- Data ----
 *
 * A text is tokenised once, into a file of tokens that is mapped into memory and reused while the
 * text and the tokenizer are the same. */

typedef struct plsh_corpus plsh_corpus;

typedef struct plsh_corpus_options {
    const char *text;      /* a text, or a file of tokens that an earlier call made */
    const char *tokenizer; /* as plsh_tokenizer_open. A file of tokens needs none, and is refused if
                              another tokenizer made it */
    const char *tokens;    /* the file of tokens: made from the text, reused if it is of this text,
                              otherwise replaced. A file of another kind is not overwritten. A
                              symbolic link is read through, and replaced when tokens are made */
    bool shuffle_rows;     /* the non-blank lines in random order, separated by a blank */
    uint64_t seed;         /* of that order */
    bool keep;             /* refuse to replace the tokens of another text, tokenizer or order */
} plsh_corpus_options;

PLSH_API plsh_status plsh_corpus_open(plsh_corpus **out, const plsh_corpus_options *options,
                                      plsh_error *error);
PLSH_API void plsh_corpus_close(plsh_corpus *corpus); /* NULL is fine */

/* Is `path` a file of tokens? False, too, if it cannot be read. */
PLSH_API bool plsh_corpus_is_tokens(const char *path);

PLSH_API int64_t plsh_corpus_count(const plsh_corpus *corpus); /* tokens */
PLSH_API const int32_t *plsh_corpus_ids(const plsh_corpus *corpus);
PLSH_API int32_t plsh_corpus_largest(const plsh_corpus *corpus);   /* id */
PLSH_API uint64_t plsh_corpus_checksum(const plsh_corpus *corpus); /* of the ids */
PLSH_API bool plsh_corpus_reused(const plsh_corpus *corpus); /* the file of tokens existed before */

/* ids[count][context] = windows first .. first + count - 1 in the order of the text; after its last
 * whole window the text begins again. It must have one: plsh_corpus_count >= context > 0; first
 * >= 0. */
PLSH_API void plsh_corpus_windows(const plsh_corpus *corpus, int64_t context, int64_t first,
                                  int64_t count, int32_t *ids);

/* ---- Schedules ---- */

typedef enum plsh_schedule_shape {
    PLSH_SCHEDULE_CONSTANT,
    PLSH_SCHEDULE_LINEAR, /* down to 0 at the last step */
    PLSH_SCHEDULE_COSINE  /* the same, along half a cosine */
} plsh_schedule_shape;

typedef struct plsh_schedule {
    plsh_schedule_shape shape;
    double peak;
    int64_t warmup, steps; /* steps on which it rises from 0; all steps */
} plsh_schedule;

/* The learning rate of a step (0 is the first), as the schedules of transformers have it. */
PLSH_API double plsh_schedule_rate(const plsh_schedule *schedule, int64_t step);

/* ---- Checkpoints ----
 *
 * RUN/checkpoint-00000100 holds all that a run needs to continue as if it had not stopped. It is a
 * folder, written under a temporary name and then renamed, with checksums of its files. All random
 * numbers are functions of the seed and the step. A crash while one is written does not damage
 * earlier ones. A checkpoint is renamed before it is removed. No symbolic link is followed: where a
 * checkpoint is one (its folder was moved to another disk), the link is removed and the folder
 * stays.
 *
 * A checkpoint is untrusted input: checksums detect damage, and every number, name and shape in it
 * is checked before it is used. */

typedef struct plsh_checkpoint {
    int64_t step;        /* of the run: updates, and steps that were skipped */
    int64_t window;      /* windows of the data that were used */
    int64_t skipped;     /* steps that were not finite */
    int64_t in_a_row;    /* skipped steps since the last update */
    int64_t log_bytes;   /* how long the log was */
    char settings[4096]; /* of the run, as text: a run with other settings must not continue from it
                          */
} plsh_checkpoint;       /* numbers are 0 to 2^53 - 1, and in_a_row <= skipped <= step */

enum { PLSH_CHECKPOINT_PATH = 4096 };

/* Into the folder of this step in `run`. */
PLSH_API plsh_status plsh_checkpoint_save(const plsh_trainer *trainer, const plsh_checkpoint *state,
                                          const char *run, plsh_error *error);

/* A trainer made from the same model and options takes the values, moments and steps of a
 * checkpoint; gradients added so far are dropped. A damaged checkpoint is refused, with the name of
 * the file, before anything changes; plsh_checkpoint_check does only these checks. If reading fails
 * later, the trainer is lost. */
PLSH_API plsh_status plsh_checkpoint_load(plsh_trainer *trainer, const char *folder,
                                          plsh_checkpoint *state, plsh_error *error);
PLSH_API plsh_status plsh_checkpoint_check(const char *folder, plsh_checkpoint *state,
                                           plsh_error *error);

/* The newest checkpoint of `run` that is whole: *step (-1: there is none at all) and its state.
 * Damaged ones are skipped: *passed is their number, and `error` describes the newest of them,
 * though the call succeeds. Fails if all are damaged, and if one cannot be read for another reason
 * (memory, permissions). */
PLSH_API plsh_status plsh_checkpoint_newest(const char *run, int64_t *step, plsh_checkpoint *state,
                                            int64_t *passed, plsh_error *error);

/* A checksum of an input of a run, to be kept in its settings: of a file, or of the weights and
 * configuration in the folder of a model or adapter. */
PLSH_API plsh_status plsh_checkpoint_fingerprint(const char *path, uint64_t *out,
                                                 plsh_error *error);

/* Writes the path of the checkpoint of a step to `out`. */
PLSH_API plsh_status plsh_checkpoint_folder(const char *run, int64_t step, char *out, size_t size,
                                            plsh_error *error);

/* Returns the last step before `before` (negative: of all steps) that `run` has a checkpoint of; -1
 * if there is none. */
PLSH_API int64_t plsh_checkpoint_last(const char *run, int64_t before);

/* Keeps the last `keep` checkpoints up to the step `newest` and deletes all others: later ones too
 * (of a run that was continued from an earlier step), and files that a killed run left half
 * written. */
PLSH_API plsh_status plsh_checkpoint_prune(const char *run, int64_t newest, int64_t keep,
                                           plsh_error *error);

/* ---- Runs ----
 *
 * A run is a training in a folder: steps on the windows of a corpus, in order, with checkpoints. It
 * can end at any time, and continues from its last checkpoint with the same bits.
 *
 *     plsh_train_run_options options = {.folder = "run",
 *                                       .schedule = {.peak = 1e-4, .steps = 1000},
 *                                       .update = {.clip = 1.0},
 *                                       .checkpoint_every = 100};
 *     plsh_train_run_open(&run, trainer, corpus, &options, &error);
 *     plsh_train_run_resume(run, NULL, &found, &error);
 *     while (plsh_train_run_next(run, &step, &error) == PLSH_STATUS_OK &&
 *            step.kind != PLSH_TRAIN_FINISHED)
 *         printf("%lld %g\n", (long long)step.number, step.loss);
 *     plsh_train_run_save(run, 0, &error);
 *     plsh_trainer_save(trainer, "run", &error);
 *
 * A step whose loss or gradients are not finite is skipped: it changes no weight, and its windows
 * count as used. */

/* A setting that has to be the same in all parts of a run. Checkpoints keep "name=value", or of a
 * file or folder its fingerprint: another name with the same content is the same setting. */
typedef struct plsh_train_setting {
    const char *name;  /* without blanks and '=' */
    const char *value; /* looked at where `file` is NULL; both NULL: left out */
    const char *file;
    const char *shown; /* what messages call the file; NULL: name */
} plsh_train_setting;

typedef struct plsh_train_run_options { /* strings and settings are kept, not copied */
    const char *folder;                 /* of the run; it exists */
    plsh_schedule schedule;             /* and the number of steps, at least 1 */
    plsh_update update;       /* learning_rate and accumulated come from schedule and trainer */
    int64_t checkpoint_every; /* steps; 0: only when plsh_train_run_save is called */
    int64_t keep;             /* checkpoints; 0 = 2 */
    int64_t patience;         /* skipped steps in a row after which the run ends; 0 = 5 */
    const plsh_train_setting *settings; /* besides the tokens of the corpus, which always count */
    size_t setting_count;
    const char *text; /* what messages call the text; NULL: "text" */
} plsh_train_run_options;

typedef struct plsh_train_run plsh_train_run;

/* A step uses the `batch` windows of the trainer's options times its `micro_batches`. The trainer
 * and the corpus outlive the run. PLSH_STATUS_OVERFLOW: the run has more than 2^63 tokens. */
PLSH_API plsh_status plsh_train_run_open(plsh_train_run **out, plsh_trainer *trainer,
                                         const plsh_corpus *corpus,
                                         const plsh_train_run_options *options, plsh_error *error);
PLSH_API void plsh_train_run_close(plsh_train_run *run); /* NULL is fine */

/* How a run was resumed. A call that fails fills in what it had found until then. */
typedef struct plsh_train_resumed {
    char folder[PLSH_CHECKPOINT_PATH]; /* the checkpoint; "": there is none, the run begins */
    plsh_error damage;    /* of the newest checkpoint, where it was passed over; else its status is
                           * PLSH_STATUS_OK */
    bool settings_differ; /* refused, because a setting has another value; the message names it */
} plsh_train_resumed;

/* Continues from the checkpoint `from`; if it is NULL, from the newest whole one of the folder.
 * Call it before the first step. Fails without changes if the checkpoint is damaged, was made with
 * other settings, files or tokens, or is at a step that this run cannot reach. */
PLSH_API plsh_status plsh_train_run_resume(plsh_train_run *run, const char *from,
                                           plsh_train_resumed *found, plsh_error *error);

typedef enum plsh_train_step_kind {
    PLSH_TRAIN_DONE,
    PLSH_TRAIN_SKIPPED, /* loss or gradients were not finite */
    PLSH_TRAIN_FINISHED /* there was no step left: none was made */
} plsh_train_step_kind;

typedef struct plsh_train_step {
    plsh_train_step_kind kind;
    int64_t number;    /* steps so far, with this one */
    int64_t tokens;    /* used so far */
    double loss, norm; /* the mean loss; of the gradients before they are clipped */
    double rate;       /* the learning rate */
    char reason[248];  /* why it was skipped */
} plsh_train_step;

/* Saves a checkpoint that is due and was not saved, then makes one step. Returns
 * PLSH_STATUS_NOT_FINITE after `patience` skipped steps in a row, if the trainer is lost (in both
 * cases *step is the skipped step), and at the end if all steps were skipped. */
PLSH_API plsh_status plsh_train_run_next(plsh_train_run *run, plsh_train_step *step,
                                         plsh_error *error);

/* Writes a checkpoint of the current state, unless there is one, and deletes all but the last
 * `keep`. It stores log_bytes, for a log that is continued with the run. A checkpoint is due every
 * `checkpoint_every` steps, except at the last step and at skipped ones. */
PLSH_API plsh_status plsh_train_run_save(plsh_train_run *run, int64_t log_bytes, plsh_error *error);
PLSH_API bool plsh_train_run_is_due(const plsh_train_run *run);

/* The step of the last checkpoint (-1: none), and the state that one written now would hold. */
PLSH_API int64_t plsh_train_run_saved(const plsh_train_run *run);
PLSH_API const plsh_checkpoint *plsh_train_run_state(const plsh_train_run *run);

#ifdef __cplusplus
}
#endif

#endif
