/* Arguments of the kernels; rskip/cpu/structures.py reads them from this file. Sizes and strides count elements. */
#ifndef RSKIP_KERNELS_H
#define RSKIP_KERNELS_H

#include <stdint.h>

enum { FLOAT32 = 0, BFLOAT16 = 1 };
enum { IDENTITY = 0, RELU = 1, TANH = 2, SWISH = 3, GELU = 4, GELU_TANH = 5 }; /* activations */

/* The slots of keys and values that the beams of each sentence see. K beams. */
struct seen {
    const int32_t *place;          /* (B) where in key and value each sentence lies */
    const int32_t *slots;          /* `slots_sentence` and `slots_beam` apart */
    const int32_t *counts;         /* (B) how many each beam of a sentence sees, or null: `count` each */
    int64_t slots_sentence, slots_beam;
    int64_t beams, count;
};

/* Attention of one position of each beam over the slots that it sees. H heads of D features, C = H·D. */
struct attention {
    const struct seen *seen;
    const void *query;             /* (B, K, C) */
    void *key, *value;             /* each (places, slots, C) */
    const void *new_key;           /* (B, K, C) or null: written to each beam's last slot */
    const void *new_value;
    void *output;                  /* (B, K, C) */
    float *weights;                /* (B, K, `weights_beam`), mean of the heads, at the positions of the slots; or null */
    int64_t slots_per_place, weights_beam;
    int64_t heads, features;
    int64_t type;
};

/* y_0 = branch_scale·f, y_k = norm(scale·x + y_(k-1)) for k = 1..norms, y the last one or Σ shares_k·y_k; without norms
   y = scale·x + y_0; f may be null. A row consists of `parts`, such as heads, with C features each. */
struct residual {
    const void *x, *f;             /* (rows, parts, C) */
    void *output;                  /* (rows, parts, C) */
    const float *scales, *branch_scales; /* (C) further factors of x and f; or null */
    const float *shares;           /* (norms) or null */
    const void *const *weights;    /* of each normalisation (C) */
    const void *const *biases;     /* of each normalisation (C), or null: division by the root mean square */
    int64_t features, norms, parts;
    double scale, branch_scale, epsilon;
    int64_t type;
};

/* y = act(xWᵀ + b), its weight as `pack` lays it. */
struct linear {
    const void *x;                 /* (rows, in) */
    const uint8_t *weight;         /* packed */
    const void *bias;              /* (out) or null */
    void *output;                  /* (rows, out) */
    int64_t inputs, outputs;
    int64_t activation;
    int64_t type;
};

