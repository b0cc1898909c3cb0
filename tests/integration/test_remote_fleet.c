/* test_remote_fleet.c: clients without a node while nodes stop, die and come back; what does not open; who is let in.
 */
#include "tests/support/afar.h"
#include "tests/support/remote.h"
#include "replication/rendezvous.h"
#include "replication/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIENTS 256u /* that a node takes */

/* ---- nodes that stop, die, come back ---- */

static void test_paused_owner(void **unused)
{
    (void)unused;
    afar_put(1, "paused", 5u << 20, 0);
    afar_put(0, "awake", 1000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    afar_reads(c, "paused", 5u << 20);
    assert_int_equal(kill(afar_daemon[1].pid, SIGSTOP), 0);
    int64_t from = afar_now();
    long rc = afar_into(c, "paused", MS(700)); /* a good lease: the transfer itself hangs */
    int64_t took = afar_now() - from;
    assert_int_equal(rc, -ETIMEDOUT);
    assert_true(took >= MS(600) && took < SECONDS(5));
    from = afar_now();
    rc = afar_into(c, "paused", BERTH_FOREVER); /* nobody is waited for that says nothing */
    assert_true(rc < 0 && afar_now() - from < SECONDS(20));
    assert_int_equal(kill(afar_daemon[1].pid, SIGCONT), 0);
    afar_reads_soon(c, "paused", 5u << 20);
    afar_reads_soon(c, "awake", 1000);
    berth_close(c);
}

static void test_killed_and_back(void **unused)
{
    (void)unused;
    char key[2][16];
    struct berth_stat st;
    for (unsigned i = 0; i < NODES; i++) {
        snprintf(key[i], sizeof key[i], "on-%s", afar_names[i]);
        afar_put(i, key[i], 100000, 0);
    }
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    for (unsigned round = 0; round < 4; round++) {
        unsigned dies = round % 2; /* the one that it was told of, too */
        afar_reads_soon(c, key[0], 100000);
        afar_reads_soon(c, key[1], 100000);
        afar_kill(dies);
        int64_t from = afar_now();
        long rc = afar_into(c, key[dies], SECONDS(10));
        assert_true(rc == BERTH_EUNSURE || rc == BERTH_ENOTNOW || rc == BERTH_ENODE);
        assert_true(afar_now() - from < MS(1900)); /* refused connections say so, before a request is given up */
        struct berth_key both[] = {key_of(key[0]), key_of(key[1])};
        uint8_t present[2] = {9, 9};
        assert_true(berth_exists(c, both, 2, present, 0) < 0);
        assert_int_equal(present[dies], 2);
        assert_int_equal(present[1 - dies], 1); /* the other's answer stands */
        afar_again(dies);
        afar_reads_soon(c, key[dies], 100000);
        afar_settle();
    }
    afar_kill(0);
    afar_kill(1);
    assert_int_equal(afar_into(c, key[0], SECONDS(10)), BERTH_ENODE);
    assert_int_equal(berth_stat(c, key_of(key[0]), &st), BERTH_ENODE);
    afar_again(0);
    afar_again(1);
    afar_reads_soon(c, key[1], 100000);
    berth_close(c);
    afar_settle();
}

/* A fleet with another list is another one to a client: homes are chosen by the list. */
static void test_another_list(void **unused)
{
    (void)unused;
    static struct daemon one;
    char listen[64], more[256];
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", afar_port());
    snprintf(more, sizeof more, "one=%s,two=tcp://127.0.0.1:%u", listen, afar_port());
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--name", "one", "--listen", listen, NULL});
    struct berth *c = afar_client(listen);
    assert_int_equal(afar_into(c, "nowhere", SECONDS(10)), -ENOENT);
    daemon_end(&one);
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--name", "one", "--listen", listen, "--peers",
                                        more, NULL});
    struct afar_wish w = {.c = c, .key = "nowhere", .want = BERTH_ERESTART};
    assert_true(eventually(afar_comes, &w, SOON_MS));
    berth_close(c);
    daemon_end(&one);
}

/* ---- opening ---- */

