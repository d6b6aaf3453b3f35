/* An own decay: any convex decreasing table can be sampled, and the mean of its masks is the table.
 *
 *     cc own_decay.c $(pkg-config --cflags --libs plsh) -o own_decay && ./own_decay */
#include <plsh/plsh.h>

#include <stdio.h>

enum { SIZE = 64, SAMPLES = 4096 };

int main(void) {
    /* Half of the weight fades within a few tokens, the other half slowly, a tenth never. */
    double table[SIZE];
    for (int t = 0; t < SIZE; t++)
        table[t] = 0.1 + 0.45 / (1 + t) + 0.45 * (1 - t / (double)(SIZE - 1));
    plsh_decay decay = {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = SIZE};

    plsh_error error;
    if (plsh_decay_check_convex(&decay, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    plsh_partition set = plsh_partition_default(1.0, SAMPLES);
    set.decay = decay;
    printf("%4s %10s %10s\n", "t", "k(t)", "mean mask");
    for (int t = 1; t < 2 * SIZE; t *= 2) {
        double mean = (double)plsh_partition_count(&set, 1000, 1000 + t) / SAMPLES;
        printf("%4d %10.4f %10.4f\n", t, plsh_decay_value(&decay, t), mean);
    }

    /* A decay that is not convex is refused, and the message says where it bends. */
    table[5] = table[4];
    if (plsh_decay_check_convex(&decay, &error)) printf("with a bump: %s\n", error.message);
    return 0;
}
