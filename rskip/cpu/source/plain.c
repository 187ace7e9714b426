/* The kernels for any processor: vectors of four numbers. */
#define LANES 4
#define KERNELS rskip_plain
#include "all_kernels.h"
