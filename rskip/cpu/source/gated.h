/* GatedResidual, for training (rskip/connections/gated_residual.py). C is a multiple of CHUNK. */

/* the gradient of z_k from x alone, before the factor 1/n, is of_x∘g_k */
INLINE void gate_stream(const struct gated *a, int64_t token, int64_t k, float *of_gain) {
    const int64_t features = a->features, start = (token * a->streams + k) * features;
    const float *h = a->h + token * a->token + k * a->stream, *gain = a->gain + k * features, *of_x = a->of_x + token * features;
    float *z = a->z + start, *root = a->roots + token * a->streams + k, found[2];
    if (a->step == Z_AND_ROOTS) {
        statistics(h, 1, 0, features, RMS_NORM, a->epsilon, found);
        *root = found[1];
        for (int64_t c = 0; c < features; c += LANES) put(z, c, *root * at(h, c) * at(gain, c));
        return;
    }
    const float share = 1 / (float)a->streams;
    if (a->step == OF_LOGITS) {
        for (int64_t c = 0; c < features; c += LANES) {
            const vector value = *root * at(h, c) * at(gain, c), g = sigmoid(at(a->gates + start, c));
            put(z, c, value);
            put(a->gates + start, c, g);
            put(a->of_gates + start, c, share * at(of_x, c) * value * g * (1.0f - g));
        }
        return;
    }
    const float *of_output = a->of_output ? a->of_output + token * a->of_output_token + k * a->of_output_stream : NULL;
    vector along = {0};
    for (int64_t c = 0; c < features; c += LANES) {
        const vector of_z = at(z, c) + share * at(of_x, c) * at(a->gates + start, c), of_one = of_z * at(h, c);
        along += of_one * at(gain, c);
        put(of_gain, k * features + c, at(of_gain, k * features + c) + *root * of_one);
        put(z, c, of_z * at(gain, c));
    }
    const float back = sum(along) * *root * *root * *root / (float)features;
    for (int64_t c = 0; c < features; c += LANES) {
        const vector y = *root * at(z, c) - back * at(h, c);
        put(z, c, of_output ? y + at(of_output, c) : y);
    }
}

INLINE void gated_input(const struct gated *a, int64_t token) {
    const int64_t features = a->features, n = a->streams;
    const float *z = a->z + token * n * features;
    const float *gates = a->gates + token * n * features;
    float *x = a->x + token * features, *mix = a->mix + token * 2 * n;
    for (int64_t c = 0; c < features; c += LANES) {
        vector y = {0};
        for (int64_t k = 0; k < n; k++) {
            y += sigmoid(at(gates, k * features + c)) * at(z, k * features + c);
        }
        put(x, c, y / (float)n);
    }
    for (int64_t k = 0; a->hidden && k < n; k++) {
        mix[k] = 0;
        mix[n + k] = 2 * sigmoid(all(a->hidden[token * (a->rank + n) + a->rank + k]))[0];
    }
}

/* one step for blocks of tokens; the gradient of the gain is a sum over each block */
static void gate_streams(const struct gated *a, int64_t first, int64_t last) {
    for (int64_t block = first; block < last; block++) {
        const int64_t end = (block + 1) * a->tokens_per_block < a->tokens ? (block + 1) * a->tokens_per_block : a->tokens;
        for (int64_t token = block * a->tokens_per_block; token < end; token++) {
            if (a->step == INPUT) gated_input(a, token);
            else
                for (int64_t k = 0; k < a->streams; k++) gate_stream(a, token, k, a->partial + block * a->streams * a->features);
        }
    }
}
