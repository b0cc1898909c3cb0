/* Case A10: a pool's size changes over a restart. A smaller one keeps what fits, once a flag allows to lose the rest; a
 * larger one keeps all; a start that is killed on the way leaves a region that the next one takes. The case's figures
 * are 256, 200, 64 and 512 MiB; here everything is an eighth of that. */
#include "store/shell/region.h"
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OBJECT (128u << 10)
#define OBJECTS 200u
#define HELD 5u /* the first and the last so many */

static struct daemon d;
static const char *extra[8];

static bool said(const char *text)
{
    return daemon_says(&d, text, 0);
}

static void set_pool(const char *pool, const char *shrink)
{
    const char **e = d.extra;
    d.text_size = 0; /* what earlier starts said */
    d.text[0] = '\0';
    e[0] = "--pool";
    e[1] = pool;
    e[2] = shrink != NULL ? "--shrink" : NULL;
    e[3] = shrink;
    e[4] = NULL;
}

static void name_of(char out[16], unsigned i)
{
    snprintf(out, 16, "object-%u", i);
}

static void put_objects(unsigned from, unsigned to)
{
    struct berth *b = daemon_open(&d, "filler");
    char name[16];
    uint8_t *data = malloc(OBJECT);
    for (unsigned i = from; i < to; i++) {
        name_of(name, i);
        payload_fill(data, OBJECT, name);
        assert_int_equal(berth_put(b, key_of(name), data, OBJECT, NULL), 0);
    }
    free(data);
    berth_close(b);
}

static void start_full(const char *pool)
{
    extra[0] = "--pool";
    extra[1] = pool;
    extra[2] = NULL;
    daemon_start(&d, extra);
    put_objects(0, OBJECTS);
}

static void hold_some(void)
{
    struct berth *b = daemon_open(&d, "holder");
    char name[16];
    for (unsigned i = 0; i < OBJECTS; i++) {
        name_of(name, i);
        if (i < HELD || i >= OBJECTS - HELD)
            assert_int_equal(berth_hold(b, key_of(name), "case", 0), 0);
    }
    berth_close(b);
}

/* How many of the objects are there, each of them whole. */
static unsigned whole_objects(unsigned from, unsigned to)
{
    struct berth *b = daemon_open(&d, "reader");
    unsigned found = 0;
    for (unsigned i = from; i < to; i++) {
        char name[16];
        struct berth_view v;
        name_of(name, i);
        int e = berth_get(b, key_of(name), &v, BERTH_VERIFY, BERTH_FOREVER);
        assert_true(e == 0 || e == -ENOENT);
        if (e == 0) {
            assert_int_equal(v.size, OBJECT);
            assert_true(payload_is(v.data, v.size, name));
            berth_release(b, &v, 1);
            found++;
        }
    }
    berth_close(b);
    return found;
}

static void check_clean(void)
{
    char command[300];
    snprintf(command, sizeof command, "'%s/berth' -n %s check >/dev/null", getenv("BERTH_BIN"), d.node);
    assert_int_equal(system(command), 0);
}

static void test_refused_once(void **state)
{
    (void)state;
    start_full("32MiB");
    hold_some();
    assert_int_equal(daemon_stop(&d), 0);
    for (unsigned i = 0; i < 2; i++) { /* the same however often it is tried: nothing was changed */
        set_pool("8MiB", NULL);
        assert_int_equal(daemon_try(&d), 2);
        assert_true(said("a pool of 8.0 MiB in place of 32 MiB would lose "));
        assert_true(said("--shrink drop-held to lose them"));
        assert_true(said("set pool=32MiB"));
        set_pool("8MiB", "drop");
        assert_int_equal(daemon_try(&d), 2);
        assert_true(said("would lose 5 objects with 640 KiB of region"));
        assert_true(said(", under holds, beyond its end"));
    }
    set_pool("32MiB", NULL);
    daemon_again(&d);
    assert_int_equal(whole_objects(0, OBJECTS), OBJECTS);
    check_clean();
    daemon_end(&d);
}

