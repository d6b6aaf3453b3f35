/* tests: a digest of partitions, which has to be the same on every processor. Prints a line per
 * scheme and design; tests/portable.sh compares a native and an emulated run. */
#include "plsh/plsh.h"

#include <inttypes.h>
#include <stdio.h>

/* FNV-1a over 64-bit words. */
static uint64_t mix(uint64_t digest, uint64_t word) {
    return (digest ^ word) * UINT64_C(0x100000001b3);
}

static uint64_t digest_set(const plsh_partition *set) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (int64_t m = 0; m < set->samples; m++)
        for (int64_t i = -5; i <= 5; i++)
            for (int far = 0; far < 2; far++) {
                plsh_range block;
                plsh_partition_block(set, m, far ? i * 900719925474099999 : i * 1000, &block);
                digest = mix(mix(digest, (uint64_t)block.begin), (uint64_t)block.end);
            }
    return digest;
}

int main(void) {
    const double sigmas[] = {1e-3, 0.7, 2, 37.5, 256, 1e6};
    for (int scheme = PLSH_SCHEME_BINNING; scheme <= PLSH_SCHEME_CUTS; scheme++)
        for (int design = 0; design < 2; design++)
            for (size_t k = 0; k < sizeof sigmas / sizeof sigmas[0]; k++) {
                if (scheme == PLSH_SCHEME_CUTS && sigmas[k] > 300) continue; /* O(sigma) a block */
                plsh_partition set = plsh_partition_default(sigmas[k], 200);
                set.scheme = (plsh_scheme)scheme;
                set.design = (plsh_design)design;
                printf("%d %d %g %016" PRIx64 "\n", scheme, design, sigmas[k], digest_set(&set));
            }
    for (size_t k = 0; k < sizeof sigmas / sizeof sigmas[0]; k++) {
        plsh_partition set = plsh_partition_default(sigmas[k], 200);
        set.design = PLSH_DESIGN_GOLDEN;
        if (plsh_partition_check(&set, NULL)) return 1;
        printf("golden %g %016" PRIx64 "\n", sigmas[k], digest_set(&set));
    }
    plsh_decay decays[] = {{.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.3},
                           {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.2, .b = 0.5, .limit = 0.1},
                           {.kind = PLSH_DECAY_TRIANGLE, .a = 20.5}};
    for (int k = 0; k < 3; k++) {
        plsh_partition set = plsh_partition_default(1.0, 200);
        set.decay = decays[k];
        printf("decay %d %016" PRIx64 "\n", k, digest_set(&set));
    }
    return 0;
}
