/* cli: man pages and bash completion, from the option tables. */
#include "cli/command.h"
#include "cli/message.h"

#include "plsh/io.h"
#include "plsh/version.h"

#include <stdio.h>
#include <stdlib.h>

/* Text in roff: dashes stay dashes, and no line begins a request. */
static void put_roff(FILE *file, const char *text) {
    bool line_start = true;
    for (const char *c = text; *c != '\0'; c++) {
        if (line_start && (*c == '.' || *c == '\'')) fputs("\\&", file);
        if (*c == '-')
            fputs("\\-", file);
        else if (*c == '\\')
            fputs("\\e", file);
        else
            fputc(*c, file);
        line_start = *c == '\n';
    }
}

static void put_option(FILE *file, const cli_option *option) {
    fputs(".TP\n\\fB\\-\\-", file);
    put_roff(file, option->name);
    fputs("\\fR", file);
    if (option->value != NULL) fprintf(file, " \\fI%s\\fR", option->value);
    fputc('\n', file);
    put_roff(file, option->help);
    if (option->choices != NULL)
        for (const char *const *choice = option->choices(); *choice != NULL; choice++) {
            fputs(choice != option->choices() ? ", " : ": ", file);
            put_roff(file, *choice);
        }
    if (option->fallback != NULL) {
        fputs(" (default ", file);
        put_roff(file, option->fallback);
        fputs(")", file);
    }
    fputs(".\n", file);
}

static void put_title(FILE *file, const char *name, const char *summary) {
    fprintf(file, ".TH \"%s\" 1 \"\" \"plsh %s\" \"plsh\"\n.SH NAME\n", name, plsh_version());
    put_roff(file, name);
    fputs(" \\- ", file);
    put_roff(file, summary);
    fputc('\n', file);
}

static void put_command_page(FILE *file, const cli_command *command) {
    char name[64];
    snprintf(name, sizeof name, "plsh-%s", command->name);
    put_title(file, name, command->summary);
    fprintf(file, ".SH SYNOPSIS\n.B plsh %s\n[\\fIoptions\\fR]\n", command->name);
    if (command->over_ranks)
        fprintf(file, ".br\n.B mpirun \\-np\n\\fIranks\\fR\n.B plsh\\-mpi %s\n[\\fIoptions\\fR]\n",
                command->name);
    fputs(".SH DESCRIPTION\n", file);
    put_roff(file, command->text);
    fputc('\n', file);
    for (size_t g = 0; g < command->group_count; g++) {
        fputs(".SH \"", file);
        for (const char *c = command->groups[g].title; *c != '\0'; c++)
            fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, file);
        fputs("\"\n", file);
        for (size_t i = 0; i < command->groups[g].count; i++)
            put_option(file, &command->groups[g].options[i]);
    }
    fputs(".SH EXAMPLE\n.nf\n", file);
    put_roff(file, command->example);
    fputs("\n.fi\n.SH SEE ALSO\n.BR plsh (1)\n", file);
}

static void put_program_page(FILE *file) {
    put_title(file, "plsh", "attention with linear biases in near-linear time");
    fputs(".SH SYNOPSIS\n.B plsh\n\\fIcommand\\fR [\\fIoptions\\fR]\n.br\n.B plsh\n"
          "\\fIcommand\\fR \\fB\\-\\-help\\fR\n.SH COMMANDS\n",
          file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(file, ".TP\n.BR plsh\\-%s (1)\n", cli_commands[i]->name);
        put_roff(file, cli_commands[i]->summary);
        fputc('\n', file);
    }
    fputs(".SH EXIT STATUS\n0: done. 1: failed, with one line on stderr. 2: bad usage.\n"
          ".SH EXAMPLE\n.nf\n",
          file);
    put_roff(file, cli_program_example);
    fputs("\n.fi\n.SH ENVIRONMENT\n.TP\n.B PLSH_ISA\nThe instruction set to use, as \\-\\-isa.\n"
          ".TP\n.B PLSH_THREADS, OMP_NUM_THREADS\nThe number of threads, unless \\-\\-threads is "
          "given; the first counts.\n",
          file);
}

/* One page; `command` is NULL for the program's own. */
static int write_page(const char *directory, const cli_command *command) {
    char path[1024];
    snprintf(path, sizeof path, "%s/plsh%s%s.1", directory, command != NULL ? "-" : "",
             command != NULL ? command->name : "");
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (file == NULL) return cli_fail("out of memory");
    if (command != NULL)
        put_command_page(file, command);
    else
        put_program_page(file);
    plsh_error error;
    int code = CLI_DONE;
    if (fclose(file) != 0)
        code = cli_fail("%s: out of memory", path);
    else if (plsh_file_save(path, text, length, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    free(text);
    return code;
}

int cli_manual_write(const char *directory) {
    int code = write_page(directory, NULL);
    for (size_t i = 0; cli_commands[i] != NULL && code == CLI_DONE; i++)
        code = write_page(directory, cli_commands[i]);
    return code;
}

static void print_option_names(const cli_command *command) {
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++)
            printf(" --%s", command->groups[g].options[i].name);
    printf(" --help");
}

/* The completions of an option: its choices, a file name, or none. */
static void print_option_values(const cli_command *command) {
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++) {
            const cli_option *option = &command->groups[g].options[i];
            if (option->kind == CLI_FLAG) continue;
            printf("        %s:--%s) ", command->name, option->name);
            if (option->kind == CLI_FILE) {
                printf("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"));;\n");
                continue;
            }
            printf("COMPREPLY=($(compgen -W \"");
            const char *const *choices = option->choices != NULL ? option->choices() : NULL;
            for (size_t k = 0; choices != NULL && choices[k] != NULL; k++)
                printf("%s%s", k > 0 ? " " : "", choices[k]);
            printf("\" -- \"$word\"));;\n");
        }
}

void cli_completion_print(void) {
    printf("# bash completion for plsh, generated from its option tables\n"
           "_plsh() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}\n"
           "    local previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "    COMPREPLY=()\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; cli_commands[i] != NULL; i++) printf("%s ", cli_commands[i]->name);
    printf("--help --version\" -- \"$word\"))\n"
           "        return\n"
           "    fi\n"
           "    case $command:$previous in\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) print_option_values(cli_commands[i]);
    printf("        *)\n            case $command in\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        printf("                %s) words=\"", cli_commands[i]->name);
        print_option_names(cli_commands[i]);
        printf("\";;\n");
    }
    printf("            esac\n"
           "            COMPREPLY=($(compgen -W \"$words\" -- \"$word\"));;\n"
           "    esac\n"
           "}\n"
           "complete -F _plsh plsh\n");
}