static void opens_not(const char *url, int code, const char *sentence)
{
    struct berth *c = NULL;
    struct berth_error_info e;
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = MS(1500)};
    int64_t from = afar_now();
    int rc = berth_open(&c, url, &o);
    if (rc == 0) {
        berth_close(c);
    }
    berth_error(NULL, &e);
    if (rc != code || !strstr(e.sentence, sentence)) {
        fail_msg("%s: %s, '%s'", url, berth_error_name(rc), e.sentence);
    }
    assert_true(afar_now() - from < SECONDS(10));
}

/* Says so much to whoever connects, and then nothing. */
struct stranger {
    int fd;
    pthread_t thread;
    const char *says;
    char url[64];
};

static void *accept_one(void *arg)
{
    struct stranger *s = arg;
    int fd = accept(s->fd, NULL, NULL);
    char byte;
    if (fd >= 0 && send(fd, s->says, strlen(s->says), MSG_NOSIGNAL) >= 0) {
        while (recv(fd, &byte, 1, 0) > 0) {
            continue;
        }
    }
    close(fd);
    return NULL;
}

static void stranger_start(struct stranger *s, const char *says, int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *at = family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t size = family == AF_INET6 ? sizeof v6 : sizeof v4;
    s->says = says;
    s->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, at, size), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(getsockname(s->fd, at, &size), 0);
    unsigned port = ntohs(family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    snprintf(s->url, sizeof s->url, family == AF_INET6 ? "tcp://[::1]:%u" : "tcp://127.0.0.1:%u", port);
    assert_int_equal(pthread_create(&s->thread, NULL, accept_one, s), 0);
}

static void stranger_end(struct stranger *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
}

static void test_opens_not(void **unused)
{
    static const char *const says[] = {"", "HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n<html>................</html>",
                                       "220 mail.example ESMTP, of which a client understands not a single word....."};
    (void)unused;
    char url[128];
    snprintf(url, sizeof url, "%s?cluster=another", afar_address[0]);
    opens_not(url, -EACCES, "of the cluster 'berth'");
    snprintf(url, sizeof url, "%s?pool=64MiB", afar_address[0]);
    opens_not(url, -EINVAL, "'pool' is no setting");
    opens_not("", -EINVAL, "the node's name is empty");
    setenv("BERTH_NODE", "", 1);
    opens_not(NULL, -EINVAL, "$BERTH_NODE is empty");
    unsetenv("BERTH_NODE");
    snprintf(url, sizeof url, "%s?verify=sometimes", afar_address[0]);
    opens_not(url, -EINVAL, "verify");
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", afar_port());
    opens_not(url, BERTH_ENODE, "refused");
    opens_not("tcp://", -EINVAL, "HOST:PORT");
    opens_not("tcp://127.0.0.1", -EINVAL, "HOST:PORT");
    opens_not("tcp://[::1", -EINVAL, "HOST");
    opens_not("tcp://host.invalid:7400", BERTH_ENODE, "host.invalid");
    opens_not("tcp://192.0.2.1:7400", -EACCES, "peer-trust=network");
    opens_not("tcp://192.0.2.1:7400?peer-trust=network", BERTH_ENODE, "192.0.2.1");
    opens_not("verbs://127.0.0.1:7400", -EOPNOTSUPP, "later version");
    for (unsigned i = 0; i < sizeof says / sizeof *says; i++) {
        struct stranger s;
        stranger_start(&s, says[i], i ? AF_INET : AF_INET6);
        opens_not(s.url, BERTH_ENODE, s.url);
        stranger_end(&s);
    }
}

static void test_by_name_and_v6(void **unused)
{
    (void)unused;
    static struct daemon one;
    char listen[64], url[64];
    unsigned port = afar_port();
    afar_put(1, "named", 100, 0);
    afar_settle();
    snprintf(url, sizeof url, "tcp://localhost:%s", strrchr(afar_address[0], ':') + 1);
    struct berth *c = afar_client(url);
    afar_reads(c, "named", 100);
    berth_close(c);
    snprintf(listen, sizeof listen, "tcp://[::1]:%u", port);
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--listen", listen, NULL});
    struct berth *local = daemon_open(&one, "test");
    assert_int_equal(berth_put(local, key_of("six"), "6", 1, NULL), 0);
    setenv("BERTH_NODE", listen, 1);
    c = afar_client(NULL);
    unsetenv("BERTH_NODE");
    afar_reads_soon(c, "nowhere", -ENOENT);
    assert_int_equal(afar_into(c, "six", SECONDS(20)), 1);
    assert_int_equal(afar_got[0], '6');
    berth_close(c);
    berth_close(local);
    daemon_end(&one);
}

