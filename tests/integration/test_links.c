/* test_links.c: nodes that find each other, lose each other and find each other again; and who is not let in. */
#include "tests/support/daemon.h"
#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 3u
#define SOON_MS 20000

static const char *const names[NODES] = {"alpha", "beta", "gamma"};
static struct daemon node[NODES];
static uint16_t port[NODES];
static char list[256];

/* ---- nodes ---- */

static void make_list(unsigned n)
{
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        port[i] = free_port();
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s=tcp://127.0.0.1:%u", i ? "," : "", names[i], port[i]);
    }
}

static const char *const *flags(const char *name, const char *peers, const char *const *more)
{
    static const char *all[20];
    unsigned n = 0;
    const char *first[] = {"--pool", "8M", "--lock", "off", "--name", name, "--peers", peers, NULL};
    for (unsigned i = 0; first[i]; i++) {
        all[n++] = first[i];
    }
    for (unsigned i = 0; more && more[i]; i++) {
        all[n++] = more[i];
    }
    all[n] = NULL;
    return all;
}

static void start(unsigned i)
{
    daemon_start(&node[i], flags(names[i], list, NULL));
}

/* One field of a peer in a node's status: malloc'd JSON value, or NULL. */
static json_t *field_at(struct berth *b, const char *peer, const char *name)
{
    char *text = NULL;
    json_t *found = NULL;
    assert_int_equal(berth_query(b, BERTH_STATUS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "peers"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "name")), peer) == 0) {
            found = json_incref(json_object_get(one, name));
        }
    }
    json_decref(root);
    free(text);
    return found;
}

static json_t *field_of(struct daemon *d, const char *peer, const char *name)
{
    struct berth *b = daemon_open(d, "test");
    json_t *found = field_at(b, peer, name);
    berth_close(b);
    return found;
}

struct wanted {
    struct daemon *d;
    const char *peer, *name, *text;
    json_int_t number;
};

static bool has(void *arg)
{
    struct wanted *w = arg;
    json_t *v = field_of(w->d, w->peer, w->name);
    bool is = v && (w->text ? strcmp(json_string_value(v), w->text) == 0 : json_integer_value(v) == w->number);
    json_decref(v);
    return is;
}

static bool beta_is_up(void *arg)
{
    json_t *v = field_at(arg, names[1], "state");
    bool is = v && strcmp(json_string_value(v), "up") == 0;
    json_decref(v);
    return is;
}

static void expect_state(unsigned i, unsigned peer, const char *state)
{
    struct wanted w = {&node[i], names[peer], "state", state, 0};
    if (!eventually(has, &w, SOON_MS)) {
        fail_msg("%s does not see %s '%s'", names[i], names[peer], state);
    }
}

static void expect_number(unsigned i, unsigned peer, const char *name, json_int_t number)
{
    struct wanted w = {&node[i], names[peer], name, NULL, number};
    if (!eventually(has, &w, SOON_MS)) {
        fail_msg("at %s, %s.%s is not %lld", names[i], names[peer], name, (long long)number);
    }
}

/* ---- members ---- */

static void test_three_find_each_other(void **unused)
{
    (void)unused;
    make_list(3);
    for (unsigned i = 0; i < 3; i++) {
        start(i);
    }
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned k = 0; k < 3; k++) {
            expect_state(i, k, i == k ? "self" : "up");
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        daemon_end(&node[i]);
    }
}

static bool metrics_have(void *arg)
{
    const struct wanted *w = arg;
    char *text = NULL;
    struct berth *b = daemon_open(w->d, "test");
    assert_int_equal(berth_query(b, BERTH_METRICS, NULL, &text), 0);
    bool is = strstr(text, w->text);
    free(text);
    berth_close(b);
    return is;
}

