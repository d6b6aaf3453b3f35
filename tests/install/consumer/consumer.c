/* tests: a separate program that uses an installed plsh. */
#include <plsh/plsh.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    plsh_partition set = plsh_partition_default(8.0, 20);
    plsh_error error;
    if (plsh_partition_check(&set, &error) != PLSH_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (strcmp(plsh_version(), PLSH_VERSION) != 0) return 1;
    printf("plsh %s: %lld of 20 draws put 0 and 1 together\n", plsh_version(),
           (long long)plsh_partition_count(&set, 0, 1));
    return 0;
}
