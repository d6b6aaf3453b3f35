/* tests: what the programs that check kernels share: guarded arrays, numbers, the tolerance, and a
 * plain main, because they also run cross-compiled under an emulator. */
#ifndef PLSH_TESTS_KERNELS_CHECK_H
#define PLSH_TESTS_KERNELS_CHECK_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attention/kernels/kernels.h"

static plsh_kernels tested;
static int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition) && ++failures <= 20) {                                                    \
            printf("%s:%d: %s: ", tested.name, __LINE__, #condition);                              \
            printf(__VA_ARGS__);                                                                   \
            putchar('\n');                                                                         \
        }                                                                                          \
    } while (0)

/* ---- Guarded memory and numbers ------------------------------------------------------------- */

typedef struct guarded {
    char *map;
    size_t size;  /* of the pages in between */
    void *at_end; /* the array, its last byte against the guard page */
} guarded;

/* An array whose end (at_end) or, with from_start, whose beginning lies against a guard page. */
static guarded guard(size_t bytes, bool from_start) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded g = {.size = (bytes + page) / page * page};
    g.map = mmap(NULL, g.size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + page, g.size, PROT_READ | PROT_WRITE) != 0) {
        perror("mmap");
        exit(1);
    }
    g.at_end = from_start ? g.map + page : g.map + page + g.size - bytes;
    return g;
}

static inline void unguard(guarded g) { munmap(g.map, g.size + 2 * (size_t)sysconf(_SC_PAGESIZE)); }

static uint64_t state = 1;
static double uniform(void) { /* in [-1, 1) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 11 << 11) * 0x1p-63;
}
static float normal(void) {
    return (float)((uniform() + uniform() + uniform() + uniform()) * 0.8660254037844386);
}
static inline void fill(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = normal();
}

/* At most twice the error of a plain loop in float32, and a floor of a few ulps of the largest
 * value. */
static inline double allowed(double plain_error, double largest) {
    return 2.0 * plain_error + 4.0 * FLT_EPSILON * largest;
}

/* Sizes below, at and above every block size of every table. */
static const int sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 15, 16, 17,  23,  24,  25,
                            31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 95, 96, 97, 127, 128, 129, 512};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

/* Picks the table and runs the check. 0, 1 for a failure, 77 where the machine lacks the
 * instruction set. */
static int check_main(void (*check)(void)) {
    plsh_error error = {0};
    const plsh_kernels *table;
    if (plsh_kernels_choose(&table, NULL, &error) != PLSH_STATUS_OK) {
        printf("skipped: %s\n", error.message);
        return 77;
    }
    tested = *table;
    check();
    printf("%s: %d failures\n", tested.name, failures);
    return failures != 0;
}

#endif
