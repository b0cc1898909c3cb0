/* test_homes_wire.c: three nodes tell each other what they have: a client asks each of them who has a key, by the
 * wire's messages, while objects come and go and nodes die and come back.
 */
#include "replication/rendezvous.h"
#include "tests/support/remote.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 3u
#define KEYS 300u
#define HOMES 2u
#define SOON_MS 30000

static const char *const names[NODES] = {"a", "b", "c"};
static struct daemon d[NODES];
static struct berth *b[NODES];
static char address[NODES][64], peers[512], config[64];
static struct rendezvous *list;
static struct remote reader;
static uint8_t payload[4096], got[4096];

/* ---- nodes ---- */

/* Ports that were free a moment ago: kept open together, so that they differ. */
static void pick_ports(void)
{
    int fd[NODES];
    peers[0] = '\0';
    for (unsigned i = 0; i < NODES; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof at;
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd[i], (struct sockaddr *)&at, size), 0);
        assert_int_equal(getsockname(fd[i], (struct sockaddr *)&at, &size), 0);
        snprintf(address[i], sizeof address[i], "tcp://127.0.0.1:%u", ntohs(at.sin_port));
        size_t used = strlen(peers);
        snprintf(peers + used, sizeof peers - used, "%s%s=%s", i ? "," : "", names[i], address[i]);
    }
    for (unsigned i = 0; i < NODES; i++)
        close(fd[i]);
}

static void start(unsigned i)
{
    daemon_start(&d[i], (const char *[]){"--pool", "16M", "--lock", "off", "--name", names[i], "--listen", address[i],
                                         "--peers", peers, "--homes", "2", "--config", config, NULL});
    b[i] = daemon_open(&d[i], "test");
}

static void kill_node(unsigned i)
{
    berth_close(b[i]);
    b[i] = NULL;
    daemon_kill(&d[i]);
}

static void start_again(unsigned i)
{
    daemon_again(&d[i]);
    b[i] = daemon_open(&d[i], "test");
}

/* All marks are there, and nothing waits. `nodes` are up. */
static bool quiet(void *nodes)
{
    for (unsigned i = 0; i < NODES; i++) {
        unsigned up = *(unsigned *)nodes;
        if (!(up >> i & 1))
            continue;
        if (daemon_number(b[i], "home.queued") != 0 || daemon_number(b[i], "home.missing") != 0 ||
            daemon_number(b[i], "home.current") != NODES)
            return false;
    }
    return true;
}

static void wait_quiet(void)
{
    unsigned all = (1u << NODES) - 1;
    if (!eventually(quiet, &all, SOON_MS)) {
        for (unsigned i = 0; i < NODES; i++)
            print_message("%s: queued %g, missing %g, current %g\n", names[i], daemon_number(b[i], "home.queued"),
                          daemon_number(b[i], "home.missing"), daemon_number(b[i], "home.current"));
        fail_msg("the homes do not come to rest");
    }
}

static int setup(void **unused)
{
    (void)unused;
    struct rendezvous_member m[NODES];
    snprintf(config, sizeof config, "/tmp/berth-homes-%d.ini", (int)getpid());
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs("[namespace weights]\nreplaceable = yes\n", file);
    assert_int_equal(fclose(file), 0);
    pick_ports();
    for (unsigned i = 0; i < NODES; i++) {
        start(i);
        m[i] = (struct rendezvous_member){.id = rendezvous_id(names[i], 1), .weight = 1};
    }
    assert_int_equal(rendezvous_create(&list, m, NODES, HOMES), 0);
    wait_quiet();
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        char *text = NULL;
        if (b[i] && berth_query(b[i], BERTH_CHECK, NULL, &text) == 0)
            assert_true(strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null"));
        free(text);
        berth_close(b[i]);
        daemon_end(&d[i]);
    }
    rendezvous_destroy(list);
    unlink(config);
    return 0;
}

/* ---- questions ---- */

