/* test_attach.c: the handshake on the Unix socket, said well and badly by hand. Whatever a client says, the daemon answers it
 * with a sentence or not at all, and goes on serving the others.
 */
#include "store/attach.h"
#include "store/berth.h"
#include "store/map.h"
#include "store/msg.h"
#include "store/ring.h"
#include "store/shell/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static char path[108];
static struct server *server;
static pthread_t thread;

/* ---- a daemon on a thread ---- */

static void *serve(void *arg)
{
    return (void *)(intptr_t)server_run(arg);
}

static void set(struct settings *s, const char *name, const char *value)
{
    char why[256] = "";
    if (settings_set(s, name, value, ORIGIN_FLAG, "test", why, sizeof(why)) != 0)
        fail_msg("%s=%s: %s", name, value, why);
}

static void start(void)
{
    static struct settings s;
    char region[128], why[512] = "";
    snprintf(region, sizeof(region), "%s/region", dir);
    settings_init(&s);
    set(&s, "region", region);
    set(&s, "socket", path);
    set(&s, "pool", "8MiB");
    set(&s, "lock", "off");
    assert_int_equal(settings_finish(&s, why, sizeof(why)), 0);
    if (server_create(&server, &s, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
}

static void stop(void)
{
    void *status;
    server_stop(server);
    pthread_join(thread, &status);
    server_destroy(server);
    assert_int_equal((intptr_t)status, 0);
}

static int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(name);
}

static int group_setup(void **unused)
{
    (void)unused;
    snprintf(dir, sizeof(dir), "/dev/shm/berth-attach-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/sock", dir);
    start();
    return 0;
}

static int group_teardown(void **unused)
{
    (void)unused;
    stop();
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* ---- a client by hand ---- */

struct hand {
    int socket;
    struct attach_hello hello;
    size_t bytes; /* of hello that are sent */
    int fds[8];
    unsigned n_fds;
    struct ring_shared *ring;
    int wake;
    struct attach_welcome welcome;
    int got[ATTACH_WELCOME_FDS];
    unsigned n_got;
};

static int ring_file(unsigned seals, size_t bytes)
{
    int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static int connect_hand(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* A hello that is right in everything; a test then spoils one thing. */
static void hand_open(struct hand *h)
{
    memset(h, 0, sizeof(*h));
    h->socket = connect_hand();
    h->hello = (struct attach_hello){
        .magic = ATTACH_MAGIC, .format = LAYOUT_FORMAT, .fingerprint = LAYOUT_FINGERPRINT, .name = "by hand"};
    h->bytes = sizeof(h->hello);
    h->fds[0] = ring_file(F_SEAL_SHRINK | F_SEAL_GROW, sizeof(struct ring_shared));
    h->fds[1] = h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->fds[2] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    h->n_fds = 3;
    h->ring = map_shared(h->fds[0], sizeof(struct ring_shared), PROT_READ | PROT_WRITE);
    assert_non_null(h->ring);
    h->ring->magic = RING_MAGIC;
    h->ring->format = LAYOUT_FORMAT;
    h->ring->fingerprint = LAYOUT_FINGERPRINT;
}

static void hand_close(struct hand *h)
{
    for (unsigned i = 0; i < h->n_got; i++)
        close(h->got[i]);
    for (unsigned i = 0; i < 3; i++)
        close(h->fds[i]);
    unmap_shared(h->ring, sizeof(struct ring_shared));
    if (h->socket >= 0)
        close(h->socket);
}

static void hand_send(struct hand *h)
{
    union {
        char bytes[CMSG_SPACE(sizeof(h->fds))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {.iov_base = &h->hello, .iov_len = h->bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (h->n_fds) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(h->n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(h->n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), h->fds, h->n_fds * sizeof(int));
    }
    assert_int_equal(sendmsg(h->socket, &m, MSG_NOSIGNAL), h->bytes);
}

static void hand_receive(struct hand *h)
{
    union {
        char bytes[CMSG_SPACE(sizeof(h->got))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &h->welcome, .iov_len = sizeof(h->welcome)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct pollfd p = {.fd = h->socket, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(recvmsg(h->socket, &m, MSG_CMSG_CLOEXEC), sizeof(h->welcome));
    assert_int_equal(m.msg_flags & MSG_CTRUNC, 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    h->n_got = c ? (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    if (c)
        memcpy(h->got, CMSG_DATA(c), h->n_got * sizeof(int));
    assert_true(h->welcome.magic == ATTACH_MAGIC);
}

static void hand_attach(struct hand *h)
{
    hand_open(h);
    hand_send(h);
    hand_receive(h);
    if (h->welcome.status)
        fail_msg("refused: %s", h->welcome.sentence);
    assert_int_equal(h->n_got, ATTACH_WELCOME_FDS);
}

/* Refused with this error and a sentence, no descriptors, and the connection ends. */
static void hand_refused(struct hand *h, int status)
{
    char byte;
    hand_send(h);
    hand_receive(h);
    if (h->welcome.status != status)
        fail_msg("status %d (%s) instead of %d", h->welcome.status, h->welcome.sentence, status);
    assert_int_equal(h->n_got, 0);
    assert_true(strlen(h->welcome.sentence) > 10);
    assert_int_equal(recv(h->socket, &byte, 1, 0), 0);
    hand_close(h);
}

/* One request without a body and its reply, through the ring. */
static int hand_ask(struct hand *h, uint64_t id, void *message, uint32_t bytes, void *reply)
{
    struct ring_end out, in;
    struct msg_head *m = message;
    ring_request_producer(&out, h->ring);
    ring_reply_consumer(&in, h->ring);
    m->bytes = bytes;
    m->id = id;
    assert_int_equal(ring_push(&out, m, bytes), 0);
    atomic_store(&h->ring->client_sleeping, 1);
    uint64_t one = 1;
    if (atomic_load(&h->ring->node_sleeping))
        assert_int_equal(write(h->got[5], &one, sizeof(one)), sizeof(one));
    struct pollfd p = {.fd = h->wake, .events = POLLIN};
    while (atomic_load(in.tail) == in.mine)
        assert_int_equal(poll(&p, 1, 20000), 1);
    return (int)ring_pop(&in, reply);
}

static void hand_works(struct hand *h, uint64_t id)
{
    static char reply[RING_MESSAGE_MAX];
    struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_METRICS};
    int n = hand_ask(h, id, &q, sizeof(q), reply);
    const struct msg_reply *r = (const struct msg_reply *)reply;
    assert_true(n > (int)sizeof(*r));
    assert_int_equal(r->status, 0);
    assert_true(r->head.id == id);
    assert_non_null(strstr(reply + sizeof(*r), "berth_sessions "));
}

static void daemon_goes_on(void)
{
    struct hand h;
    hand_attach(&h);
    hand_works(&h, 1);
    hand_close(&h);
}

/* ---- tests ---- */

static void a_right_hello_is_welcome(void **unused)
{
    (void)unused;
    struct hand h;
    struct stat st;
    hand_attach(&h);
    assert_true(h.welcome.session > 0);
    assert_int_equal(h.welcome.pool_bytes, 8u << 20);
    assert_int_equal(h.welcome.pin_entries, PINS_SEGMENT);
    assert_int_equal(h.welcome.flags, 0);
    assert_int_equal(fstat(h.got[4], &st), 0);
    assert_int_equal(st.st_size, sizeof(struct pins_file));
    /* Pool and pins may be written, the node's own files may not. */
    const int writable[] = {1, 0, 0, 0, 1};
    for (unsigned i = 0; i < 5; i++) {
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h.got[i], 0);
        assert_int_equal(map != MAP_FAILED, writable[i]);
        if (map != MAP_FAILED)
            munmap(map, 4096);
    }
    hand_works(&h, 1);
    hand_works(&h, 2);
    hand_close(&h);
}

static void a_reader_gets_no_writable_pool(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.hello.flags = ATTACH_READER;
    hand_send(&h);
    hand_receive(&h);
    assert_int_equal(h.welcome.status, 0);
    assert_int_equal(h.welcome.flags, ATTACH_READER);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h.got[0], 0), MAP_FAILED);
    hand_close(&h);
}

static void wrong_words_are_refused(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.hello.magic++;
    hand_refused(&h, -EPROTO);
    hand_open(&h);
    h.bytes = 5;
    hand_refused(&h, -EPROTO);
    hand_open(&h);
    h.bytes = sizeof(h.hello) - 1;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.format++;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.fingerprint ^= 1;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.flags = 0x80;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    memset(h.hello.name, 'x', sizeof(h.hello.name));
    hand_refused(&h, -EINVAL);
    daemon_goes_on();
}

static void wrong_descriptors_are_refused(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.n_fds = 0;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    h.n_fds = 2;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    h.fds[3] = h.fds[0];
    h.n_fds = 4;
    hand_refused(&h, -EINVAL);
    hand_open(&h); /* no eventfd: a pipe could be full and stop the node */
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int wake = h.fds[1];
    h.fds[1] = ends[1];
    hand_refused(&h, -EINVAL);
    close(ends[0]);
    close(wake);
    daemon_goes_on();
}

static void spoil_ring(struct hand *h, int fd)
{
    hand_open(h);
    close(h->fds[0]);
    h->fds[0] = fd;
}

static void wrong_rings_are_refused(void **unused)
{
    (void)unused;
    const size_t size = sizeof(struct ring_shared);
    const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW;
    struct hand h;
    spoil_ring(&h, ring_file(0, size));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, ring_file(F_SEAL_GROW, size));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, ring_file(seals, size - 4096));
    hand_refused(&h, -EINVAL);
    spoil_ring(&h, ring_file(seals, size + 4096));
    hand_refused(&h, -EINVAL);
    spoil_ring(&h, open("/dev/null", O_RDWR | O_CLOEXEC));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, ring_file(seals, size)); /* all zeros */
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    atomic_store(&h.ring->request_tail, 64);
    hand_refused(&h, BERTH_EFORMAT);
    daemon_goes_on();
}

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
    daemon_goes_on();
}

static void bad_messages_are_answered(void **unused)
{
    (void)unused;
    static char reply[RING_MESSAGE_MAX];
    const struct msg_reply *r = (const struct msg_reply *)reply;
    struct hand h;
    struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_KINDS};
    struct msg_head unknown = {.op = 999}, later = {.op = MSG_PURGE};
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
    snprintf(name, sizeof(name), "%s/region/clients/%llu", dir, (unsigned long long)h.welcome.session);
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
    assert_int_equal(unlink(path), 0);
    for (unsigned i = 0; i < 1000 && access(path, F_OK) != 0; i++) {
        struct pollfd none = {.fd = -1};
        poll(&none, 1, 10);
    }
    daemon_goes_on();
    hand_works(&h, 1);
    hand_close(&h);
}

static void the_socket_has_its_mode_and_a_stale_one_is_replaced(void **unused)
{
    (void)unused;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    stop();
    assert_int_equal(access(path, F_OK), -1);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    close(fd);
    start();
    daemon_goes_on();
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
    stop();
    start();
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
        cmocka_unit_test(a_right_hello_is_welcome),
        cmocka_unit_test(a_reader_gets_no_writable_pool),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(wrong_descriptors_are_refused),
        cmocka_unit_test(wrong_rings_are_refused),
        cmocka_unit_test(sessions_are_resumed_by_their_own_only),
        cmocka_unit_test(a_broken_ring_ends_only_its_own_connection),
        cmocka_unit_test(bad_messages_are_answered),
        cmocka_unit_test(a_client_that_goes_leaves_nothing),
        cmocka_unit_test(a_removed_socket_is_made_again),
        cmocka_unit_test(the_socket_has_its_mode_and_a_stale_one_is_replaced),
        cmocka_unit_test(live_sessions_are_adopted_by_the_next_node),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
