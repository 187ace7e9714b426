/* Before and after a product of 8-bit integers: rows to integers and their scale, and sums to what they stand for. */

/* the lowest byte of each word */
INLINE bytes lowest_bytes(words x) {
#if LANES == 16 /* gcc 12 makes many conversions of one */
    return (bytes)_mm512_cvtepi32_epi8((__m512i)x);
#elif LANES == 8
    const __m256i first = _mm256_set1_epi32(0x0c080400);
    const __m256i parts = _mm256_shuffle_epi8((__m256i)x, first); /* of each half, four times over */
    return (bytes)_mm_cvtsi128_si64(_mm_unpacklo_epi32(_mm256_castsi256_si128(parts), _mm256_extracti128_si256(parts, 1)));
#else
    return __builtin_convertvector(x, bytes);
#endif
}

INLINE void quantise_typed(const struct quantised *a, int64_t row, const int type) {
    const int64_t count = a->features, start = row * count;
    integers most = {0}; /* compared as integers, magnitudes are in order, and a NaN is the largest */
    uint32_t maximum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const integers x = (integers)load(a->x, start + i, type) & 0x7fffffff, more = x > most;
        most = (more & x) | (~more & most);
    }
    for (int lane = 0; lane < LANES; lane++) maximum = (uint32_t)most[lane] > maximum ? (uint32_t)most[lane] : maximum;
    for (; i < count; i++) {
        const uint32_t x = as_bits(get(a->x, start + i, type)) & 0x7fffffff;
        maximum = x > maximum ? x : maximum;
    }
    const float step = as_float(maximum) / 127, scale = step < FLT_MIN ? FLT_MIN : step, factor = 1 / scale;
    a->scales[row] = scale;
    uint8_t *output = a->output + start;
    /* adding 1.5·2^23 leaves the nearest integer in the last bits; 128 is the integers' zero */
    for (i = 0; i + LANES <= count; i += LANES) {
        const words x = (words)(load(a->x, start + i, type) * factor + (12582912.0f + 128));
        const bytes narrow = lowest_bytes(x);
        memcpy(output + i, &narrow, sizeof narrow);
    }
    for (; i < count; i++) output[i] = (uint8_t)as_bits(get(a->x, start + i, type) * factor + (12582912.0f + 128));
}

static void quantise(const struct quantised *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(quantise_typed, a, row);
}

/* sums·scale + bias, in place */
static void rescale(const struct rescaled *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
        float *y = a->sums + row * a->features;
        const float scale = a->scales[row];
        int64_t i = 0;
        for (; i + LANES <= a->features; i += LANES) {
            const vector x = load(y, i, FLOAT32) * scale;
            store(y, i, a->bias ? x + load(a->bias, i, FLOAT32) : x, FLOAT32);
        }
        for (; i < a->features; i++) y[i] = y[i] * scale + (a->bias ? a->bias[i] : 0);
    }
}
