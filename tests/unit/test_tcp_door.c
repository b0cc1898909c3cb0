/* test_tcp_door.c: addresses, connecting to what is no peer, and strangers at the door of the TCP transport. */
#include "replication/tcp_address.h"
#include "tests/support/draw.h"
#include "tests/support/tcp_hand.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define POOL (1u << 20)
#define MS 1000000LL

static struct tcp_node n;
static struct tcp_node *one[] = {&n};

static struct transport_stats stats(void)
{
    struct transport_stats s;
    tcp_transport.stats(n.ctx, &s);
    return s;
}

/* ---- addresses ---- */

static void addresses(void **unused)
{
    static const char *const good[] = {"127.0.0.1:1", "[::1]:65535", "tcp://10.0.0.1:7000"};
    static const char *const bad[] = {"",
                                      ":",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      ":80",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:0",
                                      "127.0.0.1:1x",
                                      "::1:80",
                                      "[::1]80",
                                      "[::1:80",
                                      "[]:80",
                                      "0.0.0.0:80",
                                      "[::]:80",
                                      "[::ffff:0.0.0.0]:80",
                                      "tcp://0.0.0.0:80",
                                      "localhost:80",
                                      "udp://127.0.0.1:80",
                                      "127.0.0.1:999999999999"};
    struct connection *c;
    union tcp_address at;
    char why[TRANSPORT_WHY_MAX], text[TRANSPORT_ADDRESS_MAX];
    (void)unused;
    tcp_node_open(&n, NULL, 0);
    assert_int_equal(tcp_transport.address(n.ctx, text, sizeof text), 0);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tcp_address_parse(good[i], TCP_USE_DIGITS, &at, why, sizeof why), 0);
        assert_int_equal(tcp_address_is_loopback(&at), i < 2);
        assert_int_equal(tcp_address_print(&at, text, sizeof text), 0);
        assert_string_equal(text, good[i] + (strncmp(good[i], "tcp://", 6) == 0 ? 6 : 0));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why[0] = '\0';
        if (tcp_transport.connect(n.ctx, bad[i], NULL, &c, why, sizeof why) != -EINVAL || !strstr(why, bad[i])) {
            fail_msg("'%s' as a peer: '%s'", bad[i], why);
        }
    }
    assert_int_equal(tcp_transport.resolve("localhost:80", text, sizeof text, why, sizeof why), 0);
    assert_true(strcmp(text, "127.0.0.1:80") == 0 || strcmp(text, "[::1]:80") == 0);
    assert_int_equal(tcp_transport.resolve("0.0.0.0:80", text, sizeof text, why, sizeof why), -EINVAL);
    tcp_node_close(&n);
}

static void listening(void **unused)
{
    static const struct {
        const char *address;
        int error;
        const char *says;
    } wrong[] = {
        {"0.0.0.0:0", -EINVAL, "every address"},
        {"[::]:0", -EINVAL, "every address"},
        {"192.0.2.1:7000", -EADDRNOTAVAIL, "no interface"},
        {"no-such-host.invalid:7000", -EHOSTUNREACH, "cannot find 'no-such-host.invalid'"},
        {"127.0.0.1", -EINVAL, "HOST:PORT"},
    };
    struct transport_events events;
    char why[TRANSPORT_WHY_MAX], text[TRANSPORT_ADDRESS_MAX];
    void *ctx;
    (void)unused;
    memset(&events, 0, sizeof events);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct transport_config c = {.listen = wrong[i].address};
        int e = tcp_transport.open(&ctx, &c, &events, NULL, why, sizeof why);
        if (e != wrong[i].error || !strstr(why, wrong[i].says) || !strstr(why, wrong[i].address)) {
            fail_msg("listening on '%s': %d, '%s'", wrong[i].address, e, why);
        }
    }
    tcp_node_open(&n, NULL, POOL);
    struct transport_config taken = {.listen = n.address};
    assert_int_equal(tcp_transport.open(&ctx, &taken, &events, NULL, why, sizeof why), -EADDRINUSE);
    assert_non_null(strstr(why, n.address));
    tcp_node_close(&n);
    struct transport_config any = {.listen = "0.0.0.0:0", .any_address = true}, lo = {.listen = "lo:0"};
    tcp_node_open(&n, &any, 0);
    assert_true(tcp_transport.address(n.ctx, text, sizeof text) > 0);
    assert_string_equal(text, ""); /* never handed out */
    tcp_node_close(&n);
    tcp_node_open(&n, &lo, 0);
    assert_true(tcp_transport.address(n.ctx, text, sizeof text) > 0);
    assert_memory_equal(text, "127.0.0.1:", 10);
    tcp_node_close(&n);
    struct transport_config small_window = {.window = 1000};
    assert_int_equal(tcp_transport.open(&ctx, &small_window, &events, NULL, why, sizeof why), -EINVAL);
}

