/* cli: the options of plsh train. */
#include "cli/lm/train_options.h"

#include "cli/message.h"

static const char *const *order_choices(void) {
    static const char *const names[] = {"text", "rows", NULL};
    return names;
}

static const char *const *schedule_choices(void) {
    static const char *const names[] = {"constant", "linear", "cosine", NULL};
    return names;
}

static const char *const *draw_choices(void) {
    static const char *const names[] = {"new", "kept", NULL};
    return names;
}

const cli_option cli_train_data_table[CLI_TRAIN_DATA_COUNT] = {
    {.name = "fresh",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, fresh),
     .value = "FILE",
     .help = "train new weights for this Hugging Face configuration (a config.json)"},
    {.name = "base",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, base),
     .value = "PATH",
     .help = "start from these weights: a folder, or a .gguf file for LoRA"},
    {.name = "adapter",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, adapter),
     .value = "DIR",
     .help = "start from this PEFT adapter"},
    {.name = "tokenizer",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, tokenizer),
     .value = "PATH",
     .help = "a tokenizer.json, or a folder or .gguf with one; else that of --base"},
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, text),
     .value = "FILE",
     .help = "training data: a text, or a file of tokens that an earlier run made",
     .required = true},
    {.name = "tokens",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, tokens),
     .value = "FILE",
     .help = "file for the tokens of the text, reused by later runs; else in --out"},
    {.name = "order",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_train_data, order),
     .value = "NAME",
     .help = "text: in its own order; rows: its lines shuffled and joined by blanks",
     .fallback = "text",
     .choices = order_choices},
    {.name = "order-seed",
     .kind = CLI_SEED,
     CLI_MEMBER(cli_train_data, order_seed),
     .value = "N",
     .help = "seed of the shuffled rows",
     .fallback = "42"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, out),
     .value = "DIR",
     .help = "the folder of the run: checkpoints, log, and at the end the model",
     .required = true},
    {.name = "config",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_data, config),
     .value = "FILE",
     .help = "a JSON file with any of these options; the command line overrides it"},
};

const cli_option cli_train_steps_table[CLI_TRAIN_STEPS_COUNT] = {
    {.name = "context",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_steps, context),
     .value = "N",
     .help = "tokens per window",
     .fallback = "1024",
     .range = CLI_BETWEEN(2, 16777216)},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_steps, batch),
     .value = "N",
     .help = "windows that go through the model at once",
     .fallback = "1",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "accumulate",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_steps, accumulate),
     .value = "N",
     .help = "batches whose gradients are added up for one step",
     .fallback = "1",
     .range = CLI_BETWEEN(1, 65536)},
    {.name = "steps",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_steps, steps),
     .value = "N",
     .help = "number of steps; 0: from --epochs",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "epochs",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, epochs),
     .value = "X",
     .help = "epochs: how often the data is used",
     .fallback = "1",
     .range = {.least = 0, .most = 1e6, .above = true}},
    {.name = "lr",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, lr),
     .value = "X",
     .help = "the learning rate at its peak",
     .fallback = "3e-4",
     .range = CLI_AT_LEAST(0)},
    {.name = "schedule",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_train_steps, schedule),
     .value = "NAME",
     .help = "the learning rate after the warm-up",
     .fallback = "linear",
     .choices = schedule_choices},
    {.name = "warmup",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, warmup),
     .value = "X",
     .help = "steps on which it rises from 0; below 1: that fraction of all",
     .fallback = "0.1",
     .range = CLI_BETWEEN(0, 1e15)},
    {.name = "weight-decay",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, weight_decay),
     .value = "X",
     .help = "of AdamW",
     .fallback = "0.01",
     .range = CLI_AT_LEAST(0)},
    {.name = "decay-matrices",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_train_steps, decay_matrices),
     .help = "no weight decay of norms and biases"},
    {.name = "beta1",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, beta1),
     .value = "X",
     .help = "of AdamW",
     .fallback = "0.9",
     .range = CLI_INSIDE(0, 1)},
    {.name = "beta2",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, beta2),
     .value = "X",
     .help = "of AdamW",
     .fallback = "0.999",
     .range = CLI_INSIDE(0, 1)},
    {.name = "adam-eps",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, eps),
     .value = "X",
     .help = "of AdamW",
     .fallback = "1e-8",
     .range = CLI_POSITIVE},
    {.name = "clip",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, clip),
     .value = "X",
     .help = "the largest norm of the gradients; 0: any",
     .fallback = "1",
     .range = CLI_AT_LEAST(0)},
    {.name = "dropout",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_steps, dropout),
     .value = "X",
     .help = "dropout of hidden states; -1: of hidden states and attention weights, from the "
             "configuration",
     .fallback = "-1",
     .range = {.least = -1, .most = 1, .below = true}},
    {.name = "recompute",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_train_steps, recompute),
     .help = "recompute a layer's activations in the backward pass (gradient checkpointing): "
             "slower, less memory"},
    {.name = "draws",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_train_steps, draws),
     .value = "NAME",
     .help = "sampled masks: new in every step, or kept",
     .fallback = "new",
     .choices = draw_choices},
    {.name = "learn-slopes",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_train_steps, learn_slopes),
     .help = "learn ALiBi's slopes too, one per layer and head; kept as slopes.npy"},
    {.name = "patience",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_steps, patience),
     .value = "N",
     .help = "stop after this many steps in a row whose loss or gradients are not finite",
     .fallback = "5",
     .range = CLI_AT_LEAST(1)},
    CLI_MESH_OPTION(cli_train_steps, mesh),
};

