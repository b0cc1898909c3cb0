/* A8, over TCP: an address that is none. An interface without an address, an address that is not this machine's and one
 * that stands for all of them are named at the start; none that stands for all is ever told to others; who waits for a
 * peer at a wrong address is told so in time; and a name service that hangs holds up nobody else, not even the stop.
 */
#include "tests/support/child.h"
#include "tests/support/wired.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS(n) ((n)*INT64_C(1000000000))

/* An embedded node with these settings does not start, soon, and says why. */
static bool is_refused(const char *settings, int code, const char *says, const char *names)
{
    char url[512];
    struct berth *b = NULL;
    struct berth_error_info e;
    snprintf(url, sizeof url, "embedded:?pool=8MiB&lock=off&log-level=error&name=a&%s", settings);
    int64_t began = berth_deadline(0);
    int rc = berth_open(&b, url, NULL);
    berth_error(NULL, &e);
    bool right = rc < 0 && (!code || rc == code) && strstr(e.sentence, says) && strstr(e.sentence, names);
    if (!right) {
        printf("%s: %d, '%s'\n", settings, rc, rc < 0 ? e.sentence : "");
    }
    return right && berth_deadline(0) - began < SECONDS(3);
}

static void test_at_the_start(void **unused)
{
    (void)unused;
    /* 192.0.2.0/24 is for documentation: no machine has it. */
    assert_true(is_refused("listen=tcp://192.0.2.7:7400&peer-trust=network", 0,
                           "no interface of this machine has this address", "192.0.2.7:7400"));
    static const char *const any[] = {"0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "0", "0x0"};
    for (unsigned i = 0; i < sizeof any / sizeof *any; i++) {
        char settings[256];
        snprintf(settings, sizeof settings, "listen=tcp://%s:7400&peer-trust=network", any[i]);
        assert_true(is_refused(settings, -EINVAL, "listen", any[i]));
        snprintf(settings, sizeof settings, "peers=a=tcp://%s:7400&peer-trust=network", any[i]);
        assert_true(is_refused(settings, -EINVAL, "peers", any[i]));
        snprintf(settings, sizeof settings, "peers=a=tcp://127.0.0.1:7400,b=tcp://%s:1&peer-trust=network", any[i]);
        assert_true(is_refused(settings, -EINVAL, "peers", any[i]));
    }
}

/* In a network namespace of its own, so that this machine's interfaces are left alone. */
static int without_address(void *unused)
{
    (void)unused;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 ||
        system("ip link add bare type veth peer name other && ip link set bare up && ip link set lo up") != 0 ||
        system("ip -6 addr flush dev bare") != 0) {
        child_tell('n');
        return 0;
    }
    child_tell('y');
    CHECK(is_refused("listen=tcp://bare:7400&peer-trust=network", -EADDRNOTAVAIL, "has no address", "bare"));
    CHECK(system("ip addr add 10.9.8.7/24 dev bare") == 0);
    struct berth *b = NULL;
    CHECK(berth_open(&b,
                     "embedded:?pool=8MiB&lock=off&log-level=error&name=a&listen=tcp://bare:7400&peer-trust=network",
                     NULL) == 0);
    char *text = NULL;
    CHECK(berth_query(b, BERTH_STATUS, NULL, &text) == 0);
    CHECK(strstr(text, "\"tcp://10.9.8.7:7400\"")); /* what others are told is the address, not the interface */
    free(text);
    berth_close(b);
    return 0;
}

static void test_interface_without_address(void **unused)
{
    struct child c;
    (void)unused;
    child_start(&c, without_address, NULL);
    char said = parent_hear(&c, 20000);
    if (said == 'n') {
        child_wait(&c);
        printf("SKIP: needs root to make a network namespace\n");
        skip();
    }
    assert_int_equal(said, 'y');
    assert_int_equal(child_wait(&c), 0);
}

/* Listens, and answers nobody. */
static int mute(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

/* What the status says of peer b: malloc'd. */
static char *why_of(struct berth *b)
{
    char *text = NULL, *why = NULL;
    size_t i;
    json_t *one;
    assert_int_equal(berth_query(b, BERTH_STATUS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(root, "peers"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "name")), "b") == 0) {
            why = strdup(json_string_value(json_object_get(one, "why")));
        }
    }
    json_decref(root);
    free(text);
    assert_non_null(why);
    return why;
}