/* ---- connecting to what is no peer ---- */

static void connect_to(const char *address, int status, const char *says)
{
    struct connection *c;
    int e = tcp_transport.connect(n.ctx, address, NULL, &c, n.why, sizeof n.why);
    if (e == 0) {
        tcp_nodes_until(one, 1, hand_settled, NULL);
        e = n.status;
    }
    if (e != status || !strstr(n.why, address) || !strstr(n.why, says)) {
        fail_msg("connecting to '%s': %d, '%s'", address, e, n.why);
    }
    assert_int_equal(n.connected, 0);
    n.failed = 0;
}

static const struct transport_config hasty = {.connect_timeout_ns = 150 * MS};

static void nobody_there(void **unused)
{
    char address[64];
    (void)unused;
    tcp_node_open(&n, &hasty, 0);
    int l = hand_listen(address, sizeof address);
    connect_to(address, -ETIMEDOUT, "no answer within 150 ms"); /* the kernel accepts, nobody greets */
    close(l);
    connect_to(address, -ECONNREFUSED, "refused");
    assert_int_equal(stats().connect_errors, 2);
    assert_int_equal(stats().connections, 0);
    tcp_node_close(&n);
}

static void no_answer_from_afar(void **unused)
{
    struct connection *c;
    (void)unused;
    tcp_node_open(&n, &hasty, 0);
    int e = tcp_transport.connect(n.ctx, "192.0.2.1:7000", NULL, &c, n.why, sizeof n.why);
    if (e == 0) {
        tcp_nodes_until(one, 1, hand_settled, NULL);
        assert_int_equal(n.failed, 1);
        assert_true(n.status == -ETIMEDOUT || n.status == -EHOSTUNREACH || n.status == -ENETUNREACH ||
                    n.status == -ECONNREFUSED);
    } else {
        assert_int_equal(e, -ENETUNREACH); /* a machine without a route */
    }
    printf("%s\n", n.why);
    assert_non_null(strstr(n.why, "'192.0.2.1:7000'"));
    tcp_node_close(&n);
}

static void answered_by(const void *bytes, size_t size, bool hangs_up, int status, const char *says)
{
    char address[64];
    struct connection *c;
    tcp_node_open(&n, &hasty, 0);
    int l = hand_listen(address, sizeof address);
    assert_int_equal(tcp_transport.connect(n.ctx, address, NULL, &c, n.why, sizeof n.why), 0);
    int fd = hand_accept(l);
    if (size) {
        hand_say(fd, bytes, size);
    }
    if (hangs_up) {
        close(fd);
    }
    tcp_nodes_until(one, 1, hand_settled, NULL);
    assert_int_equal(n.status, status);
    if (!strstr(n.why, says) || !strstr(n.why, address)) {
        fail_msg("'%s'", n.why);
    }
    if (!hangs_up) {
        close(fd);
    }
    close(l);
    tcp_node_close(&n);
}

static void not_berth(void **unused)
{
    uint8_t bytes[GREETING_BYTES];
    (void)unused;
    answered_by("HTTP/1.1 400", 12, false, -EPROTO, "not Berth");
    answered_by("x", 1, false, -EPROTO, "not Berth");
    answered_by("BERTHts1", 8, false, -ETIMEDOUT, "no answer");
    answered_by("", 0, true, -EPROTO, "closed");
    greeting_encode(bytes, &(struct greeting){.accepting = 0}); /* our own greeting, reflected */
    answered_by(bytes, sizeof bytes, false, -EPROTO, "not Berth");
    greeting_encode(bytes, &(struct greeting){.accepting = 1, .lane = LANE_BULK});
    answered_by(bytes, sizeof bytes, false, -EPROTO, "greet");
}

/* ---- strangers ---- */

