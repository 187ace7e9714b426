/* Beam search, as rskip/generation/search.py: rules on the next token, beams, finished hypotheses. It allocates all that
   it keeps, and reads the caller's memory only during a call. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "search.h"

#define FINISHED_SHARE 8 /* finished sentences leave the batch when they are one in so many */

void *search_room(int64_t a, int64_t b, int64_t size) {
    int64_t count, bytes;
    if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, size, &bytes) || bytes < 0) return NULL;
    return malloc(bytes ? (size_t)bytes : 1);
}

/* Adds a step; 0 without memory. */
static int add_step(struct search *s, int64_t rows, int64_t width) {
    const int64_t number = s->steps ? s->length + 1 : 0;
    if (number == s->room) {
        const int64_t room = s->room ? 2 * s->room : 64;
        struct step *steps = realloc(s->steps, room * sizeof *steps);
        if (!steps) return 0;
        memset(steps + s->room, 0, (room - s->room) * sizeof *steps);
        s->steps = steps;
        s->room = room;
    }
    int64_t *values = search_room(rows, 1 + 2 * width, sizeof *values);
    float *scores = search_room(rows, width, sizeof *scores);
    if (!values || !scores) {
        free(values);
        free(scores);
        return 0;
    }
    s->steps[number] = (struct step){.from = values, .parents = values + rows, .tokens = values + rows + rows * width,
                                     .scores = scores, .rows = rows, .width = width};
    s->length = number;
    s->rows = rows;
    s->width = width;
    return 1;
}

EXPORT void rskip_search_free(struct search *s) {
    if (!s) return;
    for (int64_t number = 0; number < s->room; number++) {
        free(s->steps[number].from);
        free(s->steps[number].scores);
        free(s->steps[number].attention);
    }
    decoding_free(s->cache);
    void *const rooms[] = {(void *)s->settings.limits, (void *)s->settings.prefixes, s->steps, s->sentences, s->active,
                           s->order, s->endings, s->ended, s->maxima, s->normalisers, s->offsets, s->scaled, s->scores,
                           s->beams, s->tokens};
    for (size_t number = 0; number < sizeof rooms / sizeof *rooms; number++) free(rooms[number]);
    free(s);
}

static int64_t *copied(const int64_t *values, int64_t a, int64_t b) {
    int64_t *copy = search_room(a, b, sizeof *copy);
    if (copy && a && b) memcpy(copy, values, (size_t)(a * b) * sizeof *copy);
    return copy;
}

/* How many candidates a row has at this step. */
static int64_t candidates_of(const struct search *s) {
    const int64_t most = 2 * s->settings.beams, all = s->width * s->settings.words - 1;
    if (s->settings.sampling) return s->settings.beams;
    return most < all ? most : all;
}

/* A search before its first step, or null without memory. */
EXPORT struct search *rskip_search_new(const struct search_settings *settings) {
    const int64_t sentences = settings->sentences, beams = settings->beams, words = settings->words;
    int64_t rows, most;
    if (__builtin_mul_overflow(sentences, beams, &rows) || __builtin_mul_overflow(sentences, 2 * beams, &most)) return NULL;
    struct search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->settings = *settings;
    s->settings.limits = copied(settings->limits, sentences, 1);
    s->settings.prefixes = settings->prefix ? copied(settings->prefixes, sentences, settings->prefix) : NULL;
    s->sentences = search_room(sentences, 1, sizeof *s->sentences);
    s->active = search_room(sentences, 1, sizeof *s->active);
    s->order = search_room(sentences, 1, sizeof *s->order);
    s->endings = search_room(sentences, beams, sizeof *s->endings);
    s->ended = calloc((size_t)sentences + 1, sizeof *s->ended);
    s->maxima = search_room(rows, (words + BLOCK - 1) / BLOCK, sizeof *s->maxima);
    s->normalisers = search_room(rows, 1, sizeof *s->normalisers);
    s->offsets = search_room(rows, 1, sizeof *s->offsets);
    s->scaled = settings->temperature == 1 ? NULL : search_room(rows, words, sizeof *s->scaled);
    s->scores = search_room(most, 1, sizeof *s->scores);
    s->beams = search_room(most, 1, sizeof *s->beams);
    s->tokens = search_room(most, 1, sizeof *s->tokens);
    if (!s->settings.limits || (settings->prefix && !s->settings.prefixes) || !s->sentences || !s->active || !s->order ||
        !s->endings || !s->ended || !s->maxima || !s->normalisers || !s->offsets || !s->scores || !s->beams || !s->tokens ||
        (settings->temperature != 1 && !s->scaled) || !add_step(s, sentences, 1)) {
        rskip_search_free(s);
        return NULL;
    }
    for (int64_t row = 0; row < sentences; row++) {
        s->sentences[row] = s->steps[0].from[row] = row;
        s->active[row] = 1;
        s->steps[0].parents[row] = 0;
        s->steps[0].tokens[row] = settings->start;
        s->steps[0].scores[row] = 0;
    }
    s->count = candidates_of(s);
    return s;
}

