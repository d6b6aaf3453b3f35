/* theory: the discrete Fourier transform (Cooley and Tukey's, by factors of two, in place). */
#include "theory/fourier.h"

#include "base/memory.h"

#include <math.h>

plsh_status plsh_fourier_create(int64_t size, plsh_fourier *fourier, plsh_error *error) {
    *fourier = (plsh_fourier){.size = 4};
    while (fourier->size < size) fourier->size *= 2;
    plsh_status status = plsh_allocate((void **)&fourier->cosine, (size_t)fourier->size,
                                       sizeof *fourier->cosine, "cosines", error);
    for (int64_t k = 0; !status && k < fourier->size; k++)
        fourier->cosine[k] = cos(6.28318530717958648 * (double)k / (double)fourier->size);
    return status;
}

void plsh_fourier_destroy(plsh_fourier *fourier) {
    plsh_release(fourier->cosine);
    fourier->cosine = NULL;
}

static void exchange(double *a, double *b) {
    double x = *a;
    *a = *b;
    *b = x;
}

static void reverse_bits(int64_t size, double *re, double *im) {
    for (int64_t i = 1, j = 0; i < size; i++) {
        int64_t bit = size >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
        if (i < j) exchange(&re[i], &re[j]), exchange(&im[i], &im[j]);
    }
}

void plsh_fourier_transform(const plsh_fourier *fourier, double *re, double *im) {
    const int64_t size = fourier->size, mask = size - 1;
    const double *cosine = fourier->cosine;
    reverse_bits(size, re, im);
    for (int64_t half = 1; half < size; half *= 2) {
        const int64_t step = size / (2 * half);
        for (int64_t k = 0; k < half; k++) {
            const double c = cosine[k * step];
            const double s = cosine[(k * step + size / 4) & mask]; /* cos(x + pi/2) = -sin(x) */
            for (int64_t i = k; i < size; i += 2 * half) {
                double a = re[i + half] * c - im[i + half] * s;
                double b = im[i + half] * c + re[i + half] * s;
                re[i + half] = re[i] - a, im[i + half] = im[i] - b;
                re[i] += a, im[i] += b;
            }
        }
    }
}
