/* Attention over depth: what is done once for all tokens. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define OF(a) for_features(((const struct attending *)(a))->features)

static void attend_share(const void *a, int64_t first, int64_t last) { OF(a)->attend_depth(a, first, last); }
static void gradient_share(const void *a, int64_t first, int64_t last) { OF(a)->attend_depth_gradient(a, first, last); }

static float *fold(const struct attending *a) {
    float *u = malloc(a->features * sizeof *u);
    if (!u) abort();
    for (int64_t c = 0; c < a->features; c++) u[c] = a->key_gain[c] * a->query[c];
    return u;
}

EXPORT void rskip_attend_depth(struct attending *a, int64_t count, int64_t threads) {
    a->folded = fold(a);
    in_groups(attend_share, a, count, OF(a)->chunk / 2, threads);
    free(a->folded);
}

EXPORT void rskip_attend_depth_gradient(struct attending *a, int64_t count, int64_t threads) {
    const int64_t features = a->features;
    a->folded = fold(a);
    a->tokens_per_block = ((count + BLOCKS - 1) / BLOCKS + MOST_LANES - 1) / MOST_LANES * MOST_LANES;
    const int64_t blocks = (count + a->tokens_per_block - 1) / a->tokens_per_block;
    a->partial = calloc(blocks * 3 * features, sizeof *a->partial);
    if (!a->partial) abort();
    in_threads(gradient_share, a, blocks, threads);
    for (int64_t block = 1; block < blocks; block++)
        for (int64_t c = 0; c < 3 * features; c++) a->partial[c] += a->partial[block * 3 * features + c];
    for (int64_t c = 0; c < features; c++) {
        a->of_query[c] = a->partial[c] * a->key_gain[c];
        a->of_key_gain[c] = a->partial[c] * a->query[c];
    }
    if (a->of_gain) memcpy(a->of_gain, a->partial + features, features * sizeof(float));
    if (a->of_shift) memcpy(a->of_shift, a->partial + 2 * features, features * sizeof(float));
    free(a->partial);
    free(a->folded);
}
