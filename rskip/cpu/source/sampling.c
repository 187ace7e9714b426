/* Draws tokens from a model's distribution, as rskip/generation/sampling.py. A draw depends only on the seed, the sentence,
   the step and the beam, so neither threads nor sentences that left change it. */
#include <math.h>
#include <stdlib.h>

#include "numbers.h"
#include "search.h"

struct choice {
    float logit;
    int64_t token;
};

/* The next number of splitmix64, from a state mixed with `more`. */
static uint64_t mixed(uint64_t state, uint64_t more) {
    uint64_t x = (state ^ more) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number from 0 to below 1. */
static double drawn(const struct search *s, int64_t row, int64_t place) {
    uint64_t state = mixed(0, (uint64_t)s->settings.seed);
    state = mixed(state, (uint64_t)s->sentences[row]);
    state = mixed(state, (uint64_t)s->length);
    return (double)(mixed(state, (uint64_t)place) >> 11) * 0x1p-53;
}

static int precedes(const struct choice *a, const struct choice *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

/* Lets the choice at `place` of a heap, whose first precedes all, sink to where it belongs. */
static void sink(struct choice *heap, int64_t count, int64_t place) {
    const struct choice each = heap[place];
    for (int64_t next; (next = 2 * place + 1) < count; place = next) {
        if (next + 1 < count && precedes(&heap[next + 1], &heap[next])) next++;
        if (!precedes(&heap[next], &each)) break;
        heap[place] = heap[next];
    }
    heap[place] = each;
}

/* The most probable tokens of a beam, by top_k and top_p, at the end of `room` (V), the best one last. Gives their number. */
static int64_t most_probable(const struct search *s, const void *logits, int type, int64_t number, struct choice *room) {
    const int64_t words = s->settings.words, most = s->settings.top_k ? s->settings.top_k : words;
    int64_t count = 0, kept = 0;
    double reached = 0;
    for (int64_t word = 0; word < words; word++) {
        const float logit = get(logits, number * words + word, type);
        if (logit > -INFINITY) room[count++] = (struct choice){logit, word};
    }
    for (int64_t place = count / 2 - 1; place >= 0; place--) sink(room, count, place);
    const int64_t shift = words - count;
    for (; kept < most && kept < count && reached < s->settings.top_p; kept++) {
        const int64_t last = count - kept - 1;
        const struct choice best = room[0];
        room[0] = room[last];
        sink(room, last, 0);
        room[last + shift] = best;
        reached += exp((double)best.logit - s->normalisers[number]);
    }
    return kept;
}

/* The token at `share` of the weights of a beam's most probable tokens. */
static int64_t token_of_few(const struct choice *few, int64_t count, int64_t words, double share) {
    const struct choice *best = few + words - 1;
    double total = 0;
    for (int64_t place = 0; place < count; place++) total += exp((double)(best[-place].logit - best->logit));
    double left = share * total;
    int64_t place = 0;
    for (; place < count - 1; place++) {
        left -= exp((double)(best[-place].logit - best->logit));
        if (left < 0) break;
    }
    return best[-place].token;
}

/* The token at `share` of the weights exp(logit - best) of all tokens, whose blocks' sums are given. */
static int64_t token_of_all(const struct search *s, const void *logits, int type, int64_t number, double share) {
    const int64_t words = s->settings.words, blocks = (words + BLOCK - 1) / BLOCK;
    const float *sums = s->maxima + number * blocks;
    double left = 0;
    int64_t block = 0, token = 0;
    for (int64_t each = 0; each < blocks; each++) left += sums[each];
    left *= share;
    for (int64_t each = 0; each < blocks; each++) {
        if (!(sums[each] > 0)) continue;
        block = each; /* the last one also where sums were rounded */
        if (left < sums[each]) break;
        left -= sums[each];
    }
    for (int64_t each = block * BLOCK; each < words && each < (block + 1) * BLOCK; each++) {
        const float weight = expf(get(logits, number * words + each, type) - s->offsets[number]);
        if (!(weight > 0)) continue;
        token = each;
        left -= weight;
        if (left < 0) break;
    }
    return token;
}

int search_draw(struct search *s, const void *logits, int type, int64_t row, int64_t forced) {
    const int64_t width = s->width, words = s->settings.words;
    const int is_truncated = s->settings.top_k || s->settings.top_p < 1;
    const float *scores = s->steps[s->length].scores;
    const struct weighing weighing = {.logits = logits, .sums = s->maxima, .best = s->offsets, .words = words, .type = type};
    struct choice *room = is_truncated ? search_room(words, 1, sizeof *room) : NULL;
    if (is_truncated && !room) return 0;
    int64_t weighed = -1, few = 0;
    for (int64_t place = 0; place < s->count; place++) {
        const int64_t beam = place < width ? place : 0, number = row * width + beam, to = row * s->count + place;
        const float normaliser = s->normalisers[number];
        int64_t token = forced;
        if (forced < 0 && number != weighed) {
            weighed = number;
            if (is_truncated) {
                few = most_probable(s, logits, type, number, room);
                s->offsets[number] = few ? room[words - 1].logit : -INFINITY;
            } else chosen->weigh(&weighing, number, number + 1);
        }
        if (forced < 0) {
            const double share = drawn(s, row, place);
            if (!isfinite(normaliser) || !isfinite(s->offsets[number])) token = 0; /* nothing may follow */
            else token = is_truncated ? token_of_few(room, few, words, share) : token_of_all(s, logits, type, number, share);
        }
        const float logit = get(logits, number * words + token, type);
        s->beams[to] = beam;
        s->tokens[to] = token;
        s->scores[to] = isfinite(normaliser) ? scores[number] + (logit - normaliser) : NAN;
    }
    free(room);
    return 1;
}
