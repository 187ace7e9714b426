/* Every kernel on memory of the exact size, so that the address sanitizer sees a step beside it. */
#include <errno.h>
#undef pthread_create /* the macro is only for library.c: see create_or_refuse */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

int rskip_choose(int most, int forked);
const char *rskip_instructions(void);
void rskip_attend(const struct attention *, int64_t, int64_t);
void rskip_residual(const struct residual *, int64_t, int64_t);
void rskip_map(const struct linear *, int64_t, int64_t);
void rskip_normalise(const struct vocabulary *, int64_t, int64_t);
void rskip_best(const struct candidates *, int64_t, int64_t);
void rskip_cross_entropy(const struct cross_entropy *, int64_t, int64_t);
void rskip_log_softmax(const struct log_softmax *, int64_t, int64_t);
void rskip_log_softmax_gradient(const struct log_softmax *, int64_t, int64_t);
void rskip_run(const struct program *, int64_t, int64_t);
void rskip_pack(const struct packing *);
int64_t rskip_packed_bytes(int64_t, int64_t, int64_t);
void rskip_map8(const struct linear8 *, int64_t, int64_t);
void rskip_pack8(const struct packing *);
int64_t rskip_packed_bytes8(int64_t, int64_t);
int64_t rskip_largest_weight(void);
void rskip_scale(const struct scaling *, int64_t, int64_t);
void rskip_scale_gradient(const struct scaling *, int64_t, int64_t);
int64_t rskip_chunk(void);
int rskip_open_slots(int32_t *, int64_t, int64_t, int64_t, int64_t, int64_t, uint8_t *);
void rskip_reorder_slots(const int32_t *, int32_t *, const int64_t *, const int64_t *, int64_t, int64_t, int64_t, int64_t, int64_t);

static void *pieces[64];
static int count;

/* zeros, which are numbers of both types, freed by `done` */
static void *room(int64_t numbers, int64_t size) {
    return pieces[count++] = calloc(numbers ? numbers : 1, size);
}

static void done(void) {
    while (count) free(pieces[--count]);
}

static void attention(int64_t beams, int64_t heads, int64_t features, int64_t slots, int type) {
    const int64_t size = type == FLOAT32 ? 4 : 2, row = heads * features, sentences = 2;
    int32_t *seen = room(sentences * beams * slots, 4), *counts = room(sentences, 4), *place = room(sentences, 4);
    for (int64_t i = 0; i < sentences * beams * slots; i++) seen[i] = (int32_t)(i % slots);
    counts[0] = (int32_t)slots, counts[1] = 1, place[0] = 1;
    const struct seen all = {.place = place, .slots = seen, .counts = counts, .slots_sentence = beams * slots,
                             .slots_beam = slots, .beams = beams};
    struct attention a = {
        .seen = &all, .query = room(sentences * beams * row, size), .key = room(2 * slots * row, size), .value = room(2 * slots * row, size),
        .new_key = room(sentences * beams * row, size), .new_value = room(sentences * beams * row, size),
        .output = room(sentences * beams * row, size), .weights = room(sentences * beams * slots, 4),
        .slots_per_place = slots, .weights_beam = slots, .heads = heads, .features = features, .type = type};
    rskip_attend(&a, sentences, 1);
    done();
}

static void rows(int64_t rows, int64_t in, int64_t out, int type) {
    const int64_t size = type == FLOAT32 ? 4 : 2;
    struct packing packing = {.weight = room(out * in, size), .packed = room(rskip_packed_bytes(in, out, type), 1),
                              .inputs = in, .outputs = out, .type = type};
    rskip_pack(&packing);
    struct linear map = {.x = room(rows * in, size), .weight = packing.packed, .bias = room(out, size),
                         .output = room(rows * out, size), .inputs = in, .outputs = out, .activation = RELU, .type = type};
    const void *norms[] = {room(in, size), room(in, size)};
    struct residual residual = {.x = map.x, .f = room(rows * in, size), .output = room(rows * in, size), .weights = norms,
                                .biases = norms, .features = in, .norms = 2, .parts = 1, .scale = 1, .branch_scale = 1,
                                .scales = room(in, 4), .branch_scales = room(in, 4), .shares = room(2, 4), .epsilon = 1e-5, .type = type};
    int64_t *tokens = room(rows, 8);
    struct embedding embedding = {.tokens = tokens, .table = room(in, size), .places = tokens,
                                  .positions = room(in, size), .output = room(rows * in, size), .features = in, .scale = 2, .type = type};
    struct joining joining = {.x = map.x, .f = residual.f, .output = room(rows * 2 * in, size), .features = in, .type = type};
    struct gating wide = {.x = map.x, .f = residual.f, .n = residual.x, .alpha = map.x, .beta = map.x, .output = residual.output,
                          .features = in, .width = in, .form = SCALING, .type = type};
    struct gating narrow = {.x = map.x, .f = residual.f, .alpha = room(rows, size), .output = residual.output, .features = in,
                            .width = 1, .form = HIGHWAY, .type = type};
    struct gating orthogonal = narrow, delta = narrow;
    orthogonal.form = ORTHOGONAL;
    delta.form = DELTA;
    delta.beta = narrow.alpha;
    struct embedding packed = embedding;
    packed.packed = type == FLOAT32;
    if (packed.packed) packed.table = packing.packed;
    const struct operation operations[] = {{&map, MAP}, {&residual, RESIDUAL}, {&embedding, EMBED}, {&joining, JOIN},
                                           {&wide, GATE}, {&narrow, GATE}, {&orthogonal, GATE}, {&delta, GATE},
                                           {&packed, EMBED}};
    const struct program program = {operations, sizeof operations / sizeof *operations, rows};
    rskip_run(&program, 1, 1);
    if (type == FLOAT32 && rskip_largest_weight()) {
        const int64_t padded = (out + 31) / 32 * 32;
        packing.packed = room(rskip_packed_bytes8(in, out), 1);
        rskip_pack8(&packing);
        struct linear8 map8 = {.x = map.x, .weight = packing.packed, .scales = room(padded, 4), .bias = room(padded, 4),
                               .offsets = room(padded, 4), .output = map.output, .inputs = in, .outputs = out};
        rskip_map8(&map8, rows, 1);
        const struct scanning scanning = {room(rows * ((out + BLOCK - 1) / BLOCK), 4), room(rows, 4)};
        map8.scanning = &scanning;
        rskip_map8(&map8, rows, 1);
    }
    done();
}

