/* attention: turns of the tiles that add to the same keys. The keys that a tile may still add to
 * are one 64-bit word, which is read and written atomically: keys below `left` and from `right` on,
 * in units of UNIT keys. The upper half holds MOST - left, so that 0, the initial value, means all
 * keys. */
#include "attention/backward/turns.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

/* A tile that others wait for is a step or less ahead of them, some 10 us, unless its thread is not
 * running. So a thread spins for 25 to 100 us, depending on the processor, and then sleeps. It does
 * not yield: beside a busy loop on the same processor (Linux 6.18), a thread that waits after every
 * 0.2 ms of work did 0.10 of the work by yielding three times, and 0.58 by three naps. */
enum { UNIT = 32, SPINS = 2000, NAP = 20000 /* ns */ };
static const int64_t MOST = INT32_MAX;

void plsh_turns_layout(plsh_turns *turns, int64_t chains, int64_t tiles, plsh_arena *arena) {
    *turns = (plsh_turns){.room = chains, .tiles = tiles};
    turns->chain = plsh_arena_take(arena, (size_t)chains, sizeof(plsh_turns_chain));
    turns->ahead = plsh_arena_take(arena, (size_t)tiles, sizeof *turns->ahead);
}

void plsh_turns_begin(plsh_turns *turns) {
    memset(turns->chain, 0, (size_t)turns->room * sizeof *turns->chain);
    memset((void *)turns->ahead, 0, (size_t)turns->tiles * sizeof *turns->ahead);
    turns->chains = 0;
    atomic_init(&turns->started, 0);
}

void plsh_turns_add(plsh_turns *turns, int64_t tiles) {
    int64_t c = turns->chains++;
    plsh_turns_chain *chain = &turns->chain[c];
    chain->first = c == 0 ? 0 : chain[-1].first + chain[-1].tiles;
    chain->tiles = tiles;
}

static bool take_from(plsh_turns *turns, int64_t c, plsh_turn *turn) {
    plsh_turns_chain *chain = &turns->chain[c];
    if (atomic_load(&chain->taken) >= chain->tiles) return false;
    int64_t tile = atomic_fetch_add(&chain->taken, 1);
    if (tile >= chain->tiles) return false;
    *turn = (plsh_turn){.chain = c, .tile = tile};
    return true;
}

/* The chain with the most tiles left, or -1. */
static int64_t fullest(plsh_turns *turns) {
    int64_t best = -1, most = 0;
    for (int64_t c = 0; c < turns->chains; c++) {
        int64_t left = turns->chain[c].tiles - atomic_load(&turns->chain[c].taken);
        if (left > most) {
            most = left;
            best = c;
        }
    }
    return best;
}

bool plsh_turns_take(plsh_turns *turns, plsh_turn *turn) {
    if (turn->chain >= 0 && take_from(turns, turn->chain, turn)) return true;
    while (atomic_load(&turns->started) < turns->chains) {
        int64_t c = atomic_fetch_add(&turns->started, 1);
        if (c < turns->chains && take_from(turns, c, turn)) return true;
    }
    for (int64_t c = fullest(turns); c >= 0; c = fullest(turns)) {
        if (take_from(turns, c, turn)) return true;
    }
    return false;
}

static bool may_touch(uint64_t ahead, int64_t begin, int64_t end) {
    int64_t left = MOST - (int64_t)(ahead >> 32), right = (int64_t)(ahead & 0xffffffff);
    return begin < left * UNIT || end > right * UNIT;
}

static const uint64_t finished = (uint64_t)INT32_MAX << 32 | INT32_MAX;

static void pause_briefly(int spins) {
    if (spins >= SPINS) {
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void plsh_turns_wait(plsh_turns *turns, const plsh_turn *turn, int64_t begin, int64_t end) {
    plsh_turns_chain *chain = &turns->chain[turn->chain];
    for (int64_t i = atomic_load(&chain->done); i < turn->tile; i++) {
        _Atomic uint64_t *ahead = &turns->ahead[chain->first + i];
        for (int spins = 0;
             may_touch(atomic_load_explicit(ahead, memory_order_acquire), begin, end);
             spins += spins < SPINS) {
            pause_briefly(spins);
        }
    }
}

void plsh_turns_pass(plsh_turns *turns, const plsh_turn *turn, int64_t left, int64_t right) {
    int64_t low = left / UNIT + (left % UNIT != 0), high = right / UNIT;
    low = low > MOST ? MOST : low;
    high = high > MOST ? MOST : high;
    atomic_store_explicit(&turns->ahead[turns->chain[turn->chain].first + turn->tile],
                          (uint64_t)(MOST - low) << 32 | (uint64_t)high, memory_order_release);
}

void plsh_turns_end(plsh_turns *turns, const plsh_turn *turn) {
    plsh_turns_chain *chain = &turns->chain[turn->chain];
    atomic_store_explicit(&turns->ahead[chain->first + turn->tile], finished, memory_order_release);
    /* `done` is a hint: another thread may set it back to an older value, never to one that is too
     * large. */
    int64_t done = atomic_load(&chain->done);
    while (done < chain->tiles && atomic_load_explicit(&turns->ahead[chain->first + done],
                                                       memory_order_acquire) == finished) {
        done++;
    }
    atomic_store(&chain->done, done);
}