/* A linear map's weight, of numbers or of 8 bits, for the processor's products. */
struct packing {
    const void *weight;            /* (out, in) */
    uint8_t *packed;               /* `packed_bytes` of room */
    int64_t inputs, outputs;
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

/* Weights of tokens that are drawn. */
struct weighing {
    const void *logits;            /* (N, V) */
    float *sums;                   /* (N, blocks) of exp(logit - best) */
    float *best;                   /* (N) the largest logit */
    int64_t words;
    int64_t type;
};

/* Tokens to the first layer's input: scale·embedding + position's. */
struct embedding {
    const int64_t *tokens;         /* (rows) */
    const void *table;             /* (V, C), or the packed weight of a linear map in float32 */
    const int64_t *places;         /* (rows), each one's row of `positions` */
    const void *positions;         /* (P, C) or null */
    void *output;                  /* (rows, C) */
    int64_t features, packed;
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

/* What an 8-bit map to the vocabulary finds of each row's logits, which it then does not write. */
struct scanning {
    float *maxima;                 /* (rows, blocks of BLOCK logits) */
    float *normalisers;            /* (rows) log Σ exp */
};

/* y = act(xWᵀ + b) by 8-bit products. Each 8-bit row has a scale; the weight is laid out as `pack8` writes it. */
struct linear8 {
    const float *x;                /* (rows, in) */
    const uint8_t *weight;         /* packed */
    const float *scales, *bias;    /* (out), of room for the next multiple of 32; bias may be null */
    const int32_t *offsets;        /* likewise, 128 times the sum of each row of the weight */
    float *output;                 /* (rows, out) */
    const struct scanning *scanning; /* or null */
    int64_t inputs, outputs;
    int64_t activation;
    int64_t type;                  /* float32 */
};

/* Rows that were converted to 8 bits, for several maps of them. Zeros at first; `scales` is freed at the end. */
struct rows8 {
    const float *of;               /* the x of which these are the rows `first` to `last`, or null */
    int64_t inputs, first, last;
    int64_t room;                  /* bytes */
    float *scales;                 /* of each row */
    uint8_t *x;                    /* (rows, in), each row with zeros up to a multiple of 4 */
};

/* y = (x, f), each row of one behind that of the other. */
struct joining {
    const void *x, *f;             /* (rows, C) */
    void *output;                  /* (rows, 2C) */
    int64_t features;
    int64_t type;
};

/* y = αx + βf + γn, of gates before their σ. SCALING: α, β, and γ, which is (1-α)(1-β) where it is null; n may be null.
   HIGHWAY: β = σ(alpha), α = 1-β. SHORTCUT: α = 1-σ(alpha), β = 1.
   ORTHOGONAL: α = 1 - x·f/(x·x + 1e-6), β = 1. DELTA: α = 1, β = 2σ(alpha)(4σ(beta) - x·f/‖f‖)/‖f‖. */
enum { SCALING = 0, HIGHWAY = 1, SHORTCUT = 2, ORTHOGONAL = 3, DELTA = 4 };
struct gating {
    const void *x, *f, *n;         /* (rows, C) */
    const void *alpha, *beta, *gamma; /* (rows, width) */
    void *output;                  /* (rows, C), may be x or f */
    int64_t features, width;       /* C; 1 or C */
    int64_t form;
    int64_t type;
};

/* READING of a token's n streams h of C features: its values are its rows times a weight, after a norm of the rows; they give
   the weights α (n, q), R (n, n) and β (n), `mix`, and the branch's input is norm(Σ_j α_jk·h_j).
   MANIFOLD: the row is all streams; α = σ(u) + alpha_epsilon, β = magnitude·σ(v) + beta_epsilon, R of w by
   Sinkhorn or as a mixture of matrices, for (u, v, w) = a·value + b.
   DYNAMIC: each stream is a row; α_j, R_j and β_j are their first values + a·tanh(value). */
enum { MANIFOLD = 0, DYNAMIC = 1 };
enum { NO_NORM = 0, LAYER_NORM = 1, RMS_NORM = 2 };
enum { MOST_LANES = 16 }; /* tokens in a group at most */
struct reading {
    const float *h;                /* (N, n, C), tokens and streams `token` and `stream` apart */
    const float *weight, *weight2; /* MANIFOLD: (p, nC) and null; DYNAMIC: (C, p - 1) and (C, 1), or null: only first values */
    const float *row_gain, *row_shift; /* DYNAMIC: (C), of the rows' norm; the shift may be null */
    const float *scale, *scale2;   /* a: MANIFOLD: (3) or (2), and null; DYNAMIC: (1), of the weight and of weight2 */
    const float *bias;             /* MANIFOLD: (p); p = n: there are no weights but α */
    const float *matrices;         /* MANIFOLD: (p - 2n, n, n) that R mixes, or null: Sinkhorn */
    const float *alpha, *residual, *beta; /* DYNAMIC: the first values; rows `alpha_row` and `residual_row` apart */
    const float *gain, *shift;     /* (qC) of the branch's norm; the shift may be null */
    const float *previous;         /* MANIFOLD: (N, n) that reads in the place of α, which the next block takes; or null */
    float *x;                      /* (N, q, C) */
    float *mix;                    /* (N, width) α, R unless it is the identity, β */
    /* of tokens in groups of up to MOST_LANES, each number of a group's tokens side by side; the last group is complete */
    float *values;                 /* (groups, rows, p, tokens) */
    float *row_statistics;         /* (groups, rows, 2, tokens) mean and reciprocal deviation */
    float *statistics;             /* (groups, 2, tokens) likewise of the branch's input */
    /* gradients: given of x, of β in the place of mix, and of what `writing` puts out (or null, both); found of the rest */
    const float *of_x, *of_mix, *of_output;
    float *gradient;               /* (N, n, C) */
    float *of_weight, *of_weight2, *of_row_gain, *of_row_shift, *of_scale, *of_scale2, *of_bias;
    float *of_alpha, *of_residual, *of_beta, *of_gain, *of_shift, *of_previous;
    /* of streams.c: the weight with the rows' norm, (p, row), also in CHUNKs of columns, and what is added; in groups of tokens */
    float *folded, *packed, *of_packed, *shifts, *deltas, *of_values, *of_scales;
    float *of_norm;                /* (groups of tokens, 2, qC) what the gradients of gain and shift are the sums of */
    int64_t tokens, token, stream, alpha_row, residual_row, of_output_token, of_output_stream;
    int64_t features, streams, parts, outputs, width, form, row_norm, norm, iterations;
    double row_epsilon, epsilon, alpha_epsilon, beta_epsilon, magnitude, sinkhorn_epsilon;
};

/* h_k ← Σ_j R_jk·h_j + β_k·f; its gradients of β and f only, the others are found with those of `reading`. */
struct writing {
    const float *h, *mix, *f;      /* as in `reading`; f (N, q, C) */
    float *output;                 /* (N, n, C) */
    const float *gradient;         /* of the output, tokens and streams apart as given */
    float *of_mix, *of_f;
    int64_t token, stream, gradient_token, gradient_stream, features, streams, parts, width, identity;
};

/* Attention over depth: x = norm(Σ_i p_i·v_i), p = softmax_i(key_gain∘query · v_i/RMS(v_i)), of `count` tensors v_i. */
struct attending {
    const float *const *values;    /* each (N, C) */
    const float *query, *key_gain; /* (C) */
    const float *gain, *shift;     /* (C) of the branch's norm; the shift may be null */
    float *x;                      /* (N, C) */
    /* p, its logits and 1/RMS (count), and mean and reciprocal deviation of the branch's input (2), in groups as above */
    float *weights, *scores, *roots, *statistics;
    /* gradients: given of x and of each v_i (or null), found of the rest */
    const float *of_x;
    const float *const *of_values;
    float *gradients;              /* (count, N, C) */
    float *of_query, *of_key_gain, *of_gain, *of_shift;
    float *folded, *partial;       /* of depth.c */
    int64_t tokens, count, features, norm, tokens_per_block;
    double key_epsilon, epsilon;
};

/* Self-adaptive scaling: y = αx + βf + (1-α)(1-β)·norm(x + f), where α and β are σ(tanh(hidden + bias)·v + c). PyTorch
   computes `hidden`, which is a product. */
struct scaling {
    const float *x, *f;            /* (N, C) */
    float *hidden;                 /* (N, 2, C), becomes its tanh */
    const float *bias, *v, *c;     /* (2, C), (2, C) and (2) */
    const float *gain, *shift;     /* (C) of the norm; the shift may be null */
    float *y;                      /* (N, C) */
    float *statistics;             /* (N, 4) mean and reciprocal deviation of x + f, α, β */
    const float *of_y;
    float *of_x, *of_f, *of_hidden; /* without what the product gives to x and f */
    float *of_parameters;          /* in the order above */
    float *partial;                /* of scaling.c */
    int64_t features, norm, tokens, tokens_per_block;
    double epsilon;
};

/* GatedResidual: z_k = gain_k∘RMS(h_k), x = mean_k σ(logits_k)∘z_k and β = 2σ(logits) of n streams h. PyTorch computes the
   products between the steps. Z_AND_ROOTS finds these; INPUT x and `mix`; OF_LOGITS z again and `of_gates`; OF_STREAMS, from
   what the products give to z, h's gradient in its place, and `of_gain`. */
enum { Z_AND_ROOTS = 0, INPUT = 1, OF_LOGITS = 2, OF_STREAMS = 3 };
struct gated {
    const float *h;                /* (N, n, C), tokens and streams `token` and `stream` apart */
    const float *gain;             /* (n, C) */
    float *roots;                  /* (N, n) 1/RMS */
    float *z, *gates;              /* (N, n, C); gates are logits first */
    float *x;                      /* (N, C) */
    const float *hidden;           /* (N, rank + n), of which the last n are β's logits; null: there is no β */
    float *mix;                    /* (N, 2n), β after zeros */
    const float *of_x, *of_output; /* given, of x and of what `writing` puts out (or null) */
    float *of_gates;               /* (N, n, C) of their logits */
    float *of_gain;                /* (n, C) */
    float *partial;                /* of gated.c */
    int64_t step, tokens, token, stream, of_output_token, of_output_stream, features, streams, rank, tokens_per_block;
    double epsilon;
};

/* Kernels that are run one after the other, on each sentence or on the rows of its K beams. */
enum { ATTEND = 0, RESIDUAL = 1, MAP = 2, EMBED = 3, MAP8 = 4, JOIN = 5, GATE = 6 };
struct operation {
    const void *arguments;
    int64_t kernel;
};
struct program {
    const struct operation *operations;
    int64_t count, beams;
};

/* A beam search. B sentences, K beams, V words, P tokens of a prefix, S source positions. */
struct search_settings {
    const int64_t *limits;         /* (B) tokens before the end of each sentence */
    const int64_t *prefixes;       /* (B, P) forced first tokens, padded at the end; or null */
    int64_t sentences, beams, words, prefix;
    int64_t start, end, padding, unknown;
    int64_t min_length, ngram;     /* no sequence of `ngram` tokens twice; 0: any */
    int64_t gnmt;                  /* the length penalty: ((5 + n) / 6)^length_penalty, or n^length_penalty */
    int64_t source;                /* S, whose attention is kept; 0: none */
    int64_t sampling;              /* whether tokens are drawn instead of searched for */
    int64_t top_k, seed;           /* draws are from the `top_k` most probable tokens; 0: from all */
    double length_penalty, unknown_penalty, temperature;
    double top_p;                  /* draws are from the fewest tokens whose probabilities reach it */
};

/* A finished hypothesis. Where a pointer is not null, it receives the values. */
struct hypothesis {
    int64_t *tokens;               /* (length) with the end */
    float *token_scores;           /* (length) */
    float *attention;              /* (length, S) */
    int64_t length;
    double score;
};

/* The beams that a search goes on with: B' rows of K' beams. */
struct search_view {
    const int64_t *tokens;         /* (B', K') the last of each beam */
    const int64_t *parents;        /* (B', K') the beam of the step before that each continues */
    const int64_t *rows;           /* (B') the row of the step before that each is, or null: all stayed */
    int64_t count, width, length;  /* B', K', and tokens of each beam */
};

/* A decoder whose whole step is one program, for a search. The program has room for B·K rows. */
struct decoding {
    struct program *program;       /* its last operation is the map to the vocabulary */
    struct embedding *embedding;
    int64_t *places;               /* (rows) that `embedding` reads */
    struct seen *target, *memory;
    struct attention *const *targets, *const *memories; /* of each layer */
    void *const *keys, *const *values; /* of each layer, of the memory (B, S, C) */
    const int32_t *source_slots;   /* (B, S) */
    const int32_t *source_counts;  /* (B) */
    int64_t layers, features, source;
    int64_t first_place;           /* the place before that of the first token */
    int64_t known;                 /* tokens whose places the table of positions has */
    int64_t rows_to_share;         /* fewest rows that are worth several threads */
    int64_t type;                  /* of the rows and the logits */
};

/* What a search answers after a step. */
enum { GOES_ON = 0, FINISHED = 1, NOT_NUMBERS = 2, NO_MEMORY = 3 };

/* One processor's kernels. Each computes what lies from `first` to before `last`: sentences, rows, or panels of weights. */
struct kernels {
    void (*attend)(const struct attention *, int64_t first, int64_t last);
    void (*residual)(const struct residual *, int64_t first, int64_t last);
    void (*map)(const struct linear *, int64_t first, int64_t last);
    void (*embed)(const struct embedding *, int64_t first, int64_t last);
    void (*join)(const struct joining *, int64_t first, int64_t last);
    void (*gate)(const struct gating *, int64_t first, int64_t last);
    void (*normalise)(const struct vocabulary *, int64_t first, int64_t last);
    void (*best)(const struct candidates *, int64_t first, int64_t last);
    float (*bound)(const struct candidates *, int64_t sentence);
    void (*scan)(const struct candidates *, int64_t sentence, float bound);
    void (*weigh)(const struct weighing *, int64_t first, int64_t last);
    void (*cross_entropy)(const struct cross_entropy *, int64_t first, int64_t last);
    void (*log_softmax)(const struct log_softmax *, int64_t first, int64_t last);
    void (*log_softmax_gradient)(const struct log_softmax *, int64_t first, int64_t last);
    void (*pack)(const struct packing *);
    int64_t (*packed_bytes)(int64_t in, int64_t out, int64_t type);
    void (*map8)(const struct linear8 *, int64_t first, int64_t last, struct rows8 *kept);
    void (*map8_block)(const struct linear8 *, int64_t row, int64_t block);
    void (*pack8)(const struct packing *);
    int64_t (*packed_bytes8)(int64_t in, int64_t out);
    void (*read_streams)(const struct reading *, int64_t first, int64_t last);
    void (*read_streams_gradient)(const struct reading *, int64_t first, int64_t last);
    void (*read_streams_columns)(const struct reading *, int64_t first, int64_t last);
    void (*write_streams)(const struct writing *, int64_t first, int64_t last);
    void (*write_streams_gradient)(const struct writing *, int64_t first, int64_t last);
    void (*attend_depth)(const struct attending *, int64_t first, int64_t last);
    void (*attend_depth_gradient)(const struct attending *, int64_t first, int64_t last);
    void (*scale)(const struct scaling *, int64_t first, int64_t last);
    void (*scale_gradient)(const struct scaling *, int64_t first, int64_t last);
    void (*gate_streams)(const struct gated *, int64_t first, int64_t last);
    int64_t chunk;          /* numbers that these kernels take at once */
    int64_t largest_weight; /* of 8 bits, that products with 8-bit rows are exact of; 0 without such products */
    int64_t largest_row;    /* the largest number that a row is converted to */
};

extern const struct kernels rskip_plain, rskip_neon_dot, rskip_avx2, rskip_avx512, rskip_avx512bf16;

#endif
