/* cli: plsh convert: weights from one form to another. */
#include "cli/commands.h"
#include "cli/lm/model.h"
#include "cli/message.h"
#include "cli/options.h"

#include "plsh/convert.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct convert_options {
    const char *model;
    const char *adapter;
    const char *family;
    const char *out;
    int type;
} convert_options;

typedef struct settings {
    convert_options convert;
    cli_common common;
} settings;

static const char *const types[] = {"f32",  "f16",  "bf16", "q8_0", "q6_k",
                                    "q5_0", "q4_k", "q4_1", "q4_0", NULL};

static const char *const *list_types(void) { return types; }

static const cli_option convert_table[] = {
    {.name = "model",
     .kind = CLI_FILE,
     CLI_MEMBER(convert_options, model),
     .value = "PATH",
     .resolve = cli_hub_resolve,
     .help = "a folder (config.json, safetensors or pytorch_model.bin) or a .gguf file",
     .required = true},
    {.name = "adapter",
     .kind = CLI_FILE,
     CLI_MEMBER(convert_options, adapter),
     .value = "DIR",
     .help = "a PEFT adapter that is merged in: W += scale B A"},
    {.name = "family",
     .kind = CLI_TEXT,
     CLI_MEMBER(convert_options, family),
     .value = "NAME",
     .help = CLI_FAMILY_HELP},
    {.name = "type",
     .kind = CLI_CHOICE,
     CLI_MEMBER(convert_options, type),
     .value = "TYPE",
     .help = "type of the weights; the q types in a .gguf only",
     .fallback = "f16",
     .choices = list_types},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(convert_options, out),
     .value = "PATH",
     .help = "a file that ends in .gguf, or else a folder",
     .required = true},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", convert_table, settings, convert),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

/* A signal stops the conversion, which removes its temporary files; then the signal is raised
 * again.
 * */
static volatile sig_atomic_t caught;

static void remember(int number) { caught = number; }

static void catch_signals(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction before, ours = {.sa_handler = remember, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < CLI_COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &ours, NULL);
}

static bool show(void *begun, size_t done, size_t total) {
    if (!*(bool *)begun) cli_progress_begin((double)total * 1e-6, "MB");
    *(bool *)begun = true;
    cli_progress((double)done * 1e-6);
    return caught == 0;
}

static int print_json(const plsh_converted *converted) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_integer(json, "tensors", (int64_t)converted->tensors);
    cli_json_integer(json, "bytes", (int64_t)converted->bytes);
    cli_json_integer(json, "as_f16", (int64_t)converted->as_f16);
    cli_json_integer(json, "as_blocks_of_32", (int64_t)converted->as_blocks_of_32);
    return cli_document_end(json);
}

/* Reports the rule that decided on a family where the files do not name it. A model that cannot be
 * opened may still be copied, so a failure is ignored here. */
static void announce_family(const convert_options *c) {
    plsh_model *model;
    plsh_error error;
    const plsh_model_options options = {.family = c->family};
    if (plsh_model_open(&model, c->model, &options, &error) != PLSH_STATUS_OK) return;
    const plsh_model_facts facts = plsh_model_describe(model);
    if (facts.rule != NULL) cli_note("family: %s: %s", facts.family, facts.rule);
    plsh_model_close(model);
}

static int run_convert(const void *given) {
    const settings *options = given;
    const convert_options *c = &options->convert;
    plsh_weight_type type;
    plsh_error error;
    plsh_converted converted;
    bool begun = false;
    if (plsh_weight_type_find(types[c->type], &type, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    catch_signals();
    const plsh_convert_options wanted = {.model = c->model,
                                         .adapter = c->adapter,
                                         .family = c->family,
                                         .type = type,
                                         .out = c->out,
                                         .progress = show,
                                         .context = &begun};
    plsh_status status = plsh_convert(&wanted, &converted, &error);
    if (begun) cli_progress_end();
    if (caught) raise(caught);
    if (status != PLSH_STATUS_OK) return cli_fail_error(&error);
    announce_family(c);
    if (converted.as_f16 > 0)
        cli_note("%zu matrices are f16: their rows are not a whole number of blocks of %s",
                 converted.as_f16, types[c->type]);
    if (converted.as_blocks_of_32 > 0)
        cli_note("%zu matrices are %s: their rows are not a whole number of blocks of %s",
                 converted.as_blocks_of_32, type == PLSH_WEIGHT_Q4_K ? "q5_0 or q8_0" : "q8_0",
                 types[c->type]);
    if (options->common.json) return print_json(&converted);
    cli_note("%s: %zu tensor%s, %.1f MB", c->out, converted.tensors,
             converted.tensors == 1 ? "" : "s", (double)converted.bytes * 1e-6);
    return CLI_DONE;
}

const cli_command cli_command_convert = {
    .name = "convert",
    .summary = "converts weights between safetensors and GGUF, and between types",
    .text = "Reads a model from a folder or a GGUF file and writes it as a folder (safetensors) or "
            "a GGUF file, in the given --type, with an --adapter merged in. Between a folder and a "
            "GGUF file it converts Llama, Mistral, Qwen2, Qwen3, BLOOM, MPT, Baichuan, Jais, BTLM, "
            "Refact, BERT and JinaBERT (not their classifiers and rerankers), with the names and "
            "row order of llama.cpp.",
    .example = "plsh convert --model model --type q8_0 --out model.gguf",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_convert,
};
