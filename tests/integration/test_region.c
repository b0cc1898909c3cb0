/* test_region.c: regions as starts, restarts, kills, small file systems and other users find them. */
#include "store/shell/liveness.h"
#include "store/shell/region.h"
#include "store/slot.h"
#include "tests/support/region_home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t blocks(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void made_new(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "8M");
    s.mode = 0640;
    open_well(&r, &s);
    assert_true(r.first && !r.clean && !r.remove);
    assert_int_equal(r.incarnation, 1);
    assert_int_equal(r.super->magic, SLOTS_MAGIC);
    assert_int_equal(r.super->n_units, 4);
    assert_int_equal(r.super->pool_bytes, 8u << 20);
    assert_true(r.super->region_id != 0);
    assert_int_equal(r.pool.bytes, 8u << 20);
    assert_true(blocks(r.pool.fd) >= 8u << 20); /* whole, not sparse */
    assert_true(blocks(r.slots_fd) < r.slots_bytes || r.super->max_headers <= 4096);
    assert_int_equal(r.lookup.n_headers, r.super->max_headers);
    assert_int_equal(r.dir[0].kind, UNIT_FREE);
    struct stat st;
    assert_int_equal(fstat(r.pool.fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640); /* never writable by others, whatever the socket is */
    assert_non_null(strstr(r.began, "new region"));
    assert_int_equal(region_linked(&r, why, sizeof why), 0);
    region_close(&r, true);
    assert_true(exists("r/pool-0"));
}

static void warm(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "8M");
    uint8_t uuid[16];
    open_well(&r, &s);
    memcpy(uuid, r.super->uuid, sizeof uuid);
    memset(r.pool.base, 0x5a, r.pool.bytes);
    assert_int_equal(region_grow_headers(&r, 10), 0);
    slot_store(&r.headers[9], 77, SLOT_READY);
    assert_int_equal(region_grow_tails(&r, 3), 0);
    r.tails[100] = 9;
    r.dir[1].header = 5;
    add_record(&r);
    region_close(&r, true);
    for (int i = 0; i < 2; i++) {
        open_well(&r, &s);
        assert_true(!r.first && r.clean == (i == 0)); /* the second time the node had not stopped cleanly */
        assert_int_equal(r.incarnation, (uint64_t)i + 2);
        assert_memory_equal(r.super->uuid, uuid, sizeof uuid);
        for (uint64_t k = 0; k < r.pool.bytes; k += 4096)
            assert_int_equal(((uint8_t *)r.pool.base)[k], 0x5a);
        assert_int_equal(slot_load(&r.headers[9]), slot_word(77, SLOT_READY));
        assert_int_equal(r.tails[100], 9);
        assert_int_equal(r.dir[1].header, 5);
        assert_non_null(strstr(r.began, "warm restart with 1 object:"));
        region_close(&r, false);
    }
}

