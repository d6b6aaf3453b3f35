/* partition: the hyperplanes of a draw.
 *
 * Compiled without contraction and without libm: the same bits everywhere for the same rate. */
#include "partition/planes.h"

#include "base/memory.h"
#include "partition/draw.h"
#include "partition/permute.h"

#include <math.h>

/* A shell has at most SLOTS hyperplanes: Poisson of mean 2, Pr[> 30] < 2^-80. */
enum { SLOTS = 32 };

/* In simulations of stratified sets in the plane (s = 64), 2 had less error than 8 and 40. */
static const double MEAN = 2, EXP_MINUS_MEAN = 0.1353352832366127;

/* E|u.e| = Gamma(D/2) / (sqrt(pi) Gamma((D+1)/2)) for D = 1, 2, 3. */
static const double projection[4] = {0, 1, 0.63661977236758134, 0.5};

static double shell_width(int dim, double rate) { return MEAN * projection[dim] / (2 * rate); }

double plsh_planes_expected(int dim, double rate, double radius) {
    return MEAN * radius / shell_width(dim, rate);
}

/* Pr[Poisson(MEAN) <= j]. */
static double poisson_below(int j) {
    double term = EXP_MINUS_MEAN, sum = term;
    for (int i = 1; i <= j; i++) sum += term *= MEAN / i;
    return sum < 1 ? sum : 1;
}

/* cos and sin of `turn` full turns, 0 <= turn < 1: x = the angle from the nearest multiple of a
 * quarter turn, |x| <= pi / 4, and Taylor's series; the next terms are below 2^-58. */
static void direction(double turn, double *cosine, double *sine) {
    const int quarter = (int)(4 * turn + 0.5);
    const double x = (4 * turn - quarter) * 1.57079632679489662, square = x * x;
    double c = 0, s = 0;
    for (int k = 18; k >= 2; k -= 2) c = (1 + c) * -square / (k * (k - 1));
    for (int k = 19; k >= 3; k -= 2) s = (1 + s) * -square / (k * (k - 1));
    c += 1;
    s = x * (1 + s);
    *cosine = (quarter & 1) ? -s : c;
    *sine = (quarter & 1) ? c : s;
    if (quarter & 2) *cosine = -*cosine, *sine = -*sine;
}

/* The numbers in (0, 1) that make one hyperplane: turn, offset within its shell, height. */
typedef struct plane_units {
    double turn, offset, height;
} plane_units;

static plane_units units_iid(const plsh_partition *set, uint64_t index) {
    const plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_PLANE, index);
    const plsh_random more = plsh_partition_random(set, PLSH_PURPOSE_WEIGHT, index);
    return (plane_units){plsh_random_unit(random.word[0]), plsh_random_unit(random.word[1]),
                         plsh_random_unit(more.word[1])};
}

/* Stratified: the `count` samples that have a hyperplane in this slot of the shell share a lattice
 * (q / count, q golden, q plastic), q = 0 .. count - 1, shifted at random, and take its points in a
 * random order. Each point is uniform by itself. `place` numbers the samples that have one. */
static plane_units units_lattice(const plsh_partition *set, uint64_t index, int64_t place,
                                 int64_t count) {
    const plsh_random shift = plsh_partition_random(set, PLSH_PURPOSE_PLANE, index);
    const plsh_random more = plsh_partition_random(set, PLSH_PURPOSE_WEIGHT, index);
    /* A stream of its own: the indices of slots are below 2^62. */
    const plsh_random key =
        plsh_partition_random(set, PLSH_PURPOSE_PLANE, index | UINT64_C(1) << 63);
    const uint64_t q = plsh_permuted((uint64_t)place, (uint64_t)count, key.word[0]);
    return (plane_units){
        plsh_random_unit(shift.word[0] + q * (UINT64_MAX / (uint64_t)count)),
        plsh_random_unit(shift.word[1] + q * UINT64_C(0x9e3779b97f4a7c15)),
        plsh_random_unit(more.word[1] + q * UINT64_C(0xc13fa9a902a6328f)),
    };
}

/* p in [shell, shell + 1) widths, u by the turn and, in R^3, by Archimedes: the height of a uniform
 * point of the sphere is uniform. */
