/* test_cgroup.c: under a cgroup's limit a node is refused, or refuses, and is never killed. */
#include "tests/support/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define HANDLES 64
#define MORE_HANDLES 300

static struct daemon d;
static char group[128], limit_file[160], usage_file[160];

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

static bool set_limit(uint64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    return write_text(limit_file, text);
}

static uint64_t usage(void)
{
    unsigned long long bytes = 0;
    FILE *f = fopen(usage_file, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &bytes), 1);
    fclose(f);
    return bytes;
}

static bool make_group(void)
{
    static const char *const trees[][3] = {
        {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
        {"/sys/fs/cgroup", "memory.max", "memory.current"},
    };
    for (unsigned i = 0; i < 2 && geteuid() == 0; i++) {
        snprintf(group, sizeof group, "%s/berth-test-%d", trees[i][0], (int)getpid());
        snprintf(limit_file, sizeof limit_file, "%s/%s", group, trees[i][1]);
        snprintf(usage_file, sizeof usage_file, "%s/%s", group, trees[i][2]);
        if (mkdir(group, 0755) != 0)
            continue;
        if (set_limit(UINT64_C(1) << 30))
            return true;
        rmdir(group);
    }
    return false;
}

static void prepare(const char *pool, const char *objects)
{
    d = (struct daemon){.cgroup = group, .extra = {"--pool", pool, "--max-objects", objects, "--lock", "off"}};
    snprintf(d.dir, sizeof d.dir, "/dev/shm/berth-test-XXXXXX");
    assert_non_null(mkdtemp(d.dir));
    snprintf(d.region, sizeof d.region, "%s/region", d.dir);
    snprintf(d.socket, sizeof d.socket, "%s/sock", d.dir);
    snprintf(d.node, sizeof d.node, "unix:%s", d.socket);
}

/* The figure of the refusal, rounded up. */
static uint64_t needed(void)
{
    double mib = 0;
    assert_true(set_limit(8 * MIB));
    assert_int_equal(daemon_try(&d), 5);
    const char *at = strstr(d.text, "the region needs ");
    if (!at || sscanf(at, "the region needs %lf MiB, the cgroup leaves", &mib) != 1)
        fail_msg("%s", d.text);
    return (uint64_t)((mib + 0.1) * MIB);
}

/* Puts with keys of key_size bytes through many handles; how many were refused. */
static unsigned load(struct berth **b, unsigned puts, size_t size, unsigned key_size)
{
    static char data[4096], key[512];
    unsigned bad = 0;
    memset(key, 'k', sizeof key);
    for (unsigned i = 0; i < puts; i++) {
        int n = snprintf(key, sizeof key, "%u", i);
        key[n] = '.';
        struct berth_key k = {.data = key, .size = key_size};
        bad += berth_put(b[i % HANDLES], k, data, size, NULL) < 0;
    }
    return bad;
}

static void test_refused_or_served(const char *pool, const char *objects)
{
    struct berth *b[HANDLES];
    prepare(pool, objects);
    uint64_t need = needed();
    for (uint64_t less = 24 * MIB; less > 0; less -= 4 * MIB) {
        assert_true(set_limit(need - less));
        int code = daemon_try(&d);
        if (code != 5)
            fail_msg("%llu KiB less than the %llu KiB needed: %d", (unsigned long long)less >> 10,
                     (unsigned long long)need >> 10, code);
    }
    assert_true(set_limit(need + 3 * MIB)); /* what the process has had when it looks */
    daemon_again(&d);
    for (unsigned i = 0; i < HANDLES; i++)
        b[i] = daemon_open(&d, "loader");
    assert_int_equal(load(b, 20000, 0, 32), 0);
    assert_int_equal(load(b, 20000, 4096, 70), 0);
    load(b, 20000, 0, 480); /* may be refused: cells, or the index */
    assert_true(daemon_number(b[0], "node.attached") == HANDLES);
    for (unsigned i = 0; i < HANDLES; i++)
        berth_close(b[i]);
    daemon_end(&d);
}

static void test_small(void **state)
{
    (void)state;
    test_refused_or_served("16MiB", "200000");
}

static void test_larger(void **state)
{
    (void)state;
    test_refused_or_served("64MiB", "16384");
}

/* A limit that is close when the node runs: what would grow is refused, what is there goes on. */
static void test_close_to_the_limit(void **state)
{
    (void)state;
    static struct berth *b[MORE_HANDLES];
    unsigned n = HANDLES;
    prepare("16MiB", "20000");
    daemon_again(&d);
    for (unsigned i = 0; i < HANDLES; i++)
        b[i] = daemon_open(&d, "loader");
    assert_int_equal(load(b, 1000, 100, 40), 0);
    assert_true(set_limit(usage() + 6 * MIB));
    load(b, 5000, 0, 480);
    while (n < MORE_HANDLES && berth_open(&b[n], d.node, NULL) == 0)
        n++;
    assert_true(n < MORE_HANDLES);
    struct berth_error_info info = {0};
    berth_error(NULL, &info);
    assert_non_null(strstr(info.sentence, "no memory for another session: the cgroup leaves"));
    load(b, 5000, 0, 480);
    assert_true(daemon_number(b[0], "node.attached") == n);
    while (n > 0)
        berth_close(b[--n]);
    assert_true(set_limit(UINT64_C(1) << 30));
    b[0] = daemon_open(&d, "after");
    berth_close(b[0]);
    daemon_end(&d);
}

int main(void)
{
    if (SANITIZED) {
        printf("SKIP: a sanitizer takes memory of its own, which no limit has room for\n");
        return 77;
    }
    if (!make_group()) {
        printf("SKIP: needs root and a memory cgroup of its own\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_larger),
        cmocka_unit_test(test_close_to_the_limit),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(group);
    return failed;
}