static void held(void **unused)
{
    (void)unused;
    struct region r, second;
    struct settings s = with("r", "2M");
    char pid[32];
    open_well(&r, &s);
    snprintf(pid, sizeof pid, "held by pid %d", (int)getpid());
    assert_int_equal(region_open(&second, &s, NULL, why, sizeof why), -EBUSY);
    assert_non_null(strstr(why, pid));
    pid_t child = fork();
    if (child == 0) {
        int e = region_open(&second, &s, NULL, why, sizeof why);
        _exit(e == -EBUSY && strstr(why, pid) != NULL ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(region_linked(&r, why, sizeof why), 0); /* who was refused removed nothing */
    region_close(&r, true);
}

static void expect_empty(const struct settings *s, const char *reason)
{
    struct region r;
    open_well(&r, s);
    assert_true(r.first);
    assert_int_equal(r.lost, strcmp(reason, "there was none") != 0);
    assert_int_equal(r.incarnation, 1);
    if (strstr(r.began, reason) == NULL)
        fail_msg("'%s' does not say '%s'", r.began, reason);
    struct index_usage usage;
    lmdb_ops.usage(r.index, &usage);
    assert_int_equal(usage.records, 0);
    assert_int_equal(slot_load(&r.headers[0]), 0);
    slot_store(&r.headers[0], 3, SLOT_READY);
    add_record(&r);
    region_close(&r, true);
}

static void scribble(const char *name, off_t offset, const void *bytes, size_t n)
{
    int fd = open(at(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, offset), (ssize_t)n);
    close(fd);
}

static void another_boot(void **unused)
{
    (void)unused;
    struct region r;
    struct lmdb_identity id;
    struct settings s = with("r", "2M");
    expect_empty(&s, "there was none");
    open_well(&r, &s);
    assert_false(r.first);
    assert_int_equal(lmdb_identity(r.index, &id), 0);
    assert_int_equal(id.pid, getpid());
    id.boot_id[3] ^= 1;
    assert_int_equal(lmdb_identify(r.index, &id), 0);
    region_close(&r, true);
    expect_empty(&s, "under another boot");
    open_well(&r, &s);
    assert_int_equal(lmdb_identity(r.index, &id), 0);
    id.uuid[0] ^= 1;
    assert_int_equal(lmdb_identify(r.index, &id), 0);
    region_close(&r, true);
    expect_empty(&s, "of another pool");
}

static void another_format(void **unused)
{
    (void)unused;
    struct settings s = with("r", "2M");
    uint32_t format = LAYOUT_FORMAT + 1;
    uint64_t huge = UINT64_MAX;
    expect_empty(&s, "there was none");
    scribble("r/slots", offsetof(struct slots_super, format), &format, sizeof format);
    expect_empty(&s, "another format");
    scribble("r/slots", offsetof(struct slots_super, max_headers), &huge, 4);
    expect_empty(&s, "another format");
    scribble("r/slots", offsetof(struct slots_super, headers_offset), &huge, 8);
    expect_empty(&s, "another format");
    assert_int_equal(truncate(at("r/slots"), 100), 0);
    expect_empty(&s, "another format");
    assert_int_equal(truncate(at("r/slots"), 65536), 0);
    expect_empty(&s, "another format");
    assert_int_equal(truncate(at("r/pool-0"), 4096), 0);
    expect_empty(&s, "another format");
    assert_int_equal(truncate(at("r/tails"), 4096), 0);
    expect_empty(&s, "another format");
    static const char *const names[] = {"r/slots", "r/tails", "r/pool-0"};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(unlink(at(names[i])), 0);
        expect_empty(&s, "missing");
    }
    assert_int_equal(unlink(at("r/slots")), 0); /* most of it */
    assert_int_equal(unlink(at("r/pool-0")), 0);
    assert_int_equal(unlink(at("r/index/data.mdb")), 0);
    expect_empty(&s, "missing");
    assert_int_equal(unlink(at("r/tails")), 0);
    assert_int_equal(unlink(at("r/index/data.mdb")), 0);
    expect_empty(&s, "missing");
    assert_int_equal(unlink(at("r/index/data.mdb")), 0);
    expect_empty(&s, "missing");
    static uint8_t junk[65536];
    memset(junk, 0xa5, sizeof junk);
    scribble("r/index/data.mdb", 0, junk, sizeof junk);
    expect_empty(&s, "damaged");
}

/* As a start leaves it that was killed when it had made its files: there was nothing that could be lost. */
static void unfinished_start(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    uint64_t magic = 0;
    open_well(&r, &s);
    region_close(&r, false);
    scribble("r/slots", offsetof(struct slots_super, magic), &magic, sizeof magic);
    open_well(&r, &s);
    assert_true(r.first && !r.lost);
    assert_string_equal(r.began, "new region: the start that made what was there did not finish");
    region_close(&r, true);
}

/* What the index has is not lost with its projection. */
static void lookup_is_made_anew(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    uint64_t huge = UINT64_MAX;
    expect_empty(&s, "there was none");
    for (int i = 0; i < 4; i++) {
        if (i == 0)
            assert_int_equal(unlink(at("r/lookup")), 0);
        if (i == 1)
            scribble("r/lookup", 0, &huge, sizeof huge);
        if (i == 2)
            assert_int_equal(truncate(at("r/lookup"), 0), 0);
        open_well(&r, &s);
        assert_true(!r.first && !r.lost);
        assert_int_equal(r.relooked, i < 3);
        assert_int_equal(r.incarnation, (uint64_t)i + 2);
        assert_memory_equal(r.lookup.super->uuid, r.super->uuid, 16);
        assert_int_equal(r.lookup_bytes, lookup_bytes(r.super->max_headers));
        assert_non_null(strstr(r.began, "warm restart with 1 object:"));
        assert_int_equal(region_linked(&r, why, sizeof why), 0);
        region_close(&r, true);
    }
}

static void another_size(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "4M"), larger = with("r", "6M");
    open_well(&r, &s);
    region_close(&r, true);
    open_well(&r, &larger); /* nothing in it */
    assert_true(r.first && !r.lost);
    add_record(&r);
    region_close(&r, true);
    open_well(&r, &s);
    assert_true(!r.first && r.resized && r.dropped == 0);
    assert_int_equal(r.super->n_units, 2);
    assert_int_equal(r.pool.bytes, 4u << 20);
    assert_non_null(strstr(r.began, "the pool shrank from 6.0 MiB to 4.0 MiB, every object is kept"));
    region_close(&r, true);
    assert_int_equal(truncate(at("r/pool-0"), (6 << 20) - 1), 0); /* as one that was killed on the way leaves it */
    open_well(&r, &s);
    assert_true(!r.first && !r.resized);
    region_close(&r, true);
    assert_int_equal(truncate(at("r/pool-0"), (6 << 20) - 1), 0);
    open_well(&r, &larger);
    assert_true(!r.first && r.resized);
    assert_true(blocks(r.pool.fd) >= 6u << 20);
    region_close(&r, true);
    settings_set(&larger, "pool", "64GiB", ORIGIN_FLAG, "", why, sizeof why);
    assert_int_equal(settings_finish(&larger, why, sizeof why), 0);
    assert_int_equal(region_open(&r, &larger, NULL, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "was made to grow to at most 8.00 GiB"));
}

