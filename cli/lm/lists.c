/* cli: the tokens of many texts, and an encoder's hidden states of each. */
#include "cli/lm/lists.h"

#include "cli/message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t cli_lists_tokens(const cli_lists *lists) {
    return lists->texts > 0 ? lists->offsets[lists->texts] : 0;
}

static bool grow(void **array, int64_t count, size_t size) {
    void *grown = realloc(*array, (size_t)count * size);
    if (grown != NULL) *array = grown;
    return grown != NULL;
}

static bool reserve(cli_lists *lists, int64_t tokens) {
    if (lists->texts + 2 > lists->text_capacity) {
        const int64_t capacity = 2 * lists->text_capacity + 64;
        if (!grow((void **)&lists->offsets, capacity, sizeof *lists->offsets)) return false;
        lists->text_capacity = capacity;
    }
    if (tokens > lists->token_capacity) {
        const int64_t capacity = tokens + lists->token_capacity + 1024;
        if (!grow((void **)&lists->ids, capacity, sizeof *lists->ids) ||
            !grow((void **)&lists->types, capacity, sizeof *lists->types))
            return false;
        lists->token_capacity = capacity;
    }
    return true;
}

int cli_lists_add(cli_lists *lists, const char *path, const int32_t *ids, const int32_t *types,
                  size_t count) {
    const int64_t have = cli_lists_tokens(lists);
    if (!reserve(lists, have + (int64_t)count)) return cli_fail("%s: out of memory", path);
    for (size_t i = 0; i < count; i++) {
        lists->ids[have + (int64_t)i] = ids[i];
        lists->types[have + (int64_t)i] = types != NULL ? types[i] : 0;
    }
    lists->offsets[0] = 0;
    lists->offsets[++lists->texts] = have + (int64_t)count;
    return CLI_DONE;
}

void cli_lists_free(cli_lists *lists) {
    free(lists->ids);
    free(lists->types);
    free(lists->offsets);
    *lists = (cli_lists){0};
}

/* The texts first .. last - 1, computed together. */
static int encode_batch(const cli_model *model, const cli_lists *lists, int64_t first, int64_t last,
                        float *hidden) {
    const int64_t begin = lists->offsets[first], count = lists->offsets[last] - begin;
    int64_t *offsets = malloc((size_t)(last - first + 1) * sizeof *offsets);
    plsh_error error;
    if (offsets == NULL) return cli_fail("out of memory for %lld tokens", (long long)count);
    for (int64_t i = 0; i <= last - first; i++) offsets[i] = lists->offsets[first + i] - begin;
    const plsh_encoding encoding = {.ids = lists->ids + begin,
                                    .types = lists->types + begin,
                                    .offsets = offsets,
                                    .sequences = last - first,
                                    .count = count,
                                    .attention = model->attention,
                                    .attention_count = model->attention_count,
                                    .hidden = hidden};
    int code = CLI_DONE;
    if (count > 0 && plsh_model_encode(model->model, &encoding, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    free(offsets);
    return code;
}

static int check_finite(const float *hidden, int64_t count, int64_t text) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(hidden[i]))
            return cli_fail("text %lld: its hidden states are not finite; the weights of the model "
                            "may be damaged",
                            (long long)text + 1);
    return CLI_DONE;
}

int cli_lists_encode(const cli_model *model, const cli_lists *lists, int64_t batch,
                     int (*each)(void *context, int64_t text, const float *hidden, int64_t tokens),
                     void *context) {
    const int64_t width = model->facts.hidden, *at = lists->offsets;
    int code = CLI_DONE;
    cli_progress_begin((double)cli_lists_tokens(lists), "tokens");
    for (int64_t first = 0, last; code == CLI_DONE && first < lists->texts; first = last) {
        last = first + 1;
        while (last < lists->texts && at[last + 1] - at[first] <= batch) last++;
        const int64_t count = at[last] - at[first];
        float *hidden = calloc((size_t)(count + 1) * (size_t)width, sizeof *hidden);
        if (hidden == NULL) code = cli_fail("out of memory for %lld tokens", (long long)count);
        if (code == CLI_DONE) code = encode_batch(model, lists, first, last, hidden);
        for (int64_t i = first; code == CLI_DONE && i < last; i++) {
            const float *rows = hidden + (at[i] - at[first]) * width;
            code = check_finite(rows, (at[i + 1] - at[i]) * width, i);
            if (code == CLI_DONE) code = each(context, i, rows, at[i + 1] - at[i]);
        }
        free(hidden);
        cli_progress((double)at[last]);
    }
    cli_progress_end();
    return code;
}
