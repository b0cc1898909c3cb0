/* Commits beside which something happens: the writer is killed, the core reads. */
#include "tests/support/draw.h"
#include "tests/support/index_dir.h"
#include "index/batch.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- a killed writer ---- */

#define GROUP 16u

static void add_group(struct batch *b, uint32_t round)
{
    char text[32];
    struct record r = {.counter = round, .slot = 1, .ready = true};
    for (uint32_t i = 0; i < GROUP; i++) {
        snprintf(text, sizeof text, "%u of %u", i, round % 500);
        (void)batch_put(b, index_key(text, 1), &r);
    }
    (void)batch_meta(b, META_COUNTER, round);
}

static void commit_until_killed(struct index_dir *f, int pipe_fd)
{
    struct lmdb_index *ix;
    if (lmdb_open(&ix, &f->config) != 0)
        _exit(1);
    for (uint32_t round = (uint32_t)lmdb_ops.meta(ix, META_COUNTER) + 1;; round++) {
        batch_clear(f->b);
        add_group(f->b, round);
        if (lmdb_ops.commit(ix, f->b) != 0 || write(pipe_fd, &round, sizeof round) != sizeof round)
            _exit(1);
    }
}

static uint32_t kill_after(struct index_dir *f, uint32_t commits)
{
    int fds[2];
    uint32_t round = 0, last = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        commit_until_killed(f, fds[1]);
    close(fds[1]);
    for (uint32_t i = 0; i < commits && read(fds[0], &round, sizeof round) == sizeof round; i++)
        last = round;
    kill(pid, SIGKILL);
    while (read(fds[0], &round, sizeof round) == sizeof round)
        last = round;
    close(fds[0]);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    return last;
}

static void check_groups(struct index_dir *f, uint32_t acknowledged)
{
    uint32_t last = (uint32_t)lmdb_ops.meta(f->ix, META_COUNTER);
    assert_true(last == acknowledged || last == acknowledged + 1);
    for (uint32_t round = last; round > 0 && round + 500 > last; round--) {
        for (uint32_t i = 0; i < GROUP; i++) {
            char text[32];
            snprintf(text, sizeof text, "%u of %u", i, round % 500);
            assert_int_equal(index_counter(f, text, 1), round);
        }
    }
}

static void killed_rounds(struct index_dir *f)
{
    for (unsigned i = 0; i < 8; i++) {
        lmdb_close(f->ix);
        f->ix = NULL;
        uint32_t acknowledged = kill_after(f, 1 + draw_below(200));
        assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
        check_groups(f, acknowledged);
        batch_clear(f->b);
        add_group(f->b, (uint32_t)lmdb_ops.meta(f->ix, META_COUNTER) + 1);
        assert_int_equal(index_commit(f), 0);
    }
}

static void test_killed_writer(void **s)
{
    struct index_dir *f = *s;
    killed_rounds(f);
    index_smallest(f, false);
    f->config.map_bytes = 4u << 20;
    assert_int_equal(index_reopen(f), 0);
    killed_rounds(f);
}

/* ---- a thread that commits while this one reads ---- */

struct committer {
    struct index_dir *f;
    sem_t go, done;
    uint32_t rounds;
    int rc;
};

static void *commit_groups(void *arg)
{
    struct committer *c = arg;
    struct batch *b = batch_create();
    for (uint32_t round = 1; round <= c->rounds; round++) {
        sem_wait(&c->go);
        batch_clear(b);
        add_group(b, round * 500); /* always the same keys */
        c->rc = c->rc ? c->rc : lmdb_ops.commit(c->f->ix, b);
        sem_post(&c->done);
    }
    batch_destroy(b);
    return NULL;
}

static int same_counter(void *arg, struct key_ref key, const struct record *r)
{
    uint64_t *counter = arg;
    (void)key;
    if (*counter != 0 && r->counter != *counter)
        return 1;
    *counter = r->counter;
    return 0;
}

/* The core starts a commit and reads meanwhile: it sees the state before or after, never a part, and no snapshot of its
 * stays behind, which would fill the smallest map at once. */
static void read_beside(struct index_dir *f, uint64_t before)
{
    uint64_t counter = 0, single;
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", 0, "", 0, same_counter, &counter), 0);
    assert_true(counter == before || counter == before + 500);
    single = index_counter(f, "3 of 0", 1);
    assert_true(single == before + 500 || (single == before && counter == before) ||
                (single == INDEX_ABSENT && before == 0 && counter == 0));
    struct index_usage u;
    lmdb_ops.usage(f->ix, &u);
    assert_true(u.records == GROUP || (u.records == 0 && before == 0));
}

static void test_reads_beside_commits(void **s)
{
    struct index_dir *f = *s;
    struct committer c = {.f = f, .rounds = 4000};
    pthread_t thread;
    index_smallest(f, true);
    assert_int_equal(sem_init(&c.go, 0, 0), 0);
    assert_int_equal(sem_init(&c.done, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, commit_groups, &c), 0);
    for (uint32_t round = 1; round <= c.rounds; round++) {
        sem_post(&c.go);
        read_beside(f, (round - 1) * 500);
        sem_wait(&c.done);
        assert_int_equal(c.rc, 0);
        assert_int_equal(index_counter(f, "3 of 0", 1), round * 500);
    }
    pthread_join(thread, NULL);
    sem_destroy(&c.go);
    sem_destroy(&c.done);
}

int main(void)
{
    (void)draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_setup, index_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_killed_writer),
        TEST(test_reads_beside_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
