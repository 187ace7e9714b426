/* Attention over depth, for training (rskip/connections/depth_kernels.py): the branch's input norm(Σ_i p_i·v_i) with
   p = softmax_i(u·v_i/RMS(v_i)), of tensors v_i that stay where they are. C is a multiple of CHUNK. */

/* Σ_i p_i·v_i of one token */
INLINE void attended(const struct attending *a, int64_t token, const float *p, float *s) {
    for (int64_t c = 0; c < a->features; c += LANES) {
        vector y = p[0] * at(a->values[0], token * a->features + c);
        for (int64_t i = 1; i < a->count; i++) y += p[i] * at(a->values[i], token * a->features + c);
        put(s, c, y);
    }
}

static void attend_depth(const struct attending *a, int64_t first, int64_t last) {
    const int64_t features = a->features, count = a->count;
    for (int64_t token = first; token < last; token++) {
        float *p = a->weights + token * count, *scores = a->scores + token * count, *roots = a->roots + token * count;
        float *x = a->x + token * features, *found = a->statistics + token * 2;
        float most = -INFINITY, total = 0;
        for (int64_t i = 0; i < count; i++) {
            const float *v = a->values[i] + token * features;
            vector product[2] = {{0}, {0}}, square[2] = {{0}, {0}};
            for (int64_t c = 0; c < features; c += CHUNK)
                for (int half = 0; half < 2; half++) {
                    const vector of_v = at(v, c + half * LANES);
                    product[half] += of_v * at(a->folded, c + half * LANES);
                    square[half] += of_v * of_v;
                }
            roots[i] = 1 / sqrtf(sum(square[0] + square[1]) / (float)features + (float)a->key_epsilon);
            scores[i] = roots[i] * sum(product[0] + product[1]);
            if (!(scores[i] <= most)) most = scores[i];
        }
        for (int64_t i = 0; i < count; i++) total += p[i] = exponential_of(scores[i] - most);
        for (int64_t i = 0; i < count; i++) p[i] /= total;
        attended(a, token, p, x);
        if (a->norm == NO_NORM) continue;
        statistics(x, 1, 0, features, a->norm, a->epsilon, found);
        for (int64_t c = 0; c < features; c += LANES) {
            const vector y = (at(x, c) - found[0]) * found[1] * at(a->gain, c);
            put(x, c, a->shift ? y + at(a->shift, c) : y);
        }
    }
}

/* The gradients of a block of tokens; those of u, gain and shift are sums over the block, (3, C). */
static void attend_depth_gradient(const struct attending *a, int64_t first, int64_t last) {
    const int64_t features = a->features, count = a->count;
    float *of_s = numbers(features + 2 * count), *of_product = of_s + features, *of_square = of_product + count;
    for (int64_t block = first; block < last; block++) {
        float *of_u = a->partial + block * 3 * features, *of_gain = of_u + features, *of_shift = of_gain + features;
        const int64_t end = (block + 1) * a->tokens_per_block < a->tokens ? (block + 1) * a->tokens_per_block : a->tokens;
        for (int64_t token = block * a->tokens_per_block; token < end; token++) {
            const float *p = a->weights + token * count, *scores = a->scores + token * count, *roots = a->roots + token * count;
            const float *of_x = a->of_x + token * features, *found = a->statistics + token * 2;
            float total = 0;
            if (a->norm == NO_NORM) memcpy(of_s, of_x, features * sizeof *of_s);
            else {
                vector sum_of = {0}, along = {0};
                attended(a, token, p, of_s);
                for (int64_t c = 0; c < features; c += LANES) {
                    const vector normal = (at(of_s, c) - found[0]) * found[1], y = at(of_x, c) * at(a->gain, c);
                    sum_of += y;
                    along += y * normal;
                    put(of_s, c, normal);
                    put(of_gain, c, at(of_gain, c) + at(of_x, c) * normal);
                    put(of_shift, c, at(of_shift, c) + at(of_x, c));
                }
                const float mean = a->norm == LAYER_NORM ? sum(sum_of) / (float)features : 0, share = sum(along) / (float)features;
                for (int64_t c = 0; c < features; c += LANES)
                    put(of_s, c, found[1] * (at(of_x, c) * at(a->gain, c) - mean - share * at(of_s, c)));
            }
            for (int64_t i = 0; i < count; i++) {
                const float *v = a->values[i] + token * features;
                vector product[2] = {{0}, {0}};
                for (int64_t c = 0; c < features; c += CHUNK)
                    for (int half = 0; half < 2; half++) product[half] += at(v, c + half * LANES) * at(of_s, c + half * LANES);
                of_product[i] = sum(product[0] + product[1]);
                total += p[i] * of_product[i];
            }
            for (int64_t i = 0; i < count; i++) {
                const float of_score = p[i] * (of_product[i] - total);
                of_square[i] = -of_score * scores[i] * roots[i] * roots[i] / (float)features;
                of_product[i] = of_score * roots[i];
            }
            for (int64_t c = 0; c < features; c += LANES) {
                const vector u = at(a->folded, c), s = at(of_s, c);
                vector all_of = at(of_u, c);
                for (int64_t i = 0; i < count; i++) {
                    const int64_t place = token * features + c;
                    const vector v = at(a->values[i], place);
                    vector y = p[i] * s + of_product[i] * u + of_square[i] * v;
                    if (a->of_values[i]) y += at(a->of_values[i], place);
                    put(a->gradients, i * a->tokens * features + place, y);
                    all_of += of_product[i] * v;
                }
                put(of_u, c, all_of);
            }
        }
    }
    free(of_s);
}
