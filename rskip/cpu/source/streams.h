/* Connections that pass on n streams h of C features, for training (rskip/cpu/streams.py). `read` computes a token's weights α,
   R and β from its streams, and the branch's input norm(Σ_j α_j·h_j); `write` computes h_k ← Σ_j R_jk·h_j + β_k·f. C is a
   multiple of CHUNK. Tokens are taken LANES at a time, so that their small matrices fill vectors. */

#define CHUNK (2 * LANES)
#define ROWS_AT_ONCE 32
#define MOST_LOGITS 80           /* 2n + n² of 8 streams */

INLINE vector at(const float *from, int64_t index) { return load(from, index, FLOAT32); }
INLINE void put(float *to, int64_t index, vector x) { store(to, index, x, FLOAT32); }

/* brings what is read soon into the cache */
INLINE void fetch(const float *from, int64_t count) {
    for (int64_t c = 0; c < count; c += 16) __builtin_prefetch(from + c);
}

/* value `index` of each of `count` tokens, `width` apart; 0 in the other lanes */
INLINE vector gathered(const float *from, int64_t width, int64_t index, int64_t count) {
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i * width + index];
    return at(lanes, 0);
}

INLINE void scattered(float *to, int64_t width, int64_t index, int64_t count, vector x) {
    float lanes[LANES];
    put(lanes, 0, x);
    for (int64_t i = 0; i < count; i++) to[i * width + index] = lanes[i];
}

/* the mean (0 for RMS) of x, in `segments`, and the reciprocal of its deviation */
INLINE void statistics(const float *x, int64_t segments, int64_t apart, int64_t features, int64_t norm, double epsilon, float *found) {
    const float count = (float)(segments * features);
    vector total[2] = {{0}, {0}};
    float mean = 0;
    if (norm == LAYER_NORM) {
        for (int64_t s = 0; s < segments; s++)
            for (int64_t c = 0; c < features; c += CHUNK) {
                total[0] += at(x + s * apart, c);
                total[1] += at(x + s * apart, c + LANES);
            }
        mean = sum(total[0] + total[1]) / count;
        total[0] = total[1] = (vector){0};
    }
    for (int64_t s = 0; s < segments; s++)
        for (int64_t c = 0; c < features; c += CHUNK) {
            const vector one = at(x + s * apart, c) - mean, other = at(x + s * apart, c + LANES) - mean;
            total[0] += one * one;
            total[1] += other * other;
        }
    found[0] = mean;
    found[1] = 1 / sqrtf(sum(total[0] + total[1]) / count + (float)epsilon);
}

/* to[r][out + o] = Σ_c x_rc·w_oc of `rows` rows, in segments `apart`, and `outs` outputs */
INLINE void row_products(const float *const *x, int64_t segments, int64_t apart, const float *w, int64_t features, float *const *to,
                         int64_t out, const int rows, const int outs) {
    vector total[4][4] = {{{0}}};
    for (int64_t s = 0; s < segments; s++)
        for (int64_t c = 0; c < features; c += LANES) {
            vector of_x[4];
            for (int r = 0; r < rows; r++) of_x[r] = at(x[r] + s * apart, c);
            for (int o = 0; o < outs; o++) {
                const vector of_w = at(w, (o * segments + s) * features + c);
                for (int r = 0; r < rows; r++) total[r][o] += of_x[r] * of_w;
            }
        }
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outs; o++) to[r][out + o] = sum(total[r][o]);
}

INLINE int64_t rows_per_token(const struct reading *a) { return a->form == MANIFOLD ? 1 : a->streams; }
INLINE int64_t row_segments(const struct reading *a) { return a->form == MANIFOLD ? a->streams : 1; }

INLINE const float *row_of(const struct reading *a, int64_t row) {
    const int64_t per_token = rows_per_token(a);
    return a->h + row / per_token * a->token + row % per_token * a->stream;
}

