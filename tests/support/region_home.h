/* region_home.h: a directory on tmpfs for the regions of a test, regions in it, and nodes that have them. For test
 * programs, which include it once each. */
#ifndef BERTH_TESTS_REGION_HOME_H
#define BERTH_TESTS_REGION_HOME_H

#include "store/shell/region.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64], why[800];

static inline int make_base(void **unused)
{
    (void)unused;
    strcpy(base, "/dev/shm/berth-test-region-XXXXXX");
    return mkdtemp(base) != NULL && chmod(base, 0777) == 0 ? 0 : -1;
}

static inline int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline int drop_base(void **unused)
{
    (void)unused;
    umount2(base, MNT_DETACH); /* where a test failed with its tmpfs mounted */
    return nftw(base, drop, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline const char *at(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", base, name);
    return out;
}

static inline bool exists(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

static inline struct settings with(const char *name, const char *pool)
{
    static struct settings s;
    settings_init(&s);
    assert_int_equal(settings_set(&s, "region", at(name), ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "pool", pool, ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "index-size", "1M", ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    return s;
}

static inline void open_well(struct region *r, const struct settings *s)
{
    why[0] = '\0';
    int e = region_open(r, s, NULL, why, sizeof why);
    if (e != 0)
        fail_msg("%s: %s", strerror(-e), why);
}

static inline void add_record(struct region *r)
{
    struct key_ref key = {.data = "k", .size = 1};
    struct record record = {.counter = 1, .ready = true, .size = 5};
    struct batch *b = batch_create();
    assert_int_equal(batch_put(b, key, &record), 0);
    assert_int_equal(lmdb_ops.commit(r->index, b), 0);
    batch_destroy(b);
}

/* A node in a child; it has opened its region when this returns. */
static inline pid_t node_in_child(const struct settings *s, char *path, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct region r;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (region_open(&r, s, NULL, why, sizeof why) != 0) {
            fprintf(stderr, "%s\n", why);
            _exit(1);
        }
        if (write(ends[1], r.path, sizeof r.path) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    char got[sizeof((struct region *)0)->path];
    assert_int_equal(read(ends[0], got, sizeof got), (ssize_t)sizeof got);
    close(ends[0]);
    snprintf(path, size, "%s", got);
    return child;
}

static inline void end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#endif