static struct berth_key key_in(uint32_t ns, const char *text)
{
    return (struct berth_key){.data = text, .size = (uint32_t)strlen(text), .ns = ns};
}

static bool is_home(unsigned node, const struct berth_key *key)
{
    uint16_t home[HOMES_MAX];
    struct home_key k = {.data = key->data, .size = key->size, .space = key->ns};
    uint32_t n = rendezvous_homes(list, rendezvous_place(&k), home);
    assert_int_equal(n, HOMES);
    return home[0] == node || home[1] == node;
}

static unsigned a_home(const struct berth_key *key)
{
    return is_home(0, key) ? 0 : 1;
}

static uint32_t ask_many(unsigned node, const struct berth_key *keys, uint32_t n, unsigned flags, uint64_t revision)
{
    struct wire_message m = {.head = {.op = WIRE_ASK, .flags = (uint16_t)flags}, .ask = {.revision = revision}};
    struct wire_item items[8];
    memset(&reader, 0, sizeof reader);
    remote_open(&reader, address[node], "reader");
    assert_true(n <= 8);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct wire_item){.key = {.data = keys[i].data, .size = keys[i].size, .ns = keys[i].ns}};
    m.ask.revision = revision ? revision : reader.node.revision;
    assert_int_equal(remote_ask(&reader, &m, items, n), 0);
    return reader.n;
}

static struct wire_answer ask(unsigned node, struct berth_key key)
{
    assert_int_equal(ask_many(node, &key, 1, 0, 0), 1);
    struct wire_answer a = reader.item[0].answer;
    remote_close(&reader);
    return a;
}

struct expected {
    unsigned node;
    struct berth_key key;
    uint8_t kind;
    int owner; /* FOUND: the only one */
};

static bool answers_so(void *expected)
{
    const struct expected *x = expected;
    struct wire_answer a = ask(x->node, x->key);
    return a.kind == x->kind && (a.kind != WIRE_FOUND || (a.n == 1 && a.at[0].member == x->owner));
}

static void becomes(unsigned node, struct berth_key key, uint8_t kind, int owner)
{
    struct expected x = {node, key, kind, owner};
    if (!eventually(answers_so, &x, SOON_MS))
        fail_msg("%s does not come to say %u of '%.*s'", names[node], kind, (int)key.size, (const char *)key.data);
}

static void put(unsigned node, struct berth_key key)
{
    payload_fill(payload, sizeof payload, key.data);
    assert_int_equal(berth_put(b[node], key, payload, sizeof payload, NULL), 0);
}

static bool is_gone(void *key)
{
    struct berth_view v;
    int rc = berth_get(b[0], *(struct berth_key *)key, &v, 0, BERTH_NOW);
    if (rc == 0)
        berth_release(b[0], &v, 1);
    return rc == -ENOENT;
}

/* ---- tests ---- */

static void test_found(void **unused)
{
    char text[KEYS][16];
    unsigned homes = 0;
    (void)unused;
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof text[i], "found/%u", i);
        put(i % NODES, key_of(text[i]));
    }
    wait_quiet();
    for (unsigned i = 0; i < KEYS; i += 5) {
        struct berth_key key = key_of(text[i]);
        for (unsigned node = 0; node < NODES; node++) {
            struct wire_answer a = ask(node, key);
            if (!is_home(node, &key)) {
                assert_int_equal(a.kind, WIRE_ABSENT); /* it is not asked by who knows the homes */
                continue;
            }
            homes++;
            assert_int_equal(a.kind, WIRE_FOUND);
            assert_int_equal(a.flags, WIRE_SURE);
            assert_int_equal(a.n, 1);
            assert_int_equal(a.at[0].member, i % NODES);
            assert_int_equal(a.at[0].size, sizeof payload);
            assert_true(a.at[0].version.counter > 0 && !a.at[0].down);
        }
    }
    assert_int_equal(homes, HOMES * KEYS / 5);
    for (unsigned node = 0; node < NODES; node++) {
        struct wire_answer a = ask(node, key_of("never"));
        assert_true(a.kind == WIRE_ABSENT && a.flags == WIRE_SURE);
        assert_true(daemon_number(b[node], "home.entries") > 0);
    }
}