/* ---- who is let in, and what for ---- */

static void test_client_writes_nothing(void **unused)
{
    (void)unused;
    static struct remote r;
    static const uint8_t region[16] = {7};
    struct peer_config member;
    afar_put(0, "mine", 100, 0);
    afar_settle();
    remote_open(&r, afar_address[0], "thief");
    struct wire_message m = {.head = {.op = WIRE_PUBLISH}};
    m.publish.stream = 1;
    m.publish.owner_region = 99;
    m.publish.owner_incarnation = 1;
    m.publish.home_region = r.node.region_id;
    m.publish.home_incarnation = r.node.incarnation;
    m.publish.revision = r.node.revision;
    struct wire_item item = {.entry = {.kind = WIRE_OBJECT,
                                       .key = {.data = "mine", .size = 4},
                                       .version = {.counter = INT64_MAX, .region = 9}}};
    assert_true(remote_ask(&r, &m, &item, 1) < 0);
    remote_close(&r);
    struct berth *c = afar_client(afar_address[0]);
    afar_reads(c, "mine", 100);
    berth_close(c);
    /* No member, but it says that it is one. */
    peer_config_init(&member);
    snprintf(member.self.cluster, sizeof member.self.cluster, "berth");
    snprintf(member.self.node, sizeof member.self.node, "stranger");
    snprintf(member.self.address, sizeof member.self.address, "tcp://127.0.0.1:1");
    memcpy(member.self.region, region, sizeof region);
    member.self.revision = r.node.revision;
    member.self.tombstone_ns = r.node.tombstone_ns;
    member.self.fresh_ns = r.node.fresh_ns;
    member.self.replaceable = r.node.replaceable;
    member.self.incarnation = 1;
    assert_false(remote_greet(&r, afar_address[0], &member.self));
    assert_non_null(strstr(r.why, "not in the member list"));
    remote_close(&r);
}

static void test_members_in_parts(void **unused)
{
    (void)unused;
    static struct remote r;
    remote_open(&r, afar_address[1], "lister");
    struct wire_message m = {.head = {.op = WIRE_MEMBERS}};
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, NODES);
    assert_int_equal(r.answer.listed.total, NODES);
    assert_int_equal(r.answer.listed.homes, 1);
    assert_int_equal(r.answer.listed.revision, r.node.revision);
    m.from = 1;
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, 1);
    m.from = 2;
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, 0);
    remote_close(&r);
}

struct again {
    const char *url;
    struct berth *c;
};

static bool lets_in(void *arg)
{
    struct again *a = arg;
    return berth_open(&a->c, a->url, NULL) == 0;
}

/* KiB that the process has in memory. */
static long resident(pid_t pid)
{
    char path[64], line[128];
    long kib = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "VmRSS: %ld", &kib) != 1) {
        continue;
    }
    fclose(f);
    assert_true(kib > 0);
    return kib;
}

/* What clients that have gone had is given back: a few MiB stay at most. */
static bool is_given_back(void *before)
{
    return SANITIZED || resident(afar_daemon[0].pid) <= *(long *)before + 3000;
}

static void test_too_many_clients(void **unused)
{
    (void)unused;
    struct rlimit files;
    char name[32];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct remote **r = calloc(CLIENTS, sizeof *r);
    long before = resident(afar_daemon[0].pid);
    struct berth *c = afar_client(afar_address[0]);
    for (unsigned i = 0; i < CLIENTS - 1; i++) {
        r[i] = malloc(sizeof **r);
        assert_non_null(r[i]);
        snprintf(name, sizeof name, "client%u", i);
        remote_open(r[i], afar_address[0], name);
        for (unsigned k = i >= 64 ? i - 64 : 0; k < i; k++) {
            remote_turn(r[k], 0); /* it answers keep-alives */
        }
    }
    opens_not(afar_address[0], -EUSERS, "as many clients as it takes, 256");
    afar_put(0, "full", 100, 0);
    afar_reads_soon(c, "full", 100);
    for (unsigned i = 0; i < CLIENTS - 1; i++) {
        remote_close(r[i]);
        free(r[i]);
    }
    free(r);
    berth_close(c);
    struct again again = {.url = afar_address[0]};
    assert_true(eventually(lets_in, &again, SOON_MS)); /* the others' places are free again */
    afar_reads(again.c, "full", 100);
    berth_close(again.c);
    assert_true(eventually(is_given_back, &before, SOON_MS));
}

