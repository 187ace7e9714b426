/* Connections with gates: Highway and self-adaptive scaling; and those with products of x and f. */

INLINE void join_typed(const struct joining *a, int64_t row, const int type) {
    const int64_t bytes = a->features * (type == FLOAT32 ? 4 : 2);
    memcpy((char *)a->output + 2 * row * bytes, (const char *)a->x + row * bytes, bytes);
    memcpy((char *)a->output + (2 * row + 1) * bytes, (const char *)a->f + row * bytes, bytes);
}

static void join(const struct joining *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(join_typed, a, row);
}

/* the numbers from `index`, of which `count` are there */
INLINE vector load_some(const void *from, int64_t index, int64_t count, int type) {
    if (count >= LANES) return load(from, index, type);
    float some[LANES] = {0};
    vector x;
    for (int64_t i = 0; i < count; i++) some[i] = get(from, index + i, type);
    memcpy(&x, some, sizeof x);
    return x;
}

INLINE void store_some(void *to, int64_t index, vector x, int64_t count, int type) {
    if (count >= LANES) {
        store(to, index, x, type);
        return;
    }
    float some[LANES];
    memcpy(some, &x, sizeof some);
    for (int64_t i = 0; i < count; i++) set(to, index + i, some[i], type);
}

/* σ of the gate at feature `i` of the row, which is the same for all features where the width is 1 */
INLINE vector opened(const struct gating *a, const void *gate, int64_t row, int64_t i, int64_t count, int type) {
    return sigmoid(a->width == 1 ? all(get(gate, row, type)) : load_some(gate, row * a->width + i, count, type));
}

INLINE void gate_typed(const struct gating *a, int64_t row, const int type) {
    for (int64_t i = 0; i < a->features; i += LANES) {
        const int64_t count = a->features - i, place = row * a->features + i;
        const vector x = load_some(a->x, place, count, type), f = load_some(a->f, place, count, type);
        const vector alpha = opened(a, a->alpha, row, i, count, type);
        vector y;
        if (a->form == HIGHWAY) y = alpha * f + (1.0f - alpha) * x;
        else if (a->form == SHORTCUT) y = f + (1.0f - alpha) * x;
        else {
            const vector beta = opened(a, a->beta, row, i, count, type);
            y = alpha * x + beta * f;
            if (a->n) {
                const vector gamma = a->gamma ? opened(a, a->gamma, row, i, count, type) : (1.0f - alpha) * (1.0f - beta);
                y += gamma * load_some(a->n, place, count, type);
            }
        }
        store_some(a->output, place, y, count, type);
    }
}

/* y = αx + βf, with α and β from the products of the row's x and f */
INLINE void direct_typed(const struct gating *a, int64_t row, const int type) {
    const int64_t start = row * a->features;
    vector xx = {0}, xf = {0}, ff = {0};
    for (int64_t i = 0; i < a->features; i += LANES) {
        const vector x = load_some(a->x, start + i, a->features - i, type), f = load_some(a->f, start + i, a->features - i, type);
        xx += x * x;
        xf += x * f;
        ff += f * f;
    }
    float alpha = 1, beta = 1;
    if (a->form == ORTHOGONAL) alpha -= sum(xf) / (sum(xx) + 1e-6f);
    else {
        const float inverse = 1 / sqrtf(sum(ff) + 1e-10f), target = 4 * opened(a, a->beta, row, 0, LANES, type)[0];
        beta = 2 * opened(a, a->alpha, row, 0, LANES, type)[0] * (target - sum(xf) * inverse) * inverse;
    }
    for (int64_t i = 0; i < a->features; i += LANES) {
        const int64_t count = a->features - i;
        const vector x = load_some(a->x, start + i, count, type), f = load_some(a->f, start + i, count, type);
        store_some(a->output, start + i, alpha * x + beta * f, count, type);
    }
}

static void gate(const struct gating *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
        if (a->form == ORTHOGONAL || a->form == DELTA) OF_TYPE(direct_typed, a, row);
        else OF_TYPE(gate_typed, a, row);
    }
}
