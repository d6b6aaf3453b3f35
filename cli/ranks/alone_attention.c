/* cli: attention in a single process. */
#include "cli/attention.h"

#include "base/clock.h"
#include "cli/message.h"

#include <stdlib.h>

struct cli_attention {
    plsh_plan *plan;
    void *forward, *backward; /* workspaces, made when they are first needed */
};

int cli_attention_create(const plsh_attention *whole, cli_attention **out) {
    plsh_error error;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return cli_fail("out of memory");
    if (plsh_plan_create(whole, &(*out)->plan, &error) == PLSH_STATUS_OK) return CLI_DONE;
    return cli_fail_error(&error);
}

void cli_attention_destroy(cli_attention *attention) {
    if (attention == NULL) return;
    plsh_plan_destroy(attention->plan);
    free(attention->forward);
    free(attention->backward);
    free(attention);
}

const plsh_plan *cli_attention_plan(const cli_attention *attention) { return attention->plan; }

static int make_workspace(size_t least, void **workspace) {
    const size_t bytes = (least + 64) / 64 * 64;
    if (*workspace == NULL) *workspace = aligned_alloc(64, bytes);
    if (*workspace != NULL) return CLI_DONE;
    return cli_fail("out of memory for a workspace of %zu bytes", bytes);
}

static int finish(cli_run *run, double begin, plsh_status status, const plsh_error *error) {
    run->seconds = plsh_clock_seconds() - begin;
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(error);
}

int cli_attention_forward(cli_attention *attention, const plsh_forward *arrays, cli_run *run) {
    const plsh_plan *plan = attention->plan;
    plsh_error error;
    int code = make_workspace(plsh_plan_workspace(plan), &attention->forward);
    if (code != CLI_DONE) return code;
    const double begin = plsh_clock_seconds();
    plsh_status status = plsh_plan_forward(plan, arrays, attention->forward, &run->stats, &error);
    return finish(run, begin, status, &error);
}

int cli_attention_backward(cli_attention *attention, const plsh_backward *arrays, cli_run *run) {
    const plsh_plan *plan = attention->plan;
    plsh_error error;
    int code = make_workspace(plsh_plan_backward_workspace(plan), &attention->backward);
    if (code != CLI_DONE) return code;
    const double begin = plsh_clock_seconds();
    plsh_status status = plsh_plan_backward(plan, arrays, attention->backward, &run->stats, &error);
    return finish(run, begin, status, &error);
}
