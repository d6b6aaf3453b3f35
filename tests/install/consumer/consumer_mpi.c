/* tests: a separate program that uses an installed libplsh_mpi: 64 rows over all ranks.
 */
#include <plsh/mpi.h>

#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    static float rows[64 * 4], o[64 * 4];
    for (int i = 0; i < 64 * 4; i++) rows[i] = (float)(i % 7);
    const plsh_decay decay = plsh_decay_alibi(3.0);
    const plsh_head head = plsh_head_default(PLSH_METHOD_EXACT, &decay);
    const plsh_attention whole = {
        .heads = 1, .queries = 64, .keys = 64, .head_dim = 4, .head = &head, .head_count = 1};
    const plsh_forward arrays = {.q = rows, .k = rows, .v = rows, .o = o};
    plsh_mpi_plan *plan = NULL;
    plsh_error error = {0};
    plsh_status status = plsh_mpi_plan_create(&whole, NULL, MPI_COMM_WORLD, &plan, &error);
    if (!status) status = plsh_mpi_plan_forward(plan, &arrays, NULL, &error);
    if (status) fprintf(stderr, "%s\n", error.message);
    plsh_mpi_plan_destroy(plan);
    MPI_Finalize();
    return status != PLSH_STATUS_OK;
}
