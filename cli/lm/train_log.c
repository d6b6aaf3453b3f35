/* cli: the log of plsh train: JSON lines, and a picture of them. */
#include "cli/lm/train_log.h"

#include "cli/message.h"
#include "plsh/io.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char line_begin[] = "{\"step\": ";

/* The step of the line that ends at `length`; -1: none does. */
static int64_t step_before(FILE *file, int64_t length) {
    char tail[512];
    long long step;
    const size_t wanted = length < (int64_t)sizeof tail ? (size_t)length : sizeof tail - 1;
    if (fseek(file, (long)(length - (int64_t)wanted), SEEK_SET) != 0 ||
        fread(tail, 1, wanted, file) != wanted || wanted == 0 || tail[wanted - 1] != '\n')
        return -1;
    tail[wanted - 1] = '\0';
    const char *newline = strrchr(tail, '\n'), *line = newline != NULL ? newline + 1 : tail;
    return sscanf(line, "{\"step\": %lld", &step) == 1 ? step : -1;
}

/* Refuses a file that is not a log of this run, because it will be overwritten or cut to `length`
 * bytes. */
static int check_file(const char *path, int64_t size, int64_t length, int64_t step) {
    char begin[sizeof line_begin] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL) return cli_fail("%s: %s", path, strerror(errno));
    const bool is_log = size == 0 || (fread(begin, 1, sizeof begin - 1, file) > 0 &&
                                      strcmp(begin, line_begin) == 0);
    const bool is_own = length <= 0 || size < length || step_before(file, length) == step;
    fclose(file);
    if (!is_log) return cli_fail("--log: %s exists and is not a log; it is not overwritten", path);
    if (!is_own)
        return cli_fail("--log: %s is not the log of this run: step %lld does not end where it "
                        "did; give the log of the run, or a new one",
                        path, (long long)step);
    return CLI_DONE;
}

int cli_train_log_open(cli_train_log *log, const char *path, int64_t length, int64_t step,
                       bool echo) {
    struct stat about;
    *log = (cli_train_log){.path = path, .echo = echo};
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode)) {
        int code = check_file(path, about.st_size, length, step);
        if (code != CLI_DONE) return code;
        if (about.st_size < length)
            cli_note("%s is shorter than when the checkpoint was made: lines are missing", path);
        else if (length >= 0 && truncate(path, (off_t)length) != 0)
            return cli_fail("%s: %s", path, strerror(errno));
    }
    log->file = fopen(path, length >= 0 ? "a" : "w");
    return log->file != NULL ? CLI_DONE : cli_fail("%s: %s", path, strerror(errno));
}

int cli_train_log_check_own(const char *path) {
    struct stat about;
    if (lstat(path, &about) != 0 || S_ISREG(about.st_mode)) return CLI_DONE;
    if (!S_ISLNK(about.st_mode))
        return cli_fail("%s: not a regular file; remove it, or name another one with --log", path);
    return cli_fail("%s is a symbolic link and is not written through; remove it, or name its "
                    "target with --log",
                    path);
}

void cli_train_log_close(cli_train_log *log) {
    if (log->file != NULL) fclose(log->file);
    log->file = NULL;
}

/* A pipe or a terminal cannot be synced, and need not be. */
int cli_train_log_sync(cli_train_log *log, int64_t *length) {
    struct stat about;
    *length = 0;
    if (log->file == NULL) return CLI_DONE; /* another rank's */
    const int file = fileno(log->file);
    if (fflush(log->file) != 0 || fstat(file, &about) != 0 ||
        (S_ISREG(about.st_mode) && fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP))
        return cli_fail("%s: %s", log->path, strerror(errno));
    *length = (int64_t)about.st_size;
    return CLI_DONE;
}

/* A line that begins with the step; NULL after a message. */
static cli_json *begin_line(int64_t step) {
    plsh_error error;
    cli_json *line;
    if (cli_json_create(&line, &error) != PLSH_STATUS_OK) {
        cli_fail_error(&error);
        return NULL;
    }
    cli_json_one_line(line);
    cli_json_begin_object(line, NULL);
    cli_json_integer(line, "step", step);
    return line;
}

