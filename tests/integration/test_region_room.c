/* test_region_room.c: starts that lack room, or that wait: what they leave alone, and what they say. */
#include "tests/support/region_home.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static bool small_tmpfs(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", base, "tmpfs", 0, "size=300m,mode=0777") != 0) {
        print_message("SKIP: needs root to mount a small tmpfs\n");
        return false;
    }
    return true;
}

/* A daemon that is dead may start again over its region: it stays, and the refusal says how to remove it. */
static void names_the_region_in_its_way(const struct settings *s, const char *name)
{
    struct region r;
    char command[300], pool[64];
    snprintf(command, sizeof command, ": if it is not wanted, rm -r %s", at(name));
    snprintf(pool, sizeof pool, "%s/pool-0", name);
    assert_int_equal(region_open(&r, s, NULL, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, command));
    assert_int_equal(strlen(strstr(why, command)), strlen(command));
    assert_non_null(strstr(why, " MiB: if"));
    assert_true(exists(pool));
    size_t whole = strlen(why) + 1;
    for (size_t size = whole - 100; size < whole;
         size++) { /* a command that is cut short would remove something else */
        assert_int_equal(region_open(&r, s, NULL, why, size), -ENOSPC);
        assert_null(strstr(why, "rm -r"));
    }
}

static void make_private(const char *name)
{
    char line[128] = "";
    int fd = open(at(name), O_RDWR);
    assert_true(read(fd, line, sizeof line - 1) > 0);
    char *kind = strstr(line, "kept");
    assert_non_null(kind);
    strcpy(kind, "private\n");
    assert_int_equal(pwrite(fd, line, strlen(line), 0), (ssize_t)strlen(line));
    close(fd);
}

static void leftover_goes_where_that_is_enough(const struct settings *s)
{
    struct region r;
    struct settings vast = with("main", "900G");
    make_private("other/lock"); /* as an embedded node leaves it */
    assert_int_equal(region_open(&r, &vast, NULL, why, sizeof why), -ENOSPC);
    assert_true(exists("other/pool-0")); /* not in vain */
    assert_null(strstr(why, "rm -r"));
    open_well(&r, s);
    assert_false(exists("other"));
    region_close(&r, true);
}

/* Case A14: 300 MiB, a pool of 200 MiB, what others left beside it. */
static void a14_leftovers_in_a_small_tmpfs(void **unused)
{
    (void)unused;
    struct region r;
    char path[256];
    if (!small_tmpfs()) {
        skip();
        return;
    }
    struct settings s = with("main", "200M"), other = with("other", "95M");
    pid_t live = node_in_child(&other, path, sizeof path);
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -ENOSPC);
    assert_null(strstr(why, "rm -r"));
    assert_non_null(strstr(why, "needs"));
    assert_non_null(strstr(why, "free at"));
    assert_non_null(strstr(why, at("main")));
    assert_false(exists("main"));
    assert_true(exists("other/pool-0")); /* a live one is never touched */
    end_child(live);
    names_the_region_in_its_way(&s, "other");
    leftover_goes_where_that_is_enough(&s);
    for (int i = 0; i < 5; i++) {
        pid_t child = node_in_child(&s, path, sizeof path);
        assert_false(exists("other"));
        end_child(child);
    }
    open_well(&r, &s);
    assert_false(r.first);
    region_close(&r, true);

    other = with("third", "95M"); /* one that stopped cleanly is nobody's leftover either */
    names_the_region_in_its_way(&other, "main");
    assert_false(exists("third"));
    assert_int_equal(umount2(base, MNT_DETACH), 0);
}

