/* The kernels for any processor: vectors of four numbers. */
#define LANES 4
#include "all_kernels.h"

const struct kernels rskip_plain = {attend, residual, map, embed, normalise, best,
                                cross_entropy, log_softmax, log_softmax_gradient, quantise, rescale};
