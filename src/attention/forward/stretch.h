/* attention: sums over very many keys.
 *
 * Each addition to a long float sum has an error of up to half an ulp, and for similar terms the
 * errors have the same sign: adding a million keys one step after the other would lose 12 of 24
 * bits. So the rows of o and of dQ are summed in stretches of 16 steps (2048 keys), each from zero.
 * The sums of the stretches are added by compensated (Kahan) summation. */
#ifndef PLSH_ATTENTION_STRETCH_H
#define PLSH_ATTENTION_STRETCH_H

#include "attention/plan/plan.h"
#include "base/arena.h"

enum { PLSH_STRETCH_STEPS = 16 };

typedef struct plsh_stretches {
    int group, columns;
    float *past, *past_low;       /* [groups][group][columns], the sum of the finished stretches */
    float *m;                     /* [groups][group], the maxima that they are relative to */
    int steps[PLSH_TILE_QUERIES]; /* per group: steps of the current stretch */
    bool closed[PLSH_TILE_QUERIES]; /* per group: is a stretch finished? */
} plsh_stretches;

/* Takes the buffers, for rows of `columns` floats. */
void plsh_stretches_layout(plsh_stretches *all, const plsh_plan *plan, int columns,
                           plsh_arena *arena);

/* Resets: no stretch is finished. */
void plsh_stretches_begin(plsh_stretches *all);

/* Group g's rows `sum`, relative to the maxima m (NULL: to none), have taken a step: at the end of
 * a stretch they go to the past, and start from zero. */
void plsh_stretches_step(plsh_stretches *all, int g, float *sum, const float *m);

/* Adds the finished stretches of group g to its rows. */
void plsh_stretches_end(plsh_stretches *all, int g, float *sum, const float *m);

#endif
