/* test_trust.c: who may do what: other users, readers, and the end of those who won't let go. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"
#include "tests/support/hand.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 20000u
#define NOBODY 65534u

static struct daemon d;

static void put(struct berth *b, const char *key, size_t size)
{
    char *data = malloc(size);
    payload_fill(data, size, key);
    int e = berth_put(b, key_of(key), data, size, NULL);
    if (e < 0) {
        struct berth_error_info info;
        berth_error(b, &info);
        fail_msg("put %s: %s", key, info.sentence);
    }
    free(data);
}

/* Puts that turn the whole pool over. */
static void turn_over(struct berth *b, const char *name, int n)
{
    char key[32];
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s-%d", name, i);
        put(b, key, SIZE);
    }
}

static bool nothing_retired(void *arg)
{
    return daemon_number(arg, "slots.retired") == 0;
}

/* ---- a write where none is allowed ---- */

static sigjmp_buf after_fault;
static volatile sig_atomic_t fault_code;

static void faulted(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    fault_code = info->si_code;
    siglongjmp(after_fault, 1);
}

/* Whether a store there faults for want of permission: not where nothing is mapped. */
static bool write_faults(const void *at)
{
    struct sigaction act = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO}, old;
    fault_code = 0;
    CHECK(sigaction(SIGSEGV, &act, &old) == 0);
    if (sigsetjmp(after_fault, 1) == 0) {
        *(volatile char *)(uintptr_t)at = 'X';
    }
    CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
    return fault_code == SEGV_ACCERR;
}

/* Mappings of the region that this process could write, its own pin table aside. */
static int writable_mappings(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        n += strstr(line, d.region) && !strstr(line, "/clients/") && strstr(line, " rw");
    }
    fclose(f);
    return n;
}

/* ---- another user ---- */

struct user {
    gid_t group;
    bool welcome;
};

