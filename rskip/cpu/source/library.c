/* What rskip/cpu/library.py calls: the kernels of this processor, and the slots of a beam search. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "library.h"

#if defined(__aarch64__)
static const char *const names[] = {"plain", "NEON with dot products"};
#else
static const char *const names[] = {"plain", "AVX2", "AVX-512", "AVX-512 with bfloat16"};
#endif
static int level;
const struct kernels *chosen = &rskip_plain;

#if defined(__aarch64__)
static int has_dot_products(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#elif defined(__APPLE__)
    return 1; /* every processor of Apple's Macs has them */
#else
    return 0;
#endif
}
#endif

/* GOMP_parallel of the OpenMP library that PyTorch has loaded, if it is GCC's. Its threads wait for work without sleep, so
   threads beside them get half of a core only. A fork of the process has none of them, and GOMP_parallel would wait forever. */
typedef void (*team)(void (*compute)(void *), void *work, unsigned threads, unsigned flags);
#if defined(__linux__)
static pid_t process; /* that loaded the kernels, unless it may lack the threads already */
static void remember_process(int forked) { process = forked ? 0 : getpid(); }
static int number_loaded(struct dl_phdr_info *first, size_t size, void *number) {
    (void)size;
    *(unsigned long long *)number = first->dlpi_adds;
    return 1;
}
static team loaded_team(void) {
    static team found;
    static unsigned long long seen;
    unsigned long long loaded = 0;
    if (!found) {
        dl_iterate_phdr(number_loaded, &loaded);
        if (loaded != seen) { /* a search takes 14 μs, so only after further libraries were loaded */
            void *library = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
            if (library) found = (team)dlsym(library, "GOMP_parallel");
            seen = loaded;
        }
    }
    return getpid() == process ? found : NULL;
}
#else
static void remember_process(int forked) { (void)forked; }
static team loaded_team(void) { return NULL; }
#endif

/* Chooses the best instructions that this processor has, up to `most`. Their numbers: plain 0; on x86 AVX2 1, AVX-512 2
   and AVX-512 with bfloat16 3; on 64-bit Arm NEON with dot products 1. `forked`: whether the process is a fork of one that
   may have used OpenMP. */
EXPORT int rskip_choose(int most, int forked) {
    level = 0;
    chosen = &rskip_plain;
    remember_process(forked);
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
#elif defined(__aarch64__)
    if (most >= 1 && has_dot_products()) {
        level = 1;
        chosen = &rskip_neon_dot;
    }
#endif
    return level;
}

const struct kernels *for_features(int64_t features) {
#if defined(__x86_64__)
    if (level > 1 && features % chosen->chunk) return &rskip_avx2;
#endif
    return chosen;
}
EXPORT int64_t rskip_chunk(void) { return for_features(1)->chunk; }

EXPORT const char *rskip_instructions(void) { return names[level]; }

/* A kernel's work, of which each thread takes one share after the other. */
struct work {
    void (*kernel)(const void *, int64_t first, int64_t last);
    const void *arguments;
    int64_t count, shares, next;
};

static void compute(void *given) {
    struct work *work = given;
    for (int64_t share; (share = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->shares;)
        work->kernel(work->arguments, work->count * share / work->shares, work->count * (share + 1) / work->shares);
}

static void *compute_in_thread(void *work) {
    compute(work);
    return NULL;
}

/* C starts and joins the threads, so that no exception that Python makes of a signal can interrupt this. */
#define MOST_THREADS 256
void in_threads(void (*kernel)(const void *, int64_t, int64_t), const void *arguments, int64_t count, int64_t threads) {
    if (threads > count) threads = count;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2) {
        kernel(arguments, 0, count);
        return;
    }
    struct work work = {kernel, arguments, count, threads, 0};
    const team run = loaded_team();
    if (run) {
        run(compute, &work, (unsigned)threads, 0);
        return;
    }
    pthread_t started[MOST_THREADS];
    int64_t others = 0;
    while (others < threads - 1 && !pthread_create(&started[others], NULL, compute_in_thread, &work)) others++;
    compute(&work); /* also if no thread could start */
    while (others) pthread_join(started[--others], NULL);
}

