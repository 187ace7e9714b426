/* Linear maps. Their weights are packed in panels of PANEL features of y, one input feature after the other, so that each
   vector of weights that is read serves several rows of x. */

#define PANEL (2 * LANES)
#define ROWS (LANES == 16 ? 12 : LANES == 8 ? 6 : 4) /* at once: what the processor's registers hold */
#ifdef BFLOAT16_PRODUCTS /* the processor adds the products of two neighbours; elsewhere bfloat16 is converted first */
#define PACKED_TYPE(type) (type)
#else
#define PACKED_TYPE(type) FLOAT32
#endif

/* input features of a panel, in neighbours of two where they are multiplied so */
INLINE int64_t panel_inputs(int64_t in, int type) { return type == FLOAT32 ? in : (in + 1) / 2 * 2; }

INLINE int64_t panels(int64_t out) { return (out + PANEL - 1) / PANEL; }

/* Panels of this size that stay in the cache while all rows are multiplied with them. Their rows of y are written piece by
   piece: with one panel at a time, each write would be on another page of memory. */
#ifndef CACHED_WEIGHTS
#define CACHED_WEIGHTS (1 << 17)
#endif
INLINE int64_t panels_at_once(int64_t panel_bytes) { return panel_bytes < CACHED_WEIGHTS ? CACHED_WEIGHTS / panel_bytes : 1; }

static int64_t packed_bytes(int64_t in, int64_t out, int64_t type) {
    const int packed = PACKED_TYPE((int)type);
    return panels(out) * PANEL * panel_inputs(in, packed) * (packed == FLOAT32 ? 4 : 2);
}

INLINE void pack_typed(const struct packing *a, const int type) {
    const int packed = PACKED_TYPE(type), neighbours = packed == FLOAT32 ? 1 : 2;
    const int64_t inputs = panel_inputs(a->inputs, packed);
    for (int64_t panel = 0; panel < panels(a->outputs); panel++)
        for (int64_t i = 0; i < inputs; i++)
            for (int64_t o = 0; o < PANEL; o++) {
                const int64_t out = panel * PANEL + o;
                const float weight = i < a->inputs && out < a->outputs ? get(a->weight, out * a->inputs + i, type) : 0;
                set(a->packed, panel * PANEL * inputs + i / neighbours * neighbours * PANEL + o * neighbours + i % neighbours, weight, packed);
            }
}

static void pack(const struct packing *a) {
    if (a->type == FLOAT32) pack_typed(a, FLOAT32);
    else pack_typed(a, BFLOAT16);
}

/* y of `rows` rows, a constant where this is inlined, and one panel */
INLINE void product(const struct linear *a, const void *x, int64_t row, int64_t panel, const int rows, const int type) {
    const int packed = PACKED_TYPE(type);
    vector total[ROWS][2] = {{{0}}};
    const int64_t start = panel * PANEL * panel_inputs(a->inputs, packed);
#ifdef BFLOAT16_PRODUCTS
    if (packed == BFLOAT16) {
        const uint16_t *weight = (const uint16_t *)a->weight + start, *given = (const uint16_t *)x + row * a->inputs;
        for (int64_t i = 0; i < a->inputs; i += 2) {
            const __m512bh w0 = (__m512bh)_mm512_loadu_si512(weight + i * PANEL), w1 = (__m512bh)_mm512_loadu_si512(weight + i * PANEL + PANEL);
            for (int r = 0; r < rows; r++) {
                uint32_t pair = given[r * a->inputs + i];
                if (i + 1 < a->inputs) memcpy(&pair, given + r * a->inputs + i, sizeof pair);
                const __m512bh both = (__m512bh)_mm512_set1_epi32((int)pair);
                total[r][0] = (vector)_mm512_dpbf16_ps((__m512)total[r][0], both, w0);
                total[r][1] = (vector)_mm512_dpbf16_ps((__m512)total[r][1], both, w1);
            }
        }
    } else
#endif
    {
        const float *weight = (const float *)a->weight + start, *given = (const float *)x + row * a->inputs;
        for (int64_t i = 0; i < a->inputs; i++) {
            const vector w0 = load(weight, i * PANEL, FLOAT32), w1 = load(weight, i * PANEL + LANES, FLOAT32);
            for (int r = 0; r < rows; r++) {
                const vector both = all(given[r * a->inputs + i]);
                total[r][0] += both * w0;
                total[r][1] += both * w1;
            }
        }
    }
    const int64_t out = panel * PANEL;
    float bias[PANEL] = {0};
    const int outs = a->outputs - out < PANEL ? (int)(a->outputs - out) : PANEL;
    if (a->bias)
        for (int o = 0; o < outs; o++) bias[o] = get(a->bias, out + o, type);
    for (int r = 0; r < rows; r++) {
        vector y[2];
        for (int half = 0; half < 2; half++) {
            y[half] = total[r][half] + load(bias, half * LANES, FLOAT32);
            y[half] = activated(y[half], a->activation);
        }
        const int64_t to = (row + r) * a->outputs + out;
        if (outs == PANEL) {
            store(a->output, to, y[0], type);
            store(a->output, to + LANES, y[1], type);
        } else {
            float last[PANEL];
            memcpy(last, y, sizeof last);
            for (int o = 0; o < outs; o++) set(a->output, to + o, last[o], type);
        }
    }
}

INLINE void map_typed(const struct linear *a, int64_t first, int64_t last, const int type) {
    const void *x = a->x;
    float *converted = NULL;
    if (PACKED_TYPE(type) != type) { /* once, not for every panel */
        converted = numbers((last - first) * a->inputs);
        for (int64_t i = 0; i < (last - first) * a->inputs; i++) converted[i] = get(a->x, first * a->inputs + i, type);
        x = converted - first * a->inputs;
    }
    const int packed = PACKED_TYPE(type);
    const int64_t all = panels(a->outputs), at_once = panels_at_once(PANEL * panel_inputs(a->inputs, packed) * (packed == FLOAT32 ? 4 : 2));
    for (int64_t start = 0, end; start < all; start = end) {
        int64_t row = first;
        end = start + at_once < all ? start + at_once : all;
        for (; row + ROWS <= last; row += ROWS)
            for (int64_t panel = start; panel < end; panel++) product(a, x, row, panel, ROWS, type);
        for (; row + 4 <= last; row += 4)
            for (int64_t panel = start; panel < end; panel++) product(a, x, row, panel, 4, type);
        for (; row < last; row++)
            for (int64_t panel = start; panel < end; panel++) product(a, x, row, panel, 1, type);
    }
    free(converted);
}

/* Its rows `first` to `last`. */
static void map(const struct linear *a, int64_t first, int64_t last) {
    OF_TYPE(map_typed, a, first, last);
}
