/* Prints what the kernels and searches compute from pseudo-random numbers, which are the same on every processor.

   outputs MOST: one line of numbers for each kernel, shape and type, with the instructions up to level MOST. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

int rskip_choose(int most, int forked);
const char *rskip_instructions(void);
void rskip_attend(const struct attention *, int64_t, int64_t);
void rskip_map(const struct linear *, int64_t, int64_t);
void rskip_map8(const struct linear8 *, int64_t, int64_t);
void rskip_residual(const struct residual *, int64_t, int64_t);
void rskip_normalise(const struct vocabulary *, int64_t, int64_t);
void rskip_best(const struct candidates *, int64_t, int64_t);
void rskip_log_softmax(const struct log_softmax *, int64_t, int64_t);
void rskip_pack(const struct packing *);
void rskip_pack8(const struct packing *);
int64_t rskip_packed_bytes(int64_t, int64_t, int64_t);
int64_t rskip_packed_bytes8(int64_t, int64_t);
struct search;
struct search *rskip_search_new(const struct search_settings *);
void rskip_search_free(struct search *);
int rskip_search_step(struct search *, void *, int64_t, const float *, int64_t);
void rskip_search_view(const struct search *, struct search_view *);
int64_t rskip_search_found(const struct search *, int64_t);
void rskip_search_hypothesis(const struct search *, int64_t, int64_t, struct hypothesis *);

static uint32_t state;

/* `count` numbers between -1 and 1 */
static void *numbers(int64_t count, int type) {
    float *floats = malloc((count + 1) * sizeof *floats);
    uint16_t *halves = (uint16_t *)floats;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) / (1 << 23) - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (type == FLOAT32) floats[i] = x;
        else halves[i] = (uint16_t)(bits >> 16);
    }
    return floats;
}

static void print(const char *kernel, const void *values, int64_t count, int type) {
    printf("%s", kernel);
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = type == FLOAT32 ? ((const uint32_t *)values)[i] : (uint32_t)((const uint16_t *)values)[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        printf(" %.9g", x);
    }
    printf("\n");
}

static void attention(int64_t beams, int64_t heads, int64_t features, int64_t slots, int type) {
    const int64_t row = heads * features, sentences = 2;
    int32_t *seen = malloc(sentences * beams * slots * sizeof *seen), place[] = {1, 0};
    for (int64_t i = 0; i < sentences * beams * slots; i++) seen[i] = (int32_t)((i * 7 + i / slots) % slots);
    const struct seen all = {.place = place, .slots = seen, .slots_sentence = beams * slots, .slots_beam = slots,
                             .beams = beams, .count = slots};
    struct attention a = {
        .seen = &all, .query = numbers(sentences * beams * row, type), .key = numbers(2 * slots * row, type),
        .value = numbers(2 * slots * row, type), .output = numbers(sentences * beams * row, type),
        .weights = numbers(sentences * beams * slots, FLOAT32), .slots_per_place = slots, .weights_beam = slots,
        .heads = heads, .features = features, .type = type};
    memset(a.weights, 0, sentences * beams * slots * sizeof(float));
    rskip_attend(&a, sentences, 1);
    print("attend", a.output, sentences * beams * row, type);
    print("attend's-weights", a.weights, sentences * beams * slots, FLOAT32);
}

static void rows(int64_t rows, int64_t in, int64_t out, int type) {
    struct packing packing = {.weight = numbers(out * in, type), .packed = malloc(rskip_packed_bytes(in, out, type)),
                              .inputs = in, .outputs = out, .type = type};
    rskip_pack(&packing);
    struct linear map = {.x = numbers(rows * in, type), .weight = packing.packed, .bias = numbers(out, type),
                         .output = numbers(rows * out, type), .inputs = in, .outputs = out, .type = type};
    rskip_map(&map, rows, 1);
    print("map", map.output, rows * out, type);
    const void *norms[] = {numbers(in, type), numbers(in, type)};
    struct residual residual = {.x = map.x, .f = numbers(rows * in, type), .output = numbers(rows * in, type),
                                .weights = norms, .biases = norms, .features = in, .norms = 2, .parts = 1,
                                .scale = 1, .branch_scale = 1, .epsilon = 1e-5, .type = type};
    rskip_residual(&residual, rows, 1);
    print("residual", residual.output, rows * in, type);
}