/* The token that must follow in the row, or -1. */
static int64_t forced_token(const struct search *s, int64_t row) {
    const struct search_settings *settings = &s->settings;
    const int64_t sentence = s->sentences[row];
    if (settings->limits[sentence] <= s->length) return settings->end;
    if (s->length >= settings->prefix) return -1;
    const int64_t token = settings->prefixes[sentence * settings->prefix + s->length];
    return token == settings->padding ? -1 : token;
}

/* The candidates of a row where only `token` may follow, in the order of `best`. */
static void choose_forced(const struct candidates *c, int64_t row, int64_t token) {
    float *scores = c->scores + row * c->count;
    int64_t *beams = c->beams + row * c->count, *tokens = c->tokens + row * c->count;
    int known = 1;
    for (int64_t place = 0; place < c->count; place++) {
        scores[place] = -INFINITY;
        beams[place] = tokens[place] = 0;
    }
    for (int64_t beam = 0; beam < c->width; beam++) {
        const int64_t number = row * c->width + beam;
        const float score = get(c->logits, number * c->words + token, (int)c->type) + c->offsets[number];
        known &= c->offsets[number] < INFINITY;
        int64_t place = c->count;
        for (; place > 0 && score > scores[place - 1]; place--)
            if (place < c->count) {
                scores[place] = scores[place - 1];
                beams[place] = beams[place - 1];
                tokens[place] = tokens[place - 1];
            }
        if (place == c->count) continue;
        scores[place] = score;
        beams[place] = beam;
        tokens[place] = token;
    }
    for (int64_t place = 0; !known && place < c->count; place++) scores[place] = NAN;
}

/* The tokens (length) of a beam, without the start. */
static void history_of(const struct search *s, int64_t row, int64_t beam, int64_t *history) {
    for (int64_t number = s->length; number > 0; number--) {
        const struct step *step = &s->steps[number];
        const int64_t place = row * step->width + beam;
        history[number - 1] = step->tokens[place];
        beam = step->parents[place];
        row = step->from[row];
    }
}

/* Forbids tokens that would repeat a sequence of `ngram` tokens of their beam. */
static void forbid_repeated(struct search *s, void *logits, int type, int64_t row) {
    const int64_t length = s->length, size = s->settings.ngram;
    if (!length || length < size) return;
    int64_t *history = search_room(length, 1, sizeof *history);
    if (!history) {
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t beam = 0; beam < s->width; beam++) {
        const int64_t start = (row * s->width + beam) * s->settings.words;
        const int64_t *last = history + length - (size - 1);
        history_of(s, row, beam, history);
        for (int64_t place = 0; place + size <= length; place++)
            if (!memcmp(history + place, last, (size_t)(size - 1) * sizeof *history))
                set(logits, start + history[place + size - 1], -INFINITY, type);
    }
    free(history);
}

