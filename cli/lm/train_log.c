/* cli: the log of plsh train: JSON lines, and a picture of them. */
#include "cli/lm/train_log.h"

#include "cli/message.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_train_log_open(cli_train_log *log, const char *path, int64_t length, bool echo) {
    struct stat about;
    *log = (cli_train_log){.path = path, .echo = echo};
    if (length >= 0 && stat(path, &about) == 0) {
        if (about.st_size < length)
            cli_note("%s is shorter than when the checkpoint was made: lines are missing", path);
        else if (truncate(path, (off_t)length) != 0)
            return cli_fail("%s: %s", path, strerror(errno));
    }
    log->file = fopen(path, length >= 0 ? "a" : "w");
    return log->file != NULL ? CLI_DONE : cli_fail("%s: %s", path, strerror(errno));
}

void cli_train_log_close(cli_train_log *log) {
    if (log->file != NULL) fclose(log->file);
    log->file = NULL;
}

int64_t cli_train_log_length(cli_train_log *log) {
    struct stat about;
    if (log->file == NULL) return 0; /* another rank's */
    fflush(log->file);
    return fstat(fileno(log->file), &about) == 0 ? (int64_t)about.st_size : 0;
}

/* One line, at once in the file, so that a run that is killed has logged its steps. */
static int print_line(cli_train_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int print_line(cli_train_log *log, const char *format, ...) {
    FILE *files[] = {log->file, log->echo ? stdout : NULL};
    for (size_t i = 0; i < CLI_COUNT(files) && files[i] != NULL; i++) {
        va_list arguments;
        va_start(arguments, format);
        int length = vfprintf(files[i], format, arguments);
        va_end(arguments);
        if (length < 0 || fflush(files[i]) != 0)
            return cli_fail("%s: %s", i == 0 ? log->path : "stdout", strerror(errno));
    }
    return CLI_DONE;
}

int cli_train_log_step(cli_train_log *log, const cli_train_step *s) {
    return print_line(log,
                      "{\"step\": %lld, \"loss\": %.9g, \"lr\": %.9g, \"grad_norm\": %.9g, "
                      "\"tokens\": %lld, \"tokens_per_second\": %.5g}\n",
                      (long long)s->step, s->loss, s->rate, s->norm, (long long)s->tokens,
                      s->speed);
}

int cli_train_log_skip(cli_train_log *log, int64_t step, const char *reason) {
    return print_line(log, "{\"step\": %lld, \"skipped\": \"%s\"}\n", (long long)step, reason);
}

int cli_train_log_scores(cli_train_log *log, int64_t step, const cli_scores *s) {
    const double n = (double)s->tokens;
    if (!isfinite(s->nll))
        return print_line(log, "{\"step\": %lld, \"eval_loss\": null}\n", (long long)step);
    return print_line(log,
                      "{\"step\": %lld, \"eval_loss\": %.9g, \"eval_perplexity\": %.9g, "
                      "\"eval_accuracy\": %.9g, \"eval_tokens\": %lld}\n",
                      (long long)step, s->nll / n, exp(s->nll / n), (double)s->first / n,
                      (long long)s->tokens);
}

int cli_train_log_costs(cli_train_log *log, int64_t step, const cli_spread_cost *cost) {
    return print_line(log,
                      "{\"step\": %lld, \"bytes_sent\": %lld, \"waited\": %.5g, "
                      "\"peak_bytes\": %lld}\n",
                      (long long)step, (long long)cost->bytes_sent, cost->waited,
                      (long long)cost->peak_bytes);
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
        double value = strtod(at + strlen(key), NULL);
        any = true;
        fprintf(out, "%lld %.9g\n", step, value);
    }
    fputs("EOD\n", out);
    if (in != NULL) fclose(in);
    return any;
}

static bool has_gnuplot(void) { return system("command -v gnuplot > /dev/null 2>&1") == 0; }

int cli_train_log_plot(cli_train_log *log, const char *svg, bool asked) {
    if (!has_gnuplot())
        return asked ? cli_fail("--plot: gnuplot is not there to draw it") : CLI_DONE;
    if (strpbrk(svg, "'\n") != NULL) return cli_fail("--plot: a name without quotes, please");
    fflush(log->file);
    FILE *gnuplot = popen("gnuplot > /dev/null 2>&1", "w");
    if (gnuplot == NULL) return cli_fail("gnuplot: %s", strerror(errno));
    fprintf(gnuplot, "set terminal svg size 800,450 background rgb 'white'\nset output '%s'\n",
            svg);
    fputs("set xlabel 'step'\nset ylabel 'loss, nats per token'\nset grid\n", gnuplot);
    bool steps = print_points(log->path, "\"loss\": ", "steps", gnuplot);
    bool scores = print_points(log->path, "\"eval_loss\": ", "scores", gnuplot);
    if (steps) fputs("plot $steps with lines lw 1 title 'training'", gnuplot);
    if (scores)
        fprintf(gnuplot, "%s $scores with linespoints lw 2 pt 7 title 'held-out text'",
                steps ? "," : "plot");
    fputs("\n", gnuplot);
    return pclose(gnuplot) == 0 ? CLI_DONE : cli_fail("%s: gnuplot failed to draw it", svg);
}