struct reason {
    struct berth *b;
    const char *says, *names;
};

static bool says(void *arg)
{
    struct reason *r = arg;
    char *why = why_of(r->b);
    bool is = strstr(why, r->says) && strstr(why, r->names);
    free(why);
    return is;
}

/* A peer's address where nobody answers, nobody listens, or which leads nowhere: the reader's deadline holds, and the
 * reason with the address is in the status within the time-out of a connection. */
static void test_wrong_address(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 3; i++) {
        char url[512], address[64];
        struct berth *b = NULL;
        struct berth_view v;
        uint16_t own = free_port(), other = free_port();
        int fd = i == 0 ? mute(other) : -1;
        snprintf(address, sizeof address, i == 2 ? "240.0.0.1:%u" : "127.0.0.1:%u", other);
        snprintf(url, sizeof url,
                 "embedded:?pool=8MiB&lock=off&log-level=error&name=a&peer-trust=network&"
                 "peers=a=tcp://127.0.0.1:%u,b=tcp://%s",
                 own, address);
        assert_int_equal(berth_open(&b, url, NULL), 0);
        int64_t began = berth_deadline(0);
        int rc = berth_get(b, key_of("k"), &v, BERTH_PEERS, berth_deadline(SECONDS(1)));
        assert_true(rc < 0 && rc != -ENOENT); /* nobody could say that it is nowhere */
        assert_true(berth_deadline(0) - began < SECONDS(2));
        struct reason r = {b, i == 0 ? "no answer within 3000 ms" : "cannot connect to", address};
        if (!eventually(says, &r, 6000)) {
            fail_msg("of %s: '%s'", address, why_of(b));
        }
        began = berth_deadline(0);
        berth_close(b);
        assert_true(berth_deadline(0) - began < SECONDS(2));
        close(fd);
    }
}

static bool names_relay(void *arg)
{
    struct wired *d = arg;
    char address[32], why[256];
    snprintf(address, sizeof address, "127.0.0.1:%u", d->relay.port);
    wired_text(d, NEAR, "why", why, sizeof why);
    return strstr(why, address); /* both ends give it up after 3 s: either may be the first */
}

/* Something greets at the address as a node does, and says nothing more. */
static void test_silent_address(void **unused)
{
    struct wired d;
    (void)unused;
    wired_init(&d);
    relay_all(&d.relay, RELAY_HOLD);
    wired_embed(&d, FAR, "");
    wired_embed(&d, NEAR, "");
    assert_true(eventually(names_relay, &d, 6000));
    wired_end(&d);
}

static bool is_resolving(void *d)
{
    char state[32];
    wired_text(d, NEAR, "state", state, sizeof state);
    return strcmp(state, "resolving") == 0;
}

/* The name service does not answer, for a day if need be. */
static void test_name_service_hangs(void **unused)
{
    static struct daemon near;
    struct wired d;
    char shim[512];
    const char *bin = getenv("BERTH_BIN");
    (void)unused;
    snprintf(shim, sizeof shim, "%s/../tests/preload/slow_resolver.so", bin ? bin : "build/release/bin");
    if (SANITIZED) {
        printf("SKIP: no library can be put before a sanitizer's\n");
        skip();
    }
    assert_int_equal(access(shim, R_OK), 0);
    wired_init(&d);
    snprintf(d.list, sizeof d.list, "a-near=tcp://127.0.0.1:%u,b-far=tcp://somewhere.example:7400", d.port[NEAR]);
    setenv("LD_PRELOAD", shim, 1);
    wired_daemon(&d, NEAR, &near, "8MiB", (const char *[]){"--peer-trust", "network", NULL});
    unsetenv("LD_PRELOAD");
    assert_true(eventually(is_resolving, &d, 20000));
    assert_int_equal(berth_put(d.b[NEAR], key_of("k"), "x", 1, NULL), 0);
    berth_close(d.b[NEAR]);
    d.b[NEAR] = NULL;
    int64_t began = berth_deadline(0);
    assert_int_equal(daemon_stop(&near), 0);
    assert_true(berth_deadline(0) - began < SECONDS(2));
    d.as[NEAR] = NULL;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", near.dir);
    assert_int_equal(system(command), 0);
    wired_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_the_start),       cmocka_unit_test(test_interface_without_address),
        cmocka_unit_test(test_wrong_address),      cmocka_unit_test(test_silent_address),
        cmocka_unit_test(test_name_service_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