/* The line is flushed to the file at once, so that a run that is killed has logged its steps. */
static int end_line(cli_train_log *log, cli_json *line) {
    FILE *files[] = {log->file, log->echo ? stdout : NULL};
    const char *text;
    size_t length;
    plsh_error error;
    int code = CLI_DONE;
    cli_json_end(line);
    if (cli_json_finish(line, &text, &length, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    for (size_t i = 0; code == CLI_DONE && i < CLI_COUNT(files) && files[i] != NULL; i++)
        if (fwrite(text, 1, length, files[i]) != length || fflush(files[i]) != 0)
            code = cli_fail("%s: %s", i == 0 ? log->path : "stdout", strerror(errno));
    cli_json_free(line);
    return code;
}

enum { DIGITS = 9, FEW_DIGITS = 5 }; /* of a loss or a rate; of a time */

int cli_train_log_step(cli_train_log *log, const plsh_train_step *step, double speed) {
    cli_json *line = begin_line(step->number);
    if (line == NULL) return CLI_FAILED;
    if (step->kind == PLSH_TRAIN_SKIPPED) {
        cli_json_text(line, "skipped", step->reason);
        return end_line(log, line);
    }
    cli_json_rounded(line, "loss", step->loss, DIGITS);
    cli_json_rounded(line, "lr", step->rate, DIGITS);
    cli_json_rounded(line, "grad_norm", step->norm, DIGITS);
    cli_json_integer(line, "tokens", step->tokens);
    cli_json_rounded(line, "tokens_per_second", speed, FEW_DIGITS);
    return end_line(log, line);
}

int cli_train_log_scores(cli_train_log *log, int64_t step, const cli_scores *s) {
    const double n = (double)s->tokens;
    cli_json *line = begin_line(step);
    if (line == NULL) return CLI_FAILED;
    cli_json_rounded(line, "eval_loss", s->nll / n, DIGITS);
    if (!isfinite(s->nll)) return end_line(log, line);
    cli_json_rounded(line, "eval_perplexity", exp(s->nll / n), DIGITS);
    cli_json_rounded(line, "eval_accuracy", (double)s->first / n, DIGITS);
    cli_json_integer(line, "eval_tokens", s->tokens);
    return end_line(log, line);
}

int cli_train_log_costs(cli_train_log *log, int64_t step, const cli_mesh_cost *cost) {
    cli_json *line = begin_line(step);
    if (line == NULL) return CLI_FAILED;
    cli_json_integer(line, "bytes_sent", cost->bytes_sent);
    cli_json_rounded(line, "waited", cost->waited, FEW_DIGITS);
    cli_json_integer(line, "peak_bytes", cost->peak_bytes);
    return end_line(log, line);
}

/* ---- The picture ----------------------------------------------------------------------------- */

/* "step loss" of the lines that have this key, as a data block of gnuplot. */
static bool print_points(const char *log, const char *key, const char *block, FILE *out) {
    char line[512];
    bool any = false;
    FILE *in = fopen(log, "r");
    fprintf(out, "$%s << EOD\n", block);
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        long long step;
        const char *at = strstr(line, key);
        if (at == NULL || sscanf(line, "{\"step\": %lld", &step) != 1) continue;
        char *end;
        const char *text = at + strlen(key);
        const double value = strtod(text, &end);
        if (end == text) continue; /* null: it was not finite */
        any = true;
        fprintf(out, "%lld %.9g\n", step, value);
    }
    fputs("EOD\n", out);
    if (in != NULL) fclose(in);
    return any;
}

static bool has_gnuplot(void) { return system("command -v gnuplot > /dev/null 2>&1") == 0; }

int cli_train_log_plot_check(const char *svg) {
    char folder[PLSH_CHECKPOINT_PATH];
    struct stat about;
    if (!has_gnuplot()) return cli_fail("--plot: gnuplot is not installed");
    if ((size_t)snprintf(folder, sizeof folder, "%s", svg) >= sizeof folder)
        return cli_fail("--plot: %.200s..: a long name", svg);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder ? 1 : 0] = '\0';
    if (access(slash != NULL ? folder : ".", W_OK | X_OK) != 0)
        return cli_fail("--plot: %s: %s", svg, strerror(errno));
    if (stat(svg, &about) == 0 && S_ISDIR(about.st_mode))
        return cli_fail("--plot: %s: %s", svg, strerror(EISDIR));
    return CLI_DONE;
}

/* Writes the commands and the data for gnuplot. False: there is nothing to draw. */
static bool print_plot(const cli_train_log *log, FILE *gnuplot) {
    fputs("set terminal svg size 800,450 background rgb 'white'\n", gnuplot);
    fputs("set xlabel 'step'\nset ylabel 'loss, nats per token'\nset grid\n", gnuplot);
    bool steps = print_points(log->path, "\"loss\": ", "steps", gnuplot);
    bool scores = print_points(log->path, "\"eval_loss\": ", "scores", gnuplot);
    if (steps) fputs("plot $steps with lines lw 1 title 'training'", gnuplot);
    if (scores)
        fprintf(gnuplot, "%s $scores with linespoints lw 2 pt 7 title 'held-out text'",
                steps ? "," : "plot");
    fputs("\n", gnuplot);
    return steps || scores;
}

/* The name is passed by the environment, so that the shell does not interpret its characters. A
 * shell that cannot write there exits before it has read the pipe; the signal (SIGPIPE) must not
 * end this program. */
static bool draw(const cli_train_log *log, const char *part) {
    static const char name[] = "PLSH_TRAIN_PLOT";
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    if (setenv(name, part, 1) != 0) return false;
    sigaction(SIGPIPE, &ignore, &before);
    FILE *gnuplot = popen("exec 2> /dev/null; exec gnuplot > \"$PLSH_TRAIN_PLOT\"", "w");
    const bool any = gnuplot != NULL && print_plot(log, gnuplot);
    const bool drawn = gnuplot != NULL && pclose(gnuplot) == 0 && any;
    sigaction(SIGPIPE, &before, NULL);
    unsetenv(name);
    return drawn;
}

void cli_train_log_plot(cli_train_log *log, const char *svg, bool own) {
    plsh_file *file;
    if (!has_gnuplot()) return;
    fflush(log->file);
    plsh_status status =
        own ? plsh_file_create_own(&file, svg, NULL) : plsh_file_create(&file, svg, NULL);
    const char *part = status == PLSH_STATUS_OK ? plsh_file_temporary(file) : NULL;
    const bool drawn = status == PLSH_STATUS_OK && draw(log, part != NULL ? part : svg);
    if (drawn && plsh_file_commit(file, NULL) == PLSH_STATUS_OK) return;
    if (!drawn && status == PLSH_STATUS_OK) plsh_file_abandon(file);
    cli_note("%s: the plot could not be drawn", svg);
}