/* ---- a node that is none ---- */

enum lie { TRUTH, WRONG_REVISION, NOT_IN_IT, EMPTY, SILENT, LIES };

/* Speaks the protocol of nodes, and has nothing but a list. */
struct fake {
    void *ctx;
    struct connection *c;
    struct peer *peer;
    struct peer_identity self;
    pthread_t thread;
    _Atomic bool stop, ask; /* ask: sends what only nodes may be asked */
    _Atomic int answers;    /* to that: .. */
    int32_t answer[2];
    enum lie lie;
    char url[80];
    uint8_t buffer[WIRE_MESSAGE_MAX];
};

static void fake_list(struct fake *f, uint64_t id)
{
    struct wire_message m = {.head = {.op = WIRE_LISTED, .id = id}};
    struct wire_writer w;
    const char *name = f->lie == NOT_IN_IT ? "y" : "x";
    m.listed.revision = f->self.revision + (f->lie == WRONG_REVISION);
    m.listed.total = 1;
    m.listed.homes = 1;
    wire_begin(&w, f->buffer, sizeof f->buffer, &m);
    if (f->lie != EMPTY) {
        wire_add(&w, &(struct wire_item){.member = {.weight = 1, .name = {name, 1}}});
    }
    long n = wire_end(&w);
    peer_answer(f->peer, f->buffer, (size_t)n, id);
}

/* A lease of the client's pool, and a publication for the client's table: it has neither. */
static void fake_asks(struct fake *f)
{
    static uint8_t bytes[2][4096];
    struct wire_message m[2] = {{.head = {.op = WIRE_LEASE, .id = 1}}, {.head = {.op = WIRE_PUBLISH, .id = 1}}};
    for (unsigned i = 0; i < 2; i++) {
        struct wire_writer w;
        m[1].publish.stream = 1;
        wire_begin(&w, bytes[i], sizeof bytes[i], &m[i]);
        if (i == 0) {
            wire_add(&w, &(struct wire_item){.key = {.data = "k", .size = 1}});
        }
        long n = wire_end(&w);
        peer_ask(f->peer, bytes[i], (size_t)n, INT64_MAX, INT64_MAX, i, afar_now(), NULL);
        for (const struct peer_command *c; (c = peer_command(f->peer));) {
            if (c->kind == PEER_SEND) {
                tcp_transport.send(f->ctx, f->c, c->bytes, c->n);
            }
        }
    }
}

static void fake_event(struct fake *f, const struct peer_event *ev)
{
    const struct peer_command *c;
    if (!f->peer) {
        return;
    }
    peer_event(f->peer, ev, afar_now());
    while ((c = peer_command(f->peer))) {
        if (c->kind == PEER_SEND && f->c) {
            tcp_transport.send(f->ctx, f->c, c->bytes, c->n);
        } else if (c->kind == PEER_REQUEST && c->message->head.op == WIRE_MEMBERS && f->lie != SILENT) {
            fake_list(f, c->message->head.id);
        } else if (c->kind == PEER_ANSWERED && f->answers < 2) {
            f->answer[c->user] = c->status;
            f->answers++;
        }
    }
}

static void fake_accepted(void *env, struct connection *c)
{
    struct fake *f = env;
    struct peer_config config;
    peer_config_init(&config);
    config.self = f->self;
    f->c = c;
    if (!f->peer && peer_create(&f->peer, &config, afar_now())) {
        f->peer = NULL;
    }
}

static void fake_closed(void *env, struct connection *c, int status, const char *why)
{
    struct fake *f = env;
    (void)c, (void)why;
    f->c = NULL;
    fake_event(f, &(struct peer_event){.kind = PEER_EV_CLOSED, .status = status});
}

static void fake_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    (void)c;
    fake_event(env, &(struct peer_event){.kind = PEER_EV_MESSAGE, .bytes = bytes, .n = n});
}

static void fake_connected(void *env, struct connection *c, int status, const char *why)
{
    (void)env, (void)c, (void)status, (void)why;
}

static void fake_room(void *env, struct connection *c)
{
    (void)env, (void)c;
}

