/* What the files of the library share: the kernels of this processor, and threads. */
#ifndef RSKIP_LIBRARY_H
#define RSKIP_LIBRARY_H

#include "kernels.h"

#define EXPORT __attribute__((visibility("default")))
#define BLOCKS 64 /* of tokens, whose sums are added in their order, so that the number of threads changes nothing */
#define FEWEST 64 /* tokens of such a block, or its sums take longer than its gradients */

extern const struct kernels *chosen;

/* The kernels that train connections of so many features, which are a multiple of their `chunk`: AVX2's if not of AVX-512's. */
const struct kernels *for_features(int64_t features);

/* Runs a kernel on the indices 0 to `count` - 1 in up to `threads` threads, including the caller's. Returns when all
   have ended. */
void in_threads(void (*kernel)(const void *, int64_t first, int64_t last), const void *arguments, int64_t count, int64_t threads);

/* The same for a kernel that takes tokens in groups of `size`: no group is divided. */
void in_groups(void (*kernel)(const void *, int64_t first, int64_t last), const void *arguments, int64_t tokens, int64_t size, int64_t threads);

/* One operation of a `struct program` after the other, each on the sentences `first` to `last`. */
void run_share(const void *program, int64_t first, int64_t last);

int rskip_open_slots(int32_t *slots, int64_t sentences, int64_t beams, int64_t row, int64_t length, int64_t count, uint8_t *seen);

#endif
