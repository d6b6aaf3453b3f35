/* theory: the spectral norm of a symmetric matrix by ARPACK, which is loaded at the first use:
 * programs that need no spectral norm need neither ARPACK nor its BLAS and Fortran libraries. Where
 * there is no ARPACK, lanczos.c solves. */
#include "theory/operator.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

#include <math.h>

bool plsh_spectral_start(const plsh_symmetric *matrix, double *x, double *y) {
    const plsh_stream stream = {.seed = 0x706c7368, .purpose = 1};
    double from = 0, to = 0;
    for (int64_t i = 0; i < matrix->n; i++) {
        x[i] = 2 * plsh_random_unit(plsh_random_at(stream, (uint64_t)i).word[0]) - 1;
        from += x[i] * x[i];
    }
    matrix->apply(matrix->context, x, y);
    for (int64_t i = 0; i < matrix->n; i++) to += y[i] * y[i];
    return to > 0x1p-92 * from; /* 64 rounding errors of 2^-52 */
}

#ifdef PLSH_WITH_ARPACK

#include <dlfcn.h>
#include <pthread.h>

/* ARPACK's Fortran keeps its state between calls in SAVEd locals, so only one solve may run at a
 * time. */
static pthread_mutex_t solver_lock = PTHREAD_MUTEX_INITIALIZER;

/* Its C names, as arpack.h declares them where its integers have 32 bits. */
typedef void arpack_iterate(int *ido, const char *bmat, int n, const char *which, int nev,
                            double tolerance, double *residual, int ncv, double *v, int ldv,
                            int *iparam, int *ipntr, double *workd, double *workl, int lworkl,
                            int *info);
typedef void arpack_extract(int rvec, const char *howmny, const int *select, double *d, double *z,
                            int ldz, double sigma, const char *bmat, int n, const char *which,
                            int nev, double tolerance, double *residual, int ncv, double *v,
                            int ldv, int *iparam, int *ipntr, double *workd, double *workl,
                            int lworkl, int *info);

/* Functions of the library, which is never closed. Read under the lock. */
static struct {
    arpack_iterate *dsaupd_c;
    arpack_extract *dseupd_c;
} arpack;

static bool load_arpack(void) {
    static const char *const names[] = {"libarpack.so.2", "libarpack.so"};
    for (size_t i = 0; !arpack.dseupd_c && i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) continue;
        /* POSIX lets a data pointer stand for a function; C has no cast for it. */
        *(void **)&arpack.dsaupd_c = dlsym(library, "dsaupd_c");
        *(void **)&arpack.dseupd_c = dlsym(library, "dseupd_c");
        if (!arpack.dsaupd_c || !arpack.dseupd_c) arpack.dseupd_c = NULL;
    }
    return arpack.dseupd_c != NULL;
}

/* Vectors of the Krylov space. ARPACK tests for convergence only when the space is full, and most
 * matrices here need about 25 products. So the space is small where a product is expensive. It is
 * large where a product is cheaper than the orthogonalisation, which halves the products of the
 * hard cases (s = 1). */
enum { KRYLOV = 32, KRYLOV_DEAR = 16, DEAR_PER_ROW = 32 };

typedef struct solver {
    const plsh_symmetric *matrix;
    int64_t n, products, max_products;
    int ncv;
    double tolerance;
    double *residual, *basis, *workd, *workl;
} solver;

