/* The kernels for x86 processors with AVX2. Elsewhere this file is empty. */
#if defined(__x86_64__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#define KERNELS rskip_avx2
#include "all_kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