/* values (rows, p): each row, normalised, times the weight */
static void row_values(const struct reading *a, int64_t first, int64_t last) {
    const int64_t features = a->features, p = a->outputs, segments = row_segments(a), width = segments * features;
    for (int64_t row = first; row < last; row += 4) {
        const int rows = last - row < 4 ? (int)(last - row) : 4;
        const float *x[4];
        float *to[4];
        for (int r = 0; r < rows; r++) {
            x[r] = row_of(a, row + r);
            to[r] = a->values + (row + r) * p;
            statistics(x[r], segments, a->stream, features, a->row_norm, a->row_epsilon, a->row_statistics + (row + r) * 2);
        }
        int64_t o = 0;
        for (; LANES == 16 && rows == 4 && o + 4 <= p; o += 4) row_products(x, segments, a->stream, a->folded + o * width, features, to, o, 4, 4);
        for (; o < p; o += 2) {
            const float *w = a->folded + o * width;
            if (rows == 4 && p - o > 1) row_products(x, segments, a->stream, w, features, to, o, 4, 2);
            else
                for (int r = 0; r < rows; r++) {
                    if (p - o > 1) row_products(x + r, segments, a->stream, w, features, to + r, o, 1, 2);
                    else row_products(x + r, segments, a->stream, w, features, to + r, o, 1, 1);
                }
        }
        for (int r = 0; r < rows; r++)
            for (int64_t o = 0; o < p; o++) to[r][o] = a->row_statistics[(row + r) * 2 + 1] * to[r][o] + a->shifts[o];
    }
}

/* w (n, n) becomes exp(w) after a softmax, which `found` receives, and `count` divisions by the sums of columns, rows, ...,
   which `lines` receives with their reciprocals */
INLINE void balance(vector *w, vector *found, vector *lines, int64_t count, const float epsilon, const int n) {
    for (int j = 0; j < n; j++) {
        vector most = w[j * n], total = {0};
        for (int k = 1; k < n; k++) most = larger(most, w[j * n + k]);
        for (int k = 0; k < n; k++) total += w[j * n + k] = exponential(w[j * n + k] - most);
        total = 1.0f / total;
        for (int k = 0; k < n; k++) {
            found[j * n + k] = w[j * n + k] * total;
            w[j * n + k] = found[j * n + k] + epsilon;
        }
    }
    for (int64_t step = 0; step < count; step++, lines += 2 * n) {
        const int apart = step % 2 ? n : 1, within = step % 2 ? 1 : n;
        for (int line = 0; line < n; line++) {
            vector total = all(epsilon);
            for (int i = 0; i < n; i++) total += w[line * apart + i * within];
            lines[line] = total;
            lines[n + line] = 1.0f / total;
            for (int i = 0; i < n; i++) w[line * apart + i * within] *= lines[n + line];
        }
    }
}

/* g, the gradient of the balanced w, becomes that of the logits; w is divided back on the way */
INLINE void balance_gradient(vector *g, vector *w, const vector *found, const vector *lines, int64_t count, const int n) {
    for (int64_t step = count - 1; step >= 0; step--) {
        const vector *kept = lines + step * 2 * n;
        const int apart = step % 2 ? n : 1, within = step % 2 ? 1 : n;
        for (int line = 0; line < n; line++) {
            vector total = {0};
            for (int i = 0; i < n; i++) {
                const int entry = line * apart + i * within;
                g[entry] *= kept[n + line];
                total += g[entry] * w[entry];
                w[entry] *= kept[line];
            }
            for (int i = 0; i < n; i++) g[line * apart + i * within] -= total;
        }
    }
    for (int j = 0; j < n; j++) {
        vector total = {0};
        for (int k = 0; k < n; k++) total += g[j * n + k] * found[j * n + k];
        for (int k = 0; k < n; k++) g[j * n + k] = found[j * n + k] * (g[j * n + k] - total);
    }
}

/* R (n, n), the mixture of the permutations' matrices by the softmax of w, which replaces w */
INLINE void mix_permutations(const struct reading *a, vector *w, vector *r, const int n) {
    const int64_t count = a->outputs - 2 * n;
    vector most = w[0], total = {0};
    for (int64_t p = 1; p < count; p++) most = larger(most, w[p]);
    for (int64_t p = 0; p < count; p++) total += w[p] = exponential(w[p] - most);
    total = 1.0f / total;
    for (int i = 0; i < n * n; i++) r[i] = (vector){0};
    for (int64_t p = 0; p < count; p++) {
        w[p] *= total;
        for (int i = 0; i < n * n; i++) r[i] += a->matrices[p * n * n + i] * w[p];
    }
}

