/* Self-adaptive scaling: what is done once for all tokens. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

static void scale_share(const void *a, int64_t first, int64_t last) { for_features(((const struct scaling *)a)->features)->scale(a, first, last); }
static void gradient_share(const void *a, int64_t first, int64_t last) { for_features(((const struct scaling *)a)->features)->scale_gradient(a, first, last); }

EXPORT void rskip_scale(const struct scaling *a, int64_t count, int64_t threads) { in_threads(scale_share, a, count, threads); }

EXPORT void rskip_scale_gradient(const struct scaling *given, int64_t count, int64_t threads) {
    struct scaling copied = *given, *a = &copied; /* Python's bytes must not change */
    const int64_t parameters = 6 * a->features + 2, shared = (count + BLOCKS - 1) / BLOCKS;
    a->tokens_per_block = shared > FEWEST ? shared : FEWEST;
    const int64_t blocks = (count + a->tokens_per_block - 1) / a->tokens_per_block;
    a->partial = calloc(blocks * parameters, sizeof *a->partial);
    if (!a->partial) abort();
    in_threads(gradient_share, a, blocks, threads);
    for (int64_t block = 1; block < blocks; block++)
        for (int64_t i = 0; i < parameters; i++) a->partial[i] += a->partial[block * parameters + i];
    memcpy(a->of_parameters, a->partial, parameters * sizeof(float));
    free(a->partial);
}
