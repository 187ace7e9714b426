/* What rskip/cpu/library.py compares with its own: the sizes of the structures in kernels.h, and the constants. */
#include "kernels.h"

struct field {
    const char *structure, *name;
    int64_t offset, size;
};

#define SIZE(structure) {#structure, "", 0, sizeof(struct structure)}
#define CONSTANT(name) {"", #name, name, 0}

static const struct field layout[] = {
    CONSTANT(FLOAT32), CONSTANT(BFLOAT16),
    CONSTANT(GOES_ON), CONSTANT(FINISHED), CONSTANT(NOT_NUMBERS), CONSTANT(NO_MEMORY),
    CONSTANT(ATTEND), CONSTANT(RESIDUAL), CONSTANT(MAP), CONSTANT(EMBED), CONSTANT(MAP8),
    CONSTANT(JOIN), CONSTANT(GATE), CONSTANT(IDENTITY), CONSTANT(RELU), CONSTANT(TANH), CONSTANT(SWISH), CONSTANT(GELU), CONSTANT(GELU_TANH),
    CONSTANT(SCALING), CONSTANT(HIGHWAY),
    CONSTANT(SHORTCUT), CONSTANT(ORTHOGONAL), CONSTANT(DELTA),
    CONSTANT(MANIFOLD), CONSTANT(DYNAMIC), CONSTANT(NO_NORM), CONSTANT(LAYER_NORM), CONSTANT(RMS_NORM), CONSTANT(MOST_LANES),
    CONSTANT(Z_AND_ROOTS), CONSTANT(INPUT), CONSTANT(OF_LOGITS), CONSTANT(OF_STREAMS),
    SIZE(seen), SIZE(attention), SIZE(residual), SIZE(linear), SIZE(packing),
    SIZE(embedding), SIZE(cross_entropy), SIZE(log_softmax), SIZE(linear8), SIZE(joining), SIZE(gating), SIZE(search_settings),
    SIZE(hypothesis), SIZE(search_view), SIZE(decoding), SIZE(operation), SIZE(program), SIZE(reading), SIZE(writing), SIZE(attending),
    SIZE(scaling), SIZE(gated),
};

/* The fields; `count` receives their number. */
__attribute__((visibility("default"))) const struct field *rskip_layout(int64_t *count) {
    *count = sizeof layout / sizeof *layout;
    return layout;
}