static void killed_and_back(unsigned victim)
{
    unsigned other = 1 - victim;
    daemon_kill(&node[victim]);
    assert_true(daemon_says(&node[other], "is down", SOON_MS));
    char line[100];
    snprintf(line, sizeof line, "berth_peer_up{peer=\"%s\"} 0", names[victim]);
    struct wanted w = {.d = &node[other], .text = line};
    assert_true(eventually(metrics_have, &w, SOON_MS));
    daemon_again(&node[victim]);
    expect_state(other, victim, "up");
    expect_state(victim, other, "up");
    expect_number(other, victim, "incarnation", 2);
    expect_number(other, victim, "downs", 1);
    snprintf(line, sizeof line, "berth_peer_up{peer=\"%s\"} 1", names[victim]);
    assert_true(eventually(metrics_have, &w, SOON_MS));
}

static void test_killed_ones_come_back(void **unused)
{
    (void)unused;
    for (unsigned victim = 0; victim < 2; victim++) { /* who connects, and who is connected to */
        make_list(2);
        start(0);
        start(1);
        expect_state(0, 1, "up");
        killed_and_back(victim);
        daemon_end(&node[0]);
        daemon_end(&node[1]);
    }
}

static void test_good_bye(void **unused)
{
    (void)unused;
    make_list(2);
    start(0);
    start(1);
    expect_state(0, 1, "up");
    assert_int_equal(daemon_stop(&node[1]), 0);
    assert_true(daemon_says(&node[0], "peer 'beta' is down: 'beta' has stopped", SOON_MS));
    daemon_again(&node[1]);
    expect_state(0, 1, "up");
    assert_int_equal(daemon_stop(&node[0]), 0);
    assert_true(daemon_says(&node[1], "peer 'alpha' is down: 'alpha' has stopped", SOON_MS));
    close(node[0].log);
    daemon_end(&node[1]);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", node[0].dir);
    assert_int_equal(system(command), 0);
}

/* An application's own node is a peer as berthd is. */
static void test_embedded_peer(void **unused)
{
    (void)unused;
    char url[400];
    struct berth *b = NULL;
    make_list(2);
    start(1);
    snprintf(url, sizeof url, "embedded:?pool=8MiB&lock=off&log-level=error&name=alpha&peers=%s", list);
    assert_int_equal(berth_open(&b, url, NULL), 0);
    expect_state(1, 0, "up");
    assert_true(eventually(beta_is_up, b, SOON_MS)); /* before that it has nobody to say good-bye to */
    berth_close(b);
    expect_state(1, 0, "down");
    if (!daemon_says(&node[1], "peer 'alpha' is down: 'alpha' has stopped", SOON_MS))
        fail_msg("%s", node[1].text);
    daemon_end(&node[1]);
}

/* ---- who is not let in ---- */

/* Both say in their status why the other is down, not in the log only. */
static void expect_why(unsigned of, unsigned about, const char *sentence)
{
    json_t *why = field_of(&node[of], names[about], "why");
    const char *text = json_string_value(why);
    if (!text || !strstr(text, sentence)) {
        fail_msg("at %s, %s is down: %s", names[of], names[about], text ? text : "");
    }
    json_decref(why);
}

static void expect_refusal(const char *const *first, const char *const *second, const char *sentence)
{
    make_list(2);
    char other[300];
    const char *peers = list;
    if (second && strcmp(second[0], "LIST") == 0) { /* a list that differs by a weight */
        snprintf(other, sizeof other, "%s*7", list);
        peers = other;
        second = NULL;
    }
    daemon_start(&node[0], flags(names[0], list, first));
    daemon_start(&node[1], flags(names[1], peers, second));
    assert_true(daemon_says(&node[0], sentence, SOON_MS));
    assert_true(daemon_says(&node[1], sentence, SOON_MS));
    expect_number(0, 1, "ups", 0);
    expect_number(1, 0, "ups", 0);
    expect_why(0, 1, sentence);
    expect_why(1, 0, sentence);
    daemon_end(&node[0]);
    daemon_end(&node[1]);
}

static void test_another_cluster(void **unused)
{
    (void)unused;
    expect_refusal(NULL, (const char *[]){"--cluster", "other", NULL}, "is of the cluster");
}

