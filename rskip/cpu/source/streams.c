/* Connections with several streams: what is done once for all tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define OF_READING(a) for_features(((const struct reading *)(a))->features)
#define OF_WRITING(a) for_features(((const struct writing *)(a))->features)

/* tokens are read in groups, whose numbers lie side by side */
static int64_t lanes_of(const struct reading *a) { return OF_READING(a)->chunk / 2; }
static int64_t groups(const struct reading *a) { return (a->tokens + lanes_of(a) - 1) / lanes_of(a); }

static void read_share(const void *a, int64_t first, int64_t last) { OF_READING(a)->read_streams(a, first, last); }
static void gradient_share(const void *a, int64_t first, int64_t last) { OF_READING(a)->read_streams_gradient(a, first, last); }
static void columns_share(const void *a, int64_t first, int64_t last) { OF_READING(a)->read_streams_columns(a, first, last); }
static void write_share(const void *a, int64_t first, int64_t last) { OF_WRITING(a)->write_streams(a, first, last); }
static void write_gradient_share(const void *a, int64_t first, int64_t last) { OF_WRITING(a)->write_streams_gradient(a, first, last); }

static float *zeros(int64_t count) {
    float *found = calloc(count + 1, sizeof *found);
    if (!found) abort();
    return found;
}

static float *room(int64_t count) {
    float *found = malloc((count + 1) * sizeof *found);
    if (!found) abort();
    return found;
}

static int64_t row_length(const struct reading *a) { return a->features * (a->form == MANIFOLD ? a->streams : 1); }
static int64_t values_per_token(const struct reading *a) { return a->outputs * (a->form == MANIFOLD ? 1 : a->streams); }

/* w_oc, or where the gradient of it goes */
static float *entry(const float *weight, const float *weight2, int64_t p, int64_t o, int64_t c) {
    return (float *)(o < p - 1 ? weight + c * (p - 1) + o : weight2 + c);
}

/* The norm's gain joins the weight, its shift becomes `shifts`; a centred weight makes the rows' mean vanish. */
static void fold(struct reading *a) {
    const int64_t p = a->outputs, row = row_length(a);
    a->shifts = zeros(p);
    if (a->form == MANIFOLD) {
        a->folded = (float *)a->weight;
        return;
    }
    if (!a->weight) return;
    a->folded = zeros(p * row);
    for (int64_t o = 0; o < p; o++) {
        double mean = 0;
        for (int64_t c = 0; c < row; c++) {
            const float w = *entry(a->weight, a->weight2, p, o, c);
            mean += a->folded[o * row + c] = a->row_gain[c] * w;
            if (a->row_shift) a->shifts[o] += a->row_shift[c] * w;
        }
        if (a->row_norm == LAYER_NORM)
            for (int64_t c = 0; c < row; c++) a->folded[o * row + c] -= (float)(mean / row);
    }
}

static void release(struct reading *a) {
    if (a->form != MANIFOLD) free(a->folded);
    free(a->shifts);
}

EXPORT void rskip_read_streams(const struct reading *given, int64_t count, int64_t threads) {
    struct reading copied = *given, *a = &copied; /* Python's bytes must not change */
    fold(a);
    in_groups(read_share, a, a->tokens, lanes_of(a), threads);
    release(a);
}

/* the sums over all tokens of `count` numbers of each */
static double *totals(const struct reading *a, const float *x, int64_t count) {
    const int64_t lanes = lanes_of(a);
    double *total = (double *)zeros(2 * count * lanes);
    for (int64_t first = 0; first < a->tokens; first += lanes)
        for (int64_t i = 0; i < count; i++)
            for (int64_t lane = 0; lane < lanes && first + lane < a->tokens; lane++) total[i * lanes + lane] += x[first * count + i * lanes + lane];
    for (int64_t i = 0; i < count; i++) {
        double of_lanes = 0;
        for (int64_t lane = 0; lane < lanes; lane++) of_lanes += total[i * lanes + lane];
        total[i] = of_lanes;
    }
    return total;
}