static void *open_in_thread(void *arg)
{
    static struct region r;
    static char text[400];
    int e = region_open(&r, arg, NULL, text, sizeof text);
    if (e == 0)
        region_close(&r, true);
    return (void *)(intptr_t)e;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A node, and a child of it that has the lock too until `hold` is closed: as a kernel that takes its time. */
static pid_t node_with_twin(const struct settings *s, int *hold)
{
    int ready[2], until[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(until), 0);
    pid_t child = fork();
    if (child == 0) {
        struct region r;
        close(until[1]);
        if (region_open(&r, s, NULL, why, sizeof why) != 0)
            _exit(1);
        if (fork() == 0)
            _exit(read(until[0], &byte, 1) == 0 ? 0 : 1);
        if (write(ready[1], "", 1) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(until[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *hold = until[1];
    return child;
}

/* The lock is still there, its process killed: the start waits for it, and not for one that lives. */
static void waits_for_a_dying_holder(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    int hold;
    pid_t child = node_with_twin(&s, &hold);
    int64_t began = now_ms();
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -EBUSY);
    assert_true(now_ms() - began < 1000);
    assert_non_null(strstr(why, "is held by pid"));
    kill(child, SIGKILL); /* not reaped yet */
    pthread_t thread;
    void *result;
    struct timespec soon;
    assert_int_equal(pthread_create(&thread, NULL, open_in_thread, &s), 0);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 200000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    assert_int_equal(pthread_timedjoin_np(thread, &result, &soon), ETIMEDOUT);
    close(hold);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A stop at the n-th question; what a start had made goes, what was there stays with its mark. */
static bool stop_at(void *arg)
{
    atomic_int *left = arg;
    return atomic_fetch_sub(left, 1) <= 1;
}

static void stops_between_pieces(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "64M");
    for (int n = 1; n <= 3; n++) { /* before it allocates, and at each piece of 32 MiB */
        atomic_int left = n;
        struct mem_progress progress = {.stop = stop_at, .arg = &left};
        assert_int_equal(region_open(&r, &s, &progress, why, sizeof why), -ECANCELED);
        assert_false(exists("r"));
    }
    open_well(&r, &s);
    add_record(&r);
    region_close(&r, true);
    atomic_int left = 1;
    struct mem_progress progress = {.stop = stop_at, .arg = &left};
    assert_int_equal(region_open(&r, &s, &progress, why, sizeof why), -ECANCELED);
    open_well(&r, &s);
    assert_true(!r.first && r.clean);
    region_close(&r, true);
}

/* Nothing is removed, and no index is made large, for a pool that finds no room. */
static void too_large_for_what_is_there(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M"), vast;
    struct stat before, after;
    settings_init(&vast);
    assert_int_equal(settings_set(&vast, "region", at("r"), ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&vast, "pool", "15TiB", ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_finish(&vast, why, sizeof why), 0);
    open_well(&r, &s);
    region_close(&r, true);
    assert_int_equal(stat(at("r/index/data.mdb"), &before), 0);
    assert_int_equal(region_open(&r, &vast, NULL, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "needs 15"));
    assert_int_equal(stat(at("r/index/data.mdb"), &after), 0);
    assert_int_equal(before.st_blocks, after.st_blocks);
    s.index_size = UINT64_C(1) << 44; /* the index alone, too */
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "the index of 16777216 MiB finds no room"));
    assert_int_equal(stat(at("r/index/data.mdb"), &after), 0);
    assert_int_equal(before.st_blocks, after.st_blocks);
    s = with("r", "2M");
    open_well(&r, &s);
    assert_true(!r.first && r.clean);
    region_close(&r, true);
}

static void directories_of_all(void **unused)
{
    (void)unused;
    struct region r;
    struct settings s = with("r", "2M");
    assert_int_equal(mkdir(at("r"), 0700), 0);
    assert_int_equal(chmod(at("r"), 0777), 0);
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -EACCES);
    assert_non_null(strstr(why, "chmod go-w"));
    assert_int_equal(chmod(at("r"), 01777), 0);
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -EACCES);
    assert_null(strstr(why, "chmod"));
    assert_non_null(strstr(why, "/r/berth-"));
    settings_set(&s, "region", "/dev/shm", ORIGIN_FLAG, "", why, sizeof why);
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -EACCES);
    assert_non_null(strstr(why, "name one below it, as --region /dev/shm/berth-"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_base, drop_base)
    const struct CMUnitTest tests[] = {
        TEST(a14_leftovers_in_a_small_tmpfs), TEST(waits_for_a_dying_holder), TEST(stops_between_pieces),
        TEST(too_large_for_what_is_there),    TEST(directories_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