/* the logit of value `o` of the tokens from `values`, and the factor a of that value */
INLINE float factor(const struct reading *a, int64_t o, const int n) { return a->scale[o < n ? 0 : o < 2 * n ? 1 : 2]; }
INLINE vector logit(const struct reading *a, const float *values, int64_t o, int64_t count, const int n) {
    return factor(a, o, n) * gathered(values, a->outputs, o, count) + a->bias[o];
}

/* where weight `o` of stream j lies in a token's row of `mix`: α (n, q), R (n, n) unless it is the identity, and β (n) */
INLINE int64_t place_of(const struct reading *a, int64_t j, int64_t o, const int n, const int q) {
    return o < q ? j * q + o : o < q + n ? n * q + j * n + o - q : a->width - n + j;
}

INLINE void manifold_weights(const struct reading *a, int64_t first, int64_t count, vector *lines, const int n) {
    const int64_t logits = a->outputs - 2 * n, width = a->width;
    const float *values = a->values + first * a->outputs;
    float *mix = a->mix + first * width;
    vector w[MOST_LOGITS], found[64];
    for (int k = 0; k < n; k++) scattered(mix, width, k, count, sigmoid(logit(a, values, k, count, n)) + (float)a->alpha_epsilon);
    if (logits < 0) return;
    for (int k = 0; k < n; k++)
        scattered(mix, width, width - n + k, count, (float)a->magnitude * sigmoid(logit(a, values, n + k, count, n)) + (float)a->beta_epsilon);
    if (!logits) return;
    for (int64_t o = 0; o < logits; o++) w[o] = logit(a, values, 2 * n + o, count, n);
    if (a->matrices) mix_permutations(a, w, found, n);
    else balance(w, found, lines, 2 * a->iterations - 1, (float)a->sinkhorn_epsilon, n);
    for (int i = 0; i < n * n; i++) scattered(mix, width, n + i, count, a->matrices ? found[i] : w[i]);
}

INLINE void tanh_weights(const struct reading *a, int64_t first, int64_t count, const int n, const int q) {
    const int64_t p = a->outputs;
    for (int j = 0; j < n; j++)
        for (int64_t o = 0; o < p; o++) {
            const float start = o < q       ? a->alpha[j * a->alpha_row + o]
                                : o < q + n ? a->residual[j * a->residual_row + o - q]
                                            : a->beta[j];
            vector found = all(start);
            if (a->weight) found += (o < p - 1 ? a->scale : a->scale2)[0] * hyperbolic_tangent(gathered(a->values + first * n * p, n * p, j * p + o, count));
            scattered(a->mix + first * a->width, a->width, place_of(a, j, o, n, q), count, found);
        }
}

/* the weights (n, q) with which a token reads */
INLINE const float *reading_weights(const struct reading *a, int64_t token) {
    return a->previous ? a->previous + token * a->streams : a->mix + token * a->width;
}

/* s (q, C), Σ_j α_jk·h_j of one token */
INLINE void input_of(const struct reading *a, int64_t token, float *s, const int n, const int q) {
    const float *h = a->h + token * a->token, *alpha = reading_weights(a, token);
    for (int64_t c = 0; c < a->features; c += LANES) {
        vector of_h[8];
        for (int j = 0; j < n; j++) of_h[j] = at(h + j * a->stream, c);
        for (int k = 0; k < q; k++) {
            vector y = alpha[k] * of_h[0];
            for (int j = 1; j < n; j++) y += alpha[j * q + k] * of_h[j];
            put(s + k * a->features, c, y);
        }
    }
}

/* room for the divisions of LANES tokens, and for `count` numbers of each */
INLINE vector *vectors(const struct reading *a, int64_t count) {
    vector *room = aligned_alloc(64, (4 * a->iterations * a->streams + count + 64) * sizeof *room);
    if (!room) abort();
    return room;
}

INLINE void read_blocks(const struct reading *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t inputs = q * a->features, per_token = rows_per_token(a);
    vector *lines = vectors(a, 0);
    for (int64_t token = first; token < last; token += LANES) {
        const int64_t count = last - token < LANES ? last - token : LANES;
        if (a->weight) row_values(a, token * per_token, (token + count) * per_token);
        if (a->form == MANIFOLD) manifold_weights(a, token, count, lines, n);
        else tanh_weights(a, token, count, n, q);
        for (int64_t t = token; t < token + count; t++) {
            float *x = a->x + t * inputs, *found = a->statistics + t * 2;
            input_of(a, t, x, n, q);
            if (a->norm == NO_NORM) continue;
            statistics(x, 1, 0, inputs, a->norm, a->epsilon, found);
            for (int64_t c = 0; c < inputs; c += LANES) {
                const vector y = (at(x, c) - found[0]) * found[1] * at(a->gain, c);
                put(x, c, a->shift ? y + at(a->shift, c) : y);
            }
        }
    }
    free(lines);
}

