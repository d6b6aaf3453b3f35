/* An own hash: attention inside the blocks of any labels, here the sentences of a text and its
 * paragraphs: two "draws", so a token sees its paragraph, and its own sentence with double weight.
 *
 *     cc own_hash.c $(pkg-config --cflags --libs plsh) -o own_hash && ./own_hash */
#include <plsh/plsh.h>

#include <stdio.h>

enum { N = 12, DIM = 4 };

int main(void) {
    /* labels[draw][token]: tokens with equal labels attend to each other. */
    static const int32_t labels[2][N] = {{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3},
                                         {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}};
    plsh_head head = {.method = PLSH_METHOD_PLSH,
                      .partition = {.scheme = PLSH_SCHEME_LABELS,
                                    .decay = plsh_decay_alibi(1.0),
                                    .samples = 2,
                                    .labels = labels[0],
                                    .label_count = N}};
    /* Equal keys: the weights are the masks alone. v is the token's number. */
    float q[N][DIM] = {{0}}, k[N][DIM] = {{0}}, v[N], o[N];
    for (int i = 0; i < N; i++) v[i] = (float)i;
    plsh_attention attention = {.heads = 1,
                                .queries = N,
                                .keys = N,
                                .head_dim = DIM,
                                .value_dim = 1,
                                .head = &head,
                                .head_count = 1};
    plsh_error error;
    if (plsh_attend(&attention, q, k, v, o, NULL, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int i = 0; i < N; i++) printf("token %2d attends around %.2f\n", i, (double)o[i]);
    return 0;
}
