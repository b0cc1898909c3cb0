/* test_sessions.c: sessions that go on, break, stop reading, end; the socket and the files that belong to them. */
#include "tests/support/hand.h"

#include "store/berth.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void sessions_are_resumed_by_their_own_only(void **unused)
{
    (void)unused;
    struct hand h, again;
    hand_attach(&h);
    uint64_t session = h.welcome.session;
    /* The mapping keeps the lock, as a client's does. */
    void *pins = mmap(NULL, sizeof(struct pins_file), PROT_READ | PROT_WRITE, MAP_SHARED, h.got[4], 0);
    assert_ptr_not_equal(pins, MAP_FAILED);

    hand_open(&again);
    again.hello.session = session;
    memcpy(again.hello.uuid, h.welcome.uuid, 16);
    hand_refused(&again, -EBUSY); /* connected already */
    hand_works(&h, 1);

    hand_open(&again);
    again.hello.session = session;
    memset(again.hello.uuid, 0x5a, 16);
    hand_refused(&again, BERTH_ERESTART); /* another pool */

    hand_open(&again);
    again.hello.session = session + 1000000;
    memcpy(again.hello.uuid, h.welcome.uuid, 16);
    hand_refused(&again, BERTH_ERESTART); /* no such session */

    uint8_t uuid[16];
    memcpy(uuid, h.welcome.uuid, 16);
    hand_close(&h);
    hand_open(&again);
    again.hello.session = session;
    memcpy(again.hello.uuid, uuid, 16);
    hand_send(&again);
    hand_receive(&again);
    assert_int_equal(again.welcome.status, 0);
    assert_true(again.welcome.session == session);
    assert_int_equal(again.welcome.flags, ATTACH_RESUMED);
    hand_works(&again, 2);
    hand_close(&again);
    munmap(pins, sizeof(struct pins_file));
}

static uint64_t sessions_now(void)
{
    static char reply[RING_MESSAGE_MAX];
    struct hand h;
    struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_METRICS};
    hand_attach(&h);
    hand_ask(&h, 1, &q, sizeof(q), reply);
    const char *at = strstr(reply + sizeof(struct msg_reply), "\nberth_sessions ");
    assert_non_null(at);
    hand_close(&h);
    return strtoull(at + 16, NULL, 10);
}

static void a_broken_ring_ends_only_its_own_connection(void **unused)
{
    (void)unused;
    struct hand h;
    char byte;
    hand_attach(&h);
    hand_works(&h, 1);
    atomic_fetch_add(&h.ring->request_tail, 63);
    uint64_t one = 1;
    assert_int_equal(write(h.got[5], &one, sizeof(one)), sizeof(one));
    struct pollfd p = {.fd = h.socket, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(recv(h.socket, &byte, 1, 0), 0);
    hand_close(&h);
    hand_node_goes_on();
}

static void bad_messages_are_answered(void **unused)
{
    (void)unused;
    static char reply[RING_MESSAGE_MAX];
    const struct msg_reply *r = (const struct msg_reply *)reply;
    struct hand h;
    struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_KINDS};
    struct msg_head unknown = {.op = 999}, later = {.op = MSG_RANGE};
    hand_attach(&h);
    hand_ask(&h, 1, &q, sizeof(q), reply);
    assert_int_equal(r->status, -EINVAL);
    hand_ask(&h, 2, &unknown, sizeof(unknown), reply);
    assert_int_equal(r->status, -EINVAL);
    hand_ask(&h, 3, &later, sizeof(later), reply);
    assert_int_equal(r->status, -EOPNOTSUPP);
    hand_works(&h, 4);
    hand_close(&h);
}

/* A client that does not read its replies is not served any further, nobody else waits for it, and it is served again,
 * without ringing, once it has read.
 */