static void test_another_list(void **unused)
{
    (void)unused;
    expect_refusal(NULL, (const char *[]){"LIST", NULL}, "member lists of 'beta' and 'alpha' differ");
    expect_refusal(NULL, (const char *[]){"--homes", "1", NULL}, "member lists of 'beta' and 'alpha' differ");
}

static void test_another_memory(void **unused)
{
    (void)unused;
    expect_refusal(NULL, (const char *[]){"--tombstones", "2h", NULL},
                   "'tombstones' is 7200s on 'beta' and 3600s on 'alpha': it must be the same on all nodes");
    expect_refusal((const char *[]){"--fresh", "1s", NULL}, NULL, "'fresh' is 60s on 'beta' and 1s on 'alpha'");
    expect_refusal(NULL, (const char *[]){"--replaceable", "sessions", NULL},
                   "other namespaces are 'replaceable' on 'beta' than on 'alpha'");
}

/* alpha looks for beta where gamma listens. */
static void test_another_name(void **unused)
{
    (void)unused;
    make_list(3);
    char wrong[256];
    snprintf(wrong, sizeof wrong, "alpha=tcp://127.0.0.1:%u,beta=tcp://127.0.0.1:%u,gamma=tcp://127.0.0.1:%u", port[0],
             port[2], port[1]);
    daemon_start(&node[0], flags(names[0], wrong, NULL));
    daemon_start(&node[2], flags(names[2], list, NULL));
    assert_true(daemon_says(&node[0], "'beta' was looked for at", SOON_MS));
    expect_state(2, 0, "down");
    expect_number(0, 1, "ups", 0);
    daemon_end(&node[0]);
    daemon_end(&node[2]);
}

/* ---- who is met late ---- */

/* A listener that takes connections to beta's port and drops them. */
static int listen_on(uint16_t at)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(at)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

/* Who has been away for a moment is tried again soon: not later and later, as who stays away. */
static void test_early_attempts_are_close(void **unused)
{
    (void)unused;
    int64_t before = 0, least = INT64_MAX;
    make_list(2);
    int fd = listen_on(port[1]);
    start(0);
    for (unsigned i = 0; i < 10; i++) {
        int c = accept(fd, NULL, NULL);
        assert_true(c >= 0);
        close(c);
        int64_t now = berth_deadline(0);
        if (i > 6 && now - before < least) { /* 50 ms doubled six times are 3.2 s */
            least = now - before;
        }
        before = now;
    }
    assert_true(least < 1000000000);
    close(fd);
    daemon_end(&node[0]);
}

/* A node that has just begun and has not met the others yet doesn't say that it is not known whether a key is there: it
 * asks when they are met. */
static void test_first_question_waits(void **unused)
{
    (void)unused;
    long result = 0;
    for (unsigned tries = 0; tries < 3 && result != -ENOENT;
         tries++) { /* alpha's start may take longer than the wait */
        make_list(2);
        start(1);
        struct berth *b = daemon_open(&node[1], "test");
        struct berth_queue *q;
        struct berth_op op = {
            .opcode = BERTH_OP_PULL, .key = key_of("nowhere"), .deadline = berth_deadline(20000000000)};
        struct berth_op *done;
        assert_int_equal(berth_queue_open(b, 4, &q), 0);
        assert_int_equal(berth_submit(q, &op, 1), 1);
        start(0);
        assert_int_equal(berth_reap(q, &done, 1, BERTH_FOREVER), 1);
        result = op.result;
        berth_queue_close(q);
        berth_close(b);
        daemon_end(&node[0]);
        daemon_end(&node[1]);
    }
    assert_int_equal(result, -ENOENT);
}

