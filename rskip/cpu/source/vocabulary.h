/* The search over the vocabulary: what exp(logits) sums to, and the best continuations of a sentence's beams. */

/* A row's sum of exp(logit - maximum) so far: the maximum, then LANES parts of the sum. */
#define RUNNING (1 + LANES)

INLINE void start_sum(float *running) {
    running[0] = -INFINITY;
    for (int lane = 0; lane < LANES; lane++) running[1 + lane] = 0;
}

/* Adds `count` logits, which begin with a block, and writes the maximum of each block. */
INLINE void add_logits(const void *logits, int64_t start, int64_t count, float *maxima, float *running, const int type) {
    float maximum = running[0];
    vector total = load(running, 1, FLOAT32);
    for (int64_t first = 0; first < count; first += BLOCK) {
        vector parts[BLOCK / LANES];
        if (first + BLOCK <= count) {
            for (int part = 0; part < BLOCK / LANES; part++) parts[part] = load(logits, start + first + part * LANES, type);
        } else {
            float tail[BLOCK];
            for (int64_t word = first; word < first + BLOCK; word++)
                tail[word - first] = word < count ? get(logits, start + word, type) : -INFINITY;
            memcpy(parts, tail, sizeof parts);
        }
        vector most = parts[0];
        for (int part = 1; part < BLOCK / LANES; part++) most = larger(most, parts[part]);
        const float highest = largest(most);
        maxima[first / BLOCK] = highest;
        if (highest > maximum) {
            total = total * exponential(all(maximum == -INFINITY ? -INFINITY : maximum - highest));
            maximum = highest;
        }
        const vector shift = all(maximum == -INFINITY ? 0 : maximum);
        for (int part = 0; part < BLOCK / LANES; part++) total += summand(parts[part] - shift);
    }
    running[0] = maximum;
    store(running, 1, total, FLOAT32);
}

/* log Σ exp */
INLINE float normaliser(const float *running) {
    return running[0] == -INFINITY ? -INFINITY : logf(sum(load(running, 1, FLOAT32))) + running[0];
}

INLINE void normalise_typed(const struct vocabulary *a, int64_t row, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK;
    float running[RUNNING];
    start_sum(running);
    add_logits(a->logits, row * a->words, a->words, a->maxima + row * blocks, running, type);
    a->normalisers[row] = normaliser(running);
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

/* Puts the best of the sentence's logits into `scores`, but for those of blocks whose maximum is below `bound`. Among equal
   scores the first beam's and the first token's are the best. Candidates that are not there score -inf; all score NaN where
   an offset is NaN or infinite. */
INLINE void scan_typed(const struct candidates *a, int64_t sentence, float bound, const int type) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK, count = a->count;
    const float *maxima = a->maxima + sentence * a->width * blocks, *offsets = a->offsets + sentence * a->width;
    float *scores = a->scores + sentence * count;
    int64_t *beams = a->beams + sentence * count, *tokens = a->tokens + sentence * count;
    int known = 1;
    for (int64_t place = 0; place < count; place++) {
        scores[place] = -INFINITY;
        beams[place] = tokens[place] = 0;
    }
    for (int64_t beam = 0; beam < a->width; beam++) {
        const int64_t row = (sentence * a->width + beam) * a->words;
        known &= offsets[beam] < INFINITY;
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
    for (int64_t place = 0; !known && place < count; place++) scores[place] = NAN;
}

static void scan(const struct candidates *a, int64_t sentence, float bound) { OF_TYPE(scan_typed, a, sentence, bound); }

/* The `count` best maxima of the sentence's blocks bound its `count` best scores from below, where no logit has become
   smaller. It leaves the scores to `scan`. */
static float bound(const struct candidates *a, int64_t sentence) {
    const int64_t blocks = (a->words + BLOCK - 1) / BLOCK, count = a->count;
    const float *maxima = a->maxima + sentence * a->width * blocks, *offsets = a->offsets + sentence * a->width;
    float *scores = a->scores + sentence * count;
    for (int64_t place = 0; place < count; place++) scores[place] = -INFINITY;
    for (int64_t beam = 0; beam < a->width; beam++)
        for (int64_t block = 0; block < blocks; block++) insert(scores, count, maxima[beam * blocks + block] + offsets[beam]);
    return scores[count - 1];
}

static void best(const struct candidates *a, int64_t first, int64_t last) {
    for (int64_t sentence = first; sentence < last; sentence++) {
        const float *worst = a->scores + (sentence + 1) * a->count - 1, least = bound(a, sentence);
        scan(a, sentence, least);
        if (*worst < least) scan(a, sentence, *worst);
    }
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
