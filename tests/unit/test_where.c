/* test_where.c: where the socket is when nobody says, over file systems of the test's own. */
#include "store/berth.h"
#include "store/shell/server.h"
#include "store/where.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char why[512], list[WHERE_SOCKETS][WHERE_PATH], out[WHERE_PATH];
static bool made;

static void test_the_order(void **state)
{
    (void)state;
    char last[64], path[256];
    snprintf(last, sizeof last, "/tmp/berth-%u/berth.sock", (unsigned)geteuid());
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_int_equal(where_sockets(list), 3);
    assert_string_equal(list[0], "/run/user/7/berth.sock");
    assert_string_equal(list[1], "/run/berth/berth.sock");
    assert_string_equal(list[2], last);
    memset(path, '/', sizeof path);
    path[98] = '\0'; /* with the name one byte too many */
    const char *const none[] = {"", "relative", path};
    for (unsigned i = 0; i < 3; i++) {
        setenv("XDG_RUNTIME_DIR", none[i], 1);
        assert_int_equal(where_sockets(list), 2);
        assert_string_equal(list[0], "/run/berth/berth.sock");
    }
    unsetenv("XDG_RUNTIME_DIR");
}

static void test_a_directory_must_be_there(void **state)
{
    (void)state;
    char dir[] = "/dev/shm/berth-where-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    setenv("XDG_RUNTIME_DIR", dir, 1);
    where_to_serve(out);
    snprintf(path, sizeof path, "%s/berth.sock", dir);
    assert_string_equal(out, path);
    assert_int_equal(where_prepare(out, &made, why, sizeof why), 0);
    assert_false(made);
    snprintf(path, sizeof path, "%s/none/sock", dir);
    assert_int_equal(where_prepare(path, &made, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "the directory of"));
    assert_false(made);
    assert_int_equal(rmdir(dir), 0);
    where_to_serve(out);
    assert_null(strstr(out, dir));
    unsetenv("XDG_RUNTIME_DIR");
}

/* ---- in a child, with an empty /run and /tmp ---- */

#define CHECK(holds)               \
    do {                           \
        if (!(holds))              \
            return __LINE__ % 256; \
    } while (0)

static bool empty_places(void)
{
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/run", "tmpfs", 0, "size=1m,mode=0755") == 0 &&
           mount("none", "/tmp", "tmpfs", 0, "size=1m,mode=1777") == 0;
}

static int root_makes_run(void)
{
    struct stat st;
    where_to_serve(out);
    CHECK(strcmp(out, "/run/berth/berth.sock") == 0);
    CHECK(where_prepare(out, &made, why, sizeof why) == 0 && made);
    CHECK(stat("/run/berth", &st) == 0 && (st.st_mode & 0777) == 0755);
    where_unmake(out);
    CHECK(stat("/run/berth", &st) != 0 && errno == ENOENT);
    return 0;
}

static int others_take_tmp(void)
{
    struct stat st;
    CHECK(setuid(65534) == 0);
    where_to_serve(out);
    CHECK(strcmp(out, "/tmp/berth-65534/berth.sock") == 0);
    CHECK(!where_trusted(out));
    CHECK(where_prepare(out, &made, why, sizeof why) == 0 && made);
    CHECK(stat("/tmp/berth-65534", &st) == 0 && (st.st_mode & 0777) == 0700);
    CHECK(where_trusted(out));
    CHECK(where_prepare(out, &made, why, sizeof why) == 0 && !made);
    CHECK(chmod("/tmp/berth-65534", 0755) == 0);
    CHECK(!where_trusted(out));
    CHECK(where_prepare(out, &made, why, sizeof why) == -EACCES && !made);
    CHECK(chmod("/tmp/berth-65534", 0700) == 0 && rename("/tmp/berth-65534", "/tmp/elsewhere") == 0);
    CHECK(symlink("/tmp/elsewhere", "/tmp/berth-65534") == 0);
    CHECK(!where_trusted(out));
    CHECK(where_prepare(out, &made, why, sizeof why) == -EACCES && strstr(why, "this user's alone"));
    return 0;
}

static int somebody_elses(void)
{
    CHECK(mkdir("/tmp/berth-65534", 0755) == 0);
    return setuid(65534) == 0 && where_prepare("/tmp/berth-65534/berth.sock", &made, why, sizeof why) == -EACCES &&
                   !where_trusted("/tmp/berth-65534/berth.sock")
               ? 0
               : 1;
}

static void *serve(void *arg)
{
    server_run(arg);
    return NULL;
}

/* Who names no node finds this one. A start that fails leaves nothing, and a client says where it looked. */
static int discarded(void)
{
    static struct settings s;
    struct server *server;
    struct berth *b;
    struct stat st;
    char region[] = "/dev/shm/berth-where-XXXXXX", inside[64];
    CHECK(setuid(65534) == 0 && mkdtemp(region));
    snprintf(inside, sizeof inside, "%s/r", region);
    settings_init(&s);
    CHECK(settings_set(&s, "region", inside, ORIGIN_FLAG, "", why, sizeof why) == 0);
    CHECK(settings_set(&s, "pool", "2M", ORIGIN_FLAG, "", why, sizeof why) == 0);
    CHECK(settings_finish(&s, why, sizeof why) == 0);
    CHECK(server_create(&server, &s, why, sizeof why) == 0);
    CHECK(stat(inside, &st) == 0 && stat("/tmp/berth-65534/berth.sock", &st) == 0);
    pthread_t node;
    CHECK(pthread_create(&node, NULL, serve, server) == 0);
    CHECK(berth_open(&b, NULL, NULL) == 0);
    berth_close(b);
    server_stop(server);
    pthread_join(node, NULL);
    server_discard(server);
    CHECK(stat(inside, &st) != 0 && stat("/tmp/berth-65534", &st) != 0);
    CHECK(berth_open(&b, NULL, NULL) == BERTH_ENODE);
    struct berth_error_info e;
    CHECK(berth_error(NULL, &e) == BERTH_ENODE && strstr(e.sentence, "/run/berth/berth.sock"));
    CHECK(strstr(e.sentence, "/tmp/berth-65534/berth.sock"));
    CHECK(rmdir(region) == 0);
    return 0;
}

static void in_child(int (*body)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(empty_places() ? body() : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("SKIP: needs root to mount a small tmpfs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_root_makes_run(void **state)
{
    (void)state;
    in_child(root_makes_run);
}

static void test_others_take_tmp(void **state)
{
    (void)state;
    in_child(others_take_tmp);
}

static void test_somebody_elses_is_refused(void **state)
{
    (void)state;
    in_child(somebody_elses);
}

static void test_a_discarded_start_leaves_nothing(void **state)
{
    (void)state;
    in_child(discarded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_order),
        cmocka_unit_test(test_a_directory_must_be_there),
        cmocka_unit_test(test_root_makes_run),
        cmocka_unit_test(test_others_take_tmp),
        cmocka_unit_test(test_somebody_elses_is_refused),
        cmocka_unit_test(test_a_discarded_start_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
