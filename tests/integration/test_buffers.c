/* Buffers that a client of a berthd has registered: what comes from peers is written there straight; and what a client
 * may try with them. Puts that wait until they are published. */
#include "store/client.h"
#include "store/pull.h"
#include "tests/support/child.h"
#include "tests/support/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB 1024u
#define BYTES (4u << 20)
#define UNTIL berth_deadline(SECONDS(20))
#define CLIENT node[1] /* of the berthd; node 0 is another, embedded */

static int memory(size_t size, unsigned seals, unsigned flags, void **map)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(*map, MAP_FAILED);
    return fd;
}

static bool in_pool(const char *key)
{
    struct berth_view v;
    int rc = berth_get(CLIENT, key_of(key), &v, 0, BERTH_NOW);
    if (rc == 0) {
        berth_release(CLIENT, &v, 1);
    }
    return rc == 0;
}

static void straight_into_it(void **state)
{
    uint8_t *data, *other = malloc(BYTES);
    uint32_t id;
    void *map;
    (void)state;
    nodes_open_daemon(2);
    nodes_put(0, "b0", 3u << 20, 0);
    nodes_put(0, "b1", 1u << 20, 4 * KIB);
    nodes_put(0, "b2", 100000, 0);
    nodes_settle(0);
    assert_int_equal(berth_buffer_alloc(CLIENT, BYTES, &map, &id), 0);
    data = map;
    memset(data, 0xee, BYTES);
    assert_int_equal(berth_get_into(CLIENT, key_of("b0"), data + 5, 3u << 20, BERTH_PEERS | BERTH_VERIFY, UNTIL),
                     3u << 20);
    assert_true(payload_is(data + 5, 3u << 20, "b0"));
    assert_int_equal(data[4], 0xee);
    assert_int_equal(data[5 + (3u << 20)], 0xee);
    assert_false(in_pool("b0"));
    struct berth_range r[] = {{.offset = 500000, .size = 7, .data = data + 100},
                              {.offset = 1, .size = 90000, .data = data + 200}};
    assert_int_equal(berth_get_range(CLIENT, key_of("b1"), r, 2, BERTH_PEERS | BERTH_VERIFY, UNTIL), 90007);
    assert_false(in_pool("b1"));
    payload_fill(other, 1u << 20, "b1");
    assert_memory_equal(data + 100, other + 500000, 7);
    assert_memory_equal(data + 200, other + 1, 90000);
    r[1].data = other; /* not all of it is registered: by way of the pool */
    assert_int_equal(berth_get_range(CLIENT, key_of("b1"), r, 2, BERTH_PEERS | BERTH_VERIFY, UNTIL), 90007);
    assert_true(in_pool("b1"));
    assert_int_equal(berth_get_into(CLIENT, key_of("b2"), data + BYTES - 99999, 99999, BERTH_PEERS, UNTIL), -ENOSPC);
    assert_int_equal(berth_get_into(CLIENT, key_of("b2"), other, BYTES, BERTH_PEERS, UNTIL), 100000);
    assert_true(in_pool("b2"));
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
    assert_int_equal(berth_buffer_unregister(CLIENT, id), -ENOENT);
    free(other);
}

static void the_callers_own(void **state)
{
    void *map;
    uint32_t id, second;
    struct berth_queue *q;
    struct berth_op *out;
    (void)state;
    nodes_open_daemon(2);
    nodes_put(0, "own", 50000, 0);
    nodes_settle(0);
    int fd = memory(BYTES, F_SEAL_SHRINK, 0, &map);
    uint8_t *data = map;
    /* From a page of the file on that is mapped elsewhere. */
    assert_int_equal(berth_buffer_register(CLIENT, fd, 8192, data + 8192, BYTES - 8192, &id), 0);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 8192, data + 8192, 4096, &second), -EEXIST);
    close(fd);
    assert_int_equal(berth_queue_open(CLIENT, 4, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_GET_INTO,
                          .key = key_of("own"),
                          .data = data + 8192,
                          .size = 50000,
                          .flags = BERTH_PEERS,
                          .deadline = UNTIL};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, UNTIL), 1);
    assert_int_equal(op.result, 50000);
    assert_true(payload_is(data + 8192, 50000, "own"));
    assert_false(in_pool("own"));
    berth_queue_close(q);
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
    munmap(map, BYTES);
}