/* Changes the logits of a row by the rules that forbid tokens. */
static void forbid(struct search *s, void *logits, int type, int64_t row) {
    const struct search_settings *settings = &s->settings;
    for (int64_t beam = 0; beam < s->width; beam++) {
        const int64_t start = (row * s->width + beam) * settings->words;
        set(logits, start + settings->padding, -INFINITY, type);
        if (settings->unknown_penalty == INFINITY) set(logits, start + settings->unknown, -INFINITY, type);
        if (s->length < settings->min_length) set(logits, start + settings->end, -INFINITY, type);
    }
    if (settings->ngram) forbid_repeated(s, logits, type, row);
}

/* Takes the penalty off the unknown token's logits. The blocks' maxima stay at least their largest logits. */
static void penalise_unknown(struct search *s, void *logits, int type, int64_t row) {
    const int64_t words = s->settings.words, unknown = s->settings.unknown, blocks = (words + BLOCK - 1) / BLOCK;
    for (int64_t number = row * s->width; number < (row + 1) * s->width; number++) {
        const int64_t place = number * words + unknown;
        set(logits, place, get(logits, place, type) - (float)s->settings.unknown_penalty, type);
        float *maximum = s->maxima + number * blocks + unknown / BLOCK;
        if (get(logits, place, type) > *maximum) *maximum = get(logits, place, type);
    }
}

/* Whether scanned logits are enough for this search. Sampling and penalties need all logits. */
int search_scans(const struct search *s) {
    const double penalty = s->settings.unknown_penalty;
    return !s->scaled && !s->settings.sampling && (penalty == 0 || penalty == INFINITY);
}

/* Scans a row's blocks whose maxima are at least `bound`, after `map` has computed them. */
static void scan_computed(struct search *s, const struct candidates *c, const struct linear8 *map, int64_t row, float bound) {
    const int64_t blocks = (c->words + BLOCK - 1) / BLOCK;
    for (int64_t number = row * c->width; number < (row + 1) * c->width; number++)
        for (int64_t block = 0; block < blocks; block++)
            if (c->maxima[number * blocks + block] + c->offsets[number] >= bound) chosen->map8_block(map, number, block);
    forbid(s, (void *)c->logits, (int)c->type, row); /* it may also change logits that were not computed; nobody reads those */
    chosen->scan(c, row, bound);
}

/* The candidates of a row whose logits `map` has scanned. */
static void choose_computed(struct search *s, const struct candidates *c, const struct linear8 *map, int64_t row) {
    const float *worst = c->scores + (row + 1) * c->count - 1, bound = chosen->bound(c, row);
    scan_computed(s, c, map, row, bound);
    if (*worst < bound) scan_computed(s, c, map, row, *worst);
}

void search_choose(struct search *s, void *logits, int type, const struct linear8 *map, int64_t first, int64_t last) {
    const int64_t width = s->width, words = s->settings.words;
    const double penalty = s->settings.unknown_penalty;
    if (s->scaled) {
        const float temperature = (float)s->settings.temperature;
        for (int64_t i = first * width * words; i < last * width * words; i++) s->scaled[i] = get(logits, i, type) / temperature;
        logits = s->scaled;
        type = FLOAT32;
    }
    const struct vocabulary vocabulary = {.logits = logits, .maxima = s->maxima, .normalisers = s->normalisers,
                                          .words = words, .type = type};
    if (!map) chosen->normalise(&vocabulary, first * width, last * width);
    const struct candidates candidates = {.logits = logits, .maxima = s->maxima, .offsets = s->offsets, .scores = s->scores,
                                          .beams = s->beams, .tokens = s->tokens, .count = s->count, .width = width,
                                          .words = words, .type = type};
    const float *scores = s->steps[s->length].scores;
    for (int64_t row = first; row < last; row++) {
        for (int64_t number = row * width; number < (row + 1) * width; number++) s->offsets[number] = scores[number] - s->normalisers[number];
        if (penalty != 0 && penalty != INFINITY) penalise_unknown(s, logits, type, row);
        const int64_t token = forced_token(s, row);
        if (s->settings.sampling) {
            if (token < 0) forbid(s, logits, type, row);
            if (!search_draw(s, logits, type, row, token)) __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
        } else if (token >= 0) {
            for (int64_t number = row * width; map && number < (row + 1) * width; number++) chosen->map8_block(map, number, token / BLOCK);
            choose_forced(&candidates, row, token);
        } else if (map) {
            choose_computed(s, &candidates, map, row);
        } else {
            forbid(s, logits, type, row);
            chosen->best(&candidates, row, row + 1);
        }
    }
}

