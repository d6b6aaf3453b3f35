/* theory: the discrete Fourier transform of a power of two of complex numbers. */
#ifndef PLSH_THEORY_FOURIER_H
#define PLSH_THEORY_FOURIER_H

#include "plsh/status.h"

typedef struct plsh_fourier {
    int64_t size;   /* a power of two, at least 4 */
    double *cosine; /* cos(2 pi k / size), k < size */
} plsh_fourier;

/* size numbers or the next power of two above. */
plsh_status plsh_fourier_create(int64_t size, plsh_fourier *fourier, plsh_error *error);
void plsh_fourier_destroy(plsh_fourier *fourier);

/* In place: x_j becomes sum_k x_k e^(-2 pi i j k / size). Exchange re and im for the sign +. */
void plsh_fourier_transform(const plsh_fourier *fourier, double *re, double *im);

#endif
