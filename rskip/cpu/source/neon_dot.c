/* The kernels for 64-bit Arm processors with dot products of 8-bit numbers. Elsewhere this file is empty. */
#if defined(__aarch64__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define LANES 4
#define SIGNED_PRODUCTS
#define KERNELS rskip_neon_dot
#include "all_kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
