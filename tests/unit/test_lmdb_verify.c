/* Damage to the index's file: an open refuses it, or all that the node does with the index afterwards ends without a
 * crash. */
#include "tests/support/draw.h"
#include "tests/support/index_dir.h"
#include "index/batch.h"
#include "index/lmdb_verify.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define KEYS 6000u
#define CASES 300u
#define PAGE 4096u
#define WINDOW (8u << 20) /* of the file: more than is in use */

static const char *const tables[] = {"objects", "meta", "sessions", "namespaces", "tombstones"};

static struct key_ref numbered(uint32_t i, char buf[KEY_MAX])
{
    memset(buf, 'k', KEY_MAX);
    uint32_t scattered = (uint32_t)(i * UINT64_C(2654435761));
    char head[24];
    memcpy(buf, head, (size_t)snprintf(head, sizeof head, "%08x %08x", scattered, i));
    return (struct key_ref){.data = buf, .size = i % 3 ? 17 : 17 + i % (KEY_MAX - 17), .ns = i % 2};
}

static void put_range(struct lmdb_index *ix, struct batch *b, uint32_t from, uint32_t to, bool put)
{
    char buf[KEY_MAX];
    batch_clear(b);
    for (uint32_t i = from; i < to; i++) {
        struct record r = {.counter = i, .slot = i, .ready = true};
        if (put)
            (void)batch_put(b, numbered(i, buf), &r);
        else
            (void)batch_delete(b, numbered(i, buf));
    }
    (void)lmdb_ops.commit(ix, b);
}

static int verify_file(const struct index_dir *f)
{
    char path[96];
    struct stat st;
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    int rc = lmdb_verify(fd, (uint64_t)st.st_size, tables, 5);
    close(fd);
    return rc;
}

/* Records in several levels of pages, a free list longer than a node, which overflows, and all the other tables. */
static void fill(struct index_dir *f)
{
    struct session_row row = {.applied = 5, .pid = 7, .name = "n"};
    f->config.map_bytes = 3u << 20;
    for (uint32_t i = 0; i < KEYS; i += 100)
        put_range(f->ix, f->b, i, i + 100, true);
    put_range(f->ix, f->b, 500, KEYS - 1000, false); /* one transaction frees hundreds of pages */
    batch_clear(f->b);
    batch_namespace(f->b, "kv", 1, 2);
    batch_session(f->b, 3, &row);
    batch_meta(f->b, META_COUNTER, KEYS);
    assert_int_equal(index_commit(f), 0);
}

static uint64_t used_pages(const uint8_t *file)
{
    uint64_t last[2];
    memcpy(&last[0], file + 136, 8);
    memcpy(&last[1], file + PAGE + 136, 8);
    return (last[0] > last[1] ? last[0] : last[1]) + 1;
}

static uint32_t overflow_page(const uint8_t *file, uint64_t pages)
{
    for (uint32_t i = 2; i < pages; i++) {
        if (file[(uint64_t)i * PAGE + 10] == 4)
            return i;
    }
    return 0;
}

static void load(const struct index_dir *f, uint8_t *file)
{
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && read(fd, file, WINDOW) > 0);
    close(fd);
}

static void store(const struct index_dir *f, const uint8_t *file, off_t size)
{
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    int fd = open(path, O_RDWR);
    size_t bytes = size < (off_t)WINDOW ? (size_t)size : WINDOW;
    assert_true(fd >= 0 && pwrite(fd, file, bytes, 0) == (ssize_t)bytes && ftruncate(fd, size) == 0);
    close(fd);
}

/* ---- accepted ---- */

/* An index is accepted at every moment of a life of commits, by itself and by an open. */
static void test_clean(void **s)
{
    struct index_dir *f = *s;
    uint8_t *file = malloc(WINDOW);
    assert_int_equal(verify_file(f), 0);
    fill(f);
    assert_int_equal(verify_file(f), 0);
    load(f, file);
    assert_true(overflow_page(file, used_pages(file)) > 0);
    free(file);
    for (unsigned round = 0; round < 300; round++) {
        uint32_t from = draw_below(KEYS);
        put_range(f->ix, f->b, from, from + 1 + draw_below(round % 10 ? 30 : 1500), draw_below(2));
        assert_int_equal(verify_file(f), 0);
    }
    put_range(f->ix, f->b, 0, 2 * KEYS, false); /* down to nothing */
    assert_int_equal(verify_file(f), 0);
    assert_int_equal(index_reopen(f), 0);
    f->config.writemap = false;
    assert_int_equal(index_reopen(f), 0);
    for (unsigned round = 0; round < 30; round++) {
        put_range(f->ix, f->b, round * 100, round * 100 + 200, round % 3);
        assert_int_equal(verify_file(f), 0);
    }
}