/* A descriptor that the node could not write through is told so, and not about the seal that it has. */
static void sealed_against_it(void **state)
{
    static const struct {
        unsigned before, after;
        int error;
        const char *word;
    } kind[] = {{F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE, -EACCES, "F_SEAL_FUTURE_WRITE"},
                {0, F_SEAL_FUTURE_WRITE, -EACCES, "F_SEAL_FUTURE_WRITE"},
                {0, F_SEAL_SEAL, -EPERM, "MFD_ALLOW_SEALING"},
                {0, F_SEAL_GROW, -EPERM, "F_SEAL_SHRINK"}};
    (void)state;
    nodes_open_daemon(2);
    for (unsigned i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        struct berth_error_info e;
        uint32_t id = 77;
        void *map;
        int fd = memory(8192, kind[i].before, 0, &map);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, kind[i].after), 0);
        assert_int_equal(berth_buffer_register(CLIENT, fd, 0, map, 8192, &id), kind[i].error);
        berth_error(CLIENT, &e);
        assert_non_null(strstr(e.sentence, kind[i].word));
        assert_int_equal(id, 77);
        munmap(map, 8192);
        close(fd);
    }
}

static void refused(void **state)
{
    void *map;
    uint32_t id = 77, ids[65];
    struct berth_error_info e;
    (void)state;
    nodes_open_daemon(2);
    int loose = memory(8192, F_SEAL_GROW, 0, &map), pipes[2];
    assert_int_equal(berth_buffer_register(CLIENT, loose, 0, map, 8192, &id), -EPERM);
    berth_error(CLIENT, &e);
    assert_non_null(strstr(e.sentence, "F_SEAL_SHRINK"));
    munmap(map, 8192);
    close(loose);
    int fd = memory(8192, F_SEAL_SHRINK, 0, &map);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 0, map, 8193, &id), -EINVAL);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 4096, map, 8192, &id), -EINVAL);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 1, map, 100, &id), -EINVAL);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 0, map, 0, &id), -EINVAL);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 0, NULL, 100, &id), -EINVAL);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(berth_buffer_register(CLIENT, pipes[0], 0, map, 100, &id), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(id, 77);
    munmap(map, 8192);
    close(fd);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(berth_buffer_alloc(CLIENT, 4096, &map, &ids[i]), 0);
    }
    assert_int_equal(berth_buffer_alloc(CLIENT, 4096, &map, &ids[64]), BERTH_EQUOTA);
    assert_int_equal(berth_buffer_unregister(CLIENT, ids[3]), 0);
    assert_int_equal(berth_buffer_alloc(CLIENT, 4096, &map, &ids[3]), 0);
}

static void says(int rc, int fd, void *data, size_t size, const char *word)
{
    uint32_t id = 77;
    struct berth_error_info e;
    assert_int_equal(berth_buffer_register(CLIENT, fd, 4096, data, size, &id), rc);
    assert_int_equal(id, 77);
    assert_int_equal(berth_error(CLIENT, &e), rc);
    if (!strstr(e.sentence, word)) {
        fail_msg("'%s' has no '%s'", e.sentence, word);
    }
}