static void test_smaller_then_larger(void **state)
{
    (void)state;
    start_full("32MiB");
    hold_some();
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("8MiB", "drop-held");
    d.extra[4] = "--high"; /* what was kept is not evicted for being too much */
    d.extra[5] = "100%";
    d.extra[6] = NULL;
    daemon_again(&d);
    unsigned kept = whole_objects(0, OBJECTS);
    assert_int_equal(kept, (8 << 20) / OBJECT);
    assert_int_equal(whole_objects(0, HELD), HELD);
    assert_true(said(" warning "));
    assert_true(said("from 32 MiB to 8.0 MiB, 136 objects with 17 MiB that lay beyond its end are dropped, 5 of them "
                     "had holds"));
    struct berth *b = daemon_open(&d, "asks");
    struct berth_stat st;
    assert_int_equal(berth_stat(b, key_of("object-0"), &st), 0);
    assert_int_equal(st.n_holds, 1);
    assert_true(daemon_number(b, "pool.bytes") == 8 << 20);
    berth_close(b);
    check_clean();
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("64MiB", NULL);
    daemon_again(&d);
    assert_true(said("the pool grew from 8.0 MiB to 64 MiB, every object is kept"));
    assert_int_equal(whole_objects(0, OBJECTS), kept);
    put_objects(1000, 1300); /* they reach into the new part */
    assert_int_equal(whole_objects(1000, 1300), 300);
    assert_int_equal(whole_objects(0, OBJECTS), kept);
    check_clean();
    daemon_kill(&d);
    daemon_again(&d);
    assert_int_equal(whole_objects(1000, 1300), 300);
    daemon_end(&d);
}

/* Nothing lies beyond the new end: no flag is needed. */
static void test_what_fits_needs_no_flag(void **state)
{
    (void)state;
    extra[0] = "--pool";
    extra[1] = "32MiB";
    extra[2] = NULL;
    daemon_start(&d, extra);
    put_objects(0, 20);
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("8MiB", NULL);
    daemon_again(&d);
    assert_true(said("from 32 MiB to 8.0 MiB, every object is kept"));
    assert_int_equal(whole_objects(0, 20), 20);
    daemon_end(&d);
}

/* A run of units that reaches over the new end goes whole. */
static void test_what_reaches_over_the_end_goes(void **state)
{
    (void)state;
    char name[16];
    struct berth_view v;
    uint8_t *data = calloc(1, 6 << 20);
    extra[0] = "--pool";
    extra[1] = "32MiB";
    extra[2] = NULL;
    daemon_start(&d, extra);
    struct berth *b = daemon_open(&d, "large");
    for (unsigned i = 0; i < 4; i++) {
        name_of(name, i);
        assert_int_equal(berth_put(b, key_of(name), data, 6 << 20, NULL), 0);
    }
    free(data);
    berth_close(b);
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("14MiB", "drop");
    daemon_again(&d);
    assert_true(said(", 2 objects with 12 MiB that lay beyond its end are dropped"));
    assert_false(said("contradicted"));
    b = daemon_open(&d, "reader");
    for (unsigned i = 0; i < 4; i++) {
        name_of(name, i);
        assert_int_equal(berth_get(b, key_of(name), &v, BERTH_VERIFY, BERTH_FOREVER), i < 2 ? 0 : -ENOENT);
        if (i < 2)
            berth_release(b, &v, 1);
    }
    berth_close(b);
    check_clean();
    daemon_end(&d);
}

/* ---- clients that live meanwhile ---- */

static void look(const struct berth_view *v, const char *name)
{
    CHECK(v->size == OBJECT && payload_is(v->data, v->size, name));
}

