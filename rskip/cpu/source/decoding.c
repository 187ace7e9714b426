/* The loop of a search over a decoder whose whole step is one program: keys and values, steps, reordered beams. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "search.h"

#define LONGEST_CALL 0.2 /* seconds, after which the caller can react to signals */

/* The keys and values of the target, in slots that the beams of a sentence share. A beam's list of slots is its history. */
struct cache {
    int32_t *slots, *reordered;    /* (B', K', room), of which the length is used */
    int64_t room;
    int32_t *places;               /* (B') where each row's keys and values lie */
    int32_t *source_slots;         /* (B', S) */
    int32_t *source_counts;        /* (B') */
    char *values;                  /* (layers, 2, B, slots of each place, C) */
    uint8_t *seen;                 /* (slots of each place) */
    int64_t slots_per_place;
    void *logits;                  /* (B', K', V) */
};

/* The next search takes over the last one's memory, since the system clears each page that it gives. The size stands before. */
enum { VALUES, LOGITS };
#define HEAD 64
static char *kept[2];

static int64_t size_of(const void *room) { return *(const int64_t *)((const char *)room - HEAD); }

static void keep(int kind, void *room) {
    if (room) free(__atomic_exchange_n(&kept[kind], (char *)room - HEAD, __ATOMIC_ACQ_REL));
}

/* Room for `bytes` or up to four times as many; null without memory. */
static void *take(int kind, int64_t bytes) {
    char *room = __atomic_exchange_n(&kept[kind], NULL, __ATOMIC_ACQ_REL);
    if (room && *(int64_t *)room >= bytes && *(int64_t *)room / 4 <= bytes) return room + HEAD;
    free(room);
    if (bytes > INT64_MAX - HEAD || !(room = search_room(bytes + HEAD, 1, 1))) return NULL;
    *(int64_t *)room = bytes;
    return room + HEAD;
}

void decoding_free(struct cache *c) {
    if (!c) return;
    void *const rooms[] = {c->slots, c->reordered, c->places, c->source_slots, c->source_counts, c->seen};
    for (size_t number = 0; number < sizeof rooms / sizeof *rooms; number++) free(rooms[number]);
    keep(VALUES, c->values);
    keep(LOGITS, c->logits);
    free(c);
}

static int64_t row_bytes(const struct decoding *d) { return d->features * (d->type == FLOAT32 ? 4 : 2); }

/* Gives each place this number of slots or more, and keeps what the present ones hold; 0 without memory. */
static int enlarge(const struct search *s, const struct decoding *d, struct cache *c, int64_t slots) {
    const int64_t blocks = d->layers * 2 * s->settings.sentences;
    int64_t all;
    if (slots > INT32_MAX || __builtin_mul_overflow(slots * row_bytes(d), blocks, &all)) return 0;
    char *values = take(VALUES, all);
    if (!values) return 0;
    if (blocks) slots = size_of(values) / (blocks * row_bytes(d));
    uint8_t *seen = search_room(slots, 1, 1);
    if (!seen) {
        keep(VALUES, values);
        return 0;
    }
    const int64_t before = c->slots_per_place * row_bytes(d), bytes = slots * row_bytes(d);
    for (int64_t block = 0; c->values && block < blocks; block++)
        memcpy(values + block * bytes, c->values + block * before, (size_t)before);
    keep(VALUES, c->values);
    free(c->seen);
    c->values = values;
    c->seen = seen;
    c->slots_per_place = slots;
    return 1;
}

static struct cache *new_cache(const struct search *s, const struct decoding *d) {
    const int64_t sentences = s->settings.sentences, beams = s->settings.beams, rows = sentences * beams;
    int64_t logits;
    if (__builtin_mul_overflow(rows * s->settings.words, d->type == FLOAT32 ? 4 : 2, &logits)) return NULL;
    struct cache *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->room = 32;
    c->slots = search_room(rows, c->room, sizeof *c->slots);
    c->reordered = search_room(rows, c->room, sizeof *c->slots);
    c->places = search_room(sentences, 1, sizeof *c->places);
    c->source_slots = search_room(sentences, d->source, sizeof *c->source_slots);
    c->source_counts = search_room(sentences, 1, sizeof *c->source_counts);
    c->logits = take(LOGITS, logits);
    if (!c->slots || !c->reordered || !c->places || !c->source_slots || !c->source_counts || !c->logits ||
        !enlarge(s, d, c, 32 + 4 * beams)) {
        decoding_free(c);
        return NULL;
    }
    for (int64_t row = 0; row < sentences; row++) c->places[row] = (int32_t)row;
    memcpy(c->source_slots, d->source_slots, (size_t)(sentences * d->source) * sizeof *c->source_slots);
    memcpy(c->source_counts, d->source_counts, (size_t)sentences * sizeof *c->source_counts);
    return c;
}

