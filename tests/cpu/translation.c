/* Translates what tests/cpu/translation_image.py has written: the encoder, the memory, all steps and the search.

   translation IMAGE MOST: one line of score and tokens for each hypothesis, with the instructions up to level MOST. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

int rskip_choose(int most);
void rskip_run(const struct program *, int64_t count, int64_t threads);
struct search;
struct search *rskip_search_new(const struct search_settings *);
void rskip_search_free(struct search *);
int rskip_search_run(struct search *, const struct decoding *, int64_t steps, int64_t threads);
int64_t rskip_search_found(const struct search *, int64_t);
void rskip_search_hypothesis(const struct search *, int64_t, int64_t, struct hypothesis *);

enum root { ENCODER, PROJECTOR, DECODING, SETTINGS, ENCODED, GIVEN, SENTENCES, BEST, BYTES, ROOTS };

static void read_all(FILE *file, void *to, int64_t size) {
    if ((int64_t)fread(to, 1, (size_t)size, file) != size) exit(3);
}

static void *place(char *const *parts, const int64_t *at) { return parts[at[0]] + at[1]; }

int main(int count, char **arguments) {
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    int64_t sizes[2], roots[ROOTS][2];
    if (!file) return 2;
    rskip_choose(atoi(arguments[2]));
    read_all(file, sizes, sizeof sizes);
    read_all(file, roots, sizeof roots);
    int64_t(*pointers)[4] = malloc((size_t)sizes[1] * sizeof *pointers);
    char **parts = malloc((size_t)sizes[0] * sizeof *parts);
    read_all(file, pointers, sizes[1] * (int64_t)sizeof *pointers);
    for (int64_t part = 0; part < sizes[0]; part++) {
        int64_t size;
        read_all(file, &size, sizeof size);
        parts[part] = malloc((size_t)size);
        read_all(file, parts[part], size);
    }
    for (int64_t i = 0; i < sizes[1]; i++) {
        void *target = place(parts, pointers[i] + 2);
        memcpy(place(parts, pointers[i]), &target, sizeof target);
    }

    const int64_t sentences = roots[SENTENCES][1];
    rskip_run(place(parts, roots[ENCODER]), sentences, 2);
    memcpy(place(parts, roots[GIVEN]), place(parts, roots[ENCODED]), (size_t)roots[BYTES][1]);
    rskip_run(place(parts, roots[PROJECTOR]), sentences, 2);
    struct search *search = rskip_search_new(place(parts, roots[SETTINGS]));
    int status = GOES_ON;
    while (status == GOES_ON) status = rskip_search_run(search, place(parts, roots[DECODING]), 1 << 20, 2);
    for (int64_t sentence = 0; sentence < sentences && status == FINISHED; sentence++)
        for (int64_t number = 0; number < roots[BEST][1]; number++) {
            struct hypothesis found = {0};
            rskip_search_hypothesis(search, sentence, number, &found);
            int64_t *tokens = malloc((size_t)found.length * sizeof *tokens);
            found.tokens = tokens;
            rskip_search_hypothesis(search, sentence, number, &found);
            printf("%.9g", found.score);
            for (int64_t i = 0; i < found.length; i++) printf(" %lld", (long long)tokens[i]);
            printf("\n");
            free(tokens);
        }
    rskip_search_free(search);
    return status == FINISHED ? 0 : 1;
}