static void put_plane(plsh_planes *planes, plane_units unit, double shell, double width,
                      uint64_t weight) {
    const int64_t at = planes->count++;
    double cosine = unit.turn < 0.5 ? 1 : -1, sine = 0, ring = 1;
    if (planes->dim > 1) direction(unit.turn, &cosine, &sine);
    if (planes->dim > 2) {
        const double height = 2 * unit.height - 1;
        ring = sqrt(1 - height * height);
        planes->normal[2][at] = height;
    }
    planes->normal[0][at] = ring * cosine;
    if (planes->dim > 1) planes->normal[1][at] = ring * sine;
    planes->offset[at] = (shell + unit.offset) * width;
    planes->weight[at] = weight;
}

/* One shell of one sample. `place` is the sample's number in a random order of the s samples. The
 * sample has as many hyperplanes in this shell as the Poisson quantile of (place + shift) / s says:
 * it has hyperplane j if that number is at least Pr[Poisson <= j]. A sample of design iid draws the
 * shell alone, with s = 1. */
typedef struct shell_draw {
    uint64_t stream; /* the number of the shell in the random streams */
    int64_t s, place;
    double shift;
    int count;
} shell_draw;

static int64_t slot_first(const shell_draw *shell, const double *below, int slot) {
    return (int64_t)ceil((double)shell->s * below[slot] - shell->shift);
}

static shell_draw shell_open(const plsh_partition *set, int64_t sample, int64_t number,
                             const double *below) {
    const bool iid = set->design == PLSH_DESIGN_IID;
    shell_draw shell = {.stream = (uint64_t)number, .s = iid ? 1 : set->samples};
    if (iid) shell.stream |= (uint64_t)sample << 24; /* numbers are at most 2^23 */
    const plsh_random random = plsh_partition_random(set, PLSH_PURPOSE_SHELL, shell.stream);
    shell.shift = plsh_random_unit(random.word[0]);
    if (!iid)
        shell.place = (int64_t)plsh_permuted((uint64_t)sample, (uint64_t)shell.s, random.word[1]);
    while (shell.count < SLOTS && shell.place >= slot_first(&shell, below, shell.count))
        shell.count++;
    return shell;
}

static void put_shell(const plsh_partition *set, const shell_draw *shell, double number,
                      double width, double radius, const double *below, plsh_planes *planes) {
    for (int j = 0; j < shell->count; j++) {
        const uint64_t index = shell->stream * SLOTS + (uint64_t)j;
        const int64_t first = slot_first(shell, below, j);
        const plane_units unit =
            set->design == PLSH_DESIGN_IID
                ? units_iid(set, index)
                : units_lattice(set, index, shell->place - first, shell->s - first);
        if ((number + unit.offset) * width < radius)
            put_plane(planes, unit, number, width,
                      plsh_partition_random(set, PLSH_PURPOSE_WEIGHT, index).word[0]);
    }
}

static plsh_status make_room(plsh_planes *planes, int64_t most, plsh_error *error) {
    if (most <= planes->capacity) return PLSH_STATUS_OK;
    plsh_planes_release(planes);
    plsh_status status = PLSH_STATUS_OK;
    double **arrays[4] = {&planes->offset, &planes->normal[0], &planes->normal[1],
                          &planes->normal[2]};
    for (int x = 0; !status && x < 4; x++)
        status =
            plsh_allocate((void **)arrays[x], (size_t)most, sizeof(double), "hyperplanes", error);
    if (!status)
        status = plsh_allocate((void **)&planes->weight, (size_t)most, sizeof(uint64_t),
                               "hyperplanes", error);
    if (status)
        plsh_planes_release(planes);
    else
        planes->capacity = most;
    return status;
}

plsh_status plsh_planes_draw(const plsh_partition *set, int64_t sample, int dim, double rate,
                             double radius, plsh_planes *planes, plsh_error *error) {
    planes->count = 0;
    planes->dim = dim;
    if (rate == 0 || radius <= 0) return PLSH_STATUS_OK;
    const double width = shell_width(dim, rate);
    const int64_t shells = (int64_t)(radius / width) + 1;
    double below[SLOTS];
    for (int j = 0; j < SLOTS; j++) below[j] = poisson_below(j);
    int64_t most = 0;
    for (int64_t x = 0; x < shells; x++) most += shell_open(set, sample, x, below).count;
    plsh_status status = make_room(planes, most, error);
    for (int64_t x = 0; !status && x < shells; x++) {
        const shell_draw shell = shell_open(set, sample, x, below);
        put_shell(set, &shell, (double)x, width, radius, below, planes);
    }
    return status;
}

void plsh_planes_release(plsh_planes *planes) {
    plsh_release(planes->offset);
    plsh_release(planes->weight);
    for (int a = 0; a < 3; a++) plsh_release(planes->normal[a]);
    *planes = (plsh_planes){.dim = planes->dim};
}
