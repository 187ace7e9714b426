/* Attention of one position of each beam over the slots that it sees. */

INLINE float dot(const float *a, const void *b, int64_t index, int64_t count, int type) {
    vector total = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) total += load(a, i, FLOAT32) * load(b, index + i, type);
    float y = sum(total);
    for (; i < count; i++) y += a[i] * get(b, index + i, type);
    return y;
}

#define CHAINS (LANES == 16 ? 4 : 2) /* of sums that don't wait for each other, as many as stay in registers */

/* `vectors` of the output, a constant where this is inlined, from its place on: the sum of the values by their scores */
INLINE void weigh_values(const struct attention *a, const float *scores, const int32_t *slots, int64_t count, int64_t base,
                         int64_t output, float share, const int vectors, const int type) {
    const int64_t row = a->heads * a->features;
    vector y[CHAINS][4] = {{{0}}};
    int64_t i = 0;
    for (; i + CHAINS <= count; i += CHAINS)
        for (int chain = 0; chain < CHAINS; chain++)
            for (int each = 0; each < vectors; each++)
                y[chain][each] += scores[i + chain] * load(a->value, base + slots[i + chain] * row + each * LANES, type);
    for (; i < count; i++)
        for (int each = 0; each < vectors; each++) y[0][each] += scores[i] * load(a->value, base + slots[i] * row + each * LANES, type);
    for (int each = 0; each < vectors; each++) {
        vector total = y[0][each] + y[1][each];
        for (int chain = 2; chain < CHAINS; chain++) total += y[chain][each];
        store(a->output, output + each * LANES, total * share, type);
    }
}

/* `features` is a constant where this is inlined, but in the general case */
INLINE void attend_head(const struct attention *a, const float *query, const int32_t *slots, int64_t count, float *scores,
                        int64_t base, int64_t output, float *weights, int64_t features, const int type) {
    const int64_t row = a->heads * a->features;
    int64_t t = 0;
    if (features % LANES == 0) {
        for (; t + 4 <= count; t += 4) {
            vector total[4] = {{0}, {0}, {0}, {0}};
            for (int64_t i = 0; i < features; i += LANES) {
                const vector q = load(query, i, FLOAT32);
                for (int each = 0; each < 4; each++) total[each] += q * load(a->key, base + slots[t + each] * row + i, type);
            }
            const four four_scores = sums(total[0], total[1], total[2], total[3]);
            memcpy(scores + t, &four_scores, sizeof four_scores);
        }
    }
    for (; t < count; t++) scores[t] = dot(query, a->key, base + slots[t] * row, features, type);
    for (; t % LANES; t++) scores[t] = -INFINITY;

    vector most = load(scores, 0, FLOAT32), total = {0};
    for (int64_t i = LANES; i < t; i += LANES) most = larger(most, load(scores, i, FLOAT32));
    const vector shift = all(largest(most));
    for (int64_t i = 0; i < t; i += LANES) {
        const vector e = exponential(load(scores, i, FLOAT32) - shift);
        store(scores, i, e, FLOAT32);
        total += e;
    }
    const float share = count ? 1 / sum(total) : 0; /* nothing to see: zeros, as PyTorch gives */
    if (weights)
        for (int64_t i = 0; i < count; i++) weights[slots[i]] += scores[i] * share / a->heads;

    int64_t feature = 0;
    for (; feature + 4 * LANES <= features; feature += 4 * LANES) /* sums that don't wait for each other */
        weigh_values(a, scores, slots, count, base + feature, output + feature, share, 4, type);
    for (; feature + 2 * LANES <= features; feature += 2 * LANES)
        weigh_values(a, scores, slots, count, base + feature, output + feature, share, 2, type);
    for (; feature < features; feature++) {
        float y = 0;
        for (int64_t i = 0; i < count; i++) y += scores[i] * get(a->value, base + slots[i] * row + feature, type);
        set(a->output, output + feature, y * share, type);
    }
}

INLINE void attend_typed(const struct attention *a, int64_t sentence, float *query, const int type) {
    const struct seen *seen = a->seen;
    const int64_t row = a->heads * a->features, bytes = type == FLOAT32 ? 4 : 2;
    const int64_t place = seen->place[sentence], count = seen->counts ? seen->counts[sentence] : seen->count;
    const int64_t base = place * a->slots_per_place * row, first_row = sentence * seen->beams;
    const int32_t *slots = seen->slots + sentence * seen->slots_sentence;
    float *scores = query + row;
    const float scale = 1 / sqrtf((float)a->features);
    for (int64_t beam = 0; a->new_key && beam < seen->beams; beam++) {
        const int64_t from = (first_row + beam) * row * bytes;
        const int64_t to = (base + slots[beam * seen->slots_beam + count - 1] * row) * bytes;
        memcpy((char *)a->key + to, (const char *)a->new_key + from, row * bytes);
        memcpy((char *)a->value + to, (const char *)a->new_value + from, row * bytes);
    }
    for (int64_t beam = 0; beam < seen->beams; beam++) {
        const int64_t number = first_row + beam;
        const int32_t *own = slots + beam * seen->slots_beam;
        float *weights = a->weights ? a->weights + number * a->weights_beam : NULL;
        for (int64_t i = 0; i < row; i++) query[i] = get(a->query, number * row + i, type) * scale;
        if (weights) memset(weights, 0, a->weights_beam * sizeof *weights);
        for (int64_t head = 0; head < a->heads; head++) {
            const int64_t first = head * a->features;
            if (a->features == 32) attend_head(a, query + first, own, count, scores, base + first, number * row + first, weights, 32, type);
            else if (a->features == 64) attend_head(a, query + first, own, count, scores, base + first, number * row + first, weights, 64, type);
            else attend_head(a, query + first, own, count, scores, base + first, number * row + first, weights, a->features, type);
        }
    }
}

static void attend(const struct attention *a, int64_t first, int64_t last) {
    const struct seen *seen = a->seen;
    int64_t most = seen->count;
    for (int64_t sentence = first; seen->counts && sentence < last; sentence++) most = seen->counts[sentence] > most ? seen->counts[sentence] : most;
    float *scratch = numbers(a->heads * a->features + most + LANES);
    for (int64_t sentence = first; sentence < last; sentence++) OF_TYPE(attend_typed, a, sentence, scratch);
    free(scratch);
}
