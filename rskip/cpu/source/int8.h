/* Products of 8-bit integers. */

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

/* The numbers of a row are from ZERO - LARGEST to ZERO + LARGEST, those of a weight from -LARGEST_WEIGHT on. */
#ifdef SIGNED_PRODUCTS
#define ZERO 0
#define LARGEST 127
#elif LANES == 4 || defined(BFLOAT16_PRODUCTS) /* the numbers of a row are unsigned */
#define ZERO 128
#define LARGEST 127
#else /* and of 7 bits where four products are added in 16 bits, which hold 4·127·64 */
#define FOUR_PRODUCTS
#define ZERO 64
#define LARGEST 63
#endif

/* Converts a row x of `count` numbers to 8 bits: x is about scale·(output - ZERO). Returns the scale. */
INLINE float quantise(const float *x, int64_t count, uint8_t *output) {
    integers most = {0}; /* compared as integers, magnitudes are in order, and a NaN is the largest */
    uint32_t maximum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const integers sizes = (integers)load(x, i, FLOAT32) & 0x7fffffff, more = sizes > most;
        most = (more & sizes) | (~more & most);
    }
    for (int lane = 0; lane < LANES; lane++) maximum = (uint32_t)most[lane] > maximum ? (uint32_t)most[lane] : maximum;
    for (; i < count; i++) {
        const uint32_t size = as_bits(x[i]) & 0x7fffffff;
        maximum = size > maximum ? size : maximum;
    }
    const float step = as_float(maximum) / LARGEST, scale = step < FLT_MIN ? FLT_MIN : step, factor = 1 / scale;
    /* adding 1.5·2^23 leaves the nearest integer in the last bits */
    for (i = 0; i + LANES <= count; i += LANES) {
        const words whole = (words)(load(x, i, FLOAT32) * factor + (12582912.0f + ZERO));
        const bytes narrow = lowest_bytes(whole);
        memcpy(output + i, &narrow, sizeof narrow);
    }
    for (; i < count; i++) output[i] = (uint8_t)as_bits(x[i] * factor + (12582912.0f + ZERO));
    return scale;
}

/* Products of 8-bit rows with 8-bit weights in panels, four input features after the other for each feature of y. */
#ifdef SIGNED_PRODUCTS
#define LARGEST_WEIGHT 127
INLINE integers add_products(integers total, integers x, integers weight) {
    return (integers)vdotq_s32((int32x4_t)total, (int8x16_t)x, (int8x16_t)weight);
}
#elif LANES == 4 /* without such products */
#define LARGEST_WEIGHT 0
INLINE integers add_products(integers total, integers x, integers weight) { return total + x + weight; }
#elif defined(BFLOAT16_PRODUCTS) /* processors that have those have these */
#define LARGEST_WEIGHT 127
INLINE integers add_products(integers total, integers x, integers weight) {
    return (integers)_mm512_dpbusd_epi32((__m512i)total, (__m512i)x, (__m512i)weight);
}
#elif LANES == 16
#define LARGEST_WEIGHT 64
INLINE integers in_pairs(integers x, integers weight) { return (integers)_mm512_maddubs_epi16((__m512i)x, (__m512i)weight); }
INLINE integers sum_pairs(integers x) { return (integers)_mm512_madd_epi16((__m512i)x, _mm512_set1_epi16(1)); }
INLINE integers add_pairs(integers x, integers y) { return (integers)_mm512_add_epi16((__m512i)x, (__m512i)y); }
#else
#define LARGEST_WEIGHT 64
INLINE integers in_pairs(integers x, integers weight) { return (integers)_mm256_maddubs_epi16((__m256i)x, (__m256i)weight); }
INLINE integers sum_pairs(integers x) { return (integers)_mm256_madd_epi16((__m256i)x, _mm256_set1_epi16(1)); }
INLINE integers add_pairs(integers x, integers y) { return (integers)_mm256_add_epi16((__m256i)x, (__m256i)y); }
#endif
#ifdef FOUR_PRODUCTS
#define ROWS8 4 /* at once, so that the weights of two steps stay in registers too */
INLINE integers add_products(integers total, integers x, integers weight) { return total + sum_pairs(in_pairs(x, weight)); }
INLINE integers add_two(integers total, integers x0, integers weight0, integers x1, integers weight1) {
    return total + sum_pairs(add_pairs(in_pairs(x0, weight0), in_pairs(x1, weight1)));
}
#else
#define ROWS8 ROWS
INLINE integers add_two(integers total, integers x0, integers weight0, integers x1, integers weight1) {
    return add_products(add_products(total, x0, weight0), x1, weight1);
}
#endif

