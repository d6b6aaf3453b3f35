// tests: a program in C++ that uses an installed plsh.
#include <plsh/plsh.h>

#include <cstring>

int main() { return std::strcmp(plsh_version(), PLSH_VERSION) != 0; }
