/* GatedResidual: what is done once for all tokens. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

static void share(const void *a, int64_t first, int64_t last) { for_features(((const struct gated *)a)->features)->gate_streams(a, first, last); }

EXPORT void rskip_gate_streams(const struct gated *given, int64_t count, int64_t threads) {
    struct gated copied = *given, *a = &copied; /* Python's bytes must not change */
    const int64_t gains = a->of_gain ? a->streams * a->features : 0, shared = (count + BLOCKS - 1) / BLOCKS;
    a->tokens_per_block = shared > FEWEST ? shared : FEWEST;
    const int64_t blocks = (count + a->tokens_per_block - 1) / a->tokens_per_block;
    a->partial = calloc(blocks * gains + 1, sizeof *a->partial);
    if (!a->partial) abort();
    in_threads(share, a, blocks, threads);
    for (int64_t block = 1; block < blocks; block++)
        for (int64_t i = 0; i < gains; i++) a->partial[i] += a->partial[block * gains + i];
    if (gains) memcpy(a->of_gain, a->partial, gains * sizeof(float));
    free(a->partial);
}
