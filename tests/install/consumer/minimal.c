/* tests: a build without ARPACK has spectral norms too. */
#include <plsh/plsh.h>

#include <stdio.h>

int main(void) {
    plsh_partition set = plsh_partition_default(4.0, 8);
    plsh_norms norms;
    plsh_error error = {0};
    plsh_status status = plsh_norms_measure(&set, 100, NULL, &norms, &error);
    printf("%s: %s\n", plsh_status_name(status), error.message);
    return status == PLSH_STATUS_OK && norms.max > 0 && norms.max <= norms.spectral ? 0 : 1;
}