static int fake_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    (void)env, (void)c, (void)want, (void)token;
    return -EOPNOTSUPP;
}

static void fake_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    (void)env, (void)c, (void)lease, (void)token, (void)status;
}

static void *fake_run(void *arg)
{
    struct fake *f = arg;
    while (!f->stop) {
        struct pollfd p = {.fd = tcp_transport.descriptor(f->ctx), .events = POLLIN};
        poll(&p, 1, 10);
        while (tcp_transport.turn(f->ctx) > 0) {
            continue;
        }
        if (f->ask) {
            f->ask = false;
            fake_asks(f);
        }
        if (f->peer && peer_timer(f->peer) <= afar_now()) {
            fake_event(f, &(struct peer_event){.kind = PEER_EV_TICK});
        }
        tcp_transport.flush(f->ctx);
    }
    return NULL;
}

static void fake_start(struct fake *f, enum lie lie)
{
    static const struct transport_events events = {fake_connected, fake_accepted, fake_closed, fake_message,
                                                   fake_room,      fake_admit,    fake_served};
    struct transport_config config = {.listen = "tcp://127.0.0.1:0"};
    struct rendezvous_member one = {.id = rendezvous_id("x", 1), .weight = 1, .state = MEMBER_IN};
    struct rendezvous *list;
    struct peer_config peer;
    char digits[64], why[TRANSPORT_WHY_MAX];
    *f = (struct fake){.lie = lie};
    assert_int_equal(tcp_transport.open(&f->ctx, &config, &events, f, why, sizeof why), 0);
    assert_true(tcp_transport.address(f->ctx, digits, sizeof digits) > 0);
    snprintf(f->url, sizeof f->url, "tcp://%s", digits);
    assert_int_equal(rendezvous_create(&list, &one, 1, 1), 0);
    peer_config_init(&peer);
    f->self = peer.self;
    f->self.revision = rendezvous_revision(list);
    rendezvous_destroy(list);
    snprintf(f->self.cluster, sizeof f->self.cluster, "berth");
    snprintf(f->self.node, sizeof f->self.node, "x");
    snprintf(f->self.address, sizeof f->self.address, "%s", f->url);
    f->self.region[0] = 9;
    f->self.incarnation = 1;
    f->self.pool_bytes = 1u << 20;
    assert_int_equal(pthread_create(&f->thread, NULL, fake_run, f), 0);
}

static void fake_end(struct fake *f)
{
    f->stop = true;
    pthread_join(f->thread, NULL);
    tcp_transport.close(f->ctx);
    peer_destroy(f->peer);
}

static bool fake_answered(void *fake)
{
    return ((struct fake *)fake)->answers == 2;
}

static void test_a_node_that_lies(void **unused)
{
    static const char *const says[LIES] = {[WRONG_REVISION] = "contradicts itself",
                                           [NOT_IN_IT] = "contradicts itself",
                                           [EMPTY] = "does not say who",
                                           [SILENT] = "no answer in time"};
    static struct fake f;
    (void)unused;
    for (enum lie lie = WRONG_REVISION; lie < LIES; lie++) {
        fake_start(&f, lie);
        opens_not(f.url, BERTH_ENODE, says[lie]);
        fake_end(&f);
    }
    /* One that is as it should be, but takes the client for a node. */
    fake_start(&f, TRUTH);
    struct berth *c = afar_client(f.url);
    f.ask = true;
    assert_true(eventually(fake_answered, &f, SOON_MS));
    assert_int_equal(f.answer[0], -EOPNOTSUPP);
    assert_int_equal(f.answer[1], -EOPNOTSUPP);
    assert_int_equal(afar_into(c, "k", SECONDS(10)), BERTH_EUNSURE); /* it answers no question of the client's */
    berth_close(c);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paused_owner),     cmocka_unit_test(test_killed_and_back),
        cmocka_unit_test(test_another_list),     cmocka_unit_test(test_opens_not),
        cmocka_unit_test(test_by_name_and_v6),   cmocka_unit_test(test_client_writes_nothing),
        cmocka_unit_test(test_members_in_parts), cmocka_unit_test(test_a_node_that_lies),
        cmocka_unit_test(test_too_many_clients),
    };
    return cmocka_run_group_tests(tests, afar_start, afar_end);
}
