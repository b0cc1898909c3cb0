/* test_descriptors.c: descriptors in a process that is not the library's own: standard streams that are closed, a table
 * that is full, and an application that closes everything and uses the numbers again.
 */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 100000u
#define OWN_FILES 12
#define EMBEDDED "embedded:?pool=8MiB&lock=off&log-level=error"
#define TIMEOUT_NS INT64_C(5000000000)

static struct daemon d;
static char payload[SIZE];

static int open_node(struct berth **b, const char *node)
{
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = TIMEOUT_NS};
    return berth_open(b, node, &o);
}

static void put_and_get(struct berth *b, const char *key)
{
    struct berth_view v;
    CHECK(berth_put(b, key_of(key), payload, SIZE, NULL) >= 0);
    CHECK(berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER) == 0);
    CHECK(v.size == SIZE && memcmp(v.data, payload, SIZE) == 0);
    berth_release(b, &v, 1);
}

/* ---- standard streams ---- */

static void close_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        close(fd);
    }
}

static void check_streams_closed(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    }
}

static int without_streams(void *node)
{
    struct berth *b, *second;
    struct berth_queue *q;
    close_streams();
    CHECK(open_node(&b, node) == 0);
    check_streams_closed();
    put_and_get(b, "first");
    CHECK(berth_queue_open(b, 4, &q) == 0);
    check_streams_closed();
    CHECK(berth_queue_fd(q) > 2);
    CHECK(open_node(&second, node) == 0);
    put_and_get(second, "second");
    check_streams_closed();
    berth_queue_close(q);
    berth_close(second);
    berth_close(b);
    check_streams_closed();
    return 0;
}

static void closed_streams_stay_closed(void **unused)
{
    (void)unused;
    char *const nodes[] = {d.node, EMBEDDED};
    for (unsigned i = 0; i < 2; i++) {
        struct child c;
        child_start(&c, without_streams, nodes[i]);
        assert_int_equal(child_wait(&c), 0);
    }
}

/* ---- a full table ---- */

struct limit {
    const char *node;
    unsigned numbers;
};

/* 0: all of it works; 1: a call says that descriptors are few. */
static int with_few(void *arg)
{
    const struct limit *l = arg;
    struct rlimit r = {l->numbers, l->numbers};
    struct berth *b;
    struct berth_queue *q;
    struct berth_error_info why;
    alarm(20);
    CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
    int rc = open_node(&b, l->node);
    if (rc == 0) {
        CHECK(berth_put(b, key_of("few"), payload, 1000, NULL) >= 0);
        rc = berth_queue_open(b, 4, &q);
        if (rc == 0) {
            berth_queue_close(q);
        }
        berth_close(b);
    }
    if (rc && rc != -EMFILE) {
        berth_error(NULL, &why);
        fprintf(stderr, "%s with %u descriptors: %s: %s\n", l->node, l->numbers, why.name, why.sentence);
    }
    CHECK(rc == 0 || rc == -EMFILE);
    if (rc) {
        berth_error(NULL, &why);
        CHECK(why.code == -EMFILE && (strstr(why.sentence, "descriptor") || strstr(why.sentence, "open files")));
    }
    return rc != 0;
}

static void few_descriptors_are_said_to_be_few(const char *node)
{
    struct limit l = {.node = node, .numbers = 3};
    int code = 1;
    for (; code == 1 && l.numbers < 100; l.numbers++) {
        struct child c;
        child_start(&c, with_few, &l);
        code = child_wait(&c);
    }
    assert_int_equal(code, 0);
    assert_true(l.numbers > 8);
}

static void few_descriptors_for_a_client(void **unused)
{
    (void)unused;
    few_descriptors_are_said_to_be_few(d.node);
}

static void few_descriptors_for_an_embedded_node(void **unused)
{
    (void)unused;
    few_descriptors_are_said_to_be_few(EMBEDDED);
}

/* ---- everything closed, and the numbers used again ---- */

