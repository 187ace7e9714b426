/* Vectors of LANES numbers, in the compiler's own notation; the file that includes this chooses LANES. */

#if LANES >= 8
#include <immintrin.h>
#elif defined(SIGNED_PRODUCTS)
#include <arm_neon.h>
#endif

#include "numbers.h"

typedef float vector __attribute__((vector_size(LANES * 4)));
typedef int32_t integers __attribute__((vector_size(LANES * 4)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));
typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

/* `kernel` of the arguments and what follows, with their type as a constant */
#define OF_TYPE(kernel, a, ...) \
    do { \
        if ((a)->type == FLOAT32) kernel(a, __VA_ARGS__, FLOAT32); \
        else kernel(a, __VA_ARGS__, BFLOAT16); \
    } while (0)

/* room for `count` numbers, a few kilobytes */
static float *numbers(int64_t count) {
    float *room = malloc(count * sizeof *room);
    if (!room) abort();
    return room;
}

INLINE vector all(float x) { return x - (vector){0}; }

INLINE vector load(const void *from, int64_t index, int type) {
    if (type == FLOAT32) {
        vector x;
        memcpy(&x, (const float *)from + index, sizeof x);
        return x;
    }
#if LANES == 16 /* gcc 12 makes two conversions of one */
    return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const uint16_t *)from + index))), 16);
#else
    halves narrow;
    memcpy(&narrow, (const uint16_t *)from + index, sizeof narrow);
    return (vector)(__builtin_convertvector(narrow, words) << 16);
#endif
}

INLINE void store(void *to, int64_t index, vector x, int type) {
    if (type == FLOAT32) {
        memcpy((float *)to + index, &x, sizeof x);
        return;
    }
    words bits = (words)x;
    words nan = (words)((bits & 0x7fffffff) > 0x7f800000);
    words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    halves narrow = __builtin_convertvector((nan & ((bits >> 16) | 0x40)) | (~nan & rounded), halves);
    memcpy((uint16_t *)to + index, &narrow, sizeof narrow);
}

/* a where the mask is set, b elsewhere */
INLINE vector either(integers mask, vector a, vector b) { return (vector)((mask & (integers)a) | (~mask & (integers)b)); }
INLINE vector larger(vector a, vector b) { /* b where one is no number */
#if LANES == 16
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return either(a > b, a, b);
#endif
}