struct groups {
    void (*kernel)(const void *, int64_t first, int64_t last);
    const void *arguments;
    int64_t tokens, size;
};

static void compute_groups(const void *given, int64_t first, int64_t last) {
    const struct groups *a = given;
    a->kernel(a->arguments, first * a->size, last * a->size < a->tokens ? last * a->size : a->tokens);
}

void in_groups(void (*kernel)(const void *, int64_t, int64_t), const void *arguments, int64_t tokens, int64_t size, int64_t threads) {
    const struct groups groups = {kernel, arguments, tokens, size};
    in_threads(compute_groups, &groups, (tokens + size - 1) / size, threads);
}

/* The function that Python calls for a kernel: on 0 to `count` - 1, in up to `threads` threads. */
#define KERNEL(name, structure)                                                                                  \
    static void name##_share(const void *arguments, int64_t first, int64_t last) {                               \
        chosen->name((const struct structure *)arguments, first, last);                                          \
    }                                                                                                            \
    EXPORT void rskip_##name(const struct structure *arguments, int64_t count, int64_t threads) {                \
        in_threads(name##_share, arguments, count, threads);                                                     \
    }
KERNEL(attend, attention)
KERNEL(residual, residual)
KERNEL(map, linear)
KERNEL(normalise, vocabulary)
KERNEL(best, candidates)
KERNEL(cross_entropy, cross_entropy)
KERNEL(log_softmax, log_softmax)
KERNEL(log_softmax_gradient, log_softmax)

static void map8_share(const void *arguments, int64_t first, int64_t last) {
    struct rows8 rows = {0};
    chosen->map8(arguments, first, last, &rows);
    free(rows.scales);
}
EXPORT void rskip_map8(const struct linear8 *arguments, int64_t count, int64_t threads) {
    in_threads(map8_share, arguments, count, threads);
}

EXPORT void rskip_pack(const struct packing *a) { chosen->pack(a); }
EXPORT int64_t rskip_packed_bytes(int64_t in, int64_t out, int64_t type) { return chosen->packed_bytes(in, out, type); }
EXPORT void rskip_pack8(const struct packing *a) { chosen->pack8(a); }
EXPORT int64_t rskip_packed_bytes8(int64_t in, int64_t out) { return chosen->packed_bytes8(in, out); }
EXPORT int64_t rskip_largest_weight(void) { return chosen->largest_weight; }
EXPORT int64_t rskip_largest_row(void) { return chosen->largest_row; }

void run_share(const void *arguments, int64_t first, int64_t last) {
    const struct program *a = arguments;
    struct rows8 rows = {0};
    for (const struct operation *each = a->operations; each < a->operations + a->count; each++) {
        if (each->kernel != MAP8) rows.of = NULL; /* it may change them */
        if (each->kernel == ATTEND) chosen->attend(each->arguments, first, last);
        else if (each->kernel == RESIDUAL) chosen->residual(each->arguments, first * a->beams, last * a->beams);
        else if (each->kernel == MAP) chosen->map(each->arguments, first * a->beams, last * a->beams);
        else if (each->kernel == MAP8) chosen->map8(each->arguments, first * a->beams, last * a->beams, &rows);
        else if (each->kernel == JOIN) chosen->join(each->arguments, first * a->beams, last * a->beams);
        else if (each->kernel == GATE) chosen->gate(each->arguments, first * a->beams, last * a->beams);
        else chosen->embed(each->arguments, first * a->beams, last * a->beams);
    }
    free(rows.scales);
}

EXPORT void rskip_run(const struct program *a, int64_t count, int64_t threads) { in_threads(run_share, a, count, threads); }

/* Whether all `count` indices are at least 0 and below `limit`. */
EXPORT int rskip_all_below(const int64_t *indices, int64_t count, int64_t limit) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= limit) return 0;
    return 1;
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
