/* Connections that pass on n streams h of C features, for training (rskip/connections/stream_kernels.py). `read` computes a
   token's weights α, R and β from its streams, and the branch's input norm(Σ_j α_j·h_j); `write` computes
   h_k ← Σ_j R_jk·h_j + β_k·f. C is a multiple of CHUNK. Groups of LANES tokens are taken at a time. What their small matrices
   consist of lies LANES numbers side by side, one of each token, so that vectors compute it without sums over their lanes. */

#define CHUNK (2 * LANES)
#define ROWS_AT_ONCE 32
#define MOST_LOGITS 80           /* 2n + n² of 8 streams */
#define MOST_WEIGHTS 136         /* 2n² + n */

INLINE vector at(const float *from, int64_t index) { return load(from, index, FLOAT32); }
INLINE void put(float *to, int64_t index, vector x) { store(to, index, x, FLOAT32); }

/* brings what is read soon into the cache */
INLINE void fetch(const float *from, int64_t count) {
    for (int64_t c = 0; c < count; c += 16) __builtin_prefetch(from + c);
}

/* y_i (x_0i, x_1i, x_2i, x_3i) of each four numbers of four vectors */
INLINE void turn(const vector *x, vector *y) {
    const vector ab = MIX(integers, x[0], x[1], FIRSTS), cd = MIX(integers, x[2], x[3], FIRSTS);
    const vector AB = MIX(integers, x[0], x[1], SECONDS), CD = MIX(integers, x[2], x[3], SECONDS);
    y[0] = MIX(integers, ab, cd, FIRST_PAIRS);
    y[1] = MIX(integers, ab, cd, SECOND_PAIRS);
    y[2] = MIX(integers, AB, CD, FIRST_PAIRS);
    y[3] = MIX(integers, AB, CD, SECOND_PAIRS);
}

/* `width` numbers of each of `count` tokens, which lie in rows, side by side; the other lanes repeat the last token */
INLINE void side_by_side(const float *rows, int64_t width, int64_t count, vector *to) {
    int64_t o = 0;
    for (; count == LANES && o + 4 <= width; o += 4) {
        float quarters[4][LANES];
        vector x[4];
        for (int t = 0; t < LANES; t++) memcpy(&quarters[t % 4][t / 4 * 4], rows + t * width + o, sizeof(four));
        for (int k = 0; k < 4; k++) x[k] = at(quarters[k], 0);
        turn(x, to + o);
    }
    for (; o < width; o++) {
        float lanes[LANES];
        for (int64_t t = 0; t < LANES; t++) lanes[t] = rows[(t < count ? t : count - 1) * width + o];
        to[o] = at(lanes, 0);
    }
}

