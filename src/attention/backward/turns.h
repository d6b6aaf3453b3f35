/* attention: the order in which tiles add to dK and dV.
 *
 * The tiles of queries that read the same keys form a chain. Each tile adds to dK and dV of the
 * keys it visits. The sums must not depend on the threads, so they are made in the order of the
 * chain: a tile waits before it adds to keys that an earlier tile may still visit, and every tile
 * announces, as it goes, which keys it may still visit. Tiles are taken in the order of their
 * chain, so the first unfinished one never waits, and threads on one chain follow each other at a
 * distance of one step. Threads prefer chains that no other thread works on; there they never wait.
 *
 *     plsh_turn turn = {.chain = -1};
 *     while (plsh_turns_take(turns, &turn)) {
 *         for every run of keys { plsh_turns_wait(..); add; plsh_turns_pass(..); }
 *         plsh_turns_end(turns, &turn);
 *     } */
#ifndef PLSH_ATTENTION_TURNS_H
#define PLSH_ATTENTION_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct plsh_turns_chain {
    int64_t first, tiles; /* its tiles among those of all chains */
    _Atomic int64_t taken,
        done; /* tiles given out; tiles finished, counted from the first without a gap */
} plsh_turns_chain;

typedef struct plsh_turns {
    int64_t room, tiles; /* of the arrays */
    int64_t chains;
    _Atomic int64_t started; /* chains of which a tile was taken */
    plsh_turns_chain *chain;
    _Atomic uint64_t *ahead; /* per tile: the keys that it may still add to, see turns.c */
} plsh_turns;

/* Takes its arrays, for that many chains with that many tiles together. */
void plsh_turns_layout(plsh_turns *turns, int64_t chains, int64_t tiles, plsh_arena *arena);

/* Begins without chains; then plsh_turns_add for each, expensive ones first. */
void plsh_turns_begin(plsh_turns *turns);
void plsh_turns_add(plsh_turns *turns, int64_t tiles);

/* Tile number `tile` of chain number `chain`. */
typedef struct plsh_turn {
    int64_t chain, tile;
} plsh_turn;

/* Takes the next tile, of the same chain if one is left there. False when all tiles are taken. */
bool plsh_turns_take(plsh_turns *turns, plsh_turn *turn);

/* Returns when no earlier tile of the chain will add to the keys begin .. end - 1 any more. */
void plsh_turns_wait(plsh_turns *turns, const plsh_turn *turn, int64_t begin, int64_t end);

/* Announces that from now on this tile adds only to the keys below `left` and from `right` on. */
void plsh_turns_pass(plsh_turns *turns, const plsh_turn *turn, int64_t left, int64_t right);

/* Announces that the tile is finished. */
void plsh_turns_end(plsh_turns *turns, const plsh_turn *turn);

#endif