/* Pins one object, then looks at it again over restarts; in the end it opens its handle anew. */
static int reads_one(void *arg)
{
    const char *name = arg;
    struct berth *b = NULL, *again = NULL;
    struct berth_view v, other;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(berth_get(b, key_of(name), &v, 0, BERTH_FOREVER) == 0);
    look(&v, name);
    child_tell('p');
    char c;
    while ((c = child_hear()) == 'l') {
        look(&v, name);
        child_tell('l');
    }
    if (c == 'e') { /* the pool has another size now: the view stays, the handle does not */
        int e;
        int64_t end = berth_deadline(20000000000);
        while ((e = berth_get(b, key_of("absent"), &other, 0, end)) == -ENOENT) {
            CHECK(berth_deadline(0) < end);
        }
        CHECK(e == BERTH_ERESTART);
        look(&v, name);
        CHECK(berth_open(&again, d.node, NULL) == 0);
        CHECK(berth_get(again, key_of(name), &other, BERTH_VERIFY, BERTH_FOREVER) == 0);
        look(&other, name);
        berth_release(again, &other, 1);
        berth_close(again);
    }
    berth_release(b, &v, 1);
    berth_close(b);
    return 0;
}

static void looks_again(struct child *c)
{
    parent_tell(c, 'l');
    assert_int_equal(parent_hear(c, 20000), 'l');
}

static void test_a_reader_keeps_its_memory(void **state)
{
    (void)state;
    struct child low, high;
    start_full("32MiB");
    child_start(&low, reads_one, "object-0");
    child_start(&high, reads_one, "object-199");
    assert_int_equal(parent_hear(&low, 20000), 'p');
    assert_int_equal(parent_hear(&high, 20000), 'p');
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("8MiB", "drop-held");
    assert_int_equal(daemon_try(&d), 5);
    char pid[32];
    snprintf(pid, sizeof pid, "(pid %d), and reads", (int)high.pid);
    assert_true(said(pid));
    looks_again(&low);
    looks_again(&high);
    set_pool("32MiB", NULL); /* nothing was lost by the start that was refused */
    daemon_again(&d);
    assert_int_equal(whole_objects(0, OBJECTS), OBJECTS);
    looks_again(&high);
    daemon_kill(&d);
    parent_tell(&high, 'q');
    assert_int_equal(child_wait(&high), 0);
    set_pool("8MiB", "drop");
    daemon_again(&d);
    looks_again(&low);
    daemon_kill(&d);
    set_pool("64MiB", NULL);
    daemon_again(&d);
    put_objects(1000, 1300);
    looks_again(&low);
    parent_tell(&low, 'e');
    assert_int_equal(child_wait(&low), 0);
    check_clean();
    daemon_end(&d);
}

static void test_a_writer_is_not_cut(void **state)
{
    (void)state;
    start_full("32MiB");
    struct berth *b = daemon_open(&d, "writer");
    struct berth_draft draft;
    assert_int_equal(berth_create(b, key_of("draft"), OBJECT, NULL, &draft), 0);
    assert_int_equal(daemon_stop(&d), 0);
    set_pool("8MiB", "drop-held");
    assert_int_equal(daemon_try(&d), 5);
    assert_true(said("and writes what lies beyond"));
    memset(draft.data, 'x', OBJECT);
    berth_close(b);
    daemon_again(&d);
    daemon_end(&d);
}

/* ---- killed on the way ---- */

/* A start in a child, which stands at the begin or end of its n-th system call; 0: it came to its end before. */
static pid_t start_stopped_at(struct settings *s, unsigned n)
{
    static struct region r;
    static char why[800];
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        _exit(region_open(&r, s, NULL, why, sizeof why) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return 0;
        }
    }
    return child;
}

/* true: it came to its end before. */
static bool start_killed_at(struct settings *s, unsigned n)
{
    int status;
    pid_t child = start_stopped_at(s, n);
    if (child == 0)
        return true;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return false;
}