/* What the node writes into the file has to be what the process sees. */
static void mapped_as_it_is_said(void **state)
{
    void *map, *others;
    uint32_t id;
    struct berth_error_info e;
    char path[64];
    (void)state;
    nodes_open_daemon(2);
    int fd = memory(32768, F_SEAL_SHRINK, 0, &map), other = memory(32768, F_SEAL_SHRINK, 0, &others);
    uint8_t *at = (uint8_t *)map + 4096;
    memset(map, 5, 32768);
    says(-EINVAL, fd, (uint8_t *)others + 4096, 8192, "not that of descriptor");
    says(-EINVAL, other, at, 8192, "not that of descriptor");
    says(-EINVAL, fd, at + 4096, 8192, "not that of descriptor"); /* from another offset on */
    says(-EINVAL, fd, map, 8192, "not that of descriptor");
    void *priv = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    assert_ptr_not_equal(priv, MAP_FAILED);
    says(-EINVAL, fd, priv, 8192, "MAP_PRIVATE");
    munmap(priv, 8192);
    says(-EINVAL, fd, priv, 8192, "not mapped");
    /* Pages in the middle, each in another way. */
    assert_int_equal(mprotect(at + 4096, 4096, PROT_READ), 0);
    says(-EINVAL, fd, at, 16384, "PROT_WRITE");
    assert_int_equal(mprotect(at + 4096, 4096, PROT_READ | PROT_WRITE), 0);
    assert_ptr_equal(mmap(at + 4096, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, other, 8192), at + 4096);
    says(-EINVAL, fd, at, 16384, "not that of descriptor");
    munmap(at + 4096, 4096);
    says(-EINVAL, fd, at, 16384, "not mapped");
    assert_ptr_equal(mmap(at + 4096, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, 8192), at + 4096);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(reader >= 0);
    says(-EACCES, reader, at, 8192, "not open for reading and writing");
    close(reader);
    assert_int_equal(berth_buffer_register(CLIENT, fd, 4096, at, 16384 + 1, &id), 0); /* of two mappings */
    assert_int_equal(at[16384], 5);                                                   /* nothing was touched */
    assert_int_equal(berth_buffer_unregister(CLIENT, id + 1), -ENOENT);
    berth_error(CLIENT, &e);
    assert_non_null(strstr(e.sentence, "no buffer"));
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
    munmap(map, 32768);
    munmap(others, 32768);
    close(fd);
    close(other);
}

/* ---- messages that the library would not send ---- */

static int send_memory(struct berth *b, int fd, uint64_t cookie)
{
    struct attach_buffer said = {.magic = ATTACH_BUFFER_MAGIC, .cookie = cookie};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = &said, .iov_len = sizeof said};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &fd, sizeof(int));
    }
    return (int)sendmsg(b->calls.socket.fd, &m, MSG_NOSIGNAL);
}

static int ask(struct berth *b, uint32_t kind, uint32_t number, uint64_t cookie, uint64_t offset, uint64_t bytes,
               uint32_t *got)
{
    struct call_result r;
    struct call *c = call_new(MSG_BUFFER, sizeof(struct msg_buffer));
    struct msg_head head = *call_head(c);
    *(struct msg_buffer *)c->message = (struct msg_buffer){
        .head = head, .kind = kind, .number = number, .cookie = cookie, .offset = offset, .bytes = bytes};
    int rc = call_run(b, c, &r, NULL, NULL);
    if (got) {
        *got = (uint32_t)r.reply.counter;
    }
    return rc;
}

static int pull_by_number(struct berth *b, const char *key, uint64_t number, uint64_t to, uint64_t room)
{
    struct pull_place place = {.kind = MSG_PULL_REGISTERED, .buffer = number, .to = to};
    struct pull_out o = {.size = room};
    struct berth_key k = key_of(key);
    struct call_result r;
    struct call *c = pull_build_into(b, &k, &o, &place, BERTH_PEERS, UNTIL);
    return call_run(b, c, &r, NULL, NULL);
}

