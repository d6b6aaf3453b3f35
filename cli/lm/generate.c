/* cli: plsh generate: continues a prompt, streaming. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/model.h"
#include "cli/lm/prompt.h"
#include "cli/lm/prompts.h"
#include "cli/message.h"
#include "cli/output.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIKELY_MOST = 100 };

typedef struct generate_options {
    const char *prompt, *prompt_file, *prompts, *system, *session;
    int64_t tokens;
    double temperature, top_p, min_p, penalty;
    int64_t top_k, logprobs;
    cli_words stop;
    bool chat, special, ignore_end, no_bos;
    const char *log;
} generate_options;

typedef struct settings {
    generate_options generate;
    cli_lm lm;
} settings;

static const cli_option generate_table[] = {
    {.name = "prompt",
     .kind = CLI_TEXT,
     CLI_MEMBER(generate_options, prompt),
     .value = "TEXT",
     .help = "the text to continue; without it stdin"},
    {.name = "prompt-file",
     .kind = CLI_FILE,
     CLI_MEMBER(generate_options, prompt_file),
     .value = "FILE",
     .help = "the same from a file, byte for byte"},
    {.name = "prompts",
     .kind = CLI_FILE,
     CLI_MEMBER(generate_options, prompts),
     .value = "FILE",
     .help = "several prompts, one per line (or .jsonl, .csv, .tsv by the name), whose texts are "
             "generated together; each is printed after its prompt, with --json as rows"},
    {.name = "chat",
     .kind = CLI_FLAG,
     CLI_MEMBER(generate_options, chat),
     .help = "the prompt is a user's message under the model's chat template (ChatML, Llama 2 and "
             "3, Mistral, Zephyr). On a terminal, without a prompt: a conversation"},
    {.name = "system",
     .kind = CLI_TEXT,
     CLI_MEMBER(generate_options, system),
     .value = "TEXT",
     .help = "with --chat: the system message"},
    {.name = "session",
     .kind = CLI_FILE,
     CLI_MEMBER(generate_options, session),
     .value = "FILE",
     .help = "continue the text in this file, if it exists, with the prompt, and save the longer "
             "text in it. The same model and attention are needed"},
    {.name = "tokens",
     .kind = CLI_INTEGER,
     CLI_MEMBER(generate_options, tokens),
     .value = "N",
     .help = "how many tokens at most",
     .fallback = "128",
     .range = CLI_AT_LEAST(0)},
    {.name = "temperature",
     .kind = CLI_REAL,
     CLI_MEMBER(generate_options, temperature),
     .value = "T",
     .help = "0: always the most likely token. Above, tokens are drawn: --seed (1 unless given) "
             "chooses the draws, so that the same command prints the same text",
     .fallback = "0",
     .range = {.least = 0, .most = 1e9, .below = true}},
    {.name = "top-k",
     .kind = CLI_INTEGER,
     CLI_MEMBER(generate_options, top_k),
     .value = "K",
     .help = "only the K most likely tokens; 0: all",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "top-p",
     .kind = CLI_REAL,
     CLI_MEMBER(generate_options, top_p),
     .value = "P",
     .help = "only the most likely tokens that have a probability of P together",
     .fallback = "1",
     .range = {.least = 0, .most = 1, .above = true}},
    {.name = "min-p",
     .kind = CLI_REAL,
     CLI_MEMBER(generate_options, min_p),
     .value = "P",
     .help = "only tokens that are at least P times as likely as the most likely one",
     .fallback = "0",
     .range = {.least = 0, .most = 1}},
    {.name = "repetition-penalty",
     .kind = CLI_REAL,
     CLI_MEMBER(generate_options, penalty),
     .value = "R",
     .help = "tokens of the text so far: positive logits are divided by R, negative multiplied",
     .fallback = "1",
     .range = {.least = 0, .most = 1e9, .above = true, .below = true}},
    {.name = "logprobs",
     .kind = CLI_INTEGER,
     CLI_MEMBER(generate_options, logprobs),
     .value = "N",
     .help = "with --json: the log-probability of every token, and of the N most likely ones",
     .fallback = "0",
     .range = {.least = 0, .most = LIKELY_MOST}},
    {.name = "stop",
     .kind = CLI_WORDS,
     CLI_MEMBER(generate_options, stop),
     .value = "LIST",
     .help = "texts at which to stop, with \\, for a comma within one; they are not printed. The "
             "model's end tokens stop too"},
    {.name = "ignore-end",
     .kind = CLI_FLAG,
     CLI_MEMBER(generate_options, ignore_end),
     .help = "continue after the model's end tokens"},
    {.name = "no-bos",
     .kind = CLI_FLAG,
     CLI_MEMBER(generate_options, no_bos),
     .help = "do not begin with the token that the tokenizer puts before a text (<s>)"},
    {.name = "special",
     .kind = CLI_FLAG,
     CLI_MEMBER(generate_options, special),
     .help = "add the tokens that the tokenizer puts around a text"},
    {.name = "log",
     .kind = CLI_FILE,
     CLI_MEMBER(generate_options, log),
     .value = "FILE",
     .help = "a line per 256 tokens: position, median milliseconds of a token, of "
             "the processor too, bytes of caches, most bytes of memory"},
};

static const cli_group groups[] = {CLI_GROUP("Options", generate_table, settings, generate),
                                   CLI_LM_GROUPS(settings)};

enum { LOG_TOKENS = 256 }; /* tokens of a line of the log */