static void test_removed(void **unused)
{
    struct berth_key key = key_of("removed");
    (void)unused;
    put(1, key);
    for (unsigned node = 0; node < NODES; node++) {
        if (is_home(node, &key))
            becomes(node, key, WIRE_FOUND, 1);
    }
    uint64_t counter = ask(a_home(&key), key).at[0].version.counter;
    assert_int_equal(berth_remove(b[1], key, NULL), 0);
    for (unsigned node = 0; node < NODES; node++) {
        if (!is_home(node, &key))
            continue;
        becomes(node, key, WIRE_ABSENT, 0);
        struct wire_answer a = ask(node, key);
        assert_int_equal(a.flags, WIRE_SURE | WIRE_TOMBSTONE);
        assert_true(a.removed.counter > counter);
    }
}

static void test_prefix(void **unused)
{
    struct berth_key keys[4] = {key_of("p/1"), key_of("p/2"), key_of("p/3"), key_of("p/4")};
    unsigned home = 0;
    (void)unused;
    for (unsigned i = 0; i < 4; i++) { /* the same home for all, so that there is a run */
        if (i != 2)
            put(0, keys[i]);
    }
    wait_quiet();
    while (home < NODES && !(is_home(home, &keys[0]) && is_home(home, &keys[1])))
        home++;
    assert_int_equal(ask_many(home, keys, 4, WIRE_PREFIX, 0), 3);
    assert_int_equal(reader.item[1].answer.kind, WIRE_FOUND);
    assert_int_equal(reader.item[2].answer.kind, WIRE_ABSENT);
    remote_close(&reader);
}

/* A newer version on another node ends the older copy at the homes at once, and the copy itself when its owner tells of
 * it again. */
static void test_replaced(void **unused)
{
    uint32_t ns[NODES];
    struct berth_view v;
    (void)unused;
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(berth_namespace(b[i], "weights", &ns[i]), 0);
    struct berth_key key = key_in(ns[0], "model"), other = key_in(ns[0], "other");
    assert_true(ns[0] == ns[1] && ns[1] == ns[2]);
    put(0, key);
    put(0, other);
    becomes(a_home(&key), key, WIRE_FOUND, 0);
    put(1, key);
    for (unsigned node = 0; node < NODES; node++) {
        if (is_home(node, &key))
            becomes(node, key, WIRE_FOUND, 1);
    }
    assert_int_equal(berth_get(b[0], key, &v, 0, BERTH_NOW), 0);
    berth_release(b[0], &v, 1);
    wait_quiet();
    kill_node(0);
    start_again(0);
    assert_true(eventually(is_gone, &key, SOON_MS));
    assert_int_equal(berth_get(b[0], other, &v, 0, BERTH_NOW), 0);
    berth_release(b[0], &v, 1);
    assert_true(daemon_number(b[0], "counters.copies_dropped") == 1);
    wait_quiet();
    becomes(a_home(&key), key, WIRE_FOUND, 1);
}

/* The home is an owner: the lease comes with the answer, and is one. */
static void test_leased(void **unused)
{
    char text[16];
    struct berth_key key = {0};
    (void)unused;
    for (unsigned i = 0; !key.data || !is_home(2, &key); i++) {
        snprintf(text, sizeof text, "leased/%u", i);
        key = key_of(text);
    }
    put(2, key);
    becomes(2, key, WIRE_FOUND, 2);
    struct berth_key both[2] = {key_of("not there"), key};
    assert_int_equal(ask_many(2, both, 2, WIRE_WANT, 0), 2);
    assert_int_equal(reader.item[0].answer.kind, WIRE_ABSENT);
    struct wire_answer a = reader.item[1].answer;
    assert_int_equal(a.flags, WIRE_SURE | WIRE_LEASED_TOO);
    assert_int_equal(a.lease.version.counter, a.at[0].version.counter);
    assert_int_equal(remote_read(&reader, &a.lease, 0, sizeof got, got), 0);
    assert_true(payload_is(got, sizeof got, text));
    remote_release(&reader, a.lease.id, 1);
    remote_close(&reader);
}