static void by_hand(void **state)
{
    void *map, *cuttable;
    uint32_t number = 0, more;
    struct berth *other = daemon_open(&nodes_daemon, "other");
    (void)state;
    int fd = memory(8192, F_SEAL_SHRINK, 0, &map), loose = memory(8192, F_SEAL_GROW, 0, &cuttable);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 5, 0, 4096, NULL), -ESTALE); /* nothing came */
    assert_true(send_memory(CLIENT, loose, 6) > 0);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 6, 0, 4096, NULL), -EPERM);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 6, 0, 4096, NULL), -ESTALE); /* it is used up */
    assert_true(send_memory(CLIENT, fd, 7) > 0);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 8, 0, 4096, NULL), -ESTALE); /* another's cookie */
    assert_true(send_memory(CLIENT, fd, 9) > 0);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 9, 4096, 4097, NULL), -EINVAL);
    for (unsigned i = 0; i < 20; i++) { /* only the last one counts, and none is kept */
        assert_true(send_memory(CLIENT, fd, 10 + i) > 0);
    }
    assert_int_equal(ask(CLIENT, MSG_BUFFER_REGISTER, 0, 29, 4096, 4096, &number), 0);
    assert_true(number > 0);
    assert_int_equal(pull_by_number(CLIENT, "small", number, 0, 4097), -EFAULT);
    assert_int_equal(pull_by_number(CLIENT, "small", number, 4000, 97), -EFAULT);
    assert_int_equal(pull_by_number(CLIENT, "small", number, 1u << 30, 0), -EFAULT);
    assert_int_equal(pull_by_number(CLIENT, "small", number + 1, 0, 100), -EBADF);
    assert_int_equal(pull_by_number(other, "small", number, 0, 100), -EBADF); /* another client's */
    assert_int_equal(ask(other, MSG_BUFFER_UNREGISTER, number, 0, 0, 0, NULL), -ENOENT);
    assert_int_equal(pull_by_number(CLIENT, "small", number, 96, 4000), 1);
    assert_true(payload_is((uint8_t *)map + 4096 + 96, 4000, "small"));
    assert_int_equal(ask(CLIENT, MSG_BUFFER_UNREGISTER, number, 0, 0, 0, NULL), 0);
    assert_int_equal(ask(CLIENT, MSG_BUFFER_UNREGISTER, number, 0, 0, 0, NULL), -ENOENT);
    assert_int_equal(pull_by_number(CLIENT, "small", number, 96, 4000), -EBADF);
    assert_true(send_memory(other, fd, 1) > 0);
    assert_int_equal(ask(other, MSG_BUFFER_REGISTER, 0, 1, 0, 4096, &more), 0);
    assert_int_equal(ftruncate(fd, 100), -1); /* what is registered can't be cut */
    berth_close(other);
    munmap(map, 8192);
    munmap(cuttable, 8192);
    close(fd);
    close(loose);
}

static void hostile(void **state)
{
    nodes_open_daemon(2);
    nodes_put(0, "small", 4000, 0);
    nodes_settle(0);
    by_hand(state);
    /* Nonsense over the socket costs the connection, and nobody else anything; the library registers anew. */
    void *map;
    uint32_t id;
    assert_int_equal(berth_buffer_alloc(CLIENT, 8192, &map, &id), 0);
    assert_true(send(CLIENT->calls.socket.fd, "nonsense", 8, MSG_NOSIGNAL) > 0);
    assert_int_equal(berth_get_into(CLIENT, key_of("small"), map, 8192, BERTH_PEERS, UNTIL), 4000);
    assert_true(payload_is(map, 4000, "small"));
    assert_false(in_pool("small"));
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
}

static void over_a_restart(void **state)
{
    void *map;
    uint32_t id;
    (void)state;
    nodes_open_daemon(2);
    nodes_put(0, "again", 70000, 0);
    nodes_settle(0);
    assert_int_equal(berth_buffer_alloc(CLIENT, BYTES, &map, &id), 0);
    daemon_kill(&nodes_daemon);
    daemon_again(&nodes_daemon);
    for (int rc = -ENOENT; rc != 70000;) { /* until it has found the other again */
        rc = (int)berth_get_into(CLIENT, key_of("again"), map, BYTES, BERTH_PEERS | BERTH_VERIFY, UNTIL);
        assert_true(rc == 70000 || rc == -ENOENT || rc == BERTH_EUNSURE || rc == BERTH_ENOTNOW);
    }
    assert_true(payload_is(map, 70000, "again"));
    assert_false(in_pool("again"));
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
}