/* adds Σ_c x_jc·g_kc of 4 by 2 rows, or of the fewer that there are, to `to` */
INLINE void pair_products(const float *const *x, const float *const *g, int64_t features, float *to, int64_t width, const int many, const int wide) {
    vector total[4][2] = {{{0}}};
    for (int64_t c = 0; c < features; c += LANES) {
        vector of_g[2];
        for (int k = 0; k < wide; k++) of_g[k] = at(g[k], c);
        for (int j = 0; j < many; j++)
            for (int k = 0; k < wide; k++) total[j][k] += at(x[j], c) * of_g[k];
    }
    for (int j = 0; j < many; j++)
        for (int k = 0; k < wide; k++) to[j * width + k] += sum(total[j][k]);
}

/* From the gradients of x, of the output of `write` and of β of one token: those of s, in `of_s`, and of all weights, in `of_mix`;
   what h gets but for that through the values; and what the gradients of the norm's gain and shift get, which is added to `of_norm`. */
INLINE void input_gradient(const struct reading *a, int64_t token, float *of_s, float *of_mix, float *of_norm, const int n, const int q) {
    const int64_t features = a->features, inputs = q * features;
    const float *h = a->h + token * a->token, *of_x = a->of_x + token * inputs, *found = a->statistics + token * 2;
    if (a->norm == NO_NORM) memcpy(of_s, of_x, inputs * sizeof *of_s);
    else {
        vector total = {0}, along = {0};
        input_of(a, token, of_s, n, q);
        for (int64_t c = 0; c < inputs; c += LANES) {
            const vector y = at(of_x, c) * at(a->gain, c);
            total += y;
            along += y * (at(of_s, c) - found[0]);
        }
        const float mean = a->norm == LAYER_NORM ? sum(total) / (float)inputs : 0;
        const float share = sum(along) * found[1] * found[1] / (float)inputs;
        for (int64_t c = 0; c < inputs; c += LANES) {
            const vector y = at(of_x, c), centred = at(of_s, c) - found[0];
            put(of_s, c, found[1] * (y * at(a->gain, c) - mean - share * centred));
            put(of_norm, c, at(of_norm, c) + found[1] * y * centred);
            put(of_norm, inputs + c, at(of_norm, inputs + c) + y);
        }
    }
    if (a->of_mix) memcpy(of_mix, a->of_mix + token * a->width, a->width * sizeof *of_mix);
    else memset(of_mix, 0, a->width * sizeof *of_mix);
    const float *x[8], *g[8], *of_inputs[8], *mix = a->mix + token * a->width, *alpha = reading_weights(a, token);
    float *to = a->gradient + token * n * features, *of_alpha = a->previous ? a->of_previous + token * n : of_mix;
    const int identity = a->width == n * q + n, many = n < 4 ? n : 4;
    for (int j = 0; j < n; j++) {
        x[j] = h + j * a->stream;
        fetch(x[j] + a->token, features);
        g[j] = a->of_output ? a->of_output + token * a->of_output_token + j * a->of_output_stream : NULL;
        if (g[j]) fetch(g[j] + a->of_output_token, features);
    }
    for (int k = 0; k < q; k++) of_inputs[k] = of_s + k * features;
    for (int j = 0; j < n; j += 4) {
        if (q == 1) pair_products(x + j, of_inputs, features, of_alpha + j, 1, many, 1);
        else
            for (int k = 0; k < q; k += 2) pair_products(x + j, of_inputs + k, features, of_alpha + j * q + k, q, many, 2);
        if (a->of_output && !identity)
            for (int k = 0; k < n; k += 2) pair_products(x + j, g + k, features, of_mix + n * q + j * n + k, n, many, 2);
    }
    for (int64_t c = 0; c < features; c += LANES) {
        vector of_g[8] = {{0}}, of_k[8];
        for (int k = 0; k < q; k++) of_k[k] = at(of_s + k * features, c);
        if (a->of_output)
            for (int k = 0; k < n; k++) of_g[k] = at(g[k], c);
        for (int j = 0; j < n; j++) {
            vector y = {0};
            for (int k = 0; k < q; k++) y += alpha[j * q + k] * of_k[k];
            if (a->of_output && identity) y += of_g[j];
            else if (a->of_output)
                for (int k = 0; k < n; k++) y += mix[n * q + j * n + k] * of_g[k];
            put(to + j * features, c, y);
        }
    }
}