/* ---- refused ---- */

static uint64_t damage_bytes(uint8_t *file, uint64_t page)
{
    for (unsigned n = 1 + draw_below(4); n > 0; n--)
        file[page * PAGE + (draw_below(2) ? draw_below(PAGE) : draw_below(96))] ^= (uint8_t)(1u << draw_below(8));
    return 0;
}

static uint64_t damage_word(uint8_t *file, uint64_t page)
{
    uint64_t word = draw_below(2) ? draw() : UINT64_MAX;
    memcpy(file + page * PAGE + draw_below(PAGE / 8) * 8, &word, sizeof word);
    return 0;
}

static uint64_t damage_zero(uint8_t *file, uint64_t page)
{
    uint32_t from = draw_below(PAGE);
    memset(file + page * PAGE + from, 0, 1 + draw_below(PAGE - from));
    return 0;
}

static uint64_t damage_swap(uint8_t *file, uint64_t page)
{
    uint8_t copy[PAGE], *a = file + page * PAGE, *b = file + draw_below((uint32_t)used_pages(file)) * (uint64_t)PAGE;
    memcpy(copy, a, PAGE);
    memcpy(a, b, PAGE);
    memcpy(b, copy, PAGE);
    if (draw_below(2)) { /* each says that it is where it should be */
        memcpy(copy, a, 8);
        memcpy(a, b, 8);
        memcpy(b, copy, 8);
    }
    return 0;
}

static uint64_t damage_cut(uint8_t *file, uint64_t page)
{
    (void)file;
    return 1 + page * PAGE + draw_below(PAGE);
}

static int see(void *arg, struct key_ref key, const struct record *r)
{
    struct record out;
    (void)r;
    (void)lmdb_ops.get(arg, key, &out);
    return 0;
}

static int see_namespace(void *arg, const char *name, uint32_t id, uint32_t flags)
{
    (void)arg;
    return strlen(name) + id + flags == UINT64_MAX;
}

static int see_session(void *arg, uint64_t session, const struct session_row *row)
{
    (void)arg;
    return session + strlen(row->name) == UINT64_MAX;
}

/* In a child: 0 used, 1 refused; else a wrong error. */
static int use_all(const struct lmdb_config *c)
{
    struct lmdb_index *ix;
    struct lmdb_identity id;
    struct index_usage u;
    struct batch *b = batch_create();
    int rc = lmdb_open(&ix, c);
    if (rc != 0)
        _exit(rc == -EBADMSG ? 1 : 2);
    (void)lmdb_identity(ix, &id);
    for (unsigned i = 0; i < 2; i++) {
        (void)lmdb_ops.each(ix, see, ix);
        (void)lmdb_ops.list(ix, i, "", 0, "", 0, see, ix);
        (void)lmdb_ops.namespaces(ix, see_namespace, NULL);
        (void)lmdb_ops.sessions(ix, see_session, NULL);
        lmdb_ops.usage(ix, &u);
        for (uint32_t k = 0; k < KEYS; k += 300)
            put_range(ix, b, k, k + 300, i == 0);
    }
    put_range(ix, b, 0, 50, true);
    lmdb_close(ix);
    batch_destroy(b);
    _exit(0);
}

static int in_child(const struct index_dir *f)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        use_all(&f->config);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_damage(void **s)
{
    static uint64_t (*const kinds[])(uint8_t *, uint64_t) = {damage_bytes, damage_word, damage_zero, damage_swap,
                                                             damage_cut};
    struct index_dir *f = *s;
    uint8_t *clean = malloc(WINDOW), *file = malloc(WINDOW);
    unsigned refused = 0;
    fill(f);
    load(f, clean);
    lmdb_close(f->ix);
    f->ix = NULL;
    uint64_t pages = used_pages(clean);
    uint64_t special[] = {0, 1, overflow_page(clean, pages)};
    store(f, clean, WINDOW);
    assert_int_equal(in_child(f), 0);
    for (unsigned i = 0; i < CASES; i++) {
        uint64_t page = draw_below(4) ? draw_below((uint32_t)pages) : special[draw_below(3)];
        unsigned kind = draw_below(5);
        memcpy(file, clean, WINDOW);
        uint64_t size = kinds[kind](file, page);
        store(f, file, size ? (off_t)size : (off_t)WINDOW);
        int rc = in_child(f);
        if (rc != 0 && rc != 1)
            fail_msg("case %u: damage %u of page %llu of %llu: %d", i, kind, (unsigned long long)page,
                     (unsigned long long)pages, rc);
        refused += rc == 1;
    }
    printf("%u of %u refused\n", refused, CASES);
    assert_true(refused > CASES / 10);
    free(clean);
    free(file);
}

int main(void)
{
    (void)draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_setup, index_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_clean),
        TEST(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