/* ---- in flight ---- */

static long wait_op(struct berth_queue *q)
{
    struct berth_op *out;
    return berth_reap(q, &out, 1, UNTIL);
}

static void unregister_in_flight(void **state)
{
    void *map;
    uint32_t id;
    struct berth_queue *q;
    (void)state;
    nodes_open_daemon(2);
    assert_int_equal(berth_buffer_alloc(CLIENT, BYTES, &map, &id), 0);
    assert_int_equal(berth_queue_open(CLIENT, 4, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_GET_INTO,
                          .key = key_of("nowhere"),
                          .data = map,
                          .size = BYTES,
                          .flags = BERTH_PEERS | BERTH_WAIT,
                          .deadline = BERTH_FOREVER};
    struct berth_op cancel = {.opcode = BERTH_OP_CANCEL, .data = &op};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_buffer_unregister(CLIENT, id), -EBUSY);
    assert_int_equal(berth_submit(q, &cancel, 1), 1);
    assert_int_equal(wait_op(q), 1);
    assert_int_equal(wait_op(q), 1);
    assert_int_equal(op.result, -ECANCELED);
    assert_int_equal(berth_buffer_unregister(CLIENT, id), 0);
    berth_queue_close(q);
}

/* Registers, pulls for ever, and is killed in the middle of it. */
static int pulls_for_ever(void *arg)
{
    struct berth *b;
    void *map;
    uint32_t id;
    (void)arg;
    CHECK(berth_open(&b, nodes_daemon.node, NULL) == 0);
    CHECK(berth_buffer_alloc(b, 8u << 20, &map, &id) == 0);
    for (unsigned i = 0;; i++) {
        long rc = berth_get_into(b, key_of("huge"), map, 8u << 20, BERTH_PEERS | BERTH_VERIFY, UNTIL);
        CHECK(rc == 8 << 20);
        if (i == 3) {
            child_tell('p');
        }
    }
}

static void killed_in_flight(void **state)
{
    (void)state;
    nodes_open_daemon(2);
    nodes_put(0, "huge", 8u << 20, 0);
    nodes_settle(0);
    for (unsigned i = 0; i < 8; i++) {
        struct child c;
        child_start(&c, pulls_for_ever, NULL);
        assert_int_equal(parent_hear(&c, 30000), 'p');
        child_kill(&c);
    }
    nodes_put(1, "lives", 100, 0);
}

/* ---- published ---- */

static void puts_wait_for_homes(void **state)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED, .deadline = UNTIL};
    struct berth_view v;
    struct berth_draft d[3];
    (void)state;
    nodes_open_daemon(2);
    for (unsigned i = 0; i < 50; i++) { /* found at once: no settling, no trying again */
        char key[32];
        snprintf(key, sizeof key, "p%u", i);
        assert_int_equal(berth_put(node[i % 2], key_of(key), key, sizeof key, &o), 0);
        assert_int_equal(berth_get(node[1 - i % 2], key_of(key), &v, BERTH_PEERS, UNTIL), 0);
        assert_string_equal(v.data, key);
        berth_release(node[1 - i % 2], &v, 1);
        assert_int_equal(berth_put(node[i % 2], key_of(key), key, sizeof key, &o), BERTH_KEPT);
    }
    for (unsigned i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof key, "s%u", i);
        assert_int_equal(berth_create(CLIENT, key_of(key), sizeof key, &o, &d[i]), 0);
        memcpy(d[i].data, key, sizeof key);
    }
    assert_int_equal(berth_seal(CLIENT, d, 3), 0);
    assert_int_equal(berth_get(node[0], key_of("s2"), &v, BERTH_PEERS, UNTIL), 0);
    berth_release(node[0], &v, 1);
}

