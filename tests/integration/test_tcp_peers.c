/* test_tcp_peers.c: the TCP transport between processes: peers that die, stop, or fall silent. */
#include "tests/support/child.h"
#include "tests/support/draw.h"
#include "tests/support/tcp_node.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define POOL (16u * MIB)
#define SECOND 1000000000LL

static struct tcp_node a, b;
static struct tcp_node *reader[] = {&a}, *owner[] = {&b};
static char address[TRANSPORT_ADDRESS_MAX]; /* of the owner */
static const struct transport_config quick = {.silence_ns = SECOND};

static bool never(void *unused)
{
    (void)unused;
    return false;
}

static bool has_peer(void *node)
{
    struct tcp_node *n = node;
    return n->c || n->failed;
}

static bool was_closed(void *node)
{
    return ((struct tcp_node *)node)->closed > 0;
}

static bool has_some(void *job)
{
    return ((struct tcp_job *)job)->t.received > 0;
}

static bool has_admitted(void *node)
{
    return ((struct tcp_node *)node)->admitted > 0;
}

static void reach(void)
{
    struct connection *c;
    CHECK(tcp_transport.connect(a.ctx, address, NULL, &c, a.why, sizeof a.why) == 0);
    tcp_nodes_until(reader, 1, has_peer, &a);
    CHECK(a.c);
}

/* ---- the owner is another process ---- */

static int own(void *unused)
{
    (void)unused;
    child_tell('r');
    for (;;) {
        tcp_nodes_turn(owner, 1, 1000);
    }
    return 0;
}

static void start_owner(struct child *c)
{
    tcp_node_open(&b, &quick, POOL);
    memcpy(address, b.address, sizeof address);
    child_start(c, own, NULL);
    assert_int_equal(parent_hear(c, 10000), 'r');
}

static void owner_is_killed(void **unused)
{
    struct child c;
    struct tcp_job j, small;
    (void)unused;
    start_owner(&c);
    tcp_node_open(&a, NULL, 0);
    reach();
    tcp_job_init(&j, &a, 0, POOL, 1);
    tcp_job_init(&small, &a, 0, 100, 1);
    tcp_job_post(&j);
    tcp_nodes_until(reader, 1, has_some, &j);
    assert_int_equal(kill(c.pid, SIGSTOP), 0);
    tcp_job_post(&small);
    assert_int_equal(kill(c.pid, SIGKILL), 0);
    tcp_nodes_until(reader, 1, tcp_job_done, &j);
    assert_int_equal(j.t.status, -ECONNRESET);
    assert_int_equal(small.t.status, -ECONNRESET);
    tcp_nodes_until(reader, 1, was_closed, &a);
    assert_null(a.c);
    child_wait(&c);
    tcp_job_free(&j), tcp_job_free(&small);
    tcp_node_close(&a);
    tcp_node_close(&b);
}

/* Reads of all sizes and shapes, each compared. */
static void many_reads(void **unused)
{
    enum { N = 40 };
    struct child c;
    struct tcp_job j[N];
    (void)unused;
    start_owner(&c);
    tcp_node_open(&a, NULL, 0);
    reach();
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < N; i++) {
            uint64_t bytes = 1 + draw_below(draw_below(4) ? 70000 : 4 * MIB);
            tcp_job_init(&j[i], &a, draw_below(POOL - (uint32_t)bytes), bytes, 1 + draw_below(8));
            j[i].cancel_at = draw_below(8) ? 0 : 1 + draw_below((uint32_t)bytes);
            tcp_job_post(&j[i]);
        }
        for (int i = 0; i < N; i++) {
            tcp_nodes_until(reader, 1, tcp_job_done, &j[i]);
            assert_true(j[i].cancel_at ? j[i].t.status == -ECANCELED : tcp_job_is_right(&j[i], b.pool));
            tcp_job_free(&j[i]);
        }
    }
    tcp_node_close(&a);
    child_kill(&c);
    tcp_node_close(&b);
}

/* ---- the reader is another process ---- */

static int read_all(void *large)
{
    struct tcp_job j;
    tcp_node_open(&a, large ? &(struct transport_config){.socket_buffer = 65536} : NULL, 0);
    reach();
    tcp_job_init(&j, &a, 0, POOL, 1);
    tcp_job_post(&j);
    tcp_nodes_until(reader, 1, has_some, &j);
    child_tell('s');
    tcp_nodes_until(reader, 1, never, NULL);
    return 0;
}

static void reader_is_killed(void **unused)
{
    struct child c;
    (void)unused;
    tcp_node_open(&b, NULL, POOL);
    memcpy(address, b.address, sizeof address);
    child_start(&c, read_all, NULL);
    tcp_nodes_until(owner, 1, has_admitted, &b);
    child_kill(&c);
    tcp_nodes_until(owner, 1, was_closed, &b);
    assert_int_equal(b.served, b.admitted);
    assert_null(b.c);
    tcp_node_close(&b);
}