static void become(gid_t group)
{
    CHECK(setgroups(0, NULL) == 0 && setgid(group) == 0 && setuid(NOBODY) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid took it back */
}

/* Whoever opened the handle as a reader is not told of another user. */
static bool says_why(bool foreign)
{
    struct berth_error_info e;
    berth_error(NULL, &e);
    return strstr(e.sentence, foreign ? "another user's node" : "opened as a reader") != NULL;
}

static void every_change_is_refused(struct berth *b, bool foreign)
{
    struct berth_draft draft;
    struct berth_queue *q;
    struct berth_op op = {.opcode = BERTH_OP_PUT, .key = key_of("mine"), .data = "x", .size = 1}, *done;
    uint32_t ns = 99;
    CHECK(berth_put(b, key_of("mine"), "x", 1, NULL) == BERTH_EREADONLY);
    CHECK(berth_put(b, key_of("object"), "x", 1, NULL) == BERTH_EREADONLY);
    CHECK(berth_create(b, key_of("mine"), 1, NULL, &draft) == BERTH_EREADONLY);
    CHECK(berth_remove(b, key_of("object"), NULL) == BERTH_EREADONLY);
    CHECK(says_why(foreign));
    CHECK(berth_hold(b, key_of("object"), "l", 0) == BERTH_EREADONLY && says_why(foreign));
    CHECK(berth_drop(b, key_of("object"), "l") == BERTH_EREADONLY);
    CHECK(berth_revoke(b, key_of("object")) == BERTH_EREADONLY);
    CHECK(berth_namespace(b, "new", &ns) == BERTH_EREADONLY && ns == 99);
    CHECK(berth_queue_open(b, 1, &q) == 0 && berth_submit(q, &op, 1) == 1);
    CHECK(berth_reap(q, &done, 1, berth_deadline(20000000000)) == 1 && op.result == BERTH_EREADONLY);
    berth_queue_close(q);
}

static void everything_can_be_read(struct berth *b)
{
    struct berth_stat st;
    struct berth_entry entries[4];
    struct berth_cursor cursor = {0};
    char *text;
    CHECK(berth_stat(b, key_of("object"), &st) == 0 && st.size == SIZE);
    CHECK(berth_list(b, 0, "obj", 3, &cursor, entries, 4) == 1);
    CHECK(berth_query(b, BERTH_STATUS, NULL, &text) == 0);
    free(text);
}

static int other_user(void *arg)
{
    const struct user *user = arg;
    struct berth *b = NULL;
    struct berth_view v;
    struct berth_error_info e;
    become(user->group);
    int rc = berth_open(&b, d.node, NULL);
    if (!user->welcome) {
        CHECK(rc == -EACCES && b == NULL);
        CHECK(berth_error(NULL, &e) == -EACCES && strstr(e.sentence, "no permission") && strstr(e.sentence, d.socket));
        return 0;
    }
    CHECK(rc == 0);
    CHECK(berth_get(b, key_of("object"), &v, BERTH_VERIFY, BERTH_FOREVER) == 0);
    CHECK(payload_is(v.data, v.size, "object"));
    CHECK(writable_mappings() == 0);
    CHECK(write_faults(v.data));
    everything_can_be_read(b);
    every_change_is_refused(b, true);
    child_tell('p');
    CHECK(child_hear() == 'g');
    CHECK(payload_is(v.data, v.size, "object")); /* removed, and the pool turned over, but pinned */
    berth_release(b, &v, 1);
    child_tell('r');
    child_hear();
    berth_close(b);
    return 0;
}

static void turn_away(gid_t group)
{
    struct child c;
    struct user user = {.group = group};
    child_start(&c, other_user, &user);
    assert_int_equal(child_wait(&c), 0);
}

static bool needs_root(void)
{
    if (geteuid() == 0) {
        return false;
    }
    print_message("SKIP: needs root to become another user\n");
    return true;
}

static void let_in(const char *mode)
{
    struct child c;
    struct user user = {.group = getegid(), .welcome = true};
    daemon_start(&d, (const char *[]){"--pool", "16MiB", "--mode", mode, NULL});
    assert_int_equal(chmod(d.dir, 0711), 0);
    struct berth *b = daemon_open(&d, "owner");
    put(b, "object", SIZE);
    child_start(&c, other_user, &user);
    if (parent_hear(&c, 20000) != 'p') {
        assert_int_equal(child_wait(&c), 0);
    }
    assert_int_equal(berth_remove(b, key_of("object"), NULL), 0);
    turn_over(b, "after", 1500);
    daemon_retired(b, 1);
    parent_tell(&c, 'g');
    assert_int_equal(parent_hear(&c, 20000), 'r');
    assert_true(eventually(nothing_retired, b, 10000));
    parent_tell(&c, 'e');
    assert_int_equal(child_wait(&c), 0);
    turn_away(NOBODY);
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
}

static void test_a_group_reads(void **state)
{
    (void)state;
    if (!needs_root()) {
        let_in("0640");
    }
}

static void test_nobody_else_is_let_in(void **state)
{
    (void)state;
    if (needs_root()) {
        return;
    }
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    assert_int_equal(chmod(d.dir, 0711), 0);
    turn_away(getegid());
    turn_away(NOBODY);
    daemon_end(&d);
}

/* A node that comes back with a narrower mode narrows what the last one left. */
static void test_the_mode_of_a_restart_holds(void **state)
{
    (void)state;
    static const char *const files[] = {"pool-0", "slots", "lookup", "tails"};
    daemon_start(&d, (const char *[]){"--pool", "8MiB", "--mode", "0640", NULL});
    for (int narrow = 0; narrow < 2; narrow++) {
        struct stat st;
        char path[128];
        for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "%s/%s", d.region, files[i]);
            assert_int_equal(stat(path, &st), 0);
            assert_int_equal(st.st_mode & 0777, narrow ? 0600 : 0640);
        }
        assert_int_equal(stat(d.socket, &st), 0);
        assert_int_equal(st.st_mode & 0777, narrow ? 0600 : 0660); /* to connect is to write */
        assert_int_equal(daemon_stop(&d), 0);
        d.extra[3] = "0600";
        daemon_again(&d);
    }
    daemon_end(&d);
}

