/* cli: the program: finds the command, reads its options, runs it. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/message.h"
#include "cli/options.h"
#include "cli/ranks.h"

#include "plsh/version.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_command *const cli_commands[] = {&cli_command_attend,
                                           &cli_command_bench,
                                           &cli_command_draw,
                                           &cli_command_error,
                                           &cli_command_info,
                                           &cli_command_norms,
                                           &cli_command_plan,
                                           &cli_command_report,
#if PLSH_WITH_LM
                                           &cli_command_classify,
                                           &cli_command_convert,
                                           &cli_command_embed,
                                           &cli_command_forward,
                                           &cli_command_generate,
                                           &cli_command_perplexity,
                                           &cli_command_rerank,
                                           &cli_command_tokenize,
                                           &cli_command_train,
#endif
#if PLSH_WITH_SERVE
                                           &cli_command_serve,
#endif
                                           NULL};

static const cli_command *find_command(const char *name) {
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[CLI_COUNT(cli_commands)];
    size_t count = 0;
    for (; cli_commands[count] != NULL; count++) names[count] = cli_commands[count]->name;
    const char *nearest = cli_nearest(name, names, count);
    if (nearest != NULL)
        return cli_usage("there is no command \"%s\"; did you mean \"%s\"?", name, nearest);
    return cli_usage("there is no command \"%s\"; plsh --help lists them", name);
}

static bool asks_help(const char *argument) {
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* "plsh help [command]", and the man pages and completions for the build. */
static int run_help(int argc, char **argv) {
    if (argc == 0) return cli_help_program(), CLI_DONE;
    if (strcmp(argv[0], "--bash") == 0) return cli_completion_print(), CLI_DONE;
    if (strcmp(argv[0], "--examples") == 0) return cli_examples_print(), CLI_DONE;
    if (strcmp(argv[0], "--man") == 0) {
        if (argc != 2) return cli_usage("--man needs a value: the folder for the pages");
        return cli_manual_write(argv[1]);
    }
    const cli_command *command = find_command(argv[0]);
    if (command == NULL) return unknown_command(argv[0]);
    return cli_help_command(command), CLI_DONE;
}

static int run_command(const cli_command *command, int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (asks_help(argv[i])) return cli_help_command(command), CLI_DONE;
    if (cli_rank_count() > 1 && !command->over_ranks)
        return cli_usage("it runs in one process; plsh-mpi has %d here", cli_rank_count());
    void *settings = calloc(1, command->settings_size);
    if (settings == NULL) return cli_fail("out of memory");
    int code = cli_parse(command, argc, argv, settings);
    if (code == CLI_DONE) {
        const cli_common *common = cli_common_of(command, settings);
        cli_message_begin(command->name, common->quiet);
        code = cli_common_check(common);
        if (code == CLI_DONE) code = command->run(settings);
    }
    cli_settings_free(command, settings);
    free(settings);
    return code;
}

static int run_command_line(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error like a full disk */
    if (argc < 2) {
        cli_say("which command? plsh --help lists them");
        return CLI_USAGE;
    }
    if (asks_help(argv[1])) return cli_help_program(), CLI_DONE;
    if (strcmp(argv[1], "--version") == 0) return printf("plsh %s\n", plsh_version()), CLI_DONE;
    if (strcmp(argv[1], "help") == 0) {
        cli_message_begin("help", false);
        return run_help(argc - 2, argv + 2);
    }
    const cli_command *command = find_command(argv[1]);
    if (command == NULL) return unknown_command(argv[1]);
    cli_message_begin(command->name, false);
    return run_command(command, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    cli_ranks_begin(&argc, &argv);
    return cli_ranks_end(cli_finish(run_command_line(argc, argv)));
}