static double length_penalty(const struct search_settings *settings, int64_t length) {
    return pow(settings->gnmt ? (5.0 + (double)length) / 6 : (double)length, settings->length_penalty);
}

/* Adds a finished hypothesis of a row. */
static void finish(struct search *s, int64_t row, int64_t beam, float total, double score) {
    const int64_t sentence = s->sentences[row];
    s->endings[sentence * s->settings.beams + s->ended[sentence]++] =
        (struct ending){.step = s->length, .row = row, .beam = beam, .total = total, .score = score};
}

/* Takes in the hypotheses that end among the K best of their sentence. Gives the number of rows that go on, or -1 where
   candidates are not numbers. */
static int64_t finish_rows(struct search *s) {
    const int64_t beams = s->settings.beams;
    const double penalty = length_penalty(&s->settings, s->length + 1);
    int64_t remaining = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        if (!s->active[row]) continue;
        const int64_t sentence = s->sentences[row];
        const float *scores = s->scores + row * s->count;
        float best = -INFINITY;
        int known = 1;
        for (int64_t place = 0; place < s->count; place++) {
            if (scores[place] > best) best = scores[place];
            known &= scores[place] < INFINITY;
        }
        for (int64_t place = 0; place < s->count && place < beams; place++)
            if (s->tokens[row * s->count + place] == s->settings.end && isfinite(scores[place]) && s->ended[sentence] < beams)
                finish(s, row, s->beams[row * s->count + place], scores[place], scores[place] / penalty);
        if (!known) return -1;
        if (s->ended[sentence] == beams || s->length >= s->settings.limits[sentence] || best == -INFINITY) {
            s->active[row] = 0;
            if (!s->ended[sentence]) finish(s, row, 0, -INFINITY, -INFINITY); /* nothing may follow: what there is ends here */
        } else remaining++;
    }
    return remaining;
}

/* Finished sentences leave where it is time, and rows from the end take their places. */
static void leave(struct search *s, int64_t remaining) {
    int64_t last = s->rows;
    s->left = (s->rows - remaining) * FINISHED_SHARE >= s->rows;
    if (!s->left) return;
    for (int64_t row = 0; row < remaining; row++) {
        s->order[row] = row;
        if (s->active[row]) continue;
        do last--;
        while (!s->active[last]);
        s->order[row] = last;
    }
    for (int64_t row = 0; row < remaining; row++) {
        s->sentences[row] = s->sentences[s->order[row]];
        s->active[row] = 1;
    }
}

/* The best K candidates that don't end become the beams, those that end after them as beams that can't go on. */
static int go_on(struct search *s, int64_t rows) {
    const int64_t beams = s->settings.beams, count = s->count, width = count < beams ? count : beams;
    if (!add_step(s, rows, width)) return NO_MEMORY;
    const struct step *step = &s->steps[s->length];
    for (int64_t row = 0; row < rows; row++) {
        const int64_t from = step->from[row] = s->left ? s->order[row] : row;
        const int64_t *tokens = s->tokens + from * count;
        const float *scores = s->scores + from * count;
        int64_t place = row * width;
        for (int ends = 0; ends < 2; ends++)
            for (int64_t each = 0; each < count && place < (row + 1) * width; each++) {
                if ((tokens[each] == s->settings.end && isfinite(scores[each])) != ends) continue;
                step->parents[place] = s->beams[from * count + each];
                step->tokens[place] = tokens[each];
                step->scores[place++] = ends ? -INFINITY : scores[each];
            }
    }
    s->count = candidates_of(s);
    return GOES_ON;
}

