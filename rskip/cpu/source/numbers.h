/* Single numbers in float32 and bfloat16. */
#ifndef RSKIP_NUMBERS_H
#define RSKIP_NUMBERS_H

#include <stdint.h>
#include <string.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

INLINE float as_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t as_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

/* round to nearest, ties to even; a NaN stays one */
INLINE uint16_t to_bfloat16(float x) {
    uint32_t bits = as_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE float get(const void *from, int64_t index, int type) {
    return type == FLOAT32 ? ((const float *)from)[index] : as_float((uint32_t)((const uint16_t *)from)[index] << 16);
}

INLINE void set(void *to, int64_t index, float x, int type) {
    if (type == FLOAT32) ((float *)to)[index] = x;
    else ((uint16_t *)to)[index] = to_bfloat16(x);
}

#endif