/* Times of the tokens since the last line. */
typedef struct token_times {
    cli_output log;
    double seconds[LOG_TOKENS], processor[LOG_TOKENS];
    size_t count;
} token_times;

typedef struct likely {
    double own; /* log-probability of the token that was chosen */
    int64_t count;
    int32_t ids[LIKELY_MOST];
    double logprobs[LIKELY_MOST];
} likely;

typedef struct work {
    cli_model model;
    plsh_session *session;
    plsh_model_ends ends;
    plsh_chat *chat;
    plsh_token_ids prompt;
    plsh_string *stops; /* --stop */
    cli_rules rules;
    cli_continuation text;
    int64_t capacity;       /* of text.ids */
    size_t printed;         /* bytes of the text */
    likely *likely;         /* --logprobs: of every generated token */
    float *copy;            /* [vocabulary], for it */
    double prefill, decode; /* seconds */
    int64_t prefilled;      /* tokens of the prompt that went through: fewer after Ctrl-C */
    int64_t kept;           /* tokens that the session held before */
    token_times token_times;
} work;

/* Ctrl-C ends the text, not the program: the generated text is printed as usual. */
static volatile sig_atomic_t interrupted;
static void interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static int reserve_ids(work *w, int64_t count) {
    if (count <= w->capacity) return CLI_DONE;
    const int64_t capacity = 2 * count + 64;
    int32_t *grown = realloc(w->text.ids, (size_t)capacity * sizeof *grown);
    if (grown == NULL) return cli_fail("out of memory");
    w->text.ids = grown;
    w->capacity = capacity;
    return CLI_DONE;
}

