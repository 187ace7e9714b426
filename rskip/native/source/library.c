/* What rskip/native/library.py calls: the kernels of this processor, and the slots of a beam search. */
#include <stddef.h>
#include <string.h>

#include "kernels.h"

#define EXPORT __attribute__((visibility("default")))

static const char *const names[] = {"plain", "AVX2", "AVX-512", "AVX-512 with bfloat16"};
static int level;
static const struct kernels *chosen = &rskip_plain;

EXPORT int rskip_interface(void) { return RSKIP_INTERFACE; }

/* The best instructions that this processor has, of the plain ones 0, AVX2 1, AVX-512 2 and AVX-512 with bfloat16 3, up to `most`. */
EXPORT int rskip_choose(int most) {
    level = 0;
    chosen = &rskip_plain;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (most >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        level = 1;
        chosen = &rskip_avx2;
    }
    if (most >= 2 && level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        level = 2;
        chosen = &rskip_avx512;
    }
    if (most >= 3 && level == 2 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
        level = 3;
        chosen = &rskip_avx512bf16;
    }
#endif
    return level;
}

EXPORT const char *rskip_instructions(void) { return names[level]; }

EXPORT void rskip_attend(const struct attention *a, int64_t first, int64_t last) { chosen->attend(a, first, last); }
EXPORT void rskip_residual(const struct residual *a, int64_t first, int64_t last) { chosen->residual(a, first, last); }
EXPORT void rskip_map(const struct linear *a, int64_t first, int64_t last) { chosen->map(a, first, last); }
EXPORT void rskip_normalise(const struct vocabulary *a, int64_t first, int64_t last) { chosen->normalise(a, first, last); }
EXPORT void rskip_best(const struct candidates *a, int64_t first, int64_t last) { chosen->best(a, first, last); }
EXPORT void rskip_cross_entropy(const struct cross_entropy *a, int64_t first, int64_t last) { chosen->cross_entropy(a, first, last); }
EXPORT void rskip_quantise(const struct quantised *a, int64_t first, int64_t last) { chosen->quantise(a, first, last); }
EXPORT void rskip_rescale(const struct rescaled *a, int64_t first, int64_t last) { chosen->rescale(a, first, last); }
EXPORT void rskip_log_softmax(const struct log_softmax *a, int64_t first, int64_t last) { chosen->log_softmax(a, first, last); }
EXPORT void rskip_log_softmax_gradient(const struct log_softmax *a, int64_t first, int64_t last) { chosen->log_softmax_gradient(a, first, last); }

EXPORT void rskip_pack(const struct packing *a) { chosen->pack(a); }
EXPORT int64_t rskip_packed_bytes(int64_t in, int64_t out, int64_t type) { return chosen->packed_bytes(in, out, type); }
EXPORT void rskip_map8(const struct linear8 *a, int64_t first, int64_t last) { chosen->map8(a, first, last); }
EXPORT void rskip_pack8(const struct packing *a) { chosen->pack8(a); }
EXPORT int64_t rskip_packed_bytes8(int64_t in, int64_t out) { return chosen->packed_bytes8(in, out); }
EXPORT int64_t rskip_largest_weight(void) { return chosen->largest_weight; }

/* One operation after the other, each on the sentences `first` to `last`. */
EXPORT void rskip_run(const struct program *a, int64_t first, int64_t last) {
    for (const struct operation *each = a->operations; each < a->operations + a->count; each++) {
        if (each->kernel == ATTEND) chosen->attend(each->arguments, first, last);
        else if (each->kernel == RESIDUAL) chosen->residual(each->arguments, first * a->beams, last * a->beams);
        else if (each->kernel == MAP) chosen->map(each->arguments, first * a->beams, last * a->beams);
        else if (each->kernel == MAP8) chosen->map8(each->arguments, first * a->beams, last * a->beams);
        else chosen->embed(each->arguments, first * a->beams, last * a->beams);
    }
}

/* Each beam of `slots` (B, K, `row` of which `length` are in use) gets a slot, of `count`, that no beam of its sentence
   sees; 0 where a sentence has too few. `seen` has room for `count`. */
EXPORT int rskip_open_slots(int32_t *slots, int64_t sentences, int64_t beams, int64_t row, int64_t length, int64_t count, uint8_t *seen) {
    for (int64_t sentence = 0; sentence < sentences; sentence++) {
        int32_t *own = slots + sentence * beams * row;
        int64_t next = 0;
        memset(seen, 0, count);
        for (int64_t beam = 0; beam < beams; beam++)
            for (int64_t position = 0; position < length; position++) seen[own[beam * row + position]] = 1;
        for (int64_t beam = 0; beam < beams; beam++) {
            while (next < count && seen[next]) next++;
            if (next == count) return 0;
            own[beam * row + length] = (int32_t)next++;
        }
    }
    return 1;
}

/* Beam k of sentence b of `to` (B, K', row) is beam parents[b, k] of sentence `sentences[b]` of `from` (., K, row). */
EXPORT void rskip_reorder_slots(const int32_t *from, int32_t *to, const int64_t *sentences, const int64_t *parents,
                                int64_t count, int64_t beams_before, int64_t beams, int64_t row, int64_t length) {
    for (int64_t sentence = 0; sentence < count; sentence++) {
        const int32_t *old = from + (sentences ? sentences[sentence] : sentence) * beams_before * row;
        for (int64_t beam = 0; beam < beams; beam++)
            memcpy(to + (sentence * beams + beam) * row, old + parents[sentence * beams + beam] * row, length * sizeof *to);
    }
}
