/* Self-adaptive scaling, for training (rskip/connections/sas.py). C is a multiple of CHUNK. */

static void scale(const struct scaling *a, int64_t first, int64_t last) {
    const int64_t features = a->features;
    for (int64_t token = first; token < last; token++) {
        const float *x = a->x + token * features, *f = a->f + token * features;
        float *y = a->y + token * features, *found = a->statistics + token * 4;
        for (int64_t c = 0; c < features; c += LANES) put(y, c, at(x, c) + at(f, c));
        statistics(y, 1, 0, features, a->norm, a->epsilon, found);
        for (int64_t i = 0; i < 2; i++) {
            float *hidden = a->hidden + (token * 2 + i) * features;
            vector total = {0};
            for (int64_t c = 0; c < features; c += LANES) {
                const vector t = hyperbolic_tangent(at(hidden, c) + at(a->bias, i * features + c));
                put(hidden, c, t);
                total += t * at(a->v, i * features + c);
            }
            found[2 + i] = sigmoid(all(sum(total) + a->c[i]))[0];
        }
        const float gamma = (1 - found[2]) * (1 - found[3]);
        for (int64_t c = 0; c < features; c += LANES) {
            const vector z = (at(y, c) - found[0]) * found[1] * at(a->gain, c);
            put(y, c, found[2] * at(x, c) + found[3] * at(f, c) + gamma * (a->shift ? z + at(a->shift, c) : z));
        }
    }
}

/* The gradients of a block of tokens; those of the parameters are sums over the block. */
static void scale_gradient(const struct scaling *a, int64_t first, int64_t last) {
    const int64_t features = a->features;
    float *normal = numbers(2 * features), *g = normal + features;
    for (int64_t block = first; block < last; block++) {
        float *of_bias = a->partial + block * (6 * features + 2), *of_v = of_bias + 2 * features, *of_c = of_v + 2 * features;
        float *of_gain = of_c + 2, *of_shift = of_gain + features;
        const int64_t end = (block + 1) * a->tokens_per_block < a->tokens ? (block + 1) * a->tokens_per_block : a->tokens;
        for (int64_t token = block * a->tokens_per_block; token < end; token++) {
            const float *x = a->x + token * features, *f = a->f + token * features, *of_y = a->of_y + token * features;
            const float *found = a->statistics + token * 4, gamma = (1 - found[2]) * (1 - found[3]);
            vector of_gamma = {0}, of_alpha = {0}, of_beta = {0}, sum_of = {0}, along = {0};
            for (int64_t c = 0; c < features; c += LANES) {
                const vector given = at(of_y, c), z = (at(x, c) + at(f, c) - found[0]) * found[1], scaled = z * at(a->gain, c);
                const vector of_norm = gamma * given, inner = of_norm * at(a->gain, c);
                of_gamma += given * (a->shift ? scaled + at(a->shift, c) : scaled);
                of_alpha += given * at(x, c);
                of_beta += given * at(f, c);
                sum_of += inner;
                along += inner * z;
                put(normal, c, z);
                put(g, c, inner);
                put(of_gain, c, at(of_gain, c) + of_norm * z);
                put(of_shift, c, at(of_shift, c) + of_norm);
            }
            const float of_factors[2] = {sum(of_alpha) - sum(of_gamma) * (1 - found[3]), sum(of_beta) - sum(of_gamma) * (1 - found[2])};
            for (int64_t i = 0; i < 2; i++) {
                const float *hidden = a->hidden + (token * 2 + i) * features, of_logit = of_factors[i] * found[2 + i] * (1 - found[2 + i]);
                float *of_hidden = a->of_hidden + (token * 2 + i) * features;
                of_c[i] += of_logit;
                for (int64_t c = 0; c < features; c += LANES) {
                    const int64_t place = i * features + c;
                    const vector t = at(hidden, c), of_value = of_logit * at(a->v, place) * (1.0f - t * t);
                    put(of_hidden, c, of_value);
                    put(of_bias, place, at(of_bias, place) + of_value);
                    put(of_v, place, at(of_v, place) + of_logit * t);
                }
            }
            const float mean = a->norm == LAYER_NORM ? sum(sum_of) / (float)features : 0, share = sum(along) / (float)features;
            for (int64_t c = 0; c < features; c += LANES) {
                const vector of_sum = found[1] * (at(g, c) - mean - share * at(normal, c));
                put(a->of_x, token * features + c, of_sum + found[2] * at(of_y, c));
                put(a->of_f, token * features + c, of_sum + found[3] * at(of_y, c));
            }
        }
    }
    free(normal);
}
