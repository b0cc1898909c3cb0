#include "tests/support/hostile.h"

#include "tests/support/child.h"
#include "tests/support/daemon.h"
#include "tests/support/hand.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 20000u

static struct daemon d;
static struct child bystander;
static struct berth *watcher;
static _Atomic long *work; /* the bystander's, shared with it */
static _Atomic int *stop;

int64_t hostile_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- somebody who only wants to work ---- */

/* Somebody may legally take the whole pool for a moment: then it waits, and what it has just sealed may be evicted. */
static void put_one(struct berth *b, const char *key)
{
    char data[SIZE];
    struct berth_put_opts o = {.size = sizeof o, .deadline = berth_deadline(20000000000)};
    payload_fill(data, sizeof data, key);
    CHECK(berth_put(b, key_of(key), data, sizeof data, &o) == 0);
}

static void fill_one(struct berth *b, const char *key)
{
    struct berth_draft draft;
    struct berth_put_opts o = {.size = sizeof o, .deadline = berth_deadline(20000000000)};
    CHECK(berth_create(b, key_of(key), SIZE, &o, &draft) == 0);
    payload_fill(draft.data, SIZE, key);
    CHECK(berth_seal(b, &draft, 1) == 0);
}

static void read_one(struct berth *b, const char *key)
{
    struct berth_view v;
    int e = berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER);
    CHECK(e == 0 || e == -ENOENT);
    if (e == 0) {
        CHECK(payload_is(v.data, v.size, key));
        e = berth_remove(b, key_of(key), NULL);
        CHECK(e == 0 || e == -ENOENT);
        CHECK(payload_is(v.data, v.size, key));
        berth_release(b, &v, 1);
    }
}

static int work_on(void *arg)
{
    struct berth *b = NULL;
    char key[32];
    (void)arg;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    while (!*stop) {
        snprintf(key, sizeof key, "bystander-%ld", (long)*work);
        put_one(b, key);
        read_one(b, key);
        snprintf(key, sizeof key, "drafted-%ld", (long)*work);
        fill_one(b, key);
        read_one(b, key);
        *work += 1;
    }
    berth_close(b);
    return 0;
}

static bool has_worked(void *arg)
{
    return *work > *(long *)arg + 2;
}

static bool nothing_is_left(void *arg)
{
    (void)arg;
    return daemon_number(watcher, "slots.drafts") <= 1 && daemon_number(watcher, "slots.retired") <= 2 &&
           daemon_number(watcher, "node.attached") == 2;
}

void bystander_works(void)
{
    long before = *work;
    daemon_says(&d, "what it never says", 20); /* takes what it has logged: a full pipe would stop it */
    assert_true(eventually(has_worked, &before, 20000));
}

bool bystander_finishes(void)
{
    long before = *work;
    int64_t end = hostile_now() + 20000000000;
    while (*work == before && hostile_now() < end) {
        sched_yield();
    }
    return *work != before;
}

void hostile_gone(void)
{
    bystander_works();
    assert_true(eventually(nothing_is_left, NULL, 20000));
    assert_int_equal(query_number(watcher, BERTH_CHECK, "differences"), 0);
}

static bool only_sealed_is_left(void *arg)
{
    (void)arg;
    return daemon_number(watcher, "pool.used_bytes") == daemon_number(watcher, "pool.sealed_bytes");
}

int hostile_setup(void **unused)
{
    (void)unused;
    work = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stop = (_Atomic int *)(work + 8);
    daemon_start(&d, (const char *[]){"--pool", "32MiB", "--draft-quota", "4MiB", "--quarantine", "50ms", NULL});
    snprintf(hand_path, sizeof hand_path, "%s", d.socket);
    child_start(&bystander, work_on, NULL);
    watcher = daemon_open(&d, "watcher");
    hostile_gone();
    return 0;
}

int hostile_teardown(void **unused)
{
    (void)unused;
    *stop = 1;
    int e = child_wait(&bystander);
    bool rest = !eventually(only_sealed_is_left, NULL, 20000);
    berth_close(watcher);
    daemon_end(&d);
    return e || rest;
}

void hostile_bell(const struct hand *h)
{
    uint64_t one = 1;
    if (write(h->got[5], &one, sizeof one) < 0) {
        return; /* full: it rings */
    }
}

bool hostile_cut(const struct hand *h, int timeout_ms)
{
    struct pollfd p = {.fd = h->socket, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

int hostile_ask(struct hand *h, void *message, size_t bytes, void *reply)
{
    static uint64_t id = 1000;
    const struct msg_reply *r = reply;
    hand_ask(h, ++id, message, (uint32_t)bytes, reply);
    assert_int_equal(r->head.id, id);
    return r->status;
}