/* ABSENT is for readers with the home's list only. */
static void test_other_list(void **unused)
{
    struct berth_key key = key_of("never");
    (void)unused;
    assert_int_equal(ask_many(0, &key, 1, 0, 12345), 1);
    assert_int_equal(reader.item[0].answer.kind, WIRE_LEARNING);
    assert_int_equal(reader.item[0].answer.flags, WIRE_EVERYONE);
    remote_close(&reader);
}

/* A client has nothing to publish. */
static void test_client_publishes(void **unused)
{
    struct wire_message m = {.head = {.op = WIRE_PUBLISH, .flags = WIRE_COMPLETE}, .publish = {.stream = 1}};
    (void)unused;
    memset(&reader, 0, sizeof reader);
    remote_open(&reader, address[0], "reader");
    assert_int_equal(remote_ask(&reader, &m, NULL, 0), -EPERM);
    remote_close(&reader);
}

/* A client gives no versions: the counter in its messages, however great, is nobody's next one. */
static void test_client_counts(void **unused)
{
    struct berth_key key = key_of("counted"), next = key_of("counted next");
    (void)unused;
    put(0, key);
    wait_quiet();
    uint64_t before = ask(a_home(&key), key).at[0].version.counter;
    memset(&reader, 0, sizeof reader);
    remote_open(&reader, address[0], "reader");
    peer_counter(reader.peer, before << 8);
    struct wire_message m = {.head = {.op = WIRE_PUBLISH, .flags = WIRE_COMPLETE}, .publish = {.stream = 1}};
    assert_int_equal(remote_ask(&reader, &m, NULL, 0), -EPERM); /* it has been read */
    remote_close(&reader);
    put(0, next);
    wait_quiet();
    uint64_t after = ask(a_home(&next), next).at[0].version.counter;
    assert_true(after > before && after < before << 1);
}

/* A home that was killed knows nothing, says so, and learns it all again: first of who is there, then of the rest. */
static void test_home_restarts(void **unused)
{
    char text[16];
    struct berth_key key = {0};
    (void)unused;
    for (unsigned i = 0; !key.data || !is_home(1, &key); i++) {
        snprintf(text, sizeof text, "again/%u", i);
        key = key_of(text);
    }
    put(0, key);
    becomes(1, key, WIRE_FOUND, 0);
    kill_node(2);
    kill_node(1);
    start_again(1);
    becomes(1, key, WIRE_FOUND, 0);
    struct wire_answer a = ask(1, key), never = ask(1, key_of("never"));
    assert_int_equal(a.flags & WIRE_SURE, 0); /* c has not said what it has */
    becomes(1, key_of("never"), WIRE_LEARNING, 0);
    never = ask(1, key_of("never"));
    assert_true(never.n >= 1 && never.missing[never.n - 1] == 2);
    start_again(2);
    wait_quiet();
    assert_int_equal(ask(1, key_of("never")).kind, WIRE_ABSENT);
    assert_int_equal(ask(1, key).flags & WIRE_SURE, WIRE_SURE);
}

/* What an owner had and lost with its region is not found there any more; what it still has is. */
static void test_owner_restarts(void **unused)
{
    struct berth_key stays = key_of("stays");
    (void)unused;
    put(2, stays);
    wait_quiet();
    kill_node(2);
    start_again(2);
    wait_quiet();
    for (unsigned node = 0; node < NODES; node++) {
        if (is_home(node, &stays))
            becomes(node, stays, WIRE_FOUND, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_leased),
        cmocka_unit_test(test_other_list),
        cmocka_unit_test(test_client_publishes),
        cmocka_unit_test(test_client_counts),
        cmocka_unit_test(test_home_restarts),
        cmocka_unit_test(test_owner_restarts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