/* Products of 8 bits, of level 1 and more. Their weights have at most 6 bits, which every processor's products allow. */
static void eight_bits(int64_t rows, int64_t in, int64_t out) {
    const int64_t padded = (out + 31) / 32 * 32;
    const float *drawn = numbers(out * in, FLOAT32);
    int8_t *weight = malloc(out * in);
    int32_t *offsets = calloc(padded, sizeof *offsets);
    for (int64_t i = 0; i < out * in; i++) {
        weight[i] = (int8_t)(drawn[i] * 63);
        offsets[i / in] += 128 * weight[i];
    }
    struct packing packing = {.weight = weight, .packed = malloc(rskip_packed_bytes8(in, out)), .inputs = in, .outputs = out};
    rskip_pack8(&packing);
    float *x = numbers(rows * in, FLOAT32);
    for (int64_t i = 0; i < rows * in; i++) x[i] = x[i] < -0.3f ? -1 : x[i] < 0.3f ? 0 : 1; /* exact with rows of 7 and 8 bits */
    struct linear8 map = {.x = x, .weight = packing.packed, .scales = numbers(padded, FLOAT32),
                          .bias = numbers(padded, FLOAT32), .offsets = offsets, .output = numbers(rows * out, FLOAT32),
                          .inputs = in, .outputs = out};
    rskip_map8(&map, rows, 1);
    print("map8", map.output, rows * out, FLOAT32);
    const int64_t blocks = (out + BLOCK - 1) / BLOCK;
    float *maxima = numbers(rows * blocks, FLOAT32), *normalisers = numbers(rows, FLOAT32);
    float *scanned_maxima = numbers(rows * blocks, FLOAT32), *scanned = numbers(rows, FLOAT32);
    const struct vocabulary vocabulary = {.logits = map.output, .maxima = maxima, .normalisers = normalisers, .words = out};
    rskip_normalise(&vocabulary, rows, 1);
    const struct scanning scanning = {scanned_maxima, scanned};
    map.scanning = &scanning;
    rskip_map8(&map, rows, 1);
    if (memcmp(maxima, scanned_maxima, rows * blocks * sizeof *maxima) || memcmp(normalisers, scanned, rows * sizeof *scanned)) {
        fprintf(stderr, "a map that scans its logits finds others\n");
        exit(1);
    }
    print("scanned", scanned, rows, FLOAT32);
}

static void words(int64_t beams, int64_t count, int64_t width, int type) {
    const int64_t rows = 2 * beams, blocks = (width + BLOCK - 1) / BLOCK;
    void *logits = numbers(rows * width, type);
    float *maxima = numbers(rows * blocks, FLOAT32), *normalisers = numbers(rows, FLOAT32);
    struct vocabulary vocabulary = {.logits = logits, .maxima = maxima, .normalisers = normalisers, .words = width, .type = type};
    rskip_normalise(&vocabulary, rows, 1);
    print("normalise", normalisers, rows, FLOAT32);
    int64_t *found = calloc(4 * count, sizeof *found);
    struct candidates best = {.logits = logits, .maxima = maxima, .offsets = normalisers, .scores = numbers(2 * count, FLOAT32),
                              .beams = found, .tokens = found + 2 * count, .count = count, .width = beams, .words = width, .type = type};
    rskip_best(&best, 2, 1);
    print("best", best.scores, 2 * count, FLOAT32);
    printf("best's-tokens");
    for (int64_t i = 0; i < 4 * count; i++) printf(" %lld", (long long)found[i]);
    printf("\n");
    struct log_softmax softmax = {.logits = logits, .log_probabilities = numbers(rows * width, FLOAT32), .words = width, .type = type};
    rskip_log_softmax(&softmax, rows, 1);
    print("log-softmax", softmax.log_probabilities, rows * width, FLOAT32);
}

/* A whole search with random logits, of two sentences that end after different numbers of steps. */
static void search(struct search_settings settings, int type) {
    int64_t limits[] = {12, 7}, prefixes[] = {9, settings.padding, 8, 7};
    settings.limits = limits;
    settings.prefixes = prefixes;
    settings.sentences = settings.prefix = 2;
    struct search *search = rskip_search_new(&settings);
    int status = GOES_ON;
    while (status == GOES_ON) {
        struct search_view view;
        rskip_search_view(search, &view);
        float *logits = numbers(view.count * view.width * settings.words, type), *attention = numbers(view.count * view.width * settings.source, FLOAT32);
        for (int64_t i = 0; type == FLOAT32 && i < view.count * view.width * settings.words; i++) logits[i] *= 5;
        status = rskip_search_step(search, logits, type, attention, 2);
    }
    for (int64_t sentence = 0; sentence < 2; sentence++)
        for (int64_t number = 0; number < rskip_search_found(search, sentence); number++) {
            int64_t tokens[20];
            float scores[20];
            struct hypothesis found = {.tokens = tokens, .token_scores = scores};
            rskip_search_hypothesis(search, sentence, number, &found);
            printf("search %d %.9g", status, found.score);
            for (int64_t i = 0; i < found.length; i++) printf(" %lld %.9g", (long long)tokens[i], scores[i]);
            printf("\n");
        }
    rskip_search_free(search);
}

static void searches(int type) {
    struct search_settings settings = {.beams = 4, .words = 150, .start = 2, .end = 2, .padding = 1, .unknown = 3, .min_length = 2,
                                       .ngram = 3, .source = 5, .length_penalty = 0.6, .unknown_penalty = 0.5, .temperature = 1.3,
                                       .top_p = 1, .seed = 7};
    search(settings, type);
    settings.sampling = 1;
    search(settings, type);
    settings.top_k = 20;
    search(settings, type);
    settings.top_p = 0.7;
    settings.gnmt = 1;
    search(settings, type);
}

int main(int count, char **arguments) {
    const int level = rskip_choose(count > 1 ? atoi(arguments[1]) : 0, 0);
    fprintf(stderr, "%s\n", rskip_instructions());
    for (int type = FLOAT32; type <= BFLOAT16; type++) {
        attention(3, 2, 16, 9, type);
        attention(1, 4, 10, 1, type);
        rows(5, 32, 70, type);
        rows(13, 19, 7, type);
        words(4, 8, 300, type);
        words(1, 2, 63, type);
        searches(type);
    }
    if (level) {
        eight_bits(5, 32, 70);
        eight_bits(13, 19, 7);
        eight_bits(6, 40, 1000);
    }
}
