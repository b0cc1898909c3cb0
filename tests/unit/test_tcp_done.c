/* test_tcp_done.c: the word that a transfer is done, where it may wait for other output: it comes with the next request
 * at the latest, that of the last one by itself, and before a message that is sent later.
 */
#include "tests/support/tcp_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define POOL (1u << 20)

static struct tcp_node a, b; /* a reads, b owns */
static struct tcp_node *both[] = {&a, &b};

static void begin(void)
{
    static const struct transport_config patient = {.done_ns = 10000000, .flushed = true};
    tcp_node_open(&b, NULL, POOL);
    tcp_node_open(&a, &patient, 0);
    tcp_nodes_pair(&a, &b);
}

static void end(void)
{
    tcp_node_close(&a);
    tcp_node_close(&b);
}

static void read_one(uint64_t bytes)
{
    struct tcp_job j;
    tcp_job_init(&j, &a, 4096, bytes, 1);
    tcp_job_post(&j);
    tcp_transport.flush(a.ctx);
    tcp_nodes_until(both, 2, tcp_job_done, &j);
    assert_true(tcp_job_is_right(&j, b.pool));
    tcp_job_free(&j);
}

static bool all_served(void *unused)
{
    (void)unused;
    return b.served == b.admitted;
}

static bool message_came(void *unused)
{
    (void)unused;
    return b.messages == 1;
}

static void comes_with_the_next(void **unused)
{
    (void)unused;
    begin();
    for (int i = 0; i < 4; i++) {
        read_one(i % 2 ? 100000 : 1000); /* on both lanes */
        assert_true(b.served >= i);
    }
    tcp_nodes_until(both, 2, all_served, NULL);
    assert_int_equal(b.served, 4);
    assert_int_equal(b.served_errors, 0);
    end();
}

static void comes_before_a_message(void **unused)
{
    (void)unused;
    begin();
    read_one(200000);
    assert_int_equal(tcp_transport.send(a.ctx, a.c, "good-bye", 8), 0);
    tcp_transport.flush(a.ctx);
    tcp_nodes_until(both, 2, message_came, NULL);
    assert_int_equal(b.served, 1);
    end();
}

static void bad_times(void **unused)
{
    static const int64_t bad[] = {-1, 10000001};
    char why[TRANSPORT_WHY_MAX];
    void *ctx;
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct transport_config config = {.done_ns = bad[i]};
        static const struct transport_events none;
        assert_true(tcp_transport.open(&ctx, &config, &none, NULL, why, sizeof why) < 0);
        assert_non_null(strstr(why, "DONE"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_with_the_next),
        cmocka_unit_test(comes_before_a_message),
        cmocka_unit_test(bad_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
