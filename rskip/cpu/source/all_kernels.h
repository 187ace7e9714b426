/* Every kernel, for the instructions that the including file chose by LANES, as one table called KERNELS. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "vector.h"
#include "attention.h"
#include "gates.h"
#include "vocabulary.h"
#include "product.h"
#include "rows.h"
#include "loss.h"
#include "int8.h"
#include "streams.h"
#include "depth.h"
#include "scaling.h"
#include "gated.h"

const struct kernels KERNELS = {attend, residual, map, embed, join, gate, normalise, best, bound, scan, weigh,
                                cross_entropy, log_softmax, log_softmax_gradient, pack, packed_bytes, map8,
                                map8_block, pack8, packed_bytes8, read_streams, read_streams_gradient,
                                read_streams_columns, write_streams, write_streams_gradient, attend_depth, attend_depth_gradient,
                                scale, scale_gradient, gate_streams, CHUNK, LARGEST_WEIGHT, LARGEST};