/* A new text after this prompt. */
static int begin_text(work *w, const plsh_token_ids *prompt) {
    cli_continuation *text = &w->text;
    plsh_error error;
    const int code = reserve_ids(w, (int64_t)prompt->count);
    if (code != CLI_DONE) return code;
    if (prompt->count > 0) memcpy(text->ids, prompt->ids, prompt->count * sizeof *text->ids);
    text->prompt = (int64_t)prompt->count;
    text->made = 0;
    text->text.length = text->ready = w->printed = 0;
    text->finish = NULL;
    if (plsh_token_stream_follow(text->stream, prompt->ids, prompt->count, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* The ids of a text as it stands, after the tokens that begin one. */
static int encode_prompt(const settings *given, work *w, plsh_string text) {
    plsh_error error;
    /* what a session holds has a beginning already */
    const bool begins = !given->generate.special && !given->generate.no_bos && w->kept == 0;
    if (cli_prompt_encode(w->model.tokenizer, text, begins, given->generate.special, &w->prompt,
                          &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* The ids of a user's message under the model's template. */
static int encode_chat(const settings *given, work *w, plsh_string text) {
    const char *system = given->generate.system;
    plsh_chat_message messages[2] = {{"system", {system, system != NULL ? strlen(system) : 0}},
                                     {"user", text}};
    const int skip = system == NULL;
    plsh_error error;
    if (plsh_chat_ids(w->chat, messages + skip, 2 - skip, true, &w->prompt, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

static int read_prompt(const settings *given, work *w) {
    const generate_options *options = &given->generate;
    char *bytes = NULL;
    plsh_string text = {options->prompt, options->prompt != NULL ? strlen(options->prompt) : 0};
    int code = CLI_DONE;
    if (options->prompt == NULL) {
        const char *path = options->prompt_file != NULL ? options->prompt_file : "-";
        code = cli_text_read(path, &bytes, &text.length);
        text.bytes = bytes;
    }
    if (code == CLI_DONE)
        code = options->chat ? encode_chat(given, w, text) : encode_prompt(given, w, text);
    free(bytes);
    if (code == CLI_DONE && w->prompt.count == 0) code = cli_fail("the prompt is empty");
    return code;
}

static int check_usage(const generate_options *options) {
    const char *draws = cli_option_given("top-k")   ? "top-k"
                        : cli_option_given("top-p") ? "top-p"
                        : cli_option_given("min-p") ? "min-p"
                                                    : NULL;
    if (options->prompt != NULL && options->prompt_file != NULL)
        return cli_usage("give the prompt with --prompt, or with --prompt-file");
    if (options->prompts != NULL &&
        (options->prompt != NULL || options->prompt_file != NULL || options->session != NULL ||
         options->logprobs > 0 || options->log != NULL))
        return cli_usage("--prompts does not go with --prompt, --prompt-file, --session, "
                         "--logprobs and --log");
    if (options->system != NULL && !options->chat) return cli_usage("--system needs --chat");
    if (options->chat && (options->special || options->no_bos))
        return cli_usage("with --chat the template says which special tokens there are; leave out "
                         "--special and --no-bos");
    if (options->chat && options->session != NULL)
        return cli_usage("--session continues a text, --chat begins one; leave out one of them");
    if (options->temperature == 0 && draws != NULL)
        return cli_usage("--%s needs a --temperature above 0; at 0 the most likely token is taken",
                         draws);
    return CLI_DONE;
}

static int open_session(const settings *given, work *w) {
    plsh_session_options options = cli_model_session(&given->lm, &w->model);
    const char *path = given->generate.session;
    plsh_error error;
    const bool there = path != NULL && access(path, F_OK) == 0;
    if ((there ? plsh_session_load(&w->session, w->model.model, &options, path, &error)
               : plsh_session_create(&w->session, w->model.model, &options, &error)) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    w->kept = plsh_session_length(w->session);
    return CLI_DONE;
}

static int open_chat(const settings *given, work *w) {
    plsh_error error;
    if (!given->generate.chat) return CLI_DONE;
    if (plsh_chat_open(&w->chat, w->model.model, w->model.tokenizer, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

static plsh_sampler sampler_of(const settings *given) {
    const generate_options *options = &given->generate;
    return (plsh_sampler){.temperature = options->temperature,
                          .top_k = options->top_k,
                          .top_p = options->top_p,
                          .min_p = options->min_p,
                          .seed = given->lm.common.seed};
}

static int make_rules(const settings *given, work *w) {
    const generate_options *options = &given->generate;
    const cli_words *stop = &options->stop;
    plsh_error error;
    w->rules = (cli_rules){.tokenizer = w->model.tokenizer,
                           .ends = options->ignore_end ? NULL : &w->ends,
                           .stop_count = stop->count,
                           .sampler = sampler_of(given),
                           .penalty = options->penalty,
                           .vocabulary = w->model.facts.vocabulary,
                           .tokens = options->tokens};
    if (plsh_model_end_tokens(w->model.model, &w->ends, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    w->rules.stops = w->stops = calloc(stop->count + 1, sizeof *w->stops);
    if (w->stops == NULL) return cli_fail("out of memory");
    for (size_t i = 0; i < stop->count; i++)
        w->stops[i] = (plsh_string){stop->values[i], strlen(stop->values[i])};
    return CLI_DONE;
}

static int open_model(const settings *given, work *w) {
    plsh_error error;
    int code = check_usage(&given->generate);
    if (code == CLI_DONE) code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE && !w->model.facts.causal)
        code = cli_fail("%s: an encoder does not generate text; see plsh embed",
                        given->lm.model.model);
    if (code == CLI_DONE) code = cli_model_tokenizer(&given->lm, &w->model);
    if (code == CLI_DONE) code = open_chat(given, w);
    if (code == CLI_DONE) code = make_rules(given, w);
    if (code != CLI_DONE) return code;
    w->text.logits = malloc(2 * (size_t)w->rules.vocabulary * sizeof *w->text.logits);
    if (w->text.logits == NULL) return cli_fail("out of memory");
    w->copy = w->text.logits + w->rules.vocabulary;
    if (plsh_token_stream_create(&w->text.stream, w->model.tokenizer, true, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* If the slopes depend on the length of the text, makes the session again for the length of the
 * prompt and all tokens to come. The length of a saved session is not known: it keeps the slopes of
 * training. */
static int plan_length(const settings *given, work *w, int64_t whole) {
    plsh_error error;
    if (w->model.facts.alibi_length == 0 || given->generate.session != NULL) return CLI_DONE;
    plsh_session_options options = cli_model_session(&given->lm, &w->model);
    options.length = whole;
    plsh_session_destroy(w->session);
    w->session = NULL;
    if (plsh_session_create(&w->session, w->model.model, &options, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

static int prepare_generate(const settings *given, work *w) {
    int code = open_session(given, w);
    if (code == CLI_DONE) code = read_prompt(given, w);
    const int64_t whole = w->kept + (int64_t)w->prompt.count + given->generate.tokens;
    if (code == CLI_DONE) code = cli_model_fits(&given->lm, &w->model, whole);
    if (code == CLI_DONE) code = plan_length(given, w, whole);
    if (code == CLI_DONE) code = begin_text(w, &w->prompt);
    if (code == CLI_DONE) cli_model_warn_context(&w->model, whole);
    w->text.before = w->kept;
    return code;
}

static bool is_conversation(const settings *given) {
    const generate_options *options = &given->generate;
    return options->chat && options->prompt == NULL && options->prompt_file == NULL &&
           !given->lm.common.json && isatty(STDIN_FILENO);
}

/* The tokens of a prompt, in chunks, so that there is progress. */
static int prefill(const settings *given, work *w, const int32_t *ids, int64_t count) {
    const int64_t chunk = given->lm.model.chunk;
    double start = plsh_clock_seconds();
    plsh_error error;
    int code = CLI_DONE;
    if (!is_conversation(given)) cli_model_announce(&w->model);
    cli_progress_begin((double)count, "tokens of the prompt");
    for (int64_t at = 0; code == CLI_DONE && at < count && !interrupted; at += chunk) {
        int64_t tokens = count - at < chunk ? count - at : chunk;
        plsh_step step = {.ids = ids + at,
                          .count = tokens,
                          .length = plsh_session_length(w->session) + count - at};
        if (at + tokens == count) step.logits = w->text.logits;
        if (plsh_session_step(w->session, &step, &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
        cli_progress((double)(at + tokens));
    }
    cli_progress_end();
    w->prefill = plsh_clock_seconds() - start;
    w->prefilled = plsh_session_length(w->session) - w->kept;
    return code;
}

/* Prints the text that is final. */
static void print_text(const settings *given, work *w) {
    const cli_continuation *text = &w->text;
    if (!given->lm.common.json && text->ready > w->printed) {
        cli_write_text(stdout, text->text.bytes + w->printed, text->ready - w->printed, true);
        fflush(stdout);
    }
    w->printed = text->ready;
}

/* Room for one more token, and with --logprobs for the most likely ones. */
static int reserve_token(const settings *given, work *w) {
    const int code = reserve_ids(w, w->text.prompt + w->text.made + 1);
    if (code != CLI_DONE || given->generate.logprobs == 0) return code;
    likely *grown = realloc(w->likely, (size_t)(w->text.made + 1) * sizeof *grown);
    if (grown == NULL) return cli_fail("out of memory");
    w->likely = grown;
    return CLI_DONE;
}

static plsh_status choose(const settings *given, work *w, int32_t *id, plsh_error *error) {
    if (given->generate.logprobs == 0)
        return cli_continuation_choose(&w->rules, &w->text, NULL, NULL, id, error);
    likely *now = &w->likely[w->text.made];
    cli_likely found = {
        .count = given->generate.logprobs, .ids = now->ids, .logprobs = now->logprobs};
    const plsh_status status =
        cli_continuation_choose(&w->rules, &w->text, &found, w->copy, id, error);
    now->own = found.own;
    now->count = found.count;
    return status;
}

/* Chooses a token, prints its text and, unless it is the last one, feeds it to the model. */
static int next_token(const settings *given, work *w) {
    plsh_error error;
    int32_t id;
    const int code = reserve_token(given, w);
    if (code != CLI_DONE) return code;
    if (choose(given, w, &id, &error) != PLSH_STATUS_OK ||
        cli_continuation_add(&w->rules, &w->text, id, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    print_text(given, w);
    if (w->text.finish != NULL) return CLI_DONE;
    plsh_step step = {.ids = &id, .count = 1, .logits = w->text.logits};
    if (plsh_session_step(w->session, &step, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

/* ---- the speed over time ---- */

static int compare_numbers(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_numbers);
    return values[count / 2];
}

static double processor_seconds(void) {
    return 1e-9 * (double)plsh_clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

static int open_log(const settings *given, token_times *p) {
    p->log.path = given->generate.log;
    int code = cli_outputs_open(&p->log, 1);
    if (code != CLI_DONE) return code;
    return cli_output_print(
        &p->log, "position\tmilliseconds\tprocessor_milliseconds\tcache_bytes\tpeak_bytes\n");
}

static int log_token(work *w, double seconds, double processor) {
    token_times *p = &w->token_times;
    p->seconds[p->count] = seconds;
    p->processor[p->count++] = processor;
    if (p->count < LOG_TOKENS) return CLI_DONE;
    p->count = 0;
    return cli_output_print(
        &p->log, "%lld\t%.4f\t%.4f\t%zu\t%lld\n", (long long)plsh_session_length(w->session),
        1e3 * median(p->seconds, LOG_TOKENS), 1e3 * median(p->processor, LOG_TOKENS),
        plsh_session_cache_bytes(w->session), (long long)cli_peak_bytes());
}

static int paced_token(const settings *given, work *w) {
    if (w->token_times.log.file == NULL) return next_token(given, w);
    const double start = plsh_clock_seconds(), processor = processor_seconds();
    int code = next_token(given, w);
    if (code == CLI_DONE)
        code = log_token(w, plsh_clock_seconds() - start, processor_seconds() - processor);
    return code;
}

static int decode(const settings *given, work *w) {
    double start = plsh_clock_seconds();
    int code = CLI_DONE;
    plsh_error error;
    while (code == CLI_DONE && w->text.finish == NULL && !interrupted &&
           w->text.made < w->rules.tokens)
        code = paced_token(given, w);
    w->decode = plsh_clock_seconds() - start;
    if (code == CLI_DONE && w->text.finish == NULL &&
        cli_continuation_end(&w->rules, &w->text, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE) print_text(given, w);
    return code;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

static void print_likely(const work *w, cli_json *json) {
    cli_json_begin_array(json, "logprobs");
    for (int64_t i = 0; i < w->text.made; i++) {
        const likely *l = &w->likely[i];
        cli_json_begin_object(json, NULL);
        cli_json_integer(json, "id", w->text.ids[w->text.prompt + i]);
        cli_json_number(json, "logprob", l->own);
        cli_json_begin_array(json, "top");
        for (int64_t j = 0; j < l->count; j++) {
            cli_json_begin_object(json, NULL);
            cli_json_integer(json, "id", l->ids[j]);
            cli_json_number(json, "logprob", l->logprobs[j]);
            cli_json_end(json);
        }
        cli_json_end(json);
        cli_json_end(json);
    }
    cli_json_end(json);
}

static int print_result(const settings *given, const work *w) {
    const double prompt = rate((double)w->prefilled, w->prefill);
    const cli_continuation *text = &w->text;
    const double made = rate((double)text->made, w->decode);
    const size_t bytes = plsh_session_cache_bytes(w->session);
    if (!given->lm.common.json) {
        printf("\n");
        cli_note(
            "%lld of %zu token%s of prompt at %.4g per second, %lld new at %.4g; caches %.4g MB",
            (long long)w->prefilled, w->prompt.count, w->prompt.count == 1 ? "" : "s", prompt,
            (long long)text->made, made, (double)bytes / 1e6);
        if (given->generate.temperature > 0)
            cli_note("drawn with --seed %llu%s; another seed gives another text",
                     (unsigned long long)given->lm.common.seed,
                     cli_option_given("seed") ? "" : ", the default");
        return CLI_DONE;
    }
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "model", given->lm.model.model);
    cli_json_text(json, "attention", w->model.described);
    cli_json_text(json, "compute", w->model.compute);
    cli_json_bytes(json, "text", text->text.length > 0 ? text->text.bytes : "", text->text.length);
    cli_json_begin_array(json, "ids");
    for (int64_t i = 0; i < text->made; i++)
        cli_json_integer(json, NULL, text->ids[text->prompt + i]);
    cli_json_end(json);
    if (given->generate.logprobs > 0) print_likely(w, json);
    if (given->generate.temperature > 0) cli_json_unsigned(json, "seed", given->lm.common.seed);
    cli_json_integer(json, "prompt_tokens", (int64_t)w->prompt.count);
    cli_json_integer(json, "prefilled_tokens", w->prefilled);
    cli_json_number(json, "prefill_tokens_per_second", prompt);
    cli_json_number(json, "tokens_per_second", made);
    cli_json_integer(json, "cache_bytes", (int64_t)bytes);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    cli_json_boolean(json, "interrupted", interrupted != 0);
    return cli_document_end(json);
}

/* Keeps the session in its file, with all tokens that were made. */
static int save_session(const settings *given, work *w) {
    if (given->generate.session == NULL) return CLI_DONE;
    const int64_t fed = plsh_session_length(w->session) - w->kept - (int64_t)w->prompt.count;
    plsh_error error;
    const plsh_step step = {.ids = w->text.ids + w->text.prompt + fed, .count = w->text.made - fed};
    if ((fed >= 0 && step.count > 0 &&
         plsh_session_step(w->session, &step, &error) != PLSH_STATUS_OK) ||
        plsh_session_save(w->session, given->generate.session, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return CLI_DONE;
}

static int continue_prompt(const settings *given, work *w) {
    int code = prepare_generate(given, w);
    if (code == CLI_DONE) code = open_log(given, &w->token_times);
    if (code == CLI_DONE) code = prefill(given, w, w->prompt.ids, (int64_t)w->prompt.count);
    if (code == CLI_DONE && !interrupted) code = decode(given, w);
    if (code == CLI_DONE) code = save_session(given, w);
    if (code == CLI_DONE) code = print_result(given, w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->token_times.log, 1);
    cli_outputs_abandon(&w->token_times.log, 1);
    return code;
}

/* ---- a conversation ---- */

typedef struct conversation {
    plsh_chat_message *messages; /* their content is owned */
    int64_t count;
} conversation;

static int add_message(conversation *t, const char *role, const char *bytes, size_t length) {
    plsh_chat_message *grown = realloc(t->messages, (size_t)(t->count + 1) * sizeof *grown);
    char *copy = malloc(length + 1);
    if (grown != NULL) t->messages = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return cli_fail("out of memory");
    }
    if (length > 0) memcpy(copy, bytes, length);
    t->messages[t->count++] = (plsh_chat_message){role, {copy, length}};
    return CLI_DONE;
}

/* The session holds the conversation so far. Drops the tokens from the first one that the template
 * now writes differently.
 */
static int rewind_session(const settings *given, work *w, const plsh_token_ids *ids) {
    int64_t same = 0;
    const int64_t held = plsh_session_length(w->session);
    plsh_error error;
    while (same < held && same + 1 < (int64_t)ids->count && ids->ids[same] == w->text.ids[same])
        same++;
    if (same < held && plsh_session_truncate(w->session, same, &error) != PLSH_STATUS_OK) {
        plsh_session_destroy(w->session);
        w->session = NULL;
        same = 0;
        const plsh_session_options options = cli_model_session(&given->lm, &w->model);
        if (plsh_session_create(&w->session, w->model.model, &options, &error) != PLSH_STATUS_OK)
            return cli_fail_error(&error);
    }
    w->kept = same;
    return CLI_DONE;
}

static int answer(const settings *given, work *w, conversation *t) {
    plsh_token_ids ids = {0};
    plsh_error error;
    int code = CLI_DONE;
    if (plsh_chat_ids(w->chat, t->messages, t->count, true, &ids, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    code = rewind_session(given, w, &ids);
    if (code == CLI_DONE) code = begin_text(w, &ids);
    if (code == CLI_DONE) code = prefill(given, w, ids.ids + w->kept, w->text.prompt - w->kept);
    plsh_token_ids_free(&ids);
    if (code == CLI_DONE && !interrupted) code = decode(given, w);
    if (code == CLI_DONE)
        code = add_message(t, "assistant", w->text.text.bytes, w->text.text.length);
    printf("\n");
    fflush(stdout);
    return code;
}

/* Lines of the user until the end of the input. Ctrl-C ends an answer. */
static int converse(const settings *given, work *w) {
    conversation t = {0};
    char *line = NULL;
    size_t capacity = 0;
    const char *system = given->generate.system;
    int code = open_session(given, w);
    if (code == CLI_DONE && system != NULL)
        code = add_message(&t, "system", system, strlen(system));
    if (code == CLI_DONE) cli_model_announce(&w->model);
    if (code == CLI_DONE) cli_note("a conversation; Ctrl-C ends an answer, Ctrl-D ends this");
    while (code == CLI_DONE) {
        fputs("> ", stderr);
        interrupted = 0;
        const ssize_t length = getline(&line, &capacity, stdin);
        if (length < 0) break;
        if (length <= 1) continue;
        code = add_message(&t, "user", line, (size_t)length - (line[length - 1] == '\n'));
        if (code == CLI_DONE) code = answer(given, w, &t);
    }
    for (int64_t i = 0; i < t.count; i++) free((char *)t.messages[i].content.bytes);
    free(t.messages);
    free(line);
    return code;
}

/* --prompts */
static int continue_prompts(const settings *given, const work *w) {
    const generate_options *options = &given->generate;
    const cli_prompts prompts = {.options = &given->lm,
                                 .model = &w->model,
                                 .chat = w->chat,
                                 .system = options->system,
                                 .path = options->prompts,
                                 .rules = w->rules,
                                 .begins = !options->special && !options->no_bos,
                                 .special = options->special,
                                 .interrupted = &interrupted};
    return options->tokens > 0 ? cli_prompts_generate(&prompts)
                               : cli_usage("--prompts: --tokens has to be at least 1");
}

static int run_generate(const void *given) {
    const settings *options = given;
    work w = {0};
    int code = open_model(options, &w);
    struct sigaction action = {.sa_handler = interrupt};
    if (code == CLI_DONE) sigaction(SIGINT, &action, NULL);
    if (code == CLI_DONE)
        code = options->generate.prompts != NULL ? continue_prompts(options, &w)
               : is_conversation(options)        ? converse(options, &w)
                                                 : continue_prompt(options, &w);
    plsh_token_stream_free(w.text.stream);
    plsh_session_destroy(w.session);
    plsh_chat_close(w.chat);
    plsh_token_ids_free(&w.prompt);
    free(w.text.ids);
    free(w.likely);
    free(w.stops);
    plsh_token_text_free(&w.text.text);
    free(w.text.logits);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_generate = {
    .name = "generate",
    .summary = "continues a prompt",
    .text = "Continues a prompt token after token and prints the text as it comes. With window or "
            "plsh on every layer memory and time per token do not grow with the text. Ctrl-C ends "
            "the text.",
    .example = "plsh generate --model model --prompt 'The capital of France is' --tokens 20\n"
               "plsh generate --model model --prompt 'Once upon a time' --temperature 0.8 "
               "--top-p 0.95 --attention window --window 1024 --sigma 256",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_generate,
};