static void published_in_a_queue(void **state)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED, .deadline = UNTIL};
    struct berth_queue *q;
    struct berth_view v;
    struct berth_draft d;
    (void)state;
    nodes_open_daemon(2);
    assert_int_equal(berth_queue_open(CLIENT, 4, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_PUT, .key = key_of("q0"), .data = "x", .size = 1, .put = &o};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(wait_op(q), 1);
    assert_int_equal(op.result, 0);
    assert_int_equal(berth_get(node[0], key_of("q0"), &v, BERTH_PEERS, UNTIL), 0);
    berth_release(node[0], &v, 1);
    op.result = -1;
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(wait_op(q), 1);
    assert_int_equal(op.result, BERTH_KEPT);
    assert_int_equal(berth_create(CLIENT, key_of("q1"), 1, &o, &d), 0);
    op = (struct berth_op){.opcode = BERTH_OP_SEAL, .draft = &d, .n = 1};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(wait_op(q), 1);
    assert_int_equal(op.result, 0);
    assert_int_equal(berth_get(node[0], key_of("q1"), &v, BERTH_PEERS, UNTIL), 0);
    berth_release(node[0], &v, 1);
    berth_queue_close(q);
}

/* A home that does not answer: the time is over, and the object is put all the same. */
static void a_home_is_silent(void **state)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED};
    struct berth_view v;
    (void)state;
    nodes_open_daemon(2);
    assert_int_equal(kill(nodes_daemon.pid, SIGSTOP), 0);
    o.deadline = berth_deadline(SECONDS(1) / 5);
    assert_int_equal(berth_put(node[0], key_of("late"), "x", 1, &o), BERTH_EUNPUBLISHED);
    assert_true(berth_deadline(0) >= o.deadline);
    assert_int_equal(berth_get(node[0], key_of("late"), &v, 0, BERTH_NOW), 0);
    berth_release(node[0], &v, 1);
    o.deadline = BERTH_NOW;
    assert_int_equal(berth_put(node[0], key_of("at once"), "x", 1, &o), BERTH_EUNPUBLISHED);
    assert_int_equal(kill(nodes_daemon.pid, SIGCONT), 0);
    o.deadline = UNTIL;
    assert_int_equal(berth_put(node[0], key_of("late"), "x", 1, &o), BERTH_KEPT);
    assert_int_equal(berth_get(CLIENT, key_of("late"), &v, BERTH_PEERS, UNTIL), 0);
    berth_release(CLIENT, &v, 1);
}

static void without_peers(void **state)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED};
    void *map;
    uint32_t id;
    (void)state;
    assert_int_equal(berth_open(&node[0], "embedded:?pool=32MiB&lock=off&log-level=error", NULL), 0);
    assert_int_equal(berth_put(node[0], key_of("k"), "x", 1, &o), 0);
    assert_int_equal(berth_buffer_alloc(node[0], 8192, &map, &id), 0);
    assert_int_equal(berth_get_into(node[0], key_of("none"), map, 8192, BERTH_PEERS, UNTIL), -ENOENT);
    assert_int_equal(berth_get_into(node[0], key_of("k"), map, 8192, BERTH_PEERS, UNTIL), 1);
    assert_int_equal(berth_buffer_unregister(node[0], id), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, nodes_close)
    const struct CMUnitTest tests[] = {
        CASE(without_peers),
        CASE(straight_into_it),
        CASE(the_callers_own),
        CASE(sealed_against_it),
        CASE(refused),
        CASE(mapped_as_it_is_said),
        CASE(hostile),
        CASE(over_a_restart),
        CASE(unregister_in_flight),
        CASE(killed_in_flight),
        CASE(puts_wait_for_homes),
        CASE(published_in_a_queue),
        CASE(a_home_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