/* `deltas`, the gradients of the logits, and `of_values`, from those of the weights */
INLINE void manifold_gradient(const struct reading *a, int64_t first, int64_t count, const float *of_mix, vector *lines, const int n) {
    const int64_t p = a->outputs, logits = p - 2 * n, width = a->width;
    const float *values = a->values + first * p;
    vector g[MOST_LOGITS], w[MOST_LOGITS], found[64], of_scale[3] = {{0}, {0}, {0}};
    for (int k = 0; k < n; k++) {
        const vector read = sigmoid(logit(a, values, k, count, n));
        g[k] = gathered(of_mix, width, k, count) * read * (1.0f - read);
        if (logits < 0) continue;
        const vector written = sigmoid(logit(a, values, n + k, count, n));
        g[n + k] = (float)a->magnitude * gathered(of_mix, width, width - n + k, count) * written * (1.0f - written);
    }
    if (logits > 0) {
        vector of_r[64];
        for (int64_t o = 0; o < logits; o++) w[o] = logit(a, values, 2 * n + o, count, n);
        for (int i = 0; i < n * n; i++) of_r[i] = gathered(of_mix, width, n + i, count);
        if (a->matrices) {
            vector total = {0};
            mix_permutations(a, w, found, n);
            for (int64_t o = 0; o < logits; o++) {
                g[2 * n + o] = (vector){0};
                for (int i = 0; i < n * n; i++) g[2 * n + o] += a->matrices[o * n * n + i] * of_r[i];
                total += g[2 * n + o] * w[o];
            }
            for (int64_t o = 0; o < logits; o++) g[2 * n + o] = w[o] * (g[2 * n + o] - total);
        } else {
            balance(w, found, lines, 2 * a->iterations - 1, (float)a->sinkhorn_epsilon, n);
            balance_gradient(of_r, w, found, lines, 2 * a->iterations - 1, n);
            for (int i = 0; i < n * n; i++) g[2 * n + i] = of_r[i];
        }
    }
    for (int64_t o = 0; o < p; o++) {
        of_scale[o < n ? 0 : o < 2 * n ? 1 : 2] += g[o] * gathered(values, p, o, count);
        scattered(a->deltas + first * p, p, o, count, g[o]);
        scattered(a->of_values + first * p, p, o, count, factor(a, o, n) * g[o]);
    }
    for (int i = 0; i < 3; i++) scattered(a->of_scales + first * 3, 3, i, count, of_scale[i]);
}

INLINE void tanh_gradient(const struct reading *a, int64_t first, int64_t count, const float *of_mix, const int n, const int q) {
    const int64_t p = a->outputs, values = n * p;
    vector of_scale[3] = {{0}, {0}, {0}};
    for (int j = 0; j < n; j++)
        for (int64_t o = 0; o < p; o++) {
            const vector g = gathered(of_mix, a->width, place_of(a, j, o, n, q), count);
            scattered(a->deltas + first * values, values, j * p + o, count, g);
            if (!a->weight) continue;
            const vector t = hyperbolic_tangent(gathered(a->values + first * values, values, j * p + o, count));
            of_scale[o == p - 1] += g * t;
            scattered(a->of_values + first * values, values, j * p + o, count, (o < p - 1 ? a->scale : a->scale2)[0] * g * (1.0f - t * t));
        }
    for (int i = 0; i < 3; i++) scattered(a->of_scales + first * 3, 3, i, count, of_scale[i]);
}

