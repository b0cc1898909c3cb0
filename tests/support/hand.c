/* hand.c: see hand.h. */
#include "tests/support/hand.h"

#include "store/berth.h"
#include "store/map.h"
#include "store/shell/server.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

char hand_dir[64];
char hand_path[108];
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

void hand_node_start(void)
{
    static struct settings s;
    char region[128], why[512] = "";
    snprintf(region, sizeof(region), "%s/region", hand_dir);
    settings_init(&s);
    set(&s, "region", region);
    set(&s, "socket", hand_path);
    set(&s, "pool", "8MiB");
    set(&s, "lock", "off");
    assert_int_equal(settings_finish(&s, why, sizeof(why)), 0);
    if (server_create(&server, &s, why, sizeof(why)) != 0)
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
}

void hand_node_stop(void)
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

int hand_setup(void **unused)
{
    (void)unused;
    snprintf(hand_dir, sizeof(hand_dir), "/dev/shm/berth-attach-XXXXXX");
    if (!mkdtemp(hand_dir))
        return -1;
    snprintf(hand_path, sizeof(hand_path), "%s/sock", hand_dir);
    hand_node_start();
    return 0;
}

int hand_teardown(void **unused)
{
    (void)unused;
    hand_node_stop();
    nftw(hand_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* ---- a client by hand ---- */

int hand_ring_file(unsigned seals, size_t bytes)
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
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", hand_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* A hello that is right in everything; a test then spoils one thing. */
void hand_open(struct hand *h)
{
    memset(h, 0, sizeof(*h));
    h->socket = connect_hand();
    h->hello = (struct attach_hello){
        .magic = ATTACH_MAGIC, .format = LAYOUT_FORMAT, .fingerprint = LAYOUT_FINGERPRINT, .name = "by hand"};
    h->bytes = sizeof(h->hello);
    h->fds[0] = hand_ring_file(F_SEAL_SHRINK | F_SEAL_GROW, sizeof(struct ring_shared));
    h->fds[1] = h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->fds[2] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    h->n_fds = 3;
    h->ring = map_shared(h->fds[0], sizeof(struct ring_shared), PROT_READ | PROT_WRITE);
    assert_non_null(h->ring);
    h->ring->magic = RING_MAGIC;
    h->ring->format = LAYOUT_FORMAT;
    h->ring->fingerprint = LAYOUT_FINGERPRINT;
}

void hand_close(struct hand *h)
{
    for (unsigned i = 0; i < h->n_got; i++)
        close(h->got[i]);
    for (unsigned i = 0; i < 3; i++)
        close(h->fds[i]);
    unmap_shared(h->ring, sizeof(struct ring_shared));
    if (h->socket >= 0)
        close(h->socket);
}

void hand_send(struct hand *h)
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

void hand_receive(struct hand *h)
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

void hand_attach(struct hand *h)
{
    hand_open(h);
    hand_send(h);
    hand_receive(h);
    if (h->welcome.status)
        fail_msg("refused: %s", h->welcome.sentence);
    assert_int_equal(h->n_got, ATTACH_WELCOME_FDS);
}

/* Refused with this error and a sentence, no descriptors, and the connection ends. */
void hand_refused(struct hand *h, int status)
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
int hand_ask(struct hand *h, uint64_t id, void *message, uint32_t bytes, void *reply)
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
    struct pollfd p[2] = {{.fd = h->wake, .events = POLLIN}, {.fd = h->socket, .events = POLLIN}};
    while (atomic_load(in.tail) == in.mine) {
        char byte; /* another user's client is woken by one */
        assert_true(poll(p, 2, 20000) > 0);
        assert_int_not_equal(recv(h->socket, &byte, 1, MSG_DONTWAIT), 0);
    }
    return (int)ring_pop(&in, reply);
}

void hand_works(struct hand *h, uint64_t id)
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

void hand_node_goes_on(void)
{
    struct hand h;
    hand_attach(&h);
    hand_works(&h, 1);
    hand_close(&h);
}
