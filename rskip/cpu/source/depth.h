/* Attention over depth, for training (rskip/connections/depth_kernels.py): the branch's input norm(Σ_i p_i·v_i) with
   p = softmax_i(u·v_i/RMS(v_i)), of tensors v_i that stay where they are. C is a multiple of CHUNK. As in streams.h, groups of
   LANES tokens are taken at a time, and each number of a group's tokens lies side by side. */

/* Σ_i p_i·v_i of one token, whose p_i are LANES apart */
INLINE void attended(const struct attending *a, int64_t token, const float *p, float *s) {
    for (int64_t c = 0; c < a->features; c += LANES) {
        vector y = p[0] * at(a->values[0], token * a->features + c);
        for (int64_t i = 1; i < a->count; i++) y += p[i * LANES] * at(a->values[i], token * a->features + c);
        put(s, c, y);
    }
}

static void attend_depth(const struct attending *a, int64_t first, int64_t last) {
    const int64_t features = a->features, count = a->count;
    for (int64_t token = first; token < last; token += LANES) {
        const int64_t tokens = last - token < LANES ? last - token : LANES;
        float *p = a->weights + token * count, *scores = a->scores + token * count, *roots = a->roots + token * count;
        float *x = a->x + token * features, *found = a->statistics + token * 2;
        const float *rows[4];
        vector most = all(-INFINITY), total = {0};
        for (int64_t i = 0; i < count; i++) {
            for (int64_t t = 0; t < LANES; t += 4) {
                vector product[4] = {{0}}, square[4] = {{0}};
                four_rows(a->values[i] + token * features, t, tokens, features, rows);
                for (int64_t c = 0; c < features; c += LANES)
                    for (int r = 0; r < 4; r++) {
                        const vector v = at(rows[r], c);
                        product[r] += v * at(a->folded, c);
                        square[r] += v * v;
                    }
                const four products = sums(product[0], product[1], product[2], product[3]);
                const four squares = sums(square[0], square[1], square[2], square[3]);
                memcpy(scores + i * LANES + t, &products, sizeof products);
                memcpy(roots + i * LANES + t, &squares, sizeof squares);
            }
        }
        for (int64_t o = 0; o < count * LANES; o += LANES) {
            const vector root = 1.0f / square_root(at(roots, o) / (float)features + (float)a->key_epsilon);
            put(roots, o, root);
            put(scores, o, root * at(scores, o));
            most = larger(most, at(scores, o));
        }
        for (int64_t o = 0; o < count * LANES; o += LANES) {
            put(p, o, exponential(at(scores, o) - most));
            total += at(p, o);
        }
        for (int64_t o = 0; o < count * LANES; o += LANES) put(p, o, at(p, o) / total);
        for (int64_t t = 0; t < tokens; t++) attended(a, token + t, p + t, x + t * features);
        if (a->norm != NO_NORM) normalise_group(x, tokens, features, a->norm, a->epsilon, a->gain, a->shift, found);
    }
}

/* of_s (C), the gradient of Σ_i p_i·v_i of a group's t-th token; adds to those of gain and shift */
INLINE void closing_gradient(const struct attending *a, int64_t token, int64_t t, float *of_s, float *of_gain, float *of_shift) {
    const int64_t features = a->features;
    const float *of_x = a->of_x + (token + t) * features, *found = a->statistics + token * 2 + t;
    vector sum_of = {0}, along = {0};
    attended(a, token + t, a->weights + token * a->count + t, of_s);
    for (int64_t c = 0; c < features; c += LANES) {
        const vector normal = (at(of_s, c) - found[0]) * found[LANES], y = at(of_x, c) * at(a->gain, c);
        sum_of += y;
        along += y * normal;
        put(of_s, c, normal);
        put(of_gain, c, at(of_gain, c) + at(of_x, c) * normal);
        put(of_shift, c, at(of_shift, c) + at(of_x, c));
    }
    const float mean = a->norm == LAYER_NORM ? sum(sum_of) / (float)features : 0, share = sum(along) / (float)features;
    for (int64_t c = 0; c < features; c += LANES)
        put(of_s, c, found[LANES] * (at(of_x, c) * at(a->gain, c) - mean - share * at(of_s, c)));
}

/* The gradients of a block of tokens; those of u, gain and shift are sums over the block, (3, C). */
static void attend_depth_gradient(const struct attending *a, int64_t first, int64_t last) {
    const int64_t features = a->features, count = a->count;
    float *of_s = numbers(LANES * (features + 2 * count)), *of_products = of_s + LANES * features, *of_squares = of_products + LANES * count;
    for (int64_t block = first; block < last; block++) {
        float *of_u = a->partial + block * 3 * features, *of_gain = of_u + features, *of_shift = of_gain + features;
        const int64_t end = (block + 1) * a->tokens_per_block < a->tokens ? (block + 1) * a->tokens_per_block : a->tokens;
        for (int64_t token = block * a->tokens_per_block; token < end; token += LANES) {
            const int64_t tokens = end - token < LANES ? end - token : LANES;
            const float *p = a->weights + token * count, *scores = a->scores + token * count, *roots = a->roots + token * count;
            vector total = {0};
            for (int64_t t = 0; t < tokens; t++) {
                if (a->norm == NO_NORM) memcpy(of_s + t * features, a->of_x + (token + t) * features, features * sizeof *of_s);
                else closing_gradient(a, token, t, of_s + t * features, of_gain, of_shift);
            }
            for (int64_t i = 0; i < count; i++) {
                for (int64_t t = 0; t < LANES; t += 4) {
                    const float *v[4], *of[4];
                    vector product[4] = {{0}};
                    four_rows(a->values[i] + token * features, t, tokens, features, v);
                    four_rows(of_s, t, tokens, features, of);
                    for (int64_t c = 0; c < features; c += LANES)
                        for (int r = 0; r < 4; r++) product[r] += at(v[r], c) * at(of[r], c);
                    const four products = sums(product[0], product[1], product[2], product[3]);
                    memcpy(of_products + i * LANES + t, &products, sizeof products);
                }
            }
            for (int64_t o = 0; o < count * LANES; o += LANES) total += at(p, o) * at(of_products, o);
            for (int64_t o = 0; o < count * LANES; o += LANES) {
                const vector g = at(p, o) * (at(of_products, o) - total), root = at(roots, o);
                put(of_squares, o, -g * at(scores, o) * root * root / (float)features);
                put(of_products, o, g * root);
            }
            for (int64_t i = 0; i < count; i++) {
                const float *of_score = of_products + i * LANES, *of_square = of_squares + i * LANES, *given = a->of_values[i];
                for (int64_t c = 0; c < features; c += LANES) {
                    const vector u = at(a->folded, c);
                    vector all_of = at(of_u, c);
                    for (int64_t t = 0; t < tokens; t++) {
                        const int64_t place = (token + t) * features + c;
                        const vector v = at(a->values[i], place);
                        vector y = p[i * LANES + t] * at(of_s, t * features + c) + of_score[t] * u + of_square[t] * v;
                        if (given) y += at(given, place);
                        put(a->gradients, i * a->tokens * features + place, y);
                        all_of += of_score[t] * v;
                    }
                    put(of_u, c, all_of);
                }
            }
        }
    }
    free(of_s);
}