INLINE void in_rows(const vector *x, int64_t width, int64_t count, float *rows) {
    int64_t o = 0;
    for (; count == LANES && o + 4 <= width; o += 4) {
        float quarters[4][LANES];
        vector y[4];
        turn(x + o, y);
        for (int k = 0; k < 4; k++) put(quarters[k], 0, y[k]);
        for (int t = 0; t < LANES; t++) memcpy(rows + t * width + o, &quarters[t % 4][t / 4 * 4], sizeof(four));
    }
    for (; o < width; o++)
        for (int64_t t = 0; t < count; t++) rows[t * width + o] = x[o][t];
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

/* the means (0 for RMS) of four rows, in `segments`, and their variances; likewise LANES numbers apart */
INLINE void statistics_of_four(const float *const *x, int64_t segments, int64_t apart, int64_t features, int64_t norm, float *found) {
    const float count = (float)(segments * features);
    vector total[4] = {{0}};
    four means = {0}, variances;
    if (norm == LAYER_NORM) {
        for (int64_t s = 0; s < segments; s++)
            for (int64_t c = 0; c < features; c += LANES)
                for (int r = 0; r < 4; r++) total[r] += at(x[r] + s * apart, c);
        means = sums(total[0], total[1], total[2], total[3]) / count;
        for (int r = 0; r < 4; r++) total[r] = (vector){0};
    }
    for (int64_t s = 0; s < segments; s++)
        for (int64_t c = 0; c < features; c += LANES)
            for (int r = 0; r < 4; r++) {
                const vector one = at(x[r] + s * apart, c) - means[r];
                total[r] += one * one;
            }
    variances = sums(total[0], total[1], total[2], total[3]) / count;
    memcpy(found, &means, sizeof means);
    memcpy(found + LANES, &variances, sizeof variances);
}

/* four rows of C numbers, from the t-th of `rows` tokens; the last repeats */
INLINE void four_rows(const float *from, int64_t t, int64_t rows, int64_t features, const float **to) {
    for (int64_t r = 0; r < 4; r++) to[r] = from + (t + r < rows ? t + r : rows - 1) * features;
}

/* the rows x of a group of `count` tokens become normalised; `found` receives their means and reciprocal deviations */
INLINE void normalise_group(float *x, int64_t count, int64_t features, int64_t norm, double epsilon, const float *gain, const float *shift, float *found) {
    for (int64_t t = 0; t < LANES; t += 4) {
        const float *rows[4];
        four_rows(x, t, count, features, rows);
        statistics_of_four(rows, 1, 0, features, norm, found + t);
    }
    put(found, LANES, 1.0f / square_root(at(found, LANES) + (float)epsilon));
    for (int64_t t = 0; t < count; t++, x += features)
        for (int64_t c = 0; c < features; c += LANES) {
            const vector y = (at(x, c) - found[t]) * found[LANES + t] * at(gain, c);
            put(x, c, shift ? y + at(shift, c) : y);
        }
}

/* to[o * LANES + r] = Σ_c x_rc·w_oc of four rows, in segments `apart`, and `outs` outputs */
INLINE void row_products(const float *const *x, int64_t segments, int64_t apart, const float *w, int64_t features, float *to, const int outs) {
    vector total[4][4] = {{{0}}};
    for (int64_t s = 0; s < segments; s++)
        for (int64_t c = 0; c < features; c += LANES) {
            vector of_x[4];
            for (int r = 0; r < 4; r++) of_x[r] = at(x[r] + s * apart, c);
            for (int o = 0; o < outs; o++) {
                const vector of_w = at(w, (o * segments + s) * features + c);
                for (int r = 0; r < 4; r++) total[o][r] += of_x[r] * of_w;
            }
        }
    for (int o = 0; o < outs; o++) {
        const four found = sums(total[o][0], total[o][1], total[o][2], total[o][3]);
        memcpy(to + o * LANES, &found, sizeof found);
    }
}

INLINE int64_t rows_per_token(const struct reading *a) { return a->form == MANIFOLD ? 1 : a->streams; }
INLINE int64_t row_segments(const struct reading *a) { return a->form == MANIFOLD ? a->streams : 1; }

/* what a group's row of a token is `width` numbers of, from those of its first row of all */
INLINE float *of_row(const struct reading *a, const float *from, int64_t first, int64_t row, int64_t width) {
    return (float *)from + (first * rows_per_token(a) + row * LANES) * width;
}

/* values (p) and statistics of the rows of a group of `count` tokens: each row, normalised, times the weight */
static void row_values(const struct reading *a, int64_t first, int64_t count) {
    const int64_t features = a->features, p = a->outputs, segments = row_segments(a), width = segments * features;
    for (int64_t row = 0; row < rows_per_token(a); row++) {
        float *found = of_row(a, a->row_statistics, first, row, 2), *values = of_row(a, a->values, first, row, p);
        if (count < LANES) {
            memset(found, 0, 2 * LANES * sizeof *found);
            memset(values, 0, p * LANES * sizeof *values);
        }
        for (int64_t t = 0; t < count; t += 4) {
            const float *x[4];
            for (int64_t r = 0; r < 4; r++) {
                x[r] = a->h + (first + (t + r < count ? t + r : count - 1)) * a->token + row * a->stream;
                for (int64_t s = 0; s < segments; s++) fetch(x[r] + LANES * a->token + s * a->stream, features);
            }
            statistics_of_four(x, segments, a->stream, features, a->row_norm, found + t);
            int64_t o = 0;
            for (; LANES == 16 && o + 4 <= p; o += 4) row_products(x, segments, a->stream, a->folded + o * width, features, values + o * LANES + t, 4);
            for (; o + 2 <= p; o += 2) row_products(x, segments, a->stream, a->folded + o * width, features, values + o * LANES + t, 2);
            if (o < p) row_products(x, segments, a->stream, a->folded + o * width, features, values + o * LANES + t, 1);
        }
        const vector root = 1.0f / square_root(at(found, LANES) + (float)a->row_epsilon);
        put(found, LANES, root);
        for (int64_t o = 0; o < p; o++) put(values, o * LANES, root * at(values, o * LANES) + a->shifts[o]);
    }
}

/* w (n, n) becomes exp(w) after a softmax, which `found` receives, and `count` divisions by the sums of columns, rows, ...,
   which `lines` receives with their reciprocals. exp(-87) is the least, so that no sum of a column is 0. */
INLINE void balance(vector *w, vector *found, vector *lines, int64_t count, const float epsilon, const int n) {
    for (int j = 0; j < n; j++) {
        vector most = w[j * n], total = {0};
        for (int k = 1; k < n; k++) most = larger(most, w[j * n + k]);
        for (int k = 0; k < n; k++) total += w[j * n + k] = exponential(larger(all(-87.0f), w[j * n + k] - most));
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
INLINE vector logit(const struct reading *a, const float *values, int64_t o, const int n) {
    return factor(a, o, n) * at(values, o * LANES) + a->bias[o];
}

/* where weight `o` of stream j lies in a token's row of `mix`: α (n, q), R (n, n) unless it is the identity, and β (n) */
INLINE int64_t place_of(const struct reading *a, int64_t j, int64_t o, const int n, const int q) {
    return o < q ? j * q + o : o < q + n ? n * q + j * n + o - q : a->width - n + j;
}

INLINE void manifold_weights(const struct reading *a, int64_t first, vector *mix, vector *lines, const int n) {
    const int64_t logits = a->outputs - 2 * n;
    const float *values = a->values + first * a->outputs;
    vector w[MOST_LOGITS], found[64];
    for (int k = 0; k < n; k++) mix[k] = sigmoid(logit(a, values, k, n)) + (float)a->alpha_epsilon;
    if (logits < 0) return;
    for (int k = 0; k < n; k++)
        mix[a->width - n + k] = (float)a->magnitude * sigmoid(logit(a, values, n + k, n)) + (float)a->beta_epsilon;
    if (!logits) return;
    for (int64_t o = 0; o < logits; o++) w[o] = logit(a, values, 2 * n + o, n);
    if (a->matrices) mix_permutations(a, w, found, n);
    else balance(w, found, lines, 2 * a->iterations - 1, (float)a->sinkhorn_epsilon, n);
    for (int i = 0; i < n * n; i++) mix[n + i] = a->matrices ? found[i] : w[i];
}

INLINE void tanh_weights(const struct reading *a, int64_t first, vector *mix, const int n, const int q) {
    const int64_t p = a->outputs;
    for (int j = 0; j < n; j++)
        for (int64_t o = 0; o < p; o++) {
            const float start = o < q       ? a->alpha[j * a->alpha_row + o]
                                : o < q + n ? a->residual[j * a->residual_row + o - q]
                                            : a->beta[j];
            vector found = all(start);
            if (a->weight) found += (o < p - 1 ? a->scale : a->scale2)[0] * hyperbolic_tangent(at(of_row(a, a->values, first, j, p), o * LANES));
            mix[place_of(a, j, o, n, q)] = found;
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

/* room for the divisions of LANES tokens, and for `count` numbers of each; and where vectors may begin in it */
INLINE float *vectors(const struct reading *a, int64_t count) {
    return numbers((4 * a->iterations * a->streams + 64 + count) * LANES + 16);
}
INLINE vector *aligned(float *room) { return (vector *)(((uintptr_t)room + 63) / 64 * 64); }

INLINE void read_blocks(const struct reading *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t inputs = q * a->features, width = a->width;
    float *room = vectors(a, 0);
    vector *lines = aligned(room);
    for (int64_t token = first; token < last; token += LANES) {
        const int64_t count = last - token < LANES ? last - token : LANES;
        float *x = a->x + token * inputs, *found = a->statistics + token * 2;
        vector mix[MOST_WEIGHTS];
        if (a->weight) row_values(a, token, count);
        if (a->form == MANIFOLD) manifold_weights(a, token, mix, lines, n);
        else tanh_weights(a, token, mix, n, q);
        in_rows(mix, width, count, a->mix + token * width);
        for (int64_t t = 0; t < count; t++) input_of(a, token + t, x + t * inputs, n, q);
        if (a->norm != NO_NORM) normalise_group(x, count, inputs, a->norm, a->epsilon, a->gain, a->shift, found);
    }
    free(room);
}

/* to[j * width + k] = Σ_c x_jc·g_kc of 4 by 4 rows, or of the fewer that there are */
INLINE void pair_products(const float *const *x, const float *const *g, int64_t features, float *to, int64_t width, const int many, const int wide) {
    vector total[4][4] = {{{0}}};
    for (int64_t c = 0; c < features; c += LANES) {
        vector of_g[4];
        for (int k = 0; k < wide; k++) of_g[k] = at(g[k], c);
        for (int j = 0; j < many; j++)
            for (int k = 0; k < wide; k++) total[j][k] += at(x[j], c) * of_g[k];
    }
    for (int j = 0; j < many; j++) {
        const four found = sums(total[j][0], total[j][1], total[j][2], total[j][3]);
        memcpy(to + j * width, &found, wide * sizeof *to);
    }
}

/* From the gradients of x and of the norm's gain of up to four tokens, those of s, in `of_s`, and what the gradients of gain and
   shift get, which is added to `of_norm`. */
INLINE void norm_gradient(const struct reading *a, int64_t first, int64_t t, int rows, float *of_s, float *of_norm, const int n, const int q) {
    const int64_t inputs = q * a->features;
    const float *of_x = a->of_x + (first + t) * inputs, *found = a->statistics + first * 2 + t;
    vector total[4] = {{0}}, along[4] = {{0}};
    for (int r = 0; r < rows; r++) {
        input_of(a, first + t + r, of_s + r * inputs, n, q);
        for (int64_t c = 0; c < inputs; c += LANES) {
            const vector y = at(of_x, r * inputs + c) * at(a->gain, c);
            total[r] += y;
            along[r] += y * (at(of_s, r * inputs + c) - found[r]);
        }
    }
    four means = {0}, shares = sums(along[0], along[1], along[2], along[3]) / (float)inputs;
    if (a->norm == LAYER_NORM) means = sums(total[0], total[1], total[2], total[3]) / (float)inputs;
    for (int64_t c = 0; c < inputs; c += LANES) {
        const vector gain = at(a->gain, c);
        vector of_gain = at(of_norm, c), of_shift = at(of_norm, inputs + c);
        for (int r = 0; r < rows; r++) {
            const float root = found[LANES + r];
            const vector y = at(of_x, r * inputs + c), centred = at(of_s, r * inputs + c) - found[r];
            put(of_s, r * inputs + c, root * (y * gain - means[r] - shares[r] * root * root * centred));
            of_gain += root * y * centred;
            of_shift += y;
        }
        put(of_norm, c, of_gain);
        put(of_norm, inputs + c, of_shift);
    }
}

/* From the gradients of s and of the output of `write` of one token: those of α and R, in `of_mix`, and what h gets but for that
   through the values. */
INLINE void input_gradient(const struct reading *a, int64_t token, const float *of_s, float *of_mix, const int n, const int q) {
    const int64_t features = a->features;
    const float *h = a->h + token * a->token;
    const float *x[8], *g[8], *of_inputs[8], *mix = a->mix + token * a->width, *alpha = reading_weights(a, token);
    float *to = a->gradient + token * n * features, *of_alpha = a->previous ? a->of_previous + token * n : of_mix;
    const int identity = a->width == n * q + n, many = LANES == 16 && n >= 4 ? 4 : 2, wide = n < 4 ? n : 4;
    for (int j = 0; j < n; j++) {
        x[j] = h + j * a->stream;
        fetch(x[j] + 4 * a->token, features);
        g[j] = a->of_output ? a->of_output + token * a->of_output_token + j * a->of_output_stream : NULL;
        if (g[j]) fetch(g[j] + a->of_output_token, features);
    }
    for (int k = 0; k < q; k++) of_inputs[k] = of_s + k * features;
    for (int k = 0; q == 1 && k < n; k += 4) pair_products(of_inputs, x + k, features, of_alpha + k, 1, 1, wide);
    for (int j = 0; j < n; j += many) {
        for (int k = 0; q > 1 && k < q; k += 4) pair_products(x + j, of_inputs + k, features, of_alpha + j * q + k, q, many, wide);
        for (int k = 0; a->of_output && !identity && k < n; k += 4)
            pair_products(x + j, g + k, features, of_mix + n * q + j * n + k, n, many, wide);
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

/* `deltas`, the gradients of the logits, `of_values`, and the rows' shares in the gradient of h, from the weights' gradients */
INLINE void manifold_gradient(const struct reading *a, int64_t first, const vector *of_mix, vector *lines, vector *shares, const int n) {
    const int64_t p = a->outputs, logits = p - 2 * n;
    const float *values = a->values + first * p;
    vector g[MOST_LOGITS], w[MOST_LOGITS], found[64], of_scale[3] = {{0}, {0}, {0}};
    for (int k = 0; k < n; k++) {
        const vector read = sigmoid(logit(a, values, k, n));
        g[k] = of_mix[k] * read * (1.0f - read);
        if (logits < 0) continue;
        const vector written = sigmoid(logit(a, values, n + k, n));
        g[n + k] = (float)a->magnitude * of_mix[a->width - n + k] * written * (1.0f - written);
    }
    if (logits > 0) {
        vector of_r[64];
        for (int64_t o = 0; o < logits; o++) w[o] = logit(a, values, 2 * n + o, n);
        for (int i = 0; i < n * n; i++) of_r[i] = of_mix[n + i];
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
    shares[0] = (vector){0};
    for (int64_t o = 0; o < p; o++) {
        const vector value = at(values, o * LANES), of_value = factor(a, o, n) * g[o];
        of_scale[o < n ? 0 : o < 2 * n ? 1 : 2] += g[o] * value;
        shares[0] += of_value * value;
        put(a->deltas + first * p, o * LANES, g[o]);
        put(a->of_values + first * p, o * LANES, of_value);
    }
    for (int i = 0; i < 3; i++) put(a->of_scales + first * 3, i * LANES, of_scale[i]);
}

INLINE void tanh_gradient(const struct reading *a, int64_t first, const vector *of_mix, vector *shares, const int n, const int q) {
    const int64_t p = a->outputs;
    vector of_scale[3] = {{0}, {0}, {0}};
    for (int j = 0; j < n; j++) {
        const float *values = of_row(a, a->values, first, j, p);
        shares[j] = (vector){0};
        for (int64_t o = 0; o < p; o++) {
            const vector g = of_mix[place_of(a, j, o, n, q)];
            put(of_row(a, a->deltas, first, j, p), o * LANES, g);
            if (!a->weight) continue;
            const vector value = at(values, o * LANES), t = hyperbolic_tangent(value);
            const vector of_value = (o < p - 1 ? a->scale : a->scale2)[0] * g * (1.0f - t * t);
            of_scale[o == p - 1] += g * t;
            shares[j] += of_value * (value - a->shifts[o]);
            put(of_row(a, a->of_values, first, j, p), o * LANES, of_value);
        }
    }
    for (int i = 0; i < 3; i++) put(a->of_scales + first * 3, i * LANES, of_scale[i]);
}

/* adds what the values give to the gradient of h at stream s of up to 4 tokens of a group, from its t-th */
INLINE void add_gradients(const struct reading *a, int64_t first, int64_t t, int64_t s, const float *shares, const int rows, const int n) {
    const int64_t features = a->features, p = a->outputs, per_token = rows_per_token(a), row = per_token == 1 ? 0 : s;
    const float *g = of_row(a, a->of_values, first, row, p) + t, *found = of_row(a, a->row_statistics, first, row, 2) + t;
    const float *share = shares + row * LANES + t;
    for (int64_t c = 0; c < features; c += CHUNK) {
        vector y[4][2] = {{{0}}};
        const float *w = a->packed + (per_token == 1 ? s * features + c : c) * p;
        for (int64_t o = 0; o < p; o++) {
            const vector one = at(w, o * CHUNK), other = at(w, o * CHUNK + LANES);
            for (int r = 0; r < rows; r++) {
                y[r][0] += g[o * LANES + r] * one;
                y[r][1] += g[o * LANES + r] * other;
            }
        }
        for (int r = 0; r < rows; r++) {
            const float *h = a->h + (first + t + r) * a->token + s * a->stream;
            float *to = a->gradient + ((first + t + r) * n + s) * features;
            for (int i = 0; i < 2; i++) {
                const int64_t place = c + i * LANES;
                put(to, place, at(to, place) + found[LANES + r] * y[r][i] - share[r] * (at(h, place) - found[r]));
            }
        }
    }
}

INLINE void read_gradient_blocks(const struct reading *a, int64_t first, int64_t last, const int n, const int q) {
    const int64_t inputs = q * a->features, width = a->width;
    float *room = vectors(a, width + 4 * inputs / LANES);
    vector *lines = aligned(room);
    float *rows = (float *)(lines + 4 * a->iterations * n), *of_s = rows + LANES * width;
    memset(rows, 0, LANES * width * sizeof *rows);
    for (int64_t token = first; token < last; token += LANES) {
        const int64_t count = last - token < LANES ? last - token : LANES;
        float *of_norm = a->of_norm + (a->norm ? token / LANES * 2 * inputs : 0);
        for (int64_t t = 0; t < count; t += 4) {
            const int some = count - t < 4 ? (int)(count - t) : 4;
            if (a->norm == NO_NORM) memcpy(of_s, a->of_x + (token + t) * inputs, some * inputs * sizeof *of_s);
            else if (some == 4) norm_gradient(a, token, t, 4, of_s, of_norm, n, q);
            else norm_gradient(a, token, t, some, of_s, of_norm, n, q);
            for (int r = 0; r < some; r++) input_gradient(a, token + t + r, of_s + r * inputs, rows + (t + r) * width, n, q);
        }
        vector of_mix[MOST_WEIGHTS], shares[8];
        side_by_side(rows, width, count, of_mix);
        if (a->of_mix) {
            vector given[MOST_WEIGHTS];
            side_by_side(a->of_mix + token * width, width, count, given);
            for (int64_t o = 0; o < width; o++) of_mix[o] += given[o];
        }
        if (a->form == MANIFOLD) manifold_gradient(a, token, of_mix, lines, shares, n);
        else tanh_gradient(a, token, of_mix, shares, n, q);
        if (!a->weight) continue;
        for (int64_t row = 0; row < rows_per_token(a); row++) {
            const vector root = at(of_row(a, a->row_statistics, token, row, 2), LANES);
            shares[row] *= root * root / (float)(row_segments(a) * a->features);
        }
        for (int64_t s = 0; s < n; s++)
            for (int64_t t = 0; t < count; t += 4) {
                if (count - t >= 4) add_gradients(a, token, t, s, (const float *)shares, 4, n);
                else
                    for (int64_t r = t; r < count; r++) add_gradients(a, token, r, s, (const float *)shares, 1, n);
            }
    }
    free(room);
}

/* adds Σ_rows g_o·h of `outs` outputs to CHUNK columns, from c on, of the weight's gradient */
INLINE void add_columns(const float *const *h, const float *const *g, const float *roots, int rows, int64_t c, int64_t o, float *to, const int outs) {
    vector total[8][2];
    for (int i = 0; i < outs; i++)
        for (int half = 0; half < 2; half++) total[i][half] = at(to, (o + i) * CHUNK + half * LANES);
    for (int r = 0; r < rows; r++) {
        const vector one = roots[r] * at(h[r], c), other = roots[r] * at(h[r], c + LANES);
        for (int i = 0; i < outs; i++) {
            total[i][0] += g[r][(o + i) * LANES] * one;
            total[i][1] += g[r][(o + i) * LANES] * other;
        }
    }
    for (int i = 0; i < outs; i++)
        for (int half = 0; half < 2; half++) put(to, (o + i) * CHUNK + half * LANES, total[i][half]);
}

/* Sums over all tokens for some chunks of columns, which start at 0. A few tokens at a time stay in the cache. */
static void read_streams_columns(const struct reading *a, int64_t first, int64_t last) {
    const int64_t chunks = a->features / CHUNK, p = a->outputs, per_token = rows_per_token(a), at_once = ROWS_AT_ONCE / per_token;
    for (int64_t start = 0; start < a->tokens; start += at_once) {
        const float *h[ROWS_AT_ONCE], *g[ROWS_AT_ONCE];
        float roots[ROWS_AT_ONCE];
        int rows = 0;
        for (int64_t token = start; token < a->tokens && token < start + at_once; token++)
            for (int64_t row = 0; row < per_token; row++, rows++) {
                const int64_t lane = token % LANES;
                h[rows] = a->h + token * a->token + row * a->stream;
                fetch(h[rows] + at_once * a->token + first * CHUNK, (last - first) * CHUNK);
                g[rows] = of_row(a, a->of_values, token - lane, row, p) + lane;
                roots[rows] = of_row(a, a->row_statistics, token - lane, row, 2)[LANES + lane];
            }
        for (int64_t chunk = first; chunk < last; chunk++) {
            const int64_t s = chunk / chunks, c = chunk % chunks * CHUNK, place = s * a->stream + c;
            float *to = a->of_packed + chunk * CHUNK * p;
            int64_t o = 0;
            for (; LANES == 16 && o + 8 <= p; o += 8) add_columns(h, g, roots, rows, place, o, to, 8);
            for (; o + 4 <= p; o += 4) add_columns(h, g, roots, rows, place, o, to, 4);
            for (; o + 2 <= p; o += 2) add_columns(h, g, roots, rows, place, o, to, 2);
            if (o < p) add_columns(h, g, roots, rows, place, o, to, 1);
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
        vector total[8] = {{0}};
        for (int64_t c = 0; c < features; c += LANES) {
            vector y = {0};
            for (int k = 0; k < n; k++) {
                const vector of_output = at(g + k * a->gradient_stream, c);
                total[k] += at(f + (q > 1 ? k * features : 0), c) * of_output;
                if (q > 1) put(of_f + k * features, c, beta[k] * of_output);
                else y += beta[k] * of_output;
            }
            if (q == 1) put(of_f, c, y);
        }
        memset(of_mix, 0, a->width * sizeof *of_mix);
        for (int k = 0; k < n; k += 4) {
            const four found = sums(total[k], total[k + 1], total[k + 2], total[k + 3]);
            memcpy(of_mix + a->width - n + k, &found, (n - k < 4 ? n - k : 4) * sizeof *of_mix);
        }
    }
}

/* 4 and 2 streams, and 4 parts, which are usual, have kernels of their own */
#define OF_STREAMS(kernel)                                                          \
    do {                                                                            \
        if (a->streams == 4 && a->parts == 1) kernel(a, first, last, 4, 1);         \
        else if (a->streams == 2 && a->parts == 1) kernel(a, first, last, 2, 1);    \
        else if (a->streams == 4 && a->parts == 4) kernel(a, first, last, 4, 4);    \
        else kernel(a, first, last, (int)a->streams, (int)a->parts);                \
    } while (0)

static void read_streams(const struct reading *a, int64_t first, int64_t last) { OF_STREAMS(read_blocks); }
static void read_streams_gradient(const struct reading *a, int64_t first, int64_t last) { OF_STREAMS(read_gradient_blocks); }
static void write_streams(const struct writing *a, int64_t first, int64_t last) { OF_STREAMS(write_tokens); }
static void write_streams_gradient(const struct writing *a, int64_t first, int64_t last) { OF_STREAMS(write_gradient_tokens); }
