/* test_region_ours.c: a node takes no directory that is not its own, and removes nothing that it did not make; a region
 * of ours is known again in whatever state it was left.
 */
#include "store/shell/region.h"
#include "store/shell/region_ours.h"
#include "tests/support/daemon.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define FOREIGN "somebody's work, not a node's\n"
#define KILLS 60u

static char base[64], why[512];

static int make_base(void **unused)
{
    (void)unused;
    strcpy(base, "/dev/shm/berth-test-ours-XXXXXX");
    return mkdtemp(base) != NULL ? 0 : -1;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int drop_base(void **unused)
{
    (void)unused;
    return nftw(base, drop, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static const char *at(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", base, name);
    return out;
}

/* Makes the directories of its path too. */
static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s", at(name));
    for (char *p = path + strlen(base) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static void foreign(const char *name)
{
    write_file(name, FOREIGN, sizeof FOREIGN - 1);
}

static bool is_foreign(const char *name)
{
    char text[64] = "";
    int fd = open(at(name), O_RDONLY | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    return n == (ssize_t)sizeof FOREIGN - 1 && memcmp(text, FOREIGN, sizeof FOREIGN - 1) == 0;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

static unsigned seen;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st, (void)type, (void)ftw;
    seen++;
    return 0;
}

static unsigned files_in(const char *name)
{
    seen = 0;
    assert_int_equal(nftw(at(name), count_one, 16, FTW_PHYS), 0);
    return seen - 1;
}

static struct settings with(const char *name)
{
    static struct settings s;
    settings_init(&s);
    assert_int_equal(settings_set(&s, "region", at(name), ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "pool", "2M", ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "index-size", "1M", ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    return s;
}

static void refused(const char *dir, const char *first)
{
    struct region r;
    struct settings s = with(dir);
    unsigned before = files_in(dir);
    why[0] = '\0';
    assert_int_equal(region_open(&r, &s, NULL, why, sizeof why), -ENOTEMPTY);
    char named[600];
    snprintf(named, sizeof named, "'%s/%s' is not a region's file", at(dir), first);
    if (strstr(why, named) == NULL)
        fail_msg("'%s' does not say %s", why, named);
    assert_int_equal(files_in(dir), before);
}

static void opened(const char *dir, bool first)
{
    struct region r;
    struct settings s = with(dir);
    why[0] = '\0';
    int e = region_open(&r, &s, NULL, why, sizeof why);
    if (e != 0)
        fail_msg("%s: %s", strerror(-e), why);
    assert_int_equal(r.first, first);
    region_close(&r, true);
}

static const char *const names[] = {"lock",  "pool-0",         "slots",          "lookup",
                                    "tails", "index/data.mdb", "index/lock.mdb", "clients/7",
                                    "notes", ".hidden",        "clients/notes",  "index/notes"};
#define NAMES (sizeof names / sizeof *names)

static void one_foreign_file(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < NAMES; i++) {
        char dir[16], path[64];
        snprintf(dir, sizeof dir, "d%u", i);
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        foreign(path);
        refused(dir, names[i]);
        assert_true(is_foreign(path));
    }
}

static void all_of_them(void **unused)
{
    (void)unused;
    char path[64];
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "d/%s", names[i]);
        foreign(path);
    }
    refused("d", ".hidden");
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "d/%s", names[i]);
        assert_true(is_foreign(path));
    }
    assert_int_equal(unlink(at("d/.hidden")), 0);
    assert_int_equal(unlink(at("d/pool-0")), 0);
    foreign("d/pool-0/inside");
    refused("d", "clients/7");
    assert_true(is_foreign("d/slots") && is_foreign("d/pool-0/inside"));
    assert_int_equal(mkdir(at("e"), 0700), 0);
    opened("e", true); /* empty, and was there */
}

/* What only looks like a file of ours is not opened: a pipe would wait. */
static void other_kinds(void **unused)
{
    (void)unused;
    opened("r", true);
    assert_int_equal(unlink(at("r/pool-0")), 0);
    foreign("r/pool-0/inside");
    refused("r", "pool-0");
    assert_true(is_foreign("r/pool-0/inside") && exists("r/slots") && exists("r/index/data.mdb"));
    opened("s", true);
    assert_int_equal(unlink(at("s/tails")), 0);
    assert_int_equal(mkfifo(at("s/tails"), 0600), 0);
    refused("s", "tails");
    foreign("elsewhere/data.mdb");
    opened("t", true);
    assert_int_equal(rename(at("t/index"), at("t-index")), 0);
    assert_int_equal(symlink(at("elsewhere"), at("t/index")), 0);
    refused("t", "index");
    assert_true(is_foreign("elsewhere/data.mdb"));
    foreign("u/x");
    assert_int_equal(unlink(at("u/x")), 0);
    assert_int_equal(mkfifo(at("u/lock"), 0600), 0);
    refused("u", "lock");
}

/* ---- ours, whatever became of it ---- */

enum damage { GONE, EMPTY, HALF, ZEROED, RANDOM, DAMAGES };

static void damage(const char *name, enum damage d)
{
    struct stat st;
    assert_int_equal(stat(at(name), &st), 0);
    size_t n = (size_t)st.st_size;
    uint8_t *bytes = calloc(1, n + 1);
    assert_non_null(bytes);
    if (d == GONE)
        assert_int_equal(unlink(at(name)), 0);
    if (d == EMPTY || d == HALF)
        assert_int_equal(truncate(at(name), d == HALF ? st.st_size / 2 : 0), 0);
    for (size_t i = 0; d == RANDOM && i < n; i++)
        bytes[i] = (uint8_t)draw();
    if (d == ZEROED || d == RANDOM)
        write_file(name, bytes, n);
    free(bytes);
}

static void one_damaged_file(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 7; i++) {
        for (enum damage d = 0; d < DAMAGES; d++) {
            char path[64];
            struct region r;
            struct settings s = with("r");
            snprintf(path, sizeof path, "r/%s", names[i]);
            if (region_open(&r, &s, NULL, why, sizeof why) != 0)
                fail_msg("before damage %d of %s: %s", (int)d, names[i], why);
            region_close(&r, (i + d) % 2);
            damage(path, d);
            if (region_open(&r, &s, NULL, why, sizeof why) != 0)
                fail_msg("damage %d of %s: %s", (int)d, names[i], why);
            region_close(&r, true);
        }
    }
}

/* Of a region that is a ruin one sign is enough, and notes beside it are nobody's to remove. */
static void one_sign_is_left(void **unused)
{
    (void)unused;
    static const char *const signs[] = {"lock", "slots", "lookup", "index/data.mdb", "clients/3"};
    const uint64_t pins = PINS_MAGIC;
    for (unsigned i = 0; i < sizeof signs / sizeof *signs; i++) {
        char dir[16], path[64];
        snprintf(dir, sizeof dir, "d%u", i);
        opened(dir, true);
        snprintf(path, sizeof path, "%s/notes", dir);
        foreign(path);
        snprintf(path, sizeof path, "%s/clients/3", dir);
        write_file(path, &pins, sizeof pins);
        for (unsigned k = 0; k < 8; k++) {
            snprintf(path, sizeof path, "%s/%s", dir, k < 7 ? names[k] : "clients/3");
            if (strcmp(path + strlen(dir) + 1, signs[i]) != 0)
                damage(path, k % 2 ? RANDOM : ZEROED);
        }
        opened(dir, true);
        snprintf(path, sizeof path, "%s/notes", dir);
        assert_true(is_foreign(path));
        opened(dir, false);
    }
}

/* A start that is killed wherever it is leaves what the next one takes. */
static void killed_while_it_starts(void **unused)
{
    (void)unused;
    unsigned whole = 0;
    for (unsigned i = 0; i < KILLS; i++) {
        struct settings s = with("r");
        int64_t ns = draw_below(i % 2 ? 20000000 : 4000000);
        pid_t child = fork();
        if (child == 0) {
            struct region r;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            timer_t timer;
            struct sigevent kill_it = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
            struct itimerspec when = {.it_value = {.tv_nsec = ns + 1}};
            if (timer_create(CLOCK_MONOTONIC, &kill_it, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0)
                _exit(2);
            _exit(region_open(&r, &s, NULL, why, sizeof why) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        whole += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        struct region r;
        if (region_open(&r, &s, NULL, why, sizeof why) != 0)
            fail_msg("after a kill at %lld ns: %s", (long long)ns, why);
        if (r.lost || strstr(r.began, "is gone") != NULL) /* nothing was there, or it was taken over */
            fail_msg("after a kill at %lld ns: %s", (long long)ns, r.began);
        region_close(&r, true);
        if (i % 3)
            assert_int_equal(nftw(at("r"), drop, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
    print_message("%u of %u starts were whole before their kill\n", whole, KILLS);
}

static void no_descriptor_is_left(void **unused)
{
    (void)unused;
    struct rlimit all, few;
    opened("r", true);
    int dir_fd = open(at("r"), O_RDONLY | O_DIRECTORY | O_CLOEXEC), next = dup(dir_fd);
    assert_true(dir_fd >= 0 && next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = all.rlim_max}; /* one: the list of what is there */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int e = region_ours(dir_fd, at("r"), why, sizeof why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    close(dir_fd);
    assert_int_equal(e, -EMFILE);
    assert_non_null(strstr(why, strerror(EMFILE)));
}

/* ---- leftovers ---- */

static void leftovers_keep_what_is_not_ours(void **unused)
{
    (void)unused;
    const uint64_t pins = PINS_MAGIC;
    static const char dead[] =
        "berth-lock 0 1 1 private\n"; /* a private region's node is dead by definition of pid 0 */
    opened("old", true);
    write_file("old/lock", dead, sizeof dead - 1);
    assert_int_equal(unlink(at("old/pool-0")), 0);
    foreign("old/pool-0/inside");
    foreign("old/clients/7");
    foreign("old/clients/notes");
    foreign("old/notes");
    write_file("old/clients/8", &pins, sizeof pins);
    opened("new", true);
    assert_false(exists("old/slots") || exists("old/clients/8") || exists("old/lock"));
    assert_true(is_foreign("old/pool-0/inside") && is_foreign("old/clients/7") && is_foreign("old/clients/notes") &&
                is_foreign("old/notes"));
}

/* ---- the daemon ---- */

static struct daemon d;

static void by_the_daemon(void **unused)
{
    (void)unused;
    char kept[96];
    foreign("other/notes");
    foreign("other/pool-0");
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    assert_int_equal(daemon_stop(&d), 0);
    memcpy(kept, d.region, sizeof kept);
    snprintf(d.region, sizeof d.region, "%s", at("other"));
    assert_int_equal(daemon_try(&d), 5);
    assert_non_null(strstr(d.text, "/other/notes' is not a region's file"));
    assert_true(is_foreign("other/notes") && is_foreign("other/pool-0"));
    assert_int_equal(files_in("other"), 2);
    snprintf(d.region, sizeof d.region, "/");
    assert_int_equal(daemon_try(&d), 5);
    memcpy(d.region, kept, sizeof kept);
    char clients[200]; /* in a region of ours a file with a pin file's name that is none */
    snprintf(clients, sizeof clients, "%s/clients/7", kept);
    int fd = open(clients, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, FOREIGN, sizeof FOREIGN - 1), (ssize_t)sizeof FOREIGN - 1);
    close(fd);
    daemon_again(&d);
    assert_int_equal(access(clients, F_OK), 0);
    assert_true(daemon_says(&d, "/clients/7' is no pin file: it is left alone", 0));
    for (int i = 0; i < 9; i++) /* ids go past it */
        berth_close(daemon_open(&d, "one"));
    assert_int_equal(access(clients, F_OK), 0);
    daemon_end(&d);
}

int main(void)
{
    draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_base, drop_base)
    const struct CMUnitTest tests[] = {
        TEST(one_foreign_file),      TEST(all_of_them),
        TEST(other_kinds),           TEST(one_damaged_file),
        TEST(one_sign_is_left),      TEST(killed_while_it_starts),
        TEST(no_descriptor_is_left), TEST(leftovers_keep_what_is_not_ours),
        TEST(by_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