/* Who does not come at all is waited for a moment only, and then not for each question anew. */
static void test_absent_one_is_unsure(void **unused)
{
    (void)unused;
    make_list(2);
    start(1);
    struct berth *b = daemon_open(&node[1], "test");
    struct berth_stat st;
    for (unsigned i = 0; i < 2; i++) {
        int64_t before = berth_deadline(0);
        assert_int_equal(berth_stat_peers(b, key_of("nowhere"), &st, berth_deadline(60000000000)), BERTH_EUNSURE);
        assert_true(i == 0 || berth_deadline(0) - before < 1500000000);
    }
    expect_why(1, 0, "it has not connected to this node yet");
    berth_close(b);
    daemon_end(&node[1]);
}

/* alpha is started again with a wrong port for beta. It runs, and beta can't know: it says what it knows. */
static void test_wrong_port_at_the_other(void **unused)
{
    (void)unused;
    make_list(2);
    start(0);
    start(1);
    expect_state(0, 1, "up");
    assert_int_equal(daemon_stop(&node[0]), 0);
    snprintf(list, sizeof list, "alpha=tcp://127.0.0.1:%u,beta=tcp://127.0.0.1:%u", port[0], free_port());
    daemon_again(&node[0]); /* its flags name `list` */
    assert_true(daemon_says(&node[0], "no connection to peer 'beta'", SOON_MS));
    expect_state(1, 0, "down");
    expect_why(1, 0, "it has not connected to this node since: if it runs, its log says why");
    daemon_end(&node[0]);
    daemon_end(&node[1]);
}

/* ---- configuration ---- */

/* A node whose entry in the list is not where it listens says so, in the log and in its status. */
static void test_listens_elsewhere(void **unused)
{
    (void)unused;
    char listen[40], sentence[120];
    make_list(1);
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", free_port());
    snprintf(sentence, sizeof sentence, "listens on %s, but its entry in the list", listen);
    daemon_start(&node[0], flags(names[0], list, (const char *[]){"--listen", listen, NULL}));
    assert_true(daemon_says(&node[0], sentence, SOON_MS));
    expect_why(0, 0, sentence);
    daemon_end(&node[0]);
    start(0);
    json_t *why = field_of(&node[0], names[0], "why");
    assert_string_equal(json_string_value(why), "");
    json_decref(why);
    daemon_end(&node[0]);
    snprintf(list, sizeof list, "%s=tcp://localhost:%u", names[0], port[0]); /* a name: the port is the same */
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", port[0]);
    daemon_start(&node[0], flags(names[0], list, (const char *[]){"--listen", listen, NULL}));
    why = field_of(&node[0], names[0], "why");
    assert_string_equal(json_string_value(why), "");
    json_decref(why);
    daemon_end(&node[0]);
}

static void expect_start(const char *const *extra, int code, const char *sentence)
{
    struct daemon d = {0};
    char command[128];
    snprintf(d.dir, sizeof d.dir, "/dev/shm/berth-test-XXXXXX");
    assert_non_null(mkdtemp(d.dir));
    snprintf(d.region, sizeof d.region, "%s/region", d.dir);
    snprintf(d.socket, sizeof d.socket, "%s/sock", d.dir);
    for (unsigned i = 0; extra[i]; i++) {
        d.extra[i] = extra[i];
    }
    assert_int_equal(daemon_try(&d), code);
    if (!strstr(d.text, sentence)) {
        fail_msg("'%s' is not in: %s", sentence, d.text);
    }
    assert_int_equal(access(d.region, F_OK), -1); /* nothing is left behind */
    close(d.log);
    snprintf(command, sizeof command, "rm -rf %s", d.dir);
    assert_int_equal(system(command), 0);
}

#define START(code, sentence, ...) \
    expect_start((const char *[]){"--pool", "8M", "--lock", "off", __VA_ARGS__, NULL}, code, sentence)

