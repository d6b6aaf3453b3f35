/* tests: a build without ARPACK says so, and does the rest. */
#include <plsh/plsh.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    plsh_partition set = plsh_partition_default(4.0, 8);
    plsh_norms_options options = {0};
    plsh_norms norms;
    plsh_error error = {0};
    plsh_status status = plsh_norms_measure(&set, 100, &options, &norms, &error);
    printf("%s: %s\n", plsh_status_name(status), error.message);
    if (status != PLSH_STATUS_UNSUPPORTED || strstr(error.message, "ARPACK") == NULL) return 1;
    options.skip_spectral = true;
    if (plsh_norms_measure(&set, 100, &options, &norms, &error) != PLSH_STATUS_OK) return 1;
    return norms.max > 0 && norms.max <= 1 ? 0 : 1;
}
