/* tests: a separate program that uses the language models of an installed plsh. */
#include <plsh/lm.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    /* An empty safetensors file: the length of its header, and the header. */
    _Alignas(8) static const char file[] = "\10\0\0\0\0\0\0\0{}      ";
    plsh_weights *weights;
    plsh_error error;
    if (plsh_weights_parse(&weights, file, 16, "a file", &error) != PLSH_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (strcmp(plsh_version(), PLSH_VERSION) != 0) return 1;
    printf("plsh_lm %s: %zu tensors\n", plsh_version(), plsh_weights_count(weights));
    plsh_weights_close(weights);
    return 0;
}
