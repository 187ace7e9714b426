/* A beam search: its beams, what they grew from, and its finished hypotheses. */
#ifndef RSKIP_SEARCH_H
#define RSKIP_SEARCH_H

#include "library.h"

/* The beams before a step: B' rows of K' beams. All steps are kept, so that a hypothesis is found by its last beam. */
struct step {
    int64_t *from;                 /* (B') each row's row in the step before */
    int64_t *parents;              /* (B', K') each beam's beam in the step before */
    int64_t *tokens;               /* (B', K') each beam's last token */
    float *scores;                 /* (B', K') its log-probability, -inf where it can't go on */
    float *attention;              /* (B', K', S) of the token after it, or null */
    int64_t rows, width;
};

/* A finished hypothesis, which ends after this beam. */
struct ending {
    int64_t step, row, beam;
    float total;                   /* its log-probability */
    double score;
};

struct cache; /* of decoding.c */

struct search {
    struct search_settings settings;
    struct step *steps;            /* steps[length] are the present beams */
    int64_t length, room;
    int64_t rows, width, count;    /* B', K', and candidates of each row */
    int64_t *sentences;            /* (B') the sentence of each row */
    uint8_t *active;               /* (B') whether it goes on */
    int64_t *order;                /* (B') rows that stay, where some leave */
    int left;                      /* whether some left after the last step */
    struct ending *endings;        /* (B, K) */
    int64_t *ended;                /* (B) how many of them */
    float *maxima, *normalisers, *offsets, *scaled; /* of the logits of a step */
    float *scores;                 /* (B', count) candidates, best first */
    int64_t *beams, *tokens;       /* (B', count) */
    struct cache *cache;
    int failed;                    /* a thread found no memory */
};

/* The candidates of the rows `first` to `last`, from the logits (B', K', V) of the present beams, which it changes. `map`: the
   map that scanned them without writing them, which computes those that are needed; or null. */
void search_choose(struct search *, void *logits, int type, const struct linear8 *map, int64_t first, int64_t last);

/* Whether such a scan is enough for this search. */
int search_scans(const struct search *);

/* The same for one row where tokens are drawn, or only the `forced` one may follow, if it isn't negative; 0 without memory. */
int search_draw(struct search *, const void *logits, int type, int64_t row, int64_t forced);

/* Goes on with the candidates of all rows. */
int search_advance(struct search *);

/* Room for the attention of the present beams (B', K', S); 0 without memory. */
int search_open_attention(struct search *);

/* Memory for a·b values, or null. */
void *search_room(int64_t a, int64_t b, int64_t size);

void decoding_free(struct cache *);

#endif
