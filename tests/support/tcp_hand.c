#include "tests/support/tcp_hand.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct tcp_node *hand_node;

int hand_dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(hand_node->address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (void *)&to, sizeof to), 0);
    return fd;
}

int hand_listen(char *address, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (void *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (void *)&at, &bytes), 0);
    snprintf(address, size, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

void hand_say(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* size bytes, or fewer when the other end closes. */
size_t hand_hear(int fd, void *bytes, size_t size)
{
    size_t got = 0;
    for (int tries = 0; got < size && tries < 2000; tries++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        tcp_nodes_turn((struct tcp_node *[]){hand_node}, 1, 0);
        if (poll(&p, 1, 10) == 1) {
            ssize_t r = recv(fd, (uint8_t *)bytes + got, size - got, 0);
            if (r <= 0) {
                break;
            }
            got += (size_t)r;
        }
    }
    return got;
}

bool hand_is_closed(int fd)
{
    char bytes[4096];
    while (hand_hear(fd, bytes, sizeof bytes) == sizeof bytes) {}
    return recv(fd, bytes, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

void hand_greet(int fd, bool accepting, int lane, const uint8_t *token)
{
    uint8_t bytes[GREETING_BYTES];
    struct greeting g = {.accepting = accepting, .lane = (uint8_t)lane};
    if (token) {
        memcpy(g.token, token, TOKEN_BYTES);
    }
    greeting_encode(bytes, &g);
    hand_say(fd, bytes, sizeof bytes);
}

void hand_hear_greeting(int fd, struct greeting *g)
{
    uint8_t bytes[GREETING_BYTES];
    assert_int_equal(hand_hear(fd, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(greeting_decode(bytes, g), 0);
}

void hand_connect(struct hand *h)
{
    struct greeting g;
    h->control = hand_dial();
    hand_greet(h->control, false, LANE_CONTROL, NULL);
    hand_hear_greeting(h->control, &g);
    assert_int_equal(g.accepting, 1);
    h->bulk = hand_dial();
    hand_greet(h->bulk, false, LANE_BULK, g.token);
    hand_hear_greeting(h->bulk, &g);
    assert_int_equal(g.lane, LANE_BULK);
    assert_int_equal(hand_node->accepted, 1);
}

static bool has_pending(void *fd)
{
    struct pollfd p = {.fd = *(int *)fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

int hand_accept(int l)
{
    tcp_nodes_until((struct tcp_node *[]){hand_node}, 1, has_pending, &l);
    int fd = accept(l, NULL, NULL);
    assert_true(fd >= 0);
    return fd;
}

bool hand_settled(void *unused)
{
    (void)unused;
    return hand_node->connected + hand_node->failed > 0;
}

/* The node connects to us. */
void hand_be_connected(struct hand *h)
{
    static const uint8_t token[TOKEN_BYTES] = "tttttttttttttttt";
    char address[64];
    struct greeting g;
    struct connection *c;
    int l = hand_listen(address, sizeof address);
    assert_int_equal(tcp_transport.connect(hand_node->ctx, address, NULL, &c, hand_node->why, sizeof hand_node->why),
                     0);
    h->control = hand_accept(l);
    hand_hear_greeting(h->control, &g);
    hand_greet(h->control, true, LANE_CONTROL, token);
    h->bulk = hand_accept(l);
    hand_hear_greeting(h->bulk, &g);
    assert_memory_equal(g.token, token, sizeof token);
    hand_greet(h->bulk, true, LANE_BULK, token);
    tcp_nodes_until((struct tcp_node *[]){hand_node}, 1, hand_settled, NULL);
    assert_int_equal(hand_node->connected, 1);
    close(l);
}

void hand_hang_up(struct hand *h)
{
    close(h->control);
    close(h->bulk);
    tcp_node_close(hand_node);
}

void hand_say_frame(int fd, const struct frame *f)
{
    uint8_t head[FRAME_BYTES];
    frame_encode(head, f);
    hand_say(fd, head, sizeof head);
}
