/* cli: the program. */
#include "plsh/version.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("plsh %s\n", plsh_version());
        return 0;
    }
    fprintf(stderr, "plsh: --version is all there is\n");
    return 2;
}
