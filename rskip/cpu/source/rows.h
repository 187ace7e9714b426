/* What is computed row by row: the residual connection with its normalisations, and embedding. */

/* x ⊙ factors, or x where they are null */
INLINE void scale_by(float *x, const float *factors, int64_t count) {
    for (int64_t i = 0; factors && i < count; i++) x[i] *= factors[i];
}

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
    scale_by(x, a->scales, count);
    scale_by(y, a->branch_scales, count);
    float *shared = y + count;
    for (i = 0; a->shares && i < count; i++) shared[i] = 0;
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
        for (i = 0; a->shares && i < count; i++) shared[i] += a->shares[number] * y[i];
    }
    if (a->shares) y = shared;
    const float left = a->norms ? 0 : 1; /* without normalisations x is still to be added */
    for (i = 0; i + LANES <= count; i += LANES) {
        const vector z = load(y, i, FLOAT32);
        store(a->output, start + i, left ? z + load(x, i, FLOAT32) : z, type);
    }
    for (; i < count; i++) set(a->output, start + i, left ? y[i] + x[i] : y[i], type);
}

static void residual(const struct residual *a, int64_t first, int64_t last) {
    float *scratch = numbers(3 * a->features);
    for (int64_t row = first * a->parts; row < last * a->parts; row++) OF_TYPE(residual_typed, a, row, scratch);
    free(scratch);
}

/* The table's rows are in panels of `panel`, one feature after the other: packed, or with panels of one as they are. */
INLINE void embed_typed(const struct embedding *a, int64_t row, const int panel, const int type) {
    const int64_t token = a->tokens[row], from = token / panel * panel * a->features + token % panel;
    const int64_t place = a->positions ? a->places[row] * a->features : 0;
    for (int64_t i = 0; i < a->features; i++) {
        const float x = get(a->table, from + i * panel, type) * (float)a->scale;
        set(a->output, row * a->features + i, a->positions ? x + get(a->positions, place + i, type) : x, type);
    }
}

static void embed(const struct embedding *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
        if (a->packed) embed_typed(a, row, PANEL, FLOAT32);
        else OF_TYPE(embed_typed, a, row, 1);
    }
}