static void killed_node_restarts_warm(void **unused)
{
    (void)unused;
    struct region r;
    char path[256];
    struct settings s = with("r", "2M");
    end_child(node_in_child(&s, path, sizeof path));
    open_well(&r, &s);
    assert_true(!r.first && !r.clean);
    assert_int_equal(r.incarnation, 2);
    region_close(&r, true);
}

static void private_leftovers(void **unused)
{
    (void)unused;
    struct region r;
    struct stat st;
    char dead[256], alive[256];
    struct settings s = with("unused", "2M");
    s.embedded = true;
    s.source[0].origin = ORIGIN_DEFAULT;
    pid_t a = node_in_child(&s, dead, sizeof dead), b = node_in_child(&s, alive, sizeof alive);
    end_child(a); /* from here on any other embedded node of this user may remove it */
    open_well(&r, &s);
    assert_true(r.remove && strncmp(r.path, "/dev/shm/berth-", 15) == 0);
    assert_int_not_equal(stat(dead, &st), 0);
    assert_int_equal(stat(alive, &st), 0);
    snprintf(dead, sizeof dead, "%s", r.path);
    region_close(&r, true);
    assert_int_not_equal(stat(dead, &st), 0);
    end_child(b);
    open_well(&r, &s);
    region_close(&r, true);
    assert_int_not_equal(stat(alive, &st), 0);
}

struct halfway {
    const struct region *r;
    int fd;
};

/* Asked while the pool is made: says where, and goes no further. */
static bool stays_halfway(void *arg)
{
    const struct halfway *h = arg;
    if (write(h->fd, h->r->path, sizeof h->r->path) != (ssize_t)sizeof h->r->path)
        _exit(1);
    for (;;)
        pause();
}

static void killed_while_its_pool_is_made(void **unused)
{
    (void)unused;
    struct region r = {0};
    struct stat st;
    int fds[2];
    char dead[sizeof r.path];
    struct settings s = with("unused", "2M");
    s.embedded = true;
    s.source[0].origin = ORIGIN_DEFAULT;
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct halfway h = {&r, fds[1]};
        struct mem_progress progress = {.stop = stays_halfway, .arg = &h};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        region_open(&r, &s, &progress, why, sizeof why);
        _exit(1);
    }
    close(fds[1]); /* a child that ends before it is halfway ends the read */
    assert_int_equal(read(fds[0], dead, sizeof dead), sizeof dead);
    assert_int_equal(stat(dead, &st), 0);
    end_child(child);
    close(fds[0]);
    open_well(&r, &s);
    assert_int_not_equal(stat(dead, &st), 0);
    region_close(&r, true);
}