static plsh_status solver_create(solver *self, plsh_error *error) {
    const size_t n = (size_t)self->n, ncv = (size_t)self->ncv;
    const struct {
        double **array;
        size_t count;
    } parts[] = {{&self->residual, n},
                 {&self->basis, n * ncv},
                 {&self->workd, 3 * n},
                 {&self->workl, ncv * (ncv + 8)}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        plsh_status status = plsh_allocate((void **)parts[i].array, parts[i].count, sizeof(double),
                                           "the eigenvalue solver", error);
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

static void solver_destroy(solver *self) {
    plsh_release(self->residual);
    plsh_release(self->basis);
    plsh_release(self->workd);
    plsh_release(self->workl);
}

static void product(solver *self, const double *x, double *y) {
    self->matrix->apply(self->matrix->context, x, y);
    self->products++;
}

static plsh_status iterate(solver *self, double *norm, plsh_error *error) {
    int ido = 0, info = 1, n = (int)self->n, ncv = self->ncv;
    int iparam[11] = {0}, ipntr[14] = {0}, select[KRYLOV] = {0};
    iparam[0] = 1;
    iparam[2] = (int)(self->max_products < INT32_MAX ? self->max_products : INT32_MAX);
    iparam[3] = 1;
    iparam[6] = 1;
    const int lworkl = ncv * (ncv + 8);
    for (;;) {
        arpack.dsaupd_c(&ido, "I", n, "LM", 1, self->tolerance, self->residual, ncv, self->basis, n,
                        iparam, ipntr, self->workd, self->workl, lworkl, &info);
        if (ido != 1 && ido != -1) break;
        if (self->products >= self->max_products)
            return plsh_fail(error, PLSH_STATUS_NO_CONVERGENCE,
                             "the spectral norm did not converge to %g within %lld products; allow "
                             "more or a larger tolerance",
                             self->tolerance, (long long)self->max_products);
        product(self, self->workd + ipntr[0] - 1, self->workd + ipntr[1] - 1);
    }
    if (info == 0) {
        double value = 0;
        arpack.dseupd_c(0, "A", select, &value, self->basis, n, 0, "I", n, "LM", 1, self->tolerance,
                        self->residual, ncv, self->basis, n, iparam, ipntr, self->workd,
                        self->workl, lworkl, &info);
        *norm = fabs(value);
    }
    if (info != 0)
        return plsh_fail(error, PLSH_STATUS_NO_CONVERGENCE,
                         "the eigenvalue solver stopped with code %d after %lld products",
                         (int)info, (long long)self->products);
    return PLSH_STATUS_OK;
}

static plsh_status solve_by_arpack(const plsh_symmetric *matrix, const plsh_norms_options *options,
                                   double *norm, int64_t *products, plsh_error *error) {
    const int64_t n = matrix->n;
    const int vectors = matrix->cost > DEAR_PER_ROW * (double)n ? KRYLOV_DEAR : KRYLOV;
    solver self = {.matrix = matrix,
                   .n = n,
                   .max_products = options->max_products ? options->max_products : 100000,
                   .ncv = n < vectors ? (int)n : vectors,
                   .tolerance = options->tolerance == 0 ? 1e-6 : options->tolerance};
    plsh_status status = solver_create(&self, error);
    self.products = 1;
    if (!status && plsh_spectral_start(matrix, self.residual, self.workd))
        status = iterate(&self, norm, error);
    *products = self.products;
    solver_destroy(&self);
    return status;
}

#endif

plsh_status plsh_spectral_solve(const plsh_symmetric *matrix, const plsh_norms_options *options,
                                double *norm, int64_t *products, plsh_error *error) {
    *norm = 0;
    *products = 0;
    if (matrix->n == 0) return PLSH_STATUS_OK;
    if (matrix->n == 1) { /* 0, but for masks that count blocks */
        const double one = 1;
        matrix->apply(matrix->context, &one, norm);
        *norm = fabs(*norm);
        *products = 1;
        return PLSH_STATUS_OK;
    }
#ifdef PLSH_WITH_ARPACK
    pthread_mutex_lock(&solver_lock);
    const bool loaded = load_arpack();
    plsh_status status = PLSH_STATUS_OK;
    if (loaded) status = solve_by_arpack(matrix, options, norm, products, error);
    pthread_mutex_unlock(&solver_lock);
    if (loaded) return status;
#endif
    return plsh_lanczos_solve(matrix, options, norm, products, error);
}