INLINE int64_t in_fours(int64_t in) { return (in + 3) / 4 * 4; }

static int64_t packed_bytes8(int64_t in, int64_t out) { return panels(out) * PANEL * in_fours(in); }

static void pack8(const struct packing *a) {
    const int8_t *weight = a->weight;
    int8_t *packed = (int8_t *)a->packed;
    for (int64_t panel = 0; panel < panels(a->outputs); panel++)
        for (int64_t i = 0; i < in_fours(a->inputs); i += 4)
            for (int64_t o = panel * PANEL; o < (panel + 1) * PANEL; o++)
                for (int64_t each = i; each < i + 4; each++) *packed++ = each < a->inputs && o < a->outputs ? weight[o * a->inputs + each] : 0;
}

/* What the row's ZERO adds to LANES of the sums. */
INLINE integers shifts(const int32_t *offsets) {
    integers x = {0};
#if ZERO
    memcpy(&x, offsets, sizeof x);
    x /= 128 / ZERO;
#endif
    return x;
}

/* four 8-bit numbers, in each lane */
INLINE integers four_numbers(const uint8_t *x) {
    int32_t numbers;
    memcpy(&numbers, x, sizeof numbers);
    return numbers - (integers){0};
}

INLINE integers of_weight(const int8_t *weight) {
    integers numbers;
    memcpy(&numbers, weight, sizeof numbers);
    return numbers;
}

/* y of `rows` rows, a constant where this is inlined, and one panel; the first row's begins at `to` */
INLINE void product8(const struct linear8 *a, const uint8_t *x, const float *scales, int64_t panel, float *to, int64_t stride, const int rows) {
    integers total[ROWS8][2] = {{{0}}};
    const int64_t in = in_fours(a->inputs), out = panel * PANEL;
    const int8_t *weight = (const int8_t *)a->weight + out * in;
    int64_t i = 0;
    for (; i + 8 <= in; i += 8) {
        const integers w0 = of_weight(weight + i * PANEL), w1 = of_weight(weight + i * PANEL + 4 * LANES);
        const integers w2 = of_weight(weight + i * PANEL + 8 * LANES), w3 = of_weight(weight + i * PANEL + 12 * LANES);
        for (int r = 0; r < rows; r++) {
            const integers x0 = four_numbers(x + r * in + i), x1 = four_numbers(x + r * in + i + 4);
            total[r][0] = add_two(total[r][0], x0, w0, x1, w2);
            total[r][1] = add_two(total[r][1], x0, w1, x1, w3);
        }
    }
    for (; i < in; i += 4) {
        const integers w0 = of_weight(weight + i * PANEL), w1 = of_weight(weight + i * PANEL + 4 * LANES);
        for (int r = 0; r < rows; r++) {
            const integers both = four_numbers(x + r * in + i);
            total[r][0] = add_products(total[r][0], both, w0);
            total[r][1] = add_products(total[r][1], both, w1);
        }
    }
    const int outs = a->outputs - out < PANEL ? (int)(a->outputs - out) : PANEL;
    const integers shift[2] = {shifts(a->offsets + out), shifts(a->offsets + out + LANES)};
    const vector scale[2] = {load(a->scales, out, FLOAT32), load(a->scales, out + LANES, FLOAT32)};
    vector bias[2] = {{0}, {0}};
    if (a->bias) memcpy(bias, a->bias + out, sizeof bias);
#pragma GCC unroll 16 /* the sums stay in registers */
    for (int r = 0; r < rows; r++) {
        float *y = to + r * stride, last[PANEL];
        for (int half = 0; half < 2; half++) {
            const vector sum = __builtin_convertvector(total[r][half] - shift[half], vector) * (scales[r] * scale[half]) + bias[half];
            store(outs == PANEL ? y : last, half * LANES, activated(sum, a->activation), FLOAT32);
        }
        if (outs < PANEL) memcpy(y, last, outs * sizeof *y);
    }
}