/* The lock is free, its process still there: the start waits for its end. */
static void waits_for_the_old_process(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    char line[128];
    struct stat ns;
    open_well(&r, &s);
    region_close(&r, false);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_int_equal(stat("/proc/self/ns/pid", &ns), 0);
    int n = snprintf(line, sizeof line, "berth-lock %d %llu %llu kept\n", child,
                     (unsigned long long)process_start_time(child), (unsigned long long)ns.st_ino);
    assert_int_equal(truncate(at("r/lock"), 0), 0);
    scribble("r/lock", 0, line, (size_t)n);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, open_in_thread, &s), 0);
    still_runs(thread);
    end_child(child);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, 0);
}

static int as_nobody(void)
{
    struct region r;
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        return 10;
    struct settings s = with("nobody", "2M");
    s.lock = MEM_LOCK_REQUIRED;
    if (region_open(&r, &s, NULL, why, sizeof why) != -EPERM || strstr(why, "memlock limit is 64 KiB") == NULL)
        return 11;
    if (exists("nobody"))
        return 12;
    s.lock = MEM_LOCK_AUTO;
    if (region_open(&r, &s, NULL, why, sizeof why) != 0)
        return 13;
    bool pretends = mlock(r.pool.base, r.pool.bytes) == 0; /* sanitizers make mlock do nothing and succeed */
    if (!pretends &&
        (r.locked || strstr(r.lock_note, "the pool's 2.0 MiB are not locked, the memlock limit is 64 KiB") == NULL))
        return 14;
    region_close(&r, true);
    return 0;
}

static void memlock(void **unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0)
        _exit(as_nobody());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    if (geteuid() != 0)
        return;
    struct region r; /* what another user made first is not used */
    struct settings s = with("nobody", "2M");
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -EACCES);
    assert_non_null(strstr(why, "belongs to uid 65534"));
    assert_true(exists("nobody/pool-0"));
}

static void unlinked(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    static const char *const names[] = {"r/pool-0", "r/slots", "r/lookup", "r/tails", "r/index/data.mdb", "r/lock"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        open_well(&r, &s);
        assert_int_equal(unlink(at(names[i])), 0);
        assert_int_equal(region_linked(&r, why, sizeof why), -ENOENT);
        assert_non_null(strstr(why, at(names[i])));
        assert_non_null(strstr(why, "logind"));
        memset(r.pool.base, 1, r.pool.bytes); /* mappings stay valid */
        region_close(&r, true);
    }
}

static void grows(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "64M");
    open_well(&r, &s);
    uint32_t most = r.super->max_headers;
    uint64_t before = blocks(r.slots_fd);
    assert_int_equal(region_grow_headers(&r, 1), 0);
    assert_int_equal(blocks(r.slots_fd), before); /* the beginning is there */
    assert_int_equal(region_grow_headers(&r, most), 0);
    assert_true(blocks(r.slots_fd) >= (uint64_t)most * sizeof(struct slot_header));
    assert_int_equal(region_grow_headers(&r, most + 1), -ENOSPC);
    assert_int_equal(region_grow_tails(&r, r.n_tails), 0);
    assert_int_equal(region_grow_tails(&r, r.n_tails + 1), -ENOSPC);
    region_close(&r, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_base, drop_base)
    const struct CMUnitTest tests[] = {
        TEST(made_new),
        TEST(warm),
        TEST(held),
        TEST(another_boot),
        TEST(another_format),
        TEST(unfinished_start),
        TEST(lookup_is_made_anew),
        TEST(another_size),
        TEST(killed_node_restarts_warm),
        TEST(private_leftovers),
        TEST(killed_while_its_pool_is_made),
        TEST(waits_for_the_old_process),
        TEST(memlock),
        TEST(unlinked),
        TEST(grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
