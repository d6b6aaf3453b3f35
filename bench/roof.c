/* bench: the peak (roof) of this processor: OpenBLAS' sgemm, with kernels for its instruction set.
 */
#include "base/clock.h"
#include "bench/bench.h"

#include <math.h>

#ifdef PLSH_WITH_OPENBLAS
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As cblas.h has them, where its integers have 32 bits; enumerations are their values. */
typedef void blas_sgemm(int order, int turn_a, int turn_b, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta, float *c,
                        int ldc);
enum { ROW_MAJOR = 101, AS_IT_IS = 111 };

/* Loaded by the commands that need it, and never closed. Loading starts threads, and each of them
 * retries in an endless loop while it gets no 128 MB of memory: so no other command loads OpenBLAS.
 */
static struct {
    bool tried;
    blas_sgemm *sgemm;
    char *(*corename)(void), *(*config)(void);
    void (*set_threads)(int);
} blas;

static bool load_blas(void) {
    if (!blas.tried) {
        void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
        blas.tried = true;
        if (library == NULL) return false;
        *(void **)&blas.corename = dlsym(library, "openblas_get_corename");
        *(void **)&blas.config = dlsym(library, "openblas_get_config");
        *(void **)&blas.set_threads = dlsym(library, "openblas_set_num_threads");
        if (blas.corename && blas.config && blas.set_threads)
            *(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
    }
    return blas.sgemm != NULL;
}

const char *bench_roof_core(void) { return load_blas() ? blas.corename() : NULL; }
const char *bench_blas_config(void) { return load_blas() ? blas.config() : NULL; }
void bench_blas_threads(int threads) {
    if (load_blas()) blas.set_threads(threads);
}

/* Runs this program again with the same arguments; comes back only where that is impossible. */
static void start_anew(void) {
    static char text[65536];
    static char *arguments[4096];
    FILE *file = fopen("/proc/self/cmdline", "rb");
    if (file == NULL) return;
    size_t size = fread(text, 1, sizeof text - 1, file), count = 0;
    fclose(file);
    for (size_t i = 0; i < size && count < 4095; i += strlen(text + i) + 1)
        arguments[count++] = text + i;
    if (size < sizeof text - 1 && count < 4095) execv("/proc/self/exe", arguments);
}

void bench_roof_prepare(const char *isa) {
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    static const char *const narrow[] = {"Haswell", "Zen", NULL};
    const char *const *good = strncmp(isa, "avx512", 6) == 0 ? wide
                              : strcmp(isa, "avx2") == 0     ? narrow
                                                             : NULL;
    if (good == NULL || getenv("OPENBLAS_CORETYPE") != NULL || !load_blas()) return;
    for (size_t i = 0; good[i] != NULL; i++)
        if (strcasecmp(good[i], blas.corename()) == 0) return;
    if (setenv("OPENBLAS_CORETYPE", good[0], 1) == 0) start_anew();
}

double bench_sgemm_gflops(int threads) {
    enum { N = 2048 };
    if (!load_blas()) return NAN;
    float *arrays = aligned_alloc(64, 3 * sizeof(float) * N * N);
    if (arrays == NULL) return NAN;
    float *a = arrays, *b = a + N * N, *c = b + N * N;
    bench_fill_normal(a, 3 * N * N, 1);
    bench_blas_threads(threads);
    double begin = plsh_clock_seconds();
    blas.sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, N, N, N, 1, a, N, b, N, 0, c, N);
    double seconds = plsh_clock_seconds() - begin;
    free(arrays);
    return 2e-9 * N * N * N / seconds;
}

#else /* no roof is known */

const char *bench_roof_core(void) { return NULL; }
const char *bench_blas_config(void) { return NULL; }
void bench_blas_threads(int threads) { (void)threads; }
void bench_roof_prepare(const char *isa) { (void)isa; }
double bench_sgemm_gflops(int threads) {
    (void)threads;
    return NAN;
}

#endif