/* adds what the values give to the gradient of h at stream s of up to 4 tokens */
INLINE void add_gradients(const struct reading *a, int64_t token, int64_t s, const int rows, const int n) {
    const int64_t features = a->features, p = a->outputs, per_token = rows_per_token(a);
    const float *g[4], *h[4];
    float share[4], root[4], mean[4];
    for (int r = 0; r < rows; r++) {
        const int64_t t = token + r, row = per_token == 1 ? t : t * n + s;
        g[r] = a->of_values + row * p;
        h[r] = a->h + t * a->token + s * a->stream;
        mean[r] = a->row_statistics[row * 2];
        root[r] = a->row_statistics[row * 2 + 1];
        share[r] = 0;
        for (int64_t o = 0; o < p; o++) share[r] += g[r][o] * (a->values[row * p + o] - a->shifts[o]);
        share[r] *= root[r] * root[r] / (float)(row_segments(a) * features);
    }
    for (int64_t c = 0; c < features; c += CHUNK) {
        vector y[4][2] = {{{0}}};
        const float *w = a->packed + (per_token == 1 ? s * features + c : c) * p;
        for (int64_t o = 0; o < p; o++) {
            const vector one = at(w, o * CHUNK), other = at(w, o * CHUNK + LANES);
            for (int r = 0; r < rows; r++) {
                y[r][0] += g[r][o] * one;
                y[r][1] += g[r][o] * other;
            }
        }
        for (int r = 0; r < rows; r++) {
            float *to = a->gradient + ((token + r) * n + s) * features;
            for (int i = 0; i < 2; i++) {
                const int64_t place = c + i * LANES;
                put(to, place, at(to, place) + root[r] * y[r][i] - share[r] * (at(h[r], place) - mean[r]));
            }
        }
    }
}

INLINE void read_gradient_blocks(const struct reading *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t inputs = q * a->features;
    vector *lines = vectors(a, a->width + q * a->features / LANES);
    float *of_mix = (float *)(lines + 4 * a->iterations * n), *of_s = of_mix + LANES * a->width;
    for (int64_t token = first; token < last; token += LANES) {
        const int64_t count = last - token < LANES ? last - token : LANES;
        float *of_norm = a->of_norm + (a->norm ? token / LANES * 2 * inputs : 0);
        for (int64_t t = 0; t < count; t++) input_gradient(a, token + t, of_s, of_mix + t * a->width, of_norm, n, q);
        if (a->form == MANIFOLD) manifold_gradient(a, token, count, of_mix, lines, n);
        else tanh_gradient(a, token, count, of_mix, n, q);
        for (int64_t s = 0; a->weight && s < n; s++)
            for (int64_t t = 0; t < count; t += 4) {
                if (count - t >= 4) add_gradients(a, token + t, s, 4, n);
                else
                    for (int64_t r = t; r < count; r++) add_gradients(a, token + r, s, 1, n);
            }
    }
    free(lines);
}

/* adds Σ_rows g_o·h of `outs` outputs to CHUNK columns of the weight's gradient */
INLINE void add_columns(const float *const *h, const float *const *g, const float *roots, int rows, int64_t o, float *to, const int outs) {
    vector total[8][2];
    for (int i = 0; i < outs; i++)
        for (int half = 0; half < 2; half++) total[i][half] = at(to, (o + i) * CHUNK + half * LANES);
    for (int r = 0; r < rows; r++) {
        const vector one = roots[r] * at(h[r], 0), other = roots[r] * at(h[r], LANES);
        for (int i = 0; i < outs; i++) {
            total[i][0] += g[r][o + i] * one;
            total[i][1] += g[r][o + i] * other;
        }
    }
    for (int i = 0; i < outs; i++)
        for (int half = 0; half < 2; half++) put(to, (o + i) * CHUNK + half * LANES, total[i][half]);
}

/* adds what some rows give to CHUNK columns of the gradient of the folded weight */
INLINE void weight_columns(const struct reading *a, int64_t first, int rows, int64_t s, int64_t c, float *to) {
    const int64_t p = a->outputs;
    const float *h[ROWS_AT_ONCE], *g[ROWS_AT_ONCE];
    float roots[ROWS_AT_ONCE];
    for (int r = 0; r < rows; r++) {
        h[r] = row_of(a, first + r) + s * a->stream + c;
        g[r] = a->of_values + (first + r) * p;
        roots[r] = a->row_statistics[(first + r) * 2 + 1];
    }
    int64_t o = 0;
    for (; LANES == 16 && o + 8 <= p; o += 8) add_columns(h, g, roots, rows, o, to, 8);
    for (; o + 4 <= p; o += 4) add_columns(h, g, roots, rows, o, to, 4);
    for (; o + 2 <= p; o += 2) add_columns(h, g, roots, rows, o, to, 2);
    if (o < p) add_columns(h, g, roots, rows, o, to, 1);
}

