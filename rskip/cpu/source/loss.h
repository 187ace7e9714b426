/* Log-softmax and the cross-entropy of rows of logits, with their gradients. */

/* log Σ exp(x_i); NaN where a number is one, or the largest is infinite */
INLINE float log_sum(const void *logits, int64_t start, int64_t count, const int type) {
    float tail[LANES];
    const int64_t whole = count / LANES * LANES;
    for (int64_t i = whole; i < whole + LANES; i++) tail[i - whole] = i < count ? get(logits, start + i, type) : -INFINITY;
    const vector last = load(tail, 0, FLOAT32);
    vector most = last, total;
    for (int64_t i = 0; i < whole; i += LANES) most = larger(most, load(logits, start + i, type));
    const float maximum = largest(most);
    total = exponential(last - maximum);
    for (int64_t i = 0; i < whole; i += LANES) total += exponential(load(logits, start + i, type) - maximum);
    return logf(sum(total)) + maximum;
}

INLINE float exponential_of(float x) { return exponential(all(x))[0]; }

INLINE void cross_entropy_typed(const struct cross_entropy *a, int64_t row, const int type) {
    const int64_t words = a->words, start = row * words, label = start + a->labels[row];
    const float normaliser = log_sum(a->logits, start, words, type), of_label = get(a->logits, label, type) - normaliser;
    a->normalisers[row] = normaliser;
    a->nll[row] = -of_label;
    if (!a->with_gradient) return;
    int64_t i = 0;
    for (; i + LANES <= words; i += LANES)
        store(a->logits, start + i, exponential(load(a->logits, start + i, type) - normaliser), type);
    for (; i < words; i++) set(a->logits, start + i, exponential_of(get(a->logits, start + i, type) - normaliser), type);
    set(a->logits, label, exponential_of(of_label) - (float)a->confidence, type);
}

static void cross_entropy(const struct cross_entropy *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(cross_entropy_typed, a, row);
}

INLINE void log_softmax_typed(const struct log_softmax *a, int64_t row, const int type) {
    const int64_t words = a->words, start = row * words;
    const float normaliser = log_sum(a->logits, start, words, type);
    int64_t i = 0;
    for (; i + LANES <= words; i += LANES)
        store(a->log_probabilities, start + i, load(a->logits, start + i, type) - normaliser, FLOAT32);
    for (; i < words; i++) a->log_probabilities[start + i] = get(a->logits, start + i, type) - normaliser;
}

static void log_softmax(const struct log_softmax *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(log_softmax_typed, a, row);
}

/* g - softmax·Σg */
INLINE void log_softmax_gradient_typed(const struct log_softmax *a, int64_t row, const int type) {
    const int64_t words = a->words, start = row * words;
    vector sums_of = {0};
    int64_t i = 0;
    for (; i + LANES <= words; i += LANES) sums_of += load(a->gradient, start + i, FLOAT32);
    float total = sum(sums_of);
    for (; i < words; i++) total += a->gradient[start + i];
    for (i = 0; i + LANES <= words; i += LANES)
        store(a->logits, start + i,
              load(a->gradient, start + i, FLOAT32) - exponential(load(a->log_probabilities, start + i, FLOAT32)) * total, type);
    for (; i < words; i++)
        set(a->logits, start + i, a->gradient[start + i] - exponential_of(a->log_probabilities[start + i]) * total, type);
}

static void log_softmax_gradient(const struct log_softmax *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(log_softmax_gradient_typed, a, row);
}
