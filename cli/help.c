/* cli: help for people, from the option tables. */
#include "cli/command.h"

#include "plsh/version.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 96 };

/* Prints words up to WIDTH columns, further lines indented by `indent`; `column` is where the
 * cursor stands. A newline in the text stays one. */
static void wrap(const char *text, int column, int indent) {
    while (*text != '\0') {
        size_t length = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)length > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += (int)length;
        text += length;
        if (*text == '\n') {
            printf("\n%*s", text[1] == '\0' ? 0 : indent, "");
            column = indent;
        }
        if (*text != '\0') text++;
    }
    putchar('\n');
}

static int label_length(const cli_option *option) {
    size_t length = strlen(option->name);
    if (option->value != NULL) length += 1 + strlen(option->value);
    return (int)length + 2;
}

static void print_option(const cli_option *option, int column) {
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", option->help);
    if (option->choices != NULL) {
        const char *const *choices = option->choices();
        for (size_t i = 0; choices[i] != NULL && used < sizeof text; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : ": ",
                                     choices[i]);
    }
    if (option->fallback != NULL && used < sizeof text)
        snprintf(text + used, sizeof text - used, " (default %s)", option->fallback);
    if (option->required && used < sizeof text)
        snprintf(text + used, sizeof text - used, " (required)");
    printf("  --%s%s%s%*s", option->name, option->value != NULL ? " " : "",
           option->value != NULL ? option->value : "", column - label_length(option) - 2, "");
    wrap(text, column, column);
}

const char cli_program_example[] =
    "plsh attend --random 8,2000,64 --causal --method exact --out o.npy --certify bound.npy\n"
    "plsh bench --n 2048 --heads 2 --causal --reps 2";

static void print_example(const char *example) {
    printf("\nExample\n  ");
    for (const char *c = example; *c != '\0'; c++) *c == '\n' ? printf("\n  ") : putchar(*c);
    putchar('\n');
}

void cli_help_command(const cli_command *command) {
    printf("plsh %s - %s\n\nusage: plsh %s [options]\n", command->name, command->summary,
           command->name);
    if (command->over_ranks)
        printf("       mpirun -np RANKS plsh-mpi %s [options]\n", command->name);
    putchar('\n');
    wrap(command->text, 0, 0);
    int column = 0;
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++) {
            int length = label_length(&command->groups[g].options[i]);
            if (length + 4 > column) column = length + 4;
        }
    for (size_t g = 0; g < command->group_count; g++) {
        printf("\n%s\n", command->groups[g].title);
        for (size_t i = 0; i < command->groups[g].count; i++)
            print_option(&command->groups[g].options[i], column);
    }
    print_example(command->example);
}

void cli_help_program(void) {
    printf("plsh %s - attention with linear biases (ALiBi) in near-linear time\n\n"
           "usage: plsh <command> [options]\n"
           "       plsh <command> --help, plsh --version\n\nCommands\n",
           plsh_version());
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        printf("  %-12s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    print_example(cli_program_example);
    printf("\nExit codes: 0 done, 1 failed, 2 bad usage. Results go to stdout, messages to "
           "stderr.\n");
}

void cli_examples_print(void) {
    printf("%s\n", cli_program_example);
    for (size_t i = 0; cli_commands[i] != NULL; i++) printf("%s\n", cli_commands[i]->example);
}
