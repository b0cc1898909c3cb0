/* test_numa.c: a pool is cut among nodes so that no slab straddles two; what is said of it. What the kernel does is
 * tested in the guest (tests/guest) and by case A15. */
#include "store/layout.h"
#include "store/numa.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static struct numa_plan plan;
static char text[700];

static const uint32_t nodes[NUMA_PARTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* As slab.h has it. */
static uint64_t largest_slab(uint64_t units)
{
    uint64_t n = 1;
    while (n * 2 <= units / 16 && n < 32)
        n *= 2;
    return n * UNIT_BYTES;
}

static void whole_and_aligned(void **unused)
{
    (void)unused;
    for (uint64_t units = 1; units < 3000; units += units < 200 ? 1 : 61)
        for (uint32_t n = 1; n <= NUMA_PARTS; n++) {
            uint64_t at = 0, bytes = units * UNIT_BYTES, slab = largest_slab(units);
            numa_cut(&plan, nodes, n, bytes);
            assert_true(plan.n >= 1 && plan.n <= n);
            for (uint32_t i = 0; i < plan.n; i++) {
                const struct numa_part *p = &plan.part[i];
                assert_int_equal(p->from, at);
                assert_true(p->to > p->from);
                assert_true(p->to == bytes || p->to % slab == 0);
                uint64_t fair = bytes / n, has = p->to - p->from;
                assert_true(plan.n < n || (has + slab >= fair && has <= fair + 2 * slab));
                at = p->to;
            }
            assert_int_equal(at, bytes);
            assert_true(units < n || units < 64 || plan.n == n);
        }
}

static void sentences(void **unused)
{
    (void)unused;
    numa_cut(&plan, nodes, 2, 64 * MIB);
    plan.verified = true;
    plan.n_seen = 2;
    plan.seen[0] = 1;
    plan.part[0].looked = plan.part[1].looked = 8192;
    plan.part[0].on[1] = 8192; /* node 0 */
    plan.part[1].on[0] = 8192;
    plan.pages[0] = plan.pages[1] = 8192;
    assert_true(numa_settled(&plan));
    numa_note(&plan, text, sizeof text);
    assert_string_equal(text, "");
    numa_placed(&plan, text, sizeof text);
    assert_string_equal(text, "node 1: 32 MiB, node 0: 32 MiB");
    uint32_t node = 7;
    assert_true(numa_mostly(&plan, 0, &node) && node == 0);

    plan.part[1].on[0] -= 256;
    plan.part[1].on[1] += 256; /* a MiB elsewhere */
    assert_false(numa_settled(&plan));
    numa_note(&plan, text, sizeof text);
    assert_non_null(strstr(text, "NUMA node 1: 1.0 MiB of 32 MiB are elsewhere"));
    assert_true(numa_mostly(&plan, 1, &node) && node == 1);
    plan.part[1].on[1] -= 256;
    plan.part[1].absent = 256; /* swapped out is not elsewhere */
    assert_true(numa_settled(&plan));

    plan.part[0].error = plan.part[1].error = -EPERM;
    assert_false(numa_settled(&plan));
    numa_note(&plan, text, sizeof text);
    assert_non_null(strstr(text, "NUMA node 0,1: mbind failed: Operation not permitted (errno 1)"));
    assert_non_null(strstr(text, "seccomp"));
    plan.part[0].error = plan.part[1].error = 0;
    plan.verified = false;
    plan.look_error = -ENOSYS;
    assert_false(numa_settled(&plan) || numa_mostly(&plan, 0, &node));
    numa_note(&plan, text, sizeof text);
    assert_non_null(strstr(text, "move_pages failed"));
    numa_note(&plan, text, 20);
    assert_int_equal(strlen(text), 19);
    numa_cut(&plan, nodes, 0, 64 * MIB);
    assert_true(numa_settled(&plan));
}

/* On this machine: the first node that it has is right, one that it has not is not. */
static void placed_here(void **unused)
{
    (void)unused;
    uint32_t node[2] = {0, NUMA_NODE_MAX}, n = numa_allowed(node, 1);
    size_t bytes = 8 * MIB;
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    if (n == 0)
        return;
    for (uint32_t asked = 1; asked <= 2; asked++) {
        node[1] = NUMA_NODE_MAX;
        numa_cut(&plan, node, asked, bytes);
        numa_bind(&plan, base);
        memset(base, 1, bytes);
        madvise(base, 4096, MADV_DONTNEED);
        numa_look(&plan, base, true);
        assert_true(plan.verified);
        assert_int_equal(plan.part[0].error, 0);
        assert_int_equal(numa_settled(&plan), asked == 1);
        uint64_t there = 0, absent = 0;
        for (uint32_t i = 0; i < plan.n_seen; i++)
            there += plan.pages[i];
        for (uint32_t i = 0; i < plan.n; i++)
            absent += plan.part[i].absent;
        assert_int_equal(there + absent, bytes / 4096);
    }
    assert_int_equal(plan.part[1].error, -EINVAL);
    munmap(base, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_and_aligned), cmocka_unit_test(sentences),
                                       cmocka_unit_test(placed_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
