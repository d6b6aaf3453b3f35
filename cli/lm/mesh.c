/* cli: commands that run models, over the ranks of plsh-mpi. */
#include "cli/lm/mesh.h"

#include "cli/lm/config.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 22 }; /* numbers that are sent at once */

int cli_mesh_open(const cli_lm *options, const char *mesh, cli_model *model) {
    int code = cli_ranks_mesh(mesh, &model->ranks);
    if (code == CLI_DONE && model->ranks != NULL && options->model.kv != 0)
        return cli_usage("--kv: over ranks keys and values are float32");
    return code;
}

/* ---- The same on all ranks ------------------------------------------------------------------- */

static int finish(plsh_status status, const plsh_error *error) {
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(error);
}

/* Finds the first setting that differs between ranks, and reports its value on the rank that
 * differs. */
static int name_setting(const plsh_ranks *ranks, const cli_settings *settings) {
    plsh_error error;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; status == PLSH_STATUS_OK && i < settings->count; i++) {
        const plsh_train_setting *one = &settings->list[i];
        char what[128];
        snprintf(what, sizeof what, "settings (--%.30s=%.80s)", one->name, one->value);
        status = plsh_ranks_same(ranks, what, one->value, 1, strlen(one->value), &error);
    }
    return finish(status, &error);
}

int cli_mesh_same_settings(const cli_model *model, const cli_command *command,
                           const void *settings) {
    cli_settings all = {0};
    plsh_error error;
    if (model->ranks == NULL) return CLI_DONE;
    int code = cli_ranks_agree(cli_config_settings(command, settings, CLI_BY_RUN, &all));
    if (code != CLI_DONE) return code;
    if (plsh_ranks_same(model->ranks, "settings", all.text, 1, all.used, &error) == PLSH_STATUS_OK)
        return CLI_DONE;
    return name_setting(model->ranks, &all);
}

int cli_mesh_same_weights(const cli_model *model) {
    plsh_error error;
    if (model->ranks == NULL) return CLI_DONE;
    const uint64_t checksum = plsh_model_checksum(model->model);
    return finish(plsh_ranks_same(model->ranks, "weights", &checksum, 1, sizeof checksum, &error),
                  &error);
}

int cli_mesh_same_tokens(const cli_model *model, const char *what, const int32_t *ids,
                         int64_t count) {
    plsh_error error;
    return finish(plsh_ranks_same(model->ranks, what, ids, count, sizeof *ids, &error), &error);
}

int cli_mesh_same(const cli_model *model, const cli_command *command, const void *settings,
                  const cli_ids *ids) {
    int code = cli_mesh_same_settings(model, command, settings);
    if (code == CLI_DONE) code = cli_mesh_same_tokens(model, "tokens", ids->values, ids->count);
    return code == CLI_DONE ? cli_mesh_same_weights(model) : code;
}

/* ---- Scores ---------------------------------------------------------------------------------- */