static void vocabulary(int64_t beams, int64_t words, int type) {
    const int64_t size = type == FLOAT32 ? 4 : 2, blocks = (words + BLOCK - 1) / BLOCK, wanted = 2 * beams;
    struct vocabulary v = {.logits = room(beams * words, size), .maxima = room(beams * blocks, 4),
                           .normalisers = room(beams, 4), .words = words, .type = type};
    rskip_normalise(&v, beams, 1);
    struct candidates c = {.logits = v.logits, .maxima = v.maxima, .offsets = room(beams, 4), .scores = room(wanted, 4),
                           .beams = room(wanted, 8), .tokens = room(wanted, 8), .count = wanted, .width = beams,
                           .words = words, .type = type};
    rskip_best(&c, 1, 1);
    done();
}

static void loss(int64_t rows, int64_t words, int type) {
    const int64_t size = type == FLOAT32 ? 4 : 2;
    int64_t *labels = room(rows, 8);
    labels[rows - 1] = words - 1;
    struct log_softmax l = {.logits = room(rows * words, size), .log_probabilities = room(rows * words, 4),
                            .gradient = room(rows * words, 4), .words = words, .type = type};
    rskip_log_softmax(&l, rows, 1);
    rskip_log_softmax_gradient(&l, rows, 1);
    struct cross_entropy c = {.logits = l.logits, .labels = labels, .normalisers = room(rows, 4), .nll = room(rows, 4),
                              .words = words, .with_gradient = 1, .confidence = 0.9, .type = type};
    rskip_cross_entropy(&c, rows, 1);
    done();
}

static void scaling(int64_t rows, int64_t features, int64_t threads) {
    const int64_t of_rows = rows * features;
    struct scaling s = {
        .x = room(of_rows, 4), .f = room(of_rows, 4), .hidden = room(2 * of_rows, 4), .bias = room(2 * features, 4), .v = room(2 * features, 4),
        .c = room(2, 4), .gain = room(features, 4), .shift = threads > 1 ? room(features, 4) : NULL, .y = room(of_rows, 4),
        .statistics = room(4 * rows, 4), .of_y = room(of_rows, 4), .of_x = room(of_rows, 4), .of_f = room(of_rows, 4),
        .of_hidden = room(2 * of_rows, 4), .of_parameters = room(6 * features + 2, 4), .features = features,
        .norm = threads > 1 ? LAYER_NORM : RMS_NORM, .tokens = rows, .epsilon = 1e-5};
    rskip_scale(&s, rows, threads);
    rskip_scale_gradient(&s, rows, threads);
    done();
}

/* library.c calls this in place of pthread_create. Every second thread fails to start. */
int create_or_refuse(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *given) {
    static int calls;
    return calls++ % 2 ? EAGAIN : pthread_create(thread, attributes, start, given);
}

/* Whether all rows are computed although some threads fail to start. */
static int threads(int64_t rows, int64_t words, int64_t number) {
    struct log_softmax l = {.logits = room(rows * words, 4), .log_probabilities = room(rows * words, 4), .words = words};
    rskip_log_softmax(&l, rows, number);
    int computed = 1;
    for (int64_t i = 0; i < rows * words; i++) computed &= l.log_probabilities[i] < 0;
    done();
    return computed;
}

int main(void) {
    if (!threads(1000, 4, 8) || !threads(3, 4, 8) || !threads(1000, 4, 1000)) return 3;
    for (int level = 0; level < 4; level++) {
        if (rskip_choose(level, 0) != level) break;
        for (int type = FLOAT32; type <= BFLOAT16; type++) {
            const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130};
            const int number = sizeof sizes / sizeof *sizes;
            for (int i = 0; i < number; i++)
                for (int j = 0; j < number; j++) {
                    attention(2, 3, sizes[i], sizes[j], type);
                    rows(i % 17 + 1, sizes[i], sizes[j], type);
                    vocabulary(i % 5 + 1, sizes[i] * sizes[j], type);
                    loss(i % 3 + 1, sizes[j], type);
                    if (type == FLOAT32 && j < 3) scaling(sizes[i], rskip_chunk() * (j + 1), j + 1);
                }
        }
        puts(rskip_instructions());
    }
    int32_t *slots = room(2 * 3 * 5, 4), *reordered = room(2 * 2 * 5, 4);
    int64_t parents[] = {2, 0, 1, 1}, sentences[] = {1, 0};
    for (int64_t length = 0; length < 5; length++)
        if (!rskip_open_slots(slots, 2, 3, 5, length, 15, room(15, 1))) return 1;
    if (rskip_open_slots(slots, 2, 3, 5, 4, 12, room(12, 1))) return 2; /* 12 are in use */
    rskip_reorder_slots(slots, reordered, sentences, parents, 2, 3, 2, 5, 5);
    done();
    return 0;
}
