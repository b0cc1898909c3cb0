/* test_tcp_look.c: who polls by look alone finds what comes, wherever it comes from; connections within a host. */
#include "tests/support/draw.h"
#include "tests/support/tcp_node.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#define POOL (1u << 20)
#define LOOKS 8 /* what comes from elsewhere is noticed within so many */
#define PATIENCE_MS 20000

static struct tcp_node a, b, c; /* a has both as peers, and reads from b */

static void begin(void)
{
    tcp_node_open(&b, NULL, POOL);
    tcp_node_open(&c, NULL, POOL);
    tcp_node_open(&a, NULL, 0);
    tcp_nodes_pair(&a, &c);
    a.c = NULL; /* the next one is what it reads from */
    tcp_nodes_pair(&a, &b);
}

static void end(void)
{
    tcp_node_close(&a);
    tcp_node_close(&b);
    tcp_node_close(&c);
}

static bool look_and_turn(struct tcp_node *n)
{
    bool found = tcp_transport.look(n->ctx);
    if (found)
        assert_true(tcp_transport.turn(n->ctx) >= 0);
    return found;
}

/* Both sides by look only. */
static void read_by_looking(uint64_t bytes)
{
    struct tcp_job j;
    tcp_job_init(&j, &a, 4096, bytes, 1);
    tcp_job_post(&j);
    time_t end_of = time(NULL) + PATIENCE_MS / 1000;
    while (!tcp_job_done(&j)) {
        look_and_turn(&a);
        look_and_turn(&b);
        assert_true(time(NULL) < end_of);
    }
    assert_true(tcp_job_is_right(&j, b.pool));
    tcp_job_free(&j);
}

static void await(struct tcp_node *n)
{
    struct pollfd p = {.fd = tcp_transport.descriptor(n->ctx), .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

static bool found_soon(struct tcp_node *n)
{
    for (int i = 0; i < LOOKS; i++)
        if (look_and_turn(n))
            return true;
    return false;
}

static void reads(void **unused)
{
    (void)unused;
    begin();
    for (uint64_t bytes = 1; bytes <= POOL / 2; bytes *= 2)
        read_by_looking(bytes);
    end();
}

static void from_another_peer(void **unused)
{
    (void)unused;
    begin();
    read_by_looking(65536); /* a heard from b last */
    int before = a.messages;
    assert_int_equal(tcp_transport.send(c.ctx, c.c, "hello", 5), 0);
    tcp_transport.flush(c.ctx);
    await(&a);
    assert_true(found_soon(&a));
    assert_int_equal(a.messages, before + 1);
    end();
}

static void the_end_of_the_last_peer(void **unused)
{
    (void)unused;
    begin();
    read_by_looking(65536);
    tcp_transport.disconnect(b.ctx, b.c);
    await(&a);
    assert_true(found_soon(&a));
    assert_int_equal(a.closed, 1);
    assert_false(found_soon(&a)); /* nothing is left of it */
    end();
}

/* Both ends of both connections are of this process. */
static void unpaced_on_one_host(void **unused)
{
    (void)unused;
    unsigned ends = 0;
    begin();
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage peer;
        socklen_t n = sizeof peer, size = 16;
        char name[17] = "";
        if (getpeername(fd, (struct sockaddr *)(void *)&peer, &n) != 0 || peer.ss_family != AF_INET)
            continue;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
        assert_true(strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0);
        ends++;
    }
    assert_int_equal(ends, 8);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(from_another_peer),
        cmocka_unit_test(the_end_of_the_last_peer),
        cmocka_unit_test(unpaced_on_one_host),
    };
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
