/* What is computed row by row: the residual connection with its normalisations, and linear maps of few rows. */

INLINE void residual_typed(const struct residual *a, int64_t row, float *x, const int type) {
    const int64_t count = a->features, start = row * count;
    const float scale = (float)a->scale, branch_scale = (float)a->branch_scale;
    float *y = x + count;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        store(x, i, scale * load(a->x, start + i, type), FLOAT32);
        store(y, i, a->f ? branch_scale * load(a->f, start + i, type) : (vector){0}, FLOAT32);
    }
    for (; i < count; i++) {
        x[i] = scale * get(a->x, start + i, type);
        y[i] = a->f ? branch_scale * get(a->f, start + i, type) : 0;
    }
    for (int64_t number = 0; number < a->norms; number++) {
        vector total = {0};
        float mean = 0;
        for (i = 0; i + LANES <= count; i += LANES) {
            const vector z = load(x, i, FLOAT32) + load(y, i, FLOAT32);
            store(y, i, z, FLOAT32);
            total += z;
        }
        mean = sum(total);
        for (; i < count; i++) mean += y[i] += x[i];
        mean = a->biases ? mean / count : 0;
        float squares = 0;
        total = (vector){0};
        for (i = 0; i + LANES <= count; i += LANES) {
            const vector z = load(y, i, FLOAT32) - mean;
            total += z * z;
        }
        squares = sum(total);
        for (; i < count; i++) squares += (y[i] - mean) * (y[i] - mean);
        const float factor = 1 / sqrtf(squares / count + (float)a->epsilon);
        const void *weight = a->weights[number], *bias = a->biases ? a->biases[number] : NULL;
        for (i = 0; i + LANES <= count; i += LANES) {
            const vector z = (load(y, i, FLOAT32) - mean) * factor * load(weight, i, type);
            store(y, i, bias ? z + load(bias, i, type) : z, FLOAT32);
        }
        for (; i < count; i++) y[i] = (y[i] - mean) * factor * get(weight, i, type) + (bias ? get(bias, i, type) : 0);
    }
    const float left = a->norms ? 0 : 1; /* without normalisations x is still to be added */
    for (i = 0; i + LANES <= count; i += LANES) {
        const vector z = load(y, i, FLOAT32);
        store(a->output, start + i, left ? z + load(x, i, FLOAT32) : z, type);
    }
    for (; i < count; i++) set(a->output, start + i, left ? y[i] + x[i] : y[i], type);
}

static void residual(const struct residual *a, int64_t first, int64_t last) {
    float *scratch = numbers(2 * a->features);
    for (int64_t row = first; row < last; row++) OF_TYPE(residual_typed, a, row, scratch);
    free(scratch);
}

static void embed(const struct embedding *a, int64_t first, int64_t last) {
    const int type = (int)a->type;
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < a->features; i++) {
            const float x = get(a->table, a->tokens[row] * a->features + i, type) * (float)a->scale;
            set(a->output, row * a->features + i, a->position ? x + get(a->position, i, type) : x, type);
        }
}

/* Several rows and several features of y at once, so that what is read serves more than one product. */
#define ROWS (LANES == 16 ? 4 : 2)
#define OUTS 4
/* weights are fetched so many features early: rows that are read beside each other aren't foreseen by the processor */
#define AHEAD 8
#ifdef BFLOAT16_PRODUCTS /* the processor multiplies bfloat16; elsewhere x is converted first */
#define X_TYPE(type) (type)
#else
#define X_TYPE(type) FLOAT32
#endif

/* y[row + r, out + o] for r < rows and o < outs, which are constants where this is inlined */
INLINE void map_block(const struct linear *a, const void *x, int64_t row, int64_t out, const int rows, const int outs, const int type) {
    vector total[ROWS][OUTS] = {{{0}}};
    int64_t i = 0;
#ifdef BFLOAT16_PRODUCTS
    if (type == BFLOAT16) {
        for (; i + 2 * LANES <= a->in; i += 2 * LANES) {
            __m512bh weight[OUTS];
            for (int o = 0; o < outs; o++) {
                fetch(a->weight, (out + o + AHEAD) * a->in + i, type);
                weight[o] = (__m512bh)_mm512_loadu_si512((const uint16_t *)a->weight + (out + o) * a->in + i);
            }
            for (int r = 0; r < rows; r++) {
                const __m512bh given = (__m512bh)_mm512_loadu_si512((const uint16_t *)x + (row + r) * a->in + i);
                for (int o = 0; o < outs; o++) total[r][o] = (vector)_mm512_dpbf16_ps((__m512)total[r][o], given, weight[o]);
            }
        }
    }
#endif
    for (; i + LANES <= a->in; i += LANES) {
        vector weight[OUTS];
        for (int o = 0; o < outs; o++) {
            fetch(a->weight, (out + o + AHEAD) * a->in + i, type);
            weight[o] = load(a->weight, (out + o) * a->in + i, type);
        }
        for (int r = 0; r < rows; r++) {
            const vector given = load(x, (row + r) * a->in + i, X_TYPE(type));
            for (int o = 0; o < outs; o++) total[r][o] += given * weight[o];
        }
    }
    float bias[OUTS], rest[ROWS][OUTS] = {{0}};
    for (int o = 0; o < outs; o++) bias[o] = a->bias ? get(a->bias, out + o, type) : 0;
    for (; i < a->in; i++)
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < outs; o++)
                rest[r][o] += get(x, (row + r) * a->in + i, X_TYPE(type)) * get(a->weight, (out + o) * a->in + i, type);
    for (int r = 0; r < rows; r++) {
        const int64_t to = (row + r) * a->out + out;
        if (outs == OUTS) {
            four y = sums(total[r][0], total[r][1], total[r][2], total[r][3]), more;
            memcpy(&more, rest[r], sizeof more);
            y += more;
            memcpy(&more, bias, sizeof more);
            y += more;
            store_four(a->output, to, a->relu ? (four)(~(integers_of_four)(y < 0) & (integers_of_four)y) : y, type);
        } else {
            for (int o = 0; o < outs; o++) {
                const float y = sum(total[r][o]) + rest[r][o] + bias[o];
                set(a->output, to + o, a->relu && y < 0 ? 0 : y, type);
            }
        }
    }
}

INLINE void map_outs(const struct linear *a, const void *x, int64_t out, const int outs, const int type) {
    int64_t row = 0;
    for (; row + ROWS <= a->rows; row += ROWS) map_block(a, x, row, out, ROWS, outs, type);
    for (; row < a->rows; row++) map_block(a, x, row, out, 1, outs, type);
}

INLINE void map_typed(const struct linear *a, int64_t first, int64_t last, const int type) {
    const void *x = a->x;
    float *converted = NULL;
    if (X_TYPE(type) != type) { /* once, not for every feature of y */
        x = converted = numbers(a->rows * a->in);
        for (int64_t i = 0; i < a->rows * a->in; i++) converted[i] = get(a->x, i, type);
    }
    int64_t out = first;
    for (; out + OUTS <= last; out += OUTS) map_outs(a, x, out, OUTS, type);
    for (; out < last; out++) map_outs(a, x, out, 1, type);
    free(converted);
}

/* Its features `first` to `last`. */
static void map(const struct linear *a, int64_t first, int64_t last) {
    OF_TYPE(map_typed, a, first, last);
}
