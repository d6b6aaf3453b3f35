/* theory: the spectral norm of a symmetric matrix by Lanczos with thick restarts (Wu and Simon,
 * 2000), for builds and machines without ARPACK.
 *
 * The basis V is orthonormal, H = V^T A V. A step appends A v_j, orthogonalised against all of V;
 * its coefficients are the new column of H. When the basis is full, the eigenvectors of H give Ritz
 * vectors V y with A V y - theta V y = beta y_last v_next. The best of them and v_next begin the
 * next basis. */
#include "theory/operator.h"

#include "base/memory.h"
#include "base/status.h"

#include <float.h>
#include <math.h>

enum { SPACE = 32, KEPT = 10, SWEEPS = 30 };

typedef struct lanczos {
    const plsh_symmetric *matrix;
    int64_t n, products;
    int space, size;             /* vectors that fit, and that have their column of H */
    double *basis;               /* [space + 1][n] */
    double h[SPACE][SPACE];      /* H, then diagonal */
    double vector[SPACE][SPACE]; /* column i: eigenvector i of H */
    double beta;                 /* of the last step */
    double scale;                /* the largest |A v_j| so far */
} lanczos;

static double *basis_at(const lanczos *self, int i) { return self->basis + i * self->n; }

static double dot_product(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* y += factor x. */
static void add_multiple(double *y, double factor, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += factor * x[i];
}

static void scale_by(double *x, double factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Column j of H and vector j + 1. Twice is enough: the second pass removes what rounding left. */
static void append_vector(lanczos *self, int j) {
    double *next = basis_at(self, j + 1);
    self->matrix->apply(self->matrix->context, basis_at(self, j), next);
    self->products++;
    for (int i = 0; i <= j; i++) self->h[i][j] = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i <= j; i++) {
            const double part = dot_product(basis_at(self, i), next, self->n);
            add_multiple(next, -part, basis_at(self, i), self->n);
            self->h[i][j] += part;
        }
    for (int i = 0; i < j; i++) self->h[j][i] = self->h[i][j];
    self->beta = sqrt(dot_product(next, next, self->n));
    double square = self->beta * self->beta;
    for (int i = 0; i <= j; i++) square += self->h[i][j] * self->h[i][j];
    self->scale = fmax(self->scale, sqrt(square));
    self->size = j + 1;
}

/* One rotation of Jacobi's method, which makes h[p][q] 0. */
static void rotate(lanczos *self, int p, int q) {
    const double twice = 2 * self->h[p][q];
    if (twice == 0) return;
    const double ratio = (self->h[q][q] - self->h[p][p]) / twice;
    const double t = copysign(1 / (fabs(ratio) + hypot(1, ratio)), ratio);
    const double c = 1 / hypot(1, t), s = t * c;
    for (int i = 0; i < self->size; i++) {
        const double x = self->h[i][p], y = self->h[i][q];
        self->h[i][p] = c * x - s * y;
        self->h[i][q] = s * x + c * y;
    }
    for (int i = 0; i < self->size; i++) {
        const double x = self->h[p][i], y = self->h[q][i];
        self->h[p][i] = c * x - s * y;
        self->h[q][i] = s * x + c * y;
    }
    for (int i = 0; i < self->size; i++) {
        const double x = self->vector[i][p], y = self->vector[i][q];
        self->vector[i][p] = c * x - s * y;
        self->vector[i][q] = s * x + c * y;
    }
}

/* H becomes diagonal. Jacobi's method converges quadratically: about 8 sweeps. */
static void diagonalise(lanczos *self) {
    for (int i = 0; i < self->size; i++)
        for (int j = 0; j < self->size; j++) self->vector[i][j] = i == j;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double beside = 0, diagonal = 0;
        for (int p = 0; p < self->size; p++) {
            diagonal += self->h[p][p] * self->h[p][p];
            for (int q = p + 1; q < self->size; q++) beside += self->h[p][q] * self->h[p][q];
        }
        if (beside <= DBL_EPSILON * DBL_EPSILON * diagonal) return;
        for (int p = 0; p < self->size; p++)
            for (int q = p + 1; q < self->size; q++) rotate(self, p, q);
    }
}

/* The eigenvalues in order of magnitude, the largest first. */
static void order_values(const lanczos *self, int order[SPACE]) {
    for (int i = 0; i < self->size; i++) {
        int at = i;
        for (; at > 0 && fabs(self->h[order[at - 1]][order[at - 1]]) < fabs(self->h[i][i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The best Ritz vectors and the last vector begin the next basis. */
static void restart(lanczos *self, const int order[SPACE]) {
    const int kept = self->size / 3 < KEPT ? self->size / 3 : KEPT, last = self->size;
    double value[KEPT];
    for (int64_t i = 0; i < self->n; i++) {
        double row[KEPT] = {0};
        for (int k = 0; k < kept; k++)
            for (int j = 0; j < last; j++)
                row[k] += basis_at(self, j)[i] * self->vector[j][order[k]];
        for (int k = 0; k < kept; k++) basis_at(self, k)[i] = row[k];
        basis_at(self, kept)[i] = basis_at(self, last)[i];
    }
    for (int k = 0; k < kept; k++) value[k] = self->h[order[k]][order[k]];
    for (int k = 0; k < kept; k++)
        for (int j = 0; j < kept; j++) self->h[k][j] = k == j ? value[k] : 0;
    self->size = kept;
}

static plsh_status iterate(lanczos *self, double tolerance, int64_t most, double *norm,
                           plsh_error *error) {
    for (;;) {
        bool exact = false; /* the space is invariant */
        while (self->size < self->space && !exact) {
            if (self->products >= most)
                return plsh_fail(error, PLSH_STATUS_NO_CONVERGENCE,
                                 "the spectral norm did not converge to %g within %lld products; "
                                 "allow more or a larger tolerance",
                                 tolerance, (long long)most);
            append_vector(self, self->size);
            const int j = self->size - 1;
            exact = self->size == self->n || self->beta <= 64 * DBL_EPSILON * self->scale;
            if (!exact) scale_by(basis_at(self, j + 1), 1 / self->beta, self->n);
        }
        int order[SPACE] = {0};
        diagonalise(self);
        order_values(self, order);
        *norm = fabs(self->h[order[0]][order[0]]);
        const double residual = self->beta * fabs(self->vector[self->size - 1][order[0]]);
        if (exact || residual <= tolerance * *norm) return PLSH_STATUS_OK;
        restart(self, order);
    }
}

plsh_status plsh_lanczos_solve(const plsh_symmetric *matrix, const plsh_norms_options *options,
                               double *norm, int64_t *products, plsh_error *error) {
    const int64_t n = matrix->n;
    lanczos self = {.matrix = matrix, .n = n, .space = n < SPACE ? (int)n : SPACE};
    plsh_status status = plsh_allocate((void **)&self.basis, (size_t)n * (size_t)(self.space + 1),
                                       sizeof(double), "the eigenvalue solver", error);
    *norm = 0;
    *products = 0;
    if (status) return status;
    double *first = basis_at(&self, 0);
    self.products = 1;
    if (plsh_spectral_start(matrix, first, basis_at(&self, 1))) {
        scale_by(first, 1 / sqrt(dot_product(first, first, n)), n);
        status = iterate(&self, options->tolerance == 0 ? 1e-6 : options->tolerance,
                         options->max_products ? options->max_products : 100000, norm, error);
    }
    *products = self.products;
    plsh_release(self.basis);
    return status;
}