int cli_mesh_scores(const cli_model *model, int code, cli_scores *s) {
    const plsh_ranks *ranks = model->ranks;
    if (ranks == NULL) return code;
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    double sums[] = {(double)s->tokens, s->nll,           s->entropy,       s->reciprocal,
                     (double)s->first,  (double)s->top10, (double)s->top100};
    plsh_error error;
    if (ranks->sum(ranks->context, sums, CLI_COUNT(sums), &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    *s = (cli_scores){.tokens = (int64_t)sums[0],
                      .nll = sums[1],
                      .entropy = sums[2],
                      .reciprocal = sums[3],
                      .first = (int64_t)sums[4],
                      .top10 = (int64_t)sums[5],
                      .top100 = (int64_t)sums[6]};
    return CLI_DONE;
}

/* ---- Costs ----------------------------------------------------------------------------------- */

cli_mesh_cost cli_mesh_costs(const cli_model *model) {
    const plsh_ranks *ranks = model->ranks;
    plsh_traffic own = {0};
    if (ranks != NULL) own = ranks->traffic(ranks->context);
    double most[] = {(double)own.bytes_sent, own.waited, (double)cli_peak_bytes()};
    cli_ranks_most(most, CLI_COUNT(most));
    return (cli_mesh_cost){.over_ranks = ranks != NULL,
                           .bytes_sent = (int64_t)most[0],
                           .waited = most[1],
                           .peak_bytes = (int64_t)most[2]};
}

void cli_mesh_costs_json(const cli_mesh_cost *cost, cli_json *json) {
    if (cost->over_ranks) cli_json_integer(json, "bytes_sent", cost->bytes_sent);
    if (cost->over_ranks) cli_json_number(json, "waited", cost->waited);
    cli_json_integer(json, "peak_bytes", cost->peak_bytes);
}

void cli_mesh_costs_print(const cli_mesh_cost *cost, const char *before) {
    if (cost->over_ranks)
        printf("%sa rank sent up to %lld bytes and waited up to %.4g s", before,
               (long long)cost->bytes_sent, cost->waited);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static int64_t rows_at_once(int64_t columns) { return columns < BLOCK ? BLOCK / columns : 1; }

static plsh_status send_rows(const plsh_ranks *ranks, const float *own, int64_t rows,
                             int64_t columns, plsh_error *error) {
    const int64_t most = rows_at_once(columns);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t r = 0; status == PLSH_STATUS_OK && r < rows; r += most) {
        const int64_t count = rows - r < most ? rows - r : most;
        status = ranks->send(ranks->context, own + r * columns,
                             (size_t)(count * columns) * sizeof(float), error);
    }
    return status;
}

/* The rows of another rank, in the order of ranks; they are received even after a write error, so
 * that no rank blocks. */
static plsh_status append_rows(const plsh_ranks *ranks, int64_t from, int64_t rows, int64_t columns,
                               float *buffer, plsh_file *file, plsh_error *error) {
    const int64_t most = rows_at_once(columns);
    plsh_status status = PLSH_STATUS_OK, received = PLSH_STATUS_OK;
    for (int64_t r = 0; received == PLSH_STATUS_OK && r < rows; r += most) {
        const size_t size = (size_t)((rows - r < most ? rows - r : most) * columns) * sizeof(float);
        received = ranks->receive(ranks->context, from, buffer, size, error);
        if (received == PLSH_STATUS_OK && status == PLSH_STATUS_OK)
            status = plsh_file_write(file, buffer, size, error);
    }
    return received != PLSH_STATUS_OK ? received : status;
}

static plsh_status write_rows(const plsh_ranks *ranks, plsh_file *file, int64_t rows,
                              int64_t columns, const float *own, float *buffer, plsh_error *error) {
    const int64_t shape[] = {rows, columns};
    plsh_range mine = plsh_ranks_rows(ranks, rows);
    plsh_status status = plsh_npy_append(file, PLSH_DTYPE_FLOAT32, 2, shape, NULL, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_file_write(file, own, (size_t)(mine.end * columns) * sizeof(float), error);
    for (int64_t r = 1; r < ranks->ranks; r++) {
        plsh_ranks other = *ranks;
        plsh_error later;
        other.rank = r;
        plsh_range theirs = plsh_ranks_rows(&other, rows);
        plsh_status one = append_rows(ranks, r, theirs.end - theirs.begin, columns, buffer, file,
                                      status == PLSH_STATUS_OK ? error : &later);
        if (status == PLSH_STATUS_OK) status = one;
    }
    return status;
}

int cli_mesh_rows(const cli_model *model, const cli_output *output, int64_t rows, int64_t columns,
                  float *own) {
    const plsh_ranks *ranks = model->ranks;
    const int64_t shape[] = {rows, columns};
    if (ranks == NULL) return cli_output_array(output, PLSH_DTYPE_FLOAT32, 2, shape, own);
    if (own == NULL) return CLI_DONE;
    plsh_error error;
    plsh_range mine = plsh_ranks_rows(ranks, rows);
    float *buffer = NULL;
    if (ranks->rank == 0)
        buffer = malloc((size_t)(rows_at_once(columns) * columns) * sizeof(float));
    int code =
        cli_ranks_agree(ranks->rank == 0 && buffer == NULL ? cli_fail("out of memory") : CLI_DONE);
    if (code == CLI_DONE) {
        plsh_status status =
            ranks->rank == 0 ? write_rows(ranks, output->file, rows, columns, own, buffer, &error)
                             : send_rows(ranks, own, mine.end - mine.begin, columns, &error);
        code = cli_ranks_agree(status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error));
    }
    free(buffer);
    return code;
}
