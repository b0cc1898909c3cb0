/* Copies with checksum: every kernel against the plain ones, and the fence that rule 15 of the protocols asks for. */
#include "store/berth.h"
#include "store/copy.h"

#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The kernel a second time, without its fence. */
#define COPY_NO_FENCE
#define XXH_VECTOR XXH_SSE2
#define KERNEL(name) name##_bare
#define VECTOR __m128i
#define VECTOR_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define VECTOR_STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
uint64_t copy_bare(void *dst, const void *src, size_t n);
uint64_t checksum_bare(const void *data, size_t n);
void add_bare(struct checksum *c, const void *data, size_t n);
uint64_t sum_bare(const struct checksum *c);
#include "store/copy_kernel.h"

/* A piece and a little more: the last bytes are hashed so quickly that their stores are still under way at the seal. */
#define WORDS ((COPY_PIECE + 512) / 8)
#define ROUNDS 60000u
#define BOUND_NS INT64_C(2000000000)
#define ENOUGH 10u /* stale reads */

typedef uint64_t copy_function(void *dst, const void *src, size_t n);

static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void check_kernel(copy_function *copy, size_t n, size_t from, size_t to)
{
    uint8_t *src = malloc(n + 64), *dst = malloc(n + 192);
    assert_non_null(src);
    assert_non_null(dst);
    for (size_t i = 0; i < n + 64; i++) {
        src[i] = (uint8_t)next_random();
    }
    memset(dst, 0xee, n + 192);
    uint64_t sum = copy(dst + 64 + to, src + from, n);
    assert_memory_equal(dst + 64 + to, src + from, n);
    assert_int_equal(sum, XXH3_64bits(src + from, n));
    for (size_t i = 0; i < 64; i++) { /* not a byte beside it */
        assert_int_equal(dst[to + i], 0xee);
        assert_int_equal(dst[64 + to + n + i], 0xee);
    }
    free(src);
    free(dst);
}

static void check_all_sizes(copy_function *copy)
{
    static const size_t sizes[] = {0,   1,    3,    15,   16,    17,    63,    64,    65,     240,
                                   241, 4095, 4096, 4097, 16383, 16384, 16385, 32768, 100000, 262145};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_kernel(copy, sizes[i], 0, 0);
        check_kernel(copy, sizes[i], next_random() % 64, next_random() % 64);
    }
}

static void copies_and_hashes(void **state)
{
    (void)state;
    check_all_sizes(berth_copy);
    check_all_sizes(copy_sse2);
    if (__builtin_cpu_supports("avx2")) {
        check_all_sizes(copy_avx2);
    }
    if (__builtin_cpu_supports("avx512f")) {
        check_all_sizes(copy_avx512);
    }
}

static void checksums_agree(void **state)
{
    (void)state;
    static uint8_t data[70000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)next_random();
    }
    for (size_t n = 0; n <= sizeof data; n = n * 3 + 1) {
        assert_int_equal(berth_checksum(data, n), XXH3_64bits(data, n));
        assert_int_equal(checksum_sse2(data, n), XXH3_64bits(data, n));
    }
}

typedef void add_function(struct checksum *c, const void *data, size_t n);
typedef uint64_t sum_function(const struct checksum *c);

/* Pieces of any lengths, from none on, are as the whole; and the same state serves again. */
static void check_pieces(add_function *add, sum_function *sum, const uint8_t *data, size_t n)
{
    struct checksum *c = checksum_create();
    assert_non_null(c);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t at = 0, piece; at < n; at += piece) {
            piece = next_random() % (round == 0 ? 80 : 40000);
            piece = piece < n - at ? piece : n - at;
            add(c, data + at, piece);
            if (at == 0) {
                assert_int_equal(sum(c), XXH3_64bits(data, piece)); /* more may be added */
            }
        }
        assert_int_equal(sum(c), XXH3_64bits(data, n));
        checksum_begin(c);
    }
    assert_int_equal(sum(c), XXH3_64bits(data, 0));
    checksum_free(c);
}