const cli_option cli_train_lora_table[CLI_TRAIN_LORA_COUNT] = {
    {.name = "lora-rank",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_lora, rank),
     .value = "N",
     .help = "train LoRA adapters of this rank; 0: train the weights",
     .fallback = "0",
     .range = CLI_BETWEEN(0, 65536)},
    {.name = "lora-alpha",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_lora, alpha),
     .value = "X",
     .help = "their scale is alpha / rank; 0: twice the rank",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "lora-dropout",
     .kind = CLI_REAL,
     CLI_MEMBER(cli_train_lora, dropout),
     .value = "X",
     .help = "dropout of an adapter's input",
     .fallback = "0",
     .range = {.least = 0, .most = 1, .below = true}},
    {.name = "lora-targets",
     .kind = CLI_WORDS,
     CLI_MEMBER(cli_train_lora, targets),
     .value = "LIST",
     .help = "linear layers (q_proj,v_proj); else all of attention"},
};

const cli_option cli_train_records_table[CLI_TRAIN_RECORDS_COUNT] = {
    {.name = "checkpoint-every",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_records, checkpoint_every),
     .value = "N",
     .help = "steps between checkpoints; 0: only at the end",
     .fallback = "100",
     .range = CLI_AT_LEAST(0)},
    {.name = "keep",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_records, keep),
     .value = "N",
     .help = "checkpoints that are kept",
     .fallback = "2",
     .range = CLI_AT_LEAST(1)},
    {.name = "resume",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_train_records, resume),
     .help = "continue from the last checkpoint in --out, bit for bit; from the beginning if there "
             "is none"},
    {.name = "from",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_records, from),
     .value = "DIR",
     .help = "with --resume: from this checkpoint, one in --out or the beginning of a new --out"},
    {.name = "eval-text",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_records, eval_text),
     .value = "FILE",
     .help = "a held-out text (or a file of tokens), scored as plsh perplexity does at --context"},
    {.name = "eval-every",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_records, eval_every),
     .value = "N",
     .help = "steps between evaluations; 0: only at the end",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "eval-limit",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_train_records, eval_limit),
     .value = "N",
     .help = "only its first N tokens; 0: all",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "log",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_records, log),
     .value = "FILE",
     .help = "a JSON line for each step and evaluation; else log.jsonl in --out"},
    {.name = "plot",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_train_records, plot),
     .value = "FILE",
     .help = "plot of the log as SVG, at the end and at SIGUSR1; else log.svg in --out if gnuplot "
             "is installed"},
};

int cli_train_check(const cli_train_settings *given) {
    const cli_train_data *data = &given->data;
    const cli_train_lora *lora = &given->lora;
    const cli_train_records *records = &given->records;
    if ((data->fresh == NULL) == (data->base == NULL))
        return cli_usage("give new weights with --fresh CONFIG.json, or a model with --base");
    if (data->fresh != NULL && (lora->rank > 0 || data->adapter != NULL))
        return cli_usage("adapters go on top of a model that is given with --base");
    if (data->adapter != NULL && lora->rank == 0)
        return cli_usage("--adapter: give its --lora-rank too");
    const char *without_rank = lora->alpha > 0           ? "alpha"
                               : lora->dropout > 0       ? "dropout"
                               : lora->targets.count > 0 ? "targets"
                                                         : NULL;
    if (lora->rank == 0 && without_rank != NULL)
        return cli_usage("--lora-%s needs --lora-rank, which turns on the training of adapters",
                         without_rank);
    if (given->steps.steps > 0 && cli_option_given("epochs"))
        return cli_usage("--steps and --epochs: give one of them");
    if ((float)given->steps.beta1 >= 1.0f || (float)given->steps.beta2 >= 1.0f)
        return cli_usage("--beta%d: %.17g is 1 as a float32; give less",
                         (float)given->steps.beta1 >= 1.0f ? 1 : 2,
                         (float)given->steps.beta1 >= 1.0f ? given->steps.beta1
                                                           : given->steps.beta2);
    if (cli_attention_check(&given->lm) != CLI_DONE) return CLI_USAGE;
    if (given->steps.dropout < 0 && given->steps.dropout != -1)
        return cli_usage("--dropout: 0 or more, or -1 for that of the configuration");
    if (records->from != NULL && !records->resume) return cli_usage("--from goes with --resume");
    if (records->eval_text == NULL && (records->eval_every > 0 || records->eval_limit > 0))
        return cli_usage("--eval-%s goes with --eval-text, the text that is scored",
                         records->eval_every > 0 ? "every" : "limit");
    return CLI_DONE;
}
