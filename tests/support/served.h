/* served.h: a berthd that serves, and two raw readers of it, for the one program that includes this.
 */
#ifndef BERTH_TESTS_SERVED_H
#define BERTH_TESTS_SERVED_H

#define MIB (1u << 20)
#define MS UINT64_C(1000000)
#define SOON_MS 20000

static struct daemon d;
static struct berth *b;
static char address[300];
static struct remote reader, other;
static uint8_t *payload, *got;

static void open_node(void)
{
    b = daemon_open(&d, "test");
    remote_address(b, address, sizeof address);
}

static void start(const char *lease, const char *quota)
{
    daemon_start(&d,
                 (const char *[]){"--pool", "16M", "--lock", "off", "--name", "owner", "--listen", "tcp://127.0.0.1:0",
                                  "--lease", lease, "--lease-quota", quota, "--log-level", "info", NULL});
    open_node();
}

/* Whatever a test did: index, slots and leases agree. */
static void end(void)
{
    char *text = NULL;
    assert_int_equal(berth_query(b, BERTH_CHECK, NULL, &text), 0);
    bool clean = strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null");
    if (!clean) {
        fail_msg("%s", text);
    }
    free(text);
    berth_close(b);
    daemon_end(&d);
}

static void put(const char *key, size_t size)
{
    payload_fill(payload, size, key);
    assert_int_equal(berth_put(b, key_of(key), payload, size, NULL), 0);
}

static void leases_ok(struct remote *r, const char *key, struct wire_lease *l)
{
    assert_int_equal(remote_lease(r, key, 0, l), 0);
}

static void reads_well(struct remote *r, const char *key, const struct wire_lease *l)
{
    memset(got, 0xA5, l->size + 8);
    assert_int_equal(remote_read(r, l, 0, l->size, got), 0);
    assert_true(payload_is(got, l->size, key));
    assert_int_equal(berth_checksum(got, l->size), l->checksum);
}

struct wanted {
    const char *path;
    double least;
};

static bool reached(void *arg)
{
    const struct wanted *w = arg;
    return daemon_number(b, w->path) >= w->least;
}

static void expect_at_least(const char *path, double least)
{
    struct wanted w = {path, least};
    if (!eventually(reached, &w, SOON_MS)) {
        fail_msg("%s is %g, not %g", path, daemon_number(b, path), least);
    }
}

static void expect_number(const char *path, double v)
{
    double is = daemon_number(b, path);
    if (is != v) {
        fail_msg("%s is %g, not %g", path, is, v);
    }
}

/* ---- leases and reads ---- */

#endif