static void replies_that_are_not_read_hold_back_their_session_only(void **unused)
{
    (void)unused;
    enum { ASKED = 40 };
    static char reply[RING_MESSAGE_MAX];
    struct ring_end out, in;
    struct hand h;
    uint64_t one = 1;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    ring_reply_consumer(&in, h.ring);
    for (uint64_t id = 1; id <= ASKED; id++) {
        struct msg_query q = {.head = {.bytes = sizeof(q), .op = MSG_QUERY, .id = id}, .what = QUERY_METRICS};
        assert_int_equal(ring_push(&out, &q, sizeof(q)), 0);
    }
    assert_int_equal(write(h.got[5], &one, sizeof(one)), sizeof(one));
    hand_node_goes_on();
    hand_node_goes_on();
    assert_true(atomic_load(&h.ring->request_head) < out.mine);
    for (uint64_t id = 1; id <= ASKED; id++) {
        int64_t limit = 20000;
        while (atomic_load(in.tail) == in.mine && limit-- > 0) {
            struct pollfd p = {.fd = h.wake, .events = POLLIN};
            poll(&p, 1, 1);
        }
        assert_true(ring_pop(&in, reply) > (long)sizeof(struct msg_reply));
        assert_true(((struct msg_reply *)reply)->head.id == id);
        assert_int_equal(((struct msg_reply *)reply)->status, 0);
    }
    hand_close(&h);
}

/* Waits for the node to notice, by asking it: no more than 20 s. */
static void wait_sessions(uint64_t wanted)
{
    for (unsigned i = 0; i < 2000 && sessions_now() > wanted; i++) {
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 10);
    }
    assert_true(sessions_now() <= wanted);
}

static void a_client_that_goes_leaves_nothing(void **unused)
{
    (void)unused;
    struct hand h;
    char name[128];
    hand_attach(&h);
    snprintf(name, sizeof(name), "%s/region/clients/%llu", hand_dir, (unsigned long long)h.welcome.session);
    assert_int_equal(access(name, F_OK), 0);
    hand_close(&h);
    wait_sessions(1);
    /* Its slots are kept for the quarantine first. */
    for (unsigned i = 0; i < 2000 && access(name, F_OK) == 0; i++) {
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 10);
    }
    assert_int_equal(access(name, F_OK), -1);
}

static void a_removed_socket_is_made_again(void **unused)
{
    (void)unused;
    struct hand h;
    hand_attach(&h);
    assert_int_equal(unlink(hand_path), 0);
    for (unsigned i = 0; i < 1000 && access(hand_path, F_OK) != 0; i++) {
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 10);
    }
    hand_node_goes_on();
    hand_works(&h, 1);
    hand_close(&h);
}

static void the_socket_has_its_mode_and_a_stale_one_is_replaced(void **unused)
{
    (void)unused;
    struct stat st;
    assert_int_equal(stat(hand_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    hand_node_stop();
    assert_int_equal(access(hand_path, F_OK), -1);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", hand_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    close(fd);
    hand_node_start();
    hand_node_goes_on();
}

static void live_sessions_are_adopted_by_the_next_node(void **unused)
{
    (void)unused;
    struct hand h, again;
    hand_attach(&h);
    void *pins = mmap(NULL, sizeof(struct pins_file), PROT_READ | PROT_WRITE, MAP_SHARED, h.got[4], 0);
    assert_ptr_not_equal(pins, MAP_FAILED);
    uint64_t session = h.welcome.session, incarnation = h.welcome.incarnation;
    uint8_t uuid[16];
    memcpy(uuid, h.welcome.uuid, 16);
    hand_close(&h);
    hand_node_stop();
    hand_node_start();
    hand_open(&again);
    again.hello.session = session;
    memcpy(again.hello.uuid, uuid, 16);
    hand_send(&again);
    hand_receive(&again);
    assert_int_equal(again.welcome.status, 0);
    assert_int_equal(again.welcome.flags, ATTACH_RESUMED);
    assert_int_equal(again.welcome.incarnation, incarnation + 1);
    hand_works(&again, 7);
    struct hand other;
    hand_attach(&other);
    assert_true(other.welcome.session > session); /* ids are never used again */
    hand_close(&other);
    hand_close(&again);
    munmap(pins, sizeof(struct pins_file));
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_are_resumed_by_their_own_only),
        cmocka_unit_test(a_broken_ring_ends_only_its_own_connection),
        cmocka_unit_test(bad_messages_are_answered),
        cmocka_unit_test(replies_that_are_not_read_hold_back_their_session_only),
        cmocka_unit_test(a_client_that_goes_leaves_nothing),
        cmocka_unit_test(a_removed_socket_is_made_again),
        cmocka_unit_test(the_socket_has_its_mode_and_a_stale_one_is_replaced),
        cmocka_unit_test(live_sessions_are_adopted_by_the_next_node),
    };
    return cmocka_run_group_tests(tests, hand_setup, hand_teardown);
}