/* Sorts the hypotheses of each sentence, the best first, equal ones as they were found. */
static void rank(struct search *s) {
    for (int64_t sentence = 0; sentence < s->settings.sentences; sentence++) {
        struct ending *own = s->endings + sentence * s->settings.beams;
        for (int64_t number = 1; number < s->ended[sentence]; number++) {
            const struct ending each = own[number];
            int64_t place = number;
            for (; place > 0 && each.score > own[place - 1].score; place--) own[place] = own[place - 1];
            own[place] = each;
        }
    }
}

int search_advance(struct search *s) {
    if (s->failed) return NO_MEMORY;
    const int64_t remaining = finish_rows(s);
    if (remaining < 0) return NOT_NUMBERS;
    if (!remaining) {
        rank(s);
        return FINISHED;
    }
    leave(s, remaining);
    return go_on(s, s->left ? remaining : s->rows);
}

int search_open_attention(struct search *s) {
    struct step *step = &s->steps[s->length];
    if (!step->attention) step->attention = search_room(step->rows * step->width, s->settings.source, sizeof *step->attention);
    return step->attention != NULL;
}

struct given {
    struct search *search;
    void *logits;
    int type;
};

static void choose_share(const void *arguments, int64_t first, int64_t last) {
    const struct given *given = arguments;
    search_choose(given->search, given->logits, given->type, NULL, first, last);
}

/* A step from the logits (B', K', V) of the present beams, which it changes, and their attention (B', K', S) if it is kept. */
EXPORT int rskip_search_step(struct search *s, void *logits, int64_t type, const float *attention, int64_t threads) {
    if (s->settings.source) {
        if (!search_open_attention(s)) return NO_MEMORY;
        memcpy(s->steps[s->length].attention, attention, (size_t)(s->rows * s->width * s->settings.source) * sizeof *attention);
    }
    const struct given given = {s, logits, (int)type};
    in_threads(choose_share, &given, s->rows, threads);
    return search_advance(s);
}

EXPORT void rskip_search_view(const struct search *s, struct search_view *view) {
    const struct step *step = &s->steps[s->length];
    *view = (struct search_view){.tokens = step->tokens, .parents = step->parents, .rows = s->left ? s->order : NULL,
                                 .count = step->rows, .width = step->width, .length = s->length};
}

/* The number of finished hypotheses of a sentence. */
EXPORT int64_t rskip_search_found(const struct search *s, int64_t sentence) { return s->ended[sentence]; }

/* The hypothesis of this rank, 0 being the best, of a sentence of a finished search. */
EXPORT void rskip_search_hypothesis(const struct search *s, int64_t sentence, int64_t number, struct hypothesis *found) {
    const struct ending *ending = &s->endings[sentence * s->settings.beams + number];
    const int64_t source = s->settings.source;
    int64_t row = ending->row, beam = ending->beam;
    float after = ending->total;
    found->length = ending->step + 1;
    found->score = ending->score;
    if (found->tokens) found->tokens[ending->step] = s->settings.end;
    for (int64_t each = ending->step; each >= 0; each--) {
        const struct step *step = &s->steps[each];
        const int64_t place = row * step->width + beam;
        if (found->attention)
            memcpy(found->attention + each * source, step->attention + place * source, (size_t)source * sizeof(float));
        if (found->token_scores) found->token_scores[each] = after - step->scores[place];
        if (found->tokens && each) found->tokens[each - 1] = step->tokens[place];
        after = step->scores[place];
        beam = step->parents[place];
        row = step->from[row];
    }
}
