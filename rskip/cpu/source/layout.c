/* What rskip/cpu/library.py compares its structures with: the fields and sizes of those in kernels.h, as compiled. */
#include <stddef.h>

#include "kernels.h"

struct field {
    const char *structure, *name;
    int64_t offset, size;
};

#define FIELD(structure, name) {#structure, #name, offsetof(struct structure, name), sizeof((struct structure *)0)->name}
#define SIZE(structure) {#structure, "", 0, sizeof(struct structure)}
#define CONSTANT(name) {"", #name, name, 0}

static const struct field layout[] = {
    CONSTANT(FLOAT32), CONSTANT(BFLOAT16), CONSTANT(BLOCK),
    CONSTANT(GOES_ON), CONSTANT(FINISHED), CONSTANT(NOT_NUMBERS), CONSTANT(NO_MEMORY),
    CONSTANT(ATTEND), CONSTANT(RESIDUAL), CONSTANT(MAP), CONSTANT(EMBED), CONSTANT(MAP8),
    CONSTANT(JOIN), CONSTANT(GATE), CONSTANT(IDENTITY), CONSTANT(RELU), CONSTANT(TANH), CONSTANT(SCALING), CONSTANT(HIGHWAY),
    CONSTANT(SHORTCUT), CONSTANT(ORTHOGONAL), CONSTANT(DELTA),
    SIZE(seen), FIELD(seen, place), FIELD(seen, slots), FIELD(seen, counts), FIELD(seen, slots_sentence),
    FIELD(seen, slots_beam), FIELD(seen, beams), FIELD(seen, count),
    SIZE(attention), FIELD(attention, seen), FIELD(attention, query), FIELD(attention, key), FIELD(attention, value),
    FIELD(attention, new_key), FIELD(attention, new_value), FIELD(attention, output), FIELD(attention, weights),
    FIELD(attention, slots_per_place), FIELD(attention, weights_beam), FIELD(attention, heads), FIELD(attention, features),
    FIELD(attention, type),
    SIZE(residual), FIELD(residual, x), FIELD(residual, f), FIELD(residual, output), FIELD(residual, scales),
    FIELD(residual, branch_scales), FIELD(residual, shares), FIELD(residual, weights), FIELD(residual, biases),
    FIELD(residual, features), FIELD(residual, norms), FIELD(residual, parts), FIELD(residual, scale),
    FIELD(residual, branch_scale), FIELD(residual, epsilon), FIELD(residual, type),
    SIZE(linear), FIELD(linear, x), FIELD(linear, weight), FIELD(linear, bias), FIELD(linear, output),
    FIELD(linear, inputs), FIELD(linear, outputs), FIELD(linear, activation), FIELD(linear, type),
    SIZE(packing), FIELD(packing, weight), FIELD(packing, packed), FIELD(packing, inputs), FIELD(packing, outputs),
    FIELD(packing, type),
    SIZE(vocabulary), FIELD(vocabulary, logits), FIELD(vocabulary, maxima), FIELD(vocabulary, normalisers),
    FIELD(vocabulary, words), FIELD(vocabulary, type),
    SIZE(candidates), FIELD(candidates, logits), FIELD(candidates, maxima), FIELD(candidates, offsets),
    FIELD(candidates, scores), FIELD(candidates, beams), FIELD(candidates, tokens), FIELD(candidates, count),
    FIELD(candidates, width), FIELD(candidates, words), FIELD(candidates, type),
    SIZE(embedding), FIELD(embedding, tokens), FIELD(embedding, table), FIELD(embedding, places),
    FIELD(embedding, positions), FIELD(embedding, output), FIELD(embedding, features), FIELD(embedding, packed),
    FIELD(embedding, scale), FIELD(embedding, type),
    SIZE(cross_entropy), FIELD(cross_entropy, logits), FIELD(cross_entropy, labels), FIELD(cross_entropy, normalisers),
    FIELD(cross_entropy, nll), FIELD(cross_entropy, words), FIELD(cross_entropy, with_gradient),
    FIELD(cross_entropy, confidence), FIELD(cross_entropy, type),
    SIZE(log_softmax), FIELD(log_softmax, logits), FIELD(log_softmax, log_probabilities), FIELD(log_softmax, gradient),
    FIELD(log_softmax, words), FIELD(log_softmax, type),
    SIZE(linear8), FIELD(linear8, x), FIELD(linear8, weight), FIELD(linear8, scales), FIELD(linear8, bias),
    FIELD(linear8, offsets), FIELD(linear8, output), FIELD(linear8, scanning), FIELD(linear8, inputs),
    FIELD(linear8, outputs), FIELD(linear8, activation), FIELD(linear8, type),
    SIZE(joining), FIELD(joining, x), FIELD(joining, f), FIELD(joining, output), FIELD(joining, features), FIELD(joining, type),
    SIZE(gating), FIELD(gating, x), FIELD(gating, f), FIELD(gating, n), FIELD(gating, alpha), FIELD(gating, beta),
    FIELD(gating, gamma), FIELD(gating, output), FIELD(gating, features), FIELD(gating, width), FIELD(gating, form),
    FIELD(gating, type),
    SIZE(search_settings), FIELD(search_settings, limits), FIELD(search_settings, prefixes),
    FIELD(search_settings, sentences), FIELD(search_settings, beams), FIELD(search_settings, words),
    FIELD(search_settings, prefix), FIELD(search_settings, start), FIELD(search_settings, end),
    FIELD(search_settings, padding), FIELD(search_settings, unknown), FIELD(search_settings, min_length),
    FIELD(search_settings, ngram), FIELD(search_settings, gnmt), FIELD(search_settings, source),
    FIELD(search_settings, sampling), FIELD(search_settings, top_k), FIELD(search_settings, seed),
    FIELD(search_settings, length_penalty), FIELD(search_settings, unknown_penalty), FIELD(search_settings, temperature),
    FIELD(search_settings, top_p),
    SIZE(hypothesis), FIELD(hypothesis, tokens), FIELD(hypothesis, token_scores), FIELD(hypothesis, attention),
    FIELD(hypothesis, length), FIELD(hypothesis, score),
    SIZE(search_view), FIELD(search_view, tokens), FIELD(search_view, parents), FIELD(search_view, rows),
    FIELD(search_view, count), FIELD(search_view, width), FIELD(search_view, length),
    SIZE(decoding), FIELD(decoding, program), FIELD(decoding, embedding), FIELD(decoding, places),
    FIELD(decoding, target), FIELD(decoding, memory), FIELD(decoding, targets), FIELD(decoding, memories),
    FIELD(decoding, keys), FIELD(decoding, values), FIELD(decoding, source_slots), FIELD(decoding, source_counts),
    FIELD(decoding, layers), FIELD(decoding, features), FIELD(decoding, source),
    FIELD(decoding, first_place), FIELD(decoding, known), FIELD(decoding, rows_to_share), FIELD(decoding, type),
    SIZE(operation), FIELD(operation, arguments), FIELD(operation, kernel),
    SIZE(program), FIELD(program, operations), FIELD(program, count), FIELD(program, beams),
};

/* The fields; `count` receives their number. */
__attribute__((visibility("default"))) const struct field *rskip_layout(int64_t *count) {
    *count = sizeof layout / sizeof *layout;
    return layout;
}