static void garbage(void **unused)
{
    static const char *const firsts[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "B\n", "BERTHts1",
                                         "SSH-2.0-x\r\n",          "BERTHtc2"};
    uint8_t bytes[GREETING_BYTES];
    uint8_t wrong_token[TOKEN_BYTES] = "nobody's";
    (void)unused;
    tcp_node_open(&n, NULL, POOL);
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        int fd = hand_dial();
        hand_say(fd, firsts[i], strlen(firsts[i]));
        assert_true(hand_is_closed(fd));
        assert_int_equal(stats().strangers, i + 1);
        close(fd);
    }
    for (int i = 0; i < 4; i++) {
        int fd = hand_dial();
        greeting_encode(bytes, &(struct greeting){.lane = LANE_CONTROL});
        if (i == 0) {
            bytes[8] = 2; /* no such lane */
        } else if (i == 1) {
            bytes[12] = 1; /* what must be 0 */
        } else {
            bytes[8] = i == 2 ? LANE_BULK : LANE_CONTROL; /* a token that nobody drew, or one too early */
            memcpy(bytes + 16, wrong_token, sizeof wrong_token);
        }
        hand_say(fd, bytes, sizeof bytes);
        assert_true(hand_is_closed(fd));
        close(fd);
    }
    assert_int_equal(stats().strangers, 10);
    assert_int_equal(n.accepted + n.closed, 0);
    tcp_node_close(&n);
}

/* Those who say nothing, or half, are sent away in time; a pair whose second half never comes, too. */
static void slow(void **unused)
{
    struct greeting g;
    (void)unused;
    tcp_node_open(&n, &hasty, POOL);
    int silent = hand_dial(), half = hand_dial(), first = hand_dial(), gone = hand_dial();
    hand_say(half, "BERTHtc1\0", 9);
    hand_greet(first, false, LANE_CONTROL, NULL);
    hand_hear_greeting(first, &g);
    hand_greet(gone, false, LANE_CONTROL, NULL);
    hand_hear_greeting(gone, &g);
    close(gone);
    assert_true(hand_is_closed(silent));
    assert_true(hand_is_closed(half));
    assert_true(hand_is_closed(first));
    assert_int_equal(stats().strangers, 4);
    /* The token died with its pair. */
    int late = hand_dial();
    hand_greet(late, false, LANE_BULK, g.token);
    assert_true(hand_is_closed(late));
    close(silent), close(half), close(first), close(late);
    assert_int_equal(n.accepted + n.closed, 0);
    tcp_node_close(&n);
}

static void crowd(void **unused)
{
    enum { N = 100 };
    int fd[N];
    struct hand h;
    (void)unused;
    tcp_node_open(&n, &(struct transport_config){.unfinished = 8}, POOL);
    for (int i = 0; i < N; i++) {
        struct greeting g;
        fd[i] = hand_dial();
        if (i % 2) {
            hand_greet(fd[i], false, LANE_CONTROL, NULL);
            hand_hear_greeting(fd[i], &g);
        } else {
            tcp_nodes_turn(one, 1, 1000);
        }
    }
    assert_true(stats().crowded_out >= N - 8);
    hand_connect(&h); /* who is honest gets in */
    for (int i = 0; i < N; i++) {
        close(fd[i]);
    }
    hand_hang_up(&h);
}

/* One pair per token, and only for its token. */
static void token_once(void **unused)
{
    struct greeting g;
    (void)unused;
    tcp_node_open(&n, NULL, POOL);
    int control = hand_dial(), bulk = hand_dial(), thief = hand_dial();
    hand_greet(control, false, LANE_CONTROL, NULL);
    hand_hear_greeting(control, &g);
    uint8_t wrong[TOKEN_BYTES];
    memcpy(wrong, g.token, sizeof wrong);
    wrong[TOKEN_BYTES - 1] ^= 1;
    int guess = hand_dial();
    hand_greet(guess, false, LANE_BULK, wrong);
    assert_true(hand_is_closed(guess));
    close(guess);
    hand_greet(bulk, false, LANE_BULK, g.token);
    hand_hear_greeting(bulk, &g);
    hand_greet(thief, false, LANE_BULK, g.token);
    assert_true(hand_is_closed(thief));
    assert_int_equal(n.accepted, 1);
    assert_int_equal(n.closed, 0);
    close(control), close(bulk), close(thief);
    tcp_node_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),    cmocka_unit_test(listening),
        cmocka_unit_test(nobody_there), cmocka_unit_test(no_answer_from_afar),
        cmocka_unit_test(not_berth),    cmocka_unit_test(garbage),
        cmocka_unit_test(slow),         cmocka_unit_test(crowd),
        cmocka_unit_test(token_once),
    };
    hand_node = &n;
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
