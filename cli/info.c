/* cli: plsh info: the features of this machine and this build. */
#include "cli/commands.h"
#if PLSH_WITH_LM
#include "cli/lm/model.h"
#endif
#include "cli/message.h"
#include "cli/options.h"

#include "bench/bench.h"
#include "plsh/attention.h"
#include "plsh/thread.h"
#include "plsh/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct info_options {
    const char *model;
} info_options;

typedef struct settings {
    info_options info;
    cli_common common;
} settings;

#if PLSH_WITH_LM
static const cli_option info_table[] = {
    {.name = "model",
     .kind = CLI_FILE,
     CLI_MEMBER(info_options, model),
     .value = "PATH",
     .resolve = cli_hub_resolve,
     .help = "describe this model instead: a folder, a .gguf file, or owner/name of a model "
             "in the local Hugging Face cache"},
};
#endif

static const cli_group groups[] = {
#if PLSH_WITH_LM
    CLI_GROUP("Options", info_table, settings, info),
#endif
    CLI_GROUP("Common options", cli_common_options, settings, common)};

/* The processor's name as the kernel reports it; empty if it reports none. */
static void processor_name(char *out, size_t size) {
    char line[512];
    out[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return;
    while (out[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        snprintf(out, size, "%s", colon + 2);
        out[strcspn(out, "\n")] = '\0';
    }
    fclose(file);
}

static const char *compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

static bool has_amx(void) { return strcmp(plsh_isa_available()[0], "amx") == 0; }

/* Text or, if there is none, a number; both may be missing. */
typedef struct fact {
    const char *key, *text;
    int64_t number;
} fact;

static void put_fact(cli_json *json, const fact *f) {
    if (json != NULL && f->number != 0)
        cli_json_integer(json, f->key, f->number);
    else if (json != NULL)
        cli_json_text(json, f->key, f->text);
    else if (f->number != 0)
        printf("%-14s %lld\n", f->key, (long long)f->number);
    else
        printf("%-14s %s\n", f->key, f->text != NULL ? f->text : "-");
}

static int run_info(const void *given) {
    const settings *options = given;
    char name[256], available[256] = "";
#if PLSH_WITH_LM
    if (options->info.model != NULL) return cli_model_info(options->info.model, &options->common);
#endif
    processor_name(name, sizeof name);
    for (const char *const *isa = plsh_isa_available(); *isa != NULL; isa++) {
        size_t used = strlen(available);
        snprintf(available + used, sizeof available - used, "%s%s", used > 0 ? " " : "", *isa);
    }
    const fact facts[] = {
        {"version", plsh_version(), 0},
        {"processor", name[0] != '\0' ? name : NULL, 0},
        {"cores", NULL, sysconf(_SC_NPROCESSORS_ONLN)},
        {"threads", NULL, plsh_thread_count(0)},
        {"threads_from", options->common.threads > 0 ? "--threads" : plsh_thread_default_source(),
         0},
        {"isa", cli_common_isa(&options->common), 0},
        {"isa_available", available, 0},
        {"amx",
         has_amx() ? "used; untested on such processors: PLSH_ISA=avx512 does without" : NULL, 0},
        {"compiler", compiler(), 0},
        {"openblas", bench_blas_config(), 0},
    };
    cli_json *json = options->common.json ? cli_document_begin() : NULL;
    if (options->common.json && json == NULL) return CLI_FAILED;
    for (size_t i = 0; i < CLI_COUNT(facts); i++) put_fact(json, &facts[i]);
    return json != NULL ? cli_document_end(json) : CLI_DONE;
}

const cli_command cli_command_info = {
    .name = "info",
    .summary = "shows the processor, the instruction set in use, threads and versions",
    .text =
        "Shows what plsh found on this machine and what it was built with: the facts that "
        "belong beside every measurement. With --model: format, family, sizes, types of tensors, "
        "tokenizer and chat template of a model's files.",
    .example = "plsh info",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_info,
};
