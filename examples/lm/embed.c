/* Embeds two texts with an encoder and prints how alike they are: the cosine of their means.
 *
 *     embed encoder "a cat on a mat" "a feline on a rug" */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"

static int fail(const plsh_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

/* row = the mean of the text's last hidden states. */
static plsh_status embed(const plsh_model *model, const plsh_tokenizer *tokenizer, const char *text,
                         double *row, plsh_error *error) {
    int64_t width = plsh_model_describe(model).hidden;
    plsh_token_ids ids = {0};
    plsh_status status = plsh_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, error);
    float *hidden = malloc((ids.count + 1) * (size_t)width * sizeof *hidden);
    plsh_encoding encoding = {.ids = ids.ids, .count = (int64_t)ids.count, .hidden = hidden};
    if (!status && hidden) status = plsh_model_encode(model, &encoding, error);
    for (int64_t c = 0; !status && hidden && c < width; c++) {
        row[c] = 0.0;
        for (size_t t = 0; t < ids.count; t++) row[c] += (double)hidden[(int64_t)t * width + c];
    }
    free(hidden);
    plsh_token_ids_free(&ids);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ENCODER TEXT TEXT\n", argv[0]);
        return 2;
    }
    plsh_error error;
    plsh_model *model = NULL;
    plsh_tokenizer *tokenizer = NULL;
    plsh_status status = plsh_model_open(&model, argv[1], NULL, &error);
    if (!status) status = plsh_tokenizer_open(&tokenizer, argv[1], &error);
    if (status) return fail(&error);
    int64_t width = plsh_model_describe(model).hidden;
    double *row[2] = {calloc((size_t)width, sizeof(double)), calloc((size_t)width, sizeof(double))};
    for (int i = 0; i < 2 && row[0] && row[1] && !status; i++) {
        status = embed(model, tokenizer, argv[2 + i], row[i], &error);
    }
    double dot = 0, first = 0, second = 0;
    for (int64_t c = 0; !status && row[0] && row[1] && c < width; c++) {
        dot += row[0][c] * row[1][c];
        first += row[0][c] * row[0][c];
        second += row[1][c] * row[1][c];
    }
    if (!status) printf("%.3f\n", dot / sqrt(first * second));
    free(row[0]);
    free(row[1]);
    plsh_tokenizer_free(tokenizer);
    plsh_model_close(model);
    return status ? fail(&error) : 0;
}
