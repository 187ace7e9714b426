/* The search over the vocabulary: what exp(logits) sums to, and the best continuations of a sentence's beams. */

INLINE void normalise_typed(const struct vocabulary *a, int64_t row, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK;
    const int64_t start = row * a->words;
    float *maxima = a->maxima + row * blocks;
    float maximum = -INFINITY, rest = 0;
    vector total = {0};
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * BLOCK;
        vector logits[BLOCK / LANES];
        if (first + BLOCK <= a->words) {
            for (int part = 0; part < BLOCK / LANES; part++) logits[part] = load(a->logits, start + first + part * LANES, type);
        } else {
            float tail[BLOCK];
            for (int64_t word = first; word < first + BLOCK; word++)
                tail[word - first] = word < a->words ? get(a->logits, start + word, type) : -INFINITY;
            memcpy(logits, tail, sizeof logits);
        }
        vector most = logits[0];
        for (int part = 1; part < BLOCK / LANES; part++) most = larger(most, logits[part]);
        maxima[block] = largest(most);
        if (maxima[block] > maximum) {
            total = total * exponential(all(maximum == -INFINITY ? -INFINITY : maximum - maxima[block]));
            maximum = maxima[block];
        }
        const vector shift = all(maximum == -INFINITY ? 0 : maximum);
        for (int part = 0; part < BLOCK / LANES; part++) total += exponential(logits[part] - shift);
    }
    rest = sum(total);
    a->normalisers[row] = logf(rest) + (maximum == -INFINITY ? 0 : maximum);
}

static void normalise(const struct vocabulary *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(normalise_typed, a, row);
}

/* Puts x into `best`, which is sorted, the largest first, where it is larger than the last; gives its place or -1. */
INLINE int64_t insert(float *best, int64_t count, float x) {
    if (!(x > best[count - 1])) return -1;
    int64_t place = count - 1;
    for (; place > 0 && x > best[place - 1]; place--) best[place] = best[place - 1];
    best[place] = x;
    return place;
}

/* Puts the best of the sentence's logits into `scores`, but for those of blocks whose maximum is below `bound`. */
INLINE void scan(const struct candidates *a, int64_t sentence, float bound, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK, count = a->count;
    const float *maxima = a->maxima + sentence * a->width * blocks, *offsets = a->offsets + sentence * a->width;
    float *scores = a->scores + sentence * count;
    int64_t *beams = a->beams + sentence * count, *tokens = a->tokens + sentence * count;
    for (int64_t place = 0; place < count; place++) {
        scores[place] = -INFINITY;
        beams[place] = tokens[place] = 0;
    }
    for (int64_t beam = 0; beam < a->width; beam++) {
        const int64_t row = (sentence * a->width + beam) * a->words;
        for (int64_t block = 0; block < blocks; block++) {
            if (!(maxima[beam * blocks + block] + offsets[beam] >= bound)) continue;
            const int64_t end = (block + 1) * BLOCK < a->words ? (block + 1) * BLOCK : a->words;
            for (int64_t word = block * BLOCK; word < end; word++) {
                const int64_t place = insert(scores, count, get(a->logits, row + word, type) + offsets[beam]);
                if (place < 0) continue;
                memmove(beams + place + 1, beams + place, (count - 1 - place) * sizeof *beams);
                memmove(tokens + place + 1, tokens + place, (count - 1 - place) * sizeof *tokens);
                beams[place] = beam;
                tokens[place] = word;
            }
        }
    }
}

/* Among equal scores the first beam's and the first token's are the best. Candidates that are not there score -inf; all
   score NaN where an offset is no number. */
INLINE void best_typed(const struct candidates *a, int64_t sentence, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK, count = a->count;
    const float *maxima = a->maxima + sentence * a->width * blocks, *offsets = a->offsets + sentence * a->width;
    float *scores = a->scores + sentence * count;

    int known = 1;
    for (int64_t place = 0; place < count; place++) scores[place] = -INFINITY;
    for (int64_t beam = 0; beam < a->width; beam++) {
        known &= offsets[beam] < INFINITY;
        for (int64_t block = 0; block < blocks; block++) insert(scores, count, maxima[beam * blocks + block] + offsets[beam]);
    }
    /* where no logit has become smaller, the count best maxima bound the count best scores from below */
    const float bound = scores[count - 1];
    scan(a, sentence, bound, type);
    if (scores[count - 1] < bound) scan(a, sentence, scores[count - 1], type);
    for (int64_t place = 0; !known && place < count; place++) scores[place] = NAN;
}

static void best(const struct candidates *a, int64_t first, int64_t last) {
    for (int64_t sentence = first; sentence < last; sentence++) OF_TYPE(best_typed, a, sentence);
}

/* The largest logit of a row, and of each block the sum of exp(logit - largest). */
INLINE void weigh_typed(const struct weighing *a, int64_t row, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK, start = row * a->words;
    vector most = all(-INFINITY);
    float best = -INFINITY;
    int64_t word = 0;
    for (; word + LANES <= a->words; word += LANES) most = larger(load(a->logits, start + word, type), most);
    best = largest(most);
    for (; word < a->words; word++) {
        const float logit = get(a->logits, start + word, type);
        if (logit > best) best = logit;
    }
    a->best[row] = best;
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t end = (block + 1) * BLOCK < a->words ? (block + 1) * BLOCK : a->words;
        vector total = {0};
        for (word = block * BLOCK; word < end; word += LANES) {
            vector logits;
            if (word + LANES <= end) logits = load(a->logits, start + word, type);
            else {
                float tail[LANES];
                for (int64_t i = 0; i < LANES; i++) tail[i] = word + i < end ? get(a->logits, start + word + i, type) : -INFINITY;
                memcpy(&logits, tail, sizeof logits);
            }
            total += exponential(logits - best);
        }
        a->sums[row * blocks + block] = sum(total);
    }
}

static void weigh(const struct weighing *a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) OF_TYPE(weigh_typed, a, row);
}