static void copy_region(const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -a '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}

static struct settings settings_of(const char *pool)
{
    static struct settings s;
    static char why[400];
    settings_init(&s);
    assert_int_equal(settings_set(&s, "region", d.region, ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "pool", pool, ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "shrink", "drop", ORIGIN_FLAG, "", why, sizeof why), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    return s;
}

/* Each start over what the killed one left finds a region, at one size or the other, and no wrong byte in it. */
static void killed_everywhere(const char *old, const char *next, unsigned objects, unsigned least)
{
    char kept[128];
    extra[0] = "--pool";
    extra[1] = old;
    extra[2] = NULL;
    daemon_start(&d, extra);
    put_objects(0, objects);
    assert_int_equal(daemon_stop(&d), 0);
    snprintf(kept, sizeof kept, "%s/kept", d.dir);
    copy_region(d.region, kept);
    struct settings s = settings_of(next);
    bool ended = false;
    for (unsigned n = 1; !ended; n += SANITIZED ? 13 : 3) {
        copy_region(kept, d.region);
        ended = start_killed_at(&s, n);
        set_pool(n % 2 == 0 ? old : next, "drop");
        daemon_again(&d);
        assert_true(said("warm restart"));
        assert_in_range(whole_objects(0, objects), least, objects);
        check_clean();
        assert_int_equal(daemon_stop(&d), 0);
    }
    daemon_end(&d);
}

static void test_killed_while_it_shrinks(void **state)
{
    (void)state;
    killed_everywhere("8MiB", "4MiB", 45, 25);
}

static void test_killed_while_it_grows(void **state)
{
    (void)state;
    killed_everywhere("4MiB", "8MiB", 20, 20);
}

/* Tries to pin the last object, says whether it has it, and looks at it when it is told to. */
static int pins_when_told(void *arg)
{
    (void)arg;
    struct berth *b = NULL;
    struct berth_view v;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    child_tell('o');
    while (child_hear() == 'p') {
        bool has = berth_get(b, key_of("object-44"), &v, 0, BERTH_NOW) == 0;
        child_tell(has ? 'y' : 'n');
        CHECK(child_hear() == 'l');
        if (has) {
            look(&v, "object-44");
            berth_release(b, &v, 1);
        }
        child_tell('l');
    }
    berth_close(b);
    return 0;
}

/* A reader asks nobody before it pins, so it may do that at any moment of a start: the start gives up, or the reader
 * finds nothing any more. */
static void test_a_reader_comes_in_between(void **state)
{
    (void)state;
    struct child c;
    unsigned pinned = 0;
    int status = 1;
    extra[0] = "--pool";
    extra[1] = "8MiB";
    extra[2] = NULL;
    daemon_start(&d, extra);
    put_objects(0, 45);
    child_start(&c, pins_when_told, NULL);
    assert_int_equal(parent_hear(&c, 20000), 'o');
    daemon_kill(&d);
    struct settings s = settings_of("4MiB");
    for (unsigned n = 1; status != 0; n += SANITIZED ? 5 : 1) {
        pid_t start = start_stopped_at(&s, n);
        assert_true(start != 0);
        parent_tell(&c, 'p');
        bool has = parent_hear(&c, 20000) == 'y';
        pinned += has;
        assert_int_equal(ptrace(PTRACE_DETACH, start, NULL, NULL), 0);
        assert_int_equal(waitpid(start, &status, 0), start);
        assert_int_equal(status == 0, !has);
        parent_tell(&c, 'l');
        assert_int_equal(parent_hear(&c, 20000), 'l');
    }
    assert_true(pinned > 20);
    parent_tell(&c, 'q');
    assert_int_equal(child_wait(&c), 0);
    set_pool("4MiB", NULL);
    daemon_again(&d);
    assert_in_range(whole_objects(0, 45), 25, 32);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_once),
        cmocka_unit_test(test_smaller_then_larger),
        cmocka_unit_test(test_what_fits_needs_no_flag),
        cmocka_unit_test(test_what_reaches_over_the_end_goes),
        cmocka_unit_test(test_a_reader_keeps_its_memory),
        cmocka_unit_test(test_a_writer_is_not_cut),
        cmocka_unit_test(test_killed_while_it_shrinks),
        cmocka_unit_test(test_killed_while_it_grows),
        cmocka_unit_test(test_a_reader_comes_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
