/* What the kernels are given; rskip/native/library.py has the same structures. Sizes and strides count elements. */
#ifndef RSKIP_KERNELS_H
#define RSKIP_KERNELS_H

#include <stdint.h>

/* raised whenever an argument of a kernel changes, so that an old library is not called with new arguments */
#define RSKIP_INTERFACE 3

enum { FLOAT32 = 0, BFLOAT16 = 1 };

/* Attention of one position of each beam over the slots that it sees. K beams, H heads of D features, C = H·D. */
struct attention {
    const void *query;             /* (B, K, C), `query_row` between beams */
    void *key, *value;             /* each (places, slots, C) */
    const void *new_key;           /* (B, K, C), `query_row` between beams, or null: written to each beam's last slot */
    const void *new_value;
    void *output;                  /* (B, K, C) */
    float *weights;                /* (B, K, `weights_beam`), mean of the heads, at the positions of the slots; or null */
    const int32_t *place;          /* (B) where in key and value each sentence lies */
    const int32_t *slots;          /* the slots that a beam sees, `slots_sentence` and `slots_beam` apart */
    const int32_t *counts;         /* (B) how many it sees, or null: `count` each */
    int64_t query_row, slots_per_place, slots_sentence, slots_beam, weights_beam;
    int64_t beams, heads, features, count;
    int64_t type;
};

/* y_0 = branch_scale·f, y_k = norm(scale·x + y_(k-1)) for k = 1..norms; without norms scale·x + y_0; f may be null. */
struct residual {
    const void *x, *f;             /* (rows, C) */
    void *output;                  /* (rows, C) */
    const void *const *weights;    /* of each normalisation (C) */
    const void *const *biases;     /* of each normalisation (C), or null: division by the root mean square */
    int64_t features, norms;
    double scale, branch_scale, epsilon;
    int64_t type;
};

/* y = act(xWᵀ + b) for few rows. */
struct linear {
    const void *x, *weight, *bias; /* (rows, in), (out, in), (out) or null */
    void *output;                  /* (rows, out) */
    int64_t rows, in, out;
    int64_t relu;
    int64_t type;
};

/* The search over the vocabulary. N rows of V logits; blocks of BLOCK logits. */
#define BLOCK 64
struct vocabulary {
    const void *logits;            /* (N, V) */
    float *maxima;                 /* (N, blocks) */
    float *normalisers;            /* (N) log Σ exp */
    int64_t words;
    int64_t type;
};

struct candidates {
    const void *logits;            /* (B, K, V) */
    const float *maxima;           /* (B, K, blocks), at least each block's largest */
    const float *offsets;          /* (B, K), added to the logits */
    float *scores;                 /* (B, count), best first */
    int64_t *beams, *tokens;       /* (B, count) */
    int64_t count, width, words;
    int64_t type;
};

/* Tokens to the first layer's input: scale·embedding + position. */
struct embedding {
    const int64_t *tokens;         /* (rows) */
    const void *table;             /* (V, C) */
    const void *position;          /* (C) or null */
    void *output;                  /* (rows, C) */
    int64_t features;
    double scale;
    int64_t type;
};

/* Cross-entropy of N rows of V logits. With a gradient, softmax - confidence at the label replaces the logits. */
struct cross_entropy {
    void *logits;                  /* (N, V) */
    const int64_t *labels;         /* (N) */
    float *normalisers;            /* (N) log Σ exp */
    float *nll;                    /* (N) negative log-likelihood of the label */
    int64_t words, with_gradient;
    double confidence;
    int64_t type;
};

/* Log-softmax of N rows of V logits; its gradient takes `gradient` and puts that of the logits in their place. */
struct log_softmax {
    void *logits;                  /* (N, V) */
    float *log_probabilities;      /* (N, V) */
    const float *gradient;         /* (N, V) */
    int64_t words;
    int64_t type;
};

/* Rows in 8 bits: x is about scale·(output - 128). */
struct quantised {
    const void *x;                 /* (rows, C) */
    uint8_t *output;               /* (rows, C) */
    float *scales;                 /* (rows) */
    int64_t features;
    int64_t type;
};

/* scale·sums + bias, in place. */
struct rescaled {
    float *sums;                   /* (rows, C) */
    const float *scales;           /* (rows) */
    const float *bias;             /* (C) or null */
    int64_t features;
    int64_t type;                  /* float32 */
};

/* One of several kernels that are run one after the other. */
enum { ATTEND = 0, RESIDUAL = 1, MAP = 2, EMBED = 3 };
struct operation {
    const void *arguments;
    int64_t kernel, count;
};

/* One processor's kernels. Each computes what lies from `first` to before `last`: sentences, rows, or features of y. */
struct kernels {
    void (*attend)(const struct attention *, int64_t first, int64_t last);
    void (*residual)(const struct residual *, int64_t first, int64_t last);
    void (*map)(const struct linear *, int64_t first, int64_t last);
    void (*embed)(const struct embedding *, int64_t first, int64_t last);
    void (*normalise)(const struct vocabulary *, int64_t first, int64_t last);
    void (*best)(const struct candidates *, int64_t first, int64_t last);
    void (*cross_entropy)(const struct cross_entropy *, int64_t first, int64_t last);
    void (*log_softmax)(const struct log_softmax *, int64_t first, int64_t last);
    void (*log_softmax_gradient)(const struct log_softmax *, int64_t first, int64_t last);
    void (*quantise)(const struct quantised *, int64_t first, int64_t last);
    void (*rescale)(const struct rescaled *, int64_t first, int64_t last);
};

extern const struct kernels rskip_plain, rskip_avx2, rskip_avx512, rskip_avx512bf16;

#endif