/* The gradients of the weight, and of the rows' norm, from that of the folded weight, of which a chunk of columns follows the other. */
static void unfold(const struct reading *a) {
    const int64_t p = a->outputs, row = row_length(a), chunk = OF_READING(a)->chunk, values = values_per_token(a);
    float *of_folded = a->form == MANIFOLD ? a->of_weight : a->packed;
    for (int64_t c = 0; c < row; c += chunk)
        for (int64_t o = 0; o < p; o++) memcpy(of_folded + o * row + c, a->of_packed + c * p + o * chunk, chunk * sizeof(float));
    if (a->form == MANIFOLD) return;
    double *of_values = totals(a, a->of_values, values), *of_shifts = (double *)zeros(2 * p);
    memset(a->of_row_gain, 0, row * sizeof(float));
    if (a->of_row_shift) memset(a->of_row_shift, 0, row * sizeof(float));
    for (int64_t i = 0; i < values; i++) of_shifts[i % p] += of_values[i];
    for (int64_t o = 0; o < p; o++) {
        double mean = 0;
        if (a->row_norm == LAYER_NORM)
            for (int64_t c = 0; c < row; c++) mean += of_folded[o * row + c] / row;
        for (int64_t c = 0; c < row; c++) {
            const float found = of_folded[o * row + c] - (float)mean, w = *entry(a->weight, a->weight2, p, o, c);
            *entry(a->of_weight, a->of_weight2, p, o, c) = a->row_gain[c] * found + (a->row_shift ? a->row_shift[c] * (float)of_shifts[o] : 0);
            a->of_row_gain[c] += w * found;
            if (a->of_row_shift) a->of_row_shift[c] += w * (float)of_shifts[o];
        }
    }
    free(of_values), free(of_shifts);
}

/* The gradients of what is added to the values, and of their factors: sums over the tokens. */
static void sum_tokens(const struct reading *a) {
    const int64_t p = a->outputs, n = a->streams, q = a->parts, values = values_per_token(a);
    double *total = totals(a, a->deltas, values), *of_scales = totals(a, a->of_scales, 3);
    for (int64_t i = 0; i < values; i++) {
        const int64_t j = i / p, o = i % p;
        if (a->form == MANIFOLD) a->of_bias[i] = (float)total[i];
        else if (o < q) a->of_alpha[j * a->alpha_row + o] = (float)total[i];
        else if (o < q + n) a->of_residual[j * a->residual_row + o - q] = (float)total[i];
        else a->of_beta[j] = (float)total[i];
    }
    if (a->weight) a->of_scale[0] = (float)of_scales[0];
    if (a->of_scale2) a->of_scale2[0] = (float)of_scales[1];
    if (a->form == MANIFOLD)
        for (int64_t i = 1; i < 3 && p > i * n; i++) a->of_scale[i] = (float)of_scales[i];
    free(total), free(of_scales);
}

EXPORT void rskip_read_streams_gradient(const struct reading *given, int64_t count, int64_t threads) {
    struct reading copied = *given, *a = &copied;
    const int64_t p = a->outputs, row = a->weight ? row_length(a) : 0, chunk = OF_READING(a)->chunk, values = values_per_token(a);
    fold(a);
    a->packed = room(p * row);
    for (int64_t c = 0; c < row; c += chunk)
        for (int64_t o = 0; o < p; o++) memcpy(a->packed + c * p + o * chunk, a->folded + o * row + c, chunk * sizeof(float));
    a->of_packed = zeros(p * row);
    const int64_t inputs = a->parts * a->features, rooms = groups(a) * lanes_of(a), normed = a->norm ? groups(a) : 0;
    a->deltas = room(rooms * values);
    a->of_values = room(rooms * values);
    a->of_scales = room(rooms * 3);
    a->of_norm = zeros(normed * 2 * inputs);
    in_groups(gradient_share, a, a->tokens, lanes_of(a), threads);
    in_threads(columns_share, a, row / chunk, threads);
    for (int64_t group = 1; group < normed; group++)
        for (int64_t c = 0; c < 2 * inputs; c++) a->of_norm[c] += a->of_norm[group * 2 * inputs + c];
    if (a->norm) memcpy(a->of_gain, a->of_norm, inputs * sizeof(float));
    if (a->of_shift) memcpy(a->of_shift, a->of_norm + inputs, inputs * sizeof(float));
    if (a->weight) unfold(a);
    sum_tokens(a);
    free(a->packed), free(a->of_packed), free(a->deltas), free(a->of_values), free(a->of_scales), free(a->of_norm);
    release(a);
}

EXPORT void rskip_write_streams(const struct writing *a, int64_t count, int64_t threads) { in_threads(write_share, a, count, threads); }
EXPORT void rskip_write_streams_gradient(const struct writing *a, int64_t count, int64_t threads) {
    in_threads(write_gradient_share, a, count, threads);
}