static void test_addresses(void **unused)
{
    (void)unused;
    START(2, "there is no authentication yet", "--listen", "tcp://0.0.0.0:7400");
    START(2, "there is no authentication yet", "--listen", "tcp://0.0.0.0:7400", "--peer-trust", "network");
    START(2, "there is no authentication yet", "--listen", "tcp://[::]:7400", "--peer-trust", "network");
    START(2, "there is no authentication yet", "--listen", "tcp://10.0.0.1:7400");
    START(2, "there is no authentication yet", "--name", "a", "--peers", "a,b=tcp://10.0.0.2:1", "--listen",
          "tcp://127.0.0.1:7400");
    START(2, "write off or tcp://HOST:PORT", "--listen", "127.0.0.1:7400");
    START(2, "'listen' is off", "--name", "a", "--peers", "a,b=tcp://127.0.0.1:7400");
    START(2, "is not among the peers", "--name", "c", "--peers", "a=tcp://127.0.0.1:1,b=tcp://127.0.0.1:2");
    START(2, "has no address", "--name", "a", "--peers", "a,b", "--listen", "tcp://127.0.0.1:0");
    /* An address of a documentation network: trusted, and not this host's. */
    START(1, "192.0.2.1", "--listen", "tcp://192.0.2.1:7400", "--peer-trust", "network");
}

static void test_port_is_taken(void **unused)
{
    (void)unused;
    char address[40];
    make_list(2);
    start(0);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port[0]);
    START(5, address + 6, "--listen", address); /* refused, as a region in use is */
    daemon_end(&node[0]);
}

/* ---- A8, A16: what is no peer changes nothing ---- */

/* What is said in return until the other end closes. */
static size_t say(uint16_t to, const void *bytes, size_t n, char *answer, size_t room)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    size_t got = 0;
    ssize_t r;
    while (got < room && (r = recv(fd, answer + got, room - got, 0)) > 0) {
        got += (size_t)r;
    }
    assert_true(got == room || r == 0 || errno != EAGAIN); /* it closes, and does not leave us waiting */
    close(fd);
    return got;
}

static void test_strangers_change_nothing(void **unused)
{
    (void)unused;
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "POST /stop HTTP/1.1\r\n\r\n",
                                        "stop\n",
                                        "shutdown\n",
                                        "config set dir /\r\n",
                                        "*1\r\n$8\r\nFLUSHALL\r\n",
                                        "BERTHW1",
                                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"};
    make_list(2);
    start(0);
    start(1);
    expect_state(0, 1, "up");
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        char answer[256];
        char padded[4096] = {0}; /* more than any greeting, so that it is judged at once */
        memcpy(padded, words[i], strlen(words[i]));
        size_t n = say(port[0], padded, sizeof padded, answer, sizeof answer);
        assert_true(n < sizeof answer);
        for (size_t k = 0; k + 4 <= n; k++) {
            assert_memory_not_equal(answer + k, "HTTP", 4);
        }
    }
    unsigned seed = 7;
    for (unsigned i = 0; i < 50; i++) {
        char noise[512], answer[256];
        for (unsigned k = 0; k < sizeof noise; k++) {
            noise[k] = (char)rand_r(&seed);
        }
        say(port[0], noise, sizeof noise, answer, sizeof answer);
    }
    assert_true(daemon_says(&node[0], "connection(s) to the peers' port were closed", SOON_MS));
    expect_state(0, 1, "up");
    expect_number(0, 1, "downs", 0);
    daemon_end(&node[0]);
    daemon_end(&node[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_find_each_other),
        cmocka_unit_test(test_killed_ones_come_back),
        cmocka_unit_test(test_good_bye),
        cmocka_unit_test(test_embedded_peer),
        cmocka_unit_test(test_another_cluster),
        cmocka_unit_test(test_another_list),
        cmocka_unit_test(test_another_memory),
        cmocka_unit_test(test_listens_elsewhere),
        cmocka_unit_test(test_another_name),
        cmocka_unit_test(test_early_attempts_are_close),
        cmocka_unit_test(test_first_question_waits),
        cmocka_unit_test(test_absent_one_is_unsure),
        cmocka_unit_test(test_wrong_port_at_the_other),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_port_is_taken),
        cmocka_unit_test(test_strangers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
