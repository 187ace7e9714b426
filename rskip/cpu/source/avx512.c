/* The kernels for x86 processors with AVX512. Elsewhere this file is empty. */
#if defined(__x86_64__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
#define LANES 16
#define KERNELS rskip_avx512
#include "all_kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