INLINE vector square_root(vector x) {
#if LANES == 16
    return (vector)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
    return (vector)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t integers_of_four __attribute__((vector_size(16)));
#ifdef __clang__
#define MIX(indices, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIX(indices, a, b, ...) __builtin_shuffle(a, b, (indices){__VA_ARGS__})
#endif

INLINE four narrowed(vector x) {
    four parts[LANES / 4];
    memcpy(parts, &x, sizeof x);
#if LANES == 16
    return (parts[0] + parts[2]) + (parts[1] + parts[3]);
#elif LANES == 8
    return parts[0] + parts[1];
#else
    return parts[0];
#endif
}

/* of each four numbers of a and of b */
#if LANES == 16
#define FIRSTS 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define SECONDS 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define FIRST_PAIRS 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define SECOND_PAIRS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif LANES == 8
#define FIRSTS 0, 8, 1, 9, 4, 12, 5, 13
#define SECONDS 2, 10, 3, 11, 6, 14, 7, 15
#define FIRST_PAIRS 0, 1, 8, 9, 4, 5, 12, 13
#define SECOND_PAIRS 2, 3, 10, 11, 6, 7, 14, 15
#else
#define FIRSTS 0, 4, 1, 5
#define SECONDS 2, 6, 3, 7
#define FIRST_PAIRS 0, 1, 4, 5
#define SECOND_PAIRS 2, 3, 6, 7
#endif

/* the sums of four vectors */
INLINE four sums(vector a, vector b, vector c, vector d) {
    const vector ab = MIX(integers, a, b, FIRSTS) + MIX(integers, a, b, SECONDS);
    const vector cd = MIX(integers, c, d, FIRSTS) + MIX(integers, c, d, SECONDS);
    return narrowed(MIX(integers, ab, cd, FIRST_PAIRS) + MIX(integers, ab, cd, SECOND_PAIRS));
}

INLINE float sum(vector x) {
    four y = narrowed(x);
    return (y[0] + y[2]) + (y[1] + y[3]);
}

INLINE four larger_four(four a, four b) {
    integers_of_four mask = a > b;
    return (four)((mask & (integers_of_four)a) | (~mask & (integers_of_four)b));
}

INLINE float largest(vector x) {
    four parts[LANES / 4];
    memcpy(parts, &x, sizeof x);
#if LANES == 16
    parts[0] = larger_four(parts[0], parts[2]);
    parts[1] = larger_four(parts[1], parts[3]);
#endif
#if LANES >= 8
    parts[0] = larger_four(parts[0], parts[1]);
#endif
    four y = larger_four(parts[0], MIX(integers_of_four, parts[0], parts[0], 2, 3, 0, 1));
    y = larger_four(y, MIX(integers_of_four, y, y, 1, 0, 3, 2));
    return y[0];
}

/* e^x for x <= 0, to 2 units in the last place; 0 below -87, where e^x leaves float32's normal range; NaN stays NaN */
INLINE vector exponential(vector x) {
    vector n = x * 1.44269504088896341f;
    n = (n + 12582912.0f) - 12582912.0f; /* to the nearest integer */
    vector r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vector p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    /* 2^n is made of n's bits, found below the point that was added; n is a small negative number here or p is NaN */
    integers power = ((integers)(n + 12582912.0f) + 127) << 23;
    vector y = p * (vector)power;
    return either(x < -87.0f, (vector){0}, y);
}

/* e^x for x <= 0, for the terms of a sum, in half of the time. Its relative error is at most 2·10^-7·(1 - x/10). Below -87 it
   is about 10^-38. NaN stays NaN. */
INLINE vector summand(vector x) {
    const vector given = larger(all(-87.0f), x);
    const vector point = given * 1.44269504088896341f + 12582912.0f; /* the nearest integer n is in its last bits */
    const vector r = given - (point - 12582912.0f) * 0.693147180559945f;
    vector p = 0.008297647f * r + 0.04191543f;
    p = p * r + 0.16667575f;
    p = p * r + 0.49998894f;
    p = p * r + 0.9999997f;
    p = p * r + 1.0000001f;
    return p * (vector)(((words)point + 127) << 23); /* p·2^n */
}

INLINE vector absolute(vector x) { return (vector)((integers)x & 0x7fffffff); }

/* to 1 unit of float32's last place at 1 */
INLINE vector hyperbolic_tangent(vector x) {
    const vector e = exponential(-2.0f * absolute(x)), y = (1.0f - e) / (1.0f + e);
    return (vector)((integers)y | ((integers)x & ~0x7fffffff));
}

INLINE vector sigmoid(vector x) {
    const vector e = exponential(-absolute(x));
    return either(x < 0, e, all(1)) / (1.0f + e);
}

/* x·Φ(x) with the normal distribution's Φ, to 2·10^-7·|x|; the tail of erf by Abramowitz and Stegun, 7.1.26 */
INLINE vector gelu(vector x) {
    const vector z = absolute(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.3275911f * z);
    vector p = 1.061405429f * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const vector tail = 0.5f * x * p * t * exponential(-z * z);
    return either(x < 0, tail, x - tail);
}

INLINE vector activated(vector x, int64_t activation) {
    switch (activation) {
    case RELU: return either(x < 0, (vector){0}, x);
    case TANH: return hyperbolic_tangent(x);
    case SWISH: return x * sigmoid(x);
    case GELU: return gelu(x);
    case GELU_TANH: return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x)); /* Hendrycks and Gimpel 2016 */
    default: return x;
    }
}