enum reuse { REUSE_NONE, REUSE_FILES, REUSE_SOCKETS, REUSE_EVENTFDS };

static void take_numbers(enum reuse how, int own[OWN_FILES], const char *dir)
{
    char path[128];
    for (int i = 0; i < OWN_FILES; i++) {
        int pair[2];
        snprintf(path, sizeof path, "%s/own-%d", dir, i);
        if (how == REUSE_FILES) {
            own[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            CHECK(write(own[i], "12345678", 8) == 8 && lseek(own[i], 0, SEEK_SET) == 0);
        } else if (how == REUSE_EVENTFDS) {
            own[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        } else if (i % 2 == 0) {
            CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
            CHECK(write(pair[0], "a", 1) == 1 && write(pair[1], "b", 1) == 1);
            own[i] = pair[0];
            own[i + 1] = pair[1];
        }
        CHECK(own[i] >= 0);
    }
}

/* Nobody has read, written, shut down or closed them. */
static void check_untouched(enum reuse how, const int own[OWN_FILES])
{
    for (int i = 0; i < OWN_FILES; i++) {
        char text[16];
        uint64_t count;
        struct stat st;
        CHECK(fstat(own[i], &st) == 0);
        if (how == REUSE_FILES) {
            CHECK(st.st_size == 8 && lseek(own[i], 0, SEEK_CUR) == 0);
        } else if (how == REUSE_EVENTFDS) {
            CHECK(read(own[i], &count, sizeof count) == -1 && errno == EAGAIN);
        } else {
            CHECK(read(own[i], text, sizeof text) == 1 && text[0] == (i % 2 ? 'a' : 'b'));
            CHECK(read(own[i], text, sizeof text) == -1 && errno == EAGAIN);
        }
    }
}

static int closes_everything(void *arg)
{
    enum reuse how = *(enum reuse *)arg;
    struct berth *b;
    struct berth_view v;
    struct berth_queue *q, *none;
    int own[OWN_FILES];
    alarm(20);
    CHECK(open_node(&b, d.node) == 0);
    put_and_get(b, "kept");
    CHECK(berth_queue_open(b, 4, &q) == 0 && berth_queue_fd(q) > 2);
    closefrom(3);
    if (how) {
        take_numbers(how, own, d.dir);
    }
    CHECK(berth_get(b, key_of("kept"), &v, BERTH_VERIFY, BERTH_FOREVER) == 0);
    CHECK(v.size == SIZE && memcmp(v.data, payload, SIZE) == 0);
    berth_release(b, &v, 1);
    /* A node that is awake answers until it sees that the connection has gone. */
    int rc = 0;
    for (unsigned i = 0; rc >= 0; i++) {
        char key[32];
        snprintf(key, sizeof key, "late %u", i);
        rc = berth_put(b, key_of(key), payload, 1000, NULL);
    }
    CHECK(rc == -EBADF);
    CHECK(berth_queue_open(b, 4, &none) == -EBADF);
    CHECK(berth_get(b, key_of("kept"), &v, BERTH_VERIFY, BERTH_FOREVER) == 0);
    berth_release(b, &v, 1);
    berth_queue_close(q);
    berth_close(b);
    if (how) {
        check_untouched(how, own);
    }
    return 0;
}

static void numbers_used_again_are_left_alone(void **unused)
{
    (void)unused;
    for (enum reuse how = REUSE_NONE; how <= REUSE_EVENTFDS; how++) {
        struct child c;
        child_start(&c, closes_everything, &how);
        assert_int_equal(child_wait(&c), 0);
    }
}

static int set_up(void **unused)
{
    (void)unused;
    payload_fill(payload, SIZE, "kept");
    daemon_start(&d, (const char *const[]){"--pool", "16MiB", "--lock", "off", NULL});
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    daemon_end(&d);
    return 0;
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_streams_stay_closed),
        cmocka_unit_test(few_descriptors_for_a_client),
        cmocka_unit_test(few_descriptors_for_an_embedded_node),
        cmocka_unit_test(numbers_used_again_are_left_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