static void pieces_are_as_the_whole(void **state)
{
    (void)state;
    static uint8_t data[200000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)next_random();
    }
    for (size_t n = 0; n <= sizeof data; n = n * 2 + 1 + next_random() % 3) {
        check_pieces(checksum_add, checksum_sum, data, n);
        check_pieces(add_sse2, sum_sse2, data, n);
        if (__builtin_cpu_supports("avx2")) {
            check_pieces(add_avx2, sum_avx2, data, n);
        }
        if (__builtin_cpu_supports("avx512f")) {
            check_pieces(add_avx512, sum_avx512, data, n);
        }
    }
}

/* ---- an immediate reader on another core ---- */

struct pair {
    copy_function *copy;
    uint64_t *payload;
    _Atomic uint64_t flag, ack;
    unsigned rounds;
    _Atomic unsigned long stale;
    int cpu[2];
};

static void pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *write_rounds(void *arg)
{
    struct pair *p = arg;
    static uint64_t src[WORDS];
    pin_to(p->cpu[0]);
    int64_t end = now_ns() + BOUND_NS;
    unsigned r = 1;
    for (; r <= ROUNDS && p->stale < ENOUGH && (r % 64 || now_ns() < end); r++) {
        for (unsigned i = 0; i < WORDS; i++) {
            src[i] = r;
        }
        p->copy(p->payload, src, sizeof src);
        atomic_store_explicit(&p->flag, r, memory_order_release);
        while (atomic_load_explicit(&p->ack, memory_order_acquire) != r) {}
    }
    p->rounds = r - 1;
    atomic_store_explicit(&p->flag, UINT64_MAX, memory_order_release);
    return NULL;
}

/* Looks at the lines that were written last first: they leave the write-combining buffers last. */
static void read_rounds(struct pair *p)
{
    uint64_t seen = 0;
    pin_to(p->cpu[1]);
    for (;;) {
        uint64_t r;
        while ((r = atomic_load_explicit(&p->flag, memory_order_acquire)) == seen) {}
        if (r == UINT64_MAX) {
            return;
        }
        bool stale = false;
        for (unsigned i = WORDS; i >= 8; i -= 8) {
            stale |= ((volatile uint64_t *)p->payload)[i - 1] != r;
        }
        p->stale += stale;
        seen = r;
        atomic_store_explicit(&p->ack, r, memory_order_release);
    }
}

static bool two_cpus(int cpu[2])
{
    cpu_set_t set;
    int n = 0;
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
        if (CPU_ISSET(i, &set)) {
            cpu[n++] = i;
        }
    }
    return n == 2;
}

static void run_pair(struct pair *p)
{
    cpu_set_t before;
    pthread_t writer;
    p->payload = aligned_alloc(64, WORDS * sizeof *p->payload);
    assert_non_null(p->payload);
    memset(p->payload, 0, WORDS * sizeof *p->payload);
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    assert_int_equal(pthread_create(&writer, NULL, write_rounds, p), 0);
    read_rounds(p);
    pthread_join(writer, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    free(p->payload);
}

/* The seal may not overtake the payload. Without the fence it does, on machines whose stores past the cache linger;
 * that the reader can see it at all is what gives the first half of this test its meaning. */
static void fence_holds_the_seal_back(void **state)
{
    (void)state;
    struct pair fenced = {.copy = berth_copy}, bare = {.copy = copy_bare};
    if (!two_cpus(fenced.cpu)) {
        print_message("SKIP: one CPU, no reader beside the writer\n");
        skip();
    }
    memcpy(bare.cpu, fenced.cpu, sizeof bare.cpu);
    run_pair(&fenced);
    run_pair(&bare);
    print_message("stale payload behind its seal: %lu of %u rounds with the fence, %lu of %u without\n",
                  (unsigned long)fenced.stale, fenced.rounds, (unsigned long)bare.stale, bare.rounds);
    assert_true(fenced.rounds > 0);
    assert_int_equal(fenced.stale, 0);
    if (bare.stale == 0) {
        print_message("SKIP: this machine shows no stale read without the fence in the time given\n");
        skip();
    }
}

int main(void)
{
    const char *given = getenv("BERTH_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)now_ns() | 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_and_hashes),
        cmocka_unit_test(checksums_agree),
        cmocka_unit_test(pieces_are_as_the_whole),
        cmocka_unit_test(fence_holds_the_seal_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
