/* cli: the files a command writes. */
#include "cli/output.h"

#include "cli/command.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files that a signal handler has to remove; names are copies, because a file may be freed
 * meanwhile. */
static struct {
    atomic_bool there;
    char name[PATH_MAX + 64];
} pending[CLI_OUTPUTS_MOST];

/* While a file is made its name is not known here: the signal waits. Each side writes its own
 * variable and then reads the other's, so at least one of them sees that both are set. */
static atomic_bool opening;
static atomic_int waiting;

void cli_outputs_remove(void) {
    for (size_t i = 0; i < CLI_COUNT(pending); i++)
        if (atomic_load(&pending[i].there)) unlink(pending[i].name);
}

/* SA_RESETHAND: the signal is raised again and then ends the program, as it would without this
 * handler. */
static void remove_pending(int number) {
    atomic_store(&waiting, number);
    if (atomic_load(&opening)) return;
    cli_outputs_remove();
    raise(number);
}

/* A signal that is ignored (nohup) stays ignored. */
static void catch_signals(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM};
    struct sigaction before, ours = {.sa_handler = remove_pending, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < CLI_COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &ours, NULL);
}

/* The name of a file in its folder. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool folder_of(const char *path, struct stat *about) {
    char folder[PATH_MAX + 2];
    snprintf(folder, sizeof folder, "%.*s.", (int)(name_of(path) - path), path);
    return stat(folder, about) == 0;
}

/* Do two paths name the same file? Links have been followed. */
static bool same_file(const plsh_file *a, const plsh_file *b) {
    struct stat x, y;
    const char *p = plsh_file_path(a), *q = plsh_file_path(b);
    return strcmp(name_of(p), name_of(q)) == 0 && folder_of(p, &x) && folder_of(q, &y) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_files(const cli_output *outputs, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (outputs[i].file != NULL && outputs[j].file != NULL &&
                same_file(outputs[i].file, outputs[j].file))
                return cli_usage("%s is named for two outputs; give each a file", outputs[i].path);
    return CLI_DONE;
}

static int open_files(cli_output *outputs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        plsh_error error;
        if (outputs[i].path == NULL) continue;
        if (plsh_file_create(&outputs[i].file, outputs[i].path, &error) != PLSH_STATUS_OK)
            return cli_fail_error(&error);
        const char *name = plsh_file_temporary(outputs[i].file);
        if (name == NULL) continue;
        snprintf(pending[i].name, sizeof pending[i].name, "%s", name);
        atomic_store(&pending[i].there, true);
    }
    return check_files(outputs, count);
}

int cli_outputs_open(cli_output *outputs, size_t count) {
    if (cli_rank() > 0) return CLI_DONE; /* only the first rank writes */
    atomic_store(&opening, true);
    catch_signals();
    int code = open_files(outputs, count);
    atomic_store(&opening, false);
    if (atomic_load(&waiting)) remove_pending(atomic_load(&waiting));
    return code;
}

int cli_output_array(const cli_output *output, plsh_dtype type, int rank, const int64_t *shape,
                     const void *data) {
    plsh_error error;
    if (output->file == NULL) return CLI_DONE;
    plsh_status status = plsh_npy_append(output->file, type, rank, shape, data, &error);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

int cli_output_print(const cli_output *output, const char *format, ...) {
    if (output->file == NULL) return CLI_DONE;
    char *text = NULL;
    plsh_error error;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) return cli_fail("%s: out of memory", output->path);
    plsh_status status = plsh_file_write(output->file, text, (size_t)length, &error);
    free(text);
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

int cli_outputs_commit(cli_output *outputs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        plsh_error error;
        if (outputs[i].file == NULL) continue;
        plsh_status status = plsh_file_commit(outputs[i].file, &error);
        outputs[i].file = NULL;
        atomic_store(&pending[i].there, false);
        if (status != PLSH_STATUS_OK) return cli_fail_error(&error);
    }
    return CLI_DONE;
}

void cli_outputs_abandon(cli_output *outputs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        plsh_file_abandon(outputs[i].file);
        outputs[i].file = NULL;
        atomic_store(&pending[i].there, false);
    }
}
