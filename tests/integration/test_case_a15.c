/* Case A15: memory can't be placed: the calls are blocked by seccomp, the node is none, the machine has one only. One
 * warning with node, errno and what is not permitted; the status says where the pages are; strict mode refuses. */
#include "store/layout.h"
#include "store/numa.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define POOL (32u << 20)

static struct daemon d;
static uint32_t node_here; /* one that this machine has */
static uint32_t nodes_here;
static char list_here[16], list_none[24];

/* ---- the filter ---- */

static void forbid(const int *calls, unsigned n)
{
    struct sock_filter code[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned at = 1;
    for (unsigned i = 0; i < n; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)at, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        dprintf(2, "no filter: %s\n", strerror(errno));
        _exit(126);
    }
}

/* As the default profile of a container does without CAP_SYS_NICE. */
static void forbid_all(void)
{
    forbid((const int[]){SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages, SYS_migrate_pages}, 5);
}

static void forbid_looking(void)
{
    forbid((const int[]){SYS_move_pages}, 1);
}

/* ---- what was said ---- */

static unsigned warnings(void)
{
    unsigned n = 0;
    for (const char *at = d.text; (at = strstr(at, "NUMA")) != NULL; at++)
        for (const char *line = at; line > d.text && *line != '\n'; line--)
            if (strncmp(line, " warning ", 9) == 0) {
                n++;
                break;
            }
    return n;
}

static bool text_has(const char *text)
{
    return strstr(d.text, text) != NULL;
}

static void start(void (*before)(void), const char *numa, const char *strict)
{
    const char *const flags[] = {"--pool", "32MiB", "--numa-strict", strict, numa != NULL ? "--numa" : NULL,
                                 numa,     NULL};
    d.before = before;
    memcpy(d.extra, flags, sizeof flags);
}

static void put(struct berth *b, const char *key)
{
    char data[70000];
    payload_fill(data, sizeof data, key);
    assert_true(berth_put(b, key_of(key), data, sizeof data, NULL) >= 0); /* kept, after a warm restart */
}

static void verify(struct berth *b, const char *key)
{
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
    assert_true(payload_is(v.data, v.size, key));
    berth_release(b, &v, 1);
}

/* One warning in this start, however long it runs, and all pages where they are. */
static void check_running(unsigned wanted, bool seen)
{
    char path[64];
    struct berth *b = daemon_open(&d, "a15");
    put(b, "a");
    verify(b, "a");
    snprintf(path, sizeof path, "numa.found_bytes.%u", node_here);
    if (seen && nodes_here == 1)
        assert_int_equal((int64_t)daemon_number(b, path), POOL);
    berth_close(b);
    assert_int_equal(daemon_stop(&d), 0);
    daemon_says(&d, "no such text: the log to its end", 500);
    assert_int_equal(warnings(), wanted);
}

static void check_refused(const char *what)
{
    assert_int_equal(daemon_try(&d), 5);
    assert_true(text_has("numa-strict: NUMA node"));
    assert_true(text_has(what));
}

/* ---- cases ---- */

static void blocked(void **state)
{
    (void)state;
    start(forbid_all, list_here, "no");
    daemon_again(&d);
    assert_true(text_has("mbind failed: Operation not permitted (errno 1): it is not permitted here"));
    char node[40];
    snprintf(node, sizeof node, "NUMA node %u: ", node_here);
    assert_true(text_has(node));
    check_running(1, true); /* /proc says it where move_pages may not */
    start(forbid_all, list_here, "yes");
    check_refused("mbind failed: Operation not permitted (errno 1)");
    start(NULL, list_here, "yes"); /* a warm restart, with everything that was there */
    daemon_again(&d);
    assert_true(text_has("warm restart with 1 object:"));
    check_running(0, true);
}

static void not_verified(void **state)
{
    (void)state;
    start(forbid_looking, list_here, "no");
    daemon_again(&d);
    assert_true(text_has("move_pages failed: Operation not permitted (errno 1)"));
    check_running(1, true);
    start(forbid_looking, list_here, "yes");
    check_refused("move_pages failed");
}

static void no_such_node(void **state)
{
    (void)state;
    start(NULL, "255", "no");
    daemon_again(&d);
    assert_true(text_has("NUMA node 255: mbind failed: Invalid argument (errno 22)"));
    check_running(1, true);
    start(NULL, list_none, "no");
    daemon_again(&d);
    assert_true(text_has("NUMA node 255: mbind failed"));
    check_running(1, true);
    start(NULL, list_none, "yes");
    check_refused("NUMA node 255: mbind failed: Invalid argument (errno 22)");
}

static void nothing_asked(void **state)
{
    (void)state;
    start(forbid_all, "off", "no");
    daemon_again(&d);
    assert_true(text_has("warm restart with 1 object:"));
    check_running(0, false);
    if (nodes_here > 1)
        return;
    start(forbid_all, NULL, "no");
    daemon_again(&d); /* by default, on a machine of one node: there is nothing to ask */
    check_running(0, false);
    start(NULL, NULL, "yes"); /* to be strict is to look */
    daemon_again(&d);
    assert_true(text_has("the pool's pages are on the NUMA nodes asked for"));
    check_running(0, true);
    start(forbid_all, NULL, "yes");
    check_refused("mbind failed");
}

int main(void)
{
    nodes_here = numa_allowed((uint32_t[NUMA_PARTS]){0}, NUMA_PARTS);
    if (nodes_here == 0) {
        puts("SKIP: a kernel without NUMA");
        return 77;
    }
    numa_allowed(&node_here, 1);
    snprintf(list_here, sizeof list_here, "%u", node_here);
    snprintf(list_none, sizeof list_none, "%u,255", node_here);
    daemon_start(&d, (const char *[]){"--pool", "32MiB", NULL});
    daemon_stop(&d);
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocked), cmocka_unit_test(not_verified),
                                       cmocka_unit_test(no_such_node), cmocka_unit_test(nothing_asked)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    daemon_end(&d);
    return failed;
}