static int as_root_again(void **state)
{
    (void)state;
    return getuid() == 0 ? seteuid(0) : 0;
}

/* The descriptors themselves, whatever a library would do with them. */
static void test_descriptors_of_another_user(void **state)
{
    (void)state;
    static char reply[RING_MESSAGE_MAX];
    struct hand h;
    if (needs_root()) {
        return;
    }
    daemon_start(&d, (const char *[]){"--pool", "8MiB", "--mode", "0640", NULL});
    assert_int_equal(chmod(d.dir, 0711), 0);
    snprintf(hand_path, sizeof hand_path, "%s", d.socket);
    assert_int_equal(seteuid(NOBODY), 0);
    hand_attach(&h);
    assert_int_equal(h.welcome.flags, ATTACH_READER);
    for (int i = 0; i < 4; i++) { /* pool, slots, lookup, tails */
        char path[64];
        struct stat st;
        snprintf(path, sizeof path, "/proc/self/fd/%d", h.got[i]);
        assert_int_equal(fstat(h.got[i], &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h.got[i], 0), MAP_FAILED);
        assert_int_equal(ftruncate(h.got[i], 0), -1);
        assert_int_equal(fallocate(h.got[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
        assert_int_equal(truncate(path, 0), -1);
        assert_int_equal(fchmod(h.got[i], 0666), -1);
    }
    struct msg_grant grant = {.head = {.op = MSG_GRANT}, .size = 1, .count = 1};
    hand_ask(&h, 1, &grant, sizeof grant, reply);
    assert_int_equal(((struct msg_reply *)reply)->status, BERTH_EREADONLY);
    hand_close(&h);
    assert_int_equal(seteuid(0), 0);
    daemon_end(&d);
}

/* Of a socket it is said what is wrong with the socket. */
static void test_no_node_is_said_clearly(void **state)
{
    (void)state;
    struct berth *b = NULL;
    struct berth_error_info e;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    daemon_kill(&d); /* leaves its socket */
    assert_int_equal(berth_open(&b, d.node, NULL), BERTH_ENODE);
    assert_int_equal(berth_error(NULL, &e), BERTH_ENODE);
    assert_true(strstr(e.sentence, d.socket) && strstr(e.sentence, "nobody listens"));
    assert_int_equal(unlink(d.socket), 0);
    assert_int_equal(berth_open(&b, d.node, NULL), BERTH_ENODE);
    berth_error(NULL, &e);
    assert_true(strstr(e.sentence, d.socket) && strstr(e.sentence, "does not exist"));
    assert_null(b);
    daemon_again(&d);
    daemon_end(&d);
}

/* ---- the same user ---- */

static int stray_writer(void *arg)
{
    struct berth *b = NULL;
    struct berth_view v;
    struct berth_open_opts o = {.size = sizeof o, .flags = arg ? BERTH_OPEN_READER : 0};
    CHECK(berth_open(&b, d.node, &o) == 0);
    CHECK(berth_get(b, key_of("object"), &v, 0, BERTH_FOREVER) == 0);
    CHECK(write_faults(v.data) && write_faults((const char *)v.data + v.size - 1));
    CHECK(payload_is(v.data, v.size, "object"));
    if (arg) {
        CHECK(writable_mappings() == 0);
        every_change_is_refused(b, false);
    }
    berth_close(b);
    return 0;
}

static void test_stray_writes_fault(void **state)
{
    (void)state;
    struct child c;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "owner");
    put(b, "object", SIZE);
    for (intptr_t reader = 0; reader < 2; reader++) {
        child_start(&c, stray_writer, (void *)reader);
        assert_int_equal(child_wait(&c), 0);
    }
    berth_close(b);
    daemon_end(&d);
}

/* ---- revoke ---- */

static int pinner(void *arg)
{
    struct berth *b = NULL;
    struct berth_view v;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(berth_get(b, key_of(arg), &v, 0, BERTH_FOREVER) == 0);
    child_tell('p');
    child_hear();
    CHECK(payload_is(v.data, v.size, arg));
    berth_close(b);
    return 0;
}

static void start_pinner(struct child *c, char *key)
{
    child_start(c, pinner, key);
    assert_int_equal(parent_hear(c, 20000), 'p');
}

static int revoke_by_tool(const char *key)
{
    const char *bin = getenv("BERTH_BIN");
    char command[512];
    snprintf(command, sizeof command, "%s/berth -n %s pins --revoke %s >/dev/null", bin ? bin : "build/release/bin",
             d.node, key);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_revoke_ends_who_pins(void **state)
{
    (void)state;
    struct child on_a[3], on_b, again;
    struct berth_view v, w;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "admin"), *second = daemon_open(&d, "admin's second");
    put(b, "a", SIZE);
    put(b, "b", SIZE);
    for (int i = 0; i < 3; i++) {
        start_pinner(&on_a[i], "a");
    }
    start_pinner(&on_b, "b");
    assert_int_equal(berth_get(b, key_of("a"), &v, 0, BERTH_FOREVER), 0);
    assert_int_equal(berth_get(second, key_of("a"), &w, 0, BERTH_FOREVER), 0);
    assert_int_equal(berth_revoke(b, key_of("none")), -ENOENT);
    assert_int_equal(berth_revoke(b, key_of("a")), 3); /* neither this process, by whichever handle, nor the other */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(child_wait(&on_a[i]), 128 + SIGKILL);
    }
    assert_true(payload_is(v.data, v.size, "a"));
    assert_int_equal(berth_revoke(b, key_of("a")), 0);
    assert_int_equal(berth_remove(b, key_of("a"), NULL), 0);
    daemon_retired(b, 1);
    berth_release(b, &v, 1);
    berth_release(second, &w, 1);
    assert_true(eventually(nothing_retired, b, 10000));
    parent_tell(&on_b, 'g');
    assert_int_equal(child_wait(&on_b), 0);

    start_pinner(&again, "b");
    assert_int_equal(revoke_by_tool("b"), 0);
    assert_int_equal(child_wait(&again), 128 + SIGKILL);
    assert_int_equal(revoke_by_tool("none"), 3);
    assert_int_equal(berth_remove(b, key_of("b"), NULL), 0);
    assert_true(eventually(nothing_retired, b, 10000));
    berth_close(second);
    berth_close(b);
    daemon_end(&d);
}

/* An object that was removed or replaced is asked for, and its readers are ended, by its key still. */
static void test_removed_objects_have_their_key(void **state)
{
    (void)state;
    struct child on_a[3], on_b;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "admin");
    for (int i = 0; i < 3; i++) {
        put(b, "a", SIZE);
        start_pinner(&on_a[i], "a");
        assert_int_equal(berth_remove(b, key_of("a"), NULL), 0);
    }
    struct berth_key key = key_of("a");
    char *text;
    assert_int_equal(berth_query(b, BERTH_PINS, &key, &text), 0);
    assert_non_null(strstr(text, "\"found\": true"));
    assert_non_null(strstr(text, "\"retired\""));
    free(text);
    put(b, "a", SIZE);
    start_pinner(&on_b, "a");
    assert_int_equal(revoke_by_tool("a"), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(child_wait(&on_a[i]), 128 + SIGKILL);
    }
    assert_int_equal(child_wait(&on_b), 128 + SIGKILL);
    assert_true(eventually(nothing_retired, b, 10000));
    assert_int_equal(berth_query(b, BERTH_PINS, &(struct berth_key){.data = "none", .size = 4}, &text), 0);
    assert_non_null(strstr(text, "\"found\": false"));
    free(text);
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_group_reads),
        cmocka_unit_test(test_nobody_else_is_let_in),
        cmocka_unit_test(test_the_mode_of_a_restart_holds),
        cmocka_unit_test_teardown(test_descriptors_of_another_user, as_root_again),
        cmocka_unit_test(test_no_node_is_said_clearly),
        cmocka_unit_test(test_stray_writes_fault),
        cmocka_unit_test(test_revoke_ends_who_pins),
        cmocka_unit_test(test_removed_objects_have_their_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