/* Converts the rows `first` to `last` of x to 8 bits, if the rows that were converted last are others. */
static void convert_rows(const struct linear8 *a, int64_t first, int64_t last, struct rows8 *rows) {
    const int64_t in = in_fours(a->inputs), bytes = (last - first) * in, count = last - first;
    if (rows->of == a->x && rows->inputs == a->inputs && rows->first == first && rows->last == last) return;
    if (rows->room < bytes + count * (int64_t)sizeof(float)) {
        free(rows->scales);
        rows->room = bytes + count * (int64_t)sizeof(float);
        rows->scales = malloc((size_t)rows->room + 1);
        if (!rows->scales) abort();
    }
    rows->x = (uint8_t *)(rows->scales + count);
    for (int64_t row = 0; row < count; row++) {
        uint8_t *x = rows->x + row * in;
        rows->scales[row] = quantise(a->x + (first + row) * a->inputs, a->inputs, x);
        memset(x + a->inputs, 0, (size_t)(in - a->inputs));
    }
    *rows = (struct rows8){a->x, a->inputs, first, last, rows->room, rows->scales, rows->x};
}

/* Buffers of a map that scans its logits: blocks of logits of a few rows, and running sums of all rows. */
struct scan {
    int64_t words;                 /* that `logits` has of each row */
    float *running;                /* of each row */
    float *logits;
};

#define BLOCK_PANELS (BLOCK / PANEL)

/* Without `scanning`, `running` is null. */
static struct scan start_scan(const struct linear8 *a, int64_t rows, int64_t panels_at_once) {
    struct scan scan = {panels_at_once * PANEL, NULL, NULL};
    if (!a->scanning) return scan;
    scan.running = numbers(rows * RUNNING + ROWS8 * scan.words);
    scan.logits = scan.running + rows * RUNNING;
    for (int64_t row = 0; row < rows; row++) start_sum(scan.running + row * RUNNING);
    return scan;
}

/* y of `rows` rows, a constant where this is inlined, and the panels `start` to `end`. `row`: the first one's number in the
   share, which begins with `first`. */
INLINE void product8_rows(const struct linear8 *a, const struct rows8 *kept, const struct scan *scan, int64_t first, int64_t row,
                          int64_t start, int64_t end, const int rows) {
    const int64_t words = a->outputs, begin = start * PANEL, stride = scan->running ? scan->words : words;
    float *y = scan->running ? scan->logits : a->output + (first + row) * words + begin;
    for (int64_t panel = start; panel < end; panel++)
        product8(a, kept->x + row * in_fours(a->inputs), kept->scales + row, panel, y + panel * PANEL - begin, stride, rows);
    for (int r = 0; scan->running && r < rows; r++)
        add_logits(y, r * stride, (end * PANEL < words ? end * PANEL : words) - begin,
                   a->scanning->maxima + (first + row + r) * ((words + BLOCK - 1) / BLOCK) + begin / BLOCK,
                   scan->running + (row + r) * RUNNING, FLOAT32);
}

/* Its rows `first` to `last`. `kept`: what maps of the same rows share. */
static void map8(const struct linear8 *a, int64_t first, int64_t last, struct rows8 *kept) {
    const int64_t all = panels(a->outputs), rows = last - first;
    const int64_t at_once = (panels_at_once(PANEL * in_fours(a->inputs)) + BLOCK_PANELS - 1) / BLOCK_PANELS * BLOCK_PANELS;
    const struct scan scan = start_scan(a, rows, at_once < all ? at_once : all);
    convert_rows(a, first, last, kept);
    for (int64_t start = 0, end; start < all; start = end) {
        int64_t row = 0;
        end = start + at_once < all ? start + at_once : all;
        for (; row + ROWS8 <= rows; row += ROWS8) product8_rows(a, kept, &scan, first, row, start, end, ROWS8);
        for (; row + 4 <= rows; row += 4) product8_rows(a, kept, &scan, first, row, start, end, 4);
        for (; row < rows; row++) product8_rows(a, kept, &scan, first, row, start, end, 1);
    }
    if (a->output == kept->of) kept->of = NULL;
    for (int64_t row = 0; scan.running && row < rows; row++)
        a->scanning->normalisers[first + row] = normaliser(scan.running + row * RUNNING);
    free(scan.running);
}

/* One block of a row's logits, written. */
static void map8_block(const struct linear8 *a, int64_t row, int64_t block) {
    struct rows8 rows = {0};
    const int64_t end = (block + 1) * BLOCK_PANELS < panels(a->outputs) ? (block + 1) * BLOCK_PANELS : panels(a->outputs);
    convert_rows(a, row, row + 1, &rows);
    for (int64_t panel = block * BLOCK_PANELS; panel < end; panel++)
        product8(a, rows.x, rows.scales, panel, a->output + row * a->outputs + panel * PANEL, a->outputs, 1);
    free(rows.scales);
}