/* A reader that takes nothing more: its kernel answers, its window is closed. */
static void reader_stops_reading(void **unused)
{
    struct child c;
    (void)unused;
    tcp_node_open(&b, &(struct transport_config){.silence_ns = SECOND, .socket_buffer = 65536}, POOL);
    memcpy(address, b.address, sizeof address);
    child_start(&c, read_all, &b);
    tcp_nodes_until(owner, 1, has_admitted, &b);
    assert_int_equal(kill(c.pid, SIGSTOP), 0);
    tcp_nodes_until(owner, 1, was_closed, &b);
    assert_int_equal(b.served, b.admitted);
    child_kill(&c);
    tcp_node_close(&b);
}

/* A forked child has copies of every socket: a fence holds all the same. */
static int keep(void *unused)
{
    (void)unused;
    child_hear();
    return 0;
}

static void fence_with_copies(void **unused)
{
    struct child c;
    struct tcp_node *both[] = {&a, &b};
    struct tcp_job j;
    (void)unused;
    tcp_node_open(&b, NULL, POOL);
    tcp_node_open(&a, NULL, 0);
    tcp_nodes_pair(&a, &b);
    tcp_job_init(&j, &a, 0, POOL, 1);
    tcp_job_post(&j);
    tcp_nodes_until(both, 2, has_some, &j);
    child_start(&c, keep, NULL);
    tcp_transport.disconnect(b.ctx, b.c);
    tcp_nodes_until(reader, 1, tcp_job_done, &j);
    assert_int_equal(j.t.status, -ECONNRESET);
    assert_true(j.t.received < POOL);
    parent_tell(&c, 'e');
    assert_int_equal(child_wait(&c), 0);
    tcp_job_free(&j);
    tcp_node_close(&a);
    tcp_node_close(&b);
}

/* ---- silence on the wire ---- */

static int in_namespace(void *unused)
{
    (void)unused;
    if (unshare(CLONE_NEWNET) != 0) {
        child_tell('n');
        return 0;
    }
    child_tell('u');
    CHECK(child_hear() == 'g');
    CHECK(system("ip link set lo up && ip addr add 10.77.0.2/24 dev vb && ip link set vb up") == 0);
    tcp_node_open(&b, &(struct transport_config){.listen = "10.77.0.2:7077", .silence_ns = SECOND}, POOL);
    child_tell('l');
    tcp_nodes_until(owner, 1, has_peer, &b);
    tcp_nodes_until(owner, 1, was_closed, &b);
    CHECK(b.served == b.admitted);
    child_tell('c');
    return 0;
}

/* The reader's namespace: ours is left as it is. */
static int reads_through_veth(void *other)
{
    pid_t pid = ((struct child *)other)->pid;
    char command[200];
    CHECK(unshare(CLONE_NEWNET) == 0);
    snprintf(command, sizeof command,
             "ip link add va type veth peer name vb netns %d && ip addr add 10.77.0.1/24 dev va && "
             "ip link set va up",
             (int)pid);
    if (system(command) != 0) {
        child_tell('n');
        return 0;
    }
    child_tell('v');
    CHECK(child_hear() == 'g');
    struct tcp_job j;
    tcp_node_open(&a, &quick, 0);
    snprintf(address, sizeof address, "10.77.0.2:7077");
    reach();
    tcp_job_init(&j, &a, 0, POOL, 1);
    tcp_job_post(&j);
    tcp_nodes_until(reader, 1, has_some, &j);
    CHECK(system("ip link set va down") == 0); /* packets vanish, nobody is told */
    tcp_nodes_until(reader, 1, was_closed, &a);
    CHECK(j.completions == 1 && j.t.status == -ECONNRESET);
    child_tell('c');
    return 0;
}

static void silent_wire(void **unused)
{
    struct child o, r;
    (void)unused;
    if (geteuid() != 0) {
        printf("SKIP: needs root to make a network namespace\n");
        skip();
    }
    child_start(&o, in_namespace, NULL);
    if (parent_hear(&o, 10000) != 'u') {
        child_kill(&o);
        printf("SKIP: needs root to make a network namespace\n");
        skip();
    }
    child_start(&r, reads_through_veth, &o);
    if (parent_hear(&r, 10000) != 'v') {
        child_kill(&o);
        child_kill(&r);
        printf("SKIP: needs root to make a network namespace\n");
        skip();
    }
    parent_tell(&o, 'g');
    assert_int_equal(parent_hear(&o, 10000), 'l');
    parent_tell(&r, 'g');
    assert_int_equal(parent_hear(&r, 20000), 'c');
    assert_int_equal(parent_hear(&o, 20000), 'c');
    assert_int_equal(child_wait(&o), 0);
    assert_int_equal(child_wait(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owner_is_killed),      cmocka_unit_test(many_reads),  cmocka_unit_test(reader_is_killed),
        cmocka_unit_test(reader_stops_reading), cmocka_unit_test(silent_wire), cmocka_unit_test(fence_with_copies),
    };
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