/* Sums over all tokens for some chunks of columns, which start at 0. A few tokens at a time stay in the cache. */
static void read_streams_columns(const struct reading *a, int64_t first, int64_t last) {
    const int64_t chunks = a->features / CHUNK, per_token = rows_per_token(a), at_once = ROWS_AT_ONCE / per_token;
    for (int64_t token = 0; token < a->tokens; token += at_once) {
        const int64_t end = a->tokens - token < at_once ? a->tokens : token + at_once;
        for (int64_t chunk = first; chunk < last; chunk++) {
            const int64_t s = chunk / chunks, c = chunk % chunks * CHUNK;
            weight_columns(a, token * per_token, (int)((end - token) * per_token), s, c, a->of_packed + (s * a->features + c) * a->outputs);
        }
    }
}

/* h (n, C) of each token after the branch */
INLINE void write_tokens(const struct writing *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t features = a->features;
    for (int64_t token = first; token < last; token++) {
        const float *h = a->h + token * a->token, *f = a->f + token * q * features;
        const float *beta = a->mix + (token + 1) * a->width - n, *mix = beta - n * n;
        float *to = a->output + token * n * features;
        for (int64_t c = 0; c < features; c += CHUNK) {
            vector y[8][2];
            for (int k = 0; k < n; k++)
                for (int half = 0; half < 2; half++) {
                    y[k][half] = beta[k] * at(f, (q > 1 ? k * features : 0) + c + half * LANES);
                    if (a->identity) y[k][half] += at(h + k * a->stream, c + half * LANES);
                }
            if (!a->identity)
                for (int j = 0; j < n; j++) {
                    const vector one = at(h + j * a->stream, c), other = at(h + j * a->stream, c + LANES);
                    for (int k = 0; k < n; k++) {
                        y[k][0] += mix[j * n + k] * one;
                        y[k][1] += mix[j * n + k] * other;
                    }
                }
            for (int k = 0; k < n; k++)
                for (int half = 0; half < 2; half++) put(to + k * features, c + half * LANES, y[k][half]);
        }
    }
}

/* the gradients of f and β; `read_streams_gradient` finds those of h and R from that of the output */
INLINE void write_gradient_tokens(const struct writing *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t features = a->features;
    for (int64_t token = first; token < last; token++) {
        const float *g = a->gradient + token * a->gradient_token, *f = a->f + token * q * features;
        const float *beta = a->mix + (token + 1) * a->width - n;
        float *of_mix = a->of_mix + token * a->width, *of_f = a->of_f + token * q * features;
        memset(of_mix, 0, a->width * sizeof *of_mix);
        for (int k = 0; k < n; k++) {
            const float *of_branch = f + (q > 1 ? k * features : 0), *of_output = g + k * a->gradient_stream;
            pair_products(&of_branch, &of_output, features, of_mix + a->width - n + k, 1, 1, 1);
        }
        for (int64_t c = 0; c < features; c += LANES) {
            vector y = {0};
            for (int k = 0; k < n; k++) {
                const vector of_k = beta[k] * at(g + k * a->gradient_stream, c);
                if (q > 1) put(of_f + k * features, c, of_k);
                else y += of_k;
            }
            if (q == 1) put(of_f, c, y);
        }
    }
}

/* 4 streams, which are usual, have kernels of their own */
#define OF_STREAMS(kernel)                                                          \
    do {                                                                            \
        if (a->streams == 4 && a->parts == 1) kernel(a, first, last, 4, 1);         \
        else kernel(a, first, last, (int)a->streams, (int)a->parts);                \
    } while (0)

static void read_streams(const struct reading *a, int64_t first, int64_t last) { OF_STREAMS(read_blocks); }
static void read_streams_gradient(const struct reading *a, int64_t first, int64_t last) { OF_STREAMS(read_gradient_blocks); }
static void write_streams(const struct writing *a, int64_t first, int64_t last) { OF_STREAMS(write_tokens); }
static void write_streams_gradient(const struct writing *a, int64_t first, int64_t last) { OF_STREAMS(write_gradient_tokens); }
