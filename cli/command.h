/* cli: the struct of a command. Its options are declared once, in tables; parsing, help, man page
 * and completion all read them. */
#ifndef PLSH_CLI_COMMAND_H
#define PLSH_CLI_COMMAND_H

#include "plsh/status.h"

typedef enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_INTEGER,  /* int64_t */
    CLI_SEED,     /* uint64_t */
    CLI_REAL,     /* double */
    CLI_TEXT,     /* const char *; NULL where it was not given */
    CLI_FILE,     /* the same; completed as a file name */
    CLI_CHOICE,   /* int: the index in `choices`; -1 where it was not given and has no fallback */
    CLI_INTEGERS, /* cli_integers */
    CLI_REALS,    /* cli_reals */
    CLI_WORDS     /* cli_words: comma separated, each one of `choices` where there are any; \, is a
                     comma within a word, \\ a backslash */
} cli_kind;

/* Lists; count = 0 where the option was not given and has no fallback. */
typedef struct cli_integers {
    size_t count;
    int64_t *values;
} cli_integers;

typedef struct cli_reals {
    size_t count;
    double *values;
} cli_reals;

typedef struct cli_words {
    size_t count;
    char **values;
} cli_words;

/* The range of a number: least <= x <= most (above: least < x; below: x < most). If both are 0
 * there is no limit. */
typedef struct cli_range {
    double least, most;
    bool above, below;
} cli_range;

/* Between which runs and ranks the value of an option may differ. */
typedef enum cli_varies {
    CLI_FIXED,   /* none: every rank, and every part of a run of plsh train, has the same */
    CLI_BY_RUN,  /* between the parts of a run that --resume continues */
    CLI_BY_RANK, /* also between ranks: names of files whose contents are compared, and options
                    without effect on results */
} cli_varies;

typedef struct cli_option {
    const char *name;                    /* without the dashes */
    cli_kind kind;                       /* the type of the member that `offset` names */
    size_t offset;                       /* in the group's struct */
    const char *value;                   /* what the help calls the value: "N", "FILE", "LIST" */
    const char *help;                    /* one line, without a full stop */
    const char *fallback;                /* parsed like a given value; NULL: none */
    const char *const *(*choices)(void); /* NULL: any; the list has NULL at its end */
    cli_range range;
    bool required;
    cli_varies varies;
    /* CLI_TEXT, CLI_FILE: translates the value into what the command gets, which lives until the
     * program ends; returns NULL after a message. NULL: the command gets the value as given. */
    const char *(*resolve)(const char *value);
} cli_option;

/* Options that belong together and fill one struct, `offset` bytes into the command's settings. */
typedef struct cli_group {
    const char *title;
    const cli_option *options;
    size_t count;
    size_t offset;
} cli_group;

typedef struct cli_command cli_command;

struct cli_command {
    const char *name;
    const char *summary; /* one line */
    const char *text;    /* what it does, for --help and the man page */
    const char *example; /* one or more complete commands, one per line; the tests run them */
    const cli_group *groups;
    size_t group_count;
    size_t settings_size;
    int (*run)(const void *settings); /* the exit code */
    /* Options from the file that --config names, before those of the command line; NULL: none. */
    int (*configure)(const cli_command *command, const char *path, void *settings);
    bool over_ranks; /* runs on the ranks of plsh-mpi; others in one process only */
};

#define CLI_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CLI_MEMBER(type, member) .offset = offsetof(type, member)
#define CLI_GROUP(group_title, table, settings, member)                                            \
    { (group_title), (table), CLI_COUNT(table), offsetof(settings, member) }

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* All commands, NULL at the end. */
extern const cli_command *const cli_commands[];

/* Fills `settings` (zeroed, of the command's size) from the arguments after the command's name.
 * CLI_DONE, or CLI_USAGE after a message. --help is for the caller to look for first. */
int cli_parse(const cli_command *command, int argc, char **argv, void *settings);
void cli_settings_free(const cli_command *command, void *settings);

/* One option of a command by its name, without dashes; the value of a flag is not looked at. */
int cli_parse_option(const cli_command *command, const char *name, const char *value,
                     void *settings);

/* Was this option given, on the command line or in the file of --config? True also if the given
 * value equals the fallback. */
bool cli_option_given(const char *name);

/* Reads one value of an option into the member of its kind. */
int cli_parse_value(const cli_option *option, const char *text, void *member);

/* The word of a list that `word` is probably a misspelling of; NULL: none is near enough. */
const char *cli_nearest(const char *word, const char *const *words, size_t count);

/* Of the whole program, for its help and man page. */
extern const char cli_program_example[];

/* Help for people, man pages, completion: all from the tables. */
void cli_help_program(void);
void cli_help_command(const cli_command *command);
int cli_manual_write(const char *directory);
void cli_completion_print(void);
void cli_examples_print(void);

#endif