/* Points the program to this search. */
static void point(const struct search *s, const struct decoding *d, struct cache *c) {
    const int64_t block = s->settings.sentences * c->slots_per_place * row_bytes(d);
    for (int64_t layer = 0; layer < d->layers; layer++) {
        d->targets[layer]->key = c->values + 2 * layer * block;
        d->targets[layer]->value = c->values + (2 * layer + 1) * block;
        d->targets[layer]->slots_per_place = c->slots_per_place;
        d->memories[layer]->key = d->keys[layer];
        d->memories[layer]->value = d->values[layer];
        d->memories[layer]->slots_per_place = d->source;
        d->memories[layer]->weights = NULL;
    }
    if (s->settings.source) {
        d->memories[d->layers - 1]->weights = s->steps[s->length].attention;
        d->memories[d->layers - 1]->weights_beam = s->settings.source;
    }
    *d->target = (struct seen){.place = c->places, .slots = c->slots, .slots_sentence = s->width * c->room,
                               .slots_beam = c->room, .beams = s->width, .count = s->length + 1};
    *d->memory = (struct seen){.place = c->places, .slots = c->source_slots, .counts = c->source_counts,
                               .slots_sentence = d->source, .beams = s->width};
    d->program->beams = s->width;
    d->embedding->tokens = s->steps[s->length].tokens;
    for (int64_t row = 0; row < s->rows * s->width; row++) d->places[row] = d->first_place + 1 + s->length;
}

/* Points the map to the vocabulary to its logits. Returns it if it scans them. */
static const struct linear8 *point_map(const struct decoding *d, void *logits, const struct scanning *scanning) {
    const struct operation *map = d->program->operations + d->program->count - 1;
    if (map->kernel == MAP) {
        ((struct linear *)map->arguments)->output = logits;
        return NULL;
    }
    struct linear8 *map8 = (struct linear8 *)map->arguments;
    map8->output = logits;
    map8->scanning = scanning;
    return scanning ? map8 : NULL;
}

/* The lists of slots of the beams that the last step chose; 0 without memory. */
static int reorder(const struct search *s, struct cache *c) {
    const struct step *step = &s->steps[s->length], *before = step - 1;
    int64_t room = c->room;
    if (s->length == room) {
        room *= 2;
        free(c->reordered);
        c->reordered = search_room(s->settings.sentences * s->settings.beams, room, sizeof *c->slots);
        if (!c->reordered) return 0;
    }
    for (int64_t row = 0; row < step->rows; row++) {
        const int64_t from = step->from[row];
        for (int64_t beam = 0; beam < step->width; beam++)
            memcpy(c->reordered + (row * step->width + beam) * room,
                   c->slots + (from * before->width + step->parents[row * step->width + beam]) * c->room,
                   (size_t)s->length * sizeof *c->slots);
    }
    int32_t *slots = c->slots;
    c->slots = c->reordered;
    c->reordered = slots;
    if (room != c->room) {
        free(c->reordered);
        c->reordered = search_room(s->settings.sentences * s->settings.beams, room, sizeof *c->slots);
        c->room = room;
    }
    return c->reordered != NULL;
}

/* Rows that stay go to the places of those that left; each comes from its own place or from one behind it. */
static void move_rows(const struct search *s, const struct decoding *d, struct cache *c) {
    for (int64_t row = 0; s->left && row < s->rows; row++) {
        const int64_t from = s->order[row];
        if (from == row) continue;
        c->places[row] = c->places[from];
        c->source_counts[row] = c->source_counts[from];
        memcpy(c->source_slots + row * d->source, c->source_slots + from * d->source, (size_t)d->source * sizeof *c->source_slots);
    }
}

struct given {
    struct search *search;
    const struct decoding *decoding;
    const struct linear8 *map;     /* to the vocabulary, if it scans its logits */
};

static void step_share(const void *arguments, int64_t first, int64_t last) {
    const struct given *given = arguments;
    run_share(given->decoding->program, first, last);
    search_choose(given->search, given->search->cache->logits, (int)given->decoding->type, given->map, first, last);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int run_steps(struct search *s, const struct decoding *d, const struct linear8 *map, int64_t steps, int64_t threads) {
    struct cache *c = s->cache;
    const struct given given = {s, d, map};
    const double start = now();
    for (int64_t step = 0; step < steps && s->length < d->known && (!step || now() - start < LONGEST_CALL); step++) {
        while (!rskip_open_slots(c->slots, s->rows, s->width, c->room, s->length, c->slots_per_place, c->seen))
            if (!enlarge(s, d, c, c->slots_per_place + c->slots_per_place / 2 + s->width)) return NO_MEMORY;
        if (s->settings.source && !search_open_attention(s)) return NO_MEMORY;
        point(s, d, c);
        in_threads(step_share, &given, s->rows, s->rows * s->width >= d->rows_to_share ? threads : 1);
        const int status = search_advance(s);
        if (status != GOES_ON) return status;
        if (!reorder(s, c)) return NO_MEMORY;
        move_rows(s, d, c);
    }
    return GOES_ON;
}

/* Up to `steps` steps, fewer if they take long or if the decoder does not know the places of more tokens. */
EXPORT int rskip_search_run(struct search *s, const struct decoding *d, int64_t steps, int64_t threads) {
    if (!s->cache && !(s->cache = new_cache(s, d))) return NO_MEMORY;
    const struct scanning scanning = {s->maxima, s->normalisers};
    const struct linear8 *map = point_map(d, s->cache->logits, search_scans(s) ? &scanning : NULL);
    const int status = run_steps(s, d, map, steps, threads);
    point_map(d, NULL, NULL);
    return status;
}
